"""Identity of runs and scenarios: hashes of what is configured, after resolution, however it is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from containernet_env.base.units import format_number
from containernet_env.model.config import StoreChoice
from containernet_env.model.scenario import Dataset, Scenario, ScheduledScenario
from containernet_env.plan.export import link_values
from containernet_env.plan.plan import Plan

_DIGITS = 12


def config_hash(plan: Plan) -> str:
    """Hash of everything configured but the load: hosts with limits, links, the store's settings, kind of hosts.

    12 hexadecimal digits. Names of files, the run's id and the machine are not part of it, nor is what carries the
    links: ``auto`` leaves that to the machine, so a row has it in a column of its own (``Links``).
    """
    if (external := plan.config.external) is not None:
        # Which CA signs and how long the prefix is makes no other load.
        service = plan.config.store.service
        spoken = [] if service is None else [asdict(service)]
        return _digest([plan.store.name, "external", list(external.urls), external.is_known, *spoken])
    hosts = [
        {
            "name": host.name,
            "role": host.image,
            "memory_bytes": host.memory_bytes,
            "cpus": host.cpus,
            "tmpfs": dict(host.tmpfs),
            "tcp": host.tcp_congestion_control,
        }
        for host in plan.hosts
    ]
    choices = [plan.options.engine, plan.options.switches]
    # Where a value came from is no part of the experiment.
    timing = {name: value for name, value in plan.timing.values().items() if not name.endswith("_from")}
    links = [link_values(link) for link in plan.links]
    # Members are started otherwise, and stopped for each sample.
    profile = [] if plan.options.profile is None else [asdict(plan.options.profile)]
    leader = {} if plan.config.etcd.leader is None else {"leader": plan.config.etcd.leader}
    choice = plan.config.store
    # What is not configured leaves the hash as it was before there was such a key.
    chosen: dict[str, Any] = {"version": choice.version, "flags": dict(choice.flags)}
    if choice.binary is not None:
        chosen["binary"] = choice.binary.sha256
    if choice.service is not None:
        chosen["service"] = asdict(choice.service)
    more = [] if choice == StoreChoice(choice.kind) else [chosen]
    return _digest([plan.store.name, hosts, links, timing | leader, choices, *profile, *more])


def scenario_hash(scenario: Scenario, dataset: Dataset) -> str:
    """Hash of a scenario and the data set that it may read; 12 hexadecimal digits."""
    values = asdict(scenario)
    for name in ("seed", "search", "events", "history"):
        if not values[name]:
            del values[name]  # what is not configured leaves the hash as it was before there was such a key
    return _digest([values, asdict(dataset) if scenario.uses_dataset else None])


def cell_hash(plan: Plan, scheduled: ScheduledScenario) -> str:
    """Hash of everything that is configured of one cell of a sweep: 12 hexadecimal digits.

    It does not depend on repetitions, on seeds that are drawn, nor on how the files are written.
    """
    # Without a core of the link emulator's own, hosts have it too.
    core = [] if plan.options.links_cpu is None else [plan.options.links_cpu]
    return _digest([config_hash(plan), scheduled.identity, plan.options.links, *core])


def _digest(value: Any) -> str:
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _canonical(value: Any) -> Any:
    """The value with each number in one form: 1, 1.0 and 1.00 are the same."""
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return format_number(value)
    return value
