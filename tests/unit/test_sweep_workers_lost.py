"""What a sweep keeps, and that it ends, where workers, their scheduler, or a network on the way to them fail it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from containernet_env.base.errors import Interrupted, RunError
from containernet_env.base.stop import Stop
from containernet_env.results import csv_file
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.sweep import at_worker, workers
from containernet_env.sweep.cluster import scheduler_at
from containernet_env.sweep.runner import Counts
from containernet_env.sweep.workers import Workers
from tests.unit.run_fakes import rows
from tests.unit.sweep_fakes import Notes, measured
from tests.unit.test_sweep_workers import CELLS, Machine, at, directories, machines, scheduler, sweep_on, wait_for

__all__ = ["scheduler"]


@contextmanager
def scheduler_process(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler to kill, and its address."""
    file = tmp_path / "scheduler.json"
    argv = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0"]
    more = ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    with subprocess.Popen([*argv, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield json.loads(wait_for(lambda: file.exists() and file.read_text()))["address"], process
        finally:
            process.kill()


def before_second_look(monkeypatch: pytest.MonkeyPatch, what: Callable[[Workers], object]) -> None:
    """Have something happen while a sweep that has given a task away looks which workers are there."""
    looked, there = 0, Workers._there

    def look(self: Workers) -> dict[str, Mapping[str, Any]]:
        nonlocal looked
        if vars(self)["_measuring"]:
            looked += 1
            if looked == 1:
                what(self)
        return there(self)

    monkeypatch.setattr(workers, "_LOOK_S", 0.0)
    monkeypatch.setattr(Workers, "_there", look)


def test_rows_that_came_before_their_worker_was_lost_are_kept(
    scheduler: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were waiting in the sweep's queue when it found the worker gone."""
    out, notes = tmp_path / "out.csv", Notes()
    a = Machine(tmp_path / "node1", scheduler.scheduler_address)
    with machines(a):
        (a.folder / "hold").touch()
        b: list[Machine] = []

        def kill(_: Workers) -> None:
            wait_for(lambda: a.begun(2))
            b.append(Machine(tmp_path / "node2", scheduler.scheduler_address))
            wait_for(b[0].is_ready)
            a.process.kill()
            wait_for(lambda: len(scheduler.scheduler_info["workers"]) == 1 or len(scheduler.scheduler.workers) == 1)

        before_second_look(monkeypatch, kill)
        try:
            assert sweep_on(out, at(scheduler), notes).carry_out(notes, Stop()) == Counts(CELLS, 0, 0)
        finally:
            with machines(*b):
                pass
    assert Counter(row["Machine"] for row in rows(out)) == {"node1": 1, "node2": CELLS - 1}
    assert len(measured(out)) == CELLS and set(measured(out).values()) == {1}


def test_rows_that_came_before_the_scheduler_was_lost_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    with scheduler_process(tmp_path) as (address, process):
        a = Machine(tmp_path / "node1", address)
        with machines(a):
            (a.folder / "hold").touch()

            def kill(placement: Workers) -> None:
                wait_for(lambda: a.begun(2) and not vars(placement)["_messages"].empty())
                process.kill()
                wait_for(lambda: vars(placement)["_client"].status != "running")

            before_second_look(monkeypatch, kill)
            with pytest.raises(RunError, match="was lost during the sweep"):
                sweep_on(out, scheduler_at(address, None), notes).carry_out(notes, Stop())
    assert len(rows(out)) == 1


def test_a_scheduler_that_no_longer_answers_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine hangs, but the connections stand: a sweep waited for it forever, whatever was pressed."""
    out, notes = tmp_path / "out.csv", Notes()
    monkeypatch.setattr(workers, "_ANSWER_S", 1.0, raising=False)
    with scheduler_process(tmp_path) as (address, process):
        a = Machine(tmp_path / "node1", address)
        with machines(a):
            (a.folder / "hold").touch()
            before_second_look(
                monkeypatch, lambda _: (wait_for(lambda: a.begun(2)), process.send_signal(signal.SIGSTOP))
            )
            rescue = threading.Timer(40, process.kill)
            rescue.start()
            with pytest.raises(RunError, match="was lost during the sweep"):
                sweep_on(out, scheduler_at(address, None), notes).carry_out(notes, Stop())
            assert rescue.is_alive(), "it waited until the scheduler was killed"
            rescue.cancel()
    assert len(rows(out)) == 1


def test_a_task_that_fails_by_a_lost_connection_does_not_end_the_course(
    scheduler: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An OSError of the worker's own was taken for one on the way to it, and waited for ever."""
    out, notes, stop = tmp_path / "out.csv", Notes(), Stop()
    monkeypatch.setattr(workers, "run_task", fails)
    rescue = threading.Timer(20, stop.request)
    rescue.start()
    with machines(Machine(tmp_path / "node1", scheduler.scheduler_address)):
        counts = sweep_on(out, at(scheduler), notes, "clients=5", tries=2).carry_out(notes, stop)
    rescue.cancel()
    assert counts == Counts(0, 0, 1)
    assert any("connection reset" in note for note in notes.notes), notes.notes


def fails(_: at_worker.Task) -> None:
    raise ConnectionResetError("connection reset")


def test_ctrl_c_does_not_wait_for_the_testbed_of_another_sweep(scheduler: LocalCluster, tmp_path: Path) -> None:
    """A task that its worker had not begun was not asked to end, and then measured after all."""
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    notes, others, stop = Notes(), Notes(), Stop()
    a = Machine(tmp_path / "node1", scheduler.scheduler_address)
    with machines(a):
        (a.folder / "hold").touch()
        sweep = sweep_on(first, at(scheduler), notes)
        measuring = threading.Thread(target=sweep.carry_out, args=(notes, Stop()))
        measuring.start()
        wait_for(lambda: a.begun(2))

        def interrupt() -> None:
            wait_for(lambda: sum(len(worker.processing) for worker in scheduler.scheduler.workers.values()) == 2)
            stop.request(signal.SIGINT)

        asking, rescue = threading.Thread(target=interrupt), threading.Timer(30, (a.folder / "hold").unlink)
        asking.start()
        rescue.start()
        with pytest.raises(Interrupted):
            sweep_on(second, at(scheduler), others).carry_out(others, stop)
        asking.join()
        assert (a.folder / "hold").exists(), "it waited for the other sweep"
        rescue.cancel()
        (a.folder / "hold").unlink()
        measuring.join()
    assert len(measured(first)) == CELLS and set(measured(first).values()) == {1}
    assert not second.exists() or not rows(second)


def test_no_path_of_a_worker_is_in_what_it_sends_back(scheduler: LocalCluster, tmp_path: Path) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    a = Machine(tmp_path / "node1", scheduler.scheduler_address)
    with machines(a):
        sweep_on(out, at(scheduler), notes, "clients=5").carry_out(notes, Stop())
    own = os.fsencode(a.folder)
    assert own not in out.read_bytes()
    (directory,) = directories(out).values()
    assert [str(path) for path in directory.rglob("*") if path.is_file() and own in path.read_bytes()] == []


def test_rows_that_a_full_disk_refuses_are_printed_and_measured_again(
    scheduler: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that come while the sweep ends its workers, too."""
    out, notes, append = tmp_path / "out.csv", Notes(), csv_file.append_whole

    def full(fd: int, data: bytes, **named: Any) -> None:
        if out.is_file() and len(rows(out)) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(fd, data, **named)

    with machines(*(Machine(tmp_path / name, scheduler.scheduler_address) for name in ("node1", "node2"))):
        with monkeypatch.context() as disk:
            disk.setattr(csv_file, "append_whole", full)
            with pytest.raises(RowsNotWrittenError, match=r"No space left on device\n  Make room") as refused:
                sweep_on(out, at(scheduler), notes, repeat=2).carry_out(notes, Stop())
        assert len(rows(out)) == 3
        lost, printed = refused.value.rows, str(refused.value).splitlines()[-len(refused.value.rows) :]
        assert lost and [line.split(",")[0] for line in printed] == [row["TestType"] for row in lost]
        kept = measured(out) + Counter((row["ConfigHash"], row["ScenarioHash"], row["Repetition"]) for row in lost)
        assert set(kept.values()) == {1}
        assert sweep_on(out, at(scheduler), notes, repeat=2).carry_out(notes, Stop()) == Counts(2 * CELLS, 0, 0)
    assert len(measured(out)) == 2 * CELLS and set(measured(out).values()) == {1}
