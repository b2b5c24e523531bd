"""The key ``store``: which store is measured, in which version, with which flags, or how a service is spoken to of
which only URLs are known (``{"kind": "http", ...}``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from containernet_env.base.programs import ALLOWED, read_program
from containernet_env.config import hints
from containernet_env.config.fields import (
    Chosen,
    FilePath,
    Kind,
    Length,
    StrictModel,
    choice,
    integer,
    mapping,
    refuse,
    rule,
    text,
)
from containernet_env.config.reader import Finding, Location, render
from containernet_env.model.config import HttpService, StoreChoice
from containernet_env.stores.http_service import PLACES, filled_in
from containernet_env.stores.kinds import KINDS
from containernet_env.stores.store import Flag, Store

HTTP = "http"
_BINARY = "the program of yours that its members run, of kinds that need one"
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


# Codes of a file that names none.
WRITTEN, FOUND, DELETED, MISSING = (200, 201, 204), (200,), (200, 202, 204, 404), (404,)
_CODE = {"type": "integer", "minimum": 200, "maximum": 599}
_PATH_SCHEMA = {"type": "string", "maxLength": _TEMPLATE_BYTES}
TEMPLATE = Kind(_parse_template, TEMPLATE_FORM, {**_PATH_SCHEMA, "pattern": r"^/[^#{}]*\{key\}[^#{}]*$"})
HEALTH = Kind(_parse_health, HEALTH_FORM, {**_PATH_SCHEMA, "pattern": "^/[^#{}]*$"})
CODES = Kind(
    _parse_codes,
    CODES_FORM,
    {"anyOf": [_CODE, {"type": "array", "items": _CODE, "minItems": 1, "maxItems": _MAX_CODES}]},
)


def _parse_argument(value: object) -> str:
    fits = isinstance(value, str) and len(value.encode()) <= _ARGUMENT_BYTES and "\0" not in value
    if not fits:
        raise ValueError("is not an argument of a program")
    try:
        filled_in(str(value), PLACES)
    except KeyError as error:
        raise ValueError(f"has braces that are no placeholder: {error.args[0]}") from error
    return str(value)


ARGUMENT = Kind(_parse_argument, ARGUMENT_FORM, {"type": "string", "maxLength": _ARGUMENT_BYTES})
Codes = Annotated[tuple[int, ...], CODES]


class RawSuccess(StrictModel):
    """The status codes by which a service reports success."""

    model_config = ConfigDict(title="Success")

    put_codes: Codes = Field(default=WRITTEN, alias="put", description="of a put (200, 201, 204)")
    get_codes: Codes = Field(default=FOUND, alias="get", description="of a read that finds its key (200)")
    delete_codes: Codes = Field(
        default=DELETED,
        alias="delete",
        description="of a delete, also of a key that is not there (200, 202, 204, 404)",
    )


class RawRequests(StrictModel):
    """The requests of a service of the kind ``http``."""

    kind: Annotated[Literal["http"], choice(HTTP)] = Field(description="which store it is")
    put: Annotated[str, TEMPLATE] = Field(description="where a value is put, by a PUT")
    get: Annotated[str, TEMPLATE] = Field(description="where a value is read, by a GET")
    success: RawSuccess = Field(default=RawSuccess(), description="the status codes by which requests have succeeded")
    missing_codes: Codes = Field(
        default=MISSING, alias="missing", description="the status codes of a read of a key that does not exist (404)"
    )
    health: Annotated[str | None, HEALTH] = Field(
        default=None,
        description="the path of a GET that a member answers by itself; any answer shows that it is not silent",
    )

    @rule
    def _a_code_means_one_thing(self) -> None:
        if both := set(self.missing_codes) & set(self.success.get_codes):
            allowed = f"other codes than {min(both)}, with which a get finds its key"
            refuse("has a code that success.get has, too", allowed, key="missing")

    @property
    def service(self) -> HttpService:
        """The service as a value."""
        names = type(self).model_fields
        own = {item.name: getattr(self, item.name) for item in fields(HttpService) if item.name in names}
        own["arguments"] = tuple(own.get("arguments", ()))
        return HttpService(**{"delete": None, **own, **dict(self.success)})

    @classmethod
    def written(cls, value: HttpService, always: Collection[str] = ()) -> dict[str, Any]:
        """See ``StrictModel``: the codes of success are an object of their own."""
        success = RawSuccess.written(value)
        if value.delete is None:
            del success["delete"]
        return {"kind": HTTP, **super().written(value, always), "success": success}


class RawService(RawRequests):
    """A service that is an external cluster."""

    model_config = ConfigDict(title="Service")

    delete: Annotated[str | None, TEMPLATE] = Field(
        default=None, description="where a key is deleted, by a DELETE, after the run"
    )
    keys: Annotated[Literal["stay"] | None, choice("stay")] = Field(
        default=None, description="that the keys of a run stay, where none can be deleted"
    )

    @rule
    def _it_is_said_what_becomes_of_keys(self) -> None:
        if self.delete is None and self.keys is None:
            message = "is missing, and nothing else says what becomes of the keys of a run"
            refuse(message, '"delete": "/...", or "keys": "stay"', key="delete")
        if self.delete is not None and self.keys is not None:
            refuse("contradicts delete", '"delete": "/...", or "keys": "stay"', key="keys")
        if self.delete is None and "delete_codes" in self.success.model_fields_set:
            refuse("has codes of a delete that is not there", "no success.delete, or a delete", key="success")

    @classmethod
    def written(cls, value: HttpService, always: Collection[str] = ()) -> dict[str, Any]:
        """See ``StrictModel``: keys that no request can delete stay."""
        return super().written(value, always) | ({"keys": "stay"} if value.delete is None else {})


class RawProgram(RawRequests):
    """A service whose members are started here, from a program of the user's."""

    model_config = ConfigDict(title="Program")

    binary: FilePath = Field(default=None, description=_BINARY)
    port: Annotated[int, integer(1, 65_535)] = Field(description="where each member serves clients and other members")
    arguments: Annotated[list[Annotated[str, ARGUMENT]], Length(0, MAX_ARGUMENTS)] = Field(
        default=[], description="the arguments of the program (none)"
    )

    @rule
    def _nothing_is_deleted(self) -> None:
        if "delete_codes" in self.success.model_fields_set:
            refuse("has codes of a delete, and nothing is deleted: the members' data goes with them", "none", "success")


