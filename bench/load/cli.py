"""The command: builds, starts clusters, lets the tools take turns, writes the table and the JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.load import over_http, plan, profile, table
from bench.load.cluster import Cluster
from bench.load.measure import Sample, run_once, run_program
from containernet_env.base import assets, programs
from containernet_env.base.assets import ROOT, GoModule
from containernet_env.base.errors import (
    ContainernetEnvError,
    Interrupted,
    MissingRequirementError,
    RunError,
    UsageError,
)
from containernet_env.cli.terminal import StopSignals
from containernet_env.setup import builds
from containernet_env.setup.commands import Commands

BUILD = ROOT / ".build"
FOLDER = ROOT / "bench" / "load"
ETCD_TOOL = GoModule(
    "etcd-benchmark",
    FOLDER,
    {"etcd-benchmark": "go.etcd.io/etcd/v3/tools/benchmark"},
    only=("go.mod", "go.sum"),
    ours=False,
)
SCHEMA = 2
WARM_UP_REQUESTS = 200


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of small totals: does it work here?")
    parser.add_argument("--rounds", type=int, help="runs of each tool in each cell (default 5; 1 with --quick)")
    parser.add_argument("--members", type=int, choices=plan.MEMBERS, help="only the cluster of so many members")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cells whose name holds TEXT: 'put 10/'")
    parser.add_argument("--limit", type=float, default=900.0, metavar="SECONDS", help="begin no run after this time")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "bench-load.json", help="where the JSON goes")
    parser.add_argument("--update-docs", type=Path, metavar="FILE", help="also put the table between the marks of FILE")
    parser.add_argument(
        "--profile", action="store_true", help="no comparison: by perf, what our client's processor time goes into"
    )
    parser.add_argument(
        "--http", action="store_true", help="our client beside net/http instead, on the replicas and on Consul"
    )
    parser.add_argument("--consul", type=Path, metavar="PROGRAM", help="Consul's program, for --http")
    asked = parser.parse_args(argv)
    if asked.rounds is None:
        asked.rounds = 1 if asked.quick else 5
    if asked.rounds < 1:
        parser.error(f"--rounds: got {asked.rounds}, allowed: 1 or more")
    if asked.update_docs is not None:
        if asked.quick or asked.members or asked.only:
            parser.error("--update-docs takes the whole comparison: not together with --quick, --members or --only")
        try:
            # Now, and not when all has been measured.
            marks = over_http.MARKS if asked.http else (table.BEGIN, table.END)
            table.around(asked.update_docs, table.PROFILE_MARKS if asked.profile else marks)
        except UsageError as error:
            parser.error(f"--update-docs: {error}")
    if not asked.http and not any(
        asked.only in cell.name for members, tls in plan.CLUSTERS for cell in plan.cells(members, tls=tls)
    ):
        parser.error(f"--only: got {asked.only!r}, which is in the name of no cell")
    return asked


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison. 0: every run succeeded, whatever the speeds; 1: one did not; 3: something is missing."""
    asked = options(argv)
    bench = Bench(asked)
    with StopSignals() as stop:
        try:
            if asked.profile:
                profiles(asked.update_docs)
            elif asked.http:
                compare_http(asked)
            else:
                bench.run()
        except Interrupted as interrupt:
            stop.shield()
            print(f"bench/load: {interrupt}", file=sys.stderr)
            return 128 + interrupt.signum
        except ContainernetEnvError as error:
            stop.shield()
            print(f"bench/load: {error}", file=sys.stderr)
            return 3 if isinstance(error, MissingRequirementError) else 1
        finally:
            stop.shield()
            bench.write()
    return 0


