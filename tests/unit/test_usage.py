"""What was used: what is read of the kernel's files, by whom, how often, and what is known between two samples.

The kernel's texts were recorded on cgroup v1 (Linux 6.18) and v2 (Linux 6.1).
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from containernet_env.base import clock
from containernet_env.hosts import counters
from containernet_env.hosts.counters import Group, KeptFiles, MachineUse, MemberUse
from containernet_env.hosts.limits import Cgroups
from containernet_env.hosts.sampler import Sample, Sampler, Window
from containernet_env.model.usage import NAMES, Consumers, Consumption, Usage, difference
from tests.simulated_time import World

S = 10**9

PROC_STAT = b"""cpu  1729151 26405 510376 2378543 29293 7 42480 2237 11 12
cpu0 765681 10381 241321 1309662 9890 0 17085 1117 0 0
cpu1 963470 16024 269054 1068880 19402 0 25394 1119 0 0
intr 94293214 0 0 0 1 1 15 0 4793 1809
ctxt 245965228
btime 1794800000
"""
NET_DEV = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 116043798916 67496022    0    0    0     0          0         0 116043798916 67496022    0    0    0     0       0          0
  a1b2c3e0: 4266269554  113125    0    3    0     0          0         0  7071409   68042    0    0    0     0       0          0
  eth1:       5       4    0    0    0     0          0         0        3       2    0    2    0     0       0          0
"""  # noqa: E501 - as the kernel writes it
DISKSTATS = b"""   7       0 loop0 9 9 9 9 9 9 9 9 9 9 9 0 0 0 0 0 0
 254       0 vda 5804181 826247 254500602 6964443 6255149 2255753 135412064 1508838 0 860720 8761418 1732280 260 881828392 150233 1785726 137902
 254       1 vda1 5804181 826247 254500602 6964443 6255149 2255753 135412064 1508838 0 860720 8761418 1732280 260 881828392 150233 1785726 137902
 259       0 nvme0n1 1 0 8 1 2 0 16 1 0 1 1
"""  # noqa: E501
PRESSURE = b"some avg10=5.40 avg60=9.42 avg300=13.79 total=4943136437\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
V2_IO = b"254:0 rbytes=90112 wbytes=299008 rios=5 wios=43 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2 rios=3 wios=4\n"
V2_DISK = {"read_bytes": 90113, "written_bytes": 299010, "reads": 8, "writes": 47}
MEMINFO = b"MemTotal:       24650272 kB\nMemFree:          843172 kB\nMemAvailable:   23899620 kB\nBuffers: 12 kB\n"


TICK, PAGE = counters.TICK_NS, counters.PAGE_BYTES


def test_numbers_are_those_of_the_texts() -> None:
    user, system = 1729151 + 26405, 510376 + 7 + 42480
    times = {"cpu_ns": (user + system) * TICK, "user_ns": user * TICK, "system_ns": system * TICK}
    times["steal_ns"] = 2237 * TICK
    assert counters.machine_times(PROC_STAT) == times | {"context_switches": 245965228}
    assert counters.machine_times(PROC_STAT.partition(b"ctxt")[0]) == times
    # A program may be called anything.
    stat = b"24336 (a) R 1 (x y) S 24332 24332 18729 0 -1 4194304 102 0 0 0 17 23 5 6 20 0 1 0 2396683 3133440 357 1"
    assert counters.process_times(stat) == {"user_ns": 17 * TICK, "system_ns": 23 * TICK}
    # Interfaces but the loopback are added; disks are counted once.
    assert list(counters.traffic(NET_DEV).values()) == [4266269559, 113129, 7071412, 68044]
    assert set(counters.traffic(b"".join(NET_DEV.splitlines(keepends=True)[:3])).values()) == {0}
    found = counters.disk_use(DISKSTATS, {b"vda", b"nvme0n1"})
    assert list(found.values()) == [(254500602 + 8) * 512, (135412064 + 16) * 512, 5804182, 6255151]
    assert counters.group_disk_use(V2_IO) == V2_DISK
    assert counters.thread_times((0, 0, 0), [b"35891192 3980015 127\n", b"1 2 3\n"]) == (35891193, 3980017, 130)
    assert counters.thread_times((10, 20, 30), []) == (10, 20, 30)
    assert counters.pressure_ns(PRESSURE) == 4943136437000
    assert counters.resident_bytes(b"765 357 300 5 0 100 0\n") == 357 * PAGE
    assert counters.memory_in_use_bytes(MEMINFO) == (24650272 - 23899620) * 1024
    assert counters.counters(b"rchar: 6976\nread_bytes: 12\ncancelled_write_bytes: 3\n")[b"read_bytes:"] == 12


