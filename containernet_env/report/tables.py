"""Results as tables in the form of others: dbtester's aggregated one, and requests/s by clients.

A series is the same load by more and more clients, on the same testbed: a column of dbtester's table, or a table by
clients. The rows of dbtester's table follow its own programs (stress.go and analyze/command.go of etcd-io/dbtester),
but for what `MEASURES` says of its source. Of several repetitions each figure is worked out by itself, and the median
is shown. In calculations, ``nan`` stands for an unknown value.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import attrgetter
from statistics import fmean, median
from typing import Any

from containernet_env.base.errors import UsageError
from containernet_env.model.scenario import ALL_CLIENTS
from containernet_env.model.usage import Consumption
from containernet_env.report.rows import RATE, VARIANT, Rows, distinguishes, grouped, label_of, scaled, text
from containernet_env.report.runs import histogram_of, lines_of, noted, run_paths
from containernet_env.results.repetitions import LOAD
from containernet_env.results.run_directory import read_run, read_usage
from containernet_env.results.run_files import ScenarioLine, UsageLine
from containernet_env.results.statistics import Histogram, merged

_OF_STEPS = {"ClientCount", "ConnectionCount", "RequestCount", VARIANT}
_SYSTEM = ("Store", "StoreVersion")
_FILE = "a file of a run directory"
_DIGITS = re.compile(r"(\d{1,300})")
# The names of scenarios have these already.
_SAID = {*LOAD} - {*_OF_STEPS, "Scenario"}
SECTOR_BYTES = 512
"""A sector in the kernel's counters of disks, whatever the disk's own are (Documentation/block/stat)."""
LEAST_INTERVAL_NS = 500_000_000
"""Looks at the edges of a load are as close to the others as they happen to be: CPU time over less says nothing."""
_NAN = math.nan
_PERCENTS = ("10", "25", "50", "75", "90", "95", "99", "99.9")
_COLUMNS = (
    *("Total", "Drain_s", RATE, "RequestCount", "Excluded", "Errors", "Fastest", "Average", "Slowest"),
    *(f"{p}%" for p in _PERCENTS),
)


# --- series -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One number of clients. ``rows``: the numbers of the rows that count, a repetition each; ``why`` others do not."""

    clients: int | None
    scenario: str
    rows: tuple[int, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Rows that agree in everything configured but the number of clients and connections; by clients, rising.

    A scenario that differs in something without a column or name has a series for each of its hashes.
    """

    name: str
    steps: tuple[Step, ...]


def series_of(rows: Rows, every: bool = False) -> list[Series]:
    """The series by their names, numbers in these by size; steps without a row that counts have none.

    ``every``: rows that did not fail count even if they are not certainly valid. Raises ``UsageError`` where none does.
    """
    names = [name for name in rows.keys if name not in _OF_STEPS]
    shapes = _shapes(rows)
    keys = list(zip(*(rows.values(name) for name in names), rows.values("ConfigHash"), shapes, strict=True))
    clients, scenarios, hashes = (rows.values(name) for name in ("ClientCount", "Scenario", "ScenarioHash"))
    places = list(zip(keys, clients, scenarios, strict=True))
    known: dict[Any, set[Any]] = {}
    for place, own in zip(places, hashes, strict=True):
        known.setdefault(place, set()).update(() if own is None else (own,))
    groups: dict[Any, dict[Any, list[int]]] = {}
    for number, (key, *at) in enumerate(places):
        # Neither a column nor the name says which data is read.
        other = text(hashes[number]) if len(known[places[number]]) > 1 else ""
        groups.setdefault((*key, other), {}).setdefault(tuple(at), []).append(number)
    why = ["" if every and not reason.startswith("failed") else reason for reason in rows.why]
    if not any(not reason for reason in why):
        hint = "" if every else ": --all takes those that did not fail"
        raise UsageError(f"{', '.join(map(str, rows.files))}: no row is certainly valid, so none counts{hint}")
    shown = [name for name in rows.varied if name in names and name not in (*_SYSTEM, *_SAID)]
    shown = [name for name in shown if distinguishes(name, rows.values(name))]
    found = []
    for key, steps in groups.items():
        *own, other = key
        values = dict(zip((*names, "ConfigHash", VARIANT), own, strict=True))
        shape = f"{values[VARIANT]} ({other})" if other else values[VARIANT]
        system = " ".join(text(values[name]) for name in _SYSTEM if values.get(name) is not None)
        label = label_of(shown, [values[name] for name in shown])
        ordered = sorted(steps.items(), key=lambda item: (-1.0 if item[0][0] is None else item[0][0], str(item[0][1])))
        name = ", ".join(filter(None, (system, label, shape)))
        found.append(Series(name, tuple(_step(at, numbers, why) for at, numbers in ordered)))
    same = Counter(series.name for series in found)
    for index, (series, key) in enumerate(zip(found, groups, strict=True)):
        if same[series.name] > 1:
            # Nothing but the hash of the topology distinguishes them.
            found[index] = replace(series, name=f"{series.name} ({text(key[len(names)])})")
    return sorted(found, key=lambda one: [int(part) if part.isdecimal() else part for part in _DIGITS.split(one.name)])


def _step(at: tuple[Any, Any], numbers: Sequence[int], why: Sequence[str]) -> Step:
    clients, scenario = at
    count = None if clients is None else int(clients)
    name = f"{text(clients)} clients" if scenario is None else str(scenario)
    good = tuple(number for number in numbers if not why[number])
    return Step(count, name, good, tuple(dict.fromkeys(why[number] for number in numbers if why[number])))


def _shapes(rows: Rows) -> Iterator[str]:
    """For each row the scenario's name without its clients: ``write-leader-1000xN-8B-64B``."""
    columns = (rows.values(name) for name in ("Scenario", "ClientCount", "ConnectionCount", "TestType"))
    for scenario, clients, conns, kind, requests in zip(*columns, rows.requests, strict=True):
        if scenario is None:
            yield f"{text(kind)}, {text(requests)} requests"
            continue
        pair = re.escape(f"{text(clients)}x{text(conns)}")
        yield re.sub(rf"{pair}(?=-|$)", "N", str(scenario), count=1)


# --- requests/s by clients --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientsTable:
    """A series: for each number of clients the median, least and largest requests/s over ``rows`` repetitions.

    ``why``: for each of these why its other rows do not count.
    """

    name: str
    steps: tuple[dict[str, Any], ...]
    why: tuple[str, ...]


def clients_tables(rows: Rows, every: bool = False) -> Iterator[ClientsTable]:
    """A table for each series. Raises ``UsageError`` where no row counts."""
    rates = rows.values(RATE)
    for series in series_of(rows, every):
        steps = []
        for step in series.steps:
            known = [value for number in step.rows if (value := scaled(rates[number], 1)) is not None]
            figures = (median(known), min(known), max(known)) if known else (None, None, None)
            names = ("clients", "requests_per_s", "least_per_s", "largest_per_s", "rows")
            steps.append(dict(zip(names, (step.clients, *figures, len(known)), strict=True)))
        yield ClientsTable(series.name, tuple(steps), tuple("; ".join(step.why) for step in series.steps))


# --- dbtester ---------------------------------------------------------------------------------------------------------


Consumers = Callable[[Any], Mapping[str, Consumption]]
"""Members or the client, of a look at what all have used."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One row: its ``columns``, and the data of its run directory: ``None`` and empty where there is none.

    ``usage``: what the consumers have used since they exist, from the start of the load to its end.
    """

    columns: Mapping[str, Any]
    line: ScenarioLine | None = None
    histogram: Histogram | None = None
    usage: Sequence[UsageLine] = ()

    def number(self, column: str, missing: float = _NAN) -> float:
        value = scaled(self.columns[column], 1)
        return missing if value is None else value

    @property
    def load(self) -> Mapping[str, Any]:
        """The benchmark server's result; empty where it is not known."""
        return (self.line.load if self.line is not None else None) or {}

    def whole_seconds(self) -> list[float]:
        """Requests/s that succeeded in each whole second of the load; in all of it, where it was shorter than one.

        A load with a duration is over when that is: answers that come later are in no second. Empty where unknown.
        """
        steps, step_s, total_s = self.load.get("timeline"), self.load.get("timeline_interval_s"), self.number("Total")
        if not steps or not step_s or not total_s > 0:
            return []
        size = max(1, round(1 / step_s))
        whole = int((total_s - self.number("Drain_s", 0) + 1e-6) / step_s)
        counts = [step["ok"] for step in steps[:whole]]
        ends = range(size, len(counts) + 1, size)
        if not ends:
            return [sum(step["ok"] for step in steps) / total_s]
        return [sum(counts[end - size : end]) / (size * step_s) for end in ends]

    def used(self, consumers: Consumers, name: str) -> list[float | None]:
        machine = self.line.machine if self.line is not None else None
        return [] if machine is None else [getattr(one, name) for one in consumers(machine.used).values()]

    def memory(self, consumers: Consumers) -> Iterator[float]:
        """The mean over the consumers of the bytes that they held at each look."""
        for look in self.usage:
            if known := [one.rss_bytes for one in consumers(look).values() if one.rss_bytes is not None]:
                yield fmean(known)

    def cores(self, consumers: Consumers) -> Iterator[float]:
        """The mean over the consumers of the cores that they used between two looks."""
        looks = list(self.usage[:1])
        for look in self.usage[1:]:
            if look.at_ns - looks[-1].at_ns >= LEAST_INTERVAL_NS:
                looks.append(look)
        if len(looks) == 1 and len(self.usage) > 1:
            looks.append(self.usage[-1])
        dilation = self.line.dilation if self.line is not None else 1
        for before, after in pairwise(looks):
            took_ns, old, new = (after.at_ns - before.at_ns) / dilation, consumers(before), consumers(after)
            shares = [
                (now - then) / took_ns
                for name in old.keys() & new.keys()
                if (then := old[name].cpu_ns) is not None and (now := new[name].cpu_ns) is not None
            ]
            if shares and took_ns > 0:
                yield fmean(shares)


Repetition = Sequence[Measured]
"""The steps of a series, each measured once, by clients."""
Get = Callable[[Repetition], float]


@dataclass(frozen=True, slots=True)
class Measure:
    """A row of the table: its label and unit, where it comes from, and what works it out."""

    label: str
    unit: str
    source: str
    of: Get

    def shown(self, value: float) -> str:
        if self.unit == "bytes":
            return size_text(value)
        forms = {"s": "{:.4f} sec", "1/s": "{:,d} req/sec", "ms": "{:.4f} ms", "%": "{:.2f} %", "": "{:,.0f}"}
        form = "{:.6f} ms" if self.label.startswith("Latency p") else forms[self.unit]
        return form.format(int(value) if self.unit == "1/s" else value)


def size_text(value: float) -> str:
    """Bytes as dbtester writes them: decimal units, one decimal below 10."""
    units = ["B", "kB", "MB", "GB", "TB", "PB"]
    while len(units) > 1 and value >= 999.5:
        value, units = value / 1000, units[1:]
    return f"{value:.1f} {units[0]}" if value < 9.95 and units[0] != "B" else f"{value:.0f} {units[0]}"


def _over(over: Callable[[list[float]], float], values: Iterable[float | None]) -> float:
    """Not known where there are no values, or one is not known."""
    found = [_NAN if value is None else value for value in values]
    return over(found) if found and not any(map(math.isnan, found)) else _NAN


def _each(
    over: Callable[[list[float]], float], of: Callable[[Measured], Iterable[float | None]], scale: float = 1
) -> Get:
    """Over all values of all steps; not known where a step has none."""
    return lambda steps: _over(over, chain.from_iterable([*of(step)] or [None] for step in steps)) * scale


def _column(name: str, over: Callable[[list[float]], float], scale: float = 1) -> Get:
    return _each(over, lambda step: [step.number(name)], scale)


def _mean_throughput(steps: Repetition) -> float:
    # The rate of a load with a duration is that of the duration: what follows is left out of its time.
    times = [step.number("Total") - step.number("Drain_s", 0) for step in steps]
    whole = sum(times)
    done = sum(time * step.number(RATE) for time, step in zip(times, steps, strict=True))
    return done / whole if whole > 0 else _NAN


def _mean_latency_ms(steps: Repetition) -> float:
    if len(steps) == 1:
        return steps[0].number("Average") * 1000
    counts = [step.number("RequestCount") - step.number("Excluded") for step in steps]
    whole = sum(count * step.number("Average") for count, step in zip(counts, steps, strict=True))
    return whole / sum(counts) * 1000 if sum(counts) else _NAN


def _percentile(p: str) -> Measure:
    def get(steps: Repetition) -> float:
        if len(steps) == 1:
            return steps[0].number(f"{p}%") * 1000
        histograms = [step.histogram for step in steps if step.histogram is not None]
        if len(histograms) != len(steps):
            return _NAN
        (value_ns,) = merged(histograms).percentiles_ns([float(p)])
        return _NAN if value_ns is None else value_ns / 1e6

    return Measure(f"Latency p{p}", "ms", f"column `{p}%`; of several steps from their histograms together", get)


def _client(of: Any) -> Mapping[str, Consumption]:
    return {} if of.client is None else {"client": of.client}


def _used(consumers: Consumers, name: str, scale: float = 1) -> Get:
    return _each(sum, lambda step: step.used(consumers, name), scale)


def _data_bytes(steps: Repetition) -> float:
    known = [step.line for step in steps if step.line is not None]
    if len(known) != len(steps):
        return _NAN
    last = max(known, key=lambda line: line.began_ns)
    return _over(fmean, [member.data_bytes for member in last.store.members.values()] if last.store is not None else [])


_members: Consumers = attrgetter("members")
_USED = "`machine.used` in scenarios.jsonl"
_LOOKS = "usage.jsonl, once a second"
_MOST = (
    "`timeline` in scenarios.jsonl: the whole second with the most requests that succeeded; a step that is shorter "
    "counts by its rate"
)
_READS = f"{_USED}: `reads` of all members together, as in dbtester in spite of the label; cgroup v2 alone reports them"
_SECTORS = f"{_USED}: `read_bytes` / 512; dbtester looks for a name that it does not have, and always prints 0"
_DISK = (
    "`store` in scenarios.jsonl: the mean over the members of `data_bytes` at the end of the last step; without "
    "the log, which dbtester counts too"
)


def _peaks(whose: str, consumers: Consumers, cpu: str, memory: str) -> Iterator[Measure]:
    cores = _each(max, lambda step: step.cores(consumers), 100)
    yield Measure(f"{whose}-MAX-CPU-USAGE", "%", f"{_LOOKS}: {cpu}", cores)
    levels = _each(max, lambda step: step.memory(consumers))
    yield Measure(f"{whose}-MAX-MEMORY-USAGE", "bytes", f"{_LOOKS}: {memory}", levels)


MEASURES = (
    Measure("TOTAL-SECONDS", "s", "column `Total`, the sum over steps", _column("Total", sum)),
    Measure("TOTAL-REQUEST-NUMBER", "", "column `RequestCount`, the sum", _column("RequestCount", sum)),
    Measure("MAX-THROUGHPUT", "1/s", _MOST, _each(max, Measured.whole_seconds)),
    Measure("AVG-THROUGHPUT", "1/s", "column `Requests/sec`, each step by its time", _mean_throughput),
    Measure(
        "MIN-THROUGHPUT", "1/s", "`timeline`: the whole second with the fewest", _each(min, Measured.whole_seconds)
    ),
    Measure("FASTEST-LATENCY", "ms", "column `Fastest`, the least", _column("Fastest", min, 1000)),
    Measure("AVG-LATENCY", "ms", "column `Average`, each step by its answered requests", _mean_latency_ms),
    Measure("SLOWEST-LATENCY", "ms", "column `Slowest`, the largest", _column("Slowest", max, 1000)),
    *map(_percentile, _PERCENTS),
    *(
        Measure(f"{label}-SUM", "bytes", f"{_USED}: {source}", _used(consumers, name))
        for label, source, consumers, name in (
            ("SERVER-TOTAL-NETWORK-RX-DATA", "`received_bytes` of all members together", _members, "received_bytes"),
            ("SERVER-TOTAL-NETWORK-TX-DATA", "`sent_bytes`, likewise", _members, "sent_bytes"),
            ("CLIENT-TOTAL-NETWORK-RX", "`received_bytes` of the client", _client, "received_bytes"),
            ("CLIENT-TOTAL-NETWORK-TX", "`sent_bytes`, likewise", _client, "sent_bytes"),
        )
    ),
    *_peaks(
        "SERVER",
        _members,
        "the mean over the members, where it is largest; 100 % is one core",
        "the mean over the members of `rss_bytes`, where it is largest",
    ),
    *_peaks("CLIENT", _client, "of the client's host", "`rss_bytes` of the client's host"),
    Measure("CLIENT-ERROR-COUNT", "", "column `Errors`, the sum", _column("Errors", sum)),
    *(
        Measure(f"SERVER-AVG-{label}-DELTA-SUM", "", source, _used(_members, name, scale))
        for label, source, name, scale in (
            ("READS-COMPLETED", _READS, "reads", 1),
            ("SECTORS-READS", _SECTORS, "read_bytes", 1 / SECTOR_BYTES),
            ("WRITES-COMPLETED", f"{_USED}: `writes`, as for reads", "writes", 1),
            ("SECTORS-WRITTEN", f"{_USED}: `written_bytes` / 512", "written_bytes", 1 / SECTOR_BYTES),
        )
    ),
    Measure("SERVER-AVG-DISK-SPACE-USAGE", "bytes", _DISK, _data_bytes),
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
    """``notes``: rows and files that are in no figure, and why."""

    systems: tuple[System, ...]
    notes: tuple[str, ...]

    def records(self) -> Iterator[dict[str, Any]]:
        """A row for each measure, for programs: numbers in its unit, in the order of the systems."""
        for number, measure in enumerate(MEASURES):
            values = [system.values[number] for system in self.systems]
            yield {"label": measure.label, "unit": measure.unit, "source": measure.source, "values": values}

    def texts(self) -> Iterator[list[str]]:
        """Label and values of each row, as dbtester writes them."""
        for measure, record in zip(MEASURES, self.records(), strict=True):
            yield [measure.label, *("-" if value is None else measure.shown(value) for value in record["values"])]


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
    systems = (_system(series, measured, ways, notes) for series in found)
    return AggregatedTable(tuple(filter(None, systems)), tuple(notes))


def _figure(measure: Measure, steps: Repetition) -> float | None:
    """``None`` where it is unknown, or a sum of huge numbers in a file is none."""
    try:
        value = measure.of(steps)
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def _together(steps: Sequence[Sequence[int]], ways: Sequence[Callable[[int], Hashable]]) -> list[tuple[int, ...]]:
    """Rows of each step that make up one repetition, as many as all steps have: those that agree go first."""
    left, found = [list(numbers) for numbers in steps], []
    for way in ways:
        groups = [grouped(numbers, way) for numbers in left]
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
        values.append(float(median(known)) if len(known) == count else None)
    errors: Counter[str] = Counter()
    for one in chain.from_iterable(repetitions):
        of_one = one.load.get("errors")
        if isinstance(of_one, dict):
            errors.update({str(words): times for words, times in of_one.items() if isinstance(times, int)})
    return System(series.name, tuple(step.clients for step in steps), count, tuple(values), errors)


def _measured(rows: Rows, used: set[int], notes: list[str]) -> dict[int, Measured]:
    columns = {name: rows.requests if name == "RequestCount" else rows.values(name) for name in _COLUMNS}
    found = {number: Measured({name: columns[name][number] for name in _COLUMNS}) for number in used}
    missing = 0
    for path, numbers in run_paths(rows).items():
        wanted = [number for number in numbers if number in used]
        if not path.is_dir():
            missing += len(wanted)
            continue
        run = noted(read_run, path, notes, _FILE) if wanted else None
        if run is None:
            continue
        usage = noted(read_usage, path, notes, _FILE) or ()
        for number, line in lines_of(rows, run, wanted):
            histogram = histogram_of(path, line, notes)
            found[number] = Measured(found[number].columns, line, histogram, within(usage, line))
    if missing:
        notes.append(f"{missing} rows have no run directory: the figures that need one are unknown")
    return found


def within(usage: Sequence[UsageLine], line: ScenarioLine) -> Sequence[UsageLine]:
    """The looks from the begin of a load to its end; of one of several clients with its own use as the client's."""
    began_ns = (line.load or {}).get("began_ns")
    if began_ns is None:
        return ()
    begins = [place for place, look in enumerate(usage) if look.edge == "begin" and look.at_ns <= began_ns]
    if not begins:
        return ()
    ends = (place for place in range(begins[-1], len(usage)) if usage[place].edge == "end")
    looks = usage[begins[-1] : next(ends, len(usage) - 1) + 1]
    # A look without clients is of a testbed with one: it is the client.
    if line.client in (None, ALL_CLIENTS) or not any(look.clients for look in looks):
        return looks
    return [look.model_copy(update={"client": look.clients.get(line.client)}) for look in looks]
