"""The rows of results files, which of them count, and the cells that they are repetitions of.

A row counts where it did not fail and is certainly valid; the seed's form does not say, and all its rows count. No
other row is in a median or an interval. A cell is all rows that agree in everything configured, and in machine, kernel
and commit. Those of them that share a cluster are one repetition, their median: docs/statistics.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from containernet_env.base.errors import UsageError
from containernet_env.base.units import parse_duration, parse_size
from containernet_env.model.findings import reasons_text
from containernet_env.model.names import AXES, find
from containernet_env.model.scenario import ALL_CLIENTS
from containernet_env.results.columns import BY_NAME, SEED_COLUMNS
from containernet_env.results.csv_file import load_all
from containernet_env.results.repetitions import (
    HASHES,
    MEASURED_WITH,
    clusters_of,
    following,
    kept_apart,
    stamped,
    unused,
)
from containernet_env.results.statistics import LEAST, LEVEL, median_interval
from containernet_env.runs.sweep.ledger import journal_of, read_journal

if TYPE_CHECKING:
    import pandas

RATE = "Requests/sec"
FILE = "file"
"""The column that says which file a row is of, where there are several."""
VARIANT = "variant"
"""The column that distinguishes rows whose other axes are equal, by name and hash of scenario or topology file."""
SENT = "sent"
"""The column `RequestCount` as the file has it, where some of its values were not configured: keys lack these."""
DILATION = "Dilation"
"""The column that `--dilation auto` chooses by the load."""
_INFINITE = (float("inf"), float("-inf"))
Settings = dict[tuple[str, str], dict[str, str]]
"""The values of a sweep's axes by the hashes of topology and scenario."""
_LARGEST, _LONGEST = 1e300, 1000
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,15})?")
_QUANTITY = re.compile(r"(?:uniform |normal )?\d")


# --- names ------------------------------------------------------------------------------------------------------------


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


_AXES = {**AXES, VARIANT: ("scenario", ""), FILE: ("file", "")}
_WORDS = {
    ("Consistency", "l"): "linearizable",
    ("Consistency", "s"): "serializable",
    ("Consistency", "default"): "default consistency",
}
_ONE = re.compile(r"^1 (clients|connections|members|cores|requests)\b")


def is_setting(column: str) -> bool:
    """Whether it is an axis of a sweep that the CSV has no column for."""
    return column not in BY_NAME and column not in (FILE, VARIANT, SENT)


def label(column: str) -> str:
    """What an axis is called in a picture, with its unit."""
    if known := _AXES.get(column, ("", ""))[0]:
        return known
    unit = BY_NAME[column].unit if column in BY_NAME else ""
    return f"{column} ({unit})" if unit and not column.endswith(f"_{unit}") else column


def scaled(value: float | None, scale: float) -> float | None:
    """A measured value in another unit; ``None`` for one so large that sums of it are no numbers."""
    found = None if value is None else value * scale
    return found if found is not None and abs(found) < _LARGEST else None


def text(value: object, form: str = ".6g") -> str:
    """A value as people write it: 3 and not 3.0; a missing one is a dash. ``form`` is of other fractions."""
    if value is None or value != value:
        return "-"
    if isinstance(value, float):
        return f"{int(value)}" if value.is_integer() and abs(value) < 1e15 else format(value, form)
    return str(value)


def phrase(column: str, value: object) -> str:
    """A value of an axis so that it can stand without its axis: "3 ms", "100 clients", "linearizable"."""
    known = _WORDS.get((column, str(value)))
    if known is not None or value is None or value != value:
        return known or ""
    shown = text(value)
    if column in ("Bandwidth_mbps", "Cpus", "Memory_bytes") and shown == "unlimited":
        return f"unlimited {_AXES[column][0].partition(' (')[0]}"
    form = _AXES.get(column, ("", ""))[1]
    if not form:
        alone = not is_setting(column) if column not in BY_NAME else not BY_NAME[column].number
        return shown if alone else f"{column} {shown}"
    return _ONE.sub(lambda match: match[0][:-1], form.format(shown))


def number(value: object) -> float | None:
    """The number of a value of an axis: 3.0, "3", "64k" (bytes) or "3ms" (ms); ``None`` for words ("unlimited")."""
    words = str(value)
    for read, scale in ((float, 1.0), (parse_duration, 1e-6), (parse_size, 1.0)):
        with suppress(ValueError):
            found = read(words) * scale
            return found if found == found and abs(found) != float("inf") else None
    return None


