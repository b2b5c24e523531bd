"""The CPU and memory limits of a process and its OOM kills, as the kernel holds them in its cgroups.

The paths come from ``/proc/PID/cgroup`` and the mount table, so cgroup v1, v2 and mixtures of both are found,
whichever driver (cgroupfs or systemd) named the groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from containernet_env.base.errors import RunError
from containernet_env.base.files import unescape

# cgroup v1 has no word for "no limit": it answers the largest counter of whole pages (2^63 - 1 rounded down to
# a page of 4 to 64 KiB, Linux mm/page_counter.c). No machine has that much memory.
_V1_UNLIMITED_BYTES = 1 << 62
# Memory limits are held in whole pages; 64 KiB is the largest page of any machine that runs this.
_PAGE_MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class Limits:
    """Limits as the kernel holds them; ``None`` means no limit.

    ``cpu_quota_us`` microseconds of CPU time may be used in each ``cpu_period_us``. ``memswap_bytes`` is memory
    and swap together (as Docker counts), ``None`` also where the kernel does not account for swap. ``cpuset`` are the
    cores that it may use, as in "0-2,4".
    """

    cpu_quota_us: int | None
    cpu_period_us: int | None
    memory_bytes: int | None
    memswap_bytes: int | None
    cpuset: str | None = None

    @property
    def cpus(self) -> float | None:
        if self.cpu_quota_us is None or not self.cpu_period_us:
            return None
        return self.cpu_quota_us / self.cpu_period_us


@dataclass(frozen=True)
class Cgroups:
    """Directories of a process's groups: one per v1 controller, and the v2 one (``None`` where there is none)."""

    v1: Mapping[str, Path]
    v2: Path | None

    def procs_files(self) -> tuple[Path, ...]:
        """The ``cgroup.procs`` files through which another process joins all of these groups."""
        directories = list(dict.fromkeys(self.v1.values()))
        if self.v2 is not None:
            directories.append(self.v2)
        return tuple(directory / "cgroup.procs" for directory in directories)


def locate(memberships: str, mountinfo: str) -> Cgroups:
    """Join ``/proc/PID/cgroup`` and the cgroup mounts of ``/proc/self/mountinfo`` into directories.

    Each line of the former is ``id:controllers:path``, without controllers for v2 (cgroups(7)). A hierarchy that is
    not mounted here is left out.
    """
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, *_, options) = before.split(" "), after.split(" ")
        # The last field of a v1 mount holds the controllers among ordinary super block options.
        mounts.append((kind, set(options.split(",")), unescape(fields[4]), unescape(fields[3])))
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for line in memberships.splitlines():
        _, names, place = line.split(":", 2)
        path, controllers = PurePosixPath(place), set(filter(None, names.split(",")))
        for kind, held, mount_point, root in mounts:
            if kind != ("cgroup" if controllers else "cgroup2") or not controllers <= held:
                continue
            if path.is_relative_to(root):
                directory = Path(mount_point, path.relative_to(root))
                v1 = {**dict.fromkeys(controllers, directory), **v1}
                v2 = v2 if controllers else v2 or directory
                break
    return Cgroups(v1, v2)


def cgroups_of(pid: int) -> Cgroups:
    """The cgroup directories of ``pid``. Raises ``RunError`` where the process is gone."""
    try:
        memberships = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError as error:
        raise RunError(f"cannot find the cgroups of process {pid}: {error.strerror}") from error
    return locate(memberships, Path("/proc/self/mountinfo").read_text())


def parse_limit(text: str) -> int | None:
    """Parse a limit of either version: bytes of memory or swap, or a quota in us; ``None`` means no limit."""
    word = text.strip()
    # -1: Linux Documentation/scheduler/sched-bwc.rst.
    return None if word == "max" or not 0 <= int(word) < _V1_UNLIMITED_BYTES else int(word)


