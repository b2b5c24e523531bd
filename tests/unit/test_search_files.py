"""Saturation searches in scenario files: what they mean, and that what cannot be searched is refused by name."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest

from containernet_env.base.errors import ConfigError
from containernet_env.config import load_config
from containernet_env.config.export import schema_of
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.writer import scenarios_text
from containernet_env.model.scenario import Scenario, Warmup
from containernet_env.model.search import Objective, Search
from containernet_env.plan.build import build_plan
from containernet_env.plan.identity import scenario_hash
from containernet_env.plan.plan import PlanOptions
from tests.unit.blocks import mixed, names_of, reads, write, writes

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SEARCH = {"search": {"p99": "50ms"}, "clients": 100, "conns": 10}


def loads(**settings):
    return {"search": {"p99": "50ms"} | settings, "clients": 100, "conns": 10}


def problems_of(tmp_path, value):
    with pytest.raises(ConfigError) as caught:
        load_scenarios(write(tmp_path, {"scenarios": [writes(load=value)]}))
    return [(problem.path, problem.message, problem.allowed) for problem in caught.value.problems]


def test_a_search_needs_no_more_than_an_objective(tmp_path):
    (found,) = load_scenarios(write(tmp_path, {"scenarios": [writes(load=SEARCH)]})).scenarios
    objective = Objective("99", 50_000_000)
    assert found.search == Search((objective,), Decimal(10), Decimal(1_000_000), 5 * 10**9, Decimal("0.05"), 6)
    assert (found.total, found.duration_ns, found.rate, found.key_space) == (None, None, None, 10_000)
    assert found.name == "write-leader-search-p99-50ms-100x10-4B-64B"


def test_everything_of_a_search_can_be_set_and_is_in_its_name(tmp_path):
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
    (found, _) = load_scenarios(write(tmp_path, {"scenarios": [block]})).scenarios
    limits = (Objective("50", 5_000_000), Objective("99.9", 10**9))
    assert found.search == Search(limits, Decimal(50), Decimal(2000), 10**10, Decimal("0.1"), 3)
    assert found.search.text == "p50<=5ms;p99.9<=1s"


def test_a_probe_is_an_open_loop_of_its_own(tmp_path):
    blocks = [writes(load=SEARCH), reads(load=SEARCH | {"arrival": "poisson", "warmup": "300ms"})]
    constant, poisson = load_scenarios(write(tmp_path, {"scenarios": blocks})).scenarios
    probe = constant.probe(Decimal(100), 7)
    assert (probe.search, probe.rate, probe.duration_ns, probe.seed) == (None, 100, 10 * 10**9, 7)
    assert probe.warmup == Warmup(length_ns=10**9), "each probe warms up, also where the file does not say so"
    assert constant.probe(Decimal(4000)).duration_ns == 5 * 10**9
    probe = poisson.probe(Decimal(100))
    assert (probe.arrival, probe.warmup.length_ns) == ("poisson", 300_000_000)
    assert probe.duration_ns == 11_280 * 10**6, "as many more as the number of arrivals varies"


@pytest.mark.parametrize("key", ["total", "duration", "rate"])
def test_what_a_search_chooses_itself_is_refused_beside_it(tmp_path, key):
    value = {"total": 1000, "duration": "5s", "rate": 100}[key]
    allowed = "search alone, which chooses the rate and the length of each probe"
    assert problems_of(tmp_path, SEARCH | {key: value}) == [
        (f"$.scenarios[0].load.{key}", "is given beside search", allowed)
    ]


@pytest.mark.parametrize(
    ("load", "path", "message", "allowed"),
    [
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
def test_a_search_that_cannot_be_made_is_refused(tmp_path, load, path, message, allowed):
    ((where, found, said),) = problems_of(tmp_path, load)
    assert where == f"$.scenarios[0].load.{path}"
    assert message in found
    assert allowed in said


def test_every_problem_of_a_search_is_told_at_once(tmp_path):
    load = loads(repeats=0, to="x") | {"total": 500, "rate": 7}
    assert {path for path, _, _ in problems_of(tmp_path, load)} == {
        f"$.scenarios[0].load.{key}" for key in ("search.to", "search.repeats", "total", "rate")
    }


def test_the_schema_refuses_what_the_reader_refuses(tmp_path):
    validator = jsonschema.Draft202012Validator(schema_of("scenarios"))
    for load, valid in (
        (SEARCH, True),
        (SEARCH | {"arrival": "poisson"}, True),
        (SEARCH | {"total": 1}, False),
        (SEARCH | {"duration": "1s"}, False),
        (SEARCH | {"rate": 1}, False),
        ({"search": {}, "clients": 1, "conns": 1}, False),
        ({"search": None, "clients": 1, "conns": 1}, False),
    ):
        document = {"scenarios": [writes(load=load)]}
        assert validator.is_valid(document) is valid, load
        if valid:
            load_scenarios(write(tmp_path, document))
        else:
            with pytest.raises(ConfigError):
                load_scenarios(write(tmp_path, document))


def test_the_writes_of_all_probes_share_their_keys(tmp_path):
    block = writes(load=SEARCH, data={"keySize": 3, "valSize": 9}, keys=["sequential", "uniform"])
    found = load_scenarios(write(tmp_path, {"scenarios": [block]})).scenarios
    assert [scenario.key_space for scenario in found] == [10_000, 10_000]
    with pytest.raises(ConfigError, match="too small for 10000 different keys"):
        load_scenarios(write(tmp_path, {"scenarios": [block | {"data": {"keySize": 2, "valSize": 9}}]}))


def test_a_search_comes_back_from_the_file_that_a_run_keeps(tmp_path):
    blocks = [writes(load=[SEARCH, loads(repeats=9)], keySpace=5), mixed(load=loads(to=77.5, within=0.02))]
    found = load_scenarios(write(tmp_path, {"scenarios": blocks}))
    (tmp_path / "again.json").write_text(scenarios_text(found.dataset, found.scenarios))
    assert load_scenarios(tmp_path / "again.json").scenarios == found.scenarios


def test_what_is_searched_is_part_of_the_scenarios_hash_and_nothing_else_changed(tmp_path):
    hashes = set()
    for load in (SEARCH, loads(p99="51ms"), loads(repeats=7), {"duration": "5s", "clients": 100, "conns": 10}):
        found = load_scenarios(write(tmp_path, {"scenarios": [reads(load=load)]}))
        hashes.add(scenario_hash(found.scenarios[0], found.dataset))
    assert len(hashes) == 4
    scenario = Scenario(name="w", type="write", total=5, clients=1, conns=1, key_size=8, val_size=8, key_space=5)
    assert scenario_hash(scenario, found.dataset) == "6742b7c784f1", "as before there were searches"


def test_an_objective_that_the_links_alone_exceed_is_refused(tmp_path):
    """A put to the leader takes the client's round trip (6 ms) and the leader's to a follower (12 ms)."""
    config = load_config(CONFIGS / "3node-3ms.json")
    options = PlanOptions(machine_cores=2)

    def plan_of(**blocks):
        return build_plan(config, load_scenarios(write(tmp_path, {"scenarios": blocks["scenarios"]})), options)

    fits = loads(p99="19ms")
    assert plan_of(scenarios=[writes(load=fits), reads(load=loads(p99="7ms"), consistency="s")]).scenarios
    with pytest.raises(ConfigError) as caught:
        plan_of(scenarios=[writes(load=[fits, loads(p99="18ms")]), reads(load=loads(p99="6ms"), consistency="s")])
    found = [(problem.path, problem.got) for problem in caught.value.problems]
    assert found == [("$.scenarios[0].load[1].search", "p99<=18ms"), ("$.scenarios[1].load.search", "p99<=6ms")]
    assert "its links alone take 18" in caught.value.problems[0].message
    assert caught.value.problems[0].line == 1


def test_the_plan_knows_how_long_a_search_takes(tmp_path):
    config = load_config(CONFIGS / "3node-3ms.json")
    document = {"scenarios": [writes(load=SEARCH), writes(load=loads(repeats=12)), writes(load=loads(step="50s"))]}
    plan = build_plan(config, load_scenarios(write(tmp_path, document)), PlanOptions(machine_cores=2))
    once, twice, long = (planned.estimated_s for planned in plan.scenarios)
    # 12 repeats and some 10 probes before them, each of 5 s, a warm-up of 1 s and what is around it.
    assert 18 * 6.5 <= once <= 30 * 6.5
    assert twice == pytest.approx(once + 12 * 6.5)
    assert long > 7 * once
    assert json.dumps(plan.scenarios[0].scheduled.scenario.search.text) == '"p99<=50ms"'
