"""`table`: results as dbtester prints them, and requests/s by clients, from rows and run directories of known sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import ScheduledScenario
from containernet_env.model.usage import Consumers, Consumption, MemberActivity, StoreActivity, Usage
from containernet_env.report.rows import read_rows
from containernet_env.report.tables import MEASURES, aggregated, series_of, size_text
from containernet_env.results.run_directory import SCENARIOS, USAGE, RunDirectory
from tests.unit.answers import closed_loop
from tests.unit.commands import answer
from tests.unit.report_rows import row, shown, write
from tests.unit.test_run_directory import WRITE
from tests.unit.test_statistics import encoded

SECOND = 10**9
NO_STORE = {"Store": "-", "StoreVersion": "-"}
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
    for at_ds, edge, cpu_s, rss in (
        (9, "begin", (0, 0, 0), (100, 300, 50)),
        (19, None, (0.5, 1.0, 0.2), (300, 500, 70)),
        (20, "end", (9.5, 9.0, 5.2), (200, 200, 60)),
        (50, None, (99, 99, 99), (9000, 9000, 9000)),
        (99, "begin", (100, 100, 100), (1, 1, 1)),
        (109, None, (100.5, 100.1, 100.9), (1, 1, 1)),
        (132, "end", (100.6, 100.2, 101), (1, 1, 1)),
    ):
        one, two, client = (
            Consumption(cpu_ns=round(cpu * SECOND), rss_bytes=held) for cpu, held in zip(cpu_s, rss, strict=True)
        )
        run.add_usage(SECOND * at_ds // 10, edge, Consumers({"etcd1": one, "etcd2": two}, client=client))
    return write(tmp_path / "out.csv", [row(**TEN), row(**ONE)])


def values(path: Path) -> Mapping[str, float | None]:
    (system,) = aggregated(read_rows([path])).systems
    return dict(zip((measure.label for measure in MEASURES), system.values, strict=True))


def change(out: Path, name: str, old: str, new: str) -> None:
    """Spoil a file of the run directory."""
    path = out.with_suffix(".runs") / "run-1" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def test_what_is_after_the_duration_or_not_told_by_all_repetitions_is_in_no_figure(tmp_path: Path) -> None:
    drained = [row(**ONE | {"Drain_s": "0.5", "Total": "2.5"}), row(**TEN | {"Total": "2", "Requests/sec": "30"})]
    assert values(write(tmp_path / "drained.csv", drained))["AVG-THROUGHPUT"] == 20
    found = values(write(tmp_path / "out.csv", [row(**ONE), row(**ONE | {"99%": "-"}, Repetition="2")]))
    assert (found["Latency p99"], found["Latency p50"]) == (None, pytest.approx(10))


def test_the_seconds_of_steps(out: Path) -> None:
    for rows, most, least in (
        # 98 requests in 0.5 s are more than any whole second of the other step has.
        ([row(**ONE), row(**TEN | {"Total": "0.500000"})], 196, 10),
        # Seconds of 30, 40 and 20 requests: the last one is of the drain, which takes 1.25 s.
        ([row(**TEN | {"Drain_s": "1.25"})], 40, 30),
    ):
        out.unlink()
        found = values(write(out, rows))
        assert (found["MAX-THROUGHPUT"], found["MIN-THROUGHPUT"]) == (most, least)


def test_what_a_run_directory_tells_wrongly_is_not_known(out: Path) -> None:
    change(out, SCENARIOS, HISTOGRAMS[10], "HISTFAAAAA")
    found = aggregated(read_rows([out]))
    assert dict(found.texts())["Latency p50"] == "-" and dict(found.texts())["MAX-THROUGHPUT"] == "40 req/sec"
    assert any("the histogram of write-leader-5s-10x1-8B-256B is left out" in note for note in found.notes)
    # Counters that no float can hold.
    change(out, USAGE, '"rss_bytes":300', f'"rss_bytes":{"9" * 400}')
    change(out, SCENARIOS, '"received_bytes":1000,', f'"received_bytes":{"9" * 400},')
    sums = values(out)
    assert (sums["SERVER-MAX-MEMORY-USAGE"], sums["CLIENT-MAX-MEMORY-USAGE"]) == (None, 70)
    assert (sums["SERVER-TOTAL-NETWORK-RX-DATA-SUM"], sums["CLIENT-TOTAL-NETWORK-RX-SUM"]) == (None, 14)


def steps(clients: dict[str, str], *totals: tuple[int, str], **more: str) -> list[dict[str, str]]:
    """A row of a step for each repetition and what it took."""
    return [row(**clients | {"Total": total}, Repetition=str(number), **more) for number, total in totals]


def test_steps_of_one_repetition_are_added_and_repetitions_are_medians(tmp_path: Path) -> None:
    for number, (rows, seconds, repetitions) in enumerate((
        # Sums of 3, 5 and 10 s; the fourth row of one step has no other to go with.
        (steps(ONE, (1, "1"), (2, "2"), (3, "3"), (4, "4")) + steps(TEN, (1, "2"), (2, "3"), (3, "7")), 5, 3),
        # The middle repetition of one step is not valid: the sums are 1 + 1 and 3 + 3 s, and 100 s are in none.
        (steps(ONE, (1, "1"), (2, "100"), (3, "3")) + steps(TEN, (3, "3"), (1, "1")), 4, 2),
        # Steps that were tried again on other clusters: 11, 22 and 33 s.
        (steps(ONE, (1, "1"), (2, "2"), (3, "3")) + steps(TEN, (3, "30"), (1, "10"), (2, "20"), RunId="run-2"), 22, 3),
        # Rows that have not even their repetition in common are still steps of one run.
        (steps(ONE, (7, "50")) + steps(TEN, (8, "50")), 100, 1),
    )):  # fmt: skip
        table = aggregated(read_rows([write(tmp_path / f"{number}.csv", rows)]))
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
    done = shown("table", "dbtester", write(tmp_path / "out.csv", rows))
    assert '  "too many" (count 4 in 2 repetitions)' in done.output.splitlines()


@pytest.mark.parametrize("column", ["Total", "Requests/sec", "Average", "10%"])
def test_numbers_whose_sums_are_none_are_not_known(tmp_path: Path, column: str) -> None:
    rows = [row(**values_ | {column: "1.5e308"}) for values_ in (ONE, TEN)]
    path = write(tmp_path / "out.csv", rows)
    for words in (("dbtester", path), ("clients", path), ("dbtester", path, "--json")):
        done = shown("table", *words)
        assert done.exception is None and not {"inf", "nan", "Infinity"} & set(done.output.split())


def named(scenario: str, clients: int, **others: str) -> dict[str, str]:
    values = {"ClientCount": str(clients), "ConnectionCount": str(clients)} | NO_STORE
    return row(Scenario=scenario, ScenarioHash=scenario[:9], **values | others)


OTHERS = (
    *({}, {"Scenario": "write-leader-8s-1x1-8B-256B", "ScenarioHash": "s8"}),
    *({"LinkDelay_ms": "7", "ConfigHash": "d"}, {"StoreVersion": "3.6.0"}),
)
SHAPE = "write-leader-5s-N-8B-256B"
SHAPES = {
    "write-cluster-10000x1000x1000-256B-1024B": (1000, "write-cluster-10000xN-256B-1024B"),
    "write-leader-11x1x1-8B-8B": (1, "write-leader-11xN-8B-8B"),
    "write-leader-100x100x100-8B-8B": (100, "write-leader-100xN-8B-8B"),
    "read-serializable-r500-10s-64x64-warm5s": (64, "read-serializable-r500-10s-N-warm5s"),
    "txn-1000x10x10": (10, "txn-1000xN"),
}


def test_names_of_series(tmp_path: Path) -> None:
    cases = [
        # What is configured otherwise is another column.
        (
            [row(**ONE | other) for other in OTHERS],
            [
                *(f"etcd 3.6.0, 3 ms, {SHAPE}", f"etcd 3.7.3, 3 ms, {SHAPE}"),
                *("etcd 3.7.3, 3 ms, write-leader-8s-N-8B-256B", f"etcd 3.7.3, 7 ms, {SHAPE}"),
            ],
        ),
        # What no column tells apart has its hash: also scenarios that read other data.
        ([row(**ONE | {"ConfigHash": name}) for name in "ce"], [f"etcd 3.7.3, {SHAPE} ({name})" for name in "ce"]),
        ([row(**ONE | {"ScenarioHash": name}) for name in "ab"], [f"etcd 3.7.3, {SHAPE} ({name})" for name in "ab"]),
        # Of more digits than Python makes a number of, and of digits of other scripts.
        ([named(name, 1) for name in ("9" * 5000, "w", "\u0663", "1")], ["1", "\u0663", "9" * 5000, "w"]),
        *(([named(scenario, clients)], [shape]) for scenario, (clients, shape) in SHAPES.items()),
    ]
    for number, (rows, names) in enumerate(cases):
        assert [series.name for series in series_of(read_rows([write(tmp_path / f"{number}.csv", rows)]))] == names


def test_the_seeds_columns_alone_make_a_table(tmp_path: Path) -> None:
    rows = [row(ClientCount=str(clients), RequestCount=str(total)) for total in (100, 200) for clients in (1, 10)]
    table = aggregated(read_rows([write(tmp_path / "seed.csv", rows, seed=True)]))
    assert [(system.name, system.clients, system.values[0]) for system in table.systems] == [
        ("write, 100 requests", (1, 10), 20),
        ("write, 200 requests", (1, 10), 20),
    ]


def test_the_disk_space_is_that_after_the_step_that_came_last(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "out.csv", "run-1")
    run.add_scenario(outcome(1, 30, [20], 8_000_000))
    run.add_scenario(outcome(10, 10, [98], 4_000_000))
    assert values(write(tmp_path / "out.csv", [row(**ONE), row(**TEN)]))["SERVER-AVG-DISK-SPACE-USAGE"] == 9_000_000


def test_sizes_are_written_as_dbtester_writes_them() -> None:
    sizes = {
        0: "0 B", 9.4: "9 B", 999: "999 B", 1000: "1.0 kB", 9949: "9.9 kB", 9951: "10 kB", 99_400: "99 kB",
        999_499: "999 kB", 999_501: "1.0 MB", 5.04e9: "5.0 GB", 22e9: "22 GB",
    }  # fmt: skip
    assert {value: size_text(value) for value in sizes} == sizes


def test_what_is_printed(out: Path, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """dbtester's sums are over steps: 5.25 s are 2 and 3.25; 98 of 100 requests of the second step succeeded, in
    seconds of 30, 40, 20 and 8. Requests/s by clients are medians with their range over three repetitions; what does
    not count is named.
    """
    repeated = [row(**ONE | {"Requests/sec": rate}, Repetition=rate) for rate in ("5", "9", "6")]
    repeated += [row(**TEN | {"Valid": "unknown"}), row(**TEN | {"Scenario": "write-leader-9s-10x1"})]
    bad = row(**TEN | {"Valid": "no", "Reasons": "machine_full"})
    write(tmp_path / "clients.csv", repeated)
    write(tmp_path / "bad.csv", [row(**ONE), bad, bad | {"Error": "it fell"}])
    write(tmp_path / "none.csv", [bad])
    write(tmp_path / "empty.csv", [])
    calls = [(form, "out.csv", options) for form in ("dbtester", "clients") for options in ([], ["--json"], ["--csv"])]
    calls += [("clients", "clients.csv", options) for options in ([], ["--json"], ["--csv"], ["--all"])]
    for form in ("dbtester", "clients"):
        calls += [(form, f"{name}.csv", options) for name in ("bad", "none", "empty") for options in ([], ["--all"])]
    calls += [("dbtester", "gone.csv", []), ("x", "out.csv", [])]
    assert {
        " ".join([form, name, *options]): answer("table", form, tmp_path / name, *options, folder=tmp_path)
        for form, name, options in calls
    } == snapshot


def test_a_table_is_never_cut_and_says_that_there_are_no_run_directories(tmp_path: Path) -> None:
    rows = [row(**ONE, LinkDelay_ms=str(number), ConfigHash=str(number)) for number in range(200)]
    done = shown("table", "dbtester", write(tmp_path / "out.csv", rows))
    lines = done.stdout.splitlines()
    (line,) = [line for line in lines if "TOTAL-SECONDS" in line]
    assert line.count("2.0000 sec") == 200 and "199 ms" in lines[2]
    assert "200 rows have no run directory" in done.stderr


@pytest.mark.parametrize(("name", "throughput"), [(USAGE, "40 req/sec"), (SCENARIOS, "-")])
def test_what_cannot_be_read_of_a_run_directory_costs_what_it_adds(out: Path, name: str, throughput: str) -> None:
    (out.with_suffix(".runs") / "run-1" / name).write_text('{"schema": 7}\n')
    table = aggregated(read_rows([out]))
    found = dict(table.texts())
    assert any("a file of a run directory is left out" in note and name in note for note in table.notes)
    assert (found["TOTAL-SECONDS"], found["MAX-THROUGHPUT"]) == ("5.2500 sec", throughput)
    assert found["SERVER-MAX-CPU-USAGE"] == "-"
