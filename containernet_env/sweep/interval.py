"""How well the median of a cell's repetitions is known."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median

LEAST = 6
"""With fewer repetitions no interval between two of them holds the median with 95 %: 5 give 93.75 %."""


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """The interval of the median between two of the values, whatever they are distributed like; ``None`` with too few.

    The k-th smallest and the k-th largest, the largest k for which both tails of Binomial(n, 1/2) leave at least
    ``confidence`` (Conover, Practical Nonparametric Statistics, 1999, section 3.2).
    """
    ordered, count = sorted(values), len(values)
    below, k = 0.0, 0
    while True:
        below += comb(count, k) / 2**count
        if 2 * below > 1 - confidence:
            break
        k += 1
    return (ordered[k - 1], ordered[count - k]) if k else None


def is_narrow(values: Sequence[float], ratio: float) -> bool:
    """Whether the interval of the median reaches at most ``ratio`` of the median to either side."""
    found = median_interval(values)
    if found is None:
        return False
    middle = median(values)
    return max(found[1] - middle, middle - found[0]) <= ratio * middle
