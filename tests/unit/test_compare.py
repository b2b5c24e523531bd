"""Rows of one configuration merged, and two files compared, in words that never say more than the repetitions tell.

What `results` prints is in the snapshot: pytest tests/unit/test_compare.py --snapshot-update.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from click.testing import Result
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import MissingRequirementError, UsageError
from containernet_env.cli import main
from containernet_env.results import comparison
from containernet_env.results.columns import COLUMNS
from containernet_env.results.comparison import Comparison, compare
from containernet_env.results.csv_file import frame_of, load
from containernet_env.results.repetitions import TIMING, bimodal, kept_apart, summarize, two_groups
from containernet_env.results.statistics import Interval
from tests.unit import report_rows
from tests.unit.commands import answer
from tests.unit.report_rows import without, write

STEADY = {"TestType": "write", "Scenario": "w", "ConfigHash": "c", "ScenarioHash": "s", "Valid": "yes", "Attempt": "1"}
EVEN = [1.00, 1.01, 0.99, 1.02, 0.98, 1.005]


def rows(values: Sequence[float], run: str, cells: int = 1, fresh: bool = True, **more: str) -> list[dict[str, str]]:
    """One row for each value and cell: 1000 requests/s times it."""
    made = []
    for index, value in enumerate(values):
        for cell in range(cells):
            name = {"Scenario": f"w{cell}", "ScenarioHash": f"s{cell}"} if cells > 1 else {}
            place = {"RunId": run, "Cluster": str(index + 1 if fresh else 1), "LoadSeed": str(index)}
            moment = {"Timestamp": f"2026-11-22T10:{index:02d}:00.{cell:03d}Z", "Repetition": str(index + 1)}
            figures = {"Requests/sec": f"{1000 * value:.4f}", "50%": f"{0.01 / value:.9f}"}
            made.append(STEADY | name | place | moment | figures | more)
    return made


def seed_file(path: Path, factor: float, repetitions: int = 6, requests: str = "100") -> Path:
    """A file of the seed's form: writes of 8 and of 256 bytes."""
    fixed = dict.fromkeys(COLUMNS, "0.010000") | {"TestType": "write", "ClusterSize": "3", "RequestCount": requests}
    fixed |= {"Consistency": "-", "ClientCount": "1", "KeySize": "8"}
    made = [
        fixed | {"ValueSize": size, "Requests/sec": f"{factor * (1000 + index):.4f}"}
        for index in range(repetitions)
        for size in ("8", "256")
    ]
    return write(path, made, seed=True)


def run(*arguments: object) -> Result:
    return report_rows.shown("compare", *arguments)


def status(*arguments: object) -> object:
    """The exit status of the command as it is called from outside."""
    with pytest.raises(SystemExit) as ended:
        main(["compare", *map(str, arguments)])
    return ended.value.code


def compared(a: Sequence[dict[str, str]], b: Sequence[dict[str, str]], *figures: str) -> Comparison:
    return compare(frame_of(a), frame_of(b), figures)


def scaled(values: Sequence[float], factor: float) -> list[float]:
    return [factor * value for value in values]


AT_BEST = "cannot tell: {} against {} repetitions{} can at best reach p = {}"


@pytest.mark.parametrize(
    ("a", "b", "figure", "words"),
    [
        (EVEN, scaled(EVEN, 0.9), "Requests/sec", "B 8.2 to 12 % slower"),
        (EVEN, scaled(EVEN, 1.2), "Requests/sec", "% faster"),
        (EVEN, scaled(EVEN, 0.8), "50%", "% slower"),
        (EVEN, scaled(EVEN, 1.2), "50%", "% faster"),
        (EVEN[:3], scaled(EVEN[:3], 2), "Requests/sec", AT_BEST.format(3, 3, "", "0.1; 4 each are needed")),
        ([1.0] * 8, [1.0] * 8, "Requests/sec", AT_BEST.format(8, 8, " with equal values", "1")),
    ],
)
def test_more_requests_and_less_time_are_faster_and_too_few_repetitions_say_what_it_takes(
    a: Sequence[float], b: Sequence[float], figure: str, words: str
) -> None:
    (cell,) = compared(rows(a, "1"), rows(b, "2"), figure).cells
    if words.startswith("cannot tell"):
        assert (cell.verdict, cell.words) == ("cannot tell", words)
        return
    assert (cell.verdict, cell.repetitions, cell.rows) == (words.rpartition(" ")[2], (6, 6), (6, 6))
    assert cell.words.endswith(words) and cell.p == cell.adjusted_p == pytest.approx(2 / 924)
    assert cell.ratio.low < (b[0] if figure != "50%" else 1 / b[0]) < cell.ratio.high


