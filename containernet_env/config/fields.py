"""The kinds of value and object that stand in files: parsed, bounded, described for the JSON Schema.

Each kind of value is an ``Annotated`` type for pydantic models, each object a `StrictModel`. A refused value raises
pydantic's custom error with what is allowed; `validate` turns every error into a finding with its place in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Annotated, Any, Generic, NoReturn, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from containernet_env.base.units import (
    describe_size,
    format_duration,
    format_number,
    parse_bandwidth,
    parse_cpus,
    parse_duration,
    parse_number,
    parse_size,
)
from containernet_env.config import hints
from containernet_env.config.hints import closest_key
from containernet_env.config.reader import Document, Finding, Location, render, value_at
from containernet_env.model.config import CLIENT_NAME, DataStore
from containernet_env.stores.etcd.store import ELECTION_MAX_MS, ELECTION_PER_HEARTBEAT, HEARTBEAT_MAX_MS

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
# What the run itself calls a node, and the commands of the shell, where a node of that name could not be
# spoken to.
RESERVED_NAMES = frozenset(
    {CLIENT_NAME, "client", "s1", "c0"}
    | {
        "delay",
        "dpctl",
        "dump",
        "exit",
        "gterm",
        "heal",
        "help",
        "intfs",
        "iperf",
        "iperfudp",
        "link",
        "links",
    }
    | {"loss", "net", "nodes", "noecho", "partition", "pingall", "pingallfull", "pingpair", "pingpairfull"}
    | {"ports", "px", "py", "quit", "rate", "sh", "source", "switch", "time", "wait", "x", "xterm"}
)

IP_FORM = "an IPv4 address such as 10.0.0.251"
NAME_FORM = f"a lower-case letter, then at most 62 of a-z, 0-9 and -; not {CLIENT_NAME}, client or s1"
MEMBER_FORM = "the name of a node"
SUBNET_FORM = f"an IPv4 network such as 10.0.0.0/24, /{PREFIX_MIN} to /{PREFIX_MAX}, host bits zero"
DELAY_FORM = f'a number with s, ms, us or ns such as "3ms", from 0 to {format_duration(DELAY_MAX_NS)}'
MEMORY_FORM = (
    f'a number with b, k, m or g such as "512m", from {describe_size(MEMORY_MIN_BYTES)} '
    f'to {describe_size(MEMORY_MAX_BYTES)}, or "{UNLIMITED}"'
)
CPUS_FORM = f'a number such as 1, 0.5 or "2", from {CPUS_MIN} to {CPUS_MAX}, or "{UNLIMITED}"'
BANDWIDTH_FORM = f'a number of Mbit/s from 0.01 to 100000, or "{UNLIMITED}"'
FILE_FORM = "a path, relative to the directory of this file"
HEARTBEAT_FORM = f'whole milliseconds such as "100ms", from 1ms to {format_duration(HEARTBEAT_MAX_MS * 10**6)}'
ELECTION_FORM = f'whole milliseconds such as "1000ms", from 5ms to {format_duration(ELECTION_MAX_MS * 10**6)}'

_DOTTED_QUAD = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}", re.ASCII)
_NAME = re.compile(NAME_PATTERN)


def refuse(message: str, allowed: str, key: str | None = None, got: str | None = None) -> NoReturn:
    """Refuse the value that is being validated, or the value of that ``key`` in it; ``got`` says it in other words."""
    context = {"message": message, "allowed": allowed, "key": key, "got": got}
    context = {name: text for name, text in context.items() if text is not None}
    raise PydanticCustomError("refused", "{message}", context)


def parse_ip(value: object) -> IPv4Address:
    """A host's address in strict dotted-quad form. Raises ``ValueError`` with what is wrong with it."""
    # Our own pattern before ipaddress: no other notation, no leading zeros (octal to some tools).
    if not isinstance(value, str) or _DOTTED_QUAD.fullmatch(value) is None:
        raise ValueError("is not an IPv4 address")
    address = IPv4Address(value)
    if not is_usable(address):
        raise ValueError("is not an address that a host can have")
    return address


