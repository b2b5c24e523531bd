"""The resource usage of containers, processes and the machine, from the kernel's files in /proc and cgroups.

Parts of a ``Consumption`` are dictionaries of its fields.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from containernet_env.base.errors import RunError
from containernet_env.hosts.disk import Disks
from containernet_env.hosts.limits import Cgroups, cgroups_of
from containernet_env.model.usage import Consumers, Consumption, added_up, resumed

SECTOR_BYTES = 512
"""Of /proc/diskstats, whatever the disk's own sectors are (Documentation/admin-guide/iostats.rst)."""
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_US = 1000  # ns
_TRAFFIC = ("received_bytes", "received_frames", "sent_bytes", "sent_frames")
_DISK = ("read_bytes", "written_bytes", "reads", "writes")


_THREADS = ("threads_cpu_ns", "run_delay_ns", "context_switches")
"""The numbers of a schedstat: CPU time, time in which a thread was runnable without a core, how often it got one."""
_OF_DISKS = ("read_bytes", "written_bytes")
"""What /proc/PID/io counts of disks; its other counters are those of system calls."""


def added(*counts: Iterable[int]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*counts, strict=True)))


def thread_times(before: Iterable[int], schedstats: Iterable[bytes]) -> tuple[int, ...]:
    """The sums of ``before`` and several ``/proc/PID/task/TID/schedstat``."""
    return added(before, *(map(int, schedstat.split()) for schedstat in schedstats))


def process_times(stat: bytes) -> dict[str, int]:
    """User and system time of ``/proc/PID/stat``; the program's name before them may hold anything."""
    fields = stat.rpartition(b")")[2].split()
    if len(fields) < 13:
        raise ValueError(f"no stat of a process: {stat[:80]!r}")
    return {"user_ns": int(fields[11]) * TICK_NS, "system_ns": int(fields[12]) * TICK_NS}


def resident_bytes(statm: bytes) -> int:
    _, pages, *_ = statm.split()
    return int(pages) * PAGE_BYTES


def counters(text: bytes) -> dict[bytes, int]:
    """Lines of a name and a number: cpu.stat, cpuacct.stat, /proc/PID/io (with a colon after each name)."""
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def memory_in_use_bytes(meminfo: bytes) -> int:
    """Memory that is not available to programs, from ``/proc/meminfo``."""
    lines = dict(line.split(b":", 1) for line in meminfo.splitlines()[:3])
    total, available = (int(lines.get(name, b"?").split()[0]) for name in (b"MemTotal", b"MemAvailable"))
    return (total - available) * 1024


def pressure_ns(text: bytes) -> int:
    """How long some task was stalled, from a file of /proc/pressure or of cgroup v2."""
    some, _, total = text.partition(b"\n")[0].partition(b" total=")
    if not some.startswith(b"some "):
        raise ValueError(f"no pressure: {text[:80]!r}")
    return int(total) * 1000


def traffic(net_dev: bytes) -> dict[str, int]:
    """``/proc/PID/net/dev``, all interfaces but the loopback together."""
    lines = [line.partition(b":") for line in net_dev.splitlines()[2:]]
    counted = [rest.split() for name, colon, rest in lines if colon and name.strip() != b"lo"]
    return {
        field: sum(int(words[place]) for words in counted) for field, place in zip(_TRAFFIC, (0, 1, 8, 9), strict=True)
    }


def group_disk_use(io_stat: bytes) -> dict[str, int]:
    """``io.stat`` of cgroup v2, all disks together."""
    found = re.findall(rb"(\w+)=(\d+)", io_stat)
    names = zip(_DISK, (b"rbytes", b"wbytes", b"rios", b"wios"), strict=True)
    return {field: sum(int(value) for held, value in found if held == name) for field, name in names}


def disk_use(diskstats: bytes, disks: Container[bytes]) -> dict[str, int]:
    """``/proc/diskstats``, of these disks together."""
    counted = [words for line in diskstats.splitlines() if len(words := line.split()) >= 10 and words[2] in disks]
    places = zip(_DISK, (5, 9, 3, 7), (SECTOR_BYTES, SECTOR_BYTES, 1, 1), strict=True)
    return {field: factor * sum(int(words[place]) for words in counted) for field, place, factor in places}


