"""Identity of runs and scenarios: hashes of what is configured, after resolution, however it is written."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from containernet_env.model.scenario import Dataset, Scenario
from containernet_env.plan.export import link_values
from containernet_env.plan.plan import Plan

_DIGITS = 12


def config_hash(plan: Plan) -> str:
    """Hash of everything configured but the load: hosts with limits, links, the store's settings, implementations.

    12 hexadecimal digits. Names of files, the run's id and the machine are not part of it.
    """
    hosts = [
        {
            "name": host.name,
            "role": host.role,
            "memory_bytes": host.memory_bytes,
            "cpus": host.cpus,
            "tmpfs": dict(host.tmpfs),
            "tcp": host.tcp_congestion_control,
        }
        for host in plan.hosts
    ]
    choices = [plan.options.engine, plan.links_by, plan.options.switches]
    links = [link_values(link) for link in plan.links]
    return _digest([plan.store.name, hosts, links, dict(plan.timing.values()), choices])


def scenario_hash(scenario: Scenario, dataset: Dataset) -> str:
    """Hash of a scenario and the data set that it may read; 12 hexadecimal digits."""
    return _digest([asdict(scenario), asdict(dataset) if scenario.uses_dataset else None])


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
