"""The command sweep on testbeds of fakes: what it prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base.errors import MissingRequirementError
from containernet_env.cli import sweep as sweep_command
from containernet_env.setup import extras
from tests.unit import sweep_fakes
from tests.unit.run_fakes import CONFIG, FakeTestbed
from tests.unit.sweep_fakes import AXES, Answers, failing

answers, beds = sweep_fakes.answers, sweep_fakes.beds


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
