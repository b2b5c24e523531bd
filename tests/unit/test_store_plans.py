"""How members of each store and the client are started: whole command lines, in ``__snapshots__``.

``pytest tests/unit/test_store_plans.py --snapshot-update`` takes new ones.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.config import load_config
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import PlanOptions

NODES = [
    {"ip": f"10.0.0.{number}", "mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": "3ms"} for number in (1, 2, 3)
]
SERVICE = {
    "kind": "http",
    "binary": "/bin/true",
    "arguments": [
        "--listen={ip}:{port}", "--id={index}", "--peers={peers}", "--name={name}", "--data={data}",
        '{{"port":{port}}}', "{{port}}", "{{{port}}}",
    ],
    "port": 8080,
    "put": "/v0/entity?id={key}&ack=2",
    "get": "/v0/entity?id={key}&from=2",
}  # fmt: skip
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "etcd": {},
    "etcd with TLS": {"etcd": {"tls": True}},
    "zookeeper": {"store": "zookeeper"},
    "zookeeper with flags": {
        "store": {"kind": "zookeeper", "flags": {"snapCount": 1000, "forceSync": "no", "preAllocSize": 1024}}
    },
    "consul": {"store": "consul"},
    "consul with flags": {
        "store": {
            "kind": "consul",
            "flags": {"raft_logstore": "wal", "raft_snapshot_threshold": 1000, "raft_trailing_logs": 500},
        }
    },
    "replicas": {"store": "replicas"},
    "replicas with quorums": {"store": {"kind": "replicas", "flags": {"ack": 2, "from": 1}}},
    "a service": {"store": SERVICE},
}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_members_and_client_are_started_so(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = tmp_path / "topology.json"
    path.write_text(json.dumps({"nodes": NODES, **TOPOLOGIES[name]}))
    plan = build_plan(load_config(path), None, PlanOptions(machine_cores=2))
    first, second, _, client = plan.hosts
    shown = {
        host.name: {
            "command": list(host.command),
            "environment": dict(host.environment),
            "image": host.image,
            "data": list(host.data),
            "tmpfs": dict(host.tmpfs),
        }
        for host in (first, second, client)
    }
    loads = {key: value for key, value in asdict(plan.store.load_terms).items() if value}
    assert {**shown, "loads": loads, "timing": dict(plan.timing.values())} == snapshot
