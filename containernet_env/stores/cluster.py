"""Running members, seen from the driver: gates, leaders, deaths, and the members' own counters and logs.

Members are queried over connections that cross no emulated link and do not affect the measurements.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from containernet_env.base import clock, files, programs
from containernet_env.base.clock import utc_now
from containernet_env.base.errors import RunError, shortage
from containernet_env.base.http import Connection
from containernet_env.base.programs import LastWords, one_line
from containernet_env.base.work import answers_within, persistently
from containernet_env.model.backends import ProfileKind
from containernet_env.model.usage import Durations, Leadership, MemberActivity, StoreActivity
from containernet_env.stores.profiling import Profiling

Broken = Callable[[], str | None]
"""Why waiting any longer is pointless; ``None`` while it is not."""

# PID 1 of an image waits on this FIFO and becomes the store when a line arrives (etcd_image/wait-at-gate).
GATE = "run/gate"
POLL_S = 0.05
# A host that was started again has its gate within a moment.
_GATE_S = 20.0
# How long a member takes to answer, beside the network. A leader that hands over answers when the other one leads; one
# that takes longer is queried again later.
QUERY_S = 2.0
# Queries are repeated for this long, beside the network, if a member does not answer (HTTP 503, a lost connection) or
# knows no leader.
PATIENCE_S = 5.0
# How long a cluster may take on a busy machine, whatever its network.
_START_S = 60.0
# How much is kept of the beginning of a value: more than names its writer.
_VALUE_BYTES = 32


@dataclass(frozen=True, slots=True)
class Waits:
    """Deadlines of the driver for operations over the network: longer if round trips are long or leaders come late.

    ``rtt_s`` is the longest round trip between two hosts; ``start_s`` is how long a cluster may take to be ready, and a
    member to rejoin it. Hosts have ``dilation`` times less CPU time, so what they may take is that many times longer.
    """

    rtt_s: float = 0.0
    start_s: float = _START_S
    dilation: int = 1

    @classmethod
    def of(cls, settle_s: float, rtt_ns: int, dilation: int = 1) -> Waits:
        """A minute, or five times the delays of the store's timing plus 20 round trips if that is longer.

        All in real time: the minute is ``dilation`` times as long, the arguments are already.
        """
        rtt_s = rtt_ns / 1e9
        return cls(rtt_s, max(dilation * _START_S, float(round(5 * settle_s + 20 * rtt_s))), dilation)

    @property
    def request_s(self) -> float:
        """By how much the deadline of one request grows, whole seconds: eight round trips.

        A connection and its TLS take three, a proxy or a session one more, a consistent read at a follower two.
        """
        return float(round(8 * self.rtt_s))


NEAR = Waits()
"""Those of a network whose round trips are short."""


# --- one member -------------------------------------------------------------------------------------------------------


class MemberHost(Protocol):
    """The host that a member runs on, as far as its cluster needs it."""

    name: str

    @property
    def pid(self) -> int: ...

    @property
    def alive(self) -> bool: ...

    def ending(self, words: LastWords = programs.last_words) -> str | None:
        """How its first process ended, in one line; ``None`` while it runs. ``words`` reads its log.

        As in "exit status 2: panic: ...", "killed by SIGKILL", "OOM-killed (memory limit 64 MiB)". Never raises: an
        unknown cause is reported as such.
        """

    def logs(self, tail: int = 20) -> str: ...


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """Where a member runs: its host, its address on the emulated network, and the connection to it.

    ``endpoint``: the ``host:port`` at which it serves clients, where a file names that.
    """

    host: MemberHost
    ip: str
    connection: Connection
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Ping:
    """A request that costs a member nearly nothing, on a connection to ``port``. Any bytes answer it."""

    connection: Connection
    port: int
    request: bytes


@dataclass(frozen=True)
class MemberStatus:
    """One member's own view. ``member_id`` is its id among the members; ``leader_id`` is ``None`` without a leader.

    ``node_id`` is the id by which it is made the leader, if that is another one.
    """

    member_id: str
    leader_id: str | None
    raft_term: int
    version: str
    node_id: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A write as the store itself has it: its revision, the key, and the beginning of the value.

    ``revision`` is 0 where the store has none. ``value`` is ``None`` if there is no such key.
    """

    revision: int
    key: str
    value: str | None

    @classmethod
    def of(cls, revision: int, key: str, value: bytes | None) -> Written:
        """One whose value is cut to its beginning."""
        text = None if value is None else value[:_VALUE_BYTES].decode(errors="replace")
        return cls(revision, key, text)


