"""The keys of a scenario file."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from containernet_env.config.fields import choice, integer, refuse
from containernet_env.config.reader import Location
from containernet_env.config.validation import StrictModel

ScenarioType = Literal["write", "read"]
Target = Literal["leader", "cluster"]
Consistency = Literal["l", "s"]

MAX_SCENARIOS = 1000
"""A file that multiplies out to more than this is a mistake, not a run."""

# What the benchmark server takes (benchmark_image/internal/spec): a file that passes here is never refused there.
CLIENTS_MAX = 10_000
CONNS_MAX = 10_000
REQUESTS_MAX = 10_000_000
KEY_MAX_BYTES = 1024
VALUE_MAX_BYTES = 1 << 20


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


class RawDataset(StrictModel):
    """The data set that the reads read."""

    model_config = ConfigDict(title="Data set")

    key_size: Annotated[int, *integer(1, KEY_MAX_BYTES)] = Field(default=8, alias="keySize")
    val_size: Annotated[int, *integer(1, VALUE_MAX_BYTES)] = Field(default=256, alias="valSize")
    keys: Annotated[int, *integer(1, REQUESTS_MAX)] = 10_000


class RawLoad(StrictModel):
    """How many requests, by how many concurrent clients, over how many connections."""

    model_config = ConfigDict(title="Load")

    total: Annotated[int, *integer(1, REQUESTS_MAX)]
    clients: Annotated[int, *integer(1, CLIENTS_MAX)]
    conns: Annotated[int, *integer(1, CONNS_MAX)]

    @model_validator(mode="after")
    def _every_client_has_a_request(self) -> Self:
        # The row would claim a concurrency that never was.
        if self.clients > self.total:
            refuse("is more than there are requests", f"at most total, {self.total}", key="clients")
        return self


class RawData(StrictModel):
    """Sizes in bytes of what is written."""

    model_config = ConfigDict(title="Data")

    key_size: Annotated[int, *integer(1, KEY_MAX_BYTES)] = Field(alias="keySize")
    val_size: Annotated[int, *integer(1, VALUE_MAX_BYTES)] = Field(alias="valSize")


class RawBlock(StrictModel):
    """What every block has."""

    type: Annotated[ScenarioType, *choice("write", "read")]
    load: Annotated[list[RawLoad], *_AXIS]


class RawWrite(RawBlock):
    """Writes: for each load, for each data, for each target."""

    model_config = ConfigDict(title="Writes")

    type: Literal["write"]
    data: Annotated[list[RawData], *_AXIS]
    target: Annotated[list[Annotated[Target, *choice("leader", "cluster")]], *_AXIS]


class RawRead(RawBlock):
    """Reads of the data set: for each load, for each consistency."""

    model_config = ConfigDict(title="Reads")

    type: Literal["read"]
    consistency: Annotated[list[Annotated[Consistency, *choice("l", "s")]], *_AXIS]


class RawScenarioFile(StrictModel):
    """A scenario file."""

    model_config = ConfigDict(title="Scenarios")

    dataset: RawDataset = RawDataset()
    scenarios: Annotated[
        list[Annotated[RawWrite | RawRead, Field(discriminator="type")]],
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
        case (_, int(index)):
            return _BLOCKS.get(_type_of(document["scenarios"][index]), RawBlock)
    return RawBlock


_BLOCKS: dict[object, type[StrictModel]] = {"write": RawWrite, "read": RawRead}


def _type_of(block: object) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""
