"""Whole runs inside the virtual machine; their files are judged outside, by tests/vm/test_vm.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.deadline import eventually
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import COMMAND, PROJECT

OUT = PROJECT / "out"
CONFIG = PROJECT / "configs" / "3node-3ms.json"
SCENARIOS = PROJECT / "tests" / "vm" / "scenarios.json"
RUN_LIMIT_S = 500.0


def run_command(switches: str, out: Path, *options: str) -> list[str]:
    words = ["--links", "netem", "--switches", switches, "--rtt-tolerance", "30ms", "--scenarios", str(SCENARIOS)]
    return [str(COMMAND), "run", str(CONFIG), str(out), *words, *options]


def run_and_leave_nothing(name: str, switches: str, *options: str) -> None:
    """A whole run, whose files are called ``name``."""
    before = snapshot()
    with (OUT / f"run-{name}.log").open("wb") as log:
        done = subprocess.run(
            run_command(switches, OUT / f"{name}.csv", *options),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=RUN_LIMIT_S,
        )
    assert done.returncode == 0, (OUT / f"run-{name}.log").read_text()
    assert left_over(before) == {}


def kill_and_clean(out: Path, *options: str) -> None:
    """A run on Open vSwitch, killed when its cluster comes up."""
    before = snapshot()
    log = OUT / f"{out.stem}.log"
    with log.open("wb") as output:
        run = subprocess.Popen(run_command("ovs", out, *options), stdout=output, stderr=output, start_new_session=True)
        eventually(lambda: "cluster" in log.read_text() or run.poll() is not None, "its cluster", RUN_LIMIT_S)
        was_running = run.poll() is None
        run.kill()
        run.wait()
    assert was_running, log.read_text()
    assert "cluster" in log.read_text()
    removed = subprocess.run([str(COMMAND), "clean"], capture_output=True, text=True, check=True, timeout=180).stdout
    assert removed.count("removed container cnenv-") == 4, removed
    assert removed.count("removed bridge ") == 1, removed
    assert left_over(before) == {}


@pytest.mark.parametrize("switches", ["ovs", "bridge"])
def test_a_run_writes_its_rows_and_leaves_nothing(switches: str) -> None:
    run_and_leave_nothing(switches, switches)


def test_after_kill_9_clean_removes_everything(tmp_path: Path) -> None:
    kill_and_clean(tmp_path / "killed.csv")
