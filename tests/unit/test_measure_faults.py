"""A run whose results cannot be written, or whose files are taken away: nothing that was measured is lost."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted, RunError
from containernet_env.base.stop import Stop
from containernet_env.load.server import Answer
from containernet_env.results import run_directory
from containernet_env.results.csv_file import ResultsFile
from containernet_env.results.run_directory import RunDirectory
from containernet_env.runs import testbed as testbed_module
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.runs.progress import Silent
from tests.unit.disk import file_limit
from tests.unit.matrix_fakes import FakeServer, result_of
from tests.unit.run_fakes import FakeTestbed, on_fakes, rows, run


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeTestbed]:
    return on_fakes(monkeypatch)


class Told(Silent):
    """Keeps what is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.ended: list[str | None] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def scenario_ended(self, outcome: Any) -> None:
        self.ended.append(outcome.error)


class Disk:
    """Results of earlier runs; OUT is at the limit of what a file may hold once it has ``rows`` more."""

    def __init__(self, out: Path) -> None:
        self.out = out
        results = ResultsFile(out)
        results.open()
        for _ in range(200):
            results.append({"Scenario": "earlier"})
        self.before = out.stat().st_size
        results.append({"Scenario": "earlier", "Timestamp": "2026-01-01T00:00:00.000Z", "RunId": "x" * 600})
        results.close()
        self._limits = ExitStack()

    def full(self) -> Callable[[], None]:
        """From here on OUT takes nothing, all else of the run does. Gives what lifts that."""
        return self._limits.enter_context(file_limit(self.out.stat().st_size + 100))

    def run(self, **options: Any) -> None:
        """A run into OUT. The limit ends with it, as pytest writes its own output right after a test's last line."""
        with self._limits:
            run(self.out, **options)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "out.csv")


def own_rows(out: Path) -> list[str]:
    return [row["Error"] for row in rows(out) if row["Scenario"] != "earlier"]


def scenario_lines(out: Path) -> list[Any]:
    directory = run_directory.find_run(out)
    return [line["error"] for line in run_directory.read_run(directory).scenarios]


def fill_after(monkeypatch: pytest.MonkeyPatch, count: int, fill: Callable[[], object]) -> None:
    """``fill`` is called while scenario number ``count`` is measured."""
    calls = []

    def run_one(self: FakeServer, path: str, body: dict[str, Any], timeout_s: float) -> Answer:
        calls.append(path)
        if len(calls) == count:
            fill()
        return Answer(result_of(), None)

    monkeypatch.setattr(FakeServer, "run", run_one)


