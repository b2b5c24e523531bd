"""A sweep of twelve cells that is interrupted, killed and loses its engine, one after the other, and goes on."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from containernet_env.results.csv_file import rows_after
from tests.docker.test_sweep import assert_each_cell_once, by, struck, words
from tests.faults import test_engine_faults
from tests.faults.harness import COMMAND, PROJECT
from tests.faults.own_engine import OwnEngine

pytestmark = pytest.mark.docker

AXES = ("link_delay=1ms,2ms,3ms", "clients=2,3,4,6")

unchanged_machine = test_engine_faults.unchanged_machine


@pytest.mark.long
@pytest.mark.usefixtures("unchanged_machine")
def test_twelve_cells_are_measured_once_whatever_ends_the_sweep(own_engine: OwnEngine, tmp_path: Path) -> None:
    """By SIGINT, by SIGKILL, and by an engine that is stopped, each in the middle of a testbed's cells."""
    out, command = tmp_path / "out.csv", [*COMMAND, *words(tmp_path, AXES)]
    place = {"env": own_engine.environment, "cwd": PROJECT}
    assert struck(command, out, 2, by(signal.SIGINT), **place) == 128 + signal.SIGINT
    first = rows_after(out)
    assert struck(command, out, len(first) + 1, by(signal.SIGKILL), **place) == -signal.SIGKILL
    assert struck(command, out, len(rows_after(out)) + 5, lambda sweep: own_engine.terminate(), **place) in (1, 3)
    own_engine.start()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **place)
    assert "left behind by a killed run" in done.stdout, done.stdout
    found = assert_each_cell_once(out, 12)
    assert found[: len(first)] == first
    assert all("the Docker engine" in row["Error"] for row in found if row["Error"] != "-")
    assert own_engine.containers() == set()
