from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.scenario_schema import RawRead
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, MAX_SCENARIOS, QUICK_SCENARIOS, load_scenarios
from containernet_env.model.scenario import Dataset, Scenario, Warmup
from containernet_env.plan.selection import select
from tests.unit.blocks import DATA, LOAD, OPEN, mixed, names_of, reads, txns, write, writes

OPEN_LOOP = DEFAULT_SCENARIOS.with_name("open-loop.json")


def test_the_default_matrix_is_the_documented_one():
    scenarios = load_scenarios(DEFAULT_SCENARIOS).scenarios
    write_loads = [(1000, 1, 1), (10_000, 100, 10), (100_000, 1000, 100)]
    read_loads = [(1000, 1, 1), (10_000, 100, 10), (100_000, 100, 100)]
    expected = [
        ("write", *load, *data, target, None)
        for load in write_loads
        for data in ((4, 64), (8, 256))
        for target in ("leader", "cluster")
    ] + [("read", *load, 8, 256, "cluster", consistency) for load in read_loads for consistency in ("l", "s")]
    assert [
        (s.type, s.total, s.clients, s.conns, s.key_size, s.val_size, s.target, s.consistency) for s in scenarios
    ] == expected
    assert all(s.key_space == s.total for s in scenarios if s.type == "write")
    assert {s.key_space for s in scenarios if s.type == "read"} == {10_000}


def test_the_quick_matrix_has_every_kind_of_the_default_one():
    def kinds(path):
        def kind(s):
            return (s.type, s.clients, s.conns, s.key_size, s.val_size, s.target, s.consistency)

        return [kind(s) for s in load_scenarios(path).scenarios]

    assert kinds(QUICK_SCENARIOS) == kinds(DEFAULT_SCENARIOS)
    assert max(s.total for s in load_scenarios(QUICK_SCENARIOS).scenarios) <= 2000


def test_names_say_what_is_measured():
    names = [scenario.name for scenario in load_scenarios(DEFAULT_SCENARIOS).scenarios]
    assert names[0] == "write-leader-1000x1x1-4B-64B"
    assert names[-1] == "read-serializable-100000x100x100"
    assert len(set(names)) == len(names) == 18


def test_names_of_open_loops_say_rate_and_length(tmp_path):
    load = {"rate": [500, 0.5], "duration": "4s", "clients": 100, "conns": 10}
    assert names_of(tmp_path, writes(load=load, data={"keySize": 8, "valSize": 256})) == [
        "write-leader-r500-4s-100x10-8B-256B",
        "write-leader-r0.5-4s-100x10-8B-256B",
    ]
    load = LOAD | {"rate": 500, "arrival": "poisson", "warmup": 5}
    assert names_of(tmp_path, writes(load=load, target="etcd2")) == ["write-etcd2-r500-poisson-10x1x1-warm5-4B-64B"]
    load = {"duration": "1500ms", "clients": [1, 8], "conns": 1, "warmup": "500ms"}
    assert names_of(tmp_path, reads(load=load, target=["cluster", "leader"], keys=["sequential", "zipfian"])) == [
        f"read-{target}linearizable-1.5s-{clients}x1-warm500ms{order}"
        for clients in (1, 8)
        for target in ("", "leader-")
        for order in ("", "-zipfian")
    ]
    assert names_of(tmp_path, mixed(ratio=[0, 0.25], keys="zipfian", zipfExponent=1.2, verify=False)) == [
        "mixed-w0-linearizable-10x1x1-zipfian-e1.2-unverified",
        "mixed-w0.25-linearizable-10x1x1-zipfian-e1.2-unverified",
    ]


