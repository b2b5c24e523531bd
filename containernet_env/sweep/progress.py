"""What a sweep tells while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Scenario
from containernet_env.plan.plan import PlannedScenario
from containernet_env.runs.keeper import was_measured
from containernet_env.runs.progress import Silent
from containernet_env.sweep.design import Cell


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a sweep is: measurements that are settled, of how many; ``left_s`` follows from what those took."""

    done: int
    all: int
    left_s: float


class SweepProgress(Protocol):
    """Receives the course of a sweep; must not raise."""

    def note(self, text: str) -> None:
        """Something that the user should read."""

    def bed_began(self, cells: Sequence[Cell], repetition: int) -> None:
        """A testbed is brought up for these cells, which are measured in this order."""

    def cell_began(self, cell: Cell, repetition: int, standing: Standing) -> None:
        """A cell's load begins."""

    def cell_progress(self, done: int, errors: int) -> None:
        """The running cell has so many answers."""

    def cell_ended(self, cell: Cell, repetition: int, outcome: ScenarioOutcome, standing: Standing) -> None:
        """Its row is on disk."""


class Course(Silent):
    """Turns what one run tells into what a sweep tells; remembers how each cell ended, also those that were not run.

    ``on_failed`` is told of a cell that the testbed failed as soon as that is known. Where it raises, it is told again
    by `tell_failures`: what a run is told with never ends it.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        repetition: int,
        progress: SweepProgress,
        clock: Clock,
        told: set[str],
        on_failed: Callable[[Cell, str], None],
    ) -> None:
        self._cells = {cell.scenario.name: cell for cell in cells}
        self._repetition = repetition
        self._progress = progress
        self._clock = clock
        self._told = told
        self._on_failed = on_failed
        self._failures: list[tuple[Cell, str]] = []
        self.outcomes: list[tuple[Cell, ScenarioOutcome]] = []

    def note(self, text: str) -> None:
        """See ``Progress``; what a run says again is not told again."""
        if text not in self._told:
            self._told.add(text)
            self._progress.note(text)

    def scenario_started(self, planned: PlannedScenario) -> None:
        """See ``RunProgress``."""
        cell = self._cells[planned.scheduled.scenario.name]
        self._progress.cell_began(cell, self._repetition, self._clock.standing)

    def probe_started(self, number: int, probe: Scenario) -> None:
        """See ``RunProgress``."""

    def scenario_progress(self, done: int, errors: int) -> None:
        """See ``RunProgress``."""
        self._progress.cell_progress(done, errors)

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        """See ``RunProgress``."""
        cell = self._cells[outcome.scheduled.scenario.name]
        self.outcomes.append((cell, outcome))
        if not was_measured(outcome):
            return
        if outcome.testbed_failed:
            self._failures.append((cell, outcome.error or ""))
            self.tell_failures()
        self._clock.ended(cell)
        self._progress.cell_ended(cell, self._repetition, outcome, self._clock.standing)

    def tell_failures(self) -> None:
        """Tell what no row says, that the testbed failed and not the store, as far as it has not been told."""
        while self._failures:
            self._on_failed(*self._failures[0])
            del self._failures[0]


class Clock:
    """How long a sweep still takes: estimates, corrected by what measured cells took with all that was around them.

    ``at_once`` testbeds are measured at the same time.
    """

    def __init__(self, wanted_s: float, count: int) -> None:
        self.at_once = 1
        self._left_s = wanted_s
        self._all = self._left = count
        self._estimated_s = self._took_s = 0.0
        self._pending_s = 0.0

    def wants(self, count: int, estimated_s: float, again: bool = False) -> None:
        """So much is left to measure now, by estimates; ``again``: it is none that comes on top of all."""
        self._all += 0 if again else count - self._left
        self._left_s, self._left = estimated_s, count

    def ended(self, cell: Cell) -> None:
        """A cell ended."""
        self._left -= 1
        self._left_s = max(self._left_s - cell.estimated_s, 0.0)
        self._pending_s += cell.estimated_s

    def took(self, seconds: float, around_s: float) -> None:
        """A testbed with the cells that ended since took so long; ``around_s`` was estimated for bringing it up."""
        self._estimated_s += self._pending_s + around_s
        self._took_s += seconds
        self._left_s = max(self._left_s - around_s, 0.0)
        self._pending_s = 0.0

    @property
    def standing(self) -> Standing:
        """How far it is."""
        ratio = self._took_s / self._estimated_s if self._estimated_s > 0 else 1.0
        return Standing(self._all - self._left, self._all, self._left_s * ratio / self.at_once)
