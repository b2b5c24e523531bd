"""The programs of the load for runs that need nothing else: built into the user's own cache, without root."""

from __future__ import annotations

from pathlib import Path

from containernet_env.base import cache, programs, sources
from containernet_env.base.stop import Stop
from containernet_env.setup import binaries, go
from containernet_env.setup.steps import SetupReport, Steps

SERVER = "benchmark-server"


def ready_load_programs(report: SetupReport, stop: Stop | None = None) -> Path:
    """The folder with benchmark-server and its clients, built where they are not there yet.

    A signal ends a build in the main thread, ``stop`` in any. Raises ``MissingRequirementError``, and ``Interrupted``
    where ``stop`` asks for the end.
    """
    module = next(module for module in sources.modules() if SERVER in module.packages)
    found = programs.find(module)
    if found is not None:
        return found
    cache.make()
    steps = Steps(report, cache.own() / "logs", stop)

    def build() -> None:
        with steps.step("programs") as step:
            toolchain = go.ensure(steps.commands, step.log)
            folder = binaries.build(module, toolchain, steps.commands, step.log)
            step.done(f"built {', '.join(module.packages)} with {toolchain.version} into {folder}")

    steps.run(build)
    return programs.path(SERVER).parent
