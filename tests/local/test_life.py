"""Programs that a process starts: how they are waited for, and that they end with it, by SIGKILL too, at once."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import programs
from containernet_env.base.errors import Interrupted, MissingRequirementError, RunError
from containernet_env.hosts import nsexec
from containernet_env.network import emulator as process
from containernet_env.network import rtt as prober_module
from containernet_env.network.emulator import LinkEmulator
from tests.deadline import HANG_S

PROJECT = Path(__file__).resolve().parents[2]
DIED = "the link emulator ended: killed by SIGKILL"


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


IMPORTS = """
import sys, threading
from pathlib import Path
from containernet_env.network.rtt import probe
from containernet_env.setup.commands import Commands, Ending
"""


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """Where a program writes its pid."""
    os.mkfifo(path := tmp_path / "pid")
    return path


def kill_driver_of(call: str, fifo: Path) -> None:
    """Kill a driver that makes a call on a thread, once its program has written its pid: that ends, too."""
    code = f"{IMPORTS}threading.Thread(target=lambda: {call}, daemon=True).start()\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, cwd=PROJECT) as driver:
        held = os.pidfd_open(int(fifo.read_text()))
        driver.kill()
    assert select.select([held], [], [], HANG_S)[0], "it runs for ten times as long"
    os.close(held)


def test_the_prober_ends_with_a_killed_driver(fifo: Path, tmp_path: Path) -> None:
    # Watches the descriptor as the real one does (link_emulator/main_test.go), which is its third word.
    script = f'echo $$ >{fifo}\n[ "$1 $2" = "probe --life-fd" ] && eval "read -r _ <&$3"'
    kill_driver_of(f"probe({{}}, 60, binary={str(program(tmp_path / 'prober', script))!r})", fifo)


SLEEPS = "echo $$ >{fifo}; sleep 600"
IGNORES = "trap '' INT TERM HUP; echo $$ >{fifo}; while :; do sleep 600; done"
# A second signal would end it before it has made the file.
TAKES_ITS_TIME = "trap 'trap - INT; sleep 0.3; touch {done}; exit' INT; echo $$ >{fifo}; while :; do sleep 0.05; done"


@pytest.mark.parametrize("leader_only", [True, False], ids=["leader", "group"])
@pytest.mark.parametrize(
    ("script", "grace_s"),
    [(SLEEPS, 0.3), (IGNORES, 0.3), (TAKES_ITS_TIME, 20)],
    ids=["sleeps", "ignores", "takes-its-time"],
)
def test_a_program_of_the_set_up_ends_with_a_killed_set_up(
    script: str, leader_only: bool, grace_s: float, fifo: Path, tmp_path: Path
) -> None:
    done, words = tmp_path / "done", script.format(fifo=fifo, done=tmp_path / "done")
    ending = f"Ending(leader_only={leader_only}, grace_s={grace_s})"
    log = f"Path({str(tmp_path / 'log')!r})"
    kill_driver_of(f"Commands().run(['sh', '-c', {words!r}], {log}, timeout_s=60, ending={ending})", fifo)
    assert done.exists() == (script is TAKES_ITS_TIME), "it is signalled once, and given its time"


def test_one_pipe_serves_all_children_and_none_inherits_it_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = programs.descriptor()
    assert programs.descriptor() == ours
    assert not os.get_inheritable(ours)
    assert not select.select([ours], [], [], 0)[0]
    monkeypatch.setattr(os, "getpid", lambda: -1)  # a forked process has a life of its own
    assert programs.descriptor() != ours
    for fd in programs._pipes.pop(-1):
        os.close(fd)


def test_a_driver_that_ends_while_a_program_is_started_leaves_it_ended() -> None:
    """killpg of a child that has not yet a session of its own: ProcessLookupError, a traceback, the child went on."""
    read, write = os.pipe()
    os.close(write)
    with subprocess.Popen(["sleep", "600"]) as child:
        nsexec._wait(child.pid, read)
        assert child.wait(60) == -signal.SIGKILL
    os.close(read)


def test_the_prober_ends_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during the network's proof: the tear-down waited for the prober to end by itself."""
    monkeypatch.setattr(prober_module, "_LOOK_S", 0.01)

    def probe(script: str, broken: Any = lambda: None) -> Any:
        return prober_module.probe({"ip": "10.0.0.2"}, HANG_S, broken, program(tmp_path / "prober", script))

    assert probe("""sleep 0.1\ngrep -q '"ip": "10.0.0.2"' && echo '{"streams": [5]}'""") == {"streams": [5]}
    with pytest.raises(RunError, match=DIED):
        probe("exec sleep 600", iter([None, None, DIED]).__next__)
    with pytest.raises(RunError, match=r"^the network's measurement failed: exit status 2: panic: no room$"):
        probe("cat >&2 <<.\npanic: no room\n\ngoroutine 1 [running]:\nmain.main()\n.\nexit 2")

    def interrupt() -> None:
        raise Interrupted(signal.SIGINT)

    with pytest.raises(Interrupted):
        probe("exec sleep 6000", interrupt)


def test_a_stopped_link_emulator_is_killed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not see its control connection close."""
    monkeypatch.setattr(process, "_END_DEADLINE_S", 0.2)
    emulator: Any = LinkEmulator("/bin/true", lambda kind, text: None)
    with subprocess.Popen(["sleep", "600"]) as stopped:
        emulator._process = stopped
        stopped.send_signal(signal.SIGSTOP)
        emulator.stop()
        assert stopped.poll() == -signal.SIGKILL


def test_a_start_that_fails_says_how_the_emulator_ended(tmp_path: Path) -> None:
    emulator = LinkEmulator(tmp_path / "link-emulator", lambda kind, text: None)
    with pytest.raises(MissingRequirementError, match=r"build\.sh"):
        emulator.start()
    with pytest.raises(RunError, match="not been started"):
        emulator.request("hello")
    for said, end, message in (
        ("map frame memory: no room", "exit 1", "exit status 1: map frame memory: no room"),
        ("fatal error: no room\n\ngoroutine 1 [running]:", "exit 2", "exit status 2: fatal error: no room"),
        ("link-emulator: started", "kill -9 $$", "killed by SIGKILL"),
        ("$*", "exit 1", r"exit status 1: serve --control-fd \d+ --core 3 --offload"),
    ):
        failing = program(tmp_path / "link-emulator", f"cat >&2 <<.\n{said}\n.\n{end}")
        emulator = LinkEmulator(failing, lambda kind, text: None, core=3, offload=True)
        with pytest.raises(RunError, match=f"^the link emulator ended: {message}$"):
            emulator.start()
        emulator.stop()