def machine_times(stat: bytes) -> dict[str, int]:
    """``/proc/stat``: the times of all cores together, and the context switches where they are counted."""
    name, *ticks = stat.partition(b"\n")[0].split()
    if name != b"cpu" or len(ticks) < 8:
        raise ValueError(f"no stat of a machine: {stat[:80]!r}")
    # user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user and nice.
    user, nice, system, _, _, irq, softirq, steal = (int(word) * TICK_NS for word in ticks[:8])
    user_ns, system_ns = user + nice, system + irq + softirq
    found = {"cpu_ns": user_ns + system_ns, "user_ns": user_ns, "system_ns": system_ns, "steal_ns": steal}
    if switches := re.search(rb"\nctxt (\d+)", stat):
        found["context_switches"] = int(switches[1])
    return found


_T = TypeVar("_T")


class KeptFiles:
    """Files that are opened when they are first read; ``base`` is the descriptor of a folder that they are in.

    Whatever cannot be read (a process that has ended, a cgroup that was removed, a controller that is not there, and
    with it its path) reads as ``None``.
    """

    def __init__(self, base: int | None = None) -> None:
        self._base = base
        self._opened: dict[str, int] = {}

    def read(self, path: str | None, parse: Callable[[bytes], _T], most_bytes: int = 8192) -> _T | None:
        """The content, parsed; ``None`` also if ``parse`` refuses it."""
        if path is None:
            return None
        try:
            if (fd := self._opened.get(path)) is None:
                fd = self._opened[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._base)
            return parse(os.pread(fd, most_bytes, 0))
        except OSError:
            self.forget(path)
            return None
        except (ValueError, LookupError):
            return None

    def forget(self, path: str) -> None:
        """Close it; a later read opens it again."""
        if (fd := self._opened.pop(path, None)) is not None:
            os.close(fd)

    def close(self) -> None:
        for path in list(self._opened):
            self.forget(path)


# Three numbers of at most 20 digits.
_SCHEDSTAT_BYTES = 64


