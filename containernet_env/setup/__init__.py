"""The set-up of a machine for runs; steps that are complete are skipped."""

from __future__ import annotations

import os

from containernet_env.base import assets
from containernet_env.base.assets import GoModule
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.work import Progress, Stop
from containernet_env.setup import builds, dockerd, images, missing, packages
from containernet_env.setup.commands import Steps, only_one
from containernet_env.setup.images import Images
from containernet_env.setup.missing import Missing
from containernet_env.stores.kinds import DEFAULT
from containernet_env.stores.store import Store


def is_ready() -> bool:
    """Whether a run can start: packages, engine, and programs and images made from the present sources."""
    return not missing.detect()


def ready_images(store: Store = DEFAULT, report: Progress | None = None, stop: Stop | None = None) -> Images:
    """The required images of a run of this store.

    With a ``report``, images of a store other than the default one are made first, as by `set_up`.
    Raises ``MissingRequirementError`` naming the missing parts.
    """
    found = missing.detect(store)
    if found and report is not None and is_ready():
        set_up(report, store, stop)
        found = missing.detect(store)
    if found or found.required is None:
        raise MissingRequirementError(f"the set-up is not complete; missing: {found}", assets.set_up_hint())
    return found.required


def set_up(report: Progress, store: Store = DEFAULT, stop: Stop | None = None) -> bool:
    """Install, build and start the missing parts for runs of this store and the default one; whether any was missing.

    A signal ends it in the main thread, ``stop`` in any. Raises ``MissingRequirementError`` with a remedy, and
    ``Interrupted`` if ``stop`` is set. The next set-up finishes an interrupted one.
    """
    if not missing.detect(store):
        return False
    if os.geteuid() != 0:
        raise MissingRequirementError(
            "the set-up installs packages and starts the Docker engine, which needs root",
            "Run it with sudo, or as root.",
        )
    stop = stop or Stop()
    with only_one(report.note, stop=stop):
        # Checked again: another set-up may have completed it while this one waited.
        if found := missing.detect(store):
            _Work(found, Steps(report, assets.logs(), stop)).run()
    return True


class _Work:
    """One set-up in progress."""

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
        self._missing = missing.detect(self._missing.store)
        # In parallel: the base image waits for network and dpkg, compilers need CPU time.
        jobs = [self._base_images] if any(name.startswith("base") for name in self._missing.images) else []
        if self._missing.modules:
            jobs.append(self._programs)
        if self._missing.files:
            jobs.append(self._files)
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
        toolchain = builds.find()
        if toolchain is None:
            with self._steps.step("go") as step:
                toolchain = builds.ensure(self._steps.commands, step.log)
                step.done(f"{toolchain.version} into the cache")
        for module in self._missing.modules:
            self._program(module, toolchain)

    def _program(self, module: GoModule, toolchain: builds.Go) -> None:
        with self._steps.step(module.label) as step:
            store = self._missing.store
            if store.setup_note is not None and module == store.image.module:
                step.note(store.setup_note)
            builds.build(module, toolchain, self._steps.commands, step.log)
            version = f" {module.version or module.pinned}" if module.version or module.pinned else ""
            step.done(f"built {', '.join(module.packages)}{version} with {toolchain.version}")

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
