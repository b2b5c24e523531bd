"""Costs of requests as runs leave them, and plans, outcomes and a place for the machine's file to test with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import assets
from containernet_env.config.plan import Plan, PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.scenarios import ScenarioSet
from containernet_env.config.topologies import load_config
from containernet_env.model.findings import Finding, Kind
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Dataset, Scenario, ScheduledScenario
from containernet_env.model.usage import Consumers, Consumption, LinkStatistics, Usage
from containernet_env.results import capacity
from containernet_env.results.capacity import CostSample, MachineCosts, MachineKey, SyncSample
from tests.unit.answers import closed_loop
from tests.unit.fakes import write
from tests.unit.manifests import MACHINE

KEY = MachineKey.of(MACHINE)
MEMORY = 24 << 30, 20 << 30
MS = 10**6
WRITE = replace(write("write-100"), clients=100, conns=10)
READ = replace(WRITE, name="read", type="read", consistency="s", target="cluster")


def sample(**changes: Any) -> CostSample:
    """2000 writes/s to the leader of three members; a request takes 3.7 ms of CPU time in all."""
    values: dict[str, Any] = {"at": "2026-01-01T00:00:00.000Z", "kind": "write", "one_member": True, "members": 3}
    values |= {"rate_per_s": 2000, "payload_bytes": 264, "requests": 1000, "clients": 100, "config": "another"}
    values |= {"cluster_ns": 2.5 * MS, "member_ns": 1.0 * MS, "client_ns": 0.6 * MS, "generator_ns": 0.5 * MS}
    values |= {"links_ns": 0.5 * MS, "rest_ns": 0.1 * MS, "frames": 10, "frame_bytes": 125}
    values |= {"busy_ratio": 0.5, "limit": "none"}
    return CostSample(**values | changes)


def plan_of(
    tmp_path: Path,
    *scenarios: Scenario,
    nodes: Sequence[dict[str, Any]] = ({},) * 3,
    client: Any = None,
    **options: Any,
) -> Plan:
    """Three members of 1 CPU, 3 ms from the switch without a bandwidth limit, the client at the switch.

    ``nodes``: what the members have instead; None for what they have not at all.
    """
    base = {"mem": "512m", "cpus": options.pop("cpus", 1), "bandwidth": "unlimited", "link_delay": "3ms"}
    written = [
        {key: value for key, value in ({"ip": f"10.0.0.{number}"} | base | node).items() if value is not None}
        for number, node in enumerate(nodes, 1)
    ]
    config = {"nodes": written, "etcd": {"data": options.pop("data", "disk")}} | ({"client": client} if client else {})
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    scenario_set = ScenarioSet(Path("s.json"), "", Dataset(), scenarios or (WRITE,))
    return build_plan(load_config(path), scenario_set, PlanOptions(**{"machine_cores": 2} | options))


def known(*requests: CostSample, sync_ms: float | None = None) -> MachineCosts:
    syncs = [] if sync_ms is None else [SyncSample(at="", data="disk", median_ns=sync_ms * MS)]
    return MachineCosts(machine=KEY, requests=list(requests), syncs=syncs)


def outcome(*kinds: Kind, scenario: Scenario = WRITE, error: str | None = None, **load: Any) -> ScenarioOutcome:
    """1000 requests and 1000 of warm-up: 400 ms of CPU time of the leader's, 100 ms of each follower's."""
    ok = load.pop("ok", 1000)
    answer = closed_loop(ok=ok, cpu_s=0.05, requests_per_s=500.0, **load)
    answer["warmup"] = {"ok": 1000, "failed": 0, "unknown": 0, "abandoned": 0, "total_s": 1.0}
    direction = {"frames": 10_000, "bytes": 1_000_000}
    used = Consumers(
        members={name: Consumption(cpu_ns=ms * MS) for name, ms in (("a", 100), ("b", 400), ("c", 100))},
        client=Consumption(cpu_ns=120 * MS),
        links=Consumption(cpu_ns=80 * MS),
        driver=Consumption(cpu_ns=20 * MS),
        machine=Consumption(cpu_ns=900 * MS),
    )
    return ScenarioOutcome(
        ScheduledScenario(scenario, 1),
        "2026-01-01T00:00:00.000Z",
        1,
        cluster=1,
        load=LoadResult.from_json(answer),
        network=LinkStatistics({"links": {"a-s1": {"a_to_b": direction, "b_to_a": {"frames": 7, "bytes": 7}}}}),
        machine=Usage(1000 * MS, used),
        findings=tuple(Finding(kind, "invalid", kind) for kind in kinds),
        error=error,
    )


def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this machine's file is from here on."""
    monkeypatch.setattr(assets, "MACHINE", tmp_path / "cache")
    monkeypatch.setattr(assets, "own", lambda: tmp_path / "cache")
    return tmp_path / "cache" / capacity.NAME
