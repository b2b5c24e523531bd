"""The parts that a machine lacks for a run, and the disk space for them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
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
# Roughly: packages with their archives, the fetched Go, and the root file system while the base image is made.
_DOCKER, _OTHER_PACKAGE, _GO, _BASE_WORK = 400 * MB, 40 * MB, 350 * MB, 350 * MB
_IMAGES = {"base": 170 * MB, "benchmark": 40 * MB, DEFAULT.image.name: DEFAULT.image.disk_bytes}


def require_disk(needs: Iterable[tuple[Path, int]]) -> str:
    """The space that is needed and free on each file system, as one line; ``needs`` are bytes below folders.

    Raises ``MissingRequirementError`` naming each file system that is too small.
    """
    places: dict[int, Path] = {}
    sums: Counter[int] = Counter()
    for place, size in needs:
        while not place.exists():
            place = place.parent
        device = place.stat().st_dev
        places.setdefault(device, place)
        sums[device] += size
    parts, lacking = [], []
    for device, size in sums.items():
        free = shutil.disk_usage(places[device]).free
        parts.append(f"about {size / MB:.0f} MB on {mount_point(places[device])} ({free / MB:.0f} MB free)")
        lacking += parts[-1:] if free < size else []
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

    def disk_needs(self) -> list[tuple[Path, int]]:
        """Bytes that will be written, by folder."""
        own = self.store.image
        needs = [(Path("/usr"), _DOCKER if name == "docker.io" else _OTHER_PACKAGE) for name in self.packages]
        needs += [(Path(builds.home()), module.disk_bytes) for module in self.modules]
        if self.modules and builds.find() is None:
            needs.append((assets.own(), _GO))
        needs += [(engine_data(), _IMAGES.get(name, own.disk_bytes)) for name in self.images]
        if own.binary is not None and {own.name, own.label} & set(self.images):
            needs.append((engine_data(), len(own.binary.content())))  # raises MissingRequirementError
        if any(name.startswith("base") for name in self.images):
            needs.append((images.WORK, _BASE_WORK))
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
