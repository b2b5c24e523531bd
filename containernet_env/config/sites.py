"""Sites of a topology file: hosts in several places, each place with a switch, and the delays between them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from containernet_env.base import assets
from containernet_env.base.units import format_duration
from containernet_env.config.fields import written
from containernet_env.config.links import RawDirection
from containernet_env.config.reader import Finding
from containernet_env.model import kinds
from containernet_env.model.config import SiteLink
from containernet_env.model.hints import suggestion
from containernet_env.model.kinds import Chosen, Kind, Location, Named, Refused, Section, keyed, section
from containernet_env.model.link import DirectionSpec, LinkSpec

_RTT = kinds.duration(0, 2 * kinds.DELAY_MAX_NS, such="80ms", unit="ms", what="a round-trip time")
SITE = Kind(
    kinds.parse_name,
    "the name of a site: a lower-case letter, then at most 62 of a-z, 0-9 and -; not s1",
    kinds.text_schema(kinds.NAME_PATTERN),
)
_PAIR = kinds.text(
    "is not a pair of sites",
    'two sites such as "eu-us", both ways, or "eu>us", one way',
    "[a-z][a-z0-9-]*[->][a-z0-9-]+",
)


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


_BETWEEN = Chosen((_RTT, RawDirection), lambda value: RawDirection if isinstance(value, dict) else _RTT)
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
        return Named(_PAIR, _BETWEEN)
    return kinds.PATH if isinstance(value, str) and value.endswith(".csv") else _TABLE


RTT = Chosen((_TABLE, kinds.PATH, Named(_PAIR, _BETWEEN)), _form_of)


@dataclass(frozen=True)
class Sites:
    """The sites in order; by name, the one-way delay and the bandwidth of its hosts' links; the links between them."""

    names: tuple[str, ...]
    delays_ns: Mapping[str, int]
    rates_bps: Mapping[str, int | None]
    links: tuple[SiteLink, ...]


NO_SITES = Sites((), {}, {}, ())


