"""What consumers of the machine used: each member, the client's host, the link emulator, the driver, the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

GAUGES = ("memory_bytes", "rss_bytes")
"""Fields that are levels and not counters."""
_OF_THREADS = ("run_delay_ns", "context_switches")
# The threads that were seen have to account for this share of the CPU time, else what was counted of them says nothing:
# those of a program that ends are not seen after the last pass before.
_THREADS_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Consumption:
    """Counters of one consumer: since it exists, or within a window. ``None``: nobody counts that of it.

    ``cpu_ns`` is CPU time, of which ``user_ns`` and ``system_ns`` are in steps of 10 ms. ``throttled_ns`` is how long
    its cgroup was stopped for having used its CPU quota, in ``throttled_periods`` periods of that. ``run_delay_ns`` is
    how long its threads were runnable without a core, ``context_switches`` how often one got a core, both of the
    threads whose CPU time is ``threads_cpu_ns``. ``steal_ns`` is what a hypervisor took from the machine's cores.
    ``memory_bytes`` is its cgroup's memory with page cache, ``rss_bytes`` what its processes hold (of the machine: what
    is not available); in a window both are the largest sample. ``read_bytes`` and ``written_bytes`` are those of disks,
    as are the operations ``reads`` and ``writes``. ``*_pressure_ns`` is for how long some task of it stood still for
    want of that resource.
    """

    cpu_ns: int | None = None
    user_ns: int | None = None
    system_ns: int | None = None
    throttled_ns: int | None = None
    throttled_periods: int | None = None
    threads_cpu_ns: int | None = None
    run_delay_ns: int | None = None
    context_switches: int | None = None
    steal_ns: int | None = None
    memory_bytes: int | None = None
    rss_bytes: int | None = None
    received_bytes: int | None = None
    received_frames: int | None = None
    sent_bytes: int | None = None
    sent_frames: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    reads: int | None = None
    writes: int | None = None
    cpu_pressure_ns: int | None = None
    memory_pressure_ns: int | None = None
    io_pressure_ns: int | None = None

    def values(self) -> dict[str, int]:
        """What is known, as JSON values."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}


NAMES = tuple(item.name for item in fields(Consumption))


@dataclass(frozen=True, slots=True)
class Consumers:
    """A value for each consumer, members by name; ``None`` for one that there is not, or that is no longer there."""

    members: Mapping[str, Consumption] = field(default_factory=dict)
    client: Consumption | None = None
    links: Consumption | None = None
    driver: Consumption | None = None
    machine: Consumption | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used from right before a benchmark was sent to right after its answer came, ``window_ns`` later.

    That is the measured time with what belongs to it: connecting, the warm-up, the generator's report. A member that
    died within counts as long as it was seen.
    """

    window_ns: int
    used: Consumers

    def cores(self, cpu_ns: int | None) -> float | None:
        """CPU time as a number of cores; ``None`` where it is not known."""
        return None if cpu_ns is None or self.window_ns <= 0 else cpu_ns / self.window_ns

    @property
    def cluster_cores(self) -> float | None:
        """What all members took together; ``None`` where that of one is not known."""
        times = [member.cpu_ns for member in self.used.members.values()]
        known = [time for time in times if time is not None]
        return self.cores(sum(known)) if known and len(known) == len(times) else None

    @property
    def links_cores(self) -> float | None:
        """What the link emulator took; ``None`` where the kernel carries the links."""
        return self.cores(self.used.links.cpu_ns) if self.used.links is not None else None

    @property
    def client_cores(self) -> float | None:
        """What the client's host took."""
        return self.cores(self.used.client.cpu_ns) if self.used.client is not None else None

    @property
    def steal_cores(self) -> float | None:
        """What was stolen from this machine."""
        return self.cores(self.used.machine.steal_ns) if self.used.machine is not None else None

    @property
    def client_throttled_ns(self) -> int | None:
        """How long the client's host was stopped by its own CPU limit."""
        return self.used.client.throttled_ns if self.used.client is not None else None


def difference(before: Consumption, after: Consumption, largest: Consumption) -> Consumption:
    """What was used between two samples of one consumer; ``largest`` has the gauges.

    A counter that is missing in one of both, or that went back, is not known. So are those of threads where the threads
    that were seen are not those that ran.
    """
    used: dict[str, int | None] = {}
    for name in NAMES:
        old, new = getattr(before, name), getattr(after, name)
        used[name] = None if old is None or new is None or new < old else new - old
        if name in GAUGES:
            used[name] = getattr(largest, name)
    seen, ran = used["threads_cpu_ns"], used["cpu_ns"]
    if seen is not None and ran is not None and seen < _THREADS_SHARE * ran:
        used |= dict.fromkeys(_OF_THREADS)
    return Consumption(**used)


def resumed(before: Consumption, since: Consumption) -> Consumption:
    """The counters of a consumer that was started again: what it had used before, and since; levels are those now."""
    both = {name: (getattr(before, name), getattr(since, name)) for name in NAMES if name not in GAUGES}
    sums = {name: None if None in pair else sum(pair) for name, pair in both.items()}
    return Consumption(**sums, **{name: getattr(since, name) for name in GAUGES})


def larger(one: Consumption | None, other: Consumption) -> Consumption:
    """The larger of each gauge."""
    if one is None:
        return Consumption(**{name: getattr(other, name) for name in GAUGES})
    both = {name: (getattr(one, name), getattr(other, name)) for name in GAUGES}
    return Consumption(**{name: max((v for v in pair if v is not None), default=None) for name, pair in both.items()})
