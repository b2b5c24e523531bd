"""Files that the user names for root to write, which may be symbolic links: those of other users are not followed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_LINKS_MAX = 40  # as in the kernel (linux/namei.h, MAXSYMLINKS)


def followed(path: Path) -> Path:
    """Where ``path`` leads by links of root's, of this process's user and of sudo's caller; what is there is no link.

    The links of the folders above it are left to the kernel (fs.protected_symlinks). Open it with O_NOFOLLOW. Raises
    ``OSError`` for a link of another user.
    """
    trusted = {"0", str(os.geteuid()), os.environ.get("SUDO_UID")}
    for _ in range(_LINKS_MAX):
        try:
            place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return path
        try:
            held = os.fstat(place)
            if not stat.S_ISLNK(held.st_mode):
                return path
            if str(held.st_uid) not in trusted:
                words = f"{path} is a symbolic link of another user, uid {held.st_uid}"
                raise OSError(errno.EINVAL, words, str(path))
            path = path.parent / os.readlink("", dir_fd=place)
        finally:
            os.close(place)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
