"""Sweep files: which values of which axes are combined, and which combinations are left out.

Each axis is known by the keys that it sets, in documents as ``config.writer`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from containernet_env.base.errors import ConfigError
from containernet_env.base.units import format_duration, format_number, format_size, parse_duration, parse_size
from containernet_env.config import hints
from containernet_env.config.endpoints import KEY as ENDPOINTS
from containernet_env.config.fields import (
    LEFT_OUT,
    MAX_NODES,
    NAME_PATTERN,
    FilePath,
    Length,
    Quantity,
    StrictModel,
    integer,
    mapping,
    quantity_of,
    refuse,
    rule,
    schema_of_key,
    text,
    validate,
)
from containernet_env.config.links import FROM_SWITCH, TO_SWITCH, RawDirection
from containernet_env.config.reader import (
    Document,
    Finding,
    Location,
    document_of,
    json_text,
    parse_document,
    read_document,
    render,
)
from containernet_env.config.scenarios import BLOCKS, RawData, RawDataset, RawLoad
from containernet_env.config.stores import DEFAULT_KIND, section_of
from containernet_env.config.topologies import RawEtcd, RawNode
from containernet_env.model.link import SEED_MAX
from containernet_env.model.names import closest, find

Level = Literal["topology", "scenario"]

CLIENT = "client"
MEMBERS = "members"
"""The axis of the number of members."""
STORE = "store"
"""The axis of stores, of their versions and flags."""


def _keys_of(model: type[StrictModel], *but: str) -> dict[str, Quantity | None]:
    """The keys of an object, each with the quantity of its value."""
    return {key: quantity_of(model, key) for key in model.known_keys() if key not in but}


def _places_in_link(key: str) -> tuple[Location, ...]:
    sides = (TO_SWITCH,) if key == "uplink" else (TO_SWITCH, FROM_SWITCH)
    return tuple(("link", side, key) for side in sides)


# Of a host: its keys below the host, and their quantities. The writer has delay and bandwidth in ``link`` alone.
_HOST: Mapping[str, tuple[tuple[Location, ...], Quantity | None]] = {
    "link_delay": (_places_in_link("delay"), "duration"),
    **{
        key: (_places_in_link(key), "duration" if key == "jitter" else quantity)
        for key, quantity in _keys_of(RawDirection, "delay", "seed").items()
    },
    **{key: (((key,),), quantity_of(RawNode, key)) for key in ("cpus", "mem")},
}
_SETTINGS, _LOAD, _SIZES = _keys_of(RawEtcd), _keys_of(RawLoad, "search"), _keys_of(RawData)
_BLOCK = {
    key: quantity
    for model in BLOCKS.values()
    for key, quantity in _keys_of(model, "type", "load", "data", "events", "prefix", "span").items()
}
DATASET_KEYS = "dataset.keys"
# A load has one of these: the one that is set takes the place of the others.
_LENGTHS = ("total", "duration", "search")
_HOST_AXIS = re.compile(rf"({NAME_PATTERN})\.({'|'.join(_HOST)})")


@dataclass(frozen=True, slots=True)
class Axis:
    """Something that a sweep varies. ``host`` is a member's name or ``client`` where it is about that one alone."""

    name: str
    level: Level
    key: str
    quantity: Quantity | None
    host: str | None = None


AXES: Mapping[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis(MEMBERS, "topology", MEMBERS, "count"),
        *(Axis(key, "topology", key, quantity) for key, (_, quantity) in _HOST.items()),
        *(Axis(f"{CLIENT}.{key}", "topology", key, quantity, CLIENT) for key, (_, quantity) in _HOST.items()),
        *(Axis(key, "topology", key, quantity) for key, quantity in _SETTINGS.items()),
        Axis(STORE, "topology", STORE, None),
        *(Axis(key, "scenario", key, quantity) for key, quantity in {**_LOAD, **_SIZES, **_BLOCK}.items()),
        Axis(DATASET_KEYS, "scenario", "keys", "count", "dataset"),
    )
}
"""Every axis by its name, but for those of one member (``etcd2.cpus``); see `axis_of`."""


