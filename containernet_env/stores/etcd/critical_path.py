"""The critical path of a request in etcd: what has to happen, one after the other, until its answer is there. Pure.

docs/floor.md derives it, with the places in etcd's and raft's source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from containernet_env.model.scenario import Scenario
from containernet_env.stores.etcd.messages import (
    APPEND_ANSWER,
    COMMIT,
    HEARTBEAT,
    HEARTBEAT_ANSWER,
    READ_INDEX,
    READ_INDEX_ANSWER,
    ReadSizes,
    WriteSizes,
)
from containernet_env.stores.protocol import OneWayTimes


class CriticalPath:
    """Least latencies of requests from ``client`` to a cluster of ``members``, of which those in ``living`` answer.

    ``network`` gives one-way times, ``sync_ns`` how long each member's fdatasync takes; it is needed for writes alone.
    """

    def __init__(
        self,
        members: Sequence[str],
        living: Iterable[str],
        client: str,
        network: OneWayTimes,
        sync_ns: Mapping[str, float],
    ) -> None:
        self._needed = len(members) // 2
        self._living = tuple(living)
        self._client = client
        self._network = network
        self._sync_ns = sync_ns

    def shares(self, scenario: Scenario, asked: str, leader: str | None) -> Iterator[tuple[float, float]]:
        """The share and the least latency in ns of each operation of a scenario, where one member is asked.

        ``leader`` is not needed for serializable reads.
        """
        put_ratio = float(not scenario.reads) if scenario.put_ratio is None else float(scenario.put_ratio)
        if put_ratio:
            assert leader is not None
            yield put_ratio, self.write_ns(asked, leader, WriteSizes.of(scenario))
        if put_ratio < 1:
            agreed_by = None if scenario.consistency == "s" else leader
            yield 1 - put_ratio, self.read_ns(asked, agreed_by, ReadSizes.of(scenario))

    def write_ns(self, asked: str, leader: str, sizes: WriteSizes) -> float:
        """A put or a transaction that ``asked`` gets.

        The leader syncs its log while the followers sync theirs. A follower that was asked hears of the commit with the
        leader's next message, and answers no sooner than its own sync is over.
        """
        one_way, sync_ns = self._network.one_way_ns, self._sync_ns
        latency_ns = one_way(self._client, asked, sizes.request) + one_way(asked, self._client, sizes.answer)
        agreed_ns = max(sync_ns[leader], self._quorum_ns(leader, sizes.append, APPEND_ANSWER, sync_ns))
        if asked == leader:
            return latency_ns + agreed_ns
        heard_ns = agreed_ns + one_way(leader, asked, COMMIT)
        synced_ns = one_way(leader, asked, sizes.append) + sync_ns[asked]
        return latency_ns + one_way(asked, leader, sizes.proposal) + max(heard_ns, synced_ns)

    def read_ns(self, asked: str, leader: str | None, sizes: ReadSizes) -> float:
        """A range that ``asked`` gets: linearizable as agreed by ``leader``, or serializable without one.

        The leader makes sure that it still leads by a round of heartbeats; a follower asks it for the index to read at.
        """
        one_way = self._network.one_way_ns
        latency_ns = one_way(self._client, asked, sizes.request) + one_way(asked, self._client, sizes.answer)
        if leader is None:
            return latency_ns
        latency_ns += self._quorum_ns(leader, HEARTBEAT, HEARTBEAT_ANSWER, {})
        if asked == leader:
            return latency_ns
        return latency_ns + one_way(asked, leader, READ_INDEX) + one_way(leader, asked, READ_INDEX_ANSWER)

    def _quorum_ns(self, leader: str, message: int, answer: int, sync_ns: Mapping[str, float]) -> float:
        """Until the leader has the answers of as many followers as complete a majority with it; 0 for one member.

        Each follower gets a copy of its own over the leader's link. At best those of the needed ones go first, that of
        the farthest of them before all others.
        """
        if not self._needed:
            return 0.0
        one_way = self._network.one_way_ns
        followers = [member for member in self._living if member != leader]
        alone_ns = sorted(
            one_way(leader, member, message) + sync_ns.get(member, 0.0) + one_way(member, leader, answer)
            for member in followers
        )[: self._needed]
        copy_ns = self._network.sending_ns(leader, followers[0], message)
        return max(ahead * copy_ns + ns for ahead, ns in enumerate(reversed(alone_ns)))
