"""The set-up of a machine for runs: the parts that it lacks, and how they get there. What is complete is skipped."""

from __future__ import annotations

import os
from dataclasses import dataclass

from containernet_env.base import assets, programs
from containernet_env.base.assets import GoModule
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.work import Progress, Stop
from containernet_env.hosts import engine
from containernet_env.setup import builds, dockerd, images, packages
from containernet_env.setup.commands import Steps, only_one
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
    required: Images | None = None
    store: Store = DEFAULT
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
    recipes = images.recipes(version or "", store)
    required = None if version is None else Images(recipes[0].tag, recipes[1].tag)
    lacking = [recipe for recipe in recipes if recipe.tag not in present]
    bases = {recipe.base: f"base of {recipe.name}" if recipe.packages else "base" for recipe in lacking}
    absent = [name for tag, name in bases.items() if tag not in present] + [recipe.name for recipe in lacking]
    fetched = [file for file in store.image.files if absent and images.find(file) is None]
    return Missing(tuple(packages.missing()), not running, stale, tuple(absent), required, store, tuple(fetched))


def is_ready() -> bool:
    """Whether a run can start: packages, engine, and programs and images made from the present sources."""
    return not detect()


def ready_images(store: Store = DEFAULT, report: Progress | None = None, stop: Stop | None = None) -> Images:
    """The required images of a run of this store.

    With a ``report``, images of a store other than the default one are made first, as by `set_up`.
    Raises ``MissingRequirementError`` naming the missing parts.
    """
    found = detect(store)
    if found and report is not None and is_ready():
        set_up(report, store, stop)
        found = detect(store)
    if found or found.required is None:
        raise MissingRequirementError(f"the set-up is not complete; missing: {found}", assets.set_up_hint())
    return found.required


def set_up(report: Progress, store: Store = DEFAULT, stop: Stop | None = None) -> bool:
    """Install, build and start the missing parts for runs of this store and the default one; whether any was missing.

    A signal ends it in the main thread, ``stop`` in any. Raises ``MissingRequirementError`` with a remedy, and
    ``Interrupted`` if ``stop`` is set. The next set-up finishes an interrupted one.
    """
    if not detect(store):
        return False
    if os.geteuid() != 0:
        raise MissingRequirementError(
            "the set-up installs packages and starts the Docker engine, which needs root",
            "Run it with sudo, or as root.",
        )
    stop = stop or Stop()
    with only_one(report.note, stop=stop):
        # Checked again: another set-up may have completed it while this one waited.
        if found := detect(store):
            _Work(found, Steps(report, assets.logs(), stop)).run()
    return True


class _Work:
    def __init__(self, found: Missing, steps: Steps) -> None:
        self._missing, self._steps = found, steps

    def run(self) -> None:
        if self._missing.packages:
            self._steps.run(self._packages)
        if self._missing.engine:
            self._steps.run(self._engine)
        else:
            dockerd.ensure_running()
        # Checked again: the list of images needs a running engine.
        self._missing = detect(self._missing.store)
        # In parallel: the base image waits for network and dpkg, compilers need CPU time.
        jobs = [self._base_images] if any(name.startswith("base") for name in self._missing.images) else []
        jobs += [self._programs] if self._missing.modules else []
        jobs += [self._files] if self._missing.files else []
        self._steps.run(*jobs)
        self._steps.run(self._images)

    def _engine(self) -> None:
        with self._steps.step("engine") as step:
            step.done(dockerd.ensure_running(step.note))

    def _packages(self) -> None:
        with self._steps.step("packages") as step:
            packages.install(self._missing.packages, self._steps.commands, step.log, step.note)
            step.done(f"installed {', '.join(self._missing.packages)}")

    def _programs(self) -> None:
        store, modules = self._missing.store, self._missing.modules
        if store.setup_note is not None and store.image.module in modules:
            self._steps.note(store.setup_note)
        builds.build_missing(modules, self._steps)

    def _files(self) -> None:
        files, own = self._missing.files, self._missing.store.image
        with self._steps.step(f"{own.label} files") as step:
            for file in files:
                images.fetch(file, self._steps.commands.stopping)
            step.done(f"fetched {', '.join(file.name for file in files)}")

    def _base_images(self) -> None:
        own = self._missing.store.image
        for name, more in {"base image": (), f"base of {own.name}": own.packages}.items():
            tag = images.base_tag(more)
            if tag in images.present():
                continue
            with self._steps.step(name) as step:
                how = images.make(tag, self._steps.commands, step.log, step.note, more)
                step.done(f"{tag}, {how}")

    def _images(self) -> None:
        version = builds.go_version()
        assert version is not None, "every program has been built"
        recipes = images.recipes(version, self._missing.store)
        for recipe in recipes:
            if recipe.tag in images.present():
                continue
            with self._steps.step(f"{recipe.name} image") as step:
                images.build(recipe, self._steps.commands.stopping, step.log)
                step.done(recipe.tag)
        keep = {images.base_tag(), *(tag for recipe in recipes for tag in (recipe.tag, recipe.base))}
        if removed := images.remove_older(keep):
            with self._steps.step("older") as step:
                step.done(f"removed {', '.join(removed)}")
