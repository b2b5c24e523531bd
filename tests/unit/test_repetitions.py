"""Rows of one configuration are merged, rows of different ones never are; and what `results` prints.

What it prints is in the snapshot: pytest tests/unit/test_repetitions.py --snapshot-update.
"""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import UsageError
from containernet_env.results.columns import SEED_COLUMNS
from containernet_env.results.csv_file import ResultsFile, load
from containernet_env.results.repetitions import TIMING, bimodal, kept_apart, summarize, two_groups
from tests.unit.commands import answer

SEED_HEADER = ",".join(SEED_COLUMNS)
EVIL = "w\x1b[2J\u202e[red]"


def write(path: Path, *rows: dict[str, str]) -> pandas.DataFrame:
    file = ResultsFile(path)
    file.open()
    for row in rows:
        file.append({"TestType": "write", "Scenario": "w", "ConfigHash": "a", "Valid": "yes"} | row)
    file.close()
    return load(path)


# --- what is merged ---------------------------------------------------------------------------------------------------

DIFFERENT: list[list[dict[str, str]]] = [
    [{"LinkDelay_ms": "3", "ConfigHash": "a"}, {"LinkDelay_ms": "1", "ConfigHash": "b"}],
    [{"ConfigHash": "a"}, {"ConfigHash": "b"}],
    *([{column: "one"}, {column: "other"}] for column in ("CpuModel", "Kernel", "Realtime", "Commit")),
    [{"LinkStamps": "one", "RunId": "a"}, {"LinkStamps": "other", "RunId": "b"}],
    [{"Cores": "2"}, {"Cores": "4"}],
]
ONE: list[list[dict[str, str]]] = [
    [{"LoadSeed": str(seed), "RunId": str(seed)} for seed in range(2)],
    [{"LinkStamps": "kernel"}, {"Error": "not run: etcd2 died"}],  # before its frames were stamped
]


@pytest.mark.parametrize(("rows", "lines"), [*((rows, 2) for rows in DIFFERENT), *((rows, 1) for rows in ONE)])
def test_rows_are_merged_where_nothing_varied(tmp_path: Path, rows: list[dict[str, str]], lines: int) -> None:
    summary = summarize(write(tmp_path / "out.csv", *rows, rows[0]))
    assert summary["rows"].tolist() == ([2, 1] if lines == 2 else [3])


def test_medians_and_ranges_are_of_the_rows_that_are_certainly_valid(tmp_path: Path) -> None:
    """A member that was killed leaves figures of the part before it, which are not those of a whole scenario."""
    doubtful = [{"50%": "0.030", "Valid": "no"}, {"50%": "0.050", "Valid": "unknown"}]
    doubtful.append({"50%": "0.070", "Valid": "-", "Error": "no leader"})
    frame = write(tmp_path / "out.csv", {"50%": "0.010"}, {"50%": "0.012"}, *doubtful)
    summary, every = summarize(frame), summarize(frame, every=True)
    for table in (summary, every):
        assert (table["rows"][0], table["failed"][0], table["invalid"][0]) == (5, 1, 2)
    assert summary[["50%", "50%_min", "50%_max"]].values.tolist() == [[pytest.approx(0.011), 0.010, 0.012]]
    assert every["50%"][0] == pytest.approx(0.021)


def test_lines_that_nothing_shown_tells_apart_have_their_hash(tmp_path: Path) -> None:
    rows = [{"ConfigHash": name, "50%": "0.02"} for name in ("a", "b", "a")]
    summary = summarize(write(tmp_path / "out.csv", *rows))
    assert summary[["Scenario", "ConfigHash", "rows"]].values.tolist() == [["w", "a", 2], ["w", "b", 1]]
    assert "ConfigHash" not in summarize(write(tmp_path / "one.csv", *rows[::2])).columns


def test_what_follows_from_the_network_is_no_column_and_what_was_chosen_is(tmp_path: Path) -> None:
    network = [{"LinkDelay_ms": delay, "RttExpected_ms": rtt, "ConfigHash": delay} for delay, rtt in DELAYS]
    derived = [row | {"Heartbeat_ms": ms, "ElectionTimeout_ms": f"{ms}0"} for row, ms in zip(network, MS, strict=True)]
    chosen = [row | {"Heartbeat_ms": "500", "ElectionTimeout_ms": "5000", "ConfigHash": "e"} for row in network[:1]]
    for name, rows, more in (("a", derived, []), ("b", derived + chosen, ["Heartbeat_ms"])):
        summary = summarize(write(tmp_path / f"{name}.csv", *rows))
        assert [*summary.columns[1 : list(summary.columns).index("rows")]] == ["LinkDelay_ms", *more]
        assert set(summary["rows"]) == {1}
    # From the overhead of links, which the expected RTT alone shows.
    overhead = [{"LinkDelay_ms": delay, "RttExpected_ms": rtt, "Heartbeat_ms": ms} for delay, rtt, ms in OVERHEAD]
    assert not set(TIMING) & set(kept_apart(write(tmp_path / "c.csv", *overhead)))


