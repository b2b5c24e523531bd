"""What the machine has no more of for this process: told with the remedy, instead of whatever that has broken."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from containernet_env.base.errors import MissingRequirementError, RunError

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
