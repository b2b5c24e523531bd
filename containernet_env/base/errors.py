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

    ``path`` is a JSON path such as ``$[1].bandwidth``, empty where the text is no JSON; ``got`` is the offending value
    as it stood in the file (already rendered as text) or ``None`` where nothing stood there; ``allowed`` says what
    would be accepted. ``line`` and ``column`` count from 1 and are the value's, the key's where that is wrong, and
    where a key is missing those of the object that lacks it; ``None`` where the file could not be read.
    """

    path: str
    message: str
    got: str | None = None
    allowed: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = [f"line {self.line}", f"column {self.column}"] if self.line is not None else []
        where = ", ".join([*place, *filter(None, [self.path])])
        parts = [f"{where}: {self.message}"]
        if self.got is not None:
            parts.append(f"got {self.got}")
        if self.allowed is not None:
            parts.append(f"allowed: {self.allowed}")
        return "; ".join(parts)


# Whoever made this many mistakes made one of them often.
_SHOWN_PROBLEMS = 200


class ConfigError(ContainernetEnvError):
    """A configuration or scenario file is refused; carries every problem found, not only the first."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        lines = [f"  {problem}" for problem in self.problems[:_SHOWN_PROBLEMS]]
        if len(self.problems) > _SHOWN_PROBLEMS:
            lines.append(f"  and {len(self.problems) - _SHOWN_PROBLEMS} more")
        super().__init__("\n".join([f"{file} is refused:", *lines]))


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
    """The run was asked to end; ``signum`` is the number of the signal that asked, 0 where it was none.

    A BaseException, so that no library's ``except Exception`` on the way up can swallow the user's Ctrl-C.
    """

    def __init__(self, signum: int) -> None:
        self.signum = signum
        super().__init__(f"interrupted by {signal.Signals(signum).name}" if signum else "interrupted")
