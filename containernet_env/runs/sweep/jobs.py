"""Testbeds of a sweep in progress: the machine that measures each, the machine for the next, and the progress shown.

`runner.Here` is this machine, `workers.Workers` are those of a Dask cluster. Journal, ledger, order and tries are the
runner's and the same for both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.work import RemainingTime, Stop
from containernet_env.config.plan import Plan, PlannedScenario
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Scenario
from containernet_env.runs.keeper import was_measured
from containernet_env.runs.measure import RunOrder
from containernet_env.runs.progress import Silent
from containernet_env.runs.sweep.design import Bed, Cell

# This many testbeds in a row that could not be brought up are no coincidence.
_BEDS_LOST = 3


@dataclass(frozen=True, slots=True)
class Job:
    """Cells of one block that are measured as one run, in this order, on a testbed of their own."""

    bed: Bed
    cells: tuple[Cell, ...]
    repetition: int


class SweepProgress(Protocol):
    """Receives the course of a sweep, and must not raise; a class that inherits from it need not have every method.

    ``tally`` has the settled measurements, their total, and the time that is left by the durations so far.
    """

    def note(self, text: str) -> None:
        """A message for the user."""

    def bed_began(self, cells: Sequence[Cell], repetition: int) -> None:
        """A testbed is brought up for these cells, which are measured in this order."""
        return

    def cell_began(self, cell: Cell, repetition: int, tally: RemainingTime) -> None:
        """A cell's load begins."""
        return

    def cell_progress(self, done: int, errors: int) -> None:
        """Number of answers of the running cell."""
        return

    def cell_ended(self, cell: Cell, repetition: int, outcome: ScenarioOutcome, tally: RemainingTime) -> None:
        """Its row is on disk."""
        return


@dataclass(eq=False)
class Course(Silent):
    """A job that has begun, as a ``RunProgress``: it turns the progress of its run into that of the sweep.

    ``place``: the machine's name where there are several, else empty. ``outcomes`` has how each cell ended, also those
    that were not run, ``rows`` the rows that are in OUT, by their `cell_of`. ``error`` ended it. ``is_killed``: the
    machine was lost, so its network was not proved after the last cell.

    ``_on_failed`` is called for a cell that the testbed failed as soon as that is known; if it raises,
    `report_failures` calls it again: an error of the progress never ends a run. ``_noted`` are the notes of the sweep
    so far.
    """

    job: Job
    order: RunOrder
    place: str
    _progress: SweepProgress
    _remaining: RemainingTime
    _noted: set[str]
    _on_failed: Callable[[str, Cell], None]
    outcomes: list[tuple[Cell, ScenarioOutcome]] = field(default_factory=list)
    rows: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    error: RunError | None = None
    is_killed: bool = False
    took_s: float = 0.0
    _began_s: float = field(default_factory=lambda: clock.monotonic())  # tests replace the clock's names
    _failures: list[tuple[str, Cell]] = field(default_factory=list)

    @property
    def plan(self) -> Plan:
        return self.order.plan

    def _cell(self, scenario: Scenario) -> Cell:
        return next(cell for cell in self.job.cells if cell.scenario.name == scenario.name)

    def end(self, error: RunError | None = None) -> Course:
        self.error = error
        self.took_s = clock.monotonic() - self._began_s
        return self

    def note(self, text: str) -> None:
        """Shown once, whichever machine it comes from first."""
        if text not in self._noted:
            self._noted.add(text)
            self._progress.note(f"{self.place}: {text}" if self.place else text)

    def scenario_started(self, planned: PlannedScenario) -> None:
        cell = self._cell(planned.scheduled.scenario)
        self._progress.cell_began(cell, self.job.repetition, self._remaining)

    def scenario_progress(self, done: int, errors: int) -> None:
        self._progress.cell_progress(done, errors)

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        cell = self._cell(outcome.scheduled.scenario)
        self.outcomes.append((cell, outcome))
        if not was_measured(outcome):
            return
        if outcome.testbed_failed:
            self._failures.append((outcome.error or "", cell))
            self.report_failures()
        self._remaining.ended(cell.estimated_s)
        self._progress.cell_ended(cell, self.job.repetition, outcome, self._remaining)

    def report_failures(self) -> None:
        """Report failures of the testbed (not of the store), which no row contains, unless already reported."""
        while self._failures:
            self._on_failed(*self._failures[0])
            del self._failures[0]


def cell_of(row: Mapping[str, str]) -> tuple[str, str]:
    """The cell of a row of a run: the hashes of its topology and of its scenario."""
    return row["ConfigHash"], row["ScenarioHash"]


