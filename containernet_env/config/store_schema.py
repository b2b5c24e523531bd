"""The key ``store`` of a topology: which store is measured, in which version, with which flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue

from containernet_env.base.programs import ALLOWED, read_program
from containernet_env.config import hints
from containernet_env.config.fields import FilePath, checked, choice
from containernet_env.config.positions import Location
from containernet_env.config.reader import Finding, render
from containernet_env.config.service_schema import HTTP, RawProgram
from containernet_env.config.validation import StrictModel
from containernet_env.model.config import StoreChoice
from containernet_env.stores.kinds import KINDS
from containernet_env.stores.store import Flag, Store

DEFAULT_KIND = next(iter(KINDS))
_NAME, _OBJECT, _PROGRAM = "name", "object", "program"
_VERSION_FORM = "a version, as a text"
_FLAGS_FORM = "an object of flags, each with its value"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is not a text")
    return value


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("is not an object of flags")
    return value


def _flags_schema() -> JsonSchemaValue:
    flags = {name: flag.allowed for kind in KINDS.values() for name, flag in kind.flags.items()}
    properties = {name: {"description": allowed} for name, allowed in flags.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False, "description": _FLAGS_FORM}


_KIND = choice(*KINDS)


class RawStore(StrictModel):
    """The store in detail; `store_findings` has what is allowed of its kind."""

    model_config = ConfigDict(title="Store")

    kind: Annotated[str, *_KIND]
    version: Annotated[
        str | None, checked(_text, _VERSION_FORM), WithJsonSchema({"type": "string", "description": _VERSION_FORM})
    ] = None
    flags: Annotated[dict[str, Any], checked(_object, _FLAGS_FORM), WithJsonSchema(_flags_schema())] = Field(default={})
    binary: FilePath = None


def _tag(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == HTTP or isinstance(value, RawProgram):
        return _PROGRAM
    return _OBJECT if isinstance(value, (dict, RawStore)) else _NAME


def store_model(top: Any) -> type[StrictModel]:
    """The model of the object that stands for the store in the raw value of a topology."""
    return RawProgram if _tag(top.get("store")) == _PROGRAM else RawStore


StoreValue = Annotated[
    Annotated[str, *_KIND, Tag(_NAME)] | Annotated[RawStore, Tag(_OBJECT)] | Annotated[RawProgram, Tag(_PROGRAM)],
    Discriminator(_tag),
]
_STORE: TypeAdapter[str | RawStore | RawProgram] = TypeAdapter(StoreValue)


def kind_of(top: Mapping[str, Any]) -> str | None:
    """The kind of store that the raw value of a topology names; ``None`` where that is none of ours."""
    value = top.get("store", DEFAULT_KIND)
    kind = value.get("kind") if isinstance(value, dict) else value
    return kind if isinstance(kind, str) and kind in KINDS else None


def section_of(top: Mapping[str, Any]) -> str:
    """The key of the store's settings in the raw value of a topology; that of the default one for none of ours."""
    return KINDS[kind_of(top) or DEFAULT_KIND].section


def kind_named(raw: str | RawStore | RawProgram | None) -> str:
    """The kind of a value that is valid, or of none."""
    return raw.kind if isinstance(raw, (RawStore, RawProgram)) else raw or DEFAULT_KIND


def store_choice(raw: str | RawStore | RawProgram | None, folder: Path) -> StoreChoice:
    """The store that is meant by a value of which `store_findings` finds nothing wrong, or by none.

    ``folder`` is that of the file, as in `store_findings`.
    """
    if raw is None or isinstance(raw, str):
        return StoreChoice(raw or DEFAULT_KIND)
    if isinstance(raw, RawProgram):
        assert raw.binary is not None  # `store_findings` has told it
        return StoreChoice(raw.kind, binary=read_program(folder / raw.binary), service=raw.service)
    kind = KINDS[raw.kind]
    version = None if raw.version is None else str(kind.versions.parse(raw.version))
    flags = tuple((name, kind.flags[name].parse(raw.flags[name])) for name in sorted(raw.flags))
    return StoreChoice(raw.kind, version, flags, None if raw.binary is None else read_program(folder / raw.binary))


def store_findings(top: Mapping[str, Any], folder: Path) -> Iterator[Finding]:
    """What is wrong with version, flags and program for the kind of store, in the raw value of a topology.

    The path of a program is relative to ``folder``. Its file is read: nothing else tells which program is measured.
    """
    value, name = top.get("store"), kind_of(top)
    if name is None:
        return  # what is wrong then is told where the value itself is validated
    kind = KINDS[name]
    yield from _binary_findings(kind, value, folder)
    if not isinstance(value, dict) or name == HTTP:
        return
    if isinstance(version := value.get("version"), str):
        yield from _refused(kind.versions, version, ("store", "version"))
    flags = value.get("flags")
    if not isinstance(flags, dict):
        return
    good: dict[str, int | str] = {}
    for key, given in flags.items():
        place = ("store", "flags", key)
        if key not in kind.flags:
            yield _unknown(kind, key, place)
            continue
        wrong = [*_refused(kind.flags[key], given, place)]
        yield from wrong
        if not wrong:
            good[key] = kind.flags[key].parse(given)
    if len(good) == len(flags) and (clash := kind.clash(good)) is not None:
        key, message, allowed = clash
        yield Finding(("store", "flags", key), message, render(flags[key]), allowed)


def _binary_findings(kind: type[Store], value: object, folder: Path) -> Iterator[Finding]:
    place = ("store", "binary")
    given = value.get("binary") if isinstance(value, dict) else None
    if not isinstance(value, dict):
        if kind.needs_binary:
            more = ', "port": NUMBER, "put": TEMPLATE, "get": TEMPLATE' if kind.name == HTTP else ""
            allowed = f'{{"kind": "{kind.name}", "binary": PATH{more}}}'
            yield Finding(("store",), "has no binary, the program that its members run", render(value), allowed)
    elif not kind.needs_binary:
        if "binary" in value:
            message = f"is not for {kind.name}, whose program is set up here"
            yield Finding(place, message, render(given), "no binary", at_key=True)
    elif "binary" not in value:
        yield Finding(place, f"is missing: {kind.name} runs a program of yours", None, ALLOWED)
    elif isinstance(given, str) and given and "\0" not in given:  # others are told where the value is validated
        try:
            read_program(folder / given)
        except ValueError as error:
            yield Finding(place, str(error), render(given), ALLOWED)


def _refused(flag: Flag, value: object, place: Location) -> Iterator[Finding]:
    try:
        flag.parse(value)
    except ValueError as error:
        yield Finding(place, str(error), render(value), flag.allowed)


def _unknown(kind: type[Store], key: str, place: Location) -> Finding:
    near = hints.closest(key, list(kind.flags))
    meant = f", did you mean {near}?" if near is not None else ""
    message = f"is not a flag that {kind.name} may be given{meant}"
    return Finding(place, message, render(key), ", ".join(kind.flags) or "none", at_key=True)
