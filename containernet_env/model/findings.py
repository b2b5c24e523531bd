"""Findings: what a reader of a scenario's figures has to know, each with its value and the threshold it crossed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from containernet_env.base.endings import is_by_own_limit
from containernet_env.model.disruption import Disruptions
from containernet_env.model.leadership import Leadership
from containernet_env.model.link_statistics import LATE_NS, LinkStatistics
from containernet_env.model.load_result import LoadResult
from containernet_env.model.proof import NetworkProof

Effect = Literal["told", "unknown", "invalid"]
"""What it does to the figures of its row: nothing (it is only told), nobody can tell, or they are not the store's."""

Kind = Literal[
    "fell_behind",
    "generator_late",
    "generator_paused",
    "link_lateness",
    "link_early",
    "frames_unmatched",
    "links_paused",
    "member_silent",
    "leader_changed",
    "frames_lost",
    "counters",
    "usage",
    "member_died",
    "member_throttled",
    "member_waited",
    "slow_disk",
    "client_throttled",
    "generator_saturated",
    "generator_waited",
    "links_saturated",
    "links_throttled",
    "machine_stolen",
    "machine_shared",
    "machine_full",
    "network_off",
    "network_unknown",
    "few_answers",
    "cut_short",
    "below_floor",
    "search",
    "event",
    "event_missed",
    "unseen",
]
PAUSE_NS = 100_000_000
"""A pause of the link emulator or of the load generator that is longer is told. It is etcd's default heartbeat, so that
members notice it. The largest lateness of 219 scenarios of all kinds on two busy cores was 36 ms."""

PAUSED_SHARE = 0.05
"""A generator that stood still for a larger share of the time has sent that much less, however short each pause was."""

