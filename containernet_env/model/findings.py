"""Findings and the verdict: facts that a reader of a scenario's figures needs, with values and thresholds. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Literal, get_args

from containernet_env.base.programs import is_by_own_limit
from containernet_env.model.disruption import Disruptions
from containernet_env.model.load_result import LoadResult
from containernet_env.model.proof import NetworkProof
from containernet_env.model.usage import LATE_NS, Consumption, Leadership, LinkStatistics, StoreActivity, Usage

Effect = Literal["info", "unknown", "invalid"]
"""The effect on the figures of its row: none (reported only), unknown, or the figures are not the store's."""

Kind = str
"""A key of ``RULES``."""
# Why each limit is what it is, is in docs/fidelity.md.
PAUSE_NS = 100_000_000  # etcd's default heartbeat, so that members notice it; the same scenarios had up to 36 ms
PAUSED_SHARE = 0.05
LATE_SHARE = 1 / 2000
LATE_PART, LATE_LEAST_NS = 40, 300_000  # four links then add a tenth to one request of 25; measured: up to 0.12 ms
LATE_MEDIAN_PART, LATE_MEDIAN_LEAST_NS = 4, 50_000  # four links then add a fortieth to every request; up to 13 us
SILENCE_MAX_S = 2.0
"""A living member whose machine schedules it is never silent for longer, however long its election timeout is."""
SILENCE_THROTTLED_SHARE = 0.1
BELOW_PART, BELOW_LEAST_S = 10, 0.0003
"""A median may be below its floor by this part of it, and by 0.3 ms: disks are not the same from one second to the
next, and where links vary, so does the median of few requests."""
ANSWERS = 20
THROTTLED_SHARE = 0.01
SATURATED_CORES = 0.9
"""A thread that takes more of a core, or is busy for a larger share of the time, has no time left in which it could
wait for something else."""
WAITED_SHARE = 0.05
# The longest default slice of Linux's scheduler (kernel/sched/fair.c: 0.7 or 0.75 ms, times at most 4): how long a
# thread that wakes may wait for one other thread of its core.
SLICE_S = 0.003
STOLEN_SHARE, STOLEN_STEP_NS = 0.01, 10_000_000
"""The kernel reports stolen time in steps of this length: an excess of less than one step may be rounding."""
OTHERS_SHARE = 0.10
SLOW_SYNC_S = 0.016
SYNC_LATE_PART, SYNC_LATE_LEAST_NS = 10, 500_000
"""An fsync may take longer than configured by this part of it or this time, whichever is more."""
MEMBER_WAITED = 0.5
FULL_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    ``value`` and ``threshold`` are in the unit that ``kind`` is about (requests, ns, frames); ``None`` if there
    is no number. ``effect`` is one of its kind's in ``RULES``. ``text`` is one line for people.
    ``subject`` names the link, port or member that it is about.
    """

    kind: Kind
    effect: Effect
    text: str
    value: float | None = None
    threshold: float | None = None
    subject: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in RULES:
            raise ValueError(f"{self.kind!r} is no kind of finding")


def _above(
    kind: Kind, value: float, limit: float, text: str, subject: str | None = None, effect: Effect = "invalid"
) -> Iterator[Finding]:
    if value > limit:
        yield Finding(kind, effect, text, round(value, 4), limit, subject)


def of_all_clients(by_client: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """The findings of what several clients did together: those of all of them once, others with the client's name."""
    clients = Counter(finding for found in by_client.values() for finding in dict.fromkeys(found))
    together: dict[Finding, None] = {}
    for client, found in by_client.items():
        for finding in found:
            is_common = clients[finding] == len(by_client)
            named = replace(finding, text=f"{client}: {finding.text}", subject=finding.subject or client)
            together[finding if is_common else named] = None
    return list(together)


def figures_findings(load: LoadResult | None) -> Iterator[Finding]:
    """For the row of several clients: that one of them has no figures, so that those of all lack it."""
    if load is None or not load.ok:
        yield Finding("cut_short", "unknown", "it has no figures, so those of all are without it")


