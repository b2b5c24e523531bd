"""The last line of a run, signals that are ignored at entry, and text of files on a terminal."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from containernet_env.base.errors import Interrupted
from containernet_env.cli import group, main
from containernet_env.cli.signals import StopSignals
from containernet_env.model.findings import Effect, Finding
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import ScheduledScenario
from containernet_env.results.run_result import RunResult
from containernet_env.runs import measure
from tests.unit import report_rows
from tests.unit.answers import closed_loop
from tests.unit.matrix_fakes import write

# Work that prints for a second, and has an exit status of its own.


@pytest.mark.parametrize("lost", [False, True])
def test_the_last_line_of_a_run_names_the_file_that_the_rows_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Exit 0, '4 rows in OUT, no errors', and no file."""
    out = tmp_path / "out.csv"
    file = tmp_path / "out.csv.rescued" if lost else out
    result = RunResult("r", tmp_path / "out.runs" / "r", (), (), file)
    monkeypatch.setattr(measure, "carry_out", lambda *arguments, **options: result)
    done = CliRunner().invoke(group, ["run", "3node-3ms", str(out)], standalone_mode=False)
    words = f"0 rows in {file} ({out} was lost during the run), no" if lost else f"0 rows in {out}, no errors;"
    assert words in done.output
    assert done.return_value == (1 if lost else 0)


@pytest.mark.parametrize(
    ("effect", "words", "strict_status"),
    [("told", "no errors;", 0), ("unknown", "1 of unknown validity;", 1), ("invalid", "1 NOT VALID;", 1)],
)
def test_the_last_line_of_a_run_counts_rows_that_are_not_valid_and_strict_fails_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: Effect, words: str, strict_status: int
) -> None:
    scheduled = ScheduledScenario(write("w"), 1)
    load = LoadResult.from_json(closed_loop())
    outcome = ScenarioOutcome(
        scheduled, "t", 1, load=load, findings=(Finding("links_paused", effect, "they stood still"),)
    )
    result = RunResult("r", tmp_path, (outcome,), ({},), tmp_path / "out.csv")
    monkeypatch.setattr(measure, "carry_out", lambda *arguments, **options: result)
    for options, status in (((), 0), (("--strict",), strict_status)):
        command = ["run", "3node-3ms", str(tmp_path / "out.csv"), *options]
        done = CliRunner().invoke(group, command, standalone_mode=False)
        assert words in done.output
        assert done.return_value == status


def test_a_background_command_of_a_script_ends_by_sigquit() -> None:
    """A shell starts it with SIGQUIT ignored, and SIGINT."""
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        with StopSignals(), pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGQUIT)
    finally:
        signal.signal(signal.SIGQUIT, before)


def test_a_hang_up_that_is_ignored_at_entry_stays_ignored() -> None:
    """nohup: a hang-up ended the run that was to survive it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.received is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    "command",
    [
        ["results", "out.csv"],
        ["report", "out.csv", "out.csv", "-o", "page.html"],
        ["plot", "out.csv", "--x", "type", "--y", "p50", "--where", "type=none", "-o", "figure.svg"],
    ],
)
def test_text_of_a_file_moves_no_cursor(command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A name in a CSV cleared the screen, or turned what followed it round."""
    folder = tmp_path / "\x1b[2J\u202e"
    folder.mkdir()
    path = report_rows.write(folder / "out.csv", [report_rows.row(TestType="\x1b[31m")])
    with path.open("a") as file:
        file.write("torn,line\n")
    with pytest.raises(SystemExit):
        main([str(path) if word == "out.csv" else str(tmp_path / word) if "." in word else word for word in command])
    said = capfd.readouterr().err
    assert "\\x1b[" in said and not {"\x1b", "\u202e"} & set(said)
