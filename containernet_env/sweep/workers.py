"""Workers of a Dask cluster as the machines of a sweep: each measures one testbed at a time, all rows come to one OUT.

Who measures what is decided here and not by Dask's scheduler: each task is bound to a worker. A worker that goes takes
its task along; what of it is measured stays, and the runner has the rest measured by others.
"""

from __future__ import annotations

import pickle
import secrets
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client, Future

from containernet_env.base import clock
from containernet_env.base.errors import MissingRequirementError, RunError, text_of
from containernet_env.base.work import Stop
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.results.csv_file import ResultsFile, RowNotWrittenError
from containernet_env.runs import preflight
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.sweep.at_worker import GO, UNKNOWN, Returned, Task, Told, facts
from containernet_env.sweep.cluster import CONNECT_S, Scheduler, identity_of, no_answer, reach, settle_dask
from containernet_env.sweep.design import Design
from containernet_env.sweep.placement import Begun, Ended, Job, Terms
from containernet_env.sweep.roster import Roster
from containernet_env.sweep.serving import FACTS, TOPIC, request_stop, run_task

_LOOK_S = 1.0
"""How often is looked which workers are there."""
_CLOSE_S = 2.0
_FETCH_S = 60.0
_ANSWER_S = 30.0
"""So long a scheduler may take to answer: as long as Dask lets a connection stand on which nothing arrives."""
_NO_WORKER_S = 60.0
"""So long a sweep that has lost all of its workers waits for another one."""
_WIND_UP_S = 180.0
"""What a running cell that is ended, the network's proof and the tear-down take at most."""

Cell = tuple[str, str]


@dataclass(slots=True)
class _Measuring:
    """What a worker measures: ``rows`` are those that are in OUT, by their cells.

    ``is_taken_up``: it has begun, and does not wait there for another sweep's testbed.
    """

    begun: Begun
    future: Future[Returned]
    address: str
    place: str
    began: float = field(default_factory=lambda: clock.monotonic())
    is_taken_up: bool = False
    rows: dict[Cell, Mapping[str, str]] = field(default_factory=dict)


