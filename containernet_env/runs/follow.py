"""Following a running benchmark: when it is ended early or given up, and which members are silent for how long."""

from __future__ import annotations

import os
import selectors
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.config.plan import Plan
from containernet_env.model import load_contract as contract
from containernet_env.model.scenario import Load, Scenario
from containernet_env.runs.load import Answer, BenchmarkServer, Progress, dial_timeout_s, request_of
from containernet_env.runs.target import ClientHost, Target
from containernet_env.stores.cluster import NEAR, Ping, Waits

# Ping interval of each member: a measured silence is too short by at most this. A ping costs 0.8 ms of idle members,
# which it wakes (those under load are awake), and 0.15 ms of the driver: for three members 0.4 % of a core together.
PING_INTERVAL_S = 0.7
# Limit on pings to all members together: with more than eight members, each is pinged less often.
PINGS_PER_S = 12
# A connection inside the member's own namespace is made at once, or never.
OPEN_TIMEOUT_S = 0.25
# Scheduling delay allowed for the thread itself; a longer gap is silence of the driver, not of members.
LATE_S = 0.1
_ANSWER_BYTES = 64 * 1024
# Poll interval of `settle`.
_SETTLE_POLL_S = 0.02


class Silence:
    """How long one member has not answered. Pure: the moments are arguments, in seconds.

    It counts from the first ping that was not answered, so it is never longer than the member was silent.
    """

    def __init__(self) -> None:
        self.asked_s: float | None = None
        self.answered_s = -inf
        self._longest_s = 0.0

    def ask(self, now_s: float) -> None:
        """A ping was sent; one that follows an unanswered one changes nothing."""
        if self.asked_s is None:
            self.asked_s = now_s

    def answer(self, now_s: float) -> None:
        """Something came back."""
        self._longest_s = self.longest_s(now_s)
        self.asked_s, self.answered_s = None, now_s

    def excuse(self, late_s: float, now_s: float) -> None:
        """Exclude ``late_s`` until now, in which no answer was polled, from the silence."""
        if self.asked_s is not None:
            self.asked_s = min(self.asked_s + late_s, now_s)

    def reset(self) -> None:
        """Reset all ended silences; an ongoing one counts from its beginning."""
        self._longest_s = 0.0

    def now_s(self, now_s: float) -> float:
        """The current silence; 0 if it answers."""
        return 0.0 if self.asked_s is None else now_s - self.asked_s

    def longest_s(self, now_s: float) -> float:
        """The longest silence since the last reset, including an ongoing one."""
        return max(self._longest_s, self.now_s(now_s))


