"""The critical path of a request to replicas: what has to happen until its answer is there. Pure.

Sizes are least ones: keys and values, and the fixed text of a request and an answer of a client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from containernet_env.model.scenario import Scenario
from containernet_env.stores.protocol import OneWayTimes

_REQUEST = len("GET /v0/entity?id= HTTP/1.1\r\nHost: 1.1.1.1:8080\r\n\r\n")
_ANSWER = len("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nDate: Mon, 23 Nov 2026 03:05:16 GMT\r\n\r\n")
_SMALL = 1


class CriticalPath:
    """Least latencies of requests from ``client`` where ``ack`` replicas acknowledge a write and ``read`` are asked.

    ``sync_ns`` is how long each member's fdatasync takes; it is needed for writes alone.
    """

    def __init__(
        self,
        living: Sequence[str],
        client: str,
        network: OneWayTimes,
        sync_ns: Mapping[str, float],
        ack: int,
        read: int,
    ) -> None:
        self._living = tuple(living)
        self._client = client
        self._network = network
        self._sync_ns = sync_ns
        self._ack = ack
        self._read = read

    def shares(self, scenario: Scenario, asked: str, leader: str | None) -> Iterator[tuple[float, float]]:
        """The share and the least latency in ns of each operation of a scenario, coordinated by ``asked``."""
        put_ratio = float(not scenario.reads) if scenario.put_ratio is None else float(scenario.put_ratio)
        key, value = len(scenario.key_prefix) + scenario.key_size, scenario.val_size
        if put_ratio:
            yield put_ratio, self._client_ns(asked, _REQUEST + key + value, _ANSWER) + self._acks_ns(asked, key + value)
        if put_ratio < 1:
            answered_ns = self._client_ns(asked, _REQUEST + key, _ANSWER + value)
            yield 1 - put_ratio, answered_ns + self._answers_ns(asked, key, value)

    def _client_ns(self, asked: str, request: int, answer: int) -> float:
        one_way = self._network.one_way_ns
        return one_way(self._client, asked, request) + one_way(asked, self._client, answer)

    def _acks_ns(self, asked: str, size: int) -> float:
        """A write goes to all replicas, and ends with the ack that is the last one needed; its own is one of them."""
        one_way = self._network.one_way_ns
        acks_ns = sorted(
            self._sync_ns[name] + (0.0 if name == asked else one_way(asked, name, size) + one_way(name, asked, _SMALL))
            for name in self._living
        )
        return acks_ns[min(self._ack, len(acks_ns)) - 1]

    def _answers_ns(self, asked: str, key: int, value: int) -> float:
        """A read asks no more replicas than it needs, those that come after it in the topology, and waits for all."""
        one_way = self._network.one_way_ns
        at = self._living.index(asked)
        others = [
            self._living[(at + step) % len(self._living)] for step in range(1, min(self._read, len(self._living)))
        ]
        return max((one_way(asked, name, key) + one_way(name, asked, value) for name in others), default=0.0)
