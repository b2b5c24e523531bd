"""The verdict on figures: what each kind of finding does to them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from containernet_env.model.findings import (
    Effect,
    Finding,
    Kind,
    floor_findings,
    load_findings,
    member_findings,
    network_findings,
)
from containernet_env.model.link_statistics import LinkStatistics
from containernet_env.model.load_result import LoadResult
from containernet_env.model.machine_findings import Capacity, machine_findings, store_findings
from containernet_env.model.store_activity import Durations, MemberActivity, StoreActivity
from containernet_env.model.usage import Consumers, Consumption, Usage
from containernet_env.model.verdict import RULES, Verdict, as_markdown, verdict
from tests.recorded import sabotaged
from tests.unit.answers import closed_loop

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "fidelity.md"
BEGIN, END = "<!-- rules: made from containernet_env/model/verdict.py -->\n", "<!-- end of rules -->\n"


def found(kind: Kind, effect: Effect) -> Finding:
    return Finding(kind, effect, "text")


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ((), Verdict("yes")),
        ((found("fell_behind", "told"),), Verdict("yes")),
        ((found("few_answers", "unknown"),), Verdict("unknown", ("few_answers",))),
        ((found("links_paused", "invalid"), found("fell_behind", "told")), Verdict("no", ("links_paused",))),
        (
            (found("few_answers", "unknown"), found("frames_lost", "invalid"), found("frames_lost", "invalid")),
            Verdict("no", ("frames_lost", "few_answers")),
        ),
        ((found("counters", "unknown"), found("counters", "invalid")), Verdict("no", ("counters",))),
    ],
)
def test_the_worst_finding_decides(findings: tuple[Finding, ...], expected: Verdict) -> None:
    assert verdict(findings) == expected


def test_every_kind_of_finding_has_a_rule() -> None:
    assert set(RULES) == set(get_args(Kind))
    assert all(rule.effects for rule in RULES.values())


def test_the_document_has_the_rules() -> None:
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    written, _, after = rest.partition(END)
    if os.environ.get("UPDATE_GOLDEN"):
        DOCUMENT.write_text(before + BEGIN + as_markdown() + END + after)
        written = as_markdown()
    assert written == as_markdown()


def test_a_load_that_ended_early_or_had_few_answers_is_not_certain() -> None:
    kinds = [found.kind for found in load_findings(LoadResult.from_json(closed_loop(reason="cancelled", ok=19)))]
    assert kinds == ["cut_short", "few_answers"]
    assert list(load_findings(LoadResult.from_json(closed_loop(ok=20)))) == []
    assert list(load_findings(None)) == []


@pytest.mark.parametrize(("late", "effect"), [(1, "told"), (10, "told"), (11, "invalid")])
def test_a_few_late_requests_of_many_do_not_make_the_figures_the_generators(late: int, effect: Effect) -> None:
    behind = {
        "fell_behind": True,
        "late": late,
        "generator_late": late,
        "unsent": 0,
        "worst_lag_s": 0.02,
        "clients_short": False,
        "late_after_s": 0.01,
        "own_lateness": None,
    }
    result = LoadResult.from_json(closed_loop(requests=20_000, ok=20_000, schedule=behind))
    assert [(found.kind, found.effect) for found in load_findings(result)] == [
        ("fell_behind", "told"),
        ("generator_late", effect),
    ]


@pytest.mark.parametrize(
    ("median_s", "floor_s", "below_s"),
    [
        (0.0125, 0.018, 0.0055),
        (0.01625, 0.018, None),
        (0.0161, 0.018, 0.0019),
        (0.0005, 0.00075, None),
        (0.0004, 0.00075, 0.00035),
        (0.019, 0.018, None),
        (None, 0.018, None),
        (0.001, None, None),
    ],
)
def test_a_median_below_its_floor_is_told(median_s: float | None, floor_s: float | None, below_s: float | None) -> None:
    percentiles = {} if median_s is None else {"50": median_s}
    result = replace(LoadResult.from_json(closed_loop()), percentiles_s=percentiles)
    found = list(floor_findings(result, floor_s))
    assert [(item.kind, item.effect, item.value) for item in found] == (
        [] if below_s is None else [("below_floor", "told", pytest.approx(below_s))]
    )
    assert list(floor_findings(None, 1.0)) == []


# --- figures of a run that was sabotaged -------------------------------------------------------------------------

RECORDED = sabotaged.read()
OF_FIGURES = set(get_args(Kind)) - {"member_died", "leader_changed", "member_silent"}
"""Kinds of findings that follow from what is recorded; the others from what a run sees meanwhile."""
CLIENT_AND_MEMBERS_CORES = Capacity(2, 4.0)


def usage_of(recorded: dict[str, Any]) -> Usage:
    used = recorded["used"]
    others = {name: None if used[name] is None else Consumption(**used[name]) for name in used if name != "members"}
    members = {name: Consumption(**values) for name, values in used["members"].items()}
    return Usage(recorded["window_ns"], Consumers(members, **others))


def activity_of(recorded: dict[str, Any]) -> StoreActivity:
    def member(values: dict[str, Any]) -> MemberActivity:
        if (syncs := values["log_syncs"]) is None:
            return MemberActivity()
        return MemberActivity(log_syncs=Durations(**{**syncs, "buckets": tuple(map(tuple, syncs["buckets"]))}))

    return StoreActivity({name: member(values) for name, values in recorded["members"].items()})


def findings_of(recorded: dict[str, Any]) -> list[Finding]:
    load = LoadResult.from_json(recorded["load"])
    return [
        *load_findings(load),
        *floor_findings(load, recorded["floor_s"]),
        *network_findings(LinkStatistics(recorded["network"]), recorded["floor_s"] or load.median_s),
        *machine_findings(usage_of(recorded["machine"]), load, CLIENT_AND_MEMBERS_CORES),
        *store_findings(activity_of(recorded["store"])),
    ]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_figures_give_the_findings_of_their_run(name: str) -> None:
    recorded = RECORDED[name]
    told = [Finding(**values) for values in recorded["findings"] if values["kind"] in OF_FIGURES]
    assert [item for item in findings_of(recorded) if item.kind in OF_FIGURES] == told


def changed(recorded: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The figures with one of them replaced; ``path``: its keys, with dots between."""
    key, _, rest = path.partition(".")
    return {**recorded, key: changed(recorded[key], rest, value) if rest else value}


