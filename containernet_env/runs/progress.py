"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from containernet_env.base.progress import Progress
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.plan.plan import PlannedScenario


class OnEvent(Protocol):
    """Told of everything that happens in a run, at the moment it happens, from any thread; must not raise."""

    def __call__(self, kind: str, text: str, subject: str | None = None) -> None:
        """``kind`` is one word, ``text`` one line for people, ``subject`` the host, link or scenario it is about."""


def ignore_event(kind: str, text: str, subject: str | None = None) -> None:
    """For callers that keep no events."""


class RunProgress(Progress, Protocol):
    """Receives the course of a run."""

    def matrix_started(self, scenarios: Sequence[PlannedScenario]) -> None:
        """These scenarios are run now, one after the other."""

    def scenario_started(self, planned: PlannedScenario) -> None:
        """The next of them begins."""

    def scenario_progress(self, done: int, errors: int) -> None:
        """The running scenario has ``done`` answered requests, ``errors`` of them failed."""

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        """The running scenario has ended and its row is on disk."""


class Silent:
    """Tells nothing: for callers that only want the results."""

    class _Stage:
        def done(self, text: str) -> None:
            """Nothing is shown."""

        def __enter__(self) -> Silent._Stage:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    def stage(self, name: str) -> Silent._Stage:
        """See ``Progress``."""
        return self._Stage()

    def note(self, text: str) -> None:
        """See ``Progress``."""

    def matrix_started(self, scenarios: Sequence[PlannedScenario]) -> None:
        """See ``RunProgress``."""

    def scenario_started(self, planned: PlannedScenario) -> None:
        """See ``RunProgress``."""

    def scenario_progress(self, done: int, errors: int) -> None:
        """See ``RunProgress``."""

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        """See ``RunProgress``."""
