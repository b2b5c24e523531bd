"""Workers of a Dask cluster as the machines of a sweep: each measures one testbed at a time, all rows come to one OUT.

Dask transports tasks, progress and results; the assignment of work to workers is decided here (docs/adr/0019).
"""

from __future__ import annotations

import pickle
import secrets
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from distributed import Client, Future

from containernet_env.base import clock
from containernet_env.base.errors import MissingRequirementError, RunError, UsageError, text_of
from containernet_env.base.work import Stop
from containernet_env.results.csv_file import ResultsFile, RowNotWrittenError
from containernet_env.runs import preflight
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.runs.sweep.design import Design
from containernet_env.runs.sweep.jobs import Begin, Course, Job, Placement, Roster, cell_of
from containernet_env.runs.sweep.worker import (
    CONNECT_S,
    FACTS,
    GO,
    UNKNOWN,
    Returned,
    Scheduler,
    Task,
    facts,
    request_stop,
    run_task,
)

_LOOK_S = 1.0
"""Poll interval of the scheduler's list of workers."""
_CLOSE_S = 2.0
_FETCH_S = 60.0
_ANSWER_S = 30.0
"""Timeout of a scheduler's answer: as long as Dask keeps a connection on which nothing arrives."""
_NO_WORKER_S = 60.0
"""How long a sweep that has lost all of its workers waits for another one."""
_WIND_UP_S = 180.0
"""Limit for the end of a running cell, the network's proof and the tear-down together."""


@dataclass(slots=True)
class _Measuring:
    """A job at a worker. ``is_taken_up``: it has begun, and does not wait there for another sweep's testbed."""

    course: Course
    future: Future[Returned]
    is_taken_up: bool = False


