"""Every fault at every moment of a run on a simulated machine: see ``tests.faults.simulated``.

The table of faults is whole, what strikes real and simulated runs covers it, and the document fits it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.document import DOCUMENT, between, fault_table
from tests.faults.faults import FAULTS as STRIKES
from tests.faults.simulated import FAULTS, carry_out, events_of_sites, strike_anywhere
from tests.faults.soak import QUANTITIES, TOPOLOGIES, growth, has_grown
from tests.faults.table import FAULTS as PROMISES
from tests.faults.table import FINISHED, MOMENTS, REAL, SCENARIOS, TEAR_DOWN, WRITE, Cell, Promise, cells
from tests.simulated_time import LONG, chosen

SEEDS = 20 if LONG else 1
"""For each cell; ``CONTAINERNET_ENV_SEED`` takes others, from that one on."""

ANYWHERE = 200 if LONG else 1
"""Likewise, of each fault that strikes at any step."""
STRIKE_ANYWHERE = [
    *(f"driver-{name}" for name in ("int", "term", "kill")),
    *(f"{name}-kill" for name in ("emulator", "server", "client", "follower", "leader", "two-members", "engine")),
    *("emulator-stop", "server-stop", "client-stop", "engine-term", "few-descriptors", "few-processes"),
]

_NO_ANSWER = r"Error: the Docker engine at \S+ does not answer \(waited \d+ s\).*Restart the engine, then run `contai"
_ENDED = r"the Docker engine at \S+ has ended; "
_ROW = rf"^{_ENDED}its containers etcd1, etcd2, etcd3, benchmark may still run\. Start the engine"
BESIDES = [
    # Nothing of a scenario needs the engine.
    *(
        Cell("engine-stop", moment, Promise("", (1,), (FINISHED,) * len(SCENARIOS), says=_NO_ANSWER))
        for moment in (*SCENARIOS, TEAR_DOWN)
    ),
    Cell(
        "engine-kill",
        WRITE,
        Promise("", (1,), (_ROW, *[f"^not run: {_ENDED}"] * 2), rf"Error: {_ENDED}.* their processes have been ended"),
    ),
]
"""Cells that are in no document: what more holds of some, and a fault that takes minutes in real time."""

CELLS = [cell for cell in cells() if cell.promise is not None and cell.fault in FAULTS]


@pytest.mark.parametrize("seed", chosen(SEEDS))
@pytest.mark.parametrize("cell", [*CELLS, *BESIDES], ids=lambda cell: cell.name)
def test_fault(cell: Cell, seed: int, tmp_path: Path) -> None:
    carry_out(cell, tmp_path, seed)


@pytest.mark.parametrize("seed", chosen(ANYWHERE))
@pytest.mark.parametrize(
    ("fault", "preempt"), [*((fault, 0.0) for fault in STRIKE_ANYWHERE), ("driver-int", 0.01), ("driver-kill", 0.01)]
)
def test_a_run_is_struck_anywhere(fault: str, preempt: float, seed: int, tmp_path: Path) -> None:
    strike_anywhere(fault, tmp_path, seed, preempt)


@pytest.mark.parametrize("seed", chosen(max(4, SEEDS)))
def test_events_of_sites_and_pairs(seed: int, tmp_path: Path) -> None:
    said, (row,), done, requests = events_of_sites(tmp_path, seed)
    assert row["EventsDone"] == (
        "partition eu | us asia at 0.300 s; heal eu | us asia at 1.500 s; delay eu>us at 1.800 s; "
        "link down eu-us at 1.900 s; reset eu>us at 2.100 s; link up eu-us at 2.200 s"
    )
    between = {item["verb"]: item["apart"] for item in done if item["apart"]}
    assert between == {"partition": [[["etcd1"], ["etcd2", "etcd3"]]]}
    assert requests == [
        *("partition  [[etcd1-eth0], [etcd2-eth0, etcd3-eth0]]", "heal "),
        *("set_link eu-us 20 1", "link_state eu-us False"),
        *("set_link eu-us 1 1", "link_state eu-us True", "set_link eu-us 1 1"),
    ]
    # The leader of a majority stays, and an election without one is explained.
    led, term = row["LeaderAtStart"], int(row["TermAtEnd"]) - int(row["TermAtStart"])
    assert (row["Valid"], row["Error"], term > 0) == ("yes", FINISHED, led == "etcd1"), said


# --- the table and its document ---------------------------------------------------------------------------------------


def test_every_fault_can_strike_at_every_moment_on_real_and_on_simulated_machines() -> None:
    assert [(cell.fault, cell.moment) for cell in cells()] == [(f, m) for f in PROMISES for m in MOMENTS]
    assert len({cell.name for cell in cells()}) == len(PROMISES) * len(MOMENTS)
    assert set(STRIKES) == set(PROMISES) and set(PROMISES) - set(FAULTS) == {"memory-pressure"}
    for cell in cells():
        assert (cell.promise is None) == bool(cell.senseless), cell.name
        if cell.promise is not None:
            assert len(cell.promise.rows) in (0, len(SCENARIOS)), cell.name
            assert cell.promise.words and cell.promise.status, cell.name
    # The gate has a real cell for each mechanism.
    chosen = [cell for cell in cells() if cell.name in REAL.values()]
    assert len(chosen) == len(REAL) and all(cell.promise is not None and not cell.gate for cell in chosen)


def test_a_line_of_the_document_names_cells_that_failed_or_were_not_tested() -> None:
    outcomes = {cell.name: "passed" for cell in cells() if cell.name != "driver-quit-at-read"}
    outcomes |= {"driver-quit-at-write": "failed", "driver-quit-at-proof": "disturbed: it was over"}
    words = "kept in 2 of 5; NOT KEPT: driver-quit-at-write; NOT TESTED: driver-quit-at-read; disturbed: it was over |"
    table = fault_table(outcomes)
    assert words in table and " | before the tear-down | driver-term | kept in 5 of 5 |" in table


def test_the_document_has_the_lines_of_the_table_and_every_promise_was_tested_and_kept() -> None:
    """`./check.sh faults-all`, then `python -m tests.faults.document` writes them."""
    lines = [line.split(" | ")[:3] for line in fault_table({}).splitlines()]
    written = between(DOCUMENT.read_text(), "faults").splitlines()
    assert [line.split(" | ")[:3] for line in written] == lines
    assert [line for line in written if "NOT " in line] == []


def test_what_grows_with_every_run_has_grown_and_the_spread_of_the_start_has_not() -> None:
    for quantity in QUANTITIES:
        for values, is_over in (([100, 103, 102, 101, 100, 103, 102, 103], False), (range(100, 340, 20), True)):
            runs = [{"topology": topology, quantity.name: value} for value in values for topology in TOPOLOGIES]
            assert has_grown(growth(quantity, runs)) is is_over, quantity
