"""Files that grow by whole lines, read as they grow."""

from __future__ import annotations

import os
from pathlib import Path


class Tail:
    """What was added to a file since the last look. A file that was replaced or cut is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: tuple[int, int] | None = None
        self._offset = 0

    def more(self) -> tuple[list[bytes], bool]:
        """Lines that have their end, without it, and whether they are the file's first ones: forget what was before.

        A file that does not exist has none. Raises ``OSError`` where it cannot be read.
        """
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            began = self._inode is not None
            self._inode, self._offset = None, 0
            return [], began
        with open(fd, "rb") as file:
            found = os.fstat(file.fileno())
            inode = (found.st_dev, found.st_ino)
            anew = inode != self._inode or found.st_size < self._offset
            if anew:
                self._inode, self._offset = inode, 0
            if found.st_size == self._offset:
                return [], anew
            file.seek(self._offset)
            whole, end, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(end)
        return (whole.split(b"\n") if end else []), anew