def sites_of(
    given: Mapping[str, RawSite], named: Sequence[tuple[Location, str]], rtt: Any
) -> tuple[Sites, list[Finding]]:
    """The sites of a file, and what is wrong with them.

    ``given`` are those with an object, ``named`` those that hosts name, with their places, and ``rtt`` is the value of
    that key: the name of a table, a path, or by pair a round-trip time or an object.
    """
    names = tuple(dict.fromkeys((*given, *(name for _, name in named))))
    findings: list[Finding] = []
    within: dict[str, int] = {}
    ways: dict[tuple[str, str], DirectionSpec | RawDirection] = {}
    places: dict[tuple[str, str], Location] = {}
    if isinstance(rtt, Mapping):
        for key, value in rtt.items():
            _take_pair(key, value, names, ways, places, findings)
    elif rtt is not None:
        table, problems = read_table(_TABLES / f"{rtt}.csv" if isinstance(rtt, str) else rtt)
        if problems:
            return Sites(names, {}, {}, ()), [Finding(("rtt",), problem) for problem in problems]
        for place, name in (*((("sites", name), name) for name in given), *named):
            if name not in table:
                hint = suggestion(name, [*table])
                findings.append(Finding(place, f"is not in the table of round-trip times{hint}", f'"{name}"'))
        for a, row in table.items():
            for b, rtt_ns in row.items():
                if a == b:
                    within[a] = rtt_ns
                elif a in names and b in names:
                    ways[a, b], places[a, b] = DirectionSpec(rtt_ns // 2), ("rtt",)
    delays_ns = {name: _within_ns(given.get(name), within.get(name, 0)) // 4 for name in names}
    rates_bps = {name: given[name].bandwidth if name in given else None for name in names}
    links = []
    for (a, b), way in ways.items():
        if (b, a) not in ways:
            findings.append(
                Finding(places[a, b], f'has no way back; give "{b}>{a}", or "{a}-{b}" for both', at_key=True)
            )
        elif names.index(a) < names.index(b):
            sides = [
                _own(each, delays_ns[a] + delays_ns[b], places[ends], findings)
                for ends, each in (((a, b), way), ((b, a), ways[b, a]))
            ]
            links.append(SiteLink(a, b, LinkSpec(*sides)))
    if not findings and (apart := _apart(names, links)) is not None:
        allowed = "round-trip times between the sites" if rtt is None else None
        message = "is missing" if rtt is None else f"has no way from {names[0]} to {apart}"
        findings.append(Finding(("rtt",), message, allowed=allowed))
    return Sites(names, delays_ns, rates_bps, tuple(links)), [*dict.fromkeys(findings)]


def _take_pair(
    key: str,
    value: Any,
    names: Sequence[str],
    ways: dict[tuple[str, str], DirectionSpec | RawDirection],
    places: dict[tuple[str, str], Location],
    findings: list[Finding],
) -> None:
    place = ("rtt", key)
    sign = ">" if ">" in key else "-"
    ends = [(key[:at], key[at + 1 :]) for at, letter in enumerate(key) if letter == sign]
    found = [(a, b) for a, b in ends if a in names and b in names and a != b]
    if len(found) != 1:
        meant = "is not a pair of the sites" if not found else "may be several pairs of sites"
        findings.append(Finding(place, meant, f'"{key}"', f"two of {', '.join(names)}", at_key=True))
        return
    for a, b in (found[0], found[0][::-1])[: 2 if sign == "-" else 1]:
        if (a, b) in ways:
            findings.append(Finding(place, f"says the way from {a} to {b} again", f'"{key}"', "once", at_key=True))
        elif isinstance(value, RawDirection):
            for missing in {"delay"} - value.given:
                findings.append(Finding((*place, missing), "is missing", allowed=kinds.DELAY.form))
            if "uplink" in value.given:
                findings.append(Finding((*place, "uplink"), "says nothing here", allowed="in the link of a host"))
        ways[a, b], places[a, b] = (
            (value if isinstance(value, RawDirection) else DirectionSpec(value if sign == ">" else value // 2)),
            place,
        )


def _within_ns(site: RawSite | None, of_table_ns: int) -> int:
    return of_table_ns if site is None or site.rtt is None else site.rtt


def _own(
    way: DirectionSpec | RawDirection, of_hosts_ns: int, place: Location, findings: list[Finding]
) -> DirectionSpec:
    """What is left to the link between two sites of the way between their hosts."""
    delay_ns = way.delay_ns - of_hosts_ns
    if delay_ns < 0:
        least = format_duration(of_hosts_ns)
        message = f"is shorter than the links of hosts in both sites, which take {least} of each way"
        findings.append(Finding(place, message, format_duration(way.delay_ns), f"at least {least} one way"))
        return DirectionSpec()
    try:
        return replace(way.spec(None, None) if isinstance(way, RawDirection) else way, delay_ns=delay_ns)
    except Refused as refused:
        findings.append(Finding((*place, *refused.place), refused.message, refused.got, refused.allowed))
        return DirectionSpec()


def _apart(names: Sequence[str], links: Sequence[SiteLink]) -> str | None:
    """A site that no link connects with the first one."""
    seen, size = set(names[:1]), 0
    while len(seen) > size:
        size = len(seen)
        seen |= {end for link in links if seen & {link.a, link.b} for end in (link.a, link.b)}
    return next((name for name in names if name not in seen), None)


def read_table(path: Path) -> tuple[dict[str, dict[str, int]], list[str]]:
    """A table of round-trip times in ns, by the site that measured and the one that it measured; and its problems.

    The file is CSV: the first row and the first column are names, a cell is a number of milliseconds, a time such as
    ``80ms``, or empty. Lines that begin with # are remarks.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        return {}, [f"cannot be read: {error}"]
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if any(row)]
    heads = rows[0][1:] if rows else []
    problems = [] if len(rows) > 1 and all(heads) else ["is no table: its first row and first column name the sites"]
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


def written_sites(names: Sequence[str], links: Sequence[SiteLink]) -> dict[str, Any]:
    """The keys of a file from which the same sites are read."""
    if not names:
        return {}
    between = {
        f"{a}>{b}": written(RawDirection, side, ("delay_ns", "rate_bps"))
        for link in links
        for a, b, side in ((link.a, link.b, link.spec.a_to_b), (link.b, link.a, link.spec.b_to_a))
    }
    return {"sites": {name: {} for name in names}, **({"rtt": between} if between else {})}
