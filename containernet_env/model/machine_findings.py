"""Findings of the machine: whether hosts, links and load had the cores that they are configured to have. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from containernet_env.model.findings import Effect, Finding, Kind
from containernet_env.model.load_result import LoadResult
from containernet_env.model.store_activity import StoreActivity
from containernet_env.model.usage import Consumption, Usage

THROTTLED_SHARE = 0.01
"""A host that its own limit stops for a larger share of the time: from there on it is in the 99th percentile."""
SATURATED_CORES = 0.9
"""A thread that takes more of a core, or is busy for a larger share of the time, has no time left in which it could
wait for something else."""
WAITED_SHARE = 0.05
"""A generator that waits for a core for a larger share of the time adds that share to every latency."""
STOLEN_SHARE = 0.01
"""What a hypervisor may take from the machine's cores: from there on it is in the 99th percentile."""
STOLEN_STEP_NS = 10_000_000
"""The kernel tells stolen time in steps of this length: what is less than a step more than allowed may be one."""
OTHERS_SHARE = 0.10
"""What programs of others may take of the machine's cores, as user time: the engine's own take a few percent."""
SLOW_SYNC_S = 0.016
"""A 99th percentile of the log's writes that is in a longer bucket: etcd wants less than 10 ms; buckets end at 8 and at
16 ms."""
MEMBER_WAITED = 0.5
"""How many threads of a member may wait for a core in the mean: 15 scenarios that two cores carried had up to 0.23, the
ones that they did not carry 0.68 and more."""
FULL_SHARE = 0.95
"""A machine whose cores are busier has had somebody wait."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the machine has, and what everything configured may take of it, in cores.

    ``limits_cores`` is the sum of all hosts' CPU limits and one core for the link emulator; ``None`` where a host has
    no limit. ``links_core``: one of the ``cores`` is kept for the link emulator. Without ``members_here`` the load
    alone is this run's, and the members are elsewhere: whether it had its core, it says itself.
    """

    cores: int
    limits_cores: float | None = None
    links_core: bool = False
    members_here: bool = True

    @property
    def suffices(self) -> bool:
        """Whether all that is configured can run at its limits at once."""
        return self.limits_cores is not None and self.limits_cores <= self.cores


def machine_findings(usage: Usage | None, load: LoadResult | None, capacity: Capacity) -> Iterator[Finding]:
    """Findings of what was used while a load ran; nothing is said of what is not known."""
    if load is not None:
        yield from _generator_findings(load)
    if usage is None or usage.window_ns <= 0:
        return
    for name, member in usage.used.members.items():
        yield from _throttled(name, member, usage.window_ns, "member_throttled", "told")
    yield from _waited(usage)
    if usage.used.client is not None:
        yield from _throttled("the client's host", usage.used.client, usage.window_ns, "client_throttled", "invalid")
    if usage.used.links is not None:
        yield from _throttled("the link emulator", usage.used.links, usage.window_ns, "links_throttled", "invalid")
    links = usage.links_cores
    if links is not None and links > SATURATED_CORES:
        text = f"the link emulator took {links:.2f} of the one core that it can take"
        yield Finding("links_saturated", "invalid", text, round(links, 3), SATURATED_CORES)
    stolen = (usage.steal_cores or 0.0) / capacity.cores
    if stolen > STOLEN_SHARE + STOLEN_STEP_NS / (usage.window_ns * capacity.cores):
        text = f"a hypervisor took {stolen:.1%} of this machine's time"
        yield Finding("machine_stolen", "invalid", text, round(stolen, 4), STOLEN_SHARE)
    if capacity.members_here:
        yield from _machine_load(usage, capacity)


def store_findings(store: StoreActivity | None) -> Iterator[Finding]:
    """Findings of members whose disk is slow, as they count it themselves."""
    for name, member in (store.members if store is not None else {}).items():
        syncs = member.log_syncs
        if syncs is not None and syncs.buckets and (syncs.p99_at_most_s or math.inf) > SLOW_SYNC_S:
            took = f"up to {syncs.p99_at_most_s * 1e3:.0f} ms" if syncs.p99_at_most_s else "longer than it counts"
            text = f"{name} waited for its disk: the 99th percentile of the writes of its log was {took}"
            yield Finding("slow_disk", "told", text, syncs.p99_at_most_s, SLOW_SYNC_S, name)


