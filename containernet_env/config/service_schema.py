"""How a key-value service is spoken to of which only URLs are known: ``{"kind": "http", ...}``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from containernet_env.config.fields import FilePath, checked, choice, integer, refuse
from containernet_env.config.validation import Length, StrictModel, rule
from containernet_env.model.config import HttpService
from containernet_env.stores.http_service import PLACES, filled_in

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
