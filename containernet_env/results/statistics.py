"""Statistics of repetitions: intervals, tests, corrections, percentiles of histograms. Pure: values in, numbers out."""

from __future__ import annotations

import base64
import binascii
import math
import struct
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from itertools import count as count_from
from statistics import median, pvariance
from typing import Any

_COMPRESSED, _PLAIN = 0x1C849314, 0x1C849313
_HEADER = struct.Struct(">iiiiqqd")
_MOST_BYTES = 1 << 24
"""A histogram of 3 digits has some 10,000 counters; one that inflates to more than this is none."""
_SLOT_BITS = 10
"""Of 3 digits: each power of two from 2^11 on has 2^10 slots."""
_SLOTS = 54 << _SLOT_BITS
"""Of the values up to 2^63."""
_HIGHEST_NS = 48 * 3600 * 10**9


@dataclass(frozen=True, slots=True)
class Histogram:
    """``counts``: (largest value of a slot in ns, how many) in order of the values, no slot is empty."""

    counts: tuple[tuple[int, int], ...]

    @property
    def total(self) -> int:
        """How many values it holds."""
        return sum(count for _, count in self.counts)

    def percentiles_ns(self, percents: Sequence[float]) -> list[int | None]:
        """The value at each percentage, by nearest rank.

        ``None`` if there are too few values to distinguish it from the largest one.
        """
        reached, total = list(accumulate(count for _, count in self.counts)), self.total
        ranks = [max(1, -(-round(percent * 1e6) * total // 10**8)) for percent in percents]
        return [self.counts[bisect_left(reached, rank)][0] if rank < total else None for rank in ranks]


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """All values of several histograms in one."""
    counts: Counter[int] = Counter()
    for histogram in histograms:
        for value, count in histogram.counts:
            counts[value] += count
    return Histogram(tuple(sorted(counts.items())))


def decode(text: str) -> Histogram:
    """The histogram that a text of `encode` or the load generator holds. Raises ``ValueError`` for any other text."""
    try:
        packed = base64.b64decode(text, validate=True)
        cookie, size = struct.unpack_from(">ii", packed)
        inflate = zlib.decompressobj()
        content = inflate.decompress(packed[8:], _MOST_BYTES)
        plain, length, offset, digits, lowest, _, ratio = _HEADER.unpack_from(content)
    except (binascii.Error, struct.error, zlib.error) as error:
        raise ValueError(f"it is no histogram: {error}") from error
    found = (cookie, size, plain, length, offset, digits, lowest)
    own = (_COMPRESSED, len(packed) - 8, _PLAIN, len(content) - _HEADER.size, 0, 3, 1)
    # Where the load ran slower than real time its values are to be multiplied by less than 1.
    if found != own or not inflate.eof or not 0 < ratio <= 1:
        raise ValueError("it is no histogram of the load generator, or cut short")
    slot, counts = 0, list[tuple[int, int]]()
    for number in _numbers(content[_HEADER.size :]):
        if number > 0:
            power = max((slot >> _SLOT_BITS) - 1, 0)
            value = ((slot - (power << _SLOT_BITS) + 1) << power) - 1
            counts.append((round(value * ratio) if ratio < 1 else value, number))
        slot += max(1, -number)
        if slot > _SLOTS:
            raise ValueError("it has slots for values above 2^63")
    if not counts:
        raise ValueError("it is a histogram of no values")
    return Histogram(tuple(counts))


def encode(histogram: Histogram) -> str:
    """The text that `decode` reads, in the form of the load generator (internal/report/series.go): 3 digits, in ns."""
    content, following = bytearray(), 0
    for value, count in histogram.counts:
        value = min(max(value, 1), _HIGHEST_NS)
        power = max(value.bit_length() - 1 - _SLOT_BITS, 0)
        slot = (power << _SLOT_BITS) + (value >> power)
        if slot > following:
            content += _number(0 if slot == following + 1 else following - slot)
        content += _number(count)
        following = slot + 1
    header = _HEADER.pack(_PLAIN, len(content), 0, 3, 1, _HIGHEST_NS, 1.0)
    packed = zlib.compress(header + content)
    return base64.b64encode(struct.pack(">ii", _COMPRESSED, len(packed)) + packed).decode()


def _number(number: int) -> bytes:
    """ZigZag, 7 bits in each byte and 8 in the ninth."""
    rest, found = (number << 1) ^ (number >> 63), bytearray()
    while rest >= 0x80 and len(found) < 8:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(found) + bytes([rest])


def _numbers(content: bytes) -> Iterator[int]:
    """Zigzag LEB128 of 64 bits: seven bits a byte, and eight in the ninth."""
    number, shift = 0, 0
    for byte in content:
        if shift == 56:
            number, more = number | byte << shift, False
        else:
            number, more = number | (byte & 0x7F) << shift, bool(byte & 0x80)
        if more:
            shift += 7
            continue
        yield (number >> 1) ^ -(number & 1)
        number, shift = 0, 0
    if shift:
        raise ValueError("its last number is cut short")


LEVEL = 0.95
"""Of all intervals; each tail is 2.5 %."""
_TAIL = (1 - LEVEL) / 2
LEAST = math.ceil(math.log2(1 / _TAIL))
"""The least number of values that have an interval of their median: 6."""
_SMALLEST_BOOTSTRAP = 4
_WIDER_TAIL = 0.005
"""With four values a side the plain percentile interval covers 92 to 94 %; with these tails 95 to 98 %. With three a
side not even the widest interval that the bootstrap can give covers 91 %: docs/statistics.md."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate from ``n`` values with its confidence interval; ``low`` and ``high`` are ``None`` for too few."""

    estimate: float
    low: float | None
    high: float | None
    n: int


def checked(values: Sequence[float], positive: bool = False) -> list[float]:
    """The values in order. Raises ``ValueError`` if there are none, or one is not finite (or not ``positive``)."""
    found = sorted(float(value) for value in values)
    if not found:
        raise ValueError("no values")
    if not all(math.isfinite(value) for value in found):
        raise ValueError("values must be finite")
    if positive and found[0] <= 0:
        raise ValueError("values must be positive")
    return found


def median_interval(values: Sequence[float]) -> Interval:
    """The interval of the median between two order statistics, from `LEAST` values on; of any continuous distribution.

    How many of n values lie below the median is binomial(n, 1/2). So it is between the k-th smallest and the k-th
    largest with probability 1 - 2 P(B < k); k is the largest with P(B < k) <= 2.5 %. Source: David and Nagaraja, Order
    Statistics (3rd ed., 2003), section 7.1; Conover, Practical Nonparametric Statistics (3rd ed., 1999), section 3.2.
    """
    from scipy.special import bdtr

    ordered = checked(values)
    n = len(ordered)
    if n < LEAST:
        return Interval(median(ordered), None, None, n)
    k = max(rank for rank in range(1, n + 1) if bdtr(rank - 1, n, 0.5) <= _TAIL)
    return Interval(median(ordered), ordered[k - 1], ordered[n - k], n)


def ratio_of_medians(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Median of ``b`` over that of ``a`` (positive values), with the percentile interval of the bootstrap.

    The bootstrap distribution of a median is worked out instead of drawn (`bootstrap_median`), so there is no seed and
    no noise. From four values a side on; with four its tails are 0.5 %. The bias-corrected forms (BC, BCa) need the
    jackknife, which is inconsistent for medians (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section
    10.6); the percentile interval is in their section 13.3.
    """
    left, right = checked(a, positive=True), checked(b, positive=True)
    n, ratio = min(len(left), len(right)), median(right) / median(left)
    if n < _SMALLEST_BOOTSTRAP:
        return Interval(ratio, None, None, n)
    tail = _WIDER_TAIL if n == _SMALLEST_BOOTSTRAP else _TAIL
    low, high = _ratio_quantiles(left, right, (tail, 1 - tail))
    return Interval(ratio, low, high, n)


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
        return Tested(u, min(2 * tail, 1.0), min(2 * float(min(ways[0], ways[-1])), 1.0))
    from scipy import stats

    p = float(stats.mannwhitneyu(right, left, method="asymptotic").pvalue) if len(sizes) > 1 else 1.0
    return Tested(u, p, least_p(n, m))


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
    import numpy as np

    order, values = np.argsort(p_values), np.array(p_values)
    scaled = np.arange(len(order), 0, -1) * values[order]
    values[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return [float(value) for value in values]


@lru_cache(maxsize=64)
def repetitions_to_tell(tests: int = 1) -> int:
    """The least number of repetitions a side with which each of ``tests`` tests can come out below alpha by itself."""
    return next(each for each in count_from(1) if least_p(each, each) * tests <= ALPHA)


def likely_spread(a: Sequence[float], b: Sequence[float]) -> float | None:
    """A spread that the true one exceeds with a probability of 20 % only; ``None`` for 1 and 1.

    A spread is the standard deviation of the logarithms, pooled within the sides: 0.05 is about 5 %. A few repetitions
    estimate it badly, and a plan with the observed one has too few repetitions half of the time. For normal logarithms.
    Source: Browne, Statistics in Medicine 14 (1995), 1933-1940.
    """
    from scipy.special import chdtri

    sides = [[math.log(value) for value in checked(side, positive=True)] for side in (a, b)]
    freedom = len(a) + len(b) - 2
    squares = sum(pvariance(side) * len(side) for side in sides)
    return math.sqrt(squares / float(chdtri(freedom, 0.8))) if freedom else None


def detectable_ratio(n: int, m: int, spread: float, tests: int = 1) -> float:
    """The least ratio above 1 that ``n`` against ``m`` repetitions show with a probability of 80 %, in each test.

    ``spread``: see `likely_spread`. It supposes normal logarithms and that Holm's first step, 5 % / ``tests``, decides.
    Infinite where no order of the repetitions reaches that.
    """
    shift = _detectable_shift(n, m, ALPHA / tests)
    return math.inf if shift * spread > 700 else math.exp(shift * spread)


def repetitions_for(ratio: float, spread: float, tests: int = 1) -> int | None:
    """The least number of repetitions a side with which `detectable_ratio` is ``ratio`` or less; ``None`` over 1000."""
    numbers = range(repetitions_to_tell(tests), 1001)
    place = bisect_left(numbers, True, key=lambda each: detectable_ratio(each, each, spread, tests) <= ratio)
    return numbers[place] if place < len(numbers) else None


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
