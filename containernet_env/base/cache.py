"""Where built programs and state are kept: one folder per machine for root, one per user without root.

All clones and installs share it. Root never reads what another user could have written.
"""

from __future__ import annotations

import os
from pathlib import Path

from containernet_env.base import assets
from containernet_env.base.errors import MissingRequirementError

MACHINE = Path("/var/cache/containernet-env")


def own() -> Path:
    """This user's folder: root's is always the machine's, a user's follows XDG."""
    if os.geteuid() == 0:
        return MACHINE
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG Base Directory Specification: a relative path is invalid and ignored.
        parent = Path(named) if named.startswith("/") else Path.home() / ".cache"
    except RuntimeError as error:
        raise MissingRequirementError("this user has no home for a cache", "Set XDG_CACHE_HOME.") from error
    return parent / "containernet-env"


def trusted() -> tuple[Path, ...]:
    """The folders whose contents this process may run: the machine's, and a user's own after it."""
    return tuple(path for path in dict.fromkeys((MACHINE, own())) if _is_trusted(path))


def make() -> Path:
    """``own()``, made where it is missing. Raises ``MissingRequirementError`` where it must not be used."""
    path = own()
    try:
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise MissingRequirementError(f"{path} cannot be made: {error.strerror}", "Make it by hand.") from error
    if not _is_trusted(path):
        raise MissingRequirementError(
            f"{path} belongs to another user, or others may write to it",
            "Remove it, or give it to its user with the mode 755; then run again.",
        )
    return path


def logs() -> Path:
    """Where the details of a set-up go: .build/ in a clone, else a folder of the cache. It need not exist."""
    return assets.CLONE / ".build" if assets.CLONE is not None else own() / "logs"


def _is_trusted(path: Path) -> bool:
    """Whether only root and this user can put anything into the folder ``path``; False where there is none."""
    try:
        stat = path.stat()
    except OSError:
        return False
    return stat.st_uid in (0, os.geteuid()) and not stat.st_mode & 0o022
