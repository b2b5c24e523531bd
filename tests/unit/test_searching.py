"""Saturation searches on a testbed of fakes: what their rows say, whatever the store, the generator or people do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from itertools import count
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest

from containernet_env.base.errors import ConfigError, Interrupted, RunError
from containernet_env.config.plan import PlanOptions, scenario_hash
from containernet_env.config.planning import build_plan
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import scenarios_text, schema_of
from containernet_env.model.load_result import LoadResult
from containernet_env.model.scenario import Scenario, Warmup
from containernet_env.model.search import Objective, Search
from containernet_env.results.run_directory import scenario_line
from containernet_env.results.run_files import ScenarioLine
from containernet_env.runs.load import Answer
from tests.unit.answers import check_request, open_loop
from tests.unit.blocks import mixed, names_of, reads, writes
from tests.unit.blocks import write as written
from tests.unit.fakes import CONFIG, GOOD, Bench, FakeCluster, read, write

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
def test_busy_clients_of_a_store_that_answers_in_time_are_told(short: bool | None, service_s: float) -> None:
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


# --- searches in scenario files ---------------------------------------------------------------------------------------

SEARCH = {"search": {"p99": "50ms"}, "clients": 100, "conns": 10}


def loads(**settings: Any) -> dict[str, Any]:
    return {"search": {"p99": "50ms"} | settings, "clients": 100, "conns": 10}


def problems_of(tmp_path: Path, value: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(ConfigError) as caught:
        load_scenarios(written(tmp_path, {"scenarios": [writes(load=value)]}))
    return [(problem.path, problem.message, problem.allowed) for problem in caught.value.problems]


def test_a_search_needs_no_more_than_an_objective(tmp_path: Path) -> None:
    (found,) = load_scenarios(written(tmp_path, {"scenarios": [writes(load=SEARCH)]})).scenarios
    objective = Objective("99", 50_000_000)
    assert found.search == Search((objective,), Decimal(10), Decimal(1_000_000), 5 * 10**9, Decimal("0.05"), 6)
    assert (found.total, found.duration_ns, found.rate, found.key_space) == (None, None, None, 10_000)
    assert found.name == "write-leader-search-p99-50ms-100x10-4B-64B"


def test_everything_of_a_search_can_be_set_and_is_in_its_name(tmp_path: Path) -> None:
    load = {
        "search": {"p50": "5ms", "p99.9": "1s", "from": 50, "to": 2000, "step": "10s", "within": 0.1, "repeats": 3},
        "arrival": "poisson",
        "clients": [10, 20],
        "conns": 10,
        "warmup": "2s",
    }
    name = "search-p50-5ms-p99.9-1s-from50-to2000-step10s-within0.1-repeats3"
    block = writes(load=load, keySpace=77)
    assert names_of(tmp_path, block) == [
        f"write-leader-{name}-poisson-{clients}x10-warm2s-4B-64B-of77" for clients in (10, 20)
    ]
    (found, _) = load_scenarios(written(tmp_path, {"scenarios": [block]})).scenarios
    limits = (Objective("50", 5_000_000), Objective("99.9", 10**9))
    assert found.search == Search(limits, Decimal(50), Decimal(2000), 10**10, Decimal("0.1"), 3)
    assert found.search.text == "p50<=5ms;p99.9<=1s"


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


BESIDE = "search alone, which chooses the rate and the length of each probe"


@pytest.mark.parametrize(
    ("load", "path", "message", "allowed"),
    [
        (SEARCH | {"total": 1000}, "total", "is given beside search", BESIDE),
        (SEARCH | {"duration": "5s"}, "duration", "is given beside search", BESIDE),
        (SEARCH | {"rate": 100}, "rate", "is given beside search", BESIDE),
        (loads() | {"warmup": 100}, "warmup", "is no time", 'a duration such as "1s" beside search'),
        (loads(p99="0ms"), "search.p99", "is out of range", "from 1us"),
        (loads(p99="-1ms"), "search.p99", "is negative", "from 1us"),
        (loads(p99=50), "search.p99", "is not a duration", "a number with s, ms, us or ns"),
        (loads(p99="20s"), "search", "no answer can miss, p99<=20s", "less than the deadline of each request, 20s"),
        (loads() | {"timeout": "50ms"}, "search", "no answer can miss, p99<=50ms", "deadline of each request, 50ms"),
        (loads(p50="50ms"), "search.p50", "follows from p99", "less than p99, 50ms"),
        ({"search": {}, "clients": 1, "conns": 1}, "search.p99", "is missing", "p50, p90, p95, p99 or p99.9"),
        (loads(p999="1s"), "search.p999", "is not a known key", "p99.9"),
        (loads(**{"from": 500, "to": 500}), "search.to", "leaves no rates to search", "more than from, 500"),
        (loads(**{"from": 1_000_000}), "search.from", "leaves no rates to search", "less than 1000000"),
        (loads(**{"from": 0.5}), "search.from", "too low: p99 needs 1000 requests", "at least 0.833"),
        (loads(to=2_000_000), "search.to", "is out of range", "a number from 0.1 to 1000000"),
        (loads(within=0), "search.within", "is out of range", "a number from 0.01 to 0.5"),
        (loads(repeats=2), "search.repeats", "is out of range", "a whole number from 3 to 20"),
        (loads(step="1ms"), "search.step", "is out of range", "from 100ms to 600s"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(
    tmp_path: Path, load: dict[str, Any], path: str, message: str, allowed: str
) -> None:
    ((where, found, said),) = problems_of(tmp_path, load)
    assert where == f"$.scenarios[0].load.{path}" and message in found and allowed in said


def test_every_problem_of_a_search_is_told_at_once(tmp_path: Path) -> None:
    load = loads(repeats=0, to="x") | {"total": 500, "rate": 7}
    assert {path for path, _, _ in problems_of(tmp_path, load)} == {
        f"$.scenarios[0].load.{key}" for key in ("search.to", "search.repeats", "total", "rate")
    }


@pytest.mark.parametrize(
    ("load", "valid"),
    [
        *((SEARCH | more, True) for more in ({}, {"arrival": "poisson"})),
        *((SEARCH | more, False) for more in ({"total": 1}, {"duration": "1s"}, {"rate": 1}, {"search": {}})),
        (SEARCH | {"search": None}, False),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(tmp_path: Path, load: dict[str, Any], valid: bool) -> None:
    document = {"scenarios": [writes(load=load)]}
    assert jsonschema.Draft202012Validator(schema_of("scenarios")).is_valid(document) is valid
    with nullcontext() if valid else pytest.raises(ConfigError):
        load_scenarios(written(tmp_path, document))


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


def planned(tmp_path: Path, *blocks: dict[str, Any]) -> Any:
    scenarios = load_scenarios(written(tmp_path, {"scenarios": [*blocks]}))
    return build_plan(load_config(CONFIG), scenarios, PlanOptions(machine_cores=2)).scenarios


def test_an_objective_that_the_links_alone_exceed_is_refused(tmp_path: Path) -> None:
    """A put to the leader takes the client's round trip (6 ms) and the leader's to a follower (12 ms)."""
    fits = loads(p99="19ms")
    assert planned(tmp_path, writes(load=fits), reads(load=loads(p99="7ms"), consistency="s"))
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, writes(load=[fits, loads(p99="18ms")]), reads(load=loads(p99="6ms"), consistency="s"))
    found = [(problem.path, problem.got) for problem in caught.value.problems]
    assert found == [("$.scenarios[0].load[1].search", "p99<=18ms"), ("$.scenarios[1].load.search", "p99<=6ms")]
    assert "its links alone take 18" in caught.value.problems[0].message
    assert caught.value.problems[0].line == 1


def test_the_plan_knows_how_long_a_search_takes(tmp_path: Path) -> None:
    found = planned(tmp_path, *(writes(load=load) for load in (SEARCH, loads(repeats=12), loads(step="50s"))))
    once, twice, long = (scenario.estimated_s for scenario in found)
    # 12 repeats and some 10 probes before them, each of 5 s, a warm-up of 1 s and what is around it.
    assert 18 * 6.5 <= once <= 30 * 6.5
    assert twice == pytest.approx(once + 12 * 6.5)
    assert long > 7 * once
