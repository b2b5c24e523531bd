"""The critical path of a request in Consul: what has to happen, one after the other, until its answer is there. Pure.

docs/stores.md derives it, with the places in Consul's and hashicorp/raft's source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from containernet_env.model.scenario import Scenario
from containernet_env.stores.consul.messages import SMALL, Sizes
from containernet_env.stores.protocol import OneWayTimes


class CriticalPath:
    """Least latencies of requests from ``client`` to ``members``, of which those in ``living`` answer.

    ``network`` gives one-way times, ``sync_ns`` how long each member's fdatasync takes, needed for writes alone, and
    ``syncs`` how many of them one write of the log takes.
    """

    def __init__(
        self,
        members: Sequence[str],
        living: Iterable[str],
        client: str,
        network: OneWayTimes,
        sync_ns: Mapping[str, float],
        syncs: int,
    ) -> None:
        self._needed = len(members) // 2
        self._living = tuple(living)
        self._client = client
        self._network = network
        self._log_ns = {member: syncs * ns for member, ns in sync_ns.items()}

    def shares(self, scenario: Scenario, asked: str, leader: str | None) -> Iterator[tuple[float, float]]:
        """The share and the least latency in ns of each operation of a scenario, where one member is asked."""
        put_ratio = float(not scenario.reads) if scenario.put_ratio is None else float(scenario.put_ratio)
        if put_ratio:
            assert leader is not None
            yield put_ratio, self.write_ns(asked, leader, Sizes.of_write(scenario))
        if put_ratio < 1:
            yield 1 - put_ratio, self.read_ns(scenario, asked, leader, Sizes.of_read(scenario))

    def write_ns(self, asked: str, leader: str, sizes: Sizes) -> float:
        """A put or a transaction: the leader writes its log first, and sends the entry to its followers only then."""
        agreed_ns = self._log_ns[leader] + self._quorum_ns(leader, sizes.append, self._log_ns)
        return self._client_ns(asked, sizes) + self._forward_ns(asked, leader, sizes) + agreed_ns

    def read_ns(self, scenario: Scenario, asked: str, leader: str | None, sizes: Sizes) -> float:
        """A read of one key: stale, the one that is asked answers; consistent, a quorum says that the leader leads."""
        latency_ns = self._client_ns(asked, sizes)
        if scenario.consistency == "s":
            return latency_ns
        assert leader is not None
        return latency_ns + self._forward_ns(asked, leader, sizes) + self._quorum_ns(leader, SMALL, {})

    def _client_ns(self, asked: str, sizes: Sizes) -> float:
        one_way = self._network.one_way_ns
        return one_way(self._client, asked, sizes.request) + one_way(asked, self._client, sizes.answer)

    def _forward_ns(self, asked: str, leader: str, sizes: Sizes) -> float:
        """An agent that does not lead asks the leader, and passes its answer on."""
        if asked == leader:
            return 0.0
        one_way = self._network.one_way_ns
        return one_way(asked, leader, sizes.forwarded) + one_way(leader, asked, sizes.forwarded_answer)

    def _quorum_ns(self, leader: str, message: int, log_ns: Mapping[str, float]) -> float:
        """Until the leader has the answers of as many followers as complete a majority with it; 0 for one member.

        Each follower gets a copy of its own over the leader's link. At best those of the needed ones go first, that of
        the farthest of them before all others.
        """
        if not self._needed:
            return 0.0
        one_way = self._network.one_way_ns
        followers = [member for member in self._living if member != leader]
        alone_ns = sorted(
            one_way(leader, member, message) + log_ns.get(member, 0.0) + one_way(member, leader, SMALL)
            for member in followers
        )[: self._needed]
        copy_ns = self._network.sending_ns(leader, followers[0], message)
        return max(ahead * copy_ns + ns for ahead, ns in enumerate(reversed(alone_ns)))
