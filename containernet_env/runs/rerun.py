"""Repeats a run from its run directory if no relevant fact differs; the facts that must be equal, and why."""

from __future__ import annotations

import json
import reprlib
import textwrap
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from containernet_env.base.clock import Moment
from containernet_env.base.errors import UsageError
from containernet_env.base.units import describe_size
from containernet_env.base.work import Stop
from containernet_env.config.plan import AUTO, Plan
from containernet_env.config.planning import build_plan, with_dilations
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.containernet import engines
from containernet_env.network.rtt import Tolerance
from containernet_env.results import run_directory
from containernet_env.results.files import CHECKSUMS, digest_of, reason
from containernet_env.results.run_directory import MANIFEST, SCENARIOS_INPUT, TOPOLOGY_INPUT, ReadRun, RunResult
from containernet_env.results.run_files import Difference, Manifest, PlanFiles, Repeats, StoreFacts
from containernet_env.runs.manifest import manifest_of
from containernet_env.runs.measure import RunOrder, carry_out
from containernet_env.runs.preflight import preflight
from containernet_env.runs.prepare import prepare, require_root
from containernet_env.runs.progress import RunProgress
from containernet_env.setup.images import required_images

_SHOWN_CHARACTERS = 100
# Shown for one fact that has many parts, such as the plan of another version: more of them add no information.
_SHOWN_PARTS = 20
# Of the plan: its run, the origin of its files, and values derived from others that are compared themselves.
_NOT_COMPARED = frozenset({"run_id", "config", "scenario_file", "estimated_s", "notes"})


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of a manifest, at ``place`` in it, that may differ when a run is repeated.

    If it is an object, each of its parts is compared by itself. An unknown fact of a run counts as different; numbers
    that differ by at most ``nearly``, a ratio, do not.
    """

    place: str
    name: str
    why: str
    matters: bool = True
    nearly: float = 0.0

    def of(self, manifest: Manifest) -> object:
        """The value; ``None`` if the manifest does not have it."""
        value: object = manifest
        for step in self.place.split("."):
            value = value.get(step) if isinstance(value, dict) else getattr(value, step, None)
        return value

    def is_same(self, was: Any, now: Any) -> bool:
        if self.nearly and isinstance(was, int) and isinstance(now, int):
            return abs(was - now) <= self.nearly * was
        return bool(was == now)

    def text(self, value: object) -> str:
        if value is None:
            return "not known"
        if isinstance(value, int) and self.place.endswith("_bytes"):
            return describe_size(value)
        # reprlib bounds the depth: an edited file may hold anything.
        return textwrap.shorten(value if isinstance(value, str) else reprlib.repr(value), _SHOWN_CHARACTERS)


def _noted(place: str, name: str, why: str) -> Fact:
    return Fact(place, name, why, matters=False)


FACTS = (
    Fact("program.version", "program version", "another program measures in another way"),
    Fact("program.commit", "program commit", "another program measures in another way"),
    Fact("program.sources", "program sources", "files that are in no commit, or not those of the commit"),
    Fact("program.go", "Go", "the client and the link emulator are built with it: their speed and pauses"),
    Fact("images", "image", "what the members and the client run"),
    Fact("store.version", "version of the store", "it is what is measured"),
    Fact("machine.cpu_model", "CPU model", "every figure depends on its speed"),
    Fact("machine.cores", "cores", "members, client and links share them"),
    # Memory reserved by the kernel differs from boot to boot.
    Fact("machine.memory_bytes", "memory", "page cache and reclaim; 1 % more or less is the same machine", nearly=0.01),
    Fact("machine.architecture", "architecture", "other programs"),
    Fact("machine.virtualisation", "virtualisation", "what a hypervisor adds to timers, faults and interrupts"),
    Fact("machine.kernel", "kernel", "TCP, scheduling and disks are its own"),
    Fact("machine.kernel_build", "kernel build", "its configuration may differ at the same release"),
    Fact("machine.clock_source", "clock source", "every time stamp costs what it costs to read"),
    Fact("machine.storage_driver", "storage driver", "the members' data lie on it: fsync"),
    Fact("machine.data_filesystem", "data file system", "what an fdatasync of the members takes"),
    Fact("machine.cgroup_version", "cgroup version", "CPU and memory limits are carried out in another way"),
    Fact("links.links", "links", "emulator and netem have their own lateness and queues"),
    Fact("links.link_emulator.realtime", "real-time priority of links", "without it, others make frames late"),
    Fact("links.link_emulator.stamps", "stamps of frames", "which clock stamps a frame, and how exactly"),
    Fact("links.switches", "switches", "another path through the kernel"),
    Fact("links.network_commit", "original Containernet", "it makes the links, where it is chosen"),
    Fact("config_hash", "config hash", "something else was configured"),
    Fact("tolerances", "tolerance", "other networks are called proved, or other rows valid"),
    Fact("plan", "plan", "what is carried out"),
    _noted("program.dirty", "uncommitted changes", "the hash of the sources covers them"),
    _noted("program.python", "Python", "it drives the run; no request passes through it"),
    _noted("machine.engine", "Docker engine", "it starts the hosts; limits are read back"),
    _noted("machine.cgroup_driver", "cgroup driver", "where the groups lie; limits are read back"),
    _noted("machine.iproute2", "iproute2", "it sets the links up; they are read back and proved"),
    _noted("machine.congestion_control", "the machine's congestion control", "every host gets its own"),
    _noted("machine.load_average", "load average", "it is never the same twice; each row has its own usage"),
    _noted("machine.memory_available_bytes", "free memory", "it is never the same twice"),
    _noted("links.network_version", "Mininet", "it names hosts and links; they are read back and proved"),
    _noted("links.docker_sdk", "Docker SDK", "it talks to the engine; limits are read back"),
)
"""The compared facts, in the order of the report."""


def differences(was: Manifest, now: Manifest) -> list[Difference]:
    """The differences between two runs, by the first lines of their manifests."""
    return [difference for fact in FACTS for difference in _compared(fact, fact.of(was), fact.of(now))]


def _compared(fact: Fact, was: object, now: object) -> Iterator[Difference]:
    parts_was, parts_now = _parts(fact, was), _parts(fact, now)
    names = dict.fromkeys((*parts_was, *parts_now))
    differing = [name for name in names if not fact.is_same(parts_was.get(name), parts_now.get(name))]
    for name in differing[:_SHOWN_PARTS]:
        texts = [fact.text(parts.get(name)) for parts in (parts_was, parts_now)]
        yield Difference(name=name, was=texts[0], now=texts[1], matters=fact.matters, why=fact.why)
    if (more := len(differing) - _SHOWN_PARTS) > 0:
        yield Difference(name=fact.name, was=f"{more} more", now="others", matters=fact.matters, why=fact.why)


def _parts(fact: Fact, value: object) -> dict[str, object]:
    """The values in an object by their names, in their order; one value where it is none.

    Without recursion: an edited plan may be nested deeply.
    """
    parts: dict[str, object] = {}
    left: deque[tuple[str, object]] = deque([("", value)])
    while left:
        place, item = left.popleft()
        inner: list[tuple[str, object]] = []
        if isinstance(item, BaseModel):
            item = {name: getattr(item, name) for name in type(item).model_fields}
        if isinstance(item, dict):
            inner = [(f"{place}.{key}", part) for key, part in item.items() if place or key not in _NOT_COMPARED]
        elif isinstance(item, list) and fact.place == "plan":
            inner = [(f"{place}[{index}]", part) for index, part in enumerate(item)]
        if inner:
            left.extendleft(reversed(inner))
        else:
            name = f"{fact.name} {place.removeprefix('.')}".rstrip()
            parts[textwrap.shorten(name, _SHOWN_CHARACTERS)] = item
    return parts


def as_markdown() -> str:
    """The table for ``results/README.md``."""
    lines = ["| compared | where in manifest.json | if it differs | because |", "| --- | --- | --- | --- |"]
    for fact in FACTS:
        lines.append(f"| {fact.name} | `{fact.place}` | {'refused' if fact.matters else 'noted'} | {fact.why} |")
    return "\n".join(lines) + "\n"


_EDITED = "it no longer describes what was measured"


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
    anything is created if a relevant fact has changed, naming it (``differences``); with ``anyway`` the
    manifest of the new run records the differences. Needs root.
    """
    order, _ = prepare_rerun(Path(run), Path(out) if out is not None else None, anyway=anyway)
    return carry_out(replace(order, consent=yes_load_this_cluster), progress, stop)


