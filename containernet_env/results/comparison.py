"""Comparison of two sets of results: matched cells, the ratio of their figures, and the statistical conclusion."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from containernet_env.base.errors import UsageError
from containernet_env.model.names import listed
from containernet_env.model.scenario import ALL_CLIENTS
from containernet_env.results import statistics
from containernet_env.results.columns import BY_NAME
from containernet_env.results.csv_file import identities, load_all, text_of, texts_of
from containernet_env.results.repetitions import LOAD, clusters_of, kept_apart, unused

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


_Match = tuple[Mapping[str, str], str, tuple[list[float], list[float]], tuple[int, int]]
"""The first four values of a cell."""


@dataclass(frozen=True)
class Cell:
    """One figure of one scenario in both sets, and the conclusion, also in ``words``.

    ``values``: one for each repetition of A and of B; ``rows``: the number of their rows. ``p``: of the test,
    ``adjusted_p`` with Holm's correction over all tests, ``ratio`` that of B over A; ``None`` where a side has no
    value. ``needed``: the number of repetitions per side from which on such a cell can yield a result. ``advised``: the
    one with which a difference of 12 % would be found with a probability of 80 %, by a spread that is likely not
    exceeded; ``None``: over 1000, or a spread is unknown. ``detectable``: the ratio above 1 that these repetitions
    would have shown with that probability, if there is one.
    """

    name: Mapping[str, str]
    figure: str
    values: tuple[list[float], list[float]]
    rows: tuple[int, int]
    p: float | None
    adjusted_p: float | None
    ratio: statistics.Interval | None
    needed: int
    advised: int | None
    detectable: float | None
    verdict: Verdict
    words: str

    @property
    def title(self) -> str:
        return ", ".join(self.name.values())

    @property
    def repetitions(self) -> tuple[int, int]:
        """Of A and B, with the figure."""
        return len(self.values[0]), len(self.values[1])

    @property
    def medians(self) -> tuple[float | None, float | None]:
        a, b = (median(side) if side else None for side in self.values)
        return a, b

    def slower_by_more_than(self, share: float) -> bool:
        """Whether the whole interval is of a B that is slower by more than ``share`` (0.05: 5 %)."""
        if self.verdict != "slower" or self.ratio is None or self.ratio.low is None or self.ratio.high is None:
            return False
        return self.ratio.high < 1 - share if self.figure == THROUGHPUT else self.ratio.low > 1 + share

    def cannot_tell_slower(self) -> bool:
        """Whether nothing is known of how much slower B is: too few repetitions, or too few for an interval."""
        is_open = self.ratio is None or self.ratio.low is None
        return self.verdict == "cannot tell" or (self.verdict == "slower" and is_open)


def _judged(match: _Match, tests: int, tested: statistics.Tested | None, adjusted_p: float) -> Cell:
    """The cell, one of ``tests`` with values on both sides; ``tested`` is ``None`` where a side has none."""
    _, figure, (a, b), _ = match
    cell, needed = partial(Cell, *match), statistics.repetitions_to_tell(tests)
    if tested is None:
        empty = " and ".join(name for name, side in zip("AB", (a, b), strict=True) if not side)
        words = f"cannot tell: {empty} has no value of it"
        return cell(None, None, None, needed, None, None, "cannot tell", words)
    n, m, ratio = len(a), len(b), statistics.ratio_of_medians(a, b)
    spread = statistics.likely_spread(a, b)
    advised = statistics.repetitions_for(EFFECT, spread, tests) if spread else None
    shown = statistics.detectable_ratio(n, m, spread, tests) if spread else math.inf
    detectable = shown if math.isfinite(shown) else None
    verdict: Verdict
    if adjusted_p <= statistics.ALPHA:
        # The medians may agree where the ranks do not: the ranks were tested.
        verdict = "faster" if (tested.u * 2 > n * m) == (figure == THROUGHPUT) else "slower"
        words = f"B {_how_much(verdict, figure, ratio)}"
    elif (least := tested.least_p * tests) > statistics.ALPHA:
        verdict, over = "cannot tell", f" over {tests} tests" if tests > 1 else ""
        tied = " with equal values" if tested.least_p > 1.001 * statistics.least_p(n, m) else ""
        words = f"cannot tell: {n} against {m} repetitions{tied} can at best reach p = {min(least, 1):.2g}{over}"
        if statistics.least_p(n, m) * tests > statistics.ALPHA:
            words += f"; {needed} each are needed"
            if advised is not None and advised > needed:
                words += f", by this spread {advised} to find {100 * (EFFECT - 1):.0f} %"
    else:
        verdict = "no difference shown"
        words = verdict + (f"; one of {_percent(detectable - 1)} % would likely have been" if detectable else "")
    return cell(tested.p, adjusted_p, ratio, needed, advised, detectable, verdict, words)


@dataclass(frozen=True)
class Comparison:
    """Two sets of results, matched."""

    matched: tuple[_Match, ...]
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
        both = [values for _, _, values, _ in self.matched]
        tested = [statistics.mann_whitney(*values) if all(values) else None for values in both]
        adjusted = iter(statistics.holm([one.p for one in tested if one]))
        tests = max(sum(one is not None for one in tested), 1)
        return tuple(
            _judged(match, tests, one, next(adjusted) if one else math.nan)
            for match, one in zip(self.matched, tested, strict=True)
        )


@dataclass
class _Side:
    name: str
    used: pandas.DataFrame
    left_out: Counter[str]


def read(paths: Sequence[Path], note: Callable[[str], object], client: str = ALL_CLIENTS) -> pandas.DataFrame:
    """The rows of all files of one side, see `results.csv_file.load_all`, as for ``client``.

    Raises ``UsageError`` if a file cannot be read or has other columns than the first one.
    """
    import pandas

    tables = load_all(paths, note, client)
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
    found = [_cells(side, keys) for side in sides]
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
        for figure in figures or ["50%" if name.get("OfferedRate_per_s", "-") != "-" else THROUGHPUT]:
            (a_values, a_rows), (b_values, b_rows) = (_repetitions(of[key], figure) for of in found)
            cells.append(({part: name[part] for part in shown}, figure, (a_values, b_values), (a_rows, b_rows)))
    notes = (*_notes(sides), *_by_chance([(title(key), found[0][key], found[1][key]) for key in both]))
    return Comparison(tuple(cells), differs, (only_a, only_b), (sides[0].left_out, sides[1].left_out), notes)


def _side(name: str, table: pandas.DataFrame, others: Collection[tuple[str, ...]] = ()) -> _Side:
    """The rows that are used, and why others are not; those of ``others`` are not."""
    left_out: Counter[str] = Counter()
    new = [identity not in others for identity in identities(table)]
    left_out["also in A"] = new.count(False)
    used = table.loc[new]
    states = unused(used)
    for state in ("failed", "not valid", "of unknown validity"):
        left_out[state] = states.count(state)
    used = used.loc[[not state for state in states]]
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


def _cells(side: _Side, keys: Sequence[str]) -> dict[tuple[str, ...], pandas.DataFrame]:
    """The rows of each cell, with the columns that differ within one and are looked at."""
    places: dict[tuple[str, ...], list[int]] = {}
    for place, name in enumerate(texts_of(side.used, keys)):
        places.setdefault(name, []).append(place)
    rows = side.used[[name for name in (*FIGURES, "RunId", "Cluster", *_BY_CHANCE) if name in side.used.columns]]
    return {name: rows.iloc[own] for name, own in places.items()}


def _repetitions(rows: pandas.DataFrame, figure: str) -> tuple[list[float], int]:
    """A value for each repetition, and of how many rows these are: rows that share a cluster are one, their median."""
    values: dict[object, list[float]] = {}
    for cluster, value in zip(clusters_of(rows), rows[figure].tolist(), strict=True):
        if math.isfinite(value) and value > 0:
            values.setdefault(cluster, []).append(value)
    return [median(own) for own in values.values()], sum(map(len, values.values()))


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


def _notes(sides: Sequence[_Side]) -> list[str]:
    seed = [name for name, side in zip("AB", sides, strict=True) if "RunId" not in side.used.columns]
    words = (
        f"{' and '.join(seed)}: the seed's columns alone do not say which rows are valid, which share a cluster, "
        "which members they queried, and on what links and machine they were measured. Each row counts as a "
        "repetition on a cluster of its own; where rows share one, they show less than is stated here."
    )
    notes = [words] if seed else []
    external = [
        name
        for name, side in zip("AB", sides, strict=True)
        if "Hosts" in side.used.columns and "external" in set(side.used["Hosts"])
    ]
    if external:
        notes.append(
            f"{' and '.join(external)}: rows of external clusters. Each run counts as a repetition on a cluster of its "
            "own; runs on the same members share its leader, disks and data, and show less than is stated here."
        )
    return notes


# Not matched, since these vary by chance in a sweep.
_BY_CHANCE = {"Reused": "what a scenario found from before it", "Machine": "on which machine it was measured"}


def _by_chance(cells: Sequence[tuple[str, pandas.DataFrame, pandas.DataFrame]]) -> list[str]:
    """A cluster that served scenarios before, or another machine, may be slower; neither is configured."""
    notes = []
    for column, meaning in _BY_CHANCE.items():
        found = []
        for title, *sides in cells:
            if all(column in rows.columns for rows in sides):
                a, b = (sorted(set(text_of(rows, column))) for rows in sides)
                found += [f"{title}: {listed(a)} in A, {listed(b)} in B"] if a != b else []
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