def _generator_findings(load: LoadResult) -> Iterator[Finding]:
    if load.total_s <= 0:
        return
    busy = max(load.cpu_s / load.total_s, load.busy_ratio or 0.0)
    if busy > SATURATED_CORES:
        text = f"the load generator was busy all the time ({busy:.2f}): it was not the store that set the rate"
        yield Finding("generator_saturated", "invalid", text, round(busy, 3), SATURATED_CORES)
    waited = _waited_share(load)
    if waited > WAITED_SHARE:
        text = f"the load generator waited for a core for {waited:.0%} of the time"
        if load.schedule is not None:
            text = f"waits of the load generator for a core are {waited:.0%} of the median latency"
        yield Finding("generator_waited", "invalid", text, round(waited, 4), WAITED_SHARE)


def _waited_share(load: LoadResult) -> float:
    """Which share of a latency the generator's waits for a core are; of an open loop at most.

    In a closed loop with one request in flight it is that of the time; with more of them less of each latency, but the
    next request is sent as much later. An open loop wakes for each start and each answer, and its rate is configured:
    what it waits at each of both is part of a latency, and how often it does says nothing.
    """
    share = (load.run_delay_s or 0.0) / load.total_s
    if load.schedule is None or load.mean_run_delay_s is None or not load.median_s:
        return share
    return min(share, 2 * load.mean_run_delay_s / load.median_s)


def _throttled_share(used: Consumption, window_ns: int) -> float:
    """For which share of the time a host's own CPU limit stopped it; 0 where that is too little to matter."""
    share = (used.throttled_ns or 0) / window_ns
    return share if share > THROTTLED_SHARE else 0.0


def _throttled(name: str, used: Consumption, window_ns: int, kind: Kind, effect: Effect) -> Iterator[Finding]:
    if share := _throttled_share(used, window_ns):
        text = f"{name} was stopped by its own CPU limit for {share:.0%} of the time"
        yield Finding(kind, effect, text, round(share, 4), THROTTLED_SHARE, name)


def _waited(usage: Usage) -> Iterator[Finding]:
    """That threads of members waited for a core.

    Where a member's own CPU limit stops it, that wait is in the counter, too, and the member is not named.
    """
    waited = {
        name: threads
        for name, member in usage.used.members.items()
        if (threads := (member.run_delay_ns or 0) / usage.window_ns) > MEMBER_WAITED
        and not _throttled_share(member, usage.window_ns)
    }
    if waited:
        most = max(waited.values())
        text = (
            f"{', '.join(waited)} waited for cores, with up to {most:.1f} threads in the mean, none of them by a limit"
        )
        yield Finding("member_waited", "invalid", text, round(most, 4), MEMBER_WAITED)


def _machine_load(usage: Usage, capacity: Capacity) -> Iterator[Finding]:
    machine = usage.used.machine
    if machine is None or machine.cpu_ns is None:
        return
    time_ns = usage.window_ns * capacity.cores
    ours = [*usage.used.members.values(), usage.used.client, usage.used.links, usage.used.driver]
    known = [used.user_ns for used in ours if used is not None]
    if machine.user_ns is not None and None not in known:
        # The kernel's own threads and interrupts, which work for the run too, have no user time.
        others = (machine.user_ns - sum(user_ns for user_ns in known if user_ns is not None)) / time_ns
        if others > OTHERS_SHARE:
            text = f"programs that are not of this run took {others:.0%} of this machine's cores (user time)"
            yield Finding("machine_shared", "invalid", text, round(others, 4), OTHERS_SHARE)
    used_ns, shared = machine.cpu_ns, capacity.cores
    if capacity.links_core and usage.used.links is not None and usage.used.links.cpu_ns is not None:
        used_ns, shared = used_ns - usage.used.links.cpu_ns, shared - 1
    busy = used_ns / (usage.window_ns * shared)
    if busy > FULL_SHARE:
        ours_ns = sum(used.cpu_ns or 0 for used in ours if used is not None)
        explained = capacity.suffices and machine.cpu_ns - ours_ns <= OTHERS_SHARE * time_ns
        effect: Effect = "told" if explained else "invalid"
        cores = f"this machine's {shared} cores" if shared > 1 else "the one core beside the link emulator's"
        text = f"{cores} {'were' if shared > 1 else 'was'} busy for {busy:.0%} of the time"
        text += "" if explained else ": hosts had less CPU time than they are configured to have"
        yield Finding("machine_full", effect, text, round(busy, 4), FULL_SHARE)
