"""The shell protocol on this machine's own sh and bash, without a container."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.containernet.docker import ContainerHost
from containernet_env.containernet.live_links import LiveLinks
from containernet_env.hosts.processes import SENTINEL, Shell, User, find_user
from tests.deadline import eventually

PASSWD = "root:x:0:0:root:/root:/bin/sh\netcd:x:101:102:etcd:/var/lib/etcd:/bin/false\n"
GROUP = "root:x:0:\netcd:x:102:\ndata:x:300:other,etcd\n"

# What nsexec does with a terminal and descriptors, without entering anything.
_STARTER = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
commands, statuses = (fcntl.fcntl(int(number), fcntl.F_DUPFD_CLOEXEC, 64) for number in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(statuses, 4)
os.environ["PATH"] = sys.argv[3]
os.execvp(sys.argv[4], sys.argv[4:])
"""

AGAIN_S = 0.1
"""So often Ctrl-C is pressed where one may be lost."""


class LocalProcesses:
    """Runs the shell on this machine, with the programs of ``folder`` alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def argv(self, argv: Sequence[str], *, tty: bool, descriptors: Mapping[int, int]) -> list[str]:
        assert tty
        return [sys.executable, "-c", _STARTER, str(descriptors[3]), str(descriptors[4]), str(self.folder), *argv]


def programs_of(folder: Path, shell: str) -> LocalProcesses:
    """An image whose sh is dash, with or without bash besides, or busybox."""
    wanted = {"sleep": "sleep", "cat": "cat", "sh": "dash", **({"sh": shell} if shell == "busybox" else {shell: shell})}
    for name, program in wanted.items():
        if (found := shutil.which(program)) is None:
            pytest.skip(f"{program} is not on this machine")
        (folder / name).symlink_to(found)
    return LocalProcesses(folder)


@pytest.fixture(params=["dash", "bash", "busybox"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    processes: Any = programs_of(tmp_path, request.param)
    started = Shell(processes, request.param)
    yield started
    started.close()


def finish(shell: Shell, said: str = "") -> tuple[int, str]:
    while not said.endswith(SENTINEL):
        said += shell.read().decode()
    return shell.status(), said.rstrip(SENTINEL).replace("\r\n", "\n")


def run(shell: Shell, command: str) -> tuple[int, str]:
    shell.send(command)
    return finish(shell)


def until_ready(shell: Shell, command: str) -> str:
    """What it has printed once the command has said that it is ready."""
    shell.send(f"echo ready; {command}")
    said = ""
    while "ready" not in said:
        said += shell.read().decode()
    return said


LINES = "x=$(printf 'a\\tb')\ncat <<'END'\nit's \\n \"quoted\"\nEND\necho $x"


def test_output_status_and_state_from_command_to_command(shell: Shell) -> None:
    for command, expected in (
        ("echo out; echo err >&2", (0, "out\nerr\n")),
        ("false", (1, "")),
        ("(exit 42)", (42, "")),
        (":", (0, "")),
        ("cd /tmp; X=5; f() { echo f; }", (0, "")),
        ("pwd; echo $X; f", (0, "/tmp\n5\nf\n")),
        ("(exit 3)", (3, "")),
        ("echo $?", (0, "3\n")),
        (LINES, (0, 'it\'s \\n "quoted"\na b\n')),
        (f"z={'y' * 20_000}; echo ${{#z}}", (0, "20000\n")),
    ):
        assert run(shell, command) == expected, command[:80]
    status, said = run(shell, "if ; then")
    assert status == 2 and "yntax error" in said
    assert run(shell, "echo alive") == (0, "alive\n")
    said = until_ready(shell, "read line; echo got $line")
    os.write(shell.terminal, b"hello\n")  # what is typed goes to the running command
    assert finish(shell, said) == (0, "ready\ngot hello\n")


BASH = (
    ("for i in {1..3}; do echo -n $i; done", (0, "123")),
    ("[[ $RANDOM =~ ^[0-9]+$ ]] && a=(x y) && echo ${a[1]} <<<here", (0, "y\n")),
    ("alias hi='echo hi'", (0, "")),
    ("hi", (0, "hi\n")),
    ("sleep 60 & echo begun >&2", (0, "[1] N\nbegun\n")),
    ("jobs", (0, "[1]+  Running                 sleep 60 &\n")),
    ("kill %1", (0, "")),
    ("wait %1", (143, "")),
    # What ends in the background is not reported in a later command's output.
    ("sleep 60 & kill -9 %1", (0, "[1] N\n")),
    ("wait; sleep 0.01; echo after", (0, "after\n")),
    ("echo ${unset:?no value}", (1, "bash: unset: no value\n")),
)


@pytest.mark.parametrize("shell", ["bash"], indirect=True)
def test_it_is_bash_with_jobs_where_there_is_one(shell: Shell) -> None:
    """Brace expansion printed {1..3}, $RANDOM was empty, and `kill %1` ended nothing: it was the image's sh."""
    for command, (status, said) in BASH:
        found, printed = run(shell, command)
        assert (found, re.sub(r"^\[1\] \d+$", "[1] N", printed, flags=re.M)) == (status, said), command


