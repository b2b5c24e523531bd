"""The usage and counters of hosts, links and members while a load ran, and the leaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

GAUGES = ("memory_bytes", "rss_bytes")
"""Fields that are levels and not counters."""
_OF_THREADS = ("run_delay_ns", "context_switches")
# The observed threads have to account for this share of the CPU time, else their counters are not used: the threads of
# a program that ends are not observed after the last pass before.
_THREADS_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Consumption:
    """Counters of one consumer: since it exists, or within a window. ``None``: it is not counted.

    ``cpu_ns`` is CPU time, of which ``user_ns`` and ``system_ns`` are in steps of 10 ms. ``throttled_ns`` is how long
    its cgroup was stopped for having used its CPU quota, in ``throttled_periods`` periods of that. ``run_delay_ns`` is
    how long its threads were runnable without a core, ``context_switches`` how often one got a core, both of the
    threads whose CPU time is ``threads_cpu_ns``. ``steal_ns`` is what a hypervisor took from the machine's cores.
    ``memory_bytes`` is its cgroup's memory with page cache, ``rss_bytes`` what its processes hold (of the machine: what
    is not available); in a window both are the largest sample. ``read_bytes`` and ``written_bytes`` are those of disks,
    as are the operations ``reads`` and ``writes``. ``syncs`` are those of data with a configured fsync, which took
    ``syncs_late_ns`` longer than that, together; ``stalled_syncs`` of them by more than 100 ms. ``*_pressure_ns`` is
    for how long some task of it was paused for want of that resource.
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
    syncs: int | None = None
    syncs_late_ns: int | None = None
    stalled_syncs: int | None = None
    cpu_pressure_ns: int | None = None
    memory_pressure_ns: int | None = None
    io_pressure_ns: int | None = None

    def stopped_ns(self, period_ns: int) -> int:
        """How long its CPU quota may have stopped all of it at once: at most once for each of the quota's periods.

        The kernel adds up ``throttled_ns`` over the cores (kernel/sched/fair.c, ``unthrottle_cfs_rq``).
        """
        longest_ns = period_ns * self.throttled_periods if self.throttled_periods is not None else 0
        return min(self.throttled_ns or 0, longest_ns)

    def values(self) -> dict[str, int]:
        """The known values, as JSON."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}


NAMES = tuple(item.name for item in fields(Consumption))


@dataclass(frozen=True, slots=True)
class Consumers:
    """A value for each consumer, members by name; ``None`` for one that there is not, or that is no longer there.

    Of several clients ``clients`` has each by its name, and ``client`` is all of them together.
    """

    members: Mapping[str, Consumption] = field(default_factory=dict)
    client: Consumption | None = None
    clients: Mapping[str, Consumption] = field(default_factory=dict)
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
        """CPU time as a number of cores; ``None`` if it is unknown."""
        return None if cpu_ns is None or self.window_ns <= 0 else cpu_ns / self.window_ns

    def of_client(self, name: str) -> Usage:
        """The same, with one of several clients as the client; a client that is the only one stays."""
        if not self.used.clients:
            return self
        return replace(self, used=replace(self.used, client=self.used.clients.get(name)))

    @property
    def cluster_cores(self) -> float | None:
        """The usage of all members together; ``None`` if that of one is unknown."""
        times = [member.cpu_ns for member in self.used.members.values()]
        known = [time for time in times if time is not None]
        return self.cores(sum(known)) if known and len(known) == len(times) else None

    @property
    def links_cores(self) -> float | None:
        return self.cores(self.used.links.cpu_ns) if self.used.links is not None else None

    @property
    def client_cores(self) -> float | None:
        return self.cores(self.used.client.cpu_ns) if self.used.client is not None else None

    @property
    def steal_cores(self) -> float | None:
        return self.cores(self.used.machine.steal_ns) if self.used.machine is not None else None

    @property
    def client_throttled_ns(self) -> int | None:
        return self.used.client.throttled_ns if self.used.client is not None else None


def added_up(consumptions: Iterable[Consumption]) -> Consumption:
    """What several have used together; a counter that one of them lacks is unknown."""
    found = list(consumptions)
    values = {name: [getattr(one, name) for one in found] for name in NAMES}
    return Consumption(**{name: None if None in held else sum(held) for name, held in values.items()})


def difference(before: Consumption, after: Consumption, largest: Consumption) -> Consumption:
    """The usage between two samples of one consumer; ``largest`` has the gauges.

    A counter that is missing in one of both, or that decreased, is unknown. So are those of threads if the observed
    threads are not those that ran.
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
    """The counters of a restarted consumer: its usage before and since; levels are the current ones."""
    return replace(added_up((before, since)), **{name: getattr(since, name) for name in GAUGES})


