"""The kinds of values in files: how each is parsed, bounded and written, and the keys of objects.

A field of a dataclass that is `keyed` is a key of a file: its name, kind and meaning. So the class is
the value, the form of its object in a file, the object's JSON Schema and what is written. ``config.fields`` reads,
describes and writes such objects; nothing here knows JSON.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from decimal import Decimal
from functools import cache, partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TypeVar, dataclass_transform

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
from containernet_env.model import hints

T = TypeVar("T")
UNLIMITED = "unlimited"
MAX_NODES = 300

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

CLIENT_NAME = "benchmark"
"""The name of the client's node at run time."""
NAME_PATTERN = "[a-z][a-z0-9-]{0,62}"
NUMBER_PATTERN = "[0-9]{1,15}(\\.[0-9]{1,12})?"
# The run's own names for nodes, and the commands of the shell, which would hide a node of that name.
RESERVED_NAMES = frozenset(
    f"{CLIENT_NAME} client s1 c0 delay dpctl dump exit gterm heal help intfs iperf iperfudp link links loss net nodes "
    "noecho partition pingall pingallfull pingpair pingpairfull ports px py quit rate sh source switch time trace wait "
    "x xterm".split()
)
_DOTTED_QUAD = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}", re.ASCII)
_NAME = re.compile(NAME_PATTERN)


# --- keys of objects --------------------------------------------------------------------------------------------------

Quantity = Literal["count", "number", "duration", "milliseconds", "size"]
"""The quantity of a value, if one can be a ratio of another."""
Location = tuple[str | int, ...]
"""Keys and list indices from the top of a document to a value."""


@dataclass(init=False, unsafe_hash=True)
class Refused(ValueError):
    """A value, or a combination of values, that is refused: why, and what is allowed.

    ``place`` leads to the value from the object that is checked, or from the top of the document. ``got`` is the value
    at its place unless given otherwise. ``at_key``: the key is wrong, not its value.
    """

    message: str
    allowed: str | None
    place: Location
    got: str | None
    at_key: bool

    def __init__(
        self,
        message: str,
        allowed: str | None,
        place: str | Location = (),
        got: str | None = None,
        at_key: bool = False,
    ) -> None:
        self.message, self.allowed, self.got, self.at_key = message, allowed, got, at_key
        self.place = (place,) if isinstance(place, str) else place

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.place))} {self.message}; allowed: {self.allowed}".lstrip()

    def below(self, at: Location) -> Refused:
        """The same, seen from where ``at`` leads to the object."""
        return Refused(self.message, self.allowed, (*at, *self.place), self.got, self.at_key)


def refuse(message: str, allowed: str | None, place: str | Location = ()) -> NoReturn:
    raise Refused(message, allowed, place)


Rule = Callable[[Any], Iterable[Refused] | None]


def rule(check: Rule) -> Rule:
    """Mark a method of a class with keys that refuses combinations of them: it raises `Refused`, or yields several.

    Each rule is called, whatever the others refused and whatever else is wrong with the object: a rule that needs the
    value of a key in which something is wrong is skipped.
    """
    check.is_rule = True  # type: ignore[attr-defined]
    return check


def rule_of_parts(check: Rule) -> Rule:
    """As `rule`, for one that also sees objects in which something is wrong: their good values are their attributes."""
    check.sees_parts = True  # type: ignore[attr-defined]
    return rule(check)


def rules_of(kind: type) -> list[Rule]:
    """The rules of a class, those of its bases first; a method of the same name replaces one."""
    return _rules_of(kind)


@cache  # whose own type does not take every class
def _rules_of(kind: type) -> list[Rule]:
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    return [item for name in names if getattr(item := getattr(kind, name), "is_rule", False)]


Near = Callable[[object], Iterable[object]]
"""Suggestions for a refused value: see `hints`."""


