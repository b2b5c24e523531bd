"""The CSV: header, forms, torn lines, rows that survive."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import UsageError
from containernet_env.hosts import netns
from containernet_env.network.measure import Capture
from containernet_env.results import csv_file as results
from containernet_env.results import run_directory
from containernet_env.results.columns import COLUMNS, SEED_COLUMNS, TABLE
from containernet_env.results.csv_file import ResultsFile, RowNotWrittenError
from containernet_env.results.files import make_folders, open_to_append, replacing
from containernet_env.results.run_directory import RunDirectory
from containernet_env.results.run_files import Proof
from containernet_env.runs.keeper import RowsNotWrittenError
from tests.unit.commands import check_block
from tests.unit.disk import file_limit
from tests.unit.fakes import FakeTestbed, on_fakes, rows, run

README = Path(__file__).resolve().parents[2] / "results" / "README.md"

SEED_HEADER = (
    "TestType,ClusterSize,RequestCount,ClientCount,ConnectionCount,KeySize,ValueSize,Consistency,Total,Slowest,"
    "Fastest,Average,Stddev,Requests/sec,10%,25%,50%,75%,90%,95%"
)


def opened(path: Path) -> ResultsFile:
    file = ResultsFile(path)
    file.open()
    return file


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_new_file_gets_the_header_and_rows_in_column_order(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "deep" / "out.csv")
    assert file.open() == [f"created the folder {tmp_path / 'deep'}"]
    file.append({"Scenario": "write-x", "TestType": "write", "Total": "1.000000"})
    (found,) = rows(tmp_path / "deep" / "out.csv")  # the file is still open here
    assert found == dict.fromkeys(COLUMNS, "-") | {"Scenario": "write-x", "TestType": "write", "Total": "1.000000"}


def test_a_file_of_the_seed_or_of_before_a_column_is_appended_to_in_its_own_form(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text(SEED_HEADER + "\nwrite,2" + ",1" * 18 + "\n")
    file = opened(path)
    file.append({"TestType": "read", "Scenario": "not a column of this form"})
    assert lines(path)[0] == SEED_HEADER
    assert lines(path)[2].split(",") == ["read"] + ["-"] * 19
    # So is a file of before a column.
    path, run_id = tmp_path / "o.csv", {"RunId": "r", "Timestamp": "2026-01-01T00:00:00.000Z"}
    columns = [name for name in COLUMNS if name not in ("Advice", "Dilation")]
    path.write_text(",".join(columns) + "\n")
    opened(path).append({"ClientCount": "5", "Advice": "fewer clients", **run_id})
    assert list(rows(path)[0]) == columns
    frame = results.load(path)
    assert list(frame.columns) == list(COLUMNS) and frame["ClientCount"].tolist() == [5]
    assert frame["Advice"].isna().all() and frame["Dilation"].tolist() == [1]
    path.write_text(",".join(COLUMNS).replace("Attempt,", "Try,") + "\n")
    with pytest.raises(UsageError, match="of another version of this program: it lacks Attempt; it has Try\n"):
        results.load(path)


def test_the_first_columns_are_the_seeds_and_the_readme_has_the_table_of_all(snapshot: SnapshotAssertion) -> None:
    assert COLUMNS[:20] == SEED_COLUMNS == tuple(SEED_HEADER.split(","))
    table = ["| column | unit | holds |", "| --- | --- | --- |"]
    table += [f"| {column.name} | {column.unit} | {column.meaning} |" for column in TABLE]
    check_block(README, "columns", "containernet_env/results/columns.py", "\n".join([*table, ""]), snapshot)


def test_what_is_no_row_is_left_out_and_told_in_few_lines(tmp_path: Path) -> None:
    for appended, notes in (
        # A run that was to append to it ended with a traceback of the csv module.
        (b"read,3\r10,1\r,2", 1),
        ("write,3,é".encode()[:-1], 1),  # cut within a character
        (b"not a row\n" * 1020, 21),  # a line of output for each of them
    ):
        path = tmp_path / f"{len(appended)}.csv"
        opened(path).append({"TestType": "write"})
        with path.open("ab") as file:
            file.write(appended)
        told: list[str] = []
        assert (len(results.load(path, told.append)), len(told)) == (1, notes), appended[:20]
        assert notes == 1 or told[-1].endswith("1,000 more lines are left out for such reasons")
        assert ("torn" in str(ResultsFile(path).open())) == (notes == 1)


@pytest.mark.parametrize("length", [1, 5, 100])
def test_a_torn_header_is_completed(tmp_path: Path, length: int) -> None:
    path = tmp_path / "out.csv"
    path.write_text(",".join(COLUMNS)[:length])
    assert "header was torn" in ResultsFile(path).open()[0]
    assert lines(path) == [",".join(COLUMNS)]


def test_rows_have_numbers_and_texts_and_no_misspelt_column(tmp_path: Path) -> None:
    file = opened(tmp_path / "out.csv")
    file.append({"TestType": "write", "Total": "1.5", "Errors": "0", "LinkDelay_ms": "3"})
    file.append({"TestType": "read", "Error": "not run: x", "Config": os.fsdecode(b"a\xff.json")})  # of any bytes
    with pytest.raises(KeyError, match="Eror"):
        file.append({"Eror": "x"})
    frame = results.load(tmp_path / "out.csv")
    assert frame["Total"].tolist()[0] == 1.5
    assert frame["Total"].isna().tolist() == [False, True]
    assert (frame["LinkDelay_ms"][0], frame["Config"][1]) == ("3", "a\\udcff.json")


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
    assert [row["TestType"] for row in rows(path)] == ["write", "read"]


def test_a_row_that_was_not_forced_to_disk_is_not_in_the_file(tmp_path: Path) -> None:
    file = opened(tmp_path / "out.csv")
    for number, words in (
        (errno.ENOSPC, "No space left on device\n  Make room there"),
        (errno.EROFS, "Read-only file system\n  Mount it for writing"),
        (errno.EPERM, "Operation not permitted\n  Allow writing there (lsattr shows what is immutable)"),
        (errno.EIO, "Input/output error\n  See what the kernel says"),
    ):
        broken = mock.patch.object(os, "fsync", side_effect=OSError(number, os.strerror(number)))
        with broken, pytest.raises(RowNotWrittenError) as refused:
            file.append({"TestType": "read"})
        assert f"out.csv cannot be written: {words}" in str(refused.value)
        assert rows(tmp_path / "out.csv") == []


def socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "another header": (lambda out: out.write_text("a,b,c\n1,2,3\n"), r"(?s)not a results file.*'a,b,c'"),
    # A quote that never closes, before 200 kB: all of it was in the message.
    "a header without end": (lambda out: out.write_text('"' + "x" * 200_000), "not a results file"),
    "a folder": (Path.mkdir, "cannot write results"),
    # A FIFO hung while the lock was held; /dev/full made the driver grow to 24 GB.
    "a fifo": (os.mkfifo, r"cannot write results to .*\n  Name a file"),
    "a socket": (socket, r"cannot write results to .*\n  Name a file"),
    "/dev/null": (lambda out: out.symlink_to("/dev/null"), r"cannot write results to .*\n  Name a file"),
    "/dev/full": (lambda out: out.symlink_to("/dev/full"), r"cannot write results to .*\n  Name a file"),
    # The remedy was `dmesg`.
    "a link into a missing folder": (lambda out: out.symlink_to(out.parent / "missing" / "out.csv"), "symbolic link"),
    "a link to itself": (lambda out: out.symlink_to(out), "symbolic link"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_results_file_is_refused_and_left_alone(tmp_path: Path, what: str) -> None:
    path = tmp_path / "out.csv"
    make, words = REFUSED[what]
    make(path)
    before = path.read_text() if path.is_file() and "header" in what else None
    with pytest.raises(UsageError, match=words) as refused:
        ResultsFile(path).open()
    assert len(str(refused.value)) < 500 and "dmesg" not in str(refused.value)
    if before is not None:
        with pytest.raises(UsageError, match="unknown header") as unread:
            results.load(path)
        assert len(str(unread.value)) < 400 and path.read_text() == before


def test_a_place_that_takes_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write results"):
        ResultsFile(tmp_path / "file" / "out.csv").open()
    with file_limit(100), pytest.raises(UsageError, match=r"cannot write results to .*out.csv: File too large\n"):
        ResultsFile(tmp_path / "out.csv").open()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(UsageError, match="ulimit -n"):  # and not dmesg
            ResultsFile(tmp_path / "out.csv").open()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not (tmp_path / "out.csv").exists()


def test_the_room_is_looked_for_where_a_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OUT as a symbolic link to a file on another file system, which is full: found out by the first row."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "out.csv").touch()
    (tmp_path / "out.csv").symlink_to(there / "out.csv")
    looked: list[Path] = []
    monkeypatch.setattr(run_directory, "_check_folder", lambda folder, out, needed: looked.append(folder))
    run_directory.check_place(tmp_path / "out.csv", 1)
    assert there in looked


def test_new_files_are_on_disk_before_they_have_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure the name of a manifest led to an empty file, and a new CSV was not found again."""
    done: list[str | int] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(os.fstat(fd).st_ino), fsync(fd))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (done.append("replace"), replace(self, to))[1])
    ResultsFile(tmp_path / "out.csv").open()
    assert tmp_path.stat().st_ino in done
    done.clear()
    proof = Proof(at="", at_ns=0, passed=True, problems=[], unproved=[], pairs=[])
    RunDirectory(tmp_path / "out.csv", "run-1").add_proof(proof)
    assert isinstance(done[0], int) and done[1] == "replace"