DEFAULT_KIND = next(iter(KINDS))
_FLAGS = {name: {"description": flag.allowed} for kind in KINDS.values() for name, flag in kind.flags.items()}


class RawStore(StrictModel):
    """The store in detail; `store_findings` has what is allowed of its kind."""

    model_config = ConfigDict(title="Store")

    kind: Annotated[str, choice(*KINDS)] = Field(description="which store it is")
    version: Annotated[str | None, text("is not a text", "a version, as a text")] = Field(
        default=None, description="its version (the one that is pinned)"
    )
    flags: Annotated[
        dict[str, Any],
        mapping(
            "is not an object of flags",
            "an object of flags, each with its value",
            {"properties": _FLAGS, "additionalProperties": False},
        ),
    ] = Field(default={}, description="flags that each member is given (none)")
    binary: FilePath = Field(default=None, description=_BINARY)


_Name = Annotated[str, choice(*KINDS)]


def _choose(value: object) -> Any:
    if isinstance(value, dict):
        return RawProgram if value.get("kind") == HTTP else RawStore
    return _Name


StoreValue = Annotated[_Name | RawStore | RawProgram, Chosen(_choose)]


def kind_of(top: Mapping[str, Any]) -> str | None:
    """The kind of store that the raw value of a topology names; ``None`` if that is none of ours."""
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
    """The store of a value for which `store_findings` returns nothing, or of none.

    ``folder`` is that of the file, as in `store_findings`.
    """
    if raw is None or isinstance(raw, str):
        return StoreChoice(raw or DEFAULT_KIND)
    if isinstance(raw, RawProgram):
        assert raw.binary is not None  # `store_findings` has reported it
        return StoreChoice(raw.kind, binary=read_program(folder / raw.binary), service=raw.service)
    kind = KINDS[raw.kind]
    version = None if raw.version is None else str(kind.versions.parse(raw.version))
    flags = tuple((name, kind.flags[name].parse(raw.flags[name])) for name in sorted(raw.flags))
    return StoreChoice(raw.kind, version, flags, None if raw.binary is None else read_program(folder / raw.binary))


def store_findings(top: Mapping[str, Any], folder: Path) -> Iterator[Finding]:
    """Problems of version, flags and program for the kind of store, in the raw value of a topology.

    The path of a program is relative to ``folder``. Its file is read: nothing else identifies the program.
    """
    value, name = top.get("store"), kind_of(top)
    if name is None:
        return  # reported where the value itself is validated
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
        yield Finding(("store", "flags", key), message, allowed=allowed)


def _binary_findings(kind: type[Store], value: object, folder: Path) -> Iterator[Finding]:
    place = ("store", "binary")
    given = value.get("binary") if isinstance(value, dict) else None
    if not isinstance(value, dict):
        if kind.needs_binary:
            more = ', "port": NUMBER, "put": TEMPLATE, "get": TEMPLATE' if kind.name == HTTP else ""
            allowed = f'{{"kind": "{kind.name}", "binary": PATH{more}}}'
            yield Finding(("store",), "has no binary, the program that its members run", allowed=allowed)
    elif not kind.needs_binary:
        if "binary" in value:
            message = f"is not for {kind.name}, whose program is set up here"
            yield Finding(place, message, allowed="no binary", at_key=True)
    elif "binary" not in value:
        yield Finding(place, f"is missing: {kind.name} runs a program of yours", None, ALLOWED)
    elif isinstance(given, str) and given and "\0" not in given:  # others are reported where the value is validated
        try:
            read_program(folder / given)
        except ValueError as error:
            yield Finding(place, str(error), allowed=ALLOWED)


def _refused(flag: Flag, value: object, place: Location) -> Iterator[Finding]:
    try:
        flag.parse(value)
    except ValueError as error:
        yield Finding(place, str(error), allowed=flag.allowed)


def _unknown(kind: type[Store], key: str, place: Location) -> Finding:
    near = hints.closest(key, list(kind.flags))
    meant = f", did you mean {near}?" if near is not None else ""
    message = f"is not a flag that {kind.name} may be given{meant}"
    return Finding(place, message, render(key), ", ".join(kind.flags) or "none", at_key=True)