def parse_subnet(value: object) -> IPv4Network:
    """A network in CIDR form. Raises ``ValueError`` with what is wrong with it."""
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
    """A node's name. Raises ``ValueError`` with what is wrong with it."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise ValueError("is not a node's name")
    if value in RESERVED_NAMES:
        raise ValueError("is a name that the run or its shell uses itself")
    return value


def checked(
    parse: Callable[[object], Any], form: str, near: Callable[[object], Iterable[object]] | None = None
) -> PlainValidator:
    """A validator that takes what ``parse`` makes of a value; for its ``ValueError``, ``form`` is what is allowed.

    ``near`` (see `hints`) has values that may have been meant by one that is refused.
    """

    def validate(value: object) -> Any:
        try:
            return parse(value)
        except ValueError as error:
            refuse(f"{error}{hints.advice(value, near(value), parse) if near is not None else ''}", form)

    return PlainValidator(validate)


def _bounded(
    parse: Callable[[object], Any],
    low: Any,
    high: Any,
    form: str,
    what: str,
    near: Callable[[object], Iterable[object]],
    unlimited: bool = False,
) -> PlainValidator:
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
        yield from hints.unlimited(value) if unlimited else ()
        yield from near(value)

    return checked(accept, form, meant)


def _parse_timing_ms(value: object) -> int:
    duration_ns = parse_duration(value)
    if duration_ns % 10**6:
        raise ValueError("whole milliseconds")
    return duration_ns // 10**6


def _parse_integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number")
    return value


def integer(low: int, high: int) -> tuple[PlainValidator, WithJsonSchema]:
    """The metadata of a whole number from ``low`` to ``high``: ``Annotated[int, *integer(1, 10)]``."""
    form = f"a whole number from {low} to {high}"
    return (
        _bounded(_parse_integer, low, high, form, "a whole number", hints.numbers),
        WithJsonSchema({"type": "integer", "minimum": low, "maximum": high, "description": form}),
    )


def decimal(low: Decimal, high: Decimal) -> tuple[PlainValidator, WithJsonSchema]:
    """The metadata of a number from ``low`` to ``high``: ``Annotated[Decimal, *decimal(Decimal(0), Decimal(1))]``."""
    form = f"a number from {format_number(low)} to {format_number(high)}"
    return (
        _bounded(parse_number, low, high, form, "a number", hints.numbers),
        WithJsonSchema({"type": "number", "minimum": float(low), "maximum": float(high), "description": form}),
    )


def duration(low_ns: int, high_ns: int) -> tuple[PlainValidator, WithJsonSchema]:
    """The metadata of a duration such as ``"10s"``, kept in ns: ``Annotated[int, *duration(1, 10**9)]``."""
    form = f'a number with s, ms, us or ns such as "10s", from {format_duration(low_ns)} to {format_duration(high_ns)}'
    return (
        _bounded(parse_duration, low_ns, high_ns, form, "a duration", lambda value: hints.durations(value, "s")),
        WithJsonSchema(_quantity(f"{NUMBER_PATTERN}(s|ms|us|ns)", form)),
    )


def _parse_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value


def _quantity(pattern: str, form: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{pattern}$", "description": form}


NUMBER_PATTERN = "[0-9]{1,15}(\\.[0-9]{1,12})?"


def choice(*choices: str) -> tuple[PlainValidator, WithJsonSchema]:
    """The metadata of a text that is one of a few: ``Annotated[Literal["a", "b"], *choice("a", "b")]``."""
    form = " or ".join(f'"{text}"' for text in choices)

    def parse(value: object) -> object:
        if not isinstance(value, str) or value not in choices:
            raise ValueError("is not one of the choices")
        return value

    near = partial(hints.choices, known=choices)
    return checked(parse, form, near), WithJsonSchema({"enum": list(choices), "description": form})


def one_of_or_name(*choices: str) -> tuple[PlainValidator, WithJsonSchema]:
    """The metadata of a text that is one of a few or a node's name."""
    form = ", ".join(f'"{text}"' for text in choices) + " or a member's name"

    def parse(value: object) -> object:
        return value if isinstance(value, str) and value in choices else parse_name(value)

    return checked(parse, form, hints.names), WithJsonSchema(_quantity(NAME_PATTERN, form))


