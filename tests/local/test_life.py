"""Whatever a process has started ends with it, by SIGKILL too, at once."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from containernet_env.base import life
from containernet_env.hosts import nsexec
from containernet_env.setup.commands import CommandError, Commands

PROJECT = Path(__file__).resolve().parents[2]
GUARD = PROJECT / "containernet_env" / "setup" / "guard.py"
# Far more than it takes, and far less than the programs run.
AT_ONCE_S = 5.0

DRIVER = """
import sys, threading
from pathlib import Path
{imports}
threading.Thread(target=lambda: {call}, daemon=True).start()
sys.stdin.read()
"""


def start(imports: str, call: str) -> subprocess.Popen[bytes]:
    """A driver that calls something on a thread, and then waits."""
    code = DRIVER.format(imports=imports, call=call)
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, cwd=PROJECT)


def kill(driver: subprocess.Popen[bytes]) -> None:
    driver.kill()
    driver.wait()
    assert driver.stdin is not None
    driver.stdin.close()


def pid_in(fifo: Path) -> int:
    """A pidfd of the process that writes its pid into ``fifo``."""
    return os.pidfd_open(int(fifo.read_text()))


def has_ended(held: int, within_s: float = AT_ONCE_S) -> bool:
    return bool(select.select([held], [], [], within_s)[0])


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "pid"
    os.mkfifo(path)
    return path


def test_the_prober_ends_with_a_killed_driver(fifo: Path, tmp_path: Path) -> None:
    prober = tmp_path / "prober"
    # Watches the descriptor as the real one does (link_emulator/main_test.go), which is its third word.
    prober.write_text(f'#!/bin/sh\necho $$ >{fifo}\n[ "$1 $2" = "rtt --life-fd" ] && eval "read -r _ <&$3"\n')
    prober.chmod(0o755)
    driver = start(
        "from containernet_env.fidelity.rtt import ProbeHost, measure\n"
        "from containernet_env.model.topology import RttExpectation",
        "measure([ProbeHost('a', 1, '10.0.0.1'), ProbeHost('b', 1, '10.0.0.2')], [RttExpectation('a', 'b', 0, 0)],"
        f" binary=Path({str(prober)!r}))",
    )
    held = pid_in(fifo)
    assert not has_ended(held, 0.2)
    kill(driver)
    assert has_ended(held)
    os.close(held)


@pytest.mark.parametrize("script", ["sleep 60", "trap '' INT TERM HUP; while :; do sleep 60; done"])
@pytest.mark.parametrize("leader_only", [True, False])
def test_a_program_of_the_set_up_ends_with_a_killed_set_up(
    script: str, leader_only: bool, fifo: Path, tmp_path: Path
) -> None:
    driver = start(
        "from containernet_env.setup.commands import Commands, Ending",
        f"Commands().run(['sh', '-c', {f'echo $$ >{fifo}; {script}'!r}], Path({str(tmp_path / 'log')!r}), timeout_s=60,"
        f" ending=Ending(leader_only={leader_only}, grace_s=0.3))",
    )
    held = pid_in(fifo)
    assert not has_ended(held, 0.2)
    kill(driver)
    assert has_ended(held)
    os.close(held)


def test_a_program_that_takes_its_time_to_end_is_given_it(tmp_path: Path, fifo: Path) -> None:
    done = tmp_path / "done"
    script = f"trap 'sleep 0.3; echo ended >{done}; exit' INT; echo $$ >{fifo}; while :; do sleep 0.05; done"
    driver = start(
        "from containernet_env.setup.commands import Commands, Ending",
        f"Commands().run(['sh', '-c', {script!r}], Path({str(tmp_path / 'log')!r}), timeout_s=60,"
        " ending=Ending(leader_only=True, grace_s=20))",
    )
    held = pid_in(fifo)
    kill(driver)
    assert has_ended(held)
    assert done.read_text() == "ended\n"
    os.close(held)


@pytest.mark.parametrize(("script", "said"), [("exit 3", "exit status 3"), ("kill -TERM $$", "ended by SIGTERM")])
def test_a_guarded_program_is_told_by_its_own_end(script: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=said):
        Commands().run(["sh", "-c", script], tmp_path / "log", timeout_s=60)


@pytest.mark.parametrize("leader_only", [True, False])
def test_a_signal_reaches_the_guarded_program_once(leader_only: bool, tmp_path: Path, fifo: Path) -> None:
    caught = tmp_path / "caught"
    # A second one would end it before it has written.
    script = (
        f"trap 'trap - INT; sleep 0.3; echo once >{caught}; exit 0' INT; echo $$ >{fifo}; while :; do sleep 0.05; done"
    )
    words = [str(life.descriptor()), str(int(signal.SIGINT)), str(int(leader_only)), "5", "sh", "-c", script]
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD), *words], pass_fds=(life.descriptor(),), start_new_session=True
    )
    fifo.read_text()
    guard.send_signal(signal.SIGINT) if leader_only else os.killpg(guard.pid, signal.SIGINT)
    assert guard.wait(60) == 0
    assert caught.read_text() == "once\n"


def test_one_pipe_serves_all_children_and_none_inherits_it_unasked() -> None:
    ours = life.descriptor()
    assert life.descriptor() == ours
    assert not os.get_inheritable(ours)
    assert not select.select([ours], [], [], 0)[0]


def test_a_driver_that_ends_while_a_program_is_started_leaves_it_ended() -> None:
    """killpg of a child that has not yet a session of its own: ProcessLookupError, a traceback, the child went on."""
    read, write = os.pipe()
    os.close(write)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        nsexec._wait(child.pid, read)
        assert child.wait(60) == -signal.SIGKILL
    finally:
        os.close(read)
        child.kill()
        child.wait()