class Workers:
    """See ``placement.Placement``. ``note`` is told of workers that come, go, or get nothing more."""

    several = True

    def __init__(self, scheduler: Scheduler, design: Design, note: Callable[[str], object]) -> None:
        self._scheduler = scheduler
        self._note = note
        self._told: set[str] = set()
        self._sweep = secrets.token_hex(4)
        self._own = facts()
        self._roster = Roster(len(design.beds))
        self._places: dict[str, str] = {}
        self._measuring: dict[str, _Measuring] = {}
        self._messages: clock.SimpleQueue[tuple[str, Any]] = clock.SimpleQueue()
        self._left: set[str] = set()
        self._looked = 0.0
        self._is_lost = False
        self._refused: RowNotWrittenError | None = None
        self._unwritten: dict[tuple[str, str, str], Mapping[str, str]] = {}
        self._client: Client

    @property
    def at_once(self) -> int:
        """See ``Placement``."""
        return max(1, len(self._usable))

    @property
    def _usable(self) -> set[str]:
        return self._roster.usable(self._places.values())

    def check(self, design: Design, out: Path | None) -> str:
        """See ``Placement``."""
        if out is not None:
            preflight.check_out(design.largest, out)
        return "Only the workers can tell what their machines carry, and whether their engines and images are ready."

    @contextmanager
    def held(self, design: Design) -> Iterator[None]:
        """See ``Placement``: versions are compared before anything is measured."""
        settle_dask()
        reach(self._scheduler)
        try:
            client = Client(
                self._scheduler.address,
                security=self._scheduler.security(),
                timeout=CONNECT_S,
                set_as_default=False,
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise no_answer(self._scheduler, error) from error
        try:
            client.sync(identity_of, self._scheduler)
            client.subscribe_topic(f"{TOPIC}-{self._sweep}", lambda event: self._messages.put(("told", event[1])))
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
        theirs = next(iter(found.values())).get(FACTS)
        if self._own[GO] == UNKNOWN and isinstance(theirs, Mapping):
            # This machine builds nothing: its workers are to agree with each other.
            self._own[GO] = theirs.get(GO, UNKNOWN)
        if refused := [why for worker in found.values() if (why := self._why_not(worker)) is not None]:
            raise MissingRequirementError(
                "workers that would not measure the same: " + "; ".join(refused),
                "End them, or install what is here there, and start them again.",
            )
        self._places = {address: str(worker["name"]) for address, worker in found.items()}

    def _why_not(self, worker: Mapping[str, Any]) -> str | None:
        """Why a worker cannot have a cell of this sweep."""
        theirs = worker.get(FACTS)
        if not isinstance(theirs, Mapping):
            return f"{worker['name']} is none that `containernet-env worker` started"
        differing = [
            f"{name} {theirs.get(name, UNKNOWN)}, here {value}"
            for name, value in self._own.items()
            if theirs.get(name) != value
        ]
        return f"{worker['name']} has {', '.join(differing)}" if differing else None

    def _there(self) -> dict[str, Mapping[str, Any]]:
        """The workers that the scheduler knows now, by address. Raises ``RunError`` where it is lost."""
        if self._client.status != "running":
            raise self._lost_scheduler()
        try:
            found = self._client.sync(self._identity, callback_timeout=_ANSWER_S)
        except (OSError, TimeoutError, ValueError) as error:
            raise self._lost_scheduler() from error
        if self._client.status != "running":
            raise self._lost_scheduler()
        self._looked = clock.monotonic()
        return dict(found["workers"])

    async def _identity(self) -> Mapping[str, Any]:
        scheduler = self._client.scheduler
        if scheduler is None:
            raise ConnectionError("it was closed")
        found: Mapping[str, Any] = await scheduler.identity(n_workers=-1)
        return found

    def _lost_scheduler(self) -> RunError:
        self._is_lost = True
        return RunError(
            f"the scheduler at {self._scheduler.address} was lost during the sweep: start it and its workers again\n"
            "  Then the same command goes on where this one ended."
        )

    def measure(
        self, jobs: Iterable[Job], terms: Terms, begin: Callable[[Job], Begun], stop: Stop
    ) -> Generator[Ended, None, None]:
        """See ``Placement``."""
        results = ResultsFile(terms.out)
        for text in results.open().notes:
            self._note(text)
        self._roster.fill(jobs)
        alone_since = clock.monotonic()
        try:
            while self._roster.waiting or self._measuring:
                stop.check()
                if clock.monotonic() - self._looked >= _LOOK_S:
                    yield from self._look(results)
                self._send(terms, begin)
                if self._places:
                    alone_since = clock.monotonic()
                elif clock.monotonic() - alone_since > _NO_WORKER_S:
                    raise RunError(
                        f"no worker is left at {self._scheduler.address}: start one, and the same command goes on"
                    )
                yield from self._hear(results, _LOOK_S)
        finally:
            try:
                self._wind_up(results)
                self._write_rest(results)
            finally:
                results.close()

    def _look(self, results: ResultsFile) -> Iterator[Ended]:
        """Find out which workers came and which are gone."""
        there = self._there()
        self._catch_up(results)
        for address, worker in there.items():
            if address not in self._places and not self._is_closing(address, worker):
                why = self._why_not(worker)
                if why is None:
                    self._places[address] = str(worker["name"])
                    self._tell(f"{worker['name']} measures, too")
                else:
                    self._tell(f"a worker gets no cells: {why}")
        for address in [address for address in self._places if address not in there]:
            place = self._places.pop(address)
            measuring = self._measuring.pop(address, None)
            if measuring is None:
                self._tell(f"worker {place} is gone")
                continue
            measuring.future.cancel()
            measuring.begun.is_killed = True
            self._roster.failed(place, measuring.begun.job)
            yield self._ended(measuring, RunError("the worker was lost"))

    def _is_closing(self, address: str, worker: Mapping[str, Any]) -> bool:
        return worker.get("status") != "running" or address in self._left

    def _send(self, terms: Terms, begin: Callable[[Job], Begun]) -> None:
        """Give each worker that has nothing to do a testbed."""
        usable = self._usable
        for address, place in self._places.items():
            if address in self._measuring or place not in usable:
                continue
            job = self._roster.take(place, usable)
            if job is None:
                continue
            begun = begin(job)
            scenarios = job.bed.scenarios_of(job.cells)
            options = begun.plan.options
            task = Task(self._sweep, job.bed.config, scenarios, options, terms.tolerance, terms.command)
            future = self._client.submit(
                run_task, task, key=task.run, workers=[address], allow_other_workers=False, pure=False, retries=0
            )
            self._measuring[address] = _Measuring(begun, future, address, place)
            future.add_done_callback(partial(self._is_done, address, task.run))

    def _is_done(self, address: str, run: str, _: object) -> None:
        """Called on a thread of Dask's."""
        self._messages.put(("done", (address, run)))

    def _hear(self, results: ResultsFile, timeout_s: float) -> Iterator[Ended]:
        """Take what workers have told since, and wait for something where it is nothing."""
        try:
            kind, what = self._messages.get(timeout=timeout_s)
        except clock.Empty:
            return
        if kind == "told":
            self._hear_told(what, results)
            return
        address, run = what
        held = self._measuring.get(address)
        if held is not None and held.begun.plan.run_id == run:
            ended = self._take(held, results)
            if ended is not None:
                del self._measuring[address]
                yield ended

    def _catch_up(self, results: ResultsFile) -> None:
        """Take what workers have told by now; what has ended is taken later."""
        ended = []
        try:
            while not self._messages.empty():
                kind, what = self._messages.get()
                if kind == "told":
                    self._hear_told(what, results)
                else:
                    ended.append((kind, what))
        finally:
            for message in ended:
                self._messages.put(message)

    def _hear_told(self, what: Mapping[str, Any], results: ResultsFile) -> None:
        for measuring in self._measuring.values():
            if measuring.begun.plan.run_id == what["run"]:
                measuring.is_taken_up = True
                self._hear_of(measuring, pickle.loads(what["told"]), results)

    def _hear_of(self, measuring: _Measuring, told: Told, results: ResultsFile) -> None:
        course, place = measuring.begun.course, measuring.place
        if told.note is not None:
            self._tell(told.note, place)
        if told.began is not None:
            scenarios = measuring.begun.plan.scenarios
            course.scenario_started(next(item for item in scenarios if item.scheduled.scenario.name == told.began))
        if told.ended is not None:
            self._keep(measuring, told.ended, told.row, results)

    def _keep(
        self, measuring: _Measuring, outcome: ScenarioOutcome, row: Mapping[str, str] | None, results: ResultsFile
    ) -> None:
        """A cell ended: its row first."""
        if row is not None:
            self._append(measuring, row, results)
        measuring.begun.course.scenario_ended(outcome)

    def _append(self, measuring: _Measuring, row: Mapping[str, str], results: ResultsFile) -> None:
        key = (row["RunId"], row["ConfigHash"], row["ScenarioHash"])
        try:
            moved = results.append(row)
        except RowNotWrittenError as error:
            self._unwritten[key] = row
            if self._refused is None:
                self._refused = error
                raise
            return  # The sweep ends for the first one; what else comes is kept for `_write_rest`.
        self._unwritten.pop(key, None)
        measuring.rows[row["ConfigHash"], row["ScenarioHash"]] = row
        if moved is not None:
            raise RunError(f"{results.path} was lost during the sweep: {moved}")

    def _write_rest(self, results: ResultsFile) -> None:
        """Try once more what OUT has refused; raise ``RowsNotWrittenError`` with the rows that are in no file.

        Where something else ends the sweep, that is a note instead.
        """
        for key, row in list(self._unwritten.items()):
            with suppress(RowNotWrittenError):
                results.append(row)
                del self._unwritten[key]
        if self._refused is None or not self._unwritten:
            return
        lost = tuple(map(dict, self._unwritten.values()))
        lines = [self._refused.reason, self._refused.remedy]
        lines.append(f"{len(lost)} rows are in no file; here they are, as the results file would have them:")
        rows = "".join("\n" + results.line(row).decode().rstrip("\n") for row in lost)
        problem, error = RowsNotWrittenError("\n  ".join(lines) + rows, lost), sys.exception()
        if error is None or error is self._refused:
            raise problem from self._refused
        self._note(str(problem))

    def _take(self, measuring: _Measuring, results: ResultsFile) -> Ended | None:
        """What a task came to; ``None`` where its worker is gone, which is found out elsewhere."""
        place = measuring.place
        if measuring.future.status == "cancelled":
            lost = self._client.status != "running"
            measuring.begun.is_killed = True
            return None if lost else self._ended(measuring, RunError("somebody cancelled it"))
        try:
            returned: Returned = measuring.future.result(timeout=_FETCH_S)
        except Exception as error:  # noqa: BLE001 - whatever it was that a worker's program failed by
            if measuring.future.status != "error" and isinstance(error, OSError | TimeoutError):
                # Of the way to it: tried again while it is there.
                self._is_done(measuring.address, measuring.begun.plan.run_id, None)
                return None
            measuring.begun.is_killed = True
            self._roster.failed(place, measuring.begun.job)
            return self._ended(measuring, RunError(f"the worker failed: {text_of(error)}"))
        self._settle(measuring, returned, results)
        problem = None if returned.error is None else RunError(returned.error)
        if returned.interrupted:
            # Not by this sweep: it ends.
            self._left.add(measuring.address)
            self._places.pop(measuring.address, None)
            problem = RunError("the worker was ended")
        if problem is not None:
            self._roster.failed(place, measuring.begun.job)
        return self._ended(measuring, problem)

    def _settle(self, measuring: _Measuring, returned: Returned, results: ResultsFile) -> None:
        """Have OUT hold all rows as they are in the end, and the run directory beside it."""
        told = {cell.scenario.name for cell, _ in measuring.begun.course.outcomes}
        by_cell = {(row["ConfigHash"], row["ScenarioHash"]): row for row in returned.rows}
        amended = [(old, by_cell[cell]) for cell, old in measuring.rows.items() if by_cell.get(cell, old) != old]
        for row in returned.rows:
            if (row["ConfigHash"], row["ScenarioHash"]) not in measuring.rows:
                self._append(measuring, row, results)
        for outcome in returned.outcomes:
            if outcome.scheduled.scenario.name not in told:
                measuring.begun.course.scenario_ended(outcome)
        try:
            if amended:
                results.amend(amended)
                measuring.rows.update(by_cell)
            if returned.directory is not None:
                wrong = returned.directory.write(results.path, measuring.begun.plan.run_id)
                if wrong is not None:
                    self._note(wrong)
        except OSError as error:
            self._note(f"what {measuring.place} says of {len(returned.rows)} rows since is not kept: {error}")

    def _ended(self, measuring: _Measuring, error: RunError | None) -> Ended:
        seconds = clock.monotonic() - measuring.began
        return Ended(measuring.begun, tuple(measuring.rows.values()), error, seconds, measuring.place)

    def _tell(self, text: str, place: str = "") -> None:
        """Say something once, whoever says it first."""
        if text not in self._told:
            self._told.add(text)
            self._note(f"{place}: {text}" if place else text)

    def used(self, place: str) -> None:
        """See ``Placement``."""
        self._roster.used(place)

    def lost(self, place: str, bed: str, why: str) -> None:
        """See ``Placement``: a machine on which nothing comes up gets nothing more, where others measure."""
        if self._roster.lost(place, bed, self._places.values(), why):
            self._note(f"{place} could not use several testbeds in a row and gets no others: {why}")

    def _wind_up(self, results: ResultsFile) -> None:
        """End what still runs, and keep what it has measured; must not raise but for what a full disk does."""
        try:
            self._catch_up(results)
            if not self._is_lost and self._measuring:
                self._there()
        except RunError as error:
            self._note(str(error))
        for address, measuring in list(self._measuring.items()):
            if self._is_lost or self._client.status != "running" or not measuring.is_taken_up:
                measuring.begun.is_killed = True
                measuring.future.cancel()
                del self._measuring[address]
        if not self._measuring:
            return
        runs = [measuring.begun.plan.run_id for measuring in self._measuring.values()]
        with suppress(OSError, TimeoutError, ValueError):
            self._client.run(request_stop, runs, workers=list(self._measuring), wait=False, on_error="ignore")
        deadline = clock.monotonic() + _WIND_UP_S
        try:
            while self._measuring and clock.monotonic() < deadline and self._client.status == "running":
                if clock.monotonic() - self._looked >= _LOOK_S:
                    for _ in self._look(results):
                        pass
                for _ in self._hear(results, _LOOK_S):
                    pass
        except RunError as error:
            self._note(str(error))
        finally:
            for measuring in self._measuring.values():
                measuring.begun.is_killed = True
                measuring.future.cancel()
            self._measuring.clear()
