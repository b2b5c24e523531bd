"""The CSV: header, forms, torn lines, rows that survive."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.results import csv_file as results
from containernet_env.results.columns import COLUMNS, SEED_COLUMNS, as_markdown
from containernet_env.results.csv_file import ResultsFile

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


def test_the_readme_has_the_table_of_columns() -> None:
    begin, end = "<!-- columns: made from containernet_env/results/columns.py -->\n", "<!-- end of columns -->\n"
    text = README.read_text()
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    wanted = f"{before}{begin}{as_markdown()}{end}{after}"
    if os.environ.get("UPDATE_GOLDEN"):
        README.write_text(wanted)
    assert README.read_text() == wanted, "run UPDATE_GOLDEN=1 pytest tests/unit/test_results.py"


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
