"""The command: what to measure, within which time, and where results go."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.links import machine, measure, plot, tables
from bench.links.durations import COMPLETE, FULL, QUICK, Durations
from bench.links.paths import KINDS, Kind
from containernet_env.base.clock import utc_now
from containernet_env.base.errors import ContainernetEnvError, Interrupted, MissingRequirementError
from containernet_env.cli.terminal import StopSignals
from containernet_env.network.emulator import default_binary

SCHEMA = 1
_PROJECT = Path(__file__).resolve().parents[2]
_DESCRIPTION = """Measure links side by side: the link emulator, vde2's wirefilter and HTB + netem. All traffic is
between network namespaces that are created for it. Exit status: 0 measured (however fast), 1 something failed, 2 usage,
3 the machine lacks something, 130 and 143 interrupted."""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; exits with status 2 where they are invalid."""
    parser = argparse.ArgumentParser(prog="bench/links", description=_DESCRIPTION)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_const", const=QUICK, dest="durations", help="under 2 minutes")
    mode.add_argument(
        "--complete", action="store_const", const=COMPLETE, dest="durations", help="nothing shortened; under 50 minutes"
    )
    parser.set_defaults(durations=FULL)
    parser.add_argument(
        "--only",
        action="append",
        choices=("accuracy", "bandwidth", "beside", "frames", "cost", "hops", "regions"),
        help="only this table; repeatable",
    )
    parser.add_argument("--by", action="append", choices=KINDS, help="only this implementation; repeatable")
    parser.add_argument("--emulator", type=Path, help="the link emulator's program")
    parser.add_argument("--out", type=Path, default=_PROJECT / "results", help="directory for JSON and plot")
    parser.add_argument(
        "--update-docs", type=Path, metavar="FILE", help=f"put the tables into FILE, after {tables.BEGIN}"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    options = parse(argv)
    if os.geteuid() != 0:
        return _refuse("it creates network namespaces, which needs root")
    try:
        options.emulator = options.emulator or default_binary()
    except MissingRequirementError as error:
        return _refuse(str(error))
    if not os.access(options.emulator, os.X_OK):
        return _refuse(f"the link emulator is missing: {options.emulator}")
    if options.update_docs is not None:
        try:
            # A document without markers is refused before measuring, not after.
            tables.fill(options.update_docs.read_text("utf-8"), "")
        except (OSError, ValueError) as error:
            print(f"Error: {options.update_docs}: {error}", file=sys.stderr)
            return 2
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        # Every path removes its parts on exit, and no part outlives this process.
        with StopSignals() as stop, tempfile.TemporaryDirectory(prefix="bench-links-") as directory:
            try:
                results = measure_all(options, Path(directory))
            finally:
                stop.shield()
    except Interrupted as interrupted:
        print("interrupted: nothing is written, and what was created is removed", file=sys.stderr)
        return 128 + interrupted.signum
    except ContainernetEnvError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return publish(results, options)


def _refuse(reason: str) -> int:
    print(f"Error: {reason}", file=sys.stderr)
    return 3


def measure_all(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Measure every point that fits into the time limit; one that fails is recorded and the others continue."""
    durations: Durations = options.durations
    began_s = time.monotonic()
    results: dict[str, Any] = {"schema": SCHEMA, "began": utc_now(), "mode": durations.name}
    wanted: list[Kind] = [kind for kind in KINDS if not options.by or kind in options.by]
    skipped: dict[str, str] = {}
    for kind in wanted:
        why = None
        if kind == "wirefilter":
            why = machine.why_no_wirefilter(durations.install_s, directory / "apt.log")
        elif kind == "netem":
            why = machine.why_no_netem()
        if why is not None:
            skipped[kind] = why
            print(f"  left out: {kind}: {why}", flush=True)
    results["machine"] = machine.facts()
    results["shortened"] = durations.shortened()
    kinds: list[Kind] = [kind for kind in wanted if kind not in skipped]
    plan = [point for point in measure.points(kinds, durations) if not options.only or point.table in options.only]
    done: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    late: list[str] = []
    needs = sum(point.needs_s for point in plan)
    print(f"  {len(plan)} points, about {needs:.0f} s, at most {durations.limit_s:g} s", flush=True)
    for number, point in enumerate(plan, 1):
        if time.monotonic() - began_s + point.needs_s > durations.limit_s:
            late.append(point.label())
            continue
        print(f"  {time.monotonic() - began_s:5.0f} s  {number}/{len(plan)}  {point.label()}", flush=True)
        try:
            done.append(measure.run(point, durations, directory, options.emulator))
        except (ContainernetEnvError, OSError) as error:
            failures.append({"point": point.label(), "error": str(error)})
            print(f"           FAILED: {error}", flush=True)
    results["machine"]["load_average"].append(os.getloadavg()[0])
    results.update(
        took_s=round(time.monotonic() - began_s, 1),
        skipped_kinds=skipped,
        skipped_points=late,
        failures=failures,
        points=done,
    )
    return results


def publish(results: dict[str, Any], options: argparse.Namespace) -> int:
    """Print the tables, write JSON and plot, fill the document; return the exit status."""
    text = tables.report(results)
    print(f"\n{text}\n")
    record = options.out / "bench-links.json"
    record.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(f"  written: {record}")
    picture = options.out / "bench-links.png"
    why_not = plot.draw(results, picture)
    print(f"  written: {picture}" if why_not is None else f"  no plot: {why_not}")
    if options.update_docs is not None:
        document = options.update_docs.read_text("utf-8")
        options.update_docs.write_text(tables.fill(document, text), "utf-8")
        print(f"  filled: {options.update_docs}")
    return 1 if results["failures"] else 0
