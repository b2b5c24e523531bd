"""The execution of a sweep: blocks of cells in random order, each measured once, however often it is started."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from containernet_env.base.errors import RunError, UsageError, resource_errors, text_of
from containernet_env.base.work import RemainingTime, Stop
from containernet_env.containernet import engines
from containernet_env.model.findings import State, states_text
from containernet_env.model.link import draw_seed
from containernet_env.network.rtt import Tolerance
from containernet_env.results.csv_file import rows_after
from containernet_env.results.run_directory import check_place, least_bytes, runs_folder
from containernet_env.results.statistics import LEAST
from containernet_env.runs import manifest
from containernet_env.runs.external_access import require_consent
from containernet_env.runs.keeper import RowsNotWrittenError, was_measured
from containernet_env.runs.measure import RunOrder, carry_out
from containernet_env.runs.preflight import preflight
from containernet_env.runs.prepare import lock_for, require_root
from containernet_env.runs.progress import Silent
from containernet_env.runs.sweep import ledger
from containernet_env.runs.sweep.design import Cell, Design
from containernet_env.runs.sweep.jobs import Begin, Course, Job, Placement, Roster, SweepProgress, cell_of
from containernet_env.runs.sweep.ledger import Journal, Kept, Ledger, Tried, journal_of
from containernet_env.runs.testbed import Standing
from containernet_env.stores.kinds import KINDS
from containernet_env.stores.store import Store

_DIGITS = 12
_NOT_COMPARED = "program"


def made_by(stores: Iterable[Store], tolerance: Tolerance | None) -> dict[str, str]:
    """The current versions of the measuring software, by name. All but the commit are compared: it is informational.

    The machine is not part of it: rows name theirs.
    """
    # Of several versions of one store each cell names its own.
    versions = {store.name: KINDS[store.name].default().version for store in stores}
    program = manifest.program_facts()
    tolerated = "by the kind of links"
    if tolerance is not None:
        tolerated = f"{tolerance.absolute_ns / 1e6:g} ms, {100 * tolerance.ratio:g} %"
    commit = (program.commit or "unknown")[:_DIGITS] + ("-dirty" if program.dirty else "")
    return {
        _NOT_COMPARED: f"{program.version} (commit {commit})",
        "sources": program.sources[:_DIGITS],
        "Go": program.go or "unknown",
        **{name: versions[name] for name in sorted(versions)},
        "RTT tolerance": tolerated,
    }


def of_store(made: Mapping[str, str], store: Store) -> dict[str, str]:
    """The part of ``made_by`` that concerns the rows of one store."""
    return {name: value for name, value in made.items() if name not in KINDS or name == store.name}


def other(was: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """The differences, in words, with both values; ``None`` if they are equal."""
    # Rows of one store do not apply to another one, which the sweep may have been changed to.
    names = [name for name in now if was.get(name) != now[name] and (name in was or name not in KINDS)]
    if not [name for name in names if name != _NOT_COMPARED]:
        return None
    return ", ".join(f"{name} {was.get(name, 'unknown')}, now {now[name]}" for name in names)


TRIES = 3
"""Number of attempts at a cell before it is given up on account of the machine."""
MAX_REPEAT = 30
_SHOWN_CELLS = 10


@dataclass(frozen=True, slots=True)
class Request:
    """How a design is executed.

    ``retry_failed`` repeats measurements that failed because of the store, and those of unknown validity.
    ``until_ci`` repeats a cell, ``max_repeat`` times at most, until the interval of the median of ``ci_of`` reaches at
    most this ratio of it to either side. ``other_versions`` counts rows of other versions, too (see `made_by`).
    ``yes_load_this_cluster``: an external cluster may be loaded.
    """

    repeat: int = 1
    until_ci: float | None = None
    ci_of: str = "p50"
    max_repeat: int = MAX_REPEAT
    tries: int = TRIES
    retry_failed: bool = False
    other_versions: bool = False
    tolerance: Tolerance | None = None
    yes_load_this_cluster: bool = False

    def check(self) -> None:
        """Raise ``UsageError`` for values out of range."""
        if self.until_ci is None:
            return
        if not 0 < self.until_ci < 1:
            raise UsageError(f"--until-ci: got {self.until_ci:.0%}; allowed: more than 0 %, less than 100 %")
        if self.max_repeat < LEAST:
            raise UsageError(
                f"--max-repeat: got {self.max_repeat}; allowed: at least {LEAST}, below which no interval is known"
            )
        if self.max_repeat < self.repeat:
            raise UsageError(f"--max-repeat: got {self.max_repeat}; allowed: at least --repeat, which is {self.repeat}")

    @property
    def least(self) -> int:
        """How many repetitions each cell has at least."""
        return self.repeat if self.until_ci is None else max(self.repeat, LEAST)

    @property
    def most(self) -> int:
        return self.repeat if self.until_ci is None else self.max_repeat


@dataclass(frozen=True, slots=True)
class Counts:
    """Measurements of a sweep: those that count, those that do not because of the store or of the machine.

    ``wide`` are the cells that are not narrow, ``states`` what each measurement's row counts as, ``network_off`` those
    whose network was found wrong after them.
    """

    measured: int
    store: int
    machine: int
    wide: int = 0
    states: Counter[State] = field(default_factory=Counter, compare=False)
    network_off: int = field(default=0, compare=False)

    @property
    def text(self) -> str:
        """How many measurements there are in each state."""
        number = self.measured + self.store + self.machine
        spoiled = f" ({self.machine} spoiled by the machine)" if self.machine else ""
        return f"{number} measurement{'s' * (number != 1)}: {states_text(self.states.elements())}{spoiled}"


class Sweep:
    """A design with its measurements in ``out``; reads, and creates nothing before `carry_out`.

    Without ``out`` there are none, and `carry_out` raises. ``placement``: where it is measured, by default this
    machine. Raises ``UsageError`` if ``out`` or its journal cannot be read.
    """

    def __init__(self, design: Design, out: Path | None, request: Request, placement: Placement | None = None) -> None:
        request.check()
        self.design = design
        self._given_out = out
        self.request = request
        self.placement: Placement = Here(design) if placement is None else placement
        self._kept = Kept() if out is None else ledger.read_journal(journal_of(out))
        self._cells = {cell.identity: cell for cell in design.cells}
        # Only the members know the version of an external cluster.
        ours = (bed.plan.store for bed in design.beds if bed.plan.config.external is None)
        self.made_by = made_by(ours, request.tolerance)
        self.ledger = Ledger(design.cells)
        if out is not None and out.is_file():
            made = self._kept.made_by.items()
            strangers = {run: text for run, was in made if (text := other(was, self.made_by)) is not None}
            self.ledger.take(rows_after(out), self._kept, strangers, request.other_versions)
        self.ledger.forgive(request.retry_failed)
        given = design.seed if design.seed is not None else self._kept.seed
        self.seed = draw_seed() if given is None else given

    @property
    def out(self) -> Path:
        """Where the rows are."""
        if self._given_out is None:
            raise UsageError("a sweep needs a results file for its rows")
        return self._given_out

    def wanted(self, block: int) -> set[str]:
        """The cells that are to be measured in a block now."""
        return {
            identity
            for identity in self._cells
            if self.ledger.wants(identity, block, self.request.tries)
            # If no repetition has the figure, more repetitions do not help.
            and (block <= self.request.least or (self._figures(identity) and not self._is_settled(identity)))
        }

    def _figures(self, cell: str) -> list[float]:
        """One for each repetition so far, of the figure whose interval is to be narrow."""
        return self.ledger.figures(cell, ledger.FIGURES[self.request.ci_of])

    def _is_settled(self, cell: str) -> bool:
        ratio = self.request.until_ci
        return ratio is None or ledger.is_narrow(self._figures(cell), ratio)

    def left(self, first: int = 1) -> tuple[int, float]:
        """The number of missing measurements from a block on, of those that are certain, and their duration (s)."""
        number, seconds = 0, 0.0
        for block in range(first, max(self.request.least, first) + 1):
            wanted = self.wanted(block)
            number += len(wanted)
            for bed in self.design.beds:
                here = [cell for cell in bed.cells if cell.identity in wanted]
                seconds += sum(cell.estimated_s for cell in here) + (bed.plan.around_s if here else 0.0)
        return number, seconds

    def counts(self) -> Counts:
        last = (self.ledger.last(cell, block) for cell in self._cells for block in range(1, self.request.most + 1))
        found = [tried for tried in last if tried is not None]
        results = Counter(tried.result for tried in found)
        return Counts(
            results["measured"],
            results["store"],
            results["machine"],
            sum(not self._is_settled(cell) for cell in self._cells),
            Counter(tried.state for tried in found),
            sum("network_off" in tried.why.split(", ") for tried in found),
        )

    def resume(self) -> str:
        """How to go on after an interruption, by what ``out`` and the journal have now. Raises as the class does."""
        found = Sweep(self.design, self._given_out, self.request, self.placement)
        return f"in {self.out}: {found.counts().text}; the same command measures the {found.left()[0]} that are left"

    def check(self) -> str:
        """Raise what `carry_out` would raise before anything is created; a sentence about the open questions."""
        open_questions = self.placement.check(self._given_out)
        if self._given_out is not None:
            number, _ = self.left()
            clusters = min(number, self.request.least * len(self.design.beds))
            check_place(self._given_out, least_bytes(number, len(self.design.largest.hosts), clusters))
        return open_questions

    def carry_out(self, progress: SweepProgress, stop: Stop) -> Counts:
        """Measure the missing cells, block by block.

        Raises what ``runs.measure.carry_out`` raises; everything that was measured before is kept, and the same call
        goes on with the rest.
        """
        require_consent(self.design.largest, self.request.yes_load_this_cluster)
        self.check()
        stop.check()
        with resource_errors(), self.placement.held():
            journal = Journal(journal_of(self.out))
            try:
                self._begin(journal, progress)
                blocks = _Blocks(self, journal, progress, stop)
                certain = range(1, self.request.least + 1)
                for numbers in [certain] if self.placement.several else [[number] for number in certain]:
                    blocks.measure(numbers)
                for number in range(self.request.least + 1, self.request.most + 1):
                    blocks.measure([number])
                return self.counts()
            finally:
                with suppress(RunError):  # rows and runs do not depend on it, and the disk may be full
                    journal.add("sweep_ended", {})
                journal.close()

    def _begin(self, journal: Journal, progress: SweepProgress) -> None:
        for note in self.notes():
            progress.note(note)
        began = {"seed": self.seed, "repeat": self.request.least, "cells": len(self._cells), "command": sys.argv}
        journal.add("sweep", began)
        journal.add(
            "cell",
            *(
                {**cell.values, "text": cell.text, "config_hash": cell.config_hash, "scenario_hash": cell.scenario_hash}
                for cell in self.design.cells
                if cell.identity not in self._kept.cells
            ),
        )

    def notes(self) -> list[str]:
        """Notes for the user before it begins."""
        notes = []
        if self.design.merged:
            notes.append(f"{self.design.merged} combinations are equal to others, which stand for them")
        if self._kept.torn:
            notes.append(f"{self._kept.torn} lines of {journal_of(self.out)} cannot be read (a killed sweep)")
        begun = {cell for _, _, cells in self._kept.runs for cell in cells}
        if foreign := [text for cell, text in self._kept.cells.items() if cell not in self._cells and cell in begun]:
            more = f" and {len(foreign) - _SHOWN_CELLS} more" if len(foreign) > _SHOWN_CELLS else ""
            notes.append(
                f"{len(foreign)} cells in {self.out} are none of this sweep; their rows are left as they are: "
                f"{'; '.join(foreign[:_SHOWN_CELLS])}{more}"
            )
        if self.ledger.strange:
            notes.append(
                f"{self.ledger.strange} rows of these cells in {self.out} are of no run that {journal_of(self.out)} "
                "knows, and are not counted: put the journal back that belongs to them, or choose another results file"
            )
        if self.ledger.unproved:
            notes.append(
                f"{self.ledger.unproved} rows in {self.out} are of testbeds that were killed: their network was proved "
                "before them, and not once more after them"
            )
        for difference, number in self.ledger.others.items():
            taken = "counted all the same" if self.request.other_versions else "not counted (--other-versions)"
            notes.append(f"{number} rows in {self.out} were measured by another version, and are {taken}: {difference}")
        counts = self.counts()
        if counts.measured or counts.store or counts.machine:
            number, _ = self.left()
            notes.append(f"in {self.out} so far: {counts.text}; {number} are left")
        return notes


class Here(Placement):
    """This machine: one testbed at a time, under its lock. Needs root."""

    several = False

    def __init__(self, design: Design) -> None:
        self._design = design
        self.roster = Roster(len(design.beds), [""])

    def check(self, out: Path | None) -> str:
        return preflight(self._design.largest, out)

    @contextmanager
    def held(self) -> Iterator[None]:
        plan = self._design.beds[0].plan
        if plan.config.external is None:
            require_root()
            engines.require(plan)
        with lock_for(plan):
            yield

    def measure(self, jobs: Iterable[Job], out: Path, begin: Begin, stop: Stop) -> Generator[Course, None, None]:
        standing, order = Standing(), list(jobs)
        try:
            for at, job in enumerate(order, start=1):
                standing.is_wanted = at < len(order) and order[at].bed.standing == job.bed.standing
                yield self._measured(begin(job, ""), standing, stop)
        finally:
            standing.close(Silent(), stop)

    def _measured(self, course: Course, standing: Standing, stop: Stop) -> Course:
        out = file = course.order.out
        offset = out.stat().st_size if out.is_file() else 0
        error: RunError | None = None
        try:
            file = carry_out(replace(course.order, standing=standing), course, stop).file
        except RowsNotWrittenError:
            raise
        except RunError as raised:
            error = raised
        if file != out:
            raise RunError(f"{out} was lost during the sweep: its rows are in {file}")
        rows = [row for row in rows_after(out, offset) if row["RunId"].endswith(f"-{course.plan.run_id}")]
        course.rows = {cell_of(row): row for row in rows}
        return course.end(error)


@dataclass(eq=False)
class _Blocks:
    """Executes blocks, testbed by testbed."""

    _sweep: Sweep
    _journal: Journal
    _progress: SweepProgress
    _stop: Stop
    _remaining: RemainingTime = field(default_factory=RemainingTime)
    _noted: set[str] = field(default_factory=set)
    _begun: dict[str, Course] = field(default_factory=dict)

    def measure(self, numbers: Sequence[int]) -> None:
        """Measure all cells of some blocks; those that the machine failed again, in rounds, up to ``tries`` times."""
        sweep = self._sweep
        again = False
        while wanted := {number: cells for number in numbers if (cells := sweep.wanted(number))}:
            if again:
                tried = [sweep.ledger.last(cell, number) for number, cells in wanted.items() for cell in cells]
                if spoiled := sum(last is not None for last in tried):
                    counted = "1 measurement is" if spoiled == 1 else f"{spoiled} measurements are"
                    self._progress.note(f"{counted} tried again: the machine spoiled what was measured of them")
                if first := len(tried) - spoiled:
                    counted = "1 measurement gets" if first == 1 else f"{first} measurements get"
                    self._progress.note(f"{counted} a new testbed: not all went well on the one before")
            self._remaining.wants(*sweep.left(numbers[0]), again)
            again = True
            self._round(wanted)

    def _round(self, wanted: Mapping[int, set[str]]) -> None:
        design, seed = self._sweep.design, self._sweep.seed
        jobs = (
            Job(bed, tuple(cells), number)
            for number, chosen in wanted.items()
            for bed, cells in design.order(number, seed, chosen)
        )
        try:
            with closing(self._sweep.placement.measure(jobs, self._sweep.out, self._begin, self._stop)) as all_ended:
                for course in all_ended:
                    self._note_end(self._begun.pop(course.plan.run_id), None)
                    self._settle(course)
        finally:
            for course in self._begun.values():
                self._note_end(course, sys.exception())

    def _begin(self, job: Job, place: str) -> Course:
        sweep = self._sweep
        self._remaining.at_once = max(1, len(self._sweep.placement.roster.usable))
        plan = job.bed.plan_of(job.cells, job.repetition, sweep.seed, sweep.design.choices)
        run = {"run": plan.run_id, "repetition": job.repetition, "seed": plan.options.seed}
        cells = [cell.identity for cell in job.cells]
        self._journal.add("run", {**run, "made_by": of_store(sweep.made_by, plan.store), "cells": cells})
        self._progress.bed_began(job.cells, job.repetition)
        on_failed = partial(self._failed, plan.run_id, job)
        # `Sweep.carry_out` has ensured the consent.
        order = RunOrder(plan, sweep.out, sweep.request.tolerance, consent=True)
        course = Course(job, order, place, self._progress, self._remaining, self._noted, on_failed)
        self._begun[plan.run_id] = course
        return course

    def _failed(self, run: str, job: Job, why: str, *cells: Cell) -> None:
        """Record in the journal that the machine failed these cells of a job."""
        line = {"repetition": job.repetition, "run": run, "why": why}
        self._journal.add("failed", *({"cell": cell.identity, **line} for cell in cells))

    def _settle(self, course: Course) -> None:
        """Add the rows of a job to the ledger, and judge its machine."""
        self._remaining.took(course.took_s, course.job.bed.plan.around_s)
        for cell, outcome in course.outcomes:
            if (row := course.rows.get((cell.config_hash, cell.scenario_hash))) is not None:
                tried = ledger.tried_of(row, outcome.error if outcome.testbed_failed else None)
                self._sweep.ledger.add(cell.identity, course.job.repetition, tried)
        is_measured = any(was_measured(outcome) for _, outcome in course.outcomes)
        reason = "" if is_measured else self._nothing_measured(course)
        try:
            rests = self._sweep.placement.roster.ended(course, is_measured, reason)
        except RunError as raised:
            raise raised from course.error
        if rests:
            self._progress.note(f"{course.place} could not use several testbeds in a row and gets no others: {reason}")
        if is_measured and course.error is not None:
            if not self._sweep.placement.several:
                raise course.error  # the testbed's remains would be in the way of the next one
            self._progress.note(f"{course.place}: {course.error}")

    def _note_end(self, course: Course, error: BaseException | None) -> None:
        """Record in the journal that a run ended; an ``error`` being raised overrides one of the journal."""
        try:
            course.report_failures()
            if not course.is_killed:
                self._journal.add("run_ended", {"run": course.plan.run_id})
        except RunError:
            if error is None:
                raise

    def _nothing_measured(self, course: Course) -> str:
        """An unusable testbed counts as an attempt for each of its cells, or it would be brought up forever; why."""
        job, error = course.job, course.error
        first = course.outcomes[0][1].error if course.outcomes else None
        why = text_of(error) if error is not None else first or "nothing was measured"
        self._failed(course.plan.run_id, job, why, *job.cells)
        for cell in job.cells:
            self._sweep.ledger.add(cell.identity, job.repetition, Tried("machine", why, {}))
        where = f" on {course.place}" if course.place else ""
        directory = runs_folder(self._sweep.out)
        self._progress.note(f"{len(job.cells)} cells could not be measured{where}, see {directory}: {why}")
        return why
