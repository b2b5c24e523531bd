"""Members that die, limits that do not hold, networks that are not as asked: the rows and the exit code say so."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from containernet_env.hosts import engine
from containernet_env.results.run_directory import find_run, read_run
from tests.docker.conftest import COMMAND, PROJECT
from tests.docker.machine_state import left_over, snapshot
from tests.docker.test_endings import end
from tests.docker.test_network_failures import child, running, wait_for

pytestmark = pytest.mark.docker


def topology(path: Path, **changes: Any) -> Path:
    """A three-member topology with `changes` to every node, as a file."""
    node = {"mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": "3ms"} | changes
    path.write_text(json.dumps([{"ip": f"10.0.0.{251 + i}", **node} for i in range(3)]))
    return path


def run(config: Path, out: Path, *options: str, timeout_s: float = 200) -> subprocess.CompletedProcess[str]:
    argv = [str(COMMAND), "run", str(config), str(out), "--port", "18080", *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(out.read_text().splitlines()))


def test_oom_killed_members_are_named_and_the_rest_is_not_run(tmp_path: Path) -> None:
    before = snapshot()
    config = topology(tmp_path / "small.json", mem="32m")
    scenarios = tmp_path / "large.json"
    # Values of 128 MB in all.
    data, load = {"keySize": 8, "valSize": 65536}, {"total": 2000, "clients": 100, "conns": 10}
    writes = {"type": "write", "load": load, "data": data, "target": ["leader", "cluster"]}
    reads = {"type": "read", "load": {"total": 20, "clients": 1, "conns": 1}, "consistency": ["l", "s"]}
    scenarios.write_text(json.dumps({"dataset": data | {"keys": 20}, "scenarios": [writes, reads]}))
    done = run(config, tmp_path / "out.csv", "--scenarios", str(scenarios))
    assert done.returncode == 1, done.stdout + done.stderr
    errors = [row["Error"] for row in rows(tmp_path / "out.csv")]
    assert len(errors) == 4
    killed = next(index for index, error in enumerate(errors) if "ended: OOM-killed (memory limit 32 MiB)" in error)
    assert all("OOM-killed" in error for error in errors[killed:]), errors
    assert errors[-1].startswith("not run: "), errors
    assert left_over(before) == {}


def kill_host(name: str) -> None:
    """Kill the first process of a host of the run that is on."""
    (host,) = [container for container in engine.list_ours() if container.host == name]
    os.kill(engine.client().api.inspect_container(host.id)["State"]["Pid"], signal.SIGKILL)


@pytest.mark.parametrize(("name", "called"), [("etcd2", "etcd2"), ("benchmark", "the benchmark host")])
def test_a_host_that_ends_during_the_proof_is_what_the_error_says(
    long: Path, tmp_path: Path, name: str, called: str
) -> None:
    out = tmp_path / "out.csv"
    with running(long, out) as run:
        wait_for(lambda: child(run.pid, "link-emulator", "probe"))
        kill_host(name)
        killed = time.monotonic()
        output = end(run)
        assert time.monotonic() - killed < 8.0, output
    assert run.returncode == 1, output
    why = f"{called} ended during the network's proof: killed by SIGKILL"
    assert f"Error: {why}\n" in output
    assert "not the one that was configured" not in output
    failed = read_run(find_run(out))
    assert failed.network is not None
    assert [proof["problems"] for proof in failed.network["proofs"]] == [[why]]


@pytest.mark.parametrize(("name", "called"), [("etcd2", "etcd2"), ("benchmark", "the benchmark host")])
def test_a_host_that_ends_while_the_cluster_starts_is_what_the_error_says(
    long: Path, tmp_path: Path, name: str, called: str
) -> None:
    with running(long, tmp_path / "out.csv") as run:
        assert run.stdout is not None
        while "network" not in run.stdout.readline():
            assert run.poll() is None, "the network did not come up"
        kill_host(name)
        killed = time.monotonic()
        output = end(run)
        assert time.monotonic() - killed < 8.0, output
    assert run.returncode == 1, output
    assert f"Error: {called} ended while the cluster started: killed by SIGKILL" in output


def test_a_network_that_is_not_as_asked_stops_the_run_with_the_table(tiny: Path, tmp_path: Path) -> None:
    before = snapshot()
    config = topology(tmp_path / "config.json")
    done = run(config, tmp_path / "out.csv", "--scenarios", str(tiny), "--rtt-tolerance", "1ns")
    assert done.returncode == 1
    assert "the network is not the one that was configured" in done.stderr
    heading, *table = done.stderr[done.stderr.index("direction ") :].splitlines()
    assert heading.split() == ["direction", "property", "asked", "measured", "allowed"]
    assert any(line.split()[:4] == ["etcd1>s1", "delay", "3.000", "ms"] for line in table), done.stderr
    assert rows(tmp_path / "out.csv") == []
    failed = read_run(find_run(tmp_path / "out.csv"))
    assert failed.network is not None
    proofs = failed.network["proofs"]
    assert len(proofs) == 2  # only what two gates find wrong is wrong
    for proof in proofs:
        assert not proof["passed"] and len(proof["problems"]) == 8, proof["problems"]  # the delay of each direction
        assert len(proof["pairs"]) == 6 and len(proof["paths"]) == 12
        assert all(len(path["delays_ns"]) >= 20 for path in proof["paths"])
    assert left_over(before) == {}


def test_an_unknown_congestion_control_is_refused_with_what_there_is(tiny: Path, tmp_path: Path) -> None:
    config = topology(tmp_path / "config.json")
    done = run(config, tmp_path / "out.csv", "--scenarios", str(tiny), "--congestion-control", "swift")
    assert done.returncode == 2
    assert "no TCP congestion control 'swift'; it has: " in done.stderr


def test_a_fifth_of_a_core_per_member_keeps_its_leader(tmp_path: Path) -> None:
    config = topology(tmp_path / "config.json", cpus=0.2)
    done = run(config, tmp_path / "out.csv", "--quick", "--only", "write-*2000x1000x100*")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [row for row in rows(tmp_path / "out.csv") if ">" in row["Leader"]]


def test_bandwidth_and_delay_show_in_the_rtt_column(tiny: Path, tmp_path: Path) -> None:
    done = run(PROJECT / "configs" / "slow-10mbit.json", tmp_path / "out.csv", "--scenarios", str(tiny))
    assert done.returncode == 0, done.stdout + done.stderr
    row = rows(tmp_path / "out.csv")[0]
    expected, measured = float(row["RttExpected_ms"]), float(row["RttMeasured_ms"])
    assert abs(measured - expected) <= max(0.5, 0.1 * expected), row


def test_a_run_directory_stands_beside_the_rows(tiny: Path, tmp_path: Path) -> None:
    done = run(topology(tmp_path / "config.json"), tmp_path / "out.csv", "--scenarios", str(tiny))
    assert done.returncode == 0, done.stdout + done.stderr
    first = rows(tmp_path / "out.csv")[0]
    kept = read_run(tmp_path / "out.runs" / first["RunId"])
    assert kept.manifest is not None and kept.network is not None
    assert kept.manifest["config_hash"] == first["ConfigHash"]
    assert {host["tcp"]["congestion_control"] for host in kept.manifest["hosts"].values()} == {"cubic"}
    assert kept.manifest["hosts"]["etcd1"]["limits"]["memory_bytes"] == 512 << 20
    assert [(proof["moment"], proof["passed"]) for proof in kept.network["proofs"]] == [
        ("before", True),
        ("after", True),
    ]
    for proof in kept.network["proofs"]:
        assert len(proof["pairs"]) == 6
        assert {check["subject"] for check in proof["checks"]} >= {"etcd1>s1", "s1>etcd1", "benchmark>s1"}
    assert first["NetworkProof"] == "proved" or first["NetworkProof"].startswith("unproved: "), first
    assert [line["load"]["ok"] for line in kept.scenarios] == [20] * 4
    assert [line["identity"] for line in kept.scenarios] == [row["ScenarioHash"] for row in rows(tmp_path / "out.csv")]
    kinds = [event["kind"] for event in kept.events]
    assert kinds[:5] == ["run_began", "hosts_up", "network_proved", "cluster_up", "matrix_began"]
    assert kinds[-1] == "run_ended" and kinds.count("scenario_ended") == 4
    # Everything is on the machine's one monotonic clock.
    for line in kept.scenarios:
        assert line["began_ns"] < line["load"]["began_ns"] < line["began_ns"] + line["seconds"] * 1e9
    assert [path.stem for path in kept.logs] == ["benchmark", "etcd1", "etcd2", "etcd3", "link-emulator"]
    assert "ready to serve client requests" in (kept.path / "logs" / "etcd1.log").read_text()
    shown = subprocess.run(
        [str(COMMAND), "show", str(tmp_path / "out.csv")], capture_output=True, text=True, check=True
    )
    assert "network as configured before the first scenario: " in shown.stdout
    assert "network as configured after the last: " in shown.stdout
