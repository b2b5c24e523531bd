"""The soak: quick runs over several topologies, one after the other in one process, for a given time; what grows?

    python -m tests.faults.soak --minutes 60

It ends by itself, after eight runs of each topology at the earliest, leaves ``.build/soak.json`` and prints the table
that ``tests.faults.document`` puts into README.md. Exit status: 0, or 1 where something grew, a run failed or something
stayed behind.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from containernet_env.base import assets
from containernet_env.hosts import engine
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.runs.measure import measure
from containernet_env.runs.progress import Silent
from tests.docker.machine_state import left_over, snapshot
from tests.faults.harness import PROJECT
from tests.processes import children, processes, program_of, words_of

RESULT = PROJECT / ".build" / "soak.json"
TOPOLOGIES = ("3node-3ms", "1node", "2node", "5node")
# A quarter of the runs at the start is compared with one at the end; each has to have a spread for every topology.
_LEAST_RUNS = 8 * len(TOPOLOGIES)


class _Emulator(Silent):
    """Looks at the link emulator as each scenario ends."""

    def __init__(self) -> None:
        self.memory: list[float] = []
        self.descriptors: list[float] = []

    def scenario_ended(self, outcome: ScenarioOutcome) -> None:
        for pid in children(os.getpid()):
            if "link-emulator serve" in words_of(pid):
                self.memory.append(_memory_mib(pid))
                self.descriptors.append(_descriptors(pid))


def _memory_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _used_mib() -> float:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return (int(fields["MemTotal"].split()[0]) - int(fields["MemAvailable"].split()[0])) / 1024


def _cgroups_kept() -> int:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1\n")
    time.sleep(1)  # the kernel frees them lazily
    lines = [line.split() for line in Path("/proc/cgroups").read_text().splitlines() if not line.startswith("#")]
    return next((int(count) for name, _, count, _ in lines if name == "memory"), 0)


def _disk_mib(folder: Path | str) -> float:
    done = subprocess.run(["du", "-sx", "-B1", str(folder)], capture_output=True, text=True, timeout=300, check=False)
    return int(done.stdout.split()[0]) / 2**20 if done.stdout else 0.0


@dataclass(frozen=True)
class Quantity:
    """Something that must not grow. ``slack`` is what it may grow by beyond the spread of its first values.

    The slack of counts is absolute; that of sizes and times a share of the first median (``relative``). ``measure`` is
    given what is known of a run: its ``emulator``, the ``engines``' processes, its ``result`` and ``seconds``.
    """

    name: str
    unit: str
    slack: float
    measure: Callable[[Any], float]
    relative: bool = False

    def compared(self, first: float, last: float, spread: float = 0.0) -> dict[str, Any]:
        """It at the start and at the end of a soak, with the bound that follows from the start."""
        bound = first + spread + self.slack * (first if self.relative else 1.0)
        return {"name": self.name, "unit": self.unit, "first": first, "last": last, "bound": bound}


QUANTITIES = (
    Quantity("memory of the driver", "MiB", 0.05, lambda seen: _memory_mib(os.getpid()), True),
    Quantity("descriptors of the driver", "", 1, lambda seen: _descriptors(os.getpid())),
    Quantity("threads of the driver", "", 1, lambda seen: len(os.listdir("/proc/self/task"))),
    Quantity("memory of the link emulator", "MiB", 0.1, lambda seen: max(seen.emulator.memory, default=0), True),
    Quantity("descriptors of the link emulator", "", 1, lambda seen: max(seen.emulator.descriptors, default=0)),
    Quantity("memory of the engine", "MiB", 0.25, lambda seen: sum(map(_memory_mib, seen.engines)), True),
    Quantity("descriptors of the engine", "", 4, lambda seen: sum(map(_descriptors, seen.engines))),
    Quantity("memory in use on the machine", "MiB", 0.05, lambda seen: _used_mib(), True),
    Quantity("network namespaces", "", 0, lambda seen: len(snapshot()["namespaces"])),
    Quantity("cgroups", "", 4, lambda seen: sum(len(folders) for _, folders, _ in os.walk("/sys/fs/cgroup"))),
    Quantity("disk of the cache", "MiB", 0.01, lambda seen: _disk_mib(assets.own()), True),
    Quantity("disk of the engine", "MiB", 0.05, lambda seen: _disk_mib(engine.client().info()["DockerRootDir"]), True),
    Quantity("disk of a run's directory", "KiB", 0.5, lambda seen: _disk_mib(seen.result.directory) * 1024, True),
    Quantity("time of a run", "s", 0.25, lambda seen: seen.seconds, True),
)
# The kernel keeps the memory cgroups of removed containers while the page cache holds pages of theirs, so these are
# counted once before and once after all runs, with the page cache dropped (README.md, Memory cgroups).
CGROUPS_KEPT = Quantity("memory cgroups in /proc/cgroups, page cache dropped", "", 4, lambda _: _cgroups_kept())


def one_run(topology: str, out: Path) -> dict[str, Any]:
    """Carry out a quick run and measure every quantity after it."""
    began, emulator = time.monotonic(), _Emulator()
    result = measure(PROJECT / "configs" / f"{topology}.json", None, out, quick=True, progress=emulator)
    seconds = time.monotonic() - began
    # The engine and its containerd.
    engines = [pid for pid in processes() if program_of(pid) in ("dockerd", "containerd")]
    seen = SimpleNamespace(emulator=emulator, engines=engines, result=result, seconds=seconds)
    measured = {quantity.name: quantity.measure(seen) for quantity in QUANTITIES}
    return {"topology": topology, "failed": result.failed, **measured}


def growth(quantity: Quantity, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compare the first quarter of the runs with the last, topology by topology, so that both have the same mixture.

    The bound is the first median plus the spread (largest less smallest) of a topology's first values, the largest of
    the topologies, plus the slack.
    """
    firsts, lasts, spread = [], [], 0.0
    for topology in dict.fromkeys(run["topology"] for run in runs):
        values = [float(run[quantity.name]) for run in runs if run["topology"] == topology]
        quarter = max(len(values) // 4, 1)
        firsts.append(statistics.median(values[:quarter]))
        lasts.append(statistics.median(values[-quarter:]))
        spread = max(spread, max(values[:quarter]) - min(values[:quarter]))
    return quantity.compared(statistics.mean(firsts), statistics.mean(lasts), spread)


def has_grown(found: dict[str, Any]) -> bool:
    return bool(found["last"] > found["bound"])


def soak(minutes: float, out: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Runs until the time is over, and a warm-up of each topology before, which does not count.

    Returns what was measured after each run, and what is measured only before and after them all.
    """
    for topology in TOPOLOGIES:
        one_run(topology, out)
    before = CGROUPS_KEPT.measure(None)
    runs: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60 * minutes
    while time.monotonic() < deadline or len(runs) < _LEAST_RUNS:
        for topology in TOPOLOGIES:
            runs.append(one_run(topology, out))
            print(f"{len(runs):>4}  {topology:<12} {runs[-1]['time of a run']:.1f} s", flush=True)
    return runs, CGROUPS_KEPT.compared(before, CGROUPS_KEPT.measure(None))


def main() -> int:
    """Soak for ``--minutes``; the table, and 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long; 60 by default")
    minutes = parser.parse_args().minutes
    before = snapshot()
    with tempfile.TemporaryDirectory(prefix="soak-", dir="/var/tmp") as folder:
        runs, cgroups = soak(minutes, Path(folder) / "out.csv")
    left = left_over(before)
    quantities = [*(growth(quantity, runs) for quantity in QUANTITIES), cgroups]
    values = {"minutes": minutes, "runs": len(runs), "quantities": quantities}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({**values, "every_run": runs}, indent=1) + "\n")
    problems = [
        "{name} grew from {first:.1f} to {last:.1f}, over {bound:.1f}".format(**found)
        for found in quantities
        if has_grown(found)
    ]
    problems += [f"run {n} on {run['topology']} failed" for n, run in enumerate(runs, 1) if run["failed"]]
    problems += [f"left behind: {kind} {sorted(names)}" for kind, names in left.items()]
    print(table(values))
    print("\n".join(problems) or "nothing wrong")
    return 1 if problems else 0


def table(values: dict[str, Any]) -> str:
    """The result as lines of Markdown."""
    lines = [
        f"{values['runs']} quick runs on {', '.join(f'`{name}`' for name in TOPOLOGIES)} in turn, in one process, in "
        f"{values['minutes']:g} minutes.",
        "",
        "| | first quarter | last quarter | bound |",
        "| --- | ---: | ---: | ---: |",
    ]
    for entry in values["quantities"]:
        name = f"{entry['name']}, {entry['unit']}" if entry["unit"] else entry["name"]
        lines.append(f"| {name} | {entry['first']:.1f} | {entry['last']:.1f} | {entry['bound']:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
