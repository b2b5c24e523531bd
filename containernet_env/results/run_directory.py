"""The run directory beside the CSV: everything that a row has no room for.

For rows in ``out.csv`` it is ``out.runs/<run id>/``, for those in ``out.txt`` ``out.txt-runs/<run id>/``. Whatever has
ended is on disk: whole files are replaced atomically, lines are appended and forced to disk one by one, so the cost of
a scenario does not grow with the run.
"""

from __future__ import annotations

import json
import os
import reprlib
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from containernet_env.base import clock
from containernet_env.base.clock import Moment
from containernet_env.base.errors import UsageError
from containernet_env.base.files import file_name, followed
from containernet_env.base.units import describe_size
from containernet_env.model.findings import Valid
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.proof import NetworkProof
from containernet_env.model.search import Probe
from containernet_env.model.usage import Consumers
from containernet_env.results import csv_file
from containernet_env.results.files import (
    CHECKSUMS,
    Checked,
    append_whole,
    check,
    checksums_of,
    make_folders,
    open_to_append,
    reason,
    remedy,
    replacing,
)
from containernet_env.results.run_files import (
    OF_OUTCOME,
    DisruptionLine,
    EventLine,
    Manifest,
    NetworkFile,
    ProbeLine,
    Proof,
    RunFile,
    ScenarioLine,
    UsageLine,
)

if TYPE_CHECKING:
    import pandas

HISTORIES = "history"
CLIENT_SUFFIX, STORE_SUFFIX = ".jsonl.gz", ".store.jsonl.gz"


def history_name(number: int, scenario: str, repetition: int) -> str:
    """The names of the history files, and of the profiles' folder, of a run's ``number``-th scenario."""
    return f"{number:02}-{file_name(_without_number(scenario, repetition))}"


def _without_number(scenario: str, repetition: int) -> str:
    return f"{scenario}.{repetition}" if repetition > 1 else scenario


@dataclass(frozen=True, slots=True)
class KeptHistory:
    """The history of one scenario; ``store`` is the store's own, ``None`` if it is not there."""

    name: str
    client: Path
    store: Path | None


def histories_of(run: Path) -> Iterator[KeptHistory]:
    """The histories in a run directory, in the order of the scenarios."""
    for path in sorted((run / HISTORIES).glob(f"*{CLIENT_SUFFIX}")):
        if path.name.endswith(STORE_SUFFIX):
            continue
        name = path.name.removesuffix(CLIENT_SUFFIX)
        store = path.with_name(name + STORE_SUFFIX)
        yield KeptHistory(name, path, store if store.is_file() else None)


def missing_histories(scenarios: Iterable[ScenarioLine], kept: Iterable[KeptHistory]) -> list[str]:
    """The scenarios of a run whose configured history is missing, by name.

    Also those whose load left no result, and those that were never run.
    """
    keeping = [line for line in scenarios if line.history or (line.load or {}).get("history") is not None]
    wanted = Counter(_without_number(line.scenario, line.repetition) for line in keeping)
    there = Counter(history.name.partition("-")[2] for history in kept)
    return [name for name, count in wanted.items() for _ in range(count - there[file_name(name)])]


@dataclass(frozen=True, slots=True)
class RunResult:
    """A completed run.

    ``outcomes`` are its scenarios in order, ``directory`` is its run directory, ``rows`` are the rows appended to the
    CSV. ``file`` is the file with these rows: that CSV, or, if it was removed or replaced during the run, OUT.rescued
    beside it. ``network_before`` and ``network_after`` are the proofs of the network before the first scenario and
    after the last; ``None`` if it could not be measured.
    """

    run_id: str
    directory: Path
    outcomes: tuple[ScenarioOutcome, ...]
    rows: tuple[dict[str, str], ...]
    file: Path
    network_before: NetworkProof | None = None
    network_after: NetworkProof | None = None

    @property
    def network_held(self) -> bool:
        """Whether nothing was found wrong with the network after the last scenario."""
        return self.network_after is None or self.network_after.passed

    @property
    def failed(self) -> int:
        """How many scenarios failed or were not run."""
        return sum(outcome.error is not None for outcome in self.outcomes)

    def valid(self, verdict: Valid) -> int:
        """How many scenarios have figures with this verdict."""
        return sum(outcome.verdict is not None and outcome.verdict.valid == verdict for outcome in self.outcomes)

    @property
    def frame(self) -> pandas.DataFrame:
        """The rows as a table: numbers as numbers, values that do not apply as missing."""
        return csv_file.frame_of(self.rows)


