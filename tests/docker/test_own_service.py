"""A key-value service from a program of the user's, on a real network: the replicas' program stands for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from containernet_env import measure
from containernet_env.base.user_program import read_program
from tests.docker.machine_state import left_over, snapshot
from tests.root.replica_processes import built

pytestmark = pytest.mark.docker

LINK_MS = 3


def test_a_program_of_the_users_is_measured(tmp_path: Path) -> None:
    if (program := built(tmp_path)) is None:
        pytest.skip("there is no Go to build the replicas with")
    store = {
        "kind": "http",
        "binary": str(program),
        "arguments": ["--listen=0.0.0.0:{port}", "--id={index}", "--peers={peers}", "--data={data}"],
        "port": 8080,
        "put": "/v0/entity?id={key}&ack=2",
        "get": "/v0/entity?id={key}&from=1",
        "success": {"put": 201},
        "health": "/status",
    }
    node = {"mem": "64m", "cpus": 1, "bandwidth": 1000, "link_delay": f"{LINK_MS}ms"}
    config, scenarios = tmp_path / "own.json", tmp_path / "scenarios.json"
    config.write_text(json.dumps({"store": store, "nodes": [{"ip": f"10.0.0.{n}", **node} for n in (1, 2, 3)]}))
    load = {"total": 50, "clients": 1, "conns": 1}
    write = {"type": "write", "load": load, "data": {"keySize": 8, "valSize": 64}, "target": "cluster"}
    read = {"type": "read", "load": load, "consistency": "l", "target": "http3"}
    dataset = {"keySize": 8, "valSize": 64, "keys": 50}
    scenarios.write_text(json.dumps({"dataset": dataset, "scenarios": [write, read]}))
    before = snapshot()
    result = measure(config, scenarios, tmp_path / "out.csv")
    assert left_over(before) == {}
    manifest = json.loads((result.directory / "manifest.json").read_text())
    assert (manifest["store"]["kind"], manifest["store"]["version"]) == ("http", read_program(program).short)
    written, found = result.outcomes
    for outcome in (written, found):
        assert outcome.error is None and outcome.load is not None and outcome.floor_s is not None
        # What members tell each other is not known: the floor is the client's own way, there and back.
        assert outcome.floor_s * 1e3 == pytest.approx(2 * LINK_MS, abs=0.5)
    assert written.load is not None and found.load is not None
    assert written.load.median_s is not None and found.load.median_s is not None
    # A write waits for another replica, a read of from=1 for none.
    assert written.load.median_s * 1e3 >= 6 * LINK_MS and 2 * LINK_MS <= found.load.median_s * 1e3 < 5 * LINK_MS
