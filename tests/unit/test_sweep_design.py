"""Cells, their identities and their order, and how well the median of their repetitions is known."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from containernet_env.base.errors import UsageError
from containernet_env.config.load_schema import MAX_SCENARIOS
from containernet_env.model.findings import Kind
from containernet_env.model.verdict import OF_THE_MACHINE, RULES
from containernet_env.sweep import design as design_module
from containernet_env.sweep.design import Design, design, link_seed
from containernet_env.sweep.ledger import is_narrow, result_of

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
THREE = CONFIGS / "3node-3ms.json"
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


def shuffled(value: Any, random_: random.Random) -> Any:
    """The same JSON with its keys in another order."""
    if isinstance(value, dict):
        keys = list(value)
        random_.shuffle(keys)
        return {key: shuffled(value[key], random_) for key in keys}
    return [shuffled(item, random_) for item in value] if isinstance(value, list) else value


def test_cells_that_differ_in_their_loads_alone_share_a_testbed(tmp_path: Path) -> None:
    found = made(tmp_path)
    assert (len(found.beds), len(found.cells), found.merged) == (2, 12, 0)
    assert len(identities(found)) == 12
    assert {len(bed.cells) for bed in found.beds} == {6}
    assert {(cell.config_hash) for bed in found.beds for cell in bed.cells[:1]} == {
        cell.config_hash for cell in found.cells
    }


def test_data_sets_that_differ_share_no_testbed(tmp_path: Path) -> None:
    found = made(tmp_path, json.dumps(SWEEP | {"axes": [{"dataset.keys": [100, 200]}]}))
    assert sorted(len(bed.cells) for bed in found.beds) == [1, 2, 2]  # writes read no data set


def test_equal_combinations_are_one_cell(tmp_path: Path) -> None:
    found = made(tmp_path, json.dumps(SWEEP | {"axes": [{"consistency": ["l", "s"]}]}))
    assert len(found.cells) == len(identities(found)) == 3
    assert found.merged == 3


def test_more_loads_than_a_scenario_file_holds_have_several_testbeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert design_module.MAX_SCENARIOS == MAX_SCENARIOS
    monkeypatch.setattr(design_module, "MAX_SCENARIOS", 100)
    axes = [{"seed": [*range(60)]}, {"conns": [1, 2]}]
    found = made(tmp_path, json.dumps(SWEEP | {"only": ["write"], "axes": axes}))
    assert ([len(bed.cells) for bed in found.beds], len(identities(found)), found.merged) == ([100, 20], 120, 0)


@given(st.randoms(use_true_random=False), st.sampled_from(["1ms", "1000us", "0.001s", "1.0ms"]))
@settings(max_examples=10, deadline=None)
def test_how_a_file_is_written_is_no_other_experiment(
    tmp_path_factory: pytest.TempPathFactory, random_: random.Random, one: str
) -> None:
    """Key order, units, comments, the list form, and the order of axes and of their values."""
    before = identities(made(tmp_path_factory.mktemp("before")))
    axes: list[dict[str, Any]] = [{"link_delay": [one, "3ms"]}, {"clients": [5, 10]}]
    random_.shuffle(axes)
    for axis in axes:
        for values in axis.values():
            random_.shuffle(values)
    sweep = json.dumps(shuffled(SWEEP | {"axes": axes}, random_), indent=random_.choice([None, 2]))
    topology = [{**node, "mem": "0.5g"} for node in TOPOLOGY["nodes"]] if random_.random() < 0.5 else TOPOLOGY
    again = made(
        tmp_path_factory.mktemp("again"),
        f"// a comment\n{sweep} /* and another */",
        shuffled(topology, random_),
        shuffled(SCENARIOS, random_),
    )
    assert identities(again) == before


@pytest.mark.parametrize(
    "change",
    [
        ("topology", {"cpus": 0.5}),
        ("topology", {"mem": "256m"}),
        ("topology", {"bandwidth": 999}),
        ("load", {"conns": 3}),
        ("load", {"total": 51}),
        ("load", {"rate": 100}),
        ("load", {"timeout": "5s"}),
        ("options", {"congestion_control": "reno"}),
        ("options", {"links": "emulator"}),
        ("options", {"links_cpu": 0}),
    ],
    ids=str,
)
def test_whatever_is_configured_otherwise_is_another_cell(tmp_path: Path, change: tuple[str, dict[str, Any]]) -> None:
    where, values = change
    topology, scenarios, options = TOPOLOGY, SCENARIOS, {}
    if where == "topology":
        topology = {"nodes": [TOPOLOGY["nodes"][0] | values, *TOPOLOGY["nodes"][1:]]}
    elif where == "load":
        blocks = [block | {"load": LOAD | values} for block in SCENARIOS["scenarios"]]
        scenarios = {"scenarios": blocks}
    else:
        options = values
    before = identities(made(tmp_path))
    assert not identities(made(tmp_path, None, topology, scenarios, **options)) & before


def test_seeds_and_repetitions_make_no_other_cell(tmp_path: Path) -> None:
    assert identities(made(tmp_path, seed=1, repeat=3)) == identities(made(tmp_path, seed=2))


def test_everything_that_no_plan_can_be_made_of_is_told_at_once(tmp_path: Path) -> None:
    sweep = SWEEP | {"axes": [{"target": ["etcd3", "etcd9"]}, {"members": [1, 3]}]}
    with pytest.raises(UsageError) as refused:
        made(tmp_path, json.dumps(sweep))
    text = str(refused.value)
    assert '"etcd9"' in text and '"etcd3"' in text and text.count("is not a member of") >= 2
    assert "line" not in text


ORDERED = design(
    THREE, ["link_delay=1ms,2ms,3ms", "cpus=0.5,1", "clients=5,10", "conns=1,2"], quick=True, only=["write-leader-50x*"]
)


def order(block: int, seed: int = 7, wanted: set[str] | None = None) -> list[list[str]]:
    chosen = identities(ORDERED) if wanted is None else wanted
    return [[cell.identity for cell in cells] for _, cells in ORDERED.order(block, seed, chosen)]


def test_each_block_has_every_cell_once_in_an_order_of_its_own() -> None:
    blocks = [order(block) for block in (1, 2, 3)]
    for block in blocks:
        flat = [cell for bed in block for cell in bed]
        assert len(block) == 6 and len(flat) == len(set(flat)) == len(ORDERED.cells)
    assert len({str(block) for block in blocks}) == 3
    assert order(1) == blocks[0] != order(1, seed=8)
    beds = {tuple(sorted(bed)): [str(bed)] for bed in blocks[0]}
    for bed in (*blocks[1], *blocks[2]):
        beds[tuple(sorted(bed))].append(str(bed))
    assert all(len(set(orders)) > 1 for orders in beds.values())


@given(st.sets(st.sampled_from(sorted(identities(ORDERED)))), st.integers(1, 50))
def test_what_is_left_out_leaves_the_others_where_they_are(wanted: set[str], block: int) -> None:
    flat = [cell for bed in order(block) for cell in bed if cell in wanted]
    assert [cell for bed in order(block, wanted=wanted) for cell in bed] == flat


def test_the_place_of_a_cell_says_nothing_of_its_values() -> None:
    """Over many blocks the mean place of each value of an axis is the middle: drift is shared by all."""
    count, blocks = len(ORDERED.cells), 400
    places: dict[tuple[str, str], list[int]] = {}
    by_identity = {cell.identity: cell for cell in ORDERED.cells}
    for block in range(blocks):
        for place, identity in enumerate(cell for bed in order(block) for cell in bed):
            for coordinate in by_identity[identity].coordinates:
                places.setdefault(coordinate, []).append(place)
    for coordinate, found in places.items():
        assert abs(sum(found) / len(found) - (count - 1) / 2) < count / 15, coordinate


def test_each_repetition_has_seeds_of_its_own(tmp_path: Path) -> None:
    found = made(tmp_path)
    bed = found.beds[0]
    plans = [bed.plan_of(bed.cells[:2], number, link_seed(5, number), found.choices) for number in (1, 4)]
    assert [plan.options.seed for plan in plans] == [5, 8]
    assert [[item.scheduled.load_seed for item in plan.scenarios] for plan in plans] == [[0, 0], [3, 3]]
    assert [[item.scheduled.repetition for item in plan.scenarios] for plan in plans] == [[1, 1], [4, 4]]
    assert [item.scheduled.identity for item in plans[1].scenarios] == [cell.scenario_hash for cell in bed.cells[:2]]


def test_an_interval_is_narrow_on_both_sides() -> None:
    assert is_narrow([100, 101, 99, 100, 104, 96], 0.05)
    assert not is_narrow([100, 101, 99, 100, 106, 96], 0.05)
    assert not is_narrow([100, 101, 99, 100, 104, 94], 0.05)
    assert not is_narrow([100.0] * 5, 0.05)
    assert not is_narrow([100.0] * 8 + [float("nan")], 0.05)
    # From 9 on it is between the second and the last but one (Nair 1940; Conover 1999, table A3).
    assert not is_narrow([50.0, *[100.0] * 6, 200.0], 0.05) and is_narrow([50.0, *[100.0] * 7, 200.0], 0.05)


@pytest.mark.parametrize(
    ("row", "result"),
    [
        (("-", "yes", []), "measured"),
        (("-", "unknown", ["few_answers"]), "measured"),
        (("-", "no", ["leader_changed"]), "store"),
        (("-", "no", ["machine_full", "leader_changed"]), "machine"),
        (("-", "unknown", ["network_unknown"]), "machine"),
        (("etcd1 died: OOM killed", "-", []), "store"),
        (("5 requests failed", "no", ["links_paused"]), "machine"),
    ],
)
def test_what_a_row_means(row: tuple[str, str, list[str]], result: str) -> None:
    assert result_of(*row)[0] == result
    assert result_of(*row, machine_failed=True)[0] == "machine"


def test_findings_of_the_machine_are_findings_that_make_rows_doubtful() -> None:
    assert {*OF_THE_MACHINE} <= {*Kind.__args__}  # type: ignore[attr-defined]
    assert all({"invalid", "unknown"} & {*RULES[kind].effects} for kind in OF_THE_MACHINE)
    named = {kind for kind in RULES if kind.startswith(("generator_", "links_", "link_", "machine_", "network_"))}
    assert named <= OF_THE_MACHINE


def test_quick_measures_the_quick_form_of_a_file_else_the_quick_scenarios(tmp_path: Path) -> None:
    own = json.dumps(SWEEP | {"quick": {"axes": [{"clients": [5], "total": [20]}], "only": ["read"]}})
    quick = made(tmp_path, own, quick=True)
    assert [cell.scenario.name for cell in quick.cells] == [
        "read-linearizable-20x5x2",
        "read-serializable-20x5x2",
    ]
    assert len(made(tmp_path, own).cells) == 12
    of_run = {cell.scenario.name for cell in design(THREE, ["clients=5,10"], quick=True).cells}
    assert {cell.scenario.name for cell in made(tmp_path, quick=True).cells} == of_run