def network_finding(proof: NetworkProof | None) -> Finding | None:
    """That of all scenarios since the last proof that held; ``proof``: the next one, ``None`` if none was had."""
    if proof is None:
        return Finding("network_unknown", "unknown", "what the network was at the end of the run could not be measured")
    if proof.passed:
        if proof.doubt is None:
            return None
        text = f"at the end of the run the network could not be distinguished from a wrong one: {proof.doubt}"
        return Finding("network_unknown", "unknown", text)
    return Finding("network_off", "invalid", f"at the end of the run the network was not as configured: {proof.text}")


def load_findings(load: LoadResult | None) -> Iterator[Finding]:
    """Findings of the generator: too few answers, pauses, an open loop that fell behind, and the causes."""
    if load is None:
        return
    if load.reason is not None:
        text = f"the load ended early ({load.reason}): its figures are not those of the whole one"
        yield Finding("cut_short", "unknown", text)
    if 0 < load.ok < ANSWERS:
        text = f"{load.ok} answers are too few: the 95th percentile is the slowest of them"
        yield Finding("few_answers", "unknown", text, load.ok, ANSWERS)
    yield from _pauses(load)
    schedule = load.schedule
    if schedule is None or not schedule.fell_behind:
        return
    parts = [f"behind its schedule: {schedule.late:,} requests started late, by up to {schedule.worst_lag_s:.3f} s"]
    if schedule.unsent:
        parts.append(f"{schedule.unsent:,} were never sent")
    if schedule.clients_short:
        parts.append("all clients were busy")
    yield Finding("fell_behind", "info", "; ".join(parts), schedule.late + schedule.unsent, 0)
    if schedule.generator_late:
        late = schedule.generator_late
        text = f"the generator itself was too slow for {late:,} requests: their figures are not the store's"
        effect: Effect = "invalid" if late > LATE_SHARE * load.requests else "info"
        yield Finding("generator_late", effect, text, late, 0)


def floor_findings(load: LoadResult | None, floor_s: float | None) -> Iterator[Finding]:
    """The finding that a median is below the least that was thought possible: ``floor_s``, if it is known."""
    if load is None or load.median_s is None or floor_s is None:
        return
    below_s, most_s = floor_s - load.median_s, max(floor_s / BELOW_PART, BELOW_LEAST_S)
    if below_s > most_s:
        text = f"the median, {load.median_s * 1e3:.2f} ms, is {below_s * 1e3:.2f} ms below the floor: "
        text += "the disks are faster than before the run, or requests waited for less than the floor has"
        yield Finding("below_floor", "info", text, below_s, most_s)


def _pauses(load: LoadResult) -> Iterator[Finding]:
    """One that is long by itself, or many that are not."""
    longest_ns, paused_ns, most_ns = load.pause_s * 1e9, load.paused_s * 1e9, PAUSED_SHARE * load.total_s * 1e9
    if longest_ns <= PAUSE_NS and paused_ns <= most_ns:
        return
    text = f"the load generator itself was paused for {load.pause_s:.2f} s"
    if load.pauses > 1:
        text = f"the load generator itself was paused {load.pauses:,} times, for {load.paused_s:.2f} s in all and "
        text += f"{load.pause_s:.2f} s at the longest"
    text += ": such latencies are not the store's"
    value, threshold = (longest_ns, PAUSE_NS) if longest_ns > PAUSE_NS else (paused_ns, most_ns)
    yield Finding("generator_paused", "invalid", text, round(value), round(threshold))


def network_findings(
    network: LinkStatistics | None, latency_s: float | None = None, killed: Collection[str] = ()
) -> Iterator[Finding]:
    """Findings of the links that the configuration does not explain: frames late, early, or lost by the emulator.

    ``latency_s`` is the median latency that requests over them have to have, ``None`` if unknown: the floor, or the
    measured latency, which lateness itself makes longer. A pause of the emulator makes few frames late, which no
    percentile shows, so the largest values count too. Frames lost at members that configured events ``killed`` are
    explained: no process was left to receive them.
    """
    if network is None:
        return
    yield from _lateness_findings(network, latency_s)
    if network.unmatched:
        text = f"{network.unmatched:,} frames had no stamp of their arrival: they were later than their lateness says"
        if network.stamps != "kernel":
            text = "arrival times are those of the read: this kernel stamps no frames"
        yield Finding("frames_unmatched", "unknown", text, network.unmatched, 0)
    late_ns = network.lateness_ns("max") or 0
    text = f"the link emulator was paused: a frame reached its host {late_ns / 1e9:.1f} s after its time"
    yield from _above("links_paused", late_ns, PAUSE_NS, text)
    for subject, frames, text in network.own_losses():
        explained = any(_is_of(subject, name) for name in killed)
        yield Finding("frames_lost", "info" if explained else "invalid", text, frames, 0, subject)


