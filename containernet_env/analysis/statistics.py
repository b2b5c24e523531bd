"""Statistics of repetitions: intervals, one test, one correction. Pure: values in, numbers out.

A value is that of one repetition on a cluster of its own, never that of a request: requests of one cluster share its
leader, its links and its moment. docs/statistics.md has the reasons and what each method supposes.

numpy and scipy are imported where they are used: callers make sure of them first (``setup.extras``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

LEVEL = 0.95
_SMALLEST_BOOTSTRAP = 4
_WIDER_TAIL = 0.005
"""With four values a side the plain percentile interval covers 92 to 94 %; with these tails 95 to 98 %. With three a
side not even the widest interval that the bootstrap can give covers 91 %: docs/statistics.md."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval.

    ``low`` and ``high`` are ``None`` where ``n`` values allow no interval, and ``why`` says so. ``coverage`` is the
    probability with which the method contains the truth: exact for order statistics, at least or about the level else.
    """

    estimate: float
    low: float | None
    high: float | None
    coverage: float | None
    n: int
    why: str | None = None

    @property
    def half_width_ratio(self) -> float | None:
        """Half the interval's width over the estimate (0.05: +- 5 %); ``None`` without one, or around 0."""
        if self.low is None or self.high is None or self.estimate == 0:
            return None
        return (self.high - self.low) / 2 / abs(self.estimate)


def checked(values: Sequence[float], positive: bool = False) -> list[float]:
    """The values in order. Raises ``ValueError`` where there are none, or one is not finite (or not ``positive``)."""
    found = sorted(float(value) for value in values)
    if not found:
        raise ValueError("no values")
    if not all(math.isfinite(value) for value in found):
        raise ValueError("values must be finite")
    if positive and found[0] <= 0:
        raise ValueError("values must be positive")
    return found


def _quantile(ordered: Sequence[float], p: float) -> float:
    """The smallest value with a share of at least ``p`` up to it; half way to the next where it is ``p`` exactly."""
    rank = len(ordered) * p
    whole = round(rank)
    if math.isclose(rank, whole, rel_tol=1e-12) and 0 < whole < len(ordered):
        return (ordered[whole - 1] + ordered[whole]) / 2
    return ordered[min(max(math.ceil(rank - 1e-12 * rank), 1), len(ordered)) - 1]


def median(values: Sequence[float]) -> float:
    """The median; with an even number of values the mean of the two in the middle."""
    return _quantile(checked(values), 0.5)


def least_number(p: float = 0.5, level: float = LEVEL) -> int:
    """The least number of values with which `quantile_interval` gives an interval: 6 for the median at 95 %."""
    return math.ceil(math.log((1 - level) / 2) / math.log(max(p, 1 - p)) - 1e-9)


def quantile_interval(values: Sequence[float], p: float, level: float = LEVEL) -> Interval:
    """The interval of the ``p``-quantile between two order statistics (0 < ``p`` < 1); of any continuous distribution.

    How many of n values lie below the quantile is binomial(n, p). So it is between the l-th and the u-th smallest with
    probability P(l <= B < u); each tail is at most (1 - ``level``) / 2. Source: David and Nagaraja, Order Statistics
    (3rd ed., 2003), section 7.1; Conover, Practical Nonparametric Statistics (3rd ed., 1999), section 3.2.
    """
    from scipy.special import bdtr

    ordered = checked(values)
    n, tail = len(ordered), (1 - level) / 2
    estimate = _quantile(ordered, p)
    if n < (needed := least_number(p, level)):
        what = "the median" if p == 0.5 else f"the {100 * p:g} % quantile"
        why = f"an interval of {what} at {100 * level:g} % needs {needed} repetitions, there are {n}"
        return Interval(estimate, None, None, None, n, why)
    low = max(rank for rank in range(1, n + 1) if bdtr(rank - 1, n, p) <= tail)
    high = min(rank for rank in range(1, n + 1) if 1 - bdtr(rank - 1, n, p) <= tail)
    coverage = float(bdtr(high - 1, n, p) - bdtr(low - 1, n, p))
    return Interval(estimate, ordered[low - 1], ordered[high - 1], coverage, n)


def median_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """The interval of the median between two order statistics, see `quantile_interval`; from 6 values on at 95 %."""
    return quantile_interval(values, 0.5, level)


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """The mean with Student's t interval (Student, 1908): for values that are about normal; from 2 values on."""
    from scipy.special import stdtrit

    found = checked(values)
    n, mean = len(found), math.fsum(found) / len(found)
    if n < 2:
        return Interval(mean, None, None, None, n, "an interval of the mean needs 2 repetitions, there is 1")
    half = float(stdtrit(n - 1, (1 + level) / 2)) * math.sqrt(variance(found) / n)
    return Interval(mean, mean - half, mean + half, level, n)


def geometric_mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """The geometric mean of positive values with the t interval of their logarithms: for times, rates and ratios."""
    logs = mean_interval([math.log(value) for value in checked(values, positive=True)], level)
    return _exponential(logs)


