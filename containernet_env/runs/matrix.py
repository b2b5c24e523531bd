"""The scenario matrix on a target: an outcome for each scenario, whatever happens to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from containernet_env.base import clock
from containernet_env.base.clock import Moment
from containernet_env.base.errors import RunError, text_of
from containernet_env.base.work import stops_kept
from containernet_env.config.plan import PlannedScenario
from containernet_env.model import findings
from containernet_env.model.dilation import emulated, emulated_outcome, slowed
from containernet_env.model.disruption import (
    Disruptions,
    Targets,
    explains_election,
    failures_explained,
    may_hasten,
)
from containernet_env.model.findings import Finding
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Scenario, ScheduledScenario
from containernet_env.model.usage import Leadership, LinkStatistics, leader_text
from containernet_env.results.merged_load import merged_load
from containernet_env.runs.disruptor import Disruptor
from containernet_env.runs.follow import Follower, MemberWatch, answer_nothing
from containernet_env.runs.load import Answer
from containernet_env.runs.observer import Observer
from containernet_env.runs.searching import KeepProbe, Searching
from containernet_env.runs.target import Target

# How long a cluster has to answer after a failed scenario before the rest is given up: for two elections, each of which
# takes up to two of its timeouts, and for etcd's own deadline of a request (server/config, ReqTimeout).
ANSWER_TIMEOUT_S, ANSWER_TIMEOUTS = 5.0, 4
# Prefix of the error of a scenario that was never started.
NOT_RUN = "not run: "
# The error of a scenario whose run was requested to stop.
INTERRUPTED = "interrupted"


Leave = Callable[[ScenarioOutcome], str | None]
"""Keeps an outcome, in order, as its scenario ends; returns why no other one is to be measured, if so.

