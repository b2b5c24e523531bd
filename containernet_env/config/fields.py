"""The kinds of values and objects in files: parsed, bounded, described for the JSON Schema, written again.

A field of a pydantic model names a key of a file (its alias), an attribute of the value that is made of it (its name),
its `Kind` and, as its description, its meaning. Each object is a `StrictModel`; `validate` turns every error into a
finding with its place in the file, and ``written`` makes an object of a file again.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NoReturn, TypeGuard, TypeVar, get_args, get_origin

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

from containernet_env.base.units import (
    describe_size,
    format_duration,
    format_mbps,
    format_number,
    format_size,
    parse_bandwidth,
    parse_cpus,
    parse_duration,
    parse_number,
    parse_size,
)
from containernet_env.config import hints
from containernet_env.config.reader import Document, Finding, Location
from containernet_env.model.config import CLIENT_NAME, DataStore
from containernet_env.stores.etcd.store import ELECTION_MAX_MS, ELECTION_PER_HEARTBEAT, HEARTBEAT_MAX_MS

T = TypeVar("T")
LEFT_OUT: Any = None
"""The default of a key whose value cannot be null in a file."""

UNLIMITED = "unlimited"
MAX_NODES = 100

DELAY_MAX_NS = 10 * 10**9
RATE_MIN_BPS = 10_000  # 0.01 Mbit/s
RATE_MAX_BPS = 100_000 * 10**6
# 0.01 cpu is a quota of 1 ms in a period of 100 ms, the smallest that the kernel takes (min_cfs_quota_period,
# kernel/sched/core.c).
CPUS_MIN = Decimal("0.01")
CPUS_MAX = Decimal(1024)
# Below this neither etcd nor the benchmark gets as far as its own start: an idle member holds about 25 MiB.
MEMORY_MIN_BYTES = 16 << 20
MEMORY_MAX_BYTES = 1 << 44
PREFIX_MIN, PREFIX_MAX = 8, 30

NAME_PATTERN = "[a-z][a-z0-9-]{0,62}"
NUMBER_PATTERN = "[0-9]{1,15}(\\.[0-9]{1,12})?"
# The run's own names for nodes, and the commands of the shell, which would hide a node of that name.
RESERVED_NAMES = frozenset(
    f"{CLIENT_NAME} client s1 c0 delay dpctl dump exit gterm heal help intfs iperf iperfudp link links loss net nodes "
    "noecho partition pingall pingallfull pingpair pingpairfull ports px py quit rate sh source switch time wait x "
    "xterm".split()
)
_DOTTED_QUAD = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}", re.ASCII)
_NAME = re.compile(NAME_PATTERN)


# --- kinds of value ---------------------------------------------------------------------------------------------------

Quantity = Literal["count", "number", "duration", "milliseconds", "size"]
"""The quantity of a value, if one can be a ratio of another."""


def refuse(
    message: str, allowed: str | None, key: str | None = None, got: str | None = None, at_key: bool = False
) -> NoReturn:
    """Refuse the value that is being validated, or the value of that ``key`` in it; ``got`` describes it otherwise.

    ``at_key``: the key is wrong, not its value.
    """
    context = {"message": message, "allowed": allowed, "key": key, "got": got, "at_key": at_key}
    raise PydanticCustomError("refused", "{message}", context)


@dataclass(frozen=True, eq=False)
class Kind:
    """The form of one kind of value in a file; marks the type of a field: ``Annotated[int, Kind(...)]``.

    ``parse`` converts a file's value, or raises ``ValueError`` with its problem. ``form`` describes the allowed values,
    and ``schema`` the same as a JSON Schema. ``near`` (see `hints`) returns suggestions for a refused value. ``write``
    converts a value to its form in a file.
    """

    parse: Callable[[object], Any]
    form: str
    schema: Mapping[str, Any]
    near: Callable[[object], Iterable[object]] | None = None
    write: Callable[[Any], Any] | None = None
    quantity: Quantity | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**self.schema, "form": self.form}

    def _validate(self, value: object) -> Any:
        try:
            return self.parse(value)
        except ValueError as error:
            hint = "" if self.near is None else hints.advice(value, self.near(value), self.parse)
            refuse(f"{error}{hint}", self.form)


def text_schema(pattern: str) -> dict[str, Any]:
    """The JSON Schema of a text that matches a pattern as a whole."""
    return {"type": "string", "pattern": f"^{pattern}$"}


_DURATION_SCHEMA = text_schema(f"{NUMBER_PATTERN}(s|ms|us|ns)")


def bounded(
    parse: Callable[[object], Any],
    low: Any,
    high: Any,
    form: str,
    what: str,
    schema: Mapping[str, Any],
    near: Callable[[object], Iterable[object]],
    quantity: Quantity,
    write: Callable[[Any], Any] | None = None,
    unlimited: bool = False,
) -> Kind:
    """The kind of a quantity from ``low`` to ``high``; with ``unlimited``, ``None`` is no limit."""

    def accept(value: object) -> Any:
        if unlimited and value == UNLIMITED:
            return None
        if str(value).startswith("-"):
            raise ValueError("is negative")
        try:
            parsed = parse(value)
        except ValueError as error:
            raise ValueError(f"is not {what}") from error
        if not low <= parsed <= high:
            raise ValueError("is out of range")
        return parsed

    def meant(value: object) -> Iterator[object]:
        yield from hints.unlimited(value)
        yield from near(value)

    def limit(value: Any) -> Any:
        return UNLIMITED if value is None else write(value) if write is not None else value

    if unlimited:
        return Kind(accept, f'{form}, or "{UNLIMITED}"', schema, meant, limit, quantity)
    return Kind(accept, form, schema, near, write, quantity)


def _parse_integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number")
    return value


def integer(low: int, high: int) -> Kind:
    """A whole number from ``low`` to ``high``."""
    form, schema = f"a whole number from {low} to {high}", {"type": "integer", "minimum": low, "maximum": high}
    return bounded(_parse_integer, low, high, form, "a whole number", schema, hints.numbers, "count")


def decimal(low: Decimal, high: Decimal) -> Kind:
    """A number from ``low`` to ``high``."""
    form = f"a number from {format_number(low)} to {format_number(high)}"
    schema = {"type": "number", "minimum": float(low), "maximum": float(high)}
    return bounded(parse_number, low, high, form, "a number", schema, hints.numbers, "number")


def duration(low_ns: int, high_ns: int, such: str = "10s", unit: str = "s", what: str = "a duration") -> Kind:
    """A duration such as ``"10s"``, kept in ns; for a number alone that unit is suggested."""
    low = format_duration(low_ns) if low_ns else "0"
    form = f'a number with s, ms, us or ns such as "{such}", from {low} to {format_duration(high_ns)}'
    near = partial(hints.durations, unit=unit)
    return bounded(
        parse_duration, low_ns, high_ns, form, what, _DURATION_SCHEMA, near, "duration", write=format_duration
    )


def milliseconds(low_ms: int, high_ms: int, such: str) -> Kind:
    """A time in whole milliseconds."""

    def parse(value: object) -> int:
        duration_ns = parse_duration(value)
        if duration_ns % 10**6:
            raise ValueError("whole milliseconds")
        return duration_ns // 10**6

    form = f'whole milliseconds such as "{such}", from {low_ms}ms to {format_duration(high_ms * 10**6)}'
    return bounded(
        parse,
        low_ms,
        high_ms,
        form,
        "a time in whole milliseconds",
        _DURATION_SCHEMA,
        hints.durations,
        "milliseconds",
        write=lambda time_ms: f"{time_ms}ms",
    )


def choice(*choices: str) -> Kind:
    """A text that is one of a few."""

    def parse(value: object) -> object:
        if not isinstance(value, str) or value not in choices:
            raise ValueError("is not one of the choices")
        return value

    form = " or ".join(f'"{text}"' for text in choices)
    return Kind(parse, form, {"enum": list(choices)}, partial(hints.choices, known=choices))


def text(problem: str, form: str, pattern: str | None = None, least: int = 0) -> Kind:
    """A text of at least so many characters, which matches a pattern as a whole."""

    def parse(value: object) -> str:
        fits = isinstance(value, str) and len(value) >= least
        if not fits or (pattern is not None and re.fullmatch(pattern, str(value)) is None):
            raise ValueError(problem)
        return str(value)

    lengths = {"minLength": least} if least else {}
    return Kind(parse, form, ({"type": "string"} if pattern is None else text_schema(pattern)) | lengths)


def mapping(problem: str, form: str, schema: Mapping[str, Any]) -> Kind:
    """An object whose entries are checked elsewhere."""

    def parse(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(problem)
        return value

    return Kind(parse, form, {"type": "object", **schema})


def one_of_or_name(*choices: str) -> Kind:
    """A text that is one of a few or a node's name."""

    def parse(value: object) -> object:
        return value if isinstance(value, str) and value in choices else parse_name(value)

    form = ", ".join(f'"{text}"' for text in choices) + " or a member's name"
    return Kind(parse, form, text_schema(NAME_PATTERN), hints.names)


