"""Blocks of scenario files, valid as they are, files of them, and plans of files."""

from __future__ import annotations

import json
from pathlib import Path

from containernet_env.config.plan import PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config

LOAD = {"total": 10, "clients": 1, "conns": 1}
OPEN = {"rate": 10, "duration": "1s", "clients": 1, "conns": 1}
DATA = {"keySize": 4, "valSize": 64}


def write(tmp_path, value, name="scenarios.json"):
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def planned(folder, topology, *blocks, dataset=None, **options):
    """The plan of a topology, a value or its file, and of a scenario file with these blocks."""
    config = load_config(topology if isinstance(topology, Path) else write(folder, topology, "topology.json"))
    loads = write(folder, {"scenarios": blocks} | ({"dataset": dataset} if dataset else {}))
    return build_plan(config, load_scenarios(loads), PlanOptions(**{"machine_cores": 2} | options))


def writes(**changes):
    return {"type": "write", "load": LOAD, "data": DATA, "target": "leader"} | changes


def reads(**changes):
    return {"type": "read", "load": LOAD, "consistency": "l"} | changes


def mixed(**changes):
    return {"type": "mixed", "load": LOAD, "ratio": 0.5, "consistency": "l"} | changes


def txns(**changes):
    return {"type": "txn", "load": LOAD} | changes


def names_of(tmp_path, *blocks):
    return [scenario.name for scenario in load_scenarios(write(tmp_path, {"scenarios": blocks})).scenarios]
