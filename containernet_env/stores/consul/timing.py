"""Consul's timing: the one number by which it scales Raft's timeouts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from containernet_env.base.units import format_ms
from containernet_env.model.config import Config
from containernet_env.model.topology import RttExpectation
from containernet_env.stores.consul.messages import SMALL
from containernet_env.stores.consul.tuning import MULTIPLIER_MAX
from containernet_env.stores.protocol import NO_LEADER, Heartbeat

# hashicorp/raft's DefaultConfig, which Consul multiplies (agent/config/builder.go): heartbeat and election timeouts,
# and how long a leader goes on without its followers. It sends a heartbeat after a tenth of the first at the earliest,
# and after a fifth at the latest (raft/replication.go, heartbeat).
_TIMEOUT_MS, _LEASE_MS, _HEARTBEATS = 1000, 500, 10
# Consul's requirements of servers ask for that with a multiplier of 1: 99 % of RTTs below 100 ms, the average below 50.
_RTT_MS, _AVERAGE_RTT_MS = 100, 50
# What servers take to find each other before they elect: they look for each other once a second.
_JOIN_S = 3.0


@dataclass(frozen=True, slots=True)
class ConsulTiming:
    """``raft_multiplier``. Implements ``stores.protocol.Timing``."""

    multiplier: int
    multiplier_from: Literal["rtt", "config"]

    @property
    def settle_s(self) -> float:
        """See ``Timing``: servers find each other, then two election timeouts."""
        return _JOIN_S + 2 * self.election_ms / 1000

    @property
    def member_timeout_s(self) -> float:
        """See ``Timing``: followers wait for the heartbeat timeout at least."""
        return self.election_ms / 1000

    @property
    def election_ms(self) -> int:
        """Heartbeat and election timeouts, which are equal."""
        return _TIMEOUT_MS * self.multiplier

    @property
    def short(self) -> str:
        """See ``Timing``."""
        return f"raft_multiplier {self.multiplier}, election {self.election_ms} ms"

    @property
    def long(self) -> str:
        """See ``Timing``."""
        origin = "from the largest RTT" if self.multiplier_from == "rtt" else "from the config"
        lease = f"a leader steps down after {_LEASE_MS * self.multiplier} ms without a quorum"
        return (
            f"raft_multiplier {self.multiplier} ({origin}): heartbeat and election timeouts {self.election_ms} ms,"
            f" {lease}"
        )

    def values(self) -> dict[str, int | str]:
        """See ``Timing``."""
        return {
            "raft_multiplier": self.multiplier,
            "heartbeat_ms": self.heartbeat.interval_ms,
            "election_ms": self.election_ms,
            "raft_multiplier_from": self.multiplier_from,
        }

    def notes(self, largest: RttExpectation) -> Iterator[str]:
        """See ``Timing``."""
        rtt = f"the largest expected RTT between members, {format_ms(largest.expected_ns)} ms"
        longest_ms = _RTT_MS * self.multiplier
        if largest.expected_ns > longest_ms * 10**6:
            none = "; no larger one exists" if self.multiplier == MULTIPLIER_MAX else ""
            yield (
                f"Consul's raft_multiplier of {self.multiplier} is made for RTTs up to {longest_ms} ms{none}: {rtt},"
                f" is above that, and leaders may change under load"
            )
        if largest.expected_ns > self.election_ms * 10**6:
            yield f"the election timeout of {self.election_ms} ms is below {rtt}: {NO_LEADER}"
        if largest.expected_ns > _AVERAGE_RTT_MS * 10**6:
            yield f"Consul asks for an average RTT below {_AVERAGE_RTT_MS} ms between servers; {rtt}, is above that"

    @property
    def heartbeat(self) -> Heartbeat:
        """See ``Timing``."""
        return Heartbeat(self.election_ms // _HEARTBEATS, SMALL, SMALL)


def consul_timing(config: Config, largest_member_rtt: RttExpectation | None) -> ConsulTiming:
    """As small as the largest RTT allows, 100 ms of it for each 1, from 1 to 10; or what the config says."""
    flags = dict(config.store.flags)
    if "raft_multiplier" in flags:
        return ConsulTiming(int(flags["raft_multiplier"]), "config")
    rtt_ns = largest_member_rtt.expected_ns if largest_member_rtt else 0
    multiplier = min(max(1, -(-rtt_ns // (_RTT_MS * 10**6))), MULTIPLIER_MAX)
    return ConsulTiming(multiplier, "rtt")
