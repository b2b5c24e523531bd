"""Saturation searches on a testbed of fakes: what their rows say, whatever the store, the generator or people do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import count
from math import exp, log
from random import Random
from typing import Any

import pytest

from containernet_env.base.errors import Interrupted, RunError
from containernet_env.load.server import Answer
from containernet_env.model.load_result import LoadResult
from containernet_env.model.scenario import Scenario
from containernet_env.model.search import Objective, Search
from containernet_env.results.run_directory import scenario_line
from containernet_env.results.run_files import ScenarioLine
from tests.unit.answers import check_request, open_loop
from tests.unit.matrix_fakes import GOOD, Bench, FakeCluster, read, write

P99_50MS = Search((Objective("99", 50_000_000),), Decimal(10), Decimal(100_000))


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


def queue(capacity: float, seed: int = 1, noise: float = 0.1) -> Behave:
    """A store whose 99th percentile is that of an M/M/1 queue, with noise; beyond its capacity requests pile up."""
    draws = Random(seed)

    def behave(path: str, body: dict[str, Any]) -> Answer:
        check_request(path, body)
        spare = capacity - body["rate"]
        p99_s = log(100) / spare if spare > 0 else body["duration"]
        return Answer(load_of(body, p99_s * exp(draws.gauss(0, noise))), None)

    return behave


def beyond(rate: float, answer: Callable[[dict[str, Any]], Answer], strike: Callable[[], object] = bool) -> Behave:
    """A store that holds up to a rate; beyond it probes are struck, and have such answers."""

    def behave(path: str, body: dict[str, Any]) -> Answer:
        if body["rate"] <= rate:
            return Answer(load_of(body, 0.01), None)
        strike()
        return answer(body)

    return behave


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
    assert (finding.effect, finding.value, finding.threshold) == ("told", low, high)


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


def test_a_store_that_never_holds_leaves_no_rate_but_the_reason() -> None:
    bench = searched(beyond(0, lambda body: Answer(load_of(body, 0.08), None)), write("w"))
    assert bench.run() == ["-", "-"], "the next scenario is measured"
    row = bench.rows()[0]
    assert [row[name] for name in ENDS] == ["-", "-", "10.0000", "from", "unknown", "search"]
    assert bench.findings()[0].startswith("p99<=50ms: does not hold at the lowest rate, 10/s: p99 80ms")
    assert (row["99%"], row["AchievedRate_per_s"]) == ("0.080000", "10.0000"), "the figures are those of that rate"


def test_a_store_that_holds_at_the_highest_rate_leaves_a_bound_and_no_rate() -> None:
    bench = searched(queue(10_000), scenario=searching(search=replace(P99_50MS, high=Decimal(700))))
    bench.run()
    assert [bench.rows()[0][name] for name in ENDS] == ["-", "700.0000", "-", "to", "unknown", "search"]


LATE = {"schedule__fell_behind": True, "schedule__late": 90, "schedule__generator_late": 90}


@pytest.mark.parametrize(
    ("changes", "end", "why"),
    [
        (
            lambda body: {"cpu_s": 0.95 * body["duration"]},
            "generator",
            "the load generator is the limit (generator_sat",
        ),
        (lambda body: {"pause_s": 0.3}, "generator", "the load generator is the limit (generator_paused)"),
        (lambda body: LATE, "generator", "the load generator is the limit (generator_late)"),
        (lambda body: {}, "machine", "this machine is the limit (link_lateness)"),
    ],
)
def test_a_generator_or_machine_that_is_the_limit_is_named_and_no_rate_is_claimed(
    changes: Callable[[dict[str, Any]], dict[str, Any]], end: str, why: str
) -> None:
    def strike() -> None:
        bench.net.seen["lateness"]["p99_ns"] = 5_000_000 if end == "machine" else 20_000

    p99_s = 0.2 if end == "machine" else 0.01
    limited = beyond(3000, lambda body: Answer(load_of(body, p99_s, **changes(body)), None), strike)

    def behave(path: str, body: dict[str, Any]) -> Answer:
        bench.net.seen["lateness"]["p99_ns"] = 20_000
        return limited(path, body)

    bench = searched(behave)
    bench.run()
    (row,) = bench.rows()
    assert (row["SearchEnd"], row["SearchRate_per_s"], row["SearchHigh_per_s"]) == (end, "-", "-")
    assert 2850 < float(row["SearchLow_per_s"]) <= 3000
    assert (row["Valid"], row["Reasons"]) == ("unknown", "search")
    assert why in bench.findings()[-1]


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
def test_clients_that_are_all_busy_while_the_store_answers_in_time_are_told(
    short: bool | None, service_s: float
) -> None:
    def answer(body: dict[str, Any]) -> Answer:
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


@pytest.mark.parametrize(
    ("from_rate", "strike", "error", "then"),
    [
        (1000, lambda cluster: cluster.kill("etcd2"), None, f"{DIED} (earlier)"),
        (
            1000,
            lambda cluster: setattr(cluster, "answering", False),
            "all failed",
            "not run: the cluster did not answer",
        ),
        (0, lambda cluster: None, "status 400: rate: out of range", "-"),
    ],
    ids=["a member dies", "the cluster answers no more", "the server measures nothing"],
)
def test_what_ends_a_search_is_its_error(
    from_rate: int, strike: Callable[[FakeCluster], None], error: str | None, then: str
) -> None:
    behave = beyond(
        from_rate,
        lambda body: Answer(load_of(body, 0.01) if from_rate else None, error),
        lambda: strike(bench.cluster),
    )
    bench = searched(behave, write("w"))
    own, other = bench.run()
    assert (own, bench.rows()[0]["SearchEnd"]) == (error or DIED, "ended") and other.startswith(then)
    assert [probe.verdict for probe, _ in bench.probes][:-1] == ["held"] * (len(bench.probes) - 1)


def test_a_leader_that_cannot_be_moved_back_ends_the_search_with_its_reason() -> None:
    bench = searched(queue(2000))
    bench.target.leader_wanted, bench.cluster.cannot_move = "etcd1", None
    behave = bench.server.behave
    bench.server.behave = lambda *asked: (setattr(bench.cluster, "cannot_move", "it is gone"), behave(*asked))[1]
    with pytest.raises(RunError):
        bench.matrix.run()
    assert "it is gone" in bench.errors()[0]


def test_reads_are_searched_on_the_data_set_that_is_loaded_once() -> None:
    bench = searched(queue(2000), scenario=replace(read("r"), total=None, clients=100, search=P99_50MS))
    bench.run()
    paths = [path for path, _ in bench.server.asked]
    assert paths.count("/benchmark/write") == 1
    assert (bench.rows()[0]["SearchEnd"], paths[0]) == ("found", "/benchmark/write")
