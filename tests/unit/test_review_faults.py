"""Faults that strike together, or where nobody had looked."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base import clock, life
from containernet_env.base.errors import UsageError
from containernet_env.cli.output import Output
from containernet_env.hosts import engine
from containernet_env.hosts.engine_watch import EngineWatch
from containernet_env.results import place
from containernet_env.results.csv_file import ResultsFile, RowNotWrittenError
from containernet_env.results.place import check_place
from containernet_env.results.run_directory import RunDirectory
from containernet_env.results.run_files import Proof
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.runs.testbed import Testbed
from tests.unit.matrix_fakes import Bench, write
from tests.unit.run_fakes import FakeTestbed, on_fakes, run


def names(file: Path) -> list[str]:
    return [line.partition(",")[0] for line in file.read_text().splitlines()[1:]]


def first_column(text: str) -> dict[str, str]:
    from containernet_env.results.columns import COLUMNS

    return {COLUMNS[0]: text}


def test_a_row_that_found_no_place_is_written_once_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUT is removed and nothing can be made beside it; later it can: the row is in OUT.rescued twice."""
    results = ResultsFile(tmp_path / "out.csv")
    results.open()
    results.append(first_column("a"))
    results.path.unlink()

    def refuse() -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(results, "_open_beside", refuse)
        with pytest.raises(RowNotWrittenError):
            results.append(first_column("b"))
    results.append(first_column("b"))
    results.close()
    assert names(results.file) == ["a", "b"]


def test_a_row_during_which_a_notebook_is_interrupted_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`measure` in a notebook, which has no signal handlers of ours: Ctrl-C after the row was written, before that was
    noted, has it written again by the second call for the same outcome."""
    results = ResultsFile(tmp_path / "out.csv")
    results.open()

    def strike() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(results, "follow", strike)
        with pytest.raises(KeyboardInterrupt):
            results.append(first_column("a"))
    results.append(first_column("a"))
    results.close()
    assert names(results.file) == ["a"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda out: out.symlink_to(out.parent / "missing" / "out.csv"), "symbolic link"),
        (lambda out: out.symlink_to(out), "symbolic link"),
    ],
)
def test_a_link_that_leads_nowhere_is_not_blamed_on_the_disk(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    """OUT as a symbolic link into a missing folder, or to itself: the remedy was `dmesg`."""
    out = tmp_path / "out.csv"
    make(out)
    with pytest.raises(UsageError) as refused:
        ResultsFile(out).open()
    assert words in str(refused.value) and "dmesg" not in str(refused.value)


def test_too_few_descriptors_are_not_blamed_on_the_disk(tmp_path: Path) -> None:
    """`ulimit -n`: the remedy was `dmesg`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(UsageError, match="ulimit -n"):
            ResultsFile(tmp_path / "out.csv").open()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_room_is_looked_for_where_a_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OUT as a symbolic link to a file on another file system, which is full: found out by the first row."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "out.csv").touch()
    out = tmp_path / "out.csv"
    out.symlink_to(there / "out.csv")
    looked: list[Path] = []
    monkeypatch.setattr(place, "_check_folder", lambda folder, out, needed: looked.append(folder))
    check_place(out, 1)
    assert there in looked


class Silences:
    """The watch of members, of which these were silent before the scenario and meanwhile."""

    def __init__(self, before: dict[str, float], meanwhile: dict[str, float]) -> None:
        self._now, self._next = before, meanwhile

    def start(self) -> None:
        pass

    close = start

    def reset(self) -> None:
        self._now = self._next

    def longest_s(self) -> dict[str, float]:
        return self._now

    def silent(self, for_s: float) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("watch", "findings"),
    [
        (Silences({"etcd1": 5.0}, {}), []),
        (Silences({}, {"etcd9": 5.0}), []),
        (Silences({}, {"etcd1": 5.0}), ["etcd1 answered nothing for 5.0 s; others take a member for gone after 1 s"]),
    ],
)
def test_a_row_is_marked_for_living_members_that_were_silent_in_its_own_scenario(
    watch: Any, findings: list[str]
) -> None:
    bench = Bench(write("w"))
    bench.matrix._members = watch
    bench.matrix.run()
    assert bench.findings() == findings