class Bench:
    """One call of the command and what it has measured so far."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.began = time.monotonic()
        self.samples: list[Sample] = []
        self.start_up: dict[str, float] = {}
        self.versions: dict[str, str] = {}
        self.finished = False
        self.tools = [plan.OURS, plan.ETCD]

    def run(self) -> None:
        """Build, then measure one cluster size after the other."""
        programs = build()
        self.versions = versions(programs)
        share = plan.QUICK_SHARE if self.asked.quick else 1.0
        for members, tls in plan.CLUSTERS:
            cells = [cell for cell in plan.cells(members, share, tls) if self.asked.only in cell.name]
            if self.asked.members in (None, members) and cells:
                # Not in a temporary folder of the system, which may be memory: fsync is part of what is measured.
                with tempfile.TemporaryDirectory(prefix="bench-load-", dir=BUILD) as folder:
                    self._measure(members, cells, Path(folder), programs, tls)
        self.finished = True

    def _measure(
        self, members: int, cells: list[plan.Cell], folder: Path, programs: dict[str, Path], tls: bool
    ) -> None:
        with Cluster(programs["server"], members, folder, tls) as cluster:
            self.versions["etcd"] = cluster.version
            for cell in cells:
                for tool in self.tools:
                    self._check_limit()
                    run_once(tool, cell, min(cell.total, WARM_UP_REQUESTS), 0, cluster, programs)
            name = f"{members} members{' with TLS' if tls else ''}"
            print(f"{name}: warmed up after {time.monotonic() - self.began:.0f} s", flush=True)
            for number in range(1, self.asked.rounds + 1):
                for i, cell in enumerate(cells):
                    # Each tool is first equally often.
                    turn = (number + i) % len(self.tools)
                    for tool in self.tools[turn:] + self.tools[:turn]:
                        self._check_limit()
                        self.samples.append(run_once(tool, cell, cell.total, number, cluster, programs))
                print(f"{name}: round {number} after {time.monotonic() - self.began:.0f} s", flush=True)
            if not tls:
                self._measure_start_up(cluster, programs)

    def _measure_start_up(self, cluster: Cluster, programs: dict[str, Path]) -> None:
        cell = plan.Cell(len(cluster.ports), 1, 1, "range-s", 1)
        for tool in self.tools:
            argv = plan.command(tool, cell, 1, cluster.endpoints, programs)
            self.start_up[tool] = min(run_program(argv, cluster.folder)[0].cpu_s for _ in range(3))

    def _check_limit(self) -> None:
        if time.monotonic() - self.began > self.asked.limit:
            raise RunError(f"not finished within {self.asked.limit:.0f} s")

    def write(self) -> None:
        """Print the table, write the JSON, and the document if one was named. Without samples nothing is written."""
        if not self.samples:
            return
        record = self.record()
        text = table.markdown(self.samples, self.context(record), record["machine"]["processors"])
        print(f"\n{text}")
        self.asked.output.parent.mkdir(parents=True, exist_ok=True)
        partial = self.asked.output.with_name(f".{self.asked.output.name}.partial")
        partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.asked.output)
        print(f"All samples: {self.asked.output}")
        # A table that is not whole never replaces one that is.
        if self.asked.update_docs is not None and self.finished:
            table.update(self.asked.update_docs, text)

    def record(self) -> dict[str, Any]:
        """What the JSON file holds."""
        found = table.medians(self.samples)
        return {
            "schema": SCHEMA,
            "finished": self.finished,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "took_s": round(time.monotonic() - self.began, 1),
            "rounds": self.asked.rounds,
            "quick": self.asked.quick,
            "machine": machine(),
            "versions": self.versions,
            "start_up_cpu_s": self.start_up,
            "medians": found,
            "ratios": {cell: {tool: table.ratios(tools, tool) for tool in tools} for cell, tools in found.items()},
            "samples": [asdict(sample) for sample in self.samples],
        }

    def context(self, record: dict[str, Any]) -> list[str]:
        """What stands above the table."""
        where, versions_of = record["machine"], record["versions"]
        runs = min(int(figures["runs"]) for tools in record["medians"].values() for figures in tools.values())
        whole = "" if record["finished"] else " NOT FINISHED."
        began = ", ".join(f"{tool} {seconds * 1000:.0f}" for tool, seconds in self.start_up.items())
        return [
            f"{record['at'][:10]}, {where['processors']} x {where['processor']}, Linux {where['kernel']}, data on "
            f"{where['file_system']}; etcd {versions_of['etcd']}, etcd's tool {versions_of['etcd-benchmark']}, "
            f"{versions_of['go']}. Medians of {runs} runs, {record['took_s']:.0f} s in all.{whole}",
            "CPU: ms per 1000 requests; peak RSS: MB; latencies: ms; x: ours divided by etcd's tool. "
            f"CPU of a run of one request on the last cluster, ms, included in all figures: {began or 'not measured'}.",
        ]


def build() -> dict[str, Path]:
    """The programs, built into the cache where they are not there: etcd, our client and etcd's tool."""
    toolchain = builds.find()
    if toolchain is None:
        raise MissingRequirementError("Go is not installed", "Run ./build.sh first.")
    BUILD.mkdir(exist_ok=True)
    commands = Commands()
    folders: dict[str, Path] = {}
    try:
        for module in (*assets.modules(), ETCD_TOOL):
            if module.name == "emulator":
                continue
            found = programs.find(module, toolchain.version)
            if found is None:
                print(f"building {', '.join(module.packages)}", flush=True)
                found = builds.build(module, toolchain, commands, BUILD / "bench-load.log")
            folders[module.name] = found
    finally:
        commands.stop()
    return {
        plan.OURS: folders["benchmark"] / "benchmark-client",
        plan.OURS_TLS: folders["benchmark"] / "benchmark-client-tls",
        plan.ETCD: folders["etcd-benchmark"] / "etcd-benchmark",
        "server": folders["etcd"] / "etcd",
    }


