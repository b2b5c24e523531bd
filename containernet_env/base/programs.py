"""The programs that the set-up has built, found by the hash of their sources: bin/<hash>/NAME in a cache.

A folder is created by rename, with all programs of one Go module and a stamp that holds what they were built from and
the state of the files. A program that was changed or truncated since is not found.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from containernet_env.base import assets, cache, clock, sources
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.sources import GoModule

STAMP = "programs.json"
_HASH_DIGITS = 16
# The shortest time between two updates of a folder's time of last use.
_USE_GRAIN_S = 3600.0


@dataclass(frozen=True)
class Program:
    """A program as it was built. ``state`` is (inode, size_bytes, mtime_ns, ctime_ns)."""

    sha256: str
    state: tuple[int, int, int, int]

    @staticmethod
    def of(path: Path) -> Program:
        """The program file as it is now. OSError if it is missing."""
        return Program(sources.hash_file(path), state_of(path))

    def is_at(self, path: Path) -> bool:
        """Whether ``path`` can be run and holds what was built."""
        if not os.access(path, os.X_OK):
            return False
        return state_of(path) == self.state or sources.hash_file(path) == self.sha256


@dataclass(frozen=True)
class Stamp:
    """What a folder was built from: the module's name, its ``source_hash`` and the Go version."""

    module: str
    source: str
    go: str
    programs: dict[str, Program]

    def write(self, folder: Path) -> None:
        """Put it into ``folder``."""
        (folder / STAMP).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def state_of(path: Path) -> tuple[int, int, int, int]:
    """What changes whenever a file's contents do (the kernel alone sets ctime). OSError if it is missing."""
    stat = path.stat()
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def read_stamp(folder: Path) -> Stamp | None:
    """The stamp of a folder; None where there is none, or a damaged one."""
    try:
        raw = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        programs = {name: Program(item["sha256"], tuple(item["state"])) for name, item in raw["programs"].items()}
        return Stamp(str(raw["module"]), str(raw["source"]), str(raw["go"]), programs)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def folder_name(source: str) -> str:
    """The name of the folder for what is built from sources with that ``source_hash``."""
    return source[:_HASH_DIGITS]


def find(module: GoModule, go_version: str | None = None) -> Path | None:
    """The folder with the programs of ``module`` as its sources now make them, all there and unchanged; else None.

    Built with ``go_version``; without one with any, the one used last first.
    """
    for cached in cache.trusted():
        if go_version is not None:
            candidates = [cached / "bin" / folder_name(module.source_hash(go_version))]
        else:
            candidates = sorted((cached / "bin").glob("[!.]*"), key=_last_used, reverse=True)
        for folder in candidates:
            stamp = read_stamp(folder)
            if stamp is not None and stamp.module == module.label and _is_whole(folder, stamp, module):
                _note_use(folder)
                return folder
    return None


def _is_whole(folder: Path, stamp: Stamp, module: GoModule) -> bool:
    if stamp.source != module.source_hash(stamp.go):
        return False
    return all(name in stamp.programs and stamp.programs[name].is_at(folder / name) for name in module.packages)


def _last_used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _note_use(folder: Path) -> None:
    """Set the folder's time of last use, so that it is not removed with unused ones."""
    if clock.time() - _last_used(folder) > _USE_GRAIN_S:
        # A user cannot set the times of root's files, and need not.
        with suppress(OSError):
            os.utime(folder)


def go_version(module: GoModule) -> str | None:
    """The Go version that the programs of ``module`` were built with; None where they are not built."""
    folder = find(module)
    stamp = read_stamp(folder) if folder is not None else None
    return stamp.go if stamp is not None else None


def path(name: str) -> Path:
    """The program ``name``, built from the present sources. Raises ``MissingRequirementError`` where it is not."""
    for module in sources.modules():
        if name in module.packages and (folder := find(module)) is not None:
            return folder / name
    raise MissingRequirementError(f"{name} has not been built from the present sources", assets.set_up_hint())
