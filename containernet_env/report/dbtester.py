"""The aggregated table of dbtester, with its row labels, of series of ours.

What each row holds follows dbtester's own programs (stress.go and analyze/command.go of etcd-io/dbtester), but for what
`MEASURES` says of its source. Of several repetitions each figure is worked out by itself, and the median is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from containernet_env.base.errors import UsageError
from containernet_env.model.usage import Consumption
from containernet_env.report.names import RATE, scaled
from containernet_env.report.rows import Rows
from containernet_env.report.runs import lines_of, run_paths
from containernet_env.report.series import Series, series_of
from containernet_env.results.run_directory import read_run, read_usage
from containernet_env.results.run_files import ScenarioLine, UsageLine
from containernet_env.results.statistics import Histogram, decode, median, merged

T = TypeVar("T")

SECTOR_BYTES = 512
"""What the kernel calls a sector in its counters of disks, whatever the disk's own are (Documentation/block/stat)."""
LEAST_INTERVAL_NS = 500_000_000
"""Looks at the edges of a load are as close to the others as they happen to be: CPU time over less says nothing."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One row: ``column`` has what it holds, and what its run directory adds: ``None`` and empty where there is none.

    ``usage``: what the consumers have used since they exist, from the start of the load to its end.
    """

    column: Callable[[str], Any]
    line: ScenarioLine | None = None
    histogram: Histogram | None = None
    usage: Sequence[UsageLine] = ()

    def number(self, column: str) -> float | None:
        """What a column has."""
        return scaled(self.column(column), 1)

    @property
    def load(self) -> Mapping[str, Any]:
        """The benchmark server's result; empty where it is not known."""
        return (self.line.load if self.line is not None else None) or {}

    def whole_seconds(self) -> list[float]:
        """Requests/s that succeeded in each whole second of the load; in all of it, where it was shorter than one.

        A load with a duration is over when that is: answers that come later are in no second.
        """
        steps, step_s, total_s = self.load.get("timeline"), self.load.get("timeline_interval_s"), self.number("Total")
        if not steps or not step_s or total_s is None or total_s <= 0:
            return []
        size = max(1, round(1 / step_s))
        whole = int((total_s - (self.number("Drain_s") or 0) + 1e-6) / step_s)
        counts = [step["ok"] for step in steps[:whole]]
        ends = range(size, len(counts) + 1, size)
        if not ends:
            return [sum(step["ok"] for step in steps) / total_s]
        return [sum(counts[end - size : end]) / (size * step_s) for end in ends]

    def used(self, consumers: Callable[[UsageLine], Iterable[Consumption]], name: str) -> Iterator[float]:
        """The mean over consumers of a level, at each look."""
        for line in self.usage:
            known = [value for one in consumers(line) if (value := getattr(one, name)) is not None]
            if known:
                yield sum(known) / len(known)

    def cores(self, consumers: Callable[[UsageLine], Mapping[str, Consumption]]) -> Iterator[float]:
        """The mean over consumers of the cores that they used between two looks."""
        looks = [self.usage[0]] if self.usage else []
        for line in self.usage[1:]:
            if line.at_ns - looks[-1].at_ns >= LEAST_INTERVAL_NS:
                looks.append(line)
        if len(looks) == 1 and len(self.usage) > 1:
            looks.append(self.usage[-1])
        for before, after in pairwise(looks):
            took_ns, old, new = after.at_ns - before.at_ns, consumers(before), consumers(after)
            shares = [
                (now - then) / took_ns
                for name in old.keys() & new.keys()
                if (then := old[name].cpu_ns) is not None and (now := new[name].cpu_ns) is not None
            ]
            if shares and took_ns > 0:
                yield sum(shares) / len(shares)


