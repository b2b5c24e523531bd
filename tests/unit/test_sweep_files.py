"""Sweep files and settings: what they expand to, and what is refused before anything is created."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from decimal import Decimal
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import ConfigError
from containernet_env.config.export import schema_of
from containernet_env.config.scenarios import QUICK_SCENARIOS, load_scenarios
from containernet_env.config.sweep_axes import AXES, Ratio, text_of_number
from containernet_env.config.sweeps import SweepFile, load_sweep
from containernet_env.config.topologies import load_config
from containernet_env.sweep.expand import Combination, expand

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
THREE = CONFIGS / "3node-3ms.json"
QUICK = load_scenarios(QUICK_SCENARIOS)


def expanded(path: Path, *given: str, kind: str = "write") -> list[Combination]:
    sweep = load_sweep(path, given)
    scenarios = [scenario for scenario in QUICK.scenarios if scenario.type == kind]
    return expand(sweep, load_config(sweep.topology), QUICK, scenarios)


def written(folder: Path, **keys: Any) -> Path:
    path = folder / "sweep.json"
    path.write_text(json.dumps({"topology": str(THREE), **keys}))
    return path


def test_settings_multiply_with_the_scenarios() -> None:
    found = expanded(THREE, "link_delay=1ms,10ms", "bandwidth=10,1000,unlimited")
    assert len(found) == 2 * 3 * 12
    first, last = found[0], found[-1]
    assert [(node.delay_ns, node.rate_bps) for node in first.config.nodes] == [(10**6, 10**7)] * 3
    assert [(node.delay_ns, node.rate_bps) for node in last.config.nodes] == [(10**7, None)] * 3
    assert first.coordinates == (("link_delay", "1ms"), ("bandwidth", "10"))
    assert first.config.path == THREE


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        ("mem=1g", lambda one: {node.memory_bytes for node in one.config.nodes} == {1 << 30}),
        ("cpus=0.5", lambda one: {node.cpus for node in one.config.nodes} == {Decimal("0.5")}),
        ("etcd2.cpus=0.5", lambda one: [node.cpus for node in one.config.nodes] == [1, Decimal("0.5"), 1]),
        ("client.cpus=0.5", lambda one: one.config.client.cpus == Decimal("0.5")),
        ("loss=0.01", lambda one: one.config.nodes[2].link.b_to_a.loss.ratio == 0.01),
        ("jitter=1ms", lambda one: one.config.nodes[0].link.a_to_b.jitter.ns == 10**6),
        ("jitter=0ms", lambda one: one.config.nodes[0].link.a_to_b.jitter is None),
        ("members=5", lambda one: [int(node.ip) & 255 for node in one.config.nodes] == [251, 252, 253, 250, 249]),
        ("members=1", lambda one: [node.name for node in one.config.nodes] == ["etcd1"]),
        ("heartbeat_interval=50ms", lambda one: one.config.etcd.heartbeat_ms == 50),
        ("data=tmpfs", lambda one: one.config.etcd.data == "tmpfs"),
        ("leader=etcd3", lambda one: one.config.etcd.leader == "etcd3"),
        ("rate=500", lambda one: one.scenario.rate == 500 and one.scenario.is_open),
        ("duration=20s", lambda one: one.scenario.duration_ns == 20 * 10**9 and one.scenario.total is None),
        ("valSize=1000", lambda one: one.scenario.val_size == 1000),
        ("target=etcd3", lambda one: one.scenario.target == "etcd3"),
        ("conns=clients*1", lambda one: one.scenario.conns == one.scenario.clients),
        ("election_timeout=link_delay*100", lambda one: one.config.etcd.election_ms == 300),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)  # fmt: skip
def test_each_kind_of_axis_sets_what_it_names(setting: str, seen: Any) -> None:
    more = ["heartbeat_interval=20ms"] if setting.startswith("election") else []
    found = expanded(THREE, setting, *more)
    assert len(found) == 12
    assert all(seen(one) for one in found)


def test_an_axis_leaves_scenarios_that_do_not_have_it_as_they_are() -> None:
    sweep = load_sweep(THREE, ["consistency=l,s"])
    found = expand(sweep, load_config(THREE), QUICK, QUICK.scenarios)
    writes = [one for one in found if one.scenario.type == "write"]
    assert len(writes) == 24 and {one.coordinates for one in writes} == {()}
    assert len({one.scenario for one in writes}) == 12
    assert {one.coordinates for one in found if one.scenario.type == "read"} == {
        (("consistency", "l"),),
        (("consistency", "s"),),
    }


def test_the_size_of_values_is_that_of_the_data_set_where_reads_read_it() -> None:
    (one, *_) = expanded(THREE, "valSize=64", "dataset.keys=500", kind="read")
    assert (one.dataset.val_size, one.dataset.keys, one.scenario.val_size) == (64, 500, 64)
    assert {one.dataset for one in expanded(THREE, "valSize=64,100")} == {QUICK.dataset}


def test_a_file_zips_excludes_and_follows(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        axes=[
            {"clients": [10, 50], "valSize": [100, 1000], "conns": "clients / 10"},
            {"link_delay": ["1ms", "5ms"]},
        ],
        exclude=[{"link_delay": "1000us", "clients": 50}],
    )
    found = expanded(path)
    values = dict.fromkeys(
        (one.scenario.clients, one.scenario.conns, one.scenario.val_size, one.config.nodes[0].delay_ns) for one in found
    )
    assert list(values) == [(10, 1, 100, 10**6), (10, 1, 100, 5 * 10**6), (50, 5, 1000, 5 * 10**6)]
    assert found[0].coordinates == (("clients", "10"), ("valSize", "100"), ("link_delay", "1ms"), ("conns", "1"))


def test_a_setting_takes_the_place_of_the_files_axis(tmp_path: Path) -> None:
    path = written(tmp_path, axes=[{"clients": [10, 20], "conns": [1, 2]}, {"cpus": [1, 2]}])
    found = expanded(path, "cpus=0.5", "mem=1g")
    assert {(one.scenario.clients, one.scenario.conns) for one in found} == {(10, 1), (20, 2)}
    assert {(one.config.nodes[0].cpus, one.config.nodes[0].memory_bytes) for one in found} == {
        (Decimal("0.5"), 1 << 30)
    }


SHARED = {
    "link_delay": ["1ms", "2ms", "7ms"],
    "bandwidth": ["10", "100.5", "unlimited"],
    "cpus": ["0.5", "1", "2"],
    "members": ["1", "2", "5"],
    "clients": ["1", "7", "30"],
    "valSize": ["10", "100", "1000"],
    "target": ["leader", "cluster"],
}


@given(st.dictionaries(st.sampled_from(sorted(SHARED)), st.integers(1, 3), max_size=4))
@settings(max_examples=20, deadline=None)
def test_any_grid_has_every_combination_once(sizes: dict[str, int]) -> None:
    chosen = {name: SHARED[name][:size] for name, size in sizes.items()}
    found = expanded(THREE, *(f"{name}={','.join(values)}" for name, values in chosen.items()))
    assert len(found) == 12 * prod(map(len, chosen.values()))
    per_scenario = {tuple(value for _, value in one.coordinates) for one in found}
    assert len(per_scenario) == prod(map(len, chosen.values()))


@given(st.sampled_from(["count", "number", "duration", "milliseconds", "size"]), st.decimals(0, 10**9, places=3))
def test_a_ratio_is_never_nothing(quantity: Any, number: Decimal) -> None:
    text = text_of_number(quantity, number)
    assert quantity == "number" or text not in (0, "0b", "0ms")


def test_a_ratio_divides_and_multiplies() -> None:
    assert Ratio.parse("clients / 10") == Ratio("clients", Decimal("0.1"))
    assert Ratio.parse("client.cpus*2.5") == Ratio("client.cpus", Decimal("2.5"))
    assert Ratio.parse("leader") is None


def test_the_schema_takes_what_is_taken(tmp_path: Path) -> None:
    schema = Draft202012Validator(schema_of("sweep"))
    schema.check_schema(schema_of("sweep"))
    good: dict[str, Any] = {"topology": "t.json", "repeat": 3, "axes": [{"clients": [1, 2], "conns": "clients / 10"}]}
    assert schema.is_valid(good | {"only": ["write"], "exclude": [{"clients": 1}], "seed": 1})
    assert schema.is_valid(good | {"axes": [{"etcd1.cpus": [1]}, {"link_delay": ["1ms"]}, {"jitter": ["1ms"]}]})
    refused: Sequence[dict[str, Any]] = (
        {"topology": 3},
        {"axes": [{"client": [1]}]},
        {"axes": [{"clients": []}]},
        {"axes": [{"clients": ["one"]}]},
        {"axes": [{"target": "clients / 2"}]},
        {"axes": [{}]},
        {"repeat": 0},
        {"other": 1},
    )
    for wrong in refused:
        assert not schema.is_valid(good | wrong), wrong
    assert set(schema_of("sweep")["properties"]["axes"]["items"]["properties"]) == set(AXES)


QUICK_FORM = {
    "axes": [{"link_delay": ["1ms", "5ms", "9ms"]}, {"clients": [10, 50]}],
    "exclude": [{"link_delay": "9ms"}],
    "only": ["write-leader-*"],
    "repeat": 6,
}


def points(sweep: SweepFile) -> list[list[Any]]:
    return [[dict(point) for point in dimension.points] for dimension in sweep.dimensions]


def test_the_quick_form_takes_the_place_of_what_it_has(tmp_path: Path) -> None:
    path = written(tmp_path, **QUICK_FORM, quick={"axes": [{"clients": [5]}], "repeat": 1})
    quick, whole = load_sweep(path, quick=True), load_sweep(path)
    assert points(quick) == [[{"clients": 5}]]
    assert (quick.is_quick, quick.repeat, quick.only, quick.exclude) == (True, 1, ("write-leader-*",), ())
    assert (whole.is_quick, whole.repeat, len(whole.exclude), len(whole.dimensions)) == (False, 6, 1, 2)
    alone = load_sweep(written(tmp_path, **QUICK_FORM, quick={"exclude": [{"clients": 50}]}), quick=True)
    assert alone.exclude == ({"clients": 50},) and points(alone) == points(whole)
    other = load_sweep(written(tmp_path, **QUICK_FORM, quick={"scenarios": "s.json"}), quick=True)
    assert (other.scenarios, other.only, other.topology) == (tmp_path / "s.json", (), THREE)


def test_a_setting_takes_the_place_of_an_axis_of_the_quick_form(tmp_path: Path) -> None:
    path = written(tmp_path, **QUICK_FORM, quick={"axes": [{"clients": [5]}, {"conns": [1]}]})
    assert points(load_sweep(path, ["clients=7,8"], quick=True)) == [[{"clients": 7}, {"clients": 8}], [{"conns": 1}]]
    assert points(load_sweep(path, ["clients=7"]))[1] == [{"clients": 7}]


def test_a_file_without_a_quick_form_has_none(tmp_path: Path) -> None:
    assert not load_sweep(written(tmp_path, **QUICK_FORM), quick=True).is_quick
    assert not load_sweep(THREE, quick=True).is_quick


def test_axes_that_vary_together_may_repeat_values_but_not_combinations(tmp_path: Path) -> None:
    axes: dict[str, Any] = {"clients": [10, 50, 50], "total": [100, 100, 200]}
    found = expanded(written(tmp_path, axes=[axes]))
    made = [(one.scenario.clients, one.scenario.total) for one in found]
    assert [*dict.fromkeys(made)] == [(10, 100), (50, 100), (50, 200)]


# --- what is refused: the texts are in __snapshots__, `pytest --snapshot-update` takes new ones -----------------------

MISTAKES = (
    '{"topology": "TOPOLOGY", "repeet": 3,\n'
    ' "axes": [{"link_dealy": ["1ms"]}, // a comment\n'
    '  {"clients": [1, 1.0]}, {"conns": "clients / 0"},\n'
    '  {"cpus": [1, 2], "mem": ["512m"]},\n'
    '  {"target": "clients * 2"}],\n'
    ' "exclude": [{"cpus": 3}, {"valSize": 5}]}'
)
QUICK_MISTAKES = (
    '{"topology": "TOPOLOGY", "axes": [{"clients": [1, 2]}],\n'
    ' "quick": {"axes": [{"clints": [1]}, {"conns": [1, 1]}], "topology": "x", "repeat": 0,\n'
    '  "exclude": [{"clients": 1}]}}'
)
TENS = ",".join(map(str, range(1, 11)))
REFUSED: dict[str, tuple[str | dict[str, Any], tuple[str, ...]]] = {
    "every mistake at once": (MISTAKES, ()),
    "settings that the schemas refuse": ({}, (
        "clients=10,5000000", "cpus=0,1,x", "etcd9.cpus=1", "link_delay=3", "consistency=l,s", "members=300",
        "conns=cpus*1",
    )),
    "values together": ({}, ("link_delay=1ms,5ms", "jitter=2ms")),
    "more clients than requests": ({}, ("total=10,1000",)),
    "a million cells": ({}, tuple(f"{axis}={TENS}" for axis in ("cpus", "conns", "clients", "seed", "bandwidth"))),
    "a number that would fill memory": ({}, ("clients=1e999999999",)),
    "no values": ({}, ("cpus", "mem=1g", "mem=2g")),
    "nothing is left": ({"axes": [{"cpus": [1]}], "exclude": [{"cpus": 1.0}]}, ()),
    "a combination twice": ({"axes": [{"clients": [10, 50, 50], "total": [100, 200, 200.0]}]}, ()),
    **{f"axes in another form {number}{' with a setting' if more else ''}": ({"axes": axes}, more)
       for more in ((), ("conns=1,2",)) for number, axes in enumerate((
        {"link_delay": ["1ms"]}, None, [{"clients": [[1, 2]]}], [{"cpus": [None, 1]}],
        [{"rate": [1000000000]}, {"bandwidth": "rate*999999999999999"}],
    ))},
    "the quick form's mistakes": (QUICK_MISTAKES, ()),
    "the quick form excludes": ({"axes": [{"clients": [1, 2]}], "quick": {"exclude": [{"clients": 3}]}}, ()),
    "the quick form's values": ({"quick": {"axes": [{"cpus": [1, 0]}]}}, ()),
    "the quick form's axes": ({"axes": [{"conns": [1]}], "quick": {"axes": 5}}, ("cpus=1",)),
    **{f"a quick form {value}": ({"quick": value}, ()) for value in ({}, [], None, 5)},
}  # fmt: skip


@pytest.mark.parametrize("quick", [False, True])
def test_what_is_refused_is_told_all_at_once_with_its_place(
    tmp_path: Path, quick: bool, snapshot: SnapshotAssertion
) -> None:
    """Mistakes of the quick form are told whichever form is taken, but for values that its schemas refuse."""
    path, told = tmp_path / "sweep.json", {}
    # So that columns do not depend on where the project lies.
    shutil.copy(THREE, tmp_path / "topology.json")
    writes = [scenario for scenario in QUICK.scenarios if scenario.type == "write"]
    for name, (value, given_settings) in REFUSED.items():
        text = value if isinstance(value, str) else json.dumps({"topology": "TOPOLOGY", **value})
        path.write_text(text.replace("TOPOLOGY", "topology.json"))
        try:
            sweep = load_sweep(path, given_settings, quick=quick)
            expand(sweep, load_config(sweep.topology), QUICK, writes)
            told[name] = ["taken"]
        except ConfigError as error:
            told[name] = [str(problem).replace(str(CONFIGS), "CONFIGS") for problem in error.problems]
    assert told == snapshot
    assert [name for name, texts in told.items() if texts == ["taken"]] == (
        [] if quick else ["the quick form's values"]
    )
