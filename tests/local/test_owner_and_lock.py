"""Owners of containers, and the lock that lets one run at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from containernet_env.base.errors import Interrupted, RunError
from containernet_env.base.stop import Stop
from containernet_env.hosts import owner
from containernet_env.runs.lock import RunLock
from tests.unit.disk import file_limit


def test_this_process_is_alive() -> None:
    assert owner.is_alive(owner.current())


def test_an_ended_process_is_dead() -> None:
    code = "from containernet_env.hosts import owner; print(owner.current())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not owner.is_alive(ended.stdout.strip())


def test_a_reused_pid_is_not_mistaken_for_the_owner() -> None:
    boot, pid, ticks = owner.current().split("/")
    assert not owner.is_alive(f"{boot}/{pid}/{int(ticks) - 1}")
    assert not owner.is_alive(f"another-boot/{pid}/{ticks}")


@pytest.mark.parametrize("text", ["", "x", "/", "a/b/c", "//"])
def test_what_is_no_owner_is_dead(text: str) -> None:
    assert not owner.is_alive(text)


def test_a_second_run_is_refused_and_told_who_holds_the_machine(tmp_path: Path) -> None:
    with RunLock(tmp_path / "lock"), pytest.raises(RunError, match=f"process {os.getpid()}"):
        RunLock(tmp_path / "lock").__enter__()
    with RunLock(tmp_path / "lock"):
        pass


def test_the_lock_goes_with_a_killed_process(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from containernet_env.runs.lock import RunLock\n"
        "RunLock(Path(sys.argv[1])).__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], check=False)
    assert killed.returncode == -9
    with RunLock(tmp_path / "lock"):
        pass


def test_a_lock_that_cannot_be_written_is_no_traceback(tmp_path: Path) -> None:
    """A full /run: OSError from writing the process id, which is only for a message."""
    with file_limit(0), RunLock(tmp_path / "lock"), pytest.raises(RunError, match="another run is on"):
        RunLock(tmp_path / "lock").__enter__()


def test_a_lock_that_cannot_be_made_is_told_with_a_remedy(tmp_path: Path) -> None:
    """A read-only /run, or none: a traceback."""
    with pytest.raises(RunError, match=r"cannot be locked.*\n  "):
        RunLock(tmp_path / "missing" / "lock").__enter__()


def test_a_worker_waits_for_the_machine_until_it_is_no_longer_wanted(tmp_path: Path) -> None:
    """Two workers on one machine take turns."""
    stop, got = Stop(), threading.Event()

    def wait() -> None:
        with RunLock(tmp_path / "lock", wait=Stop()):
            got.set()

    with RunLock(tmp_path / "lock"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        stop.request(signal.SIGINT)
        with pytest.raises(Interrupted):
            RunLock(tmp_path / "lock", wait=stop).__enter__()
        assert not got.is_set()
    waiting.join(60)
    assert got.is_set()
    with RunLock(tmp_path / "lock"):
        pass
