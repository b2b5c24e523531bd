"""Files that grow by whole lines: what is appended is in the file and on disk, or not in it at all."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from containernet_env.base.named_files import followed
from containernet_env.results.ownership import give_to_caller, make_folders

_NAME = "Name a file, or one that does not exist yet."
_REMEDIES = {
    errno.EINVAL: _NAME,
    errno.ENXIO: _NAME,
    errno.EISDIR: _NAME,
    errno.ENOTDIR: _NAME,
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ENOENT: "Make the folder that it is to be in (a symbolic link may lead there), or choose another place.",
    errno.ELOOP: "Choose another name: this one is a symbolic link to itself.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n), then run again.",
    errno.ENOSPC: "Make room there, then run again.",
    errno.EDQUOT: "Make room there, or have the quota raised, then run again.",
    errno.EFBIG: "Raise the limit of file sizes (ulimit -f), then run again.",
    errno.EROFS: "Mount it for writing, or choose another place, then run again.",
    errno.EPERM: "Allow writing there (lsattr tells what is immutable), then run again.",
    errno.EACCES: "Allow writing there, or choose another place, then run again.",
}


def remedy(error: OSError) -> str:
    """What a user can do about a file that cannot be written."""
    return _REMEDIES.get(error.errno or 0, "See what the kernel says of that disk (dmesg), or choose another place.")


def reason(error: OSError) -> str:
    """Why, in the kernel's words, without the path."""
    return error.strerror or str(error)


def open_to_append(path: Path, *, new: bool = False, through_link: bool = False) -> int:
    """A descriptor of a regular file, to read and to append; what is missing, folders too, is made for the caller.

    Never waits for the other end of a FIFO. ``through_link``: the path may be a symbolic link, see `followed`.
    Raises OSError; FileExistsError where it has to be ``new`` and is not.
    """
    make_folders(path.parent)
    place = followed(path) if through_link else path
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
    created = True
    try:
        fd = os.open(place, flags | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        if new:
            raise
        created = False
        fd = os.open(place, flags)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if created:
            give_to_caller(fd)
            _sync_folder(path.parent)
    except BaseException:
        os.close(fd)
        raise
    return fd


def append_whole(fd: int, data: bytes, *, sync: bool = True) -> None:
    """Append lines and force them to disk; after an exception the file is as it was before.

    A line before them that was cut short is ended first, so that they never join. Without ``sync`` the kernel writes
    them when it likes, which disturbs no measurement.
    """
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        data = b"\n" + data
    try:
        while data:
            data = data[os.write(fd, data) :]
        if sync:
            os.fsync(fd)
    except BaseException:
        with suppress(OSError):
            os.ftruncate(fd, size)
        raise


def content_of(fd: int) -> bytes:
    """The whole file, also where its path leads to another one."""
    parts: list[bytes] = []
    while part := os.pread(fd, 1 << 20, sum(map(len, parts))):
        parts.append(part)
    return b"".join(parts)


def replace_whole(fd: int, path: Path, content: bytes) -> int:
    """Put a file with other content in the place of an open one, all or nothing; its descriptor, as `open_to_append`'s.

    ``path`` leads to what ``fd`` has open, which is closed. After an OSError both are as they were.
    """
    place = followed(path)
    held = os.fstat(fd)
    partial = place.with_name(f"{place.name}.partial")
    partial.unlink(missing_ok=True)
    new = open_to_append(partial, new=True)
    try:
        append_whole(new, content)
        os.fchmod(new, stat.S_IMODE(held.st_mode))
        with suppress(OSError):  # FAT, and some network file systems
            os.fchown(new, held.st_uid, held.st_gid)
        partial.replace(place)
    except BaseException:
        os.close(new)
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(place.parent)
    os.close(fd)
    return new


def _sync_folder(folder: Path) -> None:
    """Make sure that a new file is found again after a power failure, where the file system can."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
