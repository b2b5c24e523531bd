"""Findings: at which figures each is made, what they do to the verdict on a row, and what events explain."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from containernet_env.model import findings as rules
from containernet_env.model.disruption import Disruptions, ExecutedEvent, explains_election, failures_explained
from containernet_env.model.findings import RULES, Capacity, Effect, Finding, Kind, Verdict, verdict
from containernet_env.model.load_result import LoadResult
from containernet_env.model.usage import (
    Consumers,
    Consumption,
    Durations,
    Leadership,
    MemberActivity,
    StoreActivity,
    Usage,
)
from tests.unit.answers import DOCS, closed_loop, open_loop, without_answers

S, MS = 10**9, 10**6
PAGE = (DOCS / "fidelity.md").read_text()
WINDOW_NS = 10 * S


def test_the_worst_finding_decides() -> None:
    few: tuple[Kind, Effect] = ("few_answers", "unknown")
    cases: list[tuple[list[tuple[Kind, Effect]], Verdict]] = [
        ([], Verdict("yes")),
        ([("fell_behind", "info")], Verdict("yes")),
        ([few], Verdict("unknown", ("few_answers",))),
        ([("links_paused", "invalid"), ("fell_behind", "info")], Verdict("no", ("links_paused",))),
        ([few, ("frames_lost", "invalid"), ("frames_lost", "invalid")], Verdict("no", ("frames_lost", "few_answers"))),
        ([("counters", "unknown"), ("counters", "invalid")], Verdict("no", ("counters",))),
    ]
    for findings, expected in cases:
        assert verdict([Finding(kind, effect, "text") for kind, effect in findings]) == expected, findings


def test_the_document_has_each_kind_of_finding_with_its_effects_and_threshold() -> None:
    with pytest.raises(ValueError, match="no kind of finding"):
        Finding("link_latenes", "invalid", "text")
    listed = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    names = {"info": "valid", "unknown": "unknown", "invalid": "not valid"}
    effects = {kind: " or ".join(names[effect] for effect in rule.effects) for kind, rule in RULES.items()}
    assert listed == [(kind, effects[kind], rule.threshold) for kind, rule in RULES.items()]


def test_what_was_not_measured_has_no_findings() -> None:
    assert [*rules.load_findings(None), *rules.floor_findings(None, 1.0), *rules.store_findings(None)] == []
    assert [
        *rules.machine_findings(None, None, TWO_CORES),
        *rules.machine_findings(Usage(0, CALM), None, TWO_CORES),
    ] == []
    first, second = Leadership("http1", None), Leadership("http2", None)  # of a store without a leader
    assert [list(rules.leader_findings(first, after, {})) for after in (first, second, None)] == [[], [], []]


def test_a_median_below_its_floor_is_told() -> None:
    for median_s, floor_s, below_s in (
        *((0.0125, 0.018, 0.0055), (0.01625, 0.018, None), (0.0161, 0.018, 0.0019), (0.0005, 0.00075, None)),
        *((0.0004, 0.00075, 0.00035), (0.019, 0.018, None), (None, 0.018, None), (0.001, None, None)),
    ):
        percentiles_s = {} if median_s is None else {"50": median_s}
        result = replace(LoadResult.from_json(closed_loop()), percentiles_s=percentiles_s)
        found = [(item.kind, item.effect, item.value) for item in rules.floor_findings(result, floor_s)]
        told = [] if below_s is None else [("below_floor", "info", pytest.approx(below_s))]
        assert found == told, (median_s, floor_s)


def cores(count: float, **others: Any) -> Consumption:
    """CPU time of so many cores over the window, all of it user time."""
    return Consumption(cpu_ns=round(count * WINDOW_NS), **{"user_ns": round(count * WINDOW_NS), **others})


TWO_CORES, KEPT_CORE = Capacity(2), Capacity(2, links_core=True)
CALM = Consumers(
    members={name: cores(0.1, throttled_ns=0) for name in ("etcd1", "etcd2", "etcd3")},
    client=cores(0.1, throttled_ns=0),
    links=cores(0.2),
    driver=cores(0.05),
    machine=cores(0.7, steal_ns=0),
)
FULL = {"machine": cores(2.0), "driver": cores(1.2)}
ALMOST = {"machine": cores(1.2), "driver": cores(0.6)}
WAITED = cores(0.4, run_delay_ns=WINDOW_NS, throttled_ns=WINDOW_NS // 2)


def of_machine(changes: Any = None, capacity: Capacity = TWO_CORES, dilation: int = 1) -> list[Finding]:
    usage = Usage(WINDOW_NS, replace(CALM, **(changes or {})))
    return list(rules.machine_findings(usage, LoadResult.from_json(closed_loop()), capacity, dilation))


@pytest.mark.parametrize(
    ("changes", "capacity", "expected"),
    [
        ({}, TWO_CORES, []),
        ({"client": cores(0.1, throttled_ns=WINDOW_NS // 100)}, TWO_CORES, []),
        ({"client": cores(0.1, throttled_ns=WINDOW_NS // 100 + 1)}, TWO_CORES, [("client_throttled", "invalid")]),
        ({"client": cores(0.1)}, TWO_CORES, []),  # nobody counts it
        ({"members": {"etcd2": cores(0.4, run_delay_ns=5 * S)}}, TWO_CORES, []),
        ({"members": {"etcd2": cores(0.4, run_delay_ns=5 * S + 1)}}, TWO_CORES, [("member_waited", "invalid")]),
        ({"members": {"etcd2": WAITED}}, TWO_CORES, [("member_throttled", "info")]),  # which the wait has in it
        ({"links": cores(0.2, throttled_ns=WINDOW_NS // 100)}, TWO_CORES, []),
        ({"links": cores(0.2, throttled_ns=WINDOW_NS // 100 + 1)}, TWO_CORES, [("links_throttled", "invalid")]),
        ({"links": cores(0.9), "machine": cores(1.4)}, TWO_CORES, []),
        ({"links": cores(0.91), "machine": cores(1.4)}, TWO_CORES, [("links_saturated", "invalid")]),
        ({"links": None}, TWO_CORES, [("machine_shared", "invalid")]),  # what it took is somebody's
        ({"machine": cores(0.7, steal_ns=2 * WINDOW_NS // 100)}, TWO_CORES, []),
        ({"machine": cores(0.7, steal_ns=3 * WINDOW_NS // 100)}, TWO_CORES, [("machine_stolen", "invalid")]),
        ({"machine": cores(0.7, steal_ns=2 * WINDOW_NS // 100 + 10 * MS)}, TWO_CORES, []),  # a step of the clock
        ({"machine": cores(0.7, steal_ns=211 * MS)}, TWO_CORES, [("machine_stolen", "invalid")]),
        ({"machine": cores(0.84)}, TWO_CORES, []),
        ({"machine": cores(0.86)}, TWO_CORES, [("machine_shared", "invalid")]),
        ({"machine": cores(1.6, user_ns=7 * S)}, TWO_CORES, []),  # the kernel's own work is for the run
        ({"machine": cores(1.9), "driver": cores(1.2)}, TWO_CORES, []),
        ({"machine": cores(1.91), "driver": cores(1.2)}, TWO_CORES, [("machine_full", "invalid")]),
        ({"machine": None}, TWO_CORES, []),
        ({"machine": Consumption()}, TWO_CORES, []),
        ({"driver": Consumption(), "machine": cores(0.9)}, TWO_CORES, []),  # what is not known is nobody's fault
        # A full machine is as configured where all limits fit into it, unless somebody else fills it, in system time.
        (FULL, Capacity(2, 2.0), [("machine_full", "info")]),
        (FULL, Capacity(2, 2.1), [("machine_full", "invalid")]),
        (FULL, TWO_CORES, [("machine_full", "invalid")]),
        ({"machine": cores(2.0, user_ns=7 * S)}, Capacity(2, 2.0), [("machine_full", "invalid")]),
        # With a core kept for the links the others are what is full.
        (ALMOST, TWO_CORES, []),
        (ALMOST, KEPT_CORE, [("machine_full", "invalid")]),
        ({"machine": cores(1.1), "driver": cores(0.5)}, KEPT_CORE, []),
    ],
)
def test_what_was_used_is_judged_at_its_threshold(changes: Any, capacity: Capacity, expected: Any) -> None:
    assert [(item.kind, item.effect) for item in of_machine(changes, capacity)] == expected


def test_a_finding_names_whom_it_is_about_and_by_how_much() -> None:
    waits = {name: cores(0.4, run_delay_ns=n * S) for name, n in (("etcd1", 6), ("etcd2", 11), ("etcd3", 5))}
    (waited,) = of_machine({"members": waits, "machine": cores(1.6)})
    assert (waited.kind, waited.value, waited.threshold) == ("member_waited", 1.1, 0.5)
    assert waited.text == "CPU contention: on average up to 1.1 runnable threads of etcd1, etcd2 waited for a core"
    stopped = {"members": {"etcd2": cores(0.5, throttled_ns=WINDOW_NS // 4)}}
    (throttled,) = of_machine(stopped)
    assert (throttled.subject, throttled.value, throttled.threshold) == ("etcd2", 0.25, 0.01)
    assert throttled.text == "etcd2 was stopped by its own CPU limit for 25% of the time, all cores together"
    (slowed,) = of_machine(stopped, dilation=4)
    assert slowed.text == f"{throttled.text}; at dilation 4 latencies then differ from those of real time"
    (paused,) = rules.load_findings(LoadResult.from_json(closed_loop(**SHORT | {"paused_s": 1.5, "pause_s": 0.15})))
    assert paused.text.startswith("the load generator itself was paused 10 times, for 1.50 s in all and 0.15 s at the")
    (full,) = of_machine(ALMOST, KEPT_CORE)
    assert full.value == 1.0
    assert full.text.startswith("the one core beside the link emulator's was busy for 100% of the time")


def waiting(sum_s: float, mean_s: float | None, median_s: float | None, loop: Any = open_loop) -> dict[str, Any]:
    """A load whose waits may count as part of a latency."""
    answer: dict[str, Any] = loop(total_s=10.0, run_delay_s=sum_s, mean_run_delay_s=mean_s)
    if median_s is None:
        return without_answers(answer, 50)
    answer["percentiles_s"]["50"] = median_s
    return answer


def late(count: int) -> dict[str, Any]:
    behind = {"fell_behind": True, "late": count, "generator_late": count, "unsent": 0, "worst_lag_s": 0.02}
    behind |= {"clients_short": False, "late_after_s": 0.01, "own_lateness": None}
    return {"total_s": 10.0, "requests": 20_000, "ok": 20_000, "schedule": behind}


SHORT = {"total_s": 10.0, "pauses": 10, "paused_s": 0.6, "pause_s": 0.06}


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"ok": 20}, []),
        ({"reason": "cancelled", "ok": 19}, [("cut_short", "unknown", None), ("few_answers", "unknown", 19)]),
        # A few late requests of many do not make the figures the generator's.
        *((late(n), [("fell_behind", "info", n), ("generator_late", "info", n)]) for n in (1, 10)),
        (late(11), [("fell_behind", "info", 11), ("generator_late", "invalid", 11)]),
        # The client stopped for 3 s in a closed loop, ten times for 150 ms, ten times for 60 ms: 'no errors'.
        ({"pause_s": 0.1}, []),
        ({"pause_s": 0.101}, [("generator_paused", "invalid", 101_000_000)]),
        (SHORT | {"total_s": 12.0}, []),
        (SHORT, [("generator_paused", "invalid", 600_000_000)]),
        # The generator has to have time left.
        *(({"total_s": 10.0, **few}, []) for few in ({"cpu_s": 9.0}, {"busy_ratio": 0.9}, {"busy_ratio": None})),
        *(({"total_s": 10.0, **more}, [("generator_saturated", "invalid", 0.91)])
          for more in ({"cpu_s": 9.1}, {"busy_ratio": 0.91})),
        *(({"total_s": 10.0, "run_delay_s": waited_s}, []) for waited_s in (0.5, None)),
        ({"total_s": 10.0, "run_delay_s": 0.51}, [("generator_waited", "invalid", 0.051)]),
        ({"total_s": 0.0}, []),
        (waiting(1.5, 0.0002, 0.009), []),  # 2 x 0.2 ms of 9 ms
        (waiting(1.5, 0.0002, 0.007), [("generator_waited", "invalid", 0.0571)]),
        # Few waits, long ones: never more than the share of the time.
        (waiting(1.5, 0.02, 0.007), [("generator_waited", "invalid", 0.15)]),
        (waiting(0.4, 0.02, 0.007), []),
        (waiting(1.5, None, 0.007), [("generator_waited", "invalid", 0.15)]),
        (waiting(1.5, 0.0002, None), [("generator_waited", "invalid", 0.15)]),
        # In a closed loop one of 3 ms counts as well.
        (waiting(1.5, 0.0002, 0.06, closed_loop), []),
        (waiting(1.5, 0.0002, 0.05, closed_loop), [("generator_waited", "invalid", 0.06)]),
        (waiting(1.5, 0.002, 0.06, closed_loop), [("generator_waited", "invalid", 0.0667)]),
        (waiting(1.5, 0.0002, 0.01, closed_loop), [("generator_waited", "invalid", 0.15)]),
    ],
)  # fmt: skip
def test_a_load_is_judged_at_its_thresholds(load: dict[str, Any], expected: Any) -> None:
    result = LoadResult.from_json(load if "outcomes" in load else closed_loop(**load))
    found = [*rules.load_findings(result), *rules.machine_findings(Usage(WINDOW_NS, CALM), result, TWO_CORES)]
    assert [(item.kind, item.effect, item.value) for item in found] == expected


def test_a_slow_disk_is_told_by_the_bucket_of_the_99th_percentile() -> None:
    cases: dict[tuple[tuple[float | None, int], ...], list[float | None]] = {
        ((0.001, 98), (0.016, 2)): [],
        ((0.001, 98), (0.032, 2)): [0.032],
        ((0.001, 9), (None, 2)): [None],
        ((0.001, 99), (0.032, 1)): [],  # that is in the first one
        (): [],
    }
    slow = StoreActivity({"etcd1": MemberActivity(log_syncs=Durations.of(1.0, ((0.032, 9), (0.064, 1))))})
    limits = [[item.threshold for item in rules.store_findings(slow, {"etcd1": ms * 1_000_000})] for ms in (20, 32)]
    assert limits == [[pytest.approx(0.04)], []], "as slow as it is configured to be"
    for buckets, told in cases.items():
        member = MemberActivity(log_syncs=Durations.of(1.0, buckets))
        found = rules.store_findings(StoreActivity({"etcd1": member, "etcd2": MemberActivity()}))
        wanted = [("slow_disk", value, "info", "etcd1") for value in told]
        assert [(item.kind, item.value, item.effect, item.subject) for item in found] == wanted, buckets


def test_a_configured_fsync_has_to_hold_on_average_and_without_stalls() -> None:
    """For a configured time, how many syncs were by how much late, together, and how many of them for long."""
    cases: dict[tuple[int, int | None, int | None, int], list[tuple[str, float]]] = {
        (2_000_000, 100, 50_000_000, 0): [],  # half a millisecond each
        (2_000_000, 100, 50_000_100, 0): [("fsync_late", 500_001)],
        (20_000_000, 20, 40_000_000, 0): [],
        (20_000_000, 20, 40_000_020, 0): [("fsync_late", 2_000_001)],
        (2_000_000, 19, 10**9, 0): [],  # too few
        (2_000_000, 4000, 1_900_000_000, 1): [("fsync_stalled", 1)],
        (2_000_000, 0, 0, 0): [],
    }
    for (fsync_ns, syncs, late_ns, stalled), expected in cases.items():
        disk = cores(0.1, syncs=syncs, syncs_late_ns=late_ns, stalled_syncs=stalled)
        usage = Usage(WINDOW_NS, replace(CALM, members={"etcd1": disk, "etcd2": disk}))
        found = rules.machine_findings(usage, None, TWO_CORES, fsyncs_ns={"etcd2": fsync_ns, "gone": 1})
        wanted = [(kind, "invalid", value, "etcd2") for kind, value in expected]
        assert [(item.kind, item.effect, item.value, item.subject) for item in found] == wanted
    (unread,) = rules.machine_findings(Usage(WINDOW_NS, CALM), None, TWO_CORES, fsyncs_ns={"etcd1": 1})
    assert (unread.kind, unread.effect, unread.subject) == ("usage", "unknown", "etcd1")
    disk = cores(0.35, syncs=4000, syncs_late_ns=10_000_000_000, stalled_syncs=2)
    slow = Usage(WINDOW_NS, replace(CALM, members={"etcd2": disk}))
    found = rules.machine_findings(slow, None, TWO_CORES, dilation=4, fsyncs_ns={"etcd2": 8_000_000})
    assert [(item.text, item.threshold) for item in found] == [
        ("etcd2: an fsync took 2.625 ms on average, and 2 ms are configured", 500_000),
        ("etcd2: 2 of 4,000 fsyncs took 100 ms longer than configured", 0),
    ]


def test_a_member_may_be_silent_for_an_election_timeout() -> None:
    """For so long, with that timeout, stopped for so long by its own limit, of so many seconds."""
    cases: dict[tuple[float, float, float, float], Effect | None] = {
        (1.0, 1.0, 0.0, 3.0): None,
        (1.001, 1.0, 0.0, 3.0): "invalid",
        (2.001, 50.0, 0.0, 3.0): "invalid",  # no longer than 2 s, however long the election timeout is
        (1.8, 1.0, 0.9, 3.0): "info",  # its own limit explains half of it
        (1.8, 1.0, 0.89, 3.0): "invalid",
        # 0.95 s of being throttled, all over 300 s, excused that a member was frozen for 1.8 s.
        (3.04, 1.0, 1.52, 10.0): "info",
        (3.04, 1.0, 1.52, 16.0): "invalid",
        (3.04, 1.0, 30.0, 300.0): "info",
    }
    for (silent_s, timeout_s, throttled_s, lasted_s), effect in cases.items():
        silences, throttled = {"etcd1": 0.9, "etcd2": silent_s}, {"etcd1": 3.0, "etcd2": throttled_s}
        found = list(rules.member_findings(silences, timeout_s, throttled, lasted_s))
        wanted = [("member_silent", effect, "etcd2")] if effect else []
        assert [(item.kind, item.effect, item.subject) for item in found] == wanted, (silent_s, timeout_s, throttled_s)
        allowed = "others take a member for gone after 1 s" if timeout_s == 1 else "2 s are allowed"
        for item in found:
            assert item.text == f"etcd2 answered nothing for {silent_s:.1f} s; {allowed}"
            assert (item.value, item.threshold) == (pytest.approx(silent_s * 1e9), min(timeout_s, 2.0) * 1e9)


def carried(
    verb: Any, who: str, at_ms: int, value: Any = None, leader: str | None = "etcd1", **others: Any
) -> ExecutedEvent:
    """Something that was done; who: the numbers of members."""
    at_ns = at_ms * MS
    values = {"number": 1, "occurrence": 1, "cause": "event", "target": "x", "verb": verb, "value": value}
    values |= {"members": tuple(f"etcd{number}" for number in who), "leader": leader}
    return ExecutedEvent(**values | {"asked_ns": at_ns, "at_ns": at_ns, "since_start_ns": at_ns} | others)


def explained(*items: ExecutedEvent, size: int = 3, leader: str = "etcd1") -> bool:
    """By an election timeout of 1 s; ``leader`` at the start."""
    members = [f"etcd{number}" for number in range(1, size + 1)]

    def crossed(a: str, b: str, down: Collection[str]) -> Collection[str]:
        """Of the members the first two are at eu."""
        return ("eu-us", "eu>us", "us>eu") if len({a, b} & {"etcd1", "etcd2"}) == 1 and size == 5 else ()

    return explains_election(Disruptions("1", items), leader, members, crossed, 1000 * MS)


kill, restart, freeze, thaw, partition = (
    partial(carried, verb) for verb in ("kill", "restart", "freeze", "thaw", "partition")
)
heal, delay, loss, rate, reset = (partial(carried, verb) for verb in ("heal", "delay", "loss", "rate", "reset"))

ENDS_A_LEAD = {
    "killed leader": [kill("1", 0), restart("1", 10)],
    "a leader that is cut off": [partition("1", 0), heal("1", 500)],
    "a killed leader, of which the event did not know": [kill("1", 0, leader=None)],
    "a leader killed after its first successor": [kill("1", 0), restart("1", 9), kill("2", 5000, leader="etcd2")],
    "all followers cut off": [partition("23", 0)],
    "followers frozen at the same time": [freeze("2", 0), freeze("3", 900)],
    "one dead and one frozen": [kill("2", 0), freeze("3", 900), restart("2", 1900)],
    "a member that takes long to answer again": [kill("2", 0), restart("2", 100, answered_ns=3 * S), freeze("3", 1000)],
    "an undoing that failed": [freeze("2", 0), thaw("2", 100, problem="it stays frozen"), freeze("3", 1000)],
    "an answer of the leader takes the timeout": [delay("1", 0, 500 * MS)],
    "answers between leader and followers do": [delay("1", 0, 250 * MS), delay("23", 9, 250 * MS)],
    "a leader that loses frames": [loss("1", 0, 0.1)],
    "a full queue of the leader takes the timeout": [rate("1", 0, 24_000_000)],
    "the reset of another event leaves it": [delay("1", 0, 600 * MS), reset("1", 100, number=2, cause="for")],
}
_FIVE = (("etcd1", "etcd2"), ("etcd3",)), (("etcd1", "etcd2"), ("etcd4", "etcd5")), (("etcd3",), ("etcd4", "etcd5"))
"""Members of three sites."""
parted = partial(partition, "12345", 0, target="eu | us | asia", apart=_FIVE)
PAIR = {"members": ("eu-us",)}
ONE_WAY = {"members": ("eu>us",)}
BOTH = {"members": ("eu>us", "us>eu")}
ENDS_ONE_OF_FIVE = {
    "no site has a majority": [parted()],
    "a leader in the smaller set": [parted(apart=_FIVE[:2])],
    "the leader outside the set of a partition": [
        partition("2345", 0, apart=((("etcd2", "etcd3", "etcd4", "etcd5"), ("etcd1",)),))
    ],
    "sets that another event heals": [parted(), heal("12345", 500, target="partitioned", number=2)],
    "sets that one of them is healed of": [parted(), heal("1", 100, target="eu", number=2)],
    "sets beside a later partition": [parted(), partition("1", 10, number=2), heal("1", 20, number=2, cause="for")],
    "a link between sites that is down": [carried("link_down", "", 0, **PAIR)],
    "the same where the leader is unknown": [carried("link_down", "", 0, leader=None, **PAIR)],
    "a site's link that takes the timeout there and back": [delay("", 0, 500 * MS, **BOTH)],
    "its two directions at different times": [
        delay("", 0, 600 * MS, **ONE_WAY), delay("", 100, 400 * MS, number=2, members=("us>eu",))
    ],
}  # fmt: skip
LEAVES_ONE_OF_FIVE = {
    "sets with the leader in a majority": [parted(apart=_FIVE[1:])],
    "sets for a moment": [parted(), heal("12345", 499, cause="for")],
    "sets that all are healed of": [parted(), heal("12345", 499, target="partitioned", number=2)],
    "a partition of a minority": [partition("45", 0, apart=((("etcd4", "etcd5"), ("etcd1", "etcd2", "etcd3")),))],
    "a majority in the set of a partition": [
        partition("123", 0, apart=((("etcd1", "etcd2", "etcd3"), ("etcd4", "etcd5")),))
    ],
    "a site's link that takes less": [delay("", 0, 499 * MS, **BOTH)],
    "one direction that takes less": [delay("", 0, 999 * MS, **ONE_WAY)],
    "a link that came up": [carried("link_down", "", 0, **PAIR), carried("link_up", "", 100, cause="for", **PAIR)],
}


@pytest.mark.parametrize("name", ENDS_ONE_OF_FIVE | LEAVES_ONE_OF_FIVE)
def test_an_election_of_sites_is_explained_by_what_keeps_the_leader_from_a_majority(name: str) -> None:
    assert explained(*(ENDS_ONE_OF_FIVE | LEAVES_ONE_OF_FIVE)[name], size=5) is (name in ENDS_ONE_OF_FIVE)


LEAVES_IT = {
    "nothing": [],
    "followers at different times": [freeze("2", 0), thaw("2", 900, cause="for"), freeze("3", 901)],
    "followers delayed a little": [delay("2", 0, MS), delay("3", 900, MS)],
    "a killed follower": [kill("2", 0)],
    "a killed follower where the event knew no leader": [kill("3", 0, leader=None)],
    "a killed leader that was none at the start": [kill("2", 5000, leader="etcd2")],
    "a first leader that is killed later": [thaw("3", 10, leader="etcd2"), kill("1", 20, leader=None)],
    "a restarted leader": [restart("1", 0)],
    "a leader delayed a little": [delay("1", 0, 499 * MS)],
    "a leader without loss": [loss("1", 0, 0.0)],
    "a leader with enough of a rate": [rate("1", 0, 25_000_000), rate("1", 9)],
    "a leader frozen for a moment": [freeze("1", 0), thaw("1", 499)],
    "followers overlapping for a moment": [freeze("2", 0), freeze("3", 900), thaw("2", 1399)],
    "a large delay that a small one replaced": [delay("1", 0, 900 * MS), delay("1", 100, MS)],
    "one that ended with the scenario": [delay("1", 0, 900 * MS), reset("1", 100, cause="end")],
    "one that its own end took back": [delay("1", 0, 900 * MS), reset("1", 100, cause="for")],
    "a small delay where nobody is known to lead": [delay("1", 0, MS, leader=None)],
    "a frozen member that was killed": [freeze("2", 0), kill("2", 100), restart("2", 200), freeze("3", 1000)],
    "an event that did not happen": [freeze("1", 0, at_ns=None, since_start_ns=None)],
}


@pytest.mark.parametrize("name", ENDS_A_LEAD | LEAVES_IT)
def test_an_election_is_explained_by_what_ends_a_lead_alone(name: str) -> None:
    assert explained(*(ENDS_A_LEAD | LEAVES_IT)[name]) is (name in ENDS_A_LEAD)


def test_a_leader_of_many_needs_a_majority_only() -> None:
    two, three = freeze("23", 0), freeze("234", 0)
    assert not explained(two, size=5) and explained(three, size=5) and explained(two, size=4)
    assert not explained(freeze("1", 0), size=1) and explained(kill("1", 0), size=1)
    assert not explained(carried("link_down", "", 0, leader="etcd3", **PAIR), size=5, leader="etcd3")


def test_a_silence_is_explained_for_as_long_as_events_stopped_the_member() -> None:
    """By a timeout of 1 s more than the longest stop."""
    cases: list[tuple[list[ExecutedEvent], float]] = [
        ([freeze("2", 1000), thaw("2", 1100)], 0.1),
        ([freeze("2", 0), freeze("2", 900), thaw("2", 2000), freeze("2", 5000), thaw("2", 5500)], 2.0),
        ([freeze("2", 0), kill("2", 500), restart("2", 900, answered_ns=3 * S)], 3.0),
        ([freeze("2", 0), thaw("2", 100, problem="it stays frozen")], math.inf),
    ]
    for items, stopped_s in cases:
        by_events_s = Disruptions("1", (*items, partition("3", 0))).stopped_s
        assert by_events_s == {"etcd2": stopped_s}, items
        for silent_s in (min(1.0 + stopped_s, 7.0), 8.0):
            (found,) = rules.member_findings({"etcd2": silent_s}, 1.0, {}, 40.0, by_events_s)
            assert found.effect == ("info" if silent_s <= 1.0 + stopped_s else "invalid"), (items, silent_s)


def test_failed_requests_are_explained_by_what_keeps_answers_away() -> None:
    made = closed_loop()
    row = {**made["timeline"][0], "second": 0.1, "failed": 40}
    load = LoadResult.from_json({**made, "timeline_interval_s": 0.1, "timeline": [row]})
    for item, timeout_ms, is_explained in (
        (delay("2", 0, 100 * MS), 1000, True),  # a request that crosses the link five times there and back
        (delay("2", 0, 100 * MS), 1001, False),
        (delay("2", 0, 250 * MS), 9000, True),  # an answer over two such links takes the election timeout
        (delay("2", 0, 249 * MS), 9000, False),
        (delay("", 0, 100 * MS, **BOTH), 1000, True),
        (delay("", 0, 100 * MS, **BOTH), 1001, False),
        (delay("", 0, 500 * MS, **BOTH), 9000, True),  # one such link on a way
        (delay("", 0, 499 * MS, **BOTH), 9000, False),
        (carried("link_down", "", 0, **PAIR), 9000, True),
        *((loss("2", 0, ratio), 9000, ratio > 0) for ratio in (0.0, 0.1)),
        (rate("2", 0, 100_000_000), 9000, False),
        (partition("2", 199), 9000, True),
        (partition("2", 200), 9000, False),  # they failed before
    ):
        found = failures_explained(load, Disruptions("1", (item,)), 1000 * MS, timeout_ms * MS)
        assert found is is_explained, (item, timeout_ms)


@pytest.mark.parametrize(
    "subject", ["etcd1-eth0", "etcd1-s1", "etcd1-eu-central-1", "etcd1-x-eth0", "etcd11-s1", "etcd1"]
)
def test_ports_and_links_of_a_host_are_known_by_its_name(subject: str) -> None:
    """Of a site with a hyphen in its name, what a killed member lost made rows invalid."""
    assert rules._is_of(subject, "etcd1") == (subject in ("etcd1-eth0", "etcd1-s1", "etcd1-eu-central-1"))