class MemberWatch:
    """Pings the members that ``pings`` names, between ``start`` and ``close``; thread-safe for readers."""

    def __init__(self, pings: Callable[[], Mapping[str, Ping]]) -> None:
        self._pings = pings
        self._silences: dict[str, Silence] = {}
        self._sockets: dict[str, socket.socket] = {}
        self._selector: selectors.BaseSelector  # from start to the end of the thread
        self._lock = clock.Lock()
        self._over = clock.Event()
        self._at_once = clock.Event()
        self._last_round_s = -inf  # when it began
        self._wake: int | None = None  # an eventfd: ends the thread's wait
        self._thread = clock.Thread(target=self._run, name="member-watch", daemon=True)

    def start(self) -> None:
        """Start pinging; if that fails, as when no thread can be started, nothing remains open."""
        self._selector = selectors.DefaultSelector()
        try:
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._selector.register(self._wake, selectors.EVENT_READ)
            self._thread.start()
        except BaseException:
            self.close()
            if not self._thread.is_alive():  # one that begins only now ends at once
                self._release()
            raise

    def close(self) -> None:
        """Stop, and close every connection: one that is open keeps a network namespace. Idempotent."""
        self._over.set()
        self._wake_up()
        if self._thread.is_alive():
            self._thread.join()

    def _wake_up(self) -> None:
        with self._lock:
            if self._wake is not None:
                os.eventfd_write(self._wake, 1)

    def reset(self) -> None:
        """Reset all ended silences.

        An ongoing one counts from its beginning: otherwise a silence across several short scenarios would count in
        none.
        """
        with self._lock:
            for silence in self._silences.values():
                silence.reset()

    def longest_s(self) -> dict[str, float]:
        """By member: the longest time without an answer, of silences that were ongoing since the last reset."""
        with self._lock:
            return {name: silence.longest_s(clock.monotonic()) for name, silence in self._silences.items()}

    def silent(self, for_s: float) -> list[str]:
        """The members that have not answered for at least this time, and still do not."""
        with self._lock:
            return [name for name, silence in self._silences.items() if silence.now_s(clock.monotonic()) >= for_s]

    def settle(self, for_s: float) -> None:
        """Return once each member has answered a new ping, or is one of those that are ``silent(for_s)``.

        ``for_s``, in seconds, bounds the wait, apart from the duration of a round of pings. Without this wait, a
        failure that comes sooner than a silence is noticed would have no cause.
        """
        began_s = clock.monotonic()
        deadline_s = began_s + for_s + PING_INTERVAL_S
        self._at_once.set()
        self._wake_up()
        while self._thread.is_alive() and not self._over.is_set() and clock.monotonic() < deadline_s:
            if self._is_settled(began_s, for_s):
                return
            self._over.wait(_SETTLE_POLL_S)

    def _is_settled(self, since_s: float, for_s: float) -> bool:
        with self._lock:
            now_s = clock.monotonic()
            return self._last_round_s >= since_s and all(
                silence.answered_s >= since_s or silence.now_s(now_s) >= for_s for silence in self._silences.values()
            )

    def _run(self) -> None:
        try:
            due_s = clock.monotonic()
            while not self._over.is_set():
                now_s = clock.monotonic()
                if now_s >= due_s or self._at_once.is_set():
                    self._at_once.clear()
                    due_s = now_s + self._ask()
                self._listen(due_s - clock.monotonic())
        finally:
            for name in list(self._sockets):
                self._drop(name)
            self._release()

    def _release(self) -> None:
        """Close the non-connections. Idempotent."""
        self._selector.close()
        with self._lock:
            if self._wake is not None:
                os.close(self._wake)
                self._wake = None

    def _ask(self) -> float:
        """Ping every living member that has answered its last ping; returns the time to the next round."""
        began_s = clock.monotonic()
        pings = self._pings()
        now_s = clock.monotonic()
        self._excuse(now_s - began_s, now_s)  # the engine may report a death late
        with self._lock:
            for name in self._silences.keys() - pings.keys():
                del self._silences[name]
            for name in pings:
                self._silences.setdefault(name, Silence())
            self._last_round_s = began_s
        for name in self._sockets.keys() - pings.keys():
            self._drop(name)
        for name, ping in pings.items():
            waits = self._silences[name].asked_s is not None and name in self._sockets
            if not waits:
                self._send(name, ping)
        return max(PING_INTERVAL_S, len(pings) / PINGS_PER_S)

    def _send(self, name: str, ping: Ping) -> None:
        with self._lock:
            self._silences[name].ask(clock.monotonic())  # also if the connection cannot be made
        try:
            if name not in self._sockets:
                made = ping.connection.open(ping.port, timeout_s=OPEN_TIMEOUT_S)
                made.setblocking(False)
                self._selector.register(made, selectors.EVENT_READ, name)
                self._sockets[name] = made
            self._sockets[name].send(ping.request)
        except RunError:
            pass
        except OSError:
            if name in self._sockets:
                self._drop(name)
            else:  # it is the driver that lacks descriptors
                with self._lock:
                    self._silences[name].excuse(inf, clock.monotonic())

    def _listen(self, timeout_s: float) -> None:
        began_s = clock.monotonic()
        ready = clock.select(self._selector, max(0.0, timeout_s))
        now_s = clock.monotonic()
        self._excuse(now_s - began_s - max(0.0, timeout_s), now_s)
        for key, _ in ready:
            if key.fd == self._wake:
                os.eventfd_read(key.fd)
            else:
                self._take(key.data, now_s)

    def _excuse(self, late_s: float, now_s: float) -> None:
        """Exclude ``late_s`` until now, in which no answers were polled, from all silences."""
        if late_s > LATE_S:
            with self._lock:
                for silence in self._silences.values():
                    silence.excuse(late_s, now_s)

    def _take(self, name: str, now_s: float) -> None:
        try:
            answer = self._sockets[name].recv(_ANSWER_BYTES)
        except ssl.SSLWantReadError:
            return  # a partial record, or a message of TLS itself
        except OSError:
            answer = b""
        if not answer:
            self._drop(name)  # it remains silent, until an answer on a new connection
        elif name in self._silences:
            with self._lock:
                self._silences[name].answer(now_s)

    def _drop(self, name: str) -> None:
        dropped = self._sockets.pop(name)
        self._selector.unregister(dropped)
        dropped.close()


