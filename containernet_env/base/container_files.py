"""Files of a container, opened from outside so that nothing in the container leads to a file of this machine.

Below ``/proc/PID/root`` the kernel resolves a path against the root of whoever opens it: there an absolute link of the
container leads to this machine's files. Here it resolves the path as in a chroot to that root (openat2(2), Linux 5.6).
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from pathlib import Path
from typing import Any

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


def root_of(pid: int) -> Path:
    """The root of the container of process ``pid``."""
    return Path("/proc", str(pid), "root")


def open_folder(root: Path, path: str) -> int:
    """A descriptor (O_PATH) of the folder ``path`` below ``root``. Raises ``OSError``."""
    return _open_path(root, path, os.O_DIRECTORY)


def reason(error: OSError) -> str:
    """Why a file of a container cannot be made or opened, in the kernel's words but for those that mislead."""
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