def parse_ip(value: object) -> IPv4Address:
    """A host's address in strict dotted-quad form. Raises ``ValueError`` with its problem."""
    # Our own pattern before ipaddress: no other notation, no leading zeros (octal to some tools).
    if not isinstance(value, str) or _DOTTED_QUAD.fullmatch(value) is None:
        raise ValueError("is not an IPv4 address")
    address = IPv4Address(value)
    if not is_usable(address):
        raise ValueError("is not an address that a host can have")
    return address


def parse_subnet(value: object) -> IPv4Network:
    """A network in CIDR form. Raises ``ValueError`` with its problem."""
    match = re.fullmatch(r"([0-9.]+)/([1-9][0-9]?)", value, re.ASCII) if isinstance(value, str) else None
    if match is None or _DOTTED_QUAD.fullmatch(match[1]) is None:
        raise ValueError("is not an IPv4 network")
    if not PREFIX_MIN <= int(match[2]) <= PREFIX_MAX:
        raise ValueError("has a prefix length out of range")
    try:
        network = IPv4Network(match[0])
    except ValueError as error:
        raise ValueError("has host bits set") from error
    if not (is_usable(network.network_address) and is_usable(network.broadcast_address)):
        raise ValueError("is not a network that hosts can be in")
    return network


def is_usable(address: IPv4Address) -> bool:
    """Whether the kernel would route to and from it: not 0/8, loopback, multicast or reserved."""
    return 0 < int(address) >> 24 < 224 and not address.is_loopback


