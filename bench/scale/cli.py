"""The command: simulates a sweep and prints the table of README.md."""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.scale.simulate import Failures, Machines, Told
from containernet_env.base.assets import ROOT
from containernet_env.base.work import Stop
from containernet_env.results.csv_file import rows_after
from containernet_env.runs.sweep.design import design
from containernet_env.runs.sweep.ledger import journal_of, read_journal
from containernet_env.runs.sweep.runner import Counts, Request, Sweep

_BANDWIDTHS = (10, 20, 50, 100, 200, 300, 400, 500, 700, 1000)
_COMMANDS = 10
CELL_S, AROUND_S = 20.0, 12.0


@dataclass(frozen=True, slots=True)
class Simulated:
    """What became of a sweep: ``commands`` were needed; times of the bookkeeping in s, sizes in bytes."""

    counts: Counts
    commands: int
    each_once: bool
    simulated_s: float
    busy_ratio: float
    machines_lost: int
    testbeds: int
    cpu_s: float
    wall_s: float
    journal_bytes: int
    out_bytes: int


def simulate(
    out: Path,
    cells: int,
    machines: int,
    *,
    loads: int = 10,
    failures: Failures | None = None,
    until_ci: float | None = None,
    seed: int = 1,
) -> Simulated:
    """Carry a sweep of ``cells`` out, by the same command again where machines failed cells.

    ``loads``: so many cells share a testbed. Raises ``ValueError`` where that times ten does not divide ``cells``.
    """
    if cells % (10 * loads):
        raise ValueError(f"cells={cells}; allowed: multiples of {10 * loads}")
    clients = ",".join(map(str, range(1, loads + 1)))
    delays = ",".join(f"{number / 10}ms" for number in range(1, cells // (10 * loads) + 1))
    axes = [f"link_delay={delays}", f"bandwidth={','.join(map(str, _BANDWIDTHS))}", f"clients={clients}", "conns=1"]
    began, cpu = time.monotonic(), time.process_time()
    made = design(ROOT / "configs" / "3node-3ms.json", axes, quick=True, only=["write-leader-50x*-4B-64B"], seed=seed)
    chosen = failures or Failures()
    simulated_s = busy_s = 0.0
    lost = commands = 0
    counts = Counts(0, 0, 0)
    for commands in range(1, _COMMANDS + 1):
        placement = Machines(made, machines, chosen, seed + commands, CELL_S, AROUND_S)
        counts = Sweep(made, out, Request(until_ci=until_ci), placement).carry_out(Told(), Stop())
        simulated_s += placement.now_s
        busy_s += placement.busy_s
        lost += placement.machines_lost
        if not counts.machine:
            break
    wall, used = time.monotonic() - began, time.process_time() - cpu
    good = Counter(
        (row["ConfigHash"], row["ScenarioHash"], row["Repetition"]) for row in rows_after(out) if row["Valid"] == "yes"
    )
    return Simulated(
        counts,
        commands,
        set(good.values()) == {1} and len({key[:2] for key in good}) == cells and counts.measured == len(good),
        simulated_s,
        busy_s / simulated_s / machines,
        lost,
        len(read_journal(journal_of(out)).runs),
        used,
        wall,
        journal_of(out).stat().st_size,
        out.stat().st_size,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where each cell was measured once, 1 where one was not."""
    parser = argparse.ArgumentParser(prog="bench/scale", description=__doc__)
    parser.add_argument("--cells", type=int, default=10_000, help="a multiple of 10 times --loads (default: 10000)")
    parser.add_argument("--loads", type=int, default=10, help="cells that share a testbed (default: 10)")
    parser.add_argument("--machines", type=int, default=100, help="default: 100")
    parser.add_argument("--until-ci", type=float, metavar="RATIO", help="as `sweep --until-ci`, 0.05 for 5 %%")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="containernet-env-scale-") as folder:
        out, loads = Path(folder) / "out.csv", options.loads
        found = simulate(
            out, options.cells, options.machines, loads=loads, until_ci=options.until_ci, seed=options.seed
        )
    measured = found.counts.measured
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{options.cells} cells on {options.machines} machines: {found.commands} commands, {measured} measurements on "
        f"{found.testbeds} testbeds, {found.machines_lost} machines lost; "
        f"{'each cell once' if found.each_once else 'NOT each cell once'}\n"
        f"  simulated: {found.simulated_s / 3600:.2f} h, machines busy {100 * found.busy_ratio:.1f} % of it\n"
        f"  bookkeeping: {found.cpu_s:.1f} s of CPU time, {found.wall_s:.1f} s with the disk, "
        f"{1000 * found.wall_s / measured:.2f} ms a measurement; at most {peak:.0f} MiB\n"
        f"  journal {found.journal_bytes / 1e6:.2f} MB, results file {found.out_bytes / 1e6:.2f} MB"
    )
    return 0 if found.each_once else 1


if __name__ == "__main__":
    sys.exit(main())
