"""Faults beside the table: an engine that was never there, what a killed driver has started in containers, and a sweep
whose engine ends."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from containernet_env.setup import images
from tests.deadline import HANG_S, eventually
from tests.docker.machine_state import left_over, snapshot
from tests.docker.test_sweep import assert_each_cell_once, struck, words
from tests.faults.harness import COMMAND, PROJECT, tool
from tests.faults.own_engine import OwnEngine
from tests.processes import below

pytestmark = pytest.mark.docker


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
def test_a_sweep_goes_on_after_its_engine_has_ended(own_engine: OwnEngine, tmp_path: Path) -> None:
    before, out, command = snapshot(), tmp_path / "out.csv", [*COMMAND, *words(tmp_path)]
    place = {"env": own_engine.environment, "cwd": PROJECT}
    assert struck(command, out, 3, lambda sweep: own_engine.terminate(), **place) in (1, 3)
    own_engine.start()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **place)
    assert "left behind by a killed run" in done.stdout, done.stdout
    found = assert_each_cell_once(out)
    assert all("the Docker engine" in row["Error"] for row in found if row["Error"] != "-")
    assert own_engine.containers() == set()
    before["namespaces"].add(own_engine.network_namespace())
    assert left_over(before) == {}