def test_names_of_writes_say_which_keys_and_which_deadline(tmp_path):
    file = write(tmp_path, {"scenarios": [writes(load=LOAD | {"stallTimeout": "0s"})]})
    (stalling,) = load_scenarios(file).scenarios
    assert (stalling.name, stalling.stall_timeout_ns) == ("write-leader-10x1x1-stallnever-4B-64B", 0)
    block = writes(load=LOAD | {"timeout": "5s"}, keys=["sequential", "shuffled", "zipfian"], zipfExponent=2)
    assert names_of(tmp_path, block | {"keySpace": 7}, writes(load=LOAD | {"timeout": "20s"})) == [
        "write-leader-10x1x1-timeout5s-4B-64B-of7",
        "write-leader-10x1x1-timeout5s-4B-64B-of7-shuffled",
        "write-leader-10x1x1-timeout5s-4B-64B-of7-zipfian-e2",
        "write-leader-10x1x1-4B-64B",
    ]
    found = load_scenarios(write(tmp_path, {"scenarios": [block | {"keySpace": 7}, reads(keys="shuffled")]})).scenarios
    assert [(s.keys, s.key_space, s.request_timeout_ns) for s in found] == [
        ("sequential", 7, 5 * 10**9),
        ("shuffled", 7, 5 * 10**9),
        ("zipfian", 7, 5 * 10**9),
        ("shuffled", 10_000, 20 * 10**9),
    ]


def test_writes_of_a_warm_up_have_keys_of_their_own(tmp_path):
    """The measurement's requests are numbered after those of the warm-up: it would overwrite what that wrote."""
    blocks = [
        writes(load=LOAD | {"warmup": 5}, keys=["sequential", "shuffled", "uniform"]),
        writes(load=LOAD | {"warmup": "1s"}, keys=["sequential", "uniform"]),
        writes(load=LOAD | {"warmup": 5, "seed": 7}, keySpace=10),
        reads(load=LOAD | {"warmup": 5}),
    ]
    found = load_scenarios(write(tmp_path, {"scenarios": blocks})).scenarios
    assert [scenario.key_space for scenario in found] == [15, 15, 15, None, 10, 10, 10_000]
    assert (found[5].name, found[5].seed) == ("write-leader-10x1x1-warm5-seed7-4B-64B-of10", 7)
    small = writes(load=LOAD | {"total": 62, "warmup": 1}, data={"keySize": 1, "valSize": 8})
    with pytest.raises(ConfigError, match="too small for 63 different keys"):
        load_scenarios(write(tmp_path, {"scenarios": [small]}))


def test_drawn_keys_of_a_duration_come_from_a_key_space(tmp_path):
    file = {"scenarios": [writes(load=OPEN, keys="uniform", keySpace=1000)]}
    (found,) = load_scenarios(write(tmp_path, file)).scenarios
    assert (found.total, found.key_space, found.keys) == (None, 1000, "uniform")


def test_reads_are_verified_unless_a_file_says_otherwise(tmp_path):
    blocks = [reads(), mixed(), reads(target="leader", verify=False)]
    found = load_scenarios(write(tmp_path, {"scenarios": blocks})).scenarios
    assert [s.verify for s in found] == [True, True, False]


def test_an_open_loop_knows_its_requests_and_its_time(tmp_path):
    load = {"rate": [500, 0.3], "duration": "10s", "warmup": "2s", "clients": 100, "conns": 10}
    first, second = load_scenarios(write(tmp_path, {"scenarios": [writes(load=load)]})).scenarios
    assert (first.requests, second.requests) == (5000, 3)
    assert (first.total, first.scheduled_s, first.warmup_s, first.key_space) == (None, 10, 2, None)
    load = LOAD | {"rate": 5, "warmup": 20}
    (third,) = load_scenarios(write(tmp_path, {"scenarios": [writes(load=load)]})).scenarios
    assert (third.requests, third.scheduled_s, third.warmup_s, third.key_space) == (10, 2, 4, 30)
    loads = [{"duration": "1s", "clients": 1, "conns": 1}, LOAD | {"warmup": 20}]
    fourth, fifth = load_scenarios(write(tmp_path, {"scenarios": [reads(load=loads)]})).scenarios
    assert (fourth.requests, fourth.scheduled_s, fourth.warmup_s) == (None, 1, 0)
    assert (fifth.requests, fifth.scheduled_s, fifth.warmup_s) == (10, None, None)


def test_members_that_a_file_names_are_told_with_their_place(tmp_path):
    blocks = [writes(target=["leader", "etcd2"]), reads(target="etcd1"), mixed()]
    found = load_scenarios(write(tmp_path, {"scenarios": blocks})).member_targets
    assert [(item.where, item.member) for item in found] == [
        ("$.scenarios[0].target[1]", "etcd2"),
        ("$.scenarios[1].target", "etcd1"),
    ]


