"""Sweep files: which values of which axes are combined, and which combinations are left out.

Each axis is known by the keys that it sets, in documents as ``config.writer`` writes them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from containernet_env.base.errors import ConfigError
from containernet_env.base.units import format_duration, format_number, format_size, parse_duration, parse_size
from containernet_env.config.endpoints import KEY as ENDPOINTS
from containernet_env.config.fields import Validated, quantity_and_schema, validate
from containernet_env.config.links import FROM_SWITCH, TO_SWITCH, RawDirection
from containernet_env.config.reader import (
    Document,
    document_of,
    json_text,
    read_document,
    render,
    value_at,
)
from containernet_env.config.scenarios import BLOCKS, RawData, RawLoad
from containernet_env.config.stores import DEFAULT_KIND, section_of
from containernet_env.config.topologies import RawNode
from containernet_env.model import hints
from containernet_env.model.config import EtcdSettings
from containernet_env.model.kinds import (
    MAX_NODES,
    NAME_PATTERN,
    PATH,
    Listed,
    Location,
    Quantity,
    Refused,
    Section,
    integer,
    keyed,
    keys_of,
    mapping,
    refuse,
    rule,
    section,
    text,
)
from containernet_env.model.link import SEED_MAX
from containernet_env.model.names import closest, find
from containernet_env.model.scenario import Dataset

Level = Literal["topology", "scenario"]

CLIENT = "client"
MEMBERS = "members"
"""The axis of the number of members."""
_PLACES = {"site": "sites", "switch": "switches"}
"""The axes of one host's place, and the keys of all places."""
STORE = "store"
"""The axis of stores, of their versions and flags."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Something that a sweep varies. ``host`` is a member's name, that of a link between switches, or ``client`` where
    it is about that one alone.

    ``schema`` is the JSON Schema of one value; any, if it varies.
    """

    name: str
    level: Level
    key: str
    quantity: Quantity | None
    schema: Mapping[str, Any] = field(repr=False, compare=False)
    host: str | None = None


# The keys of a direction of a link, by their axes.
_OF_LINK: Mapping[str, str] = {
    "link_delay": "delay",
    **{key: key for key in keys_of(RawDirection) if key not in ("delay", "seed")},
}
# Where a host has its keys. The writer has delay and bandwidth in ``link`` alone.
_HOST: Mapping[str, tuple[Location, ...]] = {
    **{axis: (("link", TO_SWITCH, key), ("link", FROM_SWITCH, key)) for axis, key in _OF_LINK.items()},
    "uplink": (("link", TO_SWITCH, "uplink"),),
    **{key: ((key,),) for key in ("cpus", "mem", "fsync", *_PLACES)},
}
DATASET_KEYS = "dataset.keys"
# A load has one of these: the one that is set takes the place of the others.
_LENGTHS = ("total", "duration", "search")
_HOST_AXIS = re.compile(rf"({NAME_PATTERN}(?:-{NAME_PATTERN})?)\.({'|'.join(_HOST)})")


def _keys_of(level: Level, model: type, *but: str) -> dict[str, Axis]:
    keys = [key for key in keys_of(model) if key not in but]
    return {key: Axis(key, level, key, *quantity_and_schema(model, key)) for key in keys}


_OF_HOST = {key: axis for model in (RawDirection, RawNode) for key, axis in _keys_of("topology", model).items()}
_OF_HOST["jitter"] = replace(_OF_HOST["jitter"], quantity="duration")
_SETTINGS = _keys_of("topology", EtcdSettings)
_LOAD, _SIZES = _keys_of("scenario", RawLoad, "search"), _keys_of("scenario", RawData)
_NOT_VARIED = ("type", "load", "data", "clients", "events", "prefix", "span")
_BLOCK = {key: axis for model in BLOCKS.values() for key, axis in _keys_of("scenario", model, *_NOT_VARIED).items()}
AXES: Mapping[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis(MEMBERS, "topology", MEMBERS, "count", {"type": "integer", "minimum": 1, "maximum": MAX_NODES}),
        *(_OF_HOST[key] for key in _HOST if key not in _PLACES),
        *(replace(_OF_HOST[key], name=f"{CLIENT}.{key}", host=CLIENT) for key in _HOST if key != "fsync"),
        *_SETTINGS.values(),
        Axis(STORE, "topology", STORE, None, {}),
        *(_LOAD | _SIZES | _BLOCK).values(),
        Axis(DATASET_KEYS, "scenario", "keys", *quantity_and_schema(Dataset, "keys"), "dataset"),
    )
}
"""Every axis by its name, but for those of one member or link (``etcd2.cpus``, ``eu-us.loss``); see `axis_of`."""


