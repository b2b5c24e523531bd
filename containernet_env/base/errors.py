"""The kinds of failure the project knows.

Every message says what was requested, where, what was found and what is allowed. Exit codes are not known here:
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
    as it is in the file (already rendered as text) or ``None`` where there was none; ``allowed`` says what
    would be accepted. ``line`` and ``column`` count from 1 and are those of the value; of the key if the key is wrong;
    of the object if one of its keys is missing; ``None`` if the file could not be read.
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


# A file with more problems than this repeats one of them.
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
    """The arguments are invalid, contradict each other, or do not fit the input files."""


class MissingRequirementError(ContainernetEnvError):
    """The machine lacks something; ``remedy`` tells the user how to get it."""

    def __init__(self, message: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(f"{message}\n  {remedy}")


class RunError(ContainernetEnvError):
    """The run could not be carried out or did not end as it should."""


def text_of(error: BaseException) -> str:
    """What an error says, for a row or a note: one of ours as it is, another one with its type."""
    if isinstance(error, ContainernetEnvError | Interrupted | OSError):
        return str(error)
    return f"{type(error).__name__}: {error}"


class Interrupted(BaseException):
    """The run has to end early; ``signum`` is the number of the signal that requested this, 0 if none did.

    A BaseException, so that no library's ``except Exception`` on the way up can swallow the user's Ctrl-C.
    """

    def __init__(self, signum: int) -> None:
        self.signum = signum
        super().__init__(f"interrupted by {signal.Signals(signum).name}" if signum else "interrupted")