def test_scenarios_with_a_rate_are_compared_by_their_median() -> None:
    a = rows(EVEN, "1") + rows(EVEN, "1", Scenario="r", OfferedRate_per_s="500.0000")
    found = compared(a, [row | {"RunId": "2"} for row in a])
    assert [(cell.title, cell.figure) for cell in found.cells] == [("w", "Requests/sec"), ("r", "50%")]


@pytest.mark.parametrize("n", range(1, 7))
def test_no_difference_shown_is_never_said_where_none_could_have_been(n: int) -> None:
    values = [1 + index / 1000 for index in range(6)]
    for m in range(n, 7):
        for tests in (1, 3):
            a = rows(values[:n], "1", tests)
            same = compared(a, rows(values[-m:], "2", tests))
            apart = compared(a, rows([9.0 + v for v in values[:m]], "2", tests))
            could = all(cell.verdict == "faster" for cell in apart.cells)
            assert all(cell.verdict == "cannot tell" for cell in apart.cells) != could
            assert could or all(cell.verdict == "cannot tell" for cell in same.cells)


DOUBTFUL = [*rows([50.0], "9", Valid="no"), *rows([50.0], "9", Valid="unknown"), *rows([50.0], "9", Error="no leader")]
DELAYS = [row for delay in "13" for row in rows(EVEN, delay, LinkDelay_ms=delay, ConfigHash=delay)]
HIDDEN = [row | {"LinkDelay_ms": "3"} for row in DELAYS]
READS = rows(EVEN, "2", Scenario="r", TestType="read")
FOURTH = {"LinkDelay_ms": "4", "ConfigHash": "4"}


def test_what_has_no_counterpart_is_refused() -> None:
    several = r"{} has rows of several experiments .*\({}: 1, 3\)"
    third = rows(EVEN, "9", **FOURTH | {"LinkDelay_ms": "3"})
    cases = (
        (rows(EVEN, "1"), DOUBTFUL, "B has no row that can be compared: 1 failed, 1 not valid, 1 of unknown"),
        ([], rows(EVEN, "1"), "A has no row that can be compared: it has no rows"),
        (DELAYS, rows(EVEN, "9", **FOURTH), several.format("A", "LinkDelay_ms")),
        (third, HIDDEN, several.format("B", "ConfigHash")),
        (rows(EVEN, "1"), READS, r"(?s)no scenario of A is in B.*Scenario: A has w, B has r"),
    )
    for a, b, words in cases:
        with pytest.raises(UsageError, match=words):
            compared(a, b)


def delays(run: str, of: str, timing: Sequence[str] = (), **more: str) -> list[dict[str, str]]:
    """Cells of these link delays, each with a topology and perhaps a heartbeat of its own."""
    made = []
    for place, delay in enumerate(of):
        network = {"LinkDelay_ms": delay, "ConfigHash": more.get("ConfigHash", run + delay if timing else delay)}
        network |= {"Heartbeat_ms": timing[place]} if timing else {}
        made += rows(EVEN, run + delay, **more | network)
    return made


A_SIDE = delays("a", "59", ("100", "101"), Bandwidth_mbps="1000")
OF_TWO = ["w, 5", "w, 9"]


