"""Files that the package contains, the sources of its programs, and the folders of built programs and state."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from containernet_env.base.errors import MissingRequirementError

PACKAGE = Path(__file__).resolve().parents[1]
# Inside an installed package only.
COPIES = "assets"
# Files in these folders that no program contains or reads.
LEFT_OUT = ("*_test.go", "*.md", "testdata/*", "*/testdata/*", ".*", "*/.*")


def clone_of(package: Path) -> Path | None:
    """The clone (or the unpacked source archive) that ``package`` is part of; None for an installed one."""
    return None if (package / COPIES).is_dir() else package.parent


CLONE = clone_of(PACKAGE)
ROOT = CLONE or PACKAGE / COPIES
"""The folder that holds ``FOLDERS``."""
FOLDERS = ("configs", *sorted(path.name for path in ROOT.glob("*_image")), "link_emulator", "disk_emulator")


def travelling(root: Path, folder: str) -> Iterator[Path]:
    """The files of one of ``FOLDERS`` below ``root`` that a wheel carries."""
    for path in sorted((root / folder).rglob("*")):
        relative = path.relative_to(root / folder).as_posix()
        if path.is_file() and not any(fnmatchcase(relative, pattern) for pattern in LEFT_OUT):
            yield path


def set_up_hint() -> str:
    """How a user runs the set-up, as one sentence."""
    if CLONE is not None:
        return "Run ./build.sh as root."
    called = Path(sys.argv[0])
    found = str(called.absolute()) if called.name == "containernet-env" else shutil.which("containernet-env")
    return f"Run as root: {found or 'containernet-env'} setup"


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
    return CLONE / ".build" if CLONE is not None else own() / "logs"


def _is_trusted(path: Path) -> bool:
    """Whether only root and this user can put anything into the folder ``path``; False where there is none."""
    try:
        stat = path.stat()
    except OSError:
        return False
    return stat.st_uid in (0, os.geteuid()) and not stat.st_mode & 0o022


BUILD_ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
BUILD_FLAGS = ("-trimpath", "-ldflags")
LINKER_FLAGS = "-s -w"

RESTORE = "Restore it (git checkout), or clone or install the project again."


def content_of(path: Path) -> str:
    """The text of a file of the project. Raises ``MissingRequirementError`` where it is missing."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        words = f"{path} is missing: this clone or installation is not complete"
        raise MissingRequirementError(words, RESTORE) from error


@dataclass(frozen=True)
class GoModule:
    """One Go module of the project and the programs built from it.

    ``packages`` maps the program's name to its package path; ``only`` names the files that its hash
    covers (empty: all that are compiled); ``ours``: whether the program takes ``-X main.sourceHash``.
    ``version``: the modules that the packages are in are wanted in that version instead of the one in ``go.mod``, each
    with the modules that it requires itself. ``unsummed``: patterns of modules that are not in Go's checksum database.
    """

    name: str
    folder: Path
    packages: Mapping[str, str]
    only: tuple[str, ...] = ()
    ours: bool = True
    version: str | None = None
    unsummed: str = ""

    def source_hash(self, go_version: str) -> str:
        """Hash (64 hex digits) of the module's sources, the build's flags and the Go version ("go1.26.8")."""
        self._requirements()
        paths = [self.folder / name for name in self.only] if self.only else compiled_files(self.folder)
        settings = {"go": go_version, "flags": [*BUILD_FLAGS, LINKER_FLAGS], "env": BUILD_ENVIRONMENT}
        wanted = [self.version] if self.version is not None else []
        return combine(hash_files(self.folder, paths), json.dumps(settings, sort_keys=True), *wanted)

    @property
    def pinned(self) -> str | None:
        """The version in ``go.mod`` of the first package, such as "3.7.3"; ``None`` where that is of this project."""
        package = next(iter(self.packages.values()))
        if package.startswith("."):
            return None
        found = re.search(rf"^\s*{re.escape(package)} v(\S+)", self._requirements(), re.MULTILINE)
        if found is None:
            raise MissingRequirementError(f"{self.folder / 'go.mod'} does not require {package}", RESTORE)
        return found[1]

    def _requirements(self) -> str:
        return content_of(self.folder / "go.mod")

    @property
    def label(self) -> str:
        """Its name, and the version that is not the one in ``go.mod``."""
        return self.name if self.version is None else f"{self.name}-{self.version}"


def etcd_module(version: str | None = None) -> GoModule:
    """etcd and etcdctl, in the version that is pinned or in another one."""
    packages = {"etcd": "go.etcd.io/etcd/server/v3", "etcdctl": "go.etcd.io/etcd/etcdctl/v3"}
    return GoModule("etcd", ROOT / "etcd_image", packages, ("go.mod", "go.sum"), False, version)


def modules() -> tuple[GoModule, ...]:
    """Every Go module of the project that each set-up builds, the slowest to build first."""
    return (
        etcd_module(),
        GoModule(
            "benchmark",
            ROOT / "benchmark_image",
            {
                "benchmark-client": "./cmd/benchmark-client",
                "benchmark-client-tls": "./cmd/benchmark-client-tls",
                "benchmark-server": "./cmd/benchmark-server",
                "history-checker": "./cmd/history-checker",
            },
        ),
        GoModule("emulator", ROOT / "link_emulator", {"link-emulator": "."}),
        GoModule("disk", ROOT / "disk_emulator", {"disk-emulator": "."}),
    )


def compiled_files(folder: Path) -> list[Path]:
    """The files below ``folder`` that its programs are made from: no tests, documentation or hidden files."""
    return [path for path in travelling(folder.parent, folder.name) if path.name != "Dockerfile"]


def hash_files(base: Path, paths: Iterable[Path]) -> str:
    """SHA-256 over the sorted paths relative to ``base``, with their contents. OSError if one is missing."""
    total = hashlib.sha256()
    for path in sorted(paths, key=lambda path: path.relative_to(base).as_posix()):
        content = path.read_bytes()
        # Lengths keep the boundaries: no two different trees give the same stream.
        total.update(f"{path.relative_to(base).as_posix()}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def combine(*parts: str) -> str:
    """One hash over several hashes or texts, their order and boundaries included."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def etcd_version() -> str:
    """The pinned version of etcd, such as "3.7.3", read from etcd_image/go.mod."""
    return str(etcd_module().pinned)