def larger(one: Consumption | None, other: Consumption) -> Consumption:
    """The larger of each gauge."""
    both = {name: (getattr(one, name, None), getattr(other, name)) for name in GAUGES}
    return Consumption(**{name: max((v for v in pair if v is not None), default=None) for name, pair in both.items()})


LATE_NS = 1_000_000
"""The limit for the 99th percentile of lateness, also under a load that fills the machine."""
# The last two are the kernel's: frames that the emulator took too late, frames that the host's stack did not take.
_PORT_COUNTERS = (
    "received_frames", "received_bytes", "sent_frames", "sent_bytes", "drops", "tap_drops", "tap_drops_error",
)  # fmt: skip
# Drops in a direction that are not configured, and that no rule for frames of that kind explains.
_OWN_DROPS = {
    "buffers": "the emulator had no memory left",
    "device": "the kernel had no room for them",
    "error": "the kernel refused them",
}
_TAP_DROPS = {
    "queue": "frames lost before the link, since the emulator could not keep up",
    "receive": "frames lost after the link, since the host's network stack did not take them",
}


SIDES = ("a_to_b", "b_to_a")
"""The directions of a link: what its first end sends, and what its second end does."""
_DIRECTION_COUNTERS = (
    "frames", "bytes", "drops", "offered", "duplicated", "corrupted", "marked", "in_flight", "unmatched",
    "queue_high_water_frames", "queue_high_water_bytes", "wire_delay", "lateness",
)  # fmt: skip


def link_counters(held: Mapping[str, Any]) -> dict[str, Any]:
    """Both directions of a link of the emulator's answer, without their parameters, and whether it is ``up``."""
    counters: dict[str, Any] = {"up": held["up"]}
    for side in SIDES:
        found = {**held[side], "queue_high_water_frames": held[side]["queue_high_water"]}
        counters[side] = {name: found.get(name) for name in _DIRECTION_COUNTERS}
    return counters


def emulator_counters(stats: Mapping[str, Any], at_ns: int) -> dict[str, Any]:
    """The link emulator's ``stats``: ``links``, ``ports``, ``switches`` by name, and the totals of all of them.

    Every frame that a port received from its host is counted in its link's ``offered`` or in the port's ``drops``;
    frames that a switch counts as ``invalid_source`` or ``filtered`` are discarded.
    """
    return {
        "at_ns": at_ns,
        "links": {name: link_counters(held) for name, held in stats["links"].items()},
        "ports": {name: {key: port[key] for key in _PORT_COUNTERS} for name, port in stats["ports"].items()},
        "lateness": {key: value for key, value in stats["lateness"].items() if key != "buckets"},
        "latencies": stats.get("latencies"),
        **{key: stats[key] for key in ("switches", "stamps", "unmatched", "partition")},
    }