# A scenario that takes longer than this, beyond what its own schedule takes, is ended and reported; the longest of
# the default matrix takes minutes even at a fifth of a core.
SCENARIO_TIMEOUT_S = 1800.0
# Poll interval of a running benchmark: are all members alive, and its progress.
WATCH_INTERVAL_S = 0.25
# Members under the same pressure die together: once one has died, the scenario continues this long, so that its row
# names them all. Longer would only add requests that wait for dead members. A failure of the whole gets no grace.
DEATH_GRACE_S = 2.0
# Time that the server needs beyond the scenario itself to stop the client and answer.
ANSWER_MARGIN_S = 30.0
# Timeout of an ended benchmark's answer, beside the report: the server gives its client 5 s and then kills it
# (endGrace in benchmark_image/internal/api/runner.go); the same again for everything else, on a busy machine.
END_TIMEOUT_S = 10.0
# Beyond the longest wait that the load explains: for the client's start, which takes a second on a fifth of a core, and
# so that a silent link emulator, which is given up after 5 s (``testbed.LinkWatch``), is blamed first.
SILENCE_MARGIN_S = 7.0
# For the client's report, which processes the stored latencies: time per latency, even on a twentieth of a core, and
# the maximum number of latencies (reportTime and MaxKept in benchmark_image/internal). The server's grace is equal.
REPORT_S_PER_REQUEST = 10e-6
REPORT_REQUESTS_MAX = 2_000_000
# The server answers from memory, and the client reports its progress ten times a second: both do so within a second
# even on an overloaded machine.
QUIET_S = 3.0
# If two polls are further apart, the driver itself was stopped: that is no silence of others.
LOOK_MAX_S = 1.0
# The kernel closes the connections of a host that ends a moment before its first process counts as ended.
HOST_NEWS_S = 1.0
# One exponential interval in 10^8 is longer than so many means.
_POISSON_GAPS = 20


def report_s(ended: int) -> float:
    """The maximum duration of the client's report, in seconds, when so many requests have ended."""
    return min(ended, REPORT_REQUESTS_MAX) * REPORT_S_PER_REQUEST