def prepare_rerun(place: Path, out: Path | None = None, *, anyway: bool = False) -> tuple[RunOrder, Repeats]:
    """What `rerun` would execute; raises the errors that it would raise before anything is created."""
    run = run_directory.read_run(run_directory.find_run(place))
    if run.manifest is None:
        raise UsageError(f"{run.path} cannot be repeated: it has no {MANIFEST}\n  The run ended before it was written.")
    was = run.manifest
    plan = _plan(run.path, was)
    wanted = out or run_directory.results_file_of(place, run.path)
    if wanted is None:
        raise UsageError(
            f"{run.path} lies beside no results file: where its rows go is unknown\n"
            "  Name OUT, the CSV file that rows are appended to."
        )
    preflight(plan, wanted)
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
            + "\n  With --anyway it is run all the same, and its manifest records the differences."
        )
    repeats = Repeats(run_id=was.run_id, differences=found)
    return RunOrder(plan, wanted, tolerance, repeats=repeats), repeats


def _plan(run: Path, was: Manifest) -> Plan:
    """The plan of the run, with an id of its own, under the names of the files that it was first read from."""
    config, scenario_set = load_config(run / TOPOLOGY_INPUT), load_scenarios(run / SCENARIOS_INPUT)
    files = PlanFiles.model_validate(was.plan)
    config = replace(config, path=Path(files.config.path), sha256=files.config.sha256)
    if (file := files.scenario_file) is not None:
        document = replace(scenario_set.document, path=Path(file.path), sha256=file.sha256)
        scenario_set = replace(scenario_set, document=document)
    listed, flags = len(files.scenarios), was.flags
    if listed != flags.repeat * len(scenario_set.scenarios):
        raise UsageError(
            f"{run / MANIFEST} contradicts itself: flags.repeat is {flags.repeat}, its plan has {listed} scenarios, "
            f"and {SCENARIOS_INPUT} {len(scenario_set.scenarios)}\n  It was changed since the run wrote it."
        )
    return _as_slow(prepare(config, scenario_set, **flags.model_dump(exclude={"rtt_tolerance"})), was)


