"""How long an fdatasync takes where a host keeps its data."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from statistics import median

from containernet_env.base import clock
from containernet_env.base.container_files import open_folder, reason
from containernet_env.base.errors import RunError

WRITE_BYTES = 512
"""About the record of a small put in etcd's write-ahead log."""

SAMPLES = 100
BUDGET_S = 0.2
"""A host's measurement ends after so many samples or so long, whichever comes first, and with one at least."""

# As etcd allocates its log before it writes to it (server/storage/wal, Preallocate): room for all samples.
_ROOM_BYTES = SAMPLES * WRITE_BYTES


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """What appending ``WRITE_BYTES`` with an fdatasync took, ``samples`` times (1 or more)."""

    samples: int
    median_ns: int
    slowest_ns: int


def measure_sync(root: Path, directory: str, budget_s: float = BUDGET_S) -> SyncTimes:
    """Append to a file in ``directory`` of a host whose files are below ``root``, in its nearest parent that exists.

    The file has no name any more before the first byte is written, so nothing stays. It is this process that writes:
    limits of the host's cgroup do not slow it down. Raises ``RunError`` where nothing can be written there.
    """
    name = f".containernet-env-{secrets.token_hex(8)}"
    try:
        folder = _nearest_folder(root, PurePosixPath("/", directory))
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
            os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            os.posix_fallocate(descriptor, 0, _ROOM_BYTES)
            return _appended(descriptor, budget_s)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RunError(f"no fdatasync could be measured in {directory}: {reason(error)}") from error


def _nearest_folder(root: Path, path: PurePosixPath) -> int:
    try:
        return open_folder(root, str(path))
    except (FileNotFoundError, NotADirectoryError):
        if path == path.parent:
            raise
        return _nearest_folder(root, path.parent)


def _appended(descriptor: int, budget_s: float) -> SyncTimes:
    content = b"\x01" * WRITE_BYTES
    took_ns: list[int] = []
    until = clock.monotonic() + budget_s
    while len(took_ns) < SAMPLES and (not took_ns or clock.monotonic() < until):
        began = clock.perf_counter_ns()
        os.write(descriptor, content)
        os.fdatasync(descriptor)
        took_ns.append(clock.perf_counter_ns() - began)
    return SyncTimes(len(took_ns), round(median(took_ns)), max(took_ns))