def test_the_open_loop_file_we_ship_is_the_documented_one():
    scenarios = load_scenarios(OPEN_LOOP).scenarios
    assert [(s.type, s.rate, s.target, s.requests, s.scheduled_s) for s in scenarios] == [
        ("write", rate, target, rate * 10, 10) for rate in (100, 500, 1000) for target in ("leader", "cluster")
    ] + [("mixed", 500, "cluster", 5000, 10)]
    assert (scenarios[-1].keys, scenarios[-1].verify, scenarios[-1].arrival) == ("zipfian", True, "poisson")


def axis(values):
    return st.lists(values, min_size=1, max_size=4, unique_by=json.dumps)


LOADS = st.builds(
    lambda total, clients, conns: {"total": total + clients, "clients": clients, "conns": conns},
    st.integers(0, 1000),
    st.integers(1, 100),
    st.integers(1, 100),
)
DATAS = st.builds(lambda key, val: {"keySize": key, "valSize": val}, st.integers(3, 20), st.integers(1, 1000))


@settings(deadline=None)
@given(
    axis(LOADS), axis(DATAS), axis(st.sampled_from(["leader", "cluster"])), axis(st.sampled_from(["l", "s", "default"]))
)
def test_lists_multiply_in_the_files_order(tmp_path_factory, loads, datas, targets, consistencies):
    blocks = [writes(load=loads, data=datas, target=targets), reads(load=loads, consistency=consistencies)]
    path = write(tmp_path_factory.mktemp("scenarios"), {"scenarios": blocks})
    scenarios = load_scenarios(path).scenarios
    written = len(loads) * len(datas) * len(targets)
    assert len(scenarios) == written + len(loads) * len(consistencies)
    assert [(s.total, s.key_size, s.val_size, s.target) for s in scenarios[:written]] == [
        (load["total"], data["keySize"], data["valSize"], target)
        for load in loads
        for data in datas
        for target in targets
    ]
    assert [s.consistency for s in scenarios[written:]] == consistencies * len(loads)


def test_a_single_value_stands_for_a_list_of_one(tmp_path):
    single = load_scenarios(write(tmp_path, {"scenarios": [writes(), reads()]}))
    listed = load_scenarios(
        write(
            tmp_path,
            {"scenarios": [writes(load=[LOAD], data=[DATA], target=["leader"]), reads(load=[LOAD], consistency=["l"])]},
        )
    )
    assert single.scenarios == listed.scenarios
    assert single.dataset == Dataset()


