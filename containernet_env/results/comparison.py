"""Comparison of two sets of results: matched cells, the ratio of their figures, and the statistical conclusion."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from containernet_env.base.errors import UsageError
from containernet_env.model.names import listed
from containernet_env.results import statistics
from containernet_env.results.columns import BY_NAME
from containernet_env.results.csv_file import identities, load_all, text_of, texts_of
from containernet_env.results.repetitions import LOAD, are_used, kept_apart

if TYPE_CHECKING:
    import pandas

THROUGHPUT = "Requests/sec"
FIGURES = tuple(
    name
    for name in BY_NAME
    if name in (THROUGHPUT, "Average", "Slowest", "Fastest") or name[0].isdigit() or name.startswith("ServiceTime_")
)
"""Figures that can be compared: requests/s, of which more is faster, and times, of which less is."""
AUTO = f"{THROUGHPUT}, or 50% where a rate is configured"
EFFECT = 1.12
"""The number of repetitions needed is reported for this ratio."""
Verdict = Literal["slower", "faster", "no difference shown", "cannot tell"]


@dataclass
class Cell:
    """One figure of one scenario in both sets, one of ``tests`` cells with values on both sides. Judging needs scipy.

    ``values``: one for each repetition of A and of B; ``rows``: the number of their rows. ``adjusted_p``: with Holm's
    correction over all tests; ``None`` where a side has no value.
    """

    name: Mapping[str, str]
    figure: str
    values: tuple[list[float], list[float]]
    rows: tuple[int, int]
    tests: int = 1
    adjusted_p: float | None = None

    @property
    def title(self) -> str:
        """The cell in one line."""
        return ", ".join(self.name.values())

    @property
    def repetitions(self) -> tuple[int, int]:
        """Of A and B, with the figure."""
        a, b = self.values
        return len(a), len(b)

    @property
    def medians(self) -> tuple[float | None, float | None]:
        """Of A and B."""
        a, b = (statistics.median(side) if side else None for side in self.values)
        return a, b

    @property
    def needed(self) -> int:
        """The number of repetitions per side from which on such a cell can yield a result."""
        return statistics.repetitions_to_tell(self.tests)

    @cached_property
    def tested(self) -> statistics.Tested | None:
        """The test; ``None`` where a side has no value."""
        return statistics.mann_whitney(*self.values) if all(self.values) else None

    @property
    def p(self) -> float | None:
        """Of the test, before any correction."""
        return self.tested.p if self.tested else None

    @cached_property
    def ratio(self) -> statistics.Interval | None:
        """That of B over A."""
        return statistics.ratio_of_medians(*self.values) if all(self.values) else None

    @cached_property
    def _likely_spread(self) -> float | None:
        return statistics.likely_spread(*self.values) if all(self.values) else None

    @cached_property
    def advised(self) -> int | None:
        """The number of repetitions with which a difference of 12 % would be found with a probability of 80 %.

        By a spread that is likely not exceeded; ``None``: over 1000, or a spread is unknown.
        """
        spread = self._likely_spread
        return statistics.repetitions_for(EFFECT, spread, self.tests) if spread else None

    @cached_property
    def detectable(self) -> float | None:
        """The ratio above 1 that these repetitions would have shown with that probability, if there is one."""
        spread = self._likely_spread
        ratio = statistics.detectable_ratio(*self.repetitions, spread, self.tests) if spread else math.inf
        return ratio if math.isfinite(ratio) else None

    @property
    def verdict(self) -> Verdict:
        """The conclusion."""
        return self._judgement[0]

    @property
    def words(self) -> str:
        """The conclusion in words."""
        return self._judgement[1]

    @cached_property
    def _judgement(self) -> tuple[Verdict, str]:
        tested, ratio, (n, m) = self.tested, self.ratio, self.repetitions
        if tested is None or ratio is None or self.adjusted_p is None:
            empty = " and ".join(name for name, side in zip("AB", self.values, strict=True) if not side)
            return "cannot tell", f"cannot tell: {empty} has no value of it"
        if self.adjusted_p <= statistics.ALPHA:
            # The medians may agree where the ranks do not: the ranks were tested.
            more = tested.u * 2 > n * m
            direction: Verdict = "faster" if more == (self.figure == THROUGHPUT) else "slower"
            return direction, f"B {_how_much(direction, self.figure, ratio)}"
        least = tested.least_p * self.tests
        if least > statistics.ALPHA:
            over = f" over {self.tests} tests" if self.tests > 1 else ""
            tied = " with equal values" if tested.least_p > 1.001 * statistics.least_p(n, m) else ""
            words = f"cannot tell: {n} against {m} repetitions{tied} can at best reach p = {min(least, 1):.2g}{over}"
            if statistics.least_p(n, m) * self.tests > statistics.ALPHA:
                words += f"; {self.needed} each are needed"
                if self.advised is not None and self.advised > self.needed:
                    words += f", by this spread {self.advised} to find {100 * (EFFECT - 1):.0f} %"
            return "cannot tell", words
        found = f"; one of {_percent(self.detectable - 1)} % would likely have been" if self.detectable else ""
        return "no difference shown", f"no difference shown{found}"

    def slower_by_more_than(self, share: float) -> bool:
        """Whether the whole interval is of a B that is slower by more than ``share`` (0.05: 5 %)."""
        if self.verdict != "slower" or self.ratio is None or self.ratio.low is None or self.ratio.high is None:
            return False
        return self.ratio.high < 1 - share if self.figure == THROUGHPUT else self.ratio.low > 1 + share

    def cannot_tell_slower(self) -> bool:
        """Whether nothing is known of how much slower B is: too few repetitions, or too few for an interval."""
        is_open = self.ratio is None or self.ratio.low is None
        return self.verdict == "cannot tell" or (self.verdict == "slower" and is_open)


@dataclass(frozen=True)
class Comparison:
    """Two sets of results, matched; ``matched`` are their cells before they are judged."""

    matched: tuple[Cell, ...]
    differs: tuple[tuple[str, str, str], ...]
    """The columns in which the sets differ as a whole, with the values of A and of B."""
    only: tuple[tuple[str, ...], tuple[str, ...]]
    """Cells that only A has, and only B: by name."""
    left_out: tuple[Mapping[str, int], Mapping[str, int]]
    """Why rows of A and B have no part in it, and how many."""
    notes: tuple[str, ...]

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All cells of both sets, judged together; needs scipy."""
        tested = [cell for cell in self.matched if cell.tested]
        adjusted = statistics.holm([cell.tested.p for cell in tested if cell.tested])
        for cell, p in zip(tested, adjusted, strict=True):
            cell.adjusted_p = p
        for cell in self.matched:
            cell.tests = max(len(tested), 1)
        return self.matched


