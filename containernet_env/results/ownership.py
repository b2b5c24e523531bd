"""Ownership of result files."""

from __future__ import annotations

import os
from pathlib import Path


def give_to_caller(path: Path) -> None:
    """Under sudo, make ``path`` belong to the user who called sudo; elsewhere do nothing."""
    uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if uid is not None and gid is not None and os.geteuid() == 0:
        os.chown(path, int(uid), int(gid))
