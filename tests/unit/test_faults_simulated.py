"""Every fault at every moment of a run on a simulated machine: see ``tests.faults.simulated``."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.simulated import FAULTS, carry_out, strike_anywhere
from tests.faults.table import FINISHED, SCENARIOS, TEAR_DOWN, WRITE, Cell, Promise, cells
from tests.simulated_time import chosen

SEEDS = 1
"""For each cell; ``CONTAINERNET_ENV_TEST_FIRST_SEED`` takes others."""

ANYWHERE = 5
"""Seeds of a signal that strikes at any step."""

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


@pytest.mark.parametrize("cell", [*CELLS, *BESIDES], ids=lambda cell: cell.name)
def test_fault(cell: Cell, tmp_path: Path) -> None:
    for seed in chosen(SEEDS):
        try:
            carry_out(cell, tmp_path / str(seed), seed)
        except BaseException as error:
            error.add_note(f"seed {seed}: CONTAINERNET_ENV_TEST_SEED={seed} replays it")
            raise


@pytest.mark.parametrize("preempt", [0.0, 0.01], ids=["where it waits", "between lines"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda signum: signum.name)
def test_a_driver_that_is_struck_anywhere(signum: signal.Signals, preempt: float, tmp_path: Path) -> None:
    for seed in chosen(ANYWHERE):
        try:
            strike_anywhere(signum, tmp_path / str(seed), seed, preempt)
        except BaseException as error:
            error.add_note(f"seed {seed}: CONTAINERNET_ENV_TEST_SEED={seed} replays it")
            raise
