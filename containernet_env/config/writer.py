"""Configs and scenarios as files that the readers accept again, and JSON Schemas of all files that users write.

Everything is written out and exact. Derived values (an etcd timing from the RTTs, a default queue) are left out, as in
the source file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter

from containernet_env.config.endpoints import RawEndpoints
from containernet_env.config.reader import json_text
from containernet_env.config.scenarios import SCENARIO_FILE, RawDataset, RawEvent, RawLoad
from containernet_env.config.stores import RawProgram, RawService
from containernet_env.config.sweeps import SWEEP_FILE
from containernet_env.config.topologies import CONFIG, PlainNodeList, RawClient, RawEtcd, RawNamedNode
from containernet_env.model.config import Config, External, StoreChoice
from containernet_env.model.scenario import ZIPF_EXPONENT, Dataset, Scenario, Span
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
        "nodes": [RawNamedNode.written(node) for node in config.nodes],
        "client": RawClient.written(config.client),
        **_store(config.store),
        KINDS[config.store.kind].section: RawEtcd.written(config.etcd, always=("data",)),
    }


def _endpoints(external: External, store: StoreChoice) -> dict[str, Any]:
    return {
        "endpoints": list(external.urls),
        "store": store.kind if store.service is None else RawService.written(store.service),
        **{key: value for key, value in RawEndpoints.written(external).items() if key != "endpoints"},
    }


def scenarios_text(dataset: Dataset, scenarios: Iterable[Scenario]) -> str:
    """A scenario file from which ``config.scenarios.load_scenarios`` reads the same, a block for each scenario."""
    return file_text(scenarios_values(dataset, scenarios))


def scenarios_values(dataset: Dataset, scenarios: Iterable[Scenario]) -> dict[str, Any]:
    """The same as the value of a document: in a block nothing is a list of alternatives."""
    sizes = ("key_size", "val_size", "keys")
    return {
        "dataset": RawDataset.written(dataset, always=sizes),
        "scenarios": [_block(scenario) for scenario in scenarios],
    }


def file_text(entries: Mapping[str, Any]) -> str:
    """JSON with a line for each entry, and one for each item of a list."""

    def lines(value: Any) -> str:
        if isinstance(value, list):
            return "[\n" + ",\n".join(f"    {json_text(item)}" for item in value) + "\n  ]"
        return json_text(value)

    return "{\n" + ",\n".join(f"  {json_text(key)}: {lines(value)}" for key, value in entries.items()) + "\n}\n"


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _store(choice: StoreChoice) -> dict[str, Any]:
    """Nothing for the default, so that files are as they were before there was another one."""
    if choice == StoreChoice(choice.kind):
        return {} if choice == StoreChoice() else {"store": choice.kind}
    own = {} if choice.service is None else RawProgram.written(choice.service)
    given = {
        "kind": choice.kind,
        "version": choice.version,
        "flags": dict(choice.flags) or None,
        **own,
        # Absolute: the file may be written elsewhere.
        "binary": choice.binary and os.path.abspath(choice.binary.path),
    }
    return {"store": _given(given)}


def _block(scenario: Scenario) -> dict[str, Any]:
    """A block of one scenario; defaults are left out, as in the scenario's name."""
    exponent, is_write, reads = scenario.zipf_exponent, scenario.type == "write", scenario.consistency is not None
    default = scenario.default_keys(scenario.keys)
    return _given(
        {
            "type": scenario.type,
            "load": RawLoad.written(scenario),
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
            "events": [RawEvent.written(event) for event in scenario.events] or None,
        }
    )


def _span(span: Span) -> dict[str, Any]:
    return {
        "spanKeys": span.keys,
        "prefix": span.prefix,
        "span": None if span.start is None else {"from": span.start, "to": span.end},
        "limit": span.limit,
        "keysOnly": True if span.answer == "keys" else None,
        "countOnly": True if span.answer == "count" else None,
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
    return {"$schema": _DIALECT, **schema, "title": title, "description": description}


def _tidy(value: Any, is_properties: bool = False) -> Any:
    """With the allowed values after the meaning of a key, but neither titles of keys nor defaults that no file has."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    tidy = {}
    for key, item in value.items():
        if not is_properties:
            inner_title = key == "title" and "properties" not in value
            own_default = key == "default" and (item in (None, []) or isinstance(item, dict))
            if inner_title or own_default or key == "form":
                continue
        tidy[key] = _tidy(item, is_properties=key == "properties" and not is_properties)
    # Also of one value that is short for a list of one.
    forms = [kind["form"] for kind in (value, *value.get("anyOf", ())) if "form" in kind]
    if forms and not is_properties:
        meaning = value.get("description")
        tidy["description"] = f"{meaning}: {forms[0]}" if meaning else forms[0]
        tidy = dict(sorted(tidy.items()))
    return tidy