def veth_counters(link: Mapping[str, Any], qdiscs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The frames and bytes that an interface sent, from ``ip -s -j link show`` (one entry) and ``tc -s -j qdisc show``.

    The kernel counts the drops of a queueing discipline together, whether its limit or its loss was the cause.
    """
    sent = link["stats64"]["tx"]
    dropped = sum(int(qdisc.get("drops", 0)) for qdisc in qdiscs if qdisc.get("root"))
    return dict.fromkeys(_DIRECTION_COUNTERS) | {
        "frames": int(sent["packets"]),
        "bytes": int(sent["bytes"]),
        "drops": {"queue_or_loss": dropped, "device": int(sent["dropped"])},
    }


def since(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The counters of ``now`` less those of ``before``, both as ``veth_counters`` has them.

    A counter that went back was reset in between (its qdisc was replaced): it counts from there.
    """

    def less(now: int, before: int) -> int:
        return now - before if now >= before else now

    return {
        **now,
        **{key: less(now[key], before[key]) for key in ("frames", "bytes")},
        "drops": {cause: less(count, before["drops"].get(cause, 0)) for cause, count in now["drops"].items()},
    }


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """The statistics of every link during a scenario, as ``link_statistics`` of a network returned them
    (``values``)."""

    values: Mapping[str, Any]

    @property
    def stamps(self) -> str | None:
        """The source of the time at which a frame came from its host: ``kernel`` or ``read``; ``None`` if the kernel
        carries links."""
        held: str | None = self.values.get("stamps")
        return held

    @property
    def unmatched(self) -> int:
        """Frames without a stamp, so that their lateness lacks the time before they were read."""
        return int(self.values.get("unmatched") or 0)

    def lateness_ns(self, figure: Literal["p50", "p99", "max"]) -> int | None:
        """How late frames of all links reached their hosts, by percentile or at most; ``None`` if unknown."""
        held, name = self.values.get("lateness"), f"{figure}_ns"
        return int(held[name]) if held and held["count"] and name in held else None

    @property
    def early_max_ns(self) -> int:
        """The most by which any frame reached its host before its time; 0 if none did, or if that is unknown."""
        sides = [link[side] for link in self.values.get("links", {}).values() for side in SIDES]
        return max((int((side.get("lateness") or {}).get("early_max_ns") or 0) for side in sides), default=0)

    def busiest_since(self, before: LinkStatistics, rates_bps: Mapping[str, tuple[int, int]]) -> tuple[float, str]:
        """The largest share of its rate that a direction has carried since, and the name of its link; 0 if unknown.

        ``rates_bps``: by link, of ``a_to_b`` and ``b_to_a``.
        """
        busiest = (0.0, "no link")
        for name, rates in rates_bps.items():
            if name in self.values.get("links", {}) and name in before.values.get("links", {}):
                seconds = max(1, self.values["at_ns"] - before.values["at_ns"]) / 1e9
                for side, rate in zip(SIDES, rates, strict=True):
                    carried = self.values["links"][name][side]["bytes"] - before.values["links"][name][side]["bytes"]
                    busiest = max(busiest, (carried * 8 / seconds / rate, name))
        return busiest

    def own_losses(self) -> Iterator[tuple[str, int, str]]:
        """Losses that are not configured: link or port, number of frames, one line of text."""
        for name, link in self.values["links"].items():
            for side, words in (("a_to_b", "from"), ("b_to_a", "to")):
                for cause, reason in _OWN_DROPS.items():
                    if lost := link[side]["drops"].get(cause, 0):
                        yield name, lost, f"link {name}: {lost} frames {words} its first node lost, since {reason}"
        for name, port in self.values.get("ports", {}).items():
            for counter, words in _TAP_DROPS.items():
                if lost := (port["tap_drops"] or {}).get(counter, 0):
                    yield name, lost, f"{name}: {lost} {words}"


@dataclass(frozen=True, slots=True)
class Durations:
    """How long something took each time, of a histogram that the member keeps.

    ``buckets`` are pairs of a bucket's longest time in seconds (``None``: any) and how often it took that, empty ones
    left out; none at all where the member keeps no histogram. ``p99_at_most_s`` is the longest time of the bucket that
    holds the 99th percentile: a histogram has no more. Both figures are ``None`` where it did not happen, the latter
    also where nothing bounds that bucket.
    """

    count: int
    mean_s: float | None
    p99_at_most_s: float | None
    buckets: tuple[tuple[float | None, int], ...] = ()

    @classmethod
    def of(cls, sum_s: float, buckets: tuple[tuple[float | None, int], ...]) -> Durations:
        """Of whole buckets, ascending."""
        count = sum(times for _, times in buckets)
        seen, p99_s = 0, None
        for edge_s, times in buckets:
            seen += times
            if count and 100 * seen >= 99 * count:
                p99_s = edge_s
                break
        mean_s = sum_s / count if count else None
        return cls(count, mean_s, p99_s, tuple((edge_s, times) for edge_s, times in buckets if times))


@dataclass(frozen=True, slots=True)
class MemberActivity:
    """One member; ``None`` where it is unknown.

    ``leader_changes`` are those that it saw. ``log_syncs`` are the writes of its log forced to disk, ``commits`` those
    of its data. ``failed_proposals`` are writes that found no majority. ``data_bytes`` is the size of its data at the
    end, ``data_grown_bytes`` by how much that grew. ``warnings`` counts the lines of its log, from level warning on, by
    what they say, and what else people look for in the log of that store.
    """

    leader_changes: int | None = None
    log_syncs: Durations | None = None
    commits: Durations | None = None
    failed_proposals: int | None = None
    data_bytes: int | None = None
    data_grown_bytes: int | None = None
    warnings: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class StoreActivity:
    """Every member by name that lived when the scenario began."""

    members: Mapping[str, MemberActivity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, and since which term: it grows with every election, also where the same member wins it.

    Without a ``term`` the store elects no leader, and ``leader`` is the member that loads for the leader go to.
    """

    leader: str
    term: int | None


def leader_words(led: Leadership | None) -> str | None:
    """Who leads, for people: "leader etcd1", or "no leader" in a store without one; ``None`` if it is unknown."""
    if led is None:
        return None
    return "no leader" if led.term is None else f"leader {led.leader}"


def leader_text(before: Leadership | None, after: Leadership | None) -> str | None:
    """The leader at the end of a scenario; "etcd1>etcd2" if it was another one at the start, "etcd1>none" for no
    leader."""
    now = after.leader if after is not None else None
    if before is None or before.leader == now:
        return now
    return f"{before.leader}>{now or 'none'}"
