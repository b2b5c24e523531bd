"""Every fault at every moment of a run: it ends as promised, no row is lost or there twice, and nothing is left."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.docker.machine_state import left_over, snapshot
from tests.faults.faults import FAULTS, FILLING
from tests.faults.harness import LOCK, RUN_DEADLINE_S, SLOW_RUN_DEADLINE_S, Run, tool
from tests.faults.moments import Missed
from tests.faults.own_engine import OwnEngine
from tests.faults.table import BRING_UP, FINISHED, ON_OWN_ENGINE, SCENARIOS, TEAR_DOWN, Cell, Promise, cells, short

pytestmark = pytest.mark.docker

# A moment may be over before its fault strikes, on a machine that is busy otherwise.
_ATTEMPTS = 3
# After kill -9: everything but containers ends with the driver.
_ORPHANS_END_S = 2.0
_CONTAINERS_ONLY = {"containers", "all containers", "namespaces", "cgroups", "mounts", "processes"}


_SHORT = short()


def _parameters() -> list[Any]:
    """The cells that make sense; those that are not of the short form are marked as long."""
    sensible = [cell for cell in cells() if cell.promise is not None]
    return [pytest.param(cell, id=cell.name, marks=() if cell in _SHORT else pytest.mark.long) for cell in sensible]


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
        _strike_at_last(cell, tmp_path, own)
    assert left_over(before) == {}


def _strike_at_last(cell: Cell, folder: Path, own: OwnEngine | None) -> None:
    """Strike a run at the moment of the cell, another one where the moment was missed."""
    for attempt in range(_ATTEMPTS):
        run = Run(folder / str(attempt), own, factor=4**attempt)
        try:
            strike(run, cell)
            run.close()
            return
        except Missed:
            run.stop()
            if attempt == _ATTEMPTS - 1:
                raise
        except BaseException:
            run.stop()
            raise


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
        run.resume()
        status, said = run.wait(SLOW_RUN_DEADLINE_S if cell.slow else RUN_DEADLINE_S)
        assert "Traceback" not in said and "Exception ignored" not in said, said
        assert status in promise.status, said
        assert re.search(promise.says, said), said
        check_rows(run, promise, cell.moment, said)
        if status == -signal.SIGKILL:
            assert_only_containers_stay(before)
            next_run_cleans_up(run, cell)
        next(fault, None)
    status, text = tool("clean")
    assert status == 0 and "nothing was left behind" in text, f"{text}\n{said}"
    # Its holder empties it; what is in it was left by a process that was killed.
    assert not _locked(), "the lock is still held"


def check_rows(run: Run, promise: Promise, moment: str, said: str) -> None:
    """Each scenario has the row that was promised, where it was promised, once."""
    kept = [row for row in run.rows() if row["Scenario"] != FILLING]
    if promise.kept == "OUT or OUT.rescued" and not run.files.out.exists():
        kept = run.rows(run.files.out.with_name(run.files.out.name + ".rescued"))
    errors: list[tuple[str, str]] = [(row["Scenario"], row["Error"]) for row in kept]
    assert len(errors) == len({name for name, _ in errors}), f"a row is there twice: {errors}"
    if promise.kept == "run directory":
        errors += [
            (line["scenario"], line["error"] or FINISHED)
            for line in run.record()
            if line["scenario"] not in dict(errors)
        ]
    if not promise.rows:
        return
    wanted = [pattern for pattern in promise.rows if pattern is not None]
    assert len(errors) == len(wanted), f"{len(wanted)} rows were promised: {errors}\n{said}"
    for pattern, (name, error) in zip(wanted, errors, strict=True):
        met = error == FINISHED if pattern == FINISHED else re.search(pattern, error)
        assert met, f"{name}: {error!r} is not {pattern!r}\n{said}"
    if promise.marked:
        # In the struck scenario or, where a silence was not long enough in it, in those into which it went on.
        lines = run.record()[SCENARIOS.index(moment) :]
        told = [text for line in lines for text in (*(found["text"] for found in line["findings"]), line["error"])]
        marks = "; ".join(filter(None, told))
        assert re.search(promise.marked, marks), f"nothing says {promise.marked!r}: {marks!r}"


def assert_only_containers_stay(before: dict[str, set[str]]) -> None:
    """Of a driver that was killed nothing runs on but its containers."""
    deadline = time.monotonic() + _ORPHANS_END_S
    while True:
        left = left_over(before, deadline_s=0)
        ours = {name for name in left.get("processes", ()) if "link-emulator" in name or "containernet-env" in name}
        if not ours and set(left) <= _CONTAINERS_ONLY:
            return
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def next_run_cleans_up(run: Run, cell: Cell) -> None:
    """A run that follows one that was killed removes what is left, and appends its rows to the same file."""
    earlier = run.rows()
    following = Run(run.files.folder / "next")
    following.files.out = run.files.out
    following.files.only(1)
    following.start()
    status, said = following.wait()
    assert status == 0, said
    assert cell.moment == TEAR_DOWN or "left behind" in said, said
    rows = following.rows()
    assert rows[: len(earlier)] == earlier
    assert [row["Error"] for row in rows[len(earlier) :]] == [FINISHED]


def _locked() -> bool:
    with LOCK.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
