"""A network that goes while a run is on: the run stops at once and says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from containernet_env.hosts import engine, netns
from tests.docker.conftest import COMMAND
from tests.docker.machine_state import left_over, snapshot
from tests.docker.test_endings import CONFIG, end, rows, start

pytestmark = pytest.mark.docker

T = TypeVar("T")

DIED = "the link emulator ended: killed by SIGKILL"
# From the kill to the last row and to the end of the process, tear-down included; a fraction of a second and one of
# these seconds on an idle machine.
ROWS_WITHIN_S, END_WITHIN_S = 2.0, 8.0


@pytest.fixture(autouse=True)
def unchanged_machine() -> Iterator[None]:
    """Fails the test if anything is on the machine afterwards that was not there before."""
    before = snapshot()
    yield
    assert left_over(before) == {}


@contextmanager
def running(scenarios: Path, out: Path, config: Path = CONFIG, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A run that ends with the test, whatever becomes of it."""
    run = start(scenarios, out, config, *options)
    try:
        yield run
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGTERM)
            end(run)


def child(parent: int, *words: str) -> int | None:
    """The process that ``parent`` has started with these words in its command line, while it runs."""
    for thread in Path(f"/proc/{parent}/task").glob("*/children"):
        for pid in _text(thread).split():
            command = _text(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")
            if all(word in command for word in words):
                return int(pid)
    return None


def _text(path: Path) -> str:
    """What a file of /proc says; nothing where its thread or process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def wait_for(condition: Callable[[], T | None], deadline_s: float = 40) -> T:
    """What the condition gives, once that is true."""
    deadline = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.005)
    return found


def kill_emulator(run: subprocess.Popen[str]) -> float:
    """Kill the link emulator of a run; when (monotonic, seconds)."""
    pid = child(run.pid, "link-emulator", "serve")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return time.monotonic()


def requests_are_answered() -> bool:
    """Whether the benchmark server is in the middle of a scenario."""
    try:
        with urllib.request.urlopen("http://127.0.0.1:18080/progress", timeout=5) as answer:
            progress = json.load(answer)
    except OSError:
        return False
    return bool(progress["running"]) and progress["done"] > 0


def test_in_the_middle_of_a_scenario(long: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with running(long, out) as run:
        wait_for(requests_are_answered)
        killed = kill_emulator(run)
        wait_for(lambda: len(rows(out)) == 2)
        took_s = time.monotonic() - killed
        output = end(run)
        ended_s = time.monotonic() - killed
        assert run.returncode == 1, output
        first, following = (row["Error"] for row in rows(out))
        assert first.startswith(DIED), first
        assert following == f"not run: {DIED}"
        assert took_s < ROWS_WITHIN_S, f"rows after {took_s:.2f} s"
        assert ended_s < END_WITHIN_S, f"ended after {ended_s:.2f} s"


def test_an_interface_that_is_deleted_under_a_living_member(long: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with running(long, out) as run:
        wait_for(requests_are_answered)
        (member,) = [container for container in engine.list_ours() if container.name.endswith("-etcd2")]
        pid = engine.client().api.inspect_container(member.id)["State"]["Pid"]
        netns.run(pid, ["ip", "link", "delete", "dev", "etcd2-eth0"])
        wait_for(lambda: len(rows(out)) == 2, deadline_s=ROWS_WITHIN_S)
        output = end(run)
        assert run.returncode == 1, output
        first, following = (row["Error"] for row in rows(out))
        assert first.startswith("the network lost a host that lives: etcd2-eth0: interface "), first
        assert following.startswith("not run: the network lost a host that lives: etcd2-eth0"), following


def test_while_the_network_is_proved(long: Path, tmp_path: Path) -> None:
    with running(long, tmp_path / "out.csv") as run:
        wait_for(lambda: child(run.pid, "link-emulator", "probe"))
        killed = kill_emulator(run)
        output = end(run)
        took_s = time.monotonic() - killed
        assert run.returncode == 1, output
        assert DIED in output
        assert took_s < 4.0, f"ended after {took_s:.2f} s: the prober alone waits for 5 s"


def test_while_the_cluster_starts(long: Path, tmp_path: Path) -> None:
    with running(long, tmp_path / "out.csv") as run:
        assert run.stdout is not None
        while "network" not in run.stdout.readline():
            assert run.poll() is None, "the network did not come up"
        killed = kill_emulator(run)
        output = end(run)
        took_s = time.monotonic() - killed
        assert run.returncode == 1, output
        assert DIED in output
        assert took_s < END_WITHIN_S, f"ended after {took_s:.2f} s"


def test_in_the_shell() -> None:
    lines = [
        "sh E=$(pgrep -P $PPID -x link-emulator); kill -9 $E; while kill -0 $E 2>/dev/null; do :; done",
        "etcd1 echo not reached",
    ]
    options = [word for line in lines for word in ("-c", line)]
    argv = [str(COMMAND), "shell", str(CONFIG), "--port", "18080", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"error: {DIED}; the network is gone" in done.stderr
    assert "not reached" not in done.stdout