class Course:
    """Decides, poll by poll, whether a benchmark continues. Pure: the moments are arguments.

    ``silent_s`` is the time in which no request has ended. It may be as long as the load itself explains, and
    ``SILENCE_MARGIN_S``: request timeout + longest gap between two intended starts (1/rate, Poisson 20/rate; 0 in a
    closed loop); for the first request also the deadline for opening the connections, by ``waits``, and ``start_s``,
    how long the load waits for its configured start. Every request ends
    by its timeout, well or not, those of the warm-up too; a run without a success, whose requests still end, the client
    ends by itself after its stall timeout.
    """

    def __init__(self, load: Load, waits: Waits, now_s: float, start_s: float = 0.0) -> None:
        gaps = _POISSON_GAPS if load.arrival == "poisson" else 1
        gap_s = 0.0 if load.rate is None else gaps / float(load.rate)
        self._later_s = load.request_timeout_ns / 1e9 + gap_s + SILENCE_MARGIN_S
        self._first_s = start_s + dial_timeout_s(waits) + self._later_s
        self._looked_s = now_s
        self._spent_s = 0.0  # without the driver's own pauses
        self._ended = 0
        self._moved_s = 0.0
        self._died_s = inf
        self._cancelled_s: float | None = None

    @property
    def silent_s(self) -> float:
        return self._spent_s - self._moved_s

    @property
    def limit_s(self) -> float:
        """The silence after which it is ended; requests that have ended may be the last before the client's report."""
        return self._later_s + report_s(self._ended) if self._ended else self._first_s

    @property
    def stands_still(self) -> bool:
        return self.silent_s >= self.limit_s

    def look(
        self, now_s: float, ended: int | None, *, failed: bool = False, died: bool = False, host_ended: bool = False
    ) -> Literal["go on", "cancel", "abandon"]:
        """The action after one poll, by which ``ended`` requests have an outcome; ``None``: unknown.

        "cancel" comes once at most; "abandon" if a cancelled benchmark does not end, or nothing can end it.
        """
        self._spent_s += min(now_s - self._looked_s, LOOK_MAX_S)
        self._looked_s = now_s
        if ended is not None and ended != self._ended:
            self._ended, self._moved_s = ended, self._spent_s
        if host_ended:
            return "abandon"
        if self._cancelled_s is not None:
            ending_s = END_TIMEOUT_S + report_s(self._ended)
            return "abandon" if self._spent_s - self._cancelled_s >= ending_s else "go on"
        if died:
            self._died_s = min(self._died_s, self._spent_s)
        if failed or self._spent_s - self._died_s >= DEATH_GRACE_S or self.stands_still:
            self._cancelled_s = self._spent_s
            return "cancel"
        return "go on"


def answer_nothing(members: Sequence[str]) -> str:
    """Members that are silent, at least one, in words."""
    return f"{', '.join(members)} answer{'s' if len(members) == 1 else ''} nothing"


def who_is_silent(server_s: float, client_s: float, members: Sequence[str]) -> str:
    """The processes that do not answer, in words: how long server and client have been silent, and silent members."""
    silent = []
    if server_s >= QUIET_S:
        silent.append("the benchmark server answers nothing")
    elif client_s >= QUIET_S:  # only the server knows of its client
        silent.append("the benchmark client is silent (stopped?)")
    if members:
        silent.append(answer_nothing(members))
    return "; ".join(silent) or "server, client and members answer"


