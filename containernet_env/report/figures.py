"""The figures of the report page: Plotly's traces and layouts as plain data, which page.js completes and draws.

Medians and intervals are stored once, in the `points` of the page: traces refer to them by number (``of``), and the
choices above a figure decide which column of them is drawn. Colours depend on the theme: page.js adds them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from containernet_env.report.axes import Axis, Grid, Lines, Table, XScale
from containernet_env.report.rows import (
    FIGURES,
    FILE,
    INTERVAL,
    RATE,
    Cell,
    Rows,
    Spread,
    figures_of,
    label,
    repetitions_of,
    scaled,
    spread_of,
    text,
)
from containernet_env.report.runs import PERCENTS, Runs, Timeline

MOST_SINGLES = 2000
_MOST_GRIDS, _MOST_PAIRS, _MOST_CURVES, _MOST_FLOORS, _MOST_SHOWN = 4, 60, 60, 40, 8
TIMELINE_BYTES = 400_000
"""The space that timelines may take in a page."""
TITLES = (*(figure.title for figure in FIGURES), "floor of the median latency (ms)")
"""The columns of points: measured figures, and the floor."""
P50, FLOOR = next(place for place, figure in enumerate(FIGURES) if figure.column == "50%"), len(FIGURES)
_CURVE_TICKS = (10, 50, 90, 99, 99.9, 99.99, 99.999)
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon", "triangle-down")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
"""With the six colours, the cycle lengths differ: the first 210 lines have no two alike."""
_CROSS = {"symbol": "x-thin-open", "size": 9, "line": {"width": 2}}
_BAD = "does not count: in no median"
_OF_POINTS = ("figure", "value", "low", "high", "repetitions", "rows", "counts")
_SCALES = (("linear", "linear"), ("log", "logarithmic"))
_MEDIANS = f"Points are medians over repetitions; bars {INTERVAL}."
_EVENT_DASHES = {"struck": "dash", "undone": "dot", "noticed": "dashdot"}


@dataclass(frozen=True, slots=True)
class Choice:
    """A select element above a figure: its options as (value, text), and the value at first."""

    name: str
    label: str
    options: Sequence[tuple[object, str]]
    value: object


_SCALE = Choice("scale", "Latency scale", _SCALES, "linear")


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure in a section of the page. ``left_out``: the things it does not show, counted.

    ``drawing``: ``traces`` and ``layout`` of Plotly, the ``columns`` of the numbers behind it and the ``name`` that a
    saved file gets. An item with ``when`` is shown where these choices have these values.
    """

    section: str
    title: str
    caption: str
    choices: Sequence[Choice]
    left_out: Sequence[str]
    drawing: Mapping[str, Any]


@dataclass(frozen=True)
class Points:
    """The data of the figures: a point for each cell, then one for each row that does not count.

    ``columns``: label, repetitions and rows of each point; title, median, low and high for each of `TITLES`.
    ``singles``: the points of rows that do not count, by cell.
    """

    columns: dict[str, list[Any]]
    singles: dict[int, list[int]]

    def has(self, column: int, point: int) -> bool:
        """Whether the point or a single row of its cell has a value."""
        medians = self.columns["median"][column]
        return any(medians[number] is not None for number in (point, *self.singles.get(point, ())))