def _as_slow(plan: Plan, was: Manifest) -> Plan:
    """The plan with each scenario as slow as it was, where the run found that out."""
    if was.flags.dilation != AUTO:
        return plan
    factors = {item.name: item.dilation for item in PlanFiles.model_validate(was.plan).scenarios}
    # In the order of the files first: `prepare` has ordered them by what it knows of this machine.
    return with_dilations(build_plan(plan.config, plan.scenario_set, plan.options), factors)


def _now(plan: Plan, was: Manifest, tolerance: Tolerance | None) -> Manifest:
    """The manifest that the run would have now, as far as it is known before bring-up."""
    # Under its original id, which is among the arguments of members.
    options = replace(plan.options, run_id=str(was.plan.get("run_id")))
    same = _as_slow(build_plan(plan.config, plan.scenario_set, options), was)
    is_external = plan.config.external is not None
    tags = None if is_external else required_images(plan.store)
    now = manifest_of(same, tags, tolerance, run_id=was.run_id, began=Moment.now(), command=())
    reported = was.store.version if was.store is not None else None  # if only the members report it
    version = reported if is_external else plan.store.version
    return now.model_copy(
        update={
            # As it will be in the file.
            "plan": json.loads(json.dumps(now.plan, default=str)),
            "links": None if is_external else engines.foreseen(plan),
            "store": StoreFacts(kind=plan.store.name, version=version, leader_at_start=None),
        }
    )


def _testbed(run: ReadRun) -> Iterator[Difference]:
    """A run of a sweep may have reused the testbed of another one; a repeated one brings up its own."""
    for event in run.events:
        if event.kind == "testbed_reused":
            why = "what the first scenario finds is in the column Reused"
            yield Difference(name="testbed", was=event.text, now="brought up anew", matters=False, why=why)


def _edited(run: ReadRun, was: Manifest) -> Iterator[Difference]:
    """The files for the repetition that differ from those that the run wrote."""
    if run.checked is None:
        why = "the run was killed, or goes on: whether its files were changed since is unknown"
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
