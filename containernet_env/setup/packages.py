"""Debian packages: only those whose programs are missing, without questions and without recommends."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import SIGINT

from containernet_env.base.errors import MissingRequirementError
from containernet_env.hosts import engine
from containernet_env.setup import dockerd
from containernet_env.setup.commands import CommandError, Commands, Ending, Stopped

# Each program we need, and the package that brings it on Debian and Ubuntu.
PROGRAMS = {"mnexec": "mininet", "ip": "iproute2", "tc": "iproute2"}
IMAGE_BUILDER = "mmdebstrap"

LOCKS = (Path("/var/lib/dpkg/lock-frontend"), Path("/var/lib/dpkg/lock"), Path("/var/lib/apt/lists/lock"))
LOCK_DEADLINE_S = 900.0
_LOCK_POLL_S = 0.5
_UPDATE_TIMEOUT_S = 300.0
_INSTALL_TIMEOUT_S = 1200.0
_CERTIFICATES = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))
_APPARMOR = Path("/sys/module/apparmor/parameters/enabled")
# struct flock of fcntl(2) with 64-bit offsets: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = struct.Struct("hhqqi4x")

# apt-get holds back a SIGINT until dpkg is between two packages; its children must not get one of their own.
_GENTLE = Ending(SIGINT, leader_only=True, grace_s=120.0)
_APT = (
    "apt-get",
    "--yes",
    "--no-install-recommends",
    "-o",
    "Dpkg::Options::=--force-confold",
    "-o",
    "Acquire::Retries=2",
    "-o",
    f"DPkg::Lock::Timeout={LOCK_DEADLINE_S:.0f}",
)
_NO_NETWORK = re.compile(r"resolv|could not connect|failed to fetch|network is unreachable|timed out", re.IGNORECASE)


def missing() -> list[str]:
    """The packages whose programs this machine lacks, in order; never more than what is needed here."""
    wanted = [package for program, package in PROGRAMS.items() if find(program) is None]
    if not any(path.exists() for path in _CERTIFICATES):
        # Without them no download can be checked; minimal machines come without.
        wanted.append("ca-certificates")
    if dockerd.find() is None and not engine.is_reachable():
        wanted.append("docker.io")
        if _APPARMOR.exists() and _APPARMOR.read_text().startswith("Y") and find("apparmor_parser") is None:
            # Where the kernel has AppArmor on, the engine refuses every container without this one.
            wanted.append("apparmor")
    return list(dict.fromkeys(wanted))


def find(program: str) -> str | None:
    """The path of a program, also where the caller's PATH has no sbin directories."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def install(packages: Sequence[str], commands: Commands, log: Path, note: Callable[[str], None]) -> None:
    """Install packages; waits for another package manager and tells so through ``note``.

    Raises ``MissingRequirementError`` where there is no apt-get, no network, or apt-get refuses.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise MissingRequirementError(
            f"missing here: {', '.join(packages)}, and this system has no apt-get to install them",
            "Use Debian 12 or Ubuntu, or install by hand: mnexec (Mininet), ip and tc (iproute2), "
            "mmdebstrap, and a Docker engine; then run again.",
        )
    env = environment()
    try:
        wait_for_locks(commands, note)
        # What an interrupted installation left half done makes apt-get refuse everything else.
        commands.run(["dpkg", "--configure", "-a"], log, timeout_s=_INSTALL_TIMEOUT_S, env=env, ending=_GENTLE)
        update_problem = _update(commands, log, env)
        wait_for_locks(commands, note)
        argv = [*_APT, "install", *packages]
        commands.run(argv, log, timeout_s=_INSTALL_TIMEOUT_S, env=env, ending=_GENTLE)
    except CommandError as error:
        raise _not_installed(packages, error, log) from error
    still = [program for program, package in PROGRAMS.items() if package in packages and find(program) is None]
    if still:
        reason = f" ({update_problem})" if update_problem else ""
        raise MissingRequirementError(
            f"{', '.join(packages)} were installed, but {', '.join(still)} is still missing{reason}",
            f"See {log}.",
        )


def _update(commands: Commands, log: Path, env: dict[str, str]) -> CommandError | None:
    """Refresh the lists. One broken source among several is no reason to stop: the installation decides."""
    try:
        commands.run([*_APT, "update"], log, timeout_s=_UPDATE_TIMEOUT_S, env=env, ending=_GENTLE)
    except CommandError as error:
        return error
    return None


def environment() -> dict[str, str]:
    """The environment in which packages are installed: no questions, no restart of services, C messages."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "LC_ALL": "C.UTF-8"}
    return {**os.environ, **quiet, "PATH": path}


def wait_for_locks(
    commands: Commands,
    note: Callable[[str], None],
    locks: Sequence[Path] = LOCKS,
    deadline_s: float = LOCK_DEADLINE_S,
) -> None:
    """Wait until no other process holds one of the package manager's locks; tells once who does.

    Raises ``MissingRequirementError`` after ``deadline_s``, ``Stopped`` when the work is stopped meanwhile.
    """
    deadline = time.monotonic() + deadline_s
    told = None
    while (holder := next(filter(None, map(lock_holder, locks)), None)) is not None:
        if holder != told:
            note(f"waiting for another package manager: process {holder} ({_name(holder)}) holds the dpkg lock")
            told = holder
        if time.monotonic() > deadline:
            raise MissingRequirementError(
                f"process {holder} ({_name(holder)}) has held the dpkg lock for {deadline_s:.0f} s",
                "Let it end (it may be an automatic upgrade), then run again.",
            )
        if commands.stopping.wait(_LOCK_POLL_S):
            raise Stopped


def lock_holder(path: Path) -> int | None:
    """The process that holds the POSIX lock on ``path``; None if nobody does or there is no such file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else int(pid)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "ended"


def _not_installed(packages: Sequence[str], error: CommandError, log: Path) -> MissingRequirementError:
    text = "\n".join(f"    {line}" for line in error.tail)
    if "Unable to locate package" in text:
        remedy = "Enable the distribution's component that has it ('universe' on Ubuntu), then run again."
    elif _NO_NETWORK.search(text):
        remedy = "Check the network and the package sources (apt-get update), then run again."
    elif "enough free space" in text or "No space left" in text:
        remedy = "Make room on that disk, then run again."
    else:
        remedy = f"Mend what apt-get names (try: apt-get install {' '.join(packages)}), then run again."
    return MissingRequirementError(
        f"{', '.join(packages)} could not be installed: {error}\n{text}", f"{remedy} Details: {log}"
    )
