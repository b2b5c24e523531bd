"""Every fault at every moment of a run on a simulated machine: see ``tests.faults.simulated``."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.base.http import NoAnswerError
from containernet_env.stores.etcd.cluster import EtcdCluster, EtcdMember
from tests.faults.simulated import FAULTS, carry_out, strike_anywhere
from tests.faults.table import FINISHED, SCENARIOS, TEAR_DOWN, WRITE, Cell, Promise, cells
from tests.simulated_time import chosen

LONG = os.environ.get("CONTAINERNET_ENV_SEEDS") == "long"
SEEDS = 20 if LONG else 1
"""For each cell; ``CONTAINERNET_ENV_SEED`` takes others."""

ANYWHERE = 200 if LONG else 1
"""Likewise, of each fault that strikes at any step."""
STRIKE_ANYWHERE = [
    *(f"driver-{name}" for name in ("int", "term", "kill")),
    *(f"{name}-kill" for name in ("emulator", "server", "client", "follower", "leader", "two-members", "engine")),
    *("emulator-stop", "server-stop", "client-stop", "engine-term", "few-descriptors", "few-processes"),
]

_NO_ANSWER = r"Error: the Docker engine at \S+ does not answer \(waited \d+ s\).*Restart the engine, then run `contai"
_ENDED = r"the Docker engine at \S+ has ended; "
_ROW = rf"^{_ENDED}its containers etcd1, etcd2, etcd3, benchmark may still run\. Start the engine"
BESIDES = [
    # Nothing of a scenario needs the engine.
    *(
        Cell("engine-stop", moment, Promise("", (1,), (FINISHED,) * len(SCENARIOS), says=_NO_ANSWER))
        for moment in (*SCENARIOS, TEAR_DOWN)
    ),
    Cell(
        "engine-kill",
        WRITE,
        Promise("", (1,), (_ROW, *[f"^not run: {_ENDED}"] * 2), rf"Error: {_ENDED}.* their processes have been ended"),
    ),
]
"""Cells that are in no document: what more holds of some, and a fault that takes minutes in real time."""

CELLS = [cell for cell in cells() if cell.promise is not None and cell.fault in FAULTS]


def for_each_seed(number: int, folder: Path, run: Callable[[Path, int], None]) -> None:
    for seed in chosen(number):
        try:
            run(folder / str(seed), seed)
        except BaseException as error:
            error.add_note(f"seed {seed}: CONTAINERNET_ENV_SEED={seed} replays it")
            raise


@pytest.mark.parametrize("cell", [*CELLS, *BESIDES], ids=lambda cell: cell.name)
def test_fault(cell: Cell, tmp_path: Path) -> None:
    for_each_seed(SEEDS, tmp_path, lambda folder, seed: carry_out(cell, folder, seed))


@pytest.mark.parametrize(
    ("fault", "preempt"), [*((fault, 0.0) for fault in STRIKE_ANYWHERE), ("driver-int", 0.01), ("driver-kill", 0.01)]
)
def test_a_run_is_struck_anywhere(fault: str, preempt: float, tmp_path: Path) -> None:
    for_each_seed(ANYWHERE, tmp_path, lambda folder, seed: strike_anywhere(fault, folder, seed, preempt))


@pytest.mark.simulated
def test_a_driver_without_descriptors_takes_no_member_for_silent_while_the_cluster_starts() -> None:
    def refused(*_: object, **__: object) -> None:
        raise NoAnswerError("POST on port 2379") from OSError(errno.EMFILE, "Too many open files")

    connection = SimpleNamespace(request_json=refused)
    place: Any = SimpleNamespace(
        ip="10.0.0.1", host=SimpleNamespace(name="etcd1"), connection=connection, endpoint=None
    )
    cluster = EtcdCluster([EtcdMember(place)])
    assert list(cluster.statuses().values()) == [None]
    with pytest.raises(RunError, match="gives this process no more open files"):
        cluster.statuses(starting=True)
    cluster.close()