def axis_of(name: str) -> Axis | None:
    if name in AXES:
        return AXES[name]
    match = _HOST_AXIS.fullmatch(name)
    if match is None or match[1] == CLIENT:
        return None
    return replace(_OF_HOST[match[2]], name=name, host=match[1])


def axis_name(name: str) -> str:
    """The name of the axis that a user means by a name of it, such as that of its column; else ``name`` as it is.

    Of one member, too: ``etcd2.LinkDelay_ms`` is ``etcd2.link_delay``.
    """
    if axis_of(name) is not None:
        return name
    host, dot, key = name.rpartition(".")
    alone = find(key, list(_HOST)) if dot and _HOST_AXIS.fullmatch(f"{host}.{next(iter(_HOST))}") else None
    return f"{host}.{alone}" if alone else find(name, list(AXES)) or name


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
        known = document.get(_PLACES.get(axis.key, ""), ())
        if axis.key in _PLACES and value not in known:
            names = ", ".join(known) or "none"
            raise NotThereError(f"{value} is no {axis.key} of the topology, whose {_PLACES[axis.key]} are: {names}")
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
    if directions := _between(document).get(axis.host or ""):
        if axis.key not in _OF_LINK or axis.key == "uplink":
            raise NotThereError(f"{axis.host} is a link between switches, which has no {axis.key}")
        return [(*direction, _OF_LINK[axis.key]) for direction in directions]
    return [(*host, *steps) for host in _hosts(document, axis.host) for steps in _HOST[axis.key]]


def _between(document: Mapping[str, Any]) -> dict[str, list[Location]]:
    """Both directions of each link between switches, by its name: the writer has each direction apart."""
    found: dict[str, list[Location]] = {}
    for key in ("rtt", "links"):
        for pair in [*document.get(key, ())][::2]:
            a, _, b = pair.partition(">")
            found[f"{a}-{b}"] = [(key, pair), (key, f"{b}>{a}")]
    return found


def _hosts(document: Mapping[str, Any], name: str | None) -> Iterator[Location]:
    nodes, clients = document["nodes"], document.get("clients", [])
    if name == CLIENT and not clients:
        yield (CLIENT,)
        return
    found: list[Location] = [("nodes", index) for index, node in enumerate(nodes) if name in (None, node["name"])]
    found += [("clients", index) for index, client in enumerate(clients) if name == client["name"]]
    if not found:
        known, loading = (", ".join(host["name"] for host in hosts) for hosts in (nodes, clients))
        also = f"a client: the clients are {loading}" if clients else CLIENT
        links = ", ".join(_between(document))
        too = f", the links between switches {links}" if links else ""
        known = f"the members are {known}{too}"
        raise NotThereError(f"{name} is neither a member nor {also}{';' if clients else ':'} {known}")
    yield from found


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
    made, subnet = nodes[:count], IPv4Network(document["subnet"])
    clients = document.get("clients") or [document[CLIENT]]
    taken = {host["ip"] for host in (*nodes, *clients)}
    last = int(IPv4Address(made[-1]["ip"]))
    after = range(last + 1, int(subnet.broadcast_address))
    numbers = chain(after, range(last - 1, int(subnet.network_address), -1))
    free = (ip for number in numbers if (ip := str(IPv4Address(number))) not in taken)
    for ip in islice(free, count - len(made)):
        names = {node["name"] for node in made}
        number = len(made) + 1
        while (name := f"etcd{number}") in names:
            number += 1
        made.append({**copy_of(made[-1]), "name": name, "ip": ip})
    if len(made) < count:
        raise ValueError(f"at most {len(made)}: {subnet} has no more addresses")
    document["nodes"] = made


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
    if axis.key not in keys_of(BLOCKS[kind]):
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
    with contextlib.suppress(KeyError):
        return value_at(document, place)
    return None


def _put(document: dict[str, Any], place: Location, value: Any) -> None:
    held = _get(document, place[:-1])
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


def _comparable(quantity: Quantity | None, value: Any) -> Any:
    """Equal for values that mean the same: 1, 1.0; "1ms", "1000us"."""
    if isinstance(value, dict):
        return tuple(sorted((key, _comparable(None, item)) for key, item in value.items()))
    try:
        return format_number(number_of(quantity or "number", value))
    except ValueError:
        return str(value) if isinstance(value, Decimal) else value


