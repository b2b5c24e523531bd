"""Sweeps on the workers of a simulated Dask cluster: who measures what, and what is kept where something is lost.

``tests/local/test_sweep_workers.py`` has some of them with a real scheduler and real worker processes.
"""

from __future__ import annotations

import errno
import os
import signal
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import cache, clock
from containernet_env.base.errors import Interrupted, MissingRequirementError, RunError, UsageError
from containernet_env.base.stop import Stop
from containernet_env.results import csv_file
from containernet_env.results.checksums import check
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.setup import binaries
from containernet_env.sweep import at_worker, serving, workers
from containernet_env.sweep.journal import Journal
from containernet_env.sweep.runner import Counts, Until
from tests.simulated_time import World, simulated
from tests.unit.run_fakes import rows
from tests.unit.simulated_dask import CELLS, Dask, Machine, simulate, sweep_on, when
from tests.unit.sweep_fakes import Notes, lines, measured


def directories(out: Path) -> dict[str, Path]:
    return {path.name: path for path in out.with_suffix(".runs").iterdir()}


def assert_each_once(out: Path, cells: int = CELLS) -> None:
    assert len(measured(out)) == cells and set(measured(out).values()) == {1}
    for path in directories(out).values():
        checked = check(path)
        assert checked is not None and not checked.changed


@simulated(seeds=3)
def test_one_of_two_workers_is_killed_and_each_cell_is_measured_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, notes = fresh(tmp_path, monkeypatch), Notes()
    _, (a, _) = simulate(world, out.parent, monkeypatch, "node1", "node2")
    a.hold = True
    when(world, lambda: a.begun == 2, a.kill)
    counts = sweep_on(out, notes, repeat=2).carry_out(notes, Stop())
    assert sweep_on(out, notes, repeat=2).carry_out(notes, Stop()) == counts == Counts(2 * CELLS, 0, 0)
    assert_each_once(out, 2 * CELLS)
    assert Counter(row["Machine"] for row in rows(out)) == {"node1": 1, "node2": 2 * CELLS - 1}
    assert {row["Valid"] for row in rows(out)} == {"yes"} and not any("torn" in note for note in notes.notes)
    assert any(note.startswith("node1/") and "was lost" in note for note in notes.notes), notes.notes
    begun = lines(out, "run")
    assert len({run["run"] for run in begun}) == len(begun) == 7
    assert sorted(notes.ended) == sorted({(cell, run["repetition"]) for run in begun for cell in run["cells"]})
    of_b = {row["RunId"] for row in rows(out) if row["Machine"] == "node2"}
    assert directories(out).keys() == of_b and len(of_b) == 6


def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """OUT in a folder of its own, for each seed of a test; what the seed before has patched is undone."""
    monkeypatch.undo()
    folder = tmp_path / f"seed{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return folder / "out.csv"