@dataclass
class _Side:
    name: str
    used: pandas.DataFrame
    left_out: Counter[str]


def read(paths: Sequence[Path], note: Callable[[str], object]) -> pandas.DataFrame:
    """The rows of all files of one side, see `results.csv_file.load_all`.

    Raises ``UsageError`` if a file cannot be read or has other columns than the first one.
    """
    import pandas

    tables = load_all(paths, note)
    for path, table in zip(paths, tables, strict=True):
        if list(table.columns) != list(tables[0].columns):
            raise UsageError(
                f"{paths[0]} and {path} have different columns, so they are not one side of a comparison\n"
                "  Give files of one form: all with ours, or all with the seed's columns alone."
            )
    return pandas.concat(tables, ignore_index=True)


def compare(
    a: pandas.DataFrame, b: pandas.DataFrame, figures: Sequence[str] = (), names: tuple[str, str] = ("A", "B")
) -> Comparison:
    """Match the cells of two tables as `results.csv_file.load` reads them; see docs/statistics.md. Needs no scipy.

    ``figures``: some of ``FIGURES``; by default one for each scenario, ``AUTO``. ``names``: the names of the two tables
    in errors. Only rows that are certainly valid are used, and of B only those that are not in A: rows are appended to
    files. Rows of one cell that share a cluster are one repetition: their median. Raises ``UsageError`` if figures are
    unknown, a table has no row to compare, or it is not clear which rows belong together.
    """
    if unknown := [name for name in figures if name not in FIGURES]:
        raise UsageError(f"no figure {', '.join(unknown)}; allowed: {', '.join(FIGURES)}")
    sides = [_side(names[0], a), _side(names[1], b, set(identities(a)))]
    shared = [name for name in sides[0].used.columns if name in sides[1].used.columns]
    if missing := [name for name in figures if name not in shared]:
        raise UsageError(f"no figure {', '.join(missing)} in both: files of the seed's columns have no such column")
    keys, differs = _keys([side.used for side in sides], shared)
    shown = _shown([side.used for side in sides], keys)
    wanted = list(figures) or [THROUGHPUT, "50%"]
    found = [_repetitions(side, keys, wanted) for side in sides]
    for side in sides:
        _refuse_mixture(side, keys, [name for name in kept_apart(side.used) if name not in keys])
    if not (both := [key for key in found[0] if key in found[1]]):
        raise UsageError(_why_no_match(sides, keys))

    def title(key: tuple[str, ...]) -> str:
        name = dict(zip(keys, key, strict=True))
        return ", ".join(name[part] for part in shown)

    only_a, only_b = (tuple(title(key) for key in own if key not in other) for own, other in (found, found[::-1]))
    cells = []
    for key in both:
        name = dict(zip(keys, key, strict=True))
        a_values, b_values = found[0][key], found[1][key]
        for figure in figures or ["50%" if name.get("OfferedRate_per_s", "-") != "-" else THROUGHPUT]:
            values = a_values.of(figure), b_values.of(figure)
            rows = a_values.rows(figure), b_values.rows(figure)
            cells.append(Cell({part: name[part] for part in shown}, figure, values, rows))
    notes = (*_notes(sides), *_found([(title(key), found[0][key], found[1][key]) for key in both]))
    return Comparison(tuple(cells), differs, (only_a, only_b), (sides[0].left_out, sides[1].left_out), notes)


