"""What a driver has started ends with it, by SIGKILL too: programs in containers."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from containernet_env.setup import images
from tests.deadline import HANG_S, eventually
from tests.faults.harness import PROJECT, below
from tests.faults.own_engine import OwnEngine

pytestmark = pytest.mark.docker

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
