"""Every fault at every moment of a run: it ends as promised, no row is lost or there twice, and nothing is left."""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.deadline import eventually
from tests.docker.machine_state import left_over, more_than, snapshot
from tests.faults.faults import FAULTS
from tests.faults.files import check_kept, check_next
from tests.faults.harness import LOCK, Run, tool
from tests.faults.own_engine import OwnEngine
from tests.faults.table import BRING_UP, ON_OWN_ENGINE, REAL, TEAR_DOWN, Cell, cells

pytestmark = pytest.mark.docker

_CONTAINERS_ONLY = {"containers", "all containers", "namespaces", "cgroups", "mounts", "processes"}


def _parameters() -> list[Any]:
    """The cells that make sense; those that are not of the gate are marked as long."""
    sensible = [cell for cell in cells() if cell.promise is not None]
    marks = {cell: () if cell.name in REAL.values() else pytest.mark.long for cell in sensible}
    return [pytest.param(cell, id=cell.name, marks=marks[cell]) for cell in sensible]


@pytest.mark.parametrize("cell", _parameters())
def test_fault(cell: Cell, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if cell.gate and os.environ.get(cell.gate) != "1":
        pytest.skip(f"{cell.gate}=1 allows it: it meets the whole machine")
    with ExitStack() as stack:
        own = None
        if cell.fault in ON_OWN_ENGINE and cell.moment != BRING_UP:
            own = request.getfixturevalue("own_engine")
        before = snapshot()
        if cell.fault in ON_OWN_ENGINE and own is None:
            # An engine forgets a container that it was starting when it was killed: what runs of it ends with this one.
            own = stack.enter_context(OwnEngine())
        elif own is not None:
            stack.callback(lambda: before["namespaces"].add(own.network_namespace()))  # it has been started again
        run = Run(tmp_path, own, cell.moment)
        try:
            strike(run, cell)
        except BaseException:
            run.stop()
            raise
    assert left_over(before) == {}


def strike(run: Run, cell: Cell) -> None:
    """Carry out a run that is struck, and see that it ends as promised."""
    promise = cell.promise
    assert promise is not None
    with closing(FAULTS[cell.fault](run)) as fault:
        next(fault)
        before = snapshot()
        run.start()
        run.reach(cell.moment)
        next(fault)
        run.check_within(cell.moment)
        run.resume()
        status, said = run.wait()
        check_kept(run.files, promise, cell.moment, status, said)
        if status == -signal.SIGKILL:
            assert_only_containers_stay(before)
            next_run_cleans_up(run, cell)
        next(fault, None)
    status, text = tool("clean")
    assert status == 0 and "nothing was left behind" in text, f"{text}\n{said}"
    # Its holder empties it; what is in it was left by a process that was killed.
    assert not _locked(), "the lock is still held"


def assert_only_containers_stay(before: dict[str, set[str]]) -> None:
    """Of a driver that was killed nothing runs on but its containers."""

    def only_they() -> bool:
        left = more_than(before)
        ours = {name for name in left.get("processes", ()) if "link-emulator" in name or "containernet-env" in name}
        return not ours and set(left) <= _CONTAINERS_ONLY

    eventually(only_they, "all but the containers ends with the driver")


def next_run_cleans_up(run: Run, cell: Cell) -> None:
    """A run that follows one that was killed removes what is left, and appends its rows to the same file."""
    earlier = run.files.rows()
    following = Run(run.files.folder / "next")
    following.files.out = run.files.out
    following.files.only(1)
    following.start()
    status, said = following.wait()
    assert status == 0, said
    assert cell.moment == TEAR_DOWN or "left behind" in said, said
    check_next(earlier, following.files.rows())


def _locked() -> bool:
    with LOCK.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