def parse_name(value: object) -> str:
    """A node's name. Raises ``ValueError`` with its problem."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise ValueError("is not a node's name")
    if value in RESERVED_NAMES:
        raise ValueError("is a name that the run or its shell uses itself")
    return value


def _parse_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value


def _parse_ratio(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError("is not a number")
    if not 0 <= value <= 1:
        raise ValueError("is out of range")
    return float(value)


def _parse_path(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("is not a path")
    return value


# A type of ``X | None`` has None if the key was left out, or of a limit where there is none; a null in the file is
# refused as any wrong value is.
IP = Kind(
    parse_ip,
    "an IPv4 address such as 10.0.0.251",
    {"type": "string", "format": "ipv4"},
    hints.addresses,
    write=str,
)
SUBNET = Kind(
    parse_subnet,
    f"an IPv4 network such as 10.0.0.0/24, /{PREFIX_MIN} to /{PREFIX_MAX}, host bits zero",
    text_schema(r"[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}"),
    hints.networks,
    write=str,
)
NAME = Kind(
    parse_name,
    f"a lower-case letter, then at most 62 of a-z, 0-9 and -; not {CLIENT_NAME}, client or s1",
    text_schema(NAME_PATTERN),
    hints.names,
)
MEMBER = Kind(parse_name, "the name of a node", text_schema(NAME_PATTERN), hints.names)
BOOLEAN = Kind(_parse_boolean, "true or false", {"type": "boolean"})
RATIO = Kind(
    _parse_ratio,
    "a number from 0 to 1 such as 0.01",
    {"type": "number", "minimum": 0, "maximum": 1},
    hints.numbers,
    quantity="number",
)
PATH = Kind(
    _parse_path,
    "a path, relative to the directory of this file",
    {"type": "string", "minLength": 1},
    # Absolute: the file may be written elsewhere.
    write=lambda path: None if path is None else os.path.abspath(path),
)
DELAY = duration(0, DELAY_MAX_NS, such="3ms", unit="ms", what="a delay")
HEARTBEAT = milliseconds(1, HEARTBEAT_MAX_MS, "100ms")
ELECTION = milliseconds(ELECTION_PER_HEARTBEAT, ELECTION_MAX_MS, "1000ms")
MEMORY = bounded(
    parse_size,
    MEMORY_MIN_BYTES,
    MEMORY_MAX_BYTES,
    'a number with b, k, m or g such as "512m", '
    f"from {describe_size(MEMORY_MIN_BYTES)} to {describe_size(MEMORY_MAX_BYTES)}",
    "an amount of memory",
    text_schema(f"({NUMBER_PATTERN}[bkmgBKMG]|{UNLIMITED})"),
    hints.sizes,
    "size",
    write=format_size,
    unlimited=True,
)
_CPUS_TEXT = text_schema(f"({NUMBER_PATTERN}|{UNLIMITED})")
CPUS = bounded(
    parse_cpus,
    CPUS_MIN,
    CPUS_MAX,
    f'a number such as 1, 0.5 or "2", from {CPUS_MIN} to {CPUS_MAX}',
    "a number of cpus",
    {"anyOf": [{"type": "number", "minimum": float(CPUS_MIN), "maximum": int(CPUS_MAX)}, _CPUS_TEXT]},
    hints.cpus,
    "number",
    unlimited=True,
)
BANDWIDTH = bounded(
    parse_bandwidth,
    RATE_MIN_BPS,
    RATE_MAX_BPS,
    "a number of Mbit/s from 0.01 to 100000",
    "a bandwidth",
    {"anyOf": [{"type": "number", "minimum": 0.01, "maximum": 100000}, {"const": UNLIMITED}]},
    hints.rates,
    "number",
    write=lambda rate_bps: Decimal(format_mbps(rate_bps)),
    unlimited=True,
)
Boolean = Annotated[bool, BOOLEAN]
FilePath = Annotated[str | None, PATH]
DataChoice = Annotated[DataStore, choice("disk", "tmpfs")]


# --- lists and choices of kinds ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Length:
    """How many entries a list has; problems of the entries themselves are reported in any case.

    ``instead``: the advice if there are more. ``alone``: in a file, ``x`` is short for ``[x]``.
    """

    low: int
    high: int
    instead: str = ""
    alone: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        array = {**handler(schema), "minItems": self.low, "maxItems": self.high}
        return {"anyOf": [array["items"], array]} if self.alone else array

    def _validate(self, value: Any, entries: Callable[[Any], Any]) -> Any:
        if not isinstance(value, list):
            return self._validate_alone(value, entries)
        if self.low <= len(value) <= self.high:
            return entries(value)
        try:
            if len(value) < self.low:
                refuse("is too short", f"at least {self.low}", got=f"{len(value)} entries")
            refuse("is too long", f"at most {self.high}{self.instead}", got=f"{len(value)} entries")
        except PydanticCustomError as refusal:
            errors = [InitErrorDetails(type=refusal, input=None)]
        try:
            entries(value[: self.high])
        except ValidationError as error:
            errors.extend(_again(error))
        raise ValidationError.from_exception_data("list", errors)

    def _validate_alone(self, value: Any, entries: Callable[[Any], Any]) -> Any:
        if not self.alone:
            refuse("is not a list", "a list")
        try:
            return entries([value])
        except ValidationError as error:
            # The file has no list, so that the place has no index.
            errors = [InitErrorDetails({**item, "loc": item["loc"][1:]}) for item in _again(error)]
            raise ValidationError.from_exception_data("list", errors) from None


@dataclass(frozen=True, eq=False)
class Chosen:
    """Which of several types a value has, by its form: every problem of it is one of that type.

    ``write`` converts a value to its form in a file.
    """

    choose: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._validate, handler(source))

    def _validate(self, value: Any, _handler: Callable[[Any], Any]) -> Any:
        return adapter_of(self.choose(value)).validate_python(value)


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """The validator of a type."""
    return TypeAdapter(kind)


# --- objects ----------------------------------------------------------------------------------------------------------


class _Unknown(Exception):
    """A rule needs the value of a key that is itself refused or missing."""


def rule(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Mark a method of a `StrictModel` that refuses combinations of its keys.

    Each rule is called, whatever the others refused and whatever else is wrong with the object: a rule that needs the
    value of an invalid key is skipped.
    """
    check.is_rule = True  # type: ignore[attr-defined]
    return check