def test_other_forms_are_no_numbers() -> None:
    def threads(text: bytes) -> object:
        return counters.thread_times((0, 0, 0), [text])

    of_process = (threads, counters.process_times, counters.resident_bytes)
    for parse in (*of_process, counters.pressure_ns, counters.machine_times, counters.memory_in_use_bytes):
        for text in (b"", b"x", b"nonsense x\n", b"\xff\xfe"):
            with pytest.raises(ValueError):
                parse(text)


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


V2_FILES = {
    "cpu.stat": "usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnr_periods 9\nnr_throttled 4\nthrottled_usec 700\n",
    "memory.current": "4096\n",
    "io.stat": V2_IO.decode(),
    "cpu.pressure": PRESSURE.decode(),
    "io.pressure": PRESSURE.decode().replace("4943136437", "5"),
    "memory.pressure": PRESSURE.decode().replace("4943136437", "6"),
    "cgroup.procs": "12\n13\n",
}


def test_a_group_of_v2(tmp_path: Path) -> None:
    group = Group(Cgroups({}, write(tmp_path, V2_FILES)))
    throttling = {"throttled_ns": 700_000, "throttled_periods": 4}
    assert group.cpu() == {"cpu_ns": 5_000_000, "user_ns": 3_000_000, "system_ns": 2_000_000, **throttling}
    assert group.throttling() == throttling
    assert (group.memory_bytes(), group.disk_use(), group.pids()) == (4096, V2_DISK, (12, 13))
    assert group.pressures() == {"cpu_pressure_ns": 4943136437000, "memory_pressure_ns": 6000, "io_pressure_ns": 5000}
    group.close()
    # One without a limit is not throttled, and of one without a counter nothing is known.
    nothing, bare = Group(Cgroups({}, None)), Group(Cgroups({}, write(tmp_path / "b", {"cpu.stat": "usage_usec 5\n"})))
    assert set(nothing.cpu().values()) == set(bare.pressures().values()) == {None}
    assert bare.cpu() == nothing.cpu() | {"cpu_ns": 5000}
    assert (bare.memory_bytes(), bare.disk_use(), bare.pids()) == (None, None, ())
    bare.close()


def test_groups_of_v1_with_a_hierarchy_of_v2_beside_them(tmp_path: Path) -> None:
    v2 = {name: text for name, text in V2_FILES.items() if name.endswith("pressure")}
    # Without a controller, v2 counts CPU time all the same.
    v2 |= {"cpu.stat": "usage_usec 1\nuser_usec 1\nsystem_usec 1\n", "io.stat": V2_FILES["io.stat"]}
    v1 = {
        "cpu": {"cpu.stat": "nr_periods 9\nnr_throttled 2\nthrottled_time 31\n", "cgroup.procs": "5\n"},
        "cpuacct": {"cpuacct.usage": "23572063991711\n", "cpuacct.stat": "user 7\nsystem 5\n"},
        "memory": {"memory.usage_in_bytes": "651046912\n"},
        "blkio": {"blkio.throttle.io_service_bytes": "Total 0\n"},
    }
    folders = {name: write(tmp_path / name, files) for name, files in v1.items()}
    group = Group(Cgroups(folders, write(tmp_path / "unified", v2)))
    times = {"cpu_ns": 23572063991711, "user_ns": 70_000_000, "system_ns": 50_000_000}
    assert group.cpu() == times | {"throttled_ns": 31, "throttled_periods": 2}
    assert (group.memory_bytes(), group.pids()) == (651046912, (5,))
    assert group.pressures()["cpu_pressure_ns"] == 4943136437000
    assert group.disk_use() is None, "v1's blkio does not count, and nothing is not 0"
    group.close()


