"""Sweeps on testbeds of fakes: each cell once, whatever ends the sweep, and what is measured again."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base.errors import Interrupted, MissingRequirementError, RunError, UsageError
from containernet_env.base.stop import Stop
from containernet_env.cli import sweep as sweep_command
from containernet_env.load.server import Answer
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.results import csv_file
from containernet_env.results.run_directory import read_run
from containernet_env.runs import measure as measure_module
from containernet_env.runs import member_watch
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.setup import extras
from containernet_env.sweep import runner
from containernet_env.sweep.design import design
from containernet_env.sweep.journal import journal_of
from containernet_env.sweep.progress import Standing
from containernet_env.sweep.runner import Counts, Request, Sweep, Until
from tests.unit.matrix_fakes import result_of
from tests.unit.run_fakes import CONFIG, FakeTestbed, on_fakes, rows

AXES = ("mem=256m,512m", "clients=5,10", "conns=1,2")  # on two testbeds
CELLS = 8


class Notes:
    """Keeps what a sweep tells."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.began: list[tuple[str, int]] = []
        self.ended: list[tuple[str, int]] = []
        self.standings: list[Standing] = []
        self.on_ended: Callable[[], None] = lambda: None

    def note(self, text: str) -> None:
        self.notes.append(text)

    def bed_began(self, cells: Any, repetition: int) -> None: ...

    def cell_began(self, cell: Any, repetition: int, standing: Standing) -> None:
        self.began.append((cell.identity, repetition))

    def cell_progress(self, done: int, errors: int) -> None: ...

    def cell_ended(self, cell: Any, repetition: int, outcome: ScenarioOutcome, standing: Standing) -> None:
        self.ended.append((cell.identity, repetition))
        self.standings.append(standing)
        self.on_ended()


class Answers:
    """What the benchmark server of each testbed says, by the number of its benchmark in the sweep, from 1."""

    def __init__(self) -> None:
        self.asked = 0
        self.special: dict[int, Any] = {}

    def __call__(self, path: str, body: dict[str, Any]) -> Answer:
        self.asked += 1
        answer = self.special.get(self.asked, Answer(result_of(), None))
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer


@pytest.fixture
def beds(monkeypatch: pytest.MonkeyPatch) -> list[FakeTestbed]:
    made = on_fakes(monkeypatch)
    monkeypatch.setattr(runner, "lock_for", lambda plan: nullcontext())
    monkeypatch.setattr(runner, "require_root", lambda: None)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(member_watch, "_CLOSE_S", 0.01)
    # What this machine does meanwhile is no part of these tests.
    monkeypatch.setattr(measure_module, "AllUse", lambda *_: None)
    monkeypatch.setattr(measure_module, "Sampler", lambda *_: None)
    return made


@pytest.fixture
def answers(beds: list[FakeTestbed], monkeypatch: pytest.MonkeyPatch) -> Answers:
    found = Answers()
    plain = FakeTestbed.__init__

    def made(self: FakeTestbed, *arguments: Any, **named: Any) -> None:
        plain(self, *arguments, **named)
        self.server.behave = found

    monkeypatch.setattr(FakeTestbed, "__init__", made)
    return found


def swept(out: Path, *axes: str, stop: Stop | None = None, notes: Notes | None = None, **request: Any) -> Counts:
    return sweep_of(out, *axes, **request).carry_out(notes or Notes(), stop or Stop())


def sweep_of(out: Path, *axes: str, seed: int | None = 5, **request: Any) -> Sweep:
    made = design(CONFIG, axes or AXES, quick=True, only=["write-leader-50x*-4B-64B"], seed=seed)
    return Sweep(made, out, Request(**request))


def measured(out: Path) -> Counter[tuple[str, str, str]]:
    return Counter((row["ConfigHash"], row["ScenarioHash"], row["Repetition"]) for row in rows(out))


def lines(out: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in journal_of(out).read_text().splitlines() if line]
    return [line for line in found if line["kind"] == kind]