@pytest.mark.parametrize(
    ("a", "b", "titles", "only", "differs"),
    [
        # What differs as a whole.
        (delays("1", "3", Commit="x", ConfigHash="c"), delays("2", "4", Commit="y", ConfigHash="d"), ["w"], ((), ()),
         [("LinkDelay_ms", "3", "4"), ("ConfigHash", "c", "d"), ("Commit", "x", "y")]),
        # Axes of both sides, value by value.
        (delays("a", "135", StoreVersion="3.5"), delays("b", "137", StoreVersion="3.6"), ["w, 1", "w, 3"],
         (("w, 5",), ("w, 7",)), [("StoreVersion", "3.5", "3.6")]),
        # At another bandwidth the heartbeat that follows from the RTT was another one, and the cell was in one file.
        (A_SIDE, delays("b", "59", ("100", "103"), Bandwidth_mbps="10"), OF_TWO, ((), ()),
         [("Bandwidth_mbps", "1000", "10"), ("ConfigHash", "a5, a9", "b5, b9")]),
        (A_SIDE, delays("c", "59", ("500", "500"), Bandwidth_mbps="1000"), OF_TWO, ((), ()),
         [("Heartbeat_ms", "100, 101", "500"), ("ConfigHash", "a5, a9", "c5, c9")]),
    ],
    ids=["as a whole", "axes of both", "settings that follow", "chosen settings"],
)  # fmt: skip
def test_what_is_matched_and_what_differs(
    a: Any, b: Any, titles: list[str], only: object, differs: list[object]
) -> None:
    found = compared(a, b)
    assert ([cell.title for cell in found.cells], found.only, [*found.differs]) == (titles, only, differs)


ONE_CLUSTER = rows([1.0, 1.2, 1.1], "1", fresh=False)
NO_RATIO = [row | {"Requests/sec": value} for row, value in zip(rows(EVEN, "1"), ("-", "0", "inf", "-1"), strict=False)]


@pytest.mark.parametrize(
    ("a", "repetitions", "more"),
    [
        # Rows of one cluster are one repetition, their median; another run's cluster 1 is another one.
        (ONE_CLUSTER, 1, {"rows": 3, "verdict": "cannot tell", "median": 1100}),
        (ONE_CLUSTER + rows([1.3], "3", fresh=False), 2, {}),
        # Those that are not certainly valid are never mixed in.
        (rows(EVEN, "1") + DOUBTFUL, 6, {"left_out": {"failed": 1, "not valid": 1, "of unknown validity": 1}}),
        # A figure that is missing, or makes no ratio.
        (NO_RATIO, 0, {"p": None, "verdict": "cannot tell", "words": "cannot tell: A has no value of it"}),
    ],
)
def test_what_is_a_repetition(a: Any, repetitions: int, more: dict[str, Any]) -> None:
    found = compared(a, rows(EVEN, "2"))
    (cell,) = found.cells
    told = {"rows": cell.rows[0], "verdict": cell.verdict, "median": cell.medians[0], "p": cell.p, "words": cell.words}
    told |= {"left_out": found.left_out[0]}
    assert (cell.repetitions, found.left_out[1]) == ((repetitions, 6), {})
    assert {name: told[name] for name in more} == more


def test_rows_that_a_has_too_are_not_compared_with_themselves(tmp_path: Path) -> None:
    """A copy of OUT against OUT after one more run, which appends to it."""
    before = rows(EVEN, "1", Commit="x")
    after = before + rows(scaled(EVEN, 0.5), "2", Commit="y")
    a, b = write(tmp_path / "before.csv", before), write(tmp_path / "out.csv", after)
    found = compare(load(a), load(b))
    assert [(cell.verdict, cell.repetitions) for cell in found.cells] == [("slower", (6, 6))]
    assert (found.left_out, found.differs) == (({}, {"also in A": 6}), (("Commit", "x", "y"),))
    assert "rows left out: 6 also in A" in run(a, b).output
    assert status(a, b, "--fail-if-slower", "5%") == 1
    for one, other in ((a, a), (b, a)):
        refused = str(run(one, other).exception)
        assert f"B ({other}) has no row that can be compared: 6 also in A\n  Rows that are on both sides" in refused
    seed, more = seed_file(tmp_path / "seed.csv", 1), seed_file(tmp_path / "more.csv", 0.5)
    more.write_text(seed.read_text() + more.read_text().partition("\n")[2])
    slower = [("slower", (6, 6))] * 2
    assert [(cell.verdict, cell.repetitions) for cell in compare(load(seed), load(more)).cells] == slower


