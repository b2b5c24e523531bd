"""Saturation searches: which rates they probe on simulated stores, where there is none, their files; on a testbed of
fakes what their rows say, whatever the store, the generator or people do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from itertools import count, cycle, pairwise
from math import exp, inf, log
from pathlib import Path
from random import Random
from typing import Any

import pytest

from containernet_env.base.errors import ConfigError, Interrupted
from containernet_env.config.plan import scenario_hash
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.writer import scenarios_text
from containernet_env.model.findings import Finding
from containernet_env.model.load_result import LoadResult
from containernet_env.model.scenario import Scenario, Warmup
from containernet_env.model.search import MAX_PROBES, Saturation, Search, Step, Verdict
from containernet_env.results.run_directory import scenario_line
from containernet_env.results.run_files import ScenarioLine
from containernet_env.runs.load import Answer
from containernet_env.runs.searching import judge
from tests.unit.answers import check_request, open_loop
from tests.unit.blocks import mixed, planned, reads, writes
from tests.unit.blocks import write as written
from tests.unit.fakes import CONFIG, GOOD, Bench, read, write

P99_50MS = Search(p99_ns=50_000_000, low=Decimal(10), high=Decimal(100_000))


pytestmark = pytest.mark.simulated(seeds=1)


def searching(name: str = "s", search: Search = P99_50MS) -> Scenario:
    return replace(write(name), total=None, key_space=100, clients=100, search=search)


def load_of(body: dict[str, Any], p99_s: float, **changes: Any) -> LoadResult:
    """What a benchmark of that request measured; all answered, unless ``changes`` say otherwise."""
    requests = round(body["rate"] * body["duration"])
    shares = {"10": 0.1, "25": 0.2, "50": 0.4, "75": 0.6, "90": 0.7, "95": 0.8, "99": 1.0, "99.9": 1.5}
    response = {percentile: share * p99_s for percentile, share in shares.items()}
    made = open_loop(
        **{
            "requests": requests,
            "done": requests,
            "ok": requests,
            "outcomes": {"ok": requests, "failed": 0, "unknown": 0, "unsent": 0},
            "total_s": body["duration"],
            "pause_s": 0.001,
            "requests_per_s": body["rate"],
            "rate_achieved_per_s": body["rate"],
            "response_time__percentiles_s": response | {"99.99": None},
            "service_time__percentiles_s": response | {"99.99": None},
        }
        | changes
    )
    return LoadResult.from_json(made)


Behave = Callable[[str, dict[str, Any]], Answer]


def p99_of_queue(capacity: float, rate: float, draws: Random, noise: float) -> float:
    """That of an M/M/1 queue, -ln(0.01) / (capacity - rate), s, with noise; endless where requests pile up.

    A quantile of n samples varies with a relative deviation of about sqrt(0.99 / 0.01 / n) / ln(100), and more as
    requests wait for each other. Half of all probes are within a limit at the rate capacity - ln(100) / limit.
    """
    return log(100) / (capacity - rate) * exp(draws.gauss(0, noise)) if rate < capacity else inf


def queue(capacity: float) -> Behave:
    """A store whose 99th percentile is that of such a queue."""
    draws = Random(1)

    def behave(path: str, body: dict[str, Any]) -> Answer:
        check_request(path, body)
        p99_s = p99_of_queue(capacity, body["rate"], draws, 0.1)
        return Answer(load_of(body, min(p99_s, body["duration"])), None)

    return behave


def beyond(rate: float, answer: Callable[[dict[str, Any]], Answer]) -> Behave:
    """A store that holds up to a rate; beyond it probes have such answers."""
    return lambda path, body: Answer(load_of(body, 0.01), None) if body["rate"] <= rate else answer(body)


def searched(behave: Behave, *others: Scenario, scenario: Scenario | None = None) -> Bench:
    """A search on such a store, which answers what is no probe without errors; see what it leaves."""
    bench = Bench(scenario or searching(), *others)
    bench.server.behave = lambda path, body: behave(path, body) if "rate" in body else GOOD
    return bench


def test_a_search_leaves_one_row_with_the_rate_its_interval_and_the_figures_of_a_repeat() -> None:
    bench = searched(queue(2000), write("w"))
    assert bench.run() == ["-", "-"]
    row, other = bench.rows()
    threshold = 2000 - log(100) / 0.05
    low, high = float(row["SearchLow_per_s"]), float(row["SearchHigh_per_s"])
    assert low <= threshold < high <= 1.2 * low
    assert (row["SearchObjective"], row["SearchEnd"]) == ("p99<=50ms", "found")
    assert (row["SearchRate_per_s"], row["OfferedRate_per_s"]) == (row["SearchLow_per_s"], "-")
    assert int(row["SearchProbes"]) == len(bench.probes) == len(bench.server.asked) - 1
    assert (row["Errors"], row["Valid"], row["Reasons"]) == ("0", "yes", "-")
    repeats = [p for p, _ in bench.probes if p.purpose == "repeat" and float(p.rate) == low]
    assert [probe.verdict for probe in repeats] == ["held"] * 6
    figures = sorted(probe.objectives_s[0] or 0.0 for probe in repeats)
    assert row["99%"] == f"{figures[2]:.6f}", "the lower median of the six"
    assert float(row["AchievedRate_per_s"]) == low
    assert {other[name] for name in row if name.startswith("Search")} == {"-"}
    (finding,) = [item for item in bench.outcomes[0].findings if item.kind == "search"]
    assert finding.text.startswith(f"p99<=50ms: holds up to {low:,.0f}/s (6 of 6), not at {high:,.0f}/s (0 of 6: p99 ")
    assert (finding.effect, finding.value, finding.threshold) == ("info", low, high)


def test_each_probe_is_a_load_of_its_own_and_is_kept_whole() -> None:
    bench, again = searched(queue(2000)), searched(queue(2000))
    bench.run()
    bodies = [body for _, body in bench.server.asked]
    assert len({body["loadSeed"] for body in bodies}) == len(bodies), "seeds are their own"
    assert all(body["warmupDuration"] == 1 and body["duration"] >= 5 for body in bodies)
    assert all(body["rate"] * body["duration"] >= 999.9 for body in bodies)
    assert bench.net.asked.count(True) == len(bodies), "the links' counters are reset before each"
    for (probe, outcome), body in zip(bench.probes, bodies, strict=True):
        assert (float(probe.rate), probe.seed) == (body["rate"], body["loadSeed"])
        assert outcome.load is not None and outcome.network is not None
        assert outcome.percentile_s("99") == probe.objectives_s[0]
    again.run()
    assert [body["loadSeed"] for _, body in again.server.asked] == [body["loadSeed"] for body in bodies]
    line = scenario_line(bench.outcomes[0]).model_dump(by_alias=True)
    assert line["search"]["end"] == "found" and len(line["search"]["probes"]) == len(bodies)
    assert line["search"]["confidence"] == 0.96875
    ScenarioLine.model_validate(line)


ENDS = ("SearchRate_per_s", "SearchLow_per_s", "SearchHigh_per_s", "SearchEnd", "Valid", "Reasons")


def test_a_store_that_never_holds_or_always_leaves_a_bound_and_no_rate() -> None:
    bench = searched(beyond(0, lambda body: Answer(load_of(body, 0.08), None)), write("w"))
    assert bench.run() == ["-", "-"], "the next scenario is measured"
    row = bench.rows()[0]
    assert [row[name] for name in ENDS] == ["-", "-", "10.0000", "from", "unknown", "search"]
    assert bench.findings()[0].startswith("p99<=50ms: does not hold at the lowest rate, 10/s: p99 80ms")
    assert (row["99%"], row["AchievedRate_per_s"]) == ("0.080000", "10.0000"), "the figures are those of that rate"
    bench = searched(queue(10_000), scenario=searching(search=replace(P99_50MS, high=Decimal(700))))
    bench.run()
    assert [bench.rows()[0][name] for name in ENDS] == ["-", "700.0000", "-", "to", "unknown", "search"]


LATE = {"schedule__fell_behind": True, "schedule__late": 90, "schedule__generator_late": 90}


@pytest.mark.parametrize(
    ("changes", "end", "why"),
    [
        (lambda body: {"cpu_s": 0.95 * body["duration"]}, "generator", "generator_sat"),
        (lambda body: {"pause_s": 0.3}, "generator", "generator_paused)"),
        (lambda body: LATE, "generator", "generator_late)"),
        (lambda body: {}, "machine", "link_lateness)"),
    ],
)
def test_a_generator_or_machine_that_is_the_limit_is_named_and_no_rate_is_claimed(
    changes: Callable[[dict[str, Any]], dict[str, Any]], end: str, why: str
) -> None:
    def behave(path: str, body: dict[str, Any]) -> Answer:
        is_late = body["rate"] > 3000 and end == "machine"
        bench.net.seen["lateness"]["p99_ns"] = 5_000_000 if is_late else 20_000
        changed = changes(body) if body["rate"] > 3000 else {}
        return Answer(load_of(body, 0.2 if is_late else 0.01, **changed), None)

    bench = searched(behave)
    bench.run()
    (row,) = bench.rows()
    assert (row["SearchEnd"], row["SearchRate_per_s"], row["SearchHigh_per_s"]) == (end, "-", "-")
    assert 2850 < float(row["SearchLow_per_s"]) <= 3000
    assert (row["Valid"], row["Reasons"]) == ("unknown", "search")
    limit = "the load generator" if end == "generator" else "this machine"
    assert f"{limit} is the limit ({why}" in bench.findings()[-1]


def test_the_figures_are_those_of_a_repeat_that_held_and_not_of_one_that_the_machine_spoiled() -> None:
    def behave(body: dict[str, Any]) -> Answer:
        repeats = sum(probe.purpose == "repeat" for probe, _ in bench.probes)
        p99_ms = dict(enumerate((25, 26, 20, 21, 22, 30, 31, 32), start=6)).get(repeats, 10)
        return Answer(load_of(body, p99_ms / 1e3, pause_s=0.3 if repeats in (6, 7) else 0.001), None)

    missed = beyond(0, lambda body: Answer(load_of(body, 0.08), None))
    bench = searched(lambda path, body: behave(body) if body["rate"] <= 1000 else missed(path, body))
    bench.run()
    (row,) = bench.rows()
    assert [probe.verdict for probe, _ in bench.probes][-8:] == ["generator"] * 2 + ["held"] * 6
    assert [row[name] for name in ("SearchEnd", "Valid", "Reasons", "99%")] == ["found", "yes", "-", "0.022000"]


def test_a_probe_of_unknown_validity_does_not_hold_unless_its_cluster_is_not_observable() -> None:
    bench = searched(queue(2000))
    bench.run()
    kept = next(outcome for probe, outcome in bench.probes if probe.verdict == "held")
    leader, *others = (
        Finding(kind, "unknown", kind) for kind in ("leader_changed", "usage", "unseen", "frames_unmatched")
    )

    def judged(p99_s: float, *found: Finding) -> tuple[Verdict, str]:
        return judge(P99_50MS, replace(kept, findings=found), [p99_s])

    for p99_s in (0.01, 0.08):
        assert judged(p99_s, leader, *others) == ("machine", "leader_changed, usage")
    assert judged(0.01, *others[-2:]) == ("held", "")
    unsent = replace(kept, findings=(leader,), load=replace(kept.load, unsent=7))
    assert judge(P99_50MS, unsent, [0.01]) == ("missed", "7 requests were never sent")


@pytest.mark.parametrize(
    ("outcomes", "error", "why"),
    [
        ({"failed": 0, "unknown": 3}, "3 of N requests failed: deadline", "3 of N requests failed"),
        ({"failed": 0, "unknown": 3}, None, "requests failed"),
        ({"failed": 0, "unknown": 0, "unsent": 7}, None, "7 requests were never sent"),
        # The store's own limit, too.
        (None, None, "etcd1 led at the start"),
    ],
)
def test_requests_that_fail_or_are_never_sent_and_lost_leaders_do_not_hold(
    outcomes: dict[str, int] | None, error: str | None, why: str
) -> None:
    """Whatever the percentiles of the others are; the search goes on, and its row has no error."""

    def answer(body: dict[str, Any]) -> Answer:
        if outcomes is None:
            bench.cluster.term += 1
            return Answer(load_of(body, 0.01), None)
        bad = outcomes["unknown"] + outcomes.get("unsent", 0)
        ok = round(body["rate"] * body["duration"]) - bad
        changes = {"ok": ok, "failed": outcomes["unknown"], "outcomes": {"unsent": 0} | outcomes | {"ok": ok}}
        return Answer(load_of(body, 0.01, **changes), error)

    bench = searched(beyond(1000, answer))
    bench.run()
    (row,) = bench.rows()
    assert (row["SearchEnd"], row["Error"], row["Errors"]) == ("found", "-", "0"), row
    assert 950 < float(row["SearchRate_per_s"]) <= 1000
    assert why in bench.findings()[-1]


@pytest.mark.parametrize(("short", "service_s"), [(True, 0.02), (False, 0.02), (True, 0.06), (None, 0.02)])
def test_busy_clients_of_a_store_that_answers_in_time_are_told(short: bool | None, service_s: float) -> None:
    """Whatever a repeat says that the machine spoiled: here the first one."""
    spoiled: set[str] = set()

    def answer(body: dict[str, Any]) -> Answer:
        if not spoiled and any(probe.purpose == "repeat" for probe, _ in bench.probes):
            spoiled.add("generator_paused")
            return Answer(load_of(body, 0.2, pause_s=0.3), None)
        made = load_of(body, 0.2, schedule__fell_behind=True, schedule__clients_short=bool(short))
        return Answer(replace(made, service_time_s={"99": service_s}), None)

    bench = searched(queue(1000) if short is None else beyond(1000, answer))
    bench.run()
    assert ("more clients may carry more" in bench.findings()[-1]) is (bool(short) and service_s < 0.05)


@pytest.mark.parametrize("first", [True, False])
def test_an_interrupted_search_leaves_a_row_with_what_is_known(first: bool) -> None:
    """Without figures, where it is interrupted before its first probe has ended."""
    numbers, behave = count(1), queue(2000)

    def interrupt(path: str, body: dict[str, Any]) -> Answer:
        if first:
            raise KeyboardInterrupt
        if next(numbers) == 9:
            bench.stop.request()
        return behave(path, body)

    bench = searched(interrupt, write("w"))
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        bench.matrix.run()
    (row,) = bench.rows()
    assert row["Error"].startswith("interrupted")
    assert (row["SearchEnd"], row["SearchRate_per_s"]) == ("ended", "-")
    assert int(row["SearchProbes"]) == len(bench.probes) and (len(bench.probes) >= 8) is not first
    assert (row["99%"] == "-") is first and (not first or row["Valid"] == "-")


DIED = "etcd2 was OOM-killed"
SILENT = "not run: the cluster did not answer"
ENDS_OF_CLUSTERS: dict[str, tuple[int, Callable[[Bench], object], str | None, str]] = {
    "a member dies": (1000, lambda bench: bench.cluster.kill("etcd2"), None, f"{DIED} (earlier)"),
    "it answers no more": (1000, lambda bench: setattr(bench.cluster, "answering", False), "all failed", SILENT),
    "the server measures nothing": (0, lambda bench: None, "status 400: rate: out of range", "-"),
}


@pytest.mark.parametrize("case", ENDS_OF_CLUSTERS)
def test_what_ends_a_search_is_its_error(case: str) -> None:
    from_rate, strike, error, then = ENDS_OF_CLUSTERS[case]

    def answer(body: dict[str, Any]) -> Answer:
        strike(bench)
        return Answer(load_of(body, 0.01) if from_rate else None, error)

    bench = searched(beyond(from_rate, answer), write("w"))
    own, other = bench.run()
    assert (own, bench.rows()[0]["SearchEnd"]) == (error or DIED, "ended") and other.startswith(then)
    assert [probe.verdict for probe, _ in bench.probes][:-1] == ["held"] * (len(bench.probes) - 1)


def test_a_leader_that_cannot_be_moved_back_ends_the_search_with_its_reason() -> None:
    bench = searched(queue(2000), write("w"))
    bench.target.leader_wanted = "etcd1"
    refusals, move = iter([None, None, "it is gone"]), bench.cluster.move_leader

    def move_leader(*arguments: Any) -> Any:
        bench.cluster.cannot_move = next(refusals, None)
        return move(*arguments)

    bench.cluster.move_leader = move_leader
    assert bench.run() == ["etcd1 could not be made the leader: it is gone", "-"]
    assert [probe.verdict for probe, _ in bench.probes] == ["held", "failed"], "of the search and its first probe, too"
    assert bench.rows()[0]["SearchEnd"] == "ended"


def test_reads_are_searched_on_the_data_set_that_is_loaded_once() -> None:
    bench = searched(queue(2000), scenario=replace(read("r"), total=None, clients=100, search=P99_50MS))
    bench.run()
    paths = [path for path, _ in bench.server.asked]
    assert paths.count("/benchmark/write") == 1
    assert (bench.rows()[0]["SearchEnd"], paths[0]) == ("found", "/benchmark/write")


# --- which rates are probed -------------------------------------------------------------------------------------------

Store = Callable[[Step], Verdict]


def search(low: float = 10, high: float = 100_000, **settings: object) -> Search:
    return replace(P99_50MS, low=Decimal(str(low)), high=Decimal(str(high)), **settings)


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


def queue_of_one(capacity: float, limit_s: float, seed: int) -> Store:
    """Such a queue as its probes of 1000 requests or more see it."""
    draws = Random(seed)
    return lambda step: "held" if p99_of_queue(capacity, float(step.rate), draws, 0.25) <= limit_s else "missed"


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
    course, made = run(search(within=Decimal("0.01"), repeats=3), carries(4321))
    assert course.low is not None and course.rates[course.low + 1] <= course.rates[course.low] * Decimal("1.0111")
    assert sum(step.purpose == "repeat" for step, _ in made) == 6


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
COURSES: dict[str, tuple[Search, Store, str, float | None, int | None]] = {
    "it never holds": (search(), carries(0), "from", None, 6),
    "the lowest rate holds sometimes": (search(high=20), SOMETIMES, "from", None, None),
    "it always holds": (search(high=5000), carries(9000), "to", 5000, 6),
    # Above it the result is unknown; the rate that held is known all the same.
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


@pytest.mark.parametrize("case", COURSES)
def test_how_a_search_ends(case: str) -> None:
    searched, store, end, rate, repeats = COURSES[case]
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


def test_it_is_bounded_however_late_its_repeats_contradict_each_other() -> None:
    told: Counter[int] = Counter()

    def store(step: Step) -> Verdict:
        """Repeats agree until their last one: that the objective is missed, and from the highest rate on, that not."""
        if step.purpose != "repeat":
            return carries(1000)(step)
        told[step.index] += 1
        agreed, other = ("held", "missed") if max(told) == top and step.index != top else ("missed", "held")
        return agreed if told[step.index] % 6 else other

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
    for percentile, least in (("50", 20), ("90", 100), ("95", 200), ("99", 1000), ("99_9", 10_000)):
        searched = Search(low=Decimal(10), high=Decimal(10_000), **{f"p{percentile}_ns": 10**7})
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


# --- searches in scenario files ---------------------------------------------------------------------------------------

SEARCH = {"search": {"p99": "50ms"}, "clients": 100, "conns": 10}


def loads(**settings: Any) -> dict[str, Any]:
    return {"search": {"p99": "50ms"} | settings, "clients": 100, "conns": 10}


def test_a_search_needs_no_more_than_an_objective_and_everything_can_be_set_and_is_in_its_name(tmp_path: Path) -> None:
    settings = {"p50": "5ms", "p99.9": "1s", "from": 50, "to": 2000, "step": "10s", "within": 0.1, "repeats": 3}
    load = {"search": settings, "arrival": "poisson", "clients": [10, 20], "conns": 10, "warmup": "2s"}
    blocks = [writes(load=SEARCH), writes(load=load, keySpace=77)]
    found, *others = load_scenarios(written(tmp_path, {"scenarios": blocks})).scenarios
    usual = {"high": Decimal(1_000_000), "step_ns": 5 * 10**9, "within": Decimal("0.05"), "repeats": 6}
    assert found.search == replace(P99_50MS, **usual)
    assert (found.total, found.duration_ns, found.rate, found.key_space) == (None, None, None, 10_000)
    assert found.name == "write-leader-search-p99-50ms-100x10-4B-64B"
    name = "search-p50-5ms-p99.9-1s-from50-to2000-step10s-within0.1-repeats3"
    assert [one.name for one in others] == [f"write-leader-{name}-poisson-{n}x10-warm2s-4B-64B-of77" for n in (10, 20)]
    limits = {"p50_ns": 5_000_000, "p99_9_ns": 10**9, "low": Decimal(50), "high": Decimal(2000)}
    assert others[0].search == Search(**limits, step_ns=10**10, within=Decimal("0.1"), repeats=3)
    assert others[0].search.text == "p50<=5ms;p99.9<=1s"


def test_a_probe_is_an_open_loop_of_its_own(tmp_path: Path) -> None:
    blocks = [writes(load=SEARCH), reads(load=SEARCH | {"arrival": "poisson", "warmup": "300ms"})]
    constant, poisson = load_scenarios(written(tmp_path, {"scenarios": blocks})).scenarios
    probe = constant.probe(Decimal(100), 7)
    assert (probe.search, probe.rate, probe.duration_ns, probe.seed) == (None, 100, 10 * 10**9, 7)
    assert probe.warmup == Warmup(length_ns=10**9), "each probe warms up, also where the file does not say so"
    assert constant.probe(Decimal(4000)).duration_ns == 5 * 10**9
    probe = poisson.probe(Decimal(100))
    assert (probe.arrival, probe.warmup.length_ns) == ("poisson", 300_000_000)
    assert probe.duration_ns == 11_280 * 10**6, "as many more as the number of arrivals varies"


def test_writes_of_all_probes_share_their_keys_and_searches_come_back_from_a_runs_file(tmp_path: Path) -> None:
    block = writes(load=SEARCH, data={"keySize": 3, "valSize": 9}, keys=["sequential", "uniform"])
    others = [writes(load=[SEARCH, loads(repeats=9)], keySpace=5), mixed(load=loads(to=77.5, within=0.02))]
    found = load_scenarios(written(tmp_path, {"scenarios": [block, *others]}))
    assert [scenario.key_space for scenario in found.scenarios[:4]] == [10_000, 10_000, 5, 5]
    (tmp_path / "again.json").write_text(scenarios_text(found.dataset, found.scenarios))
    assert load_scenarios(tmp_path / "again.json").scenarios == found.scenarios
    with pytest.raises(ConfigError, match="too small for 10000 different keys"):
        load_scenarios(written(tmp_path, {"scenarios": [block | {"data": {"keySize": 2, "valSize": 9}}]}))


def test_what_is_searched_is_part_of_the_scenarios_hash_and_nothing_else_changed(tmp_path: Path) -> None:
    hashes = set()
    for load in (SEARCH, loads(p99="51ms"), loads(repeats=7), {"duration": "5s", "clients": 100, "conns": 10}):
        found = load_scenarios(written(tmp_path, {"scenarios": [reads(load=load)]}))
        hashes.add(scenario_hash(found.scenarios[0], found.dataset))
    assert len(hashes) == 4
    scenario = Scenario(name="w", type="write", total=5, clients=1, conns=1, key_size=8, val_size=8, key_space=5)
    assert scenario_hash(scenario, found.dataset) == "6742b7c784f1", "as before there were searches"


def test_an_objective_that_the_links_alone_exceed_is_refused(tmp_path: Path) -> None:
    """A put to the leader takes the client's round trip (6 ms) and the leader's to a follower (12 ms)."""
    fits = loads(p99="19ms")
    assert planned(tmp_path, CONFIG, writes(load=fits), reads(load=loads(p99="7ms"), consistency="s"))
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, CONFIG, writes(load=[fits, loads(p99="18ms")]), reads(load=loads(p99="6ms"), consistency="s"))
    found = [(problem.path, problem.got) for problem in caught.value.problems]
    assert found == [("$.scenarios[0].load[1].search", "p99<=18ms"), ("$.scenarios[1].load.search", "p99<=6ms")]
    assert "its links alone take 18" in caught.value.problems[0].message
    assert caught.value.problems[0].line == 1


def test_the_plan_knows_how_long_a_search_takes(tmp_path: Path) -> None:
    found = planned(
        tmp_path, CONFIG, *(writes(load=load) for load in (SEARCH, loads(repeats=12), loads(step="50s")))
    ).scenarios
    once, twice, long = (scenario.estimated_s for scenario in found)
    # 12 repeats and some 10 probes before them, each of 5 s, a warm-up of 1 s and what is around it.
    assert 18 * 6.5 <= once <= 30 * 6.5
    assert twice == pytest.approx(once + 12 * 6.5)
    assert long > 7 * once
