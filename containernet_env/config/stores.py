"""The key ``store``: which store is measured, in which version, with which flags, or how a service is spoken to of
which only URLs are known (``{"kind": "http", ...}``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from containernet_env.base.programs import ALLOWED, read_program
from containernet_env.config.fields import written
from containernet_env.config.reader import render
from containernet_env.model import kinds
from containernet_env.model.config import HttpService, StoreChoice
from containernet_env.model.kinds import Chosen, Form, Kind, Listed, Refused, Section, keyed, refuse, rule, section
from containernet_env.model.names import nearest
from containernet_env.stores.http_service import PLACES, filled_in
from containernet_env.stores.kinds import KINDS

HTTP = "http"
_BINARY = "the program of yours that its members run, of kinds that need one"
KEY_PLACE = "{key}"
# MaxTemplate of benchmark_image/internal/spec/parameters.go; isTemplate and codes of its stores.go.
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
# Codes of a file that names none.
WRITTEN, FOUND, DELETED, MISSING = (200, 201, 204), (200,), (200, 202, 204, 404), (404,)
_SIGNS = '[!"$-z|~]*'
_PATH = f"(?=.{{1,{_TEMPLATE_BYTES}}}$)/{_SIGNS}"
TEMPLATE = kinds.text(f"is not the path of a URL with {KEY_PLACE} once", TEMPLATE_FORM, rf"{_PATH}\{{key\}}{_SIGNS}")
HEALTH = kinds.text("is not the path of a URL without braces", HEALTH_FORM, _PATH)
CODES = Listed(kinds.integer(200, 599), 1, _MAX_CODES, alone=True, unique=True)


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


@section
class RawSuccess(Section):
    """The status codes by which a service reports success."""

    put_codes: tuple[int, ...] = keyed(CODES, "of a put (200, 201, 204)", "put", default=WRITTEN)
    get_codes: tuple[int, ...] = keyed(CODES, "of a read that finds its key (200)", "get", default=FOUND)
    delete_codes: tuple[int, ...] = keyed(
        CODES, "of a delete, also of a key that is not there (200, 202, 204, 404)", "delete", default=DELETED
    )


@section
class RawRequests(Section):
    """The requests of a service of the kind ``http``."""

    kind: str = keyed(kinds.choice(HTTP), "which store it is")
    put: str = keyed(TEMPLATE, "where a value is put, by a PUT")
    get: str = keyed(TEMPLATE, "where a value is read, by a GET")
    success: RawSuccess = keyed(RawSuccess, "the status codes by which requests have succeeded", default=RawSuccess())
    missing_codes: tuple[int, ...] = keyed(
        CODES, "the status codes of a read of a key that does not exist (404)", "missing", default=MISSING
    )
    health: str | None = keyed(
        HEALTH,
        "the path of a GET that a member answers by itself; any answer shows that it is not silent",
        default=None,
    )

    @rule
    def _a_code_means_one_thing(self) -> None:
        if both := set(self.missing_codes) & set(self.success.get_codes):
            allowed = f"other codes than {min(both)}, with which a get finds its key"
            refuse("has a code that success.get has, too", allowed, "missing")

    @property
    def service(self) -> HttpService:
        own = {item.name: getattr(self, item.name) for item in fields(HttpService) if hasattr(self, item.name)}
        codes = {item.name: getattr(self.success, item.name) for item in fields(RawSuccess) if "codes" in item.name}
        return HttpService(**{"delete": None, **own, **codes})


def written_service(kind: type[RawRequests], value: HttpService) -> dict[str, Any]:
    """The object of a file from which the same service is read: the codes of success are an object of their own."""
    success = written(RawSuccess, value)
    if value.delete is None:
        del success["delete"]
    stay = {"keys": "stay"} if kind is RawService and value.delete is None else {}
    return {"kind": HTTP, **written(kind, value), "success": success, **stay}


@section
class RawService(RawRequests):
    """A service that is an external cluster."""

    delete: str | None = keyed(TEMPLATE, "where a key is deleted, by a DELETE, after the run", default=None)
    keys: str | None = keyed(
        kinds.choice("stay"), "that the keys of a run stay, where none can be deleted", default=None
    )

    @rule
    def _it_is_said_what_becomes_of_keys(self) -> None:
        if self.delete is None and self.keys is None:
            message = "is missing, and nothing else says what becomes of the keys of a run"
            refuse(message, '"delete": "/...", or "keys": "stay"', "delete")
        if self.delete is not None and self.keys is not None:
            refuse("contradicts delete", '"delete": "/...", or "keys": "stay"', "keys")
        if self.delete is None and "delete" in self.success.given:
            refuse("has codes of a delete that is not there", "no success.delete, or a delete", "success")


def _refused_binary(raw: RawStore | RawProgram) -> Iterator[Refused]:
    """The program's file is read: nothing else identifies the program."""
    kind = KINDS[raw.kind]
    if kind.needs_binary and "binary" not in raw.given:
        yield Refused(f"is missing: {kind.name} runs a program of yours", ALLOWED, "binary")
    elif not kind.needs_binary and "binary" in raw.given:
        message = f"is not for {kind.name}, whose program is set up here"
        yield Refused(message, "no binary", "binary", at_key=True)
    elif raw.binary is not None:
        try:
            read_program(raw.binary)
        except ValueError as error:
            yield Refused(str(error), ALLOWED, "binary")