def test_each_cell_is_measured_once_for_each_repetition_in_the_order_that_is_recorded(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path
) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    counts = swept(out, notes=notes, repeat=3)
    assert counts == Counts(3 * CELLS, 0, 0)
    assert len(measured(out)) == 3 * CELLS and set(measured(out).values()) == {1}
    assert len(beds) == 3 * 2 and all(bed.downs == 1 for bed in beds)
    recorded = [(cell, run["repetition"]) for run in lines(out, "run") for cell in run["cells"]]
    by_row = {(line["config_hash"], line["scenario_hash"]): line["cell"] for line in lines(out, "cell")}
    found = [(by_row[row["ConfigHash"], row["ScenarioHash"]], int(row["Repetition"])) for row in rows(out)]
    assert found == recorded == notes.ended
    assert [run["repetition"] for run in lines(out, "run")] == [1, 1, 2, 2, 3, 3]
    assert [run["seed"] for run in lines(out, "run")] == [5, 5, 6, 6, 7, 7]
    assert [row["LinkSeed"] for row in rows(out)] == [str(4 + repetition) for _, repetition in recorded]
    assert [row["LoadSeed"] for row in rows(out)] == [str(repetition - 1) for _, repetition in recorded]
    assert [row["Reused"] for row in rows(out)] == ["nothing", "cluster", "cluster", "cluster"] * 6
    assert {row["Valid"] for row in rows(out)} == {"yes"}
    assert [standing.done for standing in notes.standings] == list(range(1, 3 * CELLS + 1))
    assert len(notes.notes) == len(set(notes.notes))
    assert notes.standings[-1].left_s < notes.standings[0].left_s


def test_the_same_command_measures_nothing_again(answers: Answers, tmp_path: Path) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    swept(out)
    before = out.read_bytes()
    assert swept(out, notes=notes) == Counts(CELLS, 0, 0)
    assert out.read_bytes() == before and answers.asked == CELLS
    assert notes.notes == [
        f"{CELLS} measurements are there, 0 failed because of the store, 0 because of the machine; 0 are left"
    ]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.35, 0.5, 0.77, 0.999])
def test_a_sweep_that_was_killed_measures_what_has_no_whole_row(answers: Answers, tmp_path: Path, share: float) -> None:
    """kill -9 in the middle of anything, also of a row: what is on disk is a beginning of the file."""
    out = tmp_path / "out.csv"
    swept(out, repeat=2)
    content = out.read_bytes()
    kept = content[: round(len(content) * share)]
    out.write_bytes(kept)
    whole = max(0, kept.count(b"\n") - 1)
    asked = answers.asked
    assert swept(out, repeat=2, seed=None) == Counts(2 * CELLS, 0, 0)
    assert answers.asked - asked == 2 * CELLS - whole
    assert len(csv_file.rows_after(out)) == 2 * CELLS
    again = Counter((row["ConfigHash"], row["ScenarioHash"], row["Repetition"]) for row in csv_file.rows_after(out))
    assert len(again) == 2 * CELLS
    assert {line["seed"] for line in lines(out, "sweep")} == {5}  # the order is that of the sweep that was killed


def test_a_journal_that_was_torn_is_read_as_far_as_it_goes(answers: Answers, tmp_path: Path) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    swept(out)
    with journal_of(out).open("ab") as file:
        file.write(b'{"schema": 1, "kind": "run", "ru')
    assert swept(out, notes=notes) == Counts(CELLS, 0, 0)
    assert answers.asked == CELLS
    assert any("1 lines of" in note and "cannot be read" in note for note in notes.notes)
    assert swept(out, *AXES, "cpus=0.5") == Counts(CELLS, 0, 0)  # what is added to it is whole


def test_ctrl_c_loses_the_running_cell_alone(answers: Answers, beds: list[FakeTestbed], tmp_path: Path) -> None:
    """The rows before it are those of a network that was measured afterwards, and none says 'interrupted'."""
    out, stop, notes = tmp_path / "out.csv", Stop(), Notes()
    answers.special[3] = lambda: stop.request(2) or stop.check()
    with pytest.raises(Interrupted):
        swept(out, stop=stop, notes=notes)
    assert [(row["Error"], row["Valid"]) for row in rows(out)] == [("-", "yes"), ("-", "yes")]
    assert beds[0].downs == 1
    directory = next(out.with_suffix(".runs").iterdir())
    assert [line["error"] for line in read_run(directory).scenarios][2:] == [
        "interrupted",
        "not run: interrupted by SIGINT",
    ]
    assert swept(out) == Counts(CELLS, 0, 0)
    assert set(measured(out).values()) == {1} and answers.asked == CELLS + 1


def test_ctrl_c_between_two_testbeds_begins_no_other_one(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path
) -> None:
    out, stop, notes = tmp_path / "out.csv", Stop(), Notes()
    notes.on_ended = lambda: stop.request(2) if len(notes.ended) == 4 else None
    with pytest.raises(Interrupted):
        swept(out, stop=stop, notes=notes)
    assert len(rows(out)) == 4 and sum(bed.ups for bed in beds) == 1


