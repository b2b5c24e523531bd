"""The CSV: header, forms, torn lines, rows that survive."""

from __future__ import annotations

import csv
import re
from itertools import pairwise
from pathlib import Path

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.results import csv_file as results
from containernet_env.results.csv_file import COLUMNS, FORMS, SEED_COLUMNS, ResultsFile

README = Path(__file__).resolve().parents[2] / "results" / "README.md"

SEED_HEADER = (
    "TestType,ClusterSize,RequestCount,ClientCount,ConnectionCount,KeySize,ValueSize,Consistency,Total,Slowest,"
    "Fastest,Average,Stddev,Requests/sec,10%,25%,50%,75%,90%,95%"
)


# The header of before open loops, as it stands in files.
CLOSED_LOOP_HEADER = (
    f"{SEED_HEADER},99%,99.9%,Scenario,Repetition,Target,Errors,Error,Leader,LinkDelay_ms,Bandwidth_mbps,"
    "RttExpected_ms,RttMeasured_ms,Hosts,Links,EtcdVersion,Config,RunId,Timestamp"
)
# The header of before jitter, loss and real-time priority were in the rows.
OPEN_LOOP_HEADER = (
    f"{CLOSED_LOOP_HEADER},Rate_offered,Rate_achieved,Unsent,Unknown,Behind,"
    "Service_50%,Service_95%,Service_99%,Service_99.9%"
)
# The header of before reads of several keys.
LEFT_OUT_HEADER = (
    f"{OPEN_LOOP_HEADER},LinkJitter_ms,LinkLoss_ratio,Realtime,LinkLateness_99%_us,LinkReadGap_99%_us,Late_own,Left_out"
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
    file = opened(tmp_path / "deep" / "out.csv")
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


def test_a_file_of_before_open_loops_is_appended_to_in_its_own_form(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text(CLOSED_LOOP_HEADER + "\nwrite" + ",1" * 37 + "\n")
    file = opened(path)
    file.append({"TestType": "mixed", "Timestamp": "now", "Rate_offered": "500.0000", "Behind": "yes"})
    assert lines(path)[0] == CLOSED_LOOP_HEADER
    assert lines(path)[2].split(",") == ["mixed"] + ["-"] * 36 + ["now"]
    assert results.load(path)["TestType"].tolist() == ["write", "mixed"]


def test_a_file_of_before_jitter_and_loss_is_appended_to_in_its_own_form(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text(OPEN_LOOP_HEADER + "\nwrite" + ",1" * 46 + "\n")
    file = opened(path)
    file.append({"TestType": "mixed", "Service_99.9%": "0.1", "Realtime": "yes", "LinkLateness_99%_us": "5.0"})
    assert lines(path)[0] == OPEN_LOOP_HEADER
    assert lines(path)[2].split(",") == ["mixed"] + ["-"] * 45 + ["0.1"]
    assert results.load(path)["Service_99.9%"].tolist() == [1.0, 0.1]


def test_a_file_of_before_spans_is_appended_to_in_its_own_form(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text(LEFT_OUT_HEADER + "\nwrite" + ",1" * 53 + "\n")
    file = opened(path)
    file.append({"TestType": "read", "Left_out": "2", "ReadSpan": "100 keys", "ReadLimit": "5", "ReadAnswer": "keys"})
    assert lines(path)[0] == LEFT_OUT_HEADER
    assert lines(path)[2].split(",") == ["read"] + ["-"] * 52 + ["2"]
    assert results.load(path)["Left_out"].tolist() == [1, 2]


def test_every_form_begins_with_the_one_before_it() -> None:
    for newer, older in pairwise(FORMS):
        assert newer[: len(older)] == older


def test_the_readme_describes_every_column_in_order() -> None:
    cells = re.findall(r"^\| ([^|]+) \|", README.read_text().partition("## The CSV")[2], re.MULTILINE)
    documented = [name for cell in cells[2:] for name in re.split(r",? ", cell)]
    assert tuple(documented) == COLUMNS


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
    mended = file.open().mended
    assert mended is not None and "torn" in mended
    file.append({"TestType": "read"})
    assert lines(path)[2] == "read,3,10"
    assert lines(path)[3].startswith("read,-,-")


@pytest.mark.parametrize("length", [1, 5, 100])
def test_a_torn_header_is_completed(tmp_path: Path, length: int) -> None:
    path = tmp_path / "out.csv"
    path.write_text(",".join(COLUMNS)[:length])
    assert ResultsFile(path).open().mended is not None
    assert lines(path) == [",".join(COLUMNS)]


def test_a_row_stays_one_line_whatever_its_error_says(tmp_path: Path) -> None:
    file = opened(tmp_path / "out.csv")
    file.append({"Error": 'first line\n  second, "quoted"\tline'})
    row = rows_of(tmp_path / "out.csv")[0]
    assert row["Error"] == 'first line second, "quoted" line'
    assert len(lines(tmp_path / "out.csv")) == 2


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
