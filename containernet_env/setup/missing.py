"""The parts that a machine lacks for a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from containernet_env.base import assets, programs
from containernet_env.base.assets import GoModule
from containernet_env.hosts import engine
from containernet_env.setup import builds, images, packages
from containernet_env.setup.images import Images
from containernet_env.stores.kinds import DEFAULT
from containernet_env.stores.store import Download, Store


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


def detect(store: Store = DEFAULT) -> Missing:
    """The missing parts for runs of a store, and of the default one. Starts and changes nothing."""
    version = builds.go_version()
    modules = assets.modules()
    if (own := store.image.module) is not None and own not in modules:
        modules = (own, *modules)
    running = engine.is_reachable()
    present = images.present() if running else set()
    # Without a Go, and without programs, everything has to be built.
    stale = tuple(module for module in modules if version is None or programs.find(module, version) is None)
    required = None if version is None else images.required_images(store)
    lacking = [recipe for recipe in images.recipes(version or "", store) if recipe.tag not in present]
    bases = {recipe.base: f"base of {recipe.name}" if recipe.packages else "base" for recipe in lacking}
    absent = [name for tag, name in bases.items() if tag not in present] + [recipe.name for recipe in lacking]
    fetched = [file for file in store.image.files if absent and images.find(file) is None]
    return Missing(tuple(packages.missing()), not running, stale, tuple(absent), required, store, tuple(fetched))
