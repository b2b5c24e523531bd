"""What a sweep can vary: each axis by the keys that it sets, in documents as ``config.writer`` writes them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network
from itertools import chain
from typing import Any, Literal

from containernet_env.base.units import format_duration, format_number, format_size, parse_duration, parse_size
from containernet_env.config.endpoints import KEY as ENDPOINTS
from containernet_env.config.fields import NAME_PATTERN
from containernet_env.config.link_schema import FROM_SWITCH, TO_SWITCH
from containernet_env.config.positions import Location
from containernet_env.config.scenario_schema import BLOCK_KEYS
from containernet_env.config.store_schema import DEFAULT_KIND, section_of
from containernet_env.config.topology_schema import MAX_NODES
from containernet_env.model.names import find

Level = Literal["topology", "scenario"]
Quantity = Literal["count", "number", "duration", "milliseconds", "size"]
"""What values of an axis are, where one can be a ratio of another."""

CLIENT = "client"
MEMBERS = "members"
"""The axis of the number of members."""
STORE = "store"
"""The axis of stores, of their versions and flags."""

_BOTH = (TO_SWITCH, FROM_SWITCH)
# Of a host: its keys below the host, and what they are. The writer has delay and bandwidth in ``link`` alone.
_HOST: Mapping[str, tuple[tuple[Location, ...], Quantity | None]] = {
    "link_delay": (tuple(("link", side, "delay") for side in _BOTH), "duration"),
    "bandwidth": (tuple(("link", side, "bandwidth") for side in _BOTH), "number"),
    "jitter": (tuple(("link", side, "jitter") for side in _BOTH), "duration"),
    "loss": (tuple(("link", side, "loss") for side in _BOTH), "number"),
    "queue": (tuple(("link", side, "queue") for side in _BOTH), "count"),
    "overhead": (tuple(("link", side, "overhead") for side in _BOTH), "count"),
    "uplink": ((("link", TO_SWITCH, "uplink"),), None),
    "cpus": ((("cpus",),), "number"),
    "mem": ((("mem",),), "size"),
}
_SETTINGS: Mapping[str, Quantity | None] = {
    "heartbeat_interval": "milliseconds",
    "election_timeout": "milliseconds",
    "data": None,
    "leader": None,
    "tls": None,
}
_LOAD: Mapping[str, Quantity | None] = {
    "total": "count",
    "duration": "duration",
    "rate": "number",
    "arrival": None,
    "clients": "count",
    "conns": "count",
    "warmup": "duration",
    "timeout": "duration",
    "stallTimeout": "duration",
    "seed": "count",
}
_SIZES: Mapping[str, Quantity | None] = {"keySize": "count", "valSize": "count"}
_BLOCK: Mapping[str, Quantity | None] = {
    "target": None,
    "consistency": None,
    "keys": None,
    "zipfExponent": "number",
    "keySpace": "count",
    "ratio": "number",
    "spanKeys": "count",
    "limit": "count",
    "keysOnly": None,
    "countOnly": None,
    "verify": None,
    "history": None,
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
    """The axis of that name; ``None`` where there is none."""
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
    if axis.level == "scenario":
        return _set_in_scenario(document, axis, value)
    _refuse_endpoints(document, axis)
    if axis.key == MEMBERS:
        return _set_members(document, value)
    if axis.key == STORE:
        return _set_store(document, value)
    if axis.key in _SETTINGS:
        section = section_of(document)
        document[section][axis.key] = value
        return [(section, axis.key)]
    places = []
    for host in _hosts(document, axis.host):
        for steps in _HOST[axis.key][0]:
            place = (*host, *steps)
            _put(document, place, _jitter(_get(document, place), value) if axis.key == "jitter" else value)
            places.append(place)
    return places


def value_of(document: Mapping[str, Any], axis: Axis) -> Any:
    """What a document has of an axis; ``None`` where it has nothing, or not the same everywhere."""
    if axis.level == "scenario":
        place = _place_in_scenario(document, axis)[0]
        return _get(document, place)
    _refuse_endpoints(document, axis)
    if axis.key == MEMBERS:
        return len(document["nodes"])
    if axis.key == STORE:
        return document.get(STORE, DEFAULT_KIND)
    if axis.key in _SETTINGS:
        return document[section_of(document)].get(axis.key)
    places = [(*host, *steps) for host in _hosts(document, axis.host) for steps in _HOST[axis.key][0]]
    found = [_get(document, place) for place in places]
    first = found[0]
    first = first.get("value") if axis.key == "jitter" and isinstance(first, dict) else first
    return first if all(item == found[0] for item in found) else None


def _refuse_endpoints(document: Mapping[str, Any], axis: Axis) -> None:
    """Raise ``NotThereError`` where hosts, links and their store are somebody else's."""
    if ENDPOINTS in document:
        raise NotThereError("is of hosts, links or the store, and somebody else runs those")


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


def _set_store(document: dict[str, Any], value: Any) -> list[Location]:
    """Another store has the settings that the one before had, under its own name."""
    settings = document.pop(section_of(document))
    document[STORE] = value
    document[section_of(document)] = settings
    return [(STORE,)]


def _set_members(document: dict[str, Any], count: Any) -> list[Location]:
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
    return [("nodes",)]


def _free_addresses(subnet: IPv4Network, last: IPv4Address, taken: Collection[str]) -> Iterator[IPv4Address]:
    """Those after ``last``, then those before it."""
    first = int(subnet.network_address) + 1
    after = range(int(last) + 1, int(subnet.broadcast_address))
    for number in chain(after, range(int(last) - 1, first - 1, -1)):
        if str(address := IPv4Address(number)) not in taken:
            yield address


def _place_in_scenario(document: Mapping[str, Any], axis: Axis) -> list[Location]:
    """Where a scenario has an axis, what is its own first."""
    block = document["scenarios"][0]
    at: Location = ("scenarios", 0)
    kind = block["type"]
    if axis.name == DATASET_KEYS:
        if kind == "write":
            raise NotThereError("writes use no data set")
        return [("dataset", "keys")]
    if axis.key in _LOAD:
        return [(*at, "load", axis.key)]
    if axis.key in _SIZES:
        return [(*at, "data", axis.key) if kind == "write" else ("dataset", axis.key)]
    if axis.key not in BLOCK_KEYS[kind]:
        raise NotThereError(f"a {kind} has no {axis.key}")
    return [(*at, axis.key)]


def _set_in_scenario(document: dict[str, Any], axis: Axis, value: Any) -> list[Location]:
    places = _place_in_scenario(document, axis)
    block = document["scenarios"][0]
    if axis.key in _LENGTHS:
        for other in _LENGTHS:
            block["load"].pop(other, None)
    if axis.key == "rate":
        block["load"].pop("search", None)
    if axis.key == "spanKeys":
        for other in ("prefix", "span"):
            block.pop(other, None)
    for place in places:
        _put(document, place, value)
    return places


def _get(document: Mapping[str, Any], place: Location) -> Any:
    value: Any = document
    for step in place:
        if isinstance(value, dict) and step not in value:
            return None
        value = value[step]
    return value


def _put(document: dict[str, Any], place: Location, value: Any) -> None:
    """Set what is at a place; ``None`` takes it away."""
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
    """A value as a number: requests, ns, bytes. Raises ``ValueError`` where it is none, such as ``unlimited``."""
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
    """A value as a file has it: what has to be whole is rounded to the nearest, and never to 0."""
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
