"""One testbed of a sweep on the machine of a worker: measured under its lock, told as it goes on, sent back whole.

Nothing here knows Dask: `workers` sends a `Task`, `serving` has it carried out.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from containernet_env.base import assets
from containernet_env.base.errors import ContainernetEnvError, Interrupted, text_of
from containernet_env.base.work import Stop
from containernet_env.model.config import Config
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import ScenarioSet
from containernet_env.network.rtt import Tolerance
from containernet_env.plan.plan import PlannedScenario, PlanOptions
from containernet_env.results.csv_file import rows_after
from containernet_env.results.files import CHECKSUMS, check, files_of, make_folders, replacing
from containernet_env.results.run_directory import runs_folder
from containernet_env.runs import version
from containernet_env.runs.keeper import was_measured
from containernet_env.runs.lock import RunLock
from containernet_env.runs.measure import carry_out
from containernet_env.runs.prepare import on_this_machine
from containernet_env.runs.progress import Silent
from containernet_env.setup import builds

GO = "Go"
UNKNOWN = "unknown"
_DIGITS = 12
FOLDER = "worker"
"""Where in the machine's cache a worker keeps what it measures until it has been sent back."""


def facts() -> dict[str, str]:
    """What has to be equal wherever cells of one sweep are measured, by name.

    ``GO`` is what the programs are built with, etcd among them: `UNKNOWN` on a machine without one, which builds none.
    """
    dirty = version.dirty()
    return {
        "program": version.version(),
        "commit": (version.commit() or UNKNOWN)[:_DIGITS],
        "changed files": UNKNOWN if dirty is None else "yes" if dirty else "no",
        "sources": version.source_hash()[:_DIGITS],
        "etcd": assets.etcd_version(),
        GO: builds.go_version() or UNKNOWN,
        "Python": platform.python_version(),
        "architecture": platform.machine(),
    }


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker needs to know of a job: its plan is made there, for that machine.

    ``sweep`` tells whose it is from others.
    """

    sweep: str
    config: Config
    scenario_set: ScenarioSet
    options: PlanOptions
    tolerance: Tolerance | None
    command: tuple[str, ...]

    @property
    def run(self) -> str:
        """The short id of the run."""
        return self.options.run_id


@dataclass(frozen=True, slots=True)
class Told:
    """What a run tells while it goes on: a ``note``, that the scenario of a name ``began``, or that one ``ended``.

    None of these, where it was taken up.
    """

    note: str | None = None
    began: str | None = None
    ended: ScenarioOutcome | None = None
    row: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Directory:
    """A run directory: its name, and its files with their contents, the checksums last."""

    name: str
    files: tuple[tuple[str, bytes], ...]

    def write(self, out: Path, run: str) -> str | None:
        """Put it beside ``out``; a line where it is not that of ``run``, or differs from its checksums. Raises OSError.

        Nothing is written anywhere else, whatever names were sent.
        """
        if not re.fullmatch(rf"[0-9TZ]+-{re.escape(run)}", self.name):
            return f"a run directory of the name {self.name!r} was left out: it is none of run {run}"
        folder = runs_folder(out) / self.name
        for name, content in self.files:
            path = folder / name
            if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute() or "\0" in name:
                return f"{folder}: a file of the name {name!r} was left out"
            make_folders(path.parent)
            with replacing(path) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        checked = check(folder)
        if checked is None:
            return f"{folder} has no checksums"
        changed = ", ".join(f"{item.name} ({item.how})" for item in checked.changed)
        return f"{folder} is not what was sent: {changed}" if changed else None


@dataclass(frozen=True, slots=True)
class Returned:
    """What a run left: all of its rows as they are at its end, all of its outcomes, its run directory.

    ``error`` ended it. ``interrupted``: it was asked to end, by the sweep or because its worker ends.
    """

    rows: tuple[Mapping[str, str], ...]
    outcomes: tuple[ScenarioOutcome, ...]
    directory: Directory | None
    error: str | None
    interrupted: bool


class _Telling(Silent):
    """Tells a sweep on another machine what a run tells; remembers outcomes."""

    def __init__(self, out: Path, tell: Callable[[Told], object]) -> None:
        self._out = out
        self._tell = tell
        self._rows = 0
        self.outcomes: list[ScenarioOutcome] = []

    def note(self, text: str) -> None:
        """See ``Progress``."""
        self._tell(Told(note=text))

    def scenario_started(self, planned: PlannedScenario) -> None:
        """See ``RunProgress``."""
        self._tell(Told(began=planned.scheduled.scenario.name))

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        """See ``RunProgress``: by now its row is on this machine's disk."""
        self.outcomes.append(outcome)
        row = None
        if was_measured(outcome):
            rows = rows_after(self._out)
            row = rows[self._rows] if len(rows) > self._rows else None
            self._rows = len(rows)
        self._tell(Told(ended=outcome, row=row))


def measure(task: Task, tell: Callable[[Told], object], stop: Stop) -> Returned:
    """Measure a task on this machine, when nobody else measures on it. Needs root.

    ``stop`` ends it early; what was measured before is returned. Raises nothing that a run can raise.
    """
    try:
        with RunLock(wait=stop):
            # What a worker left that was killed; whoever holds the lock is alone here.
            folder = assets.make() / FOLDER
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            return _measured(task, folder / "out.csv", tell, stop)
    except Interrupted:
        return Returned((), (), None, None, True)
    except (ContainernetEnvError, OSError) as raised:
        return Returned((), (), None, text_of(raised), False)


def _measured(task: Task, out: Path, tell: Callable[[Told], object], stop: Stop) -> Returned:
    telling = _Telling(out, tell)
    error, interrupted = None, False
    try:
        carry_out(
            on_this_machine(task.config, task.scenario_set, task.options),
            out,
            tolerance=task.tolerance,
            progress=telling,
            stop=stop,
            command=task.command,
            in_sweep=True,
        )
    except Interrupted:
        interrupted = True
    except (ContainernetEnvError, OSError) as raised:
        error = text_of(raised)
    return Returned(tuple(rows_after(out)), tuple(telling.outcomes), _directory(out), error, interrupted)


def _directory(out: Path) -> Directory | None:
    """The only run directory beside ``out``."""
    found = sorted(runs_folder(out).glob("*")) if runs_folder(out).is_dir() else []
    if not found:
        return None
    folder = found[0]
    names = [*files_of(folder), *([CHECKSUMS] if (folder / CHECKSUMS).is_file() else [])]
    return Directory(folder.name, tuple((name, (folder / name).read_bytes()) for name in names))
