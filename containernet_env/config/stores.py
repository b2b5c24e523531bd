"""The key ``store``: which store is measured, in which version, with which flags, or how a service is spoken to of
which only URLs are known (``{"kind": "http", ...}``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue

from containernet_env.base.programs import ALLOWED, read_program
from containernet_env.config import hints
from containernet_env.config.fields import FilePath, Length, StrictModel, checked, choice, integer, refuse, rule
from containernet_env.config.reader import Finding, Location, render
from containernet_env.model.config import HttpService, StoreChoice
from containernet_env.stores.http_service import PLACES, filled_in
from containernet_env.stores.kinds import KINDS
from containernet_env.stores.store import Flag, Store

HTTP = "http"
KEY_PLACE = "{key}"
# MaxTemplate of benchmark_image/internal/spec/parameters.go; isTemplate and Codes of its stores.go.
_TEMPLATE_BYTES = 512
_PATH_FORM = f'"/" and at most {_TEMPLATE_BYTES - 1} more visible ASCII characters but "#"'
TEMPLATE_FORM = f"{_PATH_FORM}, with {KEY_PLACE} once"
HEALTH_FORM = f"{_PATH_FORM} and braces"
MAX_ARGUMENTS, _ARGUMENT_BYTES = 100, 4096
ARGUMENT_FORM = (
    f"text of at most {_ARGUMENT_BYTES} bytes, in which {', '.join(PLACES)} stand for what a member has, and {{{{ and "
    "}} for braces"
)
# As many as fit into a parameter of a load: codesParameter of benchmark_image/internal/spec/parameters.go.
_MAX_CODES = 16
CODES_FORM = f"an HTTP status code from 200 to 599, or a list of 1 to {_MAX_CODES} different ones"


def _parse_path(value: object) -> str:
    fits = isinstance(value, str) and 0 < len(value) <= _TEMPLATE_BYTES and value.startswith("/")
    text = str(value)
    if not fits or not all(" " < sign <= "~" and sign != "#" for sign in text):
        raise ValueError("is not the path of a URL")
    return text


def _parse_template(value: object) -> str:
    text = _parse_path(value)
    if text.count(KEY_PLACE) != 1 or set("{}") & set(text.replace(KEY_PLACE, "")):
        raise ValueError(f"does not hold {KEY_PLACE} once")
    return text


def _parse_health(value: object) -> str:
    text = _parse_path(value)
    if set("{}") & set(text):
        raise ValueError("has braces: it is of no key")
    return text


def _parse_codes(value: object) -> tuple[int, ...]:
    listed: list[Any] = value if isinstance(value, list) else [value]
    if not listed or any(isinstance(code, bool) or not isinstance(code, int) for code in listed):
        raise ValueError("is no status code")
    if not all(200 <= code <= 599 for code in listed):
        raise ValueError("has a status code out of range")
    if len(set(listed)) < len(listed):
        raise ValueError("has a status code twice")
    if len(listed) > _MAX_CODES:
        raise ValueError(f"has {len(listed)} status codes")
    return tuple(listed)


def _path_schema(form: str, pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": form, "maxLength": _TEMPLATE_BYTES, "pattern": pattern})


_TEMPLATE_SCHEMA = _path_schema(TEMPLATE_FORM, r"^/[^#{}]*\{key\}[^#{}]*$")


# Codes of a file that names none.
WRITTEN, FOUND, DELETED, MISSING = (200, 201, 204), (200,), (200, 202, 204, 404), (404,)
_CODE = {"type": "integer", "minimum": 200, "maximum": 599}
Template = Annotated[str, checked(_parse_template, TEMPLATE_FORM), _TEMPLATE_SCHEMA]
OptionalTemplate = Annotated[str | None, checked(_parse_template, TEMPLATE_FORM), _TEMPLATE_SCHEMA]
OptionalHealth = Annotated[str | None, checked(_parse_health, HEALTH_FORM), _path_schema(HEALTH_FORM, "^/[^#{}]*$")]
OptionalCodes = Annotated[
    tuple[int, ...] | None,
    checked(_parse_codes, CODES_FORM),
    WithJsonSchema(
        {
            "anyOf": [_CODE, {"type": "array", "items": _CODE, "minItems": 1, "maxItems": _MAX_CODES}],
            "description": CODES_FORM,
        },
    ),
]


def _parse_argument(value: object) -> str:
    fits = isinstance(value, str) and len(value.encode()) <= _ARGUMENT_BYTES and "\0" not in value
    if not fits:
        raise ValueError("is not an argument of a program")
    try:
        filled_in(str(value), PLACES)
    except KeyError as error:
        raise ValueError(f"has braces that are no placeholder: {error.args[0]}") from error
    return str(value)


Argument = Annotated[
    str,
    checked(_parse_argument, ARGUMENT_FORM),
    WithJsonSchema({"type": "string", "maxLength": _ARGUMENT_BYTES, "description": ARGUMENT_FORM}),
]


class RawSuccess(StrictModel):
    """The status codes by which a service says that it has done what it was asked for."""

    model_config = ConfigDict(title="Success")

    put: OptionalCodes = None
    get: OptionalCodes = None
    delete: OptionalCodes = None


class RawRequests(StrictModel):
    """How a service of the kind ``http`` is spoken to."""

    kind: Annotated[Literal["http"], *choice(HTTP)]
    put: Template
    get: Template
    success: RawSuccess = RawSuccess()
    missing: OptionalCodes = None
    health: OptionalHealth = None

    @rule
    def _a_code_means_one_thing(self) -> None:
        if both := set(self.missing or MISSING) & set(self.success.get or FOUND):
            allowed = f"other codes than {min(both)}, with which a get finds its key"
            refuse("has a code that success.get has, too", allowed, key="missing")

    def requests(self, delete: str | None) -> HttpService:
        """What it says."""
        done = self.success
        codes = done.put or WRITTEN, done.get or FOUND, done.delete or DELETED, self.missing or MISSING
        return HttpService(self.put, self.get, delete, *codes, health=self.health)


class RawService(RawRequests):
    """A service that somebody else runs."""

    model_config = ConfigDict(title="Service")

    delete: OptionalTemplate = None
    keys: Annotated[Literal["stay"] | None, *choice("stay")] = None

    @rule
    def _it_is_said_what_becomes_of_keys(self) -> None:
        if self.delete is None and self.keys is None:
            message = "is missing, and nothing else says what becomes of the keys of a run"
            refuse(message, '"delete": "/...", or "keys": "stay"', key="delete")
        if self.delete is not None and self.keys is not None:
            refuse("contradicts delete", '"delete": "/...", or "keys": "stay"', key="keys")
        if self.delete is None and "delete" in self.success.model_fields_set:
            refuse("has codes of a delete that is not there", "no success.delete, or a delete", key="success")

    @property
    def service(self) -> HttpService:
        """What it says."""
        return self.requests(self.delete)


class RawProgram(RawRequests):
    """A service whose members are started here, from a program of the user's."""

    model_config = ConfigDict(title="Program")

    binary: FilePath = None
    port: Annotated[int, *integer(1, 65_535)]
    arguments: Annotated[list[Argument], Length(0, MAX_ARGUMENTS)] = Field(default=[])

    @rule
    def _nothing_is_deleted(self) -> None:
        if "delete" in self.success.model_fields_set:
            refuse("has codes of a delete, and nothing is deleted: the members' data goes with them", "none", "success")

    @property
    def service(self) -> HttpService:
        """What it says."""
        return replace(self.requests(None), port=self.port, arguments=tuple(self.arguments))


def _values(service: HttpService) -> dict[str, Any]:
    success = {"put": service.put_codes, "get": service.get_codes}
    if service.delete is not None:
        success["delete"] = service.delete_codes
    return {
        "kind": HTTP,
        "put": service.put,
        "get": service.get,
        "success": {name: list(codes) for name, codes in success.items()},
        "missing": list(service.missing_codes),
        **({} if service.health is None else {"health": service.health}),
    }


def service_values(service: HttpService) -> dict[str, Any]:
    """The value from which ``RawService`` reads the same."""
    kept = {"keys": "stay"} if service.delete is None else {"delete": service.delete}
    return {**_values(service), **kept}


def program_values(service: HttpService) -> dict[str, Any]:
    """The value from which ``RawProgram`` reads the same, but for its program."""
    return {**_values(service), "port": service.port, "arguments": list(service.arguments)}


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