MAX_DIMENSIONS = 20
MAX_VALUES = 1000
REPEAT_MAX = 1000
AXIS_FORM = 'an object of axes, each with a list of values, or with a ratio such as "clients / 10"'
EXCLUDE_FORM = "an object of axes, each with a value of its own"


def _axes_schema() -> dict[str, Any]:
    ratio = {"type": "string", "pattern": RATIO_PATTERN}

    def given(value: Mapping[str, Any], is_number: bool = True) -> dict[str, Any]:
        values = {"type": "array", "items": value, "minItems": 1, "maxItems": MAX_VALUES}
        return {"anyOf": [values, ratio]} if is_number else values

    return {
        "minProperties": 1,
        "properties": {name: given(axis.schema, axis.quantity is not None) for name, axis in AXES.items()},
        "patternProperties": {rf"^{NAME_PATTERN}\.({'|'.join(_HOST)})$": given({})},
        "additionalProperties": False,
    }


_PATTERN = text("is not a text", "a name, a glob or a type of scenarios", ".+")
_AXES_KIND = mapping("is not an object of axes", AXIS_FORM, _axes_schema())
_EXCLUDED = mapping("is not an object of axes", EXCLUDE_FORM, {"minProperties": 1})
_ONLY = Listed(_PATTERN, 1, MAX_VALUES)
_REPEAT = integer(1, REPEAT_MAX)
_AXES = Listed(_AXES_KIND, 1, MAX_DIMENSIONS)
_EXCLUDE = Listed(_EXCLUDED, 1, MAX_VALUES)
Entries = tuple[Mapping[str, Any], ...]


@section
class RawForm(Section):
    """What both forms of a sweep have."""

    scenarios: Path | None = keyed(PATH, "the scenarios that are varied (those of the topology)", default=None)
    only: tuple[str, ...] = keyed(_ONLY, "only these scenarios (all)", default=())
    repeat: int | None = keyed(_REPEAT, "how often each cell is measured, each time on a new cluster (1)", default=None)
    axes: Entries = keyed(_AXES, "what varies: entries multiply, axes of one entry vary together", default=())
    exclude: Entries = keyed(_EXCLUDE, "combinations that are left out", default=())


@section
class RawQuick(RawForm):
    """The quick form of a sweep: its keys take the place of the file's own, its scenarios also that of `only`, its axes
    that of `exclude`."""

    SCHEMA: ClassVar = {"minProperties": 1}

    @rule
    def _says_something(self) -> None:
        if not self.given:
            refuse("is empty", f"an object with some of the keys {', '.join(keys_of(RawQuick))}")


@section
class RawSweep(RawForm):
    """A sweep file."""

    LAST: ClassVar = ("scenarios", "only", "repeat", "axes", "exclude", "quick")

    topology: Path = keyed(PATH, "the topology that is varied")
    seed: int | None = keyed(
        integer(0, SEED_MAX), "what the order, losses and jitter are drawn from (drawn, and recorded)", default=None
    )
    quick: RawQuick | None = keyed(
        RawQuick,
        "what --quick measures instead: its keys take the place of those above (without it, the quick scenarios)",
        default=None,
    )


_AXIS_PLACE = re.compile(r'\$\.axes\[\d+\](?:\.|\["([^"]*)"\])')
VALUES_FORM = f"a list of 1 to {MAX_VALUES} values, or {RATIO_FORM}"


class Value(NamedTuple):
    """A value of an axis, and its place in the file."""

    value: Any
    place: Location


Point = Mapping[str, Value]
"""A value for each of some axes, by their names."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """Axes that vary together: each of ``points`` has a value for each of ``axes``; ``ratios`` follow from others.

    ``places`` are the places of the axes in the file.
    """

    axes: Sequence[Axis]
    points: Sequence[Point]
    ratios: Sequence[tuple[Axis, Ratio]]
    places: Mapping[str, Location]


@dataclass(frozen=True, slots=True)
class SweepFile:
    """A sweep as its file has it, ``raw`` and its axes; the files that it names have not been opened.

    ``is_quick``: it is the file's quick form. ``axes_at`` and ``exclude_at`` are their places in the file.
    """

    document: Document
    raw: RawSweep
    dimensions: Sequence[Dimension]
    is_quick: bool
    axes_at: Location
    exclude_at: Location

    def points(self) -> Iterator[Point]:
        """Every combination of values that is not excluded, in the file's order."""
        excluded = [{name: _plain(name, value) for name, value in entry.items()} for entry in self.raw.exclude]
        for parts in product(*(dimension.points for dimension in self.dimensions)):
            point = {name: value for part in parts for name, value in part.items()}
            if not any(
                all(_plain(name, point[name].value) == value for name, value in entry.items()) for entry in excluded
            ):
                yield point

    def refuse(self, refusals: Sequence[Refused]) -> None:
        """Raise ``ConfigError`` with these refusals, if any; places in a generated text have no lines."""
        _refuse(self.document, refusals)


