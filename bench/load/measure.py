"""Runs one tool once, checks that the store took what the tool says, and returns the sample."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.load import plan
from bench.load.cluster import Cluster
from bench.load.plan import Cell
from bench.load.reports import Report, parse_etcd, parse_ours
from containernet_env.base.errors import RunError

_SPAWN = Path(__file__).with_name("spawn.py")
_LIMIT_S = 60.0


@dataclass(frozen=True)
class Used:
    """What a program used, as the kernel counted it; ``kernel_s`` is the part of ``cpu_s`` within the kernel."""

    wall_s: float
    cpu_s: float
    kernel_s: float
    peak_rss_bytes: int


@dataclass(frozen=True)
class Sample:
    """One run. Per 1000 requests: milliseconds of processor time, user and system, start and connecting included; of
    the client's, those in the kernel once more."""

    tool: str
    cell: str
    round: int
    requests: int
    wall_s: float
    total_s: float
    requests_per_s: float
    client_cpu_ms_per_1000: float
    client_kernel_ms_per_1000: float
    members_cpu_ms_per_1000: float
    peak_rss_bytes: int
    p50_s: float | None
    p99_s: float | None

    @classmethod
    def of(cls, tool: str, cell: str, number: int, used: Used, report: Report, members_cpu_s: float) -> Sample:
        """The run ``number`` of ``tool``, which used ``used`` and reported ``report``."""
        per_1000 = 1e6 / report.ok
        return cls(
            tool=tool,
            cell=cell,
            round=number,
            requests=report.ok,
            wall_s=used.wall_s,
            total_s=report.total_s,
            requests_per_s=report.requests_per_s,
            client_cpu_ms_per_1000=used.cpu_s * per_1000,
            client_kernel_ms_per_1000=used.kernel_s * per_1000,
            members_cpu_ms_per_1000=members_cpu_s * per_1000,
            peak_rss_bytes=used.peak_rss_bytes,
            p50_s=report.p50_s,
            p99_s=report.p99_s,
        )


def run_once(tool: str, cell: Cell, total: int, number: int, cluster: Cluster, programs: dict[str, Path]) -> Sample:
    """Run ``tool`` for ``total`` requests of ``cell``. RunError if a request failed or the store does not agree.

    Before puts the store is emptied, outside of all clocks, so that what it holds afterwards is what this run wrote.
    """
    written = total if cell.operation == "put" else 0
    if written:
        cluster.empty()
    before, keys_before = cluster.revision_and_keys()
    if written and keys_before != 1:
        raise RunError(
            f"{cell.name}: the store holds {keys_before} keys after it was emptied, not the one that is read"
        )
    servers_before = cluster.cpu_s()
    argv = plan.command(tool, cell, total, cluster.endpoints, programs, cluster.client_flags)
    used, text = run_program(argv, cluster.folder)
    servers_s = cluster.cpu_s() - servers_before
    cluster.check()
    report = (parse_etcd if tool == plan.ETCD else parse_ours)(text, total)
    after, keys = cluster.revision_and_keys()
    if after - before != written:
        raise RunError(f"{tool}, {cell.name}: the store's revision rose by {after - before}, not by {written}")
    if keys != keys_before + written:
        raise RunError(f"{tool}, {cell.name}: the store holds {keys} keys, not {keys_before + written}")
    if written:
        found, wanted = cluster.outermost_keys(), plan.outermost_keys(tool, total)
        if found != wanted:
            raise RunError(f"{tool}, {cell.name}: the first and the last key are {found}, not {wanted}")
    return Sample.of(tool, cell.name, number, used, report, servers_s)


def run_program(argv: list[str], folder: Path, limit_s: float = _LIMIT_S) -> tuple[Used, str]:
    """Run ``argv`` for at most ``limit_s``; what it used, and its standard output. RunError unless it ends with 0."""
    out, err = folder / "run.out", folder / "run.err"
    own = [sys.executable, "-I", "-S", str(_SPAWN), str(out), str(err), str(limit_s), *argv]
    process = subprocess.Popen(own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    try:
        answer, _ = process.communicate(timeout=limit_s + 10)
    except subprocess.TimeoutExpired as error:
        raise RunError(f"'{argv[0]} {argv[1]}' could not be ended within {limit_s:.0f} s") from error
    finally:
        if process.poll() is None:
            # The group holds the measured program as well, whose parent this is.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    try:
        told = json.loads(answer)
    except ValueError as error:
        raise RunError(f"'{argv[0]}' could not be run") from error
    if told["status"] != 0:
        words = (err.read_text("utf-8", "replace") + out.read_text("utf-8", "replace"))[-600:].strip()
        how = f"was killed after {told['wall_s']:.0f} s" if told["status"] < 0 else f"ended with {told['status']}"
        raise RunError(f"'{' '.join(argv)}' {how}: {words}")
    used = Used(told["wall_s"], told["user_s"] + told["system_s"], told["system_s"], told["peak_rss_bytes"])
    return used, out.read_text(encoding="utf-8", errors="replace")
