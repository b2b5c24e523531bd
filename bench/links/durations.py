"""How long each point is measured, and what is shorter than in the complete mode. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

SLOW_RATE_BPS = 1_000_000
"""At and below this rate a flow is measured longer, because a round trip through a full queue takes seconds."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds and repetitions. ``peer_*`` are for the implementations that the emulator is compared with.

    ``limit_s`` bounds the whole run: points that no longer fit are left out and listed.
    """

    name: str
    limit_s: float
    probes: int
    loaded_probes: int
    tcp_warmup_s: float
    tcp_s: float
    tcp_slow_s: float
    repetitions: int
    slow_repetitions: int
    peer_tcp_s: float
    peer_tcp_slow_s: float
    peer_repetitions: int
    udp_s: float
    frames_s: float
    cost_s: float
    graphs: int
    graph_probes: int
    hops: tuple[int, ...]
    install_s: float

    def tcp(self, own: bool, rate_bps: int | None) -> tuple[float, int]:
        """Seconds after the warm-up, and repetitions, of one bandwidth point; ``own``: not of a peer."""
        slow = rate_bps is not None and rate_bps <= SLOW_RATE_BPS
        if own:
            return (self.tcp_slow_s, self.slow_repetitions) if slow else (self.tcp_s, self.repetitions)
        return (self.peer_tcp_slow_s if slow else self.peer_tcp_s, self.peer_repetitions)

    def shortened(self) -> list[str]:
        """One line for each kind of point that is measured for a shorter time than in ``COMPLETE``."""
        lines = []
        for who, own in (("emulator", True), ("other implementations", False)):
            for label, rate_bps in (
                ("TCP at 1 Mbit/s", SLOW_RATE_BPS),
                ("TCP above 1 Mbit/s", None),
            ):
                mine, complete = (which._tcp_text(own, rate_bps) for which in (self, COMPLETE))
                if mine != complete:
                    lines.append(f"{label}, {who}: {mine} instead of {complete}")
        if self.is_quick:
            lines.append("round trips under load over links of 3 ms only; no TCP both ways")
            lines.append(f"{self.graphs} graphs of five regions instead of {COMPLETE.graphs}")
        return lines

    @property
    def is_quick(self) -> bool:
        """Whether the least informative points are left out as well."""
        return self.name == "quick"

    def _tcp_text(self, own: bool, rate_bps: int | None) -> str:
        seconds, repetitions = self.tcp(own, rate_bps)
        return f"{repetitions} x ({self.tcp_warmup_s:g} s of warm-up + {seconds:g} s)"


COMPLETE = Durations(
    name="complete",
    limit_s=3000,
    probes=1000,
    loaded_probes=1000,
    tcp_warmup_s=3,
    tcp_s=20,
    tcp_slow_s=60,
    repetitions=3,
    slow_repetitions=3,
    peer_tcp_s=20,
    peer_tcp_slow_s=60,
    peer_repetitions=3,
    udp_s=10,
    frames_s=10,
    cost_s=10,
    graphs=20,
    graph_probes=100,
    hops=(1, 2, 3, 4, 5, 6),
    install_s=120,
)
FULL = replace(
    COMPLETE,
    name="full",
    limit_s=1500,
    probes=500,
    loaded_probes=300,
    peer_tcp_s=10,
    peer_tcp_slow_s=20,
    peer_repetitions=1,
    udp_s=5,
    frames_s=5,
    cost_s=5,
    install_s=60,
)
QUICK = Durations(
    name="quick",
    limit_s=114,
    probes=40,
    loaded_probes=20,
    tcp_warmup_s=0.5,
    tcp_s=1,
    tcp_slow_s=1,
    repetitions=1,
    slow_repetitions=1,
    peer_tcp_s=1,
    peer_tcp_slow_s=1,
    peer_repetitions=1,
    udp_s=1,
    frames_s=1,
    cost_s=1,
    graphs=2,
    graph_probes=10,
    hops=(1, 6),
    install_s=20,
)
