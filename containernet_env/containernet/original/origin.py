"""Which commit of the original Containernet this Python imports, where that can be told."""

from __future__ import annotations

import json
import subprocess
from importlib import metadata
from pathlib import Path

from containernet_env.base import system_path

_TIMEOUT_S = 10


def commit_of(package: Path) -> str | None:
    """The commit that the folder of the package ``mininet`` comes from; ``None`` where that cannot be told.

    In a checkout that is git's answer, with ``-dirty`` where its files were changed. Of a package that pip installed
    from a Git URL it is what pip wrote down. Changes nothing, and never raises.
    """
    root = package.parent
    # Only its own repository: a virtual environment may lie in somebody else's.
    return _checked_out(root) if (root / ".git").exists() else _installed(package)


def _checked_out(root: Path) -> str | None:
    # safe.directory: the checkout is often a user's, and this is root. Its code is run as root as well.
    command = ["git", "-C", str(root), "-c", f"safe.directory={root.resolve()}", "describe"]
    try:
        done = subprocess.run(
            [*command, "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
            # Otherwise git may write the index anew, as a file of root's.
            env={**system_path.environment(), "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _installed(package: Path) -> str | None:
    """From direct_url.json of the installed package (PEP 610)."""
    try:
        distribution = metadata.distribution("mininet")
        if Path(str(distribution.locate_file("mininet"))).resolve() != package.resolve():
            return None
        commit = json.loads(distribution.read_text("direct_url.json") or "{}")["vcs_info"]["commit_id"]
    except (metadata.PackageNotFoundError, OSError, ValueError, KeyError, TypeError):
        return None
    return str(commit)