def compare_http(asked: argparse.Namespace) -> None:
    """Compare our client with net/http."""
    programs = build()
    where, versions_of = machine(), versions(programs)
    found = re.search(
        r"^\s*github\.com/hashicorp/consul v(\S+)", (ROOT / "consul_image" / "go.mod").read_text("utf-8"), re.M
    )
    consul = f"Consul {found[1]}, " if found and asked.consul else ""
    over_http.compare(
        programs[plan.OURS],
        asked.consul,
        BUILD,
        asked.rounds,
        asked.limit,
        share=plan.QUICK_SHARE if asked.quick else 1.0,
        only=asked.only,
        where=f"{where['processors']} x {where['processor']}, Linux {where['kernel']}, data on {where['file_system']}; "
        f"{consul}{versions_of['go']}",
        output=asked.output.with_name("bench-load-http.json"),
        document=asked.update_docs,
    )


def profiles(document: Path | None) -> None:
    """Print the profiles of our client, and put them into ``document`` if one is named."""
    programs = build()
    client = BUILD / "benchmark-client-with-symbols"
    toolchain = builds.find()
    assert toolchain is not None, "build() has found one"
    commands = Commands()
    try:
        argv = [toolchain.path, "build", "-trimpath", "-o", str(client), "./cmd/benchmark-client"]
        log = BUILD / "bench-load.log"
        commands.run(argv, log, timeout_s=600.0, cwd=ROOT / "benchmark_image", env=builds.environment())
    finally:
        commands.stop()
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-load-", dir=BUILD) as folder,
        Cluster(programs["server"], 1, Path(folder)) as cluster,
    ):
        for cell in profile.CELLS:
            found[cell.name] = profile.profile(client, cell, cluster)
    where = machine()
    context = f"{datetime.now(UTC):%Y-%m-%d}, {where['processors']} x {where['processor']}, Linux {where['kernel']}"
    text = f"{context}, {toolchain.version}; {profile.NOTE}\n\n{profile.markdown(found)}"
    print(f"\n{text}")
    if document is not None:
        table.update(document, text, table.PROFILE_MARKS)


def versions(programs: dict[str, Path]) -> dict[str, str]:
    """Of the tools; the cluster tells its own."""
    found = re.search(r"^\s*go\.etcd\.io/etcd/v3 v(\S+)", (FOLDER / "go.mod").read_text("utf-8"), re.MULTILINE)
    toolchain = builds.find()
    _, ours = run_program([str(programs[plan.OURS]), "--version"], BUILD, 10.0)
    return {
        "benchmark-client": ours.strip(),
        "etcd-benchmark": found[1] if found else "",
        "go": toolchain.version if toolchain else "",
    }


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": names[0] if names else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_bytes": pages,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": file_system(BUILD, Path("/proc/self/mounts").read_text("utf-8")),
        "load_average": os.getloadavg()[0],
    }


def file_system(folder: Path, mounts: str) -> str:
    """The type of the file system that holds ``folder``, by the lines of /proc/self/mounts; "unknown" if none does."""
    best, kind = -1, "unknown"
    for line in mounts.splitlines():
        point, this = line.split()[1:3]
        if (folder == Path(point) or Path(point) in folder.parents) and len(point) >= best:
            best, kind = len(point), this
    return kind
