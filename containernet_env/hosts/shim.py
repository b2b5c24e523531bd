"""The engine's shim: the process beside a container that outlives it by a moment."""

from __future__ import annotations

import os
import select
from pathlib import Path

# containerd-shim-runc-v2, as the kernel cuts it (TASK_COMM_LEN in linux/sched.h).
_NAME = "containerd-shim"


class Shim:
    """One shim, held by a pidfd, so that a reused pid is never mistaken for it."""

    def __init__(self, pid: int) -> None:
        """Raises ``OSError`` where there is no such process."""
        self.pid = pid
        self._fd: int | None = os.pidfd_open(pid)

    def has_ended(self, timeout_s: float = 0.0) -> bool:
        """Whether it has ended, or does within ``timeout_s``; true once it was let go."""
        if self._fd is None:
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def close(self) -> None:
        """Let it go. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def shim_of(pid: int, proc: Path = Path("/proc")) -> Shim | None:
    """The shim of the container whose first process is ``pid``; ``None`` where it cannot be seen from here.

    That is so where the engine is in another pid namespace, the process has ended, or its parent is no shim.
    """
    shim = None
    try:
        # Field 4 of stat; the name (field 2) may hold spaces and parentheses, fields count after its last ')'.
        parent = int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[4 - 3])
        if parent == 0:
            return None
        shim = Shim(parent)
        # Asked while it is held: it cannot have become another process since.
        if (proc / str(parent) / "comm").read_text().strip() == _NAME:
            return shim
    except OSError:
        pass
    if shim is not None:
        shim.close()
    return None
