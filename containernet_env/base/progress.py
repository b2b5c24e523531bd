"""What a run tells while it goes on; the command line decides how it looks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ScenarioReport:
    """The figures of one ended scenario that a person wants to see at once.

    Latencies in seconds, None where no request was answered, or where a percentile cannot be told from the slowest;
    `left_out` requests are in none of them. `error` is one line or None.
    """

    name: str
    repetition: int
    seconds: float
    requests_per_s: float | None
    p50_s: float | None
    p99_s: float | None
    errors: int
    left_out: int
    error: str | None


class Reporter(Protocol):
    """Receives the course of a run. No method may raise because of what the terminal is like."""

    def stage(self, name: str) -> AbstractContextManager[Stage]:
        """Begin a stage of bring-up or tear-down; leaving the context ends it."""

    def note(self, text: str) -> None:
        """Something the user should know, once."""

    def scenario_started(self, index: int, count: int, name: str, total: int | None, seconds: float | None) -> None:
        """Scenario `index` (from 1) of `count` begins.

        It has `total` requests, or goes on for `seconds`: the other one is None.
        """

    def scenario_progress(self, done: int, errors: int) -> None:
        """The running scenario has `done` answered requests, `errors` of them failed."""

    def scenario_ended(self, report: ScenarioReport) -> None:
        """The running scenario has ended and its row is on disk."""


class Stage(Protocol):
    """One stage in progress."""

    def done(self, text: str) -> None:
        """What the stage came to, shown when it ends."""


class SilentReporter:
    """Tells nothing: for tests and for callers that only want the rows."""

    class _Stage:
        def done(self, text: str) -> None:
            """Nothing is shown."""

        def __enter__(self) -> SilentReporter._Stage:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    def stage(self, name: str) -> SilentReporter._Stage:
        """A stage that shows nothing."""
        return self._Stage()

    def note(self, text: str) -> None:
        """Nothing is shown."""

    def scenario_started(self, index: int, count: int, name: str, total: int | None, seconds: float | None) -> None:
        """Nothing is shown."""

    def scenario_progress(self, done: int, errors: int) -> None:
        """Nothing is shown."""

    def scenario_ended(self, report: ScenarioReport) -> None:
        """Nothing is shown."""
