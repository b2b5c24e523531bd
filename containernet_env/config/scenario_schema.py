"""The keys of a scenario file."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from containernet_env.base.units import format_duration, parse_duration
from containernet_env.config.fields import (
    Boolean,
    checked,
    choice,
    decimal,
    duration,
    integer,
    one_of_or_name,
    refuse,
)
from containernet_env.config.reader import Location
from containernet_env.config.validation import StrictModel
from containernet_env.model.scenario import ANY_MEMBER, Arrival, Consistency, KeyOrder, ScenarioType, Warmup

MAX_SCENARIOS = 1000
"""A file that multiplies out to more than this is a mistake, not a run."""

# What the benchmark server takes (benchmark_image/internal/spec): a file that passes here is never refused there.
CLIENTS_MAX = 10_000
CONNS_MAX = 10_000
REQUESTS_MAX = 10_000_000
KEY_MAX_BYTES = 1024
KEY_SPACE_MAX = 1_000_000_000
KEY_TEXT_MAX = 200
LIMIT_MAX = 1_000_000_000
VALUE_MAX_BYTES = 1 << 20
RATE_MIN, RATE_MAX = Decimal("0.1"), Decimal(1_000_000)
# "More than 0" to the server; less than this is uniform for any data set.
ZIPF_MIN, ZIPF_MAX = Decimal("0.01"), Decimal(10)
LENGTH_MIN_NS = 10**6
# A day is the most that the server lets a benchmark take; half of it leaves the warm-up and the end their time.
LENGTH_MAX_NS = 43_200 * 10**9
WARMUP_MAX_NS = 3_600 * 10**9
TIMEOUT_MAX_NS = 3_600 * 10**9


class _OneOrMore:
    """In a file, ``x`` stands for ``[x]``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: value if isinstance(value, list) else [value], handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        array = handler(schema)
        return {"anyOf": [array["items"], array]}


_AXIS = (Field(min_length=1, max_length=MAX_SCENARIOS), _OneOrMore())


_WARMUP_FORM = (
    f'a number of requests from 1 to {REQUESTS_MAX}, or a duration such as "2s", from '
    f"{format_duration(LENGTH_MIN_NS)} to {format_duration(WARMUP_MAX_NS)}"
)


def _parse_warmup(value: object) -> Warmup:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= REQUESTS_MAX:
            refuse("is out of range", _WARMUP_FORM)
        return Warmup(requests=value)
    try:
        length_ns = parse_duration(value)
    except ValueError:
        refuse("is neither a number of requests nor a duration", _WARMUP_FORM)
    if not LENGTH_MIN_NS <= length_ns <= WARMUP_MAX_NS:
        refuse("is out of range", _WARMUP_FORM)
    return Warmup(length_ns=length_ns)


_WARMUP = (
    PlainValidator(_parse_warmup),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer", "minimum": 1, "maximum": REQUESTS_MAX}, {"type": "string"}],
            "description": _WARMUP_FORM,
        }
    ),
)


