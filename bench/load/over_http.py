"""Our client beside net/http, and wrk where it can: the same load on Consul and on the replicas, by turns."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.load import table
from bench.load.measure import Sample, run_program
from bench.load.plan import OURS, REQUEST_TIMEOUT_S, VALUE_SIZE, key_name
from bench.load.reports import Report, parse_ours
from bench.load.services import CONSUL, REPLICAS, Service
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.setup import builds

MARKS = ("<!-- HTTP RESULTS -->", "<!-- END OF HTTP RESULTS -->")
NET_HTTP, WRK = "net/http", "wrk"
READ_KEY = "bench-load"
WRK_S = 1
BOUND = 0.5
"""The most CPU time of a request, ours divided by net/http's."""


@dataclass(frozen=True)
class Cell:
    """One load on one service; in HTTP/1.1 each client has a connection of its own."""

    kind: str
    members: int
    clients: int
    operation: str
    total: int

    @property
    def name(self) -> str:
        return f"{self.operation} {self.clients}/{self.clients} on {self.members} of {self.kind}"


# Totals of 0.5 to 2 s with net/http on two cores.
TOTALS = {
    (CONSUL, 1): {"put": 2_000, "get-l": 6_000, "get-s": 8_000},
    (CONSUL, 96): {"put": 5_000, "get-l": 12_000, "get-s": 15_000},
    (REPLICAS, 1): {"put": 2_000, "get-l": 8_000},
    (REPLICAS, 96): {"put": 8_000, "get-l": 15_000},
}


def cells(kind: str, members: int, share: float) -> list[Cell]:
    """The cells of a service. Three members take a third of the requests."""
    share = share if members == 1 else share / 3
    return [
        Cell(kind, members, clients, operation, max(clients, 50, round(total * share)))
        for clients in (1, 96)
        for operation, total in TOTALS[kind, clients].items()
    ]


def command(tool: str, cell: Cell, total: int, prefix: str, service: Service, programs: dict[str, Path]) -> list[str]:
    """The argument list that runs ``total`` requests of ``cell`` with ``tool``; wrk has a time instead."""
    puts = cell.operation == "put"
    if tool == WRK:
        url = f"http://{service.endpoints[0]}{service.path(cell.operation, READ_KEY)}"
        return [str(programs[WRK]), "-t1", f"-c{cell.clients}", f"-d{WRK_S}s", "--latency", url]
    common = [f"--endpoints={','.join(service.endpoints)}", f"--total={total}", f"--clients={cell.clients}"]
    common += [f"--conns={max(cell.clients, cell.members)}"]
    if tool == NET_HTTP:
        path = service.path(cell.operation, "{key}" if puts else READ_KEY)
        own = [f"--path={path}", *([f"--prefix={prefix}", f"--val-size={VALUE_SIZE}"] if puts else [])]
        return [str(programs[NET_HTTP]), *common, *own]
    own = ["--store=consul"]
    if cell.kind == REPLICAS:
        flag = "--put-path" if puts else "--get-path"
        own = ["--store=http", f"{flag}={service.path(cell.operation, '{key}')}"]
    own += [f"--request-timeout={REQUEST_TIMEOUT_S}s", "--run-timeout=45s", "--output=json"]
    if puts:
        own += ["--key-size=8", f"--val-size={VALUE_SIZE}", f"--key-space-size={total}", "--sequential-keys"]
        return [str(programs[OURS]), "put", *common, *own, f"--prefix={prefix}"]
    consistency = ["--consistency=s"] if cell.operation == "get-s" else []
    return [str(programs[OURS]), "range", *common, *own, READ_KEY, "--require-found", *consistency]


def parse_wrk(text: str) -> Report:
    """What wrk prints. RunError where a request failed."""
    counts = re.search(r"(\d+) requests in ([\d.]+)(ms|s)", text)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if counts is None or rate is None or "Non-2xx" in text or "Socket errors" in text:
        raise RunError(f"wrk: {text[-300:]!r}")
    unit = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    found = {name: float(value) * unit[u] for name, value, u in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)\b", text)}
    ok, seconds = int(counts[1]), float(counts[2]) * unit[counts[3]]
    return Report(ok, seconds, float(rate[1]), found.get("50"), found.get("99"))


