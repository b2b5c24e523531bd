"""A running etcd cluster, seen from the driver: start it, wait for it, find the leader, report dead members.

Members are queried over their JSON gateway, through connections that cross no emulated link and add nothing to what is
measured.
"""

from __future__ import annotations

import base64
import errno
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from containernet_env.base.errors import RunError
from containernet_env.base.side_by_side import answers_within
from containernet_env.model.choices import ProfileKind
from containernet_env.model.leadership import Leadership
from containernet_env.stores.etcd import history
from containernet_env.stores.etcd.flags import CLIENT_PORT, PEER_PORT, client_endpoint
from containernet_env.stores.etcd.last_words import last_words
from containernet_env.stores.etcd.observation import EtcdObservation
from containernet_env.stores.etcd.profiling import EtcdProfiling
from containernet_env.stores.protocol import Broken, MemberPlace, Ping, Written

# PID 1 of the image waits on this FIFO and becomes etcd when a line arrives (etcd_image/start-etcd).
GATE = "run/gate"
# A key under which nothing is ever written: the linearizable read that proves a quorum answers.
PROBE_KEY = base64.b64encode(b"\x00containernet-env").decode()
_POLL_S = 0.05
# What a member asks its peers before it joins them (server/etcdserver, cluster_util.go).
_MEMBERS = "/members"
# For so long the others wait for the first one: 49 peers on links of 100 ms both ways have refused it by then.
_FIRST_TIMEOUT_S = 10.0
# A host that was started again has its gate within a moment.
_GATE_S = 20.0
# etcd's JSON gateway (server/etcdserver/api/v3rpc, rpc.proto).
_STATUS, _RANGE = "/v3/maintenance/status", "/v3/kv/range"
_MOVE_LEADER = "/v3/maintenance/transfer-leadership"
# The leader answers when the other one leads; one that takes longer is looked after and asked again.
_HAND_OVER_S = 2.0
# Answered by the member from memory (server/etcdserver/api/etcdhttp/version.go): no quorum, no disk.
_PING = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True)
class MemberStatus:
    """One member's own view: ids as etcd prints them (decimal text), `leader_id` "0" while it knows none."""

    member_id: str
    leader_id: str
    raft_term: int
    version: str


class Member:
    """One etcd member and the host it runs on."""

    def __init__(self, place: MemberPlace) -> None:
        self.place = place
        self.host = place.host
        self.name = place.host.name
        self.endpoint = client_endpoint(place.ip)
        self.peer_url = f"http://{place.ip}:{PEER_PORT}"
        self.connection = place.connection
        self._lock = threading.Lock()
        self._death: str | None = None
        self.expected = False

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
        """Open the gate: PID 1 of the host then becomes etcd. `deadline` is on the monotonic clock, seconds."""
        path = Path("/proc", str(self.host.pid), "root", GATE)
        while True:
            if not self.expected and (death := self.death()) is not None:
                raise RunError(f"the cluster did not start: {death}")
            try:
                gate = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                # ENXIO: nobody reads yet; ENOENT: the script has not made the FIFO yet.
                if error.errno not in (errno.ENXIO, errno.ENOENT) or time.monotonic() > deadline:
                    raise RunError(f"{self.name} did not wait at its gate: {error.strerror}\n{self.tail()}") from error
                time.sleep(_POLL_S / 5)
                continue
            os.write(gate, b"go\n")
            os.close(gate)
            return

    def status(self, timeout_s: float = 2.0) -> MemberStatus:
        """Query this member's state. Raises RunError where it does not answer."""
        answer = self.connection.request_json(CLIENT_PORT, "POST", _STATUS, {}, timeout_s=timeout_s)
        return MemberStatus(
            member_id=str(answer["header"]["member_id"]),
            leader_id=str(answer.get("leader", "0")),
            raft_term=int(answer.get("raftTerm", 0)),
            version=str(answer["version"]),
        )

    def knows_a_leader(self) -> bool:
        """Whether this member answers, and knows who leads."""
        try:
            return self.status().leader_id != "0"
        except RunError:
            return False

    def hand_over(self, member_id: str, timeout_s: float) -> None:
        """Have this member, which leads, make another one the leader. Raises RunError where it refuses or is silent."""
        self.connection.request_json(
            CLIENT_PORT, "POST", _MOVE_LEADER, {"targetID": member_id}, timeout_s=max(timeout_s, 0.1)
        )

    def serves_peers(self, timeout_s: float) -> bool:
        """Whether this member tells its peers who the members are."""
        try:
            self.connection.request_json(PEER_PORT, "GET", _MEMBERS, timeout_s=timeout_s)
        except RunError:
            return False
        return True

    def death(self) -> str | None:
        """Why this member is dead, in one line; None while it lives. The first answer is kept."""
        if self._death is None and (ending := self.host.ending(last_words)) is not None:
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


