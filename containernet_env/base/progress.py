"""The protocol by which long work tells its progress; the command line decides how it looks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Stage(Protocol):
    """One stage in progress."""

    def done(self, text: str) -> None:
        """The result of the stage, shown when it ends."""


class Progress(Protocol):
    """Receives the progress of some work. No method may raise because of the terminal."""

    def stage(self, name: str, seconds: float | None = None) -> AbstractContextManager[Stage]:
        """A stage begins; leaving the context ends it. ``seconds`` is what it took where it is over already."""

    def note(self, text: str) -> None:
        """A line that the user should read."""
