"""The sweeps that travel with the program: what they expand to, how long their quick form takes, and their pages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from re import sub

import pytest
from click import BadParameter
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

from containernet_env.base import assets
from containernet_env.cli import group
from containernet_env.cli.arguments import CONFIG, SCENARIOS, SWEEP
from containernet_env.config.reader import read_document
from containernet_env.config.sweeps import axis_of
from containernet_env.config.writer import schema_of
from containernet_env.report.tables import MEASURES
from containernet_env.runs.sweep.design import Design, design
from tests.unit.commands import check_block

ROOT = Path(__file__).resolve().parents[2]
PRESETS = sorted((ROOT / "configs" / "sweeps").glob("*.json"))
PAGES = ROOT / "docs" / "presets"
SEEDS = {"put-clients": "000", "etcd-matrix": "001", "latency-bandwidth": "002", "dbtester-writes": "003"}
SEEDS |= {"constant-rates": "004", "dbtester": "003", "geo-quorum": "-"}
QUICK_S = 180
each_preset = pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the estimates are for, whatever machine this is."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def size(made: Design) -> str:
    return f"{len(made.cells)} cells on {len(made.beds)} testbed{'s' if len(made.beds) > 1 else ''}"


def cells_told(made: Design) -> Iterator[str]:
    """Which scenarios are measured on which testbeds: the values that the axes set in the topology."""
    yield size(made)
    by_scenarios: dict[tuple[str, ...], list[str]] = {}
    for bed in made.beds:
        levels = ((axis_of(name), f"{name}={value}") for name, value in bed.cells[0].coordinates)
        values = ", ".join(text for axis, text in levels if axis is not None and axis.level == "topology")
        by_scenarios.setdefault(tuple(cell.scenario.name for cell in bed.cells), []).append(values)
    for names, testbeds in by_scenarios.items():
        yield f"{'; '.join(values or 'as in the file' for values in testbeds)}: {', '.join(names)}"


@each_preset
def test_a_preset_expands_to_its_cells_whose_number_its_page_has(path: Path, snapshot: SnapshotAssertion) -> None:
    """The snapshot has the cells, as ``sweep PRESET --dry-run`` lists them."""
    whole, quick = design(path), design(path, quick=True)
    assert "\n".join([*cells_told(whole), "", *cells_told(quick)]) == snapshot
    line = f"The whole preset has {size(whole)}, `--quick` {size(quick)}; `--dry-run` lists them."
    check_block(PAGES / f"{path.stem}.md", "cells", f"configs/sweeps/{path.name}", f"\n{line}\n\n", snapshot)


@each_preset
def test_a_preset_keeps_to_its_schema_travels_and_has_a_quick_form(path: Path) -> None:
    value = json.loads(json.dumps(read_document(path).value, default=float))
    assert [error.message for error in Draft202012Validator(schema_of("sweep")).iter_errors(value)] == []
    assert SWEEP.convert(path.stem, None, None) == path
    assert path in set(assets.travelling(assets.ROOT, "configs"))
    quick = design(path, quick=True)
    assert quick.repeat in (None, 1) and quick.estimated_s < QUICK_S, f"about {quick.estimated_s:.0f} s"
    assert len(quick.cells) >= 8, "so small that it shows nothing"


def test_each_seed_document_has_a_preset_and_names_of_presets_and_topologies_are_apart() -> None:
    names = {path.stem for path in PRESETS}
    assert names == set(SEEDS) == {path.stem for path in PAGES.glob("*.md")}
    listed = (ROOT / "docs" / "presets.md").read_text()
    for name, number in SEEDS.items():
        assert f"| [{name}](presets/{name}.md) | {number} |" in listed, name
    assert not names & set(CONFIG.names()) and set(SWEEP.names()) == names | set(CONFIG.names())
    assert SWEEP.convert("3node-3ms", None, None) == ROOT / "configs" / "3node-3ms.json"
    with pytest.raises(BadParameter):
        CONFIG.convert("put-clients", None, None)
    assert {"put-clients", "constant-rates"} <= set(SCENARIOS.names())
    told = " ".join(CliRunner().invoke(group, ["sweep", "--help"]).output.split())
    assert f"the name of a preset ({', '.join(sorted(names))})" in told


def test_the_page_of_dbtester_says_where_each_row_comes_from(snapshot: SnapshotAssertion) -> None:
    lines = ["| row | unit | from |", "| --- | --- | --- |"]
    for source, alike in groupby(MEASURES, lambda of: sub(r"column `[0-9.]+%`", "the percentile's column", of.source)):
        measures = list(alike)
        lines.append(f"| {', '.join(of.label for of in measures)} | {measures[0].unit} | {source} |")
    text = "\n".join(["", *lines, "", ""])
    check_block(PAGES / "dbtester-writes.md", "rows", "containernet_env/report/tables.py", text, snapshot)
