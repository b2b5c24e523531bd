from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
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


# --- spans and transactions -------------------------------------------------------------------------------------------

PREFIXED = {"keyPrefix": "d/", "keySize": 3, "valSize": 10, "keys": 100}


def test_names_of_spans_say_what_is_asked_for(tmp_path):
    blocks = [
        reads(spanKeys=[1, 10], limit=5, keys=["sequential", "uniform"], verify=False),
        reads(prefix="0000", keysOnly=True),
        reads(span={"from": "00000001", "to": "0000001Z"}, limit=2, countOnly=True),
        reads(keysOnly=True),
        mixed(spanKeys=7),
        txns(target=["leader", "cluster"], keys=["sequential", "zipfian"]),
    ]
    assert names_of(tmp_path, *blocks) == [
        "read-linearizable-10x1x1-span1-limit5-unverified",
        "read-linearizable-10x1x1-span1-limit5-uniform-unverified",
        "read-linearizable-10x1x1-span10-limit5-unverified",
        "read-linearizable-10x1x1-span10-limit5-uniform-unverified",
        "read-linearizable-10x1x1-prefix:0000-keysonly",
        "read-linearizable-10x1x1-00000001..0000001Z-limit2-countonly",
        "read-linearizable-10x1x1-keysonly",
        "mixed-w0.5-linearizable-10x1x1-span7",
        "txn-leader-10x1x1",
        "txn-leader-10x1x1-zipfian",
        "txn-10x1x1",
        "txn-10x1x1-zipfian",
    ]


def test_spans_and_transactions_are_of_the_data_set(tmp_path):
    blocks = [
        reads(prefix="d/01"),
        reads(span={"from": "d/002", "to": "d/00A"}, limit=3),
        reads(spanKeys=7),
        reads(spanKeys=100, countOnly=True),
        txns(keys="shuffled"),
        writes(data={"keySize": 4, "valSize": 64}),
    ]
    file = load_scenarios(write(tmp_path, {"dataset": PREFIXED, "scenarios": blocks}))
    assert [s.keys_answered for s in file.scenarios[:4]] == [38, 3, 7, 0]
    assert [s.key_prefix for s in file.scenarios] == ["d/"] * 5 + [""]
    assert [s.verify for s in file.scenarios] == [True] * 4 + [False] * 2
    txn = file.scenarios[4]
    assert (txn.type, txn.key_space, txn.val_size, txn.consistency, txn.target) == ("txn", 100, 10, None, "cluster")
    assert txn.uses_dataset and not txn.reads
    assert (file.dataset.load.key_prefix, file.dataset.load.key_space) == ("d/", 100)


def test_with_a_key_prefix_writes_neither_make_nor_spoil_the_data_set(tmp_path):
    dataset = {"keySize": 4, "valSize": 64, "keys": 10}
    for prefix, made, spoilt in (({}, True, False), ({"keyPrefix": "d/"}, False, True)):
        block = writes(data=[DATA, DATA | {"valSize": 65}])
        file = load_scenarios(write(tmp_path, {"dataset": dataset | prefix, "scenarios": [block, reads()]}))
        same, other, read = file.scenarios
        assert file.dataset.present_after(same, False) is made
        assert file.dataset.present_after(other, True) is spoilt
        assert file.dataset.present_after(read, True)


@pytest.mark.parametrize(
    ("dataset", "block", "written", "fine"),
    [
        ({}, reads(spanKeys=5), writes(), False),
        ({}, reads(prefix="0000"), writes(), False),
        ({}, reads(span={"from": "00000000", "to": "0000001"}), writes(data={"keySize": 7, "valSize": 1}), False),
        ({}, mixed(spanKeys=5), writes(), False),
        ({}, reads(prefix="0000", verify=False), writes(), True),
        # One key at a time is known by its name.
        ({}, reads(), writes(data={"keySize": 9, "valSize": 1}), True),
        # Nothing is written but the data set itself.
        ({}, reads(spanKeys=5), txns(), True),
        ({"keyPrefix": "d/"}, reads(spanKeys=5), writes(data={"keySize": 9, "valSize": 1}), True),
        ({"keyPrefix": "d/"}, reads(prefix="d/"), writes(load=LOAD | {"total": 62**2}), True),
    ],
)
def test_a_span_is_verified_where_only_the_data_set_is(tmp_path, dataset, block, written, fine):
    path = write(tmp_path, {"dataset": dataset, "scenarios": [block, written]})
    if fine:
        load_scenarios(path)
        return
    with pytest.raises(ConfigError) as caught:
        load_scenarios(path)
    (problem,) = caught.value.problems
    assert "$.scenarios[1] writes" in problem.message and "keyPrefix" in problem.allowed
    assert problem.path == f"$.scenarios[0].{next(key for key in ('spanKeys', 'prefix', 'span') if key in block)}"
