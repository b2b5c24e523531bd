"""Optional packages: what only some commands need, made sure of where one of them begins.

A measurement (`run`, `measure`) needs none of them, so the set-up does not install them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path

from containernet_env.base import assets, cache, clock
from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import only_one
from containernet_env.setup.commands import CommandError, Commands

EXTRAS = {"analysis": ("scipy", "matplotlib", "plotly"), "dask": ("dask", "distributed")}
"""Extra of pyproject.toml -> what it brings, by names that are those of the modules as well."""
_INSTALL_TIMEOUT_S = 600.0
_LOCK_DEADLINE_S = 900.0


def require(module: str, note: Callable[[str], object]) -> None:
    """Return when ``module``, one of ``EXTRAS``, can be imported; called in the main thread.

    In a clone's own .venv its extra is installed where it is missing or another version than constraints.txt pins;
    ``note`` is told so, once. Where that fails, a version that pyproject.toml allows is used, and ``note`` is told.
    Nothing is installed into any other environment. Raises ``MissingRequirementError`` with what to do where the module
    is missing after all.
    """
    extra = next(name for name, modules in EXTRAS.items() if module in modules)
    clone = assets.CLONE if _is_own_environment() else None
    if not _is_missing(module, clone):
        return
    why = f"this needs {module}, which is not installed"
    if clone is None:
        target = "containernet-env" if assets.CLONE is None else str(assets.CLONE)
        pins = [] if assets.CLONE is None else ["--constraint", str(assets.CLONE / "constraints.txt"), "--editable"]
        remedy = shlex.join([sys.executable, "-m", "pip", "install", *pins, f"{target}[{extra}]"])
        raise MissingRequirementError(why, f"Install it: {remedy}")
    if (version := _version(module)) is not None:
        why = f"this needs {module} {_pin(clone, module)}, and {version} is installed"
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
    argv = _pip(clone, extra)
    if not os.access(sysconfig.get_path("purelib"), os.W_OK):
        raise MissingRequirementError(f"{why}; this user cannot write to {sys.prefix}", f"As root: {shlex.join(argv)}")
    cache.logs().mkdir(parents=True, exist_ok=True)
    # The lock of build.sh, which installs into the same environment.
    with only_one(note, clone / ".build" / "python.lock", _LOCK_DEADLINE_S):
        if _is_missing(module, clone):
            note(f"installing {', '.join(EXTRAS[extra])} into {sys.prefix}, once")
            _install(argv)
    importlib.invalidate_caches()


def _is_own_environment() -> bool:
    return assets.CLONE is not None and Path(sys.prefix).resolve() == (assets.CLONE / ".venv").resolve()


def _is_missing(module: str, clone: Path | None) -> bool:
    version = _version(module)
    return version is None or (clone is not None and version != _pin(clone, module))


def _version(module: str) -> str | None:
    """The installed version; None without one, and where an installation was interrupted: its metadata come last."""
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


def _pip(clone: Path, extra: str) -> list[str]:
    """What installs the extra and nothing else: the program itself stays as it is while it runs."""
    pip = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    return [*pip, "--constraint", str(clone / "constraints.txt"), *_requirements(clone, extra)]


def _install(argv: list[str]) -> None:
    log = cache.logs() / "extras.log"
    commands = Commands()
    with clock.ThreadPoolExecutor(1) as pool:
        done = pool.submit(commands.run, argv, log, timeout_s=_INSTALL_TIMEOUT_S)
        try:
            done.result()
        except CommandError as error:
            last = f": {error.tail[-1]}" if error.tail else ""
            raise MissingRequirementError(
                f"{error}{last}",
                f"Check the network (a proxy is taken from HTTPS_PROXY, its certificate from PIP_CERT). Details: {log}",
            ) from error
        except BaseException:
            commands.stop()
            raise
