"""The names of things that are configured or measured: keys of files, columns of results, and names for people.

On the command line each name is accepted wherever its thing can be named.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from containernet_env.base.errors import UsageError

_THINGS = (
    ("LinkDelay_ms", "link_delay", "delay"),
    ("Bandwidth_mbps", "bandwidth", "bw"),
    ("LinkJitter_ms", "jitter"),
    ("LinkLoss_ratio", "loss"),
    ("Cpus", "cpus"),
    ("Memory_bytes", "mem", "memory"),
    ("ClientCpus", "client.cpus"),
    ("ClientMemory_bytes", "client.mem"),
    ("ClientLink", "client.link"),
    ("ClusterSize", "members", "nodes"),
    ("ClientCount", "clients"),
    ("ConnectionCount", "conns", "connections"),
    ("RequestCount", "total", "requests"),
    ("OfferedRate_per_s", "rate", "offered_rate"),
    ("LoadSeed", "seed"),
    ("KeySize", "keySize"),
    ("ValueSize", "valSize"),
    ("Consistency", "consistency"),
    ("Target", "target"),
    ("TestType", "type"),
    ("Scenario", "scenario"),
    ("ReadSpan", "spanKeys", "span"),
    ("ReadLimit", "limit"),
    ("SearchObjective", "search"),
    ("Events", "events"),
    ("Store", "store"),
    ("StoreVersion", "version"),
    ("Data", "data"),
    ("LeaderConfigured", "leader"),
    ("Heartbeat_ms", "heartbeat_interval", "heartbeat"),
    ("ElectionTimeout_ms", "election_timeout", "election"),
    ("CongestionControl", "congestion_control", "tcp_congestion_control"),
    ("Config", "topology"),
    ("Requests/sec", "throughput", "requests/s", "requests_per_s", "rps"),
    ("Floor_50%_s", "floor"),
)
"""The column, the key of topology, scenario and sweep files, other words. Case, ``_`` and ``-`` make no difference."""
_PERCENTILE = re.compile(r"p?([\d.]+)%?")


def plain(name: str) -> str:
    """A name without insignificant differences."""
    return re.sub(r"[^a-z0-9.%/]", "", name.lower()).removesuffix("%")


def synonyms(name: str) -> tuple[str, ...]:
    """All names of the thing whose column or key is ``name``, itself the first one."""
    others = next((thing for thing in _THINGS if name in thing), ())
    if match := _PERCENTILE.fullmatch(name):
        others = (f"p{match[1]}", f"{match[1]}%")
    return tuple(dict.fromkeys((name, *others)))


def _known(allowed: Iterable[str]) -> Mapping[str, str]:
    """Every name, in plain form, of each that is allowed; a key comes before another thing's column: ``leader``."""
    allowed = tuple(allowed)
    names = {plain(name): name for name in allowed}
    return names | {plain(other): name for name in allowed for other in synonyms(name)[1:]}


def find(name: str, allowed: Sequence[str]) -> str | None:
    """The one of ``allowed``, columns or keys, that a user means by ``name``; ``None`` if there is none."""
    return name if name in allowed else _known(allowed).get(plain(name))


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The one of ``names`` that is spelt most like ``word``; ``None`` if none is near."""
    by_plain = {plain(name): name for name in names}
    near = difflib.get_close_matches(plain(word), by_plain, n=1)
    return by_plain[near[0]] if near else None


def closest(name: str, allowed: Iterable[str]) -> str | None:
    """The name of one of ``allowed`` that is spelt most like ``name``; ``None`` if none is near."""
    return nearest(name, (other for one in allowed for other in synonyms(one)))


def easiest(columns: Iterable[str]) -> Iterator[str]:
    """Each column by the name that is easiest to type."""
    for column in columns:
        yield (*synonyms(column), column)[1]


def split(option: str, texts: Iterable[str]) -> list[str]:
    """The names in the values of an option that is repeatable and takes several at once. Raises ``UsageError``."""
    names = []
    for text in texts:
        words = [word.strip() for word in text.split(",")]
        if not all(words):
            raise UsageError(f"{option} {text}: write names with commas between them")
        names += words
    return names


def column_of(option: str, name: str, columns: Sequence[str]) -> str:
    """The one of ``columns`` that a user means by ``name``. Raises ``UsageError`` with the available names."""
    found = find(name, columns)
    if found is not None:
        return found
    near = closest(name, columns)
    hint = f", did you mean {near}?" if near else ""
    raise UsageError(f"{option} {name}: no such column{hint}; allowed: {', '.join(easiest(columns))}")


def listed(values: Sequence[str], most: int = 4) -> str:
    """The first of several texts, and how many there are besides."""
    return ", ".join(values[:most]) + (f" and {len(values) - most} more" if len(values) > most else "")
