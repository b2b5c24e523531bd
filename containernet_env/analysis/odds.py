"""The odds of what a gate counts and measures: exact tails of the binomial distribution, and what a test can tell.

A gate makes many tests; together they are to give a false alarm in fewer than ``ALARM`` of the gates on a network that
is as configured. Each of k tests gets ALARM / k (Bonferroni), half of it on each side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

ALARM = 1e-3
"""The chance of a false alarm, over all tests of chance of one gate together."""
MISS = 1e-2
"""The most by which a test may miss what it claims to tell: with a larger chance, the property is unproved."""


def each(tests: int) -> float:
    """The chance of a false alarm on one side of one of so many (1 or more) tests."""
    return ALARM / tests / 2


def sigmas(probability: float) -> float:
    """How many standard deviations a normal variable exceeds with that ``probability`` (below 0.5), on one side."""
    return -NormalDist().inv_cdf(probability)


def at_most(trials: int, count: int, ratio: float) -> float:
    """The probability that at most ``count`` of ``trials`` happen, each with the probability ``ratio``."""
    if count < 0:
        return 0.0
    if count >= trials or ratio <= 0.0:
        return 1.0
    if ratio >= 1.0:
        return 0.0
    # From the term at count (or at the mode, the largest) down: terms fall at least geometrically beyond the mode.
    mode = min(count, int((trials + 1) * ratio))
    total, k = 0.0, mode
    start = term = math.exp(_log_term(trials, mode, ratio))
    odds = ratio / (1 - ratio)
    while k >= 0 and term > total * 1e-17:
        total += term
        term *= k / ((trials - k + 1) * odds)
        k -= 1
    term = start
    for k in range(mode + 1, count + 1):
        term *= (trials - k + 1) * odds / k
        total += term
        if term < total * 1e-17:
            break
    return min(1.0, total)


def at_least(trials: int, count: int, ratio: float) -> float:
    """The probability that ``count`` or more of ``trials`` happen."""
    return at_most(trials, trials - count, 1 - ratio)


def _log_term(trials: int, count: int, ratio: float) -> float:
    ways = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
    return ways + count * math.log(ratio) + (trials - count) * math.log1p(-ratio)


@dataclass(frozen=True, slots=True)
class CountTest:
    """Whether ``ratio`` explains a count of so many ``trials``: from ``low`` to ``high`` it does, both included.

    One-sided tails of at most ``alpha`` lie outside.
    """

    trials: int
    ratio: float
    low: int
    high: int

    @classmethod
    def of(cls, trials: int, ratio: float, alpha: float) -> CountTest:
        """The widest counts that are likelier than ``alpha`` on their side."""
        low, high = _bisect(0, trials, lambda k: at_most(trials, k, ratio) >= alpha), trials
        high = _bisect(0, trials, lambda k: at_least(trials, k + 1, ratio) < alpha)
        return cls(trials, ratio, low, high)

    def explains(self, count: int) -> bool:
        """Whether it is within the bounds."""
        return self.low <= count <= self.high

    def tells(self, other: float) -> bool:
        """Whether the count would be outside, but for a chance of ``MISS``, if the true ratio were ``other``."""
        within = at_most(self.trials, self.high, other) - at_most(self.trials, self.low - 1, other)
        return within <= MISS


def _bisect(low: int, high: int, holds: object) -> int:
    """The least from ``low`` to ``high`` for which ``holds``, which holds for all from there on; else ``high``."""
    assert callable(holds)
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def worth(trials: int, correlation: float) -> float:
    """By what the variance of a count of ``trials`` in bursts exceeds that of independent ones, as fewer trials.

    n trials whose outcomes correlate by r from one to the next are worth n (1 - r) / (1 + r) independent ones (Bayley
    and Hammersley, J. R. Statist. Soc. Suppl. 8, 1946).
    """
    return trials * (1 - correlation) / (1 + correlation)
