"""Cells of two sweeps, one whose loads differ and one whose links do, measured by `sweep` and by `run`, each timed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from containernet_env.base.errors import RunError
from containernet_env.config.writer import scenarios_text, topology_text
from containernet_env.results.csv_file import rows_after
from containernet_env.runs.sweep.design import Design, design

PROJECT = Path(__file__).resolve().parents[2]
TOPOLOGY = PROJECT / "configs" / "3node-3ms.json"
AXES = {
    "load": ("clients", ("2", "3", "4", "6", "8", "10", "12", "16")),
    "links": ("link_delay", ("1ms", "2ms", "3ms", "5ms", "8ms", "10ms", "15ms", "20ms")),
}
"""What differs between the cells: an axis, and its values in the order in which they are taken."""
PROMISED = {"load": 0.85, "links": 0.75}
"""The least share of a sweep's wall time that is load, by what differs between cells of 20 s."""
WARMUP_S = 2
# Beyond its load: so long no cell takes, nor a whole sweep.
_SPARE_S = 120.0
_END_S = 60.0
_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Timed:
    """Cells that were measured by a command, ``sweep`` or ``run``: ``wall_s`` from its start to its end.

    Of several calls it is their sum. ``load_s`` is what the loads take as configured, with their warm-up; ``valid`` is
    how many of the cells had figures that are certainly the store's.
    """

    differs: str
    by: str
    cells: int
    valid: int
    wall_s: float
    load_s: float

    @property
    def load_ratio(self) -> float:
        """The share of the wall time that is load."""
        return self.load_s / self.wall_s

    @property
    def promise(self) -> float | None:
        """The share that is promised; ``None`` where none is."""
        return PROMISED[self.differs] if self.by == "sweep" else None

    @property
    def is_kept(self) -> bool:
        """Whether the promise holds."""
        return self.promise is None or self.load_ratio >= self.promise


def scenarios_file(folder: Path, seconds: int) -> Path:
    """Puts by closed loops of ``seconds`` each, warm-up included."""
    load = {"duration": f"{seconds - WARMUP_S}s", "warmup": f"{WARMUP_S}s", "clients": 4, "conns": 2}
    scenario = {"type": "write", "load": load, "data": {"keySize": 8, "valSize": 256}, "target": "cluster"}
    path = folder / "scenarios.json"
    path.write_text(json.dumps({"scenarios": [scenario]}), encoding="utf-8")
    return path


def single_cells(differs: str, cells: int, scenarios: Path) -> list[Design]:
    """Sweeps of one cell each: the cells that differ in their load or in their links alone."""
    axis, values = AXES[differs]
    return [design(TOPOLOGY, [f"{axis}={value}"], scenarios=scenarios) for value in values[:cells]]


def by_sweep(differs: str, cells: int, seconds: int, folder: Path) -> Timed:
    """Measure the cells by one call of `sweep`. Raises ``RunError`` unless each has a row without an error."""
    axis, values = AXES[differs]
    out, scenarios = folder / f"sweep-{differs}.csv", scenarios_file(folder, seconds)
    setting = ("--set", f"{axis}={','.join(values[:cells])}", "--tries", "1")
    words = ("sweep", str(TOPOLOGY), str(out), "--scenarios", str(scenarios), *setting)
    return _timed(differs, "sweep", out, [words], single_cells(differs, cells, scenarios))


def by_runs(differs: str, cells: int, seconds: int, folder: Path) -> Timed:
    """Measure the same cells by one call of `run` for each, with files of its own."""
    out, calls = folder / f"run-{differs}.csv", []
    found = single_cells(differs, cells, scenarios_file(folder, seconds))
    for number, (bed,) in enumerate(item.beds for item in found):
        topology, scenarios = (folder / f"{kind}-{differs}-{number}.json" for kind in ("topology", "scenarios"))
        topology.write_text(topology_text(bed.plan.config), encoding="utf-8")
        own = [cell.scenario for cell in bed.cells]
        scenarios.write_text(scenarios_text(bed.plan.dataset, own), encoding="utf-8")
        calls.append(("run", str(topology), str(out), "--scenarios", str(scenarios)))
    return _timed(differs, "run", out, calls, found)


def _timed(differs: str, by: str, out: Path, calls: Sequence[Sequence[str]], found: Sequence[Design]) -> Timed:
    scenarios = [cell.scenario for item in found for cell in item.cells]
    load_s = float(sum((scenario.scheduled_s or 0.0) + (scenario.warmup_s or 0.0) for scenario in scenarios))
    began, said = time.monotonic(), ""
    for words in calls:
        said = _carry_out(words, load_s + _SPARE_S)
    wall_s = time.monotonic() - began
    rows = rows_after(out)
    errors = [row["Error"] for row in rows if row["Error"] != "-"]
    if errors or len(rows) != len(scenarios):
        why = errors[0] if errors else f"{len(rows)} of {len(scenarios)} cells have a row"
        raise RunError(f"by `{by}`: {why}\n{said}")
    return Timed(differs, by, len(rows), sum(row["Valid"] == "yes" for row in rows), wall_s, load_s)


def _carry_out(words: Sequence[str], timeout_s: float) -> str:
    """Call the command; its last lines. Status 1 is no error here: rows that are not valid give it, too.

    Whatever ends this before, the command takes its testbed down.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "containernet_env", *words],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            process.terminate()
            process.communicate(timeout=_END_S)
            if isinstance(error, subprocess.TimeoutExpired):
                raise RunError(f"`{words[0]}` did not end within {timeout_s:.0f} s") from error
            raise
    last = "\n".join(said.splitlines()[-_LAST_LINES:])
    if process.returncode not in (0, 1):
        raise RunError(f"`{words[0]}` ended with {process.returncode}:\n{last}")
    return last
