"""Takes the figures, records them with the machine's state, and prints them beside the last ones of this machine.

    sudo ./check.sh measure                                  # all of them
    sudo .venv/bin/python -m tests.measure 'emulator*'       # those whose names match

Nothing is judged here: a figure that surprises is for a person to look at.
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import pkgutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

from rich.console import Console
from rich.table import Table

from containernet_env.base import assets
from containernet_env.base.assets import ROOT
from containernet_env.base.clock import utc_now
from containernet_env.base.errors import ContainernetEnvError
from containernet_env.runs import machine, version
from tests import measure
from tests.measure import FIGURES, Figure

KEPT = 5
"""The number of earlier values behind the median that is shown."""
FAILURES = (ContainernetEnvError, OSError, SubprocessError, RuntimeError, ValueError, LookupError, AssertionError)


@dataclass(frozen=True)
class Disturbance:
    """What kept this machine's threads from their cores: the hypervisor, and each other; both in s since the boot.

    Steal is column 8 of the line "cpu" in proc_stat(5), in ticks of 10 ms. Waiting is the total of "some" in
    /proc/pressure/cpu, in us (Documentation/accounting/psi.rst): while a thread at least waited; 0 without that file.
    """

    steal_s: float
    waited_s: float

    @classmethod
    def until_now(cls) -> Disturbance:
        steal = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / 100
        pressure = Path("/proc/pressure/cpu")
        waited = pressure.read_text().split("\n", 1)[0].rpartition("=")[2] if pressure.exists() else 0
        return cls(steal, int(waited) / 1e6)

    def since(self, earlier: Disturbance) -> Disturbance:
        """The difference."""
        return Disturbance(self.steal_s - earlier.steal_s, self.waited_s - earlier.waited_s)


def history() -> Path:
    """The file of this machine's figures, a JSON object per line; all clones add to it."""
    return assets.make() / "measured.jsonl"


def earlier(path: Path, key: Mapping[str, Any]) -> dict[str, list[float]]:
    """The last values of each figure on a machine like this one, the oldest first."""
    found: dict[str, list[float]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        record = json.loads(line)
        if record["machine"] == key:
            for name, figure in record["figures"].items():
                found.setdefault(name, []).append(figure["value"])
    return {name: values[-KEPT:] for name, values in found.items()}


def take(figure: Figure) -> dict[str, dict[str, Any]]:
    """The values of a measurement by their names, each with what disturbed it. Raises what the measurement raises."""
    before, began = Disturbance.until_now(), time.monotonic()
    measured = figure.measure()
    took, disturbed = time.monotonic() - began, Disturbance.until_now().since(before)
    values = measured if isinstance(measured, Mapping) else {"": measured}
    state = {name: round(value, 3) for name, value in asdict(disturbed).items()}
    return {
        f"{figure.name}, {name}" if name else figure.name: {
            "value": value, "unit": figure.unit, "took_s": round(took, 3), **state
        }
        for name, value in values.items()
    }  # fmt: skip


def chosen(patterns: Sequence[str]) -> list[Figure]:
    """The declared measurements of all modules of this package whose names match one of the patterns, if there are."""
    for module in pkgutil.iter_modules(measure.__path__):
        if module.name != "__main__":
            importlib.import_module(f"tests.measure.{module.name}")
    return [one for one in FIGURES if not patterns or any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)]


def main(patterns: list[str]) -> int:
    """0; 1 where a measurement could not be taken; 2 where no name matches."""
    figures = chosen(patterns)
    if not figures:
        print("no measurement has such a name", file=sys.stderr)
        return 2
    console = Console(soft_wrap=True, width=max(Console().width, 160))  # names stay whole, also in a pipe
    key = machine.key().model_dump()
    known = earlier(history(), key)
    table = Table("figure", "unit", "now", f"median of last {KEPT}", "steal s", "waited for cores s", box=None)
    for column in table.columns[2:]:
        column.justify = "right"
    taken: dict[str, dict[str, Any]] = {}
    failed = 0
    for figure in figures:
        console.print(f"  {figure.name} ...", style="dim")
        try:
            values = take(figure)
        except FAILURES as error:
            failed += 1
            table.add_row(figure.name, figure.unit, f"failed: {error}", "", "", "")
            continue
        taken |= values
        for name, entry in values.items():
            before = known.get(name)
            last = f"{statistics.median(before):.4g} of {len(before)}" if before else "-"
            disturbed = (f"{entry['steal_s']:.2f}", f"{entry['waited_s']:.2f}")
            table.add_row(name, entry["unit"], f"{entry['value']:.4g}", last, *disturbed)
    record = {"at": utc_now(), "commit": version.described(ROOT), "machine": key, "figures": taken}
    with history().open("a") as file:
        file.write(json.dumps(record) + "\n")
    console.print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
