"""Configs and scenarios as files that the readers take again, and JSON Schemas of all files that users write.

Everything is written out and exact. What follows from the values (an etcd timing from the RTTs, a default queue) is
left out, as in the file it came from.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from containernet_env.base.units import format_duration, format_mbps, format_size
from containernet_env.config.endpoints import RawEndpoints
from containernet_env.config.fields import UNLIMITED
from containernet_env.config.links import FROM_SWITCH, GILBERT_ELLIOTT, TO_SWITCH
from containernet_env.config.meanings import MEANINGS
from containernet_env.config.reader import json_text
from containernet_env.config.scenarios import SCENARIO_FILE
from containernet_env.config.stores import program_values, service_values
from containernet_env.config.sweeps import SWEEP_FILE
from containernet_env.config.topologies import CONFIG, PlainNodeList
from containernet_env.model.config import Config, EtcdSettings, External, Node, StoreChoice
from containernet_env.model.disruption import Disruption
from containernet_env.model.link import DirectionSpec, GilbertElliottLoss, Loss
from containernet_env.model.scenario import REQUEST_TIMEOUT_NS, ZIPF_EXPONENT, Dataset, Scenario, Span
from containernet_env.model.search import Search
from containernet_env.stores.kinds import KINDS


def topology_text(config: Config) -> str:
    """A topology file from which ``config.topologies.load_config`` reads the same config, but for its paths."""
    return file_text(topology_values(config))


def topology_values(config: Config) -> dict[str, Any]:
    """The same as the value of a document: every host with a ``link`` that has each direction apart."""
    if config.external is not None:
        return _endpoints(config.external, config.store)
    return {
        "subnet": str(config.subnet),
        "nodes": [{"name": node.name, **_host(node)} for node in config.nodes],
        "client": _host(config.client),
        **_store(config.store),
        KINDS[config.store.kind].section: _settings(config.etcd),
    }


def _endpoints(external: External, store: StoreChoice) -> dict[str, Any]:
    """Paths are absolute: the file may be written elsewhere."""

    def path(file: Path | None) -> str | None:
        return None if file is None else os.path.abspath(file)

    tls = external.tls
    return _given(
        {
            "endpoints": list(external.urls),
            "store": store.kind if store.service is None else service_values(store.service),
            "tls": tls and _given({"ca": path(tls.ca), "cert": path(tls.cert), "key": path(tls.key)}),
            "user": external.user,
            "password_file": path(external.password_file),
            "token_file": path(external.token_file),
            "prefix": external.prefix,
        }
    )


def scenarios_text(dataset: Dataset, scenarios: Iterable[Scenario]) -> str:
    """A scenario file from which ``config.scenarios.load_scenarios`` reads the same, a block for each scenario."""
    return file_text(scenarios_values(dataset, scenarios))


def scenarios_values(dataset: Dataset, scenarios: Iterable[Scenario]) -> dict[str, Any]:
    """The same as the value of a document: in a block nothing is a list of alternatives."""
    sizes = {"keySize": dataset.key_size, "valSize": dataset.val_size, "keys": dataset.keys}
    prefix = {"keyPrefix": dataset.key_prefix} if dataset.key_prefix else {}
    return {"dataset": {**prefix, **sizes}, "scenarios": [_block(scenario) for scenario in scenarios]}


def file_text(entries: Mapping[str, Any]) -> str:
    """JSON with a line for each entry, and one for each item of a list."""

    def lines(value: Any) -> str:
        if isinstance(value, list):
            return "[\n" + ",\n".join(f"    {json_text(item)}" for item in value) + "\n  ]"
        return json_text(value)

    return "{\n" + ",\n".join(f"  {json_text(key)}: {lines(value)}" for key, value in entries.items()) + "\n}\n"


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _host(node: Node) -> dict[str, Any]:
    return {
        "ip": str(node.ip),
        "mem": UNLIMITED if node.memory_bytes is None else format_size(node.memory_bytes),
        "cpus": UNLIMITED if node.cpus is None else node.cpus,
        "link": {TO_SWITCH: _direction(node.link.a_to_b), FROM_SWITCH: _direction(node.link.b_to_a)},
    }


def _direction(direction: DirectionSpec) -> dict[str, Any]:
    jitter, queue_bytes = direction.jitter, direction.queue_bytes
    return _given(
        {
            "delay": format_duration(direction.delay_ns),
            "bandwidth": UNLIMITED if direction.rate_bps is None else Decimal(format_mbps(direction.rate_bps)),
            "jitter": jitter
            and _given(
                {
                    "distribution": jitter.distribution,
                    "value": format_duration(jitter.ns),
                    "reorder": jitter.reorder,
                    "correlation": jitter.correlation_ns and format_duration(jitter.correlation_ns),
                }
            ),
            "loss": _loss(direction.loss),
            "queue": direction.queue_frames if queue_bytes is None else format_size(queue_bytes),
            "overhead": direction.overhead_bytes or None,
            "uplink": direction.uplink,
            "seed": direction.seed,
        }
    )


def _loss(loss: Loss | None) -> Any:
    if isinstance(loss, GilbertElliottLoss):
        ratios = ("good_to_bad_ratio", "bad_to_good_ratio", "good_loss_ratio", "bad_loss_ratio")
        return {"model": GILBERT_ELLIOTT, **{name: getattr(loss, name) for name in ratios}}
    return None if loss is None else loss.ratio


def _store(choice: StoreChoice) -> dict[str, Any]:
    """Nothing for the default, so that files are as they were before there was another one."""
    if choice == StoreChoice(choice.kind):
        return {} if choice == StoreChoice() else {"store": choice.kind}
    own = {} if choice.service is None else program_values(choice.service)
    given = {
        "kind": choice.kind,
        "version": choice.version,
        "flags": dict(choice.flags) or None,
        **own,
        # Absolute: the file may be written elsewhere.
        "binary": choice.binary and os.path.abspath(choice.binary.path),
    }
    return {"store": _given(given)}


def _settings(settings: EtcdSettings) -> dict[str, Any]:
    return _given(
        {
            "heartbeat_interval": settings.heartbeat_ms and f"{settings.heartbeat_ms}ms",
            "election_timeout": settings.election_ms and f"{settings.election_ms}ms",
            "data": settings.data,
            "leader": settings.leader,
            "tls": settings.tls or None,
        }
    )


def _block(scenario: Scenario) -> dict[str, Any]:
    """A block of one scenario; what is as by default is left out, as it is in the scenario's name."""
    exponent, is_write, reads = scenario.zipf_exponent, scenario.type == "write", scenario.consistency is not None
    default = scenario.default_keys(scenario.keys)
    return _given(
        {
            "type": scenario.type,
            "load": _load(scenario),
            "data": {"keySize": scenario.key_size, "valSize": scenario.val_size} if is_write else None,
            "keySpace": scenario.key_space if is_write and scenario.key_space != default else None,
            "target": scenario.target,
            "keys": scenario.keys if scenario.keys != "sequential" else None,
            "zipfExponent": exponent if exponent != ZIPF_EXPONENT else None,
            "ratio": scenario.put_ratio,
            "consistency": scenario.consistency,
            "verify": False if reads and not scenario.verify else None,
            "history": True if scenario.history else None,
            **_span(scenario.span),
            "events": [_event(event) for event in scenario.events] or None,
        }
    )


