"""What axes and figures are called: by people, by the keys of topology and scenario files, and by columns.

An axis is what was configured; a figure is what was measured. Both are columns of the CSV.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from containernet_env.base.errors import UsageError
from containernet_env.results.columns import BY_NAME

RATE = "Requests/sec"
_LARGEST = 1e300


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured: ``scale`` makes ``unit`` of what the column holds."""

    column: str
    short: str
    label: str
    unit: str
    scale: float

    @property
    def title(self) -> str:
        """The label with its unit, for axes of a picture."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def _percentile(p: str) -> Figure:
    return Figure(f"{p}%", f"p{p}", f"latency, p{p}", "ms", 1000)


FIGURES = (
    Figure(RATE, "requests/s", "requests/s", "", 1),
    *(_percentile(p) for p in ("50", "95", "99", "99.9")),
)
"""What the page shows of every configuration."""

_ALIASES = {
    "link_delay": "LinkDelay_ms",
    "delay": "LinkDelay_ms",
    "bandwidth": "Bandwidth_mbps",
    "jitter": "LinkJitter_ms",
    "loss": "LinkLoss_ratio",
    "cpus": "Cpus",
    "mem": "Memory_bytes",
    "memory": "Memory_bytes",
    "members": "ClusterSize",
    "nodes": "ClusterSize",
    "clients": "ClientCount",
    "conns": "ConnectionCount",
    "connections": "ConnectionCount",
    "total": "RequestCount",
    "requests": "RequestCount",
    "rate": "OfferedRate_per_s",
    "key_size": "KeySize",
    "val_size": "ValueSize",
    "value_size": "ValueSize",
    "consistency": "Consistency",
    "target": "Target",
    "type": "TestType",
    "scenario": "Scenario",
    "store": "Store",
    "data": "Data",
    "leader": "LeaderConfigured",
    "heartbeat": "Heartbeat_ms",
    "heartbeat_interval": "Heartbeat_ms",
    "election_timeout": "ElectionTimeout_ms",
    "congestion_control": "CongestionControl",
    "throughput": RATE,
    "requests/s": RATE,
    "requests_per_s": RATE,
    "rps": RATE,
    "floor": "Floor_50%_s",
}
_LABELS = {
    "LinkDelay_ms": "link delay, one way (ms)",
    "Bandwidth_mbps": "bandwidth (Mbit/s)",
    "LinkJitter_ms": "jitter (ms)",
    "LinkLoss_ratio": "loss (share of frames)",
    "Cpus": "CPU limit of a member (cores)",
    "Memory_bytes": "memory limit of a member (bytes)",
    "ClusterSize": "members",
    "ClientCount": "clients",
    "ConnectionCount": "connections",
    "RequestCount": "requests",
    "OfferedRate_per_s": "offered rate (requests/s)",
    "KeySize": "key size (bytes)",
    "ValueSize": "value size (bytes)",
    "Consistency": "consistency",
    "Target": "target",
    "TestType": "type of request",
    "Heartbeat_ms": "heartbeat (ms)",
    "ElectionTimeout_ms": "election timeout (ms)",
    "RttExpected_ms": "expected RTT (ms)",
    "CpuModel": "machine",
    "Commit": "commit",
    "Kernel": "kernel",
    "Config": "topology file",
    "Scenario": "scenario",
    "variant": "scenario",
    "file": "file",
}
_WORDS = {
    ("Consistency", "l"): "linearizable",
    ("Consistency", "s"): "serializable",
    ("Consistency", "default"): "default consistency",
}
_SHORT = {
    "LinkDelay_ms": "{} ms",
    "Bandwidth_mbps": "{} Mbit/s",
    "LinkJitter_ms": "jitter {} ms",
    "LinkLoss_ratio": "loss {}",
    "Cpus": "{} cores",
    "Memory_bytes": "{} bytes of memory",
    "ClusterSize": "{} members",
    "ClientCount": "{} clients",
    "ConnectionCount": "{} connections",
    "RequestCount": "{} requests",
    "OfferedRate_per_s": "{}/s",
    "KeySize": "keys of {} B",
    "ValueSize": "values of {} B",
    "Heartbeat_ms": "heartbeat {} ms",
    "ElectionTimeout_ms": "election {} ms",
    "RttExpected_ms": "RTT {} ms",
    "Cores": "{} cores of the machine",
    "Realtime": "real-time {}",
    "LinkStamps": "stamps {}",
    "Events": "{}",
    "Target": "{}",
    "Kernel": "kernel {}",
    "Commit": "commit {}",
    "SearchObjective": "search {}",
    "ReadAnswer": "answers {}",
    "ReadLimit": "at most {}",
}
_ONE = re.compile(r"^1 (clients|connections|members|cores|requests)\b")


def label(column: str) -> str:
    """What an axis is called in a picture, with its unit."""
    if column in _LABELS:
        return _LABELS[column]
    unit = BY_NAME[column].unit if column in BY_NAME else ""
    return f"{column} ({unit})" if unit and not column.endswith(f"_{unit}") else column


def scaled(value: float | None, scale: float) -> float | None:
    """A measured value in another unit; ``None`` for one so large that sums of it are no numbers."""
    found = None if value is None else value * scale
    return found if found is not None and abs(found) < _LARGEST else None


def text(value: object) -> str:
    """A value as people write it: 3 and not 3.0; a missing one is a dash."""
    if value is None or value != value:
        return "-"
    if isinstance(value, float):
        return f"{int(value)}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    return str(value)


def phrase(column: str, value: object) -> str:
    """A value of an axis so that it can stand without its axis: "3 ms", "100 clients", "linearizable"."""
    known = _WORDS.get((column, str(value)))
    if known is not None or value is None or value != value:
        return known or ""
    shown = text(value)
    if column in ("Bandwidth_mbps", "Cpus", "Memory_bytes") and shown == "unlimited":
        return f"unlimited {_LABELS[column].partition(' (')[0]}"
    form = _SHORT.get(column)
    if form is None:
        alone = not BY_NAME[column].number if column in BY_NAME else True
        return shown if alone else f"{column} {shown}"
    return _ONE.sub(lambda match: match[0][:-1], form.format(shown))


def number(value: object) -> float | None:
    """The number that a value of an axis is, "3" as well as 3.0; ``None`` for words such as "unlimited"."""
    try:
        found = float(str(value))
    except ValueError:
        return None
    return found if found == found and abs(found) != float("inf") else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.%/]", "", re.sub(r"%$", "", name.lower()))


def _known(columns: Sequence[str]) -> dict[str, str]:
    """Every name, in plain form, of each of these columns."""
    names = {_plain(name): name for name in columns}
    names |= {_plain(alias): column for alias, column in _ALIASES.items() if column in columns}
    percentiles = [name for name in columns if re.fullmatch(r"[\d.]+%", name)]
    return names | {f"p{name[:-1]}": name for name in percentiles}


def column_of(option: str, name: str, columns: Sequence[str]) -> str:
    """The column that a user means by ``name``: by its own name, or by that of a key of topology or scenario files.

    Raises ``UsageError`` that says what there is.
    """
    known = _known(columns)
    found = known.get(_plain(name))
    if found is not None:
        return found
    near = difflib.get_close_matches(_plain(name), known, n=1)
    offered = _offered(columns)
    hint = f", did you mean {_told(near[0], offered)}?" if near else ""
    raise UsageError(f"{option} {name}: no such column{hint}; allowed: {', '.join(offered)}")


def _told(plain: str, offered: Sequence[str]) -> str:
    """A name in plain form as people write it."""
    return next((name for name in (*offered, *_ALIASES) if _plain(name) == plain), plain)


def _offered(columns: Sequence[str]) -> list[str]:
    """Each column by the name that is easiest to type."""
    aliases: dict[str, str] = {}
    for alias, column in _ALIASES.items():
        aliases.setdefault(column, alias)
    return [f"p{name[:-1]}" if re.fullmatch(r"[\d.]+%", name) else aliases.get(name, name) for name in columns]


def figure_of(column: str) -> Figure:
    """How a measured column is drawn: latencies in ms."""
    for known in FIGURES:
        if known.column == column:
            return known
    if re.fullmatch(r"[\d.]+%", column):
        return _percentile(column[:-1])
    unit = BY_NAME[column].unit
    name = column.removesuffix(f"_{unit}") if unit else column
    return Figure(column, name, name, "ms", 1000) if unit == "s" else Figure(column, name, name, unit, 1)
