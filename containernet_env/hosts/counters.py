"""The resource usage of containers, processes and the machine, from the kernel's files in /proc and cgroups."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from containernet_env.base.errors import RunError
from containernet_env.hosts.limits import Cgroups, cgroups_of
from containernet_env.model.usage import Consumers, Consumption, resumed

SECTOR_BYTES = 512
"""Of /proc/diskstats, whatever the disk's own sectors are (Documentation/admin-guide/iostats.rst)."""


class ThreadTimes(NamedTuple):
    """Of threads together: CPU time, time in which they were runnable without a core, and how often one got it."""

    cpu_ns: int
    run_delay_ns: int
    switches: int


class Traffic(NamedTuple):
    """Of network interfaces together."""

    received_bytes: int
    received_frames: int
    sent_bytes: int
    sent_frames: int


class DiskUse(NamedTuple):
    """Of disks together."""

    read_bytes: int
    written_bytes: int
    reads: int
    writes: int


class MachineTimes(NamedTuple):
    """Of all cores together, in ticks; context switches since the machine started."""

    user: int
    system: int
    steal: int
    switches: int | None


def thread_times(before: ThreadTimes, schedstats: Iterable[bytes]) -> ThreadTimes:
    """The sum of ``before`` and several ``/proc/PID/task/TID/schedstat``."""
    cpu_ns, delay_ns, switches = before
    for schedstat in schedstats:
        one, two, three = schedstat.split()
        cpu_ns += int(one)
        delay_ns += int(two)
        switches += int(three)
    return ThreadTimes(cpu_ns, delay_ns, switches)


def added(*times: ThreadTimes) -> ThreadTimes:
    """The sum of each."""
    return ThreadTimes(*(sum(values) for values in zip(*times, strict=True)))


def process_ticks(stat: bytes) -> tuple[int, int]:
    """User and system time of ``/proc/PID/stat``; the program's name before them may hold anything."""
    fields = stat.rpartition(b")")[2].split()
    if len(fields) < 13:
        raise ValueError(f"no stat of a process: {stat[:80]!r}")
    return int(fields[11]), int(fields[12])


def resident_pages(statm: bytes) -> int:
    """``/proc/PID/statm``."""
    fields = statm.split()
    if len(fields) < 2:
        raise ValueError(f"no statm: {statm[:80]!r}")
    return int(fields[1])


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


def traffic(net_dev: bytes) -> Traffic:
    """``/proc/PID/net/dev``, all interfaces but the loopback."""
    found = [0, 0, 0, 0]
    for line in net_dev.splitlines()[2:]:
        name, colon, rest = line.partition(b":")
        if not colon or name.strip() == b"lo":
            continue
        words = rest.split()
        for index, word in enumerate((0, 1, 8, 9)):
            found[index] += int(words[word])
    return Traffic(*found)


def group_disk_use(io_stat: bytes) -> DiskUse:
    """``io.stat`` of cgroup v2."""
    found = dict.fromkeys((b"rbytes", b"wbytes", b"rios", b"wios"), 0)
    for line in io_stat.splitlines():
        for word in line.split()[1:]:
            name, _, value = word.partition(b"=")
            if name in found:
                found[name] += int(value)
    return DiskUse(*found.values())


def disk_use(diskstats: bytes, disks: Container[bytes]) -> DiskUse:
    """``/proc/diskstats``, of these disks."""
    found = [0, 0, 0, 0]
    for line in diskstats.splitlines():
        words = line.split()
        if len(words) >= 10 and words[2] in disks:
            reads, read_sectors, writes, written_sectors = (int(words[index]) for index in (3, 5, 7, 9))
            for index, value in enumerate((read_sectors * SECTOR_BYTES, written_sectors * SECTOR_BYTES, reads, writes)):
                found[index] += value
    return DiskUse(*found)


