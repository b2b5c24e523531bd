"""Files of traces: read, checked line by line, and as points for the link emulator."""

from __future__ import annotations

import hashlib
import os
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from containernet_env.base.errors import RunError
from containernet_env.base.units import format_duration, format_mbps
from containernet_env.model import kinds
from containernet_env.model.config import Config
from containernet_env.model.kinds import (
    DELAY_MAX_NS,
    RATE_MAX_BPS,
    RATE_MIN_BPS,
    Chosen,
    Refused,
    Section,
    keyed,
    rule,
    section,
)
from containernet_env.model.trace import Trace, TraceKind, Traces

MAX_BYTES = 64 << 20
MAX_POINTS = 1 << 22
"""``MaxTracePoints`` of link_emulator/model/trace.go."""
LENGTH_MAX_NS = 10**15
_SHOWN = 5
"""Problems of one file that are reported."""
_DIGITS = {"s": 9, "ms": 6, "us": 3, "ns": 0}
"""Of a time in that unit, so many decimals are whole nanoseconds."""
_NUMBER = r"([0-9]{1,15})(?:\.([0-9]{1,12}))?"
_LINE = re.compile(rf"\s*{_NUMBER}(s|ms|us|ns)?\s*,\s*{_NUMBER}(s|ms|us|ns)?\s*", re.ASCII)
_MILLISECOND = re.compile("[0-9]{1,12}", re.ASCII)
_HEADER = "time,value"
_TIME = "two columns: a time in seconds such as 0.5, or with a unit such as 500ms, and "
_COLUMNS = {
    "rate": f"{_TIME}0, or {format_mbps(RATE_MIN_BPS)} to {format_mbps(RATE_MAX_BPS)} Mbit/s, without a unit",
    "delay": f"{_TIME}a delay in ms such as 20, or with a unit such as 20ms, up to {format_duration(DELAY_MAX_NS)}",
}
_LATEST = f"times up to {format_duration(LENGTH_MAX_NS)}"


@dataclass(frozen=True)
class _Points:
    """Times since the start in ns, and the values from then on; none of opportunities.

    The messages of ``problems`` go on after the name of the file.
    """

    times: array[int]
    values: array[int]
    problems: tuple[Refused, ...]


def _shifted(whole: str, fraction: str | None, digits: int) -> int | None:
    """A number times ten to the power of ``digits``, if that is a whole one. Decimals would take five times as long."""
    fraction = (fraction or "").ljust(digits, "0")
    if len(fraction) > digits and fraction[digits:].strip("0"):
        return None
    return int(whole + fraction[:digits])


@lru_cache(maxsize=4096)
def _value(kind: TraceKind, whole: str, fraction: str | None, unit: str | None) -> int | None:
    """A value in bit/s or ns, if it is one and in range."""
    if kind == "rate":
        bps = None if unit else _shifted(whole, fraction, 6)
        return bps if bps == 0 or (bps is not None and RATE_MIN_BPS <= bps <= RATE_MAX_BPS) else None
    ns = _shifted(whole, fraction, _DIGITS[unit or "ms"])
    return ns if ns is not None and ns <= DELAY_MAX_NS else None


def _point(line: str, kind: TraceKind) -> tuple[int, int]:
    """The time in ns and the value in bit/s or ns, 0 of an opportunity. Raises `Refused`."""
    if kind == "opportunities":
        if _MILLISECOND.fullmatch(line) is None or (ns := int(line) * 10**6) > LENGTH_MAX_NS:
            raise Refused("is not a line of a trace", f"a whole number of milliseconds; {_LATEST}")
        return ns, 0
    if (match := _LINE.fullmatch(line)) is None:
        raise Refused("is not a line of a trace", _COLUMNS[kind])
    whole, fraction, unit, *given = match.groups()
    time_ns, value = _shifted(whole, fraction, _DIGITS[unit or "s"]), _value(kind, *given)
    if time_ns is None or time_ns > LENGTH_MAX_NS:
        raise Refused("has no whole number of nanoseconds", _LATEST)
    if value is None:
        raise Refused("has a value that is out of range", _COLUMNS[kind])
    return time_ns, value


@lru_cache(maxsize=4)
def _points(content: bytes, kind: TraceKind) -> _Points:
    """The points of a file, and the first problems of it."""
    times, values, problems = array("q"), array("q"), list[Refused]()
    of_values = kind != "opportunities"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _Points(times, values, (Refused(" is not UTF-8 text", "text", got=hex(error.object[error.start])),))
    if content.count(b"\n") > MAX_POINTS:
        return _Points(times, values, (Refused(" has too many lines", f"at most {MAX_POINTS:,}"),))
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    last_ns, may_be_header = -1 if of_values else 0, of_values
    for number, line in enumerate(lines, 1):
        if of_values and line.startswith("#"):
            continue
        is_header, may_be_header = may_be_header and line.replace(" ", "") == _HEADER, False
        if is_header:
            continue
        try:
            time_ns, value = _point(line, kind)
            before_ns, last_ns = last_ns, time_ns
            if before_ns < 0 < time_ns:
                raise Refused("does not begin at the time 0", "0 first")
            if time_ns < before_ns or (of_values and time_ns == before_ns):
                order = "times that ascend" if of_values else "milliseconds that do not descend"
                raise Refused("is not later than the line before", order)
        except Refused as refused:
            problems.append(Refused(f", line {number}: {refused.message}", refused.allowed, got=line))
            if len(problems) == _SHOWN:
                break
            continue
        times.append(time_ns)
        if of_values:
            values.append(value)
    if not times and not problems:
        problems.append(Refused(" is empty", "at least one point", got=f"{len(lines)} lines"))
    elif kind == "opportunities" and not last_ns and not problems:
        problems.append(Refused(" lasts no time", "a last millisecond above 0, after which it repeats", got="0 only"))
    elif kind == "rate" and not problems and not any(values):
        problems.append(Refused(" is 0 all the time", "a bandwidth above 0 at some time"))
    return _Points(times, values, tuple(problems))


