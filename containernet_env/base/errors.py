"""The kinds of failure the project knows.

Every message says what was asked, where, what was got and what is allowed. Exit codes are not known here:
the command line maps kinds to them (see ``containernet_env.cli``).
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass


class ContainernetEnvError(Exception):
    """Base of every error that is reported to the user as one message, without a traceback."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input file.

    ``path`` is a JSON path such as ``$[1].bandwidth``; ``got`` is the offending value as it stood in the
    file (already rendered as text) or ``None`` where nothing stood there; ``allowed`` says what would be accepted.
    """

    path: str
    message: str
    got: str | None = None
    allowed: str | None = None

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.message}"]
        if self.got is not None:
            parts.append(f"got {self.got}")
        if self.allowed is not None:
            parts.append(f"allowed: {self.allowed}")
        return "; ".join(parts)


class ConfigError(ContainernetEnvError):
    """A configuration or scenario file is refused; carries every problem found, not only the first."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{file} is refused:\n{lines}")


class UsageError(ContainernetEnvError):
    """The command was asked for something that it cannot mean."""


class MissingRequirementError(ContainernetEnvError):
    """The machine lacks something; ``remedy`` tells the user how to get it."""

    def __init__(self, message: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(f"{message}\n  {remedy}")


class RunError(ContainernetEnvError):
    """The run could not be carried out or did not end as it should."""


class Interrupted(BaseException):
    """A signal asked the run to end; ``signum`` is its number.

    A BaseException, so that no library's ``except Exception`` on the way up can swallow the user's Ctrl-C.
    """

    def __init__(self, signum: int) -> None:
        self.signum = signum
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