def machine_times(stat: bytes) -> MachineTimes:
    """``/proc/stat``: its first line, and the context switches."""
    name, *ticks = stat.partition(b"\n")[0].split()
    if name != b"cpu" or len(ticks) < 8:
        raise ValueError(f"no stat of a machine: {stat[:80]!r}")
    # user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user and nice.
    user, nice, system, _, _, irq, softirq, steal = map(int, ticks[:8])
    _, found, rest = stat.partition(b"\nctxt ")
    return MachineTimes(user + nice, system + irq + softirq, steal, int(rest.split(None, 1)[0]) if found else None)


_T = TypeVar("_T")


class KeptFile:
    """One file, opened when it is first read; ``base`` is the descriptor of a folder that ``path`` is relative to.

    Whatever cannot be read (a process that has ended, a cgroup that was removed, a controller that is not there, and
    with it its ``path``) reads as ``None``.
    """

    def __init__(self, path: str | Path | None, base: int | None = None, most_bytes: int = 8192) -> None:
        self._path = path
        self._base = base
        self._most_bytes = most_bytes
        self._fd: int | None = None

    def read(self, parse: Callable[[bytes], _T]) -> _T | None:
        """The content, parsed; ``None`` also if ``parse`` refuses it."""
        if self._path is None:
            return None
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._base)
            return parse(os.pread(self._fd, self._most_bytes, 0))
        except OSError:
            self.close()
            return None
        except (ValueError, IndexError):
            return None

    def close(self) -> None:
        """Close it; a later read opens it again. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
# Three numbers of at most 20 digits.
_SCHEDSTAT_BYTES = 64
# What /proc/PID/io counts of disks; its other counters are those of system calls.
_READ, _WRITTEN = b"read_bytes:", b"write_bytes:"


class Process:
    """Reads one process; everything is opened within its folder, so that another one with its id is never read."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder: int | None = None
        self._tasks: int | None = None
        with suppress(OSError):
            self._folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._tasks = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._folder)
        self._stat = KeptFile("stat", self._folder)
        self._memory = KeptFile("statm", self._folder)
        self._io = KeptFile("io", self._folder)
        self._cgroup = KeptFile("cgroup", self._folder)
        # By id: the open schedstat, and its last content.
        self._threads: dict[str, int] = {}
        self._texts: dict[str, bytes] = {}
        self._ended = ThreadTimes(0, 0, 0)
        self.seen_disk_bytes = (0, 0)
        """The last known value of ``disk_bytes``."""

    def ticks(self) -> tuple[int, int] | None:
        """User and system time, in ticks."""
        return None if self._folder is None else self._stat.read(process_ticks)

    def rss_bytes(self) -> int | None:
        """Its resident memory; ``None`` once it has ended."""
        pages = None if self._folder is None else self._memory.read(resident_pages)
        return None if pages is None else pages * PAGE_BYTES

    def disk_bytes(self) -> tuple[int, int] | None:
        """Bytes read from disks, and bytes on their way to them."""
        found = None if self._folder is None else self._io.read(counters)
        if found is None or not found.keys() >= {_READ, _WRITTEN}:
            return None
        self.seen_disk_bytes = found[_READ], found[_WRITTEN]
        return self.seen_disk_bytes

    def traffic(self) -> Traffic | None:
        """Of the interfaces in its network namespace.

        Opened for each read: an open file would keep the namespace, and so the interfaces of a host that has ended.
        """
        if self._folder is None:
            return None
        file = KeptFile("net/dev", self._folder, 1 << 16)
        try:
            return file.read(traffic)
        finally:
            file.close()

    def cgroup(self) -> bytes | None:
        """Which cgroups it is in, as the kernel writes it."""
        return None if self._folder is None else self._cgroup.read(bytes)

    def threads(self) -> ThreadTimes | None:
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
    def seen_times(self) -> ThreadTimes:
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
        """Close everything. Idempotent."""
        for file in (self._stat, self._memory, self._io, self._cgroup):
            file.close()
        for fd in (*self._threads.values(), self._tasks, self._folder):
            if fd is not None:
                os.close(fd)
        self._tasks = self._folder = None
        self._threads = {}


