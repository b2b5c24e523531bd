"""Figures for papers: one style, which a colour-blind reader and a black-and-white print can distinguish.

matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from containernet_env.base.errors import UsageError
from containernet_env.model.names import column_of
from containernet_env.report.axes import Axis, Line, Table, XScale
from containernet_env.report.rows import (
    CONFIDENCE,
    FILE,
    RANGE,
    VARIANT,
    Cell,
    Figure,
    Rows,
    Spread,
    cells_of,
    figure_of,
    figures_of,
    label,
    spread_of,
    text,
)
from containernet_env.results.columns import BY_NAME
from containernet_env.results.csv_file import csv_text
from containernet_env.results.repetitions import HASHES

if TYPE_CHECKING:
    import matplotlib.axes

FORMATS = {"pdf": rb"%PDF-", "svg": rb"<\?xml[^>]*>\s*<!DOCTYPE svg", "png": rb"\x89PNG"}
"""What a figure can be written as, with a pattern of how such a file begins."""
NUMBERS = rb"[^\n]*,figure,unit,counts,"
"""How the CSV beside a figure begins."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00")
"""Of Okabe and Ito, "Color Universal Design" (2008), those that stand out from white paper."""
MARKERS = ("o", "s", "D", "^", "v", "P", "*")
DASHES = ("-", "--", ":", "-.", (0, (7, 2, 1, 2, 1, 2)))
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "savefig.dpi": 300,
    # Fonts travel with the file: as TrueType in PDF, as outlines in SVG.
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "containernet-env",
    # A dollar sign in a name is no formula.
    "text.parse_math": False,
}
_HEIGHT, _LINE = 2.6, 0.17
"""Of a picture with a legend of up to two lines, and of each further one, in inches."""
_MOST_LINES, _MOST_FIGURES, _MOST_WORDS, _MOST_TICKS = 24, 4, 40, 12
"""Limits of legibility: lines, panels, values of an axis that are no numbers, and numbers that are written each."""


@dataclass(frozen=True)
class Drawing:
    """A figure before it is drawn: a panel for each figure, with a line for each combination of values of ``by``.

    ``values``: for each figure those of all rows, in their order; ``None`` where a row has none. ``left_out``: how many
    rows have no point and what they lack, in words; "" for none.
    """

    axis: Axis
    figures: tuple[Figure, ...]
    by: tuple[str, ...]
    lines: tuple[Line, ...]
    cells: tuple[Cell, ...]
    values: tuple[Sequence[float | None], ...]
    x_scale: XScale
    left_out: str

    @cached_property
    def spreads(self) -> tuple[tuple[Spread | None, ...], ...]:
        """For each figure that of each cell; ``None`` where no row of it counts. Needs scipy."""
        return tuple(tuple(spread_of(of, cell.repetitions) for cell in self.cells) for of in self.values)

    @cached_property
    def singles(self) -> tuple[tuple[tuple[float, ...], ...], ...]:
        """For each figure and cell the values of rows that do not count."""
        return tuple(
            tuple(tuple(v for number in cell.bad if (v := of[number]) is not None) for cell in self.cells)
            for of in self.values
        )

    def numbers(self) -> str:
        """The CSV behind it: medians over repetitions, their intervals, and for what does not count each value."""
        names = [label(name) for name in self.by] or ["line"]
        numbers = ["repetitions", "rows", "median", "low", "high", "interval"]
        lines: list[list[object]] = [[self.axis.title, *names, "figure", "unit", "counts", *numbers]]
        for line in self.lines:
            for place, index in line.points:
                key = [text(self.cells[index].values[name]) for name in self.by] or ["all"]
                for figure, spreads, singles in zip(self.figures, self.spreads, self.singles, strict=True):
                    start = [self.axis.ticks[place], *key, figure.label, figure.unit]
                    if (spread := spreads[index]) is not None:
                        ends = [
                            None if value is None else f"{value:.6f}"
                            for value in (spread.median, spread.low, spread.high)
                        ]
                        lines.append([*start, "yes", spread.n, spread.rows, *ends, spread.bar])
                    for single in singles[index]:
                        lines.append([*start, "no", None, 1, f"{single:.6f}", None, None, None])
        return csv_text(lines)

    def bars(self) -> str:
        """What the bars are, in words; "" where there are none."""
        found = {spread.bar for spreads in self.spreads for spread in spreads if spread is not None}
        words = [f"{CONFIDENCE} interval of the median"] if CONFIDENCE in found else []
        words += ["without caps: least to largest"] if RANGE in found else []
        return f"bars: {'; '.join(words)}" if words else ""


