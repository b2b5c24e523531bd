"""Files and folders of results: they belong to the caller, and no link that lies where they are to be is followed.

Another user may be able to write to OUT's folder while root writes there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PARTIAL = ".part"
"""What a file ends with that is still being written."""


def give_to_caller(descriptor: int) -> None:
    """Under sudo, make an open file belong to the user who called sudo, if it can have an owner; elsewhere nothing."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if uid.isdecimal() and gid.isdecimal() and os.geteuid() == 0:
        with suppress(OSError):  # FAT, and some network file systems
            os.fchown(descriptor, int(uid), int(gid))


def make_folders(folder: Path) -> None:
    """Make ``folder`` and those above it that are missing, for the caller."""
    for path in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        with suppress(FileExistsError):
            path.mkdir()
            made = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                give_to_caller(made)
            finally:
                os.close(made)
    folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file of the caller's that takes the place of ``path`` when the block has ended; after an error it is gone."""
    partial = path.with_name(f"{path.name}{PARTIAL}")
    partial.unlink(missing_ok=True)
    try:
        made = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with open(made, "wb") as file:
            give_to_caller(made)
            yield file
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