Begin = Callable[[Job, str], Course]
"""Begins a job on the machine of that name."""


class Roster:
    """Assigns testbeds to machines: those of a round that have not begun, and the failures by machine. Pure.

    ``places`` are the machines' names, seen as they change. Each measures whole blocks if there are as many: then a
    difference between machines is none between cells. The sweep has ``beds`` testbeds.
    """

    def __init__(self, beds: int, places: Collection[str]) -> None:
        self.places = places
        self._beds = beds
        self._waiting: dict[int, deque[Job]] = {}
        self._own: dict[str, int] = {}
        self._failed: dict[str, set[str]] = {}
        self._lost: dict[str, list[str]] = {}
        self._resting: set[str] = set()

    def fill(self, jobs: Iterable[Job]) -> None:
        """Start a round: all of its testbeds, by blocks and in their order."""
        self._waiting.clear()
        self._own.clear()
        for job in jobs:
            self._waiting.setdefault(job.repetition, deque()).append(job)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def usable(self) -> set[str]:
        """The machines that get testbeds: all if there would be none otherwise."""
        found = set(self.places) - self._resting
        if not found:
            self._resting.clear()
        return found or set(self.places)

    def take(self, place: str) -> Job | None:
        """The next testbed for a usable machine; ``None`` if there is none for it.

        From its own block; otherwise from the first block without a machine, which becomes its own; otherwise from the
        block with the most remaining testbeds. A testbed that was unusable there is left to others that have not tried
        it.
        """
        usable = self.usable
        for block in self._blocks(place, usable):
            jobs = self._waiting[block]
            for job in jobs:
                tried = self._failed.get(job.bed.key, set())
                if place not in tried or tried.issuperset(usable):
                    jobs.remove(job)
                    if not jobs:
                        del self._waiting[block]
                    if block not in self._own.values():
                        self._own[place] = block
                    return job
        return None

    def _blocks(self, place: str, usable: Collection[str]) -> list[int]:
        self._own = {name: block for name, block in self._own.items() if name in usable and block in self._waiting}
        own = self._own.get(place)
        taken = set(self._own.values()) - {own}
        free = [block for block in self._waiting if block not in taken and block != own]
        shared = sorted((block for block in self._waiting if block in taken), key=lambda b: -len(self._waiting[b]))
        return [*([] if own is None else [own]), *free, *shared]

    def ended(self, course: Course, is_measured: bool, why: str) -> bool:
        """Record how a testbed ended; returns whether its machine gets no others from now on.

        After an error, or lost with its machine, it is tried elsewhere, after the others. A machine that measured
        nothing several times in a row gets no others while others succeed. Raises ``RunError`` if no machine succeeds,
        and more than half of all testbeds were unusable: one testbed that cannot be created, for lack of memory, does
        not condemn others.
        """
        place, bed = course.place, course.job.bed.key
        if course.error is not None:
            self._failed.setdefault(bed, set()).add(place)
        if is_measured:
            self._lost.pop(place, None)
            self._resting.discard(place)
            return False
        here = self._lost.setdefault(place, [])
        here.append(bed)
        if len(here) < _BEDS_LOST or place in self._resting:
            return False
        self._resting.add(place)
        if self._resting.issuperset(self.places):
            if 2 * len({bed for beds in self._lost.values() for bed in beds}) > self._beds:
                where = " on any machine" if len(self.places) > 1 else ""
                raise RunError(f"{len(here)} testbeds in a row could not be used{where}, so the sweep ends: {why}")
            self._resting.clear()
        return place in self._resting


class Placement(Protocol):
    """Machines that measure testbeds of a design.

    ``several``: they measure more than one at once, so that a round holds the testbeds of several blocks.
    """

    several: bool
    roster: Roster

    def check(self, out: Path | None) -> str:
        """Raise the errors of `measure` before anything is created; returns a sentence about open questions."""

    def held(self) -> AbstractContextManager[None]:
        """Within it the sweep holds the machines, as far as possible. Raises the error that prevents measuring."""

    def measure(self, jobs: Iterable[Job], out: Path, begin: Begin, stop: Stop) -> Generator[Course, None, None]:
        """Measure each job once, in an order like theirs; ``begin`` is called right before each.

        A job's rows are in ``out`` when it is yielded, and when the iterator is closed, which ends the running jobs.
        Raises ``Interrupted`` when ``stop`` is requested, and ``RunError`` for errors that end the sweep.
        """