def _plain(name: str, value: Any) -> Any:
    axis = axis_of(name)
    assert axis is not None
    return _comparable(axis.quantity, value)


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
    if settings:
        if is_quick:
            _checked(document)
            document = _written(document.path, quick_form(document.value))
        document = _with_settings(document, settings)
    raw = _checked(document)
    own = document.value.get("quick", {}) if is_quick else {}
    if own:
        raw = validate(RawSweep, replace(document, value=quick_form(document.value))).value
    at: Location = ("quick",) if "axes" in own else ()
    exclude_at = ("quick", "exclude") if "exclude" in own else ("exclude",)
    dimensions = _Axes(own if at else document.value, at).dimensions
    return SweepFile(document, raw, dimensions, is_quick, (*at, "axes"), exclude_at)


def _checked(document: Document) -> RawSweep:
    validated: Validated[RawSweep] = validate(RawSweep, document)
    _refuse(document, [*validated.refusals, *_axes_refusals(document.value)])
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


def _refuse(document: Document, refusals: Sequence[Refused]) -> None:
    try:
        document.refuse(refusals)
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
    refusals = []
    given: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name, text = axis_name(name.strip()), text.strip()
        if not equals or not name or not text:
            refusals.append(Refused("--set is not NAME=VALUES", "such as link_delay=1ms,3ms,10ms", (), render(setting)))
        elif name in given:
            refusals.append(Refused(f"--set names {name} twice", "each axis once", (), render(setting)))
        else:
            given[name] = _values(text)
    _refuse(replace(document, sha256=""), refusals)
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
        document = document_of(Path(), text)
    except ConfigError:
        return text
    value = document.value
    return text if document.faults or isinstance(value, list | dict | str) or value is None else value


def _objects(value: Mapping[str, Any], at: Location, key: str) -> Iterator[tuple[Location, dict[str, Any]]]:
    """The objects in a list of a raw object at ``at``, and their places; ``RawSweep`` refuses all else."""
    listed = value.get(key)
    for index, entry in enumerate(listed if isinstance(listed, list) else []):
        if isinstance(entry, dict):
            yield (*at, key, index), entry


def _axes_refusals(value: Mapping[str, Any]) -> Iterator[Refused]:
    """Problems of axes and exclusions of a raw document, in both of its forms."""
    axes = _Axes(value, ())
    yield from (*axes.refusals, *_exclude_refusals(value, (), axes.values))
    if isinstance(quick := value.get("quick"), dict):
        if "axes" in quick:
            axes = _Axes(quick, ("quick",))
            yield from axes.refusals
        yield from _exclude_refusals(quick, ("quick",), axes.values)


