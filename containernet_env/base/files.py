"""Files in containers, locks of files, and file names made from arbitrary text."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def unescape(field: str) -> str:
    """Decode a field of the kernel's tables: space, tab, newline and backslash are octal escapes (proc(5))."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field


NAME_MAX = 160
"""Characters of a name at most; a suffix has to fit in the 255 bytes of a file system's names."""
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
    """The target of ``path`` through symbolic links of root, this process's user or sudo's caller; it is not a link.

    For root the same holds for the links of the folders above it; for others they are left to the kernel
    (fs.protected_symlinks). Open it by `settled`. Raises ``OSError`` for a link of another user.
    """
    trusted = {"0", str(os.geteuid()), os.environ.get("SUDO_UID")}
    found, left = _steps(path)
    for _ in range(_LINKS_MAX):
        while left:
            name = left.pop()
            if name == "..":
                found = found.parent
                continue
            found /= name
            try:
                place = os.open(found, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                return found.joinpath(*reversed(left))
            try:
                held = os.fstat(place)
                if not stat.S_ISLNK(held.st_mode):
                    continue
                if str(held.st_uid) not in trusted:
                    words = f"{found} is a symbolic link of another user, uid {held.st_uid}"
                    raise OSError(errno.EINVAL, words, str(path))
                target = os.readlink("", dir_fd=place)
            finally:
                os.close(place)
            found, left = _steps((found.parent / target).joinpath(*reversed(left)))
            break
        else:
            return found
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _steps(path: Path) -> tuple[Path, list[str]]:
    """Where to begin, and the names to look at, the next one last: all for root, for others that of the file itself."""
    if os.geteuid() == 0:
        return Path("/"), [*reversed(path.absolute().parts[1:])]
    return path.parent, [path.name]


@contextmanager
def settled(path: Path, *, through_link: bool = False) -> Iterator[Path]:
    """A path of the same file, whose folder stays the same while another user moves folders or puts links there.

    Links are followed as by `followed`; without ``through_link`` not that of the file itself. Open it with O_NOFOLLOW.
    Raises ``OSError``.
    """
    place = path
    if through_link:
        place = followed(path)
    elif os.geteuid() == 0:
        place = followed(path.parent) / path.name
    try:
        folder = _open_folder(place.parent)
    except OSError as error:
        error.filename = str(path)
        raise
    inside = Path("/proc/self/fd", str(folder))
    try:
        yield inside / place.name
    except OSError as error:
        for which in ("filename", "filename2"):
            name = getattr(error, which)
            if isinstance(name, str | Path) and Path(name).parent == inside:
                setattr(error, which, str(path.with_name(Path(name).name)))
        raise
    finally:
        os.close(folder)


def _open_folder(path: Path) -> int:
    """For root without following a link: one that is there now has come since ``followed``."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    if os.geteuid() != 0:
        return os.open(path, flags)
    folder = os.open("/", flags)
    for name in path.parts[1:]:
        above = folder
        try:
            folder = os.open(name, flags | os.O_NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
    return folder


# asm-generic/unistd.h
_SYS_OPENAT2, _SYS_PIDFD_GETFD = 437, 438
# linux/openat2.h
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10
# A ".." in a link is refused with EAGAIN while anything on the machine is renamed or mounted (openat2(2)).
_TRIES = 100
_KINDS = {stat.S_IFREG: "a regular file", stat.S_IFIFO: "a FIFO"}

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed (flock(2)); returns whether that was possible, without waiting."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def root_of(pid: int) -> Path:
    """The root of the container of process ``pid``."""
    return Path("/proc", str(pid), "root")


def open_folder(root: Path, path: str) -> int:
    """A descriptor (O_PATH) of the folder ``path`` below ``root``. Raises ``OSError``."""
    return _open_path(root, path, os.O_DIRECTORY)


def reason(error: OSError) -> str:
    """Why a file of a container cannot be created or opened: the kernel's text, unless that misleads."""
    if error.errno == errno.EOVERFLOW:
        return "root can own no file there, since the engine remaps users (userns-remap): use one that does not"
    return error.strerror or str(error)


def open_file(root: Path, path: str, flags: int, kind: int = stat.S_IFREG) -> int:
    """Open an existing file below ``root``, of ``kind`` S_IFREG or S_IFIFO. Raises ``OSError``.

    Anything else is not opened: to open a device acts on it, and to open a FIFO may wait for ever.
    """
    place = _open_path(root, path, 0)
    try:
        if stat.S_IFMT(os.fstat(place).st_mode) != kind:
            raise OSError(errno.EINVAL, f"it is not {_KINDS[kind]}")
        return os.open(f"/proc/self/fd/{place}", flags | os.O_CLOEXEC)
    finally:
        os.close(place)


def copy_descriptor(pid: int, number: int) -> int:
    """A duplicate of an open descriptor of process ``pid``; the file itself is not opened. Raises ``OSError``."""
    process = os.pidfd_open(pid)
    try:
        return _call(_SYS_PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)


def _open_path(root: Path, path: str, flags: int) -> int:
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.path.samestat(os.fstat(top), os.stat("/")):
            # Another process has the number by now.
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        how = _OpenHow(flags | os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
        for _ in range(_TRIES):
            try:
                return _call(_SYS_OPENAT2, top, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
            except BlockingIOError:
                continue
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    finally:
        os.close(top)


def _call(*arguments: Any) -> int:
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    if (result := _libc.syscall(*words)) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)
