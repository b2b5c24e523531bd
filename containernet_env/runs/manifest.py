"""The manifest of a run: what another run has to be equal in."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from containernet_env.base import VERSION
from containernet_env.base.clock import Moment
from containernet_env.config.plan import OPTIONS, Plan, PlanOptions, config_hash, plan_values
from containernet_env.config.reader import json_text
from containernet_env.config.traces import content_of, copy_name, traces_of
from containernet_env.config.writer import scenarios_text, topology_text
from containernet_env.model.findings import RULES
from containernet_env.network.chance import ALARM, MISS
from containernet_env.network.gate_trains import EMULATOR, KERNEL
from containernet_env.network.rtt import Tolerance
from containernet_env.results.run_directory import SCENARIOS_INPUT, TOPOLOGY_INPUT
from containernet_env.results.run_files import Flags, ImageFacts, InputFile, Inputs, Manifest, ProgramFacts, Repeats
from containernet_env.runs import machine, version
from containernet_env.setup import builds, images


def inputs_of(plan: Plan) -> dict[str, str]:
    """The files from which `rerun` makes the same plan, by their names in the run directory."""
    scenarios = [planned.scheduled.scenario for planned in plan.once]
    topology = topology_text(plan.config)
    for trace in traces_of(plan.config):
        topology = topology.replace(json_text(trace.file), json_text(copy_name(trace)))
    return {TOPOLOGY_INPUT: topology, SCENARIOS_INPUT: scenarios_text(plan.dataset, scenarios)}


def trace_copies(plan: Plan) -> dict[str, str]:
    """The files of its traces, by their names in the run directory. Raises ``RunError`` if one has changed."""
    folder = Path(TOPOLOGY_INPUT).parent
    return {f"{folder / copy_name(trace)}": content_of(trace).decode() for trace in traces_of(plan.config)}


def manifest_of(
    plan: Plan,
    tags: images.Images | None,
    tolerance: Tolerance | None,
    *,
    run_id: str,
    began: Moment,
    command: Sequence[str],
    repeats: Repeats | None = None,
) -> Manifest:
    """The known facts of a run of ``plan`` at its start; ``tags`` ``None`` if no engine is involved.

    Raises the errors of engine queries.
    """
    roles = {} if tags is None else {plan.store.name: tags.member, "benchmark": tags.benchmark}
    topology, scenarios = (
        InputFile(file=name, sha256=hashlib.sha256(text.encode()).hexdigest()) for name, text in inputs_of(plan).items()
    )
    return Manifest(
        run_id=run_id,
        began=began.at,
        began_ns=began.at_ns,
        command=list(command),
        program=program_facts(),
        machine=machine.facts() if tags is not None else machine.facts(with_engine=False),
        images={role: ImageFacts(tag=tag, digest=images.digest(tag)) for role, tag in roles.items()},
        flags=flags_of(plan.options, tolerance),
        inputs=Inputs(topology=topology, scenarios=scenarios),
        config_hash=config_hash(plan),
        tolerances=tolerances(),
        plan=plan_values(plan),
        repeats=repeats,
    )


def tolerances() -> dict[str, Any]:
    """By what the network is called as configured, and a row valid, where no flag says otherwise."""
    return {
        "gate": {"emulator": asdict(EMULATOR), "kernel": asdict(KERNEL), "alarm": ALARM, "miss": MISS},
        "verdict": {kind: rule.threshold for kind, rule in RULES.items()},
    }


def flags_of(options: PlanOptions, tolerance: Tolerance | None) -> Flags:
    """The options, and what `measure` takes beside them."""
    kept = {name: getattr(options, name) for name in OPTIONS if name in Flags.model_fields}
    allowed = None if tolerance is None else asdict(tolerance)
    return Flags(**kept | {"profile": list(options.profile), "rtt_tolerance": allowed})


def program_facts() -> ProgramFacts:
    return ProgramFacts(
        version=VERSION,
        commit=version.commit(),
        dirty=version.dirty(),
        sources=version.source_hash(),
        python=platform.python_version(),
        go=builds.go_version(),
    )
