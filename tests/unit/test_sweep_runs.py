"""Sweeps on testbeds of fakes: each cell once, whatever ends the sweep, and what is measured again."""

from __future__ import annotations

import errno
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import Interrupted, RunError, UsageError
from containernet_env.base.stop import Stop
from containernet_env.load.server import Answer
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.results import csv_file
from containernet_env.results.run_directory import read_run
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.sweep.journal import journal_of
from containernet_env.sweep.runner import Counts
from tests.unit import sweep_fakes
from tests.unit.run_fakes import FakeTestbed, rows
from tests.unit.sweep_fakes import AXES, CELLS, Answers, Notes, failing, lines, measured, sweep_of, swept

answers, beds = sweep_fakes.answers, sweep_fakes.beds


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


@pytest.mark.parametrize("header", [csv_file.SEED_COLUMNS, (*csv_file.COLUMNS[:-1], "Other")])
def test_a_file_of_other_columns_is_refused(header: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text(",".join(header) + "\n" + ",".join("1" for _ in header) + "\n")
    with pytest.raises(UsageError, match="has not the columns of this version"):
        sweep_of(out)
