"""The commit of a clone, by git."""

from __future__ import annotations

import subprocess
from pathlib import Path

from containernet_env.base import programs

_TIMEOUT_S = 10.0


def described(clone: Path) -> str | None:
    """The commit of a clone, by git, with "-dirty" if tracked files differ; None if it cannot be determined."""
    # The commit of another user's clone may be queried; a hook of a commit in another repository must not redirect us.
    settings = ("-c", f"safe.directory={clone.resolve()}", "-c", "core.fsmonitor=false")
    own = {key: value for key, value in programs.environment().items() if not key.startswith("GIT_")}
    words = ("describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=-dirty")
    try:
        done = subprocess.run(
            # Otherwise git may rewrite the index, as a file that belongs to root.
            ["git", "--no-optional-locks", *settings, "-C", str(clone), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=own,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