MANIFEST, NETWORK, SCENARIOS, PROBES, EVENTS, USAGE, DISRUPTIONS = (
    form.file for form in (Manifest, NetworkFile, ScenarioLine, ProbeLine, EventLine, UsageLine, DisruptionLine)
)
LOGS, PROFILES = "logs", "profiles"
TOPOLOGY_INPUT, SCENARIOS_INPUT = "inputs/topology.json", "inputs/scenarios.json"
_Line = RunFile | ScenarioOutcome | Mapping[str, Any]
Form = TypeVar("Form", bound=RunFile)
LOG_MAX_BYTES = 1_000_000
"""How many bytes are kept of the end of each log."""
_REMEDY = "It was changed since the run wrote it: move it away, and the rest of the run is shown."


def runs_folder(results: Path) -> Path:
    """The folder of a results file's run directories: ``a.csv`` has ``a.runs``, any other ``NAME`` has ``NAME-runs``.

    No two files share one, and the one of ``a`` is not that of ``a.csv``.
    """
    return results.with_suffix(".runs") if results.suffix == ".csv" else results.parent / f"{results.name}-runs"


def results_file_of(place: Path, run: Path) -> Path | None:
    """The results file of a run directory found by `find_run`: the named file, or the one beside the directory.

    The latter is the inverse of `runs_folder`.
    """
    if place != run and not place.is_dir():
        return place
    folder = run.absolute().parent
    if folder.suffix == ".runs":
        return folder.with_suffix(".csv")
    return folder.with_name(name) if (name := folder.name.removesuffix("-runs")) != folder.name and name else None


class RunDirectory:
    """Written while the run is in progress; may be used from several threads.

    Every method raises OSError if it cannot write, and leaves the data written before as it is. Data that could not be
    written, or was removed meanwhile, is written with the next successful write; `restore` tries it once more.
    """

    def __init__(self, results: Path, run_id: str) -> None:
        self.path = runs_folder(results) / run_id
        self.run_id = run_id
        self._wholes: dict[str, RunFile | str] = {}
        self._lines: dict[str, list[Any]] = {SCENARIOS: [], EVENTS: []}
        # How many of them are in their file.
        self._kept = dict.fromkeys(self._lines, 0)
        self._lock = clock.RLock()

    @property
    def missing(self) -> tuple[ScenarioOutcome, ...]:
        """The outcomes that are in no file."""
        return tuple(self._lines[SCENARIOS][self._kept[SCENARIOS] :])

    def write(self, name: str, content: RunFile | str) -> None:
        """Write or replace a whole file."""
        self._wholes[name] = content
        text = content if isinstance(content, str) else _indented(content)
        self._write(name, [text.encode()], sync=True)

    def add_proof(self, proof: Proof) -> None:
        """Add a proof of the network to network.json."""
        before = self._wholes.get(NETWORK)
        proofs = before.proofs if isinstance(before, NetworkFile) else []
        self.write(NETWORK, NetworkFile(run_id=self.run_id, proofs=[*proofs, proof]))

    def add_scenario(self, outcome: ScenarioOutcome) -> None:
        """Append a line to scenarios.jsonl, and one to disruptions.jsonl for each thing that its events did."""
        with self._lock:
            self._lines[SCENARIOS].append(outcome)
            self._append_missing(SCENARIOS)
            if (lines := disruption_lines(outcome)) and outcome.scheduled.scenario.client is None:
                self._append(DISRUPTIONS, lines)

    def amend_scenarios(self, outcomes: Sequence[ScenarioOutcome]) -> None:
        """Rewrite scenarios.jsonl, for outcomes that were corrected after they were added."""
        with self._lock:
            self._lines[SCENARIOS] = list(outcomes)
            self._write(SCENARIOS, map(_line, outcomes), sync=True)
            self._kept[SCENARIOS] = len(outcomes)

    def add_event(self, kind: str, text: str, subject: str | None = None) -> None:
        """Append a line to events.jsonl: it happens now."""
        with self._lock:  # the lines are in the order of their times
            now = Moment.now()
            line = EventLine(at=now.at, at_ns=now.at_ns, kind=kind, text=text, subject=subject)
            self._lines[EVENTS].append(line)
            self._append_missing(EVENTS)

    def add_usage(self, at_ns: int, edge: str | None, consumers: Consumers) -> None:
        """Append a line to usage.jsonl, not forced to disk; one that could not be written is not written again."""
        members = {name: consumption.values() for name, consumption in consumers.members.items()}
        clients = {name: consumption.values() for name, consumption in consumers.clients.items()}
        singles = {role: getattr(consumers, role) for role in ("client", "links", "driver", "machine")}
        used = {role: None if single is None else single.values() for role, single in singles.items()}
        self._append(
            USAGE, [{"schema": 1, "at_ns": at_ns, "edge": edge, "members": members, "clients": clients, **used}]
        )

    def add_probe(self, probe: Probe, outcome: ScenarioOutcome) -> None:
        """Append a line to probes.jsonl; one that could not be written is not written again."""
        line = ProbeLine(**scenario_line(outcome).model_dump(by_alias=True), probe=probe.values())
        self._append(PROBES, [line], sync=True)

    def write_profile(self, folder: str, name: str, content: bytes) -> None:
        """Keep a profile as profiles/``folder``/``name``."""
        self._write(f"{PROFILES}/{folder}/{name}", [content])

    def write_history(self, name: str, content: Iterable[bytes]) -> None:
        """Keep a history as history/``name``; it comes in pieces, and is not there until it is whole."""
        self._write(f"{HISTORIES}/{name}", content)

    def write_log(self, name: str, text: str) -> None:
        """Keep the end of the log of host ``name`` in logs."""
        self._write(f"{LOGS}/{file_name(name)}.log", [text.encode(errors="replace")[-LOG_MAX_BYTES:]])

    def restore(self) -> None:
        """Write missing data: data that could not be written before, and all of it if it was removed."""
        for name, content in self._wholes.items():
            if not (self.path / name).exists():
                self.write(name, content)
        for name in self._lines:
            self._append_missing(name)

    def seal(self) -> None:
        """Write the checksums of all files, last of all; a line that comes later has them written again."""
        self.write(CHECKSUMS, checksums_of(self.path))

    def _write(self, name: str, content: Iterable[bytes], *, sync: bool = False) -> None:
        path = self.path / name
        make_folders(path.parent)
        with replacing(path, sync=sync) as file:
            file.writelines(content)

    def _append(self, name: str, lines: Iterable[_Line], *, sync: bool = False) -> None:
        fd = open_to_append(self.path / name)
        try:
            append_whole(fd, b"".join(map(_line, lines)), sync=sync)
        finally:
            os.close(fd)

    def _append_missing(self, name: str) -> None:
        """Append the lines that are not in the file yet: the last one, or all where the file is no longer there."""
        with self._lock:
            if not (self.path / name).exists():
                self._kept[name] = 0
            if lines := self._lines[name][self._kept[name] :]:
                self._append(name, lines, sync=True)
                self._kept[name] += len(lines)
            if CHECKSUMS in self._wholes:
                self.seal()


