"""A run: the scenario matrix on a testbed, a row for each scenario, whatever happens to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from containernet_env.base.errors import RunError
from containernet_env.base.progress import Reporter, ScenarioReport
from containernet_env.load.request import request_of
from containernet_env.load.server import Outcome, lateness_of
from containernet_env.model.link_statistics import late_frames, own_losses
from containernet_env.model.scenario import Scenario, ScheduledScenario
from containernet_env.results.csv_file import ResultsFile
from containernet_env.results.record import RunRecord, utc_now
from containernet_env.results.rows import RunFacts, left_out_of, percentiles_of, row_of

if TYPE_CHECKING:
    from containernet_env.runs.testbed import Testbed

# How often a running scenario is looked at: is everybody alive, how far is it.
WATCH_INTERVAL_S = 0.25
# How long a cluster has to answer after a failed scenario before the rest is given up: two elections and a retry.
ANSWER_TIMEOUT_S = 15.0
# A scenario that takes longer than this, beyond what its own schedule takes, is ended and reported; the longest of
# the default matrix takes minutes even at a fifth of a core.
SCENARIO_TIMEOUT_S = 1800.0
# Members under the same pressure die together: once one has died, the scenario goes on for so long, that its row names
# them all. Longer would only add requests that wait for the dead to answer. A network that is gone gets no grace.
DEATH_GRACE_S = 2.0
# What the server needs beyond the scenario itself to stop the client and answer.
ANSWER_MARGIN_S = 30.0


@dataclass
class Ended:
    """What a scenario came to; as it is made, that of one that was cut short."""

    scheduled: ScheduledScenario
    began: str
    leader: str | None
    seconds: float = 0.0
    outcome: Outcome = field(default_factory=lambda: Outcome(None, "interrupted"))
    network: dict[str, Any] | None = None
    row_left: bool = False


class Run:
    """Carries the planned scenarios out on a testbed that is up.

    `deferred` makes a context in which no signal raises: a row is written as a whole or not at all.
    """

    def __init__(
        self,
        testbed: Testbed,
        results: ResultsFile,
        record: RunRecord,
        facts: RunFacts,
        reporter: Reporter,
        deferred: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._testbed = testbed
        self._results = results
        self._record = record
        self._facts = facts
        self._reporter = reporter
        self._deferred = deferred
        self._scheduled = [planned.scheduled for planned in testbed.plan.scenarios]
        self._loaded = False
        self._leader = testbed.leader_at_start
        self._known_deaths: set[str] = set()
        self.failed_rows = 0

    def matrix(self) -> None:
        """Run every scenario in order; each leaves its row before the next begins.

        A scenario that fails leaves a row that says why, and the matrix goes on if the cluster still answers;
        otherwise each remaining scenario leaves a row 'not run'. On an exception the running scenario leaves a row
        with its text ('interrupted' for a signal's) and the exception goes on.
        """
        for index, scheduled in enumerate(self._scheduled, start=1):
            if self._testbed.network_failure is not None:
                self._give_up(index - 1, self._testbed.network_failure)
                return
            scenario = scheduled.scenario
            if scenario.uses_dataset:
                failure = self._ensure_dataset()
                if failure is not None:
                    self._give_up(index - 1, failure)
                    return
            self._tell_start(index, scenario)
            outcome = self._carry_out(scheduled)
            self._remember_dataset(scheduled, outcome)
            if outcome.error is None or self._testbed.network_failure is not None:
                continue
            if not self._testbed.cluster.answers(ANSWER_TIMEOUT_S):
                self._give_up(index, self._why_no_answer())
                return

    def _tell_start(self, index: int, scenario: Scenario) -> None:
        seconds = (scenario.scheduled_s or 0.0) + (scenario.warmup_s or 0.0) if scenario.total is None else None
        self._reporter.scenario_started(index, len(self._scheduled), scenario.name, scenario.total, seconds)

    def _carry_out(self, scheduled: ScheduledScenario) -> Outcome:
        """Measure one scenario and leave its row, also where an exception (a signal's, most of all) strikes."""
        ended = Ended(scheduled, began=utc_now(), leader=self._leader)
        clock = time.monotonic()
        try:
            try:
                counting = self._link_statistics(anew=True) is not None
                ended.outcome = self._measure(scheduled)
                ended.seconds = time.monotonic() - clock
                ended.network = self._link_statistics() if counting else None
                ended.leader = self._leader_since()
            except RunError as error:
                ended.outcome = Outcome(None, str(error))
                raise
            finally:
                self._leave_row(ended)
        finally:
            # A signal raises once: if it struck before the row was safe, this second call leaves it.
            self._leave_row(ended)
        return ended.outcome

    def _measure(self, scheduled: ScheduledScenario) -> Outcome:
        """Run one scenario on the living members; its error names every dead member and a broken network."""
        scenario, endpoints = scheduled.scenario, self._endpoints()
        dead_before = self._testbed.cluster.deaths()
        if scenario.member is not None and scenario.member not in endpoints:
            outcome = Outcome(None, f"there is no {scenario.member} to ask")
        else:
            outcome = self._follow(*request_of(scenario, endpoints, timeout_s(scenario)))
        problems = [
            f"{reason} earlier" if name in dead_before else reason
            for name, reason in self._testbed.cluster.deaths().items()
        ]
        problems += [text for text in (self._testbed.network_failure, outcome.error) if text is not None]
        return Outcome(outcome.result, "; ".join(problems) or None)

    def _link_statistics(self, anew: bool = False) -> dict[str, Any] | None:
        """What the links saw since they last counted anew; None where nobody can tell any more."""
        if self._testbed.network_failure is not None:
            return None
        try:
            return self._testbed.net.link_statistics(anew=anew, buckets=True)
        except RunError as error:
            # A broken network ends the run by itself; a count that is missing must not cost a row.
            lost = "could not be begun anew, so this scenario has none" if anew else "cannot be read"
            self._reporter.note(f"the links' counters {lost}: {error}")
            return None

    def _endpoints(self) -> dict[str, str]:
        return dict(self._testbed.cluster.endpoints)

    def _follow(self, path: str, body: Mapping[str, Any]) -> Outcome:
        """Post a benchmark and watch it to its end; ends it early once it no longer measures what was asked."""
        server = self._testbed.server
        deaths_before = len(self._testbed.cluster.deaths())
        broken_since: float | None = None
        cancelled = False
        pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="benchmark")
        try:
            answer: Future[Outcome] = pool.submit(server.run, path, body, body["runTimeout"] + ANSWER_MARGIN_S)
            while not _is_done(answer, WATCH_INTERVAL_S):
                progress = server.progress()
                if progress is not None and progress.running:
                    self._reporter.scenario_progress(progress.done, progress.errors)
                if not self._testbed.client_host.alive:
                    return Outcome(None, "the benchmark host ended")
                if self._testbed.network_failure is None and len(self._testbed.cluster.deaths()) == deaths_before:
                    continue
                broken_since = broken_since or time.monotonic()
                grace_s = DEATH_GRACE_S if self._testbed.network_failure is None else 0.0
                if not cancelled and time.monotonic() - broken_since >= grace_s:
                    cancelled = True
                    server.cancel()
            return answer.result()
        finally:
            # Never wait here: on the way out of an interrupt the thread ends when its host does.
            pool.shutdown(wait=False)

    def _leave_row(self, ended: Ended) -> None:
        """Put the row on disk, then tell of it, then add it to the record; once for each `ended`."""
        with self._deferred():
            if not ended.row_left:
                self._write_row(ended)
                ended.row_left = True

    def _write_row(self, ended: Ended) -> None:
        result, error = ended.outcome.result, ended.outcome.error
        row = row_of(
            self._facts,
            ended.scheduled,
            timestamp=ended.began,
            result=result,
            error=error,
            leader=ended.leader,
            network=ended.network,
        )
        self._results.append(row)
        if error is not None:
            self.failed_rows += 1
        scenario = ended.scheduled.scenario
        percentiles = percentiles_of(result, "response_time") if result else {}
        self._reporter.scenario_ended(
            ScenarioReport(
                name=scenario.name,
                repetition=ended.scheduled.repetition,
                seconds=ended.seconds,
                requests_per_s=result["requests_per_s"] if result and result["ok"] else None,
                p50_s=percentiles.get("50"),
                p99_s=percentiles.get("99"),
                errors=result["failed"] if result else 0,
                left_out=left_out_of(result) if result else 0,
                error=error,
            )
        )
        lateness = lateness_of(result) if result else None
        if lateness is not None:
            self._reporter.note(f"{scenario.name}: {lateness}")
        self._record.add_scenario(
            {
                "scenario": scenario.name,
                "repetition": ended.scheduled.repetition,
                "began": ended.began,
                "seconds": round(ended.seconds, 3),
                "leader": ended.leader,
                "error": error,
                "result": result,
                "network": ended.network,
            }
        )
        if ended.network is not None:
            if (late := late_frames(ended.network)) is not None:
                self._reporter.note(f"{scenario.name}: {late}")
            for loss in own_losses(ended.network):
                self._reporter.note(f"{scenario.name}: {loss}")

    def _give_up(self, done: int, reason: str) -> None:
        """Leave a row 'not run' for every scenario after the first `done`."""
        for index, scheduled in enumerate(self._scheduled[done:], start=done + 1):
            self._tell_start(index, scheduled.scenario)
            outcome = Outcome(None, f"not run: {reason}")
            self._leave_row(Ended(scheduled, utc_now(), leader=None, outcome=outcome))

    def _why_no_answer(self) -> str:
        if self._testbed.network_failure is not None:
            return self._testbed.network_failure
        deaths = self._testbed.cluster.deaths()
        return "; ".join(deaths.values()) if deaths else f"the cluster did not answer within {ANSWER_TIMEOUT_S:g} s"

    def _leader_since(self) -> str | None:
        """Who leads now, after who led before the scenario where that changed ("etcd1>etcd2")."""
        before, self._leader = self._leader, self._testbed.cluster.leader()
        if before == self._leader or before is None:
            return self._leader
        return f"{before}>{self._leader or 'none'}"

    def _remember_dataset(self, scheduled: ScheduledScenario, outcome: Outcome) -> None:
        """Keep track of whether the store holds what reads read; a failed write may have made or spoilt it."""
        dataset, scenario = self._testbed.plan.dataset, scheduled.scenario
        if outcome.error is None:
            self._loaded = dataset.present_after(scenario, self._loaded)
        else:
            self._loaded = self._loaded and dataset.present_after(scenario, True)

    def _ensure_dataset(self) -> str | None:
        """Load what reads read, unmeasured, where no write has made it; the reason where that fails."""
        if self._loaded:
            return None
        dataset = self._testbed.plan.dataset
        with self._reporter.stage("data set") as stage:
            outcome = self._follow(*request_of(dataset.load, self._endpoints(), timeout_s(dataset.load)))
            problems = [text for text in (self._testbed.network_failure, outcome.error) if text is not None]
            if problems:
                deaths = self._testbed.cluster.deaths()
                return f"the data set could not be loaded: {'; '.join([*deaths.values(), *problems])}"
            stage.done(f"{dataset.keys:,} keys of {dataset.key_size} B / {dataset.val_size} B loaded, not measured")
        self._loaded = True
        return None


def timeout_s(scenario: Scenario) -> float:
    """How long a scenario may take before it is ended: the time of its schedule comes on top."""
    return SCENARIO_TIMEOUT_S + (scenario.scheduled_s or 0.0) + (scenario.warmup_s or 0.0)


def _is_done(answer: Future[Outcome], timeout_s: float) -> bool:
    """Wait at most `timeout_s` for the answer; whether it is there."""
    try:
        answer.exception(timeout=timeout_s)
    except TimeoutError:
        return False
    return True