def level(value: object) -> float | None:
    """The number that a value is, or the mean of those in "1;25;1" or "uniform 1"; ``None`` for other words."""
    found = number(value)
    if found is not None or not _QUANTITY.match(str(value)):
        return found
    parts = [float(part) for part in _NUMBER.findall(str(value)[:_LONGEST])]
    return sum(parts) / len(parts)


def figure_of(column: str) -> Figure:
    """How a measured column is drawn: latencies in ms."""
    if column == RATE:
        return Figure(RATE, "requests/s", "requests/s", "", 1)
    if re.fullmatch(r"[\d.]+%", column):
        return Figure(column, f"p{column[:-1]}", f"latency, p{column[:-1]}", "ms", 1000)
    unit = BY_NAME[column].unit
    name = column.removesuffix(f"_{unit}") if unit else column
    return Figure(column, name, name, "ms", 1000) if unit == "s" else Figure(column, name, name, unit, 1)


FIGURES = tuple(map(figure_of, (RATE, "50%", "95%", "99%", "99.9%")))
"""What the page shows of every configuration."""


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """``frame``: every row, with `FILE` and `VARIANT`. ``why``: for each row why it does not count, "" where it does.

    ``keys``: the columns in which rows have to agree to be repetitions. ``following``: columns that follow from these,
    and distinguish no further rows. ``notes``: what was left out while reading.

    Axes of sweeps that the CSV has no column for, such as ``queue``, are columns of texts by their names, read from the
    journal.
    """

    frame: pandas.DataFrame
    why: tuple[str, ...]
    keys: tuple[str, ...]
    following: tuple[str, ...]
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    seed_only: bool

    def __len__(self) -> int:
        return len(self.why)

    def values(self, column: str) -> list[Any]:
        """What the rows have in a column, ``None`` where it is missing, and for a number that is none."""
        if column not in self.frame.columns:
            return [None] * len(self)
        return [None if value != value or value in _INFINITE else value for value in self.frame[column].tolist()]

    @property
    def requests(self) -> list[Any]:
        """How many requests each row is of, configured or not."""
        return self.values(SENT if SENT in self.frame.columns else "RequestCount")

    @cached_property
    def clusters(self) -> list[object]:
        return clusters_of(self.frame)

    @property
    def varied(self) -> tuple[str, ...]:
        return self._varied(self.keys)

    @property
    def varied_with(self) -> tuple[str, ...]:
        return self._varied(self.following)

    def _varied(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if self.frame[name].nunique(dropna=False) > 1)

    @property
    def constant(self) -> dict[str, Any]:
        """Every configured column that has one value in all rows, with it."""
        roles = ("configured", "derived")
        names = [name for name in self.frame.columns if name in BY_NAME and BY_NAME[name].role in roles]
        if not len(self):
            return {}
        single = [name for name in names if self.frame[name].nunique(dropna=False) == 1]
        return {name: value for name in single if (value := self.values(name)[0]) is not None}


def read_rows(
    files: Sequence[Path], note: Callable[[str], object] = lambda text: None, client: str = ALL_CLIENTS
) -> Rows:
    """The rows of results files of either form; ``client`` as of `results.csv_file.load`.

    The result has notes on rows that are left out, and ``note`` gets each: rows that were torn, a file that is named
    twice, and rows that an earlier file has, which would count twice. Raises ``UsageError`` for a file
    that cannot be read or has another header.
    """
    import pandas

    notes: list[str] = []

    def left_out(words: str) -> None:
        notes.append(words)
        note(words)

    paths: list[Path] = []
    for path in files:
        if path.resolve() in {known.resolve() for known in paths}:
            left_out(f"{path} is named twice, and read once")
        else:
            paths.append(path)
    tables = zip(_names(paths), load_all(paths, left_out, client), strict=True)
    frames = [table.assign(**{FILE: name}) for name, table in tables]
    columns = max((list(frame.columns) for frame in frames), key=len)
    frame = pandas.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
    frame = frame.reindex(columns=columns)
    seed_only = tuple(name for name in columns if name != FILE) == SEED_COLUMNS
    settings = {hashes: values for path in paths for hashes, values in _settings(path, left_out).items()}
    frame, keys = _identified(frame, settings)
    follow = (*following(frame), *(name for name in (DILATION,) if name in columns and name not in keys))
    return Rows(frame, tuple(_why(frame)), keys, follow, tuple(paths), tuple(notes), seed_only)


