"""To repeat a run from its run directory alone, where nothing that matters differs; or all the same, and say so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from containernet_env.base.clock import Moment
from containernet_env.base.errors import UsageError
from containernet_env.base.stop import Stop
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.containernet import select
from containernet_env.fidelity.rtt import Tolerance
from containernet_env.model.config import Config
from containernet_env.model.scenario import ScenarioSet
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import Plan
from containernet_env.results.checksums import CHECKSUMS, digest_of
from containernet_env.results.differences import differences
from containernet_env.results.provenance import Difference, Repeats, StoreFacts
from containernet_env.results.run_directory import (
    MANIFEST,
    SCENARIOS_INPUT,
    TOPOLOGY_INPUT,
    ReadRun,
    find_run,
    read_run,
    results_file_of,
)
from containernet_env.results.run_files import Manifest
from containernet_env.results.run_result import RunResult
from containernet_env.results.run_shown import ShownManifest
from containernet_env.results.whole_lines import reason
from containernet_env.runs import preflight
from containernet_env.runs.demands import require_root
from containernet_env.runs.manifest import manifest_of
from containernet_env.runs.measure import carry_out
from containernet_env.runs.prepare import RunChoices, prepare
from containernet_env.runs.progress import RunProgress
from containernet_env.setup.images import required_images

_EDITED = "what was measured can no longer be told from it"


@dataclass(frozen=True, slots=True)
class Rerun:
    """A run that is about to be repeated, its rows in ``out``."""

    plan: Plan
    out: Path
    tolerance: Tolerance | None
    repeats: Repeats


def rerun(
    run: Path | str,
    out: Path | str | None = None,
    *,
    anyway: bool = False,
    progress: RunProgress | None = None,
    stop: Stop | None = None,
    yes_load_this_cluster: bool = False,
) -> RunResult:
    """Repeat ``run``, a run directory or a results file, whose newest run is repeated; see ``measure.measure``.

    ``out`` is the CSV that rows are appended to, that of the run unless it is given. Raises ``UsageError`` before
    anything is created where something that matters is not as it was, naming it (``results.differences``); with
    ``anyway`` the manifest of the new run says what. Needs root.
    """
    found = prepare_rerun(Path(run), Path(out) if out is not None else None, anyway=anyway)
    return carry_out(
        found.plan,
        found.out,
        tolerance=found.tolerance,
        progress=progress,
        stop=stop,
        repeats=found.repeats,
        yes_load_this_cluster=yes_load_this_cluster,
    )


def prepare_rerun(place: Path, out: Path | None = None, *, anyway: bool = False) -> Rerun:
    """What `rerun` would carry out; raises what it would raise before anything is created."""
    run = read_run(find_run(place))
    if run.manifest is None:
        raise UsageError(f"{run.path} cannot be repeated: it has no {MANIFEST}\n  The run ended before it was written.")
    was = Manifest.model_validate(run.manifest)
    plan = _plan(run.path, was)
    wanted = out or results_file_of(place, run.path)
    if wanted is None:
        raise UsageError(
            f"{run.path} lies beside no results file: nobody can tell where its rows are to go\n"
            "  Name OUT, the CSV file that rows are appended to."
        )
    preflight.check(plan, wanted)
    if plan.config.external is None:
        require_root()
    allowed = was.flags.rtt_tolerance
    tolerance = None if allowed is None else Tolerance(allowed.absolute_ns, allowed.ratio)
    found = [*_edited(run, was), *differences(was, _now(plan, was, tolerance)), *_testbed(run)]
    refused = [difference for difference in found if difference.matters]
    if refused and not anyway:
        lines = [f"  {item} ({item.why})" for item in refused]
        raise UsageError(
            "\n".join((f"{run.path} cannot be repeated as it was:", *lines))
            + "\n  With --anyway it is run all the same, and its manifest says what differs."
        )
    return Rerun(plan, wanted, tolerance, Repeats(run_id=was.run_id, differences=found))


def _plan(run: Path, was: Manifest) -> Plan:
    """The plan of the run, with an id of its own. Raises ``ConfigError`` and ``UsageError``."""
    config, scenario_set = _configured(run, was)
    listed, flags = was.plan.get("scenarios"), was.flags
    if not isinstance(listed, list) or len(listed) != flags.repeat * len(scenario_set.scenarios):
        raise UsageError(
            f"{run / MANIFEST} contradicts itself: flags.repeat is {flags.repeat}, its plan has "
            f"{len(listed) if isinstance(listed, list) else 'no'} scenarios, and {SCENARIOS_INPUT} "
            f"{len(scenario_set.scenarios)}\n  It was changed since the run wrote it."
        )
    named = {name: value for name, value in flags.model_dump().items() if name in RunChoices.__optional_keys__}
    return prepare(config, scenario_set, **cast(RunChoices, named))


def _configured(run: Path, was: Manifest) -> tuple[Config, ScenarioSet]:
    """What was configured, under the names of the files that it was first read from."""
    plan = ShownManifest.model_validate({"plan": was.plan}).plan
    config, scenario_set = load_config(run / TOPOLOGY_INPUT), load_scenarios(run / SCENARIOS_INPUT)
    config = replace(config, path=Path(plan.config.path), sha256=plan.config.sha256)
    if plan.scenario_file is not None:
        file = plan.scenario_file
        scenario_set = replace(scenario_set, path=Path(file.path), sha256=file.sha256)
    return config, scenario_set


def _now(plan: Plan, was: Manifest, tolerance: Tolerance | None) -> Manifest:
    """The manifest that the run would have now, as far as that can be told before anything is brought up."""
    # Under the id that it had: it is in what members are started with.
    same = build_plan(plan.config, plan.scenario_set, replace(plan.options, run_id=str(was.plan.get("run_id"))))
    is_external = plan.config.external is not None
    tags = None if is_external else required_images(plan.store)
    now = manifest_of(same, tags, tolerance, run_id=was.run_id, began=Moment.now(), command=())
    told = was.store.version if was.store is not None else None  # where only the members tell
    version = told if is_external else plan.store.version
    return now.model_copy(
        update={
            # As it will be in the file.
            "plan": json.loads(json.dumps(now.plan, default=str)),
            "links": None if is_external else select.foreseen(plan),
            "store": StoreFacts(kind=plan.store.name, version=version, leader_at_start=None),
        }
    )


def _testbed(run: ReadRun) -> Iterator[Difference]:
    """A run of a sweep may have found a testbed that another one had left; a repeated one brings up its own."""
    for event in run.events:
        if event["kind"] == "testbed_reused":
            why = "what the first scenario finds is in the column Reused"
            yield Difference(name="testbed", was=event["text"], now="brought up anew", matters=False, why=why)


def _edited(run: ReadRun, was: Manifest) -> Iterator[Difference]:
    """Which of the files that a run is repeated from are not those that it wrote."""
    if run.checked is None:
        why = "the run was killed, or goes on: nobody can tell whether its files were changed since"
        yield Difference(name=CHECKSUMS, was="written at the end", now="missing", matters=True, why=why)
    changed = {item.name: item.how for item in run.checked.changed} if run.checked is not None else {}
    wanted = {TOPOLOGY_INPUT: was.inputs.topology.sha256, SCENARIOS_INPUT: was.inputs.scenarios.sha256}
    for name in (MANIFEST, TOPOLOGY_INPUT, SCENARIOS_INPUT):
        if name in changed:
            yield Difference(name=name, was="as the run left it", now=changed[name], matters=True, why=_EDITED)
        elif name in wanted and (digest := _digest(run.path / name)) != wanted[name]:
            yield Difference(
                name=name,
                was=f"SHA-256 {wanted[name][:12]}",
                now=f"SHA-256 {digest[:12]}",
                matters=True,
                why=f"{MANIFEST} names another file",
            )


def _digest(path: Path) -> str:
    try:
        return digest_of(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {reason(error)}") from error