def _event(event: Disruption) -> dict[str, Any]:
    times = {"at": event.at_ns, "every": event.every_ns, "for": event.for_ns}
    given = {key: format_duration(time_ns) for key, time_ns in times.items() if time_ns is not None}
    if event.verb in ("link_down", "link_up"):
        return {**given, "link": event.verb.removeprefix("link_"), "of": event.target}
    if event.verb == "delay":
        return {**given, "delay": format_duration(int(event.value or 0)), "of": event.target}
    if event.verb == "rate":
        rate = UNLIMITED if event.value is None else Decimal(format_mbps(int(event.value)))
        return {**given, "rate": rate, "of": event.target}
    if event.verb == "loss":
        return {**given, "loss": event.value, "of": event.target}
    return {**given, event.verb: event.target}


def _span(span: Span) -> dict[str, Any]:
    return {
        "spanKeys": span.keys,
        "prefix": span.prefix,
        "span": None if span.start is None else {"from": span.start, "to": span.end},
        "limit": span.limit,
        "keysOnly": True if span.answer == "keys" else None,
        "countOnly": True if span.answer == "count" else None,
    }


def _load(scenario: Scenario) -> dict[str, Any]:
    warmup, timeout_ns, stall_ns = scenario.warmup, scenario.request_timeout_ns, scenario.stall_timeout_ns
    return _given(
        {
            "total": scenario.total,
            "duration": scenario.duration_ns and format_duration(scenario.duration_ns),
            "rate": scenario.rate,
            "arrival": scenario.arrival if scenario.arrival != "constant" else None,
            "clients": scenario.clients,
            "conns": scenario.conns,
            "warmup": warmup.requests or (format_duration(warmup.length_ns) if warmup.length_ns else None),
            "timeout": format_duration(timeout_ns) if timeout_ns != REQUEST_TIMEOUT_NS else None,
            "stallTimeout": None if stall_ns is None else format_duration(stall_ns),
            "seed": scenario.seed or None,
            "search": scenario.search and _search(scenario.search),
        }
    )


