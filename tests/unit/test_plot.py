"""`plot`: axes by the names of configs and columns; what would mix different experiments is refused."""

from __future__ import annotations

import re
import struct
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import MissingRequirementError, UsageError
from containernet_env.report.paper import FORMATS, chosen, draw, plan
from containernet_env.report.rows import read_rows
from containernet_env.results.csv_file import inert
from tests.unit.report_rows import EVIL, numbers, row, shown, sweep, without, write

BY = ["bandwidth", "consistency"]


def drawing(path: Path, x: str = "link_delay", ys: tuple[str, ...] = ("p50", "throughput"), by: list[str] = BY) -> Any:
    return plan(read_rows([path]), x, ys, by)


def test_the_csv_beside_a_figure_has_its_medians_and_what_does_not_count(tmp_path: Path) -> None:
    path = write(
        tmp_path / "out.csv", [*sweep(), *(one | {"Attempt": "2"} for one in sweep() if one["Cluster"] == "2")]
    )
    done = shown("plot", path, "--x", "link_delay", "--y", "p50,p99", "--by", ",".join(BY), "-o", tmp_path / "fig.svg")
    assert done.exit_code == 0 and "52 rows count as 35 repetitions:" in done.output
    lines = numbers((tmp_path / "fig.svg.csv").read_text())
    of = [line for line in lines if (line["consistency"], line["bandwidth (Mbit/s)"]) == ("s", "100")]
    p50 = [line for line in of if line["figure"] == "latency, p50"]
    names = ("link delay, one way (ms)", "counts", "repetitions", "rows", "median", "low", "high")
    assert [[line[name] for name in names] for line in p50] == [
        ["1", "yes", "2", "3", "2.150000", "2.100000", "2.200000"],
        ["2", "yes", "2", "3", "4.150000", "4.100000", "4.200000"],
        ["3", "yes", "1", "1", "6.100000", "-", "-"],
        *[["3", "no", "-", "1", "6.200000", "-", "-"]] * 2,
    ]
    assert {line["figure"] for line in lines} == {"latency, p50", "latency, p99"}


@pytest.mark.parametrize("form", FORMATS)
def test_pictures_are_the_same_each_time_and_carry_their_fonts(tmp_path: Path, form: str) -> None:
    rows = [row(Target=name, LinkDelay_ms=delay) for name in ("$x_1$", "\u6d4b", EVIL) for delay in "12"]
    made = drawing(write(tmp_path / "out.csv", rows), ys=("p50",), by=["target"])
    picture = draw(made, form)
    assert picture == draw(made, form)
    if form == "pdf":
        assert picture.startswith(b"%PDF") and b"/FontFile2" in picture and b"/Type3" not in picture
    elif form == "svg":
        assert b"<text" not in picture and b"<script" not in picture
    else:
        assert picture.startswith(b"\x89PNG")


def test_rows_of_different_experiments_come_to_no_common_median(tmp_path: Path) -> None:
    path = write(tmp_path / "out.csv", sweep())
    with pytest.raises(UsageError, match=r"differ in Consistency, Bandwidth_mbps: .*\n.*--by.*--where"):
        drawing(path, by=[])
    rows = chosen(chosen(read_rows([path]), ["consistency=l"]), ["bandwidth=10"])
    assert len(plan(rows, "link_delay", ["p50"], []).lines) == 1
    # What follows from the network splits no line and merges no points.
    timed = [row(LinkDelay_ms=delay, Heartbeat_ms=ms) for delay, ms in (("1", "100"), ("5", "100"), ("25", "101"))]
    path = write(tmp_path / "timed.csv", timed)
    assert [len(line.points) for line in drawing(path, by=[]).lines] == [3]
    with pytest.raises(UsageError, match="one point would be of rows that differ in LinkDelay_ms"):
        drawing(path, x="heartbeat", by=[])
    assert len(chosen(read_rows([path]), ["heartbeat=100"])) == 2