@dataclass(frozen=True, slots=True)
class OwnHistory:
    """The store's own record of a load: every write, in order; with ``final`` only the last one of each key."""

    writes: Iterator[Written]
    final: bool = False


class Member(ABC):
    """One member and the host it runs on.

    ``client_port`` is where members serve clients, and ``ping_request`` a request that this port answers with any
    bytes, whatever other members do. ``log_form``: the lines of its log, ``None`` if it counts and warns of nothing.
    ``metrics``: the port and the path of its counters in Prometheus' form, and with what the names of those that are
    kept begin. ``serves_late``: it may know a leader before it serves reads. All keys that are read begin with
    ``prefix``, if there is one.
    """

    client_port: int
    ping_request: ClassVar[bytes]
    log_form: ClassVar[LogForm | None] = None
    metrics: ClassVar[tuple[int, str, tuple[str, ...]] | None] = None
    serves_late: ClassVar[bool] = False

    def __init__(self, place: MemberPlace, prefix: str = "") -> None:
        self.place = place
        self.prefix = prefix
        self.host = place.host
        self.name = place.host.name
        self.connection = place.connection
        self._lock = clock.Lock()
        self._death: str | None = None
        self.expected = False

    @property
    def endpoint(self) -> str:
        """``ip:port`` at which it serves clients, or as a file names it."""
        return self.place.endpoint or f"{self.place.ip}:{self.client_port}"

    @property
    def ping(self) -> Ping | None:
        """A liveness probe whose answer involves no other member; ``None`` if none is known."""
        return Ping(self.connection, self.client_port, self.ping_request)

    @classmethod
    def last_words(cls, log: str, killed: bool) -> str:
        """Why it ended, from its log; see ``base.programs.LastWords``."""
        return programs.last_words(log, killed) if cls.log_form is None else cls.log_form.last_words(log, killed)

    @abstractmethod
    def status(self, timeout_s: float = QUERY_S) -> MemberStatus:
        """Query this member's state. Raises RunError if it does not answer."""

    @abstractmethod
    def read(self, timeout_s: float) -> None:
        """A consistent read of a key that is never written. Raises RunError if that fails."""

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        """The values of these keys, by the strongest read; each starts with ``prefix``. Raises RunError."""
        raise RunError("what keys hold is not read")

    def hand_over(self, member_id: str, timeout_s: float) -> None:
        """Have this member, which leads, make another one the leader. Raises RunError if it refuses or is silent."""
        raise RunError("no leader can be chosen")

    def counters(self, timeout_s: float) -> Counters:
        """Its own counters, by the store's own names. Raises RunError."""
        if self.metrics is None:
            return {}
        port, path, names = self.metrics
        answer = self.connection.request_bytes(port, path, timeout_s=timeout_s)
        return samples(answer.decode(errors="replace"), names)

    @staticmethod
    def activity(before: Counters, after: Counters, log: LogPart | None) -> MemberActivity:
        """The growth of its counters between two samples; a sample is empty, and the log ``None``, if it did not
        answer."""
        return MemberActivity()

    def expect_death(self) -> None:
        """It is killed next, as configured; it counts as dead from now on."""
        with self._lock:
            self._death, self.expected = f"{self.name} was killed, as configured", True

    def revive(self) -> None:
        with self._lock:
            self._death, self.expected = None, False

    def start(self, deadline: float) -> None:
        """Open the gate: PID 1 of the host then becomes the store. `deadline` is on the monotonic clock, seconds."""
        root = files.root_of(self.host.pid)
        while True:
            if not self.expected and (death := self.death()) is not None:
                raise RunError(f"the cluster did not start: {death}")
            try:
                gate = files.open_file(root, GATE, os.O_WRONLY | os.O_NONBLOCK, stat.S_IFIFO)
                try:
                    os.write(gate, b"go\n")
                finally:
                    os.close(gate)
                return
            except OSError as error:
                # ENXIO: there is no reader yet; ENOENT: the script has not made the FIFO yet.
                if error.errno not in (errno.ENXIO, errno.ENOENT) or clock.monotonic() > deadline:
                    raise RunError(f"{self.name} did not wait at its gate: {error.strerror}\n{self.tail()}") from error
                clock.sleep(POLL_S / 5)

    def has_started(self, timeout_s: float = QUERY_S) -> bool:
        """Whether a member whose status cannot be queried runs and answers, and only lacks a leader."""
        return False

    def knows_a_leader(self, timeout_s: float) -> bool:
        """Whether this member answers, and knows the leader."""
        try:
            if self.serves_late:
                self.read(timeout_s)
            return self.status(timeout_s).leader_id is not None
        except RunError:
            return False

    def death(self) -> str | None:
        """Why this member is dead, in one line; None while it lives. The first answer is kept."""
        if self._death is None and (ending := self.host.ending(self.last_words)) is not None:
            with self._lock:
                # The engine may take a second to answer; meanwhile it may have been expected, or live again.
                if self._death is None and not self.host.alive:
                    self._death = f"{self.name} ended: {ending}"
        return self._death

    def tail(self, lines: int = 8) -> str:
        """The member's last log lines, for a message, or a note that they cannot be read."""
        try:
            return self.host.logs(tail=lines)
        except RunError as error:
            return f"(no log of {self.name}: {error})"