def _side(name: str, table: pandas.DataFrame, others: Collection[tuple[str, ...]] = ()) -> _Side:
    """The rows that are used, and why others are not; those of ``others`` are not."""
    left_out: Counter[str] = Counter()
    new = [identity not in others for identity in identities(table)]
    left_out["also in A"] = new.count(False)
    used = table.loc[new]
    if "Valid" in table.columns:
        failed = used["Error"].notna()
        valid = used["Valid"].fillna("unknown")
        left_out["failed"] = int(failed.sum())
        left_out["not valid"] = int((~failed & (valid == "no")).sum())
        taken = are_used(used)
        left_out["of unknown validity"] = int((~failed & (valid != "no") & ~taken).sum())
        used = used[~failed & taken]
    left_out = +left_out
    if used.empty:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "it has no rows"
        remedy = "Measure again; `results` shows the rows."
        if left_out["also in A"]:
            remedy = "Rows that are on both sides count for A alone: as B give a file that has more than these."
        raise UsageError(f"{name} has no row that can be compared: {why}\n  {remedy}")
    return _Side(name, used, left_out)


def _keys(tables: Sequence[pandas.DataFrame], shared: Sequence[str]) -> tuple[list[str], Any]:
    """The columns by which cells are matched, and those in which the two tables have no value in common.

    The latter are compared, unless they are of the load.
    """
    import pandas

    # The number of requests distinguishes rows if one table has the seed's columns alone. A column derived from others
    # in both tables together is not matched: with another bandwidth it may have another value.
    keys, differs = [], []
    for name in kept_apart(pandas.concat([table[list(shared)] for table in tables])):
        a, b = (set(text_of(table, name)) for table in tables)
        if name in LOAD or a & b:
            keys.append(name)
        else:
            differs.append((name, *(listed(sorted(values)) for values in (a, b))))
    return keys, tuple(differs)


def _shown(tables: Sequence[pandas.DataFrame], keys: Sequence[str]) -> list[str]:
    """The keys that name a cell: the scenario, and the columns besides the load that vary; hashes if these are not
    enough."""
    cells = {cell for table in tables for cell in texts_of(table, keys)}
    distinct = {name: set(values) for name, values in zip(keys, zip(*cells, strict=True), strict=True)}
    varies = [name for name in keys if len(distinct[name]) > 1]
    if "Scenario" not in keys:
        return varies or ["TestType"]
    shown = ["Scenario", *(name for name in varies if name not in LOAD and not name.endswith("Hash"))]
    places = [keys.index(name) for name in shown]
    named = {tuple(cell[place] for place in places) for cell in cells}
    return shown if len(named) == len(cells) else list(dict.fromkeys((*shown, *varies)))


# Not matched, since these vary by chance in a sweep.
_BY_CHANCE = {"Reused": "what a scenario found from before it", "Machine": "on which machine it was measured"}


@dataclass
class _Values:
    """A cell on one side. ``figures``: the values of its rows, by figure and cluster.

    ``found``: by column of `_BY_CHANCE` its values, if the file has them.
    """

    figures: dict[str, dict[object, list[float]]]
    found: dict[str, set[str]]

    def of(self, figure: str) -> list[float]:
        """A value for each repetition: rows that share a cluster are one, their median."""
        return [statistics.median(values) for values in self.figures.get(figure, {}).values()]

    def rows(self, figure: str) -> int:
        """How many rows there are of these."""
        return sum(map(len, self.figures.get(figure, {}).values()))