def _names(paths: Sequence[Path]) -> list[str]:
    """Short names of the files, no two alike."""
    names = [path.name for path in paths]
    return [name if names.count(name) == 1 else str(path) for name, path in zip(names, paths, strict=True)]


def _settings(path: Path, note: Callable[[str], object]) -> Settings:
    try:
        kept = read_journal(journal_of(path))
        return {hashes: kept.settings[cell] for hashes, cell in kept.hashes.items()}
    except UsageError as error:
        note(f"settings that no column has are left out: {error}".replace("\n ", "."))
        return {}


def _identified(frame: pandas.DataFrame, settings: Settings) -> tuple[pandas.DataFrame, tuple[str, ...]]:
    """The table with `VARIANT`, and the columns whose values make rows different experiments."""
    names = list(frame.columns)
    # What was measured with comes last. Hashes and names are in `VARIANT`, where nothing else distinguishes rows.
    last = {name: place for place, name in enumerate((*MEASURED_WITH, "RequestCount"))}
    apart = (name for name in kept_apart(frame.drop(columns=FILE)) if name not in (*HASHES, "Scenario"))
    keys = sorted(apart, key=lambda name: last.get(name, -1))
    frame = stamped(frame)
    if "Scenario" not in names:
        return frame.assign(**{VARIANT: ""}), tuple(keys)
    counted = _counted(frame)
    if any(counted):
        keys.append("RequestCount")
        sent = frame["RequestCount"]
        frame = frame.assign(**{"RequestCount": sent.where(counted), SENT: sent})
    found = [settings.get(hashes, {}) for hashes in zip(*(frame[name] for name in HASHES), strict=True)]
    more = [name for name in dict.fromkeys(name for one in found for name in one) if find(name, names) is None]
    frame = frame.assign(**{name: [one.get(name) for one in found] for name in more})
    keys += [name for name in more if frame[name].nunique(dropna=False) > 1]
    if DILATION in keys:
        # It follows from the others where no cells differ in it alone.
        others = [name for name in keys if name != DILATION] + list(HASHES)
        if not (frame.groupby(others, dropna=False, sort=False)[DILATION].nunique() > 1).any():
            keys.remove(DILATION)
    return frame.assign(**{VARIANT: _variants(frame, keys)}), (*keys, VARIANT)


def _counted(frame: pandas.DataFrame) -> list[bool]:
    """For each row whether its number of requests was configured: its scenario is named after it, or it has no name.

    That of other rows may be what a load of some duration came to, which differs between repetitions.
    """
    names = ("Scenario", "ScenarioHash", "RequestCount", "ClientCount", "ConnectionCount")
    return [
        "x".join(map(text, size)) in scenario.split("-")
        if isinstance(scenario, str)
        else not isinstance(configured, str)
        for scenario, configured, *size in zip(*(frame[name] for name in names), strict=True)
    ]


def _variants(frame: pandas.DataFrame, keys: Sequence[str]) -> list[str]:
    """For each row the name and hash that distinguish it from rows that agree in ``keys``; "" where none do."""
    groups = frame.groupby(list(keys), dropna=False, sort=False)
    parts = []
    for name in ("Config", "Scenario"):
        hashes = frame[f"{name}Hash"]
        differs = groups[hashes.name].transform("nunique") > 1
        columns = zip(differs, frame[name], hashes, strict=True)
        parts.append([f"{named} ({own})" if other else "" for other, named, own in columns])
    return [", ".join(filter(None, both)) for both in zip(*parts, strict=True)]


def _why(frame: pandas.DataFrame) -> Iterator[str]:
    names = ("Error", "Reasons", "Advice")
    columns = (frame[name] if name in frame.columns else [None] * len(frame) for name in names)
    for state, error, reasons, advice in zip(unused(frame), *columns, strict=True):
        if state in ("", "failed"):
            yield state and f"failed: {error}"
            continue
        parts = [reasons_text(reasons)] if isinstance(reasons, str) else []
        parts += [advice] if isinstance(advice, str) else []
        why = f": {'; '.join(parts)}" if parts else ""
        yield f"{state if state == 'not valid' else 'not known to be valid'}{why}"


# --- cells ------------------------------------------------------------------------------------------------------------

CONFIDENCE, RANGE = f"{100 * LEVEL:g} %", "range"
"""What a bar is: the confidence interval of the median, or from the least to the largest of too few for one."""
INTERVAL = (
    f"are the {100 * LEVEL:g} % confidence interval of the median from {LEAST} repetitions on; of fewer, "
    "which have none, they reach from the least to the largest"
)
"""What bars are, in words."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Of ``n`` repetitions that count, in the figure's unit; ``low`` and ``high`` are ``None`` for too few.

    ``rows``: how many rows these repetitions have. ``bar``: `CONFIDENCE` or `RANGE`, ``None`` without one.
    """

    n: int
    rows: int
    median: float
    low: float | None
    high: float | None
    bar: str | None


