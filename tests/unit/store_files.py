"""Topologies of any store as files, the plans of them, and the scenarios that tests of stores ask about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from containernet_env.config.plan import Plan, PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.topologies import load_config
from containernet_env.model.scenario import Scenario

OPTIONS = PlanOptions(machine_cores=2)


def topology(
    folder: Path, store: Any = "etcd", delays: Sequence[str] = ("3ms",) * 3, node: Any = None, **more: Any
) -> Path:
    """Members on links of these delays; ``node`` changes each of them, ``more`` are keys beside them."""
    common = {"mem": "512m", "cpus": 1, "bandwidth": "unlimited"} | (node or {})
    nodes = [{"ip": f"10.0.0.{number}", "link_delay": delay, **common} for number, delay in enumerate(delays, start=1)]
    path = folder / "topology.json"
    path.write_text(json.dumps({"store": store, "nodes": nodes, **more}))
    return path


def planned(folder: Path, store: Any = "etcd", delays: Sequence[str] = ("3ms",) * 3, **more: Any) -> Plan:
    return build_plan(load_config(topology(folder, store, delays, **more)), None, OPTIONS)


def scenario(kind: str, **given: Any) -> Scenario:
    """``kind`` is a type and, of reads, a consistency: "read l"."""
    of_type, _, consistency = kind.partition(" ")
    common: Any = {"name": "s", "total": 10, "clients": 1, "conns": 1, "key_size": 8, "val_size": 64, "key_space": 10}
    return Scenario(**common | {"type": of_type, "consistency": consistency or None} | given)
