"""A program: `containernet-env worker ADDRESS` as it is, on testbeds of fakes; for tests with workers to kill.

Arguments: the scheduler's address, a folder for what a machine has (lock, cache), and more for `worker`. While the file
``hold`` is in that folder, the second benchmark of this process and those after it do not end before they are to;
``begun-PID-N`` is there once its Nth benchmark has begun.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env import cli
from containernet_env.base import cache
from containernet_env.load.server import Answer
from containernet_env.runs import lock
from containernet_env.runs import measure as measure_module
from containernet_env.runs.observer import Observer
from containernet_env.sweep import serving
from tests.unit.matrix_fakes import result_of
from tests.unit.run_fakes import FakeTestbed, on_fakes


def machine(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """This process is a machine of its own: with fakes for testbeds, its lock and its cache in ``folder``."""
    on_fakes(patch)
    patch.setattr(serving, "require_root", lambda: None)
    patch.setattr(serving.clean, "remove_leftovers", lambda: SimpleNamespace(removed=()))
    patch.setattr(lock, "PATH", folder / "lock")
    patch.setattr(cache, "own", lambda: folder)
    patch.setattr(
        measure_module, "Observer", lambda testbed, progress, on_event, *_: Observer(testbed, progress, on_event)
    )


def main() -> None:
    address, folder, *more = sys.argv[1:]
    place, asked, plain = Path(folder), 0, FakeTestbed.__init__

    def answer(path: str, body: dict[str, Any]) -> Answer:
        nonlocal asked
        asked += 1
        (place / f"begun-{os.getpid()}-{asked}").touch()
        while asked > 1 and (place / "hold").exists():
            for stop in list(vars(serving.RUNNING)["_stops"].values()):
                stop.check()
            time.sleep(0.01)
        return Answer(result_of(), None)

    def made(self: FakeTestbed, *arguments: Any, **named: Any) -> None:
        plain(self, *arguments, **named)
        self.server.behave = answer

    patch = pytest.MonkeyPatch()
    machine(patch, place)
    patch.setattr(FakeTestbed, "__init__", made)
    patch.setattr(platform, "node", lambda: place.name)
    cli.main(["worker", address, *more])


if __name__ == "__main__":
    main()