@pytest.mark.parametrize("of_the_seed", [True, False])
def test_a_file_that_is_given_twice_or_copied_counts_once(tmp_path: Path, of_the_seed: bool) -> None:
    names = [tmp_path / name for name in ("a.csv", "b.csv", "copy.csv")]
    if of_the_seed:
        a, b = seed_file(names[0], 1, 3), seed_file(names[1], 0.5, 3)
    else:
        a, b = write(names[0], rows(EVEN[:3], "1", 2)), write(names[1], rows(EVEN[:3], "2", 2))
    names[2].write_bytes(a.read_bytes())
    shown = run(a, b, "--also-a", a, "--also-a", names[2], "--also-b", b, "--json")
    cells = json.loads(shown.stdout)["cells"]
    assert {(cell["repetitions_a"], cell["repetitions_b"]) for cell in cells} == {(3, 3)}
    assert {(cell["rows_a"], cell["rows_b"]) for cell in cells} == {(3, 3)}
    assert shown.stderr.count("6 rows are left out, since a file before it has them, too") == 3
    other = write(tmp_path / "d.csv", rows(EVEN, "4")) if of_the_seed else seed_file(tmp_path / "d.csv", 1)
    assert "have different columns" in str(run(a, b, "--also-a", other).exception)


def test_what_differs_by_chance_is_named_and_makes_no_other_experiment() -> None:
    for column, words in (
        # `run --only` of one scenario has a new cluster for it, the whole matrix has one for all.
        ("Reused", "what a scenario found from before it"),
        # Repetitions of one sweep may be on several machines.
        ("Machine", "on which machine it was measured"),
    ):
        a, b = (rows(EVEN[:2], run, 3, **{column: "one"}) for run in "12")
        assert compared(a, b).notes == ()
        for row in (b[0], b[-1]):
            row[column] = "other"
        found = compared(a, b)
        assert {cell.repetitions for cell in found.cells} == {(2, 2)}
        assert found.notes == (
            f"{column}, {words}, differs in 2 cells, which may be part of a difference "
            "(w0: one in A, one, other in B and 1 more)",
        )


def test_runs_on_an_external_cluster_are_no_repetitions_on_clusters_of_their_own() -> None:
    (note,) = compared(*(rows(EVEN[:2], run, Hosts="external") for run in "12")).notes
    assert note.startswith("A and B: rows of external clusters.")


def test_the_seeds_form_works_also_on_one_side_and_says_what_is_missing(tmp_path: Path) -> None:
    a, b = seed_file(tmp_path / "a.csv", 1), seed_file(tmp_path / "b.csv", 0.5)
    found = compare(load(a), load(b))
    told = {cell.title: (cell.verdict, cell.repetitions) for cell in found.cells}
    assert told == dict.fromkeys(("8", "256"), ("slower", (6, 6)))
    assert "A and B: the seed's columns alone do not say which rows are valid, which share a cluster" in found.notes[0]
    assert "do not say which rows are valid" in run(a, b).output
    with pytest.raises(UsageError, match=r"RequestCount: A has 100, B has 7"):
        compare(load(a), load(seed_file(tmp_path / "c.csv", 1, requests="7")))
    # One side of that form is matched by its columns alone.
    fixed = {"ClusterSize": "3", "RequestCount": "100", "ValueSize": "8", "KeySize": "8", "ClientCount": "1"}
    ours = rows(EVEN, "1", ConnectionCount="0.010000", **fixed)
    found = compare(frame_of(ours), load(a))
    assert [cell.repetitions for cell in found.cells] == [(6, 6)]
    both = ours + [row | {"Target": "leader", "Scenario": "v"} for row in ours]
    with pytest.raises(UsageError, match=r"A has rows of several experiments .*Scenario: v, w"):
        compare(frame_of(both), load(a))
    with pytest.raises(UsageError, match="no figure 99% in both"):
        compare(frame_of(ours), load(a), ["99%"])


def test_spreads_advise_more_repetitions_than_the_least() -> None:
    rng = np.random.default_rng(2)
    a, b = (np.exp(0.1 * rng.standard_normal(3)).tolist() for _ in range(2))
    (cell,) = compared(rows(a, "1"), rows(b, "2")).cells
    assert cell.advised is not None and cell.advised > cell.needed == 4
    assert cell.words.endswith(f"4 each are needed, by this spread {cell.advised} to find 12 %")


def test_words_of_intervals_that_reach_beyond_no_difference() -> None:
    for low, high, words in (
        (0.8, 0.9, "10 to 20 % slower"),
        (0.8, 1.05, "slower, at most 20 %"),
        (1.0, 1.05, "slower in rank, not in its median"),
    ):
        assert comparison._how_much("slower", "Requests/sec", Interval(0.9, low, high, 6)) == words


