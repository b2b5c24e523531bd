"""Link and process faults of one moment on the link emulator and a real process: all are carried out, none too early.

How close together they take effect is a figure of ``tests/measure/runs.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from containernet_env.runs.disruptor import at_once
from tests.deadline import eventually
from tests.root.network import PLAIN_HOSTS, apart, needs_emulator, reach, star

pytestmark = [*PLAIN_HOSTS, needs_emulator]

MS = 1_000_000


def test_faults_of_one_moment_are_all_carried_out_and_none_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        star("emulator", monkeypatch, hosts=4, bw=100) as net,
        subprocess.Popen(["sleep", "600"]) as process,
    ):
        hosts = net.hosts
        try:
            assert reach(*hosts)
            times: list[int] = []

            def kept(change: Callable[[], int]) -> Callable[[], None]:
                return lambda: times.append(change())

            # So many nanoseconds after a change that has been carried out.
            due_ns = net.set_rate("h3", "s1", 90) + 200 * MS
            links = [
                kept(lambda: net.link_down("h1", "s1")),
                kept(lambda: net.set_delay("h2", "s1", "10ms")),
                kept(lambda: net.set_rate("h3", "s1", 50)),
                kept(lambda: net.partition([["h4"], ["h2", "h3"]])),
            ]
            at_once(links, [lambda: os.kill(process.pid, signal.SIGSTOP)], True, due_ns)
            assert len(times) == 4 and min(times) >= due_ns
            eventually(lambda: state(process.pid) == "T", "the process is stopped")
            assert net.link_between("h2", "s1").read_back().a_to_b.delay_ns == 10 * MS
            assert net.link_between("h3", "s1").read_back().a_to_b.rate_bps == 50 * MS
            assert apart(hosts[0], hosts[1]) and apart(hosts[3], hosts[1])
            net.heal()
            net.link_up("h1", "s1")
            assert reach(*hosts)
        finally:
            process.kill()


def state(pid: int) -> str:
    """The letter of a process's state (proc_pid_stat(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
