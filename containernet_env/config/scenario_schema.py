"""The keys of a scenario file."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    WithJsonSchema,
    create_model,
)
from pydantic_core import CoreSchema, core_schema

from containernet_env.base.units import format_duration, parse_duration
from containernet_env.config import hints
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
from containernet_env.config.link_schema import LEFT_OUT
from containernet_env.config.positions import Location
from containernet_env.config.search_schema import RATE_MAX, RATE_MIN, TIMEOUT_MAX_NS, RawSearch, means
from containernet_env.config.validation import Length, StrictModel, annotation_of, rule
from containernet_env.model import load_contract as contract
from containernet_env.model.scenario import ANY_MEMBER, Arrival, Consistency, KeyOrder, ScenarioType, Warmup

MAX_SCENARIOS = 1000
"""A file that multiplies out to more than this is a mistake, not a run."""

# What the benchmark server takes: a file that passes here is never refused there.
REQUESTS_MAX = contract.TOTAL_MAX
# "More than 0" to the server; less than this is uniform for any data set.
ZIPF_MIN, ZIPF_MAX = Decimal("0.01"), Decimal(contract.ZIPF_EXPONENT_MAX)
LENGTH_MIN_NS = round(contract.DURATION_MIN_S * 10**9)
# Half of what the server lets a benchmark take leaves the warm-up and the end their time.
LENGTH_MAX_NS = contract.RUN_TIMEOUT_MAX_S // 2 * 10**9
STALL_TIMEOUT_MAX_NS = contract.STALL_TIMEOUT_MAX_S * 10**9
# Less than the server takes.
WARMUP_MAX_NS = 3_600 * 10**9
KEY_TEXT_MAX = 200
LIMIT_MAX = 1_000_000_000


class _OneOrMore:
    """In a file, ``x`` stands for ``[x]``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: value if isinstance(value, list) else [value], handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        array = handler(schema)
        return {"anyOf": [array["items"], array]}


_AXIS = (Length(1, MAX_SCENARIOS), _OneOrMore())


_WARMUP_FORM = (
    f'a number of requests from 1 to {REQUESTS_MAX}, or a duration such as "2s", from '
    f"{format_duration(LENGTH_MIN_NS)} to {format_duration(WARMUP_MAX_NS)}"
)


def _parse_warmup(value: object) -> Warmup:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= REQUESTS_MAX:
            raise ValueError("is out of range")
        return Warmup(requests=value)
    try:
        length_ns = parse_duration(value)
    except ValueError as error:
        raise ValueError("is neither a number of requests nor a duration") from error
    if not LENGTH_MIN_NS <= length_ns <= WARMUP_MAX_NS:
        raise ValueError("is out of range")
    return Warmup(length_ns=length_ns)


