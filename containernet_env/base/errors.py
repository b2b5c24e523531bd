"""The project's exceptions, and errors of exhausted resources."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


class ContainernetEnvError(Exception):
    """Base of every error that is reported to the user as one message, without a traceback."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input file.

    ``path`` is a JSON path such as ``$[1].bandwidth``, empty where the text is no JSON; ``got`` is the offending value
    as it is in the file (already rendered as text) or ``None`` if there is none; ``allowed`` describes
    accepted values. ``line`` and ``column`` count from 1 and are those of the value; of the key if the key is wrong;
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
    """The machine lacks something; ``remedy`` is what the user can do."""

    def __init__(self, message: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(f"{message}\n  {remedy}")


class RunError(ContainernetEnvError):
    """The run could not be carried out or did not end as it should."""


def text_of(error: BaseException) -> str:
    """The text of an error for a row or a note; an error that is not the project's comes with its type."""
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


_FILES = "open files\n  Raise their limit (ulimit -n), then run again."
_PROCESSES = "processes or threads\n  Raise their limit (ulimit -u, pids.max of the cgroup), then run again."
_MEMORY = "memory\n  Make some free, or raise the limit of it (ulimit -v, that of the cgroup), then run again."
_BY_NUMBER = {
    errno.EMFILE: _FILES,
    errno.ENFILE: "open files on the whole machine\n  Raise their limit (sysctl fs.file-max), then run again.",
    errno.ENOMEM: _MEMORY,
}
# CPython's message if pthread_create fails (Modules/_threadmodule.c).
_NO_THREAD = "can't start new thread"
# What a tear-down needs at once: four calls of the engine, with the files that each opens.
_RESERVED = 32


class ShortageError(RunError):
    """A resource of this process has run out: ``resource``, with the remedy."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        super().__init__(f"the machine gives this process no more {resource}")


def shortage(error: BaseException) -> ShortageError | None:
    """The error to raise if a resource that has run out caused ``error``, however it is wrapped."""
    if isinstance(error, BlockingIOError):
        return ShortageError(_PROCESSES)  # EAGAIN of fork(2)
    todo: list[object] = [error]
    seen: set[int] = set()
    while todo:
        item = todo.pop()
        if not isinstance(item, BaseException) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, ShortageError):
            return ShortageError(item.resource)
        if isinstance(item, RuntimeError) and _NO_THREAD in str(item):
            return ShortageError(_PROCESSES)
        if isinstance(item, MemoryError):
            return ShortageError(_MEMORY)
        if isinstance(item, OSError) and (what := _BY_NUMBER.get(item.errno or 0)) is not None:
            return ShortageError(what)
        todo += [item.__cause__, None if item.__suppress_context__ else item.__context__, *item.args]
    return None


@contextmanager
def resource_errors() -> Iterator[None]:
    """Raise errors of this block that are caused by a resource that has run out as ``ShortageError``."""
    try:
        yield
    except (OSError, RuntimeError, MemoryError) as error:
        if (cause := shortage(error)) is None:
            raise
        raise cause from error


def allow_open_files(count: int) -> None:
    """Raise this process's own limit of open files to ``count`` where it is below, as root may.

    Raises ``MissingRequirementError`` where that is not allowed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    try:
        wanted = count if hard == resource.RLIM_INFINITY else max(hard, count)
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, wanted))
    except (OSError, ValueError) as error:
        raise MissingRequirementError(
            f"this run may need {count} open files; the limit is {hard}", f"Raise it: ulimit -n {count}"
        ) from error


class ReservedFiles:
    """Descriptors that are reserved for the tear-down, which has to work when all others are in use."""

    def __init__(self, count: int = _RESERVED) -> None:
        self._held: list[int] = []
        with suppress(OSError):  # the run fails for lack of descriptors; the tear-down gets those reserved so far
            for _ in range(count):
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release(self) -> None:
        """Give them back; idempotent."""
        while self._held:
            os.close(self._held.pop())
