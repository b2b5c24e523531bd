"""What long work tells while it goes on; the command line decides how it looks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Stage(Protocol):
    """One stage in progress."""

    def done(self, text: str) -> None:
        """What the stage came to, shown when it ends."""


class Progress(Protocol):
    """Receives the course of some work. No method may raise because of what the terminal is like."""

    def stage(self, name: str) -> AbstractContextManager[Stage]:
        """A stage begins; leaving the context ends it."""

    def note(self, text: str) -> None:
        """A line that the user should read."""