_WARMUP = (
    checked(_parse_warmup, _WARMUP_FORM, hints.warmups),
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
    key_size: Annotated[int, *integer(1, contract.KEY_SIZE_MAX_BYTES)] = Field(default=8, alias="keySize")
    val_size: Annotated[int, *integer(1, contract.VAL_SIZE_MAX_BYTES)] = Field(default=256, alias="valSize")
    keys: Annotated[int, *integer(1, REQUESTS_MAX)] = 10_000


class RawLoad(StrictModel):
    """How many requests or for how long, at which rate, by how many clients, over how many connections."""

    model_config = ConfigDict(
        title="Load",
        json_schema_extra={
            "oneOf": [{"required": [length]} for length in ("total", "duration", "search")],
            "not": {"required": ["rate", "search"]},
            "dependentSchemas": {"arrival": {"anyOf": [{"required": ["rate"]}, {"required": ["search"]}]}},
        },
    )

    total: Annotated[int | None, *integer(1, REQUESTS_MAX)] = Field(
        default=None, json_schema_extra=means("number of requests")
    )
    duration_ns: Annotated[int | None, *duration(LENGTH_MIN_NS, LENGTH_MAX_NS)] = Field(
        default=None,
        alias="duration",
        json_schema_extra=means("as many requests as start within this time, in place of total"),
    )
    rate: Annotated[list[Annotated[Decimal, *decimal(RATE_MIN, RATE_MAX)]], *_AXIS] = Field(
        default=[], json_schema_extra=means("requests/s over all clients, which makes an open loop; may be a list")
    )
    arrival: Annotated[Arrival | None, *choice("constant", "poisson")] = Field(
        default=None, json_schema_extra=means("evenly spaced requests or Poisson arrivals, with a rate")
    )
    clients: Annotated[list[Annotated[int, *integer(1, contract.CLIENTS_MAX)]], *_AXIS] = Field(
        json_schema_extra=means("clients that each have one request at a time; may be a list")
    )
    conns: Annotated[int, *integer(1, contract.CONNS_MAX)] = Field(
        json_schema_extra=means("TCP connections that the clients share")
    )
    warmup: Annotated[Warmup | None, *_WARMUP] = Field(
        default=None, json_schema_extra=means("what runs ahead and is in no figure")
    )
    request_timeout_ns: Annotated[int | None, *duration(LENGTH_MIN_NS, TIMEOUT_MAX_NS)] = Field(
        default=None, alias="timeout", json_schema_extra=means("deadline of each request")
    )
    stall_timeout_ns: Annotated[int | None, *duration(0, STALL_TIMEOUT_MAX_NS)] = Field(
        default=None,
        alias="stallTimeout",
        json_schema_extra=means("how long without a success before the scenario is ended"),
    )
    search: RawSearch = LEFT_OUT

    @property
    def _searches(self) -> bool:
        return "search" in self.model_fields_set

    @rule
    def _has_a_length(self) -> None:
        if self.total is None and self.duration_ns is None and not self._searches:
            refuse("is missing", "total, a number of requests, or duration, or search", key="total")

    @rule
    def _search_has_no_total(self) -> None:
        self._refuse_beside_search(self.total, "total")

    @rule
    def _search_has_no_duration(self) -> None:
        self._refuse_beside_search(self.duration_ns, "duration")

    @rule
    def _search_has_no_rate(self) -> None:
        self._refuse_beside_search(self.rate or None, "rate")

    def _refuse_beside_search(self, value: object, key: str) -> None:
        if value is not None and self._searches:
            refuse(
                "is given beside search", "search alone, which chooses the rate and the length of each probe", key=key
            )

    @rule
    def _search_has_no_warmup_in_requests(self) -> None:
        if self._searches and self.warmup is not None and self.warmup.requests:
            refuse("is no time", 'a duration such as "1s" beside search, whose rate is not known', key="warmup")

    @rule
    def _objectives_are_below_the_deadline(self) -> None:
        if self._searches:
            self.search.check_deadline(self.request_timeout_ns)

    @rule
    def _has_one_length(self) -> None:
        if self.total is not None and self.duration_ns is not None:
            refuse("is given beside total", "either total or duration", key="duration")

    @rule
    def _clients_have_requests(self) -> None:
        if self.total is not None and max(self.clients) > self.total:
            # The row would claim a concurrency that never was.
            refuse("is more than there are requests", f"at most total, {self.total}", key="clients")

    @rule
    def _stall_is_never_or_long_enough(self) -> None:
        if self.stall_timeout_ns is not None and 0 < self.stall_timeout_ns < LENGTH_MIN_NS:
            allowed = f'"0s", which is never, or at least {format_duration(LENGTH_MIN_NS)}'
            refuse("is too short", allowed, key="stallTimeout")

    @rule
    def _arrivals_have_a_rate(self) -> None:
        if self.arrival is not None and not self.rate and not self._searches:
            allowed = "only beside rate or search: a closed loop has no arrivals"
            refuse("is given without a rate", allowed, key="arrival")

    @rule
    def _makes_no_more_requests_than_the_server_takes(self) -> None:
        if self.rate and self.duration_ns is not None and max(self.rate) * self.duration_ns > REQUESTS_MAX * 10**9:
            seconds = format_duration(self.duration_ns)
            refuse(f"makes too many requests in {seconds}", f"at most {REQUESTS_MAX} requests", key="rate")

    @rule
    def _takes_no_longer_than_the_server_lets_it(self) -> None:
        if self.rate and self.total is not None and self.total * 10**9 > min(self.rate) * LENGTH_MAX_NS:
            most = f"{format_duration(LENGTH_MAX_NS)} in all"
            refuse(f"is too low for {self.total} requests", f"a rate at which they take at most {most}", key="rate")

    @rule
    def _warmup_keeps_the_servers_limits(self) -> None:
        if self.warmup is None or not self.rate:
            return
        requests, length_ns = self.warmup.requests, self.warmup.length_ns
        too_long = requests * 10**9 > min(self.rate) * WARMUP_MAX_NS
        if too_long or max(self.rate) * length_ns > REQUESTS_MAX * 10**9:
            most = f"at most {format_duration(WARMUP_MAX_NS)} and {REQUESTS_MAX} requests at this rate"
            refuse("is too long", most, key="warmup")


class RawData(StrictModel):
    """Sizes in bytes of what is written."""

    model_config = ConfigDict(title="Data")

    key_size: Annotated[int, *integer(1, contract.KEY_SIZE_MAX_BYTES)] = Field(alias="keySize")
    val_size: Annotated[int, *integer(1, contract.VAL_SIZE_MAX_BYTES)] = Field(alias="valSize")


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
    key_space: Annotated[int | None, *integer(1, contract.KEY_SPACE_MAX)] = Field(default=None, alias="keySpace")

    @rule
    def _exponent_has_its_order(self) -> None:
        _refuse_lonely_exponent(self.zipf_exponent, self.keys)

    @rule
    def _drawn_keys_have_a_space(self) -> None:
        drawn = [order for order in self.keys if order in ("uniform", "zipfian")]
        if drawn and self.key_space is None and any(load.total is None and load.search is None for load in self.load):
            refuse(
                "is missing", f"how many keys {drawn[0]} ones are drawn from, where there is no total", key="keySpace"
            )


class RawOnDataset(RawBlock):
    """What blocks on the data set have in common."""

    target: _TARGETS = Field(default=["cluster"])
    keys: _KEY_ORDERS = Field(default=["sequential"])
    zipf_exponent: _EXPONENT = Field(default=None, alias="zipfExponent")

    @rule
    def _exponent_has_its_order(self) -> None:
        _refuse_lonely_exponent(self.zipf_exponent, self.keys)


_SPAN_KEYS = Annotated[list[Annotated[int, *integer(1, REQUESTS_MAX)]], *_AXIS]


class RawReading(RawOnDataset):
    """What blocks with reads have in common."""

    consistency: _CONSISTENCIES
    span_keys: _SPAN_KEYS = Field(default=[], alias="spanKeys")
    verify: Boolean = True


class RawSpan(StrictModel):
    """All keys from one on to before another one."""

    model_config = ConfigDict(title="Span")

    start: Annotated[str, *_KEY] = Field(alias="from")
    end: Annotated[str, *_KEY] = Field(alias="to")

    @rule
    def _ends_after_its_start(self) -> None:
        if self.end <= self.start:
            refuse("is not after the start", f"a key that sorts after from, {self.start}", key="to")


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
    span: RawSpan = LEFT_OUT
    limit: Annotated[int | None, *integer(1, LIMIT_MAX)] = None
    keys_only: Boolean = Field(default=False, alias="keysOnly")
    count_only: Boolean = Field(default=False, alias="countOnly")

    @property
    def _extents(self) -> list[str]:
        fields = zip(_EXTENTS, ("prefix", "span", "span_keys"), strict=True)
        return [key for key, field in fields if field in self.model_fields_set]

    @rule
    def _asks_for_one_extent(self) -> None:
        if len(self._extents) > 1:
            refuse(f"is given beside {self._extents[0]}", "one of prefix, span and spanKeys", key=self._extents[1])

    @rule
    def _limit_has_an_extent(self) -> None:
        if self.limit is not None and not self._extents:
            refuse("is given for single keys", "only beside prefix, span or spanKeys", key="limit")

    @rule
    def _leaves_one_thing_out(self) -> None:
        if self.keys_only and self.count_only:
            refuse("is given beside keysOnly", "one of keysOnly and countOnly", key="countOnly")

    @rule
    def _named_keys_have_no_order(self) -> None:
        self._refuse_beside_a_name("keys", "keys")

    @rule
    def _named_keys_have_no_exponent(self) -> None:
        self._refuse_beside_a_name("zipf_exponent", "zipfExponent")

    def _refuse_beside_a_name(self, field: str, key: str) -> None:
        extents = self._extents
        if extents and extents[0] != "spanKeys" and field in self.model_fields_set:
            refuse(f"is given beside {extents[0]}", "only where reads begin at the data set's keys", key=key)


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
        Length(1, MAX_SCENARIOS),
        Field(description=f"a list of 1 to {MAX_SCENARIOS} blocks"),
    ]


