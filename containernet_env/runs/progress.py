"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Protocol

from containernet_env.base.errors import text_of
from containernet_env.base.work import Progress, Stage
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Scenario
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
        """The next of them begins; not told of one that is not run."""

    def probe_started(self, number: int, probe: Scenario) -> None:
        """The running scenario is a search: its probe of that number, from 1, begins."""

    def scenario_progress(self, done: int, errors: int) -> None:
        """The running scenario, or probe, has ``done`` answered requests, ``errors`` of them failed."""

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        """The running scenario has ended and its row is kept."""


class Silent:
    """Tells nothing: for callers that only want the results."""

    class _Stage:
        def done(self, text: str) -> None:
            """Nothing is shown."""

        def __enter__(self) -> Silent._Stage:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    def stage(self, name: str, seconds: float | None = None) -> Silent._Stage:
        """See ``Progress``."""
        return self._Stage()

    def note(self, text: str) -> None:
        """See ``Progress``."""

    def matrix_started(self, scenarios: Sequence[PlannedScenario]) -> None:
        """See ``RunProgress``."""

    def scenario_started(self, planned: PlannedScenario) -> None:
        """See ``RunProgress``."""

    def probe_started(self, number: int, probe: Scenario) -> None:
        """See ``RunProgress``."""

    def scenario_progress(self, done: int, errors: int) -> None:
        """See ``RunProgress``."""

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        """See ``RunProgress``."""


class Guarded:
    """Tells another one, and goes on where that raises: who shows a run can neither end it nor have a part repeated.

    Only who asks the run to end, ``Interrupted`` or ``KeyboardInterrupt``, passes. ``on_failure`` hears of the first.
    """

    def __init__(self, progress: RunProgress) -> None:
        self._progress = progress
        self._failed = False
        self.on_failure: Callable[[str], None] = lambda text: None

    def tell(self, what: Callable[[], object]) -> None:
        """Call what tells something."""
        try:
            what()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - rich leaves by SystemExit where its pipe is broken
            if not self._failed:
                self._failed = True
                self.on_failure(text_of(error))

    def stage(self, name: str, seconds: float | None = None) -> _GuardedStage:
        """See ``Progress``."""
        return _GuardedStage(self, lambda: self._progress.stage(name, seconds))

    def note(self, text: str) -> None:
        """See ``Progress``."""
        self.tell(lambda: self._progress.note(text))

    def matrix_started(self, scenarios: Sequence[PlannedScenario]) -> None:
        """See ``RunProgress``."""
        self.tell(lambda: self._progress.matrix_started(scenarios))

    def scenario_started(self, planned: PlannedScenario) -> None:
        """See ``RunProgress``."""
        self.tell(lambda: self._progress.scenario_started(planned))

    def probe_started(self, number: int, probe: Scenario) -> None:
        """See ``RunProgress``."""
        self.tell(lambda: self._progress.probe_started(number, probe))

    def scenario_progress(self, done: int, errors: int) -> None:
        """See ``RunProgress``."""
        self.tell(lambda: self._progress.scenario_progress(done, errors))

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        """See ``RunProgress``."""
        self.tell(lambda: self._progress.scenario_ended(outcome))


class _GuardedStage:
    """A stage of another progress, see ``Guarded``; an exception of the work in it passes."""

    def __init__(self, guarded: Guarded, begin: Callable[[], AbstractContextManager[Stage]]) -> None:
        self._guarded = guarded
        self._begin = begin
        self._context: AbstractContextManager[Stage] | None = None
        self._stage: Stage | None = None

    def done(self, text: str) -> None:
        if self._stage is not None:
            self._guarded.tell(partial(self._stage.done, text))

    def __enter__(self) -> _GuardedStage:
        self._guarded.tell(self._enter)
        return self

    def _enter(self) -> None:
        self._context = self._begin()
        self._stage = self._context.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context is not None and self._stage is not None:
            self._guarded.tell(partial(self._context.__exit__, kind, error, trace))
