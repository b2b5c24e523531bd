"""Places of hosts in a topology file, each with a switch, and the ways between them.

Sites have round-trip times between them, by pair or from a table; switches have links. Both are pairs of names with
values for each direction.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from containernet_env.base import assets
from containernet_env.base.units import format_duration
from containernet_env.config.fields import written
from containernet_env.config.links import RawDirection, RawHost, without_a_bandwidth
from containernet_env.model import kinds
from containernet_env.model.config import Config, ways_named
from containernet_env.model.hints import suggestion
from containernet_env.model.kinds import Chosen, Kind, Listed, Location, Named, Refused, Section, keyed, section
from containernet_env.model.link import DirectionSpec, Link, LinkSpec
from containernet_env.model.topology import SWITCH_NAME, way_to

_RTT = kinds.duration(0, 2 * kinds.DELAY_MAX_NS, such="80ms", unit="ms", what="a round-trip time")
SITE = Kind(
    kinds.parse_name,
    "the name of a site: a lower-case letter, then at most 62 of a-z, 0-9 and -; not s1",
    kinds.text_schema(kinds.NAME_PATTERN),
)
SWITCH = Kind(
    lambda value: value if value == SWITCH_NAME else kinds.parse_name(value),
    "the name of a switch: a lower-case letter, then at most 62 of a-z, 0-9 and -",
    kinds.text_schema(kinds.NAME_PATTERN),
)
MAX_SWITCHES = 64
"""Their routes, with names of any length, are less than the MiB that a request to the link emulator may have."""


def _pairs_of(places: str, such: str, value: kinds.Form) -> Named:
    """Values by pair: of one kind, or an object."""
    a, b = such.split("-")
    form = f'two {places} such as "{such}", both ways, or "{a}>{b}", one way'
    pair = kinds.text(f"is not a pair of {places}", form, "[a-z][a-z0-9-]*[->][a-z0-9-]+")
    return Named(pair, Chosen((value, RawDirection), lambda given: RawDirection if isinstance(given, dict) else value))


@section
class RawSite(Section):
    """A site: what its hosts have that give no delay or bandwidth of their own."""

    rtt: int | None = keyed(_RTT, "round trip between two of its hosts (that of the table, or 0)", default=None)
    bandwidth: int | None = keyed(
        kinds.BANDWIDTH,
        "bandwidth of its hosts' links in Mbit/s, each direction",
        shown=kinds.UNLIMITED,
        default=None,
    )


SWITCHES = Listed(SWITCH, 1, MAX_SWITCHES, unique=True)
LINKS = _pairs_of("switches", "core-edge", kinds.DELAY)
_RTTS = _pairs_of("sites", "eu-us", _RTT)
_TABLES = assets.ROOT / "configs" / "rtt"


def tables() -> list[str]:
    """The names of the tables of round-trip times that travel with the program."""
    return sorted(path.stem for path in _TABLES.glob("*.csv"))


_TABLE = kinds.checked(
    lambda value: value in tables(),
    "is not a table of round-trip times",
    f"{', '.join(tables()) or 'a table'}, a path that ends in .csv, or an object with pairs of sites",
    {"type": "string"},
)


def _form_of(value: Any) -> kinds.Form:
    if isinstance(value, dict):
        return _RTTS
    return kinds.PATH if isinstance(value, str) and value.endswith(".csv") else _TABLE


RTT = Chosen((_TABLE, kinds.PATH, _RTTS), _form_of)

SITES, GRAPH = ("sites", "rtt", "site"), ("switches", "links", "switch")
"""The keys of places, of the ways between them, and of a host's place: a file has those of one kind."""


@dataclass(frozen=True)
class Places:
    """The places in order, the links between them, and of sites by name the one-way delay and the bandwidth of their
    hosts' links. ``keys``: ``SITES`` or ``GRAPH``."""

    names: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    keys: tuple[str, str, str] = SITES
    delays_ns: Mapping[str, int] = field(default_factory=dict)
    rates_bps: Mapping[str, int | None] = field(default_factory=dict)

    def of(self, host: RawHost) -> str | None:
        """Where a host is: the first place unless it names one."""
        return getattr(host, self.keys[2], None) or next(iter(self.names), None)

    def link_of(self, host: RawHost) -> tuple[int | None, int | None]:
        """Delay and bandwidth of a host's link: its own, or those of its site."""
        site = self.of(host) or ""
        delay_ns = host.link_delay if "link_delay" in host.given else self.delays_ns.get(site)
        return delay_ns, host.bandwidth if "bandwidth" in host.given else self.rates_bps.get(site)


