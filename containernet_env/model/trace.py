"""What a trace is: a file by which the rate or the delay of a direction changes while a scenario runs."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from containernet_env.base.units import format_duration, format_mbps
from containernet_env.model.kinds import Record, record

TraceKind = Literal["rate", "delay", "opportunities"]
"""Bandwidths, delays, or the moments at which mahimahi can deliver a packet; so the link emulator calls them, too."""


@record
class Trace(Record):
    """A file's values; equal ones have the same content, wherever they are.

    ``delay_ns`` and ``rate_bps`` are the least value and the largest one of such a trace. ``repeat_ns`` is after how
    long it starts again; ``None``: its last value holds. ``second_ns`` is how long a second of the file takes: see
    ``model.dilation``.
    """

    file: str = field(compare=False)
    sha256: str
    kind: TraceKind
    points: int
    repeat_ns: int | None = None
    delay_ns: tuple[int, int] | None = None
    rate_bps: tuple[int, int] | None = None
    second_ns: int = 10**9

    @property
    def text(self) -> str:
        """Its values, for people."""
        if self.delay_ns is not None:
            return " to ".join(map(format_duration, self.delay_ns))
        if self.rate_bps is not None:
            return f"{' to '.join(map(format_mbps, self.rate_bps))} Mbit/s"
        return f"{self.points:,} delivery opportunities"


@record
class Traces(Record):
    """What of a direction follows a trace, from the start of each scenario to its end."""

    bandwidth: Trace | None = None
    delay: Trace | None = None

    @property
    def fields(self) -> dict[str, Trace]:
        """The traces, by the field of a direction that follows each."""
        both = {"rate_bps": self.bandwidth, "delay_ns": self.delay}
        return {name: trace for name, trace in both.items() if trace is not None}

    @property
    def words(self) -> dict[str, str]:
        """What follows a trace, and the values, for people."""
        names = {"rate_bps": "bandwidth trace", "delay_ns": "delay trace"}
        return {names[name]: trace.text for name, trace in self.fields.items()}
