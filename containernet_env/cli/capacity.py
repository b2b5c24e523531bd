"""The section "This machine" of `check` and `run --dry-run`: whether it carries the config, and what would help."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console

from containernet_env.analysis.capacity import Carried, by_emulator, carried, helps_text, rounded
from containernet_env.base.units import describe_size
from containernet_env.cli.render import render_lines
from containernet_env.fidelity.gate import plan_for
from containernet_env.model.proof import directions_text
from containernet_env.model.scenario import Scenario
from containernet_env.plan.plan import Plan
from containernet_env.results import machine_costs
from containernet_env.runs import machine
from containernet_env.stores.kinds import KINDS

_TOO_SMALL = {
    "machine": "up to {wanted} of this machine's {has} cores; above {enough}, hosts wait",
    "links": "{wanted} cores for the link emulator; above {enough} of its one core, frames wait",
    "generator": "{wanted} cores for the load generator; above {enough} of its one core, it sets the rate",
    "client": "{wanted} cores for the client's host, which is limited to {has}",
}


@dataclass(frozen=True, slots=True)
class Memory:
    """Of this machine; what programs can have is ``None`` where the kernel does not tell."""

    all_bytes: int
    available_bytes: int | None


def render_machine(plan: Plan, console: Console) -> None:
    """Print what this machine has, and whether it carries the plan's scenarios, as its last runs let tell."""
    key = machine.key()
    known, note = machine_costs.read(key)
    memory = Memory(machine.memory_bytes(), machine.memory_available_bytes())
    lines = machine_lines(plan, carried(plan, known), key.cpu_model, memory)
    render_lines("This machine", [*lines, *([] if note is None else [note])], console)


def machine_lines(plan: Plan, carries: Carried, cpu_model: str, memory: Memory) -> Iterator[str]:
    """The lines of the section."""
    cores = plan.options.machine_cores
    kept = ", one of them for the link emulator" if plan.options.links_core is not None else ""
    yield f"{cores} core{'s' if cores > 1 else ''} ({cpu_model}){kept}"
    yield from _memory(plan, memory)
    yield from _sync(carries, plan)
    yield from _forwarding(carries)
    yield from _unproved(plan)
    yield from _scenarios(plan, carries)


def _memory(plan: Plan, memory: Memory) -> Iterator[str]:
    limits = sum(host.memory_bytes or 0 for host in plan.hosts)
    available = memory.all_bytes if memory.available_bytes is None else memory.available_bytes
    sums = f", the limits add up to {describe_size(limits)}" if limits else ""
    yield f"{_gib(available)} of {_gib(memory.all_bytes)} GiB of memory are free{sums}"
    if limits > available:
        yield "  hosts that use theirs may be killed: lower limits or more memory would help"


def _unproved(plan: Plan) -> Iterator[str]:
    """What a run's proof of the network leaves out: the same gate is planned, so what cannot be fails here."""
    emulated = plan.options.links != "netem" and plan.options.engine == "builtin"
    left_out = plan_for(plan.topology, "emulator" if emulated else "netem").left_out
    reasons: dict[tuple[str, str], list[str]] = {}
    for (direction, prop), why in left_out.items():
        reasons.setdefault((prop, why), []).append(direction)
    for (name, why), directions in reasons.items():
        yield f"the {name} of {directions_text(directions)} cannot be proved: {why}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f}"


def _sync(carries: Carried, plan: Plan) -> Iterator[str]:
    if carries.sync_s is not None:
        yield f"an fdatasync takes {carries.sync_s * 1e3:.2f} ms ({plan.config.etcd.data})"
    if (slow := carries.slow_sync) is not None:
        yield f"  of the {slow.floor_s * 1e3:.2f} ms that {slow.scenario.name} takes at least;"
        section = KINDS[plan.store.name].section
        yield f'  with a faster disk, or "data": "tmpfs" in "{section}", it measures less of the disk'


def _forwarding(carries: Carried) -> Iterator[str]:
    if carries.forwarding is not None and (frames_per_s := carries.forwards_per_s) is not None:
        frame_bytes = carries.forwarding.frame_bytes
        mbps = frames_per_s * frame_bytes * 8 / 1e6
        size = f"{rounded(mbps)} Mbit/s in frames of {frame_bytes:.0f} bytes"
        yield f"the links carry about {rounded(frames_per_s)} frames/s, {size}"


def _scenarios(plan: Plan, carries: Carried) -> Iterator[str]:
    short = dict.fromkeys(shortage.scenario.name for shortage in carries.shortages)
    count = len(carries.fit) + len(carries.unknown) + len(short)
    if not count:
        return
    if not by_emulator(plan):
        yield "what requests cost is known for links by the emulator alone"
        return
    if len(carries.unknown) == count:
        yield "whether it carries the scenarios is not known: nothing like them was measured here yet;"
        yield "`containernet-env run --quick CONFIG OUT` measures what requests cost"
        return
    if len(carries.fit) == count:
        yield f"it carries {'the scenario' if count == 1 else f'all {count} scenarios'}"
        return
    yield f"it carries {len(carries.fit)} of {count} scenario{'s' if count > 1 else ''}; of the others"
    for resource, group in groupby(carries.shortages, key=lambda one: one.resource):
        shortages = list(group)
        worst = shortages[0]
        words = _TOO_SMALL[resource].format(
            wanted=f"{math.ceil(worst.wanted * 10) / 10:.1f}",
            has=f"{worst.has:g}",
            enough=f"{math.floor(worst.enough * 10) / 10:.1f}",
        )
        yield f"  {len(shortages)} would take {words}:"
        yield f"    {_named([one.scenario for one in shortages])}; {helps_text(worst)}"
    if carries.unknown:
        yield f"  {len(carries.unknown)} cannot be told, since nothing like them was measured here yet:"
        yield f"    {_named(carries.unknown)}"


def _named(scenarios: Sequence[Scenario]) -> str:
    more = f" and {len(scenarios) - 1} more" if len(scenarios) > 1 else ""
    return scenarios[0].name + more