class Process:
    """Reads one process; everything is opened within its folder, so that another one with its id is never read."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder: int | None = None
        self._tasks: int | None = None
        with suppress(OSError):
            self._folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._tasks = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._folder)
        self._files = KeptFiles(self._folder)
        # By id: the open schedstat, and its last content.
        self._threads: dict[str, int] = {}
        self._texts: dict[str, bytes] = {}
        self._ended: tuple[int, ...] = (0, 0, 0)
        self.seen_disk_bytes: tuple[int, ...] = (0, 0)
        """The last known value of ``disk_bytes``."""

    def _read(self, name: str, parse: Callable[[bytes], _T], most_bytes: int = 8192) -> _T | None:
        # Without its folder the name would be one of the working directory.
        return None if self._folder is None else self._files.read(name, parse, most_bytes)

    def times(self) -> dict[str, int] | None:
        return self._read("stat", process_times)

    def rss_bytes(self) -> int | None:
        return self._read("statm", resident_bytes)

    def disk_bytes(self) -> tuple[int, ...] | None:
        """Bytes read from disks, and bytes on their way to them."""
        names = (b"read_bytes:", b"write_bytes:")
        found = self._read("io", lambda text: tuple(map(counters(text).__getitem__, names)))
        if found is not None:
            self.seen_disk_bytes = found
        return found

    def traffic(self) -> dict[str, int] | None:
        """Of the interfaces in its network namespace.

        Opened for each read: an open file would keep the namespace, and so the interfaces of a host that has ended.
        """
        try:
            return self._read("net/dev", traffic, 1 << 16)
        finally:
            self._files.forget("net/dev")

    def cgroup(self) -> bytes | None:
        return self._read("cgroup", bytes)

    def threads(self) -> tuple[int, ...] | None:
        """Of all its threads, those that have ended included as far as they were seen."""
        if self._tasks is None:
            return None
        # There are some ten threads for each other file that is read, so this is most of the cost of a sample.
        try:
            names = os.listdir(self._tasks)
        except OSError:
            names = []
        for name in self._threads.keys() - set(names):
            self._forget(name)
        for name in names:
            try:
                fd = self._threads[name] if name in self._threads else self._open(name)
                self._texts[name] = os.pread(fd, _SCHEDSTAT_BYTES, 0)
            except OSError:
                self._forget(name)  # it has ended; another one may have its number, and is read next time
        return self.seen_times if self._threads else None

    @property
    def seen_times(self) -> tuple[int, ...]:
        """The usage of its threads when they were last seen."""
        return thread_times(self._ended, self._texts.values())

    def _open(self, name: str) -> int:
        fd = os.open(f"{name}/schedstat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._tasks)
        self._threads[name] = fd
        return fd

    def _forget(self, name: str) -> None:
        if (fd := self._threads.pop(name, None)) is not None:
            os.close(fd)
        if (text := self._texts.pop(name, None)) is not None:
            self._ended = thread_times(self._ended, [text])

    def close(self) -> None:
        self._files.close()
        for fd in (*self._threads.values(), self._tasks, self._folder):
            if fd is not None:
                os.close(fd)
        self._tasks = self._folder = None
        self._threads = {}


class Group(KeptFiles):
    """Reads a process's cgroups; a v1 controller goes before v2, since a controller lives in one of both.

    A hierarchy of v2 beside v1 controllers still has the pressure.
    """

    def __init__(self, cgroups: Cgroups) -> None:
        super().__init__()
        v1, v2 = cgroups.v1, cgroups.v2
        accounts, cpu, memory = v1.get("cpuacct"), v1.get("cpu"), v1.get("memory")
        self._usage = _file(accounts, "cpuacct.usage")
        self._split = _file(accounts, "cpuacct.stat")
        self._quota = _file(cpu, "cpu.stat")
        # It also has the counters of v1 controllers that are missing.
        self._v2 = None if accounts and cpu else _file(v2, "cpu.stat")
        self._memory = _file(memory, "memory.usage_in_bytes") or _file(v2, "memory.current")
        # v1's blkio counts only groups that have a limit of it (block/blk-throttle.c, since Linux 6.10).
        self._io = None if "blkio" in v1 else _file(v2, "io.stat")
        self._pressures = {f"{kind}_pressure_ns": _file(v2, f"{kind}.pressure") for kind in _PRESSURES}
        # A process joins and leaves all of its groups together.
        self._processes = _file(cpu or accounts or v2, "cgroup.procs")

    def throttling(self, v2: Mapping[bytes, int] | None = None) -> dict[str, int | None]:
        """For how long the quota stopped it. ``v2``: the counters of v2's cpu.stat."""
        found: Mapping[bytes, int] | None = self.read(self._quota, counters)
        if found is not None:
            stopped_ns = _times(found, b"throttled_time", 1)
        else:
            found = v2 or self.read(self._v2, counters)
            stopped_ns = _times(found, b"throttled_usec", _US)
        return {"throttled_ns": stopped_ns, "throttled_periods": _times(found, b"nr_throttled", 1)}

    def cpu(self) -> dict[str, int | None]:
        """CPU time, and for how long the quota stopped it."""
        cpu_ns, split, v2 = self.read(self._usage, int), self.read(self._split, counters), self.read(self._v2, counters)
        if cpu_ns is not None:
            times = {
                "cpu_ns": cpu_ns,
                "user_ns": _times(split, b"user", TICK_NS),
                "system_ns": _times(split, b"system", TICK_NS),
            }
        else:
            names = {"cpu_ns": b"usage_usec", "user_ns": b"user_usec", "system_ns": b"system_usec"}
            times = {field: _times(v2, name, _US) for field, name in names.items()}
        return times | self.throttling(v2)

    def memory_bytes(self) -> int | None:
        return self.read(self._memory, int)

    def disk_use(self) -> dict[str, int] | None:
        """``None`` where cgroups do not count it."""
        return self.read(self._io, group_disk_use)

    def pressures(self) -> dict[str, int | None]:
        return {field: self.read(path, pressure_ns) for field, path in self._pressures.items()}

    def pids(self) -> tuple[int, ...]:
        return self.read(self._processes, lambda text: tuple(map(int, text.split())), 1 << 16) or ()


_PRESSURES = ("cpu", "memory", "io")


def _file(folder: Path | None, name: str) -> str | None:
    return None if folder is None else f"{folder}/{name}"


def _times(found: Mapping[bytes, int] | None, name: bytes, factor: int) -> int | None:
    value = None if found is None else found.get(name)
    return None if value is None else value * factor


# Not counted: memory, and devices that count the traffic of the disks below them again.
_NO_DISKS = ("loop", "ram", "zram", "dm-", "md")
# The CPU clock of another process is ~pid << 3 | CPUCLOCK_SCHED (linux/posix-timers_types.h).
_CLOCK_SHIFT, _CLOCK_SCHED = 3, 2