_US = 1000  # ns


class Group:
    """Reads a process's cgroups; a v1 controller goes before v2, since a controller lives in one of both.

    A hierarchy of v2 beside v1 controllers still has the pressure.
    """

    def __init__(self, cgroups: Cgroups) -> None:
        v1, v2 = cgroups.v1, cgroups.v2
        accounts, cpu, memory = v1.get("cpuacct"), v1.get("cpu"), v1.get("memory")
        self._usage = KeptFile(_file(accounts, "cpuacct.usage"))
        self._split = KeptFile(_file(accounts, "cpuacct.stat"))
        self._quota = KeptFile(_file(cpu, "cpu.stat"))
        # It also has the counters of v1 controllers that are missing.
        self._v2 = KeptFile(None if accounts and cpu else _file(v2, "cpu.stat"))
        self._memory = KeptFile(_file(memory, "memory.usage_in_bytes") or _file(v2, "memory.current"))
        # v1's blkio counts only groups that have a limit of it (block/blk-throttle.c, since Linux 6.10).
        self._io = KeptFile(None if "blkio" in v1 else _file(v2, "io.stat"))
        self._cpu_pressure, self._memory_pressure, self._io_pressure = (
            KeptFile(_file(v2, f"{kind}.pressure")) for kind in ("cpu", "memory", "io")
        )
        # A process joins and leaves all of its groups together.
        self._processes = KeptFile(_file(cpu or accounts or v2, "cgroup.procs"), most_bytes=1 << 16)

    def throttling(self, v2: Mapping[bytes, int] | None = None) -> dict[str, int | None]:
        """Fields of ``Consumption``: for how long the quota stopped it. ``v2``: the counters of v2's cpu.stat."""
        v1 = self._quota.read(counters)
        if v1 is not None:
            return {
                "throttled_ns": _times(v1, b"throttled_time", 1),
                "throttled_periods": _times(v1, b"nr_throttled", 1),
            }
        v2 = v2 or self._v2.read(counters)
        return {
            "throttled_ns": _times(v2, b"throttled_usec", _US),
            "throttled_periods": _times(v2, b"nr_throttled", 1),
        }

    def cpu(self) -> dict[str, int | None]:
        """Fields of ``Consumption``: CPU time, and for how long the quota stopped it."""
        split, v2 = self._split.read(counters), self._v2.read(counters)
        cpu_ns = self._usage.read(int)
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
        """Memory, page cache included."""
        return self._memory.read(int)

    def disk_use(self) -> DiskUse | None:
        """``None`` where cgroups do not count it."""
        return self._io.read(group_disk_use)

    def pressures(self) -> dict[str, int | None]:
        """Fields of ``Consumption``."""
        return {
            "cpu_pressure_ns": self._cpu_pressure.read(pressure_ns),
            "memory_pressure_ns": self._memory_pressure.read(pressure_ns),
            "io_pressure_ns": self._io_pressure.read(pressure_ns),
        }

    def pids(self) -> tuple[int, ...]:
        """Its processes."""
        return self._processes.read(lambda text: tuple(map(int, text.split()))) or ()

    def close(self) -> None:
        """Close every file. Idempotent."""
        for file in vars(self).values():
            file.close()