DELAYS, MS = (("5", "20.003"), ("25", "100.003")), ("100", "101")
OVERHEAD = (("1", "6.000", "100"), ("1", "6.500", "100"), ("25", "102.000", "102"), ("25", "103.000", "103"))


def test_who_names_columns_merges_by_them(tmp_path: Path) -> None:
    frame = write(tmp_path / "out.csv", {"LinkDelay_ms": "3", "Total": "1"}, {"LinkDelay_ms": "1", "Total": "2"})
    assert summarize(frame, ["Scenario"])["rows"].tolist() == [2]
    assert summarize(frame, ["TestType", "LinkDelay_ms"])["LinkDelay_ms"].tolist() == ["3", "1"]
    assert list(summarize(frame, ["TestType", "TestType"]).columns)[:2] == ["TestType", "rows"]
    for name, words in (("xyz", "no such column"), ("50%", "what is summarized merges no rows")):
        with pytest.raises(UsageError, match=rf"--by {name}: {words}; allowed: type, "):
            summarize(frame, ["TestType", name])


def test_rows_of_the_seeds_form_with_other_request_counts_are_not_merged(tmp_path: Path) -> None:
    """In that form RequestCount is what was configured, and nothing else in the row tells the two apart."""
    path = tmp_path / "seed.csv"
    lines = [
        f"{kind},3,{total}{',1' * 17}" for kind, total in (("write", 100), ("write", 100), ("write", 9), ("read", 9))
    ]
    path.write_text("\n".join([SEED_HEADER, *lines, ""]))
    assert summarize(load(path))["rows"].tolist() == [2, 1, 1]


# --- what is printed --------------------------------------------------------------------------------------------------


def test_what_results_prints(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Three experiments of one name, which can be told apart; and names that move no cursor and are no markup."""
    two = {"Requests/sec": "10", "50%": "0.02", "ScenarioHash": "s1"}
    more = {"ClientCount": "1000", "ScenarioHash": "s2", "ReadLimit": "1234567"}
    rows = [two, two | {"Requests/sec": "12", "50%": "0.03"}, two | {"Valid": "no"}, two | {"Error": "no leader"}]
    rows += [more | {"Config": "wan[old].json"}, more | {"ConfigHash": "b", "Config": "lan[/x].json", "Leader": EVIL}]
    write(tmp_path / "out.csv", *rows)
    write(tmp_path / "empty.csv")
    write(tmp_path / "one.csv", two)
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    calls = ("out.csv", "out.csv --all", "out.csv --json", "out.csv --csv", "out.csv --by Config --by ReadLimit")
    calls = (*calls, "out.csv --by Leader", "one.csv", "empty.csv", "empty.csv --csv", "x.csv", "/dev/null")
    told = {}
    for line in calls:
        name, *options = line.split()
        told[line] = answer("results", tmp_path / name, *options, folder=tmp_path)
    lines = [line for line in told["out.csv"].splitlines() if line.startswith("w ")]
    assert len(set(lines)) == 3 and not {"\x1b", "\u202e"} & set("".join(told.values()))
    assert told == snapshot


FOUR_AND_TWO = [("near1", 3.4), ("far2", 22.1), ("near3", 3.5), ("near1", 3.4), ("far1", 21.9), ("near2", 3.4)]


def of_leaders(path: Path, *rows: tuple[str, float]) -> pandas.DataFrame:
    return write(path, *({"50%": f"{ms / 1000:.6f}", "Leader": leader} for leader, ms in rows))


def test_repetitions_of_two_groups_are_shown_with_who_led_them(tmp_path: Path) -> None:
    """5node.json gave 3.4 ms in four runs and 22 ms in two: the median of six, 3.45 ms, hides that."""
    frame = of_leaders(tmp_path / "out.csv", *FOUR_AND_TWO)
    told = "4 rows led by near1, near2, near3 at 3.4 ms; 2 rows led by far1, far2 at 22 ms"
    assert summarize(frame)["bimodal"].tolist() == [told]
    assert f"w: p50 is of two groups: {told}\n" in answer("results", tmp_path / "out.csv")
    # A row that failed is in no group.
    with_failed = write(tmp_path / "failed.csv", {"50%": "0.05", "Error": "x"}, *[{"50%": "0.003"}] * 4)
    assert summarize(with_failed)["bimodal"].isna().all()


BY_BOTH = "2 rows led by a, b at 3.4 ms; 2 rows led by a, b at 22 ms"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([("near1", ms) for _, ms in FOUR_AND_TWO], "4 rows at 3.4 ms; 2 rows at 22 ms"),
        ([(leader, ms) for leader in "ab" for ms in (3.4, 22.0)], BY_BOTH),
    ],
)
def test_leaders_that_do_not_differ_are_no_reason(tmp_path: Path, rows: list[tuple[str, float]], told: str) -> None:
    assert bimodal(of_leaders(tmp_path / "out.csv", *rows)) == told


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