# --- counters and logs of members -------------------------------------------------------------------------------------

Counters = Mapping[str, float]
"""One sample of a member: its figures by the store's own names."""

# A member that answers does so in some 10 ms, on a fifth of a core in 100 ms; a query that is not answered is repeated.
_TRY_S, LOOK_S = 1.0, 2.0
# The engine reads its own file for it.
_LOG_S = 2.0
# Of a member that logs more in one scenario the last lines are read.
_LOG_LINES = 10_000
# More kinds of warnings than these are counted together.
_MOST_KINDS, OTHERS = 20, "(other warnings)"
# Moments are compared as text: ISO 8601 in UTC, of which logs may have microseconds and the driver has milliseconds.
_MILLISECONDS = len("2026-01-01T00:00:00.000")


@dataclass(frozen=True, slots=True)
class LogPart:
    """The log of a member from one moment to another: lines, and warnings by kind."""

    lines: Sequence[re.Match[str]]
    warnings: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LogForm:
    """How a store writes its log: ``line`` matches one with its time (``at``), ``level`` and ``message``.

    Lines of the levels ``errors`` and ``warning`` are counted, and messages that ``notable`` finds; its group, if it
    has one, is their kind. Text that ``varying`` matches in messages of one kind (numbers, addresses) is replaced by
    ``placeholder``. After a line of the levels ``ends`` there is none.

    ``signalled`` is the message on SIGTERM or SIGINT; the errors that follow are of the store's own closing. Before the
    message ``ready`` it warns in every run, of its settings. ``detail`` is the cause that a line names besides.
    """

    line: re.Pattern[str]
    errors: Collection[str]
    warning: str
    varying: re.Pattern[str]
    placeholder: str = "N"
    notable: re.Pattern[str] | None = None
    ends: Collection[str] = ()
    signalled: str | None = None
    ready: str | None = None
    detail: Callable[[re.Match[str]], str] = lambda line: ""

    def last_words(self, log: str, killed: bool) -> str:
        """Why a member ended (``LastWords``): a Go crash, a signal, else its last error or warning; no information.

        Of a log that has no line in this form (an unknown flag, a shell's error), its first line.
        """
        lines, crash = list(self.line.finditer(log)), programs.crash_line(log)
        if not lines:
            return crash or ("" if killed else one_line(log.strip().partition("\n")[0].removeprefix("==> ")))
        last, is_ready = None, False
        for line in lines:
            if line["message"] == self.signalled:
                last = line
                break
            is_ready = is_ready or line["message"] == self.ready
            if line["level"] in self.errors or (is_ready and line["level"] == self.warning):
                last = line
        if last is None or (crash is not None and last["level"] not in self.ends):
            return crash or ""
        detail = self.detail(last)
        if last["message"] == self.signalled:
            return one_line(f"shut down by a signal{detail}")
        level = "warning" if last["level"] == self.warning else last["level"].lower()
        before = f"last {level}: " if killed else ""
        return one_line(f"{before}{last['message'].rstrip('.') if detail else last['message']}{detail}")

    def between(self, log: str, began: str, ended: str) -> LogPart:
        """The part of a log between two moments, both included, which are ISO 8601 in UTC, to the millisecond."""
        first, last = began[:_MILLISECONDS], ended[:_MILLISECONDS]
        lines = [line for line in self.line.finditer(log) if first <= line["at"][:_MILLISECONDS] <= last]
        found: Counter[str] = Counter()
        for line in lines:
            if (kind := self._kind(line)) is not None:
                found[kind if kind in found or len(found) < _MOST_KINDS else OTHERS] += 1
        return LogPart(lines, dict(found))

    def _kind(self, line: re.Match[str]) -> str | None:
        found = None if self.notable is None else self.notable.search(line["message"])
        if found is None and line["level"] not in (*self.errors, self.warning):
            return None
        if found is not None and found.groups():
            return found[1]
        return one_line(self.varying.sub(self.placeholder, line["message"]))


