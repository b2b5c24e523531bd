"""The last line of a run, signals that are ignored at entry, and text of files on a terminal."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

from containernet_env.base.errors import Interrupted
from containernet_env.cli import group, main
from containernet_env.cli.terminal import StopSignals
from containernet_env.model.findings import Effect, Finding
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import ScheduledScenario
from containernet_env.results.run_directory import RunResult
from containernet_env.runs import measure
from tests.unit import report_rows
from tests.unit.answers import closed_loop
from tests.unit.fakes import write


def test_the_last_line_of_a_run_names_the_file_and_counts_rows_that_are_not_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[list[Effect], bool, str, int, int]] = [
        ([], False, "0 rows in OUT: none;", 0, 0),
        # Exit 0, '4 rows in OUT, no errors', and no file.
        ([], True, "0 rows in OUT.rescued (OUT was lost during the run): none;", 1, 1),
        (["info"], False, "1 row in OUT: 1 valid;", 0, 0),
        (["unknown"], False, "1 row in OUT: 1 of unknown validity;", 0, 1),
        (["invalid"], False, "1 row in OUT: 1 not valid;", 0, 1),
        # Attempts at one scenario: with --strict, a valid one after an invalid one was a failure.
        (["invalid", "unknown", "info"], False, "3 rows in OUT: 1 valid, 1 not valid, 1 of unknown validity;", 0, 0),
        (["invalid", "unknown"], False, "2 rows in OUT: 1 not valid, 1 of unknown validity;", 0, 1),
    ]
    out, load, planned = tmp_path / "out.csv", LoadResult.from_json(closed_loop()), ScheduledScenario(write("w"), 1)
    for effects, is_lost, words, status, strict_status in cases:
        outcomes = []
        for attempt, effect in enumerate(effects, start=1):
            scheduled, found = replace(planned, attempt=attempt), (Finding("links_paused", effect, "paused"),)
            outcomes.append(ScenarioOutcome(scheduled, "t", 1, load=load, findings=found))
        file = out.with_suffix(".csv.rescued") if is_lost else out
        result = RunResult("r", tmp_path, tuple(outcomes), tuple({} for _ in outcomes), file)
        monkeypatch.setattr(measure, "carry_out", mock.Mock(return_value=result))
        for options, expected in (((), status), (("--strict",), strict_status)):
            done = CliRunner().invoke(group, ["run", "3node-3ms", str(out), *options], standalone_mode=False)
            assert words in done.output.replace(str(out), "OUT"), effects
            assert done.return_value == expected, (effects, options)


def test_an_interrupted_run_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said `interrupted` alone."""
    monkeypatch.setattr(measure, "carry_out", mock.Mock(side_effect=Interrupted(2)))
    with pytest.raises(SystemExit) as ended:
        main(["run", "3node-3ms", str(out := tmp_path / "out.csv")])
    said = capsys.readouterr().err
    assert ended.value.code == 130 and said.startswith(f"interrupted\nMeasured scenarios have rows in {out}; ")
    assert "`run` with --only NAME measures the scenarios" in said


@pytest.mark.parametrize("signum", [signal.SIGQUIT, signal.SIGHUP])
def test_signals_that_are_ignored_at_entry(signum: signal.Signals) -> None:
    """A shell starts a background command of a script with SIGQUIT and SIGINT ignored: it ends by the first.

    nohup ignores hang-ups: one ended the run that was to survive it.
    """
    before = signal.signal(signum, signal.SIG_IGN)
    try:
        with StopSignals() as stop, pytest.raises(Interrupted) if signum == signal.SIGQUIT else nullcontext():
            os.kill(os.getpid(), signum)
            assert stop.received is None
        assert signal.getsignal(signum) == signal.SIG_IGN
    finally:
        signal.signal(signum, before)


@pytest.mark.parametrize(
    "command",
    [
        ["results", "out.csv"],
        ["report", "out.csv", "out.csv", "-o", "page.html"],
        ["plot", "out.csv", "--x", "type", "--y", "p50", "--where", "type=none", "-o", "figure.svg"],
        *(["table", form, "out.csv"] for form in ("dbtester", "clients")),
        ["compare", "out.csv", "out.csv"],
    ],
)
def test_text_of_a_file_moves_no_cursor(command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A name in a CSV cleared the screen, or turned what followed it round."""
    folder = tmp_path / "\x1b[2J\u202e"
    folder.mkdir()
    path = report_rows.write(folder / "out.csv", [report_rows.row(TestType="\x1b[31m", Scenario="[red]\x1b[2J")])
    with path.open("a") as file:
        file.write("torn,line\n")
    with pytest.raises(SystemExit):
        main([str(path) if word == "out.csv" else str(tmp_path / word) if "." in word else word for word in command])
    said, error = capfd.readouterr()
    assert "\\x1b[" in error and not {"\x1b", "\u202e"} & set(said + error)