def scenario_line(outcome: ScenarioOutcome) -> ScenarioLine:
    return ScenarioLine(
        scenario=outcome.scheduled.scenario.name,
        repetition=outcome.scheduled.repetition,
        attempt=outcome.scheduled.attempt,
        client=outcome.client,
        identity=outcome.scheduled.identity,
        valid=outcome.verdict.valid if outcome.verdict else None,
        findings=[asdict(finding) for finding in outcome.findings],
        load=dict(outcome.load.values) if outcome.load is not None else None,
        network=dict(outcome.network.values) if outcome.network is not None else None,
        search=outcome.search.values() if outcome.search is not None else None,
        history=outcome.scheduled.scenario.history,
        **{name: getattr(outcome, name) for name in OF_OUTCOME} | {"seconds": round(outcome.seconds, 3)},
    )


def disruption_lines(outcome: ScenarioOutcome) -> list[DisruptionLine]:
    """The lines of the executed events of a scenario."""
    done, load = outcome.disruptions, outcome.load
    if done is None:
        return []
    shared = {"began_ns": load.began_ns if load is not None else None, "seed": done.seed}
    shared |= {"scenario": outcome.scheduled.scenario.name, "repetition": outcome.scheduled.repetition}
    shared |= {"attempt": outcome.scheduled.attempt}
    lines = []
    for item in done.executed:
        during_ns = item.since_start_ns if item.cause != "end" else None
        first_s = None if load is None or during_ns is None else load.first_success_s(during_ns / 1e9)
        lines.append(DisruptionLine(**shared, **asdict(item), first_success_s=first_s))
    return lines