@pytest.mark.parametrize(
    ("value", "path", "got", "allowed"),
    [
        ([], "$", "[]", "an object with the keys dataset, scenarios"),
        ({}, "$.scenarios", None, "a list of 1 to 1000 blocks"),
        ({"scenarios": []}, "$.scenarios", "0 entries", "at least 1"),
        ({"scenarios": [writes()], "more": 1}, "$.more", "1", "dataset, scenarios"),
        ({"scenarios": [5]}, "$.scenarios[0]", "5", "an object"),
        ({"scenarios": [{"load": LOAD}]}, "$.scenarios[0].type", None, '"write" or "read"'),
        ({"scenarios": [writes(type="put")]}, "$.scenarios[0].type", '"put"', '"write" or "read"'),
        ({"scenarios": [writes(type=5)]}, "$.scenarios[0].type", "5", '"write" or "read"'),
        ({"scenarios": [writes(load=[])]}, "$.scenarios[0].load", "0 entries", "at least 1"),
        ({"scenarios": [writes(consistency="l")]}, "$.scenarios[0].consistency", '"l"', "type, load, data, target"),
        ({"scenarios": [reads(ratio=0.5)]}, "$.scenarios[0].ratio", "0.5", "type, load, target, keys"),
        ({"scenarios": [reads(consistency=["l", "x"])]}, "$.scenarios[0].consistency[1]", '"x"', '"l" or "s"'),
        ({"scenarios": [writes(target="All")]}, "$.scenarios[0].target", '"All"', '"leader", "cluster" or a member'),
        ({"scenarios": [writes(target=["leader", 1])]}, "$.scenarios[0].target[1]", "1", "a member's name"),
        ({"scenarios": [writes(load={"clients": 1, "conns": 1})]}, "$.scenarios[0].load.total", None, "or duration"),
        ({"scenarios": [writes(load=LOAD | {"duration": "1s"})]}, "$.scenarios[0].load.duration", '"1s"', "either"),
        ({"scenarios": [writes(load=OPEN | {"duration": 10})]}, "$.scenarios[0].load.duration", "10", '"10s"'),
        ({"scenarios": [writes(load=OPEN | {"duration": "13h"})]}, "$.scenarios[0].load.duration", '"13h"', "43200s"),
        ({"scenarios": [writes(load=OPEN | {"rate": 0})]}, "$.scenarios[0].load.rate", "0", "from 0.1 to 1000000"),
        ({"scenarios": [writes(load=OPEN | {"rate": True})]}, "$.scenarios[0].load.rate", "true", "a number"),
        ({"scenarios": [writes(load=OPEN | {"rate": [5, "x"]})]}, "$.scenarios[0].load.rate[1]", '"x"', "a number"),
        ({"scenarios": [writes(load=OPEN | {"rate": []})]}, "$.scenarios[0].load.rate", "0 entries", "at least 1"),
        (
            {"scenarios": [writes(load=LOAD | {"total": 100_000, "rate": 1})]},
            "$.scenarios[0].load.rate",
            "1",
            "at most 43200s",
        ),
        (
            {"scenarios": [writes(load=LOAD | {"arrival": "poisson"})]},
            "$.scenarios[0].load.arrival",
            '"poisson"',
            "only beside rate",
        ),
        (
            {"scenarios": [writes(load=OPEN | {"arrival": "even"})]},
            "$.scenarios[0].load.arrival",
            '"even"',
            '"constant" or "poisson"',
        ),
        ({"scenarios": [writes(load=OPEN | {"warmup": 0})]}, "$.scenarios[0].load.warmup", "0", "from 1 to"),
        ({"scenarios": [writes(load=OPEN | {"warmup": "2h"})]}, "$.scenarios[0].load.warmup", '"2h"', "3600s"),
        ({"scenarios": [writes(load=OPEN | {"warmup": True})]}, "$.scenarios[0].load.warmup", "true", "duration"),
        (
            {"scenarios": [writes(load=OPEN | {"rate": 0.1, "warmup": 1000})]},
            "$.scenarios[0].load.warmup",
            "1000",
            "at most 3600s",
        ),
        (
            {"scenarios": [writes(load=LOAD | {"clients": [1, 11]})]},
            "$.scenarios[0].load.clients",
            "[1, 11]",
            "at most total, 10",
        ),
        ({"scenarios": [writes(load=OPEN, data=DATA | {"keySize": 3})]}, "$.scenarios[0].data.keySize", "3", "least 4"),
        ({"scenarios": [mixed(ratio=1.1)]}, "$.scenarios[0].ratio", "1.1", "from 0 to 1"),
        (
            {"scenarios": [{"type": "mixed", "load": LOAD, "consistency": "l"}]},
            "$.scenarios[0].ratio",
            None,
            "from 0 to 1",
        ),
        ({"scenarios": [reads(keys="zipf")]}, "$.scenarios[0].keys", '"zipf"', '"uniform" or "zipfian"'),
        ({"scenarios": [reads(zipfExponent=1)]}, "$.scenarios[0].zipfExponent", "1", 'only beside keys "zipfian"'),
        ({"scenarios": [reads(keys="zipfian", zipfExponent=0)]}, "$.scenarios[0].zipfExponent", "0", "from 0.01 to 10"),
        ({"scenarios": [writes(zipfExponent=1)]}, "$.scenarios[0].zipfExponent", "1", 'only beside keys "zipfian"'),
        ({"scenarios": [writes(keySpace=0)]}, "$.scenarios[0].keySpace", "0", "from 1 to 1000000000"),
        ({"scenarios": [writes(keySpace=62**4 + 1)]}, "$.scenarios[0].data.keySize", "4", "at least 5"),
        ({"scenarios": [writes(load=OPEN, keys="uniform")]}, "$.scenarios[0].keySpace", None, "uniform ones are drawn"),
        ({"scenarios": [reads(keySpace=5)]}, "$.scenarios[0].keySpace", "5", "type, load, target, keys"),
        ({"scenarios": [writes(load=LOAD | {"timeout": "0s"})]}, "$.scenarios[0].load.timeout", '"0s"', "3600s"),
        (
            {"scenarios": [writes(load=LOAD | {"stallTimeout": "10us"})]},
            "$.scenarios[0].load.stallTimeout",
            '"10us"',
            "at least 1ms",
        ),
        ({"scenarios": [reads(verify=1)]}, "$.scenarios[0].verify", "1", "true or false"),
        ({"scenarios": [reads(spanKeys=0)]}, "$.scenarios[0].spanKeys", "0", "from 1 to"),
        ({"scenarios": [reads(spanKeys=[5, 10_001])]}, "$.scenarios[0].spanKeys", "[5, 10001]", "at most dataset.keys"),
        ({"scenarios": [reads(spanKeys=5, prefix="0")]}, "$.scenarios[0].spanKeys", "5", "one of prefix, span and"),
        ({"scenarios": [reads(limit=5)]}, "$.scenarios[0].limit", "5", "only beside prefix, span or spanKeys"),
        ({"scenarios": [reads(spanKeys=5, limit=0)]}, "$.scenarios[0].limit", "0", "from 1 to"),
        ({"scenarios": [reads(prefix="")]}, "$.scenarios[0].prefix", '""', "1 to 200 of 0-9"),
        ({"scenarios": [reads(prefix="0*")]}, "$.scenarios[0].prefix", '"0*"', "1 to 200 of 0-9"),
        ({"scenarios": [reads(prefix="x")]}, "$.scenarios[0].prefix", '"x"', "some of its keys, 00000000 to 000002bH"),
        ({"scenarios": [reads(prefix="0", keys="uniform")]}, "$.scenarios[0].keys", '"uniform"', "only where reads"),
        ({"scenarios": [reads(span={"from": "a"})]}, "$.scenarios[0].span.to", None, "1 to 200 of 0-9"),
        ({"scenarios": [reads(span={"from": "b", "to": "b"})]}, "$.scenarios[0].span.to", '"b"', "sorts after from, b"),
        ({"scenarios": [reads(span={"from": "a", "to": "b", "x": 1})]}, "$.scenarios[0].span.x", "1", "from, to"),
        ({"scenarios": [reads(keysOnly=True, countOnly=True)]}, "$.scenarios[0].countOnly", "true", "one of keysOnly"),
        (
            {"dataset": {"keyPrefix": "d/"}, "scenarios": [reads(span={"from": "d/", "to": "e"})]},
            "$.scenarios[0].span",
            '{"from": "d/", "to": "e"}',
            "start with dataset.keyPrefix, d/",
        ),
        (
            {"dataset": {"keyPrefix": "0000"}, "scenarios": [reads()]},
            "$.dataset.keyPrefix",
            '"0000"',
            "at least one of them / .",
        ),
        ({"dataset": {"keyPrefix": "a b"}, "scenarios": [reads()]}, "$.dataset.keyPrefix", '"a b"', "1 to 200 of 0-9"),
        ({"scenarios": [mixed(prefix="0")]}, "$.scenarios[0].prefix", '"0"', "type, load, target, keys"),
        ({"scenarios": [txns(consistency="l")]}, "$.scenarios[0].consistency", '"l"', "type, load, target, keys"),
        ({"scenarios": [writes(spanKeys=5)]}, "$.scenarios[0].spanKeys", "5", "type, load, data, target"),
        ({"scenarios": [writes(verify=True)]}, "$.scenarios[0].verify", "true", "type, load, data, target"),
        ({"scenarios": [writes(load=LOAD | {"total": 0})]}, "$.scenarios[0].load.total", "0", "from 1 to"),
        ({"scenarios": [writes(load=LOAD | {"total": True})]}, "$.scenarios[0].load.total", "true", "whole number"),
        ({"scenarios": [writes(load=LOAD | {"total": 1.5})]}, "$.scenarios[0].load.total", "1.5", "whole number"),
        ({"scenarios": [writes(load=LOAD | {"total": -1})]}, "$.scenarios[0].load.total", "-1", "from 1 to"),
        ({"scenarios": [writes(load=[LOAD, LOAD | {"conns": 0}])]}, "$.scenarios[0].load[1].conns", "0", "from 1"),
        (
            {"scenarios": [writes(load=LOAD | {"clients": 11})]},
            "$.scenarios[0].load.clients",
            "11",
            "at most total, 10",
        ),
        ({"scenarios": [writes(data={"keySize": 4})]}, "$.scenarios[0].data.valSize", None, "whole number"),
        (
            {"scenarios": [writes(load=LOAD | {"total": 3845}, data=[DATA, DATA | {"keySize": 2}])]},
            "$.scenarios[0].data[1].keySize",
            "2",
            "at least 3",
        ),
        ({"dataset": {"keySize": 1}, "scenarios": [reads()]}, "$.dataset.keySize", "1", "at least 3"),
        (
            {"scenarios": [writes(), writes(target=["cluster", "leader"])]},
            "$.scenarios[1]",
            "write-leader-10x1x1-4B-64B",
            "each scenario once",
        ),
        (
            {
                "scenarios": [
                    writes(
                        load=[LOAD | {"total": n} for n in range(1, MAX_SCENARIOS + 1)], target=["leader", "cluster"]
                    )
                ]
            },
            "$.scenarios",
            "2000",
            "at most 1000",
        ),
    ],
)
def test_a_wrong_scenario_file_is_refused_with_what_is_allowed(tmp_path, value, path, got, allowed):
    file = write(tmp_path, value)
    with pytest.raises(ConfigError) as caught:
        load_scenarios(file)
    (problem,) = caught.value.problems
    assert (problem.path, problem.got) == (path, got)
    assert allowed in problem.allowed
    assert caught.value.file == str(file)