def _file(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / name


def _times(found: Mapping[bytes, int] | None, name: bytes, factor: int) -> int | None:
    value = None if found is None else found.get(name)
    return None if value is None else value * factor


# Not counted: memory, and devices that count the traffic of the disks below them again.
_NO_DISKS = ("loop", "ram", "zram", "dm-", "md")
# The CPU clock of another process is ~pid << 3 | CPUCLOCK_SCHED (linux/posix-timers_types.h).
_CLOCK_SHIFT, _CLOCK_SCHED = 3, 2
_NONE_ENDED = ThreadTimes(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Pids:
    """The first process of each host, members by name, and the link emulator, where there is one; the driver."""

    members: Mapping[str, int]
    client: int | None
    links: int | None
    driver: int


class ContainerUse:
    """All processes of a container, by its first one; its own cgroups, and its own network."""

    def __init__(self, pid: int) -> None:
        self._first = Process(pid)
        self._group = _group_of(pid)
        self._others: dict[int, Process] = {}
        # The usage of those that have ended, as far as it was seen.
        self._ended = _NONE_ENDED
        self._ended_disk_bytes = (0, 0)

    def read(self) -> Consumption | None:
        """Its usage since it began; ``None`` once it has ended."""
        rss_bytes = self._first.rss_bytes()
        if self._group is None or rss_bytes is None:
            return None
        others = self._living()
        processes = [self._first, *others]
        sent = self._first.traffic()
        return Consumption(
            **self._group.cpu(),
            **_thread_fields([process.threads() for process in processes], self._ended),
            memory_bytes=self._group.memory_bytes(),
            rss_bytes=rss_bytes + sum(process.rss_bytes() or 0 for process in others),
            **(sent._asdict() if sent is not None else {}),
            **_disk_fields(self._group.disk_use(), processes, self._ended_disk_bytes),
            **self._group.pressures(),
        )

    def _living(self) -> list[Process]:
        """Its processes but the first one."""
        assert self._group is not None
        pids = set(self._group.pids()) - {self._first.pid}
        for pid in self._others.keys() - pids:
            process = self._others.pop(pid)
            self._ended = added(self._ended, process.seen_times)
            read, written = process.seen_disk_bytes
            self._ended_disk_bytes = self._ended_disk_bytes[0] + read, self._ended_disk_bytes[1] + written
            process.close()
        for pid in pids - self._others.keys():
            self._others[pid] = Process(pid)
        return list(self._others.values())

    def close(self) -> None:
        """Close every file. Idempotent."""
        for process in (self._first, *self._others.values()):
            process.close()
        if self._group is not None:
            self._group.close()


class MemberUse:
    """A container that may be started again: by its first process, ``pid``, and then by the result of ``pid_now``.

    Its counters continue from their last values before.
    """

    def __init__(self, pid: int, pid_now: Callable[[], int]) -> None:
        self._pid = pid
        self._pid_now = pid_now
        self._use = ContainerUse(pid)
        self._before: Consumption | None = None
        self._last: Consumption | None = None

    def read(self) -> Consumption | None:
        """Its usage since its first start; ``None`` while it has ended."""
        now = self._use.read()
        if now is None and (pid := self._pid_now()) != self._pid:
            self._use.close()
            self._pid, self._use, self._before = pid, ContainerUse(pid), self._last
            now = self._use.read()
        if now is None:
            return None
        self._last = now if self._before is None else resumed(self._before, now)
        return self._last

    def close(self) -> None:
        """Close every file. Idempotent."""
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
        ticks = self._process.ticks()
        return Consumption(
            cpu_ns=self._cpu_ns(),
            user_ns=None if ticks is None else ticks[0] * TICK_NS,
            system_ns=None if ticks is None else ticks[1] * TICK_NS,
            **self._throttling(),
            **_thread_fields([self._process.threads()]),
            rss_bytes=rss_bytes,
            **_disk_fields(None, [self._process]),
        )

    def _cpu_ns(self) -> int | None:
        try:
            return time.clock_gettime_ns((~self._process.pid << _CLOCK_SHIFT) | _CLOCK_SCHED)
        except OSError:
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
        """Close every file. Idempotent."""
        self._process.close()
        self._close_group()


class MachineUse:
    """The machine, and the interfaces of its own network namespace."""

    def __init__(self, proc: Path = Path("/proc"), block: Path = Path("/sys/block")) -> None:
        # All interrupts of the machine come before the lines that are read.
        self._stat = KeptFile(proc / "stat", most_bytes=1 << 18)
        self._memory = KeptFile(proc / "meminfo")
        self._disks = KeptFile(proc / "diskstats", most_bytes=1 << 16)
        self._net = KeptFile(proc / "net" / "dev", most_bytes=1 << 16)
        self._pressures = {kind: KeptFile(proc / "pressure" / kind) for kind in ("cpu", "memory", "io")}
        try:
            names = [name for name in os.listdir(block) if not name.startswith(_NO_DISKS)]
        except OSError:
            names = []
        self._names = frozenset(map(os.fsencode, names))

    def read(self) -> Consumption:
        """The usage since the machine started."""
        times = self._stat.read(machine_times)
        disks = self._disks.read(lambda text: disk_use(text, self._names))
        sent = self._net.read(traffic)
        cpu: dict[str, int | None] = {}
        if times is not None:
            user_ns, system_ns, steal_ns = (ticks * TICK_NS for ticks in (times.user, times.system, times.steal))
            cpu = {"cpu_ns": user_ns + system_ns, "user_ns": user_ns, "system_ns": system_ns, "steal_ns": steal_ns}
            cpu["context_switches"] = times.switches
        return Consumption(
            **cpu,
            rss_bytes=self._memory.read(memory_in_use_bytes),
            **(sent._asdict() if sent is not None else {}),
            **(disks._asdict() if disks is not None else {}),
            **{f"{kind}_pressure_ns": file.read(pressure_ns) for kind, file in self._pressures.items()},
        )

    def close(self) -> None:
        """Close every file. Idempotent."""
        for file in (self._stat, self._memory, self._disks, self._net, *self._pressures.values()):
            file.close()


class AllUse:
    """Every consumer of a run. ``pids_now`` returns the first processes of members, which may have been restarted."""

    def __init__(self, pids: Pids, pids_now: Callable[[], Mapping[str, int]] | None = None) -> None:
        now = pids_now or (lambda: pids.members)
        self._members = {name: MemberUse(pid, _pid_of(name, now)) for name, pid in pids.members.items()}
        self._client = None if pids.client is None else ContainerUse(pids.client)
        self._links = None if pids.links is None else ProcessUse(pids.links)
        self._driver = ProcessUse(pids.driver)
        self._machine = MachineUse()

    def read(self) -> Consumers:
        """One sample of each."""
        members = {name: member.read() for name, member in self._members.items()}
        return Consumers(
            members={name: member for name, member in members.items() if member is not None},
            client=None if self._client is None else self._client.read(),
            links=None if self._links is None else self._links.read(),
            driver=self._driver.read(),
            machine=self._machine.read(),
        )

    def close(self) -> None:
        """Close every file. Idempotent."""
        for consumer in (*self._members.values(), self._client, self._links, self._driver, self._machine):
            if consumer is not None:
                consumer.close()


def _pid_of(name: str, pids: Callable[[], Mapping[str, int]]) -> Callable[[], int]:
    return lambda: pids()[name]


def _group_of(pid: int) -> Group | None:
    try:
        return Group(cgroups_of(pid))
    except (RunError, OSError):
        return None


def _thread_fields(times: list[ThreadTimes | None], ended: ThreadTimes = _NONE_ENDED) -> dict[str, int | None]:
    known = [time for time in times if time is not None]
    if not known:
        return {}
    cpu_ns, delay_ns, switches = added(ended, *known)
    return {"threads_cpu_ns": cpu_ns, "run_delay_ns": delay_ns, "context_switches": switches}


def _disk_fields(
    counted: DiskUse | None, processes: list[Process], ended: tuple[int, int] = (0, 0)
) -> dict[str, int | None]:
    """The counters of the cgroup; else those of its processes."""
    if counted is not None:
        return dict(counted._asdict())
    known = [pair for process in processes if (pair := process.disk_bytes()) is not None]
    if not known:
        return {}
    read, written = (sum(values) for values in zip(ended, *known, strict=True))
    return {"read_bytes": read, "written_bytes": written}