class _Axes:
    """The axes of a raw object at ``at``, as far as they are good, and the problems of the others.

    ``values`` has those that are lists, by the names of the axes.
    """

    def __init__(self, value: Mapping[str, Any], at: Location) -> None:
        self.refusals: list[Refused] = []
        self.values: dict[str, list[Any]] = {}
        self._places: dict[str, Location] = {}
        self.dimensions = [self._dimension(place, entry) for place, entry in _objects(value, at, "axes")]
        ratios = [item for dimension in self.dimensions for item in dimension.ratios]
        following = {axis.name for axis, _ in ratios}
        for axis, ratio in ratios:
            self._check_ratio(axis, ratio, following)

    def _find(self, place: Location, message: str, allowed: str, got: str | None = None, at_key: bool = False) -> None:
        self.refusals.append(Refused(message, allowed, place, got, at_key))

    def _dimension(self, place: Location, entry: Mapping[str, Any]) -> Dimension:
        if not entry:
            self._find(place, "is empty", AXIS_FORM, "{}")
        axes: list[Axis] = []
        ratios: list[tuple[Axis, Ratio]] = []
        lists: dict[str, list[Any]] = {}
        for name, given in entry.items():
            at, axis = (*place, name), axis_of(name)
            if axis is None:
                self.refusals.append(_unknown(at, name))
            elif name in self._places:
                self._find(at, "is an axis already", "each axis once", at_key=True)
            else:
                self._places[name] = at
                if isinstance(given, list) and 1 <= len(given) <= MAX_VALUES:
                    axes.append(axis)
                    lists[name] = given
                    for number, item in enumerate(given):
                        if item is None or isinstance(item, list):
                            self._find((*at, number), "is no value", "one value of this axis")
                    continue
                try:
                    ratios.append((axis, _ratio(axis, given)))
                except ValueError as error:
                    self._find(at, str(error), VALUES_FORM)
        self.values |= lists
        first, count = next(((name, len(values)) for name, values in lists.items()), ("", 1))
        for name, values in lists.items():
            if len(values) != count:
                allowed = f"{count}, as {first}: they vary together"
                self._find((*place, name), "has another number of values", allowed, f"{len(values)}")
        points = [
            {name: Value(values[number], (*place, name, number)) for name, values in lists.items()}
            for number in range(min(map(len, lists.values()), default=1))
        ]
        if len({*map(len, lists.values())}) == 1:
            self._check_repeated(axes, points)
        return Dimension(axes, points, ratios, {name: (*place, name) for name in entry})

    def _check_repeated(self, axes: Sequence[Axis], points: Sequence[Point]) -> None:
        seen: list[Any] = []
        for point in points:
            plain = [_comparable(axis.quantity, point[axis.name].value) for axis in axes]
            if plain in seen:
                others = ", ".join(axis.name for axis in axes[1:])
                got = ", ".join(render(value) for value, _ in point.values())
                message = f"repeats values, with {others}" if others else "repeats a value"
                self._find(point[axes[0].name].place, message, "each value once; repeat repeats all", got)
            seen.append(plain)

    def _check_ratio(self, axis: Axis, ratio: Ratio, following: Collection[str]) -> None:
        place, other = self._places[axis.name], axis_of(ratio.of)
        if other is None:
            message = f"is a ratio of {ratio.of}, which is no axis"
            self.refusals.append(replace(_unknown(place, ratio.of), message=message, at_key=False))
        elif ratio.of in following:
            self._find(place, f"is a ratio of {ratio.of}, which is one itself", "one of values")
        elif _kind(other) is None or _kind(other) != _kind(axis):
            allowed = "of numbers a number, of durations a duration, of sizes a size"
            self._find(place, f"cannot follow from {ratio.of}", allowed)
        elif axis.level == "topology" and other.level == "scenario" and ratio.of not in self.values:
            self._find(place, f"cannot follow from {ratio.of}", f"{ratio.of} as an axis: each scenario has its own")


def _unknown(place: Location, name: str) -> Refused:
    names = [item for item in AXES if "." not in item]
    called = axis_name(name)
    meant = f'"{called}"' if called != name else hints.closest_key(name, names) or closest(name, names)
    hint = f", did you mean {meant}?" if meant else ""
    allowed = f"{', '.join(names)}, or MEMBER.KEY such as etcd1.cpus, client.cpus"
    return Refused(f"is not an axis{hint}", allowed, place, at_key=True)


def _ratio(axis: Axis, given: Any) -> Ratio:
    """What is given instead of a list of values. Raises ``ValueError`` with its problem."""
    if isinstance(given, list):
        raise ValueError(f"has {len(given)} values" if given else "has no values")
    ratio = Ratio.parse(given) if isinstance(given, str) else None
    if ratio is None:
        raise ValueError("is not a list of values")
    if axis.quantity is None:
        raise ValueError("has values that are no numbers")
    return ratio


def _kind(axis: Axis) -> str | None:
    kinds = {"count": "number", "milliseconds": "duration"}
    return None if axis.quantity is None else kinds.get(axis.quantity, axis.quantity)


def _exclude_refusals(value: Mapping[str, Any], at: Location, known: Mapping[str, Sequence[Any]]) -> Iterator[Refused]:
    for place, entry in _objects(value, at, "exclude"):
        if not entry:
            yield Refused("is empty: it would exclude everything", "an axis and its value", place, "{}")
        for name, item in entry.items():
            if name not in known:
                allowed = f"an axis of this sweep with values: {', '.join(known) or 'it has none'}"
                yield Refused("is no axis of this sweep", allowed, (*place, name), at_key=True)
            elif _plain(name, item) not in [_plain(name, other) for other in known[name]]:
                allowed = f"one of {', '.join(map(render, known[name][:20]))}"
                yield Refused("is none of the axis's values", allowed, (*place, name))


def shown(value: Any) -> str:
    """A value of an axis for people, as the file has it."""
    return value if isinstance(value, str) else str(value) if isinstance(value, Decimal) else render(value)
