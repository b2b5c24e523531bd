"""What medians, intervals and curves of reports and figures are of: repetitions, each on a cluster of its own."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base.errors import UsageError
from containernet_env.cli import group
from containernet_env.report.document import Document, document_of
from containernet_env.report.paper import plan
from containernet_env.report.rows import read_rows
from containernet_env.report.runs import PERCENTS, Details, Runs, Timeline, read_runs
from tests.unit.report_rows import row, write


def document(*files: Path) -> Document:
    rows = read_rows(files)
    return document_of(rows, read_runs(rows))


def shown(*words: object) -> Any:
    return CliRunner().invoke(group, [str(word) for word in words])


def numbers(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def repetitions(*p50s_s: str, clusters: str = "") -> list[dict[str, str]]:
    """A row for each p50, on the clusters named, by default on one each."""
    names = clusters or "123456789"
    return [
        row(Repetition=str(place), Cluster=names[place - 1], **{"50%": p50, "Floor_50%_s": p50})
        for place, p50 in enumerate(p50s_s, start=1)
    ]


# --- rows that share a cluster ----------------------------------------------------------------------------------------


def test_rows_of_one_cluster_are_one_repetition_their_median(tmp_path: Path) -> None:
    """`run --repeat 6` without --fresh: a page told an interval of six repetitions where `compare` had none."""
    p50s = ("0.001", "0.002", "0.003", "0.005", "0.006", "0.007")
    found = document(write(tmp_path / "out.csv", repetitions(*p50s, clusters="111111")))
    cells = found.data["cells"]
    assert (cells["n"], cells["rows"], cells["median"][1]) == ([1], [6], [4.0])
    assert (cells["low"][1], cells["high"][1]) == ([None], [None])
    assert any("6 rows count as 1 repetition:" in text for text in found.lacks)
    fresh = document(write(tmp_path / "fresh.csv", repetitions(*p50s)))
    assert (fresh.data["cells"]["n"], fresh.data["cells"]["low"][1]) == ([6], [1.0])
    assert not any("share a cluster" in text for text in fresh.lacks)


def test_a_cluster_with_many_rows_weighs_as_much_as_one_with_one(tmp_path: Path) -> None:
    rows = repetitions("0.001", "0.001", "0.001", "0.007", "0.009", clusters="11123")
    found = document(write(tmp_path / "out.csv", rows))
    assert found.data["cells"]["median"][1] == [7.0]
    assert (found.data["cells"]["low"][1], found.data["cells"]["high"][1]) == ([1.0], [9.0])
    assert found.data["floors"] == [[0, 7.0]] and found.data["curves"][0]["ms"][2] == 7.0


def test_the_same_cluster_number_of_another_run_is_another_cluster(tmp_path: Path) -> None:
    rows = [row(), row(RunId="run-2")]
    assert document(write(tmp_path / "out.csv", rows)).data["cells"]["n"] == [2]


def test_rows_that_do_not_name_their_run_are_repetitions_each(tmp_path: Path) -> None:
    path = write(tmp_path / "seed.csv", [row(), row()], seed=True)
    assert document(path).data["cells"]["n"] == [2]


def test_a_figure_counts_repetitions_and_names_their_rows(tmp_path: Path) -> None:
    rows = repetitions("0.001", "0.002", "0.003", "0.005", "0.006", "0.007", clusters="111122")
    path, figure = write(tmp_path / "out.csv", rows), tmp_path / "fig.svg"
    done = shown("plot", path, "--x", "link_delay", "--y", "p50", "-o", figure)
    assert "6 rows count as 2 repetitions:" in done.output
    (line,) = numbers((tmp_path / "fig.svg.csv").read_text())
    told = [line[name] for name in ("repetitions", "rows", "median", "low", "high")]
    assert told == ["2", "6", "4.500000", "2.500000", "6.500000"]


# --- what no other column tells apart ---------------------------------------------------------------------------------


def test_reads_of_other_data_are_in_no_common_median(tmp_path: Path) -> None:
    """`sweep --set valSize=256,4096 --only 'read-*'`: a read has no value size, so only its hash differs."""
    reads = [
        row(TestType="read", ValueSize="-", ScenarioHash=name, Repetition=place, **{"50%": p50})
        for name, p50 in (("aaa", "0.001"), ("bbb", "0.009"))
        for place in "12"
    ]
    path = write(tmp_path / "out.csv", reads)
    cells = document(path).data["cells"]
    assert (cells["n"], cells["median"][1]) == ([2, 2], [1.0, 9.0])
    assert [label.count(name) for label, name in zip(cells["label"], ("aaa", "bbb"), strict=True)] == [1, 1]
    rows = read_rows([path])
    with pytest.raises(UsageError, match="differ in ConfigHash or ScenarioHash"):
        plan(rows, "link_delay", ["p50"], ["scenario"])
    made = plan(rows, "link_delay", ["p50"], ["ScenarioHash"])
    assert [line["median"] for line in numbers(made.numbers())] == ["1.000000", "9.000000"]


# --- percentile curves ------------------------------------------------------------------------------------------------


def curve(rows: list[dict[str, str]], path: Path, curves_ms: dict[int, tuple[float | None, ...]]) -> dict[str, Any]:
    """The only curve of these rows, some of which have histograms, by their numbers."""
    read = read_rows([write(path, rows)])
    details = {number: Details((), ms, None) for number, ms in curves_ms.items()}
    (found,) = document_of(read, Runs(details, (), 0, ())).data["curves"]
    return dict(found)


def test_a_curve_is_of_histograms_only_where_all_rows_have_one(tmp_path: Path) -> None:
    rows = repetitions("0.001", "0.003", "0.005")
    full = tuple(100.0 + place for place in range(len(PERCENTS)))
    some = curve(rows, tmp_path / "some.csv", {0: full})
    assert (some["source"], some["ms"][2], some["repetitions"], some["rows"]) == ("columns", 3.0, 3, 3)
    each = curve(rows, tmp_path / "each.csv", dict.fromkeys(range(3), full))
    assert (each["source"], tuple(each["ms"])) == ("histograms", full)


def test_every_point_of_a_curve_is_of_the_same_rows(tmp_path: Path) -> None:
    """The slowest percentage was the median of the one long row, beside others of all rows."""
    long, short = tuple(map(float, range(13))), (*map(float, range(10)), None, None, None)
    found = curve(repetitions("0.001", "0.001"), tmp_path / "a.csv", {0: long, 1: short})
    assert found["ms"] == [*map(float, range(10)), None, None, None]
    rows = repetitions("0.001", "0.001")
    rows[1]["99.9%"] = "-"
    assert curve(rows, tmp_path / "b.csv", {})["ms"][PERCENTS.index(99.9)] is None


def test_a_curve_of_rows_that_do_not_count_is_of_those_that_measured(tmp_path: Path) -> None:
    failed = row(**dict.fromkeys(("50%", "95%", "99%", "99.9%"), "-"), Valid="-", Error="no leader")
    found = curve([row(Valid="no"), failed], tmp_path / "out.csv", {})
    assert (found["valid"], found["rows"], found["ms"][2]) == (False, 1, 10.0)


# --- rows of a sweep --------------------------------------------------------------------------------------------------


def test_loads_of_other_lengths_are_on_other_lines_and_in_the_order_of_their_values(tmp_path: Path) -> None:
    """Steps of 1000 and of 20000 requests made one line, whose caption said that nothing else varied along it."""
    loads = [("20000", "100"), ("1000", "100"), ("20000", "3000"), ("1000", "1")]
    rows = [
        row(RequestCount=total, ClientCount=n, Scenario=f"write-{total}x{n}x1-8B", ScenarioHash=f"s{total}-{n}")
        for total, n in loads
    ]
    data = document(write(tmp_path / "out.csv", rows)).data
    assert [line["label"] for line in data["lines"][0]["lines"]] == ["1000 requests", "20000 requests"]
    told = ["1 client, 1000 requests", "100 clients, 1000 requests", "100 clients, 20000 requests"]
    assert data["cells"]["label"] == [*told, "3000 clients, 20000 requests"]


def test_what_a_load_of_some_duration_came_to_keeps_its_repetitions_together(tmp_path: Path) -> None:
    rows = [row(Scenario="write-5s-1x1-8B", RequestCount=str(2000 + n), Repetition=str(n)) for n in (1, 2, 3)]
    assert document(out := write(tmp_path / "out.csv", rows)).data["cells"]["n"] == [3]
    assert read_rows([out]).requests == [2001, 2002, 2003]
    counted = write(tmp_path / "counted.csv", [*rows, row(Scenario="write-7x10x1-8B", RequestCount="7")])
    assert read_rows([counted]).requests == [2001, 2002, 2003, 7]
    assert read_rows([counted]).values("RequestCount") == [None, None, None, 7]


def test_figures_of_a_row_stand_beside_its_name(tmp_path: Path) -> None:
    rows = [row(LinkDelay_ms=delay, ConfigHash=delay) for delay in "12"]
    columns = [column["title"] for column in document(write(tmp_path / "out.csv", rows)).data["rows"]["columns"]]
    assert columns[:4] == ["scenario", "Repetition", "counts", "requests/s"] and "link delay, one way (ms)" in columns


def test_the_first_timeline_shows_a_course_and_is_of_a_row_that_counts(tmp_path: Path) -> None:
    rows = read_rows([write(tmp_path / "out.csv", [row(), row(Valid="no"), row()])])
    steps = [((5,), (1.0,)), ((5, 6), (1.0, 1.0)), ((5, 6, 7), (1.0, 1.0, 1.0))]
    details = {
        number: Details((), None, Timeline(1.0, ok, (0,) * len(ok), p50, p50, ()))
        for number, (ok, p50) in enumerate(steps)
    }
    found = document_of(rows, Runs(details, (), 0, ())).data["timelines"]
    assert [one["ok"] for one in found] == [(5, 6, 7), (5, 6), (5,)]