def test_the_command_prints_a_table_that_fits_a_terminal(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", rows(EVEN, "1", 18, LinkDelay_ms="3"))
    b = write(tmp_path / "b.csv", rows(scaled(EVEN, 0.9), "2", 18, LinkDelay_ms="4"))
    c = write(tmp_path / "c.csv", rows([*EVEN[:4], 1.3], "2", 18, LinkDelay_ms="3", Scenario="x" * 60))
    shown = run(a, b)
    assert shown.exit_code == 0 and "LinkDelay_ms: 3 in A, 4 in B" in shown.output
    assert shown.output.count("B 8.2 to 12 % slower") == 18
    d = write(tmp_path / "d.csv", rows([*EVEN[:4], 1.3], "3", 18, LinkDelay_ms="3", Scenario="x" * 60))
    for text in (shown.output, run(c, d, "--figure", "p50", "--figure", "Requests/s").output):
        assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 120
    few = " ".join(run(c, d).output.split())
    assert "cannot tell: 5 against 5 repetitions with equal values can at best reach p = " in few
    assert "; 6 each are needed" in few


def test_json_and_csv_have_every_cell_and_replace_nothing_else(tmp_path: Path) -> None:
    a, b = (write(tmp_path / f"{name}.csv", rows(EVEN[:3], name, 2)) for name in "ab")
    beside = tmp_path / "cells.csv.partial"
    beside.write_text("mine")
    for _ in range(2):
        shown = run(a, b, "--json", "--csv", tmp_path / "cells.csv", "--figure", "p50")
    document = json.loads(shown.stdout)
    assert document["version"] == 1 and [cell["figure"] for cell in document["cells"]] == ["50%", "50%"]
    written = report_rows.numbers((tmp_path / "cells.csv").read_text())
    assert [row["cell"] for row in written] == ["w0", "w1"] == [cell["cell"] for cell in document["cells"]]
    assert (written[0]["ratio_low"], written[0]["verdict"]) == ("-", "cannot tell")
    assert document["cells"][0]["ratio_low"] is None
    before = a.read_bytes()
    for path, words in (
        (tmp_path / "no" / "cells.csv", "cannot write"),
        (a, "is an input of this command"),
        (beside, "is not replaced"),
        (Path("/dev/null"), "no regular file"),
        (a / "x", "cannot write"),
    ):
        assert words in str(run(a, b, "--csv", path).exception)
    assert a.read_bytes() == before and not Path("/dev/null").is_file() and beside.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.glob("*.csv*")) == ["a.csv", "b.csv", "cells.csv", beside.name]


def test_the_exit_status_for_ci(tmp_path: Path) -> None:
    codes = {(1.0, 6): 0, (0.9, 6): 1, (0.94, 6): 0, (0.96, 6): 0, (1.2, 6): 0, (0.5, 3): 2, (1.0, 3): 2}
    for (factor, n), code in codes.items():
        a = write(tmp_path / f"a{factor}-{n}.csv", rows(EVEN[:n], "1"))
        b = write(tmp_path / f"b{factor}-{n}.csv", rows(scaled(EVEN[:n], factor), "2"))
        options = ("--fail-if-slower", "5%", "--figure", "Requests/sec", "--figure", "p50")
        assert status(a, b, *options) == code, (factor, n)


def test_a_scenario_that_b_lacks_does_not_pass_for_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write(tmp_path / "a.csv", rows(EVEN, "1", 3))
    b = write(tmp_path / "b.csv", rows(EVEN, "2", 3)[:-1] + rows(EVEN, "2", 2, Valid="yes"))
    only = write(tmp_path / "c.csv", [row for row in rows(EVEN, "3", 3) if row["Scenario"] != "w1"])
    assert (status(a, b, "--fail-if-slower", "5 %"), status(a, only, "--fail-if-slower", "5 %")) == (0, 2)
    assert "1 scenarios of A have no valid row in B" in capsys.readouterr().err


@pytest.mark.parametrize("share", ["5", "five", "100%", "-1%", "%", "1e1%", "\u0665%"])
def test_a_share_that_is_none_is_refused(tmp_path: Path, share: str) -> None:
    path = write(tmp_path / "a.csv", rows(EVEN, "1"))
    shown = run(path, path, "--fail-if-slower", share)
    assert shown.exit_code == 2 and "such as 5%" in shown.output


