"""A Containernet script with only its import changed, driven through Mininet's own CLI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import PROJECT

pytestmark = [pytest.mark.docker, pytest.mark.root]

SCRIPT = Path(__file__).with_name("containernet_script.py")

COMMANDS = """nodes
net
dump
links
pingall
d1 ping -c 5 -i 0.3 d2
link d1 s1 down
pingall 1
link d1 s1 up
pingall
link d1 s2 up
s1 echo from the switch
d1 exit 3
d1 echo a new shell
c0 echo from the controller
nosuch
exit
"""


def run_script(image: str, commands: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), image, *more],
        input=commands,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )


def test_it_runs_and_leaves_nothing(image: str) -> None:
    before = snapshot()
    done = run_script(image, COMMANDS)
    said = done.stdout
    assert done.returncode == 0, said
    assert "c0 d1 d2 s1 s2" in said
    assert re.search(r"\bd1 [0-9a-f]{6}e\d+:[0-9a-f]{6}e\d+$", said, re.MULTILINE), said
    assert "<Docker d1: " in said
    assert "10.0.0.251 pid=" in said
    assert said.count("(OK OK)") == 3
    assert said.count("0% dropped (2/2 received)") == 3
    assert said.count("100% dropped (0/2 received)") == 1
    assert "there is no link between d1 and s2" in said
    assert "from the switch" in said
    assert "a new shell" in said
    assert "from the controller" in said
    assert "Unknown command: nosuch" in said
    # Each way crosses the slow link once: 100 ms and 0.784 ms of sending 98 bytes at 1 Mbit/s, and never sooner.
    times = [float(found) for found in re.findall(r"time=([\d.]+) ms", said)]
    assert len(times) == 5, said
    assert min(times) >= 201, times
    assert left_over(before) == {}


def test_one_that_forgets_to_stop_leaves_nothing_either(image: str) -> None:
    before = snapshot()
    done = run_script(image, "exit\n", "fail")
    assert done.returncode == 5, done.stdout
    assert left_over(before) == {}
