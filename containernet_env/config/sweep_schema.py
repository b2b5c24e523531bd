"""The keys of a sweep file. What stands in ``axes`` and ``exclude`` is checked by ``config.sweeps``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue

from containernet_env.config.fields import FilePath, checked, integer, refuse
from containernet_env.config.link_schema import LEFT_OUT, RawDirection
from containernet_env.config.load_schema import RawLoad, means
from containernet_env.config.scenario_schema import RawData, RawDataset, RawMixed, RawRead, RawWrite
from containernet_env.config.sweep_axes import AXES, CLIENT, DATASET_KEYS, MEMBER_AXIS_PATTERN, MEMBERS, RATIO_PATTERN
from containernet_env.config.topology_schema import MAX_NODES, RawEtcd, RawNode
from containernet_env.config.validation import Length, StrictModel, rule
from containernet_env.model.link import SEED_MAX

MAX_DIMENSIONS = 20
MAX_VALUES = 1000
REPEAT_MAX = 1000
AXIS_FORM = 'an object of axes, each with a list of values, or with a ratio such as "clients / 10"'
EXCLUDE_FORM = "an object of axes, each with a value of its own"


def _object(form: str, problem: str) -> Any:
    def parse(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(problem)
        return value

    return checked(parse, form)


def _values_schemas() -> dict[str, JsonSchemaValue]:
    """What one value of each axis may be, from the models that read topologies and scenarios; any, where it varies."""
    known: dict[str, JsonSchemaValue] = {}
    for model in (RawDirection, RawRead, RawMixed, RawWrite, RawNode, RawEtcd, RawData, RawLoad):
        properties = model.model_json_schema(by_alias=True)["properties"]
        known |= {key: _single(value) for key, value in properties.items()}
    known[DATASET_KEYS] = _single(RawDataset.model_json_schema(by_alias=True)["properties"]["keys"])
    known[MEMBERS] = {"type": "integer", "minimum": 1, "maximum": MAX_NODES}
    return {name: known.get(name.removeprefix(f"{CLIENT}."), {}) for name in AXES}


def _single(value: JsonSchemaValue) -> JsonSchemaValue:
    """One of what may be a list; without defaults, and nothing of what is defined elsewhere."""
    kinds = value.get("anyOf", ())
    if any(kind.get("type") == "array" for kind in kinds):
        value = kinds[0]
    if "$ref" in str(value):
        return {}
    return {key: item for key, item in value.items() if key not in ("default", "title", "meaning")}


def _axes_schema() -> dict[str, Any]:
    ratio = {"type": "string", "pattern": RATIO_PATTERN}

    def axis(value: JsonSchemaValue, name: str = CLIENT) -> dict[str, Any]:
        values = {"type": "array", "items": value, "minItems": 1, "maxItems": MAX_VALUES}
        return values if name in AXES and AXES[name].quantity is None else {"anyOf": [values, ratio]}

    return {
        "type": "object",
        "minProperties": 1,
        "properties": {name: axis(value, name) for name, value in _values_schemas().items()},
        "patternProperties": {MEMBER_AXIS_PATTERN: axis({})},
        "additionalProperties": False,
        "description": AXIS_FORM,
    }


_EXCLUDE_SCHEMA = {"type": "object", "minProperties": 1, "description": EXCLUDE_FORM}


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("is not a text")
    return value


_PATTERN_FORM = "a name, a glob or a type of scenarios"
_PATTERN = (
    checked(_text, _PATTERN_FORM),
    WithJsonSchema({"type": "string", "minLength": 1, "description": _PATTERN_FORM}),
)


_ONLY = Annotated[list[Annotated[str, *_PATTERN]], Length(1, MAX_VALUES)]
_REPEAT = Annotated[int | None, *integer(1, REPEAT_MAX)]
_AXES = Annotated[
    list[Annotated[dict[str, Any], _object(AXIS_FORM, "is not an object of axes"), WithJsonSchema(_axes_schema())]],
    Length(1, MAX_DIMENSIONS),
]
_EXCLUDE = Annotated[
    list[Annotated[dict[str, Any], _object(EXCLUDE_FORM, "is not an object of axes"), WithJsonSchema(_EXCLUDE_SCHEMA)]],
    Length(1, MAX_VALUES),
]


class RawQuick(StrictModel):
    """The quick form of a sweep: its keys take the place of the file's own."""

    model_config = ConfigDict(title="Quick form", json_schema_extra={"minProperties": 1})

    scenarios: FilePath = Field(default=None, json_schema_extra=means("the scenarios that are varied"))
    only: _ONLY = Field(default=[], json_schema_extra=means("only these scenarios (all, with scenarios of its own)"))
    repeat: _REPEAT = Field(default=None, json_schema_extra=means("how often each cell is measured"))
    axes: _AXES = Field(default=[], json_schema_extra=means("what varies"))
    exclude: _EXCLUDE = Field(
        default=[], json_schema_extra=means("combinations that are left out (none, with axes of its own)")
    )

    @rule
    def _says_something(self) -> None:
        if not self.model_fields_set:
            refuse("is empty", f"an object with some of the keys {', '.join(type(self).known_keys())}")


class RawSweep(StrictModel):
    """A sweep file."""

    model_config = ConfigDict(title="Sweep")

    topology: FilePath = Field(json_schema_extra=means("the topology that is varied"))
    scenarios: FilePath = Field(
        default=None, json_schema_extra=means("the scenarios that are varied (those of the topology)")
    )
    only: _ONLY = Field(default=[], json_schema_extra=means("only these scenarios (all)"))
    repeat: _REPEAT = Field(
        default=None, json_schema_extra=means("how often each cell is measured, each time on a new cluster (1)")
    )
    seed: Annotated[int | None, *integer(0, SEED_MAX)] = Field(
        default=None, json_schema_extra=means("what the order, losses and jitter are drawn from (drawn, and recorded)")
    )
    axes: _AXES = Field(
        default=[], json_schema_extra=means("what varies: entries multiply, axes of one entry vary together")
    )
    exclude: _EXCLUDE = Field(default=[], json_schema_extra=means("combinations that are left out"))
    quick: RawQuick = Field(
        default=LEFT_OUT,
        json_schema_extra=means(
            "what --quick measures instead: its keys take the place of those above (without it, the quick scenarios)"
        ),
    )


SWEEP_FILE: TypeAdapter[RawSweep] = TypeAdapter(RawSweep)
