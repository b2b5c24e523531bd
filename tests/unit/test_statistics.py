"""Statistics, tests of chance and histograms: against published tables, worked examples and enumerations."""

from __future__ import annotations

import base64
import itertools
import math
import struct
import zlib
from collections import Counter
from fractions import Fraction
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from containernet_env.model.link import Jitter
from containernet_env.network.chance import ALARM, CountTest, at_least, at_most, each, frames_for_one, sigmas, worth
from containernet_env.results import statistics as ours
from tests.unit.answers import results

MS = 1_000_000

# K. R. Nair, Sankhya 4 (1940), as in Dixon and Massey (1969): the interval is from the k-th smallest to the k-th
# largest value, and covers the median in so many per cent.
NAIR = {
    6: (1, 96.9), 8: (1, 99.2), 9: (2, 96.1), 10: (2, 97.9), 11: (2, 98.8), 12: (3, 96.1), 13: (3, 97.8),
    14: (3, 98.7), 15: (4, 96.5), 16: (4, 97.9), 17: (5, 95.1), 18: (5, 96.9), 19: (5, 98.1), 20: (6, 95.9),
    25: (8, 95.7), 30: (10, 95.7), 40: (14, 96.2), 50: (18, 96.7), 65: (25, 95.4),
}  # fmt: skip


@pytest.mark.parametrize("n", NAIR)
def test_a_medians_interval_is_that_of_the_table(n: int) -> None:
    k, percent = NAIR[n]
    found = ours.median_interval(list(range(n, 0, -1)))
    assert (found.low, found.high) == (k, n + 1 - k)
    exact = sum(Fraction(math.comb(n, below), 2**n) for below in range(k, n + 1 - k))
    assert round(100 * float(exact), 1) == percent


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60))
def test_a_median_lies_in_its_interval_which_six_values_have(values: list[float]) -> None:
    found = ours.median_interval(values)
    assert (found.low is None) == (len(values) < ours.LEAST == 6)
    assert found.low is None or found.high is None or found.low <= found.estimate <= found.high
    assert found.estimate == pytest.approx(float(np.median(values)), abs=1e-300)


