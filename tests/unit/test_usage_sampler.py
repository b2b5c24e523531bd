"""The sampler on consumers of its own, and on this process: nobody waits for it, and nothing of it fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from containernet_env.model.usage import Consumers, Consumption, Usage
from containernet_env.usage import consumers as consumers_module
from containernet_env.usage.consumers import AllUse, ContainerUse, MachineUse, MemberUse, Pids, ProcessUse
from containernet_env.usage.groups import Group
from containernet_env.usage.processes import Process
from containernet_env.usage.sampler import Sampler
from containernet_env.usage.window import Sample
from tests.unit.descriptors import open_descriptors


class Counting:
    """Consumers of which the machine has used one second more at each look."""

    def __init__(self) -> None:
        self.looks = 0
        self.closed = False
        self.fail: Exception | None = None

    def read(self) -> Consumers:
        self.looks += 1
        if self.fail is not None:
            raise self.fail
        return Consumers(machine=Consumption(cpu_ns=self.looks * 10**9))

    def close(self) -> None:
        self.closed = True


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_samples_are_kept_at_each_interval_and_edge() -> None:
    counting, kept = Counting(), list[Sample]()
    sampler = Sampler(counting, kept.append, interval_s=0.01)
    sampler.start()
    until(lambda: len(kept) >= 3)
    sampler.begin()
    until(lambda: kept[-1].edge == "begin" or any(sample.edge for sample in kept))
    usage = sampler.end()
    sampler.close()
    assert counting.closed
    edges = [sample for sample in kept if sample.edge is not None]
    assert [sample.edge for sample in edges] == ["begin", "end"]
    assert isinstance(usage, Usage) and usage.window_ns == edges[1].at_ns - edges[0].at_ns
    first, last = (sample.consumers.machine for sample in edges)
    assert first and last and usage.used.machine
    assert usage.used.machine.cpu_ns == (last.cpu_ns or 0) - (first.cpu_ns or 0)
    assert sorted(kept, key=lambda sample: sample.at_ns) == kept


def test_edges_are_sampled_at_once_also_while_nothing_is_kept() -> None:
    """A disk that takes nothing holds up the sampler's thread, and no scenario."""
    counting, stuck, entered = Counting(), threading.Event(), threading.Event()

    def keep(sample: Sample) -> None:
        entered.set()
        stuck.wait(20)

    sampler = Sampler(counting, keep, interval_s=0.01)
    sampler.start()
    assert entered.wait(10)
    began = time.monotonic()
    sampler.begin()
    usage = sampler.end()
    took = time.monotonic() - began
    stuck.set()
    sampler.close()
    assert usage is not None and usage.used.machine == Consumption(cpu_ns=10**9)
    assert took < 5, f"{took:.3f} s"


def test_whatever_fails_a_scenario_goes_on() -> None:
    counting, kept = Counting(), list[Sample]()
    sampler = Sampler(counting, kept.append, interval_s=0.005)
    counting.fail = MemoryError()
    sampler.start()
    sampler.begin()
    assert sampler.end() is None
    until(lambda: counting.looks > 5)
    counting.fail = None
    until(lambda: kept)
    sampler.begin()
    counting.fail = OSError(24, "Too many open files")
    assert sampler.end() is None
    assert sampler.end() is None, "no window has begun"
    sampler.close()


def test_what_cannot_be_kept_ends_nothing() -> None:
    counting, told = Counting(), list[Sample]()

    def keep(sample: Sample) -> None:
        told.append(sample)
        raise RuntimeError("full")

    sampler = Sampler(counting, keep, interval_s=0.005)
    sampler.start()
    until(lambda: len(told) > 3)
    sampler.close()


def test_without_a_thread_the_edges_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    counting, kept = Counting(), list[Sample]()
    sampler = Sampler(counting, kept.append)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    sampler.start()
    sampler.begin()
    assert sampler.end() is not None
    sampler.close()
    assert counting.closed


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
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def test_a_process_is_read(child: subprocess.Popen[bytes]) -> None:
    use = ProcessUse(child.pid)
    seen = use.read()
    assert seen is not None
    assert seen.cpu_ns is not None and seen.cpu_ns >= 150_000_000
    assert seen.user_ns is not None and seen.system_ns is not None
    assert abs(seen.user_ns + seen.system_ns - seen.cpu_ns) <= 30_000_000, "both count the same"
    # The thread that has ended before the first look is in the CPU time of the process alone.
    assert seen.threads_cpu_ns is not None and 100_000_000 <= seen.threads_cpu_ns <= seen.cpu_ns - 50_000_000
    assert seen.context_switches is not None and seen.context_switches > 0 and seen.run_delay_ns is not None
    assert seen.rss_bytes is not None and 30 << 20 <= seen.rss_bytes <= 200 << 20
    assert seen.memory_bytes is None and seen.sent_bytes is None and seen.steal_ns is None
    child.kill()
    child.wait()
    assert use.read() is None
    use.close()


