"""What programs are built from: hashes of their sources, and etcd's version, read from its only place.

A hash covers contents and relative paths, never times or git: a clone by another user is the same source.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from containernet_env.base import assets
from containernet_env.base.errors import MissingRequirementError

BUILD_ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
BUILD_FLAGS = ("-trimpath", "-ldflags")
LINKER_FLAGS = "-s -w"

RESTORE = "Restore it (git checkout), or clone or install the project again."
_ETCD_MODULE = "go.etcd.io/etcd/server/v3"
_CONSUL_MODULE = "github.com/hashicorp/consul"


@dataclass(frozen=True)
class GoModule:
    """One Go module of the project and the programs built from it.

    ``packages`` maps the program's name to its package path; ``only`` names the files that its hash
    covers (empty: all that are compiled); ``ours`` says whether the program takes ``-X main.sourceHash``.
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
        if not (self.folder / "go.mod").is_file():
            raise MissingRequirementError(
                f"{self.folder / 'go.mod'} is missing: this clone or installation is not complete",
                RESTORE,
            )
        paths = [self.folder / name for name in self.only] if self.only else compiled_files(self.folder)
        settings = {"go": go_version, "flags": [*BUILD_FLAGS, LINKER_FLAGS], "env": BUILD_ENVIRONMENT}
        wanted = [self.version] if self.version is not None else []
        return combine(hash_files(self.folder, paths), json.dumps(settings, sort_keys=True), *wanted)

    @property
    def label(self) -> str:
        """Its name, and the version that is not the one in ``go.mod``."""
        return self.name if self.version is None else f"{self.name}-{self.version}"


def etcd_module(root: Path = assets.ROOT, version: str | None = None) -> GoModule:
    """etcd and etcdctl, in the version that is pinned or in another one."""
    packages = {"etcd": _ETCD_MODULE, "etcdctl": "go.etcd.io/etcd/etcdctl/v3"}
    only = ("go.mod", "go.sum")
    return GoModule("etcd", root / "etcd_image", packages, only=only, ours=False, version=version)


def consul_module(root: Path = assets.ROOT, version: str | None = None) -> GoModule:
    """Consul, in the version that is pinned or in another one."""
    return GoModule(
        "consul",
        root / "consul_image",
        {"consul": _CONSUL_MODULE},
        only=("go.mod", "go.sum"),
        ours=False,
        version=version,
        unsummed="github.com/hashicorp/consul/*,github.com/hashicorp/hcp-sdk-go",
    )


def replicas_module(root: Path = assets.ROOT) -> GoModule:
    """The small replicated store that is there to be measured."""
    return GoModule("replicas", root / "replicas_image", {"replicas": "."}, ours=False)


def modules(root: Path = assets.ROOT) -> tuple[GoModule, ...]:
    """Every Go module of the project that each set-up builds, the slowest to build first."""
    return (
        etcd_module(root),
        GoModule(
            "benchmark",
            root / "benchmark_image",
            {
                "benchmark-client": "./cmd/benchmark-client",
                "benchmark-client-tls": "./cmd/benchmark-client-tls",
                "benchmark-server": "./cmd/benchmark-server",
                "history-checker": "./cmd/history-checker",
            },
        ),
        GoModule("emulator", root / "link_emulator", {"link-emulator": "."}),
    )


def compiled_files(folder: Path) -> list[Path]:
    """The files below ``folder`` that its programs are made from: no tests, documentation or hidden files."""
    return [path for path in assets.travelling(folder.parent, folder.name) if path.name != "Dockerfile"]


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
    """SHA-256 of one file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_bytes(content: bytes) -> str:
    """SHA-256 of contents that are in memory."""
    return hashlib.sha256(content).hexdigest()


def etcd_version(root: Path = assets.ROOT) -> str:
    """The pinned version of etcd, such as "3.7.3", read from etcd_image/go.mod."""
    return _pinned(root / "etcd_image" / "go.mod", _ETCD_MODULE)


def consul_version(root: Path = assets.ROOT) -> str:
    """The pinned version of Consul, such as "1.16.1", read from consul_image/go.mod."""
    return _pinned(root / "consul_image" / "go.mod", _CONSUL_MODULE)


def replicas_version(root: Path = assets.ROOT) -> str:
    """What the sources of the replicas are called: a hash, 12 hexadecimal digits."""
    folder = root / "replicas_image"
    return hash_files(folder, compiled_files(folder))[:12]


def _pinned(path: Path, module: str) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MissingRequirementError(
            f"{path} is missing: this clone or installation is not complete", RESTORE
        ) from error
    found = re.search(rf"^\s*{re.escape(module)} v(\S+)", text, re.MULTILINE)
    if found is None:
        raise MissingRequirementError(f"{path} does not require {module}", RESTORE)
    return found.group(1)