@dataclass(frozen=True, eq=False)
class Kind:
    """The form of one kind of value in a file.

    ``parse`` converts a file's value, or raises ``ValueError`` with its problem. ``form`` describes the allowed values,
    and ``schema`` the same as a JSON Schema. ``near`` (see `hints`) returns suggestions for a refused value. ``write``
    converts a value to its form in a file.
    """

    parse: Callable[[object], Any]
    form: str
    schema: Mapping[str, Any]
    near: Near | None = None
    write: Callable[[Any], Any] | None = None
    quantity: Quantity | None = None

    def read(self, value: object) -> Any:
        """The value of a file's value. Raises `Refused`, with a suggestion if there is one."""
        try:
            return self.parse(value)
        except ValueError as error:
            hint = "" if self.near is None else hints.advice(value, self.near(value), self.parse)
            raise Refused(f"{error}{hint}", self.form) from error

    def canonical(self, value: object) -> Any:
        """A file's value in the form that all values which mean the same have. Raises `Refused`."""
        parsed = self.read(value)
        return parsed if self.write is None else self.write(parsed)


@dataclass(frozen=True, eq=False)
class Listed:
    """A list, read as a tuple; problems of the entries themselves are reported whatever its length.

    ``instead``: the advice if there are more. ``alone``: in a file, ``x`` is short for ``[x]``.
    ``unique``: no entry is there twice.
    """

    item: Form
    low: int
    high: int
    instead: str = ""
    alone: bool = False
    unique: bool = False


@dataclass(frozen=True, eq=False)
class Named:
    """An object whose keys are names, each accepted by ``name``: read as a dictionary."""

    name: Kind
    item: Form


@dataclass(frozen=True, eq=False)
class Chosen:
    """One of several forms, chosen by the value: every problem of it is one of that form.

    ``write`` converts a value to its form in a file.
    """

    forms: tuple[Form, ...]
    choose: Callable[[Any], Form]
    write: Callable[[Any], Any] | None = None


Form = Kind | Listed | Named | Chosen | type
"""What a value in a file may be; a class is an object with that class's keys."""


@dataclass(frozen=True)
class Key:
    """The key of a field: its name in files, form and meaning of its value, and whether a file has to have it.

    ``default`` is the field's, ``shown`` what a JSON Schema shows in its place.
    """

    attribute: str
    name: str
    form: Form
    meaning: str
    default: Any
    shown: Any
    is_required: bool


def keyed(
    form: Form,
    meaning: str,
    name: str = "",
    *,
    default: Any = MISSING,
    shown: Any = None,
    required: bool = False,
    init: bool = True,
    **metadata: Any,
) -> Any:
    """A field of a dataclass that is a key of files, there called ``name``, by default as the field.

    ``required``: a file has to have it, though the field has a default. ``shown`` is what a JSON Schema shows as the
    default, where it is not the field's own. ``metadata`` is more that is known of the field.
    """

    def key_of(attribute: str) -> Key:
        needed = required or default is MISSING
        return Key(attribute, name or attribute, form, meaning, default, shown, needed)

    return field(default=default, init=init, metadata={"key": key_of, **metadata})


def keys_of(kind: type) -> dict[str, Key]:
    """The keys of a class in the order in which they are documented."""
    return _keys_of(kind)


@cache
def _keys_of(kind: type) -> dict[str, Key]:
    found = [item.metadata["key"](item.name) for item in fields(kind) if "key" in item.metadata]
    last: tuple[str, ...] = getattr(kind, "LAST", ())
    return {item.name: item for item in sorted(found, key=lambda item: item.name in last and 1 + last.index(item.name))}


class Record:
    """A base of values that are dataclasses; `record` and `section` make them such."""

    __slots__ = ()
    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


@dataclass_transform(frozen_default=True, field_specifiers=(keyed, field))
def record(kind: type[T]) -> type[T]:
    """A frozen dataclass with slots."""
    return dataclass(frozen=True, slots=True)(kind)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(keyed, field))