class Comparison:
    """One comparison and what it has measured so far."""

    def __init__(self, client: Path, consul: Path | None, folder: Path, share: float, limit_s: float) -> None:
        self.folder, self.share, self.limit_s = folder, share, limit_s
        self.began = time.monotonic()
        self.samples: list[Sample] = []
        self.runs = 0
        self.programs = {OURS: client, REPLICAS: _built("replicas_image"), NET_HTTP: _built("bench/load/peers/nethttp")}
        if consul is not None:
            self.programs[CONSUL] = consul
        if wrk := shutil.which("wrk"):
            self.programs[WRK] = Path(wrk)

    def run(self, rounds: int, only: str = "") -> None:
        """Measure one service after the other."""
        for kind in (CONSUL, REPLICAS):
            for members in (1, 3):
                wanted = [cell for cell in cells(kind, members, self.share) if only in cell.name]
                if kind in self.programs and wanted:
                    with (
                        tempfile.TemporaryDirectory(prefix="bench-http-", dir=self.folder) as data,
                        Service(kind, self.programs[kind], members, Path(data)) as service,
                    ):
                        self._measure(service, wanted, rounds)

    def _measure(self, service: Service, wanted: Sequence[Cell], rounds: int) -> None:
        if service.ask("PUT", 0, service.path("put", READ_KEY), b"v" * VALUE_SIZE) >= 300:
            raise RunError(f"{service.kind} does not take the key that is read")
        for number in range(rounds + 1):  # the first round warms up
            for i, cell in enumerate(wanted):
                tools = [OURS, NET_HTTP]
                if cell.members == 1 and cell.operation != "put" and WRK in self.programs and number > 0:
                    tools.append(WRK)
                turn = (number + i) % len(tools)
                for tool in tools[turn:] + tools[:turn]:
                    if time.monotonic() - self.began > self.limit_s:
                        raise RunError(f"not finished within {self.limit_s:.0f} s")
                    sample = self._once(tool, cell, cell.total if number else min(cell.total, 300), number, service)
                    if number:
                        self.samples.append(sample)
        print(f"{len(service.endpoints)} of {service.kind}: after {time.monotonic() - self.began:.0f} s", flush=True)

    def _once(self, tool: str, cell: Cell, total: int, number: int, service: Service) -> Sample:
        self.runs += 1
        prefix = f"r{self.runs}-"
        before = service.cpu_s()
        used, text = run_program(command(tool, cell, total, prefix, service, self.programs), service.folder)
        servers_s = service.cpu_s() - before
        service.check()
        report = parse_wrk(text) if tool == WRK else parse_ours(text, total)
        if cell.operation == "put":
            for n in (0, total - 1, total):
                key = prefix + key_name(OURS, n).decode()
                if (service.ask("GET", 0, service.path("get-l", key)) == 200) != (n < total):
                    raise RunError(f"{tool}, {cell.name}: the store does not hold the keys that were to be written")
        return Sample.of(tool, cell.name, number, used, report, servers_s)

    def markdown(self, context: str) -> str:
        """The table, one row for each tool, and in how many cells the aim is met."""
        found = table.medians(self.samples)
        lines = [context, "", "| load (conns/clients) | tool | requests/s | client CPU | x | of which in the kernel "]
        lines[-1] += "| members CPU | peak RSS | p50 | p99 |"
        lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
        values = {}
        for cell, tools in found.items():
            other = tools[NET_HTTP]["client_cpu_ms_per_1000"]
            values[cell] = tools[OURS]["client_cpu_ms_per_1000"] / other
            for tool, figures in sorted(tools.items(), key=lambda item: [OURS, NET_HTTP, WRK].index(item[0])):
                cpu = figures["client_cpu_ms_per_1000"]
                lines.append(
                    f"| {cell} | {tool} | {figures['requests_per_s']:,.0f} | {cpu:.1f} "
                    f"| {'' if tool == NET_HTTP else f'{cpu / other:.2f}'} "
                    f"| {figures['client_kernel_ms_per_1000'] / cpu:.0%} | {figures['members_cpu_ms_per_1000']:.0f} "
                    f"| {figures['peak_rss_bytes'] / 1e6:.0f} "
                    f"| {figures['p50_s'] * 1000:.2f} | {figures['p99_s'] * 1000:.2f} |"
                )
        met = sum(value <= BOUND for value in values.values())
        worst = max(values, key=lambda cell: values[cell])
        lines += [
            "",
            f"Client CPU of ours at most half of net/http's: met in {met} of {len(values)} cells; furthest from it ",
        ]
        lines[-1] += f"{values[worst]:.2f}, {worst}."
        return "\n".join(lines) + "\n"


def _built(folder: str) -> Path:
    """The program of a module of ours that needs the standard library alone."""
    from containernet_env.base.assets import ROOT

    toolchain = builds.find()
    if toolchain is None:
        raise MissingRequirementError("Go is not installed", "Run ./build.sh first.")
    program = ROOT / ".build" / f"bench-{Path(folder).name}"
    argv = [toolchain.path, "build", "-trimpath", "-ldflags=-s -w", "-o", str(program), "."]
    done = subprocess.run(
        argv, cwd=ROOT / folder, env=builds.environment(), capture_output=True, check=False, timeout=300
    )
    if done.returncode != 0:
        raise RunError(f"build {folder}: {done.stderr.decode(errors='replace')[-500:]}")
    return program


def compare(
    client: Path,
    consul: Path | None,
    folder: Path,
    rounds: int,
    limit_s: float,
    *,
    share: float,
    only: str,
    where: str,
    output: Path,
    document: Path | None,
) -> None:
    """Run the comparison, print its table, write its samples to ``output``, and a whole table into ``document``."""
    comparison = Comparison(client, consul, folder, share, limit_s)
    finished = False
    try:
        comparison.run(rounds, only)
        finished = True
    finally:
        if comparison.samples and not any(len(tools) < 2 for tools in table.medians(comparison.samples).values()):
            took = time.monotonic() - comparison.began
            context = f"{datetime.now(UTC):%Y-%m-%d}, {where}. Medians of {rounds} runs, {took:.0f} s in all."
            context += "" if finished else " NOT FINISHED."
            context += " CPU: ms per 1000 requests; peak RSS: MB; latencies: ms; x: divided by net/http's."
            text = comparison.markdown(context)
            print(f"\n{text}")
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps([asdict(sample) for sample in comparison.samples], indent=1) + "\n", "utf-8")
            if document is not None and finished:
                table.update(document, text, MARKS)