def axis_of(name: str) -> Axis | None:
    """The axis of that name; ``None`` if there is none."""
    if name in AXES:
        return AXES[name]
    match = _HOST_AXIS.fullmatch(name)
    return None if match is None else Axis(name, "topology", match[2], _HOST[match[2]][1], match[1])


def axis_name(name: str) -> str:
    """The name of the axis that a user means by a name of it, such as that of its column; else ``name`` as it is.

    Of one member, too: ``etcd2.LinkDelay_ms`` is ``etcd2.link_delay``.
    """
    if axis_of(name) is not None:
        return name
    host, dot, key = name.rpartition(".")
    alone = find(key, list(_HOST)) if dot and re.fullmatch(NAME_PATTERN, host) else None
    return f"{host}.{alone}" if alone else find(name, list(AXES)) or name


MEMBER_AXIS_PATTERN = f"^{NAME_PATTERN}\\.({'|'.join(_HOST)})$"
"""Names of axes of one member, for a JSON Schema."""


class NotThereError(ValueError):
    """The axis is about something that the document does not have."""


def set_value(document: dict[str, Any], axis: Axis, value: Any) -> list[Location]:
    """Set an axis in a document of its level to a value as a file has it; where the document has it then.

    Nothing is checked but whether there is such a thing: raises ``NotThereError``, for a scenario also where its type
    has no such key. Scenario documents have one block.
    """
    places = _places(document, axis)
    if axis.key == MEMBERS:
        _set_members(document, value)
    elif axis.key == STORE:
        # Another store has the settings that the one before had, under its own name.
        settings = document.pop(section_of(document))
        document[STORE] = value
        document[section_of(document)] = settings
    else:
        if axis.level == "scenario":
            _leave_out_others(document["scenarios"][0], axis.key)
        for place in places:
            _put(document, place, _jitter(_get(document, place), value) if axis.key == "jitter" else value)
    return places


def value_of(document: Mapping[str, Any], axis: Axis) -> Any:
    """A document's value for an axis; ``None`` if it has none, or not the same everywhere."""
    found = [_get(document, place) for place in _places(document, axis)]
    first = found[0]
    if axis.key == MEMBERS:
        return len(first)
    if axis.key == STORE:
        return first or DEFAULT_KIND
    first = first.get("value") if axis.key == "jitter" and isinstance(first, dict) else first
    return first if all(item == found[0] for item in found) else None


def _places(document: Mapping[str, Any], axis: Axis) -> list[Location]:
    """Where a document has an axis. Raises ``NotThereError`` if it cannot have it."""
    if axis.level == "scenario":
        return [_place_in_scenario(document, axis)]
    if ENDPOINTS in document:
        raise NotThereError("is of hosts, links or the store, which are not configurable in an external cluster")
    if axis.key in (MEMBERS, STORE):
        return [("nodes",) if axis.key == MEMBERS else (STORE,)]
    if axis.key in _SETTINGS:
        return [(section_of(document), axis.key)]
    return [(*host, *steps) for host in _hosts(document, axis.host) for steps in _HOST[axis.key][0]]


def _hosts(document: Mapping[str, Any], name: str | None) -> Iterator[Location]:
    nodes = document["nodes"]
    if name == CLIENT:
        yield (CLIENT,)
        return
    found = [index for index, node in enumerate(nodes) if name in (None, node["name"])]
    if not found:
        known = ", ".join(node["name"] for node in nodes)
        raise NotThereError(f"{name} is neither a member nor {CLIENT}: the members are {known}")
    yield from (("nodes", index) for index in found)


def _jitter(held: Any, value: Any) -> Any:
    """A duration sets the size of the jitter alone, and 0 is none."""
    try:
        size_ns = parse_duration(value)
    except ValueError:
        return value
    kind = {"distribution": "uniform"} if not isinstance(held, dict) else held
    return {**kind, "value": value} if size_ns else None


