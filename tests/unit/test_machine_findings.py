"""Findings of the machine: whether hosts, links and load had the cores that they are configured to have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from containernet_env.model.findings import Finding
from containernet_env.model.load_result import LoadResult
from containernet_env.model.machine_findings import Capacity, machine_findings, store_findings
from containernet_env.model.store_activity import Durations, MemberActivity, StoreActivity
from containernet_env.model.usage import Consumers, Consumption, Usage
from tests.unit.answers import closed_loop, open_loop, without_answers

SECOND = 10**9
MS = 10**6
WINDOW_NS = 10 * SECOND


def cores(count: float, **others: Any) -> Consumption:
    """CPU time of so many cores over the window, all of it user time."""
    return Consumption(cpu_ns=round(count * WINDOW_NS), **{"user_ns": round(count * WINDOW_NS), **others})


TWO_CORES = Capacity(2)
CALM = Consumers(
    members={name: cores(0.1, throttled_ns=0) for name in ("etcd1", "etcd2", "etcd3")},
    client=cores(0.1, throttled_ns=0),
    links=cores(0.2),
    driver=cores(0.05),
    machine=cores(0.7, steal_ns=0),
)


def found(changes: dict[str, Any] | None = None, capacity: Capacity = TWO_CORES, **load: Any) -> list[Finding]:
    usage = Usage(WINDOW_NS, replace(CALM, **(changes or {})))
    return list(machine_findings(usage, LoadResult.from_json(closed_loop(**load)), capacity))


def kinds(*arguments: Any, **load: Any) -> list[tuple[str, str]]:
    return [(finding.kind, finding.effect) for finding in found(*arguments, **load)]


def test_a_calm_machine_has_no_findings() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"client": cores(0.1, throttled_ns=WINDOW_NS // 100)}, []),
        ({"client": cores(0.1, throttled_ns=WINDOW_NS // 100 + 1)}, [("client_throttled", "invalid")]),
        ({"client": cores(0.1)}, []),  # nobody counts it
        ({"members": {"etcd2": cores(0.5, throttled_ns=WINDOW_NS // 2)}}, [("member_throttled", "told")]),
        ({"members": {"etcd2": cores(0.4, run_delay_ns=WINDOW_NS // 2)}}, []),
        ({"members": {"etcd2": cores(0.4, run_delay_ns=WINDOW_NS // 2 + 1)}}, [("member_waited", "invalid")]),
        (
            {"members": {"etcd2": cores(0.4, run_delay_ns=WINDOW_NS, throttled_ns=WINDOW_NS // 2)}},
            [("member_throttled", "told")],  # which the wait has in it
        ),
        ({"links": cores(0.2, throttled_ns=4 * WINDOW_NS // 10)}, [("links_throttled", "invalid")]),
        ({"links": cores(0.9), "machine": cores(1.4)}, []),
        ({"links": cores(0.91), "machine": cores(1.4)}, [("links_saturated", "invalid")]),
        ({"links": None}, [("machine_shared", "invalid")]),  # what it took is somebody's
        ({"machine": cores(0.7, steal_ns=2 * WINDOW_NS // 100)}, []),
        ({"machine": cores(0.7, steal_ns=3 * WINDOW_NS // 100)}, [("machine_stolen", "invalid")]),
        ({"machine": cores(0.7, steal_ns=2 * WINDOW_NS // 100 + 10 * MS)}, []),  # one step of the kernel's clock
        ({"machine": cores(0.7, steal_ns=2 * WINDOW_NS // 100 + 11 * MS)}, [("machine_stolen", "invalid")]),
        ({"machine": cores(0.84)}, []),
        ({"machine": cores(0.86)}, [("machine_shared", "invalid")]),
        ({"machine": cores(1.6, user_ns=7 * SECOND)}, []),  # the kernel's own work is for the run
        ({"machine": cores(1.9), "driver": cores(1.2)}, []),
        ({"machine": cores(1.91), "driver": cores(1.2)}, [("machine_full", "invalid")]),
        ({"machine": None}, []),
        ({"machine": Consumption()}, []),
        ({"driver": Consumption(), "machine": cores(0.9)}, []),  # what is not known is nobody's fault
    ],
)
def test_what_was_used_is_judged_at_its_threshold(changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert kinds(changes) == expected


@pytest.mark.parametrize(
    ("capacity", "effect"), [(Capacity(2, 2.0), "told"), (Capacity(2, 2.1), "invalid"), (Capacity(2), "invalid")]
)
def test_a_full_machine_is_as_configured_where_all_limits_fit_into_it(capacity: Capacity, effect: str) -> None:
    assert kinds({"machine": cores(2.0), "driver": cores(1.2)}, capacity) == [("machine_full", effect)]


def test_a_full_machine_is_not_as_configured_where_somebody_else_fills_it() -> None:
    """In system time, so that it is nobody's user time."""
    assert kinds({"machine": cores(2.0, user_ns=7 * SECOND)}, Capacity(2, 2.0)) == [("machine_full", "invalid")]


