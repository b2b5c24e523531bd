"""`table`: results as dbtester prints them, and requests/s by clients, from rows and run directories of known sums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from containernet_env.analysis.histogram import Histogram, merged
from containernet_env.base.errors import UsageError
from containernet_env.cli import group
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import ScheduledScenario
from containernet_env.model.store_activity import MemberActivity, StoreActivity
from containernet_env.model.usage import Consumers, Consumption, Usage
from containernet_env.report.dbtester import MEASURES, aggregated, size_text
from containernet_env.report.rows import read_rows
from containernet_env.report.series import series_of
from containernet_env.results.run_directory import SCENARIOS, USAGE, RunDirectory
from tests.unit.answers import closed_loop
from tests.unit.commands import answer
from tests.unit.report_rows import EVIL, row, write
from tests.unit.test_histogram import encoded
from tests.unit.test_run_directory import WRITE

SECOND = 10**9
STORE = {"Store": "etcd", "StoreVersion": "3.7.3"}
NAMES = {1: "write-leader-5s-1x1-8B-256B", 10: "write-leader-5s-10x1-8B-256B"}
ONE = {
    "ClientCount": "1", "Scenario": NAMES[1], "ScenarioHash": "s1", "RequestCount": "20", "Total": "2.000000",
    "Requests/sec": "10.0000", "Average": "0.010000", "Fastest": "0.005000", "Slowest": "0.020000", "Excluded": "0",
    "ConnectionCount": "1", "10%": "0.006000", "25%": "0.007000", "75%": "0.011000", "90%": "0.012000",
}  # fmt: skip
TEN = ONE | {
    "ClientCount": "10", "Scenario": NAMES[10], "ScenarioHash": "s10", "RequestCount": "100", "Total": "3.250000",
    "Requests/sec": "30.1538", "Average": "0.100000", "Fastest": "0.002000", "Slowest": "0.500000", "Excluded": "2",
    "Errors": "2",
}  # fmt: skip
# 20 values of 10 ns; 40 of 30 ns and 58 of 40 ns: a run of n empty slots is 2 n - 1, a count c is 2 c.
HISTOGRAMS = {1: encoded(bytes([19, 40])), 10: encoded(bytes([59, 80, 17, 116]))}


def used(scale: int) -> Usage:
    one = Consumption(received_bytes=1000 * scale, sent_bytes=500 * scale, read_bytes=0, written_bytes=1024 * scale)
    other = replace(one, received_bytes=2_000_000 * scale, writes=5)
    return Usage(SECOND, Consumers({"etcd1": one, "etcd2": other}, client=Consumption(received_bytes=7, sent_bytes=8)))


def look(cpu_s: tuple[float, float, float], rss: tuple[int, int, int]) -> Consumers:
    """What etcd1, etcd2 and the client have used."""
    one, two, client = (
        Consumption(cpu_ns=round(cpu * SECOND), rss_bytes=held) for cpu, held in zip(cpu_s, rss, strict=True)
    )
    return Consumers({"etcd1": one, "etcd2": two}, client=client)


def outcome(clients: int, began_s: int, counts: list[int], data: int, **changes: Any) -> ScenarioOutcome:
    times = {"first_ok_ns": None, "last_ok_ns": None, "gap_ns": 0, "gap_end_ns": 0}
    told = {"failed": 0, "unknown": 0, "requests_per_s": 0.0, "p50_s": None, "p99_s": None, "max_s": None, **times}
    load = closed_loop(
        began_ns=began_s * SECOND,
        response_time__histogram=HISTOGRAMS[clients],
        timeline_interval_s=0.5,
        timeline=[{"second": number / 2, "ok": count, **told} for number, count in enumerate(counts)],
        **changes,
    )
    counted = MemberActivity(None, None, None, None, data, None, None)
    return ScenarioOutcome(
        ScheduledScenario(replace(WRITE, name=NAMES[clients]), 1, f"s{clients}"),
        "2026-01-01T00:00:00.000Z",
        began_s * SECOND,
        load=LoadResult.from_json(load),
        machine=used(clients),
        store=StoreActivity({"etcd1": counted, "etcd2": replace(counted, data_bytes=data + 2_000_000)}),
    )


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Two steps with a run directory."""
    run = RunDirectory(tmp_path / "out.csv", "run-1")
    run.add_scenario(outcome(10, 10, [10, 20, 25, 15, 5, 15, 8], 4_000_000, errors={"too many": 2}))
    run.add_scenario(outcome(1, 1, [4, 6, 5, 5], 1_000_000))
    run.add_usage(SECOND * 9 // 10, "begin", look((0, 0, 0), (100, 300, 50)))
    run.add_usage(SECOND * 19 // 10, None, look((0.5, 1.0, 0.2), (300, 500, 70)))
    run.add_usage(SECOND * 2, "end", look((9.5, 9.0, 5.2), (200, 200, 60)))
    run.add_usage(SECOND * 5, None, look((99, 99, 99), (9000, 9000, 9000)))
    run.add_usage(SECOND * 99 // 10, "begin", look((100, 100, 100), (1, 1, 1)))
    run.add_usage(SECOND * 109 // 10, None, look((100.5, 100.1, 100.9), (1, 1, 1)))
    run.add_usage(SECOND * 132 // 10, "end", look((100.6, 100.2, 101), (1, 1, 1)))
    return write(tmp_path / "out.csv", [row(**TEN, **STORE), row(**ONE, **STORE)])


def values(path: Path, every: bool = False) -> Mapping[str, float | None]:
    (system,) = aggregated(read_rows([path]), every).systems
    return dict(zip((measure.label for measure in MEASURES), system.values, strict=True))


def shown(*words: object) -> Any:
    return CliRunner().invoke(group, ["table", *map(str, words)], standalone_mode=False)


# --- dbtester ---------------------------------------------------------------------------------------------------------


def test_steps_are_one_run_with_dbtesters_labels_and_sums(out: Path, snapshot: SnapshotAssertion) -> None:
    """5.25 s are 2 and 3.25; 98 of 100 requests of the second step succeeded, in seconds of 30, 40, 20 and 8."""
    table = aggregated(read_rows([out]))
    (system,) = table.systems
    assert (system.name, system.clients, system.repetitions) == ("etcd 3.7.3, write-leader-5s-N-8B-256B", (1, 10), 1)
    assert (dict(system.errors), table.notes) == ({"too many": 2}, ())
    assert dict(table.texts()) == snapshot


def test_one_step_has_the_rows_own_percentiles_and_needs_no_run_directory(tmp_path: Path) -> None:
    found = values(write(tmp_path / "out.csv", [row(**ONE)]))
    assert [found[f"Latency p{p}"] for p in ("10", "50", "99", "99.9")] == pytest.approx([6, 10, 13, 14])
    assert (found["TOTAL-SECONDS"], found["AVG-THROUGHPUT"], found["AVG-LATENCY"]) == (2, 10, 10)
    for label in (
        "MAX-THROUGHPUT",
        "SERVER-MAX-CPU-USAGE",
        "CLIENT-TOTAL-NETWORK-RX-SUM",
        "SERVER-AVG-DISK-SPACE-USAGE",
    ):
        assert found[label] is None


def test_what_is_after_the_duration_is_not_in_the_mean_throughput(tmp_path: Path) -> None:
    """Two loads of 2 s whose last answers came later: 10/s and 30/s in their durations."""
    rows = [row(**ONE | {"Drain_s": "0.5", "Total": "2.5"}), row(**ONE, Repetition="2")]
    rows[1] |= {"ClientCount": "10", "Scenario": NAMES[10], "Requests/sec": "30"}
    assert values(write(tmp_path / "out.csv", rows))["AVG-THROUGHPUT"] == pytest.approx(20)


def test_a_step_of_less_than_a_second_counts_by_its_rate(out: Path) -> None:
    """98 requests in 0.5 s are more than any whole second of the other step has."""
    out.unlink()
    short = write(out, [row(**ONE, **STORE), row(**TEN | {"Total": "0.500000"}, **STORE)])
    found = values(short)
    assert (found["MAX-THROUGHPUT"], found["MIN-THROUGHPUT"]) == (196, 10)


def test_a_step_without_its_histogram_leaves_the_percentiles_of_all_unknown(out: Path) -> None:
    lines = [json.loads(line) for line in (out.with_suffix(".runs") / "run-1" / SCENARIOS).read_text().splitlines()]
    lines[0]["load"]["response_time"]["histogram"] = "HISTFAAAAA"
    (out.with_suffix(".runs") / "run-1" / SCENARIOS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = aggregated(read_rows([out]))
    assert dict(found.texts())["Latency p50"] == "-" and dict(found.texts())["MAX-THROUGHPUT"] == "40 req/sec"
    assert any("the histogram of write-leader-5s-10x1-8B-256B is left out" in note for note in found.notes)


def steps(clients: dict[str, str], *totals: tuple[int, str], **more: str) -> list[dict[str, str]]:
    """A row of a step for each repetition and what it took."""
    return [row(**clients | {"Total": total}, Repetition=str(number), **more) for number, total in totals]


@pytest.mark.parametrize(
    ("rows", "seconds", "repetitions"),
    [
        # Sums of 3, 5 and 10 s; the fourth row of one step has no other to go with.
        (steps(ONE, (1, "1"), (2, "2"), (3, "3"), (4, "4")) + steps(TEN, (1, "2"), (2, "3"), (3, "7")), 5, 3),
        # The middle repetition of one step is not valid: the sums are 1 + 1 and 3 + 3 s, and 100 s are in none.
        (steps(ONE, (1, "1"), (2, "100"), (3, "3")) + steps(TEN, (3, "3"), (1, "1")), 4, 2),
        # Steps that were tried again on other clusters: 11, 22 and 33 s.
        (
            steps(ONE, (1, "1"), (2, "2"), (3, "3")) + steps(TEN, (3, "30"), (1, "10"), (2, "20"), RunId="run-2"),
            22,
            3,
        ),
        # Rows that have not even their repetition in common are still steps of one run.
        (steps(ONE, (7, "50")) + steps(TEN, (8, "50")), 100, 1),
    ],
)
def test_steps_of_one_repetition_are_added_and_repetitions_are_medians(
    tmp_path: Path, rows: list[dict[str, str]], seconds: float, repetitions: int
) -> None:
    table = aggregated(read_rows([write(tmp_path / "out.csv", rows)]))
    (system,) = table.systems
    assert (system.values[0], system.repetitions) == (seconds, repetitions)
    assert any("rows are left out: not every step was" in note for note in table.notes) == (len(rows) % 2 == 1)


def test_errors_of_several_repetitions_are_told_as_such(tmp_path: Path) -> None:
    """Two repetitions with 2 errors each: the row has the median, the text below counts both."""
    rows = []
    for number in ("1", "2"):
        run = RunDirectory(tmp_path / "out.csv", f"run-{number}")
        run.add_scenario(outcome(10, 10, [98], 1, errors={"too many": 2}))
        rows.append(row(**TEN, RunId=f"run-{number}"))
    done = shown("dbtester", write(tmp_path / "out.csv", rows))
    assert '  "too many" (count 4 in 2 repetitions)' in done.output.splitlines()


def test_what_is_after_the_duration_is_in_no_second(out: Path) -> None:
    """Seconds of 30, 40 and 20 requests: the last one is of the drain, which takes 1.25 s."""
    out.unlink()
    found = values(write(out, [row(**TEN | {"Drain_s": "1.25"}, **STORE)]))
    assert (found["MAX-THROUGHPUT"], found["MIN-THROUGHPUT"]) == (40, 30)


def test_names_of_any_digits_have_an_order(tmp_path: Path) -> None:
    """Of more digits than Python makes a number of, and of digits of other scripts."""
    names = ["9" * 5000, "w", "\u0663", "1"]
    rows = [row(Scenario=name, ScenarioHash=name[:9], Store="-", StoreVersion="-") for name in names]
    found = series_of(read_rows([write(tmp_path / "out.csv", rows)]))
    assert [series.name for series in found] == ["1", "\u0663", "9" * 5000, "w"]


def test_scenarios_that_read_other_data_are_no_repetitions(tmp_path: Path) -> None:
    """Neither their columns nor their names tell them apart."""
    rows = [row(**ONE | {"ScenarioHash": "a"}), row(**ONE | {"ScenarioHash": "b", "Requests/sec": "1000"})]
    path = write(tmp_path / "out.csv", rows)
    shape = "etcd 3.7.3, write-leader-5s-N-8B-256B"
    assert [(system.name, system.values[3]) for system in aggregated(read_rows([path])).systems] == [
        (f"{shape} (a)", 10),
        (f"{shape} (b)", 1000),
    ]


@pytest.mark.parametrize("column", ["Total", "Requests/sec", "Average", "10%"])
def test_numbers_whose_sums_are_none_are_not_known(tmp_path: Path, column: str) -> None:
    rows = [row(**values_ | {column: "1.5e308"}) for values_ in (ONE, TEN)]
    path = write(tmp_path / "out.csv", rows)
    for words in (("dbtester", path), ("clients", path), ("dbtester", path, "--json")):
        done = shown(*words)
        assert done.exception is None and not {"inf", "nan", "Infinity"} & set(done.output.split())


def test_counters_that_no_float_can_hold_are_not_known(out: Path) -> None:
    for name, counter in ((USAGE, '"rss_bytes":300'), (SCENARIOS, '"received_bytes":1000,')):
        path = out.with_suffix(".runs") / "run-1" / name
        text = path.read_text()
        assert counter in text
        path.write_text(text.replace(counter, counter.replace(":", f":{'9' * 400}")))
    found = values(out)
    assert (found["SERVER-MAX-MEMORY-USAGE"], found["CLIENT-MAX-MEMORY-USAGE"]) == (None, 70)
    assert (found["SERVER-TOTAL-NETWORK-RX-DATA-SUM"], found["CLIENT-TOTAL-NETWORK-RX-SUM"]) == (None, 14)


def test_a_step_that_does_not_count_is_left_out_and_named(tmp_path: Path) -> None:
    path = write(tmp_path / "out.csv", [row(**ONE), row(**TEN | {"Valid": "no", "Reasons": "machine_full"})])
    table = aggregated(read_rows([path]))
    assert table.systems[0].clients == (1,) and values(path)["TOTAL-SECONDS"] == 2
    assert any(f"without {NAMES[10]}: not valid: machine_full" in note for note in table.notes)
    assert values(path, every=True)["TOTAL-SECONDS"] == 5.25


def test_what_is_configured_otherwise_is_another_column(tmp_path: Path) -> None:
    rows = [
        row(**ONE),
        row(**ONE | {"Scenario": "write-leader-8s-1x1-8B-256B", "ScenarioHash": "s8"}),
        row(**ONE, LinkDelay_ms="7", ConfigHash="d"),
        row(**ONE, StoreVersion="3.6.0"),
    ]
    table = aggregated(read_rows([write(tmp_path / "out.csv", rows)]))
    assert [system.name for system in table.systems] == [
        "etcd 3.6.0, 3 ms, write-leader-5s-N-8B-256B",
        "etcd 3.7.3, 3 ms, write-leader-5s-N-8B-256B",
        "etcd 3.7.3, 3 ms, write-leader-8s-N-8B-256B",
        "etcd 3.7.3, 7 ms, write-leader-5s-N-8B-256B",
    ]


def test_what_no_column_tells_apart_has_its_hash(tmp_path: Path) -> None:
    rows = [row(**ONE, **STORE), row(**ONE, **STORE, ConfigHash="e")]
    table = aggregated(read_rows([write(tmp_path / "out.csv", rows)]))
    shape = "etcd 3.7.3, write-leader-5s-N-8B-256B"
    assert [system.name for system in table.systems] == [f"{shape} (c)", f"{shape} (e)"]


def test_the_disk_space_is_that_after_the_step_that_came_last(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "out.csv", "run-1")
    run.add_scenario(outcome(1, 30, [20], 8_000_000))
    run.add_scenario(outcome(10, 10, [98], 4_000_000))
    assert values(write(tmp_path / "out.csv", [row(**ONE), row(**TEN)]))["SERVER-AVG-DISK-SPACE-USAGE"] == 9_000_000


def test_what_one_repetition_does_not_tell_is_not_known(tmp_path: Path) -> None:
    found = values(write(tmp_path / "out.csv", [row(**ONE), row(**ONE | {"99%": "-"}, Repetition="2")]))
    assert (found["Latency p99"], found["Latency p50"]) == (None, 10)


@pytest.mark.parametrize(
    ("scenario", "clients", "conns", "shape"),
    [
        ("write-cluster-10000x1000x1000-256B-1024B", 1000, 1000, "write-cluster-10000xN-256B-1024B"),
        ("write-leader-11x1x1-8B-8B", 1, 1, "write-leader-11xN-8B-8B"),
        ("write-leader-100x100x100-8B-8B", 100, 100, "write-leader-100xN-8B-8B"),
        ("read-serializable-r500-10s-64x64-warm5s", 64, 64, "read-serializable-r500-10s-N-warm5s"),
        ("txn-1000x10x10", 10, 10, "txn-1000xN"),
    ],
)
def test_clients_are_taken_out_of_a_scenarios_name(
    tmp_path: Path, scenario: str, clients: int, conns: int, shape: str
) -> None:
    values_ = {"Scenario": scenario, "ClientCount": str(clients), "ConnectionCount": str(conns)}
    (series,) = series_of(read_rows([write(tmp_path / "out.csv", [row(**values_)])]))
    assert series.name.endswith(shape) and series.steps[0].clients == clients


def test_the_seeds_columns_alone_make_a_table(tmp_path: Path) -> None:
    rows = [row(ClientCount=str(clients), RequestCount=str(total)) for total in (100, 200) for clients in (1, 10)]
    path = write(tmp_path / "seed.csv", rows, seed=True)
    table = aggregated(read_rows([path]))
    assert [(system.name, system.clients) for system in table.systems] == [
        ("write, 100 requests", (1, 10)),
        ("write, 200 requests", (1, 10)),
    ]
    assert dict(zip((m.label for m in MEASURES), table.systems[0].values, strict=True))["TOTAL-SECONDS"] == 20


@pytest.mark.parametrize("value", [0, 9.4, 999, 1000, 9949, 9951, 99_400, 999_499, 999_501, 5.04e9, 22e9])
def test_sizes_are_written_as_dbtester_writes_them(value: float) -> None:
    wanted = {
        0: "0 B", 9.4: "9 B", 999: "999 B", 1000: "1.0 kB", 9949: "9.9 kB", 9951: "10 kB", 99_400: "99 kB",
        999_499: "999 kB", 999_501: "1.0 MB", 5.04e9: "5.0 GB", 22e9: "22 GB",
    }  # fmt: skip
    assert size_text(value) == wanted[value]


def test_histograms_are_merged_slot_by_slot() -> None:
    both = merged([Histogram(((5, 2), (9, 1))), Histogram(((7, 4), (9, 3)))])
    assert both.counts == ((5, 2), (7, 4), (9, 4)) and merged([]).total == 0


# --- clients ----------------------------------------------------------------------------------------------------------


def test_what_is_printed(out: Path, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Requests/s by clients are medians with their range over three repetitions; one row is not known to be valid."""
    repeated = [row(**ONE | {"Requests/sec": rate}, Repetition=rate) for rate in ("5", "9", "6")]
    repeated += [row(**TEN | {"Valid": "unknown"}), row(**TEN | {"Scenario": "write-leader-9s-10x1"})]
    clients = write(tmp_path / "clients.csv", repeated)
    foreign = tmp_path / "gone.csv"
    told = {}
    for form, path in (("dbtester", out), ("clients", out), ("clients", clients), ("dbtester", foreign), ("x", out)):
        for options in ([], ["--json"], ["--csv"], ["--all"]) if path.exists() and form != "x" else ([],):
            told[" ".join([form, path.name, *options])] = answer("table", form, path, *options, folder=tmp_path)
    assert told == snapshot


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dbtester", "clients"])
def test_text_of_a_file_moves_no_cursor_and_is_no_formula(tmp_path: Path, form: str) -> None:
    evil = {"Scenario": "=1+1\x1b]0;x\x07", "Store": "-", "StoreVersion": "-"}
    path = write(tmp_path / "out.csv", [row(**ONE | evil), row(**TEN | evil | {"Valid": "no", "Reasons": "\x1b[2J"})])
    done = shown(form, path)
    assert "=1+1\\x1b]0;x\\x07" in done.output and "\x1b" not in done.output + done.stderr
    lines = shown(form, path, "--csv").stdout
    assert ",'=1+1" in lines or "\n'=1+1" in lines


def test_a_table_is_never_cut(tmp_path: Path) -> None:
    rows = [row(**ONE, LinkDelay_ms=str(number), ConfigHash=str(number)) for number in range(200)]
    lines = shown("dbtester", write(tmp_path / "out.csv", rows)).stdout.splitlines()
    (line,) = [line for line in lines if "TOTAL-SECONDS" in line]
    assert line.count("2.0000 sec") == 200 and "199 ms" in lines[2]


def test_rows_that_are_not_certainly_valid_are_told_of(tmp_path: Path) -> None:
    rows = [row(**ONE), row(**TEN | {"Valid": "no"}), row(**TEN | {"Error": "it fell"})]
    path = write(tmp_path / "out.csv", rows)
    told = "rows that are not certainly valid count, too: 1"
    for form in ("dbtester", "clients"):
        assert told in shown(form, path, "--all").stderr and told not in shown(form, path).stderr


def test_text_of_a_file_is_no_markup(tmp_path: Path) -> None:
    done = shown("dbtester", write(tmp_path / "out.csv", [row(**ONE | {"Scenario": f"[red]{EVIL}"})]))
    assert done.output.count(f"[red]{EVIL}") == 2


@pytest.mark.parametrize(("name", "throughput"), [(USAGE, "40 req/sec"), (SCENARIOS, "-")])
def test_what_cannot_be_read_of_a_run_directory_costs_what_it_adds(out: Path, name: str, throughput: str) -> None:
    (out.with_suffix(".runs") / "run-1" / name).write_text('{"schema": 7}\n')
    table = aggregated(read_rows([out]))
    found = dict(table.texts())
    assert any("what cannot be read is left out" in note and name in note for note in table.notes)
    assert (found["TOTAL-SECONDS"], found["MAX-THROUGHPUT"]) == ("5.2500 sec", throughput)
    assert found["SERVER-MAX-CPU-USAGE"] == "-"


def test_without_run_directories_that_is_said(tmp_path: Path) -> None:
    done = shown("dbtester", write(tmp_path / "out.csv", [row(**ONE)]))
    assert "1 rows have no run directory" in done.stderr and "TOTAL-SECONDS" in done.stdout


@pytest.mark.parametrize("form", ["dbtester", "clients"])
def test_where_no_row_counts_that_is_an_error_with_a_way_out(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / "out.csv", [row(**ONE | {"Valid": "no"})])
    with pytest.raises(UsageError, match="no row is certainly valid, so none counts: --all takes"):
        raise shown(form, path).exception
    assert shown(form, path, "--all").exception is None
    empty = write(tmp_path / "empty.csv", [])
    with pytest.raises(UsageError, match="no row"):
        raise shown(form, empty, "--all").exception
