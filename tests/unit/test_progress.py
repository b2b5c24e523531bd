"""What a person sees of a running scenario."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from decimal import Decimal
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.work import RemainingTime
from containernet_env.cli import terminal as progress
from containernet_env.cli.terminal import TerminalProgress, result_table
from containernet_env.config.plan import PlannedScenario
from containernet_env.model.findings import Effect, Finding
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Scenario, ScheduledScenario
from containernet_env.model.search import Search
from containernet_env.runs.progress import Guarded, Silent
from tests.unit.answers import closed_loop

WRITE = Scenario(name="w", type="write", total=10_000, clients=10, conns=2, key_size=8, val_size=256, key_space=10_000)
TIMED = replace(WRITE, name="timed", total=None, duration_ns=60 * 10**9, rate=Decimal(500), key_space=1000)


class Terminal(TerminalProgress):
    """Shows the progress of these scenarios as ``text``, as time passes by ``passes`` alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *scenarios: PlannedScenario, live: bool = False) -> None:
        self.output, self.now = StringIO(), 1000.0
        monkeypatch.setattr(progress, "clock", SimpleNamespace(monotonic=lambda: self.now, Lock=clock.Lock))
        super().__init__(Console(file=self.output, width=200, force_terminal=live))
        self.matrix_started(scenarios)

    def passes(self, seconds: float, done: int, failed: int) -> None:
        self.now += seconds
        self.scenario_progress(done, failed)

    @property
    def text(self) -> str:
        return self.output.getvalue()


def planned(scenario: Scenario, estimated_s: float = 60.0) -> PlannedScenario:
    return PlannedScenario(ScheduledScenario(scenario, 1), False, estimated_s)


def ended(scenario: Scenario, seconds: float, **result: object) -> ScenarioOutcome:
    load = LoadResult.from_json(closed_loop(**result))
    return ScenarioOutcome(ScheduledScenario(scenario, 1), "t", 1, seconds=seconds, load=load)


def test_without_a_terminal_a_long_scenario_says_how_far_it_and_the_matrix_are(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, planned(WRITE), planned(TIMED))
    terminal.scenario_started(planned(WRITE))
    for _ in range(4):
        terminal.passes(5, 3000, 12)
    terminal.scenario_ended(ended(WRITE, 30.0))
    terminal.scenario_started(planned(TIMED))
    terminal.passes(20, 10_000, 0)
    lines = terminal.text.splitlines()
    assert lines[0] == "[1/2] w: 3,000 of 10,000, 200/s, 12 failed, about 35 s left (all scenarios: 105 s)"
    # The first took half of what was expected: so will the second.
    assert lines[2] == "[2/2] timed: 20 of 60 s, 500/s, about 40 s left (all scenarios: 10 s)"


def test_a_slowed_scenario_takes_real_time_at_a_rate_in_emulated_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(planned(TIMED, 240.0), dilation=4)
    terminal = Terminal(monkeypatch, slow, slow)
    terminal.scenario_started(slow)
    terminal.passes(20, 2500, 0)
    assert terminal.text.splitlines() == [
        "[1/2] timed: 20 of 240 s, 500/s, about 3 min 40 s left (all scenarios: 7 min 40 s)"
    ]
    terminal.scenario_ended(replace(ended(TIMED, 60.0), dilation=4))
    terminal.scenario_started(slow)
    terminal.passes(20, 2500, 0)
    assert terminal.text.splitlines()[-1].endswith("(all scenarios: 3 min 40 s)")