class Observation:
    """Members that are observed: their counters are read at the begin and at the end, and not between.

    They may take ``dilation`` times as long to answer.
    """

    def __init__(self, members: Sequence[Member], dilation: int = 1) -> None:
        self._dilation = dilation
        self._members = {member.name: member for member in members}
        self._observed = [member.name for member in members if member.log_form is not None]
        self._before = self._look()
        self._began = utc_now()

    def _look(self) -> Mapping[str, Counters]:
        try_s, look_s = self._dilation * _TRY_S, self._dilation * LOOK_S
        return answers_within(look_s, lambda name: self._members[name].counters(try_s), self._observed)

    def end(self) -> StoreActivity:
        """Their activity since; takes a few seconds at most, and never raises."""
        ended, after = utc_now(), self._look()
        logs = answers_within(_LOG_S, lambda name: self._members[name].host.logs(tail=_LOG_LINES), self._observed)
        found = {}
        for name, member in self._members.items():
            form, log = member.log_form, logs.get(name)
            part = None if form is None or log is None else form.between(log, self._began, ended)
            found[name] = member.activity(self._before.get(name, {}), after.get(name, {}), part)
        return StoreActivity(found)


def grown(before: Counters, after: Counters, name: str) -> int | None:
    """By how much a counter grew; ``None`` if one of both looks lacks it."""
    return int(after[name] - before[name]) if name in before and name in after else None


def durations(before: Counters, after: Counters, count: str, sum_ms: str) -> Durations | None:
    """Durations of which their number and their sum in ms are counted; ``None`` if a look lacks them.

    Also if they are fewer than before, as after a restart.
    """
    if not {count, sum_ms} <= before.keys() & after.keys() or after[count] < before[count]:
        return None
    times = int(after[count] - before[count])
    return Durations(times, (after[sum_ms] - before[sum_ms]) / 1000 / times if times else None, None)


def samples(text: str, names: tuple[str, ...], separator: str = " ") -> Counters:
    """The samples, one a line, that begin with one of these names; lines of another form are left out.

    By default, of Prometheus' text exposition (version 0.0.4), labels included.
    """
    found: dict[str, float] = {}
    for line in text.splitlines():
        sample, _, value = line.partition(separator)
        if sample.startswith(names):
            with suppress(ValueError):
                found[sample] = float(value)
    return found


# --- the cluster ------------------------------------------------------------------------------------------------------

M = TypeVar("M", bound=Member)


