"""Runs pydantic models over a document and turns every error into a finding with its place in the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from containernet_env.config.reader import Document, Finding, Location, render, unknown_key, value_at

T = TypeVar("T")


class StrictModel(BaseModel):
    """An object of a file: its keys are the fields' aliases, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    @classmethod
    def known_keys(cls) -> list[str]:
        """The keys in the order in which they are documented."""
        return [field.alias or name for name, field in cls.model_fields.items()]


@dataclass(frozen=True, slots=True)
class Validated(Generic[T]):
    """The value of a document, or ``None`` and what is wrong with it."""

    value: T | None
    findings: list[Finding]


def validate(
    adapter: TypeAdapter[T], document: Document, model_at: Callable[[Location], type[StrictModel]]
) -> Validated[T]:
    """Check a document. ``model_at`` names the model of the object at a location, whose keys are known."""
    try:
        return Validated(adapter.validate_python(document.value), [])
    except ValidationError as error:
        return Validated(None, [_finding(item, document, model_at) for item in error.errors(include_url=False)])


def _finding(details: Any, document: Document, model_at: Callable[[Location], type[StrictModel]]) -> Finding:
    kind = details["type"]
    # A model's verdict may be on one of its keys.
    key = details["ctx"].get("key") if kind == "refused" else None
    location = _in_document(details["loc"] if key is None else (*details["loc"], key), document.value)
    got = None
    if kind != "missing":
        try:
            got = render(value_at(document.value, location))
        except KeyError:
            got = render(details["input"])
    if kind == "missing":
        field = model_at(location[:-1])
        return Finding(location, "is missing", allowed=_allowed(field, str(location[-1])))
    if kind == "extra_forbidden":
        return unknown_key(location, render(details["input"]), model_at(location[:-1]).known_keys())
    if kind == "refused":
        context = details["ctx"]
        if key is not None:
            got = _got(document, location)
        return Finding(location, context["message"], got, context["allowed"])
    if kind == "union_tag_not_found":
        return Finding((*location, "type"), "is missing", allowed=_allowed(model_at(location), "type"))
    if kind == "union_tag_invalid":
        tag = render(details["input"]["type"])
        return Finding((*location, "type"), "is not one of the choices", tag, _allowed(model_at(location), "type"))
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return Finding(
            location,
            "is not an object",
            got,
            f"an object with the keys {', '.join(model_at(location).known_keys())}",
        )
    if kind == "list_type":
        return Finding(location, "is not a list", got, "a list")
    if kind in ("too_short", "too_long"):
        low, high = details["ctx"].get("min_length"), details["ctx"].get("max_length")
        count = details["ctx"]["actual_length"]
        bound = f"at least {low}" if low is not None else f"at most {high}"
        return Finding(location, "is too short" if kind == "too_short" else "is too long", f"{count} entries", bound)
    return Finding(location, details["msg"], got)


def _got(document: Document, location: Location) -> str | None:
    """What stands there; None where nothing does, which is what is wrong with it then."""
    try:
        return render(value_at(document.value, location))
    except KeyError:
        return None


def _in_document(loc: tuple[int | str, ...], value: Any) -> Location:
    """Where the file has what pydantic names.

    A single value that stands for a list of one has no index in the file, and the tag that chose between models (or
    between a model and a plain value) is no key of it.
    """
    location: list[str | int] = []
    for depth, step in enumerate(loc):
        if isinstance(step, int) and not isinstance(value, list):
            continue
        if isinstance(step, str) and isinstance(value, dict) and step not in value and depth + 1 < len(loc):
            continue
        if isinstance(step, str) and not isinstance(value, dict | list):
            continue
        location.append(step)
        try:
            value = value_at(value, (step,))
        except KeyError:
            value = None
    return tuple(location)


def _allowed(model: type[StrictModel], key: str) -> str | None:
    schema = model.model_json_schema(by_alias=True)["properties"].get(key, {})
    # Where one value stands for a list of one, the value's own description comes first.
    described = (schema, *schema.get("anyOf", ()))
    return next((kind["description"] for kind in described if "description" in kind), None)