def _parse_file_path(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("is not a path")
    return value


_IP = (
    checked(parse_ip, IP_FORM, hints.addresses),
    WithJsonSchema({"type": "string", "format": "ipv4", "description": IP_FORM}),
)
_SUBNET = (
    checked(parse_subnet, SUBNET_FORM, hints.networks),
    WithJsonSchema(_quantity(r"[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}", SUBNET_FORM)),
)
_NAME_KIND = (checked(parse_name, NAME_FORM, hints.names), WithJsonSchema(_quantity(NAME_PATTERN, NAME_FORM)))


def _timing(low_ms: int, high_ms: int, form: str) -> tuple[PlainValidator, WithJsonSchema]:
    what = "a time in whole milliseconds"
    return (
        _bounded(_parse_timing_ms, low_ms, high_ms, form, what, hints.durations),
        WithJsonSchema(_quantity(f"{NUMBER_PATTERN}(s|ms|us|ns)", form)),
    )


BOOLEAN_FORM = "true or false"
Boolean = Annotated[
    bool, checked(_parse_boolean, BOOLEAN_FORM), WithJsonSchema({"type": "boolean", "description": BOOLEAN_FORM})
]

# In an Optional kind, None means that the key was left out; a null in the file is refused as any wrong
# value is.
Ip = Annotated[IPv4Address, *_IP]
OptionalIp = Annotated[IPv4Address | None, *_IP]
OptionalSubnet = Annotated[IPv4Network | None, *_SUBNET]
OptionalName = Annotated[str | None, *_NAME_KIND]
OptionalMember = Annotated[
    str | None,
    checked(parse_name, MEMBER_FORM, hints.names),
    WithJsonSchema(_quantity(NAME_PATTERN, MEMBER_FORM)),
]
OptionalHeartbeatMs = Annotated[int | None, *_timing(1, HEARTBEAT_MAX_MS, HEARTBEAT_FORM)]
OptionalElectionMs = Annotated[int | None, *_timing(ELECTION_PER_HEARTBEAT, ELECTION_MAX_MS, ELECTION_FORM)]
FilePath = Annotated[
    str | None,
    checked(_parse_file_path, FILE_FORM),
    WithJsonSchema({"type": "string", "minLength": 1, "description": FILE_FORM}),
]
DataChoice = Annotated[DataStore, *choice("disk", "tmpfs")]
# In a limit, None means unlimited.
Memory = Annotated[
    int | None,
    _bounded(parse_size, MEMORY_MIN_BYTES, MEMORY_MAX_BYTES, MEMORY_FORM, "an amount of memory", hints.sizes, True),
    WithJsonSchema(_quantity(f"({NUMBER_PATTERN}[bkmgBKMG]|{UNLIMITED})", MEMORY_FORM)),
]
Cpus = Annotated[
    Decimal | None,
    _bounded(parse_cpus, CPUS_MIN, CPUS_MAX, CPUS_FORM, "a number of cpus", hints.cpus, True),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": float(CPUS_MIN), "maximum": int(CPUS_MAX)},
                {"type": "string", "pattern": f"^({NUMBER_PATTERN}|{UNLIMITED})$"},
            ],
            "description": CPUS_FORM,
        }
    ),
]
Bandwidth = Annotated[
    int | None,
    _bounded(parse_bandwidth, RATE_MIN_BPS, RATE_MAX_BPS, BANDWIDTH_FORM, "a bandwidth", hints.rates, True),
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "minimum": 0.01, "maximum": 100000}, {"const": UNLIMITED}],
            "description": BANDWIDTH_FORM,
        }
    ),
]
Delay = Annotated[
    int,
    _bounded(parse_duration, 0, DELAY_MAX_NS, DELAY_FORM, "a delay", hints.durations),
    WithJsonSchema(_quantity(f"{NUMBER_PATTERN}(s|ms|us|ns)", DELAY_FORM)),
]


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
