"""One step of the set-up: a line when it ends, a log file of its own, work that can be stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from containernet_env.base.progress import Stage
from containernet_env.base.stop import Stop
from containernet_env.setup.commands import Commands, Stopped

_POLL_S = 0.1


class SetupReport(Protocol):
    """What the set-up tells; stages may overlap. Part of ``containernet_env.base.progress.Reporter``."""

    def stage(self, name: str) -> AbstractContextManager[Stage]:
        """Begin a step; leaving the context without an error shows its one line."""

    def note(self, text: str) -> None:
        """Something the user should know, once."""


@dataclass
class Step:
    """One step in progress: where its details go, and how it tells."""

    log: Path
    note: Callable[[str], None]
    done: Callable[[str], None]


class Steps:
    """The steps of one set-up. They run in threads, so that a signal in the main thread, or ``stop``, can end them."""

    def __init__(self, report: SetupReport, logs: Path, stop: Stop | None = None) -> None:
        self._report = report
        self._logs = logs
        self._stop = stop or Stop()
        self.commands = Commands()

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """One step, with a fresh log file named after it. An error passes through and no line is shown."""
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{name.replace(' ', '-')}.log"
        log.write_bytes(b"")
        with self._report.stage(name) as stage:
            yield Step(log, self._report.note, stage.done)

    def run(self, *jobs: Callable[[], None]) -> None:
        """Run jobs side by side and wait for all; where signals are to end them, called in the main thread.

        The first error stops the others and is raised. So does whatever strikes this thread meanwhile, the exception
        of a signal or ``Interrupted`` of the stop token: every program that runs is ended before it is raised.
        """
        if not jobs:
            return
        with ThreadPoolExecutor(len(jobs)) as pool:
            futures = [pool.submit(job) for job in jobs]
            try:
                while not _settled(futures):
                    self._stop.check()
                if any(future.done() and future.exception() is not None for future in futures):
                    self.commands.stop()
            except BaseException:
                self.commands.stop()
                raise
        _raise_first(futures)


def _settled(futures: Sequence[Future[None]]) -> bool:
    """Wait for a moment; whether all have ended, or one has failed."""
    done, left = wait(futures, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
    return not left or any(future.exception() is not None for future in done)


def _raise_first(futures: Sequence[Future[None]]) -> None:
    """Raise what went wrong, in preference to what was merely stopped because of it."""
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, Stopped)):
        raise error