def _set_members(document: dict[str, Any], count: Any) -> None:
    """The first members, or all and then more like the last one, each with the next address and a name that is free."""
    nodes = document["nodes"]
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_NODES:
        raise ValueError(f"a whole number from 1 to {MAX_NODES}")
    made = nodes[:count]
    taken = {node["ip"] for node in nodes} | {document[CLIENT]["ip"]}
    free = _free_addresses(IPv4Network(document["subnet"]), IPv4Address(made[-1]["ip"]), taken)
    while len(made) < count:
        address = next(free, None)
        if address is None:
            raise ValueError(f"at most {len(made)}: {document['subnet']} has no more addresses")
        names = {node["name"] for node in made}
        name = next(
            name for number in range(len(made) + 1, 2 * MAX_NODES + 2) if (name := f"etcd{number}") not in names
        )
        made.append({**copy_of(made[-1]), "name": name, "ip": str(address)})
    document["nodes"] = made


def _free_addresses(subnet: IPv4Network, last: IPv4Address, taken: Collection[str]) -> Iterator[IPv4Address]:
    """Those after ``last``, then those before it."""
    first = int(subnet.network_address) + 1
    after = range(int(last) + 1, int(subnet.broadcast_address))
    for number in chain(after, range(int(last) - 1, first - 1, -1)):
        if str(address := IPv4Address(number)) not in taken:
            yield address


def _place_in_scenario(document: Mapping[str, Any], axis: Axis) -> Location:
    kind = document["scenarios"][0]["type"]
    at: Location = ("scenarios", 0)
    if axis.name == DATASET_KEYS:
        if kind == "write":
            raise NotThereError("writes use no data set")
        return ("dataset", "keys")
    if axis.key in _LOAD:
        return (*at, "load", axis.key)
    if axis.key in _SIZES:
        return (*at, "data", axis.key) if kind == "write" else ("dataset", axis.key)
    if axis.key not in BLOCKS[kind].known_keys():
        raise NotThereError(f"a {kind} has no {axis.key}")
    return (*at, axis.key)


def _leave_out_others(block: dict[str, Any], key: str) -> None:
    """Remove the keys that a block cannot have beside the key that is set."""
    of_load = _LENGTHS if key in _LENGTHS else ("search",) if key == "rate" else ()
    for other in of_load:
        block["load"].pop(other, None)
    for other in ("prefix", "span") if key == "spanKeys" else ():
        block.pop(other, None)


def _get(document: Mapping[str, Any], place: Location) -> Any:
    value: Any = document
    for step in place:
        if isinstance(value, dict) and step not in value:
            return None
        value = value[step]
    return value


def _put(document: dict[str, Any], place: Location, value: Any) -> None:
    """Set the value at a place; ``None`` removes it."""
    held: Any = document
    for step in place[:-1]:
        held = held[step]
    if value is None:
        held.pop(place[-1], None)
    else:
        held[place[-1]] = value


def copy_of(value: Any) -> Any:
    """A value of JSON that can be changed by itself."""
    if isinstance(value, dict):
        return {key: copy_of(item) for key, item in value.items()}
    return [copy_of(item) for item in value] if isinstance(value, list) else value


_NUMBER = "[0-9]{1,15}(?:\\.[0-9]{1,12})?"
_RATIO = re.compile(rf"\s*([A-Za-z][A-Za-z0-9_.-]*)\s*([*/])\s*({_NUMBER})\s*")
RATIO_PATTERN = f"^\\s*[A-Za-z][A-Za-z0-9_.-]*\\s*[*/]\\s*{_NUMBER.replace('?:', '')}\\s*$"
RATIO_FORM = 'a ratio of another value such as "clients / 10"'


@dataclass(frozen=True, slots=True)
class Ratio:
    """A value as a multiple of that of another axis or key."""

    of: str
    times: Decimal

    @classmethod
    def parse(cls, text: str) -> Ratio | None:
        """The ratio that a text is; ``None`` for another text. Raises ``ValueError`` for a division by 0."""
        match = _RATIO.fullmatch(text)
        if match is None:
            return None
        number = Decimal(match[3])
        if number == 0:
            raise ValueError("is a ratio of nothing")
        return cls(match[1], number if match[2] == "*" else 1 / number)


