"""A sweep on this machine that is ended and killed, and goes on: each cell once, in the order that was recorded."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from containernet_env.results.csv_file import rows_after
from containernet_env.sweep.journal import journal_of
from tests.docker.conftest import COMMAND
from tests.docker.machine_state import left_over, snapshot
from tests.docker.test_endings import CONFIG, end
from tests.docker.test_network_failures import wait_for

pytestmark = pytest.mark.docker

SCENARIOS = {
    "scenarios": [
        {
            "type": "write",
            "load": {"duration": "1s", "clients": 4, "conns": 2},
            "data": {"keySize": 8, "valSize": 64},
            "target": "cluster",
        }
    ]
}
AXES = ("link_delay=1ms,3ms", "clients=2,4,6")


def words(folder: Path) -> list[str]:
    (folder / "one.json").write_text(json.dumps(SCENARIOS))
    sets = [word for axis in AXES for word in ("--set", axis)]
    options = ("--scenarios", folder / "one.json", "--port", 18080, "--tries", 1)
    return [str(COMMAND), "sweep", str(CONFIG), str(folder / "out.csv"), *sets, *map(str, options)]


def journal(out: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in journal_of(out).read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def interrupted(folder: Path, signum: signal.Signals, rows: int) -> int:
    """Begin the sweep and send a signal when there are so many rows; the exit status."""
    out = folder / "out.csv"
    sweep = subprocess.Popen(
        words(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        wait_for(lambda: sweep.poll() is not None or len(rows_after(out)) >= rows)
        sweep.send_signal(signum)
    finally:
        output = end(sweep)
    assert len(rows_after(out)) >= rows, output
    return sweep.returncode


def test_a_sweep_that_is_ended_and_killed_measures_each_cell_once(tmp_path: Path) -> None:
    before, out = snapshot(), tmp_path / "out.csv"
    assert interrupted(tmp_path, signal.SIGINT, 1) == 128 + signal.SIGINT
    first = rows_after(out)
    assert interrupted(tmp_path, signal.SIGKILL, len(first) + 1) == -signal.SIGKILL
    done = subprocess.run(words(tmp_path), capture_output=True, text=True, timeout=100, check=False)
    found = rows_after(out)
    assert left_over(before) == {}, done.stdout
    assert found[: len(first)] == first
    assert out.read_text().count("\n") == 1 + len(found), "a row is torn"
    assert [row for row in found if row["Error"] != "-"] == []
    assert not {row["Reasons"] for row in first} & {"network_unknown"}, "the network was measured before the end"
    cells = Counter((row["ConfigHash"], row["ScenarioHash"]) for row in found)
    # A row that the machine spoilt is one of its cell, too: --tries 1 measures it again with the next command only.
    spoilt = {(row["ConfigHash"], row["ScenarioHash"]) for row in found if row["Valid"] != "yes"}
    assert len(cells) == 6 and {cell for cell, count in cells.items() if count > 1} <= spoilt
    assert len({line["seed"] for line in journal(out, "sweep")}) == 1
    by_hash = {(line["config_hash"], line["scenario_hash"]): line["cell"] for line in journal(out, "cell")}
    orders = {line["run"]: line["cells"] for line in journal(out, "run")}
    for run, order in orders.items():
        measured = [by_hash[row["ConfigHash"], row["ScenarioHash"]] for row in found if row["RunId"].endswith(run)]
        assert measured == order[: len(measured)]
    assert {row["LinkSeed"] for row in found} == {str(line["seed"]) for line in journal(out, "run")}
