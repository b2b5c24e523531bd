"""Replicas (replicas_image) as processes on loopback, as external clusters; ended by process id."""

from __future__ import annotations

from pathlib import Path

from bench.load.services import REPLICAS, Service
from containernet_env.base import programs
from containernet_env.runs.progress import Silent
from containernet_env.setup import builds
from containernet_env.setup.commands import Steps
from containernet_env.stores import replicas

COUNT = 3


class Replicas(Service):
    """Three of them, up within the ``with`` block."""

    def __init__(self, program: Path, folder: Path) -> None:
        super().__init__(REPLICAS, program, COUNT, folder)

    def _arguments(self, i: int) -> list[str]:
        return [*super()._arguments(i), "--unsafe-no-fsync"]

    @property
    def urls(self) -> list[str]:
        return [f"http://{endpoint}" for endpoint in self.endpoints]

    def status(self, key: str) -> int:
        """Of a GET of a key, at the first replica, with the newest version of all."""
        return self.ask("GET", 0, f"/v0/entity?id={key.replace('/', '%2F')}&from={COUNT}")


def built(folder: Path) -> Path | None:
    """The program, built where it is not there yet; ``None`` where there is no Go to build it with."""
    module = replicas.MODULE
    if (found := programs.find(module)) is None and (toolchain := builds.find()) is not None:
        steps = Steps(Silent(), folder)
        with steps.step("replicas") as step:
            found = builds.build(module, toolchain, steps.commands, step.log)
    return None if found is None else found / "replicas"
