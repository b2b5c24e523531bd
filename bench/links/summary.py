"""Statistics of samples for the tables. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rtt:
    """Round trips in ns. ``early_ns``: how much shorter than configured the shortest was, 0 where none was."""

    asked_ns: int
    min_ns: int
    median_ns: int
    p99_ns: int
    max_ns: int
    early_ns: int


def nearest_rank(samples: Sequence[int], ratio: float) -> int:
    """The smallest sample that at least ``ratio`` (more than 0, at most 1) of all samples do not exceed.

    Raises ``ValueError`` without samples or for another ratio.
    """
    if not samples or not 0 < ratio <= 1:
        raise ValueError(f"nearest rank of {len(samples)} samples at {ratio}")
    return sorted(samples)[math.ceil(ratio * len(samples)) - 1]


def summarize_rtt(asked_ns: int, samples_ns: Sequence[int]) -> Rtt | None:
    """``None`` where nothing was answered."""
    if not samples_ns:
        return None
    shortest = min(samples_ns)
    return Rtt(
        asked_ns=asked_ns,
        min_ns=shortest,
        median_ns=round(statistics.median(samples_ns)),
        p99_ns=nearest_rank(samples_ns, 0.99),
        max_ns=max(samples_ns),
        early_ns=max(0, asked_ns - shortest),
    )


def off_ratio(measured: float, expected: float) -> float:
    """How far ``measured`` is from ``expected`` (more than 0): -0.02 is 2 % below."""
    return measured / expected - 1


def datagram_rate_bps(stamps_ns: Sequence[int], payload_bytes: int) -> float | None:
    """Bits of payload per second between the first and the last of ordered arrivals; ``None`` for fewer than two.

    The first datagram opens the window and does not count: n arrivals are n - 1 intervals.
    """
    if len(stamps_ns) < 2 or stamps_ns[-1] <= stamps_ns[0]:
        return None
    return (len(stamps_ns) - 1) * payload_bytes * 8 * 1e9 / (stamps_ns[-1] - stamps_ns[0])