def test_every_problem_of_a_scenario_file_is_reported_at_once(tmp_path):
    file = write(
        tmp_path,
        {"scenarios": [writes(load={"total": 0, "clients": 1, "conns": 1}, target="X"), reads(load="y", q=1)], "z": 1},
    )
    with pytest.raises(ConfigError) as caught:
        load_scenarios(file)
    assert [problem.path for problem in caught.value.problems] == [
        "$.scenarios[0].load.total",
        "$.scenarios[0].target",
        "$.scenarios[1].load",
        "$.scenarios[1].q",
        "$.z",
    ]


@pytest.mark.parametrize(
    ("block", "path"),
    [
        (writes(load=LOAD | {"total": 86_400_000_001}), "$.scenarios[0].load.total"),
        (writes(load={"total": 20_000, "clients": 10_001, "conns": 1}), "$.scenarios[0].load.clients"),
        (writes(load=LOAD | {"conns": 10_001}), "$.scenarios[0].load.conns"),
        (writes(data=DATA | {"keySize": 1025}), "$.scenarios[0].data.keySize"),
        (writes(data=DATA | {"valSize": (1 << 20) + 1}), "$.scenarios[0].data.valSize"),
    ],
)
def test_what_the_benchmark_server_would_refuse_is_refused_in_the_file(tmp_path, block, path):
    with pytest.raises(ConfigError) as caught:
        load_scenarios(write(tmp_path, {"scenarios": [block]}))
    assert [problem.path for problem in caught.value.problems] == [path]