@dataclass(frozen=True, slots=True)
class Pids:
    """The first process of each host, members by name, and the link emulator, where there is one; the driver.

    Where there are several clients, ``clients`` has them by name, and there is no ``client``. The disk emulators of
    ``disks`` count as the driver.
    """

    members: Mapping[str, int]
    client: int | None
    links: int | None
    driver: int
    clients: Mapping[str, int] = field(default_factory=dict)
    disks: Disks = field(default_factory=Disks)


class ContainerUse:
    """All processes of a container, by its first one; its own cgroups, its own network and disk emulators."""

    def __init__(self, pid: int, disks: Disks | None = None) -> None:
        self._first = Process(pid)
        self._disks = disks or Disks()
        self._group = _group_of(pid)
        self._others: dict[int, Process] = {}
        # The usage of those that have ended, as far as it was seen.
        self._ended: tuple[int, ...] = (0, 0, 0)
        self._ended_disk_bytes: tuple[int, ...] = (0, 0)

    def read(self) -> Consumption | None:
        """Its usage since it began; ``None`` once it has ended."""
        rss_bytes = self._first.rss_bytes()
        if self._group is None or rss_bytes is None:
            return None
        others = self._living(self._group)
        processes = [self._first, *others]
        return Consumption(
            **self._group.cpu(),
            **_summed(_THREADS, self._ended, (process.threads() for process in processes)),
            memory_bytes=self._group.memory_bytes(),
            rss_bytes=rss_bytes + sum(process.rss_bytes() or 0 for process in others),
            **(self._first.traffic() or {}),
            **(
                self._group.disk_use()
                or _summed(_OF_DISKS, self._ended_disk_bytes, (process.disk_bytes() for process in processes))
            ),
            **self._disks.counts(self._first.pid),
            **self._group.pressures(),
        )

    def _living(self, group: Group) -> list[Process]:
        pids = set(group.pids()) - {self._first.pid}
        for pid in self._others.keys() - pids:
            process = self._others.pop(pid)
            self._ended = added(self._ended, process.seen_times)
            self._ended_disk_bytes = added(self._ended_disk_bytes, process.seen_disk_bytes)
            process.close()
        for pid in pids - self._others.keys():
            self._others[pid] = Process(pid)
        return list(self._others.values())

    def close(self) -> None:
        for process in (self._first, *self._others.values()):
            process.close()
        if self._group is not None:
            self._group.close()


class MemberUse:
    """A container that may be started again: by its first process, ``pid``, and then by the result of ``pid_now``.

    Its counters continue from their last values before.
    """

    def __init__(self, pid: int, pid_now: Callable[[], int], disks: Disks | None = None) -> None:
        self._pid = pid
        self._pid_now = pid_now
        self._disks = disks
        self._use = ContainerUse(pid, disks)
        self._before: Consumption | None = None
        self._last: Consumption | None = None

    def read(self) -> Consumption | None:
        """Its usage since its first start; ``None`` while it has ended."""
        now = self._use.read()
        if now is None and (pid := self._pid_now()) != self._pid:
            self._use.close()
            self._pid, self._use, self._before = pid, ContainerUse(pid, self._disks), self._last
            now = self._use.read()
        if now is None:
            return None
        now = now if self._before is None else resumed(self._before, now)
        # Right after a start, its disk emulators do not count yet.
        self._last = now if self._last is None else replace(self._last, **now.values())
        return now

    def close(self) -> None:
        self._use.close()


class ProcessUse:
    """One process, which may share its cgroups with others: of these, only the throttling is read."""

    def __init__(self, pid: int) -> None:
        self._process = Process(pid)
        self._cgroup: bytes | None = None
        self._group: Group | None = None

    def read(self) -> Consumption | None:
        """Its usage since it began; ``None`` once it has ended."""
        rss_bytes = self._process.rss_bytes()
        if rss_bytes is None:
            return None
        return Consumption(
            cpu_ns=self._cpu_ns(),
            **(self._process.times() or {}),
            **self._throttling(),
            **_summed(_THREADS, (0, 0, 0), [self._process.threads()]),
            rss_bytes=rss_bytes,
            **_summed(_OF_DISKS, (0, 0), [self._process.disk_bytes()]),
        )

    def _cpu_ns(self) -> int | None:
        with suppress(OSError):
            return time.clock_gettime_ns((~self._process.pid << _CLOCK_SHIFT) | _CLOCK_SCHED)
        return None

    def _throttling(self) -> dict[str, int | None]:
        """Of its present group, which may change."""
        if (cgroup := self._process.cgroup()) != self._cgroup:
            self._close_group()
            self._cgroup, self._group = cgroup, _group_of(self._process.pid)
        return {} if self._group is None else self._group.throttling()

    def _close_group(self) -> None:
        if self._group is not None:
            self._group.close()

    def close(self) -> None:
        self._process.close()
        self._close_group()


