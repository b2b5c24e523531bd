"""Runs pydantic models over a document and turns every error into a finding with its place in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from containernet_env.config.fields import refuse
from containernet_env.config.hints import closest_key
from containernet_env.config.positions import Location
from containernet_env.config.reader import Document, Finding, render, value_at

T = TypeVar("T")


class _Unknown(Exception):
    """A rule asked for the value of a key that is itself refused or missing."""


def rule(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Mark a method of a `StrictModel` that refuses what its keys say together.

    Each rule is asked, whatever the others said and whatever else is wrong with the object: one that needs the value
    of a key that is not good is left out.
    """
    check.is_rule = True  # type: ignore[attr-defined]
    return check


class StrictModel(BaseModel):
    """An object of a file: its keys are the fields' aliases, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    @classmethod
    def known_keys(cls) -> list[str]:
        """The keys in the order in which they are documented."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @model_validator(mode="wrap")
    @classmethod
    def _ask_rules(cls, raw: Any, validated: Callable[[Any], Any]) -> Any:
        errors: list[InitErrorDetails] = []
        made = None
        try:
            made = asked = validated(raw)
        except ValidationError as error:
            if not isinstance(raw, dict):
                raise
            errors = _details(error)
            asked = cls._as_far_as_good(raw, {step for details in errors for step in details["loc"][:1]})
        for check in _rules_of(cls):
            try:
                check(asked)
            except PydanticCustomError as refusal:
                errors.append(InitErrorDetails(type=refusal, input=raw))
            except _Unknown:
                continue
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return made

    @classmethod
    def _as_far_as_good(cls, raw: dict[str, Any], bad: set[str | int]) -> Any:
        """The model without the fields that are refused or missing: to ask for one of them raises `_Unknown`."""
        keys = {field.alias or name: name for name, field in cls.model_fields.items()}
        good = {key: _field(cls, name).validate_python(raw[key]) for key, name in keys.items() if key in {*raw} - bad}
        given = {name for key, name in keys.items() if key in raw}
        made = cls.model_construct(given, **good)
        for key in bad & {*keys}:
            made.__dict__.pop(keys[str(key)], None)
        return made

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                raise _Unknown(name)
            return super().__getattr__(name)


@cache
def _rules_of(model: type[StrictModel]) -> list[Callable[[Any], None]]:
    return [item for kind in model.__mro__ for item in vars(kind).values() if getattr(item, "is_rule", False)]


@cache
def _field(model: type[StrictModel], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(annotation_of(model.model_fields[name]))


def annotation_of(field: FieldInfo) -> Any:
    """The type of a field with all that marks it, as it is written in a model."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def _details(error: ValidationError) -> list[InitErrorDetails]:
    """The errors, to be raised again together with others."""
    again = []
    for item in error.errors(include_url=False):
        kind, context = item["type"], item.get("ctx", {})
        refusal = PydanticCustomError("refused", "{message}", context) if kind == "refused" else kind
        again.append(InitErrorDetails(type=refusal, loc=item["loc"], input=item["input"], ctx=context))
    return again


@dataclass(frozen=True)
class Length:
    """How many entries a list has; problems of the entries themselves are reported in any case.

    ``instead``: what to do with more of them.
    """

    low: int
    high: int
    instead: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "minItems": self.low, "maxItems": self.high}

    def _validate(self, value: Any, entries: Callable[[Any], Any]) -> Any:
        if not isinstance(value, list) or self.low <= len(value) <= self.high:
            return entries(value)
        try:
            if len(value) < self.low:
                refuse("is too short", f"at least {self.low}", got=f"{len(value)} entries")
            refuse("is too long", f"at most {self.high}{self.instead}", got=f"{len(value)} entries")
        except PydanticCustomError as refusal:
            errors = [InitErrorDetails(type=refusal, input=value)]
        try:
            entries(value[: self.high])
        except ValidationError as error:
            errors.extend(_details(error))
        raise ValidationError.from_exception_data("list", errors)


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
        errors = _without_tags(error, model_at)
        return Validated(None, [_finding(item, document, model_at) for item in errors])


def as_far_as_good(adapter: TypeAdapter[T], value: Any) -> T | None:
    """A part of a document by itself; ``None`` where something is wrong with it, which `validate` tells."""
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None


def _without_tags(error: ValidationError, model_at: Callable[[Location], type[StrictModel]]) -> Iterator[Any]:
    """The errors; an object that does not say of which kind it is has those of the model for any kind."""
    for item in error.errors(include_url=False):
        if item["type"] not in ("union_tag_invalid", "union_tag_not_found"):
            yield item
            continue
        try:
            model_at(item["loc"]).model_validate(item["input"])
        except ValidationError as inner:
            yield from ({**found, "loc": (*item["loc"], *found["loc"])} for found in inner.errors(include_url=False))


def _finding(details: Any, document: Document, model_at: Callable[[Location], type[StrictModel]]) -> Finding:
    kind, context = details["type"], details.get("ctx", {})
    # A model's verdict may be on one of its keys.
    key = context.get("key") if kind == "refused" else None
    location = _in_document(details["loc"] if key is None else (*details["loc"], key), document.value)
    if kind == "missing":
        return Finding(location, "is missing", allowed=_allowed(model_at(location[:-1]), str(location[-1])))
    if kind == "extra_forbidden":
        return _unknown_key(location, render(details["input"]), model_at(location[:-1]).known_keys())
    got = _got(document, location)
    if kind == "refused":
        return Finding(location, context["message"], context.get("got", got), context["allowed"])
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        keys = ", ".join(model_at(location).known_keys())
        return Finding(location, "is not an object", got, f"an object with the keys {keys}")
    if kind == "list_type":
        return Finding(location, "is not a list", got, "a list")
    return Finding(location, details["msg"], got)


def _unknown_key(location: Location, got: str, known: list[str]) -> Finding:
    meant = closest_key(str(location[-1]), known)
    hint = f", did you mean {meant}?" if meant else ""
    return Finding(location, f"is not a known key{hint}", got, f"the keys {', '.join(known)}", at_key=True)


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
        if isinstance(step, str) and not isinstance(value, dict):
            continue
        location.append(step)
        try:
            value = value_at(value, (step,))
        except KeyError:
            value = None
    return tuple(location)


@cache
def _allowed(model: type[StrictModel], key: str) -> str | None:
    whole = model.model_json_schema(by_alias=True)
    schema = whole["properties"].get(key, {})
    # Where one value stands for a list of one, the value's own description comes first.
    kinds = (schema, *schema.get("anyOf", ()))
    described = (kind["description"] for kind in kinds if "description" in kind)
    return next(described, None) or next(filter(None, (_form(kind, whole.get("$defs", {})) for kind in kinds)), None)


def _form(schema: dict[str, Any], models: dict[str, Any]) -> str | None:
    """An object or a list, by its JSON Schema."""
    if "$ref" in schema:
        return f"an object with the keys {', '.join(models[schema['$ref'].rpartition('/')[2]]['properties'])}"
    if schema.get("type") == "array":
        return f"a list of {schema['minItems']} to {schema['maxItems']} entries"
    return None