def chosen(rows: Rows, where: Sequence[str]) -> Rows:
    """The rows for which every ``COLUMN=VALUE`` holds. Raises ``UsageError`` where there is no such row or column."""
    for condition in where:
        name, equals, wanted = condition.partition("=")
        column = column_of("--where", name, _configured(rows)) if equals else ""
        if not column:
            raise UsageError(f"--where {condition}: write COLUMN=VALUE, such as --where type=write")
        values = [text(value) for value in rows.values(column)]
        if wanted not in values:
            allowed = ", ".join(sorted(set(values))[:40])
            raise UsageError(
                f"--where {condition}: no row has that; allowed: {allowed or 'nothing, there are no rows'}"
            )
        numbers = [number for number, value in enumerate(values) if value == wanted]
        frame = rows.frame.iloc[numbers].reset_index(drop=True)
        rows = replace(rows, frame=frame, why=tuple(rows.why[number] for number in numbers))
    return rows


def plan(rows: Rows, x: str, ys: Sequence[str], by: Sequence[str], x_scale: XScale = "linear") -> Drawing:
    """The figure by the options. Needs no scipy, so that mistakes are reported before anything is installed.

    Raises ``UsageError`` for an axis or a figure that there is none of, and where rows of different experiments would
    come to lie on one point: their median would be one of neither.
    """
    configured = _configured(rows)
    known = [BY_NAME[name] for name in rows.frame.columns if name in BY_NAME]
    measured = [column.name for column in known if column.role == "measured" and column.number]
    axis_name = column_of("--x", x, configured)
    lines_by = tuple(dict.fromkeys(column_of("--by", name, configured) for name in by))
    figures = tuple(figure_of(column_of("--y", name, measured)) for name in dict.fromkeys(ys))
    if len(figures) > _MOST_FIGURES:
        raise UsageError(f"--y: {len(figures)} figures are too many for one picture; at most {_MOST_FIGURES}")
    if axis_name in lines_by:
        raise UsageError(f"--by {axis_name}: this is the axis; name another column")
    names = tuple(dict.fromkeys((*rows.varied, axis_name, *lines_by)))
    cells = tuple(cells_of(rows, names))
    table = Table(names, cells, rows.varied_with)
    if not table.has(axis_name):
        raise UsageError(f"--x {x}: no row has a value of {axis_name}")
    axis, lines = table.lines_by(axis_name, lines_by)
    _refuse_mixtures(table, names, (axis_name, *lines_by), lines)
    if len(lines) > _MOST_LINES:
        raise UsageError(
            f"--by {', '.join(by)}: {len(lines)} lines are too many to be distinguished; at most {_MOST_LINES}"
        )
    if axis.numbers is None and len(axis.values) > _MOST_WORDS:
        raise UsageError(
            f"--x {x}: {len(axis.values)} values, not all of them numbers, are too many to be read; at most "
            f"{_MOST_WORDS}\n  Choose rows with --where."
        )
    if x_scale == "log" and not axis.positive:
        found = ", ".join(axis.ticks[:_MOST_TICKS])
        raise UsageError(f"--x-scale log: {axis_name} has {found}; allowed: numbers above 0, or --x-scale linear")
    values = figures_of(rows, figures)
    for figure in figures:
        if all(value is None for value in values[figure.column]):
            raise UsageError(f"--y {figure.short}: no row has a value of {figure.column}")
    of_figures = tuple(values[figure.column] for figure in figures)
    left_out = _left_out(rows, axis_name, figures, of_figures)
    return Drawing(axis, figures, lines_by, tuple(lines), cells, of_figures, x_scale, left_out)


def _left_out(rows: Rows, axis: str, figures: Sequence[Figure], values: Sequence[Sequence[float | None]]) -> str:
    on_axis = [value is not None for value in rows.values(axis)]
    lacks = {label(axis): on_axis.count(False)}
    for figure, of in zip(figures, values, strict=True):
        lacks[figure.short] = sum(value is None for value, there in zip(of, on_axis, strict=True) if there)
    lacking = [f"{count:,} row{'s' if count > 1 else ''} without {name}" for name, count in lacks.items() if count]
    return f"not shown: {'; '.join(lacking)}" if lacking else ""


