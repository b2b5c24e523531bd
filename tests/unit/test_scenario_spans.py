"""Reads of prefixes and spans, and transactions, in scenario files."""

from __future__ import annotations

import pytest

from containernet_env.base.errors import ConfigError
from containernet_env.config.scenarios import load_scenarios
from tests.unit.blocks import DATA, LOAD, mixed, names_of, reads, txns, write, writes

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
