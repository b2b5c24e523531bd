"""One run at a time on a machine: two at once would measure each other, and so would a lab brought up meanwhile.

Labs (``containernet-env shell``) live side by side; a run that begins beside them says so in its rows.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from containernet_env.base.errors import RunError

PATH = Path("/run/containernet-env.lock")


def refuse_while_measured(path: Path = PATH) -> None:
    """Raise ``RunError`` while a run is on: bringing up a lab would disturb what it measures."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 32).decode(errors="replace").strip()
        raise RunError(
            f"a run is measuring on this machine (process {holder or 'unknown'}); a lab would disturb it.\n"
            "  Wait for it to end, or end it with Ctrl-C."
        ) from None
    finally:
        os.close(fd)


class RunLock:
    """Holds the machine for one run; a second holder is refused at once, with the first one's process id.

    The kernel drops the lock when the process ends, however it ends, so nothing has to be cleaned after kill -9.
    """

    def __init__(self, path: Path = PATH) -> None:
        self._path = path
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
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip()
            os.close(fd)
            raise RunError(
                f"another run is on (process {holder or 'unknown'}); two at once would measure each other.\n"
                "  Wait for it to end, or end it with Ctrl-C."
            ) from None
        self._fd = fd
        with suppress(OSError):  # it is only told to others, and the disk may be full
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None