GOOD = {"--x": "link_delay", "--y": "p50", "--by": "bandwidth,consistency"}


def test_what_there_is_none_of_is_answered_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "scipy", "scipy.special", "matplotlib")
    path = write(tmp_path / "out.csv", sweep(repeat=6))
    for options, words in (
        (("--x", "link_dely"), "--x link_dely: no such column, did you mean link_delay?"),
        (("--x", "p50"), "--x p50: no such column"),
        (("--y", "bandwidth"), "--y bandwidth: no such column"),
        (("--by", "colour"), "--by colour: no such column"),
        (("--by", "link_delay"), "this is the axis"),
        (("--by", "target"), "one point would be of rows that differ in"),
        (("--by", ""), "one point would be of rows that differ in"),  # as without it
        (("--y", "p50,,p99"), "names with commas"),
        (("--x", "rate"), "no row has a value of OfferedRate_per_s"),
        (("--y", "p25"), "no row has a value of 25%"),
        (("--where", "type"), "write COLUMN=VALUE"),
        (("--x", "consistency", "--by", "link_delay,bandwidth", "--x-scale", "log"), "Consistency has l, s; allowed"),
        (("--where", "type=wrote"), "no row has that; allowed: read"),
        (("-o", "figure.bmp"), "names that end in .pdf, .svg, .png"),
    ):
        # Several --by add up, so each option replaces the one in `GOOD`.
        given = {"-o": tmp_path / "fig.png"} | GOOD | dict(zip(options[::2], options[1::2], strict=True))
        done = shown("plot", path, *chain.from_iterable(given.items()))
        assert isinstance(done.exception, UsageError) and words in str(done.exception), options
    done = shown("plot", path, "-o", tmp_path / "fig.png", *chain.from_iterable(GOOD.items()))
    assert isinstance(done.exception, MissingRequirementError) and list(tmp_path.iterdir()) == [path]


def test_the_seeds_form_has_its_own_axes(tmp_path: Path) -> None:
    path = write(tmp_path / "seed.csv", [row(ClientCount=str(n)) for n in (1, 10, 100)], seed=True)
    made = drawing(path, x="clients", ys=("p95",), by=[])
    assert made.axis.positive and [line["median"] for line in numbers(made.numbers())] == ["12.000000"] * 3
    with pytest.raises(UsageError, match=r"--x link_delay: no such column; allowed: type, members"):
        drawing(path)


def test_many_numbers_and_words_on_an_axis_have_few_ticks(tmp_path: Path) -> None:
    """A tick for each of 200 values made a black bar."""
    for name, delays in (("many", range(101, 301)), ("log", (2**n for n in range(14))), ("few", range(1, 13))):
        rows = read_rows([write(tmp_path / f"{name}.csv", [row(LinkDelay_ms=str(n)) for n in delays])])
        picture = draw(plan(rows, "link_delay", ["p50"], [], "log" if name == "log" else "linear"), "svg").decode()
        assert ("<!-- link delay, one way (ms), logarithmic -->" in picture) == (name == "log")
        assert ("<!-- link delay, one way (ms) -->" in picture) == (name != "log"), "whatever its values are"
        ticks = len(re.findall(r'id="xtick_', picture))
        assert ticks == 12 if name == "few" else 2 < ticks <= 12, (name, ticks)
        assert "mathdefault" not in picture
    words = drawing(write(tmp_path / "words.csv", sweep(delays=1)), x="consistency", ys=("p50",), by=["bandwidth"])
    assert (words.axis.ticks, words.axis.numbers) == (("l", "s"), None)
    assert len(re.findall(r'id="xtick_', draw(words, "svg").decode())) == 2


def test_a_long_legend_takes_no_room_from_the_panels(tmp_path: Path) -> None:
    heights = []
    for lines in (2, 4, 24):
        rows = [row(ClientCount=str(n), LinkDelay_ms=delay) for n in range(1, lines + 1) for delay in "12"]
        made = drawing(write(tmp_path / f"{lines}.csv", rows), ys=("p50",), by=["clients"])
        heights.append(struct.unpack(">I", draw(made, "png")[20:24])[0])  # of a PNG's header
    assert heights[0] == heights[1] == 780 and heights[2] > 1200