def read_trace(path: Path, of: str, repeat_ns: int | None = None) -> Trace:
    """The trace in a file, of the ``bandwidth`` or the ``delay``. Raises `RefusedTrace`."""
    is_csv = path.suffix == ".csv"
    kind: TraceKind = "delay" if of == "delay" else "rate" if is_csv else "opportunities"
    try:
        if path.is_fifo():  # to open it would wait for a writer, and it could not be read again
            raise ValueError("it is a pipe")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RefusedTrace(path, Refused(f" cannot be read: {reason}", "a file")) from error
    if len(content) > MAX_BYTES:
        raise RefusedTrace(path, Refused(" is too large", f"at most {MAX_BYTES >> 20} MiB"))
    if kind == "delay" and not is_csv:
        raise RefusedTrace(path, Refused(" is no CSV file", "delays in a file whose name ends in .csv"))
    points = _points(content, kind)
    problems = [*points.problems]
    if repeat_ns is not None and not problems:
        least_ns = points.times[-1]
        if kind == "opportunities":
            problems = [Refused(" repeats by itself, after its last line", "repeat with a CSV file")]
        elif repeat_ns <= least_ns:
            got, allowed = format_duration(repeat_ns), f"more than {format_duration(least_ns)}"
            problems = [Refused(" repeats before its last line", allowed, got=got)]
    if problems:
        raise RefusedTrace(path, *problems)
    ends = (min(points.values), max(points.values)) if points.values else None
    return Trace(
        file=os.path.abspath(path),
        sha256=hashlib.sha256(content).hexdigest(),
        kind=kind,
        points=len(points.times),
        repeat_ns=points.times[-1] if kind == "opportunities" else repeat_ns,
        delay_ns=ends if kind == "delay" else None,
        rate_bps=ends if kind == "rate" else None,
    )


class RefusedTrace(ValueError):
    """A file is no trace: the first ``problems`` of it."""

    def __init__(self, path: Path, *problems: Refused) -> None:
        self.problems = [Refused(f"{path}{one.message}", one.allowed, got=one.got) for one in problems]
        super().__init__("; ".join(map(str, self.problems)))


def content_of(trace: Trace) -> bytes:
    """The content of its file. Raises ``RunError`` if that is no longer what was read."""
    try:
        content = Path(trace.file).read_bytes()
    except OSError as error:
        raise RunError(f"the trace {trace.file} cannot be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != trace.sha256:
        raise RunError(f"the trace {trace.file} has changed since it was read")
    return content


def points_of(trace: Trace) -> tuple[list[int], list[int]]:
    """The times and the values of a trace as it runs; see `content_of`."""
    points, factor = _points(content_of(trace), trace.kind), trace.second_ns // 10**9
    times, values = [ns * factor for ns in points.times], [*points.values]
    if factor > 1:
        values = [value * factor if trace.kind == "delay" else round(value / factor) for value in values]
    return times, values


# --- in topology files ------------------------------------------------------------------------------------------------


@section
class RawTrace(Section):
    """A trace with more than its file."""

    file: Path = keyed(kinds.PATH, "the file")
    repeat: int | None = keyed(
        kinds.duration(1, LENGTH_MAX_NS, such="60s", what="a time to repeat after"),
        "after how long it starts again, later than its last line (its last value holds)",
        default=None,
    )


def _written(trace: Trace | None) -> Any:
    if trace is None:
        return None
    if trace.repeat_ns is None or trace.kind == "opportunities":
        return trace.file
    return {"file": trace.file, "repeat": format_duration(trace.repeat_ns)}


_TRACE = Chosen((kinds.PATH, RawTrace), lambda value: RawTrace if isinstance(value, dict) else kinds.PATH, _written)


@section
class RawTraces(Section):
    """What follows a file while a scenario runs: the bandwidth, the delay or both."""

    SCHEMA: ClassVar = {"minProperties": 1}

    bandwidth: Path | RawTrace | None = keyed(
        _TRACE, "Mbit/s over time (.csv), or delivery opportunities as mahimahi has them", default=None
    )
    delay: Path | RawTrace | None = keyed(_TRACE, "one-way delays over time (.csv)", default=None)

    @rule
    def _there_is_one(self) -> None:
        if not self.given:
            raise Refused("has no trace", "bandwidth, delay or both")

    @rule
    def _files_are_traces(self) -> Iterator[Refused]:
        for of, raw in (("bandwidth", self.bandwidth), ("delay", self.delay)):
            try:
                _read(of, raw)
            except RefusedTrace as refused:
                yield from (one.below((of,)) for one in refused.problems)

    @property
    def traces(self) -> Traces:
        """The traces. Raises `RefusedTrace`, an error that the rules above report."""
        return Traces(_read("bandwidth", self.bandwidth), _read("delay", self.delay))


def _read(of: str, raw: Path | RawTrace | None) -> Trace | None:
    if isinstance(raw, RawTrace):
        return read_trace(raw.file, of, raw.repeat)
    return None if raw is None else read_trace(raw, of)


# --- in run directories -----------------------------------------------------------------------------------------------


def traces_of(config: Config) -> list[Trace]:
    specs = [node.link for node in config.hosts] + [link.spec for link in config.switch_links]
    return [trace for spec in specs for side in spec.sides for trace in side.traces.values()]


def copy_name(trace: Trace) -> str:
    """The name of the copy that a run directory keeps, beside its topology: the same kind of file."""
    return f"traces/{trace.sha256[:16]}.{'trace' if trace.kind == 'opportunities' else 'csv'}"