def _search(search: Search) -> dict[str, Any]:
    return {
        **{f"p{item.percentile}": format_duration(item.limit_ns) for item in search.objectives},
        "from": search.low,
        "to": search.high,
        "step": format_duration(search.step_ns),
        "within": search.within,
        "repeats": search.repeats,
    }


_TOPOLOGY: Any = PlainNodeList | CONFIG | RawEndpoints
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_KINDS = {
    "config": (
        TypeAdapter(_TOPOLOGY),
        "containernet-env topology file",
        "A list of nodes, or an object. The file may hold // and /* */ comments.",
    ),
    "scenarios": (
        SCENARIO_FILE,
        "containernet-env scenario file",
        "Blocks whose lists multiply. The file may hold // and /* */ comments.",
    ),
    "sweep": (
        SWEEP_FILE,
        "containernet-env sweep file",
        "A topology and scenarios, and what varies in them. The file may hold // and /* */ comments.",
    ),
}


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``config``, ``scenarios`` or ``sweep`` files."""
    adapter, title, description = _KINDS[kind]
    schema = _tidy(adapter.json_schema(by_alias=True))
    for name, model in {"": schema, **schema.get("$defs", {})}.items():
        for key, value in model.get("properties", {}).items():
            value["description"] = _description(name, key, value)
    return {"$schema": _DIALECT, **schema, "title": title, "description": description}


def _description(model: str, key: str, value: dict[str, Any]) -> str:
    """What a key means, and what is accepted; where one value stands for a list of one, that of the value."""
    meaning = value.pop("meaning", None) or MEANINGS.get(f"{model}.{key}") or MEANINGS[key]
    forms = [kind["description"] for kind in (value, *value.get("anyOf", ())) if "description" in kind]
    return f"{meaning}: {forms[0]}" if forms else meaning


def _tidy(value: Any, is_properties: bool = False) -> Any:
    """Without a title per key, and without defaults that are our own values and not what a file could say."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    tidy = {}
    for key, item in value.items():
        if not is_properties:
            inner_title = key == "title" and "properties" not in value
            own_default = key == "default" and (item in (None, []) or isinstance(item, dict))
            if inner_title or own_default:
                continue
        tidy[key] = _tidy(item, is_properties=key == "properties" and not is_properties)
    return tidy
