"""The critical path of a request in ZooKeeper: what has to happen in turn until its answer is there. Pure.

docs/stores.md derives it, with the places in ZooKeeper's source.
"""

from __future__ import annotations

from collections.abc import Iterator

from containernet_env.model.scenario import Scenario
from containernet_env.stores.critical_path import Deployment, put_share
from containernet_env.stores.zookeeper.messages import (
    ACK,
    COMMIT,
    SYNC_ANSWER,
    ReadSizes,
    WriteSizes,
    sync_request,
)


class CriticalPath:
    """Least latencies of requests to a cluster.

    ``forced``: whether members sync their log before they acknowledge (``forceSync``).
    """

    def __init__(self, deployment: Deployment, *, forced: bool = True) -> None:
        self._deployment = deployment
        self._sync_ns = deployment.sync_ns if forced else dict.fromkeys(deployment.members, 0.0)

    def shares(self, scenario: Scenario, asked: str, leader: str | None) -> Iterator[tuple[float, float]]:
        """See ``stores.protocol.LeastLatencies``. ``leader`` is not needed for serializable reads."""
        writes = put_share(scenario)
        if writes:
            assert leader is not None
            yield writes, self.write_ns(asked, leader, WriteSizes.of(scenario))
        if writes < 1:
            synced_with = None if scenario.consistency == "s" else leader
            yield 1 - writes, self.read_ns(asked, synced_with, ReadSizes.of(scenario))

    def write_ns(self, asked: str, leader: str, sizes: WriteSizes) -> float:
        """A write that ``asked`` gets.

        The leader proposes it and logs it itself at the same time; it commits once a majority has logged it, whether or
        not it is one of them. A follower answers when it hears of the commit, whether or not its own sync is over.
        """
        latency_ns = self._deployment.client_ns(asked, sizes.request, sizes.answer)
        forwarded_ns = self._deployment.there_and_back_ns(asked, leader, sizes.forwarded, COMMIT)
        return latency_ns + forwarded_ns + self._agreed_ns(leader, sizes.proposal)

    def read_ns(self, asked: str, leader: str | None, sizes: ReadSizes) -> float:
        """A read that ``asked`` gets: of its own state, after a way to ``leader`` and back where there is one to ask.

        A leader that is asked answers at once: ``sync`` is no question to the majority.
        """
        latency_ns = self._deployment.client_ns(asked, sizes.request, sizes.answer)
        if leader is None:
            return latency_ns
        return latency_ns + self._deployment.there_and_back_ns(asked, leader, sync_request(), SYNC_ANSWER)

    def _agreed_ns(self, leader: str, proposal: int) -> float:
        """Until as many members have logged a proposal as are a majority, and the leader knows."""
        quorum = len(self._deployment.members) // 2 + 1

        def by_followers(count: int) -> float:
            return self._deployment.answered_ns(leader, count, proposal, ACK, self._sync_ns)

        with_leader = max(self._sync_ns[leader], by_followers(quorum - 1))
        if len(self._deployment.living) - 1 < quorum:
            return with_leader
        return min(with_leader, by_followers(quorum))