def _line(value: _Line) -> bytes:
    form = scenario_line(value) if isinstance(value, ScenarioOutcome) else value
    content = form.model_dump(by_alias=True) if isinstance(form, RunFile) else form
    return f"{_compact(content)}\n".encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def _indented(content: RunFile) -> str:
    """JSON with a line for each entry, and one for each item of a list: samples are long lists of numbers."""

    def lines(value: Any) -> str:
        if isinstance(value, list) and value:
            return "[\n" + ",\n".join(f"  {_compact(item)}" for item in value) + "\n ]"
        return _compact(value)

    entries = (f" {_compact(key)}: {lines(value)}" for key, value in content.model_dump(by_alias=True).items())
    return "{\n" + ",\n".join(entries) + "\n}\n"


@dataclass(frozen=True, slots=True)
class ReadRun:
    """A run directory as it was found: missing parts are ``None`` or empty; ``torn`` lines were cut short.

    ``checked`` is the result of its checksums, ``None`` if it has none.
    """

    path: Path
    manifest: Manifest | None
    network: NetworkFile | None
    scenarios: Sequence[ScenarioLine]
    events: Sequence[EventLine]
    disruptions: Sequence[DisruptionLine]
    logs: Sequence[Path]
    torn: int
    checked: Checked | None


def find_run(place: Path) -> Path:
    """The run directory that ``place`` means: itself, or the newest of a results file or of a folder of runs.

    Raises ``UsageError`` if there is none, and where that cannot be found out.
    """
    try:
        if _is_run(place):
            return place
        folder = place if place.is_dir() else runs_folder(place)
        found = sorted(path for path in folder.iterdir() if _is_run(path)) if folder.is_dir() else []
    except OSError as error:
        raise _unreadable(place, error) from error
    if not found:
        raise UsageError(
            f"{place} is no run: got no {MANIFEST} there and no run directory in {folder}"
            f"{csv_file.near_results(place)}\n"
            "  Name a run directory (OUT.runs/RUN), or a results file, whose newest run is shown."
        )
    return found[-1]


