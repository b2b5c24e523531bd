"""The verdict on figures: what each kind of finding does to them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from containernet_env.model.findings import Effect, Finding, Kind, floor_findings, load_findings
from containernet_env.model.load_result import LoadResult
from containernet_env.model.verdict import RULES, Verdict, as_markdown, verdict
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
