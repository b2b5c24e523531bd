"""What the kernel's files say, as numbers. Pure: bytes in, numbers out; ``ValueError`` for what is not of that form.

Forms are those of proc(5), of Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/, Documentation/accounting/
psi.rst and Documentation/scheduler/sched-stats.rst.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

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
    """The sum of several ``/proc/PID/task/TID/schedstat``, and of what was known before."""
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
    """What programs have no room for any more, of ``/proc/meminfo``."""
    lines = dict(line.split(b":", 1) for line in meminfo.splitlines()[:3])
    total, available = (int(lines.get(name, b"?").split()[0]) for name in (b"MemTotal", b"MemAvailable"))
    return (total - available) * 1024


def pressure_ns(text: bytes) -> int:
    """For how long some task stood still, of a file of /proc/pressure or of cgroup v2."""
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
