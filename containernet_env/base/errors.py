"""The kinds of failure the project knows, and what the machine has no more of for this process."""

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


_FILES = "open files\n  Raise their limit (ulimit -n), then run again."
_PROCESSES = "processes or threads\n  Raise their limit (ulimit -u, pids.max of the cgroup), then run again."
_MEMORY = "memory\n  Make some free, or raise the limit of it (ulimit -v, that of the cgroup), then run again."
_BY_NUMBER = {
    errno.EMFILE: _FILES,
    errno.ENFILE: "open files on the whole machine\n  Raise their limit (sysctl fs.file-max), then run again.",
    errno.ENOMEM: _MEMORY,
}
# What CPython says where pthread_create fails (Modules/_threadmodule.c).
_NO_THREAD = "can't start new thread"
# As many as a tear-down needs at the same time: four calls of the engine, with what each opens on the way.
_RESERVED = 32


class ShortageError(RunError):
    """This process gets no more of something; ``what``, with the remedy."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"the machine gives this process no more {what}")


def shortage(error: BaseException) -> ShortageError | None:
    """The error to raise where ``error`` comes of something that has run out; libraries wrap that at will."""
    what = _what_ran_out(error)
    return None if what is None else ShortageError(what)


def _what_ran_out(error: BaseException) -> str | None:
    if isinstance(error, BlockingIOError):
        return _PROCESSES  # EAGAIN of fork(2)
    todo: list[object] = [error]
    seen: set[int] = set()
    while todo:
        item = todo.pop()
        if not isinstance(item, BaseException) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, ShortageError):
            return item.what
        if isinstance(item, RuntimeError) and _NO_THREAD in str(item):
            return _PROCESSES
        if isinstance(item, MemoryError):
            return _MEMORY
        if isinstance(item, OSError) and (what := _BY_NUMBER.get(item.errno or 0)) is not None:
            return what
        todo += [item.__cause__, None if item.__suppress_context__ else item.__context__, *item.args]
    return None


@contextmanager
def told() -> Iterator[None]:
    """Raise ``RunError`` for an error of this block that comes of something that has run out; others as they are."""
    try:
        yield
    except (OSError, RuntimeError, MemoryError) as error:
        if (told_of := shortage(error)) is None:
            raise
        raise told_of from error


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
    """Descriptors that are kept for a tear-down, which has to work also where every other one is in use."""

    def __init__(self, count: int = _RESERVED) -> None:
        self._held: list[int] = []
        with suppress(OSError):  # then the run fails of that, and of what is reserved the tear-down has the most
            for _ in range(count):
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release(self) -> None:
        """Give them back; idempotent."""
        while self._held:
            os.close(self._held.pop())
