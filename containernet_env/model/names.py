"""The names of things that are configured or measured: keys of files, columns of results, and names for people.

On the command line each name is accepted wherever its thing can be named.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from containernet_env.base.errors import UsageError

_QUANTITIES = (
    ("LinkDelay_ms", "link delay, one way (ms)", "{} ms", "link_delay", "delay"),
    ("Bandwidth_mbps", "bandwidth (Mbit/s)", "{} Mbit/s", "bandwidth", "bw"),
    ("LinkLoss_ratio", "loss (share of frames)", "loss {}", "loss"),
    ("LinkJitter_ms", "jitter (ms)", "jitter {} ms", "jitter"),
    ("ClusterSize", "members", "{} members", "members", "nodes"),
    ("OfferedRate_per_s", "offered rate (requests/s)", "{}/s", "rate", "offered_rate"),
    ("ClientCount", "clients", "{} clients", "clients"),
    ("ConnectionCount", "connections", "{} connections", "conns", "connections"),
    ("Cpus", "CPU limit of a member (cores)", "{} cores", "cpus"),
    ("Memory_bytes", "memory limit of a member (bytes)", "{} bytes of memory", "mem", "memory"),
    ("Fsync_ms", "fsync of a member (ms)", "fsync {} ms", "fsync"),
    ("ValueSize", "value size (bytes)", "values of {} B", "valSize"),
    ("KeySize", "key size (bytes)", "keys of {} B", "keySize"),
    ("Heartbeat_ms", "heartbeat (ms)", "heartbeat {} ms", "heartbeat_interval", "heartbeat"),
    ("ElectionTimeout_ms", "election timeout (ms)", "election {} ms", "election_timeout", "election"),
    ("RequestCount", "requests", "{} requests", "total", "requests"),
    ("ClientLink", "", "", "client.link"),
    ("ClientCpus", "", "", "client.cpus"),
    ("ClientMemory_bytes", "", "", "client.mem"),
)
"""Of quantities, in the order in which they are shown as axes, and chosen where two vary together: the column; what it
is called as an axis, with its unit, and a value of it that stands without its axis, "" for neither; the key of
topology, scenario and sweep files; other words. Case, ``_`` and ``-`` make no difference."""
_OTHERS = (
    ("LoadSeed", "", "", "seed"),
    ("Consistency", "consistency", "", "consistency"),
    ("Target", "target", "{}", "target"),
    ("TestType", "type of request", "", "type"),
    ("Scenario", "scenario", "", "scenario"),
    ("ReadSpan", "", "", "spanKeys", "span"),
    ("ReadLimit", "", "at most {}", "limit"),
    ("ReadAnswer", "", "answers {}"),
    ("SearchObjective", "", "search {}", "search"),
    ("Events", "", "{}", "events"),
    ("Store", "", "", "store"),
    ("StoreVersion", "", "", "version"),
    ("Data", "", "", "data"),
    ("LeaderConfigured", "", "", "leader"),
    ("CongestionControl", "", "", "congestion_control", "tcp_congestion_control"),
    ("Config", "topology file", "", "topology"),
    ("RttExpected_ms", "expected RTT (ms)", "RTT {} ms"),
    ("CpuModel", "machine", ""),
    ("Cores", "", "{} cores of the machine"),
    ("Commit", "commit", "commit {}"),
    ("Kernel", "kernel", "kernel {}"),
    ("Realtime", "", "real-time {}"),
    ("Dilation", "dilation", "dilation {}", "dilation"),
    ("LinkStamps", "", "stamps {}"),
    ("LinkOffload", "", "offload"),
    ("Requests/sec", "", "", "throughput", "requests/s", "requests_per_s", "rps"),
    ("Floor_50%_s", "", "", "floor"),
)
"""The same of all other columns that have any of these."""
QUANTITIES = tuple(thing[0] for thing in _QUANTITIES)
AXES = {column: (axis, form) for column, axis, form, *_ in (*_QUANTITIES, *_OTHERS)}
"""By column: what an axis is called, and a value of it that stands without its axis; "" for neither."""
_NAMES = tuple((column, *words) for column, _, _, *words in (*_QUANTITIES, *_OTHERS))
_PERCENTILE = re.compile(r"p?([\d.]+)%?")


def plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.%/]", "", name.lower()).removesuffix("%")


def synonyms(name: str) -> tuple[str, ...]:
    """All names of the thing whose column or key is ``name``, itself the first one."""
    others = next((names for names in _NAMES if name in names), ())
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
