"""The checksums of a run directory: written last, so that whatever changes in it later is told.

The file has the form of ``sha256sum``: ``sha256sum -c checksums.sha256`` verifies it without this program. It lies
beside the other files and not in the manifest, since a file cannot hold its own checksum, and the manifest is to be
covered too. A run that was killed has none.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from containernet_env.results.ownership import PARTIAL

CHECKSUMS = "checksums.sha256"
# What `sha256sum` prints, and `sha256sum --binary`; none of our files has a name that it would escape.
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^\0\\]+)")
_MAX_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Changed:
    """A file that is not as the run left it."""

    name: str
    how: Literal["changed", "missing", "added", "not a checksum"]


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of a run directory since its end: ``files`` have checksums, ``changed`` of them differ."""

    files: int
    changed: tuple[Changed, ...]


def digest_of(path: Path) -> str:
    """SHA-256 of a file. Raises OSError, also for what is no regular file, which may have no end."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_of(folder: Path) -> Iterator[str]:
    """The names of all regular files below a folder, relative to it, sorted; not that of the checksums."""
    found = []
    for place, _, names in os.walk(folder):
        paths = [Path(place, name) for name in names]
        found += [path.relative_to(folder).as_posix() for path in paths if path.is_file() and not path.is_symlink()]
    yield from sorted(name for name in found if name != CHECKSUMS and not name.endswith(PARTIAL))


def checksums_of(folder: Path) -> str:
    """The text of the file of checksums. Raises OSError."""
    return "".join(f"{digest_of(folder / name)}  {name}\n" for name in files_of(folder))


def check(folder: Path) -> Checked | None:
    """Compare a run directory with its checksums; None where it has none. Raises OSError where that cannot be read."""
    path = folder / CHECKSUMS
    if not os.path.lexists(path):
        return None
    digest_of(path)  # or it may be a device
    with path.open("rb") as file:
        text = file.read(_MAX_BYTES).decode("utf-8", "backslashreplace")
    listed: dict[str, str] = {}
    changed = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None or not _is_inside(match[2]):
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


def _is_inside(name: str) -> bool:
    return not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
