"""A running etcd cluster, seen from the driver; members are queried over their JSON gateway."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.work import persistently
from containernet_env.model.backends import ProfileKind
from containernet_env.stores import members
from containernet_env.stores.etcd import history
from containernet_env.stores.etcd.flags import CLIENT_PORT, PEER_PORT
from containernet_env.stores.etcd.last_words import last_words
from containernet_env.stores.etcd.observation import EtcdObservation
from containernet_env.stores.etcd.profiling import EtcdProfiling
from containernet_env.stores.members import ASK_S, POLL_S, MemberCluster, MemberStatus
from containernet_env.stores.protocol import Broken, MemberPlace, OwnHistory

# A key under which nothing is ever written: the linearizable read that proves a quorum answers.
PROBE_KEY = base64.b64encode(b"\x00containernet-env").decode()
# What a member asks its peers before it joins them (server/etcdserver, cluster_util.go).
_MEMBERS = "/members"
# For so long the others wait for the first one, and a round trip for each: 49 peers on links of 100 ms both ways have
# refused it by then.
_FIRST_TIMEOUT_S = 10.0
# etcd's JSON gateway (server/etcdserver/api/v3rpc, rpc.proto); "0" is the leader of a member that knows none.
_STATUS, _RANGE = "/v3/maintenance/status", "/v3/kv/range"
_MOVE_LEADER = "/v3/maintenance/transfer-leadership"
_NO_LEADER = "0"
# Answered by the member from memory (server/etcdserver/api/etcdhttp/version.go): no quorum, no disk.
_PING = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Member(members.Member):
    """One etcd member and the host it runs on."""

    client_port = CLIENT_PORT
    ping_request = _PING
    last_words = staticmethod(last_words)

    probe_key = PROBE_KEY

    def __init__(self, place: MemberPlace) -> None:
        super().__init__(place)
        self.peer_url = f"http://{place.ip}:{PEER_PORT}"

    def status(self, timeout_s: float = ASK_S) -> MemberStatus:
        """See ``members.Member``."""
        answer = self.connection.request_json(CLIENT_PORT, "POST", _STATUS, {}, timeout_s=timeout_s)
        try:
            leader_id = str(answer.get("leader", _NO_LEADER))
            return MemberStatus(
                member_id=str(answer["header"]["member_id"]),
                leader_id=None if leader_id == _NO_LEADER else leader_id,
                raft_term=int(answer.get("raftTerm", 0)),
                version=str(answer["version"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{self.name} does not say who leads: is it a member of etcd?") from error

    def read(self, timeout_s: float) -> None:
        """See ``members.Member``."""
        self.connection.request_json(CLIENT_PORT, "POST", _RANGE, {"key": self.probe_key}, timeout_s=timeout_s)

    def hand_over(self, member_id: str, timeout_s: float) -> None:
        """See ``members.Member``."""
        self.connection.request_json(
            CLIENT_PORT, "POST", _MOVE_LEADER, {"targetID": member_id}, timeout_s=max(timeout_s, 0.1)
        )

    def has_started(self) -> bool:
        """See ``members.Member``: it serves clients once it has told a leader of itself, and peers before."""
        return self.serves_peers(ASK_S)

    def serves_peers(self, timeout_s: float) -> bool:
        """Whether this member tells its peers who the members are."""
        try:
            self.connection.request_json(PEER_PORT, "GET", _MEMBERS, timeout_s=timeout_s)
        except RunError:
            return False
        return True


class EtcdCluster(MemberCluster[Member]):
    """See ``stores.protocol.Cluster``."""

    def _open_gates(self, deadline: float, broken: Broken) -> None:
        # A member that starts asks its peers in the order of their URLs who the members are, until one answers, and
        # waits a second for each that listens and does not answer yet. So the first in that order starts before the
        # others: those that it asks refuse at once, and it answers all of them.
        first, *others = sorted(self.members, key=lambda member: member.peer_url)
        first.start(deadline)
        if others:
            first_s = _FIRST_TIMEOUT_S + len(others) * self.waits.rtt_s
            self._wait_for_first(first, broken, min(deadline, clock.monotonic() + first_s))
        list(self._pool.map(lambda member: member.start(deadline), others))

    def _wait_for_first(self, first: Member, broken: Broken, deadline: float) -> None:
        """Return once the member answers its peers; at the deadline in any case."""
        while not first.serves_peers(timeout_s=POLL_S * 5) and clock.monotonic() < deadline:
            self._check_start([first], broken)
            clock.sleep(POLL_S / 5)

    def observe(self) -> EtcdObservation:
        """See ``stores.protocol.Cluster``."""
        return EtcdObservation([member.place for member in self.living()])

    def profile(self, member: str, kinds: Sequence[ProfileKind]) -> EtcdProfiling | None:
        """See ``stores.protocol.Cluster``."""
        places = [living.place for living in self.living() if living.name == member]
        return EtcdProfiling(places[0], kinds) if places else None

    def revision(self) -> int:
        """See ``stores.protocol.Cluster``."""
        timeout_s = self.ask_s + history.ASK_S
        return persistently(
            lambda: history.revision(self._answering().connection, timeout_s=timeout_s), self.patience_s
        )

    def written(self, prefix: str, since: int, keys: Collection[str], timeout_s: float) -> OwnHistory:
        """See ``stores.protocol.Cluster``."""
        answering = persistently(self._answering, self.patience_s)
        return OwnHistory(history.events(answering.connection, prefix, since, timeout_s))

    def _answering(self) -> Member:
        """A member that answers. Raises RunError where none does."""
        for member, status in self.statuses().items():
            if status is not None and status.leader_id is not None:
                return member
        raise RunError("no member answers")