def _configured(rows: Rows) -> list[str]:
    """The columns that may be an axis: configured ones, and those that rows of several files differ in."""
    keys = (name for name in (*rows.keys, *rows.following) if name != VARIANT)
    more = {FILE, "Scenario", "RequestCount", *HASHES, *keys}
    return [name for name in rows.frame.columns if name in more]


def _refuse_mixtures(table: Table, names: Sequence[str], drawn: Sequence[str], lines: Sequence[Line]) -> None:
    for line in lines:
        places = [place for place, _ in line.points]
        if len(set(places)) == len(places):
            continue
        used = [index for line in lines for _, index in line.points]
        by_point = table.groups(drawn, used).values()
        mixed = [name for name in names if any(table.varies(name, group) for group in by_point)]
        words = ", ".join(" or ".join(HASHES) if name == VARIANT else name for name in mixed)
        raise UsageError(
            f"one point would be of rows that differ in {words}: their median would be one of neither\n"
            "  Name these with --by, or choose rows with --where, such as --where type=write."
        )


def draw(drawing: Drawing, form: str) -> bytes:
    """The picture, in one of ``FORMATS``; the same drawing makes the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure as Picture

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # A name may be in a script that the font has not got: there is a box for each letter then.
        warnings.filterwarnings("ignore", message="Glyph")
        panels = len(drawing.figures)
        picture = Picture(figsize=(3.5 if panels == 1 else min(7.2, 3.4 * panels), _HEIGHT), layout="constrained")
        for place, (axes, figure) in enumerate(
            zip(picture.subplots(1, panels, squeeze=False)[0], drawing.figures, strict=True)
        ):
            _panel(axes, drawing, place, figure)
        if words := drawing.bars():
            picture.suptitle(words, fontsize=6, color="#555555")
        handles, labels = picture.axes[0].get_legend_handles_labels()
        if len(handles) > 1:
            columns = min(len(labels), 1 + min(panels, 2))
            legend = picture.legend(handles, labels, loc="outside lower center", ncols=columns)
            lines = -(-len(labels) // columns)
            if drawing.left_out:
                # Anywhere else the layout would put it on the legend's last line.
                legend.set_title(drawing.left_out)
                legend.get_title().set(fontsize=6, color="#555555")
                lines += 1
            picture.set_figheight(_HEIGHT + _LINE * max(0, lines - 2))
        elif drawing.left_out:
            picture.supxlabel(drawing.left_out, fontsize=6, color="#555555")
        out = io.BytesIO()
        metadata: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(form, {})
        picture.savefig(out, format=form, metadata=metadata)
    return out.getvalue()


def _panel(axes: matplotlib.axes.Axes, drawing: Drawing, place: int, figure: Figure) -> None:
    axis = drawing.axis
    at = axis.numbers or tuple(range(len(axis.values)))
    crosses = False
    for order, line in enumerate(drawing.lines):
        style: dict[str, Any] = {
            "color": COLOURS[order % len(COLOURS)],
            "marker": MARKERS[order % len(MARKERS)],
            "linestyle": DASHES[order % len(DASHES)],
        }
        known = [(at[index], spread) for index, cell in line.points if (spread := drawing.spreads[place][cell])]
        axes.plot([x for x, _ in known], [spread.median for _, spread in known], label=line.label or "all", **style)
        for bar, cap in ((CONFIDENCE, 2), (RANGE, 0)):
            ends = [
                (x, spread.median, spread.median - spread.low, spread.high - spread.median)
                for x, spread in known
                if spread.bar == bar and spread.low is not None and spread.high is not None
            ]
            if ends:
                xs, medians, below, above = zip(*ends, strict=True)
                axes.errorbar(
                    xs, medians, yerr=(below, above), fmt="none", ecolor=style["color"], elinewidth=0.9, capsize=cap
                )
        singles = [(at[index], value) for index, cell in line.points for value in drawing.singles[place][cell]]
        if singles:
            axes.plot(*zip(*singles, strict=True), "x", color=style["color"], markersize=5, zorder=3)
            crosses = True
    if crosses:
        axes.plot([], [], "x", color="#555555", markersize=5, label="does not count")
    if drawing.x_scale == "log":
        axes.set_xscale("log")
    if axis.exact_ticks:
        axes.set_xticks(list(at), axis.ticks)
    else:
        axes.xaxis.set_major_formatter(lambda value, _: text(value))
    axes.minorticks_off()
    axes.set_xlabel(f"{axis.title}, logarithmic" if drawing.x_scale == "log" else axis.title)
    axes.set_ylabel(figure.title)
    axes.set_ylim(bottom=0)