class EtcdCluster:
    """The members of one run, in config order."""

    def __init__(self, members: Sequence[Member], probe_key: str = PROBE_KEY) -> None:
        self.members = tuple(members)
        self._probe_key = probe_key
        self.quorum = len(self.members) // 2 + 1
        self._pool = ThreadPoolExecutor(max_workers=min(32, len(self.members)), thread_name_prefix="etcd")

    def close(self) -> None:
        """End the helper threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def start(self, timeout_s: float, broken: Broken = lambda: None) -> Leadership:
        """Start every member, wait until all answer and agree on a leader; return who leads.

        Raises RunError after `timeout_s`, or as soon as a member dies, with that member's last log lines; also as soon
        as `broken` gives a reason why the members cannot form a cluster, with that reason.
        """
        deadline = time.monotonic() + timeout_s
        # A member that starts asks its peers in the order of their URLs who the members are, until one answers, and
        # waits a second for each that listens and does not answer yet. So the first in that order starts before the
        # others: those that it asks refuse at once, and it answers all of them.
        first, *others = sorted(self.members, key=lambda member: member.peer_url)
        first.start(deadline)
        if others:
            self._wait_for_first(first, broken, min(deadline, time.monotonic() + _FIRST_TIMEOUT_S))
        list(self._pool.map(lambda member: member.start(deadline), others))
        while True:
            self._check_start(self.members, broken)
            leadership = self._leadership(self.statuses(), required=len(self.members))
            if leadership is not None:
                return leadership
            if time.monotonic() > deadline:
                raise RunError(self._not_ready(timeout_s))
            time.sleep(_POLL_S)

    def _wait_for_first(self, first: Member, broken: Broken, deadline: float) -> None:
        """Return once the member answers its peers; at the deadline in any case."""
        while not first.serves_peers(timeout_s=_POLL_S * 5) and time.monotonic() < deadline:
            self._check_start([first], broken)
            time.sleep(_POLL_S / 5)

    @staticmethod
    def _check_start(members: Sequence[Member], broken: Broken) -> None:
        """Raise RunError for a reason why a cluster of which these were started cannot form."""
        if (reason := broken()) is not None:
            raise RunError(reason)
        for member in members:
            if (death := member.death()) is not None:
                raise RunError(f"the cluster did not start: {death}")

    def _not_ready(self, timeout_s: float) -> str:
        silent = [member for member, status in self.statuses().items() if status is None]
        worst = silent[0] if silent else self.members[0]
        what = f"no answer from {', '.join(m.name for m in silent)}" if silent else "no leader that all members know"
        return f"the cluster was not ready after {timeout_s:g} s: {what}; last lines of {worst.name}:\n{worst.tail()}"

    def statuses(self) -> dict[Member, MemberStatus | None]:
        """Every member's state, queried in parallel; None where a member does not answer."""

        def ask(member: Member) -> MemberStatus | None:
            try:
                return member.status()
            except RunError:
                return None

        return dict(zip(self.members, self._pool.map(ask, self.members), strict=True))

    def leadership(self) -> Leadership | None:
        """See ``stores.protocol.Cluster``."""
        return self._leadership(self.statuses(), required=self.quorum)

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
        member.start(time.monotonic() + _GATE_S)
        while not member.knows_a_leader():
            reason = broken() or member.host.ending(last_words)
            if reason is not None:
                raise RunError(f"{member.name} did not rejoin: {reason}")
            time.sleep(_POLL_S)
        member.revive()

    def move_leader(self, name: str, timeout_s: float, broken: Broken = lambda: None) -> Leadership:
        """See ``stores.protocol.Cluster``."""
        wanted = self._member(name)
        deadline = time.monotonic() + timeout_s
        problem, moved = "no leader that all members know", False
        while (left := deadline - time.monotonic()) > 0:
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
                    self._member(found.leader).hand_over(self._id_of(wanted, statuses), min(left, _HAND_OVER_S))
                    continue
                except RunError as error:
                    problem = f"{found.leader} did not hand over: {error}"
            time.sleep(_POLL_S)
        raise RunError(f"{name} could not be made the leader within {timeout_s:g} s: {problem}")

    def _member(self, name: str) -> Member:
        return next(member for member in self.members if member.name == name)

    @staticmethod
    def _id_of(member: Member, statuses: Mapping[Member, MemberStatus | None]) -> str:
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

    @staticmethod
    def _leadership(statuses: Mapping[Member, MemberStatus | None], required: int) -> Leadership | None:
        """Who leads in the newest term, as so many members say at least."""
        answers = {member: status for member, status in statuses.items() if status is not None}
        if not answers:
            return None
        newest = max(status.raft_term for status in answers.values())
        named = [status.leader_id for status in answers.values() if status.raft_term == newest]
        by_id = {status.member_id: member for member, status in answers.items()}
        leader_id = max(set(named), key=named.count)
        if leader_id not in by_id or named.count(leader_id) < required:
            return None
        return Leadership(by_id[leader_id].name, newest)

    def version(self) -> str:
        """The version the first living member reports. Raises RunError where none answers."""
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

    def living(self) -> tuple[Member, ...]:
        """The members whose process still runs, in config order."""
        return tuple(member for member in self.members if member.death() is None)

    def has_quorum(self) -> bool:
        """Whether enough processes live for the cluster to be able to answer."""
        return len(self.living()) >= self.quorum

    def pings(self) -> dict[str, Ping]:
        """See ``stores.protocol.Cluster``."""
        return {member.name: Ping(member.connection, CLIENT_PORT, _PING) for member in self.living()}

    def observe(self) -> EtcdObservation:
        """See ``stores.protocol.Cluster``."""
        return EtcdObservation([member.place for member in self.living()])

    def profile(self, member: str, kinds: Sequence[ProfileKind]) -> EtcdProfiling | None:
        """See ``stores.protocol.Cluster``."""
        places = [living.place for living in self.living() if living.name == member]
        return EtcdProfiling(places[0], kinds) if places else None

    def revision(self) -> int:
        """See ``stores.protocol.Cluster``."""
        return history.revision(self._answering().connection)

    def written(self, prefix: str, since: int, timeout_s: float) -> Iterator[Written]:
        """See ``stores.protocol.Cluster``."""
        return history.events(self._answering().connection, prefix, since, timeout_s)

    def _answering(self) -> Member:
        """A member that answers. Raises RunError where none does."""
        for member, status in self.statuses().items():
            if status is not None and status.leader_id != "0":
                return member
        raise RunError("no member answers")

    def answers(self, timeout_s: float) -> bool:
        """Whether a linearizable read succeeds on every living member within `timeout_s`."""
        if not self.has_quorum():
            return False
        deadline = time.monotonic() + timeout_s

        def read(member: Member) -> bool:
            while (left := deadline - time.monotonic()) > 0:
                try:
                    member.connection.request_json(
                        CLIENT_PORT, "POST", _RANGE, {"key": self._probe_key}, timeout_s=max(left, 0.1)
                    )
                    return True
                except RunError:
                    time.sleep(_POLL_S)
            return False

        return all(self._pool.map(read, self.living()))