class DriverUse:
    """The driver and its disk emulators, of which ended ones count with what they had used when they were last read."""

    def __init__(self, pid: int, disks: Callable[[], Sequence[int]]) -> None:
        self._driver, self._disks_now = ProcessUse(pid), disks
        self._disks: dict[int, tuple[ProcessUse, Consumption]] = {}

    def read(self) -> Consumption | None:
        own = self._driver.read()
        for pid in set(self._disks_now()) - self._disks.keys():
            self._disks[pid] = ProcessUse(pid), Consumption()
        for pid, (use, before) in self._disks.items():
            if (now := use.read()) is None:
                use.close()
            self._disks[pid] = use, now or replace(before, rss_bytes=0)
        known = [found for _, found in self._disks.values() if found.cpu_ns is not None]
        return added_up([own, *known]) if own is not None and known else own

    def close(self) -> None:
        for use in (self._driver, *(use for use, _ in self._disks.values())):
            use.close()


class MachineUse:
    """The machine, and the interfaces of its own network namespace."""

    def __init__(self, proc: Path = Path("/proc"), block: Path = Path("/sys/block")) -> None:
        self._proc, self._files = proc, KeptFiles()
        names: list[str] = []
        with suppress(OSError):
            names = [name for name in os.listdir(block) if not name.startswith(_NO_DISKS)]
        self._names = frozenset(map(os.fsencode, names))

    def read(self) -> Consumption:
        """The usage since the machine started."""

        def read(name: str, parse: Callable[[bytes], _T], most_bytes: int = 8192) -> _T | None:
            return self._files.read(f"{self._proc}/{name}", parse, most_bytes)

        return Consumption(
            # All interrupts of the machine come before the lines that are read.
            **(read("stat", machine_times, 1 << 18) or {}),
            rss_bytes=read("meminfo", memory_in_use_bytes),
            **(read("net/dev", traffic, 1 << 16) or {}),
            **(read("diskstats", lambda text: disk_use(text, self._names), 1 << 16) or {}),
            **{f"{kind}_pressure_ns": read(f"pressure/{kind}", pressure_ns) for kind in _PRESSURES},
        )

    def close(self) -> None:
        self._files.close()


class AllUse:
    """Every consumer of a run. ``pids_now`` returns the first processes of members, which may have been restarted."""

    def __init__(self, pids: Pids, pids_now: Callable[[], Mapping[str, int]] | None = None) -> None:
        now = pids_now or (lambda: pids.members)
        self._members = {
            name: MemberUse(pid, partial(lambda name: now()[name], name), pids.disks)
            for name, pid in pids.members.items()
        }
        self._clients = {name: ContainerUse(pid) for name, pid in pids.clients.items()}
        self._others: dict[str, ContainerUse | ProcessUse | DriverUse | MachineUse] = {}
        if pids.client is not None:
            self._others["client"] = ContainerUse(pids.client)
        if pids.links is not None:
            self._others["links"] = ProcessUse(pids.links)
        self._others |= {"driver": DriverUse(pids.driver, pids.disks.pids), "machine": MachineUse()}

    def read(self) -> Consumers:
        members = {name: found for name, member in self._members.items() if (found := member.read()) is not None}
        others = {role: consumer.read() for role, consumer in self._others.items()}
        clients = {name: found for name, client in self._clients.items() if (found := client.read()) is not None}
        if self._clients:
            others["client"] = added_up(clients.values()) if len(clients) == len(self._clients) else None
        return Consumers(members=members, clients=clients, **others)

    def close(self) -> None:
        for consumer in (*self._members.values(), *self._clients.values(), *self._others.values()):
            consumer.close()


def _group_of(pid: int) -> Group | None:
    try:
        return Group(cgroups_of(pid))
    except (RunError, OSError):
        return None


def _summed(names: Iterable[str], ended: Iterable[int], counted: Iterable[tuple[int, ...] | None]) -> dict[str, int]:
    """The sums over processes by field, with those of ended ones; nothing where all are unknown."""
    known = [counts for counts in counted if counts is not None]
    return dict(zip(names, added(ended, *known), strict=True)) if known else {}