def test_a_file_that_is_lost_for_good_holds_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OUT removed in the tear-down and no room for another: the message said that all rows are in it."""
    on_fakes(monkeypatch)
    out = tmp_path / "out.csv"

    def refuse(self: ResultsFile) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    def down(self: FakeTestbed) -> None:
        out.unlink()
        monkeypatch.setattr(ResultsFile, "_open_beside", refuse)

    monkeypatch.setattr(FakeTestbed, "down", down)
    with pytest.raises(RowsNotWrittenError, match=r"\n  1 of 1 rows are not in it.\n  1 of them are in "):
        run(out)


def test_a_manifest_is_on_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure the name leads to an empty file."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append("fsync"), fsync(fd))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (done.append("replace"), replace(self, to))[1])
    RunDirectory(tmp_path / "out.csv", "run-1").add_proof(
        Proof(at="", at_ns=0, passed=True, problems=[], unproved=[], pairs=[])
    )
    assert done[:2] == ["fsync", "replace"]


def test_a_new_file_is_found_again_after_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), fsync(fd))[1])
    ResultsFile(tmp_path / "out.csv").open()
    assert tmp_path.stat().st_ino in synced


@pytest.mark.simulated(seeds=10)
def test_a_failure_that_is_told_a_moment_after_its_request_is_the_reason() -> None:
    failed = clock.Event()
    bed = SimpleNamespace(failure=None, _failed=failed, _links=SimpleNamespace(settle=lambda: None))

    def tell() -> None:
        clock.sleep(0.1)
        bed.failure = "the link emulator ended"
        failed.set()

    clock.Thread(target=tell).start()
    assert Testbed.settled_failure(bed) == "the link emulator ended"  # type: ignore[arg-type]


def test_a_pipe_that_somebody_made_non_blocking_loses_nothing() -> None:
    read, write_end = os.pipe()
    os.set_blocking(write_end, False)
    printed = Output(write_end, "standard output")
    data, got = b"x" * 1_000_000, bytearray()

    def take() -> None:
        while part := os.read(read, 65536):
            got.extend(part)

    reader = threading.Thread(target=take)
    reader.start()
    printed.write(data)
    os.close(write_end)
    reader.join(60)
    os.close(read)
    assert (printed.error, bytes(got) == data) == (None, True)


def test_what_was_written_no_longer_waits() -> None:
    """A run that prints more than 16 MiB in all went on without output."""
    with open(os.devnull, "wb") as null:
        printed = Output(null.fileno(), "standard output")
        with printed.unblocked():
            for _ in range(8):
                printed.write(b"x" * 1_000_000)
        assert printed._waiting == 0


def test_a_container_that_is_killed_is_no_sign_of_an_engine_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """`docker kill` of one host, SIGTERM to another: the engine has not stopped all."""
    told: list[str] = []

    def event(container: str, number: str) -> dict[str, Any]:
        return {"Actor": {"ID": container, "Attributes": {"signal": number}}}

    watch = EngineWatch("run", lambda: 2, told.append)
    monkeypatch.setattr(engine, "listens", lambda: True)

    def events() -> Any:
        yield event("a", "9")
        yield event("b", "15")
        watch._closing = True

    watch._events = events()
    watch._follow()
    assert told == []


def test_a_forked_process_has_a_life_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = life.descriptor()
    assert life.descriptor() == ours
    monkeypatch.setattr(os, "getpid", lambda: -1)
    theirs = life.descriptor()
    for fd in life._pipes.pop(-1):
        os.close(fd)
    assert theirs != ours
