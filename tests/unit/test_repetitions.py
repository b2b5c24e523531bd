"""Rows of one configuration are merged, rows of different ones never are."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner

from containernet_env.analysis.repetitions import summarize
from containernet_env.base.errors import UsageError
from containernet_env.cli import main
from containernet_env.results.columns import COLUMNS, SEED_COLUMNS
from containernet_env.results.csv_file import ResultsFile, load


def write(path: Path, *rows: dict[str, str]) -> pandas.DataFrame:
    file = ResultsFile(path)
    file.open()
    for row in rows:
        file.append({"TestType": "write", "Scenario": "w", "ConfigHash": "a"} | row)
    file.close()
    return load(path)


def test_the_same_scenario_on_other_links_is_another_line(tmp_path: Path) -> None:
    frame = write(
        tmp_path / "out.csv",
        {"LinkDelay_ms": "3", "ConfigHash": "a", "50%": "0.0184", "RunId": "1"},
        {"LinkDelay_ms": "1", "ConfigHash": "b", "50%": "0.0034", "RunId": "2"},
        {"LinkDelay_ms": "3", "ConfigHash": "a", "50%": "0.0186", "RunId": "3"},
    )
    summary = summarize(frame)
    assert summary["LinkDelay_ms"].tolist() == ["3", "1"]
    assert summary["rows"].tolist() == [2, 1]
    assert summary["50%"].tolist() == pytest.approx([0.0185, 0.0034])
    assert (summary["50%_min"][0], summary["50%_max"][0]) == (0.0184, 0.0186)


def test_lines_that_nothing_shown_tells_apart_have_their_hash(tmp_path: Path) -> None:
    rows = [{"ConfigHash": name, "50%": "0.02"} for name in ("a", "b", "a")]
    summary = summarize(write(tmp_path / "out.csv", *rows))
    assert summary[["Scenario", "ConfigHash", "rows"]].values.tolist() == [["w", "a", 2], ["w", "b", 1]]
    assert "ConfigHash" not in summarize(write(tmp_path / "one.csv", *rows[::2])).columns


def test_who_names_columns_merges_by_them(tmp_path: Path) -> None:
    frame = write(tmp_path / "out.csv", {"LinkDelay_ms": "3", "Total": "1"}, {"LinkDelay_ms": "1", "Total": "2"})
    assert summarize(frame, ["Scenario"])["rows"].tolist() == [2]
    assert summarize(frame, ["TestType", "LinkDelay_ms"])["LinkDelay_ms"].tolist() == ["3", "1"]
    with pytest.raises(UsageError, match=r"--by Delay: no such column; allowed: TestType, "):
        summarize(frame, ["Delay"])


def test_failed_rows_are_counted_and_have_no_part_in_figures(tmp_path: Path) -> None:
    frame = write(tmp_path / "out.csv", {"Requests/sec": "10"}, {"Error": "not run: x"})
    summary = summarize(frame)
    assert (summary["rows"][0], summary["failed"][0], summary["Requests/sec"][0]) == (2, 1, 10.0)


def test_a_file_with_the_seeds_columns_alone_is_summarized_too(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    header = ",".join(SEED_COLUMNS)
    path.write_text(f"{header}\nwrite,3,100{',1' * 17}\nwrite,3,100{',1' * 17}\nread,3,100{',1' * 17}\n")
    assert summarize(load(path))["rows"].tolist() == [2, 1]


def test_the_command_prints_a_table_json_and_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.csv"
    write(path, {"Requests/sec": "10", "50%": "0.02"}, {"Requests/sec": "12", "50%": "0.03"})
    for arguments in ([], ["--json"], ["--csv"], ["--by", "Scenario"]):
        with pytest.raises(SystemExit) as ended:
            main(["results", str(path), *arguments])
        assert ended.value.code == 0
        printed = capsys.readouterr().out
        if arguments == ["--json"]:
            assert json.loads(printed)[0]["rows"] == 2
        elif arguments == ["--csv"]:
            assert printed.splitlines()[0].startswith("Scenario,rows,failed,Requests/sec")
        else:
            assert "11.0 [10.0..12.0]" in printed and "25.0 ms [20.0 ms..30.0 ms]" in printed


def test_what_is_no_results_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    shown = CliRunner().invoke(_group(), ["results", str(tmp_path / "x.csv")])
    assert isinstance(shown.exception, UsageError)
    assert len(COLUMNS) > len(SEED_COLUMNS)


def _group() -> object:
    from containernet_env.cli import group

    return group


def test_rows_are_merged_by_no_figure(tmp_path: Path) -> None:
    """As JSON the table was a traceback: it had that column twice."""
    frame = write(tmp_path / "out.csv", {"50%": "0.01"})
    with pytest.raises(UsageError, match=r"--by 50%: what is summarized merges no rows; allowed: TestType, "):
        summarize(frame, ["TestType", "50%"])


def test_a_column_that_is_named_twice_is_there_once(tmp_path: Path) -> None:
    """The same."""
    frame = write(tmp_path / "out.csv", {"50%": "0.01"})
    assert list(summarize(frame, ["TestType", "TestType"]).columns)[:2] == ["TestType", "rows"]
