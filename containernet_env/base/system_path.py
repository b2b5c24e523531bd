"""Where programs of the system are: in PATH, and in the usual folders, which PATH lacks after ``su`` and under cron.

Everything that runs a program by its name looks here, so that no caller's environment decides what is found.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from containernet_env.base.errors import MissingRequirementError, RunError

FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

# Programs that are run, and the package that brings each on Debian and Ubuntu.
PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "mnexec": "mininet",
    "unshare": "util-linux",
    "cat": "coreutils",
    "ovs-vsctl": "openvswitch-switch",
    "ethtool": "ethtool",
}


def search_path(path: str | None = None) -> str:
    """``path`` (of this process where it is not given) with the usual folders that it lacks."""
    named = [folder for folder in (os.environ.get("PATH", "") if path is None else path).split(os.pathsep) if folder]
    return os.pathsep.join(dict.fromkeys([*named, *FOLDERS]))


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """``base`` (of this process where it is not given) for a program that may run others."""
    given = os.environ if base is None else base
    return {**given, "PATH": search_path(given.get("PATH", ""))}


def find(program: str) -> str | None:
    """The path of a program; ``None`` where it is not installed."""
    return shutil.which(program, path=search_path())


def require(program: str) -> str:
    """The path of a program. Raises ``MissingRequirementError`` that names the package which has it.

    Raises ``RunError`` for a path that leads to none.
    """
    found = find(program)
    if found is None and os.sep in program:
        raise RunError(f"cannot run '{program}': there is no such program")
    if found is None:
        raise MissingRequirementError(
            f"{program} is not installed: it is neither in PATH nor in {', '.join(FOLDERS)}",
            f"Install the package {PACKAGES.get(program, program)} (Debian, Ubuntu: apt-get install).",
        )
    return found


def complete() -> None:
    """Add the folders to the PATH of this process: for libraries that run programs by themselves (Mininet)."""
    os.environ["PATH"] = search_path()