@dataclass(frozen=True, slots=True)
class Cell:
    """``values``: that of each of the keys that vary. ``good`` and ``bad``: numbers of its rows.

    ``repetitions``: those that count, by the cluster that they share.
    """

    values: Mapping[str, Any]
    good: tuple[int, ...]
    bad: tuple[int, ...]
    repetitions: tuple[tuple[int, ...], ...]
    label: str


def cells_of(rows: Rows, names: Sequence[str] | None = None) -> list[Cell]:
    """The cells, in the order of their first rows; their keys are of ``names``, by default of ``rows.varied``.

    What follows from these is in the keys, too, and in no label.
    """
    names = (*(rows.varied if names is None else names), *rows.varied_with)
    shown = [name for name in names if name not in rows.following and distinguishes(name, rows.values(name))]
    columns = [rows.values(name) for name in names]
    cells = []
    for key, numbers in grouped(range(len(rows)), lambda number: tuple(column[number] for column in columns)).items():
        good, bad = ([number for number in numbers if bool(rows.why[number]) is is_bad] for is_bad in (False, True))
        values = dict(zip(names, key, strict=True))
        words = label_of(shown, [values[name] for name in shown])
        cells.append(Cell(values, tuple(good), tuple(bad), repetitions_of(rows, good), words))
    return cells


def grouped(numbers: Iterable[int], key: Callable[[int], Any]) -> dict[Any, list[int]]:
    """Numbers of rows or cells by their keys, all in the order in which they come."""
    groups: dict[Any, list[int]] = {}
    for number in numbers:
        groups.setdefault(key(number), []).append(number)
    return groups


_OF_TYPE = {"KeySize", "ValueSize", "Consistency", "ReadSpan", "ReadLimit", "ReadAnswer"}
"""Where these are missing, the type of the request says why: they distinguish only their own values."""


def distinguishes(name: str, values: Iterable[Any]) -> bool:
    """Whether these values of a column distinguish cells in a label."""
    known = set(values)
    return len(known - {None} if name in _OF_TYPE else known) > 1


def label_of(names: Sequence[str], key: Sequence[Any]) -> str:
    """A cell, or a line of cells, in a few words: "write, leader, 3 ms"."""
    return ", ".join(filter(None, (phrase(name, value) for name, value in zip(names, key, strict=True))))


def figures_of(rows: Rows, figures: Sequence[Figure] = FIGURES) -> dict[str, list[float | None]]:
    """What each row has of each figure, by its column, in its unit."""
    return {figure.column: [scaled(value, figure.scale) for value in rows.values(figure.column)] for figure in figures}


def repetitions_of(rows: Rows, numbers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Some rows, by their numbers, those together that share a cluster."""
    return tuple(map(tuple, grouped(numbers, lambda number: rows.clusters[number]).values()))


def shared(cells: Sequence[Cell]) -> str:
    """A note where rows share clusters; "" where each has its own."""
    rows = sum(len(cell.good) for cell in cells)
    repetitions = sum(len(cell.repetitions) for cell in cells)
    if rows == repetitions:
        return ""
    words = f"{rows:,} rows count as {repetitions:,} repetition{'s' if repetitions > 1 else ''}"
    why = "those of a configuration that share a cluster are one, their median"
    return f"{words}: {why}; `run --fresh` makes a cluster for each"


def spread_of(
    values: Sequence[float | None] | Mapping[int, float | None], repetitions: Sequence[Sequence[int]]
) -> Spread | None:
    """The median of what repetitions measured, and the ends of its bar (`INTERVAL`); ``None`` where none did.

    ``repetitions``: for each of them the numbers of its rows, of which ``values`` has a value each.
    """
    known = [[value for number in numbers if (value := values[number]) is not None] for numbers in repetitions]
    medians = sorted(median(own) for own in known if own)
    if not medians:
        return None
    low, high, bar = (medians[0], medians[-1], RANGE) if len(medians) > 1 else (None, None, None)
    if len(medians) >= LEAST:
        interval = median_interval(medians)
        low, high, bar = interval.low, interval.high, CONFIDENCE
    return Spread(len(medians), sum(map(len, known)), median(medians), low, high, bar)
