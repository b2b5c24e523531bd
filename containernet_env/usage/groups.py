"""The cgroups of a process, v1, v2 or both: what all processes in them used together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from containernet_env.hosts.limits import Cgroups
from containernet_env.usage import texts
from containernet_env.usage.kept import KeptFile
from containernet_env.usage.processes import TICK_NS

_US = 1000  # ns


class Group:
    """Reads a process's cgroups; a v1 controller goes before v2, since a controller lives in one of both.

    A hierarchy of v2 beside v1 controllers still tells the pressure.
    """

    def __init__(self, cgroups: Cgroups) -> None:
        v1, v2 = cgroups.v1, cgroups.v2
        accounts, cpu, memory = v1.get("cpuacct"), v1.get("cpu"), v1.get("memory")
        self._usage = KeptFile(_file(accounts, "cpuacct.usage"))
        self._split = KeptFile(_file(accounts, "cpuacct.stat"))
        self._quota = KeptFile(_file(cpu, "cpu.stat"))
        # It also has what the v1 controllers tell, where those are not there.
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
        """Fields of ``Consumption``: for how long the quota stopped it. ``v2``: what cpu.stat of v2 has said."""
        v1 = self._quota.read(texts.counters)
        if v1 is not None:
            return {
                "throttled_ns": _times(v1, b"throttled_time", 1),
                "throttled_periods": _times(v1, b"nr_throttled", 1),
            }
        v2 = v2 or self._v2.read(texts.counters)
        return {
            "throttled_ns": _times(v2, b"throttled_usec", _US),
            "throttled_periods": _times(v2, b"nr_throttled", 1),
        }

    def cpu(self) -> dict[str, int | None]:
        """Fields of ``Consumption``: CPU time, and for how long the quota stopped it."""
        split, v2 = self._split.read(texts.counters), self._v2.read(texts.counters)
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

    def disk_use(self) -> texts.DiskUse | None:
        """``None`` where cgroups do not count it."""
        return self._io.read(texts.group_disk_use)

    def pressures(self) -> dict[str, int | None]:
        """Fields of ``Consumption``."""
        return {
            "cpu_pressure_ns": self._cpu_pressure.read(texts.pressure_ns),
            "memory_pressure_ns": self._memory_pressure.read(texts.pressure_ns),
            "io_pressure_ns": self._io_pressure.read(texts.pressure_ns),
        }

    def pids(self) -> tuple[int, ...]:
        """Its processes."""
        return self._processes.read(lambda text: tuple(map(int, text.split()))) or ()

    def close(self) -> None:
        """Let go of every file. Idempotent."""
        for file in vars(self).values():
            file.close()


def _file(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / name


def _times(found: Mapping[bytes, int] | None, name: bytes, factor: int) -> int | None:
    value = None if found is None else found.get(name)
    return None if value is None else value * factor
