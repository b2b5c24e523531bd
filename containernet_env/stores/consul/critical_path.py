"""The critical path of a request in Consul: what has to happen, one after the other, until its answer is there. Pure.

docs/stores.md derives it, with the places in Consul's and hashicorp/raft's source.
"""

from __future__ import annotations

from collections.abc import Iterator

from containernet_env.model.scenario import Scenario
from containernet_env.stores.consul.messages import SMALL, Sizes
from containernet_env.stores.critical_path import Deployment, put_share


class CriticalPath:
    """Least latencies of requests to a cluster; ``syncs`` is how many syncs one write of the log takes."""

    def __init__(self, deployment: Deployment, syncs: int) -> None:
        self._deployment = deployment
        self._log_ns = {member: syncs * ns for member, ns in deployment.sync_ns.items()}

    def shares(self, scenario: Scenario, asked: str, leader: str | None) -> Iterator[tuple[float, float]]:
        """The share and the least latency in ns of each operation of a scenario, where one member is asked."""
        writes = put_share(scenario)
        if writes:
            assert leader is not None
            yield writes, self.write_ns(asked, leader, Sizes.of_write(scenario))
        if writes < 1:
            yield 1 - writes, self.read_ns(scenario, asked, leader, Sizes.of_read(scenario))

    def write_ns(self, asked: str, leader: str, sizes: Sizes) -> float:
        """A put or a transaction: the leader writes its log first, and sends the entry to its followers only then."""
        quorum = len(self._deployment.members) // 2
        copied_ns = self._deployment.answered_ns(leader, quorum, sizes.append, SMALL, self._log_ns)
        agreed_ns = self._log_ns[leader] + copied_ns
        return self._client_ns(asked, sizes) + self._forward_ns(asked, leader, sizes) + agreed_ns

    def read_ns(self, scenario: Scenario, asked: str, leader: str | None, sizes: Sizes) -> float:
        """A read of one key.

        Stale, the one that is asked answers; otherwise the leader. A consistent read waits until a quorum has answered
        heartbeats; those that were sent before it count, so at best it need not wait.
        """
        latency_ns = self._client_ns(asked, sizes)
        if scenario.consistency == "s":
            return latency_ns
        assert leader is not None
        return latency_ns + self._forward_ns(asked, leader, sizes)

    def _client_ns(self, asked: str, sizes: Sizes) -> float:
        return self._deployment.client_ns(asked, sizes.request, sizes.answer)

    def _forward_ns(self, asked: str, leader: str, sizes: Sizes) -> float:
        """An agent that does not lead asks the leader, and passes its answer on."""
        return self._deployment.there_and_back_ns(asked, leader, sizes.forwarded, sizes.forwarded_answer)
