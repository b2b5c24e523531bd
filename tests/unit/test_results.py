"""The CSV: header, forms, torn lines, rows that survive."""

from __future__ import annotations

import csv
import errno
import os
import shutil
import stat
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import UsageError
from containernet_env.results import csv_file as results
from containernet_env.results import whole_lines
from containernet_env.results.columns import COLUMNS, SEED_COLUMNS, as_markdown
from containernet_env.results.csv_file import ResultsFile, RowNotWrittenError
from containernet_env.results.run_directory import RunDirectory
from tests.unit.disk import file_limit
from tests.unit.generated import check_block

README = Path(__file__).resolve().parents[2] / "results" / "README.md"

SEED_HEADER = (
    "TestType,ClusterSize,RequestCount,ClientCount,ConnectionCount,KeySize,ValueSize,Consistency,Total,Slowest,"
    "Fastest,Average,Stddev,Requests/sec,10%,25%,50%,75%,90%,95%"
)


def opened(path: Path) -> ResultsFile:
    file = ResultsFile(path)
    file.open()
    return file


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_the_first_twenty_columns_are_the_documents() -> None:
    assert ",".join(COLUMNS[:20]) == SEED_HEADER
    assert COLUMNS[:20] == SEED_COLUMNS


def test_a_new_file_gets_the_header_and_rows_in_column_order(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "deep" / "out.csv")
    assert file.open().notes == (f"created the folder {tmp_path / 'deep'}",)
    file.append({"Scenario": "write-x", "TestType": "write", "Total": "1.000000"})
    file.close()
    rows = rows_of(tmp_path / "deep" / "out.csv")
    assert rows == [dict.fromkeys(COLUMNS, "-") | {"Scenario": "write-x", "TestType": "write", "Total": "1.000000"}]


def test_a_row_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    file = opened(tmp_path / "out.csv")
    file.append({"TestType": "read"})
    assert len(lines(tmp_path / "out.csv")) == 2  # the file is still open here


