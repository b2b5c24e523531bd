"""JSON Schemas of the files that users write, made from the models that read them."""

from __future__ import annotations

from typing import Any

from containernet_env.config.meanings import MEANINGS
from containernet_env.config.scenario_schema import SCENARIO_FILE
from containernet_env.config.sweep_schema import SWEEP_FILE
from containernet_env.config.topology_schema import EITHER_FORM

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_KINDS = {
    "config": (
        EITHER_FORM,
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
