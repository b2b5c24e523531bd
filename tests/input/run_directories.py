"""A run directory as a run leaves it, to be changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from containernet_env.config.topologies import load_config
from containernet_env.plan.build import build_plan
from containernet_env.plan.export import plan_values
from containernet_env.plan.plan import PlanOptions

_CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def _plan() -> Any:
    plan = build_plan(load_config(_CONFIGS / "2node.json"), None, PlanOptions(machine_cores=2))
    return json.loads(json.dumps(plan_values(plan)))


_SCENARIO = {
    "schema": 1,
    "scenario": "write-1000x1x1",
    "repetition": 2,
    "identity": "0123456789ab",
    "began": "2026-01-01T00:00:00.000Z",
    "began_ns": 5,
    "seconds": 1.25,
    "leader": "etcd1",
    "error": None,
    "findings": [{"kind": "late", "effect": "invalid", "text": "frames were late", "value": 2e6, "limit": 1e6}],
    "load": {
        "ok": 10,
        "failed": 1,
        "requests_per_s": 1234.5,
        "response_time": {"percentiles_s": {"50": 0.01, "99": 0.02}},
    },
    "network": {"links": []},
    "machine": {"window_ns": 1_250_000_000, "used": {"members": {"etcd1": {"cpu_ns": 5}}, "machine": {"steal_ns": 7}}},
    "store": {"members": {"etcd1": {"leader_changes": 1, "warnings": {"slow fdatasync": 2}}}},
}
FILES: dict[str, Any] = {
    "manifest.json": {
        "schema": 1,
        "run_id": "run-1",
        "began": "2026-01-01T00:00:00.000Z",
        "began_ns": 1,
        "program": {"version": "1.0", "commit": None},
        "command": ["containernet-env", "run"],
        "config_hash": "0123456789ab",
        "plan": _plan(),
        "machine": {"cores": 2, "cpu_model": "X", "kernel": "6.1"},
        "images": {"etcd": "sha256:0"},
        "links": {"links": "emulator", "network": "builtin", "network_version": "1"},
        "hosts": {"etcd1": {"memory_bytes": 1}},
        "store": {"kind": "etcd", "version": "3.7", "leader_at_start": "etcd1"},
    },
    "network.json": {
        "schema": 1,
        "run_id": "run-1",
        "proofs": [
            {
                "at": "2026-01-01T00:00:00.000Z",
                "at_ns": 1,
                "passed": True,
                "problems": ["a problem"],
                "unproved": [],
                "pairs": [
                    {"a": "etcd1", "b": "etcd2", "expected_ns": 10, "measured_ns": 20, "samples_ns": [1, 2]},
                    {"a": "etcd1", "b": "client", "expected_ns": 10, "measured_ns": None, "samples_ns": []},
                ],
            }
        ],
    },
    "scenarios.jsonl": _SCENARIO,
    "events.jsonl": {
        "schema": 1,
        "at": "2026-01-01T00:00:00.000Z",
        "at_ns": 7,
        "kind": "run_began",
        "text": "run run-1",
        "subject": None,
    },
}
"""The files, by name; of those of lines, one line."""
