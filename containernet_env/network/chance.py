"""What chance does to counts and RTTs: exact tails of the binomial distribution, and deviations of a median."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

from containernet_env.model.link import DirectionSpec, Jitter

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


SIGMAS = 5.0
"""How many standard errors the median may be off: 6 in 10 million medians of a normal distribution are farther."""

ALPHA = 3e-7
"""A count of lost probes is refused when one as far out, on its side, is rarer than this: one tail of five sigmas."""


@dataclass(frozen=True, slots=True)
class Chance:
    """The random variation and loss of one probe's round trip, by jitter and loss.

    ``deviation_ns``: standard deviation of its delay; where the delays of consecutive probes correlate, that of
    independent ones whose median varies as much. ``reach_ns``: by how much its delay can differ from the mean, either
    way. ``loss_ratio``: the probability that it is lost; ``correlation`` (0 to 1): of the losses of two consecutive
    probes.
    """

    deviation_ns: float = 0.0
    reach_ns: int = 0
    loss_ratio: float = 0.0
    correlation: float = 0.0

    def off_ns(self, samples: int) -> int:
        """How far from its expectation the median of ``samples`` (1 or more) RTTs may be, either way.

        The delays of all hops are symmetric around their means and unimodal, and so is their sum, whose median is
        therefore the expected RTT. The median of n draws is asymptotically normal around it with the standard error
        1 / (2 f sqrt(n)), f being the density at the median (Cramer, Mathematical Methods of Statistics, 1946, 28.5).
        Of all unimodal symmetric distributions with the standard deviation s, the uniform one has the smallest f,
        1 / (2 sqrt(3) s): so sqrt(3) s / sqrt(n) bounds the error. ``SIGMAS`` of it are allowed, and never more than
        a delay can differ at all.
        """
        return min(self.reach_ns, round(SIGMAS * math.sqrt(3 / samples) * self.deviation_ns))

    def loss_is_likely(self, sent: int, lost: int) -> bool:
        """Whether ``lost`` of ``sent`` probes may have been lost by the configured losses.

        Independent losses: both tails of the binomial distribution, exactly. In bursts, n probes whose losses
        correlate by r from one to the next are worth n (1 - r) / (1 + r) independent ones (Bayley and
        Hammersley, J. R. Statist. Soc. Suppl. 8, 1946): so many, with the same share of losses, are judged.
        """
        worth = max(1, math.floor(sent * (1 - self.correlation) / (1 + self.correlation)))
        count = lost * worth / sent
        # Rounded towards what is expected: a fraction of a probe proves nothing.
        count = math.floor(count) if count > worth * self.loss_ratio else math.ceil(count)
        few = sum(_binomial(worth, k, self.loss_ratio) for k in range(count + 1))
        many = sum(_binomial(worth, k, self.loss_ratio) for k in range(count, worth + 1))
        return min(few, many) >= ALPHA


NO_CHANCE = Chance()


def _binomial(n: int, k: int, p: float) -> float:
    return math.comb(n, k) * float(p**k) * float((1 - p) ** (n - k))


def chance_of(round_trip: Iterable[DirectionSpec], interval_ns: float) -> Chance:
    """The random variation and loss of a probe that takes these directions, there and back.

    ``interval_ns``: from one probe to the next. Where frames keep their order, the delays of probes within the
    correlation time are not independent: see ``frames_for_one``.
    """
    variance, reach_ns, kept, correlation = 0.0, 0, 1.0, 0.0
    for hop in round_trip:
        if hop.jitter is not None:
            variance += hop.jitter.deviation_ns**2 * frames_for_one(hop.jitter, interval_ns)
            reach_ns += hop.jitter.reach_ns
        if hop.loss is not None:
            kept *= 1 - hop.loss.mean_ratio
            correlation = max(correlation, hop.loss.correlation)
    return Chance(math.sqrt(variance), reach_ns, 1 - kept if kept < 1 else 0.0, correlation)


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