def points_of(rows: Rows, cells: Sequence[Cell], notes: list[str]) -> Points:
    """Median and interval of each figure of each cell, and the values of rows that do not count."""
    measured = [*figures_of(rows).values(), [scaled(value, 1000) for value in rows.values("Floor_50%_s")]]
    points: list[tuple[str, int | None, int, list[Spread | None]]] = []
    for cell in cells:
        spreads = [spread_of(of, cell.repetitions) for of in measured]
        points.append((cell.label or "all rows", len(cell.repetitions), len(cell.good), spreads))
    singles: dict[int, list[int]] = {}
    more = 0
    for place, number in ((place, number) for place, cell in enumerate(cells) for number in cell.bad):
        spreads = [*(spread_of(of, [[number]]) for of in measured[:FLOOR]), None]
        if any(spreads) and len(points) - len(cells) == MOST_SINGLES:
            more += 1
        elif any(spreads):
            singles.setdefault(place, []).append(len(points))
            points.append((f"{points[place][0]}: {rows.why[number][:200]}", None, 1, spreads))
    if more:
        notes.append(f"the figures lack {more:,} of the rows that do not count")
    columns: dict[str, list[Any]] = {"title": [*TITLES]}
    columns |= {name: [point[at] for point in points] for at, name in enumerate(("label", "repetitions", "rows"))}
    by_figure = [[point[-1][column] for point in points] for column in range(len(TITLES))]
    for name in ("median", "low", "high"):
        columns[name] = [[spread and rounded(getattr(spread, name)) for spread in of] for of in by_figure]
    for name in ("low", "high"):
        columns[name][FLOOR] = [None] * len(points)
    return Points(columns, singles)


def figures(
    rows: Rows, cells: Sequence[Cell], runs: Runs, points: Points, notes: Sequence[str], x_scale: XScale
) -> list[Figure]:
    """Every figure of the page in its order; ``notes``: what all of them leave out."""
    table = Table(rows.varied, cells, rows.varied_with)
    grids = table.grids()
    found = [_lines(lines, points, x_scale) for lines in table.lines()]
    for place, grid in enumerate(grids[:_MOST_GRIDS], start=1):
        more = count(len(grids) - _MOST_GRIDS, "more pair", " of axes") if place == _MOST_GRIDS else ""
        found.append(_grid(grid, points, more))
    found += _curves(rows, cells, runs)
    pairs = table.pairs()
    found += [_pairs(pairs, points, len(table.reads()))] if pairs else []
    found += [*_floors(points, len(cells)), *_timelines(rows, cells, runs)]
    return [replace(one, left_out=[words for words in (*one.left_out, *notes) if words]) for one in found]


def count(number: int, what: str, why: str = "") -> str:
    """A number of things in words; "" for none."""
    return f"{number:,} {what}{'s' if number > 1 else ''}{why}" if number > 0 else ""


def rounded(value: float | None, digits: int = 4) -> float | None:
    """A value as the page holds it."""
    return None if value is None else round(value, digits)


def _style(order: int) -> dict[str, Any]:
    """The look of a line by its number: colour, dash and marker alone each distinguish lines."""
    line = {"dash": _DASHES[order % len(_DASHES)], "width": 2}
    return {"order": order, "line": line, "marker": {"symbol": _SYMBOLS[order % len(_SYMBOLS)], "size": 8}}


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, **more}


def _axis_of(axis: Axis) -> dict[str, Any]:
    if axis.numbers is None:
        return _axis(axis.title, type="category", categoryorder="array", categoryarray=axis.ticks)
    ticks = {"tickvals": axis.numbers, "ticktext": axis.ticks} if axis.exact_ticks else {}
    return _axis(axis.title, scale="x" if axis.positive else None, **ticks)


def _show_choice(noun: str, number: int) -> list[Choice]:
    options = (("first", f"the first {_MOST_SHOWN}, others by the legend"), ("all", "all"))
    return [Choice("show", f"{noun} ({number})", options, "first")] if number > _MOST_SHOWN else []


def _figure_choice(points: Points, word: str, first: int) -> Choice:
    """Of the figures from the ``first`` on, those that any point has; at first a latency."""
    options = [
        (place, figure.short)
        for place, figure in enumerate(FIGURES)
        if place >= first and (place == 0 or any(value is not None for value in points.columns["median"][place]))
    ]
    value = next((place for place, _ in options if place), P50 if first else 0)
    return Choice("figure", word, options or [(P50, FIGURES[P50].short)], value)


def _together(names: Sequence[str]) -> str:
    words = ", ".join(label(name) for name in names)
    return f" but columns that are configured together with its axes or follow from them: {words}" if names else ""


