"""The axes that a set of cells has: what varies, and which cells lie on one line or in one grid along it.

On a line, nothing varies but the axis, and columns that were configured together with it: a sweep that opens a
connection for every ten clients has one axis, not two. Settings that follow from the network are no axis and split no
line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from containernet_env.model.names import QUANTITIES
from containernet_env.report.rows import (
    DILATION,
    Cell,
    distinguishes,
    grouped,
    is_setting,
    label,
    label_of,
    level,
    number,
    phrase,
    text,
)
from containernet_env.results.columns import BY_NAME
from containernet_env.results.repetitions import TIMING

_ORDER = {name: number for number, name in enumerate(QUANTITIES)}
_FOLLOWING = ("RequestCount", "ConnectionCount", "KeySize", "ClientCount")
"""What may be configured together with an axis, the likeliest first; any other numeric axis may be, too."""
_RATIOS = {"ClientCount": ("ConnectionCount", "RequestCount"), "OfferedRate_per_s": ("RequestCount",)}
"""By axis: columns that are often a ratio of it, and may be equal at several values (a tenth of 5 clients is 1)."""
_IN_WORDS = {name for name in QUANTITIES if not BY_NAME[name].number}
"""Axes whose values may have words beside their numbers, ``uniform 1``, or a number for each member, ``1;25;1``."""
_MAY_FOLLOW = (*TIMING, DILATION)
"""What is configured for some cells, and follows from other settings for others."""
_MOST_LINES, _MOST_PANELS = 60, 24


XScale = Literal["linear", "log"]
"""How the numbers of an axis are spread; labels name the latter."""


@dataclass(frozen=True, slots=True)
class Axis:
    """``columns``: the axis, and those that its ticks name with it. ``values`` in order, ``ticks`` as text.

    ``numbers`` are the values where all of them are numbers, else ``None``.
    """

    columns: tuple[str, ...]
    title: str
    values: tuple[tuple[Any, ...], ...]
    ticks: tuple[str, ...]
    numbers: tuple[float, ...] | None

    @property
    def positive(self) -> bool:
        """Whether all are numbers above 0, so that a logarithmic scale has them."""
        return self.numbers is not None and self.numbers[0] > 0

    @property
    def exact_ticks(self) -> bool:
        """Whether the axis needs a tick at each value: there are few, or these have units, ``64k``."""
        numbers = self.numbers or ()
        return len(numbers) <= 12 or any(text(at) != tick for at, tick in zip(numbers, self.ticks, strict=True))


@dataclass(frozen=True, slots=True)
class Line:
    """Cells along an axis: (index of the value, index of the cell)."""

    label: str
    points: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines along an axis. ``together`` are columns that vary with it.

    Not drawn are ``left_out`` more lines, ``alone`` cells from which no other one differs in the axis alone, and
    ``without`` cells to which the axis does not apply.
    """

    axis: Axis
    lines: tuple[Line, ...]
    left_out: int
    together: tuple[str, ...]
    alone: int
    without: int


@dataclass(frozen=True, slots=True)
class Grid:
    """All panels over two axes, the fullest first; ``together`` are columns that follow from the two.

    A panel has a label, and the cells where nothing else varies: a row for each value of y; -1 stands for no cell.
    ``left_out`` more panels are not drawn; ``outside`` are cells that are in no grid of the two axes.
    """

    x: Axis
    y: Axis
    panels: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]
    together: tuple[str, ...]
    left_out: int
    outside: int