_MOST_DIGITS = 18
"""No axis takes numbers beyond; written out, 1e999999999 has a gigabyte."""


def number_of(quantity: Quantity, value: Any) -> Decimal:
    """A value as a number: requests, ns, bytes. Raises ``ValueError`` if it is none, such as ``unlimited``."""
    if quantity in ("duration", "milliseconds"):
        return Decimal(parse_duration(value))
    if quantity == "size":
        return Decimal(parse_size(value))
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float):
        raise ValueError("is not a number")
    number = Decimal(str(value))
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError("is out of range")
    return number


def text_of_number(quantity: Quantity, number: Decimal) -> Any:
    """A value in its form in a file: integers are rounded to the nearest, and never to 0."""
    if quantity == "number":
        return Decimal(format_number(round(number, 6)))
    if quantity == "count":
        return max(1, int(number + Decimal("0.5")))
    if quantity == "size":
        return format_size(max(1, int(number + Decimal("0.5"))))
    step = 10**6 if quantity == "milliseconds" else 1
    return format_duration(max(1, int(number / step + Decimal("0.5"))) * step)


def comparable(quantity: Quantity | None, value: Any) -> Any:
    """Equal for values that mean the same: 1, 1.0; "1ms", "1000us"."""
    if quantity is not None:
        try:
            return format_number(number_of(quantity, value))
        except ValueError:
            pass
    if isinstance(value, dict):
        return tuple(sorted((key, comparable(None, item)) for key, item in value.items()))
    if isinstance(value, int | Decimal | float) and not isinstance(value, bool):
        number = Decimal(str(value))
        return format_number(number) if abs(number.adjusted()) <= _MOST_DIGITS else str(number)
    return value


MAX_DIMENSIONS = 20
MAX_VALUES = 1000
REPEAT_MAX = 1000
AXIS_FORM = 'an object of axes, each with a list of values, or with a ratio such as "clients / 10"'
EXCLUDE_FORM = "an object of axes, each with a value of its own"


def _values_schemas() -> dict[str, dict[str, Any]]:
    """The allowed single values of each axis, from the models that read topologies and scenarios; any, if it varies."""
    models: tuple[type[StrictModel], ...] = (RawDirection, *BLOCKS.values(), RawNode, RawEtcd, RawData, RawLoad)
    known = {key: schema_of_key(model, key) for model in models for key in model.known_keys()}
    known[DATASET_KEYS] = schema_of_key(RawDataset, "keys")
    known[MEMBERS] = {"type": "integer", "minimum": 1, "maximum": MAX_NODES}
    return {name: known.get(name.removeprefix(f"{CLIENT}."), {}) for name in AXES}


def _axes_schema() -> dict[str, Any]:
    ratio = {"type": "string", "pattern": RATIO_PATTERN}

    def axis(value: dict[str, Any], name: str = CLIENT) -> dict[str, Any]:
        values = {"type": "array", "items": value, "minItems": 1, "maxItems": MAX_VALUES}
        return values if name in AXES and AXES[name].quantity is None else {"anyOf": [values, ratio]}

    return {
        "minProperties": 1,
        "properties": {name: axis(value, name) for name, value in _values_schemas().items()},
        "patternProperties": {MEMBER_AXIS_PATTERN: axis({})},
        "additionalProperties": False,
    }


_PATTERN = text("is not a text", "a name, a glob or a type of scenarios", least=1)
_AXES_KIND = mapping("is not an object of axes", AXIS_FORM, _axes_schema())
_EXCLUDED = mapping("is not an object of axes", EXCLUDE_FORM, {"minProperties": 1})
_ONLY = Annotated[list[Annotated[str, _PATTERN]], Length(1, MAX_VALUES)]
_REPEAT = Annotated[int | None, integer(1, REPEAT_MAX)]
_AXES = Annotated[list[Annotated[dict[str, Any], _AXES_KIND]], Length(1, MAX_DIMENSIONS)]
_EXCLUDE = Annotated[list[Annotated[dict[str, Any], _EXCLUDED]], Length(1, MAX_VALUES)]


