"""Files of /proc and of cgroups that are kept open: a look costs one system call."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")


class KeptFile:
    """One file, opened when it is first read; ``base`` is the descriptor of a folder that ``path`` is relative to.

    Whatever cannot be read (a process that has ended, a cgroup that was removed, a controller that is not there, and
    with it its ``path``) reads as ``None``.
    """

    def __init__(self, path: str | Path | None, base: int | None = None, most_bytes: int = 8192) -> None:
        self._path = path
        self._base = base
        self._most_bytes = most_bytes
        self._fd: int | None = None

    def read(self, parse: Callable[[bytes], _T]) -> _T | None:
        """What ``parse`` makes of it; ``None`` also where it is not of the form that is parsed."""
        if self._path is None:
            return None
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._base)
            return parse(os.pread(self._fd, self._most_bytes, 0))
        except OSError:
            self.close()
            return None
        except (ValueError, IndexError):
            return None

    def close(self) -> None:
        """Let go of it; a later read opens it again. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
