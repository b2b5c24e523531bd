"""What clusters of all stores have in common: members behind gates, who leads by what most of them say, who is dead.

Members are asked through connections that cross no emulated link and add nothing to what is measured.
"""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from containernet_env.base import clock, files
from containernet_env.base.errors import RunError, shortage
from containernet_env.base.work import answers_within, persistently
from containernet_env.model.backends import ProfileKind
from containernet_env.model.usage import Leadership
from containernet_env.stores.protocol import Broken, MemberPlace, OwnHistory, Ping, Profiling, Waits, Written

# PID 1 of an image waits on this FIFO and becomes the store when a line arrives (etcd_image/wait-at-gate).
GATE = "run/gate"
POLL_S = 0.05
# A host that was started again has its gate within a moment.
_GATE_S = 20.0
# What a member takes to answer, beside the network. A leader that hands over answers when the other one leads; one that
# takes longer is looked after and asked again.
ASK_S = 2.0
# Queries are repeated for this long, beside the network, where a member does not answer (HTTP 503, a lost connection)
# or knows no leader.
PATIENCE_S = 5.0


@dataclass(frozen=True)
class MemberStatus:
    """One member's own view. ``member_id`` is what members call it; ``leader_id`` is ``None`` while it knows none."""

    member_id: str
    leader_id: str | None
    raft_term: int
    version: str


def read_each(keys: Collection[str], timeout_s: float, read: Callable[[str, float], bytes | None]) -> list[Written]:
    """What each key holds by itself, one ``read`` after the other with the seconds that are left. Raises RunError."""
    deadline = clock.monotonic() + timeout_s
    found: list[Written] = []
    for key in keys:
        if (left := deadline - clock.monotonic()) <= 0:
            raise RunError(f"{len(found)} of {len(keys)} keys were read within {timeout_s:g} s")
        found.append(Written.of(0, key, read(key, left)))
    return found


class Member(ABC):
    """One member and the host it runs on.

    ``client_port`` is where members serve clients, and ``ping_request`` what that port answers with any bytes, whatever
    other members do.
    """

    client_port: ClassVar[int]
    ping_request: ClassVar[bytes]

    def __init__(self, place: MemberPlace) -> None:
        self.place = place
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
        """See ``stores.protocol.Cluster.pings``; ``None`` where nothing is known that it answers by itself."""
        return Ping(self.connection, self.client_port, self.ping_request)

    @staticmethod
    @abstractmethod
    def last_words(log: str, killed: bool) -> str:
        """What its log tells of its end; see ``base.endings.LastWords``."""

    @abstractmethod
    def status(self, timeout_s: float = ASK_S) -> MemberStatus:
        """Query this member's state. Raises RunError where it does not answer."""

    @abstractmethod
    def read(self, timeout_s: float) -> None:
        """A consistent read of a key that is never written. Raises RunError where that fails."""

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        """What each of these keys holds, by the strongest read; each starts with ``prefix``. Raises RunError."""
        raise RunError("what keys hold is not read")

    def hand_over(self, member_id: str, timeout_s: float) -> None:
        """Have this member, which leads, make another one the leader. Raises RunError where it refuses or is silent."""
        raise RunError("no leader can be chosen")

    def expect_death(self) -> None:
        """It is killed next, as configured; it counts as dead from now on."""
        with self._lock:
            self._death, self.expected = f"{self.name} was killed, as configured", True

    def move(self, place: MemberPlace) -> None:
        """Its host was started again: it is reached there from now on. It still counts as dead."""
        self.place, self.connection = place, place.connection

    def revive(self) -> None:
        """It lives again."""
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
                # ENXIO: nobody reads yet; ENOENT: the script has not made the FIFO yet.
                if error.errno not in (errno.ENXIO, errno.ENOENT) or clock.monotonic() > deadline:
                    raise RunError(f"{self.name} did not wait at its gate: {error.strerror}\n{self.tail()}") from error
                clock.sleep(POLL_S / 5)

    def has_started(self) -> bool:
        """Whether a member whose status cannot be queried runs and answers, and only lacks a leader."""
        return False

    def knows_a_leader(self, timeout_s: float) -> bool:
        """Whether this member answers, and knows who leads."""
        try:
            return self.status(timeout_s).leader_id is not None
        except RunError:
            return False

    def death(self) -> str | None:
        """Why this member is dead, in one line; None while it lives. The first answer is kept."""
        if self._death is None and (ending := self.host.ending(self.last_words)) is not None:
            with self._lock:
                # The engine may take a second to tell; meanwhile it may have been expected, or live again.
                if self._death is None and not self.host.alive:
                    self._death = f"{self.name} ended: {ending}"
        return self._death

    def tail(self, lines: int = 8) -> str:
        """The member's last log lines, for a message; says so where they cannot be read."""
        try:
            return self.host.logs(tail=lines)
        except RunError as error:
            return f"(no log of {self.name}: {error})"