class RawQuick(StrictModel):
    """The quick form of a sweep: its keys take the place of the file's own."""

    model_config = ConfigDict(title="Quick form", json_schema_extra={"minProperties": 1})

    scenarios: FilePath = Field(default=None, description="the scenarios that are varied")
    only: _ONLY = Field(default=[], description="only these scenarios (all, with scenarios of its own)")
    repeat: _REPEAT = Field(default=None, description="how often each cell is measured")
    axes: _AXES = Field(default=[], description="what varies")
    exclude: _EXCLUDE = Field(default=[], description="combinations that are left out (none, with axes of its own)")

    @rule
    def _says_something(self) -> None:
        if not self.model_fields_set:
            refuse("is empty", f"an object with some of the keys {', '.join(type(self).known_keys())}")


class RawSweep(StrictModel):
    """A sweep file."""

    model_config = ConfigDict(title="Sweep")

    topology: FilePath = Field(description="the topology that is varied")
    scenarios: FilePath = Field(default=None, description="the scenarios that are varied (those of the topology)")
    only: _ONLY = Field(default=[], description="only these scenarios (all)")
    repeat: _REPEAT = Field(default=None, description="how often each cell is measured, each time on a new cluster (1)")
    seed: Annotated[int | None, integer(0, SEED_MAX)] = Field(
        default=None, description="what the order, losses and jitter are drawn from (drawn, and recorded)"
    )
    axes: _AXES = Field(default=[], description="what varies: entries multiply, axes of one entry vary together")
    exclude: _EXCLUDE = Field(default=[], description="combinations that are left out")
    quick: RawQuick = Field(
        default=LEFT_OUT,
        description="what --quick measures instead: its keys take the place of those above "
        "(without it, the quick scenarios)",
    )


SWEEP_FILE: TypeAdapter[RawSweep] = TypeAdapter(RawSweep)


_AXIS_PLACE = re.compile(r'\$\.axes\[\d+\](?:\.|\["([^"]*)"\])')
VALUES_FORM = f"a list of 1 to {MAX_VALUES} values, or {RATIO_FORM}"


@dataclass(frozen=True, slots=True)
class Dimension:
    """Axes that vary together: each of ``points`` has a value for each of ``axes``; ``ratios`` follow from others.

    ``places`` are the places of the axes in the file.
    """

    axes: tuple[Axis, ...]
    points: tuple[Mapping[str, Any], ...]
    ratios: tuple[tuple[Axis, Ratio], ...]
    places: Mapping[str, Location]


@dataclass(frozen=True, slots=True)
class SweepFile:
    """A sweep as its file has it; paths are resolved against the file's own directory, and have not been opened.

    ``is_quick``: it is the file's quick form. ``axes_at`` and ``exclude_at`` are their places in the file.
    """

    document: Document
    topology: Path
    scenarios: Path | None
    only: tuple[str, ...]
    repeat: int | None
    seed: int | None
    dimensions: tuple[Dimension, ...]
    exclude: tuple[Mapping[str, Any], ...]
    is_quick: bool
    axes_at: Location
    exclude_at: Location

    def refuse(self, findings: Sequence[Finding]) -> None:
        """Raise ``ConfigError`` with these findings, if any; places in a generated text have no lines."""
        _refuse(self.document, findings)


def is_sweep(document: Document) -> bool:
    """Whether a document has the form of a sweep, and not of a topology."""
    return isinstance(document.value, dict) and not {"nodes", "subnet", "endpoints"} & document.value.keys()


