"""What axes and figures are called in pictures and tables.

An axis is what was configured; a figure is what was measured. Both are columns of the CSV.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from containernet_env.results.columns import BY_NAME

RATE = "Requests/sec"
_LARGEST, _LONGEST = 1e300, 1000
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,15})?")
_QUANTITY = re.compile(r"(?:uniform |normal )?\d")


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


def level(value: object) -> float | None:
    """The number that a value is, or the mean of those in "1;25;1" or "uniform 1"; ``None`` for other words."""
    found = number(value)
    if found is not None or not _QUANTITY.match(str(value)):
        return found
    parts = [float(part) for part in _NUMBER.findall(str(value)[:_LONGEST])]
    return sum(parts) / len(parts)


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
