"""Which rates a search probes, on simulated stores: it finds the rate that holds, and says where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import cycle, pairwise
from math import exp, log
from random import Random

import pytest

from containernet_env.model.search import MAX_PROBES, Objective, Saturation, Search, Step, Verdict

Store = Callable[[Step], Verdict]
P99 = (Objective("99", 50_000_000),)


def search(low: float = 10, high: float = 100_000, **settings: object) -> Search:
    return Search(P99, Decimal(str(low)), Decimal(str(high)), **settings)  # type: ignore[arg-type]


def run(searched: Search, store: Store) -> tuple[Saturation, list[tuple[Step, Verdict]]]:
    course = Saturation(searched)
    made = []
    while (step := course.next) is not None:
        verdict = store(step)
        made.append((step, verdict))
        course.record(verdict)
    return course, made


def carries(rate: float) -> Store:
    return lambda step: "held" if step.rate <= rate else "missed"


def queue_of_one(capacity: float, limit_s: float, seed: int, noise: float = 0.25) -> Store:
    """The p99 of an M/M/1 queue, -ln(0.01) / (capacity - rate), as its probes of 1000 requests or more see it.

    A quantile of n samples varies: here with a relative deviation of about sqrt(0.99 / 0.01 / n) / ln(100), and more
    as requests wait for each other. Half of all probes hold at the rate capacity - ln(100) / limit.
    """
    draws = Random(seed)

    def store(step: Step) -> Verdict:
        if step.rate >= capacity:
            return "missed"
        p99_s = log(100) / (capacity - float(step.rate)) * exp(draws.gauss(0, noise))
        return "held" if p99_s <= limit_s else "missed"

    return store


def test_it_finds_the_rate_on_a_store_that_always_answers_alike() -> None:
    for rate in (11, 199, 200, 4321, 99_000):
        course, made = run(search(), carries(rate))
        low, high = course.low, course.high
        assert low is not None and high is not None
        assert course.end == "found"
        assert course.rates[low] <= rate < course.rates[high]
        assert high == low + 1, "the rates of the interval are neighbours"
        assert course.rates[high] <= course.rates[low] * Decimal("1.051")
        repeats = [(step.index, verdict) for step, verdict in made if step.purpose == "repeat"]
        assert repeats == [(high, "missed")] * 6 + [(low, "held")] * 6
        assert len(made) <= 12 + 10 + 5


def test_it_begins_where_a_step_has_enough_requests_and_doubles_or_halves() -> None:
    _, made = run(search(), carries(3000))
    doubled = [float(step.rate) for step, _ in made if step.purpose == "bracket"]
    assert 200 <= doubled[0] < 215
    assert [round(b / a, 1) for a, b in pairwise(doubled)] == [2.0] * 4
    _, made = run(search(), carries(30))
    halved = [float(step.rate) for step, _ in made if step.purpose == "bracket"]
    assert [round(a / b, 1) for a, b in pairwise(halved)] == [2.0] * 3
    # A finer grid and fewer repeats, as configured.
    course, made = run(search(within=Decimal("0.01"), repeats=3), carries(4321))
    assert course.low is not None and course.high is not None
    assert course.rates[course.high] <= course.rates[course.low] * Decimal("1.0111")
    assert len([step for step, _ in made if step.purpose == "repeat"]) == 6


def test_the_interval_of_a_noisy_store_has_the_rate_at_which_half_of_all_probes_hold() -> None:
    """The confidence is stated as 96.9 % for 6 repeats: of 400 searches 12 may miss, 24 or more do in 1 of 1000."""
    missed, widths, threshold = 0, [], 1000 - log(100) / 0.02
    for seed in range(400):
        course, made = run(search(within=Decimal("0.02")), queue_of_one(1000, 0.02, seed))
        assert course.end == "found", f"seed {seed}: {course.end} after {len(made)} probes"
        assert course.low is not None and course.high is not None
        low, high = float(course.rates[course.low]), float(course.rates[course.high])
        missed += not low <= threshold < high
        widths.append(high / low)
    assert missed < 24, f"{missed} of 400 intervals do not have {threshold:.0f}/s"
    assert sorted(widths)[200] < 1.35, f"median width {sorted(widths)[200]:.3f}"


def first(verdicts: Iterable[Verdict], then: Store, purpose: str = "") -> Store:
    """The first probes, of that purpose, find these verdicts, the others what ``then`` says."""
    left = iter(verdicts)
    return lambda step: next(left, None) or then(step) if purpose in ("", step.purpose) else then(step)


def up_to(rate: float, below: Store, above: Verdict) -> Store:
    return lambda step: below(step) if step.rate <= rate else above


LIMIT_AT_1500, LIMIT_AT_4999 = up_to(1500, carries(1000), "machine"), up_to(4999, carries(5000), "machine")
SOMETIMES = first(cycle(("held", "missed")), carries(0))
ENDS: dict[str, tuple[Search, Store, str, float | None, int | None]] = {
    "it never holds": (search(), carries(0), "from", None, 6),
    "the lowest rate holds sometimes": (search(high=20), SOMETIMES, "from", None, None),
    "it always holds": (search(high=5000), carries(9000), "to", 5000, 6),
    # Above it nobody can tell; the rate that held is known all the same.
    "a limit of the generator": (search(), up_to(3000, carries(3000), "generator"), "generator", 3000, 9),
    "a limit of the machine": (search(), up_to(3000, carries(3000), "machine"), "machine", 3000, 9),
    "a limit at the highest rate alone": (search(high=5000), LIMIT_AT_4999, "machine", 4999, None),
    "a limit everywhere": (search(), up_to(0, carries(0), "machine"), "machine", None, None),
    "a limit above a store that misses": (search(), LIMIT_AT_1500, "found", 1000, None),
    # One early miss makes the search look for the upper end far up, where the machine is the limit.
    "a limit met above the interval": (search(), first(("held", "missed"), LIMIT_AT_1500), "found", 1000, 27),
    "a limit that passes": (search(), first(["machine"] * 2, carries(1000), "repeat"), "found", 1000, 14),
    **{
        f"a hiccup of probe {n}": (search(), first([*["held"] * (n - 1), "missed"], carries(5000)), "found", 5000, None)
        for n in range(1, 5)
    },
    "a hiccup of a repeat": (search(), first(["held"], carries(5000), "repeat"), "found", 5000, None),
}


@pytest.mark.parametrize("case", ENDS)
def test_how_a_search_ends(case: str) -> None:
    searched, store, end, rate, repeats = ENDS[case]
    course, made = run(searched, store)
    assert course.end == end
    if rate is None:
        assert course.low is None and course.high in (None, 0)
    else:
        assert course.low is not None and 0.93 * rate < course.rates[course.low] <= rate
    if end in ("generator", "machine"):
        assert course.high is None and course.limited_at == course.rates[0 if course.low is None else course.low + 1]
    assert repeats in (None, sum(step.purpose == "repeat" for step, _ in made))


def test_an_interval_that_is_wider_than_a_factor_of_two_is_noise() -> None:
    draws = Random(3)
    course, _ = run(
        search(), lambda step: draws.choice(("held", "missed")) if 1000 < step.rate < 4000 else carries(1000)(step)
    )
    assert course.low is not None and course.high is not None and course.end == "noise"
    assert course.rates[course.high] > 2 * course.rates[course.low]


def test_a_store_that_tosses_a_coin_has_no_rate() -> None:
    found = 0
    for seed in range(200):
        draws = Random(seed)
        course, made = run(search(1, 1_000_000), lambda step: draws.choice(("held", "missed")))  # noqa: B023
        assert len(made) <= MAX_PROBES
        found += course.end == "found"
    assert found <= 10, f"{found} of 200 searches found a rate where there is none"


def test_it_is_bounded_however_late_its_repeats_contradict_each_other() -> None:
    told: Counter[int] = Counter()

    def store(step: Step) -> Verdict:
        """Repeats agree until their last one: that the objective is missed, and from the highest rate on, that not."""
        if step.purpose != "repeat":
            return carries(1000)(step)
        told[step.index] += 1
        agreed, other = ("held", "missed") if max(told) == top and step.index != top else ("missed", "held")
        return agreed if told[step.index] % 6 else other  # type: ignore[return-value]

    searched = search(1, 1_000_000, within=Decimal("0.01"))
    top = len(searched.rates()) - 1
    course, made = run(searched, store)
    assert (course.end, len(made)) == ("noise", MAX_PROBES)


def test_an_unfinished_search_says_what_is_known() -> None:
    course = Saturation(search())
    assert (course.end, course.low, course.high) == ("ended", None, None)
    while course.next is not None and course.high is None:
        course.record(carries(1000)(course.next))
    assert course.end == "ended" and course.high is not None and course.low is None


def test_each_probe_has_ten_requests_beyond_its_percentile() -> None:
    for percentile, least in (("50", 20), ("90", 100), ("95", 200), ("99", 1000), ("99.9", 10_000)):
        searched = Search((Objective(percentile, 10**7),), Decimal(10), Decimal(10_000))  # type: ignore[arg-type]
        assert searched.samples(poisson=False) == least
        assert least + 4 * least**0.5 <= searched.samples(poisson=True) <= 2 * least
        for rate in searched.rates():
            seconds = searched.length_ns(rate, poisson=False) / 1e9
            assert seconds >= 5 and seconds * float(rate) >= least - 1e-6
            assert seconds == 5 or seconds * float(rate) < least * 1.01


def test_the_rates_rise_from_the_lowest_to_the_highest() -> None:
    for low, high, within in ((10, 1_000_000, "0.05"), (0.1, 1, "0.5"), (99.5, 100, "0.01"), (10, 10.01, "0.3")):
        rates = search(low, high, within=Decimal(within)).rates()
        assert (rates[0], rates[-1]) == (Decimal(str(low)), Decimal(str(high)))
        ratios = [float(b / a) for a, b in pairwise(rates)]
        assert all(1 < ratio <= (1 + float(within)) ** 1.5 + 0.002 for ratio in ratios), ratios


def test_the_confidence_is_that_of_two_sign_tests() -> None:
    assert [round(search(repeats=n).confidence, 4) for n in (3, 5, 6, 10)] == [0.75, 0.9375, 0.9688, 0.998]
