"""Faults beside the table, on an engine of the tests' own: it is silent, or was never there; what a killed driver has
started in containers ends; and a sweep goes on whatever ended it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from containernet_env.results.csv_file import rows_after
from containernet_env.setup import images
from tests.deadline import HANG_S, eventually
from tests.docker.machine_state import left_over, snapshot
from tests.docker.test_sweep import assert_each_cell_once, by, struck, words
from tests.faults.harness import COMMAND, PROJECT, Run, tool
from tests.faults.own_engine import OwnEngine
from tests.faults.table import FINISHED, SCENARIOS, TEAR_DOWN
from tests.processes import below

pytestmark = pytest.mark.docker


@pytest.fixture
def unchanged_machine(own_engine: OwnEngine) -> Iterator[None]:
    """Fails the test if a process, link or namespace is there afterwards that was not there before."""
    before = snapshot()
    yield
    # The engine of the tests has a new one of its own where it was started again.
    before["namespaces"].add(own_engine.network_namespace())
    assert left_over(before) == {}


@pytest.mark.long
@pytest.mark.usefixtures("unchanged_machine")
def test_a_silent_engine_bounds_the_tear_down(own_engine: OwnEngine, tmp_path: Path) -> None:
    run = Run(tmp_path, own_engine)
    run.start()
    run.reach(TEAR_DOWN)
    own_engine.pause()
    try:
        run.resume()
        status, said = run.wait()
        assert status == 1, said
        assert f"Error: the Docker engine at {own_engine.address} does not answer (waited " in said
        assert "Restart the engine, then run `containernet-env clean`" in said
        assert [row["Error"] for row in run.files.rows()] == [FINISHED] * len(SCENARIOS)
    finally:
        own_engine.resume()
        run.stop()
    assert own_engine.containers() == set()


def test_an_engine_that_is_not_there_is_named_and_no_other_one_is_used(tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/docker.sock"
    for command in (["run", "3node-3ms", str(tmp_path / "out.csv")], ["clean"], ["setup"]):
        status, said = tool(*command, environment={**os.environ, "DOCKER_HOST": nowhere})
        assert status == 3, said
        assert f"no Docker engine answers at DOCKER_HOST={nowhere}\n  Start that engine, or unset" in said
        assert "missing" not in said


DRIVER = """
import sys, time
from containernet_env.containernet.network import Containernet
net = Containernet(controller=None)
host = net.addDocker("h1", dimage=sys.argv[1], dcmd="sleep 600")
stubborn = "trap '' HUP INT TERM; sleep 601; sleep 602"
print(host.popen(["sh", "-c", stubborn]).pid, flush=True)
host.sendCmd(stubborn)
print(host.shell.pid, flush=True)
time.sleep(600)
"""


def test_programs_in_containers_end_with_a_killed_driver(own_engine: OwnEngine) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, images.required_images().member],
        stdout=subprocess.PIPE,
        text=True,
        env=own_engine.environment,
        cwd=PROJECT,
    )
    assert driver.stdout is not None
    with driver, driver.stdout as lines:
        started = [int(lines.readline()), int(lines.readline())]
        # sh and the sleep below it.
        eventually(lambda: all(len(below(pid)) >= 2 for pid in started), "both programs run in the container")
        held = [os.pidfd_open(one) for pid in started for one in (pid, *below(pid))]
        driver.kill()
    for process in held:
        assert select.select([process], [], [], HANG_S)[0], "a program runs on without its driver"
        os.close(process)


@pytest.mark.long
@pytest.mark.usefixtures("unchanged_machine")
def test_twelve_cells_are_measured_once_whatever_ends_the_sweep(own_engine: OwnEngine, tmp_path: Path) -> None:
    """By SIGINT, by SIGKILL, and by an engine that is stopped, each in the middle of a testbed's cells."""
    out, command = tmp_path / "out.csv", [*COMMAND, *words(tmp_path, ("link_delay=1ms,2ms,3ms", "clients=2,3,4,6"))]
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