def test_what_is_wrong_is_said_before_anything_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "scipy", "scipy.special", "scipy.stats")
    a, b = (write(tmp_path / f"{name}.csv", rows(EVEN, name)) for name in "ab")
    other = write(tmp_path / "other.csv", rows(EVEN, "3", Scenario="r"))
    for options, words in (
        ((a, tmp_path / "none.csv"), "cannot read"),
        ((a, a), "has no row that can be compared"),
        ((a, other), "no scenario of A "),
        ((a, b, "--figure", "colour"), "--figure colour: no such column; allowed: "),
        ((a, b, "--csv", a), "is an input of this command"),
        ((a, b, "--csv", tmp_path / "no" / "cells.csv"), "cannot write"),
    ):
        refused = run(*options).exception
        assert isinstance(refused, UsageError) and words in str(refused), options
    assert isinstance(run(a, b, "--csv", tmp_path / "cells.csv").exception, MissingRequirementError)
    assert not (tmp_path / "cells.csv").exists()


EVIL = "w\x1b[2J\u202e[red]"


def filled(*rows: dict[str, str]) -> list[dict[str, str]]:
    """Rows that have these values alone."""
    return [{"TestType": "write", "Scenario": "w", "ConfigHash": "a", "Valid": "yes"} | row for row in rows]


def kept(*rows: dict[str, str]) -> pandas.DataFrame:
    """A table of such rows."""
    return frame_of(filled(*rows))


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
def test_rows_are_merged_where_nothing_varied(rows: list[dict[str, str]], lines: int) -> None:
    summary = summarize(kept(*rows, rows[0]))
    assert summary["rows"].tolist() == ([2, 1] if lines == 2 else [3])


def test_medians_and_ranges_are_of_the_rows_that_are_certainly_valid() -> None:
    """A member that was killed leaves figures of the part before it, which are not those of a whole scenario."""
    doubtful = [{"50%": "0.030", "Valid": "no"}, {"50%": "0.050", "Valid": "unknown"}]
    doubtful.append({"50%": "0.070", "Valid": "-", "Error": "no leader"})
    frame = kept({"50%": "0.010"}, {"50%": "0.012"}, *doubtful)
    summary, every = summarize(frame), summarize(frame, every=True)
    for table in (summary, every):
        assert (table["rows"][0], table["failed"][0], table["invalid"][0]) == (5, 1, 2)
    assert summary[["50%", "50%_min", "50%_max"]].values.tolist() == [[pytest.approx(0.011), 0.010, 0.012]]
    assert every["50%"][0] == pytest.approx(0.021)


def test_what_follows_from_the_network_is_no_column_and_what_was_chosen_is() -> None:
    network = [{"LinkDelay_ms": delay, "RttExpected_ms": rtt, "ConfigHash": delay} for delay, rtt in RTTS]
    derived = [row | {"Heartbeat_ms": ms, "ElectionTimeout_ms": f"{ms}0"} for row, ms in zip(network, MS, strict=True)]
    chosen = [row | {"Heartbeat_ms": "500", "ElectionTimeout_ms": "5000", "ConfigHash": "e"} for row in network[:1]]
    for rows, more in ((derived, []), (derived + chosen, ["Heartbeat_ms"])):
        summary = summarize(kept(*rows))
        assert [*summary.columns[1 : list(summary.columns).index("rows")]] == ["LinkDelay_ms", *more]
        assert set(summary["rows"]) == {1}
    # From the overhead of links, which the expected RTT alone shows.
    overhead = [{"LinkDelay_ms": delay, "RttExpected_ms": rtt, "Heartbeat_ms": ms} for delay, rtt, ms in OVERHEAD]
    assert not set(TIMING) & set(kept_apart(kept(*overhead)))
    # A row that lacks the timing says nothing against it.
    assert not set(TIMING) & set(kept_apart(kept(*derived, network[0])))


RTTS, MS = (("5", "20.003"), ("25", "100.003")), ("100", "101")
OVERHEAD = (("1", "6.000", "100"), ("1", "6.500", "100"), ("25", "102.000", "102"), ("25", "103.000", "103"))


