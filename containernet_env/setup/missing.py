"""The parts that a machine lacks for a run, and the disk space for them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from containernet_env.base import assets, programs
from containernet_env.base.assets import GoModule
from containernet_env.base.errors import MissingRequirementError
from containernet_env.hosts import engine
from containernet_env.setup import builds, images, packages
from containernet_env.setup.images import Images
from containernet_env.stores.kinds import DEFAULT
from containernet_env.stores.store import Download, Store

MB = 1_000_000

# Installed size plus the downloaded archives.
PACKAGES = {"docker.io": 400 * MB, "mininet": 60 * MB, "mmdebstrap": 30 * MB}
OTHER_PACKAGE = 20 * MB
GO_TOOLCHAIN = 350 * MB
# The root file system and its archive while the base image is made; the image itself is the engine's.
BASE_WORK = 350 * MB
IMAGES = {"base": 170 * MB, "benchmark": 40 * MB}


@dataclass(frozen=True)
class Need:
    """``size`` bytes that will be written below ``path``."""

    path: Path
    size: int


def require(needs: Iterable[Need]) -> str:
    """Check that every file system has enough free space; returns needed and free space as one line.

    Raises ``MissingRequirementError`` naming each file system that is too small.
    """
    sums: dict[int, tuple[Path, int]] = {}
    for need in needs:
        place = need.path
        while not place.exists():
            place = place.parent
        device = place.stat().st_dev
        path, size = sums.get(device, (place, 0))
        sums[device] = (path, size + need.size)
    parts, lacking = [], []
    for path, size in sums.values():
        free = free_bytes(path)
        text = f"about {gigabytes(size)} on {mount_point(path)} ({gigabytes(free)} free)"
        parts.append(text)
        if free < size:
            lacking.append(text)
    if lacking:
        raise MissingRequirementError(
            f"not enough disk for the set-up: it needs {', '.join(lacking)}",
            "Make room there, then run again: completed steps are kept.",
        )
    return f"needs {', '.join(parts)}"


def mount_point(path: Path) -> Path:
    """Where the file system of ``path`` is mounted."""
    path = path.resolve()
    while not os.path.ismount(path):
        path = path.parent
    return path


def free_bytes(path: Path) -> int:
    """Free bytes of the file system of ``path``, without its reserve."""
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def gigabytes(size: int) -> str:
    """A size for people: "60 MB", "1.4 GB", "12 GB"."""
    if size < 1e8:
        return f"{size / 1e6:.0f} MB"
    value = size / 1e9
    return f"{value:.1f} GB" if value < 9.95 else f"{value:.0f} GB"


# The engine's default folder of images; used for free space while no engine runs.
_ENGINE_DATA = Path("/var/lib/docker")


@dataclass(frozen=True)
class Missing:
    """All work of a set-up, in its order."""

    packages: tuple[str, ...] = ()
    engine: bool = False
    modules: tuple[GoModule, ...] = ()
    images: tuple[str, ...] = ()
    required: Images | None = field(default=None, compare=False)
    store: Store = field(default=DEFAULT, compare=False)
    files: tuple[Download, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.packages or self.engine or self.modules or self.images)

    def __str__(self) -> str:
        parts = []
        if self.packages:
            parts.append(f"packages: {', '.join(self.packages)}")
        if self.engine:
            parts.append("a running Docker engine")
        parts += [f"{name} built from the current sources" for module in self.modules for name in module.packages]
        parts += [f"the {name} image" for name in self.images]
        return "; ".join(parts) or "nothing"

    def disk_needs(self) -> list[Need]:
        """Bytes that will be written, by folder."""
        own = self.store.image
        needs = []
        if self.packages:
            needs.append(Need(Path("/usr"), sum(PACKAGES.get(name, OTHER_PACKAGE) for name in self.packages)))
        if self.modules:
            caches = sum(module.disk_bytes for module in self.modules)
            needs.append(Need(Path(builds.home()), caches))
            if builds.find() is None:
                needs.append(Need(assets.own(), GO_TOOLCHAIN))
        if self.images:
            known = {**IMAGES, DEFAULT.image.name: DEFAULT.image.disk_bytes}
            size = sum(known.get(name, own.disk_bytes) for name in self.images)
            if own.binary is not None and {own.name, own.label} & set(self.images):
                size += len(own.binary.content())  # raises MissingRequirementError
            needs.append(Need(engine_data(), size))
        if any(name.startswith("base") for name in self.images):
            needs.append(Need(images.WORK, BASE_WORK))
        return needs


def detect(store: Store = DEFAULT) -> Missing:
    """The missing parts for runs of a store, and of the default one. Starts and changes nothing."""
    version = builds.go_version()
    modules = assets.modules()
    if (own := store.image.module) is not None and own not in modules:
        modules = (own, *modules)
    running = engine.is_reachable()
    present = images.present() if running else set()
    if version is None:
        stale, required = modules, None
        absent = list(dict.fromkeys((store.image.name, "etcd", "benchmark")))
        bases = {images.base_tag(): "base"}
    else:
        stale = tuple(module for module in modules if programs.find(module, version) is None)
        required = images.required_images(store)
        lacking = [recipe for recipe in images.recipes(version, store) if recipe.tag not in present]
        absent = [recipe.name for recipe in lacking]
        bases = {recipe.base: f"base of {recipe.name}" if recipe.packages else "base" for recipe in lacking}
    absent = [name for tag, name in bases.items() if tag not in present] + absent
    fetched = [file for file in store.image.files if absent and images.find(file) is None]
    return Missing(tuple(packages.missing()), not running, stale, tuple(absent), required, store, tuple(fetched))


def engine_data() -> Path:
    """The engine's folder of images."""
    if engine.is_reachable():
        return Path(engine.facts().get("DockerRootDir") or _ENGINE_DATA)
    return _ENGINE_DATA
