"""Simulated machines for a sweep: they take simulated time, fail at random, and leave rows that are real ones."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from containernet_env.base.errors import RunError
from containernet_env.base.work import RemainingTime, Stop
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.results.columns import COLUMNS, NOT_APPLICABLE
from containernet_env.results.csv_file import ResultsFile
from containernet_env.runs.sweep.design import Cell, Design
from containernet_env.runs.sweep.jobs import Begin, Course, Job, Roster, SweepProgress

_AT = "2026-11-22T00:00:00.000Z"
_EMPTY = dict.fromkeys(COLUMNS, NOT_APPLICABLE)


@dataclass(frozen=True, slots=True)
class Failures:
    """How often machines fail. Times in s, ratios from 0 to 1.

    ``lost_after_s``: the mean time until a machine is lost, which comes back ``back_s`` later. ``unusable_ratio``: of
    testbeds that do not come up. ``spoiled_ratio``: of cells that the machine spoils. ``broken``: so many machines on
    which nothing comes up from some time on.
    """

    lost_after_s: float = 7200.0
    back_s: float = 600.0
    unusable_ratio: float = 0.01
    spoiled_ratio: float = 0.01
    broken: int = 1


@dataclass(slots=True)
class Told(SweepProgress):
    """The notes and the number of cells of a sweep."""

    notes: list[str] = field(default_factory=list)
    ended: int = 0

    def note(self, text: str) -> None:
        """See ``SweepProgress``."""
        self.notes.append(text)

    def cell_ended(self, cell: Cell, repetition: int, outcome: ScenarioOutcome, tally: RemainingTime) -> None:
        """See ``SweepProgress``."""
        self.ended += 1


@dataclass(slots=True)
class _Running:
    """A testbed that is measured: how many of its cells are, and the ``error`` that ends it."""

    course: Course
    cells: int
    error: RunError | None
    is_lost: bool
    began_s: float


class Machines:
    """A ``Placement`` of so many machines in simulated time; the real roster chooses among them."""

    several = True

    def __init__(
        self, design: Design, number: int, failures: Failures, seed: int, cell_s: float, around_s: float
    ) -> None:
        self.now_s = self.busy_s = 0.0
        self.machines_lost = 0
        self._draw = random.Random(seed)
        self._failures = failures
        self._times = (cell_s, around_s)
        self._names = (f"node{number}" for number in itertools.count())
        self._places = {next(self._names) for _ in range(number)}
        self.roster = Roster(len(design.beds), self._places)
        self._broken = set(sorted(self._places)[: failures.broken])
        self._ends: list[tuple[float, int, _Running | None]] = []
        self._numbers = itertools.count()

    def check(self, out: Path | None) -> str:
        """See ``Placement``."""
        return ""

    @contextmanager
    def held(self) -> Iterator[None]:
        """See ``Placement``."""
        yield

    def measure(self, jobs: Iterable[Job], out: Path, begin: Begin, stop: Stop) -> Generator[Course, None, None]:
        """See ``Placement``."""
        results = ResultsFile(out)
        results.open()
        free = sorted(self._places)
        self.roster.fill(jobs)
        try:
            while True:
                usable = self.roster.usable
                for place in [place for place in free if place in usable]:
                    if (job := self.roster.take(place)) is not None:
                        free.remove(place)
                        self._start(begin(job, place))
                if not any(running for _, _, running in self._ends):
                    break
                self.now_s, _, running = heapq.heappop(self._ends)
                if running is None:  # a machine that was lost is back, under another name
                    free.append(next(self._names))
                    self._places.add(free[-1])
                    continue
                if running.is_lost:
                    self.machines_lost += 1
                    self._places.discard(running.course.place)
                    heapq.heappush(self._ends, (self.now_s + self._failures.back_s, next(self._numbers), None))
                else:
                    free.append(running.course.place)
                yield self._ended(running, results)
        finally:
            results.close()

    def _start(self, course: Course) -> None:
        place = course.place
        cell_s, around_s = self._times
        cells = len(course.job.cells)
        takes_s = around_s + cells * cell_s
        lost_s = self._draw.expovariate(1 / self._failures.lost_after_s)
        error, is_lost = None, False
        if place in self._broken or self._draw.random() < self._failures.unusable_ratio:
            cells, takes_s, error = 0, around_s, RunError("etcd1 did not start")
        if lost_s < takes_s:
            cells = max(0, min(cells, int((lost_s - around_s) / cell_s)))
            takes_s, error, is_lost = lost_s, RunError(f"worker {place} was lost"), True
        self.busy_s += takes_s
        running = _Running(course, cells, error, is_lost, self.now_s)
        heapq.heappush(self._ends, (self.now_s + takes_s, next(self._numbers), running))

    def _ended(self, running: _Running, results: ResultsFile) -> Course:
        course = running.course
        planned = {item.scheduled.scenario.name: item.scheduled for item in course.plan.scenarios}
        for cell in course.job.cells[: running.cells]:
            row = course.rows[cell.config_hash, cell.scenario_hash] = self._row(course, cell)
            results.append(row)
            course.scenario_ended(ScenarioOutcome(planned[cell.scenario.name], _AT, 0))
        course.end(running.error)
        course.took_s = self.now_s - running.began_s
        return course

    def _row(self, course: Course, cell: Cell) -> Mapping[str, str]:
        spoiled = self._draw.random() < self._failures.spoiled_ratio
        return _EMPTY | {
            "Scenario": cell.scenario.name,
            "Repetition": str(course.job.repetition),
            "50%": f"{self._draw.uniform(0.010, 0.011):.6f}",
            "Valid": "no" if spoiled else "yes",
            "Reasons": "links_paused" if spoiled else NOT_APPLICABLE,
            "ConfigHash": cell.config_hash,
            "ScenarioHash": cell.scenario_hash,
            "Machine": course.place,
            "RunId": f"20261122T000000Z-{course.plan.run_id}",
            "Timestamp": _AT,
        }