def test_a_file_of_the_seed_is_appended_to_in_its_own_form(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text(SEED_HEADER + "\nwrite,2" + ",1" * 18 + "\n")
    file = opened(path)
    file.append({"TestType": "read", "Scenario": "not a column of this form"})
    assert lines(path)[0] == SEED_HEADER
    assert lines(path)[2].split(",") == ["read"] + ["-"] * 19


def test_the_readme_has_the_table_of_columns(snapshot: SnapshotAssertion) -> None:
    check_block(README, "columns", "containernet_env/results/columns.py", as_markdown(), snapshot)


def test_any_other_header_is_refused_and_the_file_untouched(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(UsageError, match=r"(?s)not a results file.*'a,b,c'"):
        ResultsFile(path).open()
    assert path.read_text() == "a,b,c\n1,2,3\n"


def test_a_torn_last_line_is_ended_reported_and_never_joined(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    opened(path).append({"TestType": "write"})
    with path.open("a") as torn:
        torn.write("read,3,10")
    file = ResultsFile(path)
    (mended,) = file.open().notes
    assert "torn" in mended
    file.append({"TestType": "read"})
    assert lines(path)[2] == "read,3,10"
    assert lines(path)[3].startswith("read,-,-")


def test_a_last_line_that_is_none_of_a_csv_is_torn(tmp_path: Path) -> None:
    """A carriage return within it: a run that was to append to it ended with a traceback of the csv module."""
    path = tmp_path / "out.csv"
    opened(path).append({"TestType": "write"})
    with path.open("a") as torn:
        torn.write("read,3\r10,1\r,2")
    (mended,) = ResultsFile(path).open().notes
    assert "torn" in mended
    told: list[str] = []
    assert len(results.load(path, told.append)) == 1
    assert len(told) == 1


def test_a_header_without_end_is_shown_by_its_beginning(tmp_path: Path) -> None:
    """A quote that never closes, before 200 kB: all of it was in the message."""
    path = tmp_path / "out.csv"
    path.write_text('"' + "x" * 200_000)
    with pytest.raises(UsageError, match="unknown header") as refused:
        results.load(path)
    assert len(str(refused.value)) < 400


def test_of_many_lines_that_are_left_out_a_few_are_named(tmp_path: Path) -> None:
    """A file of something else below our header: a line of output for each of its lines."""
    path = tmp_path / "out.csv"
    opened(path).append({"TestType": "write"})
    with path.open("a") as file:
        file.write("not a row\n" * 1020)
    told: list[str] = []
    assert len(results.load(path, told.append)) == 1
    assert len(told) == 21
    assert told[-1].endswith("1,000 more lines are left out for such reasons")


@pytest.mark.parametrize("length", [1, 5, 100])
def test_a_torn_header_is_completed(tmp_path: Path, length: int) -> None:
    path = tmp_path / "out.csv"
    path.write_text(",".join(COLUMNS)[:length])
    assert "header was torn" in ResultsFile(path).open().notes[0]
    assert lines(path) == [",".join(COLUMNS)]


def test_a_misspelt_column_is_an_error_not_a_lost_value(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="Eror"):
        opened(tmp_path / "out.csv").append({"Eror": "x"})


def test_an_unwritable_place_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write results"):
        ResultsFile(tmp_path / "file" / "out.csv").open()
    with pytest.raises(UsageError, match="cannot write results"):
        ResultsFile(tmp_path).open()


def test_load_gives_numbers_where_there_are_numbers(tmp_path: Path) -> None:
    file = opened(tmp_path / "out.csv")
    file.append({"TestType": "write", "Total": "1.5", "Errors": "0", "LinkDelay_ms": "3"})
    file.append({"TestType": "read", "Error": "not run: x"})
    frame = results.load(tmp_path / "out.csv")
    assert frame["Total"].tolist()[0] == 1.5
    assert frame["Total"].isna().tolist() == [False, True]
    assert frame["LinkDelay_ms"].tolist()[0] == "3"


def test_under_sudo_the_file_belongs_to_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Path, int, int]] = []
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "567")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.chown", lambda path, uid, gid: given.append((path, uid, gid)))
    opened(tmp_path / "out.csv")
    assert given == [(tmp_path / "out.csv", 1234, 567)]


# --- What cannot be written -------------------------------------------------------------------------------------------


