"""Whether two sets of repetitions differ: the Mann-Whitney test, Holm's correction, and what a number of them can tell.

Pure, as `statistics` is; docs/statistics.md has the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from containernet_env.analysis.statistics import checked, variance

ALPHA = 0.05
POWER = 0.8
_EXACT_PAIRS = 2500
_SEED, _DRAWS = 20261122, 4000


@dataclass(frozen=True, slots=True)
class Tested:
    """The outcome of the Mann-Whitney test.

    ``u``: of how many pairs the value of B is the larger one, ties counting one half. ``p``: two-sided. ``least_p``:
    the least that any order of these values could have come to; ties raise it above that of ``least_p(n, m)``.
    """

    u: float
    p: float
    least_p: float
    exact: bool


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> Tested:
    """Whether values of one side tend to be larger: the two-sided rank-sum test, exact also where values are equal.

    p is twice the share of all ways to hand the ranks to the two sides in which the rank sum is as far out or farther,
    on the side where it is; equal values share the mean of their ranks. Source: Mann and Whitney, Annals of
    Mathematical Statistics 18 (1947), 50-60; ties: Lehmann, Nonparametrics (1975), section 1.4. Above 2500 pairs by the
    normal approximation with corrections for continuity and ties (the same, appendix 4).
    """
    import numpy as np

    left, right = checked(a), checked(b)
    n, m = len(left), len(right)
    _, group, sizes = np.unique(np.array(left + right), return_inverse=True, return_counts=True)
    # Twice the mean rank of each group of equal values: a whole number.
    doubled = 2 * np.cumsum(sizes) - sizes + 1
    total = int(doubled[group[n:]].sum())
    u = total / 2 - m * (m + 1) / 2
    if n * m <= _EXACT_PAIRS:
        # Of the smaller side, which has fewer sums.
        sums, ways = _rank_sums(tuple(int(size) for size in sizes), min(n, m))
        own = total if m <= n else (n + m) * (n + m + 1) - total
        tail = min(float(ways[sums <= own].sum()), float(ways[sums >= own].sum()))
        return Tested(u, min(2 * tail, 1.0), min(2 * float(min(ways[0], ways[-1])), 1.0), True)
    both = n + m
    spread = math.sqrt(n * m / 12 * (both + 1 - float((sizes.astype(float) ** 3 - sizes).sum()) / (both * (both - 1))))
    if spread == 0:
        return Tested(u, 1.0, 1.0, False)
    z = max(abs(u - n * m / 2) - 0.5, 0.0) / spread
    return Tested(u, math.erfc(z / math.sqrt(2)), least_p(n, m), False)


@lru_cache(maxsize=256)
def _rank_sums(sizes: tuple[int, ...], m: int) -> tuple[Any, Any]:
    """Every doubled rank sum that ``m`` values can have, and its share of all ways to choose them.

    ``sizes``: how many values are equal, from the smallest value on. Values are taken in one by one; ``ways[k, s]`` is
    in how many ways k of them come to s.
    """
    import numpy as np

    ranks, before = [], 0
    for size in sizes:
        ranks += [2 * before + size + 1] * size
        before += size
    shared = math.gcd(*ranks)
    ranks = [rank // shared for rank in ranks]
    ways = np.zeros((m + 1, sum(ranks[-m:]) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        if rank < ways.shape[1]:
            ways[1:, rank:] += ways[:-1, :-rank].copy()
    sums = np.flatnonzero(ways[m])
    return sums * shared, ways[m, sums] / math.comb(len(ranks), m)


def least_p(n: int, m: int) -> float:
    """The least two-sided p that ``n`` against ``m`` repetitions can reach: two of all orders are the extreme ones."""
    return min(1.0, 2 / math.comb(n + m, n))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order given: compared with alpha, they keep the chance of any false call below it.

    The i-th smallest of k is multiplied by k - i + 1, and none is smaller than one before it. Whatever depends on
    whatever. Source: Holm, Scandinavian Journal of Statistics 6 (1979), 65-70.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(order), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


@lru_cache(maxsize=64)
def repetitions_to_tell(tests: int = 1, alpha: float = ALPHA) -> int:
    """The least number of repetitions a side with which each of ``tests`` tests can come out below alpha by itself."""
    needed = 1
    while least_p(needed, needed) * tests > alpha:
        needed += 1
    return needed


def spread(a: Sequence[float], b: Sequence[float]) -> float | None:
    """The standard deviation of the logarithms within the sides, pooled: 0.05 is about 5 %; ``None`` for 1 and 1."""
    sides = [[math.log(value) for value in checked(side, positive=True)] for side in (a, b)]
    freedom = sum(len(side) - 1 for side in sides)
    if freedom == 0:
        return None
    return math.sqrt(sum(variance(side) * (len(side) - 1) for side in sides if len(side) > 1) / freedom)


def likely_spread(a: Sequence[float], b: Sequence[float]) -> float | None:
    """A spread that the true one exceeds with a probability of 20 % only, for normal logarithms; see `spread`.

    A few repetitions tell a spread badly, and who plans with the one seen has planned too few half of the time.
    Source: Browne, Statistics in Medicine 14 (1995), 1933-1940.
    """
    from scipy.special import chdtri

    seen = spread(a, b)
    freedom = len(a) + len(b) - 2
    return None if seen is None else seen * math.sqrt(freedom / float(chdtri(freedom, 0.8)))


def detectable_ratio(n: int, m: int, spread: float, tests: int = 1, alpha: float = ALPHA) -> float:
    """The least ratio above 1 that ``n`` against ``m`` repetitions show with a probability of 80 %, in each test.

    ``spread``: see there. It supposes normal logarithms and that Holm's first step, alpha / ``tests``, decides.
    Infinite where no order of the repetitions reaches that.
    """
    shift = _detectable_shift(n, m, alpha / tests)
    return math.inf if shift * spread > 700 else math.exp(shift * spread)


def repetitions_for(ratio: float, spread: float, tests: int = 1, most: int = 1000) -> int | None:
    """The least number of repetitions a side with which `detectable_ratio` is ``ratio`` or less; ``None`` above
    ``most``."""
    low, high = repetitions_to_tell(tests), most
    if detectable_ratio(high, high, spread, tests) > ratio:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if detectable_ratio(middle, middle, spread, tests) <= ratio else (middle + 1, high)
    return low


@lru_cache(maxsize=1024)
def _detectable_shift(n: int, m: int, alpha: float) -> float:
    """By how many standard deviations B must be shifted for p <= alpha with a probability of 80 %; normal values.

    A shift makes the test come out once it turns enough of the pairwise differences: in each of 4000 seeded draws that
    is one of their order statistics, and 80 % of the draws need no more than the result. Above 2500 pairs by
    normal quantiles and the test's efficiency against t, 3 / pi (Hodges and Lehmann, Annals of Mathematical Statistics
    27 (1956), 324-335).
    """
    import numpy as np
    from scipy.special import ndtri

    if n * m > _EXACT_PAIRS:
        return float((ndtri(1 - alpha / 2) + ndtri(POWER)) * math.sqrt((1 / n + 1 / m) * math.pi / 3))
    if least_p(n, m) > alpha:
        return math.inf
    sums, ways = _rank_sums((1,) * (n + m), m)
    critical = int(sums[np.cumsum(ways) <= alpha / 2 * (1 + 1e-9)][-1]) // 2 - m * (m + 1) // 2
    draw = np.random.default_rng(_SEED)
    needed = np.empty(_DRAWS)
    for start in range(0, _DRAWS, 500):
        left, right = draw.standard_normal((500, n, 1)), draw.standard_normal((500, 1, m))
        differences = (left - right).reshape(500, n * m)
        needed[start : start + 500] = np.partition(differences, n * m - critical - 1, axis=1)[:, n * m - critical - 1]
    return max(float(np.quantile(needed, POWER)), 0.0)