def _is_of(subject: str, host: str) -> bool:
    """Whether a port or a link is a host's, by its name: etcd1-eth0, etcd1-eu-central-1."""
    rest = subject.removeprefix(f"{host}-")
    return rest != subject and (rest.startswith("eth") or re.search(r"-eth\d+$", rest) is None)


def event_findings(done: Disruptions | None) -> Iterator[Finding]:
    """Findings of configured events: the executed events against the configured ones."""
    if done is None:
        return
    if done.text:
        yield Finding("event", "info", f"as configured: {done.text}", sum(item.strikes for item in done.executed), 0)
    for item in done.missed:
        what = "did not happen" if item.at_ns is None else "did not happen as configured"
        which = "a configured event" if item.cause == "event" else "the end of a configured event"
        yield Finding("event_missed", "invalid", f"{which} {what}: {item.text}")


def _lateness_findings(network: LinkStatistics, latency_s: float | None) -> Iterator[Finding]:
    limit_ns = LATE_NS
    if latency_s is not None:
        limit_ns = max(LATE_LEAST_NS, min(LATE_NS, round(latency_s * 1e9 / LATE_PART)))
    late_ns, median_ns = network.lateness_ns("p99") or 0, network.lateness_ns("p50") or 0
    text = f"the latest 1 % of the frames reached their hosts {late_ns / 1e6:.2f} ms after their time, or later"
    yield from _above("link_lateness", late_ns, limit_ns, text)
    if late_ns <= limit_ns:
        most_ns = max(LATE_MEDIAN_LEAST_NS, limit_ns // LATE_MEDIAN_PART)
        text = f"every second frame reached its host {median_ns / 1e6:.2f} ms after its time, or later"
        yield from _above("link_lateness", median_ns, most_ns, text)
    text = f"a frame reached its host {network.early_max_ns / 1e6:.2f} ms before its time"
    yield from _above("link_early", network.early_max_ns, limit_ns, text)


def member_findings(
    silent_s: Mapping[str, float],
    timeout_s: float,
    throttled_s: Mapping[str, float],
    lasted_s: float,
    by_events_s: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Findings of living members: by name, the longest time in seconds for which each did not answer at all.

    ``timeout_s`` is the limit, at most ``SILENCE_MAX_S``: after it the other members consider a member gone.
    ``throttled_s`` is for how long its own CPU limit stopped each, of ``lasted_s``: that explains a silence if it is
    half of it, and a tenth of the whole scenario. ``by_events_s`` is for how long configured events stopped each at
    most: that explains a silence that is longer by no more than the limit.
    """
    most_s = min(timeout_s, SILENCE_MAX_S)
    for name, silence_s in silent_s.items():
        if silence_s > most_s:
            stopped_s = throttled_s.get(name, 0.0)
            throttled = stopped_s >= max(silence_s / 2, SILENCE_THROTTLED_SHARE * lasted_s)
            explained = throttled or silence_s <= by_events_s.get(name, 0.0) + most_s
            effect: Effect = "info" if explained else "invalid"
            text = f"{name} answered nothing for {silence_s:.1f} s; "
            if timeout_s <= SILENCE_MAX_S:
                text += f"others take a member for gone after {timeout_s:g} s"
            else:
                text += f"{SILENCE_MAX_S:g} s are allowed"
            yield Finding("member_silent", effect, text, round(silence_s * 1e9), round(most_s * 1e9), name)


def death_findings(deaths: Mapping[str, str]) -> Iterator[Finding]:
    """Findings of dead members, by name with the reason: the cluster is smaller than configured.

    If its own memory limit has ended a member, the death follows from the configuration.
    """
    for name, reason in deaths.items():
        yield Finding("member_died", "info" if is_by_own_limit(reason) else "invalid", reason, subject=name)


def behind_findings(names: Iterable[str]) -> Iterator[Finding]:
    """Those of members that had not caught up with the others when the scenario began."""
    for name in names:
        text = f"{name} had not caught up with the others when the scenario began: it answered no consistent read"
        yield Finding("member_behind", "unknown", text, subject=name)


def leader_findings(
    before: Leadership | None, after: Leadership | None, deaths: Mapping[str, str], explained: bool = False
) -> Iterator[Finding]:
    """The finding of an election between the start and the end of a scenario: its value is the number of terms.

    Also if the same member leads again: there was no leader meanwhile. If the leader's own memory limit has ended it
    (``deaths``: dead members, by name with the reason), or configured events did (``explained``), the election follows
    from the configuration. None in a store without a leader.
    """
    if before is not None and (before == after or before.term is None):
        return
    if before is None:
        text = "who led at the start is not known, so there may have been an election"
        yield Finding("leader_changed", "unknown", text, None, 0)
        return
    explained = explained or is_by_own_limit(deaths.get(before.leader, ""))
    effect: Effect = "info" if explained else "invalid"
    text = f"{before.leader} led at the start (term {before.term}), "
    if after is None:
        yield Finding("leader_changed", effect, f"{text}no leader that a majority names at the end", None, 0)
        return
    text += f"{after.leader}{' again' if after.leader == before.leader else ''} at the end (term {after.term})"
    yield Finding("leader_changed", effect, text, (after.term or 0) - (before.term or 0), 0, after.leader)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The machine's cores, and the cores that everything configured may use.

    ``limits_cores`` is the sum of all hosts' CPU limits and one core for the link emulator; ``None`` if a host has no
    limit. ``links_core``: one of the ``cores`` is kept for the link emulator. Without ``members_here`` only the load
    runs here, and the members run elsewhere: the load generator itself reports whether it had its core.
    """

    cores: int
    limits_cores: float | None = None
    links_core: bool = False
    members_here: bool = True

    @property
    def suffices(self) -> bool:
        """Whether all that is configured can run at its limits at once."""
        return self.limits_cores is not None and self.limits_cores <= self.cores


def fsync_late_ns(fsync_ns: int) -> int:
    """How much longer than configured an fsync may take: a median at bring-up, the mean of a scenario."""
    return max(SYNC_LATE_LEAST_NS, fsync_ns // SYNC_LATE_PART)


def machine_findings(
    usage: Usage | None,
    load: LoadResult | None,
    capacity: Capacity,
    dilation: int = 1,
    fsyncs_ns: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Findings of the resource usage while a load ran, in real time; unknown values yield no finding.

    ``fsyncs_ns``: how long an fsync takes by configuration, of members that have one.
    """
    if load is not None:
        yield from _generator_findings(load)
    if usage is None or usage.window_ns <= 0:
        return
    for name, member in usage.used.members.items():
        # A limit holds over its period, which is longer then, and a core is as fast as ever.
        note = f"; at dilation {dilation} latencies then differ from those of real time" if dilation > 1 else ""
        yield from _throttled(name, member, usage.window_ns, "member_throttled", "info", note)
    yield from _waited(usage)
    for name, configured_ns in fsyncs_ns.items():
        if (used := usage.used.members.get(name)) is not None and used.cpu_ns is not None:
            yield from _late_syncs(name, used, configured_ns, dilation)
    yield from _throttled("the client's host", usage.used.client, usage.window_ns, "client_throttled", "invalid")
    yield from _throttled("the link emulator", usage.used.links, usage.window_ns, "links_throttled", "invalid")
    links = usage.links_cores or 0.0
    text = f"the link emulator took {links:.2f} of the one core that it can take"
    yield from _above("links_saturated", links, SATURATED_CORES, text)
    stolen = (usage.steal_cores or 0.0) / capacity.cores
    if stolen > STOLEN_SHARE + STOLEN_STEP_NS / (usage.window_ns * capacity.cores):
        text = f"a hypervisor took {stolen:.1%} of this machine's time"
        yield Finding("machine_stolen", "invalid", text, round(stolen, 4), STOLEN_SHARE)
    if capacity.members_here:
        yield from _machine_load(usage, capacity)


def store_findings(
    store: StoreActivity | None, fsyncs_ns: Mapping[str, int] = MappingProxyType({})
) -> Iterator[Finding]:
    """Findings of members whose disk is slow, by their own metrics: slower than ``fsyncs_ns`` configures for some.

    Metrics count in buckets that double, so the limit is twice that.
    """
    for name, member in (store.members if store is not None else {}).items():
        syncs = member.log_syncs
        limit_s = max(SLOW_SYNC_S, 2 * fsyncs_ns.get(name, 0) / 1e9)
        if syncs is not None and syncs.buckets and (syncs.p99_at_most_s or math.inf) > limit_s:
            took = f"up to {syncs.p99_at_most_s * 1e3:.0f} ms" if syncs.p99_at_most_s else "longer than it counts"
            text = f"{name} waited for its disk: the 99th percentile of the writes of its log was {took}"
            yield Finding("slow_disk", "info", text, syncs.p99_at_most_s, limit_s, name)


def _late_syncs(name: str, used: Consumption, fsync_ns: int, dilation: int) -> Iterator[Finding]:
    """In emulated time; of few syncs a single late one would decide."""
    if used.syncs is None or used.syncs_late_ns is None:
        yield Finding("usage", "unknown", f"{name}: how long its fsyncs took could not be read", subject=name)
        return
    if not used.syncs:
        return
    configured_ns, late_ns = fsync_ns // dilation, round(used.syncs_late_ns / used.syncs / dilation)
    if used.syncs >= ANSWERS:
        took = f"an fsync took {(configured_ns + late_ns) / 1e6:.4g} ms on average"
        text = f"{name}: {took}, and {configured_ns / 1e6:g} ms are configured"
        yield from _above("fsync_late", late_ns, fsync_late_ns(configured_ns), text, name)
    text = f"{name}: {used.stalled_syncs} of {used.syncs:,} fsyncs took {PAUSE_NS // 10**6} ms longer than configured"
    yield from _above("fsync_stalled", used.stalled_syncs or 0, 0, text, name)


def _generator_findings(load: LoadResult) -> Iterator[Finding]:
    if load.total_s <= 0:
        return
    busy = max(load.cpu_s / load.total_s, load.busy_ratio or 0.0)
    text = f"the load generator was busy all the time ({busy:.2f}): it was not the store that set the rate"
    yield from _above("generator_saturated", busy, SATURATED_CORES, text)
    yield from _generator_waits(load)


def _generator_waits(load: LoadResult) -> Iterator[Finding]:
    """That the generator waited for a core for a share of the time, or of the median latency, whichever is less.

    A request waits at its start and at its answer, for a mean wait each. In a closed loop a long one, of ``SLICE_S``,
    counts as well: meanwhile more answers come. docs/fidelity.md has what waits change.
    """
    waited = (load.run_delay_s or 0.0) / load.total_s
    text = f"the load generator waited for a core for {waited:.0%} of the time"
    if load.mean_run_delay_s is not None and load.median_s:
        in_latency_s = max(2 * load.mean_run_delay_s, 0.0 if load.schedule is not None else SLICE_S)
        if (of_median := in_latency_s / load.median_s) < waited:
            waited = of_median
            text = f"waits of the load generator for a core are {waited:.0%} of the median latency"
    yield from _above("generator_waited", waited, WAITED_SHARE, text)


def _throttled(
    name: str, used: Consumption | None, window_ns: int, kind: Kind, effect: Effect, note: str = ""
) -> Iterator[Finding]:
    # The kernel adds up the times of all cores on which the group had something to run: it may be more than the window.
    share = ((used.throttled_ns if used is not None else None) or 0) / window_ns
    text = f"{name} was stopped by its own CPU limit for {share:.0%} of the time, all cores together{note}"
    yield from _above(kind, share, THROTTLED_SHARE, text, name, effect)


def _waited(usage: Usage) -> Iterator[Finding]:
    """That threads of members waited for a core.

    Where a member's own CPU limit stops it, that wait is in the counter, too, and the member is not named.
    """
    waited = {
        name: threads
        for name, member in usage.used.members.items()
        if (threads := (member.run_delay_ns or 0) / usage.window_ns) > MEMBER_WAITED
        and (member.throttled_ns or 0) / usage.window_ns <= THROTTLED_SHARE
    }
    if waited:
        most = max(waited.values())
        text = f"CPU contention: on average up to {most:.1f} runnable threads of {', '.join(waited)} waited for a core"
        yield Finding("member_waited", "invalid", text, round(most, 4), MEMBER_WAITED)


def _machine_load(usage: Usage, capacity: Capacity) -> Iterator[Finding]:
    machine = usage.used.machine
    if machine is None or machine.cpu_ns is None:
        return
    time_ns = usage.window_ns * capacity.cores
    clients = usage.used.clients.values() or [usage.used.client]
    ours = [*usage.used.members.values(), *clients, usage.used.links, usage.used.driver]
    known = [used.user_ns for used in ours if used is not None]
    if machine.user_ns is not None and None not in known:
        # The kernel's own threads and interrupts, which work for the run too, have no user time.
        others = (machine.user_ns - sum(user_ns for user_ns in known if user_ns is not None)) / time_ns
        text = f"programs that are not of this run took {others:.0%} of this machine's cores (user time)"
        yield from _above("machine_shared", others, OTHERS_SHARE, text)
    used_ns, shared = machine.cpu_ns, capacity.cores
    if capacity.links_core and usage.used.links is not None and usage.used.links.cpu_ns is not None:
        used_ns, shared = used_ns - usage.used.links.cpu_ns, shared - 1
    busy = used_ns / (usage.window_ns * shared)
    ours_ns = sum(used.cpu_ns or 0 for used in ours if used is not None)
    explained = capacity.suffices and machine.cpu_ns - ours_ns <= OTHERS_SHARE * time_ns
    cores = f"this machine's {shared} cores were" if shared > 1 else "the one core beside the link emulator's was"
    text = f"{cores} busy for {busy:.0%} of the time"
    text += "" if explained else ": hosts had less CPU time than they are configured to have"
    yield from _above("machine_full", busy, FULL_SHARE, text, effect="info" if explained else "invalid")


Valid = Literal["yes", "no", "unknown"]
State = Literal["valid", "not valid", "of unknown validity", "failed"]
"""The state of a row in summaries: one with an error has failed, whatever its figures are."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of finding; docs/fidelity.md has what is compared, and the reason of each ``threshold``.

    ``effects``: info, unknown or invalid, the first one if nothing else applies. If it can make figures not valid,
    ``words`` names it to users and ``helps`` lists general remedies; empty if none is known. ``of_machine``: it is
    about the measuring machine and not about the store as configured: sweeps and `--dilation auto` measure again.
    """

    effects: tuple[Effect, ...]
    threshold: str
    words: str = ""
    helps: tuple[str, ...] = ()
    of_machine: bool = False


_LOWER = ("fewer clients", "a lower rate")
_LOAD = (*_LOWER, "more cores")
_LIMITS = (*_LOAD, "lower CPU limits of members")
_ALONE = ("a machine that does nothing else",)

_machine = partial(Rule, of_machine=True)
"""A rule about the measuring machine."""

RULES: Mapping[Kind, Rule] = {
    "fell_behind": Rule(("info",), "0"),
    "generator_late": _machine(
        ("info", "invalid"), "0; not valid above 1 of 2,000", "the load generator started requests late", _LOAD
    ),
    "generator_paused": _machine(
        ("invalid",), "100 ms, or 5 % of the time together", "the load generator was paused", _ALONE
    ),
    "link_lateness": _machine(
        ("invalid",),
        "a 40th of the floor (else of the median latency), at least 0.3 ms, at most 1 ms; of the median a quarter, at "
        "least 50 us",
        "the link emulator delivered frames late",
        _LOAD,
    ),
    "link_early": _machine(("invalid",), "as for lateness", "the link emulator delivered frames early", _ALONE),
    "links_paused": _machine(("invalid",), "100 ms", "the link emulator was paused", _ALONE),
    "frames_unmatched": _machine(("unknown",), "0", "frames have no stamp of their arrival", _LOAD),
    "frames_lost": _machine(("info", "invalid"), "0", "frames were lost by no configured loss or queue", _LOAD),
    "counters": _machine(("unknown",), "-", "the counters of the links could not be read", _ALONE),
    "usage": _machine(("unknown",), "-", "what used the CPU could not be read", _ALONE),
    "member_throttled": Rule(("info",), "1 %"),
    "member_waited": _machine(("invalid",), "0.5", "a member waited for a core", _LIMITS),
    "slow_disk": Rule(("info",), "16 ms"),
    "fsync_late": _machine(
        ("invalid",), "a tenth of it, at least 0.5 ms", "a member's disk was slower than configured", _ALONE
    ),
    "fsync_stalled": _machine(("invalid",), "0", "a member's disk was paused", _ALONE),
    "client_throttled": Rule(
        ("invalid",), "1 %", "the CPU limit of the client stopped it", ("a higher limit", *_LOWER)
    ),
    "generator_saturated": _machine(("invalid",), "0.9", "the load generator used all of its one core", _LOWER),
    "generator_waited": _machine(("invalid",), "5 %", "the load generator waited for a core", _LOAD),
    "links_saturated": _machine(("invalid",), "0.9", "the link emulator used all of its one core", _LOWER),
    "links_throttled": _machine(
        ("invalid",),
        "1 %",
        "a CPU limit stopped the link emulator",
        ("a higher CPU limit of the session that runs it",),
    ),
    "machine_stolen": _machine(
        ("invalid",), "1 %, and the 10 ms of the kernel's clock", "a hypervisor took CPU time", _ALONE
    ),
    "machine_shared": _machine(("invalid",), "10 %", "other programs took CPU time", _ALONE),
    "machine_full": _machine(("info", "invalid"), "95 %", "all cores were busy", _LIMITS),
    "member_died": Rule(("info", "invalid"), "-", "a member ended"),
    "member_silent": Rule(("info", "invalid"), "its election timeout, at most 2 s", "a member did not answer"),
    "member_behind": Rule(("unknown",), "-", "a member had not caught up with the others at the start"),
    "leader_changed": Rule(("info", "unknown", "invalid"), "0", "the leader changed, or may have"),
    "network_off": _machine(("invalid",), "wrong", "after the load the network was not the configured one", _ALONE),
    "network_unknown": _machine(
        ("unknown",), "none, or inconclusive", "after the load the network could not be proved", _ALONE
    ),
    "few_answers": Rule(("unknown",), "20", "there are too few answers", ("more requests", "a longer duration")),
    "cut_short": Rule(("unknown",), "-", "the load ended early"),
    "below_floor": Rule(("info",), "a tenth of the floor, at least 0.3 ms"),
    "search": Rule(
        ("info", "unknown"),
        "requests/s above it at which it held in none",
        "the search is not certain of its rate",
        ("a wider range of rates", "more repeats"),
    ),
    "event": Rule(("info",), "0"),
    "unseen": Rule(("unknown",), "-", "external cluster: CPU, disks and network are not observable"),
    "event_missed": Rule(("invalid",), "-", "a configured event did not happen"),
}

OF_THE_MACHINE = frozenset(kind for kind, rule in RULES.items() if rule.of_machine)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``valid``, and the kinds of findings that are why it is not "yes", each once, the worst first."""

    valid: Valid
    reasons: tuple[Kind, ...] = ()


def verdict(findings: Iterable[Finding]) -> Verdict:
    by_effect: dict[Effect, dict[Kind, None]] = {"invalid": {}, "unknown": {}, "info": {}}
    for finding in findings:
        by_effect[finding.effect][finding.kind] = None
    invalid, unknown = by_effect["invalid"], by_effect["unknown"]
    reasons = (*invalid, *(kind for kind in unknown if kind not in invalid))
    return Verdict("no" if invalid else "unknown" if unknown else "yes", reasons)


def reasons_text(reasons: str) -> str:
    """A row's column ``Reasons`` in words; an unknown kind stays as it is."""
    return ", ".join((RULES[kind].words if kind in RULES else "") or kind for kind in reasons.split(";"))


def state_of(failed: bool, valid: object) -> State:
    """The state of a row, by whether it has an error and by its column ``Valid``."""
    if failed:
        return "failed"
    return "valid" if valid == "yes" else "not valid" if valid == "no" else "of unknown validity"


def states_text(states: Iterable[State]) -> str:
    """How many rows are in each state, those that none is in left out: "3 valid, 2 not valid"; "none" without rows."""
    found = Counter(states)
    return ", ".join(f"{found[state]:,} {state}" for state in get_args(State) if found[state]) or "none"


def is_failure(states: Iterable[State], strict: bool) -> bool:
    """Whether rows in these states make the command end with exit status 1: `run` and `sweep` alike.

    Rows that were measured and are not valid are no failure, unless ``strict`` is configured.
    """
    return any(state == "failed" or (strict and state != "valid") for state in states)


def counts(valid: object, reasons: object) -> bool:
    """Whether a row's figures are used, by its columns ``Valid`` and ``Reasons``.

    For an external cluster, the best possible result is that no fault was observed.
    """
    return valid == "yes" or (valid == "unknown" and reasons == "unseen")
