"""The least latency of a request to a service of which only URLs are known: the client's way there and back. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from containernet_env.model.config import HttpService
from containernet_env.model.scenario import Scenario
from containernet_env.stores.critical_path import Deployment, put_share

_REQUEST = len("GET  HTTP/1.1\r\nHost: 1.1.1.1:80\r\n\r\n")
_ANSWER = len("HTTP/1.1 200 OK\r\n\r\n")


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """What members tell each other, and what they wait for, is not known: they are taken to answer at once."""

    deployment: Deployment
    service: HttpService

    def shares(self, scenario: Scenario, asked: str, leader: str | None) -> Iterator[tuple[float, float]]:
        """The share and the least latency in ns of each operation of a scenario; sizes are least ones."""
        writes = put_share(scenario)
        key, value = len(scenario.key_prefix) + scenario.key_size - len("{key}"), scenario.val_size
        if writes:
            yield writes, self._there_and_back_ns(asked, len(self.service.put) + key + value, 0)
        if writes < 1:
            yield 1 - writes, self._there_and_back_ns(asked, len(self.service.get) + key, value)

    def _there_and_back_ns(self, asked: str, request: int, answer: int) -> float:
        return self.deployment.client_ns(asked, _REQUEST + request, _ANSWER + answer)
