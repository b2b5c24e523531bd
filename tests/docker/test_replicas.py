"""The replicas on a real network: a store that is none of etcd's kind, from its image to the judgement of a history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from containernet_env import measure
from containernet_env.results.histories import histories_of
from containernet_env.runs.verify import judge
from tests.docker.machine_state import left_over, snapshot

pytestmark = pytest.mark.docker


def topology(folder: Path, quorum: int) -> Path:
    nodes = [
        {"ip": f"10.0.0.{number}", "mem": "64m", "cpus": 1, "bandwidth": 1000, "link_delay": "3ms"}
        for number in (1, 2, 3)
    ]
    path = folder / f"replicas-{quorum}.json"
    path.write_text(json.dumps({"store": {"kind": "replicas", "flags": {"ack": quorum, "from": quorum}}, "nodes": nodes}))
    return path


def scenarios(folder: Path) -> Path:
    """Writes and reads of one client, and a mixed load whose coordinator is killed."""
    alone = {"total": 50, "clients": 1, "conns": 1}
    mixed = {"rate": 200, "duration": "6s", "clients": 300, "conns": 100, "timeout": "2s"}
    blocks: list[dict[str, Any]] = [
        {"type": "write", "load": alone, "data": {"keySize": 8, "valSize": 64}, "target": ["leader"]},
        {"type": "read", "load": alone, "target": ["leader"], "consistency": ["l"]},
        {
            "type": "mixed",
            "load": mixed,
            "ratio": 0.5,
            "consistency": "l",
            "history": True,
            "events": [{"at": "1s", "kill": "leader", "for": "2s"}],
        },
    ]
    path = folder / "scenarios.json"
    path.write_text(json.dumps({"dataset": {"keySize": 8, "valSize": 64, "keys": 50}, "scenarios": blocks}))
    return path