def _repetitions(side: _Side, keys: Sequence[str], figures: Sequence[str]) -> dict[tuple[str, ...], _Values]:
    """The cells of a side; figures that are missing are left out."""
    names = texts_of(side.used, keys)
    cells = {name: _Values({}, {}) for name in names}
    for column in filter(side.used.columns.__contains__, _BY_CHANCE):
        for name, value in zip(names, text_of(side.used, column), strict=True):
            cells[name].found.setdefault(column, set()).add(value)
    of_clusters = "RunId" in side.used.columns
    clusters = texts_of(side.used, ("RunId", "Cluster")) if of_clusters else range(len(names))
    for figure in figures:
        for name, cluster, value in zip(names, clusters, side.used[figure].tolist(), strict=True):
            if math.isfinite(value) and value > 0:
                cells[name].figures.setdefault(figure, {}).setdefault(cluster, []).append(value)
    return cells


def _refuse_mixture(side: _Side, keys: Sequence[str], others: Sequence[str]) -> None:
    """If a cell has several experiments, which of them belong to which of the other side cannot be determined."""
    cells = texts_of(side.used, keys)
    texts = {name: text_of(side.used, name) for name in others}
    if mixed := [name for name in others if len(set(zip(cells, texts[name], strict=True))) > len(set(cells))]:
        named = [name for name in mixed if not name.endswith("Hash")] or mixed
        what = "; ".join(f"{name}: {listed(sorted(set(texts[name])))}" for name in named)
        raise UsageError(
            f"{side.name} has rows of several experiments that would be one cell, since the other side has none of "
            f"these values ({what})\n  Compare files with one of these values each."
        )


def _why_no_match(sides: Sequence[_Side], keys: Sequence[str]) -> str:
    names = [side.name for side in sides]
    reasons = []
    for name in keys:
        a, b = (sorted(set(text_of(side.used, name))) for side in sides)
        if not set(a) & set(b):
            reasons.append(f"{name}: {names[0]} has {listed(a)}, {names[1]} has {listed(b)}")
    what = "\n  ".join(reasons) or "each value is on both sides, but never together"
    return f"no scenario of {names[0]} is in {names[1]}\n  {what}\n  Measure the same scenarios on both sides."


def _notes(sides: Sequence[_Side]) -> tuple[str, ...]:
    notes = []
    if seed := [name for name, side in zip("AB", sides, strict=True) if "RunId" not in side.used.columns]:
        notes.append(
            f"{' and '.join(seed)}: the seed's columns alone do not say which rows are valid, which share a cluster, "
            "which members they queried, and on what links and machine they were measured. Each row counts as a "
            "repetition on a cluster of its own; where rows share one, they show less than is stated here."
        )
    return tuple(notes)


def _found(cells: Sequence[tuple[str, _Values, _Values]]) -> list[str]:
    """A cluster that served scenarios before, or another machine, may be slower; neither is configured."""
    notes = []
    for column, meaning in _BY_CHANCE.items():
        found = [
            f"{title}: {listed(sorted(a.found[column]))} in A, {listed(sorted(b.found[column]))} in B"
            for title, a, b in cells
            if column in a.found and column in b.found and a.found[column] != b.found[column]
        ]
        if found:
            what = "which may be part of a difference"
            notes.append(f"{column}, {meaning}, differs in {len(found)} cells, {what} ({listed(found, 1)})")
    return notes


def _how_much(direction: str, figure: str, ratio: statistics.Interval) -> str:
    """Words for an interval: '8 to 12 % slower'. Of a rate, less is slower, of a time more."""
    if ratio.low is None or ratio.high is None:
        return f"{direction}; by how much, {min(ratio.n, 3)} repetitions cannot tell"
    sign = 1 if (direction == "faster") == (figure == THROUGHPUT) else -1
    least, most = sorted((sign * (ratio.low - 1), sign * (ratio.high - 1)))
    if most <= 0:
        return f"{direction} in rank, not in its median"
    if least <= 0:
        return f"{direction}, at most {_percent(most)} %"
    ends = list(dict.fromkeys((_percent(least), _percent(most))))
    return f"{' to '.join(ends)} % {direction}"


def _percent(share: float) -> str:
    value = 100 * share
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0")