LATE_SHARE = 1 / 2000
"""The share of requests that the generator itself may start late: half of what is above the 99.9th percentile."""
LATE_PART, LATE_LEAST_NS = 40, 300_000
"""Frames may be late by this part of a median latency: four links then add a tenth to one request of 25. Never less is
asked than 0.3 ms: 18 scenarios on two busy cores had up to 0.12 ms."""
LATE_MEDIAN_PART, LATE_MEDIAN_LEAST_NS = 4, 50_000
"""Every second frame may be late by a quarter of that: four links then add a fortieth to every request. Never less than
50 us is asked: the same scenarios had up to 13 us."""
SILENCE_MAX_S = 2.0
"""Longer is no silence of a member that lives and whose machine lets it run, however long its election timeout is."""
SILENCE_THROTTLED_SHARE = 0.1
"""The share of a scenario for which a member's CPU limit has stopped it, where that is to explain a silence in it."""
BELOW_PART, BELOW_LEAST_S = 10, 0.0003
"""A median may be below its floor by this part of it, and by 0.3 ms: disks are not the same from one second to the
next, and where links vary, so does the median of few requests."""
ANSWERS = 20
"""With fewer answers the 95th percentile is the slowest request."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    ``value`` and ``threshold`` are in the unit that ``kind`` is about (requests, ns, frames); ``None`` where there
    is no number. ``effect`` follows from the rule of its kind (``model.verdict``). ``text`` is one line for people.
    ``subject`` names the link, port or member that it is about.
    """

    kind: Kind
    effect: Effect
    text: str
    value: float | None = None
    threshold: float | None = None
    subject: str | None = None

    def values(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def network_finding(proof: NetworkProof | None) -> Finding | None:
    """That of all scenarios since the last proof that held; ``proof``: the next one, ``None`` where none was had."""
    if proof is None:
        return Finding("network_unknown", "unknown", "what the network was at the end of the run could not be measured")
    if proof.passed:
        if proof.doubt is None:
            return None
        text = f"at the end of the run the network could not be told from a wrong one: {proof.doubt}"
        return Finding("network_unknown", "unknown", text)
    return Finding("network_off", "invalid", f"at the end of the run the network was not as configured: {proof.text}")


def load_findings(load: LoadResult | None) -> Iterator[Finding]:
    """Findings of the generator: too few answers, that it stood still, that an open loop fell behind, and why."""
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
    yield Finding("fell_behind", "told", "; ".join(parts), schedule.late + schedule.unsent, 0)
    if schedule.generator_late:
        late = schedule.generator_late
        text = f"the generator itself was too slow for {late:,} requests: their figures are not the store's"
        effect: Effect = "invalid" if late > LATE_SHARE * load.requests else "told"
        yield Finding("generator_late", effect, text, late, 0)


def floor_findings(load: LoadResult | None, floor_s: float | None) -> Iterator[Finding]:
    """The finding that a median is below the least that was thought possible: ``floor_s``, if it is known."""
    if load is None or load.median_s is None or floor_s is None:
        return
    below_s, most_s = floor_s - load.median_s, max(floor_s / BELOW_PART, BELOW_LEAST_S)
    if below_s > most_s:
        text = f"the median, {load.median_s * 1e3:.2f} ms, is {below_s * 1e3:.2f} ms below the floor: "
        text += "the disks are faster than before the run, or requests waited for less than the floor has"
        yield Finding("below_floor", "told", text, below_s, most_s)


def _pauses(load: LoadResult) -> Iterator[Finding]:
    """One that is long by itself, or many that are not."""
    longest_ns, paused_ns, most_ns = load.pause_s * 1e9, load.paused_s * 1e9, PAUSED_SHARE * load.total_s * 1e9
    if longest_ns <= PAUSE_NS and paused_ns <= most_ns:
        return
    text = f"the load generator itself stood still for {load.pause_s:.2f} s"
    if load.pauses > 1:
        text = f"the load generator itself stood still {load.pauses:,} times, for {load.paused_s:.2f} s in all and "
        text += f"{load.pause_s:.2f} s at the longest"
    text += ": such latencies are not the store's"
    value, threshold = (longest_ns, PAUSE_NS) if longest_ns > PAUSE_NS else (paused_ns, most_ns)
    yield Finding("generator_paused", "invalid", text, round(value), round(threshold))


def network_findings(
    network: LinkStatistics | None, latency_s: float | None = None, killed: Collection[str] = ()
) -> Iterator[Finding]:
    """Findings of the links that the configuration does not explain: frames late, early, or lost by the emulator.

    ``latency_s`` is the median latency that requests over them have to have, ``None`` where it is not known: the floor,
    or the one that was measured, which lateness itself makes longer. A pause of the emulator makes few frames late,
    which no percentile shows, so the largest values count too. What was lost at members that configured events
    ``killed`` is explained: nobody was left to take it.
    """
    if network is None:
        return
    yield from _lateness_findings(network, _late_limit_ns(latency_s))
    if network.unmatched:
        text = f"{network.unmatched:,} frames had no stamp of their arrival: they were later than their lateness says"
        if network.stamps != "kernel":
            text = "arrival times are those of the read: this kernel stamps no frames"
        yield Finding("frames_unmatched", "unknown", text, network.unmatched, 0)
    if (late_ns := network.lateness_max_ns or 0) > PAUSE_NS:
        text = f"the link emulator stood still: a frame reached its host {late_ns / 1e9:.1f} s after its time"
        yield Finding("links_paused", "invalid", text, late_ns, PAUSE_NS)
    for subject, frames, text in network.own_losses():
        # Ports and links of a member are called by it: etcd1-eth0, etcd1-s1.
        explained = subject.rpartition("-")[0] in killed
        yield Finding("frames_lost", "told" if explained else "invalid", text, frames, 0, subject)


def event_findings(done: Disruptions | None) -> Iterator[Finding]:
    """Findings of configured events: what was done, and what should have been."""
    if done is None:
        return
    if done.text:
        yield Finding("event", "told", f"as configured: {done.text}", sum(item.strikes for item in done.carried), 0)
    for item in done.missed:
        what = "did not happen" if item.at_ns is None else "did not happen as configured"
        which = "a configured event" if item.cause == "event" else "the end of a configured event"
        yield Finding("event_missed", "invalid", f"{which} {what}: {item.text}")


def _late_limit_ns(latency_s: float | None) -> int:
    return LATE_NS if latency_s is None else max(LATE_LEAST_NS, min(LATE_NS, round(latency_s * 1e9 / LATE_PART)))


def _lateness_findings(network: LinkStatistics, limit_ns: int) -> Iterator[Finding]:
    late_ns = network.lateness_p99_ns or 0
    if late_ns > limit_ns:
        text = f"the latest 1 % of the frames reached their hosts {late_ns / 1e6:.2f} ms after their time, or later"
        yield Finding("link_lateness", "invalid", text, late_ns, limit_ns)
    else:
        median_ns, most_ns = network.lateness_p50_ns or 0, max(LATE_MEDIAN_LEAST_NS, limit_ns // LATE_MEDIAN_PART)
        if median_ns > most_ns:
            text = f"every second frame reached its host {median_ns / 1e6:.2f} ms after its time, or later"
            yield Finding("link_lateness", "invalid", text, median_ns, most_ns)
    if network.early_max_ns > limit_ns:
        text = f"a frame reached its host {network.early_max_ns / 1e6:.2f} ms before its time"
        yield Finding("link_early", "invalid", text, network.early_max_ns, limit_ns)


def member_findings(
    silent_s: Mapping[str, float],
    timeout_s: float,
    throttled_s: Mapping[str, float],
    lasted_s: float,
    stopped: Collection[str] = (),
) -> Iterator[Finding]:
    """Findings of living members: by name, the longest time in seconds for which each answered nothing at all.

    ``timeout_s`` is how long that may be, at most ``SILENCE_MAX_S``: the others then take a member for gone.
    ``throttled_s`` is for how long its own CPU limit stopped each, of ``lasted_s``: that explains a silence where it is
    half of it, and a tenth of the whole scenario. That configured events ``stopped`` it does, too.
    """
    most_s = min(timeout_s, SILENCE_MAX_S)
    for name, silence_s in silent_s.items():
        if silence_s > most_s:
            stopped_s = throttled_s.get(name, 0.0)
            throttled = stopped_s >= max(silence_s / 2, SILENCE_THROTTLED_SHARE * lasted_s)
            explained = name in stopped or throttled
            effect: Effect = "told" if explained else "invalid"
            text = f"{name} answered nothing for {silence_s:.1f} s; "
            if timeout_s <= SILENCE_MAX_S:
                text += f"others take a member for gone after {timeout_s:g} s"
            else:
                text += f"{SILENCE_MAX_S:g} s are allowed"
            yield Finding("member_silent", effect, text, round(silence_s * 1e9), round(most_s * 1e9), name)


def death_findings(deaths: Mapping[str, str]) -> Iterator[Finding]:
    """Findings of dead members, by name with the reason: the cluster is smaller than what was configured.

    Where its own memory limit has ended a member, that is what was configured.
    """
    for name, reason in deaths.items():
        yield Finding("member_died", "told" if is_by_own_limit(reason) else "invalid", reason, subject=name)


def leader_findings(
    before: Leadership | None, after: Leadership | None, deaths: Mapping[str, str], explained: bool = False
) -> Iterator[Finding]:
    """The finding that there was an election between the start and the end of a scenario: its value is how many terms.

    Also where the same member leads again: nobody did meanwhile. Where the leader's own memory limit has ended it
    (``deaths``: dead members, by name with the reason), or configured events did (``explained``), the election follows
    from what was configured. None in a store without a leader.
    """
    if before is not None and (before == after or before.term is None):
        return
    if before is None:
        text = "who led at the start is not known, so there may have been an election"
        yield Finding("leader_changed", "unknown", text, None, 0)
        return
    explained = explained or is_by_own_limit(deaths.get(before.leader, ""))
    effect: Effect = "told" if explained else "invalid"
    text = f"{before.leader} led at the start (term {before.term}), "
    if after is None:
        yield Finding("leader_changed", effect, f"{text}no leader that a majority names at the end", None, 0)
        return
    text += f"{after.leader}{' again' if after.leader == before.leader else ''} at the end (term {after.term})"
    yield Finding("leader_changed", effect, text, (after.term or 0) - (before.term or 0), 0, after.leader)