def load_sweep(path: Path | str, settings: Sequence[str] = (), quick: bool = False) -> SweepFile:
    """The sweep in a file, or over a topology file by ``settings`` alone: ``link_delay=1ms,3ms``, ``conns=clients/10``.

    A setting is an axis of its own; one that the file has takes its place there. ``quick``: the file's quick form,
    where it has one. Raises ``ConfigError`` with every problem, also of the form that is not taken.
    """
    document = read_document(Path(path))
    if not is_sweep(document):
        document = _written(document.path, {"topology": document.path.name})
    is_quick = quick and isinstance(document.value.get("quick"), dict)
    if settings and is_quick:
        _checked(document)
        document = _written(document.path, quick_form(document.value))
    if settings:
        document = _with_settings(document, settings)
    raw = _checked(document)
    own = document.value.get("quick", {}) if is_quick else {}
    if own:
        raw = SWEEP_FILE.validate_python(quick_form(document.value))
    assert raw.topology is not None
    folder = document.path.parent
    axes_at, exclude_at = ((*(("quick",) if name in own else ()), name) for name in ("axes", "exclude"))
    return SweepFile(
        document,
        folder / raw.topology,
        folder / raw.scenarios if raw.scenarios else None,
        tuple(raw.only),
        raw.repeat,
        raw.seed,
        tuple(_dimension((*axes_at, index), entry) for index, entry in enumerate(raw.axes)),
        tuple(raw.exclude),
        is_quick,
        axes_at,
        exclude_at,
    )


def _checked(document: Document) -> RawSweep:
    """A sweep, both of its forms checked."""
    validated = validate(SWEEP_FILE, document)
    findings = [*validated.findings, *_axes_findings(document.value), *_quick_findings(document.value)]
    _refuse(document, findings)
    assert validated.value is not None
    return validated.value