@section
class RawProgram(RawRequests):
    """A service whose members are started here, from a program of the user's."""

    binary: Path | None = keyed(kinds.PATH, _BINARY, default=None)
    port: int = keyed(kinds.integer(1, 65_535), "where each member serves clients and other members")
    arguments: tuple[str, ...] = keyed(
        Listed(ARGUMENT, 0, MAX_ARGUMENTS), "the arguments of the program (none)", default=()
    )

    _binary_is_that_of_the_kind = rule(_refused_binary)

    @rule
    def _nothing_is_deleted(self) -> None:
        if "delete" in self.success.given:
            refuse("has codes of a delete, and nothing is deleted: the members' data goes with them", "none", "success")


DEFAULT_KIND = next(iter(KINDS))
_FLAGS = kinds.mapping(
    "is not an object of flags",
    "an object of flags, each with its value",
    {
        "properties": {
            name: {"description": flag.form, **flag.schema}
            for kind in KINDS.values()
            for name, flag in kind.flags.items()
        },
        "additionalProperties": False,
    },
)


@section
class RawStore(Section):
    """The store in detail."""

    kind: str = keyed(kinds.choice(*KINDS), "which store it is")
    version: str | None = keyed(
        kinds.text("is not a text", "a version, as a text"), "its version (the one that is pinned)", default=None
    )
    flags: Mapping[str, Any] | None = keyed(_FLAGS, "flags that each member is given (none)", default=None)
    binary: Path | None = keyed(kinds.PATH, _BINARY, default=None)

    _binary_is_that_of_the_kind = rule(_refused_binary)

    @rule
    def _version_is_known(self) -> None:
        if self.version is not None:
            try:
                KINDS[self.kind].versions.read(self.version)
            except Refused as refused:
                refuse(refused.message, refused.allowed, "version")

    @rule
    def _flags_are_of_the_kind(self) -> Iterator[Refused]:
        kind, good = KINDS[self.kind], {}
        for name, value in (self.flags or {}).items():
            if name not in kind.flags:
                near = nearest(name, kind.flags)
                message = f"is not a flag that {kind.name} may be given{f', did you mean {near}?' if near else ''}"
                yield Refused(message, ", ".join(kind.flags) or "none", ("flags", name), render(name), at_key=True)
                continue
            try:
                good[name] = kind.flags[name].canonical(value)
            except Refused as refused:
                yield refused.below(("flags", name))
        if len(good) == len(self.flags or {}) and (clash := kind.clash(good)) is not None:
            name, message, allowed = clash
            yield Refused(message, allowed, ("flags", name))


_NAME = kinds.choice(*KINDS)


def _choose(value: object) -> Form:
    if isinstance(value, dict):
        return RawProgram if value.get("kind") == HTTP else RawStore
    return _NAME


STORE = Chosen((_NAME, RawStore, RawProgram), _choose)
StoreValue = str | RawStore | RawProgram


def section_of(top: Mapping[str, Any]) -> str:
    """The key of the store's settings in the raw value of a topology; that of the default one for none of ours."""
    value = top.get("store", DEFAULT_KIND)
    kind = value.get("kind") if isinstance(value, dict) else value
    return KINDS[kind if isinstance(kind, str) and kind in KINDS else DEFAULT_KIND].section


def store_choice(raw: StoreValue) -> StoreChoice:
    """The store of a value that is good."""
    if isinstance(raw, str):
        return StoreChoice(raw)
    if isinstance(raw, RawProgram):
        assert raw.binary is not None  # refused otherwise
        return StoreChoice(raw.kind, binary=read_program(raw.binary), service=raw.service)
    kind = KINDS[raw.kind]
    flags = tuple((name, kind.flags[name].canonical(value)) for name, value in sorted((raw.flags or {}).items()))
    return StoreChoice(raw.kind, raw.version, flags, None if raw.binary is None else read_program(raw.binary))
