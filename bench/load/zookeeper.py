"""Our client beside one with go-zookeeper, on one member of ZooKeeper: ``.venv/bin/python -m bench.load.zookeeper``.

ZOOKEEPER_CLASSPATH is the Java class path of the server. Both tools take turns, as in the comparison with etcd's tool.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.load import cli, table
from bench.load.measure import Sample, run_program
from bench.load.members import Members, free_ports
from bench.load.plan import OURS, VALUE_SIZE
from bench.load.reports import parse_ours
from containernet_env.base import assets, programs
from containernet_env.base.assets import GoModule
from containernet_env.base.errors import ContainernetEnvError, MissingRequirementError, RunError
from containernet_env.setup import builds
from containernet_env.setup.commands import Commands

PEER = "go-zookeeper"
MARKS = ("<!-- ZOOKEEPER -->", "<!-- END OF ZOOKEEPER -->")
PEER_MODULE = GoModule(
    "zookeeper-peer",
    cli.FOLDER / "peers",
    {"zookeeper-peer": "./zookeeper"},
    only=("go.mod", "go.sum", "peers.go", "zookeeper/main.go"),
    ours=False,
)
READ_KEY = "read0"
AIM = 0.5


@dataclass(frozen=True)
class Cell:
    """One load: ``operation`` is put, range-s (a read) or range-l (a sync and a read)."""

    conns: int
    clients: int
    operation: str
    total: int

    @property
    def name(self) -> str:
        return f"{self.operation} {self.conns}/{self.clients}"


CELLS = tuple(
    Cell(conns, clients, operation, total)
    for conns, clients, totals in (
        (100, 1000, {"put": 15_000, "range-s": 40_000, "range-l": 20_000}),
        (10, 100, {"put": 15_000, "range-s": 40_000, "range-l": 20_000}),
        (1, 1, {"put": 2_000, "range-s": 5_000, "range-l": 3_000}),
    )
    for operation, total in totals.items()
)


class Member(Members):
    """A server by itself below ``folder``, up within the ``with`` block."""

    def __init__(self, class_path: str, folder: Path) -> None:
        super().__init__("ZooKeeper", folder)
        (self.port,) = free_ports(1)
        self.endpoint = f"127.0.0.1:{self.port}"
        self.version = ""
        self._class_path = class_path

    def _commands(self) -> Iterator[Sequence[str | Path]]:
        java = shutil.which("java")
        if java is None:
            raise MissingRequirementError("java is not installed", "Install a Java runtime.")
        config = self.folder / "zoo.cfg"
        lines = [f"dataDir={self.folder}", f"clientPort={self.port}", "clientPortAddress=127.0.0.1", "tickTime=2000"]
        config.write_text("\n".join([*lines, "maxClientCnxns=0", "admin.enableServer=false", ""]), encoding="utf-8")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        yield [java, "-Xmx512m", "-cp", self._class_path, main, config]

    def _ready(self) -> bool:
        found = re.search(r"version: ([0-9.]+)", self._status())
        self.version = found[1] if found else ""
        return found is not None

    def _status(self) -> str:
        """What it answers to 'srvr'; empty: nothing."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5.0) as connection:
                connection.sendall(b"srvr")
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""

    def znodes(self) -> int:
        """How many there are."""
        found = re.search(r"Node count: (\d+)", self._status())
        if found is None:
            raise RunError("ZooKeeper does not tell how many znodes there are")
        return int(found[1])


def command(tool: str, cell: Cell, total: int, prefix: str, endpoint: str, found: dict[str, Path]) -> list[str]:
    """The argument list that runs ``total`` requests of ``cell``; puts are of new keys that begin with ``prefix``."""
    common = [f"--conns={cell.conns}", f"--clients={cell.clients}", f"--total={total}"]
    put = cell.operation == "put"
    if tool == PEER:
        name = prefix if put else READ_KEY
        peer = [str(found[PEER]), f"--endpoint={endpoint}", f"--operation={cell.operation}", f"--prefix={name}"]
        return [*peer, *common, f"--val-size={VALUE_SIZE}"]
    ours = [str(found[OURS]), "put" if put else "range", "--store=zookeeper", f"--endpoints={endpoint}", *common]
    ours += ["--output=json", "--request-timeout=20s", "--run-timeout=45s"]
    if put:
        return [*ours, "--key-size=8", f"--val-size={VALUE_SIZE}", "--sequential-keys", f"--prefix={prefix}"]
    return [*ours, READ_KEY, f"--consistency={cell.operation[-1]}", "--require-found"]


class Bench:
    """One call of the command and what it has measured so far."""

    def __init__(self, found: dict[str, Path], member: Member, folder: Path) -> None:
        self._found, self._member, self._folder = found, member, folder
        self._runs = 0

    def run(self, tool: str, cell: Cell, total: int, number: int) -> Sample:
        """Run ``tool`` once; RunError if a request failed, or the server does not hold what was written."""
        self._runs += 1
        before, cpu_before = self._member.znodes(), self._member.cpu_s()
        argv = command(tool, cell, total, f"r{self._runs:04d}-", self._member.endpoint, self._found)
        used, text = run_program(argv, self._folder)
        server_s = self._member.cpu_s() - cpu_before
        self._member.check()
        report = parse_ours(text, total)
        written = total if cell.operation == "put" else 0
        if (rose := self._member.znodes() - before) != written:
            raise RunError(f"{tool}, {cell.name}: {rose} znodes more, not {written}")
        return Sample.of(tool, cell.name, number, used, report, server_s)