def replaced(path: Path) -> None:
    path.with_name("other.csv").write_text("an editor's\n")
    path.with_name("other.csv").rename(path)


LOST: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "renamed": lambda path: path.rename(path.with_name("other.csv")),
    "replaced": replaced,
    "folder removed": lambda path: shutil.rmtree(path.parent),
    "folder renamed": lambda path: path.parent.rename(path.parent.with_name("elsewhere")),
}


@pytest.mark.parametrize("how", LOST)
def test_a_file_that_was_lost_is_written_anew_beside_its_place(tmp_path: Path, how: str) -> None:
    """Exit 0, '4 rows in OUT, no errors', and no file."""
    path = tmp_path / "folder" / "out.csv"
    opened(path).append({"TestType": "earlier"})
    file = opened(path)
    assert file.append({"TestType": "write"}) is None
    LOST[how](path)
    rescued = path.with_name("out.csv.rescued")
    told = file.append({"TestType": "read"})
    word = how.removeprefix("folder ")
    assert told == f"{path} was {word} during the run: all rows, and those that follow, are in {rescued}"
    assert file.append({"TestType": "txn"}) is None
    assert file.file == rescued and not file.lost
    assert [row["TestType"] for row in rows(rescued)] == ["earlier", "write", "read", "txn"]
    assert how != "replaced" or path.read_text() == "an editor's\n"


