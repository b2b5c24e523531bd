"""ZooKeeper's timing: ticks, and how many of them members wait for each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from containernet_env.base.units import format_ms
from containernet_env.model.config import Config
from containernet_env.model.topology import RttExpectation
from containernet_env.stores.protocol import NO_LEADER, Heartbeat
from containernet_env.stores.zookeeper.messages import PING
from containernet_env.stores.zookeeper.tuning import FLAGS, INIT_TICKS, SYNC_TICKS, TICK_MS

# As etcd's tuning guide has it for elections: a silence of ten round trips is none of the network.
_SILENCE_PER_RTT = 10
# Three members on two cores had a leader that all of them followed within 8 s; most of it is the start of Java.
_SETTLE_S = 6.0


@dataclass(frozen=True, slots=True)
class ZooKeeperTiming:
    """``tickTime`` in milliseconds, and the limits in ticks. Implements ``stores.protocol.Timing``."""

    tick_ms: int
    init_ticks: int
    sync_ticks: int
    tick_from: Literal["default", "rtt", "config"]

    @property
    def settle_s(self) -> float:
        """See ``Timing``: members that join wait for each other in ticks."""
        return _SETTLE_S * max(1.0, self.tick_ms / TICK_MS)

    @property
    def member_timeout_s(self) -> float:
        """See ``Timing``: for ``syncLimit`` ticks a leader waits for its followers, and they for it."""
        return self.sync_ticks * self.tick_ms / 1000

    @property
    def short(self) -> str:
        """See ``Timing``."""
        return f"tick {self.tick_ms} ms, sync limit {self.sync_ticks} ticks"

    @property
    def long(self) -> str:
        """See ``Timing``."""
        origin = {"default": "ZooKeeper's default", "rtt": "from the largest RTT", "config": "from the config"}
        limits = f"members may lag {self.sync_ticks} ticks, and take {self.init_ticks} to join"
        return f"tick {self.tick_ms} ms ({origin[self.tick_from]}); {limits}"

    def values(self) -> dict[str, int | str]:
        """See ``Timing``."""
        return {
            "tick_ms": self.tick_ms,
            "init_ticks": self.init_ticks,
            "sync_ticks": self.sync_ticks,
            # No leader is replaced before the sync limit.
            "heartbeat_ms": self.heartbeat.interval_ms,
            "election_ms": self.sync_ticks * self.tick_ms,
            "tick_from": self.tick_from,
        }

    def notes(self, largest: RttExpectation) -> Iterator[str]:
        """See ``Timing``."""
        rtt = f"the largest expected RTT between members, {format_ms(largest.expected_ns)} ms"
        for name, ticks in (("sync", self.sync_ticks), ("init", self.init_ticks)):
            silence_ms = ticks * self.tick_ms
            limit = f"the {name} limit of {ticks} ticks, {silence_ms} ms,"
            if silence_ms * 10**6 < largest.expected_ns:
                yield f"{limit} is below {rtt}: {NO_LEADER}"
            elif name == "sync" and silence_ms * 10**6 < _SILENCE_PER_RTT * largest.expected_ns:
                yield f"{limit} is below {_SILENCE_PER_RTT} times {rtt}: leaders may change under load"

    @property
    def heartbeat(self) -> Heartbeat:
        """See ``Timing``: a leader pings its followers twice in a tick (Leader.lead)."""
        return Heartbeat(max(1, self.tick_ms // 2), PING, PING)


def zookeeper_timing(config: Config, largest_member_rtt: RttExpectation | None) -> ZooKeeperTiming:
    """ZooKeeper's own ticks, longer where the sync limit would be below ten of the largest RTTs; or the config's."""
    flags = dict(config.store.flags)
    sync_ticks = int(flags.get("syncLimit", SYNC_TICKS))
    init_ticks = int(flags.get("initLimit", INIT_TICKS))
    if "tickTime" in flags:
        return ZooKeeperTiming(int(FLAGS["tickTime"].argument(flags["tickTime"])), init_ticks, sync_ticks, "config")
    rtt_ms = -(-largest_member_rtt.expected_ns // 10**6) if largest_member_rtt else 0
    tick_ms = -(-_SILENCE_PER_RTT * rtt_ms // sync_ticks)
    if tick_ms <= TICK_MS:
        return ZooKeeperTiming(TICK_MS, init_ticks, sync_ticks, "default")
    return ZooKeeperTiming(tick_ms, init_ticks, sync_ticks, "rtt")