def test_another_process_with_its_number_is_never_read(child: subprocess.Popen[bytes]) -> None:
    process = Process(child.pid)
    assert process.ticks() and process.rss_bytes() and process.cgroup()
    child.kill()
    child.wait()
    assert process.ticks() is None and process.rss_bytes() is None and process.disk_bytes() is None
    assert process.traffic() is None and process.cgroup() is None
    process.close()
    gone = Process(child.pid)
    assert gone.rss_bytes() is None and gone.threads() is None
    gone.close()


def test_threads_that_end_go_on_counting() -> None:
    process = Process(os.getpid())
    running, over = threading.Event(), threading.Event()

    def burn() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        running.set()
        over.wait(10)

    thread = threading.Thread(target=burn)
    thread.start()
    assert running.wait(10)
    before = process.threads()
    over.set()
    thread.join()
    until(lambda: str(thread.native_id) not in os.listdir("/proc/self/task"))
    after = process.threads()
    assert before is not None and after is not None
    assert all(b >= a for a, b in zip(before, after, strict=True)), (before, after)
    process.close()


def open_files() -> list[str]:
    """Of the kernel's, those that this process holds open."""
    return sorted(path for _, path in open_descriptors() if path.startswith(("/proc/", "/sys/")))


def test_who_looks_holds_no_network_namespace_and_no_file_once_closed(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert both is not None and both.threads_cpu_ns is not None and both.rss_bytes is not None
    assert [path for path in open_files() if path.startswith(f"/proc/{os.getpid()}/task/")]
    living["pids"] = (child.pid,)
    one = use.read()
    assert not [path for path in open_files() if path.startswith(f"/proc/{os.getpid()}/task/")]
    assert one is not None and one.threads_cpu_ns is not None and one.rss_bytes is not None
    assert one.rss_bytes < both.rss_bytes
    assert one.threads_cpu_ns >= both.threads_cpu_ns, "what a program that has ended used is not given back"
    assert (one.written_bytes or 0) >= (both.written_bytes or 0)
    child.kill()
    child.wait()
    assert use.read() is None
    use.close()


def test_a_machine_is_read(tmp_path: Path) -> None:
    machine = MachineUse()
    seen = machine.read()
    assert seen.cpu_ns and seen.user_ns and seen.system_ns and seen.context_switches and seen.rss_bytes
    assert seen.cpu_ns == seen.user_ns + seen.system_ns
    assert seen.steal_ns is not None
    machine.close()
    nothing = MachineUse(tmp_path, tmp_path / "block")
    assert nothing.read() == Consumption()
    nothing.close()


def test_a_process_that_is_put_into_another_cgroup_is_told_of_that_one(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    class FakeGroup:
        def __init__(self, throttled_ns: int) -> None:
            self.throttled_ns = throttled_ns

        def throttling(self) -> dict[str, int | None]:
            return {"throttled_ns": self.throttled_ns, "throttled_periods": 1}

        def close(self) -> None:
            pass

    groups = iter([FakeGroup(5), FakeGroup(70)])
    where = iter([b"0::/a\n", b"0::/a\n", b"0::/b\n"])
    monkeypatch.setattr(consumers_module, "_group_of", lambda pid: next(groups))
    monkeypatch.setattr(Process, "cgroup", lambda self: next(where))
    use = ProcessUse(child.pid)
    looks = [use.read() for _ in range(3)]
    assert [look and look.throttled_ns for look in looks] == [5, 5, 70]
    use.close()


def test_a_member_that_was_started_again_goes_on_from_what_it_had_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counters began at 0 again, so that nobody knew what it had used."""
    seen: dict[int, list[Consumption | None]] = {
        1: [Consumption(cpu_ns=5, rss_bytes=70), Consumption(cpu_ns=9, rss_bytes=80, reads=3), None],
        2: [Consumption(cpu_ns=2, rss_bytes=10, reads=4), Consumption(cpu_ns=4, rss_bytes=20)],
    }
    closed: list[int] = []

    class Scripted:
        def __init__(self, pid: int) -> None:
            self.pid = pid

        def read(self) -> Consumption | None:
            return seen[self.pid].pop(0) if seen[self.pid] else None

        def close(self) -> None:
            closed.append(self.pid)

    monkeypatch.setattr(consumers_module, "ContainerUse", Scripted)
    pid = [1]
    member = MemberUse(1, lambda: pid[0])
    assert member.read() == Consumption(cpu_ns=5, rss_bytes=70)
    assert member.read() == Consumption(cpu_ns=9, rss_bytes=80, reads=3)
    assert member.read() is None
    assert closed == []
    pid[0] = 2
    assert member.read() == Consumption(cpu_ns=11, rss_bytes=10, reads=7)
    assert member.read() == Consumption(cpu_ns=13, rss_bytes=20)
    assert closed == [1]
