"""How far from its expectation a measured RTT may be by chance alone, where a path has jitter or loss.

Both are configured, so they must not fail the proof of a network; nor may a network pass that loses frames or varies in
any other way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from containernet_env.model.link import DirectionSpec

SIGMAS = 5.0
"""How many standard errors the median may be off: 6 in 10 million medians of a normal distribution are farther."""

ALPHA = 3e-7
"""A count of lost probes is refused when one as far out, on its side, is rarer than this: one tail of five sigmas."""


@dataclass(frozen=True, slots=True)
class Chance:
    """The random variation and loss of one probe's round trip, by jitter and loss.

    ``deviation_ns``: standard deviation of its delay. ``reach_ns``: by how much its delay can differ from the mean,
    either way. ``held_ns``: by how much, in the mean, it is later where frames keep order and wait for those ahead.
    ``loss_ratio``: the probability that it is lost; ``correlation`` (0 to 1): of the losses of two consecutive probes.
    """

    deviation_ns: float = 0.0
    reach_ns: int = 0
    held_ns: float = 0.0
    loss_ratio: float = 0.0
    correlation: float = 0.0

    def early_ns(self, samples: int) -> int:
        """How far below its expectation the median of ``samples`` (1 or more) RTTs may be.

        The delays of all hops are symmetric around their means and unimodal, and so is their sum, whose median is
        therefore the expected RTT. The median of n draws is asymptotically normal around it with the standard error
        1 / (2 f sqrt(n)), f being the density at the median (Cramer, Mathematical Methods of Statistics, 1946, 28.5).
        Of all unimodal symmetric distributions with the standard deviation s, the uniform one has the smallest f,
        1 / (2 sqrt(3) s): so sqrt(3) s / sqrt(n) bounds the error. ``SIGMAS`` of it are allowed, and never more than
        a delay can differ at all.
        """
        return min(self.reach_ns, round(SIGMAS * math.sqrt(3 / samples) * self.deviation_ns))

    def late_ns(self, samples: int) -> int:
        """How far above its expectation the median may be: as much, and the wait for frames ahead besides."""
        return min(self.reach_ns, round(self.early_ns(samples) + self.held_ns))

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


def chance_of(round_trip: Iterable[DirectionSpec], frames_per_s: float) -> Chance:
    """The random variation and loss of a probe that takes these directions, there and back.

    ``frames_per_s``: how many probes and answers each direction carries per second. Where frames keep their order,
    one that entered with k others within the last 2 reaches cannot be later than the latest of k + 1 draws.
    """
    hops = list(round_trip)
    variance, reach_ns, held_ns, kept = 0.0, 0, 0.0, 1.0
    correlation = 0.0
    for hop in hops:
        if hop.jitter is not None:
            variance += hop.jitter.deviation_ns**2
            reach_ns += hop.jitter.reach_ns
            if not hop.jitter.reorder:
                ahead = math.ceil(2 * hop.jitter.reach_ns / 1e9 * frames_per_s)
                held_ns += _mean_of_latest(hop.jitter.distribution, hop.jitter.ns, ahead + 1)
        if hop.loss is not None:
            kept *= 1 - hop.loss.mean_ratio
            correlation = max(correlation, hop.loss.correlation)
    return Chance(math.sqrt(variance), reach_ns, held_ns, 1 - kept if kept < 1 else 0.0, correlation)


def _mean_of_latest(distribution: str, ns: int, draws: int) -> float:
    """Mean of the largest of ``draws`` (1 or more), less that of one.

    Uniform: ns (m - 1) / (m + 1). Any other: at most s (m - 1) / sqrt(2 m - 1) (Gumbel, Ann. Math. Statist. 25, 1954;
    Hartley and David in the same volume).
    """
    if distribution == "uniform":
        return ns * (draws - 1) / (draws + 1)
    return ns * (draws - 1) / math.sqrt(2 * draws - 1)
