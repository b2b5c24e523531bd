"""What a run has measured of this machine's costs, kept for `check`, and what follows for rows that are not valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from containernet_env.analysis.capacity import advice
from containernet_env.analysis.request_costs import sample_of
from containernet_env.base.errors import text_of
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.plan.identity import config_hash
from containernet_env.plan.plan import Plan
from containernet_env.results import machine_costs
from containernet_env.results.machine_costs import MachineKey, SyncSample
from containernet_env.results.provenance import MachineFacts
from containernet_env.results.run_files import ClusterRecord


def advised(plan: Plan, key: MachineKey, outcome: ScenarioOutcome) -> ScenarioOutcome:
    """An outcome with what would make its figures valid. Never raises."""
    if outcome.state in ("valid", "failed"):
        return outcome
    try:
        known, _ = machine_costs.read(key)
        own = sample_of(outcome, len(plan.config.nodes), key.cores, config_hash(plan), plan.store.name)
        requests = [*known.requests, *([] if own is None else [own])]
        return replace(outcome, advice=advice(plan, outcome, known.model_copy(update={"requests": requests})))
    except Exception:  # noqa: BLE001 - the row is worth more
        return outcome


def keep_costs(
    plan: Plan, facts: MachineFacts, clusters: Sequence[ClusterRecord], outcomes: Sequence[ScenarioOutcome]
) -> str | None:
    """Add what was measured to the machine's file; a note where that cannot be. Never raises.

    Profiles cost CPU time that others do not spend, so scenarios of such a run are left out; so are those with events,
    of which requests wait and fail.
    """
    try:
        members = len(plan.topology.members)
        usual = [outcome for outcome in outcomes if outcome.disruptions is None]
        measured = [] if plan.options.profile is not None else usual
        which = config_hash(plan), plan.store.name
        samples = [sample_of(outcome, members, facts.cores, *which) for outcome in measured]
        syncs = [
            SyncSample(
                at=cluster.at,
                data=plan.config.etcd.data,
                median_ns=median(times.median_ns for times in cluster.sync.values()),
            )
            for cluster in clusters
            if cluster.sync
        ]
        return machine_costs.add(MachineKey.of(facts), [one for one in samples if one is not None], syncs)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run and its rows are worth more
        return f"what requests cost on this machine is not kept: {text_of(error)}"
