"""The verdict on a scenario's figures: are they those of the store under what was configured?

It follows from the findings alone. ``RULES`` has for each kind of finding what it does to the figures and why;
docs/fidelity.md has the table as text, between its markers; `pytest tests/unit --snapshot-update` writes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from containernet_env.model.findings import Effect, Finding, Kind

Valid = Literal["yes", "no", "unknown"]
State = Literal["valid", "not valid", "of unknown validity", "failed"]
"""What a row counts as in summaries: one with an error has failed, whatever its figures are."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What findings of one kind are. ``effects``: told, unknown or invalid, the first one where nothing else applies.

    ``value`` says what is compared, with its unit, ``threshold`` with what, ``reason`` why that.
    """

    effects: tuple[Effect, ...]
    value: str
    threshold: str
    reason: str


RULES: Mapping[Kind, Rule] = {
    "fell_behind": Rule(
        ("told",),
        "requests that an open loop started late, or never",
        "0",
        "response times count from the intended start, so they have the wait",
    ),
    "generator_late": Rule(
        ("told", "invalid"),
        "requests that the generator itself started more than 10 ms late",
        "1 of 2,000 for invalid, 0 for told",
        "from there on, half of what is above the 99.9th percentile is the generator's",
    ),
    "generator_paused": Rule(
        ("invalid",),
        "ns in which the generator did not run although it had something to do: the longest pause, or all of more than "
        "10 ms together",
        "100 ms, or 5 % of the time together",
        "all clients wait for it; 100 ms is etcd's default heartbeat, and three times the longest pause that 219 "
        "scenarios on two busy cores had",
    ),
    "link_lateness": Rule(
        ("invalid",),
        "ns, 99th percentile of how long after its time a frame reached its host, and the median",
        "a 40th of the floor (else of the median latency), at least 0.3 ms, at most 1 ms; of the median a quarter, at "
        "least 50 us",
        "a request crosses four links at least, so that adds up to a tenth to one in 25, or a 40th to each; 0.3 ms and "
        "50 us are more than twice what 18 scenarios on two busy cores had at most",
    ),
    "link_early": Rule(
        ("invalid",),
        "ns, the most by which a frame reached its host before its time",
        "as for lateness",
        "a link that is faster than configured",
    ),
    "links_paused": Rule(
        ("invalid",),
        "ns, the largest lateness",
        "100 ms",
        "the link emulator stood still: few frames meet that, and no percentile shows it; members notice 100 ms",
    ),
    "frames_unmatched": Rule(
        ("unknown",),
        "frames that had no stamp of their arrival",
        "0",
        "their lateness lacks the time before they were read; of all frames where the kernel stamps none",
    ),
    "frames_lost": Rule(
        ("told", "invalid"),
        "frames that the emulator or a host's network stack lost",
        "0",
        "no configured loss or queue explains them, and TCP waits 200 ms for some; told where a configured event "
        "killed the member",
    ),
    "counters": Rule(("unknown",), "-", "-", "what the links did meanwhile is not known"),
    "usage": Rule(("unknown",), "-", "-", "whether hosts, links and load had their cores is not known"),
    "member_throttled": Rule(
        ("told",),
        "share of the time for which a member's own CPU limit stopped it",
        "1 %",
        "that is what was configured",
    ),
    "member_waited": Rule(
        ("invalid",),
        "threads of a member that waited for a core, in the mean; not asked of one that its own CPU limit stopped",
        "0.5",
        "its host had less CPU time than it is configured to have; scenarios that two cores carried had up to 0.23, "
        "others 0.68 and more",
    ),
    "slow_disk": Rule(
        ("told",),
        "s, 99th percentile of how long a member's log took to reach its disk: the longest time of its bucket",
        "16 ms",
        "it is true of the member; etcd wants less than 10 ms (its FAQ), and buckets end at 8 and 16 ms",
    ),
    "client_throttled": Rule(
        ("invalid",),
        "share of the time for which the CPU limit of the client's host stopped it",
        "1 %",
        "from there on the 99th percentile has it, and it is not the store's",
    ),
    "generator_saturated": Rule(
        ("invalid",),
        "share of the time in which the load generator did not wait for members, or its CPU time over that time in "
        "cores: the larger of both",
        "0.9",
        "one of its threads carries all requests: busier than that, it sets the rate and not the store",
    ),
    "generator_waited": Rule(
        ("invalid",),
        "share of the time for which the load generator waited for a core; of an open loop the mean of two of its "
        "waits over the median latency, where that is less",
        "5 %",
        "every latency has about that share of it",
    ),
    "links_saturated": Rule(
        ("invalid",),
        "CPU time of the link emulator over the time, in cores",
        "0.9",
        "one thread carries all frames: from there on they wait for it",
    ),
    "links_throttled": Rule(
        ("invalid",),
        "share of the time for which a CPU limit stopped the link emulator",
        "1 %",
        "frames wait for it meanwhile",
    ),
    "machine_stolen": Rule(
        ("invalid",),
        "share of the machine's time that a hypervisor took",
        "1 %, and the 10 ms of the kernel's clock",
        "from there on the 99th percentile has it",
    ),
    "machine_shared": Rule(
        ("invalid",),
        "share of the machine's cores that programs took which are not of this run, as user time",
        "10 %",
        "the engine takes a few percent; more is somebody else's work",
    ),
    "machine_full": Rule(
        ("told", "invalid"),
        "share of the time for which the machine's cores were busy, without one that is kept for the link emulator",
        "95 %",
        "hosts waited for cores that they are configured to have; told where all limits together fit into the machine "
        "and no other program took more than a tenth of it",
    ),
    "member_died": Rule(
        ("told", "invalid"),
        "-",
        "-",
        "the cluster is smaller than what was configured; told where its own memory limit ended it",
    ),
    "member_silent": Rule(
        ("told", "invalid"),
        "ns in which a living member answered nothing, on a connection that crosses no emulated link",
        "its election timeout, at most 2 s",
        "the others take it for gone; told where its own CPU limit stopped it for half of that and for a tenth of the "
        "scenario, or a configured event did",
    ),
    "leader_changed": Rule(
        ("told", "unknown", "invalid"),
        "elections between the start and the end of the scenario",
        "0",
        "requests waited for a leader, and the ones before and after it are not of the same cluster; told where the "
        "leader's own memory limit ended it, or configured events killed it or kept it from a majority (events.md), "
        "unknown where it is not known who led at the start",
    ),
    "network_off": Rule(
        ("invalid",),
        "the proof after the last scenario",
        "wrong",
        "from when on it was wrong is not known, so no scenario since the proof before is known to be right",
    ),
    "network_unknown": Rule(
        ("unknown",),
        "the proof after the last scenario",
        "it could not be had, or told nothing",
        "whether the network was still the one that was configured is not known",
    ),
    "few_answers": Rule(
        ("unknown",),
        "requests that were answered well",
        "20",
        "with fewer, the 95th percentile is the slowest request",
    ),
    "cut_short": Rule(
        ("unknown",), "-", "-", "the scenario ended before its load did: its figures are of another load"
    ),
    "below_floor": Rule(
        ("told",),
        "s by which the median is below the floor",
        "a tenth of the floor, at least 0.3 ms",
        "the figures are what was measured; the floor is not the least that is possible there",
    ),
    "search": Rule(
        ("told", "unknown"),
        "requests/s at which the objective of a search held in all repeats",
        "requests/s above it at which it held in none",
        "told where both are known; else the figures are those of a rate that may not be the highest",
    ),
    "event": Rule(("told",), "events that were carried out on members and links", "0", "they are what was configured"),
    "unseen": Rule(
        ("unknown",),
        "-",
        "-",
        "somebody else runs the cluster: its members' cores and disks and the network are not seen",
    ),
    "event_missed": Rule(
        ("invalid",),
        "-",
        "-",
        "the figures are not of what was configured: nobody led when the event was due, the member was dead, the load "
        "had ended, or the system refused it",
    ),
}


_LOWER = ("fewer clients", "a lower rate")
_LOAD = (*_LOWER, "more cores")
_LIMITS = (*_LOAD, "lower CPU limits of members")
_ALONE = ("a machine that does nothing else",)
REASONS: Mapping[Kind, tuple[str, tuple[str, ...]]] = {
    "generator_late": ("the load generator started requests late", _LOAD),
    "generator_paused": ("the load generator was paused", _ALONE),
    "generator_saturated": ("the load generator used all of its one core", _LOWER),
    "generator_waited": ("the load generator waited for a core", _LOAD),
    "link_lateness": ("the link emulator delivered frames late", _LOAD),
    "link_early": ("the link emulator delivered frames early", _ALONE),
    "links_paused": ("the link emulator was paused", _ALONE),
    "links_saturated": ("the link emulator used all of its one core", _LOWER),
    "links_throttled": ("a CPU limit stopped the link emulator", ("a higher CPU limit of the session that runs it",)),
    "frames_unmatched": ("frames have no stamp of their arrival", _LOAD),
    "frames_lost": ("frames were lost by no configured loss or queue", _LOAD),
    "counters": ("the counters of the links could not be read", _ALONE),
    "usage": ("what used the CPU could not be read", _ALONE),
    "member_waited": ("a member waited for a core", _LIMITS),
    "client_throttled": ("the CPU limit of the client stopped it", ("a higher limit", *_LOWER)),
    "machine_stolen": ("a hypervisor took CPU time", _ALONE),
    "machine_shared": ("other programs took CPU time", _ALONE),
    "machine_full": ("all cores were busy", _LIMITS),
    "member_died": ("a member ended", ()),
    "member_silent": ("a member did not answer", ()),
    "leader_changed": ("the leader changed, or may have", ()),
    "network_off": ("after the load the network was not the configured one", _ALONE),
    "network_unknown": ("after the load the network could not be proved", _ALONE),
    "few_answers": ("there are too few answers", ("more requests", "a longer duration")),
    "cut_short": ("the load ended early", ()),
    "search": ("the search is not certain of its rate", ("a wider range of rates", "more repeats")),
    "unseen": ("external cluster: CPU, disks and network are not observable", ()),
    "event_missed": ("a configured event did not happen", ()),
}
"""A reason in words, and what helps in general: nothing that is known, where that is empty."""

OF_THE_MACHINE: frozenset[Kind] = frozenset(
    {
        "generator_late",
        "generator_paused",
        "generator_saturated",
        "generator_waited",
        "link_lateness",
        "link_early",
        "links_paused",
        "links_saturated",
        "links_throttled",
        "frames_unmatched",
        "frames_lost",
        "counters",
        "usage",
        "member_waited",
        "machine_stolen",
        "machine_shared",
        "machine_full",
        "network_off",
        "network_unknown",
    }
)
"""Findings that are about what measures and not about the store under what was configured: a sweep measures again."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``valid``, and the kinds of findings that are why it is not "yes", each once, the worst first."""

    valid: Valid
    reasons: tuple[Kind, ...] = ()