class Table:
    """The cells of a page by their keys, whose names are ``names`` and then ``following``."""

    def __init__(self, names: Sequence[str], cells: Sequence[Cell], following: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self.cells = cells
        self.following = tuple(following)
        self.everything = tuple(range(len(cells)))

    def key(self, index: int, names: Sequence[str]) -> tuple[Any, ...]:
        values = self.cells[index].values
        return tuple(values[name] for name in names)

    def values(self, name: str, among: Iterable[int]) -> set[Any]:
        return {self.cells[index].values[name] for index in among}

    def groups(self, names: Sequence[str], among: Sequence[int]) -> dict[tuple[Any, ...], list[int]]:
        return grouped(among, lambda index: self.key(index, names))

    def has(self, *axes: str) -> list[int]:
        """The cells to which these axes apply."""
        return [index for index in self.everything if None not in self.key(index, axes)]

    def follows(self, name: str, others: Sequence[str]) -> bool:
        """Whether a column has one value for each combination of values of others."""
        return not any(self.varies(name, group) for group in self.groups(others, self.everything).values())

    def varies(self, name: str, among: Sequence[int]) -> bool:
        return len(self.values(name, among)) > 1

    def distinguishing(self, names: Sequence[str], among: Sequence[int]) -> list[str]:
        """Those of the columns that distinguish some cells in a label."""
        return [name for name in names if distinguishes(name, self.values(name, among))]

    def axes(self) -> list[str]:
        """The axes whose values are quantities but for one, such as "unlimited", in the order in which they are shown.

        Of two that follow from each other, one is an axis, and a ratio that follows from another one is none.
        """
        known: list[tuple[bool, int, str]] = []
        for name in self.names:
            values = self.values(name, self.has(name))
            words = sum(number(value) is None for value in values)
            unknown = sum(level(value) is None for value in values) if name in _IN_WORDS else words
            if len(values) > 1 and unknown < 2:
                # Of two that follow from each other, the one is an axis of which at most one value is no number alone.
                known.append((words > 1, _ORDER.get(name, len(_ORDER)), name))
        found: list[str] = []
        for *_, name in sorted(known):
            if not any(
                self.follows(name, (other,)) and (name in _RATIOS.get(other, ()) or self.follows(other, (name,)))
                for other in found
            ):
                found.append(name)
        return found

    def axis(self, names: Sequence[str], among: Sequence[int]) -> Axis:
        """An axis, or several as one: what some cells have in it."""
        values = {self.key(index, names) for index in among}
        ranked = tuple(sorted(values, key=lambda value: [rank(part) for part in value]))
        ticks = tuple(text(value[0]) + "".join(f" ({text(part)})" for part in value[1:]) for value in ranked)
        title = label(names[0]) + "".join(f", in brackets {label(name)}" for name in names[1:])
        numbers = tuple(found for value in ranked if (found := number(value[0])) is not None)
        known = len(names) == 1 and len(numbers) == len(ranked)
        return Axis(tuple(names), title, ranked, ticks, numbers if known else None)

    def lines(self) -> list[Lines]:
        """The lines along each axis that has some, each of two cells at least."""
        return [lines for name in self.axes() if (lines := self._lines_along(name)) is not None]

    def _lines_along(self, name: str) -> Lines | None:
        has = self.has(name)
        together = next((choice for choice in self._choices(name) if self._groups_along((name,), choice, has)), None)
        if together is None:
            return None
        found = self._groups_along((name,), together, has)
        ratios = [other for other in _RATIOS.get(name, ()) if other in self.names and other not in together]
        for more in (*combinations(ratios, 1), *combinations(ratios, 2)):
            fuller = self._groups_along((name,), (*together, *more), has)
            if sum(map(len, fuller)) > sum(map(len, found)) and self._distinguishes((name,), fuller):
                found = fuller
        used = [index for group in found for index in group]
        varying = [other for other in (*self.names, *self.following) if other != name]
        along = [other for other in varying if any(self.varies(other, group) for group in found)]
        ordered = sorted(along, key=lambda other: _ORDER.get(other, len(_ORDER)))
        columns = next(
            (name, *more)
            for count in range(len(ordered) + 1)
            for more in combinations(ordered, count)
            if count == len(ordered) or self._distinguishes((name, *more), found)
        )
        axis = self.axis(columns, used)
        saying = self.distinguishing([other for other in self.names if other != name and other not in along], used)
        split = [other for other in _MAY_FOLLOW if other in along and other in self.names]
        shown = sorted((self._line(saying, axis, group, split) for group in found), key=lambda line: -len(line.points))
        return Lines(
            axis,
            tuple(shown[:_MOST_LINES]),
            max(0, len(shown) - _MOST_LINES),
            tuple(other for other in ordered if other not in columns),
            len(has) - len(used),
            len(self.everything) - len(has),
        )

    def _groups_along(self, axes: Sequence[str], together: Sequence[str], among: Sequence[int]) -> list[list[int]]:
        """The cells of each line or grid along axes; other timing at the same values of these makes another one."""
        rest = [other for other in self.names if other not in (*axes, *together, *_MAY_FOLLOW)]
        groups = [part for group in self.groups(rest, among).values() for part in self._apart(axes, group)]
        return [group for group in groups if all(self.varies(name, group) for name in axes)]

    def _apart(self, at: Sequence[str], group: list[int]) -> list[list[int]]:
        """A group as it is where its cells differ ``at`` some columns, else in parts of equal or the nearest timing."""
        timing = [name for name in _MAY_FOLLOW if name in self.names and name not in at]
        if not timing or self._distinguishes(at, [group]):
            return [group]
        waiting = sorted(self.groups(timing, group).values(), key=len, reverse=True)
        parts = []
        while waiting:
            part = waiting.pop(0)
            for more in sorted(waiting, key=lambda other: self._distance(other, part, timing)):
                if not {self.key(index, at) for index in part} & {self.key(index, at) for index in more}:
                    part = [*part, *more]
                    waiting.remove(more)
            parts.append(part)
        return parts

    def _distance(self, group: Sequence[int], other: Sequence[int], timing: Sequence[str]) -> tuple[bool, float]:
        """How different the timing of two groups is; cells of which no row counts are the farthest."""
        here, there = (sum(number(value) or 0.0 for value in self.key(of[0], timing)) for of in (group, other))
        return not any(self.cells[index].good for index in group), abs(here - there)

    def _distinguishes(self, names: Sequence[str], lines: Iterable[Sequence[int]]) -> bool:
        """Whether the cells of each line differ in these columns; where they do not, ticks have to name more."""
        return all(len({self.key(index, names) for index in group}) == len(group) for group in lines)

    def _line(self, saying: Sequence[str], axis: Axis, group: Sequence[int], split: Sequence[str] = ()) -> Line:
        """``split``: columns that vary along some lines, and may distinguish them all the same."""
        place = {value: index for index, value in enumerate(axis.values)}
        points = tuple(sorted((place[self.key(index, axis.columns)], index) for index in group))
        words = [label_of(saying, self.key(group[0], saying))]
        for name in split:
            values = sorted(self.values(name, group), key=rank)
            words.append(" to ".join(dict.fromkeys(phrase(name, value) for value in (values[0], values[-1]))))
        return Line(", ".join(filter(None, words)), points)

    def _choices(self, name: str) -> Iterator[tuple[str, ...]]:
        """What may be configured together with an axis, the least of it first."""
        yield ()
        free = [o for o in self.names if o not in (name, *_MAY_FOLLOW) and (o in QUANTITIES or is_setting(o))]
        others = [*(o for o in _FOLLOWING if o in free), *(o for o in free if o not in _FOLLOWING)]
        for count in (1, 2, 3):
            yield from combinations(others, count)

    def lines_by(self, name: str, by: Sequence[str]) -> tuple[Axis, list[Line]]:
        """Any one axis, and a line over it for each combination of values of ``by``, also of a single point.

        Cells that differ in something else come to lie on one line, and several of them at one value.
        """
        used = self.has(name)
        axis = self.axis((name,), used)
        groups = sorted(self.groups(by, used).items(), key=lambda item: [rank(value) for value in item[0]])
        return axis, [self._line(by, axis, group) for _, group in groups]

    def grids(self) -> list[Grid]:
        """Grids of two axes, those that hold the most cells first; each has two values of both axes at least."""
        found: list[tuple[int, Grid]] = []
        for x, y in combinations(self.axes(), 2):
            together = [name for name in self.names if name not in (x, y) and self.follows(name, (x, y))]
            groups = self._groups_along((x, y), together, self.has(x, y))
            full = [group for group in groups if len(group) > 3 and self._distinguishes((x, y), [group])]
            if not full:
                continue
            full.sort(key=len, reverse=True)
            used = [index for group in full for index in group]
            x_axis, y_axis = self.axis((x,), used), self.axis((y,), used)
            others = [name for name in self.names if name not in (x, y, *together)]
            saying = self.distinguishing([name for name in others if name not in _MAY_FOLLOW], used)
            split = [name for name in _MAY_FOLLOW if name in others and self.varies(name, used)]
            panels = []
            for group in full[:_MOST_PANELS]:
                at = {self.key(index, (x, y)): index for index in group}
                table = tuple(tuple(at.get((*a, *b), -1) for a in x_axis.values) for b in y_axis.values)
                panels.append((self._line(saying, x_axis, group, split).label, table))
            more = (*together, *split, *self.following)
            names = tuple(name for name in more if any(self.varies(name, group) for group in full))
            counts = (max(0, len(full) - _MOST_PANELS), len(self.everything) - len(used))
            found.append((len(full[0]), Grid(x_axis, y_axis, tuple(panels), names, *counts)))
        found.sort(key=lambda grid: -grid[0])
        return [grid for _, grid in found]

    def reads(self) -> list[int]:
        """The cells whose reads have a consistency, where there is more than one."""
        return self.has("Consistency") if "Consistency" in self.names else []

    def pairs(self) -> list[tuple[str, int, int]]:
        """The cells that differ in consistency alone: label, linearizable and serializable one."""
        rest = [name for name in self.names if name != "Consistency"]
        pairs = []
        for group in self.groups(rest, self.reads()).values():
            by_value = {self.cells[index].values["Consistency"]: index for index in group}
            if {"l", "s"} <= set(by_value):
                names = self.distinguishing(rest, self.reads())
                words = label_of(names, self.key(group[0], names))
                pairs.append((words or "reads", by_value["l"], by_value["s"]))
        return pairs


def rank(value: Any) -> tuple[int, float, str]:
    """The sort key of a value of an axis: numbers by size, also those in words, then words, then missing values."""
    found = level(value)
    return (2 if value is None else 1, 0.0, text(value)) if found is None else (0, found, text(value))
