"""What a driver has started ends with it, by SIGKILL too: programs in containers."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from containernet_env.setup import images
from tests.faults.own_engine import OwnEngine

pytestmark = pytest.mark.docker

PROJECT = Path(__file__).resolve().parents[2]
DRIVER = """
import sys, time
from containernet_env.containernet.network import Containernet
net = Containernet(controller=None)
host = net.addDocker("h1", dimage=sys.argv[1], dcmd="sleep 600")
stubborn = "trap '' HUP INT TERM; sleep 601; sleep 602"
print(host.popen(["sh", "-c", stubborn]).pid, flush=True)
host.sendCmd(stubborn)
print(host.shell.pid, flush=True)
time.sleep(60)
"""


def below(pid: int) -> list[int]:
    """The processes below one, itself not among them."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [found for child in children for found in (child, *below(child))]


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
        deadline = time.monotonic() + 10
        # sh and the sleep below it.
        while not all(len(below(pid)) >= 2 for pid in started):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        held = [os.pidfd_open(one) for pid in started for one in (pid, *below(pid))]
        driver.kill()
    began = time.monotonic()
    for process in held:
        assert select.select([process], [], [], 5)[0]
        os.close(process)
    assert time.monotonic() - began < 2
