"""The critical path of a request in ZooKeeper: what has to happen in turn until its answer is there. Pure.

docs/stores.md derives it, with the places in ZooKeeper's source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from containernet_env.model.scenario import Scenario
from containernet_env.stores.protocol import OneWayTimes
from containernet_env.stores.zookeeper.messages import (
    ACK,
    COMMIT,
    SYNC_ANSWER,
    ReadSizes,
    WriteSizes,
    sync_request,
)


class CriticalPath:
    """Least latencies of requests from ``client`` to a cluster of ``members``, of which those in ``living`` answer.

    ``network`` gives one-way times, ``sync_ns`` how long each member's fdatasync takes; it is needed for writes alone.
    ``forced``: whether members sync their log before they acknowledge (``forceSync``).
    """

    def __init__(
        self,
        members: Sequence[str],
        living: Iterable[str],
        client: str,
        network: OneWayTimes,
        sync_ns: Mapping[str, float],
        *,
        forced: bool = True,
    ) -> None:
        self._quorum = len(members) // 2 + 1
        self._living = tuple(living)
        self._client = client
        self._network = network
        self._sync_ns = sync_ns if forced else dict.fromkeys(members, 0.0)

    def shares(self, scenario: Scenario, asked: str, leader: str | None) -> Iterator[tuple[float, float]]:
        """See ``stores.protocol.LeastLatencies``. ``leader`` is not needed for serializable reads."""
        put_ratio = float(not scenario.reads) if scenario.put_ratio is None else float(scenario.put_ratio)
        if put_ratio:
            assert leader is not None
            yield put_ratio, self.write_ns(asked, leader, WriteSizes.of(scenario))
        if put_ratio < 1:
            synced_with = None if scenario.consistency == "s" else leader
            yield 1 - put_ratio, self.read_ns(asked, synced_with, ReadSizes.of(scenario))

    def write_ns(self, asked: str, leader: str, sizes: WriteSizes) -> float:
        """A write that ``asked`` gets.

        The leader proposes it and logs it itself at the same time; it commits once a majority has logged it, whether or
        not it is one of them. A follower answers when it hears of the commit, whether or not its own sync is over.
        """
        one_way = self._network.one_way_ns
        latency_ns = one_way(self._client, asked, sizes.request) + one_way(asked, self._client, sizes.answer)
        latency_ns += self._agreed_ns(leader, sizes.proposal)
        if asked == leader:
            return latency_ns
        return latency_ns + one_way(asked, leader, sizes.forwarded) + one_way(leader, asked, COMMIT)

    def read_ns(self, asked: str, leader: str | None, sizes: ReadSizes) -> float:
        """A read that ``asked`` gets: of its own state, after a way to ``leader`` and back where there is one to ask.

        A leader that is asked answers at once: ``sync`` is no question to the majority.
        """
        one_way = self._network.one_way_ns
        latency_ns = one_way(self._client, asked, sizes.request) + one_way(asked, self._client, sizes.answer)
        if leader is None or asked == leader:
            return latency_ns
        return latency_ns + one_way(asked, leader, sync_request()) + one_way(leader, asked, SYNC_ANSWER)

    def _agreed_ns(self, leader: str, proposal: int) -> float:
        """Until as many members have logged a proposal as are a majority, and the leader knows.

        Each follower gets a copy of its own over the leader's link. At best those of the needed ones go first, that of
        the farthest of them before all others.
        """
        one_way, sync_ns = self._network.one_way_ns, self._sync_ns
        followers = [member for member in self._living if member != leader]
        logged_ns = sorted(
            one_way(leader, member, proposal) + sync_ns[member] + one_way(member, leader, ACK) for member in followers
        )
        copy_ns = self._network.sending_ns(leader, followers[0], proposal) if followers else 0.0

        def by_followers(count: int) -> float:
            needed = reversed(logged_ns[:count])
            return max((ahead * copy_ns + ns for ahead, ns in enumerate(needed)), default=0.0)

        with_leader = max(sync_ns[leader], by_followers(self._quorum - 1))
        if len(followers) < self._quorum:
            return with_leader
        return min(with_leader, by_followers(self._quorum))