def test_members_that_waited_are_told_on_one_line() -> None:
    waits = {name: cores(0.4, run_delay_ns=n * SECOND) for name, n in (("etcd1", 6), ("etcd2", 11), ("etcd3", 5))}
    (waited,) = found({"members": waits, "machine": cores(1.6)})
    assert (waited.kind, waited.value, waited.threshold) == ("member_waited", 1.1, 0.5)
    assert waited.text == "etcd1, etcd2 waited for cores, with up to 1.1 threads in the mean, none of them by a limit"


def test_with_a_core_kept_for_the_links_the_others_are_what_is_full() -> None:
    full = {"machine": cores(1.2), "driver": cores(0.6)}
    (found_full,) = found(full, Capacity(2, links_core=True))
    assert (found_full.kind, found_full.effect, found_full.value) == ("machine_full", "invalid", 1.0)
    assert found_full.text.startswith("the one core beside the link emulator's was busy for 100% of the time")
    assert kinds(full) == []
    assert kinds({"machine": cores(1.1), "driver": cores(0.5)}, Capacity(2, links_core=True)) == []


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"cpu_s": 9.0}, []),
        ({"cpu_s": 9.1}, [("generator_saturated", "invalid")]),
        ({"busy_ratio": 0.9}, []),
        ({"busy_ratio": 0.91}, [("generator_saturated", "invalid")]),
        ({"busy_ratio": None}, []),
        ({"run_delay_s": 0.5}, []),
        ({"run_delay_s": 0.51}, [("generator_waited", "invalid")]),
        ({"run_delay_s": None}, []),
    ],
)
def test_the_generator_has_to_have_time_left(load: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert kinds(total_s=10.0, **load) == expected


@pytest.mark.parametrize(
    ("sum_s", "mean_s", "median_s", "waited"),
    [
        (1.5, 0.0002, 0.009, None),  # 2 x 0.2 ms of 9 ms
        (1.5, 0.0002, 0.007, 0.0571),
        (1.5, 0.02, 0.007, 0.15),  # few waits, long ones: never more than the share of the time
        (0.4, 0.02, 0.007, None),
        (1.5, None, 0.007, 0.15),
        (1.5, 0.0002, None, 0.15),
    ],
)
def test_an_open_loop_wakes_often_and_its_waits_count_as_part_of_a_latency(
    sum_s: float, mean_s: float | None, median_s: float | None, waited: float | None
) -> None:
    answer = open_loop(total_s=10.0, run_delay_s=sum_s, mean_run_delay_s=mean_s)
    if median_s is None:
        answer = without_answers(answer, 50)
    else:
        answer["percentiles_s"]["50"] = median_s
    findings = list(machine_findings(Usage(WINDOW_NS, CALM), LoadResult.from_json(answer), Capacity(2)))
    assert [(item.kind, item.value) for item in findings] == ([("generator_waited", waited)] if waited else [])


def test_nothing_is_said_of_what_nobody_measured() -> None:
    assert list(machine_findings(None, None, Capacity(2))) == []
    assert list(machine_findings(Usage(0, CALM), None, Capacity(2))) == []


def test_a_finding_names_whom_it_is_about_and_by_how_much() -> None:
    (finding,) = found({"members": {"etcd2": cores(0.5, throttled_ns=WINDOW_NS // 4)}})
    assert (finding.subject, finding.value, finding.threshold) == ("etcd2", 0.25, 0.01)
    assert finding.text == "etcd2 was stopped by its own CPU limit for 25% of the time"


@pytest.mark.parametrize(
    ("buckets", "told"),
    [
        (((0.001, 99), (0.016, 1)), None),
        (((0.001, 98), (0.016, 2)), None),
        (((0.001, 98), (0.032, 2)), 0.032),
        (((0.001, 99), (0.032, 1)), None),  # the 99th percentile is in the first one
        (((0.001, 9), (None, 2)), None),
        ((), None),
    ],
)
def test_a_slow_disk_is_told_by_the_bucket_of_the_99th_percentile(
    buckets: tuple[tuple[float | None, int], ...], told: float | None
) -> None:
    member = MemberActivity(log_syncs=Durations.of(1.0, buckets))
    findings = list(store_findings(StoreActivity({"etcd1": member, "etcd2": MemberActivity()})))
    beyond = bool(buckets) and buckets[-1][0] is None
    assert [finding.kind for finding in findings] == ["slow_disk"] * (told is not None or beyond)
    if findings:
        assert (findings[0].value, findings[0].effect, findings[0].subject) == (told, "told", "etcd1")


def test_nothing_is_said_of_members_that_nobody_asked() -> None:
    assert list(store_findings(None)) == []
