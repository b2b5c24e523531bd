"""Configs and scenarios as files that the readers accept again, and JSON Schemas of all files that users write.

Everything is written out and exact. Derived values (an etcd timing from the RTTs, a default queue) are left out, as in
the source file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from containernet_env.config.endpoints import RawEndpoints
from containernet_env.config.fields import json_schema, written
from containernet_env.config.reader import json_text
from containernet_env.config.scenarios import BLOCKS, RawLoad, RawScenarios, RawSender, written_event
from containernet_env.config.sites import written_places
from containernet_env.config.stores import RawProgram, RawService, written_service
from containernet_env.config.sweeps import RawSweep
from containernet_env.config.topologies import LIST_FORM, OBJECT_FORM, RawClient, RawNamedClient, RawNode
from containernet_env.model.config import Config, EtcdSettings, External, Node, StoreChoice
from containernet_env.model.kinds import CLIENT_NAME, Form
from containernet_env.model.scenario import Dataset, Scenario, Span
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
        "nodes": [written(RawNode, node) for node in config.nodes],
        **_clients(config.clients),
        **written_places(config),
        **({"dilation": config.dilation} if config.dilation > 1 else {}),
        **_store(config.store),
        KINDS[config.store.kind].section: written(EtcdSettings, config.etcd, ("data",)),
    }


def _clients(clients: Sequence[Node]) -> dict[str, Any]:
    """The usual one, or a list of those that have names."""
    if clients[0].name == CLIENT_NAME:
        return {"client": written(RawClient, clients[0])}
    return {"clients": [written(RawNamedClient, client) for client in clients]}


def _endpoints(external: External, store: StoreChoice) -> dict[str, Any]:
    return {
        "endpoints": list(external.urls),
        "store": store.kind if store.service is None else written_service(RawService, store.service),
        **{key: value for key, value in written(RawEndpoints, external).items() if key != "endpoints"},
    }


def scenarios_text(dataset: Dataset, scenarios: Iterable[Scenario]) -> str:
    """A scenario file from which ``config.scenarios.load_scenarios`` reads the same, a block for each scenario."""
    return file_text(scenarios_values(dataset, scenarios))


def scenarios_values(dataset: Dataset, scenarios: Iterable[Scenario]) -> dict[str, Any]:
    """The same as the value of a document: in a block nothing is a list of alternatives."""
    sizes = ("key_size", "val_size", "keys")
    return {"dataset": written(Dataset, dataset, sizes), "scenarios": [_block(scenario) for scenario in scenarios]}


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
    own = {} if choice.service is None else written_service(RawProgram, choice.service)
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
    is_write, is_usual = scenario.type == "write", scenario.key_space == scenario.default_keys(scenario.keys)
    return _given(
        {
            **written(BLOCKS[scenario.type], scenario, ("target",)),
            "load": written(RawLoad, scenario),
            "data": {"keySize": scenario.key_size, "valSize": scenario.val_size} if is_write else None,
            "keySpace": scenario.key_space if is_write and not is_usual else None,
            "verify": False if scenario.reads and not scenario.verify else None,
            **_span(scenario.span),
            "clients": {sender.who: written(RawSender, sender) for sender in scenario.senders} or None,
            "events": [*map(written_event, scenario.events)] or None,
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


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_KINDS: dict[str, tuple[tuple[Form, ...], str, str]] = {
    "config": (
        (LIST_FORM, OBJECT_FORM, RawEndpoints),
        "containernet-env topology file",
        "A list of nodes, or an object. The file may hold // and /* */ comments.",
    ),
    "scenarios": (
        (RawScenarios,),
        "containernet-env scenario file",
        "Blocks whose lists multiply. The file may hold // and /* */ comments.",
    ),
    "sweep": (
        (RawSweep,),
        "containernet-env sweep file",
        "A topology and scenarios, and what varies in them. The file may hold // and /* */ comments.",
    ),
}


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``config``, ``scenarios`` or ``sweep`` files."""
    forms, title, description = _KINDS[kind]
    return {"$schema": _DIALECT, **json_schema(*forms), "title": title, "description": description}
