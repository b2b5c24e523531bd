"""Configurations that were measured, each with what its repetitions come to.

A cell is all rows that agree in everything configured, and in machine, kernel and commit. Those of them that share a
cluster are one repetition, their median: docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from containernet_env.report.names import FIGURES, Figure, phrase, scaled
from containernet_env.report.rows import Rows
from containernet_env.results.statistics import LEVEL, least_number, median, median_interval

CONFIDENCE, RANGE = f"{100 * LEVEL:g} %", "range"
"""What a bar is: the confidence interval of the median, or from the least to the largest of too few for one."""
INTERVAL = (
    f"are the {100 * LEVEL:g} % confidence interval of the median from {least_number()} repetitions on; of fewer, "
    "which tell none, they reach from the least to the largest"
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
    """``key``: the value of each of the keys that vary, also by name. ``good`` and ``bad``: numbers of its rows.

    ``repetitions``: those that count, by the cluster that they share.
    """

    key: tuple[Any, ...]
    good: tuple[int, ...]
    bad: tuple[int, ...]
    repetitions: tuple[tuple[int, ...], ...]
    label: str
    values: Mapping[str, Any]

    @property
    def rows(self) -> tuple[int, ...]:
        """All its rows, in their order."""
        return tuple(sorted((*self.good, *self.bad)))

    def spread(self, values: Sequence[float | None]) -> Spread | None:
        """Over its repetitions; ``values`` of all rows, by their numbers."""
        return spread_of(values, self.repetitions)


def cells_of(rows: Rows, names: Sequence[str] | None = None) -> list[Cell]:
    """The cells, in the order of their first rows; their keys are of ``names``, by default of ``rows.varied``.

    What follows from these is in the keys, too, and in no label.
    """
    names = (*(rows.varied if names is None else names), *rows.varied_with)
    told = [name for name in names if name not in rows.following and tells(name, rows.values(name))]
    columns = [rows.values(name) for name in names]
    found: dict[tuple[Any, ...], tuple[list[int], list[int]]] = {}
    for number, key in enumerate(zip(*columns, strict=True) if columns else [()] * len(rows)):
        good, bad = found.setdefault(key, ([], []))
        (bad if rows.why[number] else good).append(number)
    places = [names.index(name) for name in told]
    return [
        Cell(
            key,
            tuple(good),
            tuple(bad),
            repetitions_of(rows, good),
            label_of(told, [key[place] for place in places]),
            dict(zip(names, key, strict=True)),
        )
        for key, (good, bad) in found.items()
    ]


_OF_TYPE = {"KeySize", "ValueSize", "Consistency", "ReadSpan", "ReadLimit", "ReadAnswer"}
"""Where these are missing, the type of the request says why: they tell only values of their own apart."""


def tells(name: str, values: Iterable[Any]) -> bool:
    """Whether these values of a column tell cells apart in a label."""
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
    groups: dict[object, list[int]] = {}
    for number in numbers:
        groups.setdefault(rows.clusters[number], []).append(number)
    return tuple(map(tuple, groups.values()))


def shared(cells: Sequence[Cell]) -> str:
    """What is said where rows share clusters; "" where each has its own."""
    rows = sum(len(cell.good) for cell in cells)
    repetitions = sum(len(cell.repetitions) for cell in cells)
    if rows == repetitions:
        return ""
    told = f"{rows:,} rows count as {repetitions:,} repetition{'s' if repetitions > 1 else ''}"
    why = "those of a configuration that share a cluster are one, their median"
    return f"{told}: {why}; `run --fresh` makes a cluster for each"


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
    if len(medians) >= least_number():
        interval = median_interval(medians)
        low, high, bar = interval.low, interval.high, CONFIDENCE
    return Spread(len(medians), sum(map(len, known)), median(medians), low, high, bar)
