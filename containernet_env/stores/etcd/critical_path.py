"""The critical path of a request in etcd: what has to happen, one after the other, until its answer is there. Pure.

docs/floor.md derives it, with the places in etcd's and raft's source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from containernet_env.model.scenario import Scenario
from containernet_env.stores.critical_path import Deployment, put_share
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


class CriticalPath:
    """Least latencies of requests to a cluster."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def shares(self, scenario: Scenario, asked: str, leader: str | None) -> Iterator[tuple[float, float]]:
        """The share and the least latency in ns of each operation of a scenario, where one member is asked.

        ``leader`` is not needed for serializable reads.
        """
        writes = put_share(scenario)
        if writes:
            assert leader is not None
            yield writes, self.write_ns(asked, leader, WriteSizes.of(scenario))
        if writes < 1:
            agreed_by = None if scenario.consistency == "s" else leader
            yield 1 - writes, self.read_ns(asked, agreed_by, ReadSizes.of(scenario))

    def write_ns(self, asked: str, leader: str, sizes: WriteSizes) -> float:
        """A put or a transaction that ``asked`` gets.

        The leader syncs its log while the followers sync theirs. A follower that was asked hears of the commit with the
        leader's next message, and answers no sooner than its own sync is over.
        """
        one_way, sync_ns = self._deployment.network.one_way_ns, self._deployment.sync_ns
        latency_ns = self._deployment.client_ns(asked, sizes.request, sizes.answer)
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
        latency_ns = self._deployment.client_ns(asked, sizes.request, sizes.answer)
        if leader is None:
            return latency_ns
        latency_ns += self._quorum_ns(leader, HEARTBEAT, HEARTBEAT_ANSWER, {})
        return latency_ns + self._deployment.there_and_back_ns(asked, leader, READ_INDEX, READ_INDEX_ANSWER)

    def _quorum_ns(self, leader: str, message: int, answer: int, sync_ns: Mapping[str, float]) -> float:
        """Until the leader has the answers of as many followers as complete a majority with it; 0 for one member."""
        needed = len(self._deployment.members) // 2
        return self._deployment.answered_ns(leader, needed, message, answer, sync_ns)
