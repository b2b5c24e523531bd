"""The tests of chance: exact tails, how often they alarm for nothing, and what they tell."""

from __future__ import annotations

import math
import random

import pytest

from containernet_env.analysis.odds import ALARM, MISS, CountTest, at_least, at_most, each, sigmas, worth


@pytest.mark.parametrize(("trials", "ratio"), [(1, 0.5), (50, 0.1), (300, 0.02), (700, 0.5), (20, 0.9)])
def test_tails_are_those_of_the_binomial_distribution(trials: int, ratio: float) -> None:
    terms = [math.comb(trials, k) * ratio**k * (1 - ratio) ** (trials - k) for k in range(trials + 1)]
    for count in range(-1, trials + 2):
        assert at_most(trials, count, ratio) == pytest.approx(math.fsum(terms[: count + 1]), rel=1e-6, abs=1e-30)
        assert at_least(trials, count, ratio) == pytest.approx(math.fsum(terms[max(0, count) :]), rel=1e-6, abs=1e-30)


@pytest.mark.parametrize(("ratio", "low", "high"), [(0.0, 0, 0), (1.0, 500, 500)])
def test_what_is_certain_leaves_no_choice(ratio: float, low: int, high: int) -> None:
    test = CountTest.of(500, ratio, 1e-6)
    assert (test.low, test.high) == (low, high)


def test_false_alarms_are_as_rare_as_asked() -> None:
    source, alarms = random.Random(1), 0
    test = CountTest.of(400, 0.05, 0.02)
    for _ in range(4000):
        alarms += not test.explains(sum(source.random() < 0.05 for _ in range(400)))
    # 0.02 on each side at most, and five standard errors; the tails of a count are smaller than asked.
    assert 0.005 < alarms / 4000 < 0.04 + 5 * math.sqrt(0.04 / 4000)


@pytest.mark.parametrize(
    ("trials", "none", "twice"), [(500, False, False), (20_000, True, False), (62_000, True, True)]
)
def test_a_thousandth_takes_many_frames_to_tell(trials: int, none: bool, twice: bool) -> None:
    test = CountTest.of(trials, 0.001, each(40))
    assert (test.tells(0.0), test.tells(0.002)) == (none, twice)


def test_what_a_test_tells_it_finds() -> None:
    source, found = random.Random(2), 0
    test = CountTest.of(3000, 0.02, each(40))
    assert test.tells(0.04)
    for _ in range(300):
        found += not test.explains(sum(source.random() < 0.04 for _ in range(3000)))
    assert found / 300 >= 1 - MISS - 0.01


def test_what_would_be_missed_in_more_than_one_of_a_hundred_gates_is_not_told() -> None:
    test = CountTest.of(1000, 0.02, 1e-3)
    missed = {}
    for other in (0.03 + 0.001 * step for step in range(60)):
        missed[other] = at_most(1000, test.high, other) - at_most(1000, test.low - 1, other)
    assert any(0.01 < share < 0.05 for share in missed.values()) and any(share < 0.01 for share in missed.values())
    assert {other for other in missed if test.tells(other)} == {other for other in missed if missed[other] <= 0.01}


def test_all_tests_of_a_gate_share_its_false_alarms() -> None:
    assert each(1) * 2 == ALARM
    assert each(100) * 100 * 2 == pytest.approx(ALARM)
    assert sigmas(0.0228) == pytest.approx(2.0, abs=0.01)
    assert worth(1000, 0.0) == 1000 and worth(1000, 0.5) == pytest.approx(333.3, abs=0.1)