def not_beside(key: str, other: str, allowed: str) -> Callable[[Any], None]:
    """A rule that refuses a key where another one is given, too."""

    @rule
    def check(model: StrictModel) -> None:
        given = {alias for alias, name in _keys(type(model)).items() if name in model.model_fields_set}
        if {key, other} <= given:
            refuse(f"is given beside {other}", allowed, key=key)

    return check


class StrictModel(BaseModel):
    """An object of a file: its keys are the fields' aliases, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    @classmethod
    def known_keys(cls) -> list[str]:
        """The keys in the order in which they are documented."""
        return [*_keys(cls)]

    @model_validator(mode="wrap")
    @classmethod
    def _find_every_problem(cls, raw: Any, validated: Callable[[Any], Any]) -> Any:
        if not isinstance(raw, dict):
            refuse("is not an object", f"an object with the keys {', '.join(cls.known_keys())}")
        errors: list[InitErrorDetails] = []
        made = None
        try:
            made = good = validated(raw)
        except ValidationError as error:
            errors = _again(error, cls)
            good = cls._without(raw, {step for details in errors for step in details["loc"][:1]})
        for check in _rules_of(cls):
            try:
                check(good)
            except PydanticCustomError as refusal:
                errors.append(InitErrorDetails(type=refusal, input=None))
            except _Unknown:
                continue
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return made

    @classmethod
    def _without(cls, raw: dict[str, Any], bad: Collection[str | int]) -> Any:
        """The model without the fields that are refused or missing: to get one of them raises `_Unknown`."""
        keys = _keys(cls)
        good = {
            key: _adapter_of_field(cls, name).validate_python(raw[key])
            for key, name in keys.items()
            if key in raw and key not in bad
        }
        made = cls.model_construct({name for key, name in keys.items() if key in raw}, **good)
        for key, name in keys.items():
            if key in bad:
                made.__dict__.pop(name, None)
        return made

    @classmethod
    def written(cls, value: Any, always: Collection[str] = ()) -> dict[str, Any]:
        """The object of a file from which the same ``value``, a dataclass, is read.

        The names of the fields are those of its attributes; default values are left out, except for the names in
        ``always``.
        """
        defaults = {name: field.default for name, field in cls.model_fields.items()}
        defaults |= {item.name: item.default for item in dataclasses.fields(value)}
        found = {
            key: written_value(cls, key, given)
            for key, name in _keys(cls).items()
            if hasattr(value, name) and ((given := getattr(value, name)) != defaults[name] or name in always)
        }
        return {key: item for key, item in found.items() if item is not None}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                raise _Unknown(name)
            return super().__getattr__(name)


@cache
def _keys(model: type[StrictModel]) -> dict[str, str]:
    """The fields of a model by their keys in a file."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