def parse_cores(text: str) -> frozenset[int]:
    """Parse a list of cores such as "0-2,4" (cpuset(7), "List format")."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        # The controller is not enabled in this group: no limit of that kind is held here.
        return None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error


def _read_of(cgroups: Cgroups, controller: str, v1_name: str, v2_name: str) -> str | None:
    """A file of a controller; v1 goes before v2, since a controller lives in one of both."""
    if controller in cgroups.v1:
        return _read(cgroups.v1[controller] / v1_name)
    return None if cgroups.v2 is None else _read(cgroups.v2 / v2_name)


def read_limits(cgroups: Cgroups) -> Limits:
    # v2: quota and period in one file.
    quota = _read_of(cgroups, "cpu", "cpu.cfs_quota_us", "cpu.max")
    period = _read_of(cgroups, "cpu", "cpu.cfs_period_us", "cpu.max")
    quota_us, period_us = (parse_limit(quota.split()[0]), int(period.split()[-1])) if quota and period else (None, None)
    memory, swap = (
        None if text is None else parse_limit(text)
        for text in (
            _read_of(cgroups, "memory", "memory.limit_in_bytes", "memory.max"),
            _read_of(cgroups, "memory", "memory.memsw.limit_in_bytes", "memory.swap.max"),
        )
    )
    if "memory" not in cgroups.v1:  # v2 counts swap by itself
        swap = memory + swap if memory is not None and swap is not None else None
    cpuset = _read_of(cgroups, "cpuset", "cpuset.cpus", "cpuset.cpus.effective")
    return Limits(quota_us, period_us, memory, swap, cpuset and cpuset.strip())


def limit_swap(cgroups: Cgroups, memory_bytes: int | None, memswap_bytes: int | None) -> None:
    """Hold memory and swap together to ``memswap_bytes`` where cgroup v2 counts swap and the engine has not done it.

    An engine whose own process is in the root group takes swap limits for unsupported and drops them with a warning
    (moby, pkg/sysinfo, getSwapLimitV2). Negative is no limit; ``None``, or a kernel that does not count: nothing is
    done. Raises ``RunError`` where the kernel refuses.
    """
    if "memory" in cgroups.v1 or cgroups.v2 is None or memory_bytes is None or memswap_bytes is None:
        return
    path = cgroups.v2 / "memory.swap.max"
    held = _read(path)
    wanted = "max" if memswap_bytes < 0 else str(max(0, memswap_bytes - memory_bytes))
    if held is None or held.strip() == wanted:
        return
    try:
        path.write_text(wanted)
    except OSError as error:
        raise RunError(f"cannot write {wanted} to {path}: {error.strerror}") from error


def read_oom_kills(cgroups: Cgroups) -> int:
    """How many processes of these groups the kernel has killed for want of memory.

    Raises ``RunError`` where the kernel keeps no such counter (v1 before Linux 4.13).
    """
    text = _read_of(cgroups, "memory", "memory.oom_control", "memory.events")
    found = re.search(r"^oom_kill (\d+)$", text or "", re.MULTILINE)
    if found is None:
        raise RunError("this kernel does not count OOM kills in the memory cgroup")
    return int(found[1])


def check_limits(configured: Mapping[str, Any], held: Limits) -> None:
    """Raise ``RunError`` unless each ``configured`` limit is held; keys are fields of ``Limits``, ``None`` is any.

    A negative value means no limit; memory may be rounded down to whole pages. Where the kernel does not account for
    swap there is nothing to compare.
    """
    for name, wanted in configured.items():
        got = getattr(held, name)
        if wanted is None or (name == "memswap_bytes" and got is None):
            continue
        if name == "cpuset":
            fits = got is not None and parse_cores(got) == parse_cores(wanted)
        else:
            unlimited = wanted < 0 and got is None
            rounded = name.endswith("_bytes") and got is not None and 0 <= wanted - got < _PAGE_MAX_BYTES
            fits = got == wanted or unlimited or rounded
        if not fits:
            raise RunError(f"the kernel holds {name}={got} instead of {wanted}")
