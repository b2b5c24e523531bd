"""etcd's timing: heartbeat and election timeout that suit a network, and etcd's own bounds of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from containernet_env.base.errors import ConfigError, Problem
from containernet_env.base.units import format_ms
from containernet_env.model.config import Config
from containernet_env.model.topology import RttExpectation
from containernet_env.stores.etcd.messages import HEARTBEAT, HEARTBEAT_ANSWER
from containernet_env.stores.protocol import NO_LEADER, Heartbeat

# etcd's own rules (server/embed/config.go): election at most maxElectionMs, and at least 5 heartbeats.
ELECTION_MAX_MS = 50_000


ELECTION_PER_HEARTBEAT = 5


HEARTBEAT_MAX_MS = ELECTION_MAX_MS // ELECTION_PER_HEARTBEAT


# etcd's defaults, and its tuning guide's rules: heartbeat about the RTT, election at least ten times that.
_HEARTBEAT_MIN_MS = 100
_ELECTION_MIN_MS = 1000
_ELECTION_PER_RTT = 10


_MAY_CHANGE = "leaders may change under load"
_ORIGIN = {
    "default": "etcd's default",
    "rtt": "from the largest RTT",
    "config": "from the config",
    "heartbeat": "10 heartbeats",
}


@dataclass(frozen=True, slots=True)
class EtcdTiming:
    """Raft's timing, in milliseconds; ``*_from`` is where a value comes from. Implements ``stores.protocol.Timing``."""

    heartbeat_ms: int
    election_ms: int
    heartbeat_from: Literal["default", "rtt", "config"]
    election_from: Literal["default", "rtt", "config", "heartbeat"]

    @property
    def settle_s(self) -> float:
        """See ``Timing``: two elections."""
        return 2 * self.election_ms / 1000

    @property
    def member_timeout_s(self) -> float:
        """See ``Timing``: the election timeout."""
        return self.election_ms / 1000

    @property
    def short(self) -> str:
        """See ``Timing``."""
        return f"heartbeat {self.heartbeat_ms} ms, election {self.election_ms} ms"

    @property
    def long(self) -> str:
        """See ``Timing``."""
        heartbeat, election = _ORIGIN[self.heartbeat_from], _ORIGIN[self.election_from]
        if heartbeat == election:
            return f"heartbeat {self.heartbeat_ms} ms, election timeout {self.election_ms} ms ({heartbeat})"
        return f"heartbeat {self.heartbeat_ms} ms ({heartbeat}), election timeout {self.election_ms} ms ({election})"

    def values(self) -> dict[str, int | str]:
        """See ``Timing``."""
        return asdict(self)

    def notes(self, largest: RttExpectation) -> Iterator[str]:
        """See ``Timing``."""
        rtt = f"the largest expected RTT between members, {format_ms(largest.expected_ns)} ms"
        if self.heartbeat_ms * 10**6 < largest.expected_ns:
            yield f"the heartbeat of {self.heartbeat_ms} ms is below {rtt}, about which etcd advises: {_MAY_CHANGE}"
        election = f"the election timeout of {self.election_ms} ms"
        if self.election_ms * 10**6 < largest.expected_ns:
            yield f"{election} is below {rtt}: {NO_LEADER}"
        elif self.election_ms * 10**6 < _ELECTION_PER_RTT * largest.expected_ns:
            yield f"{election} is below 10 times {rtt}, the least that etcd advises: {_MAY_CHANGE}"

    @property
    def heartbeat(self) -> Heartbeat:
        """See ``Timing``."""
        return Heartbeat(self.heartbeat_ms, HEARTBEAT, HEARTBEAT_ANSWER)


def etcd_timing(config: Config, largest_member_rtt: RttExpectation | None) -> EtcdTiming:
    """Heartbeat max(100 ms, RTT), election max(1000 ms, 10 x RTT) in whole ms; values in the config take precedence.

    Raises ``ConfigError`` when a configured value and a derived one together break etcd's own rules.
    """
    rtt_ms = -(-largest_member_rtt.expected_ns // 10**6) if largest_member_rtt else 0
    asked = config.etcd
    heartbeat_from: Literal["default", "rtt", "config"]
    election_from: Literal["default", "rtt", "config", "heartbeat"]
    if asked.heartbeat_ms is not None:
        heartbeat_ms, heartbeat_from = asked.heartbeat_ms, "config"
    else:
        heartbeat_ms = min(max(_HEARTBEAT_MIN_MS, rtt_ms), HEARTBEAT_MAX_MS)
        heartbeat_from = "rtt" if heartbeat_ms > _HEARTBEAT_MIN_MS else "default"
    if asked.election_ms is not None:
        election_ms, election_from = asked.election_ms, "config"
    else:
        by_rtt_ms = max(_ELECTION_MIN_MS, _ELECTION_PER_RTT * rtt_ms)
        by_heartbeat_ms = _ELECTION_PER_RTT * asked.heartbeat_ms if asked.heartbeat_ms is not None else 0
        election_ms = min(max(by_rtt_ms, by_heartbeat_ms), ELECTION_MAX_MS)
        if by_heartbeat_ms > by_rtt_ms:
            election_from = "heartbeat"
        else:
            election_from = "rtt" if by_rtt_ms > _ELECTION_MIN_MS else "default"
    least_ms = ELECTION_PER_HEARTBEAT * heartbeat_ms
    if election_ms < least_ms:
        raise ConfigError(
            str(config.path),
            [
                Problem(
                    "$.etcd.election_timeout",
                    f"is too short for the heartbeat of {heartbeat_ms}ms, which follows from the largest RTT",
                    f"{election_ms}ms",
                    f"at least {ELECTION_PER_HEARTBEAT} heartbeats, {least_ms}ms",
                )
            ],
        )
    return EtcdTiming(heartbeat_ms, election_ms, heartbeat_from, election_from)
