"""A sweep that goes on: its seed, what a killed testbed leaves, and rows that something else measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import sources
from containernet_env.base.errors import RunError
from containernet_env.fidelity.rtt import Tolerance
from containernet_env.load.server import Answer
from containernet_env.runs import manifest as manifest_module
from containernet_env.sweep.journal import Journal, journal_of
from containernet_env.sweep.runner import Counts
from tests.unit import sweep_fakes
from tests.unit.manifests import PROGRAM
from tests.unit.run_fakes import FakeTestbed, rows
from tests.unit.sweep_fakes import CELLS, Answers, Notes, lines, measured, sweep_of, swept

answers, beds = sweep_fakes.answers, sweep_fakes.beds
LOST = "the link emulator ended: killed by SIGKILL"


def test_without_a_seed_the_first_one_orders_what_is_left(answers: Answers, tmp_path: Path) -> None:
    """Also after a command that had another one of its own."""
    out = tmp_path / "out.csv"
    for repeat, seed in enumerate((5, 90, None), start=1):
        swept(out, "clients=5,10", repeat=repeat, seed=seed)
    assert [line["seed"] for line in lines(out, "sweep")] == [5, 90, 5]
    assert [row["LinkSeed"] for row in rows(out)[::2]] == ["5", "91", "7"]


@pytest.mark.parametrize("ended", [1, 3, 6])
def test_rows_of_a_killed_testbed_stay_and_are_named(answers: Answers, tmp_path: Path, ended: int) -> None:
    """kill -9 within the cell after the given one: OUT and journal are what was on disk at that moment."""
    out, notes = tmp_path / "out.csv", Notes()
    files = (out, journal_of(out))
    held: list[bytes] = []
    notes.on_ended = lambda: held.extend(file.read_bytes() for file in files) if len(notes.ended) == ended else None
    swept(out, notes=notes)
    for file, content in zip(files, held, strict=True):
        file.write_bytes(content)
    assert sweep_of(out).left()[0] == CELLS - ended and out.read_bytes() == held[0]
    again = Notes()
    assert swept(out, notes=again, seed=None) == Counts(CELLS, 0, 0)
    assert out.read_bytes().startswith(held[0]) and set(measured(out).values()) == {1}
    named = [note for note in again.notes if "killed: their network was proved before them" in note]
    assert [note.split()[0] for note in named] == [str(ended % 4)], (
        "those of testbeds that came to their end are proved"
    )


def lose(beds: list[FakeTestbed]) -> Answer:
    beds[0].failure = LOST
    return Answer(None, "the server gave no answer")


def test_that_the_testbed_failed_a_cell_is_on_disk_before_it_is_taken_down(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 during the tear-down must not make it a failure of the store, which is never measured again."""
    out, known = tmp_path / "out.csv", []
    answers.special[2] = lambda: lose(beds)
    monkeypatch.setattr(FakeTestbed, "down", lambda self: known.append([line["why"] for line in lines(out, "failed")]))
    assert swept(out) == Counts(CELLS, 0, 0)
    assert [len(why) for why in known] == [1, 1, 1] and known[0][0].startswith(LOST)


def test_what_the_journal_did_not_take_is_told_again(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, plain, refused = tmp_path / "out.csv", Journal.failed, [RunError("No space left on device")]

    def failed(self: Journal, *arguments: Any) -> None:
        if refused:
            raise refused.pop()
        plain(self, *arguments)

    monkeypatch.setattr(Journal, "failed", failed)
    answers.special[2] = lambda: lose(beds)
    assert swept(out) == Counts(CELLS, 0, 0)
    assert not refused and len(lines(out, "failed")) == 1


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            "sources",
            "program 0.1.0 (commit 012345678901), now 0.1.0 (commit cccccccccccc), sources aaaaaaaaaaaa, ",
        ),
        ("go", "Go go1.26.8, now go1.27.0"),
        ("store", "etcd 3.7.3, now 3.7.4"),
        ("tolerance", "RTT tolerance by the kind of links, now 1 ms, 12.5 %"),
    ],
)
def test_rows_that_something_else_measured_are_named_and_not_counted(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, words: str
) -> None:
    out, request = tmp_path / "out.csv", {}
    monkeypatch.setattr(sources, "etcd_version", lambda: "3.7.3")
    swept(out)
    before = rows(out)
    if what == "store":
        monkeypatch.setattr(sources, "etcd_version", lambda: "3.7.4")
    elif what == "tolerance":
        request = {"tolerance": Tolerance(1_000_000, 0.125)}
    else:
        new = {"sources": {"sources": "b" * 64, "commit": "c" * 40}, "go": {"go": "go1.27.0"}}[what]
        monkeypatch.setattr(manifest_module, "program_facts", lambda: PROGRAM.model_copy(update=new))
    for counted in (True, False):
        (note,) = [
            note
            for note in sweep_of(out, other_versions=counted, **request).notes()
            if note.startswith(f"{CELLS} rows in {out} were measured by another version, and are ")
        ]
        assert words in note and ("counted all the same" in note) is counted
    assert swept(out, other_versions=True, **request) == Counts(CELLS, 0, 0) and rows(out) == before
    assert swept(out, **request) == Counts(CELLS, 0, 0)
    assert answers.asked == 2 * CELLS and rows(out)[:CELLS] == before and set(measured(out).values()) == {2}
    assert swept(out, **request) == Counts(CELLS, 0, 0) and answers.asked == 2 * CELLS


def test_a_commit_that_leaves_the_sources_alone_measures_the_same(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.csv"
    swept(out)
    monkeypatch.setattr(manifest_module, "program_facts", lambda: PROGRAM.model_copy(update={"commit": "d" * 40}))
    assert swept(out) == Counts(CELLS, 0, 0) and answers.asked == CELLS
