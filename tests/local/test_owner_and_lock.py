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
from containernet_env.base.work import Stop
from containernet_env.hosts import owner
from containernet_env.runs.lock import RunLock, holder
from tests.unit.disk import file_limit

ROOT = Path(__file__).resolve().parents[2]


def test_only_a_living_process_of_this_boot_is_alive() -> None:
    boot, pid, ticks = owner.current().split("/")
    code = "from containernet_env.hosts import owner; print(owner.current())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert owner.is_alive(owner.current())
    reused = (f"{boot}/{pid}/{int(ticks) - 1}", f"another-boot/{pid}/{ticks}")
    assert not any(map(owner.is_alive, (ended, *reused, "", "x", "/", "a/b/c", "//")))


def test_a_second_run_is_refused_and_names_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert holder(path) is None
    with RunLock(path):
        found = holder(path)
        assert found is not None and found.pid == os.getpid(), "who watches sees it without the lock"
        with pytest.raises(RunError, match=f"process {os.getpid()}"):
            RunLock(path).__enter__()
    assert path.read_bytes() == b"" and holder(path) is None
    # A full /run: the process id is only for a message; and a read-only one, or none.
    with file_limit(0), RunLock(path), pytest.raises(RunError, match="another run is on"):
        RunLock(path).__enter__()
    with pytest.raises(RunError, match=r"cannot be locked.*\n  "):
        RunLock(tmp_path / "missing" / "lock").__enter__()


HOLDING = """
import sys
from pathlib import Path
from containernet_env.runs.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_goes_with_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    (tmp_path / "before").touch()
    command = [sys.executable, "-c", HOLDING, path]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        found = holder(path)
        (tmp_path / "after").touch()
        assert found is not None and found.pid == process.pid
        # By the kernel's stamps; the moment of the boot is known to a second.
        before_s, after_s = ((tmp_path / name).stat().st_mtime for name in ("before", "after"))
        assert before_s - 1 <= found.began_s <= after_s + 1
        process.kill()
    assert holder(path) is None
    with RunLock(path):
        pass


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
