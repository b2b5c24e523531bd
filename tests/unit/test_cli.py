"""What a user reads who mistypes a command or names a file that is none, names of shipped files, and completion;
the last line of a run, signals that are ignored at entry, and text of files on a terminal.

The messages are in the snapshot: pytest tests/unit/test_cli.py --snapshot-update.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from click import BadParameter
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from containernet_env import cli
from containernet_env.base import assets
from containernet_env.base.errors import Interrupted
from containernet_env.cli import group, main
from containernet_env.cli.arguments import CONFIG, SCENARIOS
from containernet_env.cli.terminal import StopSignals
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
from containernet_env.model.findings import Effect, Finding
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import ScheduledScenario
from containernet_env.results.run_directory import RunResult
from containernet_env.runs import measure, version
from tests.unit import report_rows
from tests.unit.answers import closed_loop
from tests.unit.commands import answer
from tests.unit.fakes import write

COMPLETE = "_CONTAINERNET_ENV_COMPLETE"
SHIPPED = assets.ROOT / "configs" / "1node.json"
LONG = "x" * 300


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    return tmp_path


MISTAKES = [
    *("rnu", "Check x", "frobnicate", "mine.json out.csv", "--quik mine.json", "--xyz", "--versio", "run --quik"),
    *("run", "check", "shell", "check -", "check FOLDER", "run FOLDER"),
    *(f"run 1node --dry-run --profile {value}" for value in ("cpu,heap", "''", "cpu --profile-member x")),
    *(f"run 1node --dry-run {options}" for options in ("--profile-member etcd1", "--links-cpu -1", "--links-cpu 4096")),
    *(f"run 3node-3ms out.csv --links {links}" for links in ("emulator --switches ovs", "auto --switches bridge")),
    *("sweep put-client", "sweep DBTESTER-write.json", "run 3nod-3ms", "run 3node-3ms --scenarios failovr"),
    *("check something", "check SHIPPED/3node-3m.json"),
    *(f"{command} LONG" for command in ("results", "show", "check", "run 3node-3ms --dry-run", "run --dry-run")),
]


def test_a_command_that_cannot_be_meant_is_answered(folder: Path, snapshot: SnapshotAssertion) -> None:
    told = {}
    for line in MISTAKES:
        known = {"FOLDER": str(folder), "LONG": LONG, "''": ""}
        words = [known.get(word, word.replace("SHIPPED", str(SHIPPED.parent))) for word in line.split()]
        told[line] = answer(*words, folder=folder).replace(LONG, "LONG")
    assert all(text.startswith("exit status 2\n") and "[Errno" not in text for text in told.values())
    assert told == snapshot


def test_every_command_is_a_module_and_listed_in_the_help(snapshot: SnapshotAssertion) -> None:
    listed = answer()
    for name in cli.COMMANDS:
        assert f"\n  {name} " in listed
        assert answer(name, "--help").startswith(f"exit status 0\nUsage: containernet-env {name} ")
    assert listed == snapshot


def test_a_file_that_is_no_config(folder: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    told = {}
    for content in (None, b"\x7fELF\x02\x01\x01\x00\xc0"):
        for path in (folder / "config.json", folder / os.fsdecode(b"\xff.json")):
            if content is not None:
                path.write_bytes(content)
            told[str(content)[:40]] = answer("check", path, folder=folder)
            assert answer("run", "--dry-run", path, folder=folder) == told[str(content)[:40]]
    assert told == snapshot
    monkeypatch.setattr(Path, "open", refuse)  # to root every file is readable
    assert answer("check", "x.json").endswith("  file: cannot be read: Permission denied\n")


@pytest.mark.parametrize("name", [b"\xff.json", b"[red]/lan.json"])
def test_a_good_file_may_have_any_name(folder: Path, name: bytes) -> None:
    """In brackets a console would take it for a colour."""
    path = folder / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(SHIPPED.read_bytes())
    for command in (["check"], ["run", "--quick", "--dry-run"]):
        shown = answer(*command, path).replace("\\udcff", "\\xff")
        assert shown.startswith("exit status 0\n") and name.decode(errors="backslashreplace")[-14:] in shown


def test_the_scenarios_of_many_repetitions_are_shown_once(folder: Path) -> None:
    """18,000 lines took 15 s."""
    said = answer("run", "3node-3ms", "--quick", "--dry-run", "--repeat", "100")
    assert said.count("write-leader-50x1x1-4B-64B") == 1 and "100 repetitions of these" in said
    assert "1800 scenarios from" in said
    assert answer("--version") == f"exit status 0\ncontainernet-env {version.text()}\n"


# --- names of shipped files -------------------------------------------------------------------------------------------


def test_a_shipped_file_is_found_by_its_name_and_the_users_own_comes_first(folder: Path) -> None:
    for given in ("1node", "1node.json"):
        assert CONFIG.convert(given, None, None) == SHIPPED
    assert SCENARIOS.convert("quick", None, None) == QUICK_SCENARIOS
    for given in ("./1node", "other/1node.json"):
        assert CONFIG.convert(given, None, None) == Path(given)
    for given in ("elsewhere", "scenarios", "default"):
        with pytest.raises(BadParameter, match=f"there is no file '{given}'; allowed: a file, or one of 1node"):
            CONFIG.convert(given, None, None)
    (folder / "1node.json").write_text("[]")
    assert CONFIG.convert("1node.json", None, None) == Path("1node.json")


# --- completion, as a shell asks for it -------------------------------------------------------------------------------


def completions(line: str) -> list[tuple[str, str]]:
    """Type and value of what is offered for the last word of a line, which may be empty."""
    *words, last = line.split(" ")
    found = ShellComplete(cli.group, {}, "containernet-env", COMPLETE).get_completions(words, last)
    return [(item.type, str(item.value)) for item in found]


def names(path: Path, start: str = "") -> list[tuple[str, str]]:
    return [("plain", one.name) for one in load_scenarios(path).scenarios if one.name.startswith(start)]


def test_only_completes_types_and_names_of_the_scenarios_that_are_chosen(folder: Path) -> None:
    types = [("plain", "write"), ("plain", "read")]
    assert completions("run 3node-3ms out.csv --only ") == [*types, *names(DEFAULT_SCENARIOS)]
    assert completions("run --quick --only ")[2:] == names(QUICK_SCENARIOS)
    open_loop = DEFAULT_SCENARIOS.with_name("open-loop.json")
    assert completions("run --scenarios open-loop --only write-") == names(open_loop, "write-")
    node = {"name": "etcd1", "ip": "10.0.0.2", "mem": "512m", "cpus": 1, "bandwidth": 100, "link_delay": "1ms"}
    (folder / "own.json").write_text(json.dumps({"nodes": [node], "scenarios": "quick.json"}))
    (folder / "quick.json").write_bytes(QUICK_SCENARIOS.read_bytes())
    assert completions("run own.json --only write-") == names(QUICK_SCENARIOS, "write-")
    (folder / "bad.json").write_text("{")
    assert completions("run bad.json --only ") == completions("run --scenarios absent.json --only ") == []


def test_configs_complete_by_name_where_there_is_no_file(folder: Path) -> None:
    assert completions("che") == [("plain", "check")]
    assert completions("run 3node-") == [("plain", "3node-3ms"), ("plain", "3node-traces")]
    assert ("plain", "wan-50ms") in completions("check ")
    assert completions("run --scenarios open") == [("plain", "open-loop")]
    (folder / "3node-own.json").write_text("[]")
    for line in ("check no-such", "check ./3", "shell 3node", "run 3node-3ms o", "results o"):
        assert completions(line) == [("file", line.split(" ")[-1])]


# --- runs and signals -------------------------------------------------------------------------------------------------


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