class Cluster(Generic[M]):
    """The running members, in config order. ``waits`` are set before ``start``, and when the network changes."""

    lacks: ClassVar[str] = "no leader that all members know"
    """The fault if all members answer and the cluster is not ready."""

    def __init__(self, members: Sequence[M]) -> None:
        self.waits = Waits()
        self.members = tuple(members)
        self.quorum = len(self.members) // 2 + 1
        self._pool = clock.ThreadPoolExecutor(max_workers=min(32, len(self.members)), thread_name_prefix="members")

    def close(self) -> None:
        """End the helper threads; the members keep running."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def query_s(self) -> float:
        """How long a member may take to answer a query that others may have to answer first."""
        return self.waits.dilation * QUERY_S + self.waits.request_s

    @property
    def patience_s(self) -> float:
        """For how long a query is repeated."""
        return self.waits.dilation * PATIENCE_S + 2 * self.waits.request_s

    def start(self, broken: Broken = lambda: None) -> Leadership:
        """Start every member, wait until all answer and agree on a leader; return who leads.

        Raises RunError after ``waits.start_s``, or as soon as a member dies, with that member's last log lines; also as
        soon as `broken` gives a reason why the members cannot form a cluster, with that reason.
        """
        deadline = clock.monotonic() + self.waits.start_s
        self._open_gates(deadline, broken)
        while True:
            self._check_start(self.members, broken)
            leadership = self._leadership(self.statuses(starting=True), required=len(self.members))
            if leadership is not None and self._is_ready(leadership):
                return leadership
            if clock.monotonic() > deadline:
                raise RunError(self._not_ready())
            clock.sleep(POLL_S)

    def _open_gates(self, deadline: float, broken: Broken) -> None:
        list(self._pool.map(lambda member: member.start(deadline), self.members))

    def _is_ready(self, leadership: Leadership) -> bool:
        """The conditions for a new cluster besides a leader that all members name."""
        return not self.members[0].serves_late or self.answers(self.query_s)

    @staticmethod
    def _check_start(members: Sequence[M], broken: Broken) -> None:
        """Raise RunError for a reason why a cluster of which these were started cannot form."""
        if (reason := broken()) is not None:
            raise RunError(reason)
        for member in members:
            if (death := member.death()) is not None:
                raise RunError(f"the cluster did not start: {death}")

    def _not_ready(self) -> str:
        unknown = [member for member, status in self.statuses().items() if status is None]
        started = [member for member in unknown if member.has_started()]
        silent = [member for member in unknown if member not in started]
        problems = [f"no answer from {', '.join(member.name for member in silent)}"] if silent else []
        if started:
            names = ", ".join(member.name for member in started)
            problems.append(f"no leader yet: {names} started and waiting for one")
        what, worst = "; ".join(problems) or self.lacks, [*silent, *started, *self.members][0]
        after = f"the cluster was not ready after {self.waits.start_s:g} s"
        return f"{after}: {what}; last lines of {worst.name}:\n{worst.tail()}"

    def statuses(self, starting: bool = False) -> dict[M, MemberStatus | None]:
        """Every member's state, queried in parallel; None if a member does not answer.

        ``starting``: raises RunError if this process lacks the resources to query, which is no member's silence.
        """

        def query(member: M) -> MemberStatus | None:
            try:
                return member.status(self.query_s)
            except RunError as error:
                if starting and (lacking := shortage(error)) is not None:
                    raise lacking from error
                return None

        return dict(zip(self.members, self._pool.map(query, self.members), strict=True))

    def leadership(self) -> Leadership | None:
        """The leader according to at least a quorum; ``None`` if there is none."""

        def named() -> Leadership | None:
            statuses = self.statuses()
            found = self._leadership(statuses, required=self.quorum)
            leaders = {None if status is None else status.leader_id for status in statuses.values()}
            if found is None and (None in leaders or len(leaders) > 1):
                raise RunError(self.lacks)
            return found

        try:
            return persistently(named, self.patience_s if self.has_quorum() else 0.0)
        except RunError:
            return None

    def leader_now(self, timeout_s: float, without: Collection[str]) -> str | None:
        """The leader in the newest term that a member knows, of those that answer within ``timeout_s``.

        Those in ``without`` are not queried: they are known to be silent. ``None`` if there is no leader.
        """
        queried = [member for member in self.living() if member.name not in without]
        answers = answers_within(timeout_s, lambda member: member.status(timeout_s), queried)
        found = self._leadership(answers, required=1)
        return found.leader if found is not None else None

    def expect_death(self, name: str) -> None:
        """That member is killed next: its end is not among ``deaths`` until it has rejoined."""
        self._member(name).expect_death()

    def rejoin(self, place: MemberPlace, broken: Broken = lambda: None) -> None:
        """Start the member of that place again, on its data, and return once it answers and knows a leader.

        Without a quorum that takes until there is one. Raises ``RunError`` once the member has ended or ``broken``
        gives a reason.
        """
        member = self._member(place.host.name)
        # It still counts as dead.
        member.place, member.connection = place, place.connection
        member.start(clock.monotonic() + _GATE_S)
        while not member.knows_a_leader(self.query_s):
            reason = broken() or member.host.ending(member.last_words)
            if reason is not None:
                raise RunError(f"{member.name} did not rejoin: {reason}")
            clock.sleep(POLL_S)
        member.revive()

    def move_leader(self, name: str, timeout_s: float, broken: Broken = lambda: None) -> Leadership:
        """Make that member the leader, and return once all living members report it as the leader.

        Does nothing if it leads already. Raises ``RunError`` if that member is dead, or once ``timeout_s`` are over or
        ``broken`` gives a reason.
        """
        wanted = self._member(name)
        deadline = clock.monotonic() + timeout_s
        problem, moved = "no leader that all members know", False
        while (left := deadline - clock.monotonic()) > 0:
            reason = broken() or wanted.death()
            if reason is not None:
                raise RunError(f"{name} could not be made the leader: {reason}")
            statuses = self.statuses()
            found = self._leadership(statuses, required=max(self.quorum, len(self.living())))
            if found is not None and found.leader == name:
                # A leader that is new serves reads once it has committed an entry of its own term.
                if not moved or self.answers(left):
                    return found
                problem = "not every member answers under it"
            elif found is not None:
                problem, moved = f"{found.leader} still leads", True
                try:
                    if (status := statuses[wanted]) is None:
                        raise RunError(f"{name} does not answer")
                    member_id = status.node_id or status.member_id
                    self._member(found.leader).hand_over(member_id, min(left, self.query_s))
                    continue
                except RunError as error:
                    problem = f"{found.leader} did not hand over: {error}"
            clock.sleep(POLL_S)
        raise RunError(f"{name} could not be made the leader within {timeout_s:g} s: {problem}")

    def _member(self, name: str) -> M:
        return next(member for member in self.members if member.name == name)

    @property
    def size(self) -> int:
        """How many members there are, the dead ones too."""
        return len(self.members)

    @property
    def endpoints(self) -> dict[str, str]:
        """``ip:port`` of each living member by its name, for clients."""
        return {member.name: member.endpoint for member in self.living()}

    def _leadership(self, statuses: Mapping[M, MemberStatus | None], required: int) -> Leadership | None:
        """The leader in the newest term, according to at least so many members."""
        answers = {member: status for member, status in statuses.items() if status is not None}
        if not answers:
            return None
        newest = max(status.raft_term for status in answers.values())
        named = [status.leader_id for status in answers.values() if status.raft_term == newest]
        by_id = {status.member_id: member for member, status in answers.items()}
        leader_id = max(set(named), key=named.count)
        if leader_id is None or leader_id not in by_id or named.count(leader_id) < required:
            return None
        return Leadership(by_id[leader_id].name, newest)

    def version(self) -> str:
        """The version the first living member reports. Raises RunError if none answers."""
        return persistently(self._version, self.patience_s)

    def _version(self) -> str:
        for status in self.statuses().values():
            if status is not None:
                return status.version
        raise RunError("no member answers")

    def deaths(self) -> dict[str, str]:
        """Dead members but those whose death was expected: name -> cause, in config order."""
        return {
            member.name: reason
            for member in self.members
            if (reason := member.death()) is not None and not member.expected
        }

    def living(self) -> tuple[M, ...]:
        """The members whose process still runs, in config order."""
        return tuple(member for member in self.members if member.death() is None)

    def has_quorum(self) -> bool:
        """Whether enough members live for the store to take writes; false is never true again without a restart."""
        return len(self.living()) >= self.quorum

    def pings(self) -> dict[str, Ping]:
        """A liveness probe for each living member that has one, by name."""
        return {member.name: ping for member in self.living() if (ping := member.ping) is not None}

    def observe(self) -> Observation:
        """Begin to observe the living members; takes a few seconds at most, and never raises."""
        return Observation(self.living(), self.waits.dilation)

    def profile(self, member: str, kinds: Sequence[ProfileKind]) -> Profiling | None:
        """Profile a member, whose store was started for that; ``None`` if it is dead."""
        return None

    def revision(self) -> int:
        """How many changes the store has seen, as its own numbering has it. Raises ``RunError``."""
        raise RunError("the store keeps no history")

    def written(self, prefix: str, since: int, keys: Collection[str], timeout_s: float) -> OwnHistory:
        """Every write of keys that start with ``prefix``, from a revision on up to the present.

        A store without past writes gives the present value of each of ``keys``, by its strongest read; all of them
        start with ``prefix``. Reading begins when the history is iterated, which raises ``RunError`` if the store does
        not have it any more, or does not answer.
        """
        return OwnHistory(self._final(prefix, keys, timeout_s), final=True)

    def _final(self, prefix: str, keys: Collection[str], timeout_s: float) -> Iterator[Written]:
        """The value of each key, from the first member that can be read; each may take its share of the time."""
        deadline = clock.monotonic() + timeout_s
        waiting = list(self.living())
        problem = RunError("no member lives")
        while keys and waiting:
            share_s = max(deadline - clock.monotonic(), 0.0) / len(waiting)
            member = waiting.pop(0)
            try:
                yield from member.values(prefix, keys, share_s)
                return
            except RunError as error:
                problem = RunError(f"{member.name}: {error}")
        if keys:
            raise problem

    def answers(self, timeout_s: float) -> bool:
        """Whether every living member answers a consistent read within ``timeout_s``, and they are a quorum."""
        return self.has_quorum() and not self.behind(timeout_s)

    def behind(self, timeout_s: float, hopeless: Callable[[str], bool] = lambda name: False) -> list[str]:
        """The living members that do not answer a consistent read within ``timeout_s``, or until it is ``hopeless``.

        A member that does has applied all that was written before; of Consul, where followers pass such a read on, only
        the leader has.
        """
        deadline, over = clock.monotonic() + timeout_s, clock.Event()

        def read(member: M) -> bool:
            while True:
                try:
                    member.read(max(min(deadline - clock.monotonic(), self.query_s), 0.1))
                    return True
                except RunError:
                    if over.is_set() or clock.monotonic() > deadline or hopeless(member.name):
                        return False
                    clock.sleep(POLL_S)

        living = self.living()
        try:
            return [member.name for member, done in zip(living, self._pool.map(read, living), strict=True) if not done]
        finally:
            over.set()  # a stop does not wait for the others


class LeaderlessCluster(Cluster[M], Generic[M]):
    """A cluster without a leader: loads for the leader go to the first living member of the topology."""

    lacks = "no answer to a read from every member"

    def __init__(self, members: Sequence[M]) -> None:
        super().__init__(members)
        self.quorum = 1

    def _leadership(self, statuses: Mapping[M, MemberStatus | None], required: int) -> Leadership | None:
        return self.leadership() if sum(map(bool, statuses.values())) >= required else None

    def leadership(self) -> Leadership | None:
        # No query decides it, so one without an answer changes nothing.
        name = self.leader_now(0.0, ())
        return None if name is None else Leadership(name, None)

    def leader_now(self, timeout_s: float, without: Collection[str]) -> str | None:
        return next((member.name for member in self.living() if member.name not in without), None)

    def _is_ready(self, leadership: Leadership) -> bool:
        # Each may answer by itself before it reaches the others.
        return self.answers(self.query_s)
