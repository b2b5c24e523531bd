"""One run at a time per machine: concurrent runs would distort each other, and so would the bring-up of a lab.

Labs (``containernet-env shell``) can run side by side; a run that begins beside them records this in its rows.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.files import try_lock
from containernet_env.base.work import Stop
from containernet_env.hosts import owner

PATH = Path("/run/containernet-env.lock")
_POLL_S = 0.1


def refuse_while_measured(path: Path = PATH) -> None:
    """Raise ``RunError`` during a run: the bring-up of a lab would distort its measurement."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not try_lock(fd, shared=True):
            raise RunError(
                f"a run is measuring on this machine (process {_named_in(fd)}); a lab would disturb it.\n"
                "  Wait for it to end, or end it with Ctrl-C."
            )
    finally:
        os.close(fd)


def _named_in(fd: int) -> str:
    return os.read(fd, 32).decode(errors="replace").strip() or "unknown"


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds the machine, and when it began (seconds of the wall clock since 1970)."""

    pid: int
    began_s: float


def holder(path: Path = PATH) -> Holder | None:
    """The holder of the lock; ``None`` if there is none. Needs no root.

    It is read from /proc/locks (proc_locks(5)); the lock is never taken, not even briefly: a run that begins at that
    moment would be refused.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1:2] == ["FLOCK"] and words[3:4] == ["WRITE"] and words[5:6] == [place]:
            return _process(int(words[4]))
    return None


def _process(pid: int) -> Holder | None:
    """A process; ``None`` if it has just ended."""
    try:
        ticks = int(owner.stat_field(pid, owner.START_TICKS))
    except OSError:
        return None
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return Holder(pid, clock.time() - age_s)


class RunLock:
    """Holds the machine for one run; a second holder is refused at once, with the first one's process id.

    With ``wait`` it waits until the first one ends or that token is cancelled.

    The kernel drops the lock when the process ends, however it ends, so no cleanup is needed after kill -9.
    """

    def __init__(self, path: Path | None = None, wait: Stop | None = None) -> None:
        self._path = PATH if path is None else path
        self._wait = wait
        self._fd: int | None = None

    def __enter__(self) -> RunLock:
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RunError(
                f"the machine cannot be locked for the run: {self._path}: {error.strerror}\n"
                f"  Make {self._path.parent} a folder that root may write to."
            ) from error
        try:
            while not try_lock(fd):
                if self._wait is None:
                    raise RunError(
                        f"another run is on (process {_named_in(fd)}); concurrent runs would distort each other.\n"
                        "  Wait for it to end, or end it with Ctrl-C."
                    )
                self._wait.check()
                clock.sleep(_POLL_S)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        with suppress(OSError):  # informational only, and the disk may be full
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None
