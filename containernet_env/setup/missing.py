"""What the machine still lacks for a run; looked at in a fraction of a second when nothing is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from containernet_env.base import cache, programs, sources
from containernet_env.base.sources import GoModule
from containernet_env.hosts import engine
from containernet_env.setup import base_image, binaries, disk, downloads, go, images, packages
from containernet_env.setup.disk import Need
from containernet_env.setup.images import Images
from containernet_env.stores.kinds import DEFAULT
from containernet_env.stores.protocol import Download, Store

# Where the engine keeps images unless told otherwise; only asked for free space before there is an engine.
_ENGINE_DATA = Path("/var/lib/docker")


@dataclass(frozen=True)
class Missing:
    """Everything that a set-up has to do, in the order in which it is done."""

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
        parts += [f"{name} as the sources now make it" for module in self.modules for name in module.packages]
        parts += [f"the {name} image" for name in self.images]
        return "; ".join(parts) or "nothing"

    def disk_needs(self) -> list[Need]:
        """What will be written where."""
        needs = [Need(Path("/usr"), disk.packages_size(self.packages))] if self.packages else []
        if self.modules:
            caches = sum(disk.GO_MODULES[module.name] for module in self.modules)
            needs.append(Need(Path(go.home()), caches))
            if go.find() is None:
                needs.append(Need(cache.own(), disk.GO_TOOLCHAIN))
        if self.images:
            needs.append(Need(engine_data(), sum(map(disk.image_size, self.images)) + self._program_size()))
        if any(name.startswith("base") for name in self.images):
            needs.append(Need(base_image.WORK, disk.BASE_WORK))
        return needs

    def _program_size(self) -> int:
        """Bytes of the user's program in the images that are missing. Raises ``MissingRequirementError``."""
        own = self.store.image
        if own.binary is None or not {own.name, own.label} & set(self.images):
            return 0
        return len(own.binary.content())


def look(store: Store = DEFAULT) -> Missing:
    """What is missing now for runs of a store, and of the default one. Starts and changes nothing."""
    version = binaries.go_version()
    modules = sources.modules()
    if (own := store.image.module) is not None and own not in modules:
        modules = (own, *modules)
    if version is None:
        stale = modules
    else:
        stale = tuple(module for module in modules if programs.find(module, version) is None)
    running = engine.is_reachable()
    present = images.present() if running else set()
    required = None
    absent: list[str] = []
    bases: dict[str, str] = {}
    if version is None:
        absent = list(dict.fromkeys((store.image.name, "etcd", "benchmark")))
        bases[images.base_tag()] = "base"
    else:
        lacking = [recipe for recipe in images.recipes(version, store) if recipe.tag not in present]
        required = images.required_images(store)
        absent = [recipe.name for recipe in lacking]
        bases = {recipe.base: f"base of {recipe.name}" if recipe.packages else "base" for recipe in lacking}
    absent = [name for tag, name in bases.items() if tag not in present] + absent
    fetched = [file for file in store.image.files if absent and downloads.find(file) is None]
    return Missing(tuple(packages.missing()), not running, stale, tuple(absent), required, store, tuple(fetched))


def engine_data() -> Path:
    """Where the engine keeps its images."""
    if engine.is_reachable():
        return Path(engine.facts().get("DockerRootDir") or _ENGINE_DATA)
    return _ENGINE_DATA
