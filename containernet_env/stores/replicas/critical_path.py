"""The critical path of a request to replicas: what has to happen until its answer is there. Pure.

Sizes are least ones: keys and values, and the fixed text of a request and an answer of a client.
"""

from __future__ import annotations

from collections.abc import Iterator

from containernet_env.model.scenario import Scenario
from containernet_env.stores.critical_path import Deployment, put_share

_REQUEST = len("GET /v0/entity?id= HTTP/1.1\r\nHost: 1.1.1.1:8080\r\n\r\n")
_ANSWER = len("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nDate: Mon, 23 Nov 2026 03:05:16 GMT\r\n\r\n")
_SMALL = 1


class CriticalPath:
    """Least latencies of requests where ``ack`` replicas acknowledge a write and ``read`` are asked."""

    def __init__(self, deployment: Deployment, ack: int, read: int) -> None:
        self._deployment = deployment
        self._ack = ack
        self._read = read

    def shares(self, scenario: Scenario, asked: str, leader: str | None) -> Iterator[tuple[float, float]]:
        """The share and the least latency in ns of each operation of a scenario, coordinated by ``asked``."""
        client_ns = self._deployment.client_ns
        writes = put_share(scenario)
        key, value = len(scenario.key_prefix) + scenario.key_size, scenario.val_size
        if writes:
            yield writes, client_ns(asked, _REQUEST + key + value, _ANSWER) + self._acks_ns(asked, key + value)
        if writes < 1:
            yield 1 - writes, client_ns(asked, _REQUEST + key, _ANSWER + value) + self._answers_ns(asked, key, value)

    def _acks_ns(self, asked: str, size: int) -> float:
        """A write goes to all replicas, and ends with the ack that is the last one needed; its own is one of them."""
        deployment = self._deployment
        acks_ns = sorted(
            deployment.sync_ns[name] + deployment.there_and_back_ns(asked, name, size, _SMALL)
            for name in deployment.living
        )
        return acks_ns[min(self._ack, len(acks_ns)) - 1]

    def _answers_ns(self, asked: str, key: int, value: int) -> float:
        """A read asks no more replicas than it needs, those that come after it in the topology, and waits for all."""
        living = self._deployment.living
        at = living.index(asked)
        others = [living[(at + step) % len(living)] for step in range(1, min(self._read, len(living)))]
        return max((self._deployment.there_and_back_ns(asked, name, key, value) for name in others), default=0.0)