Repetition = Sequence[Measured]
"""The steps of a series, each measured once, by clients."""
Get = Callable[[Repetition], float | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """A row of the table. ``of`` has the figure in ``unit``, ``shown`` writes it as dbtester does."""

    label: str
    unit: str
    source: str
    of: Get
    shown: Callable[[float], str]


def _sum(values: Iterable[float | None]) -> float | None:
    """``None`` where one is not known, or there are none."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


def _column(name: str, over: Callable[[Iterable[float]], float], scale: float = 1) -> Get:
    def get(steps: Repetition) -> float | None:
        known = [value for step in steps if (value := step.number(name)) is not None]
        return over(known) * scale if len(known) == len(steps) else None

    return get


def _mean_throughput(steps: Repetition) -> float | None:
    # The rate of a load with a duration is that of the duration: what follows is left out of its time.
    times = [None if (s := step.number("Total")) is None else s - (step.number("Drain_s") or 0) for step in steps]
    rates = [step.number(RATE) for step in steps]
    pairs = [(time, rate) for time, rate in zip(times, rates, strict=True) if time is not None and rate is not None]
    whole = sum(time for time, _ in pairs)
    return sum(time * rate for time, rate in pairs) / whole if len(pairs) == len(steps) and whole > 0 else None


def _mean_latency_ms(steps: Repetition) -> float | None:
    if len(steps) == 1:
        return None if (mean := steps[0].number("Average")) is None else mean * 1000
    counts = [
        None if (n := step.number("RequestCount")) is None or (out := step.number("Excluded")) is None else n - out
        for step in steps
    ]
    sums = [
        None if count is None or (mean := step.number("Average")) is None else count * mean
        for step, count in zip(steps, counts, strict=True)
    ]
    whole, answered = _sum(sums), _sum(counts)
    return whole / answered * 1000 if whole is not None and answered else None


def _of_seconds(over: Callable[[Iterable[float]], float]) -> Get:
    def get(steps: Repetition) -> float | None:
        if not all(step.load.get("timeline") for step in steps):
            return None
        seconds = [count for step in steps for count in step.whole_seconds()]
        return over(seconds) if seconds else None

    return get


def _percentile_ms(p: str) -> Get:
    def get(steps: Repetition) -> float | None:
        if len(steps) == 1:
            return None if (value := steps[0].number(f"{p}%")) is None else value * 1000
        histograms = [step.histogram for step in steps if step.histogram is not None]
        if len(histograms) != len(steps):
            return None
        (value_ns,) = merged(histograms).percentiles_ns([float(p)])
        return None if value_ns is None else value_ns / 1e6

    return get


def _members(line: UsageLine) -> Mapping[str, Consumption]:
    return line.members


def _client(line: UsageLine) -> Mapping[str, Consumption]:
    return {} if line.client is None else {"client": line.client}


def _largest(of: Callable[[Measured], Iterator[float]], scale: float = 1) -> Get:
    def get(steps: Repetition) -> float | None:
        each = [max(of(step), default=None) for step in steps]
        known = [value for value in each if value is not None]
        return max(known) * scale if known and len(known) == len(each) else None

    return get


def _used(of_members: bool, name: str, scale: float = 1) -> Get:
    """What members together, or the client's host, used in all steps."""

    def of_step(step: Measured) -> float | None:
        machine = step.line.machine if step.line is not None else None
        if machine is None:
            return None
        used = machine.used
        consumers = list(used.members.values()) if of_members else [used.client] if used.client is not None else []
        return _sum(getattr(one, name) for one in consumers)

    def get(steps: Repetition) -> float | None:
        found = _sum(of_step(step) for step in steps)
        return None if found is None else found * scale

    return get


def _data_bytes(steps: Repetition) -> float | None:
    known = [step.line for step in steps if step.line is not None]
    if len(known) != len(steps):
        return None
    last = max(known, key=lambda line: line.began_ns)
    sizes = [member.data_bytes for member in last.store.members.values()] if last.store is not None else []
    whole = _sum(sizes)
    return None if whole is None else whole / len(sizes)


def size_text(value: float) -> str:
    """Bytes as dbtester writes them: decimal units, one decimal below 10."""
    units = ["B", "kB", "MB", "GB", "TB", "PB"]
    while len(units) > 1 and value >= 999.5:
        value, units = value / 1000, units[1:]
    return f"{value:.1f} {units[0]}" if value < 9.95 and units[0] != "B" else f"{value:.0f} {units[0]}"


def _count_text(value: float) -> str:
    return f"{value:,.0f}"


def _rate_text(value: float) -> str:
    return f"{int(value):,} req/sec"


def _latency(label: str, source: str, of: Get) -> Measure:
    return Measure(label, "ms", source, of, lambda value: f"{value:.4f} ms")


def _percentile(p: str) -> Measure:
    source = f"column `{p}%`; of several steps from their histograms together"
    return Measure(f"Latency p{p}", "ms", source, _percentile_ms(p), lambda value: f"{value:.6f} ms")


def _bytes(label: str, source: str, of: Get) -> Measure:
    return Measure(label, "bytes", source, of, size_text)


def _percent(label: str, source: str, of: Get) -> Measure:
    return Measure(label, "%", source, of, lambda value: f"{value:.2f} %")


def _count(label: str, source: str, of: Get) -> Measure:
    return Measure(label, "", source, of, _count_text)


_USED = "`machine.used` in scenarios.jsonl"
_LOOKS = "usage.jsonl, once a second"

MEASURES = (
    Measure(
        "TOTAL-SECONDS", "s", "column `Total`, the sum over steps", _column("Total", sum), lambda s: f"{s:.4f} sec"
    ),
    _count("TOTAL-REQUEST-NUMBER", "column `RequestCount`, the sum", _column("RequestCount", sum)),
    Measure(
        "MAX-THROUGHPUT",
        "1/s",
        "`timeline` in scenarios.jsonl: the whole second with the most requests that succeeded; a step that is shorter "
        "counts by its rate",
        _of_seconds(max),
        _rate_text,
    ),
    Measure("AVG-THROUGHPUT", "1/s", "column `Requests/sec`, each step by its time", _mean_throughput, _rate_text),
    Measure("MIN-THROUGHPUT", "1/s", "`timeline`: the whole second with the fewest", _of_seconds(min), _rate_text),
    _latency("FASTEST-LATENCY", "column `Fastest`, the least", _column("Fastest", min, 1000)),
    _latency("AVG-LATENCY", "column `Average`, each step by its answered requests", _mean_latency_ms),
    _latency("SLOWEST-LATENCY", "column `Slowest`, the largest", _column("Slowest", max, 1000)),
    *(_percentile(p) for p in ("10", "25", "50", "75", "90", "95", "99", "99.9")),
    _bytes(
        "SERVER-TOTAL-NETWORK-RX-DATA-SUM",
        f"{_USED}: `received_bytes` of all members together",
        _used(True, "received_bytes"),
    ),
    _bytes("SERVER-TOTAL-NETWORK-TX-DATA-SUM", f"{_USED}: `sent_bytes`, likewise", _used(True, "sent_bytes")),
    _bytes("CLIENT-TOTAL-NETWORK-RX-SUM", f"{_USED}: `received_bytes` of the client", _used(False, "received_bytes")),
    _bytes("CLIENT-TOTAL-NETWORK-TX-SUM", f"{_USED}: `sent_bytes`, likewise", _used(False, "sent_bytes")),
    _percent(
        "SERVER-MAX-CPU-USAGE",
        f"{_LOOKS}: the mean over the members, where it is largest; 100 % is one core",
        _largest(lambda step: step.cores(_members), 100),
    ),
    _bytes(
        "SERVER-MAX-MEMORY-USAGE",
        f"{_LOOKS}: the mean over the members of `rss_bytes`, where it is largest",
        _largest(lambda step: step.used(lambda line: _members(line).values(), "rss_bytes")),
    ),
    _percent(
        "CLIENT-MAX-CPU-USAGE", f"{_LOOKS}: of the client's host", _largest(lambda step: step.cores(_client), 100)
    ),
    _bytes(
        "CLIENT-MAX-MEMORY-USAGE",
        f"{_LOOKS}: `rss_bytes` of the client's host",
        _largest(lambda step: step.used(lambda line: _client(line).values(), "rss_bytes")),
    ),
    _count("CLIENT-ERROR-COUNT", "column `Errors`, the sum", _column("Errors", sum)),
    _count(
        "SERVER-AVG-READS-COMPLETED-DELTA-SUM",
        f"{_USED}: `reads` of all members together, as in dbtester in spite of the label; cgroup v2 alone tells",
        _used(True, "reads"),
    ),
    _count(
        "SERVER-AVG-SECTORS-READS-DELTA-SUM",
        f"{_USED}: `read_bytes` / 512; dbtester looks for a name that it does not have, and always prints 0",
        _used(True, "read_bytes", 1 / SECTOR_BYTES),
    ),
    _count(
        "SERVER-AVG-WRITES-COMPLETED-DELTA-SUM",
        f"{_USED}: `writes`, as for reads",
        _used(True, "writes"),
    ),
    _count(
        "SERVER-AVG-SECTORS-WRITTEN-DELTA-SUM",
        f"{_USED}: `written_bytes` / 512",
        _used(True, "written_bytes", 1 / SECTOR_BYTES),
    ),
    _bytes(
        "SERVER-AVG-DISK-SPACE-USAGE",
        "`store` in scenarios.jsonl: the mean over the members of `data_bytes` at the end of the last step; without "
        "the log, which dbtester counts too",
        _data_bytes,
    ),
)


@dataclass(frozen=True, slots=True)
class System:
    """A column of the table. ``values``: by measure, the median over ``repetitions``; ``errors``: of all, by text."""

    name: str
    clients: tuple[int | None, ...]
    repetitions: int
    values: tuple[float | None, ...]
    errors: Mapping[str, int]


@dataclass(frozen=True)
class AggregatedTable:
    """``notes``: what is in no figure, and why."""

    systems: tuple[System, ...]
    notes: tuple[str, ...]

    def records(self) -> Iterator[dict[str, Any]]:
        """A row for each measure, for programs: numbers in its unit, in the order of the systems."""
        for number, measure in enumerate(MEASURES):
            values = [system.values[number] for system in self.systems]
            yield {"label": measure.label, "unit": measure.unit, "source": measure.source, "values": values}

    def texts(self) -> Iterator[list[str]]:
        """Label and values of each row, as dbtester writes them."""
        for number, measure in enumerate(MEASURES):
            values = (system.values[number] for system in self.systems)
            yield [measure.label, *("-" if value is None else measure.shown(value) for value in values)]


def aggregated(rows: Rows, every: bool = False) -> AggregatedTable:
    """The table of results files, a column for each series.

    ``every``: rows that did not fail count even if they are not certainly valid. Raises ``UsageError`` where no row
    counts.
    """
    notes: list[str] = []
    found = series_of(rows, every)
    used = {number for series in found for step in series.steps for number in step.rows}
    measured = _measured(rows, used, notes)
    again = rows.values("Repetition")
    # Steps of a sweep that were tried again have clusters of their own.
    ways = (lambda number: (rows.clusters[number], again[number]), lambda number: again[number], lambda number: None)
    systems = [system for series in found if (system := _system(series, measured, ways, notes)) is not None]
    return AggregatedTable(tuple(systems), tuple(notes))


def _figure(measure: Measure, steps: Repetition) -> float | None:
    """``None`` for what is no number: a file may hold such that sums of them are none."""
    try:
        value = measure.of(steps)
        return value if value is not None and math.isfinite(value) else None
    except OverflowError:
        return None


def _together(steps: Sequence[Sequence[int]], ways: Sequence[Callable[[int], Hashable]]) -> list[tuple[int, ...]]:
    """Rows of each step that make up one repetition, as many as all steps have: those that agree go first."""
    left, found = [list(numbers) for numbers in steps], []
    for way in ways:
        groups: list[dict[Hashable, list[int]]] = [{} for _ in left]
        for numbers, group in zip(left, groups, strict=True):
            for number in numbers:
                group.setdefault(way(number), []).append(number)
        for at in groups[0]:
            found += list(zip(*(group.get(at, ()) for group in groups), strict=False))
        gone = {number for numbers in found for number in numbers}
        left = [[number for number in numbers if number not in gone] for numbers in left]
    return found


def _system(
    series: Series,
    measured: Mapping[int, Measured],
    ways: Sequence[Callable[[int], Hashable]],
    notes: list[str],
) -> System | None:
    """The column of a series: as many repetitions as all of its steps have."""
    steps = [step for step in series.steps if step.rows]
    for step in series.steps:
        if not step.rows:
            notes.append(f"{series.name}: without {step.scenario}: {'; '.join(step.why)}")
    if not steps:
        return None
    together = _together([step.rows for step in steps], ways)
    count = len(together)
    if more := sum(len(step.rows) - count for step in steps):
        notes.append(f"{series.name}: {more} rows are left out: not every step was measured as often")
    repetitions = [[measured[number] for number in numbers] for numbers in together]
    values = []
    for measure in MEASURES:
        known = [value for steps_ in repetitions if (value := _figure(measure, steps_)) is not None]
        values.append(median(known) if len(known) == count else None)
    errors: dict[str, int] = {}
    for repetition in repetitions:
        for one in repetition:
            told = one.load.get("errors")
            for words, times in told.items() if isinstance(told, dict) else ():
                if isinstance(times, int):
                    errors[str(words)] = errors.get(str(words), 0) + times
    return System(series.name, tuple(step.clients for step in steps), count, tuple(values), errors)


def _at(column: Callable[[str], Sequence[Any]], number: int, name: str) -> Any:
    return column(name)[number]


def _measured(rows: Rows, used: set[int], notes: list[str]) -> dict[int, Measured]:
    @cache
    def column(name: str) -> list[Any]:
        return rows.requests if name == "RequestCount" else rows.values(name)

    found = {number: Measured(partial(_at, column, number)) for number in used}
    missing = 0
    for path, numbers in run_paths(rows).items():
        wanted = [number for number in numbers if number in used]
        if not path.is_dir():
            missing += len(wanted)
            continue
        run = _read(path, read_run, notes) if wanted else None
        if run is None:
            continue
        usage = _read(path, read_usage, notes) or ()
        for number, values in lines_of(rows, run, wanted):
            line = ScenarioLine.model_validate(dict(values))
            text = ((line.load or {}).get("response_time") or {}).get("histogram")
            try:
                histogram = None if text is None else decode(text)
            except ValueError as error:
                histogram = None
                notes.append(f"{path}: the histogram of {line.scenario} is left out: {error}")
            found[number] = Measured(found[number].column, line, histogram, _within(usage, line))
    if missing:
        notes.append(f"{missing} rows have no run directory: what only that tells is not known")
    return found


def _read(path: Path, read: Callable[[Path], T], notes: list[str]) -> T | None:
    """What a run directory holds; ``None`` where it cannot be read, which is noted."""
    try:
        return read(path)
    except UsageError as error:
        notes.append(f"what cannot be read is left out: {error}".replace("\n ", "."))
        return None


def _within(usage: Sequence[UsageLine], line: ScenarioLine) -> Sequence[UsageLine]:
    """The looks from the begin of a load to its end."""
    began_ns = (line.load or {}).get("began_ns")
    if began_ns is None:
        return ()
    begins = [place for place, look in enumerate(usage) if look.edge == "begin" and look.at_ns <= began_ns]
    if not begins:
        return ()
    ends = (place for place in range(begins[-1], len(usage)) if usage[place].edge == "end")
    return usage[begins[-1] : next(ends, len(usage) - 1) + 1]
