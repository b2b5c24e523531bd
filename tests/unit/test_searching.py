"""Saturation searches on a testbed of fakes: what their rows say, whatever the store, the generator or people do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
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
from tests.unit.matrix_fakes import Bench, FakeCluster, read, write

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


def queue(capacity: float, seed: int = 1, noise: float = 0.1) -> Callable[[str, dict[str, Any]], Answer]:
    """A store whose 99th percentile is that of an M/M/1 queue, with noise; beyond its capacity requests pile up."""
    draws = Random(seed)

    def behave(path: str, body: dict[str, Any]) -> Answer:
        check_request(path, body)
        spare = capacity - body["rate"]
        p99_s = log(100) / spare if spare > 0 else body["duration"]
        return Answer(load_of(body, p99_s * exp(draws.gauss(0, noise))), None)

    return behave


def test_a_search_leaves_one_row_with_the_rate_its_interval_and_the_figures_of_a_repeat() -> None:
    bench = Bench(searching(), write("w"))
    behave, after = queue(2000), bench.server.behave
    bench.server.behave = lambda path, body: (behave if "rate" in body else after)(path, body)
    bench.matrix.run()
    row, other = bench.rows()
    threshold = 2000 - log(100) / 0.05
    low, high = float(row["SearchLow_per_s"]), float(row["SearchHigh_per_s"])
    assert low <= threshold < high <= 1.2 * low
    assert (row["SearchObjective"], row["SearchEnd"]) == ("p99<=50ms", "found")
    assert (row["SearchRate_per_s"], row["OfferedRate_per_s"]) == (row["SearchLow_per_s"], "-")
    assert int(row["SearchProbes"]) == len(bench.probes) == len(bench.server.asked) - 1
    assert (row["Error"], row["Errors"], row["Valid"], row["Reasons"]) == ("-", "0", "yes", "-")
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
    bench = Bench(searching())
    bench.server.behave = queue(2000)
    bench.matrix.run()
    bodies = [body for _, body in bench.server.asked]
    assert len({body["loadSeed"] for body in bodies}) == len(bodies), "seeds are their own"
    assert all(body["warmupDuration"] == 1 and body["duration"] >= 5 for body in bodies)
    assert all(body["rate"] * body["duration"] >= 999.9 for body in bodies)
    assert bench.net.asked.count(True) == len(bodies), "the links' counters are reset before each"
    for (probe, outcome), body in zip(bench.probes, bodies, strict=True):
        assert (float(probe.rate), probe.seed) == (body["rate"], body["loadSeed"])
        assert outcome.load is not None and outcome.network is not None
        assert outcome.percentile_s("99") == probe.objectives_s[0]
    again = Bench(searching())
    again.server.behave = queue(2000)
    again.matrix.run()
    assert [body["loadSeed"] for _, body in again.server.asked] == [body["loadSeed"] for body in bodies]
    line = scenario_line(bench.outcomes[0]).model_dump(by_alias=True)
    assert line["search"]["end"] == "found" and len(line["search"]["probes"]) == len(bodies)
    assert line["search"]["confidence"] == 0.96875
    ScenarioLine.model_validate(line)


ENDS = ("Rate_per_s", "Low_per_s", "High_per_s", "End")


def test_a_store_that_never_holds_leaves_no_rate_but_the_reason() -> None:
    bench = Bench(searching(), write("w"))
    after = bench.server.behave
    bench.server.behave = lambda path, body: Answer(load_of(body, 0.08), None) if "rate" in body else after(path, body)
    bench.matrix.run()
    row, other = bench.rows()
    assert [row[f"Search{name}"] for name in ENDS] == ["-", "-", "10.0000", "from"]
    assert (row["Valid"], row["Reasons"], row["Error"]) == ("unknown", "search", "-")
    assert bench.findings()[0].startswith("p99<=50ms: does not hold at the lowest rate, 10/s: p99 80ms")
    assert (row["99%"], row["AchievedRate_per_s"]) == ("0.080000", "10.0000"), "the figures are those of that rate"
    assert other["Error"] == "-", "the next scenario is measured"


def test_a_store_that_holds_at_the_highest_rate_leaves_a_bound_and_no_rate() -> None:
    bench = Bench(searching(search=replace(P99_50MS, high=Decimal(700))))
    bench.server.behave = queue(10_000)
    bench.matrix.run()
    (row,) = bench.rows()
    assert [row[f"Search{name}"] for name in ENDS] == ["-", "700.0000", "-", "to"]
    assert (row["Valid"], row["Reasons"]) == ("unknown", "search")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (lambda body: {"cpu_s": 0.95 * body["duration"]}, "generator_saturated"),
        (lambda body: {"pause_s": 0.3}, "generator_paused"),
        (
            lambda body: {"schedule__fell_behind": True, "schedule__late": 90, "schedule__generator_late": 90},
            "generator_late",
        ),
    ],
)
def test_a_generator_that_is_the_limit_is_named_and_no_rate_is_claimed(
    changes: Callable[[dict[str, Any]], dict[str, Any]], why: str
) -> None:
    bench = Bench(searching())
    bench.server.behave = lambda path, body: Answer(
        load_of(body, 0.01, **(changes(body) if body["rate"] > 3000 else {})), None
    )
    bench.matrix.run()
    (row,) = bench.rows()
    assert (row["SearchEnd"], row["SearchRate_per_s"], row["SearchHigh_per_s"]) == ("generator", "-", "-")
    assert 2850 < float(row["SearchLow_per_s"]) <= 3000
    assert (row["Valid"], row["Reasons"]) == ("unknown", "search")
    assert f"the load generator is the limit ({why})" in bench.findings()[-1]


def test_a_machine_that_is_the_limit_is_named() -> None:
    bench = Bench(searching())

    def behave(path: str, body: dict[str, Any]) -> Answer:
        bench.net.seen["lateness"]["p99_ns"] = 5_000_000 if body["rate"] > 3000 else 20_000
        return Answer(load_of(body, 0.2 if body["rate"] > 3000 else 0.01), None)

    bench.server.behave = behave
    bench.matrix.run()
    (row,) = bench.rows()
    assert (row["SearchEnd"], row["SearchRate_per_s"]) == ("machine", "-")
    assert "this machine is the limit (link_lateness)" in bench.findings()[-1]


def test_requests_that_fail_or_are_never_sent_do_not_hold() -> None:
    """Whatever the percentiles of the others are; the search goes on, and its row has no error."""
    for outcomes, error, why in (
        ({"failed": 0, "unknown": 3}, "3 of N requests failed: deadline", "3 of N requests failed"),
        ({"failed": 0, "unknown": 3}, None, "requests failed"),
        ({"failed": 0, "unknown": 0, "unsent": 7}, None, "7 requests were never sent"),
    ):
        bench = Bench(searching())

        def behave(path: str, body: dict[str, Any], outcomes: Any = outcomes, error: Any = error) -> Answer:
            if body["rate"] <= 1000:
                return Answer(load_of(body, 0.01), None)
            bad = outcomes["unknown"] + outcomes.get("unsent", 0)
            ok = round(body["rate"] * body["duration"]) - bad
            changes = {"ok": ok, "failed": outcomes["unknown"], "outcomes": {"unsent": 0} | outcomes | {"ok": ok}}
            return Answer(load_of(body, 0.01, **changes), error)

        bench.server.behave = behave
        bench.matrix.run()
        (row,) = bench.rows()
        assert (row["SearchEnd"], row["Error"], row["Errors"]) == ("found", "-", "0"), row
        assert 950 < float(row["SearchRate_per_s"]) <= 1000
        assert why in bench.findings()[-1]


def test_a_leader_that_is_lost_under_load_is_the_stores_own_limit() -> None:
    bench = Bench(searching())

    def behave(path: str, body: dict[str, Any]) -> Answer:
        if body["rate"] > 1000:
            bench.cluster.term += 1
        return Answer(load_of(body, 0.01), None)

    bench.server.behave = behave
    bench.matrix.run()
    (row,) = bench.rows()
    assert row["SearchEnd"] == "found"
    assert 950 < float(row["SearchRate_per_s"]) <= 1000
    assert "etcd1 led at the start" in bench.findings()[-1]


def test_clients_that_are_all_busy_while_the_store_answers_in_time_are_told() -> None:
    for short, service_s, told in ((True, 0.02, True), (False, 0.02, False), (True, 0.06, False)):
        bench = Bench(searching())

        def behave(path: str, body: dict[str, Any], short: bool = short, service_s: float = service_s) -> Answer:
            waited = body["rate"] > 1000
            changes = {"schedule__fell_behind": waited, "schedule__clients_short": waited and short}
            made = load_of(body, 0.2 if waited else 0.01, **changes)
            return Answer(replace(made, service_time_s={"99": service_s}), None)

        bench.server.behave = behave
        bench.matrix.run()
        assert ("more clients may carry more" in bench.findings()[-1]) is told
    bench = Bench(searching())
    bench.server.behave = queue(1000)
    bench.matrix.run()
    assert "more clients" not in bench.findings()[-1]


def test_an_interrupted_search_leaves_a_row_with_what_is_known() -> None:
    bench = Bench(searching(), write("w"))
    numbers = iter(range(1, 1000))
    behave = queue(2000)

    def interrupt(path: str, body: dict[str, Any]) -> Answer:
        if next(numbers) == 9:
            bench.stop.request()
        return behave(path, body)

    bench.server.behave = interrupt
    with pytest.raises(Interrupted):
        bench.matrix.run()
    (row,) = bench.rows()
    assert row["Error"].startswith("interrupted")
    assert (row["SearchEnd"], row["SearchRate_per_s"]) == ("ended", "-")
    assert int(row["SearchProbes"]) == len(bench.probes) >= 8
    assert row["99%"] != "-"


def test_a_search_that_is_interrupted_before_its_first_probe_ends_leaves_a_row_without_figures() -> None:
    bench = Bench(searching())

    def interrupt(path: str, body: dict[str, Any]) -> Answer:
        raise KeyboardInterrupt

    bench.server.behave = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.matrix.run()
    (row,) = bench.rows()
    assert (row["Error"], row["SearchEnd"], row["SearchProbes"]) == ("interrupted", "ended", "0")
    assert (row["99%"], row["Valid"]) == ("-", "-")


OOM = "etcd2 was OOM-killed"


@pytest.mark.parametrize(
    ("from_rate", "strike", "error", "then"),
    [
        (
            1000,
            lambda cluster: cluster.dead.update(etcd2="etcd2 was OOM-killed"),
            None,
            "etcd2 was OOM-killed (earlier)",
        ),
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
    bench = Bench(searching(), write("w"))
    after = bench.server.behave

    def behave(path: str, body: dict[str, Any]) -> Answer:
        if "rate" not in body:
            return after(path, body)
        if body["rate"] <= from_rate:
            return Answer(load_of(body, 0.01), None)
        strike(bench.cluster)
        return Answer(load_of(body, 0.01) if from_rate else None, error)

    bench.server.behave = behave
    bench.matrix.run()
    row, other = bench.rows()
    assert (row["Error"], row["SearchEnd"]) == (error or OOM, "ended")
    assert other["Error"].startswith(then)
    assert [probe.verdict for probe, _ in bench.probes][:-1] == ["held"] * (len(bench.probes) - 1)


def test_a_leader_that_cannot_be_moved_back_ends_the_search_with_its_reason() -> None:
    bench = Bench(searching())
    bench.target.leader_wanted = "etcd1"

    def behave(path: str, body: dict[str, Any]) -> Answer:
        bench.cluster.cannot_move = "it is gone"
        return Answer(load_of(body, 0.01), None)

    bench.server.behave = behave
    with pytest.raises(RunError):
        bench.matrix.run()
    (row,) = bench.rows()
    assert "it is gone" in row["Error"]


def test_reads_are_searched_on_the_data_set_that_is_loaded_once() -> None:
    scenario = replace(read("r"), total=None, clients=100, search=P99_50MS)
    bench = Bench(scenario)
    behave, load = queue(2000), bench.server.behave
    bench.server.behave = lambda path, body: (behave if "rate" in body else load)(path, body)
    bench.matrix.run()
    paths = [path for path, _ in bench.server.asked]
    assert paths.count("/benchmark/write") == 1
    assert (bench.rows()[0]["SearchEnd"], paths[0]) == ("found", "/benchmark/write")