@pytest.mark.parametrize(
    ("name", "path", "kind", "most"),
    [
        ("client-stopped", "load.pause_s", "generator_paused", 0.1),
        ("emulator-stopped", "network.lateness.p99_ns", "link_lateness", None),
        ("emulator-stopped", "network.lateness.max_ns", "links_paused", 100_000_000),
        ("emulator-with-a-quota", "machine.used.links.throttled_ns", "links_throttled", None),
        ("emulator-with-a-quota", "load.run_delay_s", "generator_waited", None),
    ],
)
def test_a_recorded_figure_at_its_threshold_spoils_nothing_and_one_above_it_does(
    name: str, path: str, kind: Kind, most: float | None
) -> None:
    recorded = RECORDED[name]
    if kind == "generator_paused":
        recorded = changed(recorded, "load.paused_s", 0.0)
    if kind == "link_lateness":
        recorded = changed(recorded, "network.lateness.p50_ns", 0)
    if most is None:
        (found,) = (item for item in findings_of(recorded) if item.kind == kind)
        assert found.threshold is not None
        whole = {"links_throttled": recorded["machine"]["window_ns"], "generator_waited": recorded["load"]["total_s"]}
        most = found.threshold * whole.get(kind, 1)
    for value, spoils in ((most * 0.999, False), (most * 1.001, True)):
        kinds = {item.kind for item in findings_of(changed(recorded, path, value)) if item.effect == "invalid"}
        assert (kind in kinds) is spoils, (value, kinds)


@pytest.mark.parametrize(
    ("silent_s", "timeout_s", "throttled_s", "effect"),
    [
        (1.0, 1.0, 0.0, None),
        (1.001, 1.0, 0.0, "invalid"),
        (2.001, 50.0, 0.0, "invalid"),  # no longer than 2 s, however long the election timeout is
        (1.8, 1.0, 0.9, "told"),  # its own limit explains half of it
        (1.8, 1.0, 0.89, "invalid"),
    ],
)
def test_a_member_may_be_silent_for_an_election_timeout(
    silent_s: float, timeout_s: float, throttled_s: float, effect: Effect | None
) -> None:
    found = list(member_findings({"etcd2": silent_s}, timeout_s, {"etcd2": throttled_s}, 3.0))
    assert [(item.kind, item.effect, item.subject) for item in found] == (
        [("member_silent", effect, "etcd2")] if effect else []
    )