def test_a_machine_is_read_and_a_kept_file_anew_which_may_go(tmp_path: Path) -> None:
    path, kept = tmp_path / "f", KeptFiles()
    for text, number in (("1\n", 1), ("22\n", 22), ("no number", None), ("3", 3)):
        path.write_text(text)  # the same file
        assert kept.read(str(path), int) == number
    kept.close()
    path.unlink()
    assert kept.read(str(path), int) is None and kept.read(None, int) is None
    machine, nothing = MachineUse(), MachineUse(tmp_path, tmp_path / "block")
    seen = machine.read()
    assert seen.cpu_ns and seen.user_ns and seen.system_ns and seen.context_switches and seen.rss_bytes
    assert seen.cpu_ns == seen.user_ns + seen.system_ns and seen.steal_ns is not None
    assert nothing.read() == Consumption()
    machine.close()
    nothing.close()


class Counting:
    """Consumers of which the machine has used one second more at each look."""

    looks, closed = 0, False
    fail: Exception | None = None

    def read(self) -> Consumers:
        self.looks += 1
        if self.fail is not None:
            raise self.fail
        return Consumers(machine=Consumption(cpu_ns=self.looks * S))

    def close(self) -> None:
        self.closed = True


@pytest.mark.simulated(seeds=20)
def test_edges_are_sampled_at_once_whatever_the_thread_does(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert usage is not None and usage.used.machine == Consumption(cpu_ns=S)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        sampler = Sampler(counting, lambda sample: None)
        sampler.start()
    sampler.begin()
    assert sampler.end() is not None
    sampler.close()
    assert counting.closed


@pytest.mark.simulated(seeds=20)
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


@pytest.mark.simulated(seeds=20)
def test_whatever_fails_a_scenario_goes_on() -> None:
    counting, kept = Counting(), list[Sample]()

    def keep(sample: Sample) -> None:
        kept.append(sample)
        raise RuntimeError("full")

    sampler = Sampler(counting, keep)
    counting.fail = MemoryError()
    sampler.start()
    sampler.begin()
    assert sampler.end() is None
    World.current.wait(lambda: counting.looks > 5)
    counting.fail = None
    World.current.wait(lambda: len(kept) > 3)
    sampler.begin()
    counting.fail = OSError(24, "Too many open files")
    assert sampler.end() is None
    assert sampler.end() is None, "no window has begun"
    sampler.close()
    assert len({*map(id, kept)}) == len(kept) and kept == sorted(kept, key=lambda sample: sample.at_ns), "each once"


def test_a_member_that_was_started_again_goes_on_from_what_it_had_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counters began at 0 again, so that its usage was unknown."""
    seen_at_first = [Consumption(cpu_ns=5, rss_bytes=70), Consumption(cpu_ns=9, rss_bytes=80, reads=3)]
    seen: dict[int, list[Consumption | None]] = {
        1: [*seen_at_first, None, None],
        2: [Consumption(cpu_ns=2, rss_bytes=10, reads=4), Consumption(cpu_ns=4, rss_bytes=20), None],
        3: [Consumption(cpu_ns=1, rss_bytes=30, reads=5)],
    }
    closed: list[int] = []

    def scripted(pid: int, disks: object) -> SimpleNamespace:
        return SimpleNamespace(read=lambda: seen[pid].pop(0), close=lambda: closed.append(pid))

    monkeypatch.setattr(counters, "ContainerUse", scripted)
    pid = [1]
    member = MemberUse(1, lambda: pid[0])
    assert [member.read() for _ in range(3)] == [*seen_at_first, None] and closed == []
    pid[0] = 2
    again = [Consumption(cpu_ns=11, rss_bytes=10, reads=7), Consumption(cpu_ns=13, rss_bytes=20)]
    assert [member.read() for _ in range(2)] == again and closed == [1]
    pid[0] = 3
    assert member.read() == Consumption(cpu_ns=14, rss_bytes=30, reads=12), "what one reading lacked is not lost"


BEFORE = Consumption(**dict.fromkeys(NAMES, 1000))
AFTER = Consumption(**{name: 1500 + index for index, name in enumerate(NAMES)})


def test_counters_are_differences_and_levels_the_largest() -> None:
    levels = {"memory_bytes": 7777, "rss_bytes": 8888}
    used = difference(BEFORE, AFTER, Consumption(**levels))
    for index, name in enumerate(NAMES):
        assert getattr(used, name) == levels.get(name, 500 + index), name
        if name in levels:
            continue
        # What one sample lacks is not known.
        lacking = replace(BEFORE, **{name: None}), replace(AFTER, **{name: None})
        for before, after in ((lacking[0], AFTER), (BEFORE, lacking[1])):
            one = difference(before, after, Consumption())
            assert getattr(one, name) is None and name not in one.values(), name
        assert getattr(difference(AFTER, BEFORE, Consumption()), name) is None, f"{name} went back"


def test_what_threads_waited_for_counts_where_the_threads_that_ran_were_seen() -> None:
    """A program that ran for half a second was not there at any look: its run delay is not 0."""
    zero = Consumption(cpu_ns=0, threads_cpu_ns=0, run_delay_ns=0, context_switches=0)
    for threads, known in ((100, (5, 6)), (80, (5, 6)), (79, (None, None)), (0, (None, None))):
        after = Consumption(cpu_ns=100, threads_cpu_ns=threads, run_delay_ns=5, context_switches=6)
        used = difference(zero, after, Consumption())
        assert (used.threads_cpu_ns, used.run_delay_ns, used.context_switches) == (threads, *known)


def sample(at_s: float, **consumers: object) -> Sample:
    return Sample(round(at_s * S), Consumers(**consumers))


def test_a_window_is_the_difference_of_its_edges() -> None:
    window = Window(sample(10, machine=Consumption(cpu_ns=50, rss_bytes=5), client=Consumption(cpu_ns=7)))
    window.add(sample(11, machine=Consumption(cpu_ns=70, rss_bytes=9), client=Consumption(cpu_ns=8)))
    window.add(sample(11.5, machine=Consumption(cpu_ns=90, rss_bytes=6), client=Consumption(cpu_ns=10)))
    used = Consumers(machine=Consumption(cpu_ns=40, rss_bytes=9), client=Consumption(cpu_ns=3))
    assert window.usage() == Usage(round(1.5 * S), used)
    # A member that dies counts as far as it was seen, and one that comes later not at all.
    window = Window(sample(0, members={"a": Consumption(cpu_ns=S, sent_bytes=5), "b": Consumption(cpu_ns=0)}))
    window.add(sample(1, members={"a": Consumption(cpu_ns=2 * S, sent_bytes=9), "b": Consumption(cpu_ns=S)}))
    window.add(sample(1.5, members={"a": Consumption(cpu_ns=3 * S), "b": Consumption(cpu_ns=2 * S)}))
    window.add(sample(2, members={"b": Consumption(cpu_ns=3 * S), "c": Consumption(cpu_ns=S)}))
    usage = window.usage()
    assert usage.used.members == {"a": Consumption(cpu_ns=2 * S, sent_bytes=4), "b": Consumption(cpu_ns=3 * S)}
    assert usage.cluster_cores == 2.5


def test_cores() -> None:
    members = {"a": Consumption(cpu_ns=S), "b": Consumption(cpu_ns=S // 2)}
    usage = Usage(2 * S, Consumers(members=members, client=Consumption(throttled_ns=3), machine=Consumption()))
    assert usage.cluster_cores == 0.75
    assert (usage.links_cores, usage.client_cores, usage.steal_cores) == (None, None, None)
    assert usage.client_throttled_ns == 3
    unknown = Usage(2 * S, Consumers(members=members | {"c": Consumption()}))
    assert unknown.cluster_cores is None, "the sum of some is not that of all"
    assert (unknown.client_throttled_ns, unknown.steal_cores) == (None, None)
    assert Usage(2 * S, Consumers()).cluster_cores is None
    assert Usage(0, Consumers(members=members)).cluster_cores is None
