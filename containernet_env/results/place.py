"""Whether results can be kept at a place, found out before anything exists; nothing is created that stays."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from containernet_env.base.errors import UsageError
from containernet_env.base.named_files import followed
from containernet_env.results.run_directory import runs_folder
from containernet_env.results.whole_lines import reason, remedy

# What a run of 4 hosts wrote, rounded up: a row of 0.5 KB and, of each host's links and port, 4 KB in scenarios.jsonl
# for each scenario; for each host 54 KB of its log and its part of the manifest, the proof and the events.
_ROW_BYTES = 1_000
_SCENARIO_HOST_BYTES = 4_000
_HOST_BYTES = 64_000


def least_bytes(scenarios: int, hosts: int, clusters: int = 1) -> int:
    """How much a run of so many scenarios on so many hosts, brought up so often, writes beside its timelines."""
    return scenarios * (_ROW_BYTES + hosts * _SCENARIO_HOST_BYTES) + clusters * hosts * _HOST_BYTES


def check_place(out: Path, needed_bytes: int) -> None:
    """Raise UsageError, with the path and a remedy, where rows cannot be kept in ``out`` or its run directory.

    Tells types of files, a read-only file system and too little space by looking; as root, whom no permission stops,
    also whether the folders take a file, by making one that has no name.
    """
    runs = runs_folder(out)
    try:
        if out.exists() and not out.is_file() and not out.is_dir():
            raise UsageError(
                f"cannot write results to {out}: it is no regular file\n  Name a file, or one that does not exist yet."
            )
        if runs.exists() and not runs.is_dir():
            raise UsageError(
                f"cannot keep run directories in {runs}: it is no folder\n"
                f"  Move it away, or choose another name than {out}."
            )
        # A symbolic link may lead to another file system.
        for path in (followed(out).parent, out.absolute().parent, runs.absolute()):
            folder = next(parent for parent in (path, *path.parents) if parent.exists())
            if not folder.is_dir():
                raise UsageError(f"cannot write results to {out}: {folder} is not a directory")
            _check_folder(folder, out, needed_bytes)
        if os.geteuid() == 0 and out.is_file():
            os.close(os.open(out, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError as error:
        raise UsageError(f"cannot write results to {out}: {reason(error)}\n  {remedy(error)}") from error


def _check_folder(folder: Path, out: Path, needed_bytes: int) -> None:
    held = os.statvfs(folder)
    free = held.f_bavail * held.f_frsize
    if held.f_flag & os.ST_RDONLY:
        raise UsageError(
            f"cannot write results to {out}: {folder} is on a read-only file system\n  Mount it for writing, or choose "
            "another place."
        )
    if (held.f_blocks and free < needed_bytes) or (held.f_files and not held.f_favail):
        room = f"{free / 1e6:.1f} MB" if free < needed_bytes else "no inode"
        raise UsageError(
            f"cannot write results to {out}: {room} free in {folder}; this run writes about {needed_bytes / 1e6:.1f} MB"
            "\n  Make room there, or choose another place."
        )
    if os.geteuid() == 0:
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise UsageError(
                f"cannot write results to {out}: no file can be made in {folder}: {reason(error)}\n  {remedy(error)}"
            ) from error