def test_a_row_that_finds_no_room_ends_the_matrix_and_is_in_the_run_directory(
    made: list[FakeTestbed], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: a traceback, the rest has no rows; what was measured is lost."""
    fill_after(monkeypatch, 2, disk.full)
    told = Told()
    with pytest.raises(RowsNotWrittenError) as refused:
        disk.run(repeat=4, progress=told)
    reason = f"{disk.out} cannot be written: File too large"
    directory = run_directory.find_run(disk.out)
    assert str(refused.value) == (
        f"{reason}\n"
        "  3 of 4 rows are not in it.\n"
        f"  3 of them are in {directory / 'scenarios.jsonl'}.\n"
        "  Raise the limit of file sizes (ulimit -f), then run again."
    )
    assert refused.value.rows == ()
    assert own_rows(disk.out) == ["-"]
    assert scenario_lines(disk.out) == told.ended == [None, None, f"not run: {reason}", f"not run: {reason}"]
    assert made[0].downs == 1


def test_rows_that_found_no_room_are_written_when_there_is_some_again(
    made: list[FakeTestbed], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The containers' data went with them."""
    lifts: list[Callable[[], None]] = []
    fill_after(monkeypatch, 2, lambda: lifts.append(disk.full()))
    monkeypatch.setattr(FakeTestbed, "down", lambda self: lifts[0]())
    with pytest.raises(RowsNotWrittenError, match=r"\n  All 3 rows are in it: at the end of the run it took them.\n"):
        disk.run(repeat=3)
    assert own_rows(disk.out) == scenario_texts(disk.out) == ["-", "-", f"not run: {disk.out} cannot be written: "
                                                              "File too large"]  # fmt: skip


def scenario_texts(out: Path) -> list[str]:
    return [error or "-" for error in scenario_lines(out)]


def test_a_row_that_is_in_no_file_is_in_the_message(
    made: list[FakeTestbed], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        disk.full()

        def refuse(path: Path, *, new: bool = False) -> int:
            raise OSError(28, "No space left on device", str(path))

        monkeypatch.setattr(run_directory, "open_to_append", refuse)

    fill_after(monkeypatch, 2, full)
    told = Told()
    with pytest.raises(RowsNotWrittenError) as refused:
        disk.run(repeat=3, progress=told)
    head, *lines = str(refused.value).splitlines()[3:]
    assert head == "  2 are in no file; here they are, as the results file would have them:"
    printed = list(csv.DictReader([disk.out.read_text().splitlines()[0], *lines]))
    assert printed == list(refused.value.rows)
    assert [row["Error"] for row in printed] == ["-", f"not run: {disk.out} cannot be written: File too large"]
    assert [note for note in told.notes if "cannot be kept" in note] == [
        f"{run_directory.find_run(disk.out)} cannot be kept as a whole: No space left on device; the run goes on"
    ]


@pytest.mark.simulated()
def test_a_run_that_was_asked_to_end_and_has_rows_that_found_no_room_tells_both(
    made: list[FakeTestbed], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop()

    def fill() -> None:
        disk.full()
        stop.request()
        clock.sleep(1)  # the scenario still runs when the stop is looked at

    fill_after(monkeypatch, 1, fill)
    with pytest.raises(Interrupted) as ended:
        disk.run(repeat=2, stop=stop)
    assert "2 of 2 rows are not in it.\n  2 of them are in" in ended.value.__notes__[0]


@pytest.mark.parametrize("method", ["write_manifest", "add_proof", "add_scenario", "add_event", "write_log"])
def test_a_run_directory_that_cannot_be_written_stops_nothing_and_is_told_once(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Read-only or full: the manifest ended the run before it began, a scenario's line had its row written twice."""

    def fail(self: RunDirectory, *arguments: Any) -> None:
        raise OSError(30, "Read-only file system")

    def prove(self: FakeTestbed) -> None:
        self.on_proof(SimpleNamespace())

    monkeypatch.setattr(RunDirectory, method, fail)
    if method == "add_proof":
        monkeypatch.setattr(FakeTestbed, "up", prove)
    told = Told()
    result = run(tmp_path / "out.csv", repeat=3, progress=told)
    assert (result.failed, own_rows(tmp_path / "out.csv")) == (0, ["-", "-", "-"])
    assert [note for note in told.notes if "cannot" in note] == [
        f"{result.directory} cannot be kept as a whole: Read-only file system; the run goes on"
    ]


def test_a_file_that_was_removed_is_told_at_once_and_its_rows_are_beside_it(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "folder" / "out.csv"
    fill_after(monkeypatch, 2, lambda: shutil.rmtree(out.parent))
    told = Told()
    result = run(out, repeat=3, progress=told)
    rescued = out.with_name("out.csv.rescued")
    assert (result.file, own_rows(rescued), out.exists()) == (rescued, ["-"] * 3, False)
    assert told.notes[-1] == f"{out} was removed during the run: all rows, and those that follow, are in {rescued}"
    assert scenario_lines(out) == [None] * 3
    assert run_directory.read_run(result.directory).manifest is not None


def test_a_file_that_was_removed_after_the_last_row_is_noticed_too(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.csv"
    monkeypatch.setattr(FakeTestbed, "down", lambda self: out.unlink())
    assert own_rows(run(out).file) == ["-"]


def test_a_run_that_fails_says_where_its_rescued_rows_are(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.csv"

    def fail(self: FakeTestbed) -> None:
        out.unlink()
        raise RunError("the network is gone")

    monkeypatch.setattr(FakeTestbed, "up", fail)
    with pytest.raises(RunError) as failed:
        run(out)
    assert failed.value.__notes__ == [
        f"{out} was removed during the run: all rows, and those that follow, are in {out}.rescued"
    ]


@pytest.mark.simulated()
def test_the_testbed_is_down_before_that_is_told() -> None:
    """A terminal that is stopped (Ctrl-S) held the driver in the stage's first line, and kept the containers up."""
    told: list[str] = []

    class Shown(Silent):
        def stage(self, name: str, seconds: float | None = None) -> Any:
            told.append(f"{name} {seconds is not None and seconds == 0.5}")
            return super().stage(name)

    def down() -> None:
        clock.sleep(0.5)
        told.append("down")

    testbed_module.take_down(SimpleNamespace(down=down, after_down=""), Shown())
    assert told == ["down", "tear-down True"]


def test_a_member_that_ends_before_the_first_scenario_is_what_the_error_says(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its settings were read back: "no member answers", or "cannot enter the network namespace of process N"."""

    def fail(self: FakeTestbed) -> Any:
        raise RunError("cannot enter the network namespace of process 4711: No such file or directory")

    monkeypatch.setattr(FakeTestbed, "host_facts", fail)
    with pytest.raises(RunError, match=r"^etcd2 ended before the first scenario: killed by SIGKILL$"):
        run(tmp_path / "out.csv")
    assert made[0].downs == 1