def _text(pattern: str, form: str, problem: str) -> tuple[Any, WithJsonSchema]:
    """What marks a field as a text that matches a pattern as a whole."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise ValueError(problem)
        return value

    return checked(parse, form), WithJsonSchema({"type": "string", "pattern": f"^{pattern}$", "description": form})


# What stands in the names of scenarios, where it must not be a glob, and in a column of the CSV.
_KEY_PATTERN = f"[0-9A-Za-z/._:-]{{1,{KEY_TEXT_MAX}}}"
_KEY_FORM = f"1 to {KEY_TEXT_MAX} of 0-9, A-Z, a-z, / . _ : and -"
_KEY = _text(_KEY_PATTERN, _KEY_FORM, "is not a key or the beginning of one")
_PREFIX = _text(
    f"(?=.*[/._:-]){_KEY_PATTERN}",  # a character that no generated key has: what writes make never starts with it
    f"{_KEY_FORM}, at least one of them / . _ : or -",
    "does not keep the data set's keys apart from those that are written",
)


class RawDataset(StrictModel):
    """The data set that the reads read."""

    model_config = ConfigDict(title="Data set")

    key_prefix: Annotated[str | None, *_PREFIX] = Field(default=None, alias="keyPrefix")
    key_size: Annotated[int, *integer(1, KEY_MAX_BYTES)] = Field(default=8, alias="keySize")
    val_size: Annotated[int, *integer(1, VALUE_MAX_BYTES)] = Field(default=256, alias="valSize")
    keys: Annotated[int, *integer(1, REQUESTS_MAX)] = 10_000


class RawLoad(StrictModel):
    """How many requests or for how long, at which rate, by how many clients, over how many connections."""

    model_config = ConfigDict(
        title="Load",
        json_schema_extra={
            "oneOf": [{"required": ["total"]}, {"required": ["duration"]}],
            "dependentRequired": {"arrival": ["rate"]},
        },
    )

    total: Annotated[int | None, *integer(1, REQUESTS_MAX)] = None
    duration_ns: Annotated[int | None, *duration(LENGTH_MIN_NS, LENGTH_MAX_NS)] = Field(default=None, alias="duration")
    rate: Annotated[list[Annotated[Decimal, *decimal(RATE_MIN, RATE_MAX)]], *_AXIS] = Field(default_factory=list)
    arrival: Annotated[Arrival | None, *choice("constant", "poisson")] = None
    clients: Annotated[list[Annotated[int, *integer(1, CLIENTS_MAX)]], *_AXIS]
    conns: Annotated[int, *integer(1, CONNS_MAX)]
    warmup: Annotated[Warmup | None, *_WARMUP] = None
    request_timeout_ns: Annotated[int | None, *duration(LENGTH_MIN_NS, TIMEOUT_MAX_NS)] = Field(
        default=None, alias="timeout"
    )

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        if self.total is None and self.duration_ns is None:
            refuse("is missing", "total, a number of requests, or duration", key="total")
        if self.total is not None and self.duration_ns is not None:
            refuse("is given beside total", "either total or duration", key="duration")
        if self.total is not None and max(self.clients) > self.total:
            # The row would claim a concurrency that never was.
            refuse("is more than there are requests", f"at most total, {self.total}", key="clients")
        return self

    @model_validator(mode="after")
    def _keeps_the_servers_limits(self) -> Self:
        if not self.rate:
            if self.arrival is not None:
                refuse("is given without a rate", "only beside rate: a closed loop has no arrivals", key="arrival")
            return self
        if self.duration_ns is not None and max(self.rate) * self.duration_ns > REQUESTS_MAX * 10**9:
            seconds = format_duration(self.duration_ns)
            refuse(f"makes too many requests in {seconds}", f"at most {REQUESTS_MAX} requests", key="rate")
        if self.total is not None and self.total * 10**9 > min(self.rate) * LENGTH_MAX_NS:
            most = f"{format_duration(LENGTH_MAX_NS)} in all"
            refuse(f"is too low for {self.total} requests", f"a rate at which they take at most {most}", key="rate")
        requests, length_ns = (self.warmup.requests, self.warmup.length_ns) if self.warmup else (0, 0)
        too_long = requests * 10**9 > min(self.rate) * WARMUP_MAX_NS
        if too_long or max(self.rate) * length_ns > REQUESTS_MAX * 10**9:
            most = f"at most {format_duration(WARMUP_MAX_NS)} and {REQUESTS_MAX} requests at this rate"
            refuse("is too long", most, key="warmup")
        return self


class RawData(StrictModel):
    """Sizes in bytes of what is written."""

    model_config = ConfigDict(title="Data")

    key_size: Annotated[int, *integer(1, KEY_MAX_BYTES)] = Field(alias="keySize")
    val_size: Annotated[int, *integer(1, VALUE_MAX_BYTES)] = Field(alias="valSize")


class RawBlock(StrictModel):
    """What every block has."""

    type: Annotated[ScenarioType, *choice("write", "read", "mixed", "txn")]
    load: Annotated[list[RawLoad], *_AXIS]


_TARGETS = Annotated[list[Annotated[str, *one_of_or_name(*ANY_MEMBER)]], *_AXIS]
_KEY_ORDERS = Annotated[
    list[Annotated[KeyOrder, *choice("sequential", "shuffled", "uniform", "zipfian")]],
    *_AXIS,
]
_EXPONENT = Annotated[Decimal | None, *decimal(ZIPF_MIN, ZIPF_MAX)]


def _refuse_lonely_exponent(exponent: Decimal | None, orders: list[KeyOrder]) -> None:
    if exponent is not None and "zipfian" not in orders:
        refuse("is given without zipfian keys", 'only beside keys "zipfian"', key="zipfExponent")


_CONSISTENCIES = Annotated[list[Annotated[Consistency, *choice("l", "s")]], *_AXIS]


class RawWrite(RawBlock):
    """Writes: for each load, for each data, for each target, for each order of keys."""

    model_config = ConfigDict(title="Writes")

    type: Literal["write"]
    data: Annotated[list[RawData], *_AXIS]
    target: _TARGETS
    keys: _KEY_ORDERS = Field(default=["sequential"])
    zipf_exponent: _EXPONENT = Field(default=None, alias="zipfExponent")
    key_space: Annotated[int | None, *integer(1, KEY_SPACE_MAX)] = Field(default=None, alias="keySpace")

    @model_validator(mode="after")
    def _keys_have_what_they_need(self) -> Self:
        _refuse_lonely_exponent(self.zipf_exponent, self.keys)
        drawn = [order for order in self.keys if order in ("uniform", "zipfian")]
        if drawn and self.key_space is None and any(load.total is None for load in self.load):
            refuse(
                "is missing", f"how many keys {drawn[0]} ones are drawn from, where there is no total", key="keySpace"
            )
        return self


class RawOnDataset(RawBlock):
    """What blocks on the data set have in common."""

    target: _TARGETS = Field(default=["cluster"])
    keys: _KEY_ORDERS = Field(default=["sequential"])
    zipf_exponent: _EXPONENT = Field(default=None, alias="zipfExponent")

    @model_validator(mode="after")
    def _exponent_has_its_order(self) -> Self:
        _refuse_lonely_exponent(self.zipf_exponent, self.keys)
        return self


_SPAN_KEYS = Annotated[list[Annotated[int, *integer(1, REQUESTS_MAX)]], *_AXIS]


class RawReading(RawOnDataset):
    """What blocks with reads have in common."""

    consistency: _CONSISTENCIES
    span_keys: _SPAN_KEYS = Field(default_factory=list, alias="spanKeys")
    verify: Boolean = True


class RawSpan(StrictModel):
    """All keys from one on to before another one."""

    model_config = ConfigDict(title="Span")

    start: Annotated[str, *_KEY] = Field(alias="from")
    end: Annotated[str, *_KEY] = Field(alias="to")

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> Self:
        if self.end <= self.start:
            refuse("is not after the start", f"a key that sorts after from, {self.start}", key="to")
        return self


_EXTENTS = ("prefix", "span", "spanKeys")
_NOT_BESIDE_A_NAME = ("span", "spanKeys", "keys", "zipfExponent")


class RawRead(RawReading):
    """Reads of the data set: for each load, target, number of keys at once, order of keys, and consistency."""

    model_config = ConfigDict(
        title="Reads",
        json_schema_extra={
            "not": {
                "anyOf": [
                    {"required": [one, two]}
                    for one, others in (("prefix", _NOT_BESIDE_A_NAME), ("span", _NOT_BESIDE_A_NAME[1:]))
                    for two in others
                ]
            },
            "dependentSchemas": {"limit": {"anyOf": [{"required": [extent]} for extent in _EXTENTS]}},
        },
    )

    type: Literal["read"]
    prefix: Annotated[str | None, *_KEY] = None
    span: RawSpan | None = None
    limit: Annotated[int | None, *integer(1, LIMIT_MAX)] = None
    keys_only: Boolean = Field(default=False, alias="keysOnly")
    count_only: Boolean = Field(default=False, alias="countOnly")

    @model_validator(mode="after")
    def _asks_for_one_thing(self) -> Self:
        given = [
            name
            for name, value in zip(_EXTENTS, (self.prefix, self.span, self.span_keys or None), strict=True)
            if value is not None
        ]
        if len(given) > 1:
            refuse(f"is given beside {given[0]}", "one of prefix, span and spanKeys", key=given[1])
        if self.limit is not None and not given:
            refuse("is given for single keys", "only beside prefix, span or spanKeys", key="limit")
        if self.keys_only and self.count_only:
            refuse("is given beside keysOnly", "one of keysOnly and countOnly", key="countOnly")
        if given and given[0] != "spanKeys":
            for name, key in (("keys", "keys"), ("zipf_exponent", "zipfExponent")):
                if name in self.model_fields_set:
                    refuse(f"is given beside {given[0]}", "only where reads begin at the data set's keys", key=key)
        return self


class RawMixed(RawReading):
    """Writes and reads of the data set: as reads, for each ratio."""

    model_config = ConfigDict(title="Mixed")

    type: Literal["mixed"]
    ratio: Annotated[list[Annotated[Decimal, *decimal(Decimal(0), Decimal(1))]], *_AXIS]


class RawTxn(RawOnDataset):
    """Transactions on the data set: for each load, for each target, for each order of keys."""

    model_config = ConfigDict(title="Transactions")

    type: Literal["txn"]


RawAnyBlock = RawWrite | RawRead | RawMixed | RawTxn


class RawScenarioFile(StrictModel):
    """A scenario file."""

    model_config = ConfigDict(title="Scenarios")

    dataset: RawDataset = RawDataset()
    scenarios: Annotated[
        list[Annotated[RawAnyBlock, Field(discriminator="type")]],
        Field(min_length=1, max_length=MAX_SCENARIOS, description="Blocks, run in this order"),
    ]


SCENARIO_FILE: TypeAdapter[RawScenarioFile] = TypeAdapter(RawScenarioFile)


def model_at(location: Location, document: Any) -> type[StrictModel]:
    """The model of the object at a location of a scenario file whose JSON value is ``document``."""
    match location:
        case ():
            return RawScenarioFile
        case ("dataset",):
            return RawDataset
        case (_, _, "load", *_):
            return RawLoad
        case (_, _, "data", *_):
            return RawData
        case (_, _, "span", *_):
            return RawSpan
        case (_, int(index)):
            return _BLOCKS.get(_type_of(document["scenarios"][index]), RawBlock)
    return RawBlock


_BLOCKS: dict[object, type[StrictModel]] = {
    "write": RawWrite,
    "read": RawRead,
    "mixed": RawMixed,
    "txn": RawTxn,
}


def _type_of(block: object) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""