def test_who_names_columns_merges_by_them() -> None:
    frame = kept({"LinkDelay_ms": "3", "Total": "1"}, {"LinkDelay_ms": "1", "Total": "2"})
    assert summarize(frame, ["Scenario"])["rows"].tolist() == [2]
    assert summarize(frame, ["TestType", "LinkDelay_ms"])["LinkDelay_ms"].tolist() == ["3", "1"]
    assert list(summarize(frame, ["TestType", "TestType"]).columns)[:2] == ["TestType", "rows"]
    for name, words in (("xyz", "no such column"), ("50%", "what is summarized merges no rows")):
        with pytest.raises(UsageError, match=rf"--by {name}: {words}; allowed: type, "):
            summarize(frame, ["TestType", name])


def test_rows_of_the_seeds_form_with_other_request_counts_are_not_merged(tmp_path: Path) -> None:
    """In that form RequestCount is what was configured, and nothing else in the row tells the two apart."""
    loads = (("write", "100"), ("write", "100"), ("write", "9"), ("read", "9"))
    made = [report_rows.row(TestType=kind, RequestCount=total) for kind, total in loads]
    assert summarize(load(write(tmp_path / "seed.csv", made, seed=True)))["rows"].tolist() == [2, 1, 1]


def test_what_results_prints(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Three experiments of one name are distinguished; names move no cursor and are no markup."""
    two = {"Requests/sec": "10", "50%": "0.02", "ScenarioHash": "s1"}
    more = {"ClientCount": "1000", "ScenarioHash": "s2", "ReadLimit": "1234567"}
    rows = [two, two | {"Requests/sec": "12", "50%": "0.03"}, two | {"Valid": "no"}, two | {"Error": "no leader"}]
    rows += [more | {"Config": "wan[old].json"}, more | {"ConfigHash": "b", "Config": "lan[/x].json", "Leader": EVIL}]
    for name, held in (("out", rows), ("empty", []), ("one", [two])):
        write(tmp_path / f"{name}.csv", filled(*held))
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


def of_leaders(*rows: tuple[str, float]) -> list[dict[str, str]]:
    return filled(*({"50%": f"{ms / 1000:.6f}", "Leader": leader} for leader, ms in rows))


def test_repetitions_of_two_groups_are_shown_with_who_led_them(tmp_path: Path) -> None:
    """5node.json gave 3.4 ms in four runs and 22 ms in two: the median of six, 3.45 ms, hides that."""
    rows = of_leaders(*FOUR_AND_TWO)
    told = "4 rows led by near1, near2, near3 at 3.4 ms; 2 rows led by far1, far2 at 22 ms"
    assert summarize(frame_of(rows))["bimodal"].tolist() == [told]
    assert f"w: p50 is of two groups: {told}\n" in answer("results", write(tmp_path / "out.csv", rows))
    # Leaders that do not differ are no reason.
    led = [("near1", ms) for _, ms in FOUR_AND_TWO], [(leader, ms) for leader in "ab" for ms in (3.4, 22.0)]
    assert [bimodal(frame_of(of_leaders(*one))) for one in led] == [
        *("4 rows at 3.4 ms; 2 rows at 22 ms", "2 rows led by a, b at 3.4 ms; 2 rows led by a, b at 22 ms")
    ]
    # A row that failed is in no group.
    with_failed = kept({"50%": "0.05", "Error": "x"}, *[{"50%": "0.003"}] * 4)
    assert summarize(with_failed)["bimodal"].isna().all()


def test_when_medians_are_of_two_groups() -> None:
    groups: dict[tuple[float, ...], int | None] = {
        (3.4, 3.4, 3.5, 3.4, 21.9, 22.1): 4,
        (22.1, 3.4, 21.9, 3.5): 2,
        (1.0, 1.0, 1.3, 1.3): 2,
        (1.0, 1.0, 1.2, 1.2): None,  # by no more than a fifth
        (1.0, 1.2, 1.7, 1.9): None,  # the gap is not three times the spread
        (1.0, 1.1, 1.5, 1.6): 2,
        (3.4, 3.4, 3.4, 3.4, 22.0): None,  # one alone is an outlier, no group
        (3.4, 3.5, 3.6, 3.7, 3.8, 3.9): None,
        (0.0, 0.0, 1.0, 1.0): 2,
        **dict.fromkeys(((), (3.4, 22.0), (5.0,) * 6)),
    }
    assert {values: two_groups(values) for values in groups} == groups