class Workers(Placement):
    """The workers of a cluster. ``note`` is called for workers that come, go, or get nothing more."""

    several = True

    def __init__(self, scheduler: Scheduler, design: Design, note: Callable[[str], object]) -> None:
        if several := next((bed.plan.config for bed in design.beds if len(bed.plan.config.clients) > 1), None):
            # Of a cell one row is fetched.
            raise UsageError(f"{several.path} has several clients, which a sweep on several machines cannot have")
        self._scheduler = scheduler
        self._design = design
        self._note = note
        self._noted: set[str] = set()
        self._topic = f"containernet-env-{secrets.token_hex(4)}"
        self._own = facts()
        self._addresses: dict[str, str] = {}
        """Of the workers that measure for this sweep, by their names."""
        self.roster = Roster(len(design.beds), self._addresses)
        self._measuring: dict[str, _Measuring] = {}
        """By the ids of the runs."""
        self._messages: clock.SimpleQueue[tuple[str, bytes | None]] = clock.SimpleQueue()
        self._left: set[str] = set()
        self._looked_s = 0.0
        self._is_lost = False
        self._refused: RowNotWrittenError | None = None
        self._unwritten: dict[tuple[str, str, str], Mapping[str, str]] = {}
        self._client: Client
        self._results: ResultsFile

    def check(self, out: Path | None) -> str:
        if out is not None:
            preflight.check_out(self._design.largest, out)
        return "Only the workers know what their machines carry, and whether their engines and images are ready."

    @contextmanager
    def held(self) -> Iterator[None]:
        """Versions are compared before anything is measured."""
        self._scheduler.reach()
        try:
            client = Client(
                self._scheduler.address,
                security=self._scheduler.security(),
                timeout=CONNECT_S,
                set_as_default=False,
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise self._scheduler.no_answer(error) from error
        try:
            client.subscribe_topic(self._topic, lambda event: self._messages.put((event[1]["run"], event[1]["call"])))
            self._client = client
            self._compare()
            yield
        finally:
            with suppress(Exception):
                client.close(timeout=_CLOSE_S)

    def _compare(self) -> None:
        found = self._there()
        if not found:
            raise MissingRequirementError(
                f"no worker is at {self._scheduler.address}",
                f"On each machine that measures, as root: containernet-env worker {self._scheduler.address}",
            )
        theirs = next(iter(found.values()))[1].get(FACTS)
        if self._own[GO] == UNKNOWN and isinstance(theirs, Mapping):
            # This machine builds nothing: only the workers' Go versions have to match each other.
            self._own[GO] = theirs.get(GO, UNKNOWN)
        if refused := [why for name, (_, worker) in found.items() if (why := self._why_not(name, worker)) is not None]:
            raise MissingRequirementError(
                "workers that would not measure the same: " + "; ".join(refused),
                "End them, or install the versions of this machine there, and start them again.",
            )
        self._addresses.update({name: address for name, (address, _) in found.items()})

    def _why_not(self, name: str, worker: Mapping[str, Any]) -> str | None:
        theirs = worker.get(FACTS)
        if not isinstance(theirs, Mapping):
            return f"{name} is none that `containernet-env worker` started"
        differing = [
            f"{fact} {theirs.get(fact, UNKNOWN)}, here {value}"
            for fact, value in self._own.items()
            if theirs.get(fact) != value
        ]
        return f"{name} has {', '.join(differing)}" if differing else None

    def _there(self) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """The workers that the scheduler has now: their addresses and descriptions, by name.

        Raises ``RunError`` if the scheduler is lost.
        """
        scheduler = self._client.scheduler
        try:
            if self._client.status != "running" or scheduler is None:
                raise ConnectionError("it was closed")
            found = self._client.sync(scheduler.identity, n_workers=-1, callback_timeout=_ANSWER_S)
            if self._client.status != "running":
                raise ConnectionError("it was closed")
        except (OSError, TimeoutError, ValueError) as error:
            raise self._lost_scheduler() from error
        self._looked_s = clock.monotonic()
        return {str(worker["name"]): (address, worker) for address, worker in found["workers"].items()}

    def _lost_scheduler(self) -> RunError:
        self._is_lost = True
        return RunError(
            f"the scheduler at {self._scheduler.address} was lost during the sweep: start it and its workers again\n"
            "  Then the same command goes on where this one ended."
        )

    def measure(self, jobs: Iterable[Job], out: Path, begin: Begin, stop: Stop) -> Generator[Course, None, None]:
        self._results = ResultsFile(out)
        for text in self._results.open():
            self._note(text)
        self.roster.fill(jobs)
        alone_since_s = clock.monotonic()
        try:
            while self.roster.waiting or self._measuring:
                stop.check()
                yield from self._look()
                self._send(begin)
                if self._addresses:
                    alone_since_s = clock.monotonic()
                elif clock.monotonic() - alone_since_s > _NO_WORKER_S:
                    raise RunError(
                        f"no worker is left at {self._scheduler.address}: start one, and the same command goes on"
                    )
                yield from self._hear(_LOOK_S)
        finally:
            try:
                self._wind_up()
                self._write_rest()
            finally:
                self._results.close()

    def _look(self) -> Iterator[Course]:
        """Poll periodically for new and lost workers."""
        if clock.monotonic() - self._looked_s < _LOOK_S:
            return
        there = self._there()
        for name, (address, worker) in there.items():
            if name in self._addresses or name in self._left or worker.get("status") != "running":
                continue
            why = self._why_not(name, worker)
            if why is None:
                self._addresses[name] = address
            self._say(f"{name} measures, too" if why is None else f"a worker gets no cells: {why}")
        gone = [name for name in self._addresses if name not in there]
        for name in gone:
            del self._addresses[name]
        while gone and not self._messages.empty():  # the rows that they sent before
            yield from self._hear(0.0)
        for name in gone:
            measured = [one for one in self._measuring.values() if one.course.place == name]
            for measuring in measured:
                yield self._lose(measuring, "the worker was lost")
            if not measured:
                self._say(f"worker {name} is gone")

    def _send(self, begin: Begin) -> None:
        """Give each idle worker a testbed."""
        usable = self.roster.usable - {one.course.place for one in self._measuring.values()}
        for place, address in self._addresses.items():
            if place not in usable or (job := self.roster.take(place)) is None:
                continue
            course = begin(job, place)
            task = Task(self._topic, replace(course.order, command=tuple(sys.argv)))
            future = self._client.submit(
                run_task, task, key=task.run, workers=[address], allow_other_workers=False, pure=False, retries=0
            )
            self._measuring[task.run] = _Measuring(course, future)
            # Called on a thread of Dask's.
            future.add_done_callback(lambda _, run=task.run: self._messages.put((run, None)))

    def _hear(self, timeout_s: float) -> Iterator[Course]:
        """Handle one message of a worker: a call of its run's progress, with the row of an ended cell, or its end."""
        try:
            run, call = self._messages.get(timeout=timeout_s)
        except clock.Empty:
            return
        measuring = self._measuring.get(run)
        if measuring is None:
            return
        if call is not None:
            measuring.is_taken_up = True
            name, argument, row = pickle.loads(call)
            if row is not None:
                self._append(measuring.course, row)
            if name:
                getattr(measuring.course, name)(argument)
        elif measuring.course.place in self._addresses and not self._is_lost:
            yield self._take(measuring)

    def _append(self, course: Course, row: Mapping[str, str]) -> None:
        key = (row["RunId"], *cell_of(row))
        try:
            moved = self._results.append(row)
        except RowNotWrittenError as error:
            self._unwritten[key] = row
            if self._refused is None:
                self._refused = error
                raise
            return  # The sweep ends for the first one; what else comes is kept for `_write_rest`.
        self._unwritten.pop(key, None)
        course.rows[cell_of(row)] = row
        if moved is not None:
            raise RunError(f"{self._results.path} was lost during the sweep: {moved}")

    def _write_rest(self) -> None:
        """Retry once the rows that OUT has refused; raise ``RowsNotWrittenError`` with the rows that are in no file.

        If another error ends the sweep, that is a note instead.
        """
        for key, row in list(self._unwritten.items()):
            with suppress(RowNotWrittenError):
                self._results.append(row)
                del self._unwritten[key]
        if self._refused is None or not self._unwritten:
            return
        problem = RowsNotWrittenError(self._results, self._refused, self._unwritten.values())
        error = sys.exception()
        if error is None or error is self._refused:
            raise problem from self._refused
        self._note(str(problem))

    def _take(self, measuring: _Measuring) -> Course:
        """The end of a task whose worker is there."""
        course = measuring.course
        try:
            returned = measuring.future.result(timeout=_FETCH_S)
        except Exception as error:  # any error of a worker's program
            lost = self._lose(measuring, f"the worker failed: {text_of(error)}")
            if self._client.status != "running":
                raise self._lost_scheduler() from error
            return lost
        del self._measuring[course.plan.run_id]
        self._settle(course, returned)
        why = returned.error
        if returned.interrupted:
            # Not by this sweep: the worker ends.
            self._left.add(course.place)
            self._addresses.pop(course.place, None)
            why = "the worker was ended"
        return course.end(None if why is None else RunError(why))

    def _lose(self, measuring: _Measuring, why: str) -> Course:
        """Handle a worker that did not finish a job."""
        course = measuring.course
        del self._measuring[course.plan.run_id]
        measuring.future.cancel()
        course.is_killed = True
        return course.end(RunError(why))

    def _settle(self, course: Course, returned: Returned) -> None:
        """Write all final rows to OUT, and the run directory beside it."""
        by_cell = {cell_of(row): row for row in returned.rows}
        amended = [(old, by_cell[cell]) for cell, old in course.rows.items() if by_cell.get(cell, old) != old]
        for cell, row in by_cell.items():
            if cell not in course.rows:
                self._append(course, row)
        ended = {cell.scenario.name for cell, _ in course.outcomes}
        for outcome in returned.outcomes:
            if outcome.scheduled.scenario.name not in ended:
                course.scenario_ended(outcome)
        try:
            if amended:
                self._results.amend(amended)
                course.rows.update(by_cell)
            if returned.directory is not None:
                wrong = returned.directory.write(self._results.path, course.plan.run_id)
                if wrong is not None:
                    self._note(wrong)
        except OSError as error:
            self._note(f"what {course.place} says of {len(returned.rows)} rows since is not kept: {error}")

    def _say(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)

    def _wind_up(self) -> None:
        """End the running jobs, and keep their measurements."""
        try:
            while not self._messages.empty():
                for _ in self._hear(0.0):
                    pass
            for measuring in list(self._measuring.values()):
                if not measuring.is_taken_up or measuring.course.place not in self._addresses:
                    self._lose(measuring, "")
            if self._measuring and not self._is_lost:
                self._there()
                at = [self._addresses[measuring.course.place] for measuring in self._measuring.values()]
                with suppress(OSError, TimeoutError, ValueError):
                    self._client.run(request_stop, [*self._measuring], workers=at, wait=False, on_error="ignore")
                deadline_s = clock.monotonic() + _WIND_UP_S
                while self._measuring and clock.monotonic() < deadline_s:
                    for _ in chain(self._look(), self._hear(_LOOK_S)):
                        pass
        except RunError as error:
            self._note(str(error))
        finally:
            for measuring in list(self._measuring.values()):
                self._lose(measuring, "")
