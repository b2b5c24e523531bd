"""The keys of a scenario file."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, WithJsonSchema, create_model

from containernet_env.config.event_schema import EVENTS_MAX, MORE_EVENTS, RawEvent
from containernet_env.config.fields import Boolean, checked, choice, decimal, integer, one_of_or_name, refuse
from containernet_env.config.link_schema import LEFT_OUT
from containernet_env.config.load_schema import AXIS, MAX_SCENARIOS, OneOrMore, RawLoad, RawSearch
from containernet_env.config.positions import Location
from containernet_env.config.validation import Length, StrictModel, annotation_of, rule
from containernet_env.model import load_contract as contract
from containernet_env.model.scenario import ANY_MEMBER, Consistency, KeyOrder, ScenarioType

# "More than 0" to the server; less than this is uniform for any data set.
ZIPF_MIN, ZIPF_MAX = Decimal("0.01"), Decimal(contract.ZIPF_EXPONENT_MAX)
KEY_TEXT_MAX = 200
LIMIT_MAX = 1_000_000_000


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
    keys: Annotated[int, *integer(1, contract.KEY_SPACE_MAX)] = 10_000


class RawData(StrictModel):
    """Sizes in bytes of what is written."""

    model_config = ConfigDict(title="Data")

    key_size: Annotated[int, *integer(1, contract.KEY_SIZE_MAX_BYTES)] = Field(alias="keySize")
    val_size: Annotated[int, *integer(1, contract.VAL_SIZE_MAX_BYTES)] = Field(alias="valSize")


class RawBlock(StrictModel):
    """What every block has."""

    type: Annotated[ScenarioType, *choice("write", "read", "mixed", "txn")]
    load: Annotated[list[RawLoad], *AXIS]
    events: Annotated[list[RawEvent], Length(1, EVENTS_MAX, MORE_EVENTS), OneOrMore()] = Field(default=[])

    @classmethod
    def known_keys(cls) -> list[str]:
        """See ``StrictModel``: what is done meanwhile comes after what is measured."""
        return [*(key for key in super().known_keys() if key != "events"), "events"]


_TARGETS = Annotated[list[Annotated[str, *one_of_or_name(*ANY_MEMBER)]], *AXIS]
_KEY_ORDERS = Annotated[
    list[Annotated[KeyOrder, *choice("sequential", "shuffled", "uniform", "zipfian")]],
    *AXIS,
]
_EXPONENT = Annotated[Decimal | None, *decimal(ZIPF_MIN, ZIPF_MAX)]


def _refuse_lonely_exponent(exponent: Decimal | None, orders: list[KeyOrder]) -> None:
    if exponent is not None and "zipfian" not in orders:
        refuse("is given without zipfian keys", 'only beside keys "zipfian"', key="zipfExponent")


_CONSISTENCIES = Annotated[list[Annotated[Consistency, *choice("l", "s", "default")]], *AXIS]


class RawWrite(RawBlock):
    """Writes: for each load, for each data, for each target, for each order of keys."""

    model_config = ConfigDict(title="Writes")

    type: Literal["write"]
    data: Annotated[list[RawData], *AXIS]
    target: _TARGETS
    keys: _KEY_ORDERS = Field(default=["sequential"])
    zipf_exponent: _EXPONENT = Field(default=None, alias="zipfExponent")
    key_space: Annotated[int | None, *integer(1, contract.KEY_SPACE_MAX)] = Field(default=None, alias="keySpace")
    history: Boolean = False

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


_SPAN_KEYS = Annotated[list[Annotated[int, *integer(1, contract.SPAN_KEYS_MAX)]], *AXIS]


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
    history: Boolean = False

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
    ratio: Annotated[list[Annotated[Decimal, *decimal(Decimal(0), Decimal(1))]], *AXIS]
    history: Boolean = False


class RawTxn(RawOnDataset):
    """Transactions on the data set: for each load, for each target, for each order of keys."""

    model_config = ConfigDict(title="Transactions")

    type: Literal["txn"]
    history: Boolean = False


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
BLOCK_KEYS: dict[str, frozenset[str]] = {str(kind): frozenset(model.known_keys()) for kind, model in _BLOCKS.items()}
"""The keys that a block of a type can have."""
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
        case (_, _, "events", *_):
            return RawEvent
        case (_, int(index)):
            return _BLOCKS.get(_type_of(document["scenarios"][index]), _UNTYPED)
    return _UNTYPED


def _type_of(block: object) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""
