"""The command: measures the cells both ways, prints the table of README.md, and judges it."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.links import tables
from bench.sweep import measure
from bench.sweep.measure import AXES, PROMISED, Timed
from containernet_env.base.clock import utc_now
from containernet_env.base.errors import ContainernetEnvError, Interrupted, MissingRequirementError
from containernet_env.cli.terminal import StopSignals
from containernet_env.runs import machine

_MOST_CELLS = min(len(values) for _, values in AXES.values())
_DESCRIPTION = """How much of a sweep's wall time is load (warm-up included), where only the loads of its cells differ
and where their links do, beside `run` once for each cell. Exit status: 0 the promised shares hold, 1 one does not or
something failed, 2 usage, 3 the machine lacks something, 130 and 143 interrupted."""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; exits with status 2 where they are invalid."""
    parser = argparse.ArgumentParser(prog="bench/sweep", description=_DESCRIPTION)
    parser.add_argument("--cells", type=int, default=4, metavar="N", help="cells of each sweep (default: 4)")
    parser.add_argument(
        "--seconds", type=int, default=20, metavar="S", help="load of a cell, its warm-up included (default: 20)"
    )
    parser.add_argument("--only", choices=sorted(PROMISED), help="only cells that differ in this")
    parser.add_argument("--without-run", action="store_true", help="do not measure by `run`")
    parser.add_argument(
        "--update-docs", type=Path, metavar="FILE", help=f"put the table into FILE, after {tables.BEGIN}"
    )
    options = parser.parse_args(argv)
    if not 2 <= options.cells <= _MOST_CELLS:
        parser.error(f"--cells: got {options.cells}; allowed: 2 to {_MOST_CELLS}")
    if options.seconds <= measure.WARMUP_S:
        parser.error(f"--seconds: got {options.seconds}; allowed: more than {measure.WARMUP_S}, the warm-up")
    if options.update_docs is not None:
        try:
            # A document without markers is refused before measuring, not after.
            tables.fill(options.update_docs.read_text("utf-8"), "")
        except (OSError, ValueError) as error:
            parser.error(f"--update-docs: {options.update_docs}: {error}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, judge; the exit status."""
    options = parse(argv)
    if os.geteuid() != 0:
        print("bench/sweep: it brings testbeds up, which needs root", file=sys.stderr)
        return 3
    with StopSignals() as stop, tempfile.TemporaryDirectory(prefix="bench-sweep-") as folder:
        try:
            timed = measured(options, Path(folder))
        except Interrupted as interrupted:
            return 128 + interrupted.signum
        except ContainernetEnvError as error:
            print(f"bench/sweep: {error}", file=sys.stderr)
            return 3 if isinstance(error, MissingRequirementError) else 1
        finally:
            stop.shield()
    text = report(timed, options.seconds)
    print(f"\n{text}")
    if options.update_docs is not None:
        document = options.update_docs.read_text("utf-8")
        options.update_docs.write_text(tables.fill(document, text), "utf-8")
    return 0 if all(item.is_kept for item in timed) else 1


def measured(options: argparse.Namespace, folder: Path) -> list[Timed]:
    """One after the other, told as they end."""
    ways = [measure.by_sweep] if options.without_run else [measure.by_sweep, measure.by_runs]
    timed = []
    for differs in [options.only] if options.only else list(PROMISED):
        for way in ways:
            timed.append(way(differs, options.cells, options.seconds, folder))
            print(f"  {differs:<5} by {timed[-1].by:<5} {timed[-1].load_ratio:.1%} of {timed[-1].wall_s:.1f} s is load")
    return timed


def report(timed: Sequence[Timed], seconds: int) -> str:
    """The table, with what it was measured on."""
    rows = [
        [
            item.differs,
            f"`{item.by}`",
            str(item.cells),
            str(item.valid),
            f"{item.wall_s:.1f} s",
            f"{item.load_s:.0f} s",
            f"{item.load_ratio:.1%}",
            "-" if item.promise is None else f"{item.promise:.0%}{'' if item.is_kept else ': NOT kept'}",
        ]
        for item in timed
    ]
    header = ["cells differ in", "by", "cells", "of them valid", "wall time", "load", "share", "at least"]
    facts = machine.facts()
    return (
        f"Cells of {seconds} s on 3 members, {utc_now()[:10]}, {facts.cpu_model}, {facts.cores} cores:\n\n"
        f"{tables.table(header, rows, 2)}"
    )