M = TypeVar("M", bound=Member)


class MemberCluster(Generic[M]):
    """The members of one run, in config order; most of ``stores.protocol.Cluster``."""

    lacks: ClassVar[str] = "no leader that all members know"
    """What is wrong where all members answer and the cluster is not ready."""

    def __init__(self, members: Sequence[M]) -> None:
        self.waits = Waits()
        self.members = tuple(members)
        self.quorum = len(self.members) // 2 + 1
        self._pool = clock.ThreadPoolExecutor(max_workers=min(32, len(self.members)), thread_name_prefix="members")

    def close(self) -> None:
        """End the helper threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def ask_s(self) -> float:
        """How long a member may take to answer a question that others may have to answer first."""
        return ASK_S + self.waits.request_s

    @property
    def patience_s(self) -> float:
        """For how long a query is repeated."""
        return PATIENCE_S + 2 * self.waits.request_s

    def start(self, broken: Broken = lambda: None) -> Leadership:
        """Start every member, wait until all answer and agree on a leader; return who leads.

        Raises RunError after ``waits.start_s``, or as soon as a member dies, with that member's last log lines; also as
        soon as `broken` gives a reason why the members cannot form a cluster, with that reason.
        """
        deadline = clock.monotonic() + self.waits.start_s
        self._open_gates(deadline, broken)
        while True:
            self._check_start(self.members, broken)
            statuses = self.statuses(starting=True)
            leadership = self._leadership(statuses, required=len(self.members))
            if leadership is not None and self._is_ready(statuses):
                return leadership
            if clock.monotonic() > deadline:
                raise RunError(self._not_ready())
            clock.sleep(POLL_S)

    def _open_gates(self, deadline: float, broken: Broken) -> None:
        """Have every member become the store. Raises RunError."""
        list(self._pool.map(lambda member: member.start(deadline), self.members))

    def _is_ready(self, statuses: Mapping[M, MemberStatus | None]) -> bool:
        """What is needed of a new cluster beside a leader that all members name."""
        return True

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
        """Every member's state, queried in parallel; None where a member does not answer.

        ``starting``: raises RunError where this process lacks what it takes to ask, which is no member's silence.
        """

        def ask(member: M) -> MemberStatus | None:
            try:
                return member.status(self.ask_s)
            except RunError as error:
                if starting and (lacking := shortage(error)) is not None:
                    raise lacking from error
                return None

        return dict(zip(self.members, self._pool.map(ask, self.members), strict=True))

    def leadership(self) -> Leadership | None:
        """See ``stores.protocol.Cluster``."""

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
        """See ``stores.protocol.Cluster``."""
        asked = [member for member in self.living() if member.name not in without]
        answers = answers_within(timeout_s, lambda member: member.status(timeout_s), asked)
        found = self._leadership(answers, required=1)
        return found.leader if found is not None else None

    def expect_death(self, name: str) -> None:
        """See ``stores.protocol.Cluster``."""
        self._member(name).expect_death()

    def rejoin(self, place: MemberPlace, broken: Broken = lambda: None) -> None:
        """See ``stores.protocol.Cluster``."""
        member = self._member(place.host.name)
        member.move(place)
        member.start(clock.monotonic() + _GATE_S)
        while not member.knows_a_leader(self.ask_s):
            reason = broken() or member.host.ending(member.last_words)
            if reason is not None:
                raise RunError(f"{member.name} did not rejoin: {reason}")
            clock.sleep(POLL_S)
        member.revive()

    def move_leader(self, name: str, timeout_s: float, broken: Broken = lambda: None) -> Leadership:
        """See ``stores.protocol.Cluster``."""
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
                    self._member(found.leader).hand_over(self._id_of(wanted, statuses), min(left, self.ask_s))
                    continue
                except RunError as error:
                    problem = f"{found.leader} did not hand over: {error}"
            clock.sleep(POLL_S)
        raise RunError(f"{name} could not be made the leader within {timeout_s:g} s: {problem}")

    def _member(self, name: str) -> M:
        return next(member for member in self.members if member.name == name)

    @staticmethod
    def _id_of(member: M, statuses: Mapping[M, MemberStatus | None]) -> str:
        """Its id. Raises RunError where it did not answer."""
        if (status := statuses[member]) is None:
            raise RunError(f"{member.name} answers nothing")
        return status.member_id

    @property
    def size(self) -> int:
        """See ``stores.protocol.Cluster``."""
        return len(self.members)

    @property
    def endpoints(self) -> dict[str, str]:
        """See ``stores.protocol.Cluster``."""
        return {member.name: member.endpoint for member in self.living()}

    def _leadership(self, statuses: Mapping[M, MemberStatus | None], required: int) -> Leadership | None:
        """Who leads in the newest term, as so many members say at least."""
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
        """The version the first living member reports. Raises RunError where none answers."""
        return persistently(self._version, self.patience_s)

    def _version(self) -> str:
        for status in self.statuses().values():
            if status is not None:
                return status.version
        raise RunError("no member answers")

    def deaths(self) -> dict[str, str]:
        """Dead members: name -> why, in config order."""
        return {
            member.name: reason
            for member in self.members
            if (reason := member.death()) is not None and not member.expected
        }

    def living(self) -> tuple[M, ...]:
        """The members whose process still runs, in config order."""
        return tuple(member for member in self.members if member.death() is None)

    def has_quorum(self) -> bool:
        """Whether enough processes live for the cluster to be able to answer."""
        return len(self.living()) >= self.quorum

    def pings(self) -> dict[str, Ping]:
        """See ``stores.protocol.Cluster``."""
        return {member.name: ping for member in self.living() if (ping := member.ping) is not None}

    def profile(self, member: str, kinds: Sequence[ProfileKind]) -> Profiling | None:
        """See ``stores.protocol.Cluster``; ``None`` where the store lacks it."""
        return None

    def revision(self) -> int:
        """See ``stores.protocol.Cluster``."""
        raise RunError("the store keeps no history")

    def written(self, prefix: str, since: int, keys: Collection[str], timeout_s: float) -> OwnHistory:
        """See ``stores.protocol.Cluster``."""
        return OwnHistory(self._final(prefix, keys, timeout_s), final=True)

    def _final(self, prefix: str, keys: Collection[str], timeout_s: float) -> Iterator[Written]:
        """What each key holds, as the first member says that can be read; each may take its share of the time."""
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
        """Whether a consistent read succeeds on every living member within `timeout_s`."""
        if not self.has_quorum():
            return False
        deadline = clock.monotonic() + timeout_s

        def read(member: M) -> bool:
            while (left := deadline - clock.monotonic()) > 0:
                try:
                    member.read(max(left, 0.1))
                    return True
                except RunError:
                    clock.sleep(POLL_S)
            return False

        return all(self._pool.map(read, self.living()))
