"""The table of RTTs: the prober's answer joined with what is expected, the verdict, and what chance may do to it.

Chance is that of simulated probes, seeded.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.model.link import DirectionSpec, GilbertElliottLoss, IndependentLoss, Jitter, Loss
from containernet_env.network.chance import NO_CHANCE, chance_of
from containernet_env.network.rtt import ANSWERS, MeasuredPair, RttTable, Tolerance, table_from_answer

MS = 10**6
PROBES, INTERVAL_NS, TIMEOUT_NS = 25, 10 * MS, 5000 * MS
FREE = DirectionSpec()


def expected(a: str, b: str, ns: int = 12 * MS, hop: DirectionSpec = FREE) -> Any:
    return SimpleNamespace(a=a, b=b, propagation_ns=ns, expected_ns=ns, round_trip=(hop,) * 4)


def probed(median_ns: int, lost: int = 0, hop: DirectionSpec = FREE, expected_ns: int = 12 * MS) -> RttTable:
    """The table of one pair over four such hops."""
    pair = {"a": "a", "b": "b", "sent": PROBES, "lost": lost, "samples_ns": [median_ns] * (PROBES - lost)}
    answer = {"interval_ns": INTERVAL_NS, "pairs": [pair]}
    return table_from_answer(answer, {frozenset("ab"): expected("a", "b", expected_ns, hop)})


def test_the_median_is_of_the_samples() -> None:
    samples = [12_100_000, 12_300_000, 50_000_000]
    answer = {
        "pairs": [
            {"a": "d1", "b": "d2", "sent": 4, "lost": 1, "samples_ns": samples},
            {"a": "d1", "b": "d3", "sent": 4, "lost": 4, "samples_ns": [], "median_ns": None},
        ],
    }
    # The second one is asked the other way round: the pair is the same.
    wanted = {frozenset(pair): expected(*pair) for pair in (("d1", "d2"), ("d3", "d1"))}
    table = table_from_answer(answer, wanted)
    assert table.pair("d2", "d1").measured_ns == table.measured_ns(expected("d1", "d2")) == 12_300_000
    assert table.pairs[1].measured_ns is None
    assert table.worst() is table.pairs[0]  # of those with an answer
    assert RttTable(table.pairs[1:]).worst() is None
    with pytest.raises(KeyError):
        table.pair("d2", "d3")
    assert table.to_list()[0]["samples_ns"] == samples


def test_the_table_shows_both_sides_and_the_verdict() -> None:
    tables = (probed(12_060_000), probed(60_000), probed(0, PROBES), probed(0, PROBES, lossy(0.5)))
    table = RttTable(tuple(table.pairs[0] for table in tables))
    assert table.worst() is table.pairs[1]
    lines = table.render().splitlines()
    assert [line.split()[3:] for line in lines[1:]] == [
        ["12.000", "12.060", "12.060", "12.060", "+0.060", "0/25", "ok"],
        ["12.000", "0.060", "0.060", "0.060", "-11.940", "0/25", "WRONG"],
        ["12.000", "-", "-", "-", "-", "25/25", "WRONG"],
        ["12.000", "-", "-", "-", "-", "25/25", "unproven"],
    ]
    assert lines[0].split() == ["pair", "expected", "measured", "min", "max", "off", "lost"]
    assert lines[1].startswith("a - b")


@pytest.mark.parametrize(
    ("text", "absolute_ns", "ratio"),
    [("1ms", MS, 0.0), ("15%", 0, 0.15), ("1ms,15%", MS, 0.15), ("7.5%, 200us", 200_000, 0.075)],
)
def test_a_tolerance_as_users_write_it(text: str, absolute_ns: int, ratio: float) -> None:
    assert Tolerance.parse(text) == Tolerance(absolute_ns, pytest.approx(ratio))


@pytest.mark.parametrize("text", ["", "1", "ms", "1ms,2ms", "5%,5%", "1ms,5%,1%", "-5%", "nan%"])
def test_what_is_no_tolerance(text: str) -> None:
    with pytest.raises(UsageError, match="allowed"):
        Tolerance.parse(text)


def uniform(ns: int, reorder: bool = True) -> DirectionSpec:
    return DirectionSpec(3 * MS, jitter=Jitter("uniform", ns, reorder=reorder))


def lossy(ratio: float) -> DirectionSpec:
    return DirectionSpec(loss=IndependentLoss(ratio))


@pytest.mark.parametrize(
    ("measured", "problem"),
    [
        # The larger of half a millisecond and ten percent.
        (probed(12 * MS), None),
        (probed(13_200_000), None),
        (probed(13_200_001), "allowed 1.200 ms"),
        (probed(10_799_999), "off by -1.200 ms"),  # too early is as wrong as too late
        (probed(500_000, expected_ns=0), None),
        (probed(500_001, expected_ns=0), "allowed 0.500 ms"),
        # Four uniform hops: s = 2 x 1 ms / sqrt(3); five times sqrt(3/25) of it are 2 ms, beside the 1.2 ms.
        (probed(15_190_000, 0, uniform(MS)), None),
        (probed(8_810_000, 0, uniform(MS)), None),
        (probed(15_210_000, 0, uniform(MS)), "allowed 3.200 ms"),
        (probed(8_790_000, 0, uniform(MS)), "allowed 3.200 ms"),
        # With the order kept, delays 10 ms apart correlate by 1/pi, so a probe is worth less than an independent one.
        (probed(8_230_000, 0, uniform(MS, reorder=False)), "allowed 3.759 ms"),
        (probed(12 * MS, 1), "a-b: 1 of 25 probes lost, none asked to be lost"),
        (probed(12 * MS, 24), "a-b: 24 of 25 probes lost, none asked to be lost"),
        (probed(12 * MS, 25), "a-b: none of 25 probes was answered"),
        (probed(12 * MS, 5, lossy(0.05)), None),
        (probed(12 * MS, 20, lossy(0.05)), "a-b: 20 of 25 probes lost, 18.55% of probes asked to be lost"),
        (probed(12 * MS, 0, lossy(0.2)), "a-b: 0 of 25 probes lost, 59.04% of probes asked to be lost"),
        (probed(12 * MS, 25, lossy(0.1)), "a-b: 25 of 25 probes lost, 34.39% of probes asked to be lost"),
        (probed(12 * MS, 25, lossy(0.5)), None),
    ],
)
def test_what_is_wrong_and_what_chance_may_do(measured: RttTable, problem: str | None) -> None:
    problems = measured.problems()
    assert [problem in text for text in problems if problem] == [True] * (problem is not None), problems
    assert problem is not None or not problems


def test_all_probes_lost_is_unproven_where_that_is_likely() -> None:
    told = "a-b: the RTT is not proved: none of 25 probes was answered, 93.75% are asked to be lost"
    assert probed(0, 25, lossy(0.5)).unproven() == [told]
    assert probed(0, 25, lossy(0.1)).unproven() == probed(0, 25).unproven() == []


# --- simulated probes -------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("count", "jitter"),
    [
        (1, Jitter("uniform", 3 * MS, reorder=True)),
        (4, Jitter("uniform", 3 * MS, reorder=True)),
        (4, Jitter("uniform", 3 * MS)),
        (4, Jitter("uniform", MS // 2)),
        (4, Jitter("normal", MS, reorder=True)),
        (4, Jitter("normal", MS)),
        (4, Jitter("normal", MS // 10, correlation_ns=100 * MS)),
        (4, Jitter("normal", 5 * MS)),
    ],
    ids=str,
)
def test_medians_of_what_was_asked_for_are_allowed_and_not_much_more(count: int, jitter: Jitter) -> None:
    rng, hops = random.Random(1), [DirectionSpec(20 * MS, jitter=jitter)] * count
    runs = [map(sum, zip(*(delays(rng, hop) for hop in hops), strict=True)) for _ in range(400)]
    off = [abs(statistics.median(run) - count * 20 * MS) for run in runs]
    allowed = chance_of(hops, INTERVAL_NS).off_ns(PROBES)
    assert max(off) <= allowed
    # Their mean distance is 0.8 standard errors. The bound is that of one uniform hop, and of correlations of means.
    assert allowed < min(12 / 0.8 * statistics.fmean(off), count * jitter.reach_ns + 1)
    if jitter.reorder and jitter.distribution == "uniform":
        error = math.sqrt(statistics.fmean(value**2 for value in off))
        assert 4.5 * error < allowed < 8 * error, "five standard errors"


def test_no_more_is_allowed_than_a_delay_can_differ() -> None:
    assert chance_of([DirectionSpec(3 * MS, 10**9)] * 4, INTERVAL_NS) == NO_CHANCE
    assert NO_CHANCE.off_ns(1) == 0
    assert chance_of([uniform(MS, reorder=False)] * 2, 10_000).off_ns(1) == 2 * MS


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
        (IndependentLoss(0.5), 0),
        (IndependentLoss(0.9), None),
        (IndependentLoss(1), None),
        (GilbertElliottLoss(0.01, 0.25), 0),
        (GilbertElliottLoss(0.1, 0.9, 0.01, 0.8), 0),
        (GilbertElliottLoss(0.01, 0.01), 40),
        (GilbertElliottLoss(0.001, 0.01), 20),
    ],
    ids=str,
)
def test_losses_that_were_asked_for_are_no_problem_and_nearly_always_leave_a_median(
    loss: Loss, most_unproven: int | None
) -> None:
    rng, hops = random.Random(3), [DirectionSpec(3 * MS, loss=loss)] * 4
    chance = chance_of(hops, INTERVAL_NS)
    unproven, tries = 0, 200 if most_unproven is None else 2000
    for (sent, lost), times in Counter(losses(rng, hops) for _ in range(tries)).items():
        samples = (12 * MS,) * (sent - lost)
        pair = MeasuredPair("a", "b", 12 * MS, 12 * MS, 12 * MS if samples else None, sent, lost, samples, chance)
        assert pair.problem(Tolerance()) is None, (sent, lost, times)
        assert (pair.unproven is None) == bool(samples)
        unproven += times * (not samples)
    assert most_unproven is None or unproven <= most_unproven


@pytest.mark.parametrize(("asked", "seen"), [(0.001, 5), (0.01, 12), (0.05, 20), (0.5, 10), (1, 24)])
def test_losses_that_were_not_asked_for_are_not(asked: float, seen: int) -> None:
    assert not chance_of([lossy(asked)] * 4, INTERVAL_NS).loss_is_likely(PROBES, seen)
