"""What ties child processes to this one: a pipe into which nobody writes, and which ends with this process.

However this process ends, by SIGKILL too, the kernel closes its side, and whoever reads the other one sees that at
once. The death signal of prctl(2), PR_SET_PDEATHSIG, is not used: it comes when the THREAD that forked ends.
"""

from __future__ import annotations

import os

from containernet_env.base import clock

_lock = clock.Lock()
# By process: after a fork the child needs a pipe of its own. (It holds its parent's open as well while it lives.)
_pipes: dict[int, tuple[int, int]] = {}


def descriptor() -> int:
    """The side of the pipe that children watch, for ``pass_fds``: it is at its end once this process has ended."""
    with _lock:
        pid = os.getpid()
        if pid not in _pipes:
            _pipes[pid] = os.pipe()
        return _pipes[pid][0]
