"""Processes, containers and the machine as the kernel counts them: what is read, held open and let go of."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from containernet_env.hosts.counters import AllUse, ContainerUse, DriverUse, Group, Pids, Process, ProcessUse
from containernet_env.model.usage import Consumption
from tests.deadline import eventually
from tests.unit.descriptors import open_descriptors

BUSY = """
import sys, threading, time
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
thread = threading.Thread(target=burn, args=(0.05,))
thread.start(); thread.join()
burn(0.1)
held = bytearray(30 << 20)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def test_a_process_is_read_and_another_one_with_its_number_never(child: subprocess.Popen[bytes]) -> None:
    use, process = ProcessUse(child.pid), Process(child.pid)
    seen = use.read()
    assert seen.cpu_ns is not None and seen.cpu_ns >= 150_000_000
    assert seen.user_ns is not None and seen.system_ns is not None
    assert abs(seen.user_ns + seen.system_ns - seen.cpu_ns) <= 30_000_000, "both count the same"
    # The thread that has ended before the first look is in the CPU time of the process alone.
    assert seen.threads_cpu_ns is not None and 100_000_000 <= seen.threads_cpu_ns <= seen.cpu_ns - 50_000_000
    assert seen.context_switches is not None and seen.context_switches > 0 and seen.run_delay_ns is not None
    assert seen.rss_bytes is not None and 30 << 20 <= seen.rss_bytes <= 200 << 20
    assert seen.memory_bytes is None and seen.sent_bytes is None and seen.steal_ns is None
    assert process.times() and process.rss_bytes() and process.cgroup()
    child.kill()
    child.wait()
    gone = Process(child.pid)
    reads = (use.read, process.times, process.rss_bytes, process.disk_bytes, process.traffic, process.cgroup)
    assert [read() for read in (*reads, gone.rss_bytes, gone.threads)] == [None] * 8
    for held in (use, process, gone):
        held.close()


def test_threads_that_end_go_on_counting() -> None:
    process = Process(os.getpid())
    running, over = threading.Event(), threading.Event()

    def burn() -> None:
        sum(range(1_000_000))
        running.set()
        over.wait(60)

    thread = threading.Thread(target=burn)
    thread.start()
    assert running.wait(60)
    before = process.threads()
    over.set()
    thread.join()
    eventually(lambda: str(thread.native_id) not in os.listdir("/proc/self/task"), "the thread has ended")
    after = process.threads()
    assert all(b >= a for a, b in zip(before, after, strict=True)), (before, after)
    process.close()


def open_files() -> list[str]:
    """Of the kernel's, those that this process holds open."""
    return sorted(path for _, path in open_descriptors() if path.startswith(("/proc/", "/sys/")))


def test_who_looks_holds_no_network_namespace(child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of /proc/PID/net that stays open keeps the interfaces of a host that has ended."""
    monkeypatch.setattr(Group, "pids", lambda self: (child.pid, os.getpid()))
    before = open_files()
    use = AllUse(Pids({"a": child.pid}, child.pid, child.pid, os.getpid()))
    seen = use.read()
    assert seen.members["a"].sent_bytes is not None
    held = [path for path in open_files() if f"/{child.pid}/" in path]
    assert held and not [path for path in held if "/net" in path], held
    use.close()
    use.close()
    assert open_files() == before


def test_a_container_is_all_its_processes(child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's host: a server, and a program for each benchmark that comes and goes."""
    living = {"pids": (child.pid, os.getpid())}
    monkeypatch.setattr(Group, "pids", lambda self: living["pids"])
    use = ContainerUse(child.pid)
    both = use.read()
    before = len(open_files())
    living["pids"] = (child.pid,)
    one = use.read()
    assert len(open_files()) < before, "those of the program that has ended are closed"
    assert one.rss_bytes < both.rss_bytes
    assert one.threads_cpu_ns >= both.threads_cpu_ns, "what a program that has ended used is not given back"
    assert (one.written_bytes or 0) >= (both.written_bytes or 0)
    child.kill()
    child.wait()
    assert use.read() is None
    use.close()


def test_disk_emulators_count_as_the_driver(child: subprocess.Popen[bytes]) -> None:
    """Else a row says that programs which are not of the run took the cores."""
    disks = [child.pid]
    alone, use = DriverUse(os.getpid(), tuple), DriverUse(os.getpid(), lambda: disks)
    both, own = use.read(), alone.read()
    assert both is not None and own is not None and both.rss_bytes and own.rss_bytes
    assert both.rss_bytes > own.rss_bytes and (both.cpu_ns or 0) > 0
    with closing(ProcessUse(child.pid)) as one:
        eventually(lambda: (one.read() or Consumption()).cpu_ns, "it has used CPU time")
    last = use.read()
    held = len(open_files())
    use.read()
    assert len(open_files()) == held, "each reading uses the same files"
    child.kill()
    child.wait()
    disks.clear()
    ended = use.read()
    assert not [path for path in open_files() if f"/{child.pid}/" in path], "its files are closed"
    assert last is not None and ended is not None and (last.cpu_ns or 0) <= (ended.cpu_ns or 0), "nothing is given back"
    alone.close()
    use.close()
