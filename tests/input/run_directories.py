"""A run directory as a run leaves it, to be changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from containernet_env.runs.manifest import inputs_of
from tests.unit.manifests import manifest, plan_of

_CONFIGS = Path(__file__).resolve().parents[2] / "configs"
_PLAN = plan_of(_CONFIGS / "2node.json")
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
    "manifest.json": json.loads(manifest(_PLAN).model_dump_json(by_alias=True)),
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

INPUTS: dict[str, Any] = {name: json.loads(text) for name, text in inputs_of(_PLAN).items()}
"""The files of the folder ``inputs``, which only `rerun` reads."""

CHECKSUMS = "".join(f"{'0' * 64}  {name}\n" for name in (*FILES, *INPUTS))
"""The lines of checksums.sha256."""
