"""Moments: wall-clock time for people, the monotonic clock (CLOCK_MONOTONIC, ns) for comparing records."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime


def utc_now() -> str:
    """This moment as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment on both clocks: ``at`` in UTC (ISO 8601), ``at_ns`` on the monotonic clock."""

    at: str
    at_ns: int

    @classmethod
    def now(cls) -> Moment:
        """This one."""
        return cls(utc_now(), time.monotonic_ns())