def ratio_of_means(a: Sequence[float], b: Sequence[float], level: float = LEVEL) -> Interval:
    """Geometric mean of ``b`` over that of ``a``, with Welch's t interval of the logarithms; from 2 a side on.

    Spreads may differ. Source: Welch, Biometrika 34 (1947), 28-35; logarithms make a ratio of a difference.
    """
    from scipy.special import stdtrit

    left, right = ([math.log(value) for value in checked(side, positive=True)] for side in (a, b))
    n = min(len(left), len(right))
    difference = math.fsum(right) / len(right) - math.fsum(left) / len(left)
    if n < 2:
        why = "an interval of a ratio needs 2 repetitions a side"
        return _exponential(Interval(difference, None, None, None, n, why))
    shares = [variance(side) / len(side) for side in (left, right)]
    total = math.fsum(shares)
    half = 0.0
    if total > 0:
        freedom = total**2 / sum(share**2 / (len(side) - 1) for share, side in zip(shares, (left, right), strict=True))
        half = float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(total)
    return _exponential(Interval(difference, difference - half, difference + half, level, n))


def variance(values: Sequence[float]) -> float:
    """Of a sample, from two values on."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _exponential(logs: Interval) -> Interval:
    low, high = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    return Interval(math.exp(logs.estimate), low, high, logs.coverage, logs.n, logs.why)


def ratio_of_medians(a: Sequence[float], b: Sequence[float], level: float = LEVEL) -> Interval:
    """Median of ``b`` over that of ``a`` (positive values), with the percentile interval of the bootstrap.

    The bootstrap distribution of a median is worked out instead of drawn (`bootstrap_median`), so there is no seed and
    no noise. From four values a side on; with four its tails are 0.5 %. The bias-corrected forms (BC, BCa) need the
    jackknife, which is inconsistent for medians (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section
    10.6); the percentile interval is in their section 13.3.
    """
    left, right = checked(a, positive=True), checked(b, positive=True)
    n, ratio = min(len(left), len(right)), _quantile(right, 0.5) / _quantile(left, 0.5)
    if n < _SMALLEST_BOOTSTRAP:
        why = f"an interval of the ratio needs {_SMALLEST_BOOTSTRAP} repetitions a side"
        return Interval(ratio, None, None, None, n, why)
    tail = (1 - level) / 2
    if n == _SMALLEST_BOOTSTRAP:
        tail = min(tail, _WIDER_TAIL * tail / 0.025)
    low, high = _ratio_quantiles(left, right, (tail, 1 - tail))
    return Interval(ratio, low, high, level, n)


@lru_cache(maxsize=64)
def bootstrap_median(n: int) -> tuple[Any, Any, Any]:
    """The bootstrap distribution of the median of ``n`` ordered values: arrays ``i``, ``j`` and their probability.

    The median of a resample is the mean of the values at the ranks ``i`` and ``j`` (from 0). With n odd ``i`` is ``j``,
    and P(i < r) = P(binomial(n, r / n) >= (n + 1) / 2): Efron, Annals of Statistics 7 (1979), section 3. With n = 2k
    the k-th value of a resample is at ranks up to i and the next one above j exactly where k values lie up to i and
    the others above j: probability C(n, k) (i / n)^k (1 - j / n)^k. Ranks that are hardly ever reached are left out.
    """
    import numpy as np
    from scipy.special import bdtrc, gammaln

    k = (n + 1) // 2
    far = math.ceil(4.5 * math.sqrt(n)) + 1
    ranks = np.arange(max(k - far, 1), min(k + far + 1, n) + 1)
    single = bdtrc(k - 1, n, ranks / n) - bdtrc(k - 1, n, (ranks - 1) / n)
    if n % 2:
        return ranks - 1, ranks - 1, single / single.sum()
    with np.errstate(divide="ignore"):
        # Of the k-th value being at rank i, and the next one above rank j: logarithms, the coefficient shared.
        at_i = k * np.log(ranks / n) + np.log(-np.expm1(k * np.log((ranks - 1) / ranks)))
        above = k * np.log1p(-ranks / n)
        at_j = k * np.log1p(-(ranks - 1) / n) + np.log(-np.expm1(k * np.log((n - ranks) / (n - ranks + 1))))
    coefficient = gammaln(n + 1) - 2 * gammaln(k + 1)
    same = np.clip(single - np.exp(coefficient + at_i + above), 0, None)
    parts = [(ranks, ranks, same)]
    for gap in range(1, min(len(ranks), 60)):
        parts.append((ranks[:-gap], ranks[gap:], np.exp(coefficient + at_i[:-gap] + at_j[gap:])))
    i, j, chance = (np.concatenate([part[index] for part in parts]) for index in range(3))
    kept = chance > 1e-12
    return i[kept] - 1, j[kept] - 1, chance[kept] / chance[kept].sum()


def _ratio_quantiles(left: Sequence[float], right: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Quantiles of the ratio of two bootstrap medians, by bisection: P(B <= q A) rises in q."""
    import numpy as np

    sides = []
    for values in (np.array(left), np.array(right)):
        i, j, chance = bootstrap_median(len(values))
        medians = (values[i] + values[j]) / 2
        order = np.argsort(medians)
        sides.append((medians[order], chance[order]))
    (below, weight), (above, mass) = sides
    reached = np.concatenate([[0.0], np.cumsum(mass)])
    found = []
    for share in shares:
        low, high = above[0] / below[-1] * (1 - 1e-12), above[-1] / below[0]
        while high - low > 1e-13 * high:
            middle = (low + high) / 2
            # A ratio that is equal but for rounding counts as reached.
            under = reached[np.searchsorted(above, below * middle * (1 + 1e-14), side="right")]
            low, high = (low, middle) if float(under @ weight) >= share else (middle, high)
        found.append(float(high))
    return found
