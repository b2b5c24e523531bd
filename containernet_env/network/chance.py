"""Random variation of counts and delays: exact tails of the binomial distribution, and correlated samples."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from statistics import NormalDist

from containernet_env.model.link import Jitter

ALARM = 1e-3
"""The chance of a false alarm, over all tests of chance of one gate together."""
MISS = 1e-2
"""The largest chance that a test misses what it claims to detect; with a larger one, the property is unproved."""


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
        low = bisect_left(range(trials), True, key=lambda k: at_most(trials, k, ratio) >= alpha)
        high = bisect_left(range(trials), True, key=lambda k: at_least(trials, k + 1, ratio) < alpha)
        return cls(trials, ratio, low, high)

    def explains(self, count: int) -> bool:
        return self.low <= count <= self.high

    def detects(self, other: float) -> bool:
        """Whether the count would be out of bounds, but for a chance of ``MISS``, if the ratio were ``other``."""
        within = at_most(self.trials, self.high, other) - at_most(self.trials, self.low - 1, other)
        return within <= MISS


def worth(trials: int, correlation: float) -> float:
    """By what the variance of a count of ``trials`` in bursts exceeds that of independent ones, as fewer trials.

    n trials whose outcomes correlate by r from one to the next are worth n (1 - r) / (1 + r) independent ones (Bayley
    and Hammersley, J. R. Statist. Soc. Suppl. 8, 1946).
    """
    return trials * (1 - correlation) / (1 + correlation)


def frames_for_one(jitter: Jitter, interval_ns: float, *, of_variance: bool = False) -> float:
    """How many frames, sent one after the other at this interval, are worth one independent one, at most.

    The mean of n values of a stationary process varies like that of n / (1 + 2 sum r_k) independent ones or more, r_k
    >= 0 being the correlation of values k intervals apart (Bayley and Hammersley, see above). A median varies by no
    more: it depends on the signs of the deviations, which correlate by 2/pi arcsin r, less than r. ``of_variance``:
    those that the variance of the delays is estimated from, for which r_k^2 takes the place of r_k (the same source); a
    function of a normal process correlates by no more than the process does.
    """
    intervals = jitter.held_correlation_ns / interval_ns
    if intervals > _MANY:
        return 1 + 16 / math.pi**2 * intervals  # r falls, so its integral bounds the sum; r^2 is smaller
    power = 2 if of_variance else 1
    return 1 + 2 * sum(path_correlation(k / intervals) ** power for k in range(1, math.ceil(2 * intervals)))


_MANY = 50


def path_correlation(times: float) -> float:
    """Correlation of two delays that are so many correlation times apart, where frames keep their order.

    It is that of the normal process behind them (``path`` in link_emulator/model/chance.go).
    """
    if times >= 2:
        return 0.0
    angle = math.pi / 2 * times
    return (1 - times / 2) * math.cos(angle) + math.sin(angle) / math.pi
