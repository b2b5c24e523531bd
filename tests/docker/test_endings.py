"""However a run ends, no row is lost and nothing of it stays: what tests/faults does not strike for real."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from containernet_env.hosts import netns
from tests.deadline import HANG_S
from tests.docker.runs import COMMAND, CONFIG, PROJECT, Run, call, host_pid, rows, run, skip_if_busy
from tests.processes import pressing_ctrl_c

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("unchanged_machine")]

MOMENTS = ("RunLock.__enter__", "Testbed._start_hosts", "Testbed._connect")
"""The first call of each of these on a run's main thread; tests/local strikes earlier ones, tests/faults later ones."""


def test_a_run_has_the_machine_for_itself_until_a_living_member_loses_its_interface(
    long: Path, tiny: Path, tmp_path: Path
) -> None:
    with Run(long, tmp_path / "first.csv") as first:
        first.reach_request()
        other = run(CONFIG, tmp_path / "second.csv", "--scenarios", tiny)
        assert other.returncode == 1 and f"another run is on (process {first.pid})" in other.stderr, other.stderr
        lab = call("shell", CONFIG, "-c", "etcd1 echo up")
        assert (lab.returncode, lab.stdout) == (1, "")
        assert f"a run is measuring on this machine (process {first.pid}); a lab would disturb it" in lab.stderr
        assert call("clean").stdout.count("kept container") == 4
        netns.run(host_pid("etcd2"), ["ip", "link", "delete", "dev", "etcd2-eth0"])
        output = first.end()
    assert first.status == 1, output
    struck, following = first.errors()
    assert struck.startswith("the network lost a host that lives: etcd2-eth0: interface "), struck
    assert following.startswith("not run: the network lost a host that lives: etcd2-eth0"), following


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_before_the_first_scenario(moment: str, long: Path, tmp_path: Path) -> None:
    command = (sys.executable, "-c", pressing_ctrl_c(moment, "os.killpg(0, signal.SIGINT)"))
    with Run(long, tmp_path / "out.csv", command) as stopped:
        output = stopped.end()
    assert stopped.status == 128 + signal.SIGINT, output
    assert "Traceback" not in output and "ignored" not in output, output
    assert stopped.errors() == []


@contextmanager
def lab_of(config: Path) -> Iterator[subprocess.Popen[str]]:
    """A lab that says that it is up, and is ended afterwards."""
    commands = ("etcd1 echo up", "etcd1 ping -c 1 benchmark", "etcd1 sleep 600")
    options = [word for command in commands for word in ("-c", command)]
    argv = [str(COMMAND), "shell", str(config), "--port", "18080", *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, start_new_session=True, **pipes) as lab:
        try:
            yield lab
            lab.send_signal(signal.SIGTERM)
            lab.communicate(timeout=HANG_S)
        finally:
            lab.kill()


def test_two_labs_stand_beside_a_run_and_its_row_says_so(tiny: Path, tmp_path: Path) -> None:
    config = PROJECT / "configs" / "1node.json"
    with ExitStack() as stack:
        labs = [stack.enter_context(lab_of(config)) for _ in range(2)]
        for lab in labs:
            if lab.stdout.readline() != "up\n":
                said = lab.communicate()[1]
                skip_if_busy(said)
                raise AssertionError(said)
        done = run(config, tmp_path / "out.csv", "--scenarios", tiny, "--only", "read-serial*")
        assert done.returncode == 0 and "2 labs are up on this machine" in done.stdout, done.stdout + done.stderr
        assert [row["OtherLabs"] for row in rows(tmp_path / "out.csv")] == ["2"]
    assert [lab.returncode for lab in labs] == [128 + signal.SIGTERM] * 2
