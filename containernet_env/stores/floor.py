"""A request on an unloaded network, of which stores derive its least latency: ways there and back, and waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from containernet_env.model.scenario import Scenario
from containernet_env.model.topology import UnloadedNetwork


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a scenario from ``client`` to ``receiver``, one of ``members``, of which those in ``living`` answer.

    ``leader`` may be ``None`` for reads that involve none. ``sync_ns`` is how long each member takes for an fdatasync;
    needed for writes alone.
    """

    scenario: Scenario
    members: Sequence[str]
    living: Sequence[str]
    client: str
    receiver: str
    leader: str | None
    network: UnloadedNetwork
    sync_ns: Mapping[str, float]

    @property
    def followers_needed(self) -> int:
        """How many members complete a majority with the leader."""
        return len(self.members) // 2

    @property
    def written_bytes(self) -> int:
        """How long key and value of a write are together."""
        return key_bytes(self.scenario) + self.scenario.val_size

    def there_and_back_ns(self, a: str, b: str, message: int, answer: int) -> float:
        """From ``a`` sending ``message`` bytes to ``b`` until it has ``answer`` bytes of ``b``; 0 for one host."""
        if a == b:
            return 0.0
        return self.network.one_way_ns(a, b, message) + self.network.one_way_ns(b, a, answer)

    def client_ns(self, request: int, answer: int) -> float:
        """The client's own way to the member that gets its request, and back."""
        return self.there_and_back_ns(self.client, self.receiver, request, answer)

    def forwarded_ns(self, message: int, answer: int) -> float:
        """From the member that gets the request to the leader, and back; 0 without a leader."""
        return self.there_and_back_ns(self.receiver, self.leader or self.receiver, message, answer)

    def answered_ns(self, count: int, message: int, answer: int, sync_ns: Mapping[str, float]) -> float:
        """Until the leader has the answers of the ``count`` fastest others, each after its ``sync_ns``; 0 for none.

        Each gets a copy of its own over the leader's link. At best those of the needed ones go first, that of the
        farthest of them before all others.
        """
        others = [member for member in self.living if member != self.leader]
        if not count or not others or self.leader is None:
            return 0.0
        leader = self.leader
        alone_ns = sorted(
            self.there_and_back_ns(leader, member, message, answer) + sync_ns.get(member, 0.0) for member in others
        )[:count]
        copy_ns = self.network.sending_ns(leader, others[0], message)
        return max(ahead * copy_ns + ns for ahead, ns in enumerate(reversed(alone_ns)))


class WriteSizes(NamedTuple):
    """A put or a transaction: from the client and back, forwarded to the leader, and from the leader to a follower."""

    request: int
    answer: int
    forwarded: int
    copied: int


def key_bytes(scenario: Scenario) -> int:
    """How long a key of a scenario is."""
    return len(scenario.key_prefix) + scenario.key_size
