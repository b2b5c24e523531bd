"""Files of results: appended durably by whole lines, owned by the caller, checked by their checksums."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from containernet_env.base.files import settled

PARTIAL = ".part"
"""The suffix of a file that is still being written."""


def give_to_caller(descriptor: int) -> None:
    """Under sudo, make an open file belong to the user who called sudo, if it can have an owner; elsewhere nothing."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if uid.isdecimal() and gid.isdecimal() and os.geteuid() == 0:
        with suppress(OSError):  # FAT, and some network file systems
            os.fchown(descriptor, int(uid), int(gid))


def make_folders(folder: Path) -> None:
    """Make ``folder`` and those above it that are missing, for the caller."""
    for path in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        with suppress(FileExistsError), settled(path) as place:
            place.mkdir()
            made = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                give_to_caller(made)
            finally:
                os.close(made)
    folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def replacing(path: Path, *, sync: bool = False, for_caller: bool = True) -> Iterator[IO[bytes]]:
    """A file to write that replaces ``path`` when the block has ended; after an error it is removed.

    ``sync``: it is on disk before it has its name. ``for_caller``: it belongs to whoever called sudo.
    """
    with settled(path) as place:
        partial = place.with_name(f"{path.name}{PARTIAL}")
        partial.unlink(missing_ok=True)
        try:
            made = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with open(made, "wb") as file:
                if for_caller:
                    give_to_caller(made)
                yield file
                if sync:
                    file.flush()
                    os.fsync(made)
            partial.replace(place)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise


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
    errno.EPERM: "Allow writing there (lsattr shows what is immutable), then run again.",
    errno.EACCES: "Allow writing there, or choose another place, then run again.",
}


def remedy(error: OSError) -> str:
    """The remedy for a file that cannot be written."""
    return _REMEDIES.get(error.errno or 0, "See what the kernel says of that disk (dmesg), or choose another place.")


def reason(error: OSError) -> str:
    """Why, in the kernel's words, without the path."""
    return error.strerror or str(error)


def open_to_append(path: Path, *, new: bool = False, through_link: bool = False) -> int:
    """A descriptor of a regular file, to read and to append; missing files and folders are created for the caller.

    Never waits for the other end of a FIFO. ``through_link``: the path may be a symbolic link, see `settled`. Raises
    OSError; FileExistsError if it has to be ``new`` and is not.
    """
    make_folders(path.parent)
    with settled(path, through_link=through_link) as place:
        return _open_to_append(place, path, new)


def _open_to_append(place: Path, path: Path, new: bool) -> int:
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
            _sync_folder(place.parent)
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
    """Replace an open file by one with other content, all or nothing; its descriptor, as `open_to_append`'s.

    ``path`` leads to the file open as ``fd``, which is closed. After an OSError both are unchanged.
    """
    held = os.fstat(fd)
    with settled(path, through_link=True) as place:
        partial = place.with_name(f"{place.name}.partial")
        partial.unlink(missing_ok=True)
        new = _open_to_append(partial, path, new=True)
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


CHECKSUMS = "checksums.sha256"
# The output form of `sha256sum`, and of `sha256sum --binary`; none of our files has a name that it would escape.
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^\0\\]+)")
_MAX_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Changed:
    """A file that is not as the run left it."""

    name: str
    how: Literal["changed", "missing", "added", "not a checksum"]


@dataclass(frozen=True, slots=True)
class Checked:
    """Changes of a run directory since its end: ``files`` have checksums, ``changed`` of them differ."""

    files: int
    changed: tuple[Changed, ...]


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read. Raises OSError, also if it is no regular file, which may have no end."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(fd, "rb")


def digest_of(path: Path) -> str:
    """SHA-256 of a file; raises as `open_regular` does."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_of(folder: Path) -> list[str]:
    """The names of all regular files below a folder, relative to it, sorted; not that of the checksums."""
    found = []
    for place, _, names in os.walk(folder):
        paths = [Path(place, name) for name in names]
        found += [path.relative_to(folder).as_posix() for path in paths if path.is_file() and not path.is_symlink()]
    return sorted(name for name in found if name != CHECKSUMS and not name.endswith(PARTIAL))


def checksums_of(folder: Path) -> str:
    """The text of the file of checksums. Raises OSError."""
    return "".join(f"{digest_of(folder / name)}  {name}\n" for name in files_of(folder))


def check(folder: Path) -> Checked | None:
    """Compare a run directory with its checksums; None if it has none. Raises OSError if that cannot be read."""
    path = folder / CHECKSUMS
    if not os.path.lexists(path):
        return None
    with open_regular(path) as file:
        text = file.read(_MAX_BYTES).decode("utf-8", "backslashreplace")
    listed: dict[str, str] = {}
    changed = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        inside = PurePosixPath(match[2] if match else "..")
        if match is None or inside.is_absolute() or ".." in inside.parts:
            changed.append(Changed(f"{CHECKSUMS}, line {number}", "not a checksum"))
        else:
            listed[match[2]] = match[1]
    there = set(files_of(folder))
    for name, digest in listed.items():
        if name not in there:
            changed.append(Changed(name, "missing"))
        elif digest_of(folder / name) != digest:
            changed.append(Changed(name, "changed"))
    changed += [Changed(name, "added") for name in sorted(there - listed.keys())]
    return Checked(len(listed), tuple(changed))