@pytest.mark.parametrize("live", [False, True])
def test_a_search_says_which_probe_is_made_and_how_long_all_of_them_take(
    monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    search = Search(p99_ns=50_000_000, low=Decimal(10), high=Decimal(1000))
    searched = replace(WRITE, name="s", total=None, search=search)
    terminal = Terminal(monkeypatch, planned(searched, 150.0), live=live)
    terminal.scenario_started(planned(searched, 150.0))
    for number, rate in ((1, 400), (2, 800)):
        terminal.probe_started(number, searched.probe(Decimal(rate)))
        terminal.passes(10, 10 * rate, 0)
    terminal.passes(20, 24_000, 3)
    terminal.close()
    assert "probe 2 at 800/s, 40 s" in terminal.text and "800/s, 3 failed" in terminal.text, "of this probe alone"
    assert "about 110 s left" in terminal.text
    terminal.scenario_started(planned(WRITE))
    terminal.passes(20, 3000, 0)
    terminal.close()
    assert "3,000 of 10,000" in terminal.text


def test_the_line_of_a_scenario_says_what_its_percentiles_exclude_and_what_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal(monkeypatch, *[planned(WRITE)] * 2)
    for failed in (0, 200):
        terminal.scenario_started(planned(WRITE))
        outcomes = {"ok": 1000 - failed, "failed": failed, "unknown": 0, "unsent": 0}
        terminal.scenario_ended(ended(WRITE, 2.0, ok=1000 - failed, failed=failed, outcomes=outcomes))
    whole, partly = terminal.text.splitlines()
    assert partly == f"{whole.replace('[1/2]', '[2/2]')}  200 requests in no percentile"
    finding = Finding("link_lateness", "invalid", "frames were late")
    throttled = [
        Finding("member_throttled", "info", f"etcd{n} was stopped", n / 10, 0.01, f"etcd{n}") for n in (1, 3, 2)
    ]
    terminal.scenario_ended(replace(ended(WRITE, 2.0), load=None, findings=(finding, *throttled), error="not run: x"))
    assert [line.strip() for line in terminal.text.splitlines()[2:]] == [
        *("[3/2] w  not run: x", "note       w: frames were late"),
        "note       w: etcd3 was stopped (etcd1, etcd2: less)",
    ]


def table(*outcomes: ScenarioOutcome, width: int = 200) -> str:
    output = StringIO()
    Console(file=output, width=width).print(result_table(outcomes))
    return output.getvalue()


def test_a_row_that_is_not_valid_is_marked_in_its_line_and_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    marks: dict[Effect, str] = {"info": "(2.0 s)", "unknown": "  VALID? unknown", "invalid": "  NOT VALID"}
    for effect, words in marks.items():
        terminal = Terminal(monkeypatch, planned(WRITE))
        terminal.scenario_started(planned(WRITE))
        outcome = replace(ended(WRITE, 2.0), findings=(Finding("links_paused", effect, "they were paused"),))
        terminal.scenario_ended(outcome)
        assert terminal.text.splitlines()[0].endswith(words), effect
        assert outcome.verdict is not None and table(outcome).split()[-1] == outcome.verdict.valid


@pytest.mark.parametrize("width", [80, 60])
def test_a_short_line_cuts_no_figure(width: int) -> None:
    """80 columns: 'write-cluster-100000x1000x100-8B-256B  10,143  91.5 ms  216 ...  0  no', under 'val...'."""
    outcome = ended(replace(WRITE, name="write-cluster-100000x1000x100-8B-256B"), 2.0)
    short, whole = (table(outcome, outcome, width=columns) for columns in (width, 200))
    assert "\N{HORIZONTAL ELLIPSIS}" not in short
    (heading, first), (whole_heading, whole_first) = short.splitlines()[:2], whole.splitlines()[:2]
    assert heading.split() == whole_heading.split() and first.split()[1:] == whole_first.split()[1:]
    assert short.replace("\n", " ").count("write-cluster") == 2
    # With its dilation it has a line of its own where no request failed.
    slow = table(replace(outcome, dilation=16), width=80).splitlines()
    assert len(slow) == 2 and "errors" not in slow[0]


def test_another_attempt_is_the_same_scenario_again(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, *[planned(WRITE)] * 2)
    outcomes = []
    for attempt, is_run in ((1, True), (2, True), (1, False)):
        scheduled = ScheduledScenario(WRITE, 1, attempt=attempt)
        if is_run:
            terminal.scenario_started(replace(planned(WRITE), scheduled=scheduled))
        outcomes.append(replace(ended(WRITE, 2.0), scheduled=scheduled))
        terminal.scenario_ended(outcomes[-1])
    assert [line[:5] for line in terminal.text.splitlines()] == ["[1/2]", "[1/2]", "[2/2]"]
    assert "w, attempt 2" in table(*outcomes[:2])


def test_the_time_left_follows_from_what_ended_scenarios_took() -> None:
    times = RemainingTime()
    times.wants(3, 60.0)
    assert (times.all, times.done, times.left_s) == (3, 0, 60.0)
    times.ended(10.0)
    times.took(20.0)
    assert (times.done, times.left_s, times.took_s) == (1, 100.0, 20.0)
    times.took(10.0)
    assert (times.done, times.left_s) == (1, 150.0), "the same one, measured again"


@pytest.mark.parametrize(
    ("words", "fails", "seen"),
    [
        ([], False, ["begin", "end"]),
        (["two"], False, ["begin", "done two", "work", "end"]),
        ([], True, ["begin", "failed"]),
        (["bad"], False, ["begin", "work", "end"]),
    ],
)
def test_a_stage_of_a_users_progress_gets_a_result_when_there_is_one(
    words: list[str], fails: bool, seen: list[str]
) -> None:
    """``bad``: the user's ``done`` raises, which does not count as a failure of the work."""
    events: list[str] = []

    class Inner:
        def done(self, text: str) -> None:
            if text == "bad":
                raise ValueError(text)
            events.append(f"done {text}")

    class Own(Silent):
        @contextmanager
        def stage(self, name: str, seconds: float | None = None) -> Iterator[Any]:
            events.append("begin")
            try:
                yield Inner()
            finally:
                events.append("end" if sys.exc_info()[0] is None else "failed")

    with pytest.raises(RunError) if fails else nullcontext(), Guarded(Own()).stage("hosts") as stage:
        for text in words:
            stage.done(text)
            events.append("work")
        if fails:
            raise RunError("it failed")
    assert events == seen