def test_a_row_that_finds_no_room_leaves_the_file_at_its_last_whole_row(tmp_path: Path) -> None:
    """A full disk was a traceback, and half a row."""
    path = tmp_path / "out.csv"
    file = opened(path)
    file.append({"TestType": "write"})
    before = path.read_bytes()
    with file_limit(len(before) + 20), pytest.raises(RowNotWrittenError) as refused:
        file.append({"TestType": "read"})
    assert str(refused.value) == (
        f"{path} cannot be written: File too large\n  Raise the limit of file sizes (ulimit -f), then run again."
    )
    assert path.read_bytes() == before
    file.append({"TestType": "read"})
    assert [row["TestType"] for row in rows_of(path)] == ["write", "read"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left on device\n  Make room there"),
        (errno.EROFS, "Read-only file system\n  Mount it for writing"),
        (errno.EPERM, "Operation not permitted\n  Allow writing there (lsattr tells what is immutable)"),
        (errno.EIO, "Input/output error\n  See what the kernel says"),
    ],
)
def test_a_row_that_was_not_forced_to_disk_is_not_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    file = opened(tmp_path / "out.csv")

    def fail(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken, pytest.raises(RowNotWrittenError) as refused:
        broken.setattr(whole_lines.os, "fsync", fail)
        file.append({"TestType": "read"})
    assert f"out.csv cannot be written: {words}" in str(refused.value)
    assert rows_of(tmp_path / "out.csv") == []


def test_a_header_that_finds_no_room_leaves_no_file(tmp_path: Path) -> None:
    with file_limit(100), pytest.raises(UsageError, match=r"cannot write results to .*out.csv: File too large\n"):
        ResultsFile(tmp_path / "out.csv").open()
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("kind", ["fifo", "/dev/null", "/dev/full", "socket"])
def test_what_is_no_regular_file_is_refused_when_it_is_open_and_never_waited_for(tmp_path: Path, kind: str) -> None:
    """A FIFO hung while the lock was held; /dev/full made the driver grow to 24 GB."""
    path = tmp_path / "out.csv"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    else:
        path.symlink_to(kind)
    with pytest.raises(UsageError, match=r"cannot write results to .*\n  Name a file"):
        ResultsFile(path).open()


# --- The file is no longer where it was -------------------------------------------------------------------------------


def lose(path: Path, how: str) -> None:
    if how == "removed":
        path.unlink()
    elif how == "renamed":
        path.rename(path.with_name("other.csv"))
    elif how == "replaced":
        path.with_name("other.csv").write_text("an editor's\n")
        path.with_name("other.csv").rename(path)
    elif how == "folder removed":
        shutil.rmtree(path.parent)
    else:
        path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize("how", ["removed", "renamed", "replaced", "folder removed", "folder renamed"])
def test_a_file_that_was_lost_is_written_anew_beside_its_place(tmp_path: Path, how: str) -> None:
    """Exit 0, '4 rows in OUT, no errors', and no file."""
    path = tmp_path / "folder" / "out.csv"
    opened(path).append({"TestType": "earlier"})
    file = opened(path)
    assert file.append({"TestType": "write"}) is None
    lose(path, how)
    rescued = path.with_name("out.csv.rescued")
    told = file.append({"TestType": "read"})
    word = how.removeprefix("folder ")
    assert told == f"{path} was {word} during the run: all rows, and those that follow, are in {rescued}"
    assert file.append({"TestType": "txn"}) is None
    assert file.file == rescued and not file.lost
    assert [row["TestType"] for row in rows_of(rescued)] == ["earlier", "write", "read", "txn"]
    if how == "replaced":
        assert path.read_text() == "an editor's\n"


def test_rows_that_are_amended_take_the_place_of_the_first_ones(tmp_path: Path) -> None:
    path, link = tmp_path / "out.csv", tmp_path / "link.csv"
    link.symlink_to(path)
    file = opened(link)
    for name in ("earlier", "first", "second"):
        file.append({"Scenario": name, "Valid": "yes"})
    path.chmod(0o640)
    file.amend(
        [({"Scenario": name, "Valid": "yes"}, {"Scenario": name, "Valid": "no"}) for name in ("first", "second")]
    )
    file.append({"Scenario": "later", "Valid": "yes"})
    assert not file.lost and link.is_symlink() and path.stat().st_mode & 0o777 == 0o640
    assert [(row["Scenario"], row["Valid"]) for row in rows_of(path)] == [
        ("earlier", "yes"), ("first", "no"), ("second", "no"), ("later", "yes"),
    ]  # fmt: skip
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_rows_that_cannot_be_amended_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    file = opened(path)
    file.append({"Scenario": "first", "Valid": "yes"})
    before = path.read_bytes()
    with file_limit(len(before) - 2), pytest.raises(OSError, match="File too large"):
        file.amend([({"Scenario": "first", "Valid": "yes"}, {"Scenario": "first", "Valid": "no"})])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    file.append({"Scenario": "second"})
    assert [row["Scenario"] for row in rows_of(path)] == ["first", "second"]


def test_a_file_that_is_lost_again_is_rescued_again_and_overwrites_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.with_name("out.csv.rescued").write_text("somebody's\n")
    file = opened(path)
    path.unlink()
    file.append({"TestType": "write"})
    second = path.with_name("out.csv.rescued-2")
    assert file.file == second
    second.unlink()
    file.append({"TestType": "read"})
    assert [row["TestType"] for row in rows_of(second)] == ["write", "read"]
    assert path.with_name("out.csv.rescued").read_text() == "somebody's\n"


def test_a_rescue_that_finds_no_room_is_told_and_tried_again_with_the_next_row(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    file = opened(path)
    file.append({"TestType": "write"})
    path.unlink()
    size = os.fstat(file._fd).st_size
    with file_limit(size - 1) as lift:
        with pytest.raises(RowNotWrittenError, match="it was removed; File too large"):
            file.follow()
        assert file.lost and not list(tmp_path.iterdir())
        lift()
    file.append({"TestType": "read"})
    assert [row["TestType"] for row in rows_of(file.file)] == ["write", "read"]


# --- Torn rows --------------------------------------------------------------------------------------------------------

WHOLE = {"Scenario": "w", "Error": 'not run: "a", b', "Timestamp": "2026-01-01T00:00:00.000Z"}


@pytest.mark.parametrize("form", [COLUMNS, SEED_COLUMNS])
def test_a_row_that_was_cut_anywhere_is_told_from_a_whole_one_also_after_it_was_ended(
    tmp_path: Path, form: tuple[str, ...]
) -> None:
    """Cut in its last value a row has all its values; once a later run had ended its line it was taken for whole."""
    path = tmp_path / "out.csv"
    path.write_text(",".join(form) + "\n")
    row = WHOLE | dict.fromkeys(SEED_COLUMNS[8:], "0.034512") | {"Requests/sec": "81.2500"}
    file = opened(path)
    file.append(row)
    file.close()
    head, line = path.read_bytes().splitlines(keepends=True)
    commas = [place for place, byte in enumerate(line) if byte == ord(",")]
    ends = {
        len(line) - 1,
        *range(1, 8),
        *range(commas[-1] - 8, len(line)),
        *commas[::7],
        *(at + 1 for at in commas[::7]),
    }
    for length in sorted(ends):
        path.write_bytes(head + line[:length])
        notes: list[str] = []
        before = len(results.load(path, notes.append))
        again = opened(path)
        again.append(row)
        again.close()
        after = len(results.load(path, lambda text: None))
        whole = length == len(line) - 1  # all but the line's end
        assert (before, after, len(notes)) == ((1, 2, 0) if whole else (0, 1, 1)), (length, notes)


def test_a_line_that_was_cut_within_a_character_does_not_spoil_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    file = opened(path)
    file.append(WHOLE)
    with path.open("ab") as torn:
        torn.write("write,3,é".encode()[:-1])
    assert len(results.load(path, lambda text: None)) == 1


def test_a_whole_last_row_without_its_end_is_called_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    opened(path).append(WHOLE)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert ResultsFile(path).open().notes == (
        f"{path}: its last line had no end (a killed run); it has been ended and is whole",
    )


def test_a_name_that_is_no_text_costs_no_row(tmp_path: Path) -> None:
    """A file name may hold any bytes."""
    opened(tmp_path / "out.csv").append(WHOLE | {"Config": os.fsdecode(b"a\xff.json")})
    assert results.load(tmp_path / "out.csv")["Config"].tolist() == ["a\\udcff.json"]


def test_under_sudo_folders_and_the_rescued_file_belong_to_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Path] = []
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "567")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.chown", lambda path, uid, gid: given.append(path))
    path = tmp_path / "a" / "b" / "out.csv"
    file = opened(path)
    assert sorted(given) == [tmp_path / "a", tmp_path / "a" / "b", path]
    shutil.rmtree(tmp_path / "a")
    given.clear()
    file.append(WHOLE)
    assert sorted(given) == [tmp_path / "a", tmp_path / "a" / "b", path.with_name("out.csv.rescued")]
    given.clear()
    RunDirectory(path, "r").add_event("run_began", "x")
    runs = tmp_path / "a" / "b" / "out.runs"
    assert sorted(given) == [runs, runs / "r", runs / "r" / "events.jsonl"]
