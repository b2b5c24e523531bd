"""The scenarios that a file makes, as the snapshot has them; which of them are chosen, and what they leave behind.

After a change that is meant: pytest tests/unit/test_scenarios.py --snapshot-update, and read the difference.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containernet_env.base.errors import UsageError
from containernet_env.config.plan import select
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
from containernet_env.model.scenario import ALPHABET, ONE_KEY, Dataset, Keys, Scenario, Span, Warmup, after_prefix
from tests.unit.blocks import DATA, LOAD, OPEN, mixed, reads, txns, writes
from tests.unit.fakes import read
from tests.unit.test_config import comes_back

OPEN_LOOP = DEFAULT_SCENARIOS.with_name("open-loop.json")
DERIVED = ("requests", "scheduled_s", "warmup_s", "keys_answered", "uses_dataset", "first_keys_written")


def told(scenario):
    """What is not as by default, and what follows from it."""
    found = {field.name: getattr(scenario, field.name) for field in fields(scenario) if field.default is MISSING}
    found |= {
        field.name: value for field in fields(scenario) if (value := getattr(scenario, field.name)) != field.default
    }
    return found | {name: getattr(scenario, name) for name in DERIVED}


def file(*blocks, **dataset):
    return {"scenarios": blocks} | ({"dataset": dataset} if dataset else {})


SPAN = {"from": "00000001", "to": "0000001Z"}
LONG_KEYS, SMALL = {"keySize": 9, "valSize": 1}, {"keySize": 2, "valSize": 1}
BURSTS = {"rate": [500, 0.3], "duration": "10s", "warmup": "2s", "clients": 100, "conns": 10}
SEVERAL = OPEN | {"rate": [1, 2], "clients": [3, 4]}
TIMED = {"duration": "1500ms", "clients": [1, 8], "conns": 1, "warmup": "500ms"}
SMALL_DATASET = {"keyPrefix": "d/", "keySize": 3, "valSize": 10, "keys": 100}
ORDERS = ["sequential", "shuffled", "uniform", "zipfian"]
FILES = {
    "lists multiply in the file's order": file(
        writes(load=[LOAD, SEVERAL], data=[DATA, LONG_KEYS], target=["leader", "etcd2"]),
        reads(load=[LOAD, LOAD | {"total": 7}], consistency=["l", "s", "default"]),
    ),
    "open loops": file(
        writes(load=BURSTS, data={"keySize": 8, "valSize": 256}),
        writes(load=LOAD | {"rate": 5, "warmup": 20}),
        writes(load=LOAD | {"rate": 500, "arrival": "poisson", "warmup": 5}, target="etcd2"),
        reads(load=[{"duration": "1s", "clients": 1, "conns": 1}, LOAD | {"warmup": 20}]),
    ),
    "orders of keys": file(
        reads(load=TIMED, target=["cluster", "leader"], keys=["sequential", "zipfian"]),
        mixed(ratio=[0, 0.25], keys="zipfian", zipfExponent=1.2, verify=False),
        writes(load=LOAD | {"timeout": "5s"}, keys=ORDERS, zipfExponent=2, keySpace=7),
        writes(load=OPEN, keys="uniform", keySpace=1000),
        reads(keys="shuffled"),
    ),
    "deadlines": file(writes(load=LOAD | {"stallTimeout": "0s"}), reads(load=LOAD | {"timeout": "20s"}, verify=False)),
    # The measurement's requests are numbered after those of the warm-up: it would overwrite what that wrote.
    "writes of a warm-up have keys of their own": file(
        writes(load=LOAD | {"warmup": 5}, keys=ORDERS[:3]),
        writes(load=LOAD | {"warmup": "1s"}, keys=["sequential", "uniform"]),
        writes(load=LOAD | {"warmup": 5, "seed": 7}, keySpace=10),
        reads(load=LOAD | {"warmup": 5}),
    ),
    "the smallest keys that are all different": file(writes(load=LOAD | {"total": 62**2}, data=SMALL)),
    "spans and transactions": file(
        reads(spanKeys=[1, 10], limit=5, keys=["sequential", "uniform"], verify=False),
        reads(prefix="0000", keysOnly=True),
        reads(span=SPAN, limit=2, countOnly=True),
        reads(keysOnly=True),
        mixed(spanKeys=7),
        txns(target=["leader", "cluster"], keys=["sequential", "zipfian"]),
    ),
    "of a data set with a prefix": file(
        reads(prefix="d/01"),
        reads(span={"from": "d/002", "to": "d/00A"}, limit=3),
        reads(spanKeys=7),
        reads(spanKeys=100, countOnly=True),
        txns(keys="shuffled"),
        writes(),
        **SMALL_DATASET,
    ),
    # A span is verified where nothing is written beside the data set; one key at a time is known by its name.
    "spans beside writes": file(reads(prefix="0000", verify=False), reads(), writes(data=LONG_KEYS)),
    "spans beside transactions": file(reads(spanKeys=5), txns()),
    "spans beside writes elsewhere": file(
        reads(spanKeys=5), reads(prefix="d/"), writes(data=LONG_KEYS), writes(load=LOAD | {"total": 62}), keyPrefix="d/"
    ),
}


@pytest.mark.parametrize("value", FILES.values(), ids=FILES)
def test_what_a_file_says(tmp_path, snapshot, value):
    found = comes_back(tmp_path, value)
    assert {"dataset": found.dataset, "scenarios": [*map(told, found.scenarios)]} == snapshot


@pytest.mark.parametrize("path", [DEFAULT_SCENARIOS, OPEN_LOOP], ids=["default", "open loop"])
def test_a_file_that_we_ship(snapshot, path):
    assert [told(scenario) for scenario in load_scenarios(path).scenarios] == snapshot


def test_the_quick_matrix_has_every_kind_of_the_default_one():
    def kinds(path):
        names = ("type", "clients", "conns", "key_size", "val_size", "target", "consistency")
        return [[getattr(scenario, name) for name in names] for scenario in load_scenarios(path).scenarios]

    assert kinds(QUICK_SCENARIOS) == kinds(DEFAULT_SCENARIOS)
    assert max(s.total for s in load_scenarios(QUICK_SCENARIOS).scenarios) <= 2000


SEQUENCE = ("read-linearizable-1000x1x1", "read-serializable-1000x1x1")


def test_selecting():
    scenarios = load_scenarios(DEFAULT_SCENARIOS).scenarios
    for only, repeat, chosen in (
        (["read-l*-1000x*", SEQUENCE[0]], 1, [(SEQUENCE[0], 1)]),
        (["read-*-1000x1x1"], 2, [(name, number) for number in (1, 2) for name in SEQUENCE]),
        *(([], 1, 18), (["write"], 1, 12), (["read"], 1, 6), (["*-1000x1x1*"], 1, 6)),
    ):
        found = [(item.scenario.name, item.repetition) for item in select(scenarios, only, repeat=repeat)]
        assert chosen in (found, len(found)), only
    with pytest.raises(UsageError, match=r"no scenario matches wrote\*") as caught:
        select(scenarios, ["read", "wrote*"])
    assert all(scenario.name in str(caught.value) for scenario in scenarios)
    with pytest.raises(UsageError, match="1 or more"):
        select(scenarios, repeat=0)


def scenario(**changes):
    sizes = {"clients": 1, "conns": 1, "key_size": 8, "val_size": 256}
    return Scenario(**({"name": "x", "type": "write", "total": 100, "key_space": 100} | sizes | changes))


OPEN_ENDED = {"total": None, "duration_ns": 10**9, "key_space": None}
LEAVE_IT = {
    "where it was not": [
        *({}, {"total": 200}, {"key_space": 200}, {"total": 200, "key_space": 200, "keys": "shuffled"}),
    ],
    "where it was": [{"key_space": 99}, {"key_size": 4}, OPEN_ENDED, {"type": "mixed"}, {"type": "read"}],
    "nowhere": [
        *({"key_space": 99}, {"key_size": 4}, OPEN_ENDED, {"total": 99}, {"type": "read"}),
        *({"total": 200, "warmup": Warmup(requests=1)}, {"key_space": 200, "keys": "shuffled"}),
        {"total": 10_000, "keys": "uniform"},
    ],
    "no more": [{"val_size": 64}, OPEN_ENDED | {"val_size": 64}, {"total": 10_000, "keys": "zipfian", "val_size": 64}],
}


@pytest.mark.parametrize("where", LEAVE_IT)
def test_which_writes_leave_the_data_set_behind(where):
    before = where in ("where it was", "no more")
    for done in LEAVE_IT[where]:
        assert Dataset(8, 256, 100).present_after(scenario(**done), before) is where.startswith("where"), done
        # With a prefix of its own, writes neither make nor spoil it.
        assert Dataset(8, 256, 100, "d/").present_after(scenario(**done), before) is before
    # Loading it makes it.
    small = Dataset(8, 256, 50)
    assert small.present_after(small.load, False) and small.load.clients <= small.load.total


# --- names of generated keys are the benchmark server's, and spans of them are counted right --------------------------

GO_KEYS = Path(__file__).resolve().parents[2] / "benchmark_image" / "internal" / "keys" / "orders.go"
TEXTS = st.text(ALPHABET + "-/~", min_size=1, max_size=5)


def test_names_of_keys():
    assert re.findall(r'^const alphabet = "(\w+)"$', GO_KEYS.read_text(), re.MULTILINE) == [ALPHABET]
    names = {(0, 1): "0", (61, 1): "z", (0, 8): "00000000", (999, 4): "00G7", (9_999, 8): "000002bH"}
    names |= {(3844, 8): "00000100"}
    assert {key: Keys(key[1], 10_000, "d/").name(key[0]) for key in names} == {k: f"d/{v}" for k, v in names.items()}


@given(st.integers(1, 300), TEXTS, TEXTS, st.sampled_from(["", "0", "d/"]))
def test_keys_within_a_span_are_those_that_sort_so(count, start, end, prefix):
    keys = Keys(2, count, prefix)
    found = keys.within(start, end)
    assert list(found) == [number for number in range(count) if start <= keys.name(number) < end]


@given(TEXTS, TEXTS)
def test_what_comes_after_a_prefix(prefix, text):
    assert (prefix <= text < after_prefix(prefix)) == text.startswith(prefix)


def test_an_answer_holds_what_is_there_up_to_the_limit():
    dataset = Keys(2, 100, "d/")
    for span, keys in (
        (ONE_KEY, 1),
        (Span(keys=7), 7),
        (Span(keys=7, limit=3), 3),
        (Span(keys=1000), 100),
        (Span(prefix="d/0"), 62),
        (Span(prefix="d/1"), 38),
        (Span(prefix="d/1", limit=50), 38),
        (Span(start="d/00", end="d/0A", answer="keys"), 10),
        (Span(start="d/00", end="d/0A", answer="count"), 0),
    ):
        assert span.answered(dataset) == keys, span
    scan = replace(read("r"), total=10, key_space=100, key_size=2, span=Span(keys=99))
    for changes, keys in (
        ({}, 50),
        ({"keys": "zipfian", "warmup": Warmup(5)}, 50),
        ({"span": Span(keys=7)}, 7),
        ({"span": Span(keys=99, limit=20)}, 20),
        ({"span": Span(prefix="d/1"), "key_prefix": "d/"}, 38),
        ({"warmup": Warmup(90)}, 5),  # 1 to 10 keys
        ({"warmup": Warmup(90), "total": 133}, 34),
    ):
        assert replace(scan, **changes).median_keys_answered == keys, changes
    assert Span(keys=5).bounds(dataset) == ("d/00", "d/1b\0")
