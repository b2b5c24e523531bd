"""Sweeps on testbeds of fakes: each cell once, whatever ends the sweep, what is measured again, what is reused."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base import assets
from containernet_env.base.errors import Interrupted, MissingRequirementError, RunError, UsageError
from containernet_env.cli import main
from containernet_env.cli.sweep import sweep_command
from containernet_env.model.findings import Finding
from containernet_env.model.load_result import LoadResult
from containernet_env.model.proof import NetworkProof
from containernet_env.network.rtt import Tolerance
from containernet_env.results import csv_file
from containernet_env.results.run_directory import read_run
from containernet_env.runs import manifest as manifest_module
from containernet_env.runs import matrix
from containernet_env.runs import measure as measure_module
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.runs.load import Answer
from containernet_env.runs.sweep.ledger import Journal, journal_of
from containernet_env.runs.sweep.runner import Counts
from tests.unit import sweep_fakes
from tests.unit.fakes import CONFIG, GOOD, FakeTestbed, Patch, raising, result_of, rows
from tests.unit.manifests import PROGRAM
from tests.unit.report_rows import without
from tests.unit.sweep_fakes import ALL, AXES, CELLS, DIED, FAILED, WRONG, Sweeping, full_disk, lines, measured

sweep = sweep_fakes.sweep


def once(error: Exception) -> Callable[..., None]:
    """Raises it where it is called first."""
    left = [error]

    def call(*arguments: object) -> None:
        if left:
            raise left.pop()

    return call


def values(sweep: Sweeping, *columns: str) -> list[Any]:
    """Of the rows; tuples where there are several columns."""
    found = [tuple(row[column] for column in columns) for row in rows(sweep.out)]
    return found if len(columns) > 1 else [value for (value,) in found]


def test_each_cell_is_measured_once_for_each_repetition_in_the_order_that_is_recorded(sweep: Sweeping) -> None:
    assert sweep.run(repeat=3) == Counts(3 * CELLS, 0, 0)
    assert len(measured(sweep.out)) == 3 * CELLS and set(measured(sweep.out).values()) == {1}
    assert len(sweep.beds) == 3 * 2 and all(bed.downs == 1 for bed in sweep.beds)
    runs, notes = lines(sweep.out, "run"), sweep.notes
    recorded = [(cell, run["repetition"]) for run in runs for cell in run["cells"]]
    by_row = {(line["config_hash"], line["scenario_hash"]): line["cell"] for line in lines(sweep.out, "cell")}
    found = [(by_row[config, scenario]) for config, scenario in values(sweep, "ConfigHash", "ScenarioHash")]
    repetitions = [int(text) for text in values(sweep, "Repetition")]
    assert [*zip(found, repetitions, strict=True)] == recorded == notes.ended
    assert [(run["repetition"], run["seed"]) for run in runs] == [(1, 5), (1, 5), (2, 6), (2, 6), (3, 7), (3, 7)]
    seeds = [(str(4 + repetition), str(repetition - 1)) for repetition in repetitions]
    assert values(sweep, "LinkSeed", "LoadSeed") == seeds
    assert values(sweep, "Reused", "Valid") == [*[("nothing", "yes")], *[("cluster", "yes")] * 3] * 6
    assert [done for done, _ in notes.tallies] == list(range(1, 3 * CELLS + 1))
    assert len(notes.notes) == len(set(notes.notes))
    assert notes.tallies[-1][1] < notes.tallies[0][1]


def test_the_same_command_measures_only_what_is_new_also_by_a_torn_journal(sweep: Sweeping) -> None:
    sweep.run()
    before, cells = sweep.out.read_bytes(), rows(sweep.out)
    assert sweep.run() == ALL
    assert sweep.out.read_bytes() == before and sweep.beds.asked == CELLS
    assert sweep.notes.notes == [f"in {sweep.out} so far: {CELLS} measurements: {CELLS} valid; 0 are left"]
    with journal_of(sweep.out).open("ab") as file:
        file.write(b'{"schema": 1, "kind": "run", "ru')
    assert sweep.run() == ALL and sweep.beds.asked == CELLS
    assert any("1 lines of" in note and "cannot be read" in note for note in sweep.notes.notes)
    assert sweep.run(*AXES, "cpus=0.5") == ALL  # what is added to it is whole
    assert sweep.run("mem=512m,1g", *AXES[1:]) == ALL
    assert sweep.beds.asked == 2 * CELLS + CELLS // 2 and rows(sweep.out)[:CELLS] == cells
    notes = [note for note in sweep.notes.notes if "none of this sweep" in note]
    assert [note.split(" in ")[0] for note in notes] == ["12 cells"] and notes[0].count("mem=256m") == 8
    journal_of(sweep.out).unlink()
    (note,) = sweep.of().notes()
    assert note.startswith(f"{CELLS} rows of these cells") and "put the journal back" in note


# --- a sweep that was ended -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.02, 0.35, 0.77, 0.999])
def test_a_sweep_that_was_killed_measures_what_has_no_whole_row(sweep: Sweeping, share: float) -> None:
    """kill -9 in the middle of anything, also of a row: what is on disk is a beginning of the file."""
    sweep.run(repeat=2)
    content = sweep.out.read_bytes()
    kept = content[: round(len(content) * share)]
    sweep.out.write_bytes(kept)
    whole = max(0, kept.count(b"\n") - 1)
    assert sweep.run(repeat=2, seed=None) == Counts(2 * CELLS, 0, 0)
    assert sweep.beds.asked == 4 * CELLS - whole
    found = csv_file.rows_after(sweep.out)
    again = Counter((row["ConfigHash"], row["ScenarioHash"], row["Repetition"]) for row in found)
    assert len(found) == len(again) == 2 * CELLS
    assert {line["seed"] for line in lines(sweep.out, "sweep")} == {5}  # the order is that of the sweep that was killed


@pytest.mark.parametrize("ended", [1, 3, 6])
def test_rows_of_a_killed_testbed_stay_and_are_named(sweep: Sweeping, ended: int) -> None:
    """kill -9 within the cell after the given one: OUT and journal are what was on disk at that moment."""
    files, held = (sweep.out, journal_of(sweep.out)), list[bytes]()

    def hold() -> None:
        if len(sweep.notes.ended) == ended:
            held.extend(file.read_bytes() for file in files)

    sweep.on_ended = hold
    sweep.run()
    for file, content in zip(files, held, strict=True):
        file.write_bytes(content)
    assert sweep.of().left()[0] == CELLS - ended and sweep.out.read_bytes() == held[0]
    sweep.on_ended = bool
    assert sweep.run(seed=None) == ALL
    assert sweep.out.read_bytes().startswith(held[0]) and set(measured(sweep.out).values()) == {1}
    named = [note for note in sweep.notes.notes if "killed: their network was proved before them" in note]
    # Those of testbeds that came to their end are proved.
    assert [note.split()[0] for note in named] == [str(ended % 4)]


def test_without_a_seed_the_first_one_orders_what_is_left(sweep: Sweeping) -> None:
    """Also after a command that had another one of its own."""
    for repeat, seed in enumerate((5, 90, None), start=1):
        sweep.run("clients=5,10", repeat=repeat, seed=seed)
    assert [line["seed"] for line in lines(sweep.out, "sweep")] == [5, 90, 5]
    assert values(sweep, "LinkSeed")[::2] == ["5", "91", "7"]


def test_ctrl_c_loses_the_running_cell_alone_and_begins_no_other_testbed(sweep: Sweeping) -> None:
    """The rows before it are those of a network that was measured afterwards, and none says 'interrupted'."""
    sweep.beds.special[3] = sweep.interrupt
    with pytest.raises(Interrupted):
        sweep.run()
    assert values(sweep, "Error", "Valid") == [("-", "yes")] * 2 and sweep.beds[0].downs == 1
    directory = next(sweep.out.with_suffix(".runs").iterdir())
    errors = [line.error for line in read_run(directory).scenarios]
    assert errors[2:] == ["interrupted", "not run: interrupted by SIGINT"]
    sweep.on_ended = lambda: sweep.stop.request(2) if len(rows(sweep.out)) == 4 else None
    with pytest.raises(Interrupted):
        sweep.run()
    assert len(rows(sweep.out)) == 4 and sum(bed.ups for bed in sweep.beds) == 2
    sweep.on_ended = bool
    assert sweep.run() == ALL
    assert set(measured(sweep.out).values()) == {1} and sweep.beds.asked == CELLS + 1


def test_a_full_disk_stops_with_what_it_has(sweep: Sweeping, monkeypatch: Patch) -> None:
    full = full_disk(monkeypatch, lambda fd: sweep.beds.asked >= 3)
    with full, pytest.raises(RowsNotWrittenError, match="No space left"):
        sweep.run()
    assert len(rows(sweep.out)) == 2 and sweep.beds.asked == 3
    assert sweep.run() == ALL and set(measured(sweep.out).values()) == {1}


# --- what is a result, and what is measured again ---------------------------------------------------------------------


def small(bed: FakeTestbed) -> None:
    """A memory limit that is too low for the store."""
    if bed.plan.hosts[0].memory_bytes == 256 << 20:
        raise RunError("etcd1 did not start")


def off_at_first(bed: FakeTestbed) -> None:
    """The network of the first testbed was not held: its rows are not valid, which is known only at its end."""
    if bed is bed.beds[0]:
        bed.proved_again = WRONG


FEW = Answer(result_of(10), None)
BUSY = raising(RunError("something else keeps this machine busy"))
RETRIED = f"{CELLS} measurements are tried again: the machine spoiled what was measured of them"
NOT_UP = "4 cells could not be measured"
OF_STORE, HALF = Counts(CELLS - 1, 1, 0), Counts(CELLS, 0, CELLS)


@pytest.mark.parametrize(
    ("special", "runs"),
    [
        ({2: FAILED}, [*[({}, {}, OF_STORE, CELLS, "")] * 2, ({}, {"retry_failed": True}, ALL, CELLS + 1, "")]),
        # Few answers count as measured.
        ({2: FEW}, [({}, {}, ALL, CELLS, "")] * 2 + [({}, {"retry_failed": True}, ALL, CELLS + 1, "")] * 2),
        # What was tried last decides, after a resume, too.
        ({1: FAILED}, [({"up": 1}, {}, OF_STORE, CELLS, NOT_UP), ({}, {}, OF_STORE, CELLS, "")]),
        ({}, [({"up": 1}, {}, ALL, CELLS, NOT_UP)]),
        ({}, [({"up": small}, {"repeat": 2}, HALF, CELLS, "")] * 2),
        ({}, [({"prove_again": off_at_first}, {}, ALL, CELLS + 4, "")]),
        ({}, [({"prove_again": BUSY}, {"tries": 2}, Counts(0, 0, CELLS), 2 * CELLS, RETRIED), ({}, {}, ALL, 24, "")]),
    ],
    ids=["the store", "few answers", "its second testbed", "not up at first", "never up", "off", "busy"],
)
def test_what_is_a_result_and_what_the_next_command_measures(sweep: Sweeping, special: Any, runs: list[Any]) -> None:
    """Each run: what happens in testbeds (1: the first one does not come up), options, counts, benchmarks, a note."""
    sweep.beds.special |= special
    for at, request, counts, asked, note in runs:
        sweep.beds.at = {call: once(RunError("etcd1 did not start")) if at[call] == 1 else at[call] for call in at}
        assert (sweep.run(**request), sweep.beds.asked) == (counts, asked)
        assert sum(note in told for told in sweep.notes.notes) == 1 or not note, sweep.notes.notes


def test_where_no_testbed_comes_up_the_sweep_ends(sweep: Sweeping) -> None:
    sweep.beds.at["up"] = raising(RunError("no such device"))
    with pytest.raises(RunError, match="3 testbeds in a row could not be used, so the sweep ends: no such device"):
        sweep.run()
    assert len(sweep.beds) == 3


def test_a_testbed_that_fails_is_the_machines_fault(sweep: Sweeping) -> None:
    """The link emulator ends during the second cell: its row says so, and the network of the first is not proved. That
    is on disk before the testbed is taken down: kill -9 in that must not make it a failure of the store."""
    known: list[list[str]] = []
    sweep.beds.special[2] = sweep.lose
    sweep.beds.at["down"] = lambda bed: known.append([line["why"] for line in lines(sweep.out, "failed")])
    assert sweep.run() == ALL
    assert sweep.notes.began == sweep.notes.ended, "a cell whose testbed was lost before never began"
    errors = values(sweep, "Error")
    assert len(errors) == CELLS + 2 and sum("link emulator ended" in error for error in errors) == 1
    assert [reasons for valid, reasons in values(sweep, "Valid", "Reasons") if valid == "unknown"] == [
        "network_unknown"
    ]
    assert [len(why) for why in known] == [1, 1, 1] and known[0][0].startswith(DIED)
    assert sweep.of().counts() == ALL


def test_what_the_journal_did_not_take_is_told_again(sweep: Sweeping, monkeypatch: Patch) -> None:
    plain, refuse = Journal.add, once(RunError("No space left on device"))
    monkeypatch.setattr(
        Journal, "add", lambda self, kind, *more: (kind == "failed" and refuse(), plain(self, kind, *more))
    )
    sweep.beds.special[2] = sweep.lose
    assert sweep.run() == ALL and len(lines(sweep.out, "failed")) == 1


@pytest.mark.parametrize("damage", ["failed", "explained", "died", "warm-up"])
def test_a_cell_inherits_no_damage(sweep: Sweeping, damage: str, monkeypatch: Patch) -> None:
    """A store that has exhausted its quota fails every cell after that, until it gets new data."""
    beds, axes = sweep.beds, ("clients=1,2,3,4,5,6,7,8",)
    if damage == "explained":  # by a configured event, so the row has no error
        monkeypatch.setattr(matrix, "failures_explained", lambda *_: True)
    beds.special[2] = lambda: (damage == "died" and beds[0].cluster.kill("etcd2")) or FAILED
    if damage == "warm-up":  # its requests are in no figure
        warmup = {"ok": 90, "failed": 10, "unknown": 0, "abandoned": 0, "total_s": 1.0}
        beds.special[2] = Answer(LoadResult.from_json({**result_of().values, "warmup": warmup}), None)
    beds.special[3] = lambda: FAILED if len(beds) == 1 else GOOD
    expected = ALL if damage in ("explained", "warm-up") else Counts(CELLS - 1, 1, 0)
    assert sweep.run(*axes) == expected and sweep.of(*axes).counts() == expected
    assert (len(beds), beds.asked) == (2, CELLS) and values(sweep, "Reused")[2:3] == ["nothing"]
    note = sweep.notes.notes[-1]
    assert note == "6 measurements get a new testbed: not all went well on the one before"


def test_the_data_set_is_loaded_once_for_a_testbed_which_ends_where_that_fails(sweep: Sweeping) -> None:
    counts = sweep.run("cpus=0.5,1", only="read-linearizable-50x*")
    assert len(sweep.beds) == 1 and sweep.beds.asked == counts.measured + 1
    sweep.out = sweep.out.with_name("failed.csv")
    sweep.beds.special[sweep.beds.asked + 1] = FAILED
    sweep.run("cpus=0.5,1", only="read-linearizable-50x*")
    assert values(sweep, "Reused") == ["nothing", "nothing"]


# --- rows of something else -------------------------------------------------------------------------------------------


def test_a_journal_of_another_version_and_a_file_of_other_columns_are_refused_by_name(sweep: Sweeping) -> None:
    sweep.run("clients=5")
    journal = journal_of(sweep.out)
    journal.write_text(journal.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(UsageError, match="another version of this program: schema 2, 1 is read here"):
        sweep.of()
    journal.write_text('{"schema": 1, "kind": "sweep", "seed": Infinity}\n[1]\n')
    assert "2 lines" in sweep.of().notes()[0]
    for header in (csv_file.SEED_COLUMNS, (*csv_file.COLUMNS[:-1], "Other")):
        sweep.out.write_text(",".join(header) + "\n" + ",".join("1" for _ in header) + "\n")
        with pytest.raises(UsageError, match="has not the columns of this version"):
            sweep.of()


COMMIT = "program 0.1.0 (commit 012345678901), now 0.1.0 (commit cccccccccccc), sources aaaaaaaaaaaa, "
TOLERANCE = "RTT tolerance by the kind of links, now 1 ms, 12.5 %"


@pytest.mark.parametrize(
    ("program", "etcd", "request_", "words"),
    [
        ({"sources": "b" * 64, "commit": "c" * 40}, "3.7.3", {}, COMMIT),
        ({"go": "go1.27.0"}, "3.7.3", {}, "Go go1.26.8, now go1.27.0"),
        ({}, "3.7.4", {}, "etcd 3.7.3, now 3.7.4"),
        ({}, "3.7.3", {"tolerance": Tolerance(1_000_000, 0.125)}, TOLERANCE),
        ({"commit": "d" * 40}, "3.7.3", {}, None),  # which leaves the sources alone
    ],
)
def test_rows_that_something_else_measured_are_named_and_not_counted(
    sweep: Sweeping, monkeypatch: Patch, program: dict[str, str], etcd: str, request_: Any, words: str | None
) -> None:
    monkeypatch.setattr(assets, "etcd_version", lambda: "3.7.3")
    sweep.run()
    before = rows(sweep.out)
    monkeypatch.setattr(assets, "etcd_version", lambda: etcd)
    monkeypatch.setattr(manifest_module, "program_facts", lambda: PROGRAM.model_copy(update=program))
    again = f"{CELLS} rows in {sweep.out} were measured by another version, and are "
    for counted in (True, False):
        notes = sweep.of(other_versions=counted, **request_).notes()
        found = [note for note in notes if note.startswith(again)]
        assert len(found) == (words is not None)
        assert words is None or (words in found[0] and ("counted all the same" in found[0]) is counted)
    assert sweep.run(other_versions=True, **request_) == ALL and rows(sweep.out) == before
    for _ in range(2):
        assert sweep.run(**request_) == ALL
        assert sweep.beds.asked == (CELLS if words is None else 2 * CELLS) and rows(sweep.out)[:CELLS] == before


# --- cells that are repeated until the interval of a figure is narrow enough ------------------------------------------


def test_an_interval_that_cannot_be_is_refused(sweep: Sweeping) -> None:
    requests: list[tuple[dict[str, Any], str]] = [
        ({"until_ci": 1.5}, "--until-ci: got 150%"),
        ({"until_ci": 0.05, "max_repeat": 5}, "--max-repeat: got 5; allowed: at least 6"),
        ({"until_ci": 0.05, "repeat": 40}, "--max-repeat: got 30; allowed: at least --repeat, which is 40"),
    ]
    for request, words in requests:
        with pytest.raises(UsageError, match=words):
            sweep.of(**request)


def test_cells_are_repeated_until_their_median_is_known_by_rows_that_are_certainly_valid(sweep: Sweeping) -> None:
    for _ in range(2):  # and no more
        assert sweep.run("clients=5,10", until_ci=0.05, repeat=1) == Counts(6 * 2, 0, 0, 0)
    sweep.beds.special = dict.fromkeys(range(1, 30), Answer(result_of(ok=10), None))
    # Nor would more of them.
    assert sweep.run("clients=20", until_ci=0.05, max_repeat=9) == Counts(6, 0, 0, 1)


def test_the_repetitions_of_a_cell_that_varies_are_bounded(sweep: Sweeping, monkeypatch: Patch) -> None:
    varied = itertools.count()

    def another(path: str, body: dict[str, Any]) -> Answer:
        spread = 1.0 + (next(varied) % 7) / (1 if body["clients"] == 5 else 1000)
        found = json.loads(json.dumps(result_of().values))
        for part in (found, found["response_time"]):
            part["percentiles_s"] = {p: v and v * spread for p, v in part["percentiles_s"].items()}
        return Answer(type(result_of()).from_json(found), None)

    monkeypatch.setattr(sweep.beds, "answer", another)
    assert sweep.run("clients=5,10", until_ci=0.05, ci_of="p99", max_repeat=8) == Counts(14, 0, 0, 1)
    assert Counter(values(sweep, "ClientCount")) == {"5": 8, "10": 6}


# --- testbeds that stand from one topology to the next ----------------------------------------------------------------

STANDING = ("link_delay=1ms,3ms", "cpus=0.5,1", "clients=5,10")


def kinds(sweep: Sweeping) -> list[list[str]]:
    """The kinds of the events of each run, in the order of the runs."""
    directories = {path.name.rpartition("-")[2]: path for path in sweep.out.with_suffix(".runs").iterdir()}
    runs = [directories[line["run"]] for line in lines(sweep.out, "run")]
    return [[event.kind for event in read_run(directory).events] for directory in runs]


def beds(sweep: Sweeping) -> list[tuple[int, int, int]]:
    """How often each was brought up, taken down and turned to another topology."""
    return [(bed.ups, bed.downs, len(bed.turned)) for bed in sweep.beds]


def test_a_block_has_one_testbed_where_links_and_limits_alone_differ(sweep: Sweeping, monkeypatch: Patch) -> None:
    kept: list[int] = []
    monkeypatch.setattr(measure_module, "keep_costs", lambda plan, facts, clusters, _: kept.append(len(clusters)))
    assert sweep.run(*STANDING, repeat=2) == Counts(2 * CELLS, 0, 0)
    assert beds(sweep) == [(1, 1, 3)] * 2 and [bed.rests for bed in sweep.beds] == [3, 3]
    assert kept == [1, 0, 0, 0] * 2, "what a disk takes counts once for all topologies of a testbed"
    found = values(sweep, "Reused")
    assert found[::8] == ["nothing"] * 2 and set(found[1::2]) == {"cluster"}
    expected = [change.reused for bed in sweep.beds for change in bed.turned]
    assert [value for number, value in enumerate(found[::2]) if number % 4] == expected
    assert set(values(sweep, "Valid")) == {"yes"}, "each topology has its own proof after its last cell"
    assert [line["repetition"] for line in lines(sweep.out, "run")] == [1] * 4 + [2] * 4
    assert len(set(values(sweep, "RunId"))) == 8
    told = [("testbed_reused" in kind, kind[-2]) for kind in kinds(sweep)]
    assert told == [(False, "testbed_left"), *[(True, "testbed_left")] * 2, (True, "tear_down_began")] * 2
    assert [bed.plan.options.seed for bed in sweep.beds] == [5, 6]


def test_topologies_that_take_testbeds_of_their_own_have_them(sweep: Sweeping) -> None:
    """Those that can follow each other do, also where another one was drawn between them."""
    sweep.run("mem=256m,512m", "cpus=0.25,0.5,0.75,1", repeat=3)
    assert beds(sweep) == [(1, 1, 3)] * 6
    memory = [values(sweep, "ConfigHash")[start : start + 4] for start in range(0, 24, 4)]
    assert all(len(set(block)) == 4 for block in memory)


@pytest.mark.parametrize("reason", ["a cell failed", "explained", "wrong", "not proved", "unfit"])
def test_a_testbed_on_which_something_went_wrong_is_not_left(reason: str, sweep: Sweeping, monkeypatch: Patch) -> None:
    prove = FakeTestbed.prove_again

    def prove_again(self: FakeTestbed) -> NetworkProof:
        first = len(sweep.beds) == 1 and not lines(sweep.out, "run")[1:]
        self.proved_again = WRONG if first and reason == "wrong" else NetworkProof("after", ())
        if first and reason == "not proved":
            raise RunError("something keeps it busy")
        proof = prove(self)
        self.unproved = "it is not" if reason == "unfit" and self is sweep.beds[0] else self.unproved
        return proof

    monkeypatch.setattr(FakeTestbed, "prove_again", prove_again)
    if reason in ("a cell failed", "explained"):
        sweep.beds.special[2] = FAILED
    if reason == "explained":  # by a configured event
        monkeypatch.setattr(matrix, "failures_explained", lambda *_: True)
    sweep.run("cpus=0.25,0.5,0.75", "clients=5,10", tries=1)
    assert beds(sweep) == [(1, 1, 0), (1, 1, 1)]
    assert "testbed_not_left" in kinds(sweep)[0] and "testbed_left" in kinds(sweep)[1]


@pytest.mark.parametrize("call", ["turn_to", "rest"])
def test_a_change_that_fails_or_an_end_in_between_brings_a_new_testbed_up(call: str, sweep: Sweeping) -> None:
    refused = once(RunError("the kernel holds cpu_quota_us=50000 instead of 100000"))
    sweep.beds.at[call] = refused if call == "turn_to" else lambda bed: bed is sweep.beds[0] and sweep.lose()
    assert sweep.run(*STANDING) == ALL
    assert [bed[:2] for bed in beds(sweep)] == [(1, 1)] * 2
    assert values(sweep, "Reused")[:4] == ["nothing", "cluster"] * 2 and set(values(sweep, "Error")) == {"-"}
    (note,) = [note for note in sweep.notes.notes if ("cpu_quota_us=50000" if call == "turn_to" else DIED) in note]
    assert "could not be changed" in note and "a new one is brought up" in note
    assert "testbed_not_reused" in kinds(sweep)[1] and set(measured(sweep.out).values()) == {1}


@pytest.mark.parametrize("moment", ["rest", "turn_to", "a fault at rest", "a fault in the next run"])
def test_ctrl_c_and_faults_of_the_program_leave_nothing_up(moment: str, sweep: Sweeping, monkeypatch: Patch) -> None:
    fault, images = raising(ValueError("a fault of ours")), measure_module.ready_images()
    if moment == "a fault in the next run":
        monkeypatch.setattr(measure_module, "ready_images", lambda *of: fault() if sweep.beds else images)
    else:
        stop = {"rest": lambda bed: sweep.stop.request(2), "turn_to": lambda bed: sweep.interrupt()}
        sweep.beds.at[moment.rpartition(" ")[2]] = stop.get(moment, fault)
    with pytest.raises((Interrupted, ValueError)) as ended:
        sweep.run(*STANDING)
    assert isinstance(ended.value, ValueError) is ("fault" in moment)
    assert [(bed.ups, bed.downs, bed.rests) for bed in sweep.beds] == [(1, 1, 1)]
    assert values(sweep, "Error", "Valid") == [("-", "yes")] * 2
    assert len(lines(sweep.out, "sweep")) == len(lines(sweep.out, "sweep_ended")) == 1, "it was not killed"


# --- the command ------------------------------------------------------------------------------------------------------


def command(sweep: Sweeping, *words: object) -> Any:
    given = map(str, (CONFIG, sweep.out, "--quick", "--only", "write-leader-50x*-4B*", *words))
    return CliRunner().invoke(sweep_command, [*given], standalone_mode=False)


def test_a_dry_run_prints_cells_and_creates_nothing(sweep: Sweeping, tmp_path: Path, monkeypatch: Patch) -> None:
    shown = command(sweep, *(word for axis in AXES for word in ("--set", axis)), "--dry-run")
    assert shown.return_value == 0, shown.output
    assert "8 cells on 2 testbeds, 1 repetition: 8 measurements are left, which take about" in shown.output
    assert "this machine carries" in shown.output
    words = ("--set", "clients=5")
    without_out = CliRunner().invoke(sweep_command, [str(CONFIG), *words], standalone_mode=False)
    assert "Missing argument 'OUT'" in str(without_out.exception)

    without(monkeypatch)
    for more in ((), ("--dry-run",)):
        for share in ("5%", "0.5", " 5 %"):
            refused = command(sweep, *words, "--until-ci", share, *more).exception
            assert isinstance(refused, MissingRequirementError) and "this needs scipy" in str(refused), share
        assert "--until-ci: got 500%" in str(command(sweep, *words, "--until-ci", "500%", *more).exception)
    assert not sweep.beds and list(tmp_path.iterdir()) == []
    assert command(sweep, *words).return_value == 0


def test_the_course_is_told_as_json_and_as_a_line_for_each_cell(sweep: Sweeping) -> None:
    words = ("--set", "clients=5,10")
    shown = command(sweep, *words, "--json")
    assert shown.return_value == 0, shown.output
    told = [json.loads(line) for line in shown.output.splitlines()]
    cell = ["cell_began", "cell_ended"]
    events = [line["event"] for line in told if line["event"] != "note"]
    assert events == ["testbed_began", *cell, *cell, "sweep_ended"]
    ended = [line for line in told if line["event"] == "cell_ended"]
    figures = [(line["done"], line["all"], line["valid"], line["p50_s"]) for line in ended]
    assert figures == [(1, 2, "yes", 0.02), (2, 2, "yes", 0.02)]
    again = command(sweep, *words)
    assert again.return_value == 0 and "2 measurements: 2 valid; rows in" in again.output
    sweep.out = sweep.out.with_name("failed.csv")
    sweep.beds.special = {3: GOOD, 4: FAILED}
    shown = command(sweep, *words)
    assert shown.return_value == 1
    first, second, *_, last = [line for line in shown.output.splitlines() if line and not line.startswith("  note")]
    assert first.startswith("[1/2] write-leader-50x") and "p50 20.0 ms" in first and "left)" in first
    assert second.startswith("[2/2]") and "100 requests failed" in second
    assert "2 measurements: 1 valid, 1 failed; rows in" in last


@pytest.mark.parametrize("effect", ["not valid", "network off"])
def test_rows_that_are_not_valid_are_no_failure_unless_strict(effect: str, sweep: Sweeping, monkeypatch: Patch) -> None:
    """As for `run`: exit status 0, 1 with --strict, and 1 where the network was not the one that was configured."""
    words = ("--set", "clients=5,10", "--tries", "1")
    if effect == "network off":
        monkeypatch.setattr(FakeTestbed, "proved_again", WRONG)
    else:
        found = Finding("generator_waited", "invalid", "it waited for a core")
        monkeypatch.setattr(matrix.Matrix, "_findings", lambda *_: iter([found]))
    statuses = [command(sweep, *words, *more) for more in ((), ("--strict",))]
    assert [done.return_value for done in statuses] == [int(effect == "network off"), 1]
    told = "2 measurements: 2 not valid (2 spoiled by the machine); the same command measures again what the machine"
    assert told in statuses[0].output
    if effect == "not valid":
        told = "NOT VALID: the load generator waited for a core; what helps: fewer clients, a lower rate or more cores"
        assert statuses[0].output.count(told) == 2
        assert {advice.partition(":")[0] for advice in values(sweep, "Advice")} == {"what helps"}


def test_an_interrupted_sweep_says_how_it_resumes(sweep: Sweeping, capsys: pytest.CaptureFixture[str]) -> None:
    sweep.beds.special[2] = raising(Interrupted(2))
    words = (CONFIG, sweep.out, "--quick", "--only", "write-leader-50x*-4B*", "--set", "clients=5,10,20")
    with pytest.raises(SystemExit) as ended:
        main(["sweep", *map(str, words)])
    told = "1 measurement: 1 valid; the same command measures the 2 that are left"
    assert ended.value.code == 130 and capsys.readouterr().err == f"interrupted\nin {sweep.out}: {told}\n"