def read_run(path: Path) -> ReadRun:
    """Read a run directory back. Raises ``UsageError`` for a file that cannot be read or is not of its form."""
    scenarios, torn = _read_lines(path, ScenarioLine)
    events, torn_events = _read_lines(path, EventLine)
    disruptions, torn_disruptions = _read_lines(path, DisruptionLine)
    torn += torn_events + torn_disruptions
    manifest, network = _read(path, Manifest), _read(path, NetworkFile)
    logs = sorted((path / LOGS).glob("*.log"))
    try:
        checked = check(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    return ReadRun(path, manifest, network, scenarios, events, disruptions, logs, torn, checked)


def read_usage(path: Path) -> list[UsageLine]:
    """The usage of a run's consumers, sample by sample; empty if it has none, lines cut short are left out.

    Raises ``UsageError`` as `read_run` does.
    """
    return _read_lines(path, UsageLine)[0]


def _is_run(path: Path) -> bool:
    return (path / MANIFEST).is_file() or (path / EVENTS).is_file()


def _text(path: Path) -> str | None:
    """The content of the file; ``None`` if there is none."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UsageError(f"{path} cannot be read: it is no regular file\n  {_REMEDY}")
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> UsageError:
    remedy = "\n  Run this as a user who may read it." if isinstance(error, PermissionError) else ""
    return UsageError(f"{error.filename or path} cannot be read: {error.strerror}{remedy}")


def _read(run: Path, form: type[Form]) -> Form | None:
    path = run / form.file
    text = _text(path)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON that can be read: {error}\n  {_REMEDY}") from error
    return _known(value, str(path), form)


def _read_lines(run: Path, form: type[Form]) -> tuple[list[Form], int]:
    path, torn = run / form.file, 0
    lines: list[Form] = []
    for number, text in enumerate((_text(path) or "").splitlines(), start=1):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            torn += 1
            continue
        lines.append(_known(value, f"{path}, line {number},", form))
    return lines, torn


def _known(value: Any, where: str, form: type[Form]) -> Form:
    version = value.get("schema") if isinstance(value, dict) else None
    if version != 1:
        raise UsageError(f"{where} is of version {version!r}; version 1 is read here")
    # As JSON, where a list may become a tuple and an object a dataclass, but no text a number.
    text = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    try:
        return form.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        # Unlike json.dumps it bounds how deep it looks.
        got = textwrap.shorten(reprlib.repr(first["input"]), 100)
        raise UsageError(f"{where} is not of its form: {place}: {first['msg']}; got {got}\n  {_REMEDY}") from error


def facts_of(manifest: Manifest) -> dict[str, str]:
    """What a run was made on and with, by name; what is unknown is left out."""
    machine, program, links, store = manifest.machine, manifest.program, manifest.links, manifest.store
    kinds, driver, cgroups = machine.virtualisation, machine.storage_driver, machine.cgroup_version
    of_links = (links.links, _if_known("switches by {}", links.switches), links.network_version) if links else ()
    version, changed = f"containernet-env {program.version}", "with uncommitted changes" if program.dirty else None
    guest = "virtual machine" if kinds.guest else None
    found: dict[str, Sequence[str | None]] = {
        "Machine": (machine.cpu_model, f"{machine.cores} cores", machine.architecture),
        "Memory": (describe_size(machine.memory_bytes),),
        "Virtualisation": (guest, kinds.hypervisor, kinds.vendor, kinds.product, kinds.container),
        "Kernel": (machine.kernel, machine.kernel_build),
        "Clock": (machine.clock_source,),
        "Docker engine": (machine.engine, _if_known("storage {}", driver), _if_known("cgroup v{}", cgroups)),
        "Program": (version, _if_known("commit {:.12}", program.commit), program.go, changed),
        "Links": of_links,
        "Store": (_if_known(f"{store.kind} {{}}", store.version),) if store else (),
    }
    return {name: text for name, parts in found.items() if (text := ", ".join(filter(None, parts)))}


def _if_known(form: str, value: str | None) -> str | None:
    return value and form.format(value)


# The size of a run of 4 hosts, rounded up: a row of 0.5 KB and, of each host's links and port, 4 KB in scenarios.jsonl
# for each scenario; for each host 54 KB of its log and its part of the manifest, the proof and the events.
_ROW_BYTES = 1_000
_SCENARIO_HOST_BYTES = 4_000
_HOST_BYTES = 64_000


def least_bytes(scenarios: int, hosts: int, clusters: int = 1) -> int:
    """How much a run of so many scenarios on so many hosts, brought up so often, writes beside its timelines."""
    return scenarios * (_ROW_BYTES + hosts * _SCENARIO_HOST_BYTES) + clusters * hosts * _HOST_BYTES


def check_place(out: Path, needed_bytes: int) -> None:
    """Raise UsageError, with the path and a remedy, if rows cannot be kept in ``out`` or its run directory.

    Checks the types of files, for a read-only file system and for too little space without writing; as root, who passes
    all permission checks, also creates an unnamed file to check that the folders accept one.
    """
    runs = runs_folder(out)
    try:
        if out.exists() and not out.is_file() and not out.is_dir():
            raise _unwritable(out, "it is no regular file", "Name a file, or one that does not exist yet.")
        if runs.exists() and not runs.is_dir():
            raise UsageError(
                f"cannot keep run directories in {runs}: it is no folder\n"
                f"  Move it away, or choose another name than {out}."
            )
        # A symbolic link may lead to another file system.
        for path in (followed(out).parent, out.absolute().parent, followed(runs)):
            folder = next(parent for parent in (path, *path.parents) if parent.exists())
            if not folder.is_dir():
                raise UsageError(f"cannot write results to {out}: {folder} is not a directory")
            _check_folder(folder, out, needed_bytes)
        if os.geteuid() == 0 and out.is_file():
            os.close(os.open(out, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError as error:
        raise _unwritable(out, reason(error), remedy(error)) from error


def _unwritable(out: Path, why: str, remedy: str) -> UsageError:
    return UsageError(f"cannot write results to {out}: {why}\n  {remedy}")


def _check_folder(folder: Path, out: Path, needed_bytes: int) -> None:
    held = os.statvfs(folder)
    free = held.f_bavail * held.f_frsize
    if held.f_flag & os.ST_RDONLY:
        why = f"{folder} is on a read-only file system"
        raise _unwritable(out, why, "Mount it for writing, or choose another place.")
    if (held.f_blocks and free < needed_bytes) or (held.f_files and not held.f_favail):
        room = f"{free / 1e6:.1f} MB" if free < needed_bytes else "no inode"
        why = f"{room} free in {folder}; this run writes about {needed_bytes / 1e6:.1f} MB"
        raise _unwritable(out, why, "Make room there, or choose another place.")
    if os.geteuid() == 0:
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            why = f"no file can be made in {folder}: {reason(error)}"
            raise _unwritable(out, why, remedy(error)) from error