NO_ROOM = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("lost", "struck", "error", "raised"),
    [
        # Nothing could be made beside it; later it could: the row was in OUT.rescued twice.
        (True, "_open_beside", NO_ROOM, RowNotWrittenError),
        # Ctrl-C in a notebook after the row was written, before that was noted: it was written again.
        (False, "follow", KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_row_that_is_appended_again_is_written_once(
    tmp_path: Path, lost: bool, struck: str, error: BaseException, raised: type[BaseException]
) -> None:
    file = opened(tmp_path / "out.csv")
    file.append({"TestType": "a"})
    if lost:
        file.path.unlink()
    with mock.patch.object(file, struck, side_effect=error), pytest.raises(raised):
        file.append({"TestType": "b"})
    file.append({"TestType": "b"})
    assert [row["TestType"] for row in rows(file.file)] == ["a", "b"]


def test_a_file_that_is_lost_for_good_holds_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OUT removed in the tear-down and no room for another: the message said that all rows are in it."""
    on_fakes(monkeypatch)
    out = tmp_path / "out.csv"

    def down(self: FakeTestbed) -> None:
        out.unlink()
        monkeypatch.setattr(ResultsFile, "_open_beside", mock.Mock(side_effect=NO_ROOM))

    monkeypatch.setattr(FakeTestbed, "down", down)
    with pytest.raises(RowsNotWrittenError, match=r"\n  1 of 1 rows are not in it.\n  1 of them are in "):
        run(out)


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
    assert [(row["Scenario"], row["Valid"]) for row in rows(path)] == [
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
    assert [row["Scenario"] for row in rows(path)] == ["first", "second"]


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
    assert [row["TestType"] for row in rows(second)] == ["write", "read"]
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
    assert [row["TestType"] for row in rows(file.file)] == ["write", "read"]


WHOLE = {"Scenario": "w", "Error": 'not run: "a", b', "Timestamp": "2026-01-01T00:00:00.000Z"}


@pytest.mark.parametrize("form", [COLUMNS, SEED_COLUMNS])
def test_a_row_that_was_cut_is_never_whole_nor_joined(tmp_path: Path, form: tuple[str, ...]) -> None:
    """Cut in its last value a row has all its values; once a later run had ended its line it was taken for whole."""
    path = tmp_path / "out.csv"
    path.write_text(",".join(form) + "\n")
    row = WHOLE | dict.fromkeys(SEED_COLUMNS[8:], "0.034512") | {"Requests/sec": "81.2500"}
    file = opened(path)
    file.append(row)
    file.close()
    head, line = path.read_bytes().splitlines(keepends=True)
    commas = [place for place, byte in enumerate(line) if byte == ord(",")]
    ends = {1, 5, len(line) - 1, *range(commas[-1] - 8, len(line))}
    for length in sorted(ends | {comma + more for comma in commas[::32] for more in (0, 1)}):
        path.write_bytes(head + line[:length])
        notes: list[str] = []
        before = len(results.load(path, notes.append))
        again = ResultsFile(path)
        (repaired,) = again.open()
        again.append(row)
        again.close()
        after = len(results.load(path, lambda text: None))
        whole = length == len(line) - 1  # all but the line's end
        assert repaired.endswith("it has been ended and is whole" if whole else "it has been ended and is incomplete")
        assert (before, after, len(notes)) == ((1, 2, 0) if whole else (0, 1, 1)), (length, notes)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What root gives to the caller of sudo."""
    made: list[Path] = []

    def fchown(descriptor: int, uid: int, gid: int) -> None:
        assert (uid, gid) == (1234, 567)
        made.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "567")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.fchown", fchown)
    return made


def test_under_sudo_files_and_folders_belong_to_the_caller(tmp_path: Path, given: list[Path]) -> None:
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


def test_others_files_are_not_given_away(tmp_path: Path, given: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what was made is: neither a link that another user has put there, nor what it leads to."""
    theirs, real = tmp_path / "theirs", Path.mkdir
    theirs.mkdir()
    (theirs / "file").write_text("")

    def mkdir(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name == "folder":
            path.symlink_to(theirs)
        else:
            real(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(OSError):
        make_folders(tmp_path / "folder")
    (tmp_path / "out.csv").symlink_to(theirs / "file")
    os.close(open_to_append(tmp_path / "out.csv", through_link=True))
    assert given == []


def test_a_folder_that_is_replaced_by_a_link_gets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner did that between two steps of root: the file was made beside, or replaced one beside."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").write_text("theirs")
    (tmp_path / "folder").mkdir()
    with replacing(tmp_path / "folder" / "file") as file:
        file.write(b"mine")
        (tmp_path / "folder").rename(tmp_path / "moved")
        (tmp_path / "folder").symlink_to("theirs")
    assert (tmp_path / "theirs" / "file").read_text() == "theirs"
    assert (tmp_path / "moved" / "file").read_text() == "mine"
    # After the links of its path were judged.
    monkeypatch.setattr("containernet_env.base.files.followed", lambda path: path)
    with pytest.raises(NotADirectoryError), replacing(tmp_path / "folder" / "file"):
        pass


def test_a_link_of_another_user_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root made, or emptied, the file that it led to, where fs.protected_symlinks forbids to follow it."""
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        held = real(descriptor)
        return os.stat_result((*held[:4], 65534, *held[5:])) if stat.S_ISLNK(held.st_mode) else held

    monkeypatch.setattr("os.fstat", fstat)
    monkeypatch.setattr(netns, "socket_in", mock.Mock())
    monkeypatch.delenv("SUDO_UID", raising=False)
    theirs, out, capture = tmp_path / "theirs", tmp_path / "out.csv", tmp_path / "d1.pcap"
    b, folder = tmp_path / "b.csv", tmp_path / "folder"
    for is_above, name, write in (
        (False, "out.csv", lambda: run_directory.check_place(out, 1)),
        (False, "out.csv", lambda: opened(out)),
        (False, "d1.pcap", lambda: Capture("d1", 1, "d1-eth0", capture)),
        # Nor is one of a folder above it, if it is root that would.
        (True, "b.runs", lambda: run_directory.check_place(b, 1)),
        (True, "b.runs", lambda: RunDirectory(b, "r").add_event("run_began", "x")),
        (True, "b.runs/r", lambda: RunDirectory(b, "r").write_log("etcd1", "x")),
        (True, "folder", lambda: opened(folder / "out.csv")),
        (True, "folder", lambda: Capture("d1", 1, "d1-eth0", folder / "d1.pcap")),
    ):
        if is_above:
            monkeypatch.setattr("os.geteuid", lambda: 0)
            theirs.mkdir(exist_ok=True)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to("../theirs" if "/" in name else "theirs")
        with pytest.raises((OSError, UsageError), match=f"{name} is a symbolic link of another user, uid 65534"):
            write()
        (tmp_path / name).unlink()
        assert [*theirs.iterdir()] == [] if is_above else not theirs.exists()
    # Others may write there: the kernel judges the folders.
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (tmp_path / "folder").symlink_to(tmp_path / "theirs")
    opened(tmp_path / "folder" / "out.csv").close()
    with replacing(tmp_path / "folder" / "page.html") as file:
        file.write(b"x")
    assert {path.name for path in (tmp_path / "theirs").iterdir()} == {"out.csv", "page.html"}
    (tmp_path / "theirs" / "file").mkdir()
    with pytest.raises(OSError, match=r"file\.part' -> '.*/folder/file'"), replacing(tmp_path / "folder" / "file"):
        pass
    shutil.rmtree(tmp_path / "theirs")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "65534")
    out.symlink_to("theirs")
    opened(out).close()
    assert theirs.is_file() and out.is_symlink()
