"""Every fault at every moment of a run on a simulated machine: see ``tests.faults.simulated``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.simulated import FAULTS, carry_out
from tests.faults.table import Cell, cells
from tests.simulated_time import chosen

SEEDS = 1


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, id=cell.name) for cell in cells() if cell.promise is not None and cell.fault in FAULTS],
)
def test_fault(cell: Cell, tmp_path: Path) -> None:
    for seed in chosen(SEEDS):
        try:
            carry_out(cell, tmp_path / str(seed), seed)
        except BaseException as error:
            error.add_note(f"seed {seed}: CONTAINERNET_ENV_TEST_SEED={seed} replays it")
            raise