def test_the_smallest_keys_that_are_all_different_are_enough(tmp_path):
    load = LOAD | {"total": 62**2}
    file = write(tmp_path, {"scenarios": [writes(load=load, data={"keySize": 2, "valSize": 1})]})
    assert load_scenarios(file).scenarios[0].key_space == 62**2


def names(chosen):
    return [(item.scenario.name, item.repetition) for item in chosen]


def test_selecting():
    scenarios = load_scenarios(DEFAULT_SCENARIOS).scenarios
    assert len(select(scenarios)) == 18
    assert [item.scenario for item in select(scenarios)] == list(scenarios)
    assert len(select(scenarios, ["write"])) == 12
    assert len(select(scenarios, ["read"])) == 6
    assert [item.scenario.type for item in select(load_scenarios(OPEN_LOOP).scenarios, ["mixed"])] == ["mixed"]
    assert len(select(scenarios, ["*-1000x1x1*"])) == 6
    assert names(select(scenarios, ["read-l*-1000x*", "read-linearizable-1000x1x1"])) == [
        ("read-linearizable-1000x1x1", 1)
    ]
    assert names(select(scenarios, ["read-*-1000x1x1"], repeat=2)) == [
        ("read-linearizable-1000x1x1", 1),
        ("read-serializable-1000x1x1", 1),
        ("read-linearizable-1000x1x1", 2),
        ("read-serializable-1000x1x1", 2),
    ]


