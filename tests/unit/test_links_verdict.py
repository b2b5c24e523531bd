"""What chance may do to a measured RTT, against simulated probes: seeded, so that a failure repeats."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable

import pytest

from containernet_env.analysis.rtt_chance import NO_CHANCE, chance_of
from containernet_env.fidelity.rtt import ANSWERS, MeasuredPair, Tolerance
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter
from containernet_env.model.link import DirectionSpec

MS = 10**6
PROBES = 25
INTERVAL_NS = 10 * MS
TIMEOUT_NS = 5000 * MS
TRIALS = 400


def normal(rng: random.Random, tail: float = 4) -> float:
    while abs(z := rng.gauss(0, 1)) > tail:
        pass
    return z


def delays(rng: random.Random, hop: DirectionSpec) -> list[float]:
    """Delays of probes, one each interval, as the model draws them (link_emulator/model/chance.go)."""
    jitter = hop.jitter
    assert jitter is not None
    values = [normal(rng) for _ in range(PROBES)]
    if not jitter.reorder:
        phase = rng.random()
        times = [phase + number * INTERVAL_NS / jitter.held_correlation_ns for number in range(PROBES)]
        knots = [rng.gauss(0, 1) for _ in range(int(times[-1]) + 2)]
        values = [
            math.cos(math.pi / 2 * (time % 1)) * knots[int(time)]
            + math.sin(math.pi / 2 * (time % 1)) * knots[int(time) + 1]
            for time in times
        ]
    if jitter.distribution == "uniform":
        values = [math.erf(value / math.sqrt(2)) for value in values]
    return [hop.delay_ns + value * jitter.ns for value in values]


def medians(rng: random.Random, hops: list[DirectionSpec]) -> list[float]:
    """Medians of runs of probes over these hops."""
    return [statistics.median(map(sum, zip(*(delays(rng, hop) for hop in hops), strict=True))) for _ in range(TRIALS)]


@pytest.mark.parametrize(
    "jitter",
    [
        Jitter("uniform", 3 * MS, reorder=True),
        Jitter("uniform", 3 * MS),
        Jitter("uniform", MS // 2),
        Jitter("normal", MS, reorder=True),
        Jitter("normal", MS),
        Jitter("normal", MS // 10, correlation_ns=100 * MS),
        Jitter("normal", 5 * MS),
    ],
    ids=str,
)
def test_medians_of_what_was_asked_for_are_allowed(jitter: Jitter) -> None:
    hops = [DirectionSpec(20 * MS, jitter=jitter)] * 4
    chance = chance_of(hops, INTERVAL_NS)
    off = [abs(median - 80 * MS) for median in medians(random.Random(1), hops)]
    assert max(off) <= chance.off_ns(PROBES)
    # Their mean distance is 0.8 standard errors. The bound is that of one uniform hop, and of correlations of means.
    assert chance.off_ns(PROBES) < min(12 / 0.8 * statistics.fmean(off), 4 * jitter.reach_ns + 1)


@pytest.mark.parametrize("hops", [1, 4])
def test_the_allowance_is_five_standard_errors_and_not_much_more(hops: int) -> None:
    path = [DirectionSpec(20 * MS, jitter=Jitter("uniform", 3 * MS, reorder=True))] * hops
    error = statistics.pstdev(medians(random.Random(2), path))
    allowed = chance_of(path, INTERVAL_NS).off_ns(PROBES)
    # The bound is that of one uniform hop; the sum of several is nearer to the normal distribution.
    assert 4.5 * error < allowed < 8 * error


def test_without_chance_nothing_is_allowed() -> None:
    assert chance_of([DirectionSpec(3 * MS, 10**9)] * 4, INTERVAL_NS) == NO_CHANCE
    assert NO_CHANCE.off_ns(1) == 0


def test_no_more_is_allowed_than_a_delay_can_differ() -> None:
    chance = chance_of([DirectionSpec(3 * MS, jitter=Jitter("uniform", MS))] * 2, 10_000)
    assert chance.off_ns(1) == 2 * MS


def losses(rng: random.Random, hops: list[DirectionSpec]) -> tuple[int, int]:
    """How many probes are sent and lost, by the prober's rule (link_emulator/rtt/pair.go): more where few come back.

    The warm-up ended with an answer, so every hop begins in its good state.
    """
    bad = [False] * len(hops)
    sent = lost = 0
    while sent < PROBES or (sent - lost < ANSWERS and sent * INTERVAL_NS <= TIMEOUT_NS):
        sent += 1
        for index, hop in enumerate(hops):
            ratio = 0.0
            if isinstance(hop.loss, IndependentLoss):
                ratio = hop.loss.ratio
            elif isinstance(hop.loss, GilbertElliottLoss):
                ratio = hop.loss.bad_loss_ratio if bad[index] else hop.loss.good_loss_ratio
                leave = hop.loss.bad_to_good_ratio if bad[index] else hop.loss.good_to_bad_ratio
                bad[index] ^= rng.random() < leave
            if rng.random() < ratio:
                lost += 1
                break
    return sent, lost


@pytest.mark.parametrize(
    ("loss", "most_unproven"),
    [
        (IndependentLoss(0.001), 0),
        (IndependentLoss(0.05), 0),
        (IndependentLoss(0.4), 0),
        (IndependentLoss(0.5), 0),
        (IndependentLoss(0.9), 2000),
        (IndependentLoss(1), 2000),
        (GilbertElliottLoss(0.01, 0.25), 0),
        (GilbertElliottLoss(0.1, 0.9, 0.01, 0.8), 0),
        (GilbertElliottLoss(0.01, 0.01), 40),
        (GilbertElliottLoss(0.001, 0.01), 20),
    ],
    ids=str,
)
def test_losses_that_were_asked_for_are_no_problem_and_nearly_always_leave_a_median(
    loss: IndependentLoss | GilbertElliottLoss, most_unproven: int
) -> None:
    rng, hops = random.Random(3), [DirectionSpec(3 * MS, loss=loss)] * 4
    chance = chance_of(hops, INTERVAL_NS)
    outcomes = Counter(losses(rng, hops) for _ in range(2000))
    unproven = 0
    for (sent, lost), times in outcomes.items():
        samples = (12 * MS,) * (sent - lost)
        pair = MeasuredPair("a", "b", 12 * MS, 12 * MS, 12 * MS if samples else None, sent, lost, samples, chance)
        assert pair.problem(Tolerance()) is None, (sent, lost, times)
        assert (pair.unproven is None) == bool(samples)
        unproven += times * (not samples)
    assert unproven <= most_unproven


@pytest.mark.parametrize(
    ("asked", "seen"), [(0.001, lambda: 5), (0.01, lambda: 12), (0.05, lambda: 20), (0.5, lambda: 10), (1, lambda: 24)]
)
def test_losses_that_were_not_asked_for_are_not(asked: float, seen: Callable[[], int]) -> None:
    chance = chance_of([DirectionSpec(loss=IndependentLoss(asked))] * 4, INTERVAL_NS)
    assert not chance.loss_is_likely(PROBES, seen())
