"""The sampler on consumers of its own, and on this process: nobody waits for it, and nothing of it fails."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from containernet_env.base import clock
from containernet_env.model.usage import Consumers, Consumption, Usage
from containernet_env.usage import consumers as consumers_module
from containernet_env.usage.consumers import MachineUse, MemberUse
from containernet_env.usage.sampler import Sampler
from containernet_env.usage.window import Sample
from tests.simulated_time import World

pytestmark = pytest.mark.simulated(seeds=20)


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


def test_samples_are_kept_at_each_interval_and_edge() -> None:
    counting, kept = Counting(), list[Sample]()
    sampler = Sampler(counting, kept.append)
    sampler.start()
    World.current.wait(lambda: len(kept) >= 3)
    sampler.begin()
    World.current.wait(lambda: kept[-1].edge == "begin" or any(sample.edge for sample in kept))
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
    counting, stuck, entered = Counting(), clock.Event(), clock.Event()

    def keep(sample: Sample) -> None:
        entered.set()
        stuck.wait()

    sampler = Sampler(counting, keep)
    sampler.start()
    assert entered.wait()
    began_s = clock.monotonic()
    sampler.begin()
    usage = sampler.end()
    assert clock.monotonic() == began_s
    stuck.set()
    sampler.close()
    assert usage is not None and usage.used.machine == Consumption(cpu_ns=10**9)


def test_whatever_fails_a_scenario_goes_on() -> None:
    counting, kept = Counting(), list[Sample]()
    sampler = Sampler(counting, kept.append)
    counting.fail = MemoryError()
    sampler.start()
    sampler.begin()
    assert sampler.end() is None
    World.current.wait(lambda: counting.looks > 5)
    counting.fail = None
    World.current.wait(lambda: kept)
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

    sampler = Sampler(counting, keep)
    sampler.start()
    World.current.wait(lambda: len(told) > 3)
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
