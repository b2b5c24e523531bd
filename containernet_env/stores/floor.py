"""The parts of all stores' critical paths: ways there and back, and waiting for some of the members. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from containernet_env.model.scenario import Scenario


class OneWayTimes(Protocol):
    """The time that a message takes between two hosts, in ns; ``model.transfer`` has the unloaded network's."""

    def one_way_ns(self, a: str, b: str, payload_bytes: int) -> float:
        """From ``a`` sending so many bytes of a TCP stream to ``b`` having them all."""

    def sending_ns(self, a: str, b: str, payload_bytes: int) -> float:
        """How long they occupy the first link on that way."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where requests of ``client`` go: to ``members``, of which those in ``living`` answer, over ``network``.

    ``sync_ns`` is how long each member takes for an fdatasync; needed for writes alone.
    """

    members: Sequence[str]
    living: Sequence[str]
    client: str
    network: OneWayTimes
    sync_ns: Mapping[str, float]

    def there_and_back_ns(self, a: str, b: str, message: int, answer: int) -> float:
        """From ``a`` sending ``message`` bytes to ``b`` until it has ``answer`` bytes of ``b``; 0 for one host."""
        if a == b:
            return 0.0
        return self.network.one_way_ns(a, b, message) + self.network.one_way_ns(b, a, answer)

    def client_ns(self, receiver: str, request: int, answer: int) -> float:
        """The client's own way to the member that gets its request, and back."""
        return self.there_and_back_ns(self.client, receiver, request, answer)

    def answered_ns(self, sender: str, count: int, message: int, answer: int, sync_ns: Mapping[str, float]) -> float:
        """Until ``sender`` has the answers of the ``count`` fastest others, each after its ``sync_ns``; 0 for none.

        Each gets a copy of its own over the sender's link. At best those of the needed ones go first, that of the
        farthest of them before all others.
        """
        others = [member for member in self.living if member != sender]
        if not count or not others:
            return 0.0
        alone_ns = sorted(
            self.there_and_back_ns(sender, member, message, answer) + sync_ns.get(member, 0.0) for member in others
        )[:count]
        copy_ns = self.network.sending_ns(sender, others[0], message)
        return max(ahead * copy_ns + ns for ahead, ns in enumerate(reversed(alone_ns)))


class CriticalPath(ABC):
    """The sequential steps until a request is answered, and the least time that they take.

    ``receiver`` is the member that gets the request. ``leader`` may be ``None`` for reads that involve none.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def shares(self, scenario: Scenario, receiver: str, leader: str | None) -> Iterator[tuple[float, float]]:
        """For each kind of operation of a scenario its share, and its least latency in ns."""
        writes = float(not scenario.reads) if scenario.put_ratio is None else float(scenario.put_ratio)
        if writes:
            yield writes, self.write_ns(scenario, receiver, leader)
        if writes < 1:
            yield 1 - writes, self.read_ns(scenario, receiver, leader)

    @abstractmethod
    def write_ns(self, scenario: Scenario, receiver: str, leader: str | None) -> float:
        """A put or a transaction."""

    @abstractmethod
    def read_ns(self, scenario: Scenario, receiver: str, leader: str | None) -> float:
        """A read."""


def key_bytes(scenario: Scenario) -> int:
    """How long a key of a scenario is."""
    return len(scenario.key_prefix) + scenario.key_size
