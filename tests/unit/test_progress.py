"""What a person sees of a running scenario."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from containernet_env.base.progress import ScenarioReport
from containernet_env.cli import progress
from containernet_env.cli.progress import TerminalReporter


class Clock:
    """Stands for the time module; `now` is the monotonic clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_without_a_terminal_a_long_scenario_says_how_far_it_is(clock: Clock) -> None:
    output = StringIO()
    reporter = TerminalReporter(Console(file=output, width=200))
    reporter.scenario_started(1, 2, "w", 10_000, None)
    for _ in range(4):
        clock.now += 5
        reporter.scenario_progress(3000, 12)
    reporter.scenario_started(2, 2, "timed", None, 60.0)
    clock.now += 20
    reporter.scenario_progress(10_000, 0)
    clock.now += 50
    reporter.scenario_progress(35_000, 0)
    assert output.getvalue().splitlines() == [
        "[1/2] w: 3,000 of 10,000, 200/s, 12 failed, about 35 s left",
        "[2/2] timed: 20 of 60 s, 500/s, about 40 s left",
        "[2/2] timed: 60 of 60 s, 500/s, about 0.0 s left",
    ]


def test_on_a_terminal_a_duration_moves_the_live_line_by_its_time(clock: Clock) -> None:
    output = StringIO()
    reporter = TerminalReporter(Console(file=output, width=120, force_terminal=True))
    reporter.scenario_started(1, 1, "timed", None, 60.0)
    clock.now += 20
    reporter.scenario_progress(10_000, 3)
    reporter.close()
    assert "20 of 60 s" in output.getvalue()
    assert "500/s, 3 failed" in output.getvalue()


def test_the_line_of_a_scenario_says_what_its_percentiles_leave_out(clock: Clock) -> None:
    output = StringIO()
    reporter = TerminalReporter(Console(file=output, width=200))
    reporter.scenario_started(1, 1, "w", 10_000, None)
    for left_out in (0, 1200):
        figures = ScenarioReport("w", 1, 2.0, 100.0, p50_s=0.01, p99_s=None, errors=0, left_out=left_out, error=None)
        reporter.scenario_ended(figures)
    whole, partly = output.getvalue().splitlines()
    assert partly == f"{whole}  1,200 requests in no percentile"
