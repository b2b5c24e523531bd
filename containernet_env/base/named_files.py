"""Files by names that others choose: made of texts such as keys, or given by the user for root to write."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from pathlib import Path

NAME_MAX = 160
"""Characters of a name at most; what is appended to it has to fit in the 255 bytes of a file system's names."""
_DIGEST = 10
_SAFE = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.:@+-]*")
_UNSAFE = re.compile(r"[^0-9A-Za-z_.:@+-]+")
_LINKS_MAX = 40  # as in the kernel (linux/namei.h, MAXSYMLINKS)


def file_name(text: str) -> str:
    """``text`` as the name of a file in its folder, and never as a path.

    A short one of ordinary characters is kept as it is. Any other becomes a readable part of it and a digest of all of
    it, so that two texts do not share a name.
    """
    if len(text) <= NAME_MAX and _SAFE.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    readable = _UNSAFE.sub("-", text)[: NAME_MAX - _DIGEST - 1].strip(".-")
    return f"{readable}-{digest}" if readable else digest


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
