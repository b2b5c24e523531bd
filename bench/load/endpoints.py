"""Requests/s of `containernet-env run` on three etcd processes by their endpoints, beside benchmark-client's on them.

`python -m bench.load.endpoints [ROUNDS]` prints the table of README.md. Both send the same loads by turns,
to the same processes, plain and with TLS and users. As root, or as a user with the programs in the cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.load.cli import BUILD
from bench.load.cluster import Cluster
from bench.load.secured import PASSWORD, USER, Secured
from containernet_env.base import programs
from containernet_env.results.statistics import Interval, median_interval
from containernet_env.runs.measure import measure
from containernet_env.setup import packages

ROUNDS = 11
_CLIENT_TIMEOUT_S = 120.0
_WRITES, _READS = {"total": 20_000, "clients": 100, "conns": 10}, {"total": 30_000, "clients": 100, "conns": 10}
_ALONE = {"total": 2_000, "clients": 1, "conns": 1}
_DATA = {"keySize": 8, "valSize": 64}
SCENARIOS = {
    "dataset": {**_DATA, "keys": 1},
    "scenarios": [
        {"type": "write", "load": [_WRITES, _ALONE], "data": _DATA, "keys": "sequential", "target": "cluster"},
        {"type": "read", "load": [_READS], "consistency": "l", "target": "cluster", "verify": False},
    ],
}
_LOADS = {"write, 100 clients": ("put", _WRITES), "write, 1 client": ("put", _ALONE), "read, 100": ("range", _READS)}


def by_run(config: Path, scenarios: Path, folder: Path) -> list[float]:
    """Requests/s of each load, as the rows of a run have them."""
    result = measure(config, scenarios, folder / "out.csv", yes_load_this_cluster=True)
    assert not result.failed, [outcome.error for outcome in result.outcomes]
    return [float(row["Requests/sec"]) for row in result.rows]


def by_client(cluster: Cluster, folder: Path) -> Iterator[float]:
    """The same of benchmark-client alone."""
    secured = isinstance(cluster, Secured)
    program = programs.path("benchmark-client-tls" if secured else "benchmark-client")
    more = []
    if secured:
        more = [f"--cacert={cluster.folder / 'ca.pem'}", "--user=root", f"--password-file={folder / 'root'}"]
    for verb, load in _LOADS.values():
        argv = [str(program), verb, f"--endpoints={cluster.endpoints}", "--output=json", "--key-size=8", *more]
        argv += [f"--{name}={number}" for name, number in load.items()]
        keys = ["--val-size=64", "--sequential-keys"] if verb == "put" else ["--key-space-size=1", "--require-found"]
        done = subprocess.run([*argv, *keys], capture_output=True, text=True, timeout=_CLIENT_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
        yield float(json.loads(done.stdout)["requests_per_s"])


def compare(cluster: Cluster, folder: Path, rounds: int) -> Iterator[str]:
    """A line of the table for each load: medians, and the median of the rounds' ratios with its interval."""
    (folder / "password").write_text(PASSWORD + "\n")
    (folder / "root").write_text("root\n")  # whose keys have no prefix
    values: dict[str, Any] = {"endpoints": [f"http://127.0.0.1:{port}" for port in cluster.ports]}
    if isinstance(cluster, Secured):
        cluster.add_users()
        values["endpoints"] = [f"https://127.0.0.1:{port}" for port in cluster.ports]
        values |= {"tls": {"ca": str(cluster.folder / "ca.pem")}, "user": USER, "password_file": "password"}
    config, scenarios = folder / "endpoints.json", folder / "scenarios.json"
    config.write_text(json.dumps(values))
    scenarios.write_text(json.dumps(SCENARIOS))
    runs, clients = list[list[float]](), list[list[float]]()
    for number in range(rounds + 1):  # the first one of each warms everything up
        if number % 2:
            runs.append(by_run(config, scenarios, folder))
            clients.append(list(by_client(cluster, folder)))
        else:
            clients.append(list(by_client(cluster, folder)))
            runs.append(by_run(config, scenarios, folder))
    kind = "TLS and users" if isinstance(cluster, Secured) else "plain"
    for index, name in enumerate(_LOADS):
        ours, alone = ([found[index] for found in taken[1:]] for taken in (runs, clients))
        ratio = median_interval([run / client for run, client in zip(ours, alone, strict=True)])
        figures = f"{median(ours):,.0f} | {median(alone):,.0f} | {ratio.estimate:.3f} | {between(ratio)}"
        yield f"| {kind} | {name} | {figures} |"


def between(ratio: Interval) -> str:
    """The interval in words of the table; fewer than six rounds have none."""
    return "-" if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}"


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    packages.require("scipy", lambda text: print(text, file=sys.stderr))
    BUILD.mkdir(exist_ok=True)
    print("| cluster | load | run, requests/s | benchmark-client, requests/s | ratio | 95 % interval of the ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in (Cluster, Secured):
        # Not in memory: fsync is part of what is measured.
        with tempfile.TemporaryDirectory(prefix="bench-endpoints-", dir=BUILD) as made:
            folder = Path(made)
            with kind(programs.path("etcd"), 3, folder, tls=kind is Secured) as cluster:
                for line in compare(cluster, folder, rounds):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