@pytest.mark.parametrize(
    "command",
    [
        "while :; do sleep 60; done; echo not reached",
        "sleep 60; echo not reached",
        "for x in 1 2 3; do while :; do sleep 60; done; done; echo not reached",
        "{ sleep 60; echo not reached; } && echo not reached",
        "sleep 60\necho not reached",
        "read line; echo not reached",
    ],
)
def test_an_interrupt_leaves_lists_and_loops_too(shell: Shell, command: str) -> None:
    said = until_ready(shell, command)
    finished = threading.Event()

    def interrupt() -> None:
        # A single one can be lost, as in every shell, when it meets a program that is just being started.
        while not finished.wait(AGAIN_S):
            os.write(shell.terminal, b"\x03")

    thread = threading.Thread(target=interrupt)
    thread.start()
    status, said = finish(shell, said)
    finished.set()
    thread.join()
    assert status == 130
    if shell._name != "busybox":
        assert "not reached" not in said
    assert run(shell, "echo alive; (exit 5)") == (5, "alive\n")
    assert run(shell, "echo $?") == (0, "5\n")


class LocalPrograms(ContainerHost):
    """A host whose programs run on this machine."""

    @property
    def processes(self) -> Any:
        return LocalProcesses(Path("/bin"))


@contextmanager
def limited() -> Iterator[None]:
    """Fails the test where a `monitor` ignores its time limit."""
    previous = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("monitor() keeps no time limit"))
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def test_monitor_returns_when_its_time_is_over_though_nothing_was_printed() -> None:
    """It waited for the next output: 60 s for a `sleep 60` that missed its interrupt."""
    host = LocalPrograms("local")
    try:
        host.sendCmd("echo ready; read line; echo got $line")
        said = ""
        while "ready\r\n" not in said:
            said += host.monitor(5000)
        with limited():
            assert host.monitor(10) == ""
        assert host.waiting
        host.write("hello\n")
        assert host.waitOutput() == "got hello\r\n"
        host.sendCmd("echo -n par; read line; echo tial; echo next")
        while host.readbuf != "par":
            assert host.readline() is None
        host.write("\n")
        lines: list[str] = []
        while len(lines) < 2:
            lines += filter(None, [host.readline()])
        assert lines == ["partial\r", "next\r"] and host.waitOutput() == ""
        assert host.last_status == 0
    finally:
        host.release()


