"""A sweep on this machine that is ended and killed, and goes on: each cell once, in the order that was recorded."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from containernet_env.results.csv_file import rows_after
from containernet_env.results.run_directory import read_run, runs_folder
from containernet_env.runs.sweep.ledger import journal_of
from tests.deadline import eventually
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import COMMAND, CONFIG, END_S

pytestmark = pytest.mark.docker

WRITES = {"type": "write", "load": {"duration": "1s", "clients": 4, "conns": 2}, "target": "cluster"}
SCENARIOS = {"scenarios": [WRITES | {"data": {"keySize": 8, "valSize": 64}}]}
AXES = ("link_delay=1ms,3ms", "cpus=0.5,0.75", "clients=2,4")
CELLS = 8


def words(folder: Path) -> list[str]:
    """What follows the name of the command."""
    (folder / "one.json").write_text(json.dumps(SCENARIOS))
    sets = [word for axis in AXES for word in ("--set", axis)]
    options = ("--scenarios", folder / "one.json", "--tries", 1)
    return ["sweep", str(CONFIG), str(folder / "out.csv"), *sets, *map(str, options)]


def journal(out: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in journal_of(out).read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def struck(
    command: Sequence[str], out: Path, rows: int, strike: Callable[[subprocess.Popen[str]], None], **process: Any
) -> int:
    """Begin the sweep and strike it when there are so many rows; the exit status."""
    sweep = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **process
    )
    try:
        eventually(lambda: sweep.poll() is not None or len(rows_after(out)) >= rows, f"{rows} rows", END_S)
        strike(sweep)
    finally:
        output, _ = sweep.communicate(timeout=END_S)
    assert len(rows_after(out)) >= rows, output
    return sweep.returncode


def assert_each_cell_once(out: Path) -> list[dict[str, str]]:
    """Each cell has a row, whole, in the order and by the seed that was recorded; of what was measured again no
    row counts but the last. The rows.
    """
    found = rows_after(out)
    assert out.read_text().count("\n") == 1 + len(found), "a row is torn"
    by_hash = {(line["config_hash"], line["scenario_hash"]): line["cell"] for line in journal(out, "cell")}
    valid: dict[str, list[str]] = {}
    for row in found:
        valid.setdefault(by_hash[row["ConfigHash"], row["ScenarioHash"]], []).append(row["Valid"])
    # A row that the machine spoilt is one of its cell, too: --tries 1 measures it again with the next command only.
    assert len(valid) == CELLS and not [rows for rows in valid.values() if "yes" in rows[:-1]], valid
    (seed,) = {line["seed"] for line in journal(out, "sweep")}
    runs = journal(out, "run")
    assert {row["LinkSeed"] for row in found} == {str(line["seed"]) for line in runs} == {str(seed)}
    for run in runs:
        ours = [row for row in found if row["RunId"].endswith(run["run"])]
        assert [by_hash[row["ConfigHash"], row["ScenarioHash"]] for row in ours] == run["cells"][: len(ours)]
    # The first time that a testbed is brought up, it is for all of its cells: the others come in the same order.
    whole = {cell: run["cells"] for run in reversed(runs) for cell in run["cells"]}
    assert all(run["cells"] == [cell for cell in whole[run["cells"][0]] if cell in run["cells"]] for run in runs)
    return found


def assert_changed_as_planned(out: Path, found: list[dict[str, str]]) -> None:
    """Topologies that differ in links and CPU limits change what stands, and it is what the system then holds."""
    changed = {row["RunId"]: row["Reused"] for row in found if ";" in row["Reused"]}
    assert {word for reused in changed.values() for word in reused.split(";")} == {"cluster", "new-limits", "new-links"}
    for run_id, reused in changed.items():
        run = read_run(runs_folder(out) / run_id)
        for host in run.manifest.plan["hosts"]:
            held = run.manifest.hosts[host["name"]]["limits"]["cpu_quota_us"]
            assert held == host["cpu_quota_us"], (run_id, host["name"])
        moments = [proof.moment for proof in run.network.proofs]
        assert (moments[0], moments[-1]) == ("change" if "new-links" in reused else "before", "after")


@pytest.mark.long
def test_a_sweep_that_is_ended_and_killed_measures_each_cell_once(tmp_path: Path) -> None:
    before, out, command = snapshot(), tmp_path / "out.csv", [str(COMMAND), *words(tmp_path)]
    assert struck(command, out, 1, lambda sweep: sweep.send_signal(signal.SIGINT)) == 128 + signal.SIGINT
    first = rows_after(out)
    assert struck(command, out, len(first) + 1, lambda sweep: sweep.kill()) == -signal.SIGKILL
    killed = len(rows_after(out))
    done = subprocess.run(command, capture_output=True, text=True, timeout=END_S, check=False)
    assert left_over(before) == {}, done.stdout
    found = assert_each_cell_once(out)
    assert_changed_as_planned(out, found)
    assert found[: len(first)] == first
    assert [row for row in found if row["Error"] != "-"] == []
    assert not any("network_unknown" in row["Reasons"] for row in found), "measured once more at SIGINT"
    assert f"{killed - len(first)} rows in {out} are of testbeds that were killed" in done.stdout
