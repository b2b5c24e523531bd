"""etcd behind a proxy, on a real network, with a small proxy of ours in the place of zetcd and cetcd."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from containernet_env import measure
from containernet_env.base import sources
from containernet_env.base.user_program import UserProgram, read_program
from containernet_env.hosts import engine
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.setup import go
from tests.docker.machine_state import left_over, snapshot
from tests.docker.test_failures import rows

pytestmark = pytest.mark.docker

LINK_MS, REQUESTS = 3, 10
LOAD = {"total": REQUESTS, "clients": 1, "conns": 1}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserProgram]:
    """The small proxy, built; the images with it are removed at the end."""
    toolchain = go.find()
    assert toolchain is not None, "the programs of the project have been built"
    path = tmp_path_factory.mktemp("proxy") / "small-proxy"
    environment = {**os.environ, **sources.BUILD_ENVIRONMENT}
    argv = [toolchain.path, "build", "-trimpath", "-o", str(path), "."]
    subprocess.run(argv, cwd=Path(__file__).parent / "small_proxy", env=environment, check=True, timeout=120)
    found = read_program(path)
    yield found
    for image in engine.client().api.images():
        for tag in image.get("RepoTags") or ():
            if f"-{found.short}:" in tag:
                engine.client().api.remove_image(tag)


def run(folder: Path, kind: str, program: UserProgram, members: int, *scenarios: Any) -> tuple[ScenarioOutcome, ...]:
    """Measure it, leaving nothing behind."""
    node = {"mem": "256m", "cpus": 1, "bandwidth": 1000, "link_delay": f"{LINK_MS}ms"}
    nodes = [{"name": f"m{number}", "ip": f"10.0.0.{number}", **node} for number in range(1, members + 1)]
    topology, file = folder / "topology.json", folder / "scenarios.json"
    topology.write_text(json.dumps({"store": {"kind": kind, "binary": str(program.path)}, "nodes": nodes}))
    file.write_text(json.dumps({"dataset": {"keySize": 8, "valSize": 64, "keys": REQUESTS}, "scenarios": scenarios}))
    before = snapshot()
    result = measure(topology, file, folder / "out.csv")
    assert left_over(before) == {}
    version = f"etcd {sources.etcd_version()}, binary {program.short}"
    assert {(row["Store"], row["StoreVersion"]) for row in rows(folder / "out.csv")} == {(kind, version)}
    return tuple(result.outcomes)


def synced(outcome: ScenarioOutcome, least: int) -> bool:
    """Whether so many members of etcd have synced their log for each request at least."""
    assert outcome.store is not None
    syncs = [found.log_syncs.count for found in outcome.store.members.values() if found.log_syncs is not None]
    return sum(count >= REQUESTS for count in syncs) >= least


def test_zookeepers_clients_are_served_by_etcd(tmp_path: Path, program: UserProgram) -> None:
    write = {"type": "write", "load": LOAD, "data": {"keySize": 8, "valSize": 64}, "target": "leader"}
    crash = {**write, "load": {**LOAD, "total": 2}, "data": {"keySize": 8, "valSize": 13}}
    read = {"type": "read", "load": LOAD, "consistency": ["l"]}
    *fine, crashed = run(tmp_path, "zetcd", program, 3, write, read, {"type": "txn", "load": LOAD}, crash)
    # There and back in ms: the client 6, a member 12. Two of three requests of a cluster meet a follower.
    for outcome, least_ms in zip(fine, (6 + 12, 6 + 12, 6 + 12), strict=True):
        name = outcome.scheduled.scenario.name
        assert outcome.error is None and outcome.load is not None and outcome.load.ok == REQUESTS, (name, outcome.error)
        assert outcome.floor_s is not None and outcome.load.median_s is not None
        assert least_ms <= outcome.floor_s * 1e3 <= outcome.load.median_s * 1e3, name
        # Nothing but etcd keeps what one member was told and another one is asked for.
        assert synced(outcome, 2) is not outcome.scheduled.scenario.reads, name
    leader = crashed.leader_at_start
    assert crashed.error is not None and f"{leader} ended: " in crashed.error, crashed.error
    assert "the proxy ended: exit status 2: panic: a value of 13" in crashed.error


def test_consuls_clients_are_served_by_etcd(tmp_path: Path, program: UserProgram) -> None:
    write = {"type": "write", "load": LOAD, "data": {"keySize": 8, "valSize": 64}, "target": "leader"}
    (written,) = run(tmp_path, "cetcd", program, 1, write)
    assert written.error is None and written.load is not None and written.load.ok == REQUESTS
    assert synced(written, 1) and written.floor_s is not None and written.floor_s >= 6e-3