@cache
def _rules_of(model: type[StrictModel]) -> list[Callable[[Any], None]]:
    return [item for kind in model.__mro__ for item in vars(kind).values() if getattr(item, "is_rule", False)]


@cache
def _adapter_of_field(model: type[StrictModel], name: str) -> TypeAdapter[Any]:
    return adapter_of(type_of(model.model_fields[name]))


def type_of(field: FieldInfo) -> Any:
    """The type of a field with all that marks it, as it is written in a model."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def _is_model(mark: Any) -> TypeGuard[type[StrictModel]]:
    return isinstance(mark, type) and issubclass(mark, StrictModel)


def _marks(hint: Any) -> Iterator[Any]:
    """The markers of a type and of the types in it, from the outside in, and the models among them."""
    if get_origin(hint) is Annotated:
        inner, *marks_of_it = get_args(hint)
        yield from reversed(marks_of_it)
        yield from _marks(inner)
    elif _is_model(hint):
        yield hint
    else:
        for inner in get_args(hint):
            yield from _marks(inner)


def marks(model: type[StrictModel], key: str) -> list[Any]:
    """The markers of the type of a key's value; see `_marks`."""
    return [*_marks(type_of(model.model_fields[_keys(model)[key]]))]


def schema_of_key(model: type[StrictModel], key: str) -> dict[str, Any]:
    """The JSON Schema of one value of a key; any, where that may be an object."""
    found = marks(model, key)
    kind = next((mark for mark in found if isinstance(mark, Kind)), None)
    return {} if kind is None or any(map(_is_model, found)) else {**kind.schema, "form": kind.form}