def verdict(findings: Iterable[Finding]) -> Verdict:
    """The verdict on figures with these findings."""
    by_effect: dict[Effect, dict[Kind, None]] = {"invalid": {}, "unknown": {}, "told": {}}
    for finding in findings:
        by_effect[finding.effect][finding.kind] = None
    invalid, unknown = by_effect["invalid"], by_effect["unknown"]
    reasons = (*invalid, *(kind for kind in unknown if kind not in invalid))
    return Verdict("no" if invalid else "unknown" if unknown else "yes", reasons)


def reasons_text(reasons: str) -> str:
    """A row's column ``Reasons`` in words; an unknown kind stays as it is."""
    return ", ".join(_WORDS.get(kind, kind) for kind in reasons.split(";"))


_WORDS: Mapping[str, str] = {kind: words for kind, (words, _) in REASONS.items()}


def state_of(failed: bool, valid: object) -> State:
    """What a row counts as, by whether it has an error and by its column ``Valid``."""
    if failed:
        return "failed"
    return "valid" if valid == "yes" else "not valid" if valid == "no" else "of unknown validity"


def states_text(states: Iterable[State]) -> str:
    """How many rows are in each state, those that none is in left out: "3 valid, 2 not valid"; "none" without rows."""
    found = Counter(states)
    return ", ".join(f"{found[state]:,} {state}" for state in get_args(State) if found[state]) or "none"


def is_failure(states: Iterable[State], strict: bool) -> bool:
    """Whether what left rows in these states ends with exit status 1: `run` and `sweep` alike.

    Rows that were measured and are not valid are no failure, unless ``strict`` is configured.
    """
    return any(state == "failed" or (strict and state != "valid") for state in states)


def counts(valid: object, reasons: object) -> bool:
    """Whether a row's figures are used, by its columns ``Valid`` and ``Reasons``.

    Of a cluster that somebody else runs nobody can say more than that nothing was seen to be wrong.
    """
    return valid == "yes" or (valid == "unknown" and reasons == "unseen")


def as_markdown() -> str:
    """The table of rules for docs/fidelity.md."""
    lines = ["| finding | the row is then | compared | threshold | because |", "| --- | --- | --- | --- | --- |"]
    names = {"told": "valid", "unknown": "unknown", "invalid": "not valid"}
    for kind, rule in RULES.items():
        effect = " or ".join(names[effect] for effect in rule.effects)
        lines.append(f"| `{kind}` | {effect} | {rule.value} | {rule.threshold} | {rule.reason} |")
    return "\n".join(lines) + "\n"
