"""A process: `containernet-env worker ADDRESS` as it is, on testbeds of fakes; for tests with workers to kill."""

from __future__ import annotations

import os
import platform
import warnings
from pathlib import Path
from typing import Any

import pytest

from containernet_env import cli
from containernet_env.base import assets, clock
from containernet_env.runs import lock
from containernet_env.runs.load import Answer
from containernet_env.runs.sweep import worker
from tests.unit.fakes import GOOD, on_fakes


def main(address: str, place: Path, *more: str) -> None:
    """The whole life of the process. ``place``: what a machine has (lock, cache); ``more``: words for `worker`.

    While the file ``hold`` is there, the second benchmark of this process and those after it do not end before they are
    to; ``begun-PID-N`` is there once its Nth benchmark has begun. What it prints is in ``log``.
    """
    with (place / "log").open("w") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    warnings.simplefilter("error", SyntaxWarning)
    asked, patch = 0, pytest.MonkeyPatch()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        nonlocal asked
        asked += 1
        (place / f"begun-{os.getpid()}-{asked}").touch()
        while asked > 1 and (place / "hold").exists():
            for stop in list(worker.RUNNING.stops.values()):
                stop.check()
            clock.sleep(0.01)
        return GOOD

    # This process is a machine of its own, with fakes for testbeds.
    patch.setattr(on_fakes(patch), "answer", answer)
    patch.setattr(worker, "require_root", lambda: None)
    patch.setattr(lock, "PATH", place / "lock")
    patch.setattr(assets, "own", lambda: place)
    patch.setattr(platform, "node", lambda: place.name)
    cli.main(["worker", address, *more])