An outcome counts as left when this has returned. If an exception interrupts it, it is called once more for the same
scenario, and must not keep that twice.
"""


class Start(NamedTuple):
    """The state when a scenario began: its leader, the living members, and those that had not caught up."""

    led: Leadership | None
    living: frozenset[str]
    behind: tuple[str, ...]


def _together(scenario: Scenario, answers: Sequence[Answer]) -> Answer:
    if not scenario.parts:
        return answers[0]
    loads = [answer.load for answer in answers if answer.load is not None]
    pairs = zip(scenario.parts, answers, strict=True)
    errors = [f"{part.client}: {answer.error}" for part, answer in pairs if answer.error is not None]
    return Answer(merged_load(loads) if loads else None, "; ".join(errors) or None)


def _part(whole: ScenarioOutcome, part: ScenarioOutcome, scenario: Scenario) -> ScenarioOutcome:
    """What one client measured, with all that was observed of the whole; ``scenario`` is its own, as configured."""
    machine = whole.machine and whole.machine.of_client(scenario.client or "")
    scheduled = replace(whole.scheduled, scenario=scenario)
    return replace(whole, scheduled=scheduled, load=part.load, error=part.error, machine=machine, parts=())


class Matrix:
    """Executes the scenarios of a running target's plan; ``leave`` receives each outcome.

    A further target may follow the first one: ``move_to``. ``cluster`` is the number of the current one, from 1.
    ``reused`` is the state from before that the next scenario
    starts with, ``loaded`` whether the store holds the data set, at first as the target says. ``damaged`` is why the
    target may have changed, once a request has failed on it; with ``alone`` no further scenario runs on it then.
    ``advised`` adds to an outcome what would make its figures valid.
    """

    def __init__(
        self,
        target: Target,
        leave: Leave,
        observer: Observer,
        keep_probe: KeepProbe = lambda probe, outcome: None,
        alone: bool = False,
        advised: Callable[[ScenarioOutcome], ScenarioOutcome] = lambda outcome: outcome,
    ) -> None:
        plan = target.emulated
        self._dataset, self._options = plan.dataset, plan.options
        self._progress, self._stop, self._on_event = target.progress, target.stop, target.on_event
        self._leave = leave
        self._keep_probe = keep_probe
        self._alone = alone
        self._advised = advised
        self._left: dict[tuple[str, int, int], ScenarioOutcome] = {}
        self._refused: str | None = None
        self.cluster = 0
        self.move_to(target, observer)

    def move_to(self, target: Target, observer: Observer) -> None:
        """Run the following scenarios on this target: on new data, under its own leader."""
        self.cluster += 1
        self._target, self._planned, self._dilation = target, target.emulated.scenarios, target.emulated.dilation
        self._observer = observer
        self._members = MemberWatch(target.cluster.pings)
        self._follower = Follower(target, self._silent_members)
        self.loaded, self.reused = target.loaded, target.reused
        self.damaged: str | None = None
        self._behind: list[str] = []
        self._leader = target.led_at_start.leader if target.led_at_start is not None else None

    def run(self, until: int | None = None) -> bool:
        """Run every scenario in order up to number ``until``, or to the last; each leaves its outcome before the next.

        A failed scenario leaves an outcome with the reason, and the matrix continues if the cluster still answers;
        otherwise each remaining one up to ``until`` leaves the outcome 'not run', and so do all others if the cause is
        not the loss of the cluster. The same holds on an exception, which is then re-raised; if the run was requested
        to stop, the running scenario leaves the outcome 'interrupted', and the caller leaves those of the others by
        `leave_rest`, after the tear-down. Returns whether any are left, for another target.
        """
        if not self._left:
            self._progress.matrix_started(self._planned)
        try:
            try:
                self._members.start()
                self._observer.start()
                for planned in self._rest(until):
                    reason = self._target.failure or (self.damaged if self._alone else None)
                    reason = reason or self._until_valid(planned)
                    if reason is not None:
                        self.leave_rest(reason, until)
                        break
                if (reason := self._target.failure or self._refused) is not None:
                    self.leave_rest(reason)
            except Exception as error:
                with suppress(Exception):  # the first error is the one to report
                    self.leave_rest(text_of(error))
                raise
            finally:
                self._close()
        finally:
            self._close()  # again: a stop may have struck in it
        return bool(self._rest())

    def _rest(self, until: int | None = None) -> list[PlannedScenario]:
        """The scenarios without an outcome, up to number ``until`` or the last."""
        return [planned for planned in self._planned[:until] if planned.scheduled.key not in self._left]

    def _close(self) -> None:
        self._observer.close()
        self._members.close()

    def _until_valid(self, planned: PlannedScenario) -> str | None:
        """Measure one scenario, again while its figures are not certainly valid, up to the configured number of times.

        Each attempt leaves an outcome. Returns why no other one can be run, if so.
        """
        first = planned.scheduled.attempt
        for attempt in range(first, first + self._options.retry_invalid + 1):
            scheduled = replace(planned.scheduled, attempt=attempt)
            reason = self._carry_out(replace(planned, scheduled=scheduled))
            verdict = self._left[scheduled.key].verdict
            if reason is not None or verdict is None or verdict.valid == "yes" or self._target.failure is not None:
                return reason
        return None

    def _carry_out(self, planned: PlannedScenario) -> str | None:
        """Measure one scenario and leave its outcome, also if an exception (above all a signal's) is raised.

        Returns why no other one can be run after it, if so.
        """
        scheduled = planned.scheduled
        outcome = self._outcome(scheduled, INTERRUPTED)
        search: Searching | None = None

        def leave(ended: ScenarioOutcome) -> None:
            nonlocal outcome
            outcome = ended  # what is left again if a signal strikes before it is safe
            self._leave_once(outcome if search is None else self._advised(search.sum_up(outcome)))

        try:
            try:
                with stops_kept():
                    self._stop.check()
                    if scheduled.scenario.uses_dataset and (failure := self._ensure_dataset()) is not None:
                        outcome = self._not_run(planned, failure)
                        return failure
                    try:
                        start = self._start(scheduled)
                    except RunError as error:
                        outcome = self._not_run(planned, text_of(error))
                    else:
                        outcome = self._outcome(scheduled, INTERRUPTED, start.led)
                        self._progress.scenario_started(planned)
                        name, attempt = scheduled.scenario.name, scheduled.attempt
                        self._on_event("scenario_began", f"{name}, attempt {attempt}" if attempt > 1 else name, name)
                        if scheduled.scenario.search is not None:
                            search = Searching(
                                scheduled, self._target, self._measure_probe, self._why_search_over, self._keep_probe
                            )
                            outcome = replace(outcome, error=search.run())
                        else:
                            self._measure_between(start, outcome, leave)
            except Exception as error:
                outcome = replace(outcome, error=text_of(error), testbed_failed=True)
                raise
            finally:
                leave(outcome)
        finally:
            leave(outcome)  # a signal raises once
        self._remember_dataset(outcome)
        self.reused = "cluster"
        return self._refused if outcome.error is None else self._why_over()

    def _measure_probe(self, scheduled: ScheduledScenario, keep: Callable[[ScenarioOutcome], None]) -> None:
        """Measure one probe of a search as a scenario of its own. See ``searching.Measure``."""
        self._stop.check()
        try:
            start = self._start(scheduled)
        except RunError as error:
            keep(self._outcome(scheduled, text_of(error)))
        else:
            self._measure_between(start, self._outcome(scheduled, INTERRUPTED, start.led), keep)

    def _measure_between(self, start: Start, outcome: ScenarioOutcome, keep: Callable[[ScenarioOutcome], None]) -> None:
        """Measure a scenario from its start on, between two readings of what the target counts."""
        counting = self._link_statistics(reset=True) is not None
        self._members.reset()
        scheduled = outcome.scheduled
        real = replace(scheduled, scenario=slowed(scheduled.scenario, self._dilation))
        measured = self._measure(replace(outcome, scheduled=real))
        with self._stop.deferred():  # what was measured is not interrupted any more
            keep(self._observed(replace(measured, scheduled=scheduled), counting, start))

    def _why_search_over(self, outcome: ScenarioOutcome) -> str | None:
        """Why a search cannot continue after a probe; failed requests are no reason while the cluster answers."""
        if outcome.error is None:
            return None
        if outcome.load is None or self._target.cluster.deaths() or self._target.failure or self._why_over():
            return outcome.error
        return None

    def _why_over(self) -> str | None:
        """Why no measurement is possible after a failed scenario; ``None`` if the next one may succeed."""
        if self._refused is not None:
            return self._refused
        if self._target.failure is not None:
            return None  # reported before the next one
        if self._follower.lost is not None:
            return self._follower.lost
        return None if self._target.cluster.answers(self._answer_timeout_s) else self._why_no_answer()

    def _leave_once(self, outcome: ScenarioOutcome) -> None:
        with self._stop.deferred():
            if outcome.scheduled.key not in self._left:
                self._refused = self._leave(outcome)
                self._left[outcome.scheduled.key] = outcome
                name, error = outcome.scheduled.scenario.name, outcome.error
                kind = "scenario_not_run" if (error or "").startswith(NOT_RUN) else "scenario_ended"
                self._on_event(kind, f"{name}: {error or 'no errors'}", name)

    def _start(self, scheduled: ScheduledScenario) -> Start:
        """The state in which a scenario begins, once all members have what was written before it.

        Its leader is verified if the config names one. Raises RunError if it cannot be made the leader.
        """
        cluster, wanted = self._target.cluster, self._target.leader_wanted
        began_s = clock.monotonic()
        # Those that were behind before have had their time. Without a quorum there is nothing to catch up with.
        timeout_s = cluster.query_s if self._behind else cluster.waits.start_s
        self._behind = cluster.behind(timeout_s, self._hopeless) if cluster.has_quorum() else []
        if not self._behind and (waited_s := clock.monotonic() - began_s) > cluster.query_s:
            self._progress.note(f"{scheduled.scenario.name} began {waited_s:.0f} s later: members were catching up")
        if wanted is None:
            found = self._led_by(cluster.leadership())
        else:
            found = self._led_by(cluster.move_leader(wanted, self._answer_timeout_s, self._broken), moved=True)
        self._observer.prepare(found.leader if found else None, scheduled.scenario)
        return Start(found, frozenset(cluster.endpoints), tuple(self._behind))

    def _hopeless(self, name: str) -> bool:
        """Whether a member will not catch up."""
        return self._broken() is not None or name in self._silent_members()

    def _broken(self) -> str | None:
        self._stop.check()
        return self._target.failure

    def _observed(self, outcome: ScenarioOutcome, counting: bool, start: Start) -> ScenarioOutcome:
        """Add link counters (if counted), silences of members, resource usage, leaders, and the floor of writes.

        From here on everything is in emulated time.
        """
        silences = emulated(self._members.longest_s(), self._dilation, "_s")
        outcome = replace(
            outcome,
            seconds=(clock.monotonic_ns() - outcome.began_ns) / 1e9,
            network=self._link_statistics() if counting else None,
        )
        real = self._observer.finish(outcome)
        before, living = start.led, start.living
        after = self._led_by(self._target.cluster.leadership())
        is_same = living == frozenset(self._target.cluster.endpoints)
        leader = before.leader if before is not None and before == after else None
        real = replace(real, leader=leader_text(before, after), term_at_end=after.term if after else None)

        network = self._target.emulated.topology
        is_bounded = is_same and not may_hasten(
            real.scheduled.scenario.events, network, Targets.of(self._target.emulated.config)
        )

        def judged(real: ScenarioOutcome) -> ScenarioOutcome:
            outcome = emulated_outcome(real, self._dilation)
            floor_s = self._floor_s(outcome, leader, living) if is_bounded else None
            outcome = replace(outcome, floor_s=floor_s)
            if outcome.parts:
                by_client = {
                    part.client or "": (*part.findings, *findings.figures_findings(part.load)) for part in outcome.parts
                }
                return replace(outcome, findings=tuple(findings.of_all_clients(by_client)))
            return replace(outcome, findings=tuple(self._findings(outcome, real, silences, start, after)))

        parts = zip(real.parts, real.scheduled.scenario.parts, strict=False)
        judged_parts = tuple(judged(_part(real, part, scenario)) for part, scenario in parts)
        return self._advised(judged(replace(real, parts=judged_parts)))

    def _floor_s(self, outcome: ScenarioOutcome, leader: str | None, living: Collection[str]) -> float | None:
        """That of all requests that were answered, of all clients."""
        loads = {part.client or "": part.load for part in outcome.parts or (outcome,)}
        answered = {client: (load.ok, load.puts_ok) for client, load in loads.items() if load is not None and load.ok}
        return self._target.least_median_s(outcome.scheduled.scenario, leader, living, answered or None)

    @property
    def _election_ns(self) -> int:
        """In real time, in which events and answers were measured."""
        return round(self._target.member_timeout_s * 1e9)

    def _findings(
        self,
        outcome: ScenarioOutcome,
        real: ScenarioOutcome,
        silences: Mapping[str, float],
        start: Start,
        after: Leadership | None,
    ) -> Iterator[Finding]:
        """Those of an outcome in emulated time; what is about this machine is judged in ``real`` time."""
        before = start.led
        timeout_s = emulated(self._target.member_timeout_s, self._dilation, "_s")
        living = {name: silence for name, silence in silences.items() if name in self._target.cluster.endpoints}
        usage, load, deaths = outcome.machine, outcome.load, self._target.cluster.deaths()
        # Periods are in real time.
        periods_ns = {host.name: 1000 * host.cpu_period_us for host in self._target.plan.hosts}
        members = real.machine.used.members if real.machine is not None else {}
        throttled_s = {
            name: emulated(used.stopped_ns(periods_ns[name]) / 1e9, self._dilation, "_s")
            for name, used in members.items()
        }
        latency_s = outcome.floor_s or (load.median_s if load is not None else None)
        done = outcome.disruptions
        killed = done.killed if done is not None else ()
        # Events have moments in real time.
        by_events_s = emulated(real.disruptions.stopped_s, self._dilation, "_s") if real.disruptions is not None else {}
        network = self._target.plan.topology
        is_explained = (
            real.disruptions is not None
            and before is not None
            and explains_election(
                real.disruptions,
                before.leader,
                [member.name for member in network.members],
                network.crossed,
                self._election_ns,
            )
        )
        if self._target.unseen is not None:
            yield Finding("unseen", "unknown", self._target.unseen)
        yield from findings.event_findings(done)
        yield from findings.death_findings(deaths)
        yield from findings.behind_findings(start.behind)
        yield from findings.load_findings(load)
        yield from findings.floor_findings(load, outcome.floor_s)
        yield from findings.network_findings(outcome.network, latency_s, killed)
        if outcome.network is None and self._target.net is not None and self._target.failure is None:
            yield Finding("counters", "unknown", "the links' counters could not be read")
        if usage is None and load is not None:
            yield Finding("usage", "unknown", "what hosts, links and machine used could not be read")
        yield from findings.machine_findings(
            real.machine, real.load, self._target.capacity, self._dilation, self._target.plan.fsyncs_ns
        )
        yield from findings.store_findings(outcome.store, self._target.emulated.fsyncs_ns)
        yield from findings.member_findings(living, timeout_s, throttled_s, outcome.seconds, by_events_s)
        yield from findings.leader_findings(before, after, deaths, is_explained)

    def _measure(self, outcome: ScenarioOutcome) -> ScenarioOutcome:
        """Run one scenario on the living members; its error names every dead member and a broken network."""
        scenario, endpoints = outcome.scheduled.scenario, dict(self._target.cluster.endpoints)
        dead_before = self._target.cluster.deaths()
        disruptions: Disruptions | None = None
        answers: list[Answer] = []
        aimed_at = [part.member for part in scenario.parts or (scenario,)]
        if lacking := [name for name in dict.fromkeys(aimed_at) if name is not None and name not in endpoints]:
            answer = Answer(None, f"{' and '.join(lacking)} {'does' if len(lacking) == 1 else 'do'} not run")
        elif scenario.events and self._target.faults is None:
            answer = Answer(None, "nothing here can carry out its events")
        else:
            with self._disrupted(outcome.scheduled) as done:
                self._observer.begin()
                answers = self._follower.follow(scenario, endpoints, outcome.scheduled.load_seed, outcome.leader)
                self._observer.end()
            disruptions = done[0] if done else None
            answers = [
                replace(each, error=None)
                if failures_explained(each.load, disruptions, self._election_ns, scenario.request_timeout_ns)
                else each
                for each in answers
            ]
            answer = _together(scenario, answers)
        failure, common, error = self._why_failed(answer, dead_before)
        self._follower.report_deaths(self._target.cluster.deaths())
        if error is not None or (answer.load is not None and answer.load.without_answer):
            self.damaged = f"requests of {scenario.name} failed on this testbed"
        # If a member died before, this scenario is not the cause.
        of_testbed = failure is not None or self._follower.lost is not None or bool(dead_before)
        # A client that was not ready in time says nothing about the store: a sweep measures such a cell again.
        of_testbed = of_testbed or any(own.load is not None and own.load.is_late for own in answers)
        outcome = replace(outcome, load=answer.load, error=error, disruptions=disruptions, testbed_failed=of_testbed)
        parts = tuple(
            replace(
                outcome,
                scheduled=replace(outcome.scheduled, scenario=part),
                load=own.load,
                error="; ".join(filter(None, (common, own.error))) or None,
            )
            for part, own in zip(scenario.parts, answers, strict=False)
        )
        return replace(outcome, parts=parts)

    def _why_failed(
        self, answer: Answer, dead_before: Collection[str] = ()
    ) -> tuple[str | None, str | None, str | None]:
        """The failure of the target, what is wrong with it after a load, and that with the error of the load.

        Wrong are its failure, and dead and silent members.
        """
        # Known only after a while, as are the causes of dead members and failed requests: an engine that ends takes
        # members along.
        failure = self._target.failure if answer.error is None else self._target.settled_failure()
        deaths = self._target.cluster.deaths().items()
        dead = [f"{reason} (earlier)" if name in dead_before else reason for name, reason in deaths]
        problems = [failure, *dead, self._silence(answer.error, failure)]
        common = "; ".join(filter(None, problems)) or None
        return failure, common, "; ".join(filter(None, (common, answer.error))) or None

    @contextmanager
    def _disrupted(self, scheduled: ScheduledScenario) -> Iterator[list[Disruptions]]:
        """Within it the events of a scenario are executed; after it none of them is active any more.

        The list then has the executed actions; it is empty if the scenario has neither events nor traces.
        """
        scenario, done, faults = scheduled.scenario, list[Disruptions](), self._target.faults
        if faults is None or not (scenario.events or faults.traced):
            yield done
            return
        disruptor = Disruptor(
            scenario.events,
            f"{self._options.seed}/{scenario.name}/{scheduled.repetition}.{scheduled.attempt}",
            faults,
            self._target.cluster,
            partial(self._began_ns, scenario),
            lambda carried: self._on_event("event", emulated(carried, self._dilation).text, scenario.name),
            lambda: self._target.failure or ("the run is to end" if self._stop.received is not None else None),
        )
        whole = False
        try:
            try:
                disruptor.start()
                yield done
                whole = self._target.failure is None
            finally:
                with self._stop.deferred():
                    done.append(disruptor.end(whole))
        finally:
            if not done:  # a stop struck before it was deferred
                done.append(disruptor.end(whole=False))

    def _began_ns(self, scenario: Scenario) -> int | None:
        """When the load began; that of the first client that began, where there are several."""
        seen = [self._target.loader(part.client)[1].progress() for part in scenario.parts or (scenario,)]
        began = [one.began_ns for one in seen if one is not None and one.running and one.began_ns is not None]
        return min(began, default=None)

    def _link_statistics(self, reset: bool = False) -> LinkStatistics | None:
        """The link counters since their last reset; None without links of ours, or if they are unknown."""
        net = self._target.net
        if net is None or self._target.failure is not None:
            return None
        try:
            return LinkStatistics(net.link_statistics(reset=reset, buckets=True))
        except RunError as error:
            # A broken network ends the run by itself; a count that is missing must not cost a row.
            lost = "could not be reset, so this scenario has none" if reset else "cannot be read"
            self._progress.note(f"the links' counters {lost}: {error}")
            return None

    def leave_rest(self, reason: str, until: int | None = None) -> None:
        """Leave 'not run' for every scenario up to number ``until``, or the last, without an outcome."""
        with self._stop.deferred():
            for planned in self._rest(until):
                self._leave_once(self._not_run(planned, reason))

    def _not_run(self, planned: PlannedScenario, reason: str) -> ScenarioOutcome:
        not_run = self._outcome(planned.scheduled, NOT_RUN + reason)
        return replace(not_run, cluster=None, reused=None, dilation=planned.dilation)

    def _outcome(
        self, scheduled: ScheduledScenario, error: str, leadership: Leadership | None = None
    ) -> ScenarioOutcome:
        """An outcome without figures of a scenario that begins now."""
        now = Moment.now()
        leader, term = (leadership.leader, leadership.term) if leadership is not None else (None, None)
        return ScenarioOutcome(
            scheduled,
            now.at,
            now.at_ns,
            cluster=self.cluster,
            leader=leader,
            leader_at_start=leader,
            term_at_start=term,
            error=error,
            reused=self.reused,
            dilation=self._dilation,
        )

    @property
    def _answer_timeout_s(self) -> float:
        elections_s = ANSWER_TIMEOUTS * self._target.member_timeout_s
        return ANSWER_TIMEOUT_S + elections_s + self._target.cluster.waits.request_s

    def _why_no_answer(self) -> str:
        if self._target.failure is not None:
            return self._target.failure
        deaths = self._target.cluster.deaths()
        if deaths:
            return "; ".join(deaths.values())
        silent = self._silent_members()
        reason = f"the cluster did not answer within {self._answer_timeout_s:g} s"
        return f"{reason}: {answer_nothing(silent)}" if silent else reason

    def _silence(self, error: str | None, failure: str | None) -> str | None:
        """The silent members if requests failed, unless ``error`` names them.

        It waits until they are known, but not if a ``failure`` of the testbed explains the error.
        """
        if error is None:
            return None
        if failure is None:
            self._members.settle(self._target.member_timeout_s)
        silent = self._silent_members()
        return answer_nothing(silent) if silent and answer_nothing(silent) not in error else None

    def _silent_members(self) -> list[str]:
        """The members that have not answered for so long that the others consider them gone."""
        return self._members.silent(self._target.member_timeout_s)

    def _led_by(self, found: Leadership | None, moved: bool = False) -> Leadership | None:
        """Record the current leader, and report a change."""
        before, self._leader = self._leader, found.leader if found is not None else None
        if before is not None and before != self._leader and (found is None or found.term is not None):
            kind = "leader_moved" if moved else "leader_changed"
            self._on_event(kind, f"{before} led, now {self._leader or 'no member'} does", self._leader)
        return found

    def _remember_dataset(self, outcome: ScenarioOutcome) -> None:
        """Track whether the store holds the data set of reads; a failed write may have made or spoilt it."""
        dataset, scenario = self._dataset, outcome.scheduled.scenario
        if outcome.error is None and not (outcome.load is not None and outcome.load.failed):
            self.loaded = dataset.present_after(scenario, self.loaded)
        else:
            self.loaded = self.loaded and dataset.present_after(scenario, True)

    def _ensure_dataset(self) -> str | None:
        """Load the data set of reads, unmeasured, if no write has made it; returns the reason if that fails."""
        if self.loaded:
            return None
        dataset = self._dataset
        with self._progress.stage("data set") as stage:
            longer_ns = round(self._target.cluster.waits.request_s * 1e9)
            load = slowed(dataset.load, self._dilation)
            load = replace(load, request_timeout_ns=load.request_timeout_ns + longer_ns)
            [answer] = self._follower.follow(load, dict(self._target.cluster.endpoints), is_shown=False)
            failure, _, error = self._why_failed(answer)
            if failure is not None or answer.error is not None:
                return f"the data set could not be loaded: {error}"
            self._on_event("dataset_loaded", f"{dataset.keys:,} keys")
            stage.done(f"{dataset.keys:,} keys of {dataset.key_size} B / {dataset.val_size} B loaded, not measured")
        self.loaded = True
        return None
