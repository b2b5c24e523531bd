"""The table of faults: it is whole, what strikes real and simulated runs covers it, and the document fits it."""

from __future__ import annotations

import pytest

from tests.faults.document import DOCUMENT, between, fault_table
from tests.faults.faults import FAULTS as STRIKES
from tests.faults.simulated import FAULTS as SIMULATED
from tests.faults.soak import QUANTITIES, TOPOLOGIES, growth
from tests.faults.table import FAULTS, MOMENTS, REAL, SCENARIOS, Cell, cells


def test_every_fault_can_strike_at_every_moment_on_real_and_on_simulated_machines() -> None:
    assert [(cell.fault, cell.moment) for cell in cells()] == [(f, m) for f in FAULTS for m in MOMENTS]
    assert len({cell.name for cell in cells()}) == len(FAULTS) * len(MOMENTS)
    assert set(STRIKES) == set(FAULTS) and set(FAULTS) - set(SIMULATED) == {"memory-pressure"}


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.name)
def test_a_cell_has_a_promise_for_each_row_or_a_reason(cell: Cell) -> None:
    assert (cell.promise is None) == bool(cell.senseless)
    if cell.promise is not None:
        assert len(cell.promise.rows) in (0, len(SCENARIOS))
        assert cell.promise.words and cell.promise.status


def test_the_gate_has_a_real_cell_for_each_mechanism() -> None:
    chosen = [cell for cell in cells() if cell.name in REAL.values()]
    assert len(chosen) == len(REAL)
    assert not [cell.name for cell in chosen if cell.promise is None or cell.gate]


def test_a_line_of_the_document_names_cells_that_failed_or_were_not_tested() -> None:
    outcomes = {cell.name: "passed" for cell in cells()}
    table = fault_table(outcomes)
    assert " | before the tear-down | driver-quit | kept in 5 of 5 |" in table
    assert (
        "| not tested: the benchmark's client runs only while a scenario does | bring-up, proof, tear-down |" in table
    )
    outcomes |= {"driver-quit-at-write": "failed", "driver-quit-at-proof": "disturbed: it was over"}
    del outcomes["driver-quit-at-read"]
    words = "kept in 2 of 5; NOT KEPT: driver-quit-at-write; NOT TESTED: driver-quit-at-read; disturbed: it was over |"
    assert words in fault_table(outcomes)


def test_the_document_has_the_lines_of_the_table() -> None:
    """`python -m tests.faults.document` writes them."""
    lines = [line.split(" | ")[:3] for line in fault_table({}).splitlines()]
    written = between(DOCUMENT.read_text(), "faults").splitlines()
    assert [line.split(" | ")[:3] for line in written] == lines


def test_every_promise_of_the_document_was_tested_and_kept() -> None:
    """Where a cell is new or was not kept: `./check.sh faults-all`, then `python -m tests.faults.document`."""
    written = between(DOCUMENT.read_text(), "faults").splitlines()
    assert [line for line in written if "NOT " in line] == []


def soaked(values: list[float]) -> list[dict[str, object]]:
    """Runs of each topology in turn, with these values of every quantity."""
    return [
        {"topology": topology, **{quantity.name: value for quantity in QUANTITIES}}
        for value in values
        for topology in TOPOLOGIES
    ]


def test_what_grows_with_every_run_has_grown_and_the_spread_of_the_start_has_not() -> None:
    for quantity in QUANTITIES:
        assert not growth(quantity, soaked([100, 103, 102, 101, 100, 103, 102, 103])).is_over
        assert growth(quantity, soaked([float(100 + 20 * n) for n in range(12)])).is_over, quantity
