"""The table of RTTs: joining the prober's answer with what is expected, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.fidelity.rtt import MeasuredPair, RttTable, Tolerance, table_from_answer
from containernet_env.model.chance import IndependentLoss, Jitter
from containernet_env.model.link import DirectionSpec


@dataclass(frozen=True)
class Expected:
    a: str
    b: str
    propagation_ns: int
    expected_ns: int
    round_trip: tuple[DirectionSpec, ...] = ()


def pair(measured_ns: int | None, expected_ns: int = 12_000_000, name: str = "d2") -> MeasuredPair:
    samples = () if measured_ns is None else (measured_ns,)
    return MeasuredPair("d1", name, expected_ns, expected_ns, measured_ns, 25, 0 if samples else 25, samples)


def test_the_median_is_of_the_samples() -> None:
    answer = {
        "frame_bytes": 98,
        "pairs": [
            {"a": "d1", "b": "d2", "sent": 4, "lost": 1, "samples_ns": [12_100_000, 12_300_000, 50_000_000]},
            {"a": "d1", "b": "d3", "sent": 4, "lost": 4, "samples_ns": [], "median_ns": None},
        ],
    }
    expected = {
        frozenset(("d1", "d2")): Expected("d1", "d2", 12_000_000, 12_003_136),
        # Asked the other way round: the pair is the same.
        frozenset(("d3", "d1")): Expected("d3", "d1", 6_000_000, 6_000_000),
    }
    table = table_from_answer(answer, expected)
    assert table.pair("d2", "d1").measured_ns == 12_300_000
    assert table.measured_ns(expected[frozenset(("d1", "d2"))]) == 12_300_000
    assert table.pairs[1].measured_ns is None
    assert table.worst() is table.pairs[0]  # of those with an answer
    assert RttTable(table.pairs[1:]).worst() is None
    with pytest.raises(KeyError):
        table.pair("d2", "d3")
    assert table.to_list()[0]["samples_ns"] == [12_100_000, 12_300_000, 50_000_000]


@pytest.mark.parametrize(
    ("measured_ns", "expected_ns", "good"),
    [
        (12_000_000, 12_000_000, True),
        (13_200_000, 12_000_000, True),
        (13_200_001, 12_000_000, False),
        (10_799_999, 12_000_000, False),  # too early is as wrong as too late
        (500_000, 0, True),
        (500_001, 0, False),
        (None, 12_000_000, False),
    ],
)
def test_the_larger_of_half_a_millisecond_and_ten_percent(
    measured_ns: int | None, expected_ns: int, good: bool
) -> None:
    problems = RttTable((pair(measured_ns, expected_ns),)).problems()
    assert bool(problems) is not good
    assert all("d1-d2" in problem for problem in problems)


def test_the_table_shows_both_sides_and_the_verdict() -> None:
    text = RttTable((pair(12_060_000), pair(60_000, name="d3"), pair(None, name="d4"))).render()
    lines = text.splitlines()
    assert lines[0].split() == ["pair", "expected", "measured", "min", "max", "off", "lost"]
    assert lines[1].split() == ["d1", "-", "d2", "12.000", "12.060", "12.060", "12.060", "+0.060", "0/25", "ok"]
    assert lines[2].split()[-3:] == ["-11.940", "0/25", "WRONG"]
    assert lines[3].split()[3:] == ["12.000", "-", "-", "-", "-", "25/25", "WRONG"]


@pytest.mark.parametrize(
    ("text", "absolute_ns", "ratio"),
    [("1ms", 1_000_000, 0.0), ("15%", 0, 0.15), ("1ms,15%", 1_000_000, 0.15), ("7.5%, 200us", 200_000, 0.075)],
)
def test_a_tolerance_as_users_write_it(text: str, absolute_ns: int, ratio: float) -> None:
    tolerance = Tolerance.parse(text)
    assert tolerance.absolute_ns == absolute_ns
    assert tolerance.ratio == pytest.approx(ratio)


@pytest.mark.parametrize("text", ["", "1", "ms", "1ms,2ms", "5%,5%", "1ms,5%,1%", "-5%", "nan%"])
def test_what_is_no_tolerance(text: str) -> None:
    with pytest.raises(UsageError, match="allowed"):
        Tolerance.parse(text)


def probed(median_ns: int, lost: int, hop: DirectionSpec) -> RttTable:
    answers = [median_ns] * (25 - lost)
    answer = {
        "interval_ns": 10_000_000,
        "pairs": [{"a": "a", "b": "b", "sent": 25, "lost": lost, "samples_ns": answers}],
    }
    return table_from_answer(answer, {frozenset("ab"): Expected("a", "b", 12_000_000, 12_000_000, (hop,) * 4)})


def test_jitter_widens_what_is_allowed_and_no_more_than_it_can_do() -> None:
    hop = DirectionSpec(3_000_000, jitter=Jitter("uniform", 1_000_000, reorder=True))
    # Four uniform hops: s = 2 x 1 ms / sqrt(3); five times sqrt(3/25) of it are 2 ms, beside the 1.2 ms of every link.
    assert probed(15_190_000, 0, hop).problems() == []
    assert probed(8_810_000, 0, hop).problems() == []
    (late,) = probed(15_210_000, 0, hop).problems()
    assert "allowed 3.200 ms" in late
    assert probed(8_790_000, 0, hop).problems() != []
    # With the order kept, delays 10 ms apart correlate by 1/pi, so a probe is worth less than an independent one.
    (early,) = probed(8_230_000, 0, DirectionSpec(3_000_000, jitter=Jitter("uniform", 1_000_000))).problems()
    assert "allowed 3.759 ms" in early


def test_losses_that_were_asked_for_are_no_problem_and_others_are() -> None:
    some, none = DirectionSpec(loss=IndependentLoss(0.05)), DirectionSpec()
    assert probed(12_000_000, 5, some).problems() == []
    (many,) = probed(12_000_000, 20, some).problems()
    assert "20 of 25 probes lost, 18.55% of probes asked to be lost" in many
    (few,) = probed(12_000_000, 0, DirectionSpec(loss=IndependentLoss(0.2))).problems()
    assert "0 of 25 probes lost, 59.04% of probes asked to be lost" in few
    assert probed(12_000_000, 0, none).problems() == []


@pytest.mark.parametrize("lost", [1, 3, 24])
def test_a_probe_that_links_without_loss_lose_is_a_problem(lost: int) -> None:
    (problem,) = probed(12_000_000, lost, DirectionSpec()).problems()
    assert problem == f"a-b: {lost} of 25 probes lost, none asked to be lost"
    (silent,) = probed(12_000_000, 25, DirectionSpec()).problems()
    assert silent == "a-b: none of 25 probes was answered"


def test_all_probes_lost_is_a_problem_unless_that_is_likely() -> None:
    likely = probed(12_000_000, 25, DirectionSpec(loss=IndependentLoss(0.5)))
    assert likely.problems() == []
    assert likely.unproven() == [
        "a-b: the RTT is not proved: none of 25 probes was answered, 93.75% are asked to be lost"
    ]
    assert likely.render().splitlines()[1].endswith("25/25  unproven")
    unlikely = probed(12_000_000, 25, DirectionSpec(loss=IndependentLoss(0.1)))
    assert unlikely.problems() == ["a-b: 25 of 25 probes lost, 34.39% of probes asked to be lost"]
    assert unlikely.unproven() == []