def test_a_pattern_that_matches_nothing_lists_the_names():
    scenarios = load_scenarios(DEFAULT_SCENARIOS).scenarios
    with pytest.raises(UsageError) as caught:
        select(scenarios, ["read", "wrote*"])
    assert "no scenario matches wrote*" in str(caught.value)
    assert all(scenario.name in str(caught.value) for scenario in scenarios)
    with pytest.raises(UsageError, match="1 or more"):
        select(scenarios, repeat=0)


def scenario(**changes):
    made = {
        "name": "x",
        "type": "write",
        "total": 100,
        "clients": 1,
        "conns": 1,
        "key_size": 8,
        "val_size": 256,
        "key_space": 100,
    }
    return Scenario(**(made | changes))


@pytest.mark.parametrize(
    ("done", "before", "after"),
    [
        (scenario(), False, True),
        (scenario(key_space=99), False, False),
        (scenario(key_space=99), True, True),
        (scenario(key_size=4), False, False),
        (scenario(key_size=4), True, True),
        (scenario(val_size=64), True, False),
        (scenario(total=None, duration_ns=10**9, key_space=None), False, False),
        (scenario(total=None, duration_ns=10**9, key_space=None), True, True),
        (scenario(total=None, duration_ns=10**9, key_space=None, val_size=64), True, False),
        (scenario(total=200), False, True),
        (scenario(total=99), False, False),
        (scenario(total=200, warmup=Warmup(requests=1)), False, False),
        (scenario(total=100, key_space=200), False, True),
        (scenario(total=100, key_space=200, keys="shuffled"), False, False),
        (scenario(total=200, key_space=200, keys="shuffled"), False, True),
        (scenario(total=10_000, keys="uniform"), False, False),
        (scenario(total=10_000, keys="zipfian", val_size=64), True, False),
        (scenario(type="mixed"), True, True),
        (scenario(type="read"), True, True),
        (scenario(type="read"), False, False),
    ],
)
def test_which_writes_leave_the_data_set_behind(done, before, after):
    assert Dataset(8, 256, 100).present_after(done, before) is after


def test_loading_the_data_set_makes_it():
    dataset = Dataset(8, 256, 50)
    assert dataset.present_after(dataset.load, False)
    assert dataset.load.clients <= dataset.load.total


def test_what_is_allowed_is_said_of_objects_that_are_missing_too(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_scenarios(write(tmp_path, {"scenarios": [{"type": "txn"}]}))
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == ("$.scenarios[0].load", "is missing")
    assert str(problem.allowed).startswith("an object with the keys total, duration, rate, ")


def test_many_blocks_that_lack_keys_are_told_in_time(tmp_path, monkeypatch):
    """15 KB took 6 s: what is allowed was worked out again for each of them."""
    made = []
    whole = RawRead.model_json_schema.__func__
    monkeypatch.setattr(
        RawRead, "model_json_schema", classmethod(lambda kind, **rest: made.append(kind) or whole(kind, **rest))
    )
    with pytest.raises(ConfigError) as caught:
        load_scenarios(write(tmp_path, {"scenarios": [{"type": "read"}] * 500}))
    assert len(caught.value.problems) == 1000 and len(made) <= 2