def test_values_that_are_none_are_refused() -> None:
    for values in ([], [1.0, math.nan], [math.inf]):
        with pytest.raises(ValueError, match="values"):
            ours.median_interval(values)
    with pytest.raises(ValueError, match="positive"):
        ours.ratio_of_medians([1, 2, 3, 4], [0, 1, 2, 3])


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_the_bootstrap_median_is_that_of_all_resamples(n: int) -> None:
    counts: Counter[tuple[int, int]] = Counter()
    for resample in itertools.product(range(n), repeat=n):
        ordered = sorted(resample)
        counts[ordered[(n - 1) // 2], ordered[n // 2]] += 1
    i, j, chance = ours.bootstrap_median(n)
    found = {(int(a), int(b)): float(p) for a, b, p in zip(i, j, chance, strict=True)}
    assert found == pytest.approx({ranks: count / n**n for ranks, count in counts.items()})


@pytest.mark.parametrize("n", [99, 100, 2001, 2000])
def test_the_bootstrap_median_of_many_values_has_its_known_spread(n: int) -> None:
    # Of uniform values the standard deviation of a median is about 1 / (2 sqrt(n)).
    i, j, chance = ours.bootstrap_median(n)
    medians = (i + j + 1) / 2 / n
    assert (medians * chance).sum() == pytest.approx(0.5)
    assert math.sqrt((chance * (medians - 0.5) ** 2).sum()) == pytest.approx(0.5 / math.sqrt(n), rel=0.02)


@pytest.mark.parametrize(("n", "tail"), [(5, 0.025), (4, 0.005)])
def test_the_ratios_interval_is_that_of_all_pairs_of_resamples(n: int, tail: float) -> None:
    """Of four values a side it is a wider one, and of three there is none."""
    a, b = [9.1, 10.2, 10.9, 9.8, 10.4][:n], [10.8, 12.1, 11.0, 11.9, 11.3][:n]
    medians = [sorted(median(pick) for pick in itertools.product(side, repeat=n)) for side in (a, b)]
    ratios: Counter[float] = Counter()
    for (left, times), (right, more) in itertools.product(*(Counter(side).items() for side in medians)):
        ratios[right / left] += times * more
    ordered, total = sorted(ratios), n ** (2 * n)
    reached = list(itertools.accumulate(ratios[ratio] for ratio in ordered))
    ends = [next(r for r, c in zip(ordered, reached, strict=True) if c >= share * total) for share in (tail, 1 - tail)]
    found = ours.ratio_of_medians(a, b)
    assert (found.low, found.high) == pytest.approx(tuple(ends), rel=1e-9)
    assert found.estimate == median(b) / median(a) and ours.ratio_of_medians(a[:3], b).low is None


FEW = st.lists(st.integers(0, 4), min_size=1, max_size=5)


@given(FEW, FEW)
def test_equal_values_are_handed_out_in_every_way(a: list[int], b: list[int]) -> None:
    both = a + b
    rank = {value: sum(o < value for o in both) + (both.count(value) + 1) / 2 for value in both}
    sums = [sum(rank[both[i]] for i in pick) for pick in itertools.combinations(range(len(both)), len(b))]
    own = sum(rank[value] for value in b)
    tails = [sum(total <= own for total in sums), sum(total >= own for total in sums)]
    ends = [sums.count(min(sums)), sums.count(max(sums))]
    found = ours.mann_whitney(a, b)
    assert found.p == pytest.approx(min(1, 2 * min(tails) / len(sums)))
    assert found.least_p == pytest.approx(min(1, 2 * min(ends) / len(sums)))
    assert found.p >= found.least_p - 1e-12 >= ours.least_p(len(a), len(b)) - 1e-9
    assert found.u == sum((y > x) + (x == y) / 2 for x in a for y in b)


def test_many_values_are_judged_by_the_normal_distribution() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 40, 60), rng.integers(2, 42, 55)
    theirs = stats.mannwhitneyu(b, a, method="asymptotic")
    found = ours.mann_whitney(a.tolist(), b.tolist())
    assert (found.u, found.p) == (theirs.statistic, pytest.approx(theirs.pvalue))
    assert ours.mann_whitney([1] * 60, [1] * 60).p == 1
    # One against many stays exact and small.
    assert ours.mann_whitney([0.5], range(1, 2001)).p == pytest.approx(2 / 2001)


def test_holms_correction_of_a_worked_example() -> None:
    """p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm") of R 4; and that of Holm (1979) in another order."""
    assert ours.holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert ours.holm([0.03, 0.005, 0.04, 0.01]) == pytest.approx([0.06, 0.02, 0.06, 0.03])
    assert ours.holm([]) == []


def test_what_a_number_of_repetitions_can_reach() -> None:
    assert ours.least_p(3, 3) == pytest.approx(0.1)
    assert ours.least_p(4, 4) == pytest.approx(2 / 70)
    assert [ours.repetitions_to_tell(tests) for tests in (1, 2, 18)] == [4, 5, 6]
    assert ours.least_p(5, 5) * 18 > 0.05 >= ours.least_p(6, 6) * 18


def test_spreads_are_of_within_the_sides_and_the_likely_one_has_room() -> None:
    a, b = [1.0, 1.1, 1.21], [5.0, 5.5, 6.05]
    # chi-squared with 4 degrees of freedom, 20 % below: 1.649 (Fisher and Yates, table IV).
    assert ours.likely_spread(a, b) == pytest.approx(math.log(1.1) * math.sqrt(4 / 1.649), rel=1e-3)
    assert ours.likely_spread([1], [2]) is None


@pytest.mark.parametrize(("n", "m", "tests"), [(4, 4, 1), (5, 8, 1), (8, 8, 1), (6, 6, 18), (12, 12, 18), (60, 60, 1)])
def test_what_is_called_detectable_is_found_four_times_in_five(n: int, m: int, tests: int) -> None:
    ratio = ours.detectable_ratio(n, m, 0.05, tests)
    rng, found, draws = np.random.default_rng(n + 100 * tests), 0, 400
    for _ in range(draws):
        a, b = np.exp(0.05 * rng.standard_normal(n)), ratio * np.exp(0.05 * rng.standard_normal(m))
        found += ours.mann_whitney(a.tolist(), b.tolist()).p <= 0.05 / tests
    # +- 3.5 standard deviations of 400 draws.
    assert 0.73 <= found / draws <= 0.87


def test_the_repetitions_for_a_difference_are_the_least_with_which_it_is_detectable() -> None:
    for deviation, tests in ((0.02, 1), (0.05, 1), (0.05, 18), (0.3, 1)):
        needed = ours.repetitions_for(1.12, deviation, tests)
        assert needed is not None and needed >= ours.repetitions_to_tell(tests)
        assert ours.detectable_ratio(needed, needed, deviation, tests) <= 1.12
        if needed > ours.repetitions_to_tell(tests):
            assert ours.detectable_ratio(needed - 1, needed - 1, deviation, tests) > 1.12
    assert math.isinf(ours.detectable_ratio(3, 3, 0.01))
    assert ours.repetitions_for(1.0001, 0.3) is None


@pytest.mark.parametrize(("trials", "ratio"), [(1, 0.5), (50, 0.1), (300, 0.02), (700, 0.5), (20, 0.9)])
def test_tails_are_those_of_the_binomial_distribution(trials: int, ratio: float) -> None:
    terms = [math.comb(trials, k) * ratio**k * (1 - ratio) ** (trials - k) for k in range(trials + 1)]
    for count in range(-1, trials + 2):
        assert at_most(trials, count, ratio) == pytest.approx(math.fsum(terms[: count + 1]), rel=1e-6, abs=1e-30)
        assert at_least(trials, count, ratio) == pytest.approx(math.fsum(terms[max(0, count) :]), rel=1e-6, abs=1e-30)


@pytest.mark.parametrize(("trials", "ratio", "alpha"), [(400, 0.05, 0.02), (3000, 0.02, each(40)), (1000, 0.5, 1e-6)])
def test_false_alarms_are_as_rare_as_asked_and_no_rarer(trials: int, ratio: float, alpha: float) -> None:
    test = CountTest.of(trials, ratio, alpha)
    assert at_most(trials, test.low - 1, ratio) < alpha <= at_most(trials, test.low, ratio)
    assert at_least(trials, test.high + 1, ratio) < alpha <= at_least(trials, test.high, ratio)
    assert [count for count in range(trials + 1) if test.explains(count)] == list(range(test.low, test.high + 1))
    for certain, count in ((0.0, 0), (1.0, trials)):
        always = CountTest.of(trials, certain, alpha)
        assert (always.low, always.high) == (count, count)


def test_what_would_be_missed_in_more_than_one_of_a_hundred_gates_is_not_told() -> None:
    test = CountTest.of(1000, 0.02, 1e-3)
    missed = {}
    for other in (0.03 + 0.001 * step for step in range(60)):
        missed[other] = at_most(1000, test.high, other) - at_most(1000, test.low - 1, other)
    assert any(0.01 < share < 0.05 for share in missed.values()) and any(share < 0.01 for share in missed.values())
    assert {other for other in missed if test.detects(other)} == {other for other in missed if missed[other] <= 0.01}
    # A thousandth takes many frames to tell from none, and from twice as much.
    for trials, told in ((500, (False, False)), (20_000, (True, False)), (62_000, (True, True))):
        rare = CountTest.of(trials, 0.001, each(40))
        assert (rare.detects(0.0), rare.detects(0.002)) == told


def test_all_tests_of_a_gate_share_its_false_alarms() -> None:
    assert each(1) * 2 == ALARM
    assert each(100) * 100 * 2 == pytest.approx(ALARM)
    assert sigmas(0.0228) == pytest.approx(2.0, abs=0.01)
    assert worth(1000, 0.0) == 1000 and worth(1000, 0.5) == pytest.approx(333.3, abs=0.1)


COMPRESSED = 0x1C849314


def encoded(content: bytes, cookie: int = 0x1C849303) -> str:
    body = struct.pack(">iiiiqqd", cookie | 0x10, len(content), 0, 3, 1, 3_600_000_000_000, 1.0) + content
    packed = zlib.compress(body)
    return base64.b64encode(struct.pack(">ii", COMPRESSED, len(packed)) + packed).decode()


def test_histograms_of_the_documentation_say_what_their_results_say() -> None:
    recorded = [load["response_time"] for load in results().values() if "histogram" in (load["response_time"] or {})]
    assert recorded, "no example has a histogram"
    for times in recorded:
        found = ours.decode(times["histogram"])
        assert found.total == times["count"]
        assert times["max_s"] * 1e9 <= found.counts[-1][0] <= times["max_s"] * 1e9 * 1.001 + 1
        for percent, told_s in times["percentiles_s"].items():
            (value,) = found.percentiles_ns([float(percent)])
            if value is not None and told_s is not None:
                assert told_s * 1e9 * 0.999 <= value <= told_s * 1e9 * 1.002, percent


def test_counts_are_in_their_slots_and_merged_slot_by_slot() -> None:
    """1 in slot 0, 300 in slot 2; a run of zeros is a negative number (zigzag: -1 is 1, 1 is 2, 300 is 600)."""
    found = ours.decode(encoded(bytes([2, 1, 0xD8, 0x04])))
    assert found.counts == ((0, 1), (2, 300)) and found.total == 301
    assert found.percentiles_ns([0.1, 1, 99]) == [0, 2, 2]
    both = ours.merged([ours.Histogram(((5, 2), (9, 1))), ours.Histogram(((7, 4), (9, 3)))])
    assert both.counts == ((5, 2), (7, 4), (9, 4)) and ours.merged([]).total == 0
    # A percentage that only the largest value reaches is not told.
    assert ours.decode(encoded(bytes([2] * 100))).percentiles_ns([50, 99, 99.9]) == [49, 98, None]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HISTF",
        "!!!!",
        base64.b64encode(struct.pack(">i", COMPRESSED)).decode(),
        base64.b64encode(struct.pack(">ii", COMPRESSED, 3) + b"abc").decode(),
        encoded(bytes([2])).replace("H", "J", 1),
        encoded(bytes([2]), cookie=0x1C849301),
        encoded(bytes([0x82])),
        encoded(b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        base64.b64encode(struct.pack(">ii", COMPRESSED, 40) + zlib.compress(bytes(1 << 25))[:40]).decode(),
        encoded(b""),
        encoded(bytes([0])),
        encoded(bytes([0xBF, 0xA9, 0x07, 2])),  # after 60,000 empty slots: above 2^63 ns
        encoded(bytes([0xFF, 0x88, 0x7A, 2])),  # after a million: no number holds it
        encoded(bytes((1 << 20) + 2) + b"\x82"),  # 16 kB inflated to a list of 16 million numbers
    ],
)
def test_other_texts_are_no_histograms(text: str) -> None:
    with pytest.raises(ValueError, match=r"histogram|cut short|slots"):
        ours.decode(text)


@pytest.mark.parametrize("correlation_ms", [1, 10, 40])
@pytest.mark.parametrize("of_variance", [False, True])
def test_correlated_frames_are_worth_as_many_independent_ones(correlation_ms: int, of_variance: bool) -> None:
    """Means of 25 delays, 10 ms apart, of the emulator's process: their variance beside that of independent ones."""
    jitter, frames, rng = Jitter("normal", MS // 10, correlation_ns=correlation_ms * MS), 25, np.random.default_rng(7)
    times = rng.random((4000, 1)) + np.arange(frames) * 10 / correlation_ms
    at, turns = times.astype(int), math.pi / 2 * (times % 1)
    knots = rng.standard_normal((4000, at.max() + 2))
    before, behind = (np.take_along_axis(knots, at + more, axis=1) for more in (0, 1))
    values = np.cos(turns) * before + np.sin(turns) * behind
    means = (values**2 if of_variance else values).mean(axis=1)
    worth = means.var() * frames / (2 if of_variance else 1)
    assert 0.6 * worth < frames_for_one(jitter, 10 * MS, of_variance=of_variance) < 2 * worth
    assert frames_for_one(jitter, 10 * MS, of_variance=of_variance) > 0.9 * worth, "at most: never worth more"
