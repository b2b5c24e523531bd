"""The consumers of a machine, each read by one call: a container, a single process, the machine itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from containernet_env.base.errors import RunError
from containernet_env.hosts.limits import cgroups_of
from containernet_env.model.usage import Consumers, Consumption, resumed
from containernet_env.usage import texts
from containernet_env.usage.groups import Group
from containernet_env.usage.kept import KeptFile
from containernet_env.usage.processes import TICK_NS, Process
from containernet_env.usage.texts import ThreadTimes, added

# Not counted: what is memory, and what counts again what goes to the disks below it.
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
        # What those had used that have ended since, as far as it was seen.
        self._ended = _NONE_ENDED
        self._ended_disk_bytes = (0, 0)

    def read(self) -> Consumption | None:
        """What it has used since it began; ``None`` once it has ended."""
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
        """Let go of every file. Idempotent."""
        for process in (self._first, *self._others.values()):
            process.close()
        if self._group is not None:
            self._group.close()


class MemberUse:
    """A container that may be started again: by its first process, ``pid``, and then by that which ``pid_now`` tells.

    Its counters go on from what was last seen of them before.
    """

    def __init__(self, pid: int, pid_now: Callable[[], int]) -> None:
        self._pid = pid
        self._pid_now = pid_now
        self._use = ContainerUse(pid)
        self._before: Consumption | None = None
        self._last: Consumption | None = None

    def read(self) -> Consumption | None:
        """What it has used since it first began; ``None`` while it has ended."""
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
        """Let go of every file. Idempotent."""
        self._use.close()


class ProcessUse:
    """One process, whose cgroups it may share with others: of those only how long their quota stopped them is told."""

    def __init__(self, pid: int) -> None:
        self._process = Process(pid)
        self._cgroup: bytes | None = None
        self._group: Group | None = None

    def read(self) -> Consumption | None:
        """What it has used since it began; ``None`` once it has ended."""
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
        """Of the group that it is in now: one may put it into another one."""
        if (cgroup := self._process.cgroup()) != self._cgroup:
            self._close_group()
            self._cgroup, self._group = cgroup, _group_of(self._process.pid)
        return {} if self._group is None else self._group.throttling()

    def _close_group(self) -> None:
        if self._group is not None:
            self._group.close()

    def close(self) -> None:
        """Let go of every file. Idempotent."""
        self._process.close()
        self._close_group()


class MachineUse:
    """The machine, and the interfaces of its own network namespace."""

    def __init__(self, proc: Path = Path("/proc"), block: Path = Path("/sys/block")) -> None:
        # All interrupts of the machine are in it, before what is read.
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
        """What was used since the machine started."""
        times = self._stat.read(texts.machine_times)
        disks = self._disks.read(lambda text: texts.disk_use(text, self._names))
        sent = self._net.read(texts.traffic)
        cpu: dict[str, int | None] = {}
        if times is not None:
            user_ns, system_ns, steal_ns = (ticks * TICK_NS for ticks in (times.user, times.system, times.steal))
            cpu = {"cpu_ns": user_ns + system_ns, "user_ns": user_ns, "system_ns": system_ns, "steal_ns": steal_ns}
            cpu["context_switches"] = times.switches
        return Consumption(
            **cpu,
            rss_bytes=self._memory.read(texts.memory_in_use_bytes),
            **(sent._asdict() if sent is not None else {}),
            **(disks._asdict() if disks is not None else {}),
            **{f"{kind}_pressure_ns": file.read(texts.pressure_ns) for kind, file in self._pressures.items()},
        )

    def close(self) -> None:
        """Let go of every file. Idempotent."""
        for file in (self._stat, self._memory, self._disks, self._net, *self._pressures.values()):
            file.close()


class AllUse:
    """Every consumer of a run. ``pids_now`` tells the first processes of members that may have been started again."""

    def __init__(self, pids: Pids, pids_now: Callable[[], Mapping[str, int]] | None = None) -> None:
        now = pids_now or (lambda: pids.members)
        self._members = {name: MemberUse(pid, _pid_of(name, now)) for name, pid in pids.members.items()}
        self._client = None if pids.client is None else ContainerUse(pids.client)
        self._links = None if pids.links is None else ProcessUse(pids.links)
        self._driver = ProcessUse(pids.driver)
        self._machine = MachineUse()

    def read(self) -> Consumers:
        """One look at each."""
        members = {name: member.read() for name, member in self._members.items()}
        return Consumers(
            members={name: member for name, member in members.items() if member is not None},
            client=None if self._client is None else self._client.read(),
            links=None if self._links is None else self._links.read(),
            driver=self._driver.read(),
            machine=self._machine.read(),
        )

    def close(self) -> None:
        """Let go of every file. Idempotent."""
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
    counted: texts.DiskUse | None, processes: list[Process], ended: tuple[int, int] = (0, 0)
) -> dict[str, int | None]:
    """What the cgroup counted; else what its processes did."""
    if counted is not None:
        return dict(counted._asdict())
    known = [pair for process in processes if (pair := process.disk_bytes()) is not None]
    if not known:
        return {}
    read, written = (sum(values) for values in zip(ended, *known, strict=True))
    return {"read_bytes": read, "written_bytes": written}
