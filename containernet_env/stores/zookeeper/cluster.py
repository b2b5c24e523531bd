"""A running ZooKeeper cluster, seen from the driver: who leads, who is in sync, who is dead.

Members are asked with four-letter words. Followers do not tell whom they follow: the leader is the member that says so
of itself in the newest epoch, while enough others say that they follow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from containernet_env.base.errors import RunError
from containernet_env.model.usage import Leadership
from containernet_env.stores.members import ASK_S, Member, MemberCluster, MemberStatus
from containernet_env.stores.protocol import Written
from containernet_env.stores.zookeeper.log import last_words
from containernet_env.stores.zookeeper.observation import ZooKeeperObservation
from containernet_env.stores.zookeeper.session import consistent_read, values
from containernet_env.stores.zookeeper.settings import CLIENT_PORT
from containernet_env.stores.zookeeper.words import PING, MemberState, ask, parse_mntr, parse_srvr

_FOLLOWS = ""
"""What a member names as its leader that follows one: it does not tell which."""


class ZooKeeperMember(Member):
    """One ZooKeeper member and the host it runs on."""

    client_port = CLIENT_PORT
    ping_request = PING
    last_words = staticmethod(last_words)

    def state(self, timeout_s: float = ASK_S) -> MemberState:
        """What it says of itself. Raises RunError where it does not answer, or has found no quorum."""
        return parse_srvr(ask(self.connection, "srvr", timeout_s))

    def status(self, timeout_s: float = ASK_S) -> MemberStatus:
        """See ``Member``."""
        state = self.state(timeout_s)
        leader = _FOLLOWS if state.mode == "follower" else self.name
        return MemberStatus(self.name, leader, state.epoch, state.version)

    def has_started(self) -> bool:
        """See ``Member``: a member without a leader answers this query, too."""
        try:
            return bool(ask(self.connection, PING.decode(), ASK_S))
        except RunError:
            return False

    def read(self, timeout_s: float) -> None:
        """See ``Member``."""
        consistent_read(self.connection, timeout_s)

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        """See ``Member``."""
        return values(self.connection, keys, timeout_s)

    def followers_in_sync(self, timeout_s: float = ASK_S) -> int:
        """How many followers of this member, which leads, have all that it has. Raises RunError."""
        return int(parse_mntr(ask(self.connection, "mntr", timeout_s)).get("synced_followers", 0))


class ZooKeeperCluster(MemberCluster[ZooKeeperMember]):
    """The members of one run, in config order."""

    def _leadership(self, statuses: Mapping[ZooKeeperMember, MemberStatus | None], required: int) -> Leadership | None:
        answers = [status for status in statuses.values() if status is not None]
        leading = [status for status in answers if status.leader_id == status.member_id]
        following = sum(status.leader_id == _FOLLOWS for status in answers)
        if not leading or 1 + following < required:
            return None
        newest = max(leading, key=lambda status: status.raft_term)
        return Leadership(newest.member_id, newest.raft_term)

    def _is_ready(self, statuses: Mapping[ZooKeeperMember, MemberStatus | None]) -> bool:
        found = self._leadership(statuses, required=len(self.members))
        if found is None:
            return False
        try:
            return self._member(found.leader).followers_in_sync() >= len(self.members) - 1
        except RunError:
            return False

    def observe(self) -> ZooKeeperObservation:
        """See ``stores.protocol.Cluster``."""
        return ZooKeeperObservation([member.place for member in self.living()])