def test_more_than_can_be_told_apart_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "out.csv", [row(Target=f"etcd{n}") for n in range(41)])
    with pytest.raises(UsageError, match="41 values, not all of them numbers, are too many"):
        drawing(path, x="target", by=[])
    with pytest.raises(UsageError, match="41 lines are too many to be distinguished"):
        drawing(path, by=["target"])
    with pytest.raises(UsageError, match="5 figures are too many for one picture; at most 4"):
        drawing(path, ys=("p50", "p95", "p99", "p99.9", "throughput"), by=["target"])


def test_bars_of_fewer_than_6_repetitions_are_no_interval_and_say_so(tmp_path: Path) -> None:
    rows = [
        row(LinkDelay_ms=delay, Repetition=str(place), **{"50%": f"0.00{place}"})
        for delay, count in (("1", 1), ("2", 5), ("3", 6))
        for place in range(1, count + 1)
    ]
    path = write(tmp_path / "out.csv", rows)
    made = drawing(path, ys=("p50",), by=[])
    assert [(line["repetitions"], line["interval"]) for line in numbers(made.numbers())] == [
        ("1", "-"),
        ("5", "range"),
        ("6", "95 %"),
    ]
    for delays, words in (
        ("1", ""),
        ("12", "bars: without caps: least to largest"),
        ("13", "bars: 95 % interval of the median"),
        ("123", "bars: 95 % interval of the median; without caps: least to largest"),
    ):
        some = write(tmp_path / f"{delays}.csv", [one for one in rows if one["LinkDelay_ms"] in delays])
        part = drawing(some, ys=("p50",), by=[])
        picture = draw(part, "svg").decode()
        assert part.bars() == words and ("<!-- bars: " in picture) == bool(words)
        assert f"<!-- {words} -->" in picture or not words
        caps = re.findall(r'<use xlink:href="#\w+" [^>]*style="[^"]*stroke: #0072b2', picture)
        assert len(caps) == len(delays) + 2 * ("3" in delays), caps  # markers, and two caps


def test_rows_without_a_point_are_counted_below_the_figure(tmp_path: Path) -> None:
    rows = [row(LinkDelay_ms=delay) for delay in ("1", "5", "25", "-")]
    rows[0] |= {"99.9%": "-"}
    path = write(tmp_path / "out.csv", [*rows, row(TestType="read", LinkDelay_ms="1")])
    options = ("--x", "link_delay", "--y", "p50,p99.9", "--where", "type=write", "-o", tmp_path / "fig.svg")
    done = shown("plot", path, *options)
    told = "not shown: 1 row without link delay, one way (ms); 1 row without p99.9"
    assert done.output.splitlines()[:2] == ["--where leaves out 1 of 5 rows", told]
    picture = (tmp_path / "fig.svg").read_text()
    assert f"<!-- {told} -->" in picture
    assert "logarithmic" not in picture  # without --x-scale


def test_no_field_of_the_csv_is_a_formula(tmp_path: Path) -> None:
    for name in ("=1+1", "@x", "+x", "-x"):
        rows = [row(Target=name, LinkDelay_ms=delay) for delay in ("-1", "2", name)]
        made = drawing(write(tmp_path / f"{name}.csv", rows), ys=("p50",), by=["target"])
        found = [(line["link delay, one way (ms)"], line["target"]) for line in numbers(made.numbers())]
        assert found == [("-1", f"'{name}"), ("2", f"'{name}"), (f"'{name}", f"'{name}")]
    texts = {"\tx": "'\tx", "a=b": "a=b", "-": "-", "-2.5": "-2.5", "+1e5": "+1e5"}
    assert {text: inert(text) for text in texts} == texts