NO_PLACES = Places()


def graph_of(names: tuple[str, ...], links: Mapping[str, int | RawDirection]) -> tuple[Places, list[Refused]]:
    """The switches of a file, joined by links, and their problems.

    ``links``: by pair, a one-way delay or an object.
    """
    matrix = _Matrix(names, GRAPH[1])
    for pair, value in links.items():
        matrix.take_pair(pair, value, 1)
    found = matrix.links(dict.fromkeys(names, 0))
    matrix.refuse_parts(found, "links between the switches" if not links else None)
    return Places(names, found, GRAPH), [*dict.fromkeys(matrix.refusals)]


def sites_of(
    given: Mapping[str, RawSite], named: Sequence[tuple[Location, str]], rtt: Any
) -> tuple[Places, list[Refused]]:
    """The sites of a file, and their problems.

    ``given`` are those with an object, ``named`` those that hosts name, with their places, and ``rtt`` is the value of
    that key: the name of a table, a path, or by pair a round-trip time or an object.
    """
    names = tuple(dict.fromkeys((*given, *(name for _, name in named))))
    matrix = _Matrix(names, SITES[1])
    if isinstance(rtt, Mapping):
        for pair, value in rtt.items():
            matrix.take_pair(pair, value, 2)
    elif rtt is not None:
        matrix.take_table(rtt, [*((("sites", name), name) for name in given), *named])
    rtts_ns = {name: given[name].rtt if name in given else None for name in names}
    delays_ns = {name: (matrix.within_ns.get(name, 0) if ns is None else ns) // 4 for name, ns in rtts_ns.items()}
    rates_bps = {name: given[name].bandwidth if name in given else None for name in names}
    links = matrix.links(delays_ns)
    matrix.refuse_parts(links, "round-trip times between the sites" if rtt is None else None)
    return Places(names, links, SITES, delays_ns, rates_bps), [*dict.fromkeys(matrix.refusals)]


class _Matrix:
    """The ways between places as a file gives them under a key, and their problems.

    ``within_ns``: round trips within sites, by a table.
    """

    def __init__(self, names: Sequence[str], key: str) -> None:
        self.refusals: list[Refused] = []
        self.within_ns: dict[str, int] = {}
        self._names, self._key = names, key
        # One way each, with its place in the file.
        self._ways: dict[tuple[str, str], tuple[DirectionSpec, Location]] = {}

    def refuse(
        self, at: Location, message: str, got: str | None = None, allowed: str | None = None, at_key: bool = False
    ) -> None:
        self.refusals.append(Refused(message, allowed, at, got, at_key))

    def take_pair(self, key: str, value: int | RawDirection, ways: int) -> None:
        """A pair of places, both ways or one; a time for both is that of so many ways."""
        place, is_one_way = (self._key, key), ">" in key
        found = ways_named(key, self._names)
        if len(found) != 1:
            places = "sites" if self._key == SITES[1] else "switches"
            message = f"may be several pairs of {places}" if found else f"is not a pair of the {places}"
            self.refuse(place, message, f'"{key}"', f"two of {', '.join(self._names)}", at_key=True)
            return
        way = value if isinstance(value, RawDirection) else DirectionSpec(value if is_one_way else value // ways)
        if isinstance(way, RawDirection):
            for refused in without_a_bandwidth(way, None):
                self.refusals.append(refused.below(place))
            if "uplink" in way.given:
                self.refuse((*place, "uplink"), "has no effect here", allowed="in the link of a host")
            if "delay" not in way.given:
                self.refuse((*place, "delay"), "is missing", allowed=kinds.DELAY.form)
                return
        elif way.delay_ns > kinds.DELAY_MAX_NS:
            self.refuse(place, "is out of range", allowed=kinds.DELAY.form)
            return
        for a, b in found if is_one_way else (found[0], found[0][::-1]):
            if (a, b) in self._ways:
                self.refuse(place, f"gives the way from {a} to {b} again", f'"{key}"', "once", at_key=True)
            self._ways[a, b] = way, place

    def take_table(self, name: str | Path, sites: Iterable[tuple[Location, str]]) -> None:
        """A table that travels with the program, by its name, or the file at a path; ``sites`` have to be in it."""
        table, problems = read_table(_TABLES / f"{name}.csv" if isinstance(name, str) else name)
        for problem in problems:
            self.refuse(("rtt",), problem)
        if problems:
            return
        for place, site in sites:
            if site not in table:
                message = f"is not in the table of round-trip times{suggestion(site, [*table])}"
                self.refuse(place, message, f'"{site}"', ", ".join(sorted(table)))
        for a, row in table.items():
            for b, rtt_ns in row.items():
                if a == b:
                    self.within_ns[a] = rtt_ns
                elif a in self._names and b in self._names:
                    self._ways[a, b] = DirectionSpec(rtt_ns // 2), ("rtt",)

    def links(self, delays_ns: Mapping[str, int]) -> tuple[Link, ...]:
        """The links between places whose hosts' own links have these delays, one way."""
        found = []
        for (a, b), (_, place) in self._ways.items():
            if (b, a) not in self._ways and place == ("rtt",):
                self.refuse(place, f"has no round-trip time from {b} to {a}")
            elif (b, a) not in self._ways:
                self.refuse(place, f'has no way back; give "{b}>{a}", or "{a}-{b}" for both', at_key=True)
            elif self._names.index(a) < self._names.index(b):
                of_hosts_ns = delays_ns[a] + delays_ns[b]
                found.append(Link(a, b, LinkSpec(self._left(a, b, of_hosts_ns), self._left(b, a, of_hosts_ns))))
        return tuple(found)

    def refuse_parts(self, links: Iterable[Link], missing: str | None) -> None:
        """Refuse links that leave a place without a way to the first one. ``missing``: what is, as none are given."""
        directions: dict[str, dict[str, DirectionSpec]] = {name: {} for name in self._names}
        for link in links:
            directions[link.a][link.b], directions[link.b][link.a] = link.spec.sides
        connected = {self._names[0], *way_to(self._names[0], directions)} if self._names else set()
        apart = next((name for name in self._names if name not in connected), None)
        if apart is not None and not self.refusals and missing is not None:
            self.refuse((self._key,), "is missing", allowed=missing)
        elif apart is not None and not self.refusals:
            self.refuse((self._key,), f"has no way from {self._names[0]} to {apart}")

    def _left(self, a: str, b: str, of_hosts_ns: int) -> DirectionSpec:
        """The direction of a link between two places: the way between their hosts without the hosts' own links."""
        way, place = self._ways[a, b]
        delay_ns = way.delay_ns - of_hosts_ns
        if delay_ns < 0:
            least = format_duration(of_hosts_ns)
            ends = f"from {a} to {b} " if place == ("rtt",) else ""
            message = f"{ends}is shorter than the links of hosts in both sites, which take {least} of each way"
            self.refuse(place, message, format_duration(way.delay_ns), f"at least {least} one way")
            return DirectionSpec()
        try:
            return replace(way.spec(None, None) if isinstance(way, RawDirection) else way, delay_ns=delay_ns)
        except Refused as refused:
            self.refusals.append(refused.below(place))
            return DirectionSpec()


def read_table(path: Path) -> tuple[dict[str, dict[str, int]], list[str]]:
    """A table of round-trip times in ns, by the site that measured and the one that it measured; and its problems.

    The file is CSV: the first row and the first column are names, a cell is a number of milliseconds, a time such as
    ``80ms``, or empty. Lines that begin with # are remarks.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if not line.startswith("#")]
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return {}, [f"cannot be read: {error}"]
    heads = rows[0][1:] if rows else []
    is_table = len(rows) > 1 and all(heads) and len({*heads}) == len(heads)
    problems = [] if is_table else ["is no table: its first row and its first column name each site once"]
    found: dict[str, dict[str, int]] = {}
    for name, *cells in rows[1:]:
        if name in found or len(cells) > len(heads):
            problems.append(f"has two rows of {name}, or more cells in one than names in the first row")
        found[name] = {}
        for other, cell in zip(heads, cells, strict=False):
            try:
                if cell:
                    found[name][other] = int(_RTT.read(cell if cell[-1].isalpha() else f"{cell}ms"))
            except Refused as refused:
                problems.append(f"has {cell!r} from {name} to {other}, which {refused.message}; allowed: {_RTT.form}")
    return found, problems


def written_places(config: Config) -> dict[str, Any]:
    """The keys of a file from which the same places are read."""
    between = {
        hop.name: written(RawDirection, hop.spec, ("delay_ns", "rate_bps"))
        for link in config.switch_links
        for hop in link.hops
    }
    places = {"sites": {name: {} for name in config.sites}, "switches": [*config.switches]}
    ways = {GRAPH[1] if config.switches else SITES[1]: between, **({"reroute": True} if config.reroute else {})}
    return {key: value for key, value in {**places, **ways}.items() if value}