def timeout_s(scenario: Scenario, waits: Waits = NEAR, dilation: int = 1) -> float:
    """Time limit of a scenario, in real time as its arguments are: its schedule and its round trips are added."""
    in_turn = -(-((scenario.total or 0) + scenario.warmup.requests) // scenario.clients)
    limit_s = dilation * SCENARIO_TIMEOUT_S + (scenario.scheduled_s or 0.0) + (scenario.warmup_s or 0.0)
    return min(limit_s + in_turn * waits.request_s, float(contract.MOST["runTimeout"]))


# Before several loads start together all have to be ready: a client's process takes so much CPU time to start, and so
# much for each connection with TLS; opening them takes the round trips of `Waits.request_s`. What is ready only later
# is not measured, and its row has the reason.
START_S, START_CPU_S, CONN_CPU_S = 1.0, 0.2, 0.005


def ready_s(scenario: Scenario, plan: Plan, waits: Waits) -> float:
    """How long after they were sent the parts of a scenario start, in real time as the plan's limits are."""
    parts, cpus = scenario.parts, {client.name: client.cpus for client in plan.config.clients}
    work_s = [START_CPU_S + CONN_CPU_S * part.conns for part in parts]
    limits = [float(cpus.get(part.client or "") or plan.options.machine_cores) for part in parts]
    slowest_s = max(work / min(limit, 1.0) for work, limit in zip(work_s, limits, strict=True))
    return START_S + waits.request_s + max(slowest_s, sum(work_s) / plan.options.machine_cores)


class Follower:
    """Sends benchmarks to the servers and watches each to its end.

    ``lost`` is why no further one can be run; ``None`` while one can. ``silent_members`` names those that currently do
    not answer. It never waits longer than a poll takes for a process that may be stopped.
    """

    def __init__(self, target: Target, silent_members: Callable[[], Sequence[str]]) -> None:
        self._target = target
        self._progress, self._stop, self._on_event = target.progress, target.stop, target.on_event
        self._silent_members = silent_members
        self._reported_deaths: set[str] = set()
        self.lost: str | None = None

    def follow(
        self,
        load: Scenario,
        endpoints: Mapping[str, str],
        seed: int = 0,
        leader: str | None = None,
        *,
        is_shown: bool = True,
    ) -> list[Answer]:
        """Post the benchmark of each part of a load, or of all of it, and watch them to their ends.

        One is ended early once it no longer measures the configured load. Parts start at one moment. Arguments as for
        ``request_of``. If it ``is_shown``, its progress is that of the running scenario. Raises as the server's ``run``
        does, and ``Interrupted`` if a stop of the run was requested.
        """
        target, waits, dilation = self._target, self._target.cluster.waits, self._target.emulated.dilation
        deaths_before = len(target.cluster.deaths())
        start_s = ready_s(load, target.plan, waits) if load.parts else 0.0
        start_ns = clock.monotonic_ns() + round(start_s * 1e9) if load.parts else 0
        followed: list[_Benchmark] = []
        for part in load.parts or (load,):
            limit_s = min(timeout_s(part, waits, dilation) + start_s, float(contract.MOST["runTimeout"]))
            own_seed = seed + part.seed - load.seed
            terms, prefix = target.load_terms, target.key_prefix
            request = request_of(part, endpoints, limit_s, own_seed, terms, prefix, leader, waits, start_ns)
            course = Course(part, waits, clock.monotonic(), start_s)
            followed.append(_Benchmark(part.client, *target.loader(part.client), request, course))
        try:
            for one in followed:
                one.start()
            return self._watch(followed, deaths_before, is_shown)
        finally:
            for one in followed:
                one.over.set()

    def _watch(self, followed: Sequence[_Benchmark], deaths_before: int, is_shown: bool) -> list[Answer]:
        while running := [one for one in followed if one.answer is None]:
            if not running[0].is_done(WATCH_INTERVAL_S):
                self._look(followed, deaths_before, is_shown)
            for one in running:
                if one.answer is None and one.is_done(0.0):
                    one.answer = self._ended(one)
        return [one.answer for one in followed if one.answer is not None]

    def _look(self, followed: Sequence[_Benchmark], deaths_before: int, is_shown: bool) -> None:
        """One poll of those that run; what is given up has an answer then."""
        running = [one for one in followed if one.answer is None]
        if is_shown and any(one.running is not None for one in running):
            known = [one.latest for one in followed if one.latest is not None]
            self._progress.scenario_progress(*(sum(getattr(one, of) for one in known) for of in ("done", "errors")))
        self._stop.check()
        deaths = self._target.cluster.deaths()
        self.report_deaths(deaths)
        for one in running:
            course, progress = one.course, one.running
            action = course.look(
                clock.monotonic(),
                None if progress is None else progress.done + progress.warmup_done,
                failed=self._target.failure is not None,
                died=len(deaths) != deaths_before,
                host_ended=one.host_ended,
            )
            if course.stands_still and one.standstill is None:
                one.standstill = self._standstill(one)
            elif not one.warned and course.silent_s >= course.limit_s / 2:
                one.warned = True  # the time left that is shown grows, and this is why
                self._progress.note(f"{self._standstill(one)}; ended after {course.limit_s:.0f} s")
            if action == "cancel":
                clock.Thread(target=self._cancel, args=(one,), name="cancel", daemon=True).start()
            elif action == "abandon":
                one.answer = self._abandoned(one)

    def _ended(self, one: _Benchmark) -> Answer:
        """The answer as received; if there is none because its host ended, one with that reason."""
        answer = one.received.result()
        if answer.lost:
            until = clock.monotonic() + HOST_NEWS_S
            while not one.host_ended and clock.monotonic() < until:
                clock.sleep(WATCH_INTERVAL_S / 10)
            if one.host_ended:
                return self._abandoned(one)
        if one.standstill is None:
            return answer
        return Answer(answer.load, "; ".join(text for text in (one.standstill, answer.error) if text))

    def _abandoned(self, one: _Benchmark) -> Answer:
        of = "" if one.client is None else f" of {one.client}"
        if one.host is not None and one.host_ended:
            self.lost = f"the benchmark host{of} ended: {one.host.ending() or 'the reason is unknown'}"
            return Answer(None, self.lost)
        if one.silent_s >= QUIET_S:
            self.lost = f"the benchmark server{of} answers nothing"
        else:
            seconds = END_TIMEOUT_S + report_s(0 if one.running is None else one.running.done)
            self.lost = f"the benchmark server{of} did not end a benchmark within {seconds:.0f} s"
        return Answer(None, one.standstill or self.lost)

    def _standstill(self, one: _Benchmark) -> str:
        client_s = 0.0 if one.latest is None else one.latest.client_silent_s  # at the server's last answer
        of = "" if one.client is None else f" of {one.client}"
        who = who_is_silent(one.silent_s, client_s, self._silent_members())
        return f"no request{of} has ended for {one.course.silent_s:.0f} s: {who}"

    def report_deaths(self, deaths: Mapping[str, str]) -> None:
        """Report each dead member once."""
        for name in sorted(deaths.keys() - self._reported_deaths):
            self._reported_deaths.add(name)
            self._on_event("member_died", deaths[name], name)

    def _cancel(self, one: _Benchmark) -> None:
        """End a running benchmark; on its own thread, since a stopped server does not answer."""
        try:
            one.server.cancel()
        except RunError as error:
            self._progress.note(f"the benchmark could not be ended early: {error}")


@dataclass(eq=False)
class _Benchmark:
    """A benchmark that is watched: of one of several clients, by its name, or of the only one.

    The server's answer and its progress, of which ``latest`` is the last that is known, have a thread each, so that a
    silent server blocks nothing. These end by themselves, the latter once it is ``over``: no end of the program waits
    for them. ``answer`` is what became of it.
    """

    client: str | None
    host: ClientHost | None
    server: BenchmarkServer
    request: tuple[str, Mapping[str, Any]]
    course: Course
    standstill: str | None = None
    warned: bool = False
    answer: Answer | None = None
    latest: Progress | None = None

    def __post_init__(self) -> None:
        self.received: clock.Future[Answer] = clock.Future()
        self.over = clock.Event()
        self._answered_s = clock.monotonic()

    def start(self) -> None:
        clock.Thread(target=self._run, name="benchmark", daemon=True).start()
        clock.Thread(target=self._read, name="progress", daemon=True).start()

    def is_done(self, timeout_s: float) -> bool:
        try:
            self.received.exception(timeout=timeout_s)
        except TimeoutError:
            return False
        return True

    @property
    def host_ended(self) -> bool:
        return self.host is not None and not self.host.alive

    @property
    def running(self) -> Progress | None:
        """The latest known progress; ``None`` before the benchmark runs."""
        latest = self.latest
        return latest if latest is not None and latest.running else None

    @property
    def silent_s(self) -> float:
        return clock.monotonic() - self._answered_s

    def _run(self) -> None:
        path, body = self.request
        try:
            self.received.set_result(self.server.run(path, body, body["runTimeout"] + ANSWER_MARGIN_S))
        except BaseException as error:  # noqa: BLE001 - passed to the waiting thread
            self.received.set_exception(error)

    def _read(self) -> None:
        while not self.over.is_set() and not self.received.done():
            if (progress := self.server.progress()) is not None:
                self.latest, self._answered_s = progress, clock.monotonic()
            self.over.wait(WATCH_INTERVAL_S)