def quick_form(value: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep with the keys of its ``quick`` in their places; ``only`` and ``exclude`` are passed on with their
    subjects."""
    quick = value["quick"]
    about = {"only": "scenarios", "exclude": "axes"}
    kept = {key: item for key, item in value.items() if key != "quick" and about.get(key) not in quick}
    return {**kept, **quick}


def _written(path: Path, value: Any) -> Document:
    """A document that no file holds, shown under a path."""
    return document_of(path, json_text(value))


def _refuse(document: Document, findings: Sequence[Finding]) -> None:
    try:
        document.refuse(findings)
    except ConfigError as error:
        if document.sha256:
            raise
        # The text is generated: an axis is known by its name alone.
        found = [
            replace(problem, path=_AXIS_PLACE.sub(r"\1", problem.path), line=None, column=None)
            for problem in error.problems
        ]
        raise ConfigError(error.file, found) from None


def _with_settings(document: Document, settings: Sequence[str]) -> Document:
    value = dict(document.value)
    listed = value.get("axes", [])
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        return document  # refused as it is
    entries = [dict(entry) for entry in listed]
    findings = []
    given: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name, text = axis_name(name.strip()), text.strip()
        if not equals or not name or not text:
            findings.append(Finding((), "--set is not NAME=VALUES", render(setting), "such as link_delay=1ms,3ms,10ms"))
        elif name in given:
            findings.append(Finding((), f"--set names {name} twice", render(setting), "each axis once"))
        else:
            given[name] = _values(text)
    _refuse(replace(document, sha256=""), findings)
    for entry in entries:
        for name in [*entry]:
            if name in given:
                entry[name] = given.pop(name)
    added = [{name: values} for name, values in given.items()]
    return _written(document.path, {**value, "axes": [*entries, *added]})


def _values(text: str) -> Any:
    """A list of values as the command line has it, or a ratio."""
    try:
        if (ratio := Ratio.parse(text)) is not None:
            return text.replace(ratio.of, axis_name(ratio.of), 1)
    except ValueError:
        return text
    return [_value(part.strip()) for part in text.split(",")]


def _value(text: str) -> Any:
    try:
        value, findings = parse_document(text)
    except ValueError:
        return text
    return text if findings or isinstance(value, list | dict | str) or value is None else value


def _entries(value: Any) -> list[Any]:
    listed = value.get("axes") if isinstance(value, dict) else None
    return listed if isinstance(listed, list) else []


def _known_values(entries: Sequence[Any]) -> dict[str, list[Any]]:
    """The axes that have values, with them."""
    return {
        name: values
        for entry in entries
        if isinstance(entry, dict)
        for name, values in entry.items()
        if axis_of(name) is not None and isinstance(values, list) and 1 <= len(values) <= MAX_VALUES
    }


def _quick_findings(value: Any) -> Iterator[Finding]:
    """Problems of axes and exclusions of the quick form, of a raw document."""
    quick = value.get("quick") if isinstance(value, dict) else None
    if isinstance(quick, dict) and "axes" in quick:
        yield from _axes_findings(quick, ("quick",))
    elif isinstance(quick, dict):
        yield from _exclude_findings(quick, _known_values(_entries(value)), ("quick",))


def _axes_findings(value: Any, at: Location = ()) -> Iterator[Finding]:
    """Problems of axes and exclusions of a raw object at ``at``."""
    entries = _entries(value)
    first: dict[str, Location] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            continue
        if not entry:
            yield Finding((*at, "axes", index), "is empty", "{}", AXIS_FORM)
        lists: dict[str, list[Any]] = {}
        for name, values in entry.items():
            place: Location = (*at, "axes", index, name)
            axis = axis_of(name)
            if axis is None:
                yield _unknown(place, name)
                continue
            if name in first:
                yield Finding(place, "is an axis already", allowed="each axis once", at_key=True)
                continue
            first[name] = place
            if isinstance(values, list) and 1 <= len(values) <= MAX_VALUES:
                lists[name] = values
                for number, item in enumerate(values):
                    if item is None or isinstance(item, list):
                        yield Finding((*place, number), "is no value", allowed="one value of this axis")
            elif (problem := _not_a_ratio(axis, values)) is not None:
                yield Finding(place, problem, allowed=VALUES_FORM)
        if len({*map(len, lists.values())}) > 1:
            other, wanted = next((name, len(values)) for name, values in lists.items())
            for name, values in lists.items():
                if len(values) != wanted:
                    allowed = f"{wanted}, as {other}: they vary together"
                    yield Finding((*at, "axes", index, name), "has another number of values", f"{len(values)}", allowed)
        else:
            yield from _repeated((*at, "axes", index), lists)
    known = _known_values(entries)
    yield from _ratio_findings(entries, known, at)
    yield from _exclude_findings(value, known, at)


def _unknown(place: Location, name: str) -> Finding:
    names = [item for item in AXES if "." not in item]
    called = axis_name(name)
    meant = f'"{called}"' if called != name else hints.closest_key(name, names) or closest(name, names)
    hint = f", did you mean {meant}?" if meant else ""
    allowed = f"{', '.join(names)}, or MEMBER.KEY such as etcd1.cpus, client.cpus"
    return Finding(place, f"is not an axis{hint}", allowed=allowed, at_key=True)


def _repeated(place: Location, lists: Mapping[str, Sequence[Any]]) -> Iterator[Finding]:
    """Of an entry: combinations of its values that it has already."""
    seen: list[Any] = []
    quantities = [axis.quantity for name in lists if (axis := axis_of(name)) is not None]
    for number, values in enumerate(zip(*lists.values(), strict=True)):
        plain = [comparable(quantity, value) for quantity, value in zip(quantities, values, strict=True)]
        if plain in seen:
            words = "repeats a value" if len(lists) == 1 else f"repeats values, with {', '.join([*lists][1:])}"
            allowed = "each value once; repeat repeats all"
            yield Finding((*place, next(iter(lists)), number), words, ", ".join(map(render, values)), allowed)
        seen.append(plain)


def _not_a_ratio(axis: Axis, values: Any) -> str | None:
    if isinstance(values, list):
        return "has no values" if not values else f"has {len(values)} values"
    if not isinstance(values, str):
        return "is not a list of values"
    try:
        ratio = Ratio.parse(values)
    except ValueError as error:
        return str(error)
    if ratio is None:
        return "is not a list of values"
    return None if axis.quantity is not None else "has values that are no numbers"


def _ratio_findings(entries: Sequence[Any], known: Mapping[str, Any], at: Location) -> Iterator[Finding]:
    for index, entry in enumerate(entries):
        for name, values in entry.items() if isinstance(entry, dict) else ():
            axis = axis_of(name)
            if axis is None or not isinstance(values, str) or _not_a_ratio(axis, values) is not None:
                continue
            ratio = Ratio.parse(values)
            assert ratio is not None
            other = axis_of(ratio.of)
            place: Location = (*at, "axes", index, name)
            if other is None:
                yield replace(
                    _unknown(place, ratio.of), message=f"is a ratio of {ratio.of}, which is no axis", at_key=False
                )
            elif any(isinstance(entry, dict) and isinstance(entry.get(ratio.of), str) for entry in entries):
                yield Finding(place, f"is a ratio of {ratio.of}, which is one itself", allowed="one of values")
            elif _kind(other) is None or _kind(other) != _kind(axis):
                allowed = "of numbers a number, of durations a duration, of sizes a size"
                yield Finding(place, f"cannot follow from {ratio.of}", allowed=allowed)
            elif axis.level == "topology" and other.level == "scenario" and ratio.of not in known:
                allowed = f"{ratio.of} as an axis: each scenario has its own"
                yield Finding(place, f"cannot follow from {ratio.of}", allowed=allowed)


def _kind(axis: Axis) -> str | None:
    kinds = {"count": "number", "milliseconds": "duration"}
    return None if axis.quantity is None else kinds.get(axis.quantity, axis.quantity)


def _exclude_findings(value: Any, known: Mapping[str, Sequence[Any]], at: Location) -> Iterator[Finding]:
    listed = value.get("exclude") if isinstance(value, dict) else None
    for index, entry in enumerate(listed if isinstance(listed, list) else []):
        if not isinstance(entry, dict):
            continue
        if not entry:
            yield Finding(
                (*at, "exclude", index), "is empty: it would exclude everything", "{}", "an axis and its value"
            )
        for name, item in entry.items():
            place: Location = (*at, "exclude", index, name)
            if name not in known:
                allowed = f"an axis of this sweep with values: {', '.join(known) or 'it has none'}"
                yield Finding(place, "is no axis of this sweep", allowed=allowed, at_key=True)
                continue
            axis = AXES.get(name) or axis_of(name)
            quantity = axis.quantity if axis is not None else None
            if comparable(quantity, item) not in [comparable(quantity, other) for other in known[name]]:
                allowed = f"one of {', '.join(map(render, known[name][:20]))}"
                yield Finding(place, "is none of the axis's values", allowed=allowed)


def _dimension(place: Location, entry: Mapping[str, Any]) -> Dimension:
    """An entry that is good."""
    axes = {name: axis for name in entry if (axis := axis_of(name)) is not None}
    lists = {name: values for name, values in entry.items() if isinstance(values, list)}
    count = max(map(len, lists.values()), default=1)
    ratios = [
        (axes[name], ratio) for name, text in entry.items() if isinstance(text, str) and (ratio := Ratio.parse(text))
    ]
    return Dimension(
        tuple(axes[name] for name in lists),
        tuple({name: values[number] for name, values in lists.items()} for number in range(count)),
        tuple(ratios),
        {name: (*place, name) for name in entry},
    )


def is_excluded(sweep: SweepFile, point: Mapping[str, Any]) -> bool:
    """Whether a combination of values is left out."""

    def same(name: str, value: Any) -> bool:
        axis = axis_of(name)
        quantity = axis.quantity if axis is not None else None
        return bool(comparable(quantity, point[name]) == comparable(quantity, value))

    return any(all(same(name, value) for name, value in entry.items()) for entry in sweep.exclude)


def shown(value: Any) -> str:
    """A value of an axis for people, as the file has it."""
    return value if isinstance(value, str) else str(value) if isinstance(value, Decimal) else render(value)
