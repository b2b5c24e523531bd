"""What the run directories beside the results files add to rows: curves, timelines, findings, machines, proofs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.endpoints import KEY as ENDPOINTS
from containernet_env.config.reader import read_document
from containernet_env.config.topologies import config_of
from containernet_env.model.disruption import UNDOING, affected_text
from containernet_env.model.topology import Topology, network_of
from containernet_env.report.rows import FILE, Rows
from containernet_env.results.run_directory import TOPOLOGY_INPUT, ReadRun, facts_of, read_run, runs_folder
from containernet_env.results.run_files import ScenarioLine
from containernet_env.results.statistics import Histogram, decode
from containernet_env.stores.kinds import KINDS

T = TypeVar("T")
PERCENTS = (10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999)
"""Of a curve, rising; those that a row has too few requests for are left out of it."""
NOTICED = {"member_died": "a member died", "leader_changed": "another leader", "emulator_died": "the links died"}
"""Kinds of events that were not configured, in the words of a timeline."""
_RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
_MOST_TOLD = 20


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened ``at_s`` after the start of the load; ``kind``: struck, undone or noticed."""

    at_s: float
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """A load, step by step; ``steps`` as the load generator reports them."""

    step_s: float
    steps: Sequence[Mapping[str, Any]]
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Details:
    """Of one row: its findings in words, its curve (ms at each of `PERCENTS`), its timeline."""

    findings: tuple[str, ...]
    curve_ms: tuple[float | None, ...] | None
    timeline: Timeline | None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run: its facts, name -> value, which are equal in runs on the same system, and its own data."""

    run_id: str
    facts: Mapping[str, str]
    began: str
    command: str
    proof: str
    sync: str


@dataclass(frozen=True)
class Network:
    """A network that runs had, and by pair of hosts what their first proofs measured, in ns of emulated time."""

    topology: Topology
    runs: list[str] = field(default_factory=list)
    measured_ns: dict[frozenset[str], list[float]] = field(default_factory=dict)

    def add(self, run: ReadRun, run_id: str) -> None:
        self.runs.append(run_id)
        before = (proof for proof in (run.network.proofs if run.network else ()) if proof.moment == "before")
        names = {host.name for host in self.topology.hosts}
        for pair in next((proof.pairs for proof in before), ()):
            ends, measured_ns, slowed_ns = (pair["a"], pair["b"]), pair["measured_ns"], pair["expected_ns"]
            if measured_ns is not None and len(names.intersection(ends)) == 2:
                # A run that is slower than real time proves the links as they are then.
                expected_ns = self.topology.expected_rtt_ns(*ends)
                self.measured_ns.setdefault(frozenset(ends), []).append(
                    measured_ns * expected_ns / slowed_ns if slowed_ns and expected_ns else measured_ns
                )


@dataclass(frozen=True)
class Runs:
    """``details`` by the number of the row. ``missing``: how many runs of the rows have no directory."""

    details: Mapping[int, Details]
    summaries: Sequence[RunSummary]
    missing: int
    notes: Sequence[str]
    networks: Sequence[Network] = ()


def run_paths(rows: Rows) -> dict[Path, list[int]]:
    """Where the run directories of rows are, or should be, each with the numbers of its rows."""
    folders = {path.name: runs_folder(path) for path in rows.files} | {
        str(path): runs_folder(path) for path in rows.files
    }
    found: dict[Path, list[int]] = {}
    for number, (file, run_id) in enumerate(zip(rows.values(FILE), rows.values("RunId"), strict=True)):
        # It is a name in the CSV: it must not lead anywhere else.
        if isinstance(run_id, str) and _RUN_ID.fullmatch(run_id):
            found.setdefault(folders[file] / run_id, []).append(number)
    return found


def noted(read: Callable[[Path], T], path: Path, notes: list[str], what: str = "a run directory") -> T | None:
    """What is read of a run directory; ``None`` where it cannot be read, which is noted."""
    try:
        return read(path)
    except UsageError as error:
        notes.append(f"{what} is left out: {error}".replace("\n ", "."))
        return None


def lines_of(rows: Rows, run: ReadRun, numbers: Sequence[int]) -> Iterator[tuple[int, ScenarioLine]]:
    """Those of the rows that a run has a line of scenarios.jsonl of, each with that."""
    lines = {(line.scenario, line.repetition, line.attempt, line.client): line for line in run.scenarios}
    names = ("Scenario", "Repetition", "Attempt", "Client")
    keys = list(zip(*(rows.values(name) for name in names), strict=True))
    for number in numbers:
        if (line := lines.get(keys[number])) is not None:
            yield number, line


def histogram_of(path: Path, line: ScenarioLine, notes: list[str]) -> Histogram | None:
    """The histogram of a line of scenarios.jsonl; ``None`` without one; one that cannot be read is noted."""
    text = ((line.load or {}).get("response_time") or {}).get("histogram")
    try:
        return None if text is None else decode(text)
    except ValueError as error:
        notes.append(f"{path}: the histogram of {line.scenario} is left out: {error}")
        return None


def read_runs(rows: Rows, note: Callable[[str], object] = lambda text: None) -> Runs:
    """All run directories that exist; ``note`` gets a line about each that cannot be read and is left out."""
    details: dict[int, Details] = {}
    summaries: list[RunSummary] = []
    networks: dict[Any, Network] = {}
    notes: list[str] = []
    missing = 0
    for path, numbers in run_paths(rows).items():
        if not path.is_dir():
            missing += 1
            continue
        if (run := noted(read_run, path, notes)) is None:
            continue
        if problems := _problems(run):
            notes.append(f"{path}: {problems}")
        summaries.append(_summary_of(run, path.name))
        if (topology := noted(_topology, path, notes, "a network")) is not None:
            key = (topology.hosts, topology.switches, topology.links, topology.is_direct)
            networks.setdefault(key, Network(topology)).add(run, path.name)
        for number, line in lines_of(rows, run, numbers):
            details[number] = _details(run, line, notes, path)
    if len(notes) > _MOST_TOLD:
        notes[_MOST_TOLD:] = [f"{len(notes) - _MOST_TOLD} more run directories have such problems"]
    for text in notes:
        note(text)
    return Runs(details, summaries, missing, notes, list(networks.values()))


def _topology(path: Path) -> Topology | None:
    """The network of a run, from the topology as it was read; ``None`` of an external cluster, and where it is missing.

    Raises ``UsageError`` for one that is refused. Only files of the run are read: what it says of the store may name
    others, and is left out; a run writes its round-trip times by pair.
    """
    file = path / TOPOLOGY_INPUT
    if not file.exists():
        return None
    try:
        read = read_document(file)
        if not isinstance(read.value, dict) or ENDPOINTS in read.value:
            return None
        others = {"store", "scenarios", *(kind.section for kind in KINDS.values())}
        network = {key: value for key, value in read.value.items() if key not in others}
        if isinstance(network.get("rtt"), str):
            raise UsageError(f"{file}: $.rtt: is not by pair, as a run writes it")
        return network_of(config_of(replace(read, value=network)))
    except ConfigError as error:
        raise UsageError(f"{file}: {error.problems[0]}") from error


def _problems(run: ReadRun) -> str:
    parts = [f"{run.torn} lines were cut short and are left out"] if run.torn else []
    if run.checked is not None and run.checked.changed:
        parts.append("its files are not as the run left them (containernet-env show names them)")
    return "; ".join(parts)


def _details(run: ReadRun, line: ScenarioLine, notes: list[str], path: Path) -> Details:
    findings = tuple(str(finding["text"]) for finding in line.findings)
    histogram = histogram_of(path, line, notes)
    ends_ns = [] if histogram is None else histogram.percentiles_ns(PERCENTS)
    curve = tuple(None if at is None else at / 1e6 for at in ends_ns) or None
    return Details(findings, curve, _timeline(run, line))


def _timeline(run: ReadRun, line: ScenarioLine) -> Timeline | None:
    load = line.load or {}
    steps, step_s = load.get("timeline"), load.get("timeline_interval_s")
    if not steps or not step_s:
        return None
    return Timeline(step_s, steps, sorted(_events(run, line, len(steps) * step_s), key=lambda event: event.at_s))


def _events(run: ReadRun, line: ScenarioLine, length_s: float) -> Iterator[Event]:
    own = (line.scenario, line.repetition, line.attempt)
    for done in run.disruptions:
        at_ns = done.since_start_ns
        if (done.scenario, done.repetition, done.attempt) == own and at_ns is not None and done.cause != "end":
            words = f"{done.verb.replace('_', ' ')} {affected_text(done.target, done.members)}"
            yield Event(at_ns / 1e9, words, "undone" if done.verb in UNDOING.values() else "struck")
    began_ns = (line.load or {}).get("began_ns")
    for event in run.events:
        if began_ns is not None and event.kind in NOTICED:
            at_s = (event.at_ns - began_ns) / 1e9 / line.dilation
            if 0 <= at_s <= length_s:
                yield Event(at_s, f"{NOTICED[event.kind]}: {event.text}", "noticed")


def _summary_of(run: ReadRun, run_id: str) -> RunSummary:
    manifest = run.manifest
    if manifest is None:
        return RunSummary(run_id, {}, began="", command="", proof=_proof(run), sync="")
    syncs_ns = [sync.median_ns for cluster in manifest.clusters for sync in cluster.sync.values()]
    sync = f"{min(syncs_ns) / 1e6:.3f} to {max(syncs_ns) / 1e6:.3f}" if syncs_ns else ""
    return RunSummary(run_id, facts_of(manifest), manifest.began, shlex.join(manifest.command), _proof(run), sync)


def _proof(run: ReadRun) -> str:
    words = []
    for proof in run.network.proofs if run.network is not None else ():
        proved = sum(check["verdict"] == "proved" for check in proof.checks)
        off_ns = [abs(pair["measured_ns"] - pair["expected_ns"]) for pair in proof.pairs if pair["measured_ns"]]
        passed = "passed" if proof.passed else f"FAILED: {'; '.join(proof.problems)}"
        off = f", RTTs within {max(off_ns) / 1000:.0f} us" if off_ns else ""
        words.append(f"{proof.moment}: {passed}, {proved} of {len(proof.checks)} properties proved{off}")
    return "; ".join(words)
