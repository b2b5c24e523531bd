"""Blocks of scenario files, valid as they are, and files of them."""

from __future__ import annotations

import json

from containernet_env.config.scenarios import load_scenarios

LOAD = {"total": 10, "clients": 1, "conns": 1}
OPEN = {"rate": 10, "duration": "1s", "clients": 1, "conns": 1}
DATA = {"keySize": 4, "valSize": 64}


def write(tmp_path, value):
    path = tmp_path / "scenarios.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


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
