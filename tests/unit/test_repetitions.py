"""Rows of one configuration are merged, rows of different ones never are."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner

from containernet_env.analysis.repetitions import bimodal, summarize, two_groups
from containernet_env.base.errors import UsageError
from containernet_env.cli import group, main
from containernet_env.cli import group as main_group
from containernet_env.results.columns import COLUMNS, SEED_COLUMNS
from containernet_env.results.csv_file import ResultsFile, load


def write(path: Path, *rows: dict[str, str]) -> pandas.DataFrame:
    file = ResultsFile(path)
    file.open()
    for row in rows:
        file.append({"TestType": "write", "Scenario": "w", "ConfigHash": "a", "Valid": "yes"} | row)
    file.close()
    return load(path)


def test_rows_that_are_not_certainly_valid_are_counted_and_in_no_median_unless_all_are_wanted(tmp_path: Path) -> None:
    frame = write(
        tmp_path / "out.csv",
        {"50%": "0.010"},
        {"50%": "0.030", "Valid": "no"},
        {"50%": "0.050", "Valid": "unknown"},
        {"50%": "0.070", "Valid": "-", "Error": "no leader"},
    )
    summary, every = summarize(frame), summarize(frame, every=True)
    for table in (summary, every):
        assert (table["rows"][0], table["failed"][0], table["invalid"][0]) == (4, 1, 2)
    assert (summary["50%"][0], every["50%"][0]) == (0.010, 0.030)
    for options, told in ([], True), (["--all"], False):
        shown = CliRunner().invoke(group, ["results", str(tmp_path / "out.csv"), *options]).output
        assert "median over the rows of each line that did not fail" in shown
        assert ("that did not fail and that are certainly valid" in shown) == told


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


def test_repetitions_whose_loads_have_seeds_of_their_own_are_of_one_configuration(tmp_path: Path) -> None:
    frame = write(tmp_path / "out.csv", *({"LoadSeed": str(seed), "50%": "0.02"} for seed in range(3)))
    assert summarize(frame)["rows"].tolist() == [3]


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
            assert printed.splitlines()[0].startswith("Scenario,rows,failed,invalid,Requests/sec")
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


FOUR_AND_TWO = [("near1", 3.4), ("far2", 22.1), ("near3", 3.5), ("near1", 3.4), ("far1", 21.9), ("near2", 3.4)]


def of_leaders(path: Path, *rows: tuple[str, float]) -> pandas.DataFrame:
    return write(path, *({"50%": f"{ms / 1000:.6f}", "Leader": leader} for leader, ms in rows))


def test_repetitions_of_two_groups_are_told_with_who_led_them(tmp_path: Path) -> None:
    """5node.json gave 3.4 ms in four runs and 22 ms in two: the median of six, 3.45 ms, hides that."""
    frame = of_leaders(tmp_path / "out.csv", *FOUR_AND_TWO)
    told = "4 rows led by near1, near2, near3 at 3.4 ms; 2 rows led by far1, far2 at 22 ms"
    assert summarize(frame)["bimodal"].tolist() == [told]
    done = CliRunner().invoke(main_group, ["results", str(tmp_path / "out.csv")])
    assert f"w: p50 is of two groups: {told}\n" in done.output
    # A row that failed is in no group.
    with_failed = write(tmp_path / "failed.csv", {"50%": "0.05", "Error": "x"}, *[{"50%": "0.003"}] * 4)
    assert summarize(with_failed)["bimodal"].isna().all()


def test_leaders_that_do_not_differ_are_no_reason(tmp_path: Path) -> None:
    same = of_leaders(tmp_path / "out.csv", *(("near1", ms) for _, ms in FOUR_AND_TWO))
    assert bimodal(same) == "4 rows at 3.4 ms; 2 rows at 22 ms"
    mixed = of_leaders(tmp_path / "mixed.csv", ("a", 3.4), ("b", 22.0), ("b", 3.4), ("a", 22.0))
    assert bimodal(mixed) == "2 rows led by a, b at 3.4 ms; 2 rows led by a, b at 22 ms"


@pytest.mark.parametrize(
    ("values", "lower"),
    [
        ([3.4, 3.4, 3.5, 3.4, 21.9, 22.1], 4),
        ([22.1, 3.4, 21.9, 3.5], 2),
        ([1.0, 1.0, 1.3, 1.3], 2),
        ([1.0, 1.0, 1.2, 1.2], None),  # by no more than a fifth
        ([1.0, 1.2, 1.7, 1.9], None),  # the gap is not three times the spread
        ([1.0, 1.1, 1.5, 1.6], 2),
        ([3.4, 3.4, 3.4, 3.4, 22.0], None),  # one alone is an outlier, no group
        ([3.4, 22.0], None),
        ([3.4, 3.5, 3.6, 3.7, 3.8, 3.9], None),
        ([5.0] * 6, None),
        ([0.0, 0.0, 1.0, 1.0], 2),
        ([], None),
    ],
)
def test_when_medians_are_of_two_groups(values: list[float], lower: int | None) -> None:
    assert two_groups(values) == lower