def test_a_full_disk_stops_with_what_it_has(answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, append = tmp_path / "out.csv", csv_file.append_whole

    def full(fd: int, data: bytes, **named: Any) -> None:
        if answers.asked >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(fd, data, **named)

    monkeypatch.setattr(csv_file, "append_whole", full)
    with pytest.raises(RowsNotWrittenError, match="No space left"):
        swept(out)
    assert len(rows(out)) == 2 and answers.asked == 3
    monkeypatch.setattr(csv_file, "append_whole", append)
    assert swept(out) == Counts(CELLS, 0, 0)
    assert set(measured(out).values()) == {1}


def test_a_changed_sweep_keeps_what_no_longer_fits_apart(answers: Answers, tmp_path: Path) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    swept(out)
    before = rows(out)
    assert swept(out, "mem=512m,1g", *AXES[1:], notes=notes) == Counts(CELLS, 0, 0)
    assert answers.asked == CELLS + CELLS // 2
    assert rows(out)[:CELLS] == before
    (note,) = [note for note in notes.notes if "none of this sweep" in note]
    assert note.startswith("4 cells in") and note.count("mem=256m") == 4


def failing(error: str) -> Answer:
    return Answer(result_of(900, 100), error)


def test_what_failed_because_of_the_store_is_a_result(answers: Answers, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    answers.special[2] = failing("100 requests failed")
    assert swept(out) == Counts(CELLS - 1, 1, 0)
    assert answers.asked == CELLS
    assert swept(out) == Counts(CELLS - 1, 1, 0)
    assert answers.asked == CELLS
    assert swept(out, retry_failed=True) == Counts(CELLS, 0, 0)
    assert answers.asked == CELLS + 1


def test_what_the_machine_spoils_is_measured_again_on_another_testbed_within_a_bound(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network of the first testbed was not held: all its rows are not valid, which is known only at its end."""
    out = tmp_path / "out.csv"
    wrong = NetworkProof("after", (Check("etcd1>s1", "rate", "wrong", "rate of etcd1>s1: 10, not 1000 Mbit/s"),))
    proofs = iter([wrong])
    monkeypatch.setattr(FakeTestbed, "prove_again", lambda self, moment: next(proofs, NetworkProof("after", ())))
    assert swept(out) == Counts(CELLS, 0, 0)
    assert [row["Valid"] for row in rows(out)] == ["no"] * 4 + ["yes"] * 8
    assert len(beds) == 3
    assert max(measured(out).values()) == 2


def test_the_machine_is_given_up_after_some_tries_and_asked_again_by_the_next_command(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.csv"
    monkeypatch.setattr(FakeTestbed, "proved_again", RunError("something else keeps this machine busy"))
    notes = Notes()
    assert swept(out, notes=notes, tries=2) == Counts(0, 0, CELLS)
    assert [text for text in notes.notes if "tried again" in text] == [
        f"{CELLS} measurements are tried again: the machine spoiled what was measured of them"
    ]
    assert answers.asked == 2 * CELLS
    monkeypatch.setattr(FakeTestbed, "proved_again", NetworkProof("after", ()))
    assert swept(out) == Counts(CELLS, 0, 0)
    assert answers.asked == 3 * CELLS


def test_a_testbed_that_fails_is_the_machines_fault(answers: Answers, beds: list[FakeTestbed], tmp_path: Path) -> None:
    """The link emulator ends during the second cell: its row says so, and the network of the first is not proved."""
    out = tmp_path / "out.csv"

    def lose() -> Answer:
        beds[0].failure = "the link emulator ended: killed by SIGKILL"
        return Answer(None, "the server gave no answer")

    answers.special[2] = lose
    notes = Notes()
    assert swept(out, notes=notes) == Counts(CELLS, 0, 0)
    assert notes.began == notes.ended, "a cell whose testbed was lost before never began"
    errors = [row["Error"] for row in rows(out)]
    assert len(errors) == CELLS + 2 and sum("link emulator ended" in error for error in errors) == 1
    assert [row["Reasons"] for row in rows(out) if row["Valid"] == "unknown"] == ["network_unknown"]
    assert [line["why"][:23] for line in lines(out, "failed")] == ["the link emulator ended"]
    assert sweep_of(out).counts() == Counts(CELLS, 0, 0)


def test_a_testbed_that_cannot_be_brought_up_is_tried_again(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, notes, left = tmp_path / "out.csv", Notes(), [RunError("etcd1 did not start")]
    monkeypatch.setattr(FakeTestbed, "up", lambda self: (_ for _ in ()).throw(left.pop()) if left else None)
    assert swept(out, notes=notes) == Counts(CELLS, 0, 0)
    assert len(beds) == 3 and len(rows(out)) == CELLS
    assert any("4 cells could not be measured" in note and "etcd1 did not start" in note for note in notes.notes)


def test_a_machine_on_which_nothing_comes_up_ends_the_sweep(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTestbed, "up", lambda self: (_ for _ in ()).throw(RunError("no such device")))
    with pytest.raises(RunError, match="3 testbeds in a row could not be used, so the sweep ends: no such device"):
        swept(tmp_path / "out.csv")
    assert len(beds) == 3


def test_a_testbed_that_cannot_be_ends_nothing_but_itself(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a memory limit that is too low for the store, for instance; the next command finds it alone at first."""
    out, plain = tmp_path / "out.csv", FakeTestbed.__init__

    def made(self: FakeTestbed, plan: Any, *arguments: Any, **named: Any) -> None:
        plain(self, plan, *arguments, **named)
        vars(self)["memory_bytes"] = plan.hosts[0].memory_bytes

    def up(self: FakeTestbed) -> None:
        if vars(self)["memory_bytes"] == 256 << 20:
            raise RunError("etcd1 did not start")

    monkeypatch.setattr(FakeTestbed, "__init__", made)
    monkeypatch.setattr(FakeTestbed, "up", up)
    for _ in range(2):
        assert swept(out, repeat=2) == Counts(CELLS, 0, CELLS)


def test_a_cell_is_not_charged_with_a_member_that_another_one_killed(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"

    def kill() -> Answer:
        beds[0].cluster.dead["etcd2"] = "etcd2 was killed: out of memory"
        return failing("10 requests failed")

    answers.special[2] = kill
    assert swept(out) == Counts(CELLS - 1, 1, 0)
    assert sum("(earlier)" in row["Error"] for row in rows(out)) == 2
    assert sweep_of(out).counts() == Counts(CELLS - 1, 1, 0)


def test_what_was_tried_last_decides_after_a_resume_too(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first testbed does not come up, on the second one the store fails: that is a result, and stays one."""
    out, left = tmp_path / "out.csv", [RunError("etcd1 did not start")]
    monkeypatch.setattr(FakeTestbed, "up", lambda self: (_ for _ in ()).throw(left.pop()) if left else None)
    answers.special[1] = failing("100 requests failed")
    for _ in range(2):
        assert swept(out, "clients=5") == Counts(0, 1, 0)
    assert answers.asked == 1


def test_rows_without_their_journal_are_named_and_not_counted(answers: Answers, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    swept(out)
    journal_of(out).unlink()
    (note,) = sweep_of(out).notes()
    assert note.startswith(f"{CELLS} rows of these cells") and "put the journal back" in note


def test_a_journal_of_another_version_is_refused_by_name(answers: Answers, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    swept(out, "clients=5")
    journal = journal_of(out)
    journal.write_text(journal.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(UsageError, match="another version of this program: schema 2, 1 is read here"):
        sweep_of(out)
    journal.write_text('{"schema": 1, "kind": "sweep", "seed": Infinity}\n[1]\n')
    assert "2 lines" in sweep_of(out).notes()[0]


def test_repetitions_beyond_the_bound_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--max-repeat: got 30; allowed: at least --repeat, which is 40"):
        sweep_of(tmp_path / "out.csv", repeat=40, until=Until(0.05))


def test_cells_are_repeated_until_their_median_is_known(answers: Answers, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    exact = swept(out, "clients=5,10", until=Until(0.05), repeat=1)
    assert exact == Counts(6 * 2, 0, 0, 0)
    assert swept(out, "clients=5,10", until=Until(0.05)) == exact  # and no more, once it is


def test_rows_that_are_not_certainly_valid_tell_nothing_of_the_median(answers: Answers, tmp_path: Path) -> None:
    few = Answer(result_of(ok=10), None)
    answers.special = dict.fromkeys(range(1, 20), few)
    # Nor would more of them.
    assert swept(tmp_path / "out.csv", "clients=5", until=Until(0.05, most=9)) == Counts(6, 0, 0, 1)


def test_the_repetitions_of_a_cell_that_varies_are_bounded(answers: Answers, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    varied = iter(range(10_000))

    def another(path: str, body: dict[str, Any]) -> Answer:
        made = result_of()
        spread = 1.0 + (next(varied) % 7) / (1 if body["clients"] == 5 else 1000)
        values = json.loads(json.dumps(made.values))
        times = values["response_time"]["percentiles_s"]
        values["response_time"]["percentiles_s"] = {p: v and v * spread for p, v in times.items()}
        values["percentiles_s"] = {p: v and v * spread for p, v in values["percentiles_s"].items()}
        return Answer(type(made).from_json(values), None)

    answers.special = SimpleNamespace(get=lambda number, default: None)  # type: ignore[assignment]
    answers.__class__.__call__, plain = (lambda self, path, body: another(path, body)), answers.__class__.__call__
    try:
        counts = swept(out, "clients=5,10", until=Until(0.05, "p99", most=8))
    finally:
        answers.__class__.__call__ = plain  # type: ignore[method-assign]
    found = Counter(row["ClientCount"] for row in rows(out))
    assert found == {"5": 8, "10": 6}
    assert counts == Counts(14, 0, 0, 1)


@pytest.mark.parametrize(
    ("until", "words"),
    [
        (Until(0.05, "p42"), "--ci-of: got 'p42'; allowed: p50, p99, throughput"),
        (Until(1.5), "--until-ci: got 150%"),
        (Until(0.05, most=5), "--max-repeat: got 5; allowed: at least 6"),
    ],
)
def test_an_interval_that_cannot_be_is_refused(until: Until, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        sweep_of(tmp_path / "out.csv", until=until)


@pytest.mark.parametrize("header", [csv_file.SEED_COLUMNS, (*csv_file.COLUMNS[:-1], "Other")])
def test_a_file_of_other_columns_is_refused(header: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text(",".join(header) + "\n" + ",".join("1" for _ in header) + "\n")
    with pytest.raises(UsageError, match="has not the columns of this version"):
        sweep_of(out)


def command(*words: object) -> Any:
    return CliRunner().invoke(sweep_command.command, [*map(str, words)], standalone_mode=False)


def test_a_dry_run_prints_cells_and_time_and_creates_nothing(tmp_path: Path) -> None:
    sets = [word for axis in AXES for word in ("--set", axis)]
    shown = command(CONFIG, tmp_path / "out.csv", *sets, "--quick", "--only", "write-leader-50x*-4B*", "--dry-run")
    assert shown.return_value == 0, shown.output
    assert "8 cells on 2 testbeds, 1 repetition: 8 measurements are left, which take about" in shown.output
    assert "this machine carries" in shown.output and list(tmp_path.iterdir()) == []


def test_what_until_ci_needs_is_made_sure_of_before_anything_is_created(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def require(module: str, note: object) -> None:
        raise MissingRequirementError(f"this needs {module}", "Install it.")

    monkeypatch.setattr(extras, "require", require)
    words = (CONFIG, tmp_path / "out.csv", "--set", "clients=5", "--quick", "--only", "write-leader-50x*-4B*")
    for more in ((), ("--dry-run",)):
        refused = command(*words, "--until-ci", "5%", *more).exception
        assert isinstance(refused, MissingRequirementError) and "this needs scipy" in str(refused)
        assert "--until-ci: got 500%" in str(command(*words, "--until-ci", "500%", *more).exception)
    assert not beds and list(tmp_path.iterdir()) == []
    assert command(*words).return_value == 0


def test_the_course_is_told_as_json(answers: Answers, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    words = (CONFIG, out, "--set", "clients=5,10", "--quick", "--only", "write-leader-50x*-4B*", "--json")
    shown = command(*words)
    assert shown.return_value == 0, shown.output
    told = [json.loads(line) for line in shown.output.splitlines()]
    assert [line["event"] for line in told if line["event"] != "note"] == [
        "testbed_began",
        *(["cell_began", "cell_ended"] * 2),
        "sweep_ended",
    ]
    ended = [line for line in told if line["event"] == "cell_ended"]
    assert [(line["done"], line["all"], line["valid"], line["p50_s"]) for line in ended] == [
        (1, 2, "yes", 0.02),
        (2, 2, "yes", 0.02),
    ]
    plain = command(*words[:-1])
    assert plain.return_value == 0 and "2 measurements; rows in" in plain.output


def test_without_a_terminal_each_cell_is_a_line(answers: Answers, tmp_path: Path) -> None:
    answers.special[2] = failing("100 requests failed")
    sets = ("--set", "clients=5,10", "--quick", "--only", "write-leader-50x*-4B*")
    shown = command(CONFIG, tmp_path / "out.csv", *sets)
    assert shown.return_value == 1
    first, second, *_, last = [line for line in shown.output.splitlines() if line and not line.startswith("  note")]
    assert first.startswith("[1/2] write-leader-50x") and "p50 20.0 ms" in first and "left)" in first
    assert second.startswith("[2/2]") and "100 requests failed" in second
    assert "1 measurements, 1 failed because of the store; rows in" in last


def test_out_is_needed_but_for_a_dry_run() -> None:
    shown = command(CONFIG, "--set", "clients=5", "--quick")
    assert "Missing argument 'OUT'" in str(shown.exception)
