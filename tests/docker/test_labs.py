"""Labs live side by side; a run says that they were up, and none is brought up beside a run."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.docker.conftest import COMMAND, PROJECT
from tests.docker.machine_state import left_over, snapshot
from tests.docker.test_endings import end, rows, start, wait_until_measuring

pytestmark = pytest.mark.docker
CONFIG = PROJECT / "configs" / "1node.json"


def lab(*commands: str) -> subprocess.Popen[str]:
    """Open a lab in a process group of its own."""
    options = [word for command in commands for word in ("-c", command)]
    return subprocess.Popen(
        [str(COMMAND), "shell", str(CONFIG), "--port", "18080", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until_up(opened: subprocess.Popen[str]) -> None:
    assert opened.stdout is not None
    said = opened.stdout.readline()
    assert said == "up\n", opened.communicate(timeout=60)[1]


def test_two_labs_and_a_run_beside_each_other(tmp_path: Path) -> None:
    before = snapshot()
    labs = [lab("etcd1 echo up", "etcd1 ping -c 1 benchmark", "etcd1 sleep 60") for _ in range(2)]
    try:
        for opened in labs:
            wait_until_up(opened)
        out = tmp_path / "out.csv"
        words = ["run", str(CONFIG), str(out), "--quick", "--only", "read-serializable-50x1x1", "--port", "18080"]
        done = subprocess.run([str(COMMAND), *words], capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "2 labs are up on this machine" in done.stdout
        assert [row["OtherLabs"] for row in rows(out)] == ["2"]
    finally:
        for opened in labs:
            opened.send_signal(signal.SIGTERM)
    for opened in labs:
        opened.communicate(timeout=60)
        assert opened.returncode == 128 + signal.SIGTERM
    assert left_over(before) == {}


def test_no_lab_is_brought_up_beside_a_run(long: Path, tmp_path: Path) -> None:
    run = start(long, tmp_path / "out.csv", CONFIG)
    wait_until_measuring(run, tmp_path / "out.csv")
    refused = lab("etcd1 echo up")
    out, err = refused.communicate(timeout=30)
    run.send_signal(signal.SIGINT)
    end(run)
    assert refused.returncode == 1 and out == ""
    assert f"a run is measuring on this machine (process {run.pid}); a lab would disturb it" in err
