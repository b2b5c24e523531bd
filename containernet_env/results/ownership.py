"""Ownership of result files."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def give_to_caller(path: Path) -> None:
    """Under sudo, make ``path`` belong to the user who called sudo, if it can have an owner; elsewhere do nothing."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if uid.isdecimal() and gid.isdecimal() and os.geteuid() == 0:
        with suppress(OSError):  # FAT, and some network file systems
            os.chown(path, int(uid), int(gid))


def make_folders(folder: Path) -> list[Path]:
    """Make ``folder`` and those above it that are missing, for the caller; which ones, the lowest first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        give_to_caller(path)
    return missing
