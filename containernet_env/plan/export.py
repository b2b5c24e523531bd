"""A plan as JSON values, units in the keys, and the hashes that identify what is configured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from decimal import Decimal
from typing import Any

from containernet_env.base.units import format_number
from containernet_env.model.config import StoreChoice
from containernet_env.model.scenario import Dataset, Load, Scenario, ScheduledScenario
from containernet_env.model.search import Search
from containernet_env.model.topology import Link, RttExpectation
from containernet_env.plan.plan import HostPlan, Plan, PlannedScenario


def plan_values(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values, units in the keys: for the run's record and the snapshot of the tests."""
    return {
        "run_id": plan.run_id,
        "config": {"path": str(plan.config.path), "sha256": plan.config.sha256},
        "scenario_file": plan.scenario_set
        and {"path": str(plan.scenario_set.path), "sha256": plan.scenario_set.sha256},
        "subnet": str(plan.config.subnet),
        "seed": plan.options.seed,
        "clusters": len(plan.cluster_ends),
        "hosts": [_host_dict(host) for host in plan.hosts],
        "switches": [switch.name for switch in plan.switches],
        "links": [link_values(link) for link in plan.links],
        "rtt": [_rtt_dict(pair) for pair in plan.rtt],
        "largest_member_rtt": plan.largest_member_rtt and _rtt_dict(plan.largest_member_rtt),
        plan.store.name: _store_dict(plan),
        "dataset": {
            "key_size_bytes": plan.dataset.key_size,
            "val_size_bytes": plan.dataset.val_size,
            "keys": plan.dataset.keys,
            "key_prefix": plan.dataset.key_prefix,
        },
        "scenarios": [_scenario_dict(planned) for planned in plan.scenarios],
        "estimated_s": round(plan.estimated_s, 1),
        "notes": list(plan.notes),
    }


def _store_dict(plan: Plan) -> dict[str, Any]:
    external = plan.config.external
    if external is not None:
        # Never a password: there is none in a plan. Where files lie is in the inputs of the run.
        return {
            "endpoints": list(external.urls),
            "user": external.user,
            **({"token": True} if external.token_file is not None else {}),
            "client_certificate": external.tls is not None and external.tls.cert is not None,
            "prefix": external.prefix,
        }
    choice = plan.config.store
    return {
        **plan.timing.values(),
        "data": plan.config.etcd.data,
        "leader": plan.config.etcd.leader,
        **({"tls": True} if plan.config.etcd.tls else {}),
        **({"version": choice.version} if choice.version is not None else {}),
        **({"flags": dict(choice.flags)} if choice.flags else {}),
        **({"service": asdict(choice.service)} if choice.service is not None else {}),
        **({"binary_sha256": choice.binary.sha256} if choice.binary is not None else {}),
    }


def _host_dict(host: HostPlan) -> dict[str, Any]:
    return {
        "name": host.name,
        "role": host.image,
        "address": f"{host.ip}/{host.prefix_length}",
        "image": host.image,
        "command": list(host.command),
        "environment": dict(host.environment),
        "tcp_congestion_control": host.tcp_congestion_control,
        "tmpfs": dict(host.tmpfs),
        "memory_bytes": host.memory_bytes,
        "memswap_bytes": host.memswap_bytes,
        "cpus": None if host.cpus is None else float(host.cpus),
        "cpu_period_us": host.cpu_period_us,
        "cpu_quota_us": host.cpu_quota_us,
        "cpuset": list(host.cpuset) or None,
    }


def link_values(link: Link) -> dict[str, Any]:
    """A link as JSON values."""
    return {"name": link.name, "a": link.a, "b": link.b, **asdict(link.spec)}


def _rtt_dict(pair: RttExpectation) -> dict[str, Any]:
    return {
        "a": pair.a,
        "b": pair.b,
        "propagation_ns": pair.propagation_ns,
        "expected_ns": pair.expected_ns,
        "frame_bytes": pair.frame_bytes,
    }


def _search_dict(search: Search) -> dict[str, Any]:
    return {
        "objectives_s": {f"p{item.percentile}": item.limit_ns / 1e9 for item in search.objectives},
        "from_per_s": float(search.low),
        "to_per_s": float(search.high),
        "step_s": search.step_ns / 1e9,
        "within_ratio": float(search.within),
        "repeats": search.repeats,
    }


def _load_dict(load: Load) -> dict[str, Any]:
    values = {item.name: getattr(load, item.name) for item in fields(Load)}
    times = {name: values.pop(name) for name in [*values] if name.endswith("_ns")}
    warmup, rate = values.pop("warmup"), values.pop("rate")
    return {
        **values,
        **{f"{name.removesuffix('_ns')}_s": time_ns and time_ns / 1e9 for name, time_ns in times.items()},
        "rate_per_s": rate and float(rate),
        "arrival": load.arrival if load.is_open else None,
        "search": load.search and _search_dict(load.search),
        "warmup_requests": warmup.requests,
        "warmup_s": warmup.length_ns / 1e9,
    }


def _scenario_dict(planned: PlannedScenario) -> dict[str, Any]:
    scenario: Scenario = planned.scheduled.scenario
    return {
        "name": scenario.name,
        "repetition": planned.scheduled.repetition,
        "type": scenario.type,
        **_load_dict(scenario),
        "key_size_bytes": scenario.key_size,
        "val_size_bytes": scenario.val_size,
        "key_space": scenario.key_space,
        "target": scenario.target,
        "consistency": scenario.consistency,
        "keys": scenario.keys,
        "zipf_exponent": float(scenario.zipf_exponent) if scenario.keys == "zipfian" else None,
        "verify": scenario.verify,
        "history": scenario.history,
        "put_ratio": None if scenario.put_ratio is None else float(scenario.put_ratio),
        "key_prefix": scenario.key_prefix,
        "span": asdict(scenario.span) if scenario.reads else None,
        **({"events": [event.text for event in scenario.events]} if scenario.events else {}),
        "loads_dataset": planned.loads_dataset,
        "estimated_s": round(planned.estimated_s, 1),
    }


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
    options = plan.options
    profile = [{"kinds": options.profile, "member": options.profile_member}] if options.profile else []
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