@simulated()
def test_each_machine_measures_whole_blocks(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is slower than another one is then slower in all cells alike."""
    out, notes = tmp_path / "out.csv", Notes()
    simulate(world, tmp_path, monkeypatch, "node1", "node2")
    assert sweep_on(out, notes, repeat=2).carry_out(notes, Stop()) == Counts(2 * CELLS, 0, 0)
    blocks = {(row["Machine"], row["Repetition"]) for row in rows(out)[: CELLS + 3]}
    assert blocks == {("node1", "1"), ("node2", "2")}
    assert_each_once(out, 2 * CELLS)


@simulated(seeds=3)
def test_ctrl_c_ends_what_runs_on_workers_and_the_same_command_goes_on(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, notes, stop = fresh(tmp_path, monkeypatch), Notes(), Stop()
    _, (a,) = simulate(world, out.parent, monkeypatch, "node1")
    a.hold = True
    when(world, lambda: a.begun == 2, lambda: stop.request(signal.SIGINT))
    with pytest.raises(Interrupted):
        sweep_on(out, notes).carry_out(notes, stop)
    assert len(rows(out)) == 1 and len(directories(out)) == 1 and a.running is None
    a.hold = False
    assert sweep_on(out, notes).carry_out(notes, Stop()) == Counts(CELLS, 0, 0)
    assert_each_once(out)


@simulated(seeds=3)
def test_a_worker_that_is_ended_gives_back_what_it_has(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, notes = fresh(tmp_path, monkeypatch), Notes()
    dask, (a, _) = simulate(world, out.parent, monkeypatch, "node1", "node2")
    a.hold = True
    when(world, lambda: a.begun == 2, a.end)
    assert sweep_on(out, notes).carry_out(notes, Stop()) == Counts(CELLS, 0, 0)
    assert list(dask.machines) == ["tcp://node2:1"] and {row["Machine"] for row in rows(out)} == {"node1", "node2"}
    assert_each_once(out)


@simulated()
def test_a_worker_that_comes_later_measures_too(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    dask, (a,) = simulate(world, tmp_path, monkeypatch, "node1")
    a.hold = True
    later: list[Machine] = []
    when(world, lambda: a.begun == 2, lambda: later.append(Machine(dask, "node2")))
    when(world, lambda: bool(later) and later[0].begun == 6, lambda: setattr(a, "hold", False))
    assert sweep_on(out, notes).carry_out(notes, Stop()) == Counts(CELLS, 0, 0)
    assert Counter(row["Machine"] for row in rows(out)) == {"node1": 3, "node2": 6}
    assert any(note.startswith("node2/") and note.endswith("measures, too") for note in notes.notes)
    assert_each_once(out)


@simulated()
def test_cells_are_repeated_on_several_machines_until_their_median_is_known(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, notes, until = tmp_path / "out.csv", Notes(), Until(0.05)
    simulate(world, tmp_path, monkeypatch, "node1", "node2")
    for _ in range(2):  # and no more, once it is
        found = sweep_on(out, notes, "clients=5,10", until=until).carry_out(notes, Stop())
        assert found == Counts(6 * 2, 0, 0, 0)
    assert_each_once(out, 6 * 2)
    assert {row["Machine"] for row in rows(out)} == {"node1", "node2"}


# --- what is lost -----------------------------------------------------------------------------------------------------


@simulated(seeds=3)
def test_rows_that_came_before_their_worker_was_lost_are_kept(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were waiting in the sweep's queue when it found the worker gone."""
    out, notes = fresh(tmp_path, monkeypatch), Notes()
    dask, (a,) = simulate(world, out.parent, monkeypatch, "node1")
    a.hold, there = True, workers.Workers._there

    def look(self: workers.Workers) -> Any:
        if vars(self)["_measuring"] and a.address in dask.machines:
            world.wait(lambda: a.begun == 2)
            Machine(dask, "node2")
            a.kill()
        return there(self)

    monkeypatch.setattr(workers.Workers, "_there", look)
    assert sweep_on(out, notes).carry_out(notes, Stop()) == Counts(CELLS, 0, 0)
    assert Counter(row["Machine"] for row in rows(out)) == {"node1": 1, "node2": CELLS - 1}
    assert_each_once(out)


def hang(dask: Dask) -> None:
    dask.hangs = True


@pytest.mark.parametrize("lose", [Dask.lose, hang])
@simulated(seeds=3)
def test_a_lost_scheduler_ends_the_sweep_and_rows_that_came_are_kept(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Callable[[Dask], None]
) -> None:
    """Also where its machine hangs and connections stand: a sweep waited for it forever, whatever was pressed."""
    out, notes = fresh(tmp_path, monkeypatch), Notes()
    dask, (a,) = simulate(world, out.parent, monkeypatch, "node1")
    a.hold = True
    when(world, lambda: a.begun == 2, lambda: lose(dask))
    with pytest.raises(RunError, match=r"scheduler at tcp://127.* was lost during the sweep.*\n.*goes on"):
        sweep_on(out, notes).carry_out(notes, Stop())
    assert len(rows(out)) == 1 and set(measured(out).values()) == {1}


@simulated()
def test_a_sweep_that_has_lost_all_workers_waits_a_minute_for_another_one(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    dask, (a,) = simulate(world, tmp_path, monkeypatch, "node1")
    lost_s: list[float] = []
    when(world, lambda: a.begun == 2, lambda: (a.kill(), lost_s.append(clock.monotonic())))
    with pytest.raises(RunError, match=r"no worker is left at tcp://.*the same command goes on"):
        sweep_on(out, notes).carry_out(notes, Stop())
    assert 60 <= clock.monotonic() - lost_s[0] <= 64
    Machine(dask, "node2")
    assert sweep_on(out, notes).carry_out(notes, Stop()) == Counts(CELLS, 0, 0)
    assert len(measured(out)) == CELLS and set(measured(out).values()) == {1}


@simulated()
def test_a_task_that_fails_by_a_lost_connection_does_not_end_the_course(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An OSError of the worker's own was taken for one on the way to it, and waited for ever."""
    out, notes = tmp_path / "out.csv", Notes()
    simulate(world, tmp_path, monkeypatch, "node1")

    def fails(_: at_worker.Task) -> None:
        raise ConnectionResetError("connection reset")

    monkeypatch.setattr(workers, "run_task", fails)
    assert sweep_on(out, notes, "clients=5", tries=2).carry_out(notes, Stop()) == Counts(0, 0, 1)
    assert any("connection reset" in note for note in notes.notes), notes.notes


@simulated(seeds=3)
def test_ctrl_c_does_not_wait_for_the_testbed_of_another_sweep(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that its worker had not begun was not asked to end, and then measured after all."""
    first = fresh(tmp_path, monkeypatch)
    second = first.with_name("second.csv")
    notes, others, stop = Notes(), Notes(), Stop()
    _, (a,) = simulate(world, first.parent, monkeypatch, "node1")
    a.hold = True
    sweep = sweep_on(first, notes)
    measuring = clock.Thread(target=sweep.carry_out, args=(notes, Stop()))
    measuring.start()
    world.wait(lambda: a.begun == 2)
    when(world, lambda: bool(a.todo), lambda: stop.request(signal.SIGINT))
    with pytest.raises(Interrupted):
        sweep_on(second, others).carry_out(others, stop)
    a.hold = False
    measuring.join()
    assert_each_once(first)
    assert not second.exists() or not rows(second)


@simulated(seeds=2)
def test_rows_that_a_full_disk_refuses_are_printed_and_measured_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that come while the sweep ends its workers, too."""
    out, notes = fresh(tmp_path, monkeypatch), Notes()
    append = csv_file.append_whole
    simulate(world, out.parent, monkeypatch, "node1", "node2")

    def full(fd: int, data: bytes, **named: Any) -> None:
        # The workers' own files are on other disks.
        if os.path.samestat(os.fstat(fd), out.stat()) and len(rows(out)) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(fd, data, **named)

    with monkeypatch.context() as disk:
        disk.setattr(csv_file, "append_whole", full)
        with pytest.raises(RowsNotWrittenError, match=r"No space left on device\n  Make room") as refused:
            sweep_on(out, notes, repeat=2).carry_out(notes, Stop())
    assert len(rows(out)) == 3
    lost, printed = refused.value.rows, str(refused.value).splitlines()[-len(refused.value.rows) :]
    assert lost and [line.split(",")[0] for line in printed] == [row["TestType"] for row in lost]
    kept = measured(out) + Counter((row["ConfigHash"], row["ScenarioHash"], row["Repetition"]) for row in lost)
    assert set(kept.values()) == {1}
    assert sweep_on(out, notes, repeat=2).carry_out(notes, Stop()) == Counts(2 * CELLS, 0, 0)
    assert_each_once(out, 2 * CELLS)


@simulated()
def test_no_path_of_a_worker_is_in_what_it_sends_back(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    _, (a,) = simulate(world, tmp_path, monkeypatch, "node1")
    sweep_on(out, notes, "clients=5").carry_out(notes, Stop())
    own = os.fsencode(a.folder)
    assert own not in out.read_bytes()
    (directory,) = directories(out).values()
    assert [str(path) for path in directory.rglob("*") if path.is_file() and own in path.read_bytes()] == []


# --- who may measure --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "theirs", "refused"),
    [
        ({}, [{}], None),
        ({"commit": "0123456789ab"}, [{"commit": "x"}], r"node1/1 has commit x, here 0123456789ab"),
        ({"Go": "go1.26.8"}, [{"Go": "go1.26.8"}, {"Go": "go1.26.8"}], None),
        ({"Go": "go1.26.8"}, [{"Go": "go1.26.8"}, {"Go": "go1.26.6"}], r"node2/1 has Go go1\.26\.6, here go1\.26\.8"),
        # A machine without Go builds nothing: its workers are to agree with each other.
        ({"Go": "unknown"}, [{"Go": "go1.26.8"}, {"Go": "go1.26.8"}], None),
        ({"Go": "unknown"}, [{"Go": "go1.26.8"}, {"Go": "go1.26.6"}], r"node2/1 has Go go1\.26\.6, here go1\.26\.8"),
        ({}, [None], "is none that `containernet-env worker` started"),
        ({}, [], r"no worker is at .*\n.*containernet-env worker tcp://127"),
    ],
)
@simulated()
def test_versions_are_compared_before_the_first_cell(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: Any, theirs: list[Any], refused: str | None
) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    dask, found = simulate(world, tmp_path, monkeypatch, *(f"node{n}" for n in range(1, len(theirs) + 1)))
    dask.facts |= own
    for machine, differing in zip(found, theirs, strict=True):
        machine.facts = None if differing is None else machine.facts | differing
    sweep = sweep_on(out, notes, "clients=5")
    if refused is None:
        assert sweep.carry_out(notes, Stop()) == Counts(1, 0, 0)
        return
    with pytest.raises(MissingRequirementError, match=refused):
        sweep.carry_out(notes, Stop())
    assert not out.exists()


def test_what_a_worker_builds_with_is_one_of_its_facts() -> None:
    assert at_worker.facts()["Go"] == (binaries.go_version() or "unknown")


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_journal_belongs_to_one_sweep_at_a_time(tmp_path: Path) -> None:
    """No lock of a machine keeps two sweeps apart that measure elsewhere."""
    first = Journal(tmp_path / "out.sweep.jsonl")
    with pytest.raises(UsageError, match=r"out\.sweep\.jsonl is that of a sweep that is on"):
        Journal(tmp_path / "out.sweep.jsonl")
    first.close()
    Journal(tmp_path / "out.sweep.jsonl").close()


RUN = "20261122T000000Z-abcdef"


@pytest.mark.parametrize(
    ("name", "files", "words"),
    [
        (RUN, {"manifest.json": b"{}", "checksums.sha256": b"0" * 64 + b"  manifest.json\n"}, "json (changed)"),
        (RUN, {"manifest.json": b"{}"}, "has no checksums"),
        (RUN, {"../../out.csv": b"other"}, "was left out"),
        *((name, {"out.csv": b"other"}, "was left out") for name in (
            "..", ".", "", "a/..", "20261122T000000Z-other0", f"{RUN}\0",
        )),
    ],
)  # fmt: skip
def test_a_run_directory_that_is_not_what_was_sent_is_told_and_goes_nowhere_else(
    name: str, files: dict[str, bytes], words: str, tmp_path: Path
) -> None:
    out = tmp_path / "a" / "out.csv"
    out.parent.mkdir()
    out.write_text("rows")
    found = at_worker.Directory(name, tuple(files.items())).write(out, "abcdef")
    assert found is not None and words in found and out.read_text() == "rows"
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != out]
    assert all(path.parent == out.with_suffix(".runs") / RUN and path.name in files for path in written)


def test_files_of_killed_workers_go_with_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "own", lambda: tmp_path / "cache")
    home = tmp_path / "cache" / "workers"
    dead = home / f"{uuid.UUID(int=1)}_1_1"
    (dead / "dask-scratch-space").mkdir(parents=True)
    (home / "somebody's").mkdir()
    with serving._scratch() as folder:
        assert sorted(home.iterdir()) == sorted([folder, home / "somebody's"])
        (folder / "file").touch()
    assert list(home.iterdir()) == [home / "somebody's"]
