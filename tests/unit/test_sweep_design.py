"""Sweeps: what files and settings expand to, what is refused, cells, their identities and their order."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.scenarios import QUICK_SCENARIOS, load_scenarios
from containernet_env.config.sweeps import SweepFile, load_sweep, text_of_number
from containernet_env.config.topologies import load_config
from containernet_env.model.findings import OF_THE_MACHINE, RULES
from containernet_env.model.scenario import MAX_SCENARIOS
from containernet_env.runs.sweep import design as design_module
from containernet_env.runs.sweep.design import Combination, Design, design, expand
from containernet_env.runs.sweep.ledger import FIGURES, is_narrow, tried_of
from tests.unit.fakes import CONFIG, CONFIGS

NODE = {"mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": "3ms"}
TOPOLOGY: dict[str, Any] = {"nodes": [{"ip": f"10.0.0.{number}", **NODE} for number in (1, 2, 3)]}
LOAD = {"total": 50, "clients": 10, "conns": 2}
SCENARIOS: dict[str, Any] = {
    "scenarios": [
        {"type": "write", "load": LOAD, "data": {"keySize": 8, "valSize": 64}, "target": "leader"},
        {"type": "read", "load": LOAD, "consistency": ["l", "s"]},
    ]
}
SWEEP: dict[str, Any] = {
    "topology": "topology.json",
    "scenarios": "scenarios.json",
    "axes": [{"link_delay": ["1ms", "3ms"]}, {"clients": [5, 10]}],
}


def made(
    folder: Path, sweep: str | None = None, topology: Any = TOPOLOGY, scenarios: Any = SCENARIOS, **more: Any
) -> Design:
    (folder / "topology.json").write_text(json.dumps(topology))
    (folder / "scenarios.json").write_text(json.dumps(scenarios))
    (folder / "sweep.json").write_text(json.dumps(SWEEP) if sweep is None else sweep)
    return design(folder / "sweep.json", **more)


def identities(found: Design) -> set[str]:
    return {cell.identity for cell in found.cells}


def test_cells_with_other_loads_share_a_testbed(tmp_path: Path) -> None:
    for axes, beds, merged in (
        (SWEEP["axes"], [6, 6], 0),  # loads alone share a testbed
        ([{"dataset.keys": [100, 200]}], [1, 2, 2], 1),  # data sets do not, and writes read none
        ([{"consistency": ["l", "s"]}], [3], 3),  # equal combinations are one cell
    ):
        found = made(tmp_path, json.dumps(SWEEP | {"axes": axes}))
        assert (sorted(len(bed.cells) for bed in found.beds), found.merged) == (beds, merged), axes
        assert len(identities(found)) == len(found.cells) == sum(beds)
        assert all(len({cell.config_hash for cell in bed.cells}) == 1 for bed in found.beds)


def test_more_loads_than_a_scenario_file_holds_have_several_testbeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert design_module.MAX_SCENARIOS == MAX_SCENARIOS
    monkeypatch.setattr(design_module, "MAX_SCENARIOS", 100)
    axes = [{"seed": [*range(60)]}, {"conns": [1, 2]}]
    found = made(tmp_path, json.dumps(SWEEP | {"only": ["write"], "axes": axes}))
    assert ([len(bed.cells) for bed in found.beds], len(identities(found)), found.merged) == ([100, 20], 120, 0)


def test_whatever_is_configured_otherwise_is_another_cell(tmp_path: Path) -> None:
    """``test_identity.py`` has every setting of a topology."""
    node, *nodes = TOPOLOGY["nodes"]
    loads = [LOAD | change for change in ({"conns": 3}, {"total": 51}, {"rate": 100}, {"timeout": "5s"})]
    before = identities(made(tmp_path))
    for change in (
        {"topology": {"nodes": [node | {"cpus": 0.5}, *nodes]}},
        *({"scenarios": {"scenarios": [block | {"load": load} for block in SCENARIOS["scenarios"]]}} for load in loads),
        *({"congestion_control": "reno"}, {"links": "emulator"}, {"links_cpu": 0}, {"offload": True}),
    ):
        assert not identities(made(tmp_path, **change)) & before, change
    assert identities(made(tmp_path, seed=1, repeat=3)) == before


def test_everything_that_no_plan_can_be_made_of_is_told_at_once(tmp_path: Path) -> None:
    sweep = SWEEP | {"axes": [{"target": ["etcd3", "etcd9"]}, {"members": [1, 3]}]}
    with pytest.raises(UsageError) as refused:
        made(tmp_path, json.dumps(sweep))
    text = str(refused.value)
    assert '"etcd9"' in text and '"etcd3"' in text and text.count("is not a member of") >= 2
    assert "line" not in text


ORDERED_BY = ("link_delay=1ms,2ms,3ms", "cpus=0.5,1", "clients=5,10", "conns=1,2")
ORDERED = design(CONFIG, ORDERED_BY, quick=True, only=["write-leader-50x*"])


def order(block: int, seed: int = 7, wanted: set[str] | None = None) -> list[list[str]]:
    chosen = identities(ORDERED) if wanted is None else wanted
    return [[cell.identity for cell in cells] for _, cells in ORDERED.order(block, seed, chosen)]


@given(st.sets(st.sampled_from(sorted(identities(ORDERED)))), st.integers(1, 50))
def test_each_block_has_every_cell_once_in_an_order_that_omissions_keep(wanted: set[str], number: int) -> None:
    block, other = order(number), order(number + 1)
    flat = [cell for bed in block for cell in bed]
    assert len(block) == 6 and len(flat) == len(set(flat)) == len(ORDERED.cells)
    assert [cell for bed in order(number, wanted=wanted) for cell in bed] == [cell for cell in flat if cell in wanted]
    assert order(number) == block and block not in (other, order(number, seed=8))
    beds = {tuple(sorted(bed)): bed for bed in block}
    assert any(beds[tuple(sorted(bed))] != bed for bed in other), "cells of a testbed, too"


def test_each_testbed_comes_first_and_last_and_so_does_each_cell_of_it() -> None:
    blocks = [order(number) for number in range(99)]
    for end in (0, -1):
        assert {frozenset(block[end]) for block in blocks} == {frozenset(bed) for bed in blocks[0]}
        assert {bed[end] for block in blocks for bed in block} == identities(ORDERED)


def test_an_interval_is_narrow_on_both_sides() -> None:
    assert is_narrow([100, 101, 99, 100, 104, 96], 0.05)
    assert not is_narrow([100, 101, 99, 100, 106, 96], 0.05)
    assert not is_narrow([100, 101, 99, 100, 104, 94], 0.05)
    assert not is_narrow([100.0] * 5, 0.05)
    assert not is_narrow([100.0] * 8 + [float("nan")], 0.05)
    # From 9 on it is between the second and the last but one (Nair 1940; Conover 1999, table A3).
    assert not is_narrow([50.0, *[100.0] * 6, 200.0], 0.05) and is_narrow([50.0, *[100.0] * 7, 200.0], 0.05)


def test_what_a_row_means() -> None:
    results = {
        ("-", "yes", "-", "-"): ("measured", False),
        ("-", "unknown", "few_answers", "-"): ("measured", True),
        ("-", "unknown", "unseen", "-"): ("measured", False),
        ("-", "unknown", "unseen;leader_changed", "-"): ("measured", True),
        ("-", "no", "leader_changed", "-"): ("store", False),
        ("-", "no", "machine_full;leader_changed", "-"): ("machine", False),
        ("-", "unknown", "network_unknown", "-"): ("machine", False),
        ("etcd1 died: OOM killed", "-", "-", "-"): ("store", False),
        ("5 requests failed", "no", "links_paused", "-"): ("machine", False),
        ("-", "yes", "-", "found"): ("measured", False),
        ("-", "unknown", "search", "from"): ("measured", False),
        ("-", "unknown", "search", "to"): ("measured", False),
        ("-", "unknown", "search", "noise"): ("measured", True),
        ("-", "unknown", "search", "generator"): ("machine", False),
        ("-", "unknown", "search", "machine"): ("machine", False),
    }
    columns = ("Error", "Valid", "Reasons", "SearchEnd")
    for cells, result in results.items():
        row = dict(zip(columns, cells, strict=True)) | dict.fromkeys(FIGURES.values(), "1")
        tried = tried_of(row)
        assert (tried.result, tried.is_doubtful) == result
        assert tried_of(row, "why").result == "machine"
    # Findings of the machine make rows doubtful.
    assert all({"invalid", "unknown"} & {*RULES[kind].effects} for kind in OF_THE_MACHINE)
    named = {kind for kind in RULES if kind.startswith(("generator_", "links_", "link_", "machine_", "network_"))}
    assert named <= OF_THE_MACHINE


# --- what sweep files and settings expand to --------------------------------------------------------------------------

QUICK = load_scenarios(QUICK_SCENARIOS)


def expanded(path: Path, *words: str, kind: str = "write") -> list[Combination]:
    sweep = load_sweep(path, words)
    scenarios = [scenario for scenario in QUICK.scenarios if scenario.type == kind]
    return expand(sweep, load_config(sweep.raw.topology), QUICK, scenarios)


def written(folder: Path, **keys: Any) -> Path:
    path = folder / "sweep.json"
    path.write_text(json.dumps({"topology": str(CONFIG), **keys}))
    return path


SETS: dict[str, Callable[[Any], bool]] = {
    "mem=1g": lambda one: {node.memory_bytes for node in one.config.nodes} == {1 << 30},
    "cpus=0.5": lambda one: {node.cpus for node in one.config.nodes} == {Decimal("0.5")},
    "etcd2.cpus=0.5": lambda one: [node.cpus for node in one.config.nodes] == [1, Decimal("0.5"), 1],
    "client.cpus=0.5": lambda one: one.config.clients[0].cpus == Decimal("0.5"),
    "loss=0.01": lambda one: one.config.nodes[2].link.b_to_a.loss.ratio == 0.01,
    "jitter=1ms": lambda one: one.config.nodes[0].link.a_to_b.jitter.ns == 10**6,
    "jitter=0ms": lambda one: one.config.nodes[0].link.a_to_b.jitter is None,
    "members=5": lambda one: [int(node.ip) & 255 for node in one.config.nodes] == [251, 252, 253, 250, 249],
    "members=1": lambda one: [node.name for node in one.config.nodes] == ["etcd1"],
    "heartbeat_interval=50ms": lambda one: one.config.etcd.heartbeat_ms == 50,
    "data=tmpfs": lambda one: one.config.etcd.data == "tmpfs",
    "leader=etcd3": lambda one: one.config.etcd.leader == "etcd3",
    "rate=500": lambda one: one.scenario.rate == 500 and one.scenario.is_open,
    "duration=20s": lambda one: one.scenario.duration_ns == 20 * 10**9 and one.scenario.total is None,
    "valSize=1000": lambda one: one.scenario.val_size == 1000,
    "target=etcd3": lambda one: one.scenario.target == "etcd3",
    "conns=clients*1": lambda one: one.scenario.conns == one.scenario.clients,
    "election_timeout=link_delay*100": lambda one: one.config.etcd.election_ms == 300,
}


def test_each_kind_of_axis_sets_what_it_names() -> None:
    for setting, is_set in SETS.items():
        found = expanded(CONFIG, setting, *["heartbeat_interval=20ms"][: setting.startswith("election")])
        assert len(found) == 12 and all(map(is_set, found)), setting


def test_an_axis_leaves_scenarios_that_do_not_have_it_as_they_are() -> None:
    sweep = load_sweep(CONFIG, ["consistency=l,s"])
    found = expand(sweep, load_config(CONFIG), QUICK, QUICK.scenarios)
    writes = [one for one in found if one.scenario.type == "write"]
    assert len(writes) == 24 and {one.coordinates for one in writes} == {()}
    assert len({one.scenario for one in writes}) == 12
    reads = {one.coordinates for one in found if one.scenario.type == "read"}
    assert reads == {(("consistency", "l"),), (("consistency", "s"),)}
    # The size of values is that of the data set where reads read it.
    (one, *_) = expanded(CONFIG, "valSize=64", "dataset.keys=500", kind="read")
    assert (one.dataset.val_size, one.dataset.keys, one.scenario.val_size) == (64, 500, 64)
    assert {one.dataset for one in expanded(CONFIG, "valSize=64,100")} == {QUICK.dataset}


def test_a_file_zips_excludes_and_follows_and_a_setting_takes_the_place_of_its_axis(tmp_path: Path) -> None:
    zipped = {"clients": [10, 50], "valSize": [100, 1000], "conns": "clients / 10"}
    excluded = [{"link_delay": "1000us", "clients": 50}]
    found = expanded(written(tmp_path, axes=[zipped, {"link_delay": ["1ms", "5ms"]}], exclude=excluded))
    values = dict.fromkeys(
        (one.scenario.clients, one.scenario.conns, one.scenario.val_size, one.config.nodes[0].link.a_to_b.delay_ns)
        for one in found
    )
    assert list(values) == [(10, 1, 100, 10**6), (10, 1, 100, 5 * 10**6), (50, 5, 1000, 5 * 10**6)]
    assert found[0].coordinates == (("clients", "10"), ("valSize", "100"), ("link_delay", "1ms"), ("conns", "1"))
    assert found[0].config.path == CONFIG
    # Axes that vary together may repeat values, but not combinations.
    again = expanded(written(tmp_path, axes=[{"clients": [10, 50, 50], "total": [100, 100, 200]}]))
    loads = dict.fromkeys((one.scenario.clients, one.scenario.total) for one in again)
    assert [*loads] == [(10, 100), (50, 100), (50, 200)]
    path = written(tmp_path, axes=[{"clients": [10, 20], "conns": [1, 2]}, {"cpus": [1, 2]}])
    found = expanded(path, "cpus=0.5", "mem=1g")
    assert {(one.scenario.clients, one.scenario.conns) for one in found} == {(10, 1), (20, 2)}
    nodes = [one.config.nodes[0] for one in found]
    assert {(node.cpus, node.memory_bytes) for node in nodes} == {(Decimal("0.5"), 1 << 30)}


@given(st.sampled_from(["count", "number", "duration", "milliseconds", "size"]), st.decimals(0, 10**9, places=3))
def test_a_ratio_is_never_nothing(quantity: Any, number: Decimal) -> None:
    text = text_of_number(quantity, number)
    assert quantity == "number" or text not in (0, "0b", "0ms")


QUICK_FORM = {
    "axes": [{"link_delay": ["1ms", "5ms", "9ms"]}, {"clients": [10, 50]}],
    "exclude": [{"link_delay": "9ms"}],
    "only": ["write-leader-*"],
    "repeat": 6,
}


def points(sweep: SweepFile) -> list[list[Any]]:
    return [
        [{name: value for name, (value, _) in point.items()} for point in dimension.points]
        for dimension in sweep.dimensions
    ]


def test_the_quick_form_takes_the_place_of_what_it_has(tmp_path: Path) -> None:
    path = written(tmp_path, **QUICK_FORM, quick={"axes": [{"clients": [5]}, {"conns": [1]}], "repeat": 1})
    quick, whole = load_sweep(path, quick=True), load_sweep(path)
    assert points(quick) == [[{"clients": 5}], [{"conns": 1}]]
    assert (quick.is_quick, quick.raw.repeat, quick.raw.only, quick.raw.exclude) == (True, 1, ("write-leader-*",), ())
    assert (whole.is_quick, whole.raw.repeat, len(whole.raw.exclude), len(whole.dimensions)) == (False, 6, 1, 2)
    # A setting takes the place of an axis of either.
    assert points(load_sweep(path, ["clients=7,8"], quick=True)) == [[{"clients": 7}, {"clients": 8}], [{"conns": 1}]]
    assert points(load_sweep(path, ["clients=7"]))[1] == [{"clients": 7}]
    alone = load_sweep(written(tmp_path, **QUICK_FORM, quick={"exclude": [{"clients": 50}]}), quick=True)
    assert alone.raw.exclude == ({"clients": 50},) and points(alone) == points(whole)
    other = load_sweep(written(tmp_path, **QUICK_FORM, quick={"scenarios": "s.json"}), quick=True)
    assert (other.raw.scenarios, other.raw.only, other.raw.topology) == (tmp_path / "s.json", (), CONFIG)
    without = (written(tmp_path, **QUICK_FORM), CONFIG)
    assert not any(load_sweep(path, quick=True).is_quick for path in without)


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
        "clients=10,5000000", "cpus=0,1,x", "etcd9.cpus=1", "link_delay=3", "consistency=l,s", "members=400",
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
        [{"rate": [1000000000]}, {"bandwidth": "rate*999999999999999"}], [{"clients": "many"}],
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
    shutil.copy(CONFIG, tmp_path / "topology.json")
    writes = [scenario for scenario in QUICK.scenarios if scenario.type == "write"]
    for name, (value, given_settings) in REFUSED.items():
        text = value if isinstance(value, str) else json.dumps({"topology": "TOPOLOGY", **value})
        path.write_text(text.replace("TOPOLOGY", "topology.json"))
        try:
            sweep = load_sweep(path, given_settings, quick=quick)
            expand(sweep, load_config(sweep.raw.topology), QUICK, writes)
            told[name] = ["taken"]
        except ConfigError as error:
            told[name] = [str(problem).replace(str(CONFIGS), "CONFIGS") for problem in error.problems]
    assert told == snapshot
    assert [name for name, texts in told.items() if texts == ["taken"]] == (
        [] if quick else ["the quick form's values"]
    )
