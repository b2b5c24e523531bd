"""A manifest as a run leaves it, of a machine that is none."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from containernet_env.config.plan import Plan, PlanOptions, config_hash, plan_values
from containernet_env.config.planning import build_plan
from containernet_env.config.scenarios import QUICK_SCENARIOS, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.results.run_files import (
    ImageFacts,
    InputFile,
    Inputs,
    LinkFacts,
    MachineFacts,
    Manifest,
    ProgramFacts,
    StoreFacts,
    Virtualisation,
)
from containernet_env.runs.manifest import flags_of, inputs_of, tolerances

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "3node-3ms.json"
PROGRAM = ProgramFacts(
    version="0.1.0", commit="0123456789" * 4, dirty=False, sources="a" * 64, python="3.11.7", go="go1.26.8"
)
MACHINE = MachineFacts(
    cpu_model="Some CPU @ 2.0GHz",
    cores=2,
    memory_bytes=24 << 30,
    architecture="x86_64",
    virtualisation=Virtualisation(
        guest=True, hypervisor=None, vendor="Some Cloud", product="Some Machine", container=None
    ),
    kernel="6.18.1",
    kernel_build="#1 SMP PREEMPT_DYNAMIC",
    clock_source="tsc",
    congestion_control="bbr",
    engine="20.10.24",
    storage_driver="overlay2",
    data_filesystem="ext4 on /dev/vda1",
    cgroup_driver="cgroupfs",
    cgroup_version="1",
    iproute2="iproute2-6.1.0",
    load_average=[0.5, 0.25, 0.1],
    memory_available_bytes=20 << 30,
)
IMAGES = {
    role: ImageFacts(tag=f"containernet-env/{role}:0123456789ab", digest=f"sha256:{digit * 64}")
    for role, digit in (("etcd", "1"), ("benchmark", "2"))
}
LINKS = LinkFacts(
    network="builtin",
    network_version="Mininet 2.3.0.dev6",
    network_commit=None,
    docker_sdk="7.2.0",
    links="emulator",
    switches="emulator",
    link_emulator={"realtime": True, "stamps": "kernel"},
)
STORE = StoreFacts(kind="etcd", version="3.7.3", leader_at_start="etcd1")


def plan_of(config: Path = CONFIG, only: tuple[str, ...] = ("read-*-50x1x1",), repeat: int = 1) -> Plan:
    options = PlanOptions(machine_cores=2, run_id="abc123", only=only, repeat=repeat)
    return build_plan(load_config(config), load_scenarios(QUICK_SCENARIOS), options)


def bare_plan(**options: Any) -> Plan:
    """Of ``CONFIG`` without scenarios."""
    return build_plan(load_config(CONFIG), None, PlanOptions(**{"machine_cores": 2} | options))


def manifest(plan: Plan | None = None, **changes: Any) -> Manifest:
    plan = plan or plan_of()
    topology, scenarios = (
        InputFile(file=name, sha256=hashlib.sha256(text.encode()).hexdigest()) for name, text in inputs_of(plan).items()
    )
    began: dict[str, Any] = {"run_id": "run-1", "began": "2026-01-01T00:00:00.000Z", "began_ns": 1}
    facts = {"program": PROGRAM, "machine": MACHINE, "images": IMAGES, "links": LINKS, "store": STORE}
    values: dict[str, Any] = {
        "command": ["containernet-env", "run"],
        "flags": flags_of(plan.options, None),
        "inputs": Inputs(topology=topology, scenarios=scenarios),
        "config_hash": config_hash(plan),
        "tolerances": tolerances(),
        "plan": plan_values(plan),
        "hosts": {"etcd1": {"limits": {"memory_bytes": 512 << 20}}},
    }
    return Manifest(**began | facts | values | changes)