def _medians(points: Points) -> str:
    return f"{_MEDIANS} A cross is a single row that does not count, in no median." if points.singles else _MEDIANS


def _crossed(points: Points, traces: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The traces, each followed by crosses of the single rows of its cells, and at the end an entry of the legend."""
    found: list[Mapping[str, Any]] = []
    for trace in traces:
        found.append(trace)
        cells = zip(trace["at"], trace["of"], strict=True)
        if singles := [(at, single) for at, cell in cells for single in points.singles.get(cell, ())]:
            at, of = zip(*singles, strict=True)
            found.append({**trace, "mode": "markers", "at": at, "of": of, "marker": _CROSS, "showlegend": False})
    if len(found) > len(traces):
        found.append({"x": [None], "y": [None], "name": _BAD, "mode": "markers", "marker": _CROSS, "colour": "muted"})
    return found


def _lines(lines: Lines, points: Points, x_scale: XScale) -> Figure:
    axis, traces = lines.axis, list[dict[str, Any]]()
    for order, line in enumerate(lines.lines):
        at, of = zip(*line.points, strict=True)
        name = line.label or "all"
        for figure, suffix in ((0, ""), ("figure", "2")):
            trace = {"name": name, "legendgroup": name, "showlegend": not suffix, "mode": "lines+markers"}
            trace |= {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "figure": figure, **_style(order)}
            traces.append({**trace, "at": [(axis.numbers or axis.ticks)[place] for place in at], "of": of})
    layout = {
        "height": 400,
        "grid": {"rows": 1, "columns": 2, "pattern": "independent", "xgap": 0.14, "ygap": 0.2},
        "xaxis": _axis_of(axis),
        "xaxis2": _axis_of(axis),
        "yaxis": _axis(TITLES[0], rangemode="tozero"),
        "yaxis2": {"figure": "figure", "scale": "scale", "rangemode": "tozero"},
    }
    choices = [_figure_choice(points, "Latency", 1), _SCALE]
    choices += [Choice("x", "Horizontal scale", _SCALES, x_scale)] if axis.positive else []
    choices += _show_choice("Lines", len(lines.lines))
    used = [cell for line in lines.lines for _, cell in line.points]
    left_out = [
        count(lines.left_out, "more line"),
        count(lines.alone, "configuration", " without another one that differs in this axis alone"),
        count(lines.without, "configuration", " without this axis"),
    ]
    for column, one in enumerate(FIGURES):
        missing = sum(not points.has(column, cell) for cell in used)
        # A figure that no cell has is not drawn and cannot be chosen.
        if missing < len(used) or one.column == RATE:
            left_out.append(count(missing, "configuration", f" without a value of {one.short}"))
    columns = [axis.title, "line", *_OF_POINTS]
    return Figure(
        "axes",
        f"Throughput and latency against {axis.title}",
        f"Nothing else varies along a line{_together(lines.together)}. {_medians(points)}",
        choices,
        left_out,
        {"name": "axis", "columns": columns, "traces": _crossed(points, traces), "layout": layout},
    )


def _grid(grid: Grid, points: Points, more: str) -> Figure:
    several = len(grid.panels) > 1
    traces = [
        {"type": "heatmap", "x": grid.x.ticks, "y": grid.y.ticks, "of": cells, "figure": "figure"}
        | ({"when": {"panel": str(place)}} if several else {})
        for place, (_, cells) in enumerate(grid.panels)
    ]
    layout = {
        "height": 160 + 44 * len(grid.y.ticks),
        "xaxis": _axis(grid.x.title, type="category"),
        "yaxis": _axis(grid.y.title, type="category"),
    }
    choices = [_figure_choice(points, "Figure", 0)]
    if several:
        choices.append(Choice("panel", "Of", [(place, label) for place, (label, _) in enumerate(grid.panels)], 0))
    title = f"{grid.x.title} and {grid.y.title}"
    columns = [grid.x.title, grid.y.title, *_OF_POINTS]
    return Figure(
        "grids",
        title[:1].upper() + title[1:],
        f"Each field is the median of one configuration{_together(grid.together)}. A field without a number was not "
        "measured, or none of its rows counts.",
        choices,
        [
            count(grid.left_out, "more map", " of these axes"),
            count(grid.outside, "configuration", " outside of these maps"),
            more,
        ],
        {"name": "grid", "columns": columns, "traces": traces, "layout": layout},
    )


def _curves(rows: Rows, cells: Sequence[Cell], runs: Runs) -> Iterator[Figure]:
    """The median curve of each cell over the repetitions that count; where none does, over the others, marked so.

    Each point is of the same rows: of histograms where all of them have one, and where all have the percentage.
    """
    columns = [[scaled(value, 1000) for value in rows.values(f"{percent}%")] for percent in PERCENTS]
    known = {number: one.curve_ms for number, one in runs.details.items() if one.curve_ms is not None}
    found: list[tuple[Cell, list[float | None], list[Any]]] = []
    for cell in cells:
        numbers = cell.good or [n for n in cell.bad if n in known or any(of[n] is not None for of in columns)]
        repetitions = repetitions_of(rows, numbers)
        source = "histograms" if all(number in known for number in numbers) else "columns"
        at: list[float | None] = []
        for place, of in enumerate(columns):
            values = {number: known[number][place] if source == "histograms" else of[number] for number in numbers}
            spread = None if None in values.values() else spread_of(values, repetitions)
            at.append(None if spread is None else rounded(spread.median))
        if sum(value is not None for value in at) > 1:
            found.append((cell, at, [len(repetitions), len(numbers), "yes" if cell.good else "no", source]))
    found.sort(key=lambda curve: not curve[0].good)
    shown = found[:_MOST_CURVES]
    if not shown:
        return
    spread_out = [round(100 / (100 - percent), 4) for percent in PERCENTS]
    traces = []
    for order, (cell, ms, each) in enumerate(shown):
        name = (cell.label or "all rows") + ("" if cell.good else " (does not count)")
        trace = {"name": name, "mode": "lines+markers", "x": spread_out, "y": ms, "connectgaps": True, "each": each}
        trace |= {"text": [f"{percent} %" for percent in PERCENTS], "hover": "%{text}: %{y:.3~f} ms", **_style(order)}
        traces.append(trace if cell.good else {**trace, "marker": _CROSS})
    ticks = [place for place, p in enumerate(PERCENTS) if p in _CURVE_TICKS and any(ms[place] for _, ms, _ in shown)]
    axis = _axis("share of requests, by the logarithm of 1 / (1 - share)", type="log")
    axis |= {"tickvals": [spread_out[at] for at in ticks], "ticktext": [f"{PERCENTS[at]} %" for at in ticks]}
    layout = {
        "height": 460 + 4 * min(len(shown), 24),
        "xaxis": axis,
        "yaxis": _axis("latency (ms)", scale="scale", rangemode="tozero"),
    }
    names = ["percent", "configuration", "figure", "value", "repetitions", "rows", "counts", "from"]
    yield Figure(
        "curves",
        "Latency by percentile",
        "Half of all requests were at or below the curve at 50 %, all but one in a thousand at 99.9 %: the axis is "
        "spread out towards the slowest, as wrk2 does. Each curve is the median over the repetitions of a "
        "configuration, at each percentage for itself; what any of its rows has too few requests for is left out.",
        [_SCALE, *_show_choice("Curves", len(shown))],
        [
            count(len(cells) - len(found), "configuration", " with fewer than two percentiles"),
            count(len(found) - _MOST_CURVES, "more curve"),
        ],
        {"name": "percentiles", "columns": names, "traces": traces, "layout": layout},
    )


def _beside(labels: Sequence[str], figure: object) -> dict[str, Any]:
    """The layout of a figure with one line of the picture for each label, from top to bottom."""
    axis = {"figure": figure, "rangemode": "tozero"}
    return {"height": 130, "xaxis": axis, "yaxis": {"labels": labels, "range": [-0.7, len(labels) - 0.3]}}


def _markers(name: str, order: int, symbol: str, of: Sequence[int], figure: object) -> dict[str, Any]:
    marker = {"symbol": symbol, "size": 16 if symbol == "line-ns-open" else 10}
    trace = {"name": name, "mode": "markers", "along": "x", "figure": figure, "order": order, "marker": marker}
    return {**trace, "at": [*range(len(of) - 1, -1, -1)], "of": of}


def _pairs(pairs: Sequence[tuple[str, int, int]], points: Points, reads: int) -> Figure:
    labels, linearizable, serializable = zip(*pairs[:_MOST_PAIRS], strict=True)
    kinds = (("linearizable", "circle", linearizable), ("serializable", "diamond-open", serializable))
    traces = [_markers(name, order, symbol, of, "figure") for order, (name, symbol, of) in enumerate(kinds)]
    return Figure(
        "pairs",
        "The same reads, linearizable and serializable",
        f"A linearizable read has a quorum agree, a serializable one is answered by one member alone. "
        f"{_medians(points)}",
        [_figure_choice(points, "Figure", 0)],
        [
            count(len(pairs) - _MOST_PAIRS, "more pair"),
            count(reads - 2 * len(pairs), "configuration", " of reads without its counterpart"),
        ],
        {
            "name": "consistency",
            "columns": ["reads", "consistency", *_OF_POINTS],
            "traces": _crossed(points, traces),
            "layout": _beside(labels, "figure"),
        },
    )


def _floors(points: Points, cells: int) -> Iterator[Figure]:
    found = [cell for cell in range(cells) if points.columns["median"][FLOOR][cell] is not None]
    shown = found[:_MOST_FLOORS]
    if shown:
        yield Figure(
            "floors",
            "Median latency beside its floor",
            "The floor is the least median latency that links, disks and the store's protocol allow in an unloaded "
            f"system; the rest is CPU time, waiting, windows and losses. {_MEDIANS}",
            [],
            [
                count(cells - len(found), "configuration", " without a floor"),
                count(len(found) - _MOST_FLOORS, "more configuration", " with a floor"),
            ],
            {
                "name": "floor",
                "columns": ["configuration", "series", *_OF_POINTS],
                "traces": [
                    _markers("measured", 0, "circle", shown, P50),
                    _markers("floor", 1, "line-ns-open", shown, FLOOR),
                ],
                "layout": _beside([points.columns["label"][cell] for cell in shown], P50),
            },
        )


def _timelines(rows: Rows, cells: Sequence[Cell], runs: Runs) -> Iterator[Figure]:
    """Timelines of rows: those with events first, then the first of each cell, then as many as there is space for.

    Of those without events, the ones that show a course come first, and of these the ones of rows that count.
    """
    first = {min((*cell.good, *cell.bad)) for cell in cells}
    known = [(number, details.timeline) for number, details in runs.details.items() if details.timeline]
    known.sort(key=lambda item: (not item[1].events, item[0] not in first, item[0]))
    found: list[tuple[int, Timeline]] = []
    used = 0
    for number, timeline in known:
        used += len(json.dumps([_series(timeline), timeline.events and _marks(timeline)], separators=(",", ":")))
        if used > TIMELINE_BYTES and found:
            break
        found.append((number, timeline))
    if not found:
        return
    found.sort(key=lambda item: (not item[1].events, len(item[1].steps) == 1, bool(rows.why[item[0]])))
    names, repetitions, files, run_ids = map(rows.values, ("Scenario", "Repetition", FILE, "RunId"))
    options = []
    items: dict[str, list[dict[str, Any]]] = {"traces": [], "shapes": [], "annotations": [], "notes": []}
    for place, (number, timeline) in enumerate(found):
        why = rows.why[number]
        words = f"{names[number]}, repetition {text(repetitions[number])}, {files[number]}, run {run_ids[number]}"
        options.append((place, ("\u00d7 " if why else "") + words))
        events = "; ".join(f"{text(round(event.at_s, 3))} s: {event.text}" for event in timeline.events)
        note = " ".join(filter(None, [f"This row does not count: {why}." if why else "", events]))
        of_row = {"traces": _series(timeline), **_marks(timeline), "notes": [{"text": note}] if note else []}
        for kind, own in of_row.items():
            items[kind] += [{**item, "when": {"row": str(place)}} for item in own]
    layout = {
        "height": 540,
        "grid": {"rows": 2, "columns": 1, "subplots": [["xy"], ["xy2"]], "ygap": 0.2},
        "margin": {"t": 84 if items["annotations"] else 12},
        "shapes": items["shapes"],
        "annotations": items["annotations"],
        "xaxis": _axis("seconds since the start of the load", anchor="y2", rangemode="tozero"),
        "yaxis": _axis("requests/s", rangemode="tozero"),
        "yaxis2": _axis("latency (ms)", scale="scale", rangemode="tozero"),
    }
    columns = ["second", "series", "figure", "value"]
    yield Figure(
        "timelines",
        "A load, step by step",
        "Requests that succeeded and that did not, and the latencies of the former, from the start of the load. "
        "Vertical lines: what was done (dashed), undone (dotted) or noticed (dash-dotted).",
        [Choice("row", "Row", options, 0), _SCALE],
        [
            count(len(known) - len(found), "more timeline", ": see scenarios.jsonl"),
            count(len(rows) - len(known), "row", " without a timeline"),
        ],
        {"name": "timeline", "columns": columns, "layout": layout, "traces": items["traces"], "notes": items["notes"]},
    )


def _series(timeline: Timeline) -> list[dict[str, Any]]:
    """The lines of a timeline that have a value."""
    step_s, steps = timeline.step_s, timeline.steps
    counts = ([step["ok"] for step in steps], [step["failed"] + step["unknown"] for step in steps])
    per_second = [[rounded(count / step_s, 3) for count in of] for of in counts]
    latencies = [[rounded(scaled(step[name], 1000), 3) for step in steps] for name in ("p50_s", "p99_s")]
    names, dashes = ("succeeded", "failed or unknown", "p50", "p99"), ("solid", "dot", "solid", "dash")
    found = []
    for order, (name, values, dash) in enumerate(zip(names, (*per_second, *latencies), dashes, strict=True)):
        if not any(values) and name in ("failed or unknown", "p99"):
            continue
        latency = order > 1
        mode = "lines+markers" if latency or len(values) == 1 else "lines"
        trace = {"name": name, "mode": mode, "x0": 0, "dx": step_s, "y": values, **_style(order)}
        trace |= {"line": {"dash": dash, "width": 2, "shape": "linear" if latency else "hv"}, "xaxis": "x"}
        trace["marker"] |= {"size": 3 if len(values) > 100 else 5}
        trace["hover"] = f"%{{x:.1f}} s: %{{y:,.4~r}} {'ms' if latency else 'requests/s'}"
        found.append(trace | {"yaxis": "y2" if latency else "y"})
    return found


def _marks(timeline: Timeline) -> dict[str, list[dict[str, Any]]]:
    """A vertical line and a text for each event."""
    shapes = []
    annotations = []
    for order, event in enumerate(timeline.events):
        at = round(event.at_s, 3)
        line = {"dash": _EVENT_DASHES[event.kind], "width": 1.5}
        shape = {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": line}
        shapes.append({**shape, "colour": "bad" if event.kind == "struck" else "muted"})
        annotation = {"x": at, "yref": "paper", "y": 1.02 + 0.06 * (order % 3), "text": event.text[:60]}
        annotations.append({**annotation, "yanchor": "bottom", "xanchor": "left", "showarrow": False})
    return {"shapes": shapes, "annotations": annotations}