def markdown(samples: Sequence[Sample], context: str) -> str:
    """The table of all cells, one row for each tool, below ``context``; then the aim."""
    columns = "load (conns/clients)", "requests", "tool", "requests/s", "x", "client CPU", "x", "member CPU", "peak RSS"
    lines = [
        context,
        "",
        "| " + " | ".join([*columns, "x", "p50", "p99"]) + " |",
        "| --- | ---: | --- |" + " ---: |" * 9,
    ]
    ratios = {}
    for cell, tools in table.medians(samples).items():
        mine, other = tools[OURS], tools[PEER]
        names = ("requests_per_s", "client_cpu_ms_per_1000", "peak_rss_bytes")
        against = [f"{mine[name] / other[name]:.2f}" for name in names]
        ratios[cell] = mine[names[1]] / other[names[1]]
        for tool, (rate, cpu, rss) in ((OURS, against), (PEER, ["", "", ""])):
            f = tools[tool]
            row = [cell, f"{f['requests']:,.0f}", tool, f"{f['requests_per_s']:,.0f}", rate]
            row += [f"{f['client_cpu_ms_per_1000']:.1f}", cpu, f"{f['members_cpu_ms_per_1000']:.0f}"]
            row += [f"{f['peak_rss_bytes'] / 1e6:.0f}", rss, f"{f['p50_s'] * 1000:.2f}", f"{f['p99_s'] * 1000:.2f}"]
            lines.append(f"| {' | '.join(row)} |")
    worst = max(ratios, key=lambda cell: ratios[cell])
    met = sum(ratio <= AIM for ratio in ratios.values())
    lines += [
        "",
        f"Client CPU at most 1/2 of {PEER}'s: met in {met} of {len(ratios)} cells; furthest from it {worst}, "
        f"{ratios[worst]:.2f}.",
    ]
    return "\n".join(lines) + "\n"


def build() -> tuple[dict[str, Path], str]:
    """Both programs, built into the cache where they are not there, and the version of Go."""
    toolchain = builds.find()
    if toolchain is None:
        raise MissingRequirementError("Go is not installed", "Run ./build.sh first.")
    cli.BUILD.mkdir(exist_ok=True)
    commands, folders = Commands(), {}
    try:
        for module in (*(m for m in assets.modules() if m.name == "benchmark"), PEER_MODULE):
            found = programs.find(module, toolchain.version)
            log = cli.BUILD / "bench-load.log"
            folders[module.name] = found or builds.build(module, toolchain, commands, log)
    finally:
        commands.stop()
    paths = {OURS: folders["benchmark"] / "benchmark-client", PEER: folders[PEER_MODULE.name] / "zookeeper-peer"}
    return paths, toolchain.version


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison. 0: every run succeeded, whatever the speeds; 1: one did not; 3: something is missing."""
    parser = argparse.ArgumentParser(prog="python -m bench.load.zookeeper", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each tool in each cell (5)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cells whose name holds TEXT: 'put 10/'")
    parser.add_argument("--share", type=float, default=1.0, help="of the totals (1)")
    parser.add_argument("--update-docs", type=Path, metavar="FILE", help="put the table between the marks of FILE")
    asked = parser.parse_args(argv)
    try:
        if asked.update_docs is not None:
            table.around(asked.update_docs, MARKS)  # now, and not when all has been measured
        samples, context = measure(asked)
    except ContainernetEnvError as error:
        print(f"bench/load: {error}", file=sys.stderr)
        return 3 if isinstance(error, MissingRequirementError) else 1
    text = markdown(samples, context)
    print(text)
    if asked.update_docs is not None:
        table.update(asked.update_docs, text, MARKS)
    return 0


def measure(asked: argparse.Namespace) -> tuple[list[Sample], str]:
    """All samples, and the line that says where they are from."""
    class_path = os.environ.get("ZOOKEEPER_CLASSPATH", "")
    if not class_path:
        raise MissingRequirementError(
            "ZOOKEEPER_CLASSPATH does not name ZooKeeper's jars",
            "With Debian's package zookeeper: /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar",
        )
    found, version = build()
    samples: list[Sample] = []
    began = time.monotonic()
    # Not in a temporary folder of the system, which may be memory: fsync is part of what is measured.
    with tempfile.TemporaryDirectory(prefix="bench-load-", dir=cli.BUILD) as name:
        folder = Path(name)
        with Member(class_path, folder) as member:
            bench = Bench(found, member, folder)
            # The one key that is read: the generated key 0 of one byte.
            make = [str(found[OURS]), "put", "--store=zookeeper", f"--endpoints={member.endpoint}", "--total=1"]
            run_program([*make, "--key-size=1", f"--prefix={READ_KEY[:-1]}", f"--val-size={VALUE_SIZE}"], folder)
            cells = [cell for cell in CELLS if asked.only in cell.name]
            for cell in cells:
                for tool in (OURS, PEER):  # Java compiles what runs often
                    bench.run(tool, cell, max(cell.clients, cell.total // 4), 0)
            for number in range(1, asked.rounds + 1):
                for i, cell in enumerate(cells):
                    tools = (OURS, PEER) if (number + i) % 2 else (PEER, OURS)
                    for tool in tools:
                        total = max(cell.clients, round(cell.total * asked.share))
                        samples.append(bench.run(tool, cell, total, number))
                print(f"round {number} after {time.monotonic() - began:.0f} s", flush=True)
            where = cli.machine()
            context = (
                f"{datetime.now(UTC):%Y-%m-%d}, {where['processors']} x {where['processor']}, Linux {where['kernel']}, "
                f"data on {where['file_system']}; ZooKeeper {member.version}, go-zookeeper 1.0.4, {version}. Medians "
                f"of {asked.rounds} runs. CPU: ms per 1000 requests, start and connecting included; peak RSS: MB; "
                f"latencies: ms; x: ours divided by {PEER}'s."
            )
    return samples, context


if __name__ == "__main__":
    sys.exit(main())
