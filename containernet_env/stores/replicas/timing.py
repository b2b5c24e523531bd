"""For how long replicas wait for each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from containernet_env.model.topology import RttExpectation

# The service's own default, and as for the elections of other stores: a silence of ten round trips is none of the
# network.
_TIMEOUT_MS, _PER_RTT = 1000, 10


@dataclass(frozen=True, slots=True)
class ReplicasTiming:
    """Implements ``stores.protocol.Timing``; there are neither heartbeats nor elections."""

    timeout_ms: int

    @classmethod
    def for_rtt(cls, largest: RttExpectation | None) -> ReplicasTiming:
        """The larger of a second and ten of the largest RTTs."""
        rtt_ms = -(-largest.expected_ns // 10**6) if largest else 0
        return cls(max(_TIMEOUT_MS, _PER_RTT * rtt_ms))

    @property
    def settle_s(self) -> float:
        """See ``Timing``: they agree on nothing."""
        return 0.5

    @property
    def member_timeout_s(self) -> float:
        """See ``Timing``: so long a request waits for the other replicas."""
        return self.timeout_ms / 1000

    @property
    def short(self) -> str:
        """See ``Timing``."""
        return f"timeout {self.timeout_ms} ms"

    @property
    def long(self) -> str:
        """See ``Timing``."""
        return f"requests wait {self.timeout_ms} ms for other replicas; there are no heartbeats and no elections"

    def values(self) -> dict[str, int | str]:
        """See ``Timing``."""
        return {"timeout_ms": self.timeout_ms}

    def notes(self, largest: RttExpectation) -> Iterator[str]:
        """See ``Timing``."""
        yield from ()

    @property
    def heartbeat(self) -> None:
        """See ``Timing``: there are none."""
        return
