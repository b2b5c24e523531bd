"""`report`: what is read, what counts, which axes there are, and the page: one file that nothing breaks out of."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from containernet_env.base.errors import UsageError
from containernet_env.report import document as documents
from containernet_env.report.axes import Table, rank
from containernet_env.report.document import Document, document_of
from containernet_env.report.figures import FLOOR, Figure, Points
from containernet_env.report.page import report_page
from containernet_env.report.paper import FORMATS, plan
from containernet_env.report.rows import cells_of, read_rows
from containernet_env.report.runs import PERCENTS, Details, Runs, Timeline
from containernet_env.results.csv_file import load
from containernet_env.results.repetitions import TIMING, kept_apart
from containernet_env.results.run_directory import DISRUPTIONS, SCENARIOS, RunDirectory
from containernet_env.runs.sweep.ledger import journal_of
from containernet_env.stores.kinds import KINDS
from tests.unit.answers import closed_loop
from tests.unit.report_rows import EVIL, EVIL_NAMES, document, numbers, row, shown, sweep, write
from tests.unit.store_files import planned
from tests.unit.test_run_directory import directory as run_directory
from tests.unit.test_statistics import encoded

ROOM = Path(documents.__file__).parent
LATENCIES = ("50%", "95%", "99%", "99.9%")
FAILED = row(**dict.fromkeys(("Requests/sec", *LATENCIES), "-"), Valid="-", Error="no leader")
made_run = run_directory


def detailed(path: Path, rows: list[dict[str, str]], details: dict[int, Details]) -> Document:
    """The page of these rows, some of which, by their numbers, have details in run directories."""
    return document_of(read_rows([write(path, rows)]), Runs(details, (), 0, ()))


def figures(made: Document, section: str) -> list[Figure]:
    return [figure for figure in made.figures if figure.section == section]


def traces(made: Document, section: str, place: int = 0) -> list[dict[str, Any]]:
    return list(figures(made, section)[place].drawing["traces"])


def lines(made: Document, place: int = 0) -> dict[str, list[Any]]:
    """The lines of a figure over an axis: positions of their points by label."""
    found = traces(made, "axes", place)
    return {one["name"]: one["at"] for one in found if one.get("showlegend") and one["mode"] == "lines+markers"}


def titles(made: Document) -> list[str]:
    return [figure.drawing["layout"]["xaxis"]["title"]["text"] for figure in figures(made, "axes")]


def table(path: Path, rows: Any) -> Table:
    read = read_rows([write(path, rows)])
    return Table(read.varied, cells_of(read), read.varied_with)


def repetitions(*p50s_s: str, clusters: str = "123456789") -> list[dict[str, str]]:
    """A row for each p50, on the clusters named, by default on one each."""
    return [
        row(Repetition=str(place), Cluster=clusters[place - 1], **{"50%": p50, "Floor_50%_s": p50})
        for place, p50 in enumerate(p50s_s, start=1)
    ]


SIX = ("0.001", "0.002", "0.003", "0.005", "0.006", "0.007")
OF_A_DURATION = [row(Scenario="write-5s-1x1-8B", RequestCount=str(2000 + n), Repetition=str(n)) for n in (1, 2, 3)]
OTHER_SEEDS = [row(LoadSeed="0"), row(LoadSeed="1", Repetition="2"), row(LoadSeed="0", CpuModel="another")]
NO_NUMBERS = [row(**{"50%": "inf", "99%": "many", "Requests/sec": "nan"}), row(**{"50%": "0.020"}, Repetition="2")]
UNEVEN = repetitions("0.001", "0.001", "0.001", "0.007", "0.009", clusters="11123")
RANGE = {"median": [4], "low": [None], "high": [None]}


def huge(value: str) -> list[dict[str, str]]:
    values = dict.fromkeys(("Requests/sec", "50%", "95%", "Floor_50%_s"), value)
    return [*(row(Repetition=str(n), **values) for n in range(1, 9)), row(Repetition="9", **{"50%": "0.020"})]


CELLS: dict[str, tuple[list[dict[str, str]], dict[str, Any]]] = {
    "seeds of their own are one cell, and machines are kept apart": (OTHER_SEEDS, {"repetitions": [2, 1]}),
    "6 have an interval": (repetitions(*SIX), {"repetitions": [6], "low": [1], "high": [7]}),
    "one cluster is one repetition": (repetitions(*SIX, clusters="111111"), {"repetitions": [1], "rows": [6], **RANGE}),
    "a cluster with many rows weighs as much as one with one": (
        UNEVEN,
        {"median": [7], "low": [1], "high": [9], "floors": [7], "curve": 7},
    ),
    "cluster 1 of another run is another": ([row(), row(RunId="run-2")], {"repetitions": [2]}),
    "what a load of some duration came to keeps its repetitions together": (OF_A_DURATION, {"repetitions": [3]}),
    "numbers that are none are missing": (NO_NUMBERS, {"median": [20]}),
    # As ms they were infinite, and so were their sums: no JSON has that.
    **{
        f"no measurement is {value}": (huge(value), {"median": [20], "floors": [9]})
        for value in ("1e306", "1e308", "1.7e308", "-1.7e308")
    },
}


@pytest.mark.parametrize("case", CELLS)
def test_medians_are_of_repetitions(tmp_path: Path, case: str) -> None:
    rows, cells = CELLS[case]
    made = document(write(tmp_path / "out.csv", rows))
    columns = made.points.columns
    found = {name: columns[name] for name in ("repetitions", "rows")}
    found |= {name: columns[name][1] for name in ("median", "low", "high")}
    found |= {"floors": columns["median"][FLOOR], "curve": traces(made, "curves")[0]["y"][2]}
    assert {name: found[name] for name in cells} == cells
    told = [text for text in made.lacks if "share a cluster" in text]
    assert bool(told) == (found["repetitions"] != found["rows"])
    assert ("6 rows count as 1 repetition:" in str(told)) == (case == "one cluster is one repetition")
    json.dumps([columns, *(figure.drawing for figure in made.figures)], allow_nan=False)


def test_rows_that_failed_or_are_not_certainly_valid_are_in_no_median_and_said(tmp_path: Path) -> None:
    rows = [
        row(**{"50%": "0.010"}),
        row(**{"50%": "0.030"}, Repetition="2"),
        row(**{"50%": "0.900"}, Valid="no", Reasons="links_paused;few_answers", Advice="it fits with about 5 clients"),
        row(**{"50%": "0.800"}, Valid="unknown"),
        FAILED,
    ]
    found = document(write(tmp_path / "out.csv", rows))
    points = found.points.columns
    # The singles of the two that are not valid follow; the one that failed measured nothing.
    assert (points["median"][1], points["low"][1]) == ([20.0, 900.0, 800.0], [10.0, None, None])
    assert (points["repetitions"], points["high"][1]) == ([2, None, None], [30.0, None, None])
    assert found.points.singles == {0: [1, 2]}
    assert [why for *_, why, _ in found.bad] == [
        "not valid: the link emulator was paused, there are too few answers; it fits with about 5 clients",
        "not known to be valid",
        "failed: no leader",
    ]
    assert found.counts == {"rows": 5, "count": 2, "failed": 1, "not valid": 2, "configurations": 1}


def test_what_no_column_distinguishes_is_told_apart_by_its_name_or_hash(tmp_path: Path) -> None:
    """`sweep --set valSize=256,4096 --only 'read-*'`: a read has no value size, so only its hash differs."""
    rows = [row(), row(Scenario="w-zipf", ScenarioHash="t"), row(Config="b.json", ConfigHash="d")]
    labels = document(write(tmp_path / "named.csv", rows)).points.columns["label"]
    assert len(labels) == 3 and any("w-zipf" in label for label in labels)
    assert any("b.json (d)" in label for label in labels)
    reads = [
        row(TestType="read", ValueSize="-", ScenarioHash=name, Repetition=place, **{"50%": p50})
        for name, p50 in (("aaa", "0.001"), ("bbb", "0.009"))
        for place in "12"
    ]
    path = write(tmp_path / "out.csv", reads)
    cells = document(path).points.columns
    assert (cells["repetitions"], cells["median"][1]) == ([2, 2], [1.0, 9.0])
    assert [label.count(name) for label, name in zip(cells["label"], ("aaa", "bbb"), strict=True)] == [1, 1]
    with pytest.raises(UsageError, match="differ in ConfigHash or ScenarioHash"):
        plan(read_rows([path]), "link_delay", ["p50"], ["scenario"])
    made = plan(read_rows([path]), "link_delay", ["p50"], ["ScenarioHash"])
    assert [line["median"] for line in numbers(made.numbers())] == ["1.000000", "9.000000"]


def test_a_file_that_is_named_twice_and_rows_that_two_files_have_count_once(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.csv", [row()]), write(tmp_path / "b.csv", [row(), row(Repetition="2")])
    rows = read_rows([first, second, tmp_path / "." / "a.csv"])
    assert len(rows) == 2
    assert rows.notes == (
        f"{tmp_path / 'a.csv'} is named twice, and read once",
        f"{second}: 1 rows are left out, since a file before it has them, too",
    )
    assert len(read_rows([write(tmp_path / "c.csv", [row(), row()])])) == 2  # within a file nobody can tell


def test_the_seeds_columns_alone_make_a_report_that_says_what_it_lacks(tmp_path: Path) -> None:
    found = document(write(tmp_path / "alone.csv", [row(ClientCount=str(n)) for n in (1, 10, 100)], seed=True))
    assert found.counts["count"] == 3 and "seed's 20 columns alone" in found.lacks[0]
    assert lines(found) == {"all": [1.0, 10.0, 100.0]}
    assert [one.value for one in figures(found, "axes")[0].choices if one.name == "x"] == ["linear"]
    assert traces(found, "curves")[0]["y"][2:6] == [10.0, None, None, 12.0]
    # Rows that do not name their run are repetitions each; ours are whatever their number of requests.
    seed = write(tmp_path / "seed.csv", [row(), row(), row(), row(RequestCount="7")], seed=True)
    both = document(write(tmp_path / "out.csv", [row(), row(RequestCount="999", Repetition="2")]), seed)
    assert sorted(both.points.columns["repetitions"]) == [1, 2, 3]
    for of_seed in (False, True):
        empty = document(write(tmp_path / "empty.csv", [], seed=of_seed))
        assert empty.lacks == ("There are no rows yet.",) and "There are no rows yet." in report_page(empty)


def test_the_table_has_figures_beside_names_and_what_a_row_found_on_its_cluster(tmp_path: Path) -> None:
    rows = [row(LinkDelay_ms=delay, ConfigHash=delay, Reused=f"r{delay}") for delay in "12"]
    table = {column.title: column.values for column in document(write(tmp_path / "out.csv", rows)).table}
    assert [*table][:4] == ["scenario", "Repetition", "counts", "requests/s"] and "link delay, one way (ms)" in table
    assert table["Reused"] == ("r1", "r2")


def test_lines_grids_and_pairs_vary_in_their_axes_alone(tmp_path: Path) -> None:
    rows = [line for line in sweep() if (line["LinkDelay_ms"], line["Bandwidth_mbps"]) != ("2", "10")]
    whole, cells = table(tmp_path / "whole.csv", sweep()), table(tmp_path / "out.csv", rows)
    delay, bandwidth = whole.lines()
    assert (delay.axis.title, delay.axis.ticks) == ("link delay, one way (ms)", ("1", "2", "3"))
    assert [line.label for line in delay.lines][:2] == ["linearizable, 1 Mbit/s", "serializable, 1 Mbit/s"]
    assert {len(line.points) for line in delay.lines} == {3} and len(bandwidth.lines) == 6
    for lines in (delay, bandwidth):
        for line in lines.lines:
            keys = [{**whole.cells[cell].values, lines.axis.columns[0]: ""} for _, cell in line.points]
            assert all(key == keys[0] for key in keys)
    (grid,) = cells.grids()
    assert [label for label, _ in grid.panels] == ["linearizable", "serializable"]
    for _, panel in grid.panels:
        for y, line in zip(grid.y.values, panel, strict=True):
            for x, cell in zip(grid.x.values, line, strict=True):
                values = cells.cells[cell].values
                found = ((values["LinkDelay_ms"],), (values["Bandwidth_mbps"],))
                hole = (x, y) == (("2",), ("10",))
                assert (cell == -1) == hole and (hole or found == (x, y)), (x, y)
    assert len(whole.pairs()) == 9 and len(cells.pairs()) == 8
    for _, *pair in cells.pairs():
        one, other = (dict(cells.cells[index].values) for index in pair)
        assert (one.pop("Consistency"), other.pop("Consistency"), one) == ("l", "s", other)


PAIRS = (
    *(("write", "1", "1"), ("write", "100", "10"), ("write", "1000", "100")),
    *(("read", "1", "1"), ("read", "100", "10"), ("read", "100", "100")),
)
LOADS = [row(TestType=kind, ClientCount=clients, ConnectionCount=conns) for kind, clients, conns in PAIRS]
TENTHS = [row(ClientCount=str(n), ConnectionCount=str(n // 10)) for n in (10, 100, 1000)]
LIMITS = [row(Bandwidth_mbps=value) for value in ("unlimited", "1000", "10")]
OF_ONE_MEMBER = [row(LinkDelay_ms=value) for value in ("1;25;1", "1", "1;5/7;1")]
CLIENT_TOO = [row(LinkDelay_ms=value, ClientLink=f"{value} ms unlimited") for value in ("5", "25")]
JITTER = [row(LinkJitter_ms=value) for value in ("uniform 10", "0", "normal 2 correlation 1", "uniform 5")]
MEMBERS = [row(ClusterSize=str(n), LinkDelay_ms=";".join(["1"] * (n - 1) + ["25"])) for n in (3, 5, 7)]


@pytest.mark.parametrize(
    ("rows", "ticks", "numbers", "together"),
    [
        # What is configured together with an axis is named.
        (TENTHS, ("10", "100", "1000"), (10.0, 100.0, 1000.0), ("ConnectionCount",)),
        (CLIENT_TOO, ("5", "25"), (5.0, 25.0), ("ClientLink",)),
        # Where the axis alone does not tell points apart its ticks do.
        (LOADS, ("1 (1)", "100 (10)", "100 (100)", "1000 (100)"), None, None),
        # In order, though they are no numbers: one member's link alone was an axis of no figure, and so was jitter.
        (OF_ONE_MEMBER, ("1", "1;5/7;1", "1;25;1"), None, ()),
        (JITTER, ("0", "normal 2 correlation 1", "uniform 5", "uniform 10"), None, ()),
        # The number of members, whose links differ with it.
        (MEMBERS, ("3", "5", "7"), (3.0, 5.0, 7.0), ("LinkDelay_ms",)),
        # Unlimited is the last tick, and no number.
        (LIMITS, ("10", "1000", "unlimited"), None, ()),
    ],
)
def test_ticks(tmp_path: Path, rows: Any, ticks: tuple[str, ...], numbers: Any, together: Any) -> None:
    lines = table(tmp_path / "out.csv", rows).lines()[0]
    assert (lines.axis.ticks, lines.axis.numbers) == (ticks, numbers)
    assert together is None or lines.together == together


def timed(*points: tuple[object, object], **more: str) -> list[dict[str, str]]:
    """A row for each link delay and heartbeat, both in ms."""
    return [
        row(LinkDelay_ms=str(delay), Heartbeat_ms=str(ms), ElectionTimeout_ms=str(10 * int(str(ms))), **more)
        for delay, ms in points
    ]


DERIVED = ((1, 100), (5, 100), (25, 101))
CHOSEN = tuple((delay, ms) for delay in (1, 5, 25) for ms in (100, 500))
TENTHS_OF_FEW = [row(ClientCount=str(n), ConnectionCount=str(max(1, n // 10))) for n in (1, 5, 10, 100)]
AUTO = [
    row(ClientCount=str(n), ScenarioHash=f"s{n}", Dilation=str(dilation), Valid=valid)
    for n, dilation, valid in ((1, 1, "yes"), (10, 1, "yes"), (100, 4, "no"), (100, 8, "yes"), (1000, 16, "yes"))
]
BASE = [row(LinkDelay_ms=delay, Bandwidth_mbps=rate) for delay, rate in (("1", "10"), ("3", "10"), ("3", "100"))]


@pytest.mark.parametrize(
    ("rows", "axes", "points", "alone"),
    [
        # From an RTT of 100 ms the heartbeat follows from it: the page took these cells for another experiment.
        (timed(*DERIVED), ["link delay"], {"all": 3}, 0),
        (timed(*CHOSEN), ["link delay", "heartbeat"], {"heartbeat 100 ms": 3, "heartbeat 500 ms": 3}, 0),
        # A configured one, beside derived ones.
        (timed(*DERIVED, (5, 250)), ["link delay", "heartbeat"], {"heartbeat 100 ms to heartbeat 101 ms": 3}, 1),
        (timed(*DERIVED, *((at, 500) for at in (1, 5, 25))), ["link delay", "heartbeat"],
         {"heartbeat 100 ms to heartbeat 101 ms": 3, "heartbeat 500 ms": 3}, 0),
        # A tenth of 5 clients is 1 connection, as is that of 10: the line ended at 10.
        (TENTHS_OF_FEW, ["clients"], {"all": 4}, 0),
        (BASE, ["link delay", "bandwidth"], {"all": 2}, 1),
        # The line ended where `--dilation auto` chose another one; it goes through what counts of two attempts.
        ([one for one in AUTO if one["Valid"] == "yes"], ["clients"], {"all": 4}, 0),
        (AUTO, ["clients", "dilation"], {"dilation 1 to dilation 16": 4}, 1),
    ],
)  # fmt: skip
def test_no_line_leaves_a_point_out_that_is_of_it_and_what_is_left_out_is_counted(
    tmp_path: Path, rows: Any, axes: list[str], points: dict[str, int], alone: int
) -> None:
    made = document(write(tmp_path / "out.csv", rows))
    assert [re.split(r"[,(]", title)[0].strip() for title in titles(made)] == axes
    assert {label: len(at) for label, at in lines(made).items()} == points
    words = f"{alone} configuration without another one that differs in this axis alone"
    assert figures(made, "axes")[0].left_out == ([words] if alone else [])
    assert (f"Not shown: {words}." in report_page(made)) == bool(alone)


@pytest.mark.parametrize("store", sorted({*KINDS} - {"http", "zetcd", "cetcd"}))
def test_settings_that_follow_from_the_network_are_no_axis(tmp_path: Path, store: str) -> None:
    """With the timing that a plan derives, of two bandwidths, one of which makes RTTs longer."""
    rows = []
    for delay, rate in product(("1", "26", "60", "120"), ("100", "1000")):
        plan = planned(tmp_path, store, (f"{delay}ms",) * 3, node={"bandwidth": int(rate)})
        keys = zip(TIMING, ("heartbeat_ms", "election_ms"), strict=True)
        timing = {name: str(plan.timing.values.get(key, "-")) for name, key in keys}
        rows.append(row(LinkDelay_ms=delay, Bandwidth_mbps=rate, Store=store, **timing))
    path = write(tmp_path / "out.csv", rows)
    made = document(path)
    assert titles(made) == ["link delay, one way (ms)", "bandwidth (Mbit/s)"]
    assert [[len(at) for at in lines(made, place).values()] for place in (0, 1)] == [[4, 4], [2, 2, 2, 2]]
    assert len(traces(made, "grids")) == 1
    assert not set(TIMING) & set(kept_apart(load(path, print)))


def test_values_that_a_figure_lacks_are_counted_below_it(tmp_path: Path) -> None:
    short = row(LinkDelay_ms="1", **{"99.9%": "-"})
    found = document(write(tmp_path / "out.csv", [short, row(LinkDelay_ms="2"), FAILED | {"LinkDelay_ms": "3"}]))
    values = {"requests/s": 1, "p50": 1, "p95": 1, "p99": 1, "p99.9": 2}
    told = [f"{n} configuration{'s' * (n > 1)} without a value of {name}" for name, n in values.items()]
    assert figures(found, "axes")[0].left_out == told
    assert figures(found, "curves")[0].left_out == ["1 configuration with fewer than two percentiles"]


def test_reads_without_their_counterpart_are_no_pair(tmp_path: Path) -> None:
    rows = [row(Consistency=name, ScenarioHash=f"s{name}") for name in ("l", "stale", "default")]
    others = table(tmp_path / "others.csv", rows)
    assert [cell.label for cell in others.cells] == ["linearizable", "stale", "default consistency"]
    assert not others.pairs()
    lone = [row(TestType="read", Consistency="l", LinkDelay_ms="9"), *sweep(delays=1, bandwidths=1)]
    (figure,) = figures(document(write(tmp_path / "lone.csv", lone)), "pairs")
    assert figure.left_out == ["1 configuration of reads without its counterpart"]


def test_loads_of_other_lengths_are_on_other_lines_and_in_the_order_of_their_values(tmp_path: Path) -> None:
    """Steps of 1000 and of 20000 requests made one line, whose caption said that nothing else varied along it."""
    loads = [("20000", "100"), ("1000", "100"), ("20000", "3000"), ("1000", "1")]
    rows = [
        row(RequestCount=total, ClientCount=n, Scenario=f"write-{total}x{n}x1-8B", ScenarioHash=f"s{total}-{n}")
        for total, n in loads
    ]
    made = document(write(tmp_path / "out.csv", rows))
    assert [*lines(made)] == ["1000 requests", "20000 requests"]
    told = ["1 client, 1000 requests", "100 clients, 1000 requests", "100 clients, 20000 requests"]
    assert made.points.columns["label"] == [*told, "3000 clients, 20000 requests"]


def write_journal(path: Path, *coordinates: dict[str, str]) -> None:
    """The journal of a sweep with these cells, whose topologies have the hash of the last value."""
    cells = []
    for one in coordinates:
        *_, name = one.values()
        line = {"schema": 1, "kind": "cell", "text": "", "scenario_hash": "s", "coordinates": one}
        cells.append({**line, "cell": name, "config_hash": name})
    journal_of(path).write_text("".join(f"{json.dumps(cell)}\n" for cell in cells))


def test_axes_without_a_column_that_vary_with_another_one_are_named_and_hold_for_other_files(tmp_path: Path) -> None:
    """The caption said that nothing else varies along the line."""
    queues = {"1": "8k", "10": "80k", "100": "800k"}
    swept = write(tmp_path / "out.csv", [row(Bandwidth_mbps=rate, ConfigHash=queues[rate]) for rate in queues])
    write_journal(swept, *({"bandwidth": rate, "queue": queue} for rate, queue in queues.items()))
    other = write(tmp_path / "b.csv", [row(Bandwidth_mbps="10", ConfigHash="80k", RunId="run-2")])
    made = document(swept, other)
    assert titles(made) == ["bandwidth (Mbit/s)"] and lines(made) == {"all": [1, 10, 100]}
    assert "Nothing else varies along a line but" in (caption := figures(made, "axes")[0].caption)
    assert "follow from them: queue." in caption
    assert made.points.columns["repetitions"] == [1, 2, 1]


@pytest.mark.parametrize(
    ("name", "values", "at"),
    [
        ("queue", ("1m", "64k", "512b"), [512, 65536, 1048576]),
        ("client.overhead", ("40", "0", "100"), [0, 40, 100]),
        ("tick", ("1s", "100ms"), [100, 1000]),
        ("queue", ("unlimited", "64k", "1k"), ["1k", "64k", "unlimited"]),
    ],
)
def test_axes_of_a_sweep_that_no_column_has_are_read_from_its_journal(
    tmp_path: Path, name: str, values: tuple[str, ...], at: list[object]
) -> None:
    """The page said that no axis varies."""
    path = write(tmp_path / "out.csv", [row(ConfigHash=value) for value in values])
    lacks = [text for text in document(path).lacks if "on no axis" in text]
    assert [text.partition(" ")[0] for text in lacks] == [str(len(values))]
    write_journal(path, *({"link_delay": "3ms", name: value} for value in values))
    made = document(path)
    assert titles(made) == [name] and lines(made) == {"all": at} and not any("on no axis" in one for one in made.lacks)
    assert dict(made.varied)[name] == ", ".join(sorted(values, key=rank))
    if not isinstance(at[0], str):
        assert plan(read_rows([path]), name, ["p50"], []).axis.numbers == tuple(at)
    journal_of(path).write_text('{"schema": 7}\n')
    assert any("settings that no column has are left out" in note for note in document(path).notes)


def test_a_curve_is_of_histograms_where_all_rows_have_one_and_each_point_of_the_same_rows(tmp_path: Path) -> None:
    """The slowest percentage was the median of the one long row, beside others of all rows."""

    def curve(rows: list[dict[str, str]], *histograms_ms: tuple[float | None, ...]) -> tuple[list[Any], list[Any]]:
        """Its values in ms; repetitions, rows, whether they count, and the source."""
        details = {number: Details((), ms, None) for number, ms in enumerate(histograms_ms)}
        made = detailed(tmp_path / f"{len(list(tmp_path.iterdir()))}.csv", rows, details)
        (found,) = traces(made, "curves")
        return found["y"], found["each"]

    full = tuple(100.0 + place for place in range(len(PERCENTS)))
    three = repetitions("0.001", "0.003", "0.005")
    ms, each = curve(three, full)
    assert (ms[2], each) == (3.0, [3, 3, "yes", "columns"])
    assert curve(three, full, full, full) == ([*full], [3, 3, "yes", "histograms"])
    short = (*map(float, range(10)), None, None, None)
    assert curve(repetitions("0.001", "0.001"), tuple(map(float, range(13))), short)[0] == list(short)
    assert curve([row(), row(Repetition="2") | {"99.9%": "-"}])[0][PERCENTS.index(99.9)] is None
    ms, each = curve([row(Valid="no"), FAILED])  # of those that measured
    assert (ms[2], each) == (10.0, [1, 1, "no", "columns"])


def step(ok: int, latency_s: float | None = 1.0) -> dict[str, Any]:
    """Of a timeline, as the load generator reports it."""
    return {"second": 0, "ok": ok, "failed": 0, "unknown": 0, "p50_s": latency_s, "p99_s": latency_s}


def test_the_first_timeline_shows_a_course_and_is_of_a_row_that_counts(tmp_path: Path) -> None:
    courses = [[step(ok) for ok in counts] for counts in ((5,), (5, 6), (5, 6, 7))]
    details = {number: Details((), None, Timeline(1.0, steps, ())) for number, steps in enumerate(courses)}
    found = traces(detailed(tmp_path / "out.csv", [row(), row(Valid="no"), row()], details), "timelines")
    assert [one["y"] for one in found if one["name"] == "succeeded"] == [[5, 6, 7], [5, 6], [5]]


def add_load(run: Path, **more: Any) -> None:
    """Give the scenario of `test_run_directory` a timeline, and something that was done to it."""
    lines = [json.loads(line) for line in (run / SCENARIOS).read_text().splitlines()][:1]
    spoiled = {"failed": 1, "unknown": 2, "p99_s": None}
    lines[0]["load"] |= {"timeline_interval_s": 0.1, "timeline": [step(ok, 0.01) | spoiled for ok in (5, 6)], **more}
    (run / SCENARIOS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = {
        "schema": 1, "scenario": "w", "repetition": 1, "attempt": 1, "began_ns": 1, "seed": "", "number": 1,
        "occurrence": 1, "cause": "event", "verb": "kill", "target": "leader", "value": None, "members": [EVIL],
        "leader": None, "asked_ns": 1, "since_start_ns": 150_000_000, "at_ns": 2, "answered_ns": None,
        "first_success_s": None, "problem": None,
    }  # fmt: skip
    (run / DISRUPTIONS).write_text(json.dumps(done) + "\n")


def of_run(run: RunDirectory, **changes: str) -> Document:
    """The page of a results file with one row, which is of that run."""
    return document(write(run.path.parent.with_suffix(".csv"), [row(**changes)]))


def test_a_run_directory_adds_machine_proof_findings_curve_and_timeline(made_run: RunDirectory) -> None:
    add_load(made_run.path)
    found = of_run(made_run, Valid="no", Reasons="link_lateness")
    (run,) = found.runs
    assert run.run_id == "run-1" and run.proof.startswith("before: passed, 2 of 3 properties proved, RTTs within 20 us")
    assert "after: FAILED: rate of etcd1>s1" in run.proof
    assert found.bad[0][-1] == "frames were late"
    (timeline,) = figures(found, "timelines")
    values = {trace["name"]: trace["y"] for trace in timeline.drawing["traces"]}
    assert values == {"succeeded": [50, 60], "failed or unknown": [30, 30], "p50": [10.0, 10.0]}
    (event,) = timeline.drawing["layout"]["annotations"]
    assert (event["x"], event["text"]) == (0.15, f"kill {EVIL}")
    assert timeline.drawing["notes"][0]["text"].startswith("This row does not count: not valid")
    source = "histograms" if "histogram" in json.dumps(closed_loop()) else "columns"
    assert traces(found, "curves")[0]["each"][-1] == source


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (SCENARIOS, '{"schema":2}\n', "is left out"),
        (SCENARIOS, '{"schema":1,"scen', "1 lines were cut short"),
        ("network.json", "no JSON", "is left out"),
        (DISRUPTIONS, '{"schema":1}\n', "is left out"),
    ],
)
def test_unreadable_run_directories_are_told(made_run: RunDirectory, name: str, content: str, words: str) -> None:
    (made_run.path / name).write_text(content)
    found = of_run(made_run)
    assert found.counts["count"] == 1 and any(words in note for note in found.notes)


def test_a_histogram_that_is_none_and_a_timeline_of_no_time_cost_their_curves_alone(made_run: RunDirectory) -> None:
    for histogram in ("HISTFAAAAA", encoded(b""), encoded(bytes([0xFF, 0x88, 0x7A, 2]))):
        add_load(made_run.path, response_time={"percentiles_s": {}, "histogram": histogram})
        found = of_run(made_run)
        assert any("the histogram of w is left out" in note for note in found.notes)
        assert traces(found, "curves")[0]["each"][-1] == "columns" and figures(found, "timelines")
    add_load(made_run.path, timeline=[step(5, 1e306)])
    found = of_run(made_run)
    assert traces(found, "timelines")[1]["y"] == [None] and "A load, step by step" in report_page(found)


@pytest.mark.parametrize("run_id", ["../out.runs/run-1", "/etc", "..", ".", "a/b", "run-1/"])
def test_a_run_id_leads_nowhere_else(made_run: RunDirectory, run_id: str) -> None:
    assert of_run(made_run, RunId=run_id).runs == ()


def test_nothing_from_a_file_ends_the_data_and_the_policy_allows_nothing_else(tmp_path: Path) -> None:
    """Names as text, and no element made of them: tests/local/test_report_browser.py."""
    rows = []
    for number, name in enumerate(EVIL_NAMES):
        names = ("Scenario", "ScenarioHash", "Error", "Leader", "CpuModel", "Target", "Config", "Events", "Kernel")
        values = dict.fromkeys((*names, "StoreVersion", "Commit"), name)
        rows += [row(**values, LinkDelay_ms=str(number)), row(**values | {"Error": "-"}, LinkDelay_ms=name)]
    made = document(write(tmp_path / "<img src=x>.csv", rows))
    text = report_page(made)
    markup = re.sub(r"(?s)<script.*?</script>", "", text)
    assert not re.search(r'<(img|iframe|b|svg)\b|<[^>]* on\w+=|href="(?!#)', markup) and str(escape(EVIL)) in markup
    inline = re.findall(r"(?s)<(script|style)\b([^>]*)>(.*?)</\1>", text)
    (data,) = [content for _, attributes, content in inline if 'id="data"' in attributes]
    assert any(EVIL in text for text in json.loads(data)["points"]["label"]) and not set("<>&\u2028") & set(data)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html.unescape(markup))
    assert "unsafe" not in policy and "default-src 'none'" in policy
    used = set()
    for tag, attributes, content in inline:
        if "application/json" not in attributes:
            assert "src=" not in attributes
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            assert re.search(rf"\b{tag}-src [^;]*'sha256-{re.escape(digest)}'", policy), tag
            used.add(digest)
    assert policy.count("sha256-") == len(used)  # an empty style is one of them
    with pytest.raises(ValueError, match="JSON"):
        report_page(replace(made, points=Points({"median": [float("nan")]}, {})))


def test_no_html_is_made_past_the_escape() -> None:
    """Markup is made of files of this package and of Plotly alone, and no template or script undoes escaping."""
    for path in sorted(ROOM.rglob("*.py")):
        found = re.findall(r"\bMarkup\((\S+?)\(", path.read_text(encoding="utf-8"))
        assert found == (["_file", "script.replace"] if path.name == "page.py" else []), path
    for path in (ROOM / "templates").iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text), path
        assert not re.search(r"\|\s*safe\b|autoescape", text), path


def test_a_thousand_rows_with_timelines_are_under_6_megabytes(tmp_path: Path) -> None:
    """Each with a cell of its own in two grids, and a minute of timeline."""
    rows = read_rows([write(tmp_path / "out.csv", sweep(delays=10, bandwidths=10, repeat=5))])
    floats = tuple(10 + 0.0017 * ok for ok in range(1000, 1060))
    steps = [step(ok, latency_s / 1000) | {"failed": ok} for ok, latency_s in enumerate(floats, 1000)]
    one = Details(("a finding",), floats[: len(PERCENTS)], Timeline(1.0, steps, ()))
    details = dict.fromkeys(range(len(rows)), one)
    found = document_of(rows, Runs(details, (), 0, ()))
    assert len(rows) == 1000 and len(report_page(found).encode()) < 6_000_000
    assert re.fullmatch(r"\d+ more timelines: see scenarios.jsonl", figures(found, "timelines")[0].left_out[0])


def test_a_page_of_far_too_many_rows_says_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_ROWS", 20), ("MOST_CELLS", 10), ("MOST_BAD", 3)):
        monkeypatch.setattr(documents, name, most)
    rows = [*sweep(repeat=3), *(row(Valid="no", Repetition=str(number), ClientCount="7") for number in range(30))]
    found = document(write(tmp_path / "out.csv", rows))
    assert found.counts["rows"] == 84 and len(found.table[0].values) == 20 and len(found.bad) == 3
    assert found.points.columns["repetitions"] == [3] * 10  # their medians are over all rows
    for words in ("first 10 of 19 configurations", "first 20 of 84 rows", "3 of 31 rows that do not count"):
        assert any(words in note for note in found.notes), words


PLOT = ("plot", "--x", "clients", "--y", "p50")
PAGE_OF_MINE = b"<!DOCTYPE html>\n<html><p>my own page</p></html>"


def test_the_command_writes_the_page_and_says_what_it_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "out.csv", sweep(delays=1, bandwidths=1))
    done = shown("report", path, "-o", tmp_path / "page.html", "--title", f"{EVIL}\x00\x1b\ud800")
    assert done.exit_code == 0, done.output
    assert re.search(r"page\.html: 3 of 4 rows used, 4\.\d MB\n", done.output)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    # No HTML can hold the characters that are replaced.
    assert "<title>&lt;script&gt;alert(1)&lt;/script&gt;\ufffd\ufffd\ufffd - containernet-env report</title>" in text
    assert "Permission is hereby granted, free of charge" in text
    assert shown("report", path, "-o", tmp_path / "no" / "page.html").exception is not None


@pytest.mark.parametrize(
    ("words", "name", "content"),
    [
        *((("report",), "other", content) for content in (PAGE_OF_MINE, b"a,b\n", b"\0")),
        (("report",), "other.csv", None),
        (("report",), "out.csv", None),
        *((PLOT, f"fig.{form}", b"something else") for form in FORMATS),
        (PLOT, "fig.pdf.csv", None),  # replaced before fig.pdf was drawn
    ],
)
def test_nothing_else_is_replaced(tmp_path: Path, words: tuple[str, ...], name: str, content: bytes | None) -> None:
    """Without ``content`` it is a results file."""
    out, other = write(tmp_path / "out.csv", [row()]), tmp_path / name
    if content is None:
        write(other, [row(), row(Repetition="2")])
    else:
        other.write_bytes(content)
    before = other.read_bytes()
    done = shown(*words, out, "-o", str(other).removesuffix(".csv") if words == PLOT else other)
    told = "is an input of this command" if name == "out.csv" else f"{name} is not replaced"
    assert isinstance(done.exception, UsageError) and told in str(done.exception)
    assert other.read_bytes() == before and {path.name for path in tmp_path.iterdir()} == {"out.csv", name}


def test_a_page_and_figures_replace_earlier_ones_and_empty_files(tmp_path: Path) -> None:
    """NAME.partial was written whatever it was, also through a link."""
    out, page_file, victim = write(tmp_path / "out.csv", [row()]), tmp_path / "page.html", tmp_path / "victim"
    page_file.touch()
    (tmp_path / "fig.svg.csv").touch()
    victim.write_text("mine")
    (tmp_path / "page.html.partial").symlink_to(victim)
    for _ in range(2):
        assert shown("report", out, "-o", page_file, "--title", "t" * 3000).exit_code == 0
        for form in FORMATS:
            assert shown(*PLOT, out, "-o", tmp_path / f"fig.{form}").exit_code == 0
    assert victim.read_text() == "mine" and (tmp_path / "page.html.partial").is_symlink()
    figures = {f"fig.{form}{also}" for form in FORMATS for also in ("", ".csv")}
    others = {"out.csv", "page.html", "page.html.partial", "victim"}
    assert {path.name for path in tmp_path.iterdir()} == figures | others