def quantity_of(model: type[StrictModel], key: str) -> Quantity | None:
    """The quantity of the value of a key."""
    return next((mark.quantity for mark in marks(model, key) if isinstance(mark, Kind)), None)


def _allowed(model: type[StrictModel], key: str) -> str:
    """The allowed default of a missing key."""
    for mark in marks(model, key):
        if isinstance(mark, Kind):
            return mark.form
        if _is_model(mark):
            return f"an object with the keys {', '.join(mark.known_keys())}"
        if isinstance(mark, Length) and not mark.alone:
            return f"a list of {mark.low} to {mark.high} entries"
    raise KeyError(key)


def written_value(model: type[StrictModel], key: str, value: Any) -> Any:
    """The form of a key's value in a file."""
    for mark in marks(model, key):
        if _is_model(mark):
            return None if value is None else mark.written(value)
        if isinstance(mark, Kind | Chosen) and mark.write is not None:
            return mark.write(value)
    return [*value] if isinstance(value, tuple) else value


# --- documents --------------------------------------------------------------------------------------------------------


def _again(error: ValidationError, model: type[StrictModel] | None = None) -> list[InitErrorDetails]:
    """The errors, to be raised again together with others; those about the keys of ``model`` in its own words."""
    again = []
    for item in error.errors(include_url=False, include_input=False):
        context = item.get("ctx", {})
        if model is not None and item["type"] == "missing":
            context = {"message": "is missing", "allowed": _allowed(model, str(item["loc"][0]))}
        elif model is not None and item["type"] == "extra_forbidden":
            known = model.known_keys()
            meant = hints.closest_key(str(item["loc"][0]), known)
            message = f"is not a known key{f', did you mean {meant}?' if meant else ''}"
            context = {"message": message, "allowed": f"the keys {', '.join(known)}", "at_key": True}
        again.append(
            InitErrorDetails(type=PydanticCustomError("refused", "{message}", context), loc=item["loc"], input=None)
        )
    return again


@dataclass(frozen=True, slots=True)
class Validated(Generic[T]):
    """The value of a document, or ``None`` and its problems."""

    value: T | None
    findings: list[Finding]


def validate(adapter: TypeAdapter[T], document: Document) -> Validated[T]:
    """Check a document."""
    try:
        return Validated(adapter.validate_python(document.value), [])
    except ValidationError as error:
        return Validated(None, [_finding(item) for item in error.errors(include_url=False, include_input=False)])


def as_far_as_good(adapter: TypeAdapter[T], value: Any) -> T | None:
    """A part of a document by itself; ``None`` if something is wrong with it, which `validate` reports."""
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None


def _finding(details: Any) -> Finding:
    context = details["ctx"]
    # A rule's refusal may be of one of the object's keys.
    location: Location = details["loc"]
    if context.get("key") is not None:
        location = (*location, context["key"])
    return Finding(location, context["message"], context.get("got"), context["allowed"], context.get("at_key", False))