def _every_key() -> dict[str, Any]:
    """The keys that a block of some type has beside those of every block, all of them optional."""
    fields = {name: field for kind in _BLOCKS.values() for name, field in kind.model_fields.items()}
    return {
        name: (annotation_of(field), Field(default=None, alias=field.alias))
        for name, field in fields.items()
        if name not in RawBlock.model_fields
    }


_BLOCKS: dict[object, type[RawAnyBlock]] = {"write": RawWrite, "read": RawRead, "mixed": RawMixed, "txn": RawTxn}
# A block whose type is wrong: what any type has is checked, and nothing else is known of it.
_UNTYPED: type[StrictModel] = create_model("RawUntyped", __base__=RawBlock, **_every_key())

BLOCK: TypeAdapter[RawAnyBlock] = TypeAdapter(Annotated[RawAnyBlock, Field(discriminator="type")])
DATASET: TypeAdapter[RawDataset] = TypeAdapter(RawDataset)
SCENARIO_FILE: TypeAdapter[RawScenarioFile] = TypeAdapter(RawScenarioFile)


def model_at(location: Location, document: Any) -> type[StrictModel]:
    """The model of the object at a location of a scenario file whose JSON value is ``document``."""
    match location:
        case ():
            return RawScenarioFile
        case ("dataset",):
            return RawDataset
        case (_, _, "load", *_, "search"):
            return RawSearch
        case (_, _, "load", *_):
            return RawLoad
        case (_, _, "data", *_):
            return RawData
        case (_, _, "span", *_):
            return RawSpan
        case (_, int(index)):
            return _BLOCKS.get(_type_of(document["scenarios"][index]), _UNTYPED)
    return _UNTYPED


def _type_of(block: object) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""