def test_the_networks_monitor_reads_several_hosts_line_by_line(tmp_path: Path) -> None:
    """It spun without ever giving (None, None), failed where a host had no shell yet, and held lines back."""
    one, two, idle = hosts = [LocalPrograms(name) for name in ("one", "two", "idle")]
    net = LiveLinks()
    net.hosts = hosts
    try:
        assert next(net.monitor(timeoutms=0)) == (None, None) and list(net.monitor()) == []
        one.sendCmd("echo a; echo b; read line; echo $line; echo -n end; (exit 3)")
        two.sendCmd("read line; echo two")
        assert [line for _, line in islice(net.monitor([one, two]), 2)] == ["a\r", "b\r"]
        with limited():
            assert list(islice(net.monitor(timeoutms=1), 2)) == [(None, None)] * 2
        two.write("\n")
        assert next(net.monitor(timeoutms=-1)) == (two, "two\r")
        one.write("c\n")
        # Ends by itself when both have ended; the last line has no line end.
        assert list(net.monitor()) == [(one, "c\r"), (one, "end")]
        assert [one.waiting, two.waiting, one.last_status, two.last_status] == [False, False, 3, 0]
        # What is left after a `break`, and a job in the background.
        one.sendCmd("echo d; echo e")
        assert next(net.monitor()) == (one, "d\r") and one.waitOutput() == "e\r\n"
        os.mkfifo(fifo := tmp_path / "fifo")
        two.cmd(f"cat {fifo} &")
        fifo.write_text("job\n")
        assert next(net.monitor()) == (two, "job\r") and idle.stdout is None
        two.sendCmd("read line")
        two.release()
        assert list(net.monitor()) == []
    finally:
        for host in hosts:
            host.release()


def test_an_interrupt_that_crosses_the_end_of_its_command_confuses_nobody(shell: Shell) -> None:
    def reads() -> bool:
        """Whether it sleeps in a read of its standard input while that is the pipe of its commands; busybox in a poll.

        A signal that strikes a shell just before that call is handled only after it: no shell can do better.
        """
        process = Path(f"/proc/{shell.process.pid}")
        call = (process / "syscall").read_text().split()
        sleeps = len(call) > 3 and (call[1] == "0x0" or call[2:4] == ["0x1", "0xffffffff"])
        return sleeps and os.readlink(process / "fd" / "0").startswith("pipe:")

    run(shell, "echo before")
    eventually(reads, "the shell waits for a command")
    os.write(shell.terminal, b"\x03")
    # It is answered although nobody asked; the next command drops that answer.
    assert select.select([shell.terminal], [], [], 60)[0]
    assert run(shell, "echo alive; (exit 3)") == (3, "alive\n")
    assert run(shell, "echo $?") == (0, "3\n")


def test_its_end_reads_as_the_end_of_the_command_and_no_shell_is_an_error_that_says_why(shell: Shell) -> None:
    assert run(shell, "exit 7") == (7, "")
    shell.process.wait(60)
    assert not shell.alive
    with pytest.raises(RunError, match="has ended"):
        run(shell, "echo too late")
    processes: Any = LocalProcesses(Path("/nonexistent"))
    with pytest.raises(RunError, match="no shell could be started"):
        Shell(processes, "local")


def test_the_images_user() -> None:
    etcd = User(101, 102, "/var/lib/etcd", (102, 300))
    for asked, user in (
        ("", User(0, 0, "/root", (0,))),
        ("root", User(0, 0, "/root", (0,))),
        ("etcd", etcd),
        ("101", etcd),
        ("etcd:data", User(101, 300, "/var/lib/etcd", (300,))),
        ("1234", User(1234, 0, "/", (0,))),
        ("1234:77", User(1234, 77, "/", (77,))),
    ):
        assert find_user(asked, PASSWD, GROUP) == user, asked
    assert find_user("", "", "") == User(0, 0, "/root", (0,)), "an image without accounts"
    for asked, passwd, group in (("etcd", "", ""), ("root:nogroup", PASSWD, GROUP)):
        with pytest.raises(RunError, match=f"'{asked.rpartition(':')[2]}'"):
            find_user(asked, passwd, group)
