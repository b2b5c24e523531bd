"""Debian packages whose programs are missing, and optional Python packages that only some commands need."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from signal import SIGINT

from containernet_env.base import assets, clock, programs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.hosts import engine
from containernet_env.setup import dockerd
from containernet_env.setup.commands import CommandError, Commands, Ending, Stopped, only_one

# Required programs, and the package of each on Debian and Ubuntu.
PROGRAMS = {program: programs.PACKAGES[program] for program in ("mnexec", "ip", "tc")}
IMAGE_BUILDER = "mmdebstrap"

LOCK_DEADLINE_S = 900.0
_LOCK_POLL_S = 2.0
# Messages of apt-get and dpkg when another process holds a lock, before they exit: "Could not get lock
# /var/lib/dpkg/lock-frontend. It is held by process 123 (apt-get)".
_LOCKED = re.compile(r"Could not get lock .*|dpkg .*locked by another process.*")
_UPDATE_TIMEOUT_S = 300.0
_INSTALL_TIMEOUT_S = 1200.0
_CERTIFICATES = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))
_APPARMOR = Path("/sys/module/apparmor/parameters/enabled")

# apt-get delays a SIGINT until dpkg is between two packages; its children must not get one.
_GENTLE = Ending(SIGINT, leader_only=True, grace_s=120.0)
_APT = (
    "apt-get",
    "--yes",
    "--no-install-recommends",
    "-o",
    "Dpkg::Options::=--force-confold",
    "-o",
    "Acquire::Retries=2",
)


def missing() -> list[str]:
    """The packages whose programs this machine lacks, in order; only those needed here."""
    wanted = [package for program, package in PROGRAMS.items() if programs.which(program) is None]
    if not any(path.exists() for path in _CERTIFICATES):
        # Needed to verify downloads; minimal machines lack them.
        wanted.append("ca-certificates")
    if dockerd.find() is None and not engine.is_reachable():
        wanted.append("docker.io")
        if _APPARMOR.exists() and _APPARMOR.read_text().startswith("Y") and programs.which("apparmor_parser") is None:
            # With AppArmor enabled in the kernel, the engine refuses every container without this one.
            wanted.append("apparmor")
    return list(dict.fromkeys(wanted))


def install(packages: Sequence[str], commands: Commands, log: Path, note: Callable[[str], None]) -> None:
    """Install packages; waits for another package manager, with a ``note``.

    Raises ``MissingRequirementError`` where there is no apt-get, no network, or apt-get refuses.
    """
    if programs.which("apt-get") is None or programs.which("dpkg") is None:
        raise MissingRequirementError(
            f"missing here: {', '.join(packages)}, and this system has no apt-get to install them",
            "Use Debian 12 or Ubuntu, or install by hand: mnexec (Mininet), ip and tc (iproute2), "
            "mmdebstrap, and a Docker engine; then run again.",
        )
    run, reason = _patiently(commands, log, note), ""
    try:
        # An interrupted installation makes apt-get refuse everything else.
        run(["dpkg", "--configure", "-a"], _INSTALL_TIMEOUT_S)
        try:
            run([*_APT, "update"], _UPDATE_TIMEOUT_S)
        except CommandError as error:  # of a broken source, perhaps: the installation fails if it matters
            reason = f" ({error})"
        run([*_APT, "install", *packages], _INSTALL_TIMEOUT_S)
    except CommandError as error:
        remedy = f"Fix the errors of apt-get (try: apt-get install {' '.join(packages)}), then run again."
        if "Unable to locate package" in error.shown:
            remedy = "Enable the distribution's component that has it ('universe' on Ubuntu), then run again."
        elif _LOCKED.search(error.shown):
            remedy = "Wait for that process to end (it may be an automatic upgrade), then run again."
        network = "Check the network and the package sources (apt-get update), then run again."
        raise error.missing(f"{', '.join(packages)} could not be installed", network, remedy) from error
    still = [
        program for program, package in PROGRAMS.items() if package in packages and programs.which(program) is None
    ]
    if still:
        raise MissingRequirementError(
            f"{', '.join(packages)} were installed, but {', '.join(still)} is still missing{reason}",
            f"See {log}.",
        )


def _patiently(commands: Commands, log: Path, note: Callable[[str], None]) -> Callable[[Sequence[str], float], None]:
    """Runs apt-get and dpkg, retrying with a ``note`` while another package manager holds their lock.

    It raises ``CommandError``, also if the lock was held for ``LOCK_DEADLINE_S``, or ``Stopped``. apt's own
    DPkg::Lock::Timeout waits without any message outside the log, and not for the lists' lock.
    """
    reported: set[str] = set()

    def run(argv: Sequence[str], timeout_s: float) -> None:
        deadline = clock.monotonic() + LOCK_DEADLINE_S
        while True:
            try:
                return commands.run(argv, log, timeout_s=timeout_s, env=environment(), ending=_GENTLE)
            except CommandError as error:
                locked = _LOCKED.search("\n".join(error.tail))
                if locked is None or clock.monotonic() > deadline:
                    raise
            if locked[0] not in reported:
                reported.add(locked[0])
                note(f"waiting for another package manager: {locked[0]}")
            if commands.stopping.wait(_LOCK_POLL_S):
                raise Stopped

    return run


def environment() -> dict[str, str]:
    """The environment in which packages are installed: no questions, no restart of services, C messages."""
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "LC_ALL": "C.UTF-8"}
    return {**programs.environment(), **quiet}


EXTRAS = {"analysis": ("scipy", "matplotlib", "plotly"), "dask": ("dask", "distributed")}
"""Extra of pyproject.toml -> its packages, whose names are also those of their modules."""
_PIP_TIMEOUT_S = 600.0


def require(module: str, note: Callable[[str], object]) -> None:
    """Return when ``module``, one of ``EXTRAS``, can be imported; called in the main thread.

    In a clone's own .venv its extra is installed where it is missing or another version than constraints.txt pins;
    ``note`` gets a message, once. If that fails, a version that pyproject.toml allows is used, with a ``note``.
    Nothing is installed into any other environment. Raises ``MissingRequirementError`` with a remedy if the
    module is still missing.
    """
    extra = next(name for name, modules in EXTRAS.items() if module in modules)
    own = assets.CLONE is not None and Path(sys.prefix).resolve() == (assets.CLONE / ".venv").resolve()
    clone = assets.CLONE if own else None
    version, pin = _version(module), None if clone is None else _pin(clone, module)
    if version is not None and pin in (None, version):
        return
    why = f"this needs {module}, which is not installed"
    if clone is None:
        target = "containernet-env" if assets.CLONE is None else str(assets.CLONE)
        pins = [] if assets.CLONE is None else ["--constraint", str(assets.CLONE / "constraints.txt"), "--editable"]
        remedy = shlex.join([sys.executable, "-m", "pip", "install", *pins, f"{target}[{extra}]"])
        raise MissingRequirementError(why, f"Install it: {remedy}")
    if version is not None:
        why = f"this needs {module} {pin}, and {version} is installed"
    try:
        _make_sure(module, extra, clone, why, note)
    except MissingRequirementError as error:
        version = _version(module)
        if version is None or not _allows(clone, extra, module, version):
            raise
        reason = str(error).partition("\n")[0]
        note(f"{reason}; {module} {version} is used")


def _make_sure(module: str, extra: str, clone: Path, why: str, note: Callable[[str], object]) -> None:
    """Install the extra, unless another process does so meanwhile."""
    # The extra and nothing else: the running program stays unchanged.
    argv = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    argv += ["--constraint", str(clone / "constraints.txt"), *_requirements(clone, extra)]
    if not os.access(sysconfig.get_path("purelib"), os.W_OK):
        raise MissingRequirementError(f"{why}; this user cannot write to {sys.prefix}", f"As root: {shlex.join(argv)}")
    assets.logs().mkdir(parents=True, exist_ok=True)
    # The lock of build.sh, which installs into the same environment.
    with only_one(note, clone / ".build" / "python.lock", LOCK_DEADLINE_S):
        if _version(module) != _pin(clone, module):
            note(f"installing {', '.join(EXTRAS[extra])} into {sys.prefix}, once")
            log, commands = assets.logs() / "extras.log", Commands()
            try:
                commands.side_by_side(partial(commands.run, argv, log, timeout_s=_PIP_TIMEOUT_S))
            except CommandError as error:
                last = f": {error.tail[-1]}" if error.tail else ""
                remedy = "Check the network (a proxy is taken from HTTPS_PROXY, its certificate from PIP_CERT)."
                raise MissingRequirementError(f"{error}{last}", f"{remedy} Details: {log}") from error
    importlib.invalidate_caches()


def _version(module: str) -> str | None:
    """The installed version; None without one, and after an interrupted installation, whose metadata are missing."""
    importlib.invalidate_caches()
    if importlib.util.find_spec(module) is None:
        return None
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        return None


def _pin(clone: Path, module: str) -> str:
    lines = (clone / "constraints.txt").read_text(encoding="ascii").splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith(f"{module}=="))


def _requirements(clone: Path, extra: str) -> list[str]:
    project = tomllib.loads((clone / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: list[str] = project["optional-dependencies"][extra]
    return found


def _allows(clone: Path, extra: str, module: str, version: str) -> bool:
    """Whether pyproject.toml allows a version: each of its ranges is `NAME>=LEAST,<BELOW`."""
    line = next(line for line in _requirements(clone, extra) if line.startswith(f"{module}>="))
    numbers = [version, *re.split(">=|,<", line)[1:]]
    if not all(re.fullmatch(r"\d+(\.\d+)*", number) for number in numbers):
        return False
    found, least, below = (tuple(map(int, number.split("."))) for number in numbers)
    return least <= found < below
