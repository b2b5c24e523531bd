"""The events of a run, while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Protocol

from containernet_env.base.errors import text_of
from containernet_env.base.work import Progress, Stage
from containernet_env.config.plan import PlannedScenario
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Scenario


class OnEvent(Protocol):
    """Receives every event of a run, at the moment it happens, from any thread; must not raise."""

    def __call__(self, kind: str, text: str, subject: str | None = None) -> None:
        """``kind`` is one word, ``text`` one line for people, ``subject`` the host, link or scenario it is about."""


class RunProgress(Progress, Protocol):
    """Receives the course of a run; a class that inherits from it need not have every method."""

    def matrix_started(self, scenarios: Sequence[PlannedScenario]) -> None:
        """These scenarios are run now, one after the other."""
        return

    def scenario_started(self, planned: PlannedScenario) -> None:
        """The next of them begins; not called for one that is not run."""
        return

    def probe_started(self, number: int, probe: Scenario) -> None:
        """The running scenario is a search: its probe of that number, from 1, begins."""
        return

    def scenario_progress(self, done: int, errors: int) -> None:
        """The running scenario, or probe, has ``done`` answered requests, ``errors`` of them failed."""
        return

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        """The running scenario has ended and its row is kept."""
        return


class Silent(RunProgress):
    """Reports nothing: for callers that only need the results, and as a base for those that show a part."""

    @contextmanager
    def stage(self, name: str, seconds: float | None = None) -> Iterator[Stage]:
        yield Stage()

    def note(self, text: str) -> None: ...


_TOLD = ("note", "matrix_started", "scenario_started", "probe_started", "scenario_progress", "scenario_ended")


class Guarded(Silent):
    """Forwards to another one, and continues if that raises: a display can neither end a run nor cause repetitions.

    Only requests to end the run, ``Interrupted`` or ``KeyboardInterrupt``, pass. ``on_failure`` receives the first
    error.
    """

    def __init__(self, progress: RunProgress) -> None:
        self._progress = progress
        self._failed = False
        self.on_failure: Callable[[str], None] = lambda text: None
        for name in _TOLD:
            setattr(self, name, partial(self._tell, name))

    @contextmanager
    def stage(self, name: str, seconds: float | None = None) -> Iterator[Stage]:
        """An exception of the work in it passes."""
        shown, stage = ExitStack(), Stage()  # the former gets the exception, too

        def begin() -> None:
            inner = shown.enter_context(self._progress.stage(name, seconds))
            stage.done = lambda text: self._guard(partial(inner.done, text))  # type: ignore[method-assign]

        self._guard(begin)
        try:
            yield stage
        except BaseException as error:
            self._guard(partial(shown.__exit__, type(error), error, error.__traceback__))
            raise
        self._guard(shown.close)

    def _tell(self, name: str, *values: object) -> None:
        self._guard(lambda: getattr(self._progress, name)(*values))

    def _guard(self, tell: Callable[[], object]) -> None:
        try:
            tell()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - rich leaves by SystemExit where its pipe is broken
            if not self._failed:
                self._failed = True
                self.on_failure(text_of(error))
