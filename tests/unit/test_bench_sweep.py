"""bench/sweep: which commands it times, what counts as load, and what it judges; the commands are fakes."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.sweep import measure
from bench.sweep.cli import main, parse
from containernet_env.base.errors import RunError
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.results.csv_file import COLUMNS, ResultsFile
from containernet_env.runs import machine
from tests.unit.manifests import MACHINE


class Commands:
    """What is called instead of `sweep` and `run`: takes time on a clock of its own and leaves rows."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.now = 100.0
        self.around_s = 5.0
        self.error = "-"
        self.lost = 0

    def __call__(self, words: Any, timeout_s: float) -> str:
        self.calls.append(tuple(words))
        cells = 4 if words[0] == "sweep" else 1
        self.now += self.around_s + 20 * cells
        file = ResultsFile(Path(words[2]))
        file.open()
        for _ in range(cells - self.lost):
            last = {"Timestamp": "2026-11-22T10:00:00.000Z"}
            file.append({**dict.fromkeys(COLUMNS, "1"), "Error": self.error, "Valid": "yes"} | last)
        file.close()
        assert timeout_s > 80
        return "its last words"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    found = Commands()
    monkeypatch.setattr(measure, "_carry_out", found)
    monkeypatch.setattr(measure, "time", SimpleNamespace(monotonic=lambda: found.now))
    monkeypatch.setattr(machine, "facts", lambda: MACHINE)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return found


def test_a_sweep_is_timed_beside_one_run_for_each_of_its_cells(
    commands: Commands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "sweeps.md"
    document.write_text("before\n<!-- RESULTS -->\n<!-- END OF RESULTS -->\nafter\n")
    assert main(["--update-docs", str(document)]) == 0
    assert [call[0] for call in commands.calls] == [*["sweep", *["run"] * 4] * 2]
    table = [[word.strip() for word in line.split("|")[1:-1]] for line in document.read_text().splitlines()[7:-3]]
    assert table == [
        ["load", "`sweep`", "4", "4", "85.0 s", "80 s", "94.1%", "85%"],
        ["load", "`run`", "4", "4", "100.0 s", "80 s", "80.0%", "-"],
        ["links", "`sweep`", "4", "4", "85.0 s", "80 s", "94.1%", "75%"],
        ["links", "`run`", "4", "4", "100.0 s", "80 s", "80.0%", "-"],
    ]
    assert "Some CPU @ 2.0GHz, 2 cores" in capsys.readouterr().out


@pytest.mark.parametrize(("around_s", "status"), [(14.0, 0), (14.2, 1)])
def test_a_share_that_is_not_reached_is_named(
    commands: Commands, capsys: pytest.CaptureFixture[str], around_s: float, status: int
) -> None:
    commands.around_s = around_s  # of 94.1 s, 80 s are 85 %
    assert main(["--only", "load", "--without-run"]) == status
    assert ("85%: NOT kept" in capsys.readouterr().out) is bool(status)


def test_each_run_has_the_files_of_one_cell(commands: Commands, tmp_path: Path) -> None:
    assert measure.by_runs("links", 3, 20, tmp_path).cells == 3
    files = [(load_config(call[1]), load_scenarios(call[4])) for call in commands.calls]
    assert [[host.delay_ns for host in config.nodes] for config, _ in files] == [
        [delay_ms * 1_000_000] * 3 for delay_ms in (1, 2, 3)
    ]
    loads = [(found.scheduled_s, found.warmup_s, found.clients) for _, held in files for found in held.scenarios]
    assert loads == [(18.0, 2.0, 4)] * 3
    commands.calls.clear()
    measure.by_runs("load", 3, 20, tmp_path)
    assert [load_scenarios(call[4]).scenarios[0].clients for call in commands.calls] == [2, 3, 4]


@pytest.mark.parametrize(("fault", "words"), [({"error": "no leader"}, "no leader"), ({"lost": 1}, "3 of 4 cells")])
def test_cells_that_failed_or_have_no_row_are_no_measurement(
    commands: Commands, tmp_path: Path, fault: dict[str, Any], words: str
) -> None:
    vars(commands).update(fault)
    with pytest.raises(RunError, match=f"by `sweep`: {words}.*\n?.*its last words"):
        measure.by_sweep("load", 4, 20, tmp_path)


def test_a_command_that_fails_or_does_not_end_is_told_with_its_last_words() -> None:
    with pytest.raises(RunError, match=r"`sweep` ended with 2:\n(.*\n)*.*no-such-option"):
        measure._carry_out(["sweep", "--no-such-option"], 60)
    with pytest.raises(RunError, match="`sweep` did not end within 0 s"):
        measure._carry_out(["sweep", "--no-such-option"], 0.0)


@pytest.mark.parametrize("words", [["--cells", "1"], ["--cells", "9"], ["--seconds", "2"], ["--update-docs", "/no"]])
def test_what_cannot_be_measured_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(words)