def section(kind: type[T]) -> type[T]:
    """The same, whose arguments have names."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


@dataclass(frozen=True, kw_only=True)
class Section(Record):
    """An object of a file that is no value yet: ``at`` is its place, ``given`` are its keys there."""

    SCHEMA: ClassVar[Mapping[str, Any]] = {}
    """What its JSON Schema has besides its keys."""
    LAST: ClassVar[tuple[str, ...]] = ()
    """Keys that are documented after all others."""

    at: Location = ()
    given: frozenset[str] = frozenset()

    def below(self, inner: Section, *keys: str) -> Location:
        """The place of an object in this one, or of its keys, seen from here."""
        return (*inner.at[len(self.at) :], *keys)


def not_beside(key: str, other: str, allowed: str) -> Rule:
    """A rule of a `Section` that refuses a key where another one is given, too."""

    @rule
    def check(section: Section) -> None:
        if {key, other} <= section.given:
            refuse(f"is given beside {other}", allowed, key)

    return check


# --- kinds of value ---------------------------------------------------------------------------------------------------


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
    near: Near,
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
    form, schema = f"a whole number from {low} to {high}", {"type": "integer", "minimum": low, "maximum": high}
    return bounded(_parse_integer, low, high, form, "a whole number", schema, hints.numbers, "count")


def decimal(low: Decimal, high: Decimal) -> Kind:
    form = f"a number from {format_number(low)} to {format_number(high)}"
    schema = {"type": "number", "minimum": float(low), "maximum": float(high)}
    return bounded(parse_number, low, high, form, "a number", schema, hints.numbers, "number")


def duration(low_ns: int, high_ns: int, such: str = "10s", unit: str = "s", what: str = "a duration") -> Kind:
    """A duration such as ``"10s"``, kept in ns; for a number alone that unit is suggested."""
    low = format_duration(low_ns) if low_ns else "0"
    form = f'a number with s, ms, us or ns such as "{such}", from {low} to {format_duration(high_ns)}'
    near = partial(hints.durations, unit=unit)
    return bounded(parse_duration, low_ns, high_ns, form, what, _DURATION_SCHEMA, near, "duration", format_duration)


def milliseconds(low_ms: int, high_ms: int, such: str) -> Kind:

    def parse(value: object) -> int:
        time_ms, rest_ns = divmod(parse_duration(value), 10**6)
        if rest_ns:
            raise ValueError("whole milliseconds")
        return time_ms

    form = f'whole milliseconds such as "{such}", from {low_ms}ms to {format_duration(high_ms * 10**6)}'
    what = "a time in whole milliseconds"
    near, write = hints.durations, "{}ms".format
    return bounded(parse, low_ms, high_ms, form, what, _DURATION_SCHEMA, near, "milliseconds", write)


def size(low: int, high: int, such: str, what: str, unlimited: bool = False) -> Kind:
    form = f'a number with b, k, m or g such as "{such}", from {describe_size(low)} to {describe_size(high)}'
    pattern = f"{NUMBER_PATTERN}[bkmgBKMG]"
    schema = text_schema(f"({pattern}|{UNLIMITED})" if unlimited else pattern)
    return bounded(parse_size, low, high, form, what, schema, hints.sizes, "size", format_size, unlimited)


def count_or(
    count: Kind,
    of: str,
    other: Kind,
    make: Callable[[int | None, Any], Any],
    parts: Callable[[Any], tuple[int | None, Any]],
    quantity: Quantity,
) -> Kind:
    """A whole number ``of`` something, or a text of another kind: a value is made of both, one of them ``None``."""

    def parse(value: object) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return make(count.parse(value), None)
        return make(None, other.parse(value))

    def near(value: object) -> Iterable[object]:
        meant = (other if hints.has_unit(value) else count).near
        return () if meant is None else meant(value)

    def write(value: Any) -> Any:
        number, rest = parts(value)
        return number or (rest if other.write is None else other.write(rest))

    form = f"{count.form.replace('number', f'number of {of}', 1)}, or {other.form}"
    return Kind(parse, form, {"anyOf": [count.schema, other.schema]}, near, write, quantity)


def checked(
    fits: Callable[[Any], bool], problem: str, form: str, schema: Mapping[str, Any], near: Near | None = None
) -> Kind:
    """A value that is taken as it is, if it fits."""

    def parse(value: Any) -> Any:
        if not fits(value):
            raise ValueError(problem)
        return value

    return Kind(parse, form, schema, near)


def choice(*choices: str) -> Kind:
    form = " or ".join(f'"{text}"' for text in choices)
    near = partial(hints.choices, known=choices)
    return checked(lambda value: value in choices, "is not one of the choices", form, {"enum": list(choices)}, near)


def text(problem: str, form: str, pattern: str = "") -> Kind:
    """A text that matches a pattern as a whole, or any."""
    schema = text_schema(pattern) if pattern else {"type": "string"}
    match = re.compile(pattern or ".*", re.DOTALL).fullmatch
    return checked(lambda value: isinstance(value, str) and match(value) is not None, problem, form, schema)


def mapping(problem: str, form: str, schema: Mapping[str, Any]) -> Kind:
    """An object whose entries are checked elsewhere."""
    return checked(lambda value: isinstance(value, dict), problem, form, {"type": "object", **schema})


def one_of_or_name(*choices: str, of: str = "a member's name", also: str = "") -> Kind:
    """A text that is one of a few or a name, as ``of`` describes it; or it matches the pattern ``also`` as a whole."""

    def parse(value: object) -> object:
        is_known = isinstance(value, str) and (value in choices or (also and re.fullmatch(also, value) is not None))
        return value if is_known else parse_name(value)

    form = " or ".join(filter(None, (", ".join(f'"{text}"' for text in choices), of)))
    return Kind(parse, form, text_schema(f"({NAME_PATTERN}|{also})" if also else NAME_PATTERN), hints.names)


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


def _parse_path(value: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("is not a path")
    return Path(value)


# A type of ``X | None`` has None if the key was left out, or of a limit where there is none; a null in the file is
# refused as any wrong value is.
IP = Kind(
    parse_ip, "an IPv4 address such as 10.0.0.251", {"type": "string", "format": "ipv4"}, hints.addresses, write=str
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
CLIENT = Kind(parse_name, "the name of a client or of a site", text_schema(NAME_PATTERN), hints.names)
MEMBER = Kind(parse_name, "the name of a node", text_schema(NAME_PATTERN), hints.names)
BOOLEAN = checked(
    lambda value: isinstance(value, bool), "is neither true nor false", "true or false", {"type": "boolean"}
)
RATIO = bounded(
    lambda value: float(parse_number(value)),
    0,
    1,
    "a number from 0 to 1 such as 0.01",
    "a number",
    {"type": "number", "minimum": 0, "maximum": 1},
    hints.numbers,
    "number",
)
PATH = Kind(
    _parse_path,
    "a path, relative to the directory of this file",
    {"type": "string", "minLength": 1},
    # Absolute: the file may be written elsewhere.
    write=lambda path: None if path is None else os.path.abspath(path),
)
FSYNC = duration(500_000, 10**9, such="2ms", unit="ms")
DELAY = duration(0, DELAY_MAX_NS, such="3ms", unit="ms", what="a delay")
MEMORY = size(MEMORY_MIN_BYTES, MEMORY_MAX_BYTES, "512m", "an amount of memory", unlimited=True)
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
    f"a number of Mbit/s from {format_mbps(RATE_MIN_BPS)} to {format_mbps(RATE_MAX_BPS)}",
    "a bandwidth",
    {
        "anyOf": [
            {"type": "number", "minimum": RATE_MIN_BPS / 10**6, "maximum": RATE_MAX_BPS // 10**6},
            {"const": UNLIMITED},
        ]
    },
    hints.rates,
    "number",
    write=lambda rate_bps: Decimal(format_mbps(rate_bps)),
    unlimited=True,
)
