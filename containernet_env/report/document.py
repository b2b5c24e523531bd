"""Everything that the page shows, as plain data: no HTML, no drawing.

What is too much for a page that opens at once is left out of it, and the document says so: no figure, no median and no
interval is worked out from fewer rows for that.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from containernet_env.base.clock import utc_now
from containernet_env.base.release import VERSION
from containernet_env.model.names import plain, synonyms
from containernet_env.report.axes import Axis, Grid, Lines, Table, XScale, rank
from containernet_env.report.cells import INTERVAL, Cell, cells_of, figures_of, repetitions_of, shared, spread_of
from containernet_env.report.names import FIGURES, RATE, label, phrase, scaled, text
from containernet_env.report.rows import FILE, VARIANT, Rows
from containernet_env.report.runs import PERCENTS, Runs, RunTold, Timeline
from containernet_env.results.columns import BY_NAME

MOST_CELLS, MOST_ROWS, MOST_BAD = 2000, 2000, 200
_MOST_GRIDS, _MOST_PAIRS, _MOST_CURVES, _MOST_FLOORS, _MOST_RUNS, _MOST_VALUES = 4, 60, 60, 40, 50, 20
TIMELINE_BYTES = 400_000
"""What timelines may take in a page."""
_COLUMN_PERCENTS = (10, 25, 50, 75, 90, 95, 99, 99.9)
_MEASURED_ON = (
    ("Machine", "Name of the machine"),
    ("CpuModel", "Machine"),
    ("Cores", "Cores"),
    ("Kernel", "Kernel"),
    ("Commit", "Commit of the program"),
    ("Store", "Store"),
    ("StoreVersion", "Version of the store"),
    ("Config", "Topology file"),
    ("Hosts", "Hosts"),
    ("Links", "Links"),
    ("CongestionControl", "Congestion control"),
    ("NetworkProof", "Proof of the network"),
    ("Realtime", "Real-time priority of the link emulator"),
    ("ClusterSize", "Members"),
    ("TestType", "Types of requests"),
)
_TABLE_END = (
    "Floor_50%_s", "AboveFloor_50%_s", "Errors", "Unknown", "LongestGap_s", "EventsDone", "Leader", "Cluster",
    "Reused", "Machine", "Attempt", "Timestamp", "RunId",
)  # fmt: skip


@dataclass(frozen=True)
class Document:
    """``data`` is what the figures are drawn from, and the rows; the rest is text. ``counts`` has numbers of rows.

    ``left_out``: by kind of figure and its place among these, what it does not show, counted.
    """

    title: str
    files: tuple[str, ...]
    made: str
    version: str
    counts: dict[str, int]
    interval: str
    notes: tuple[str, ...]
    lacks: tuple[str, ...]
    measured: tuple[tuple[str, tuple[str, ...]], ...]
    constant: tuple[tuple[str, str], ...]
    varied: tuple[tuple[str, str], ...]
    runs: tuple[RunTold, ...]
    bad: tuple[tuple[str, ...], ...]
    left_out: dict[tuple[str, int], list[str]]
    data: dict[str, Any]


def document_of(rows: Rows, runs: Runs, title: str | None = None, x_scale: XScale = "linear") -> Document:
    """The document about some rows and the run directories that were found for them; ``x_scale``: as it opens."""
    notes = [*rows.notes, *runs.notes]
    # A sweep measures in random order: what is read is in the order of its values.
    every = sorted(cells_of(rows), key=lambda cell: [rank(value) for value in cell.key])
    cells = every[:MOST_CELLS]
    of_all: list[str] = []
    if len(every) > len(cells):
        of_all.append(f"the figures show the first {len(cells):,} of {len(every):,} configurations")
    table = Table(rows.varied, cells, rows.varied_with)
    all_lines, grids, pairs = table.lines(), table.grids(), table.pairs()
    curves_lack: list[str] = []
    floors_lack: list[str] = []
    timelines_lack: list[str] = []
    data = {
        "figures": [{"name": figure.short, "title": figure.title} for figure in FIGURES],
        "interval": INTERVAL,
        "x_scale": x_scale,
        **_cells(rows, cells, of_all),
        "lines": [
            {
                "axis": _axis(lines.axis),
                "lines": [{"label": line.label, "points": line.points} for line in lines.lines],
                "together": [label(name) for name in lines.together],
            }
            for lines in all_lines
        ],
        "grids": [
            {
                "x": _axis(grid.x),
                "y": _axis(grid.y),
                "panels": [{"label": panel.label, "cells": panel.cells} for panel in grid.panels],
                "together": [label(name) for name in grid.together],
            }
            for grid in grids[:_MOST_GRIDS]
        ],
        "pairs": [
            {"label": pair.label, "l": pair.linearizable, "s": pair.serializable} for pair in pairs[:_MOST_PAIRS]
        ],
        "floors": _floors(rows, cells, floors_lack),
        "percents": PERCENTS,
        "curves": _curves(rows, cells, runs, curves_lack),
        "timelines": _timelines(rows, cells, runs, timelines_lack),
        "rows": _table(rows, notes),
    }
    left_out: dict[tuple[str, int], list[str]] = {
        **{("lines", place): _lines_lack(lines, data) for place, lines in enumerate(all_lines)},
        **{("grid", place): _grid_lacks(grid) for place, grid in enumerate(grids[:_MOST_GRIDS])},
        ("pairs", 0): [
            _count(len(pairs) - _MOST_PAIRS, "more pair"),
            _count(len(table.reads()) - 2 * len(pairs), "configuration", " of reads without its counterpart"),
        ],
        ("curves", 0): curves_lack,
        ("floors", 0): floors_lack,
        ("timelines", 0): timelines_lack,
    }
    if len(grids) > _MOST_GRIDS:
        left_out["grid", _MOST_GRIDS - 1].append(_count(len(grids) - _MOST_GRIDS, "more pair", " of axes"))
    notes += of_all
    bad = [number for number, why in enumerate(rows.why) if why]
    failed = sum(rows.why[number].startswith("failed") for number in bad)
    if len(bad) > MOST_BAD:
        notes.append(f"{MOST_BAD} of {len(bad):,} rows that do not count are listed with their reasons")
    if len(runs.told) > _MOST_RUNS:
        notes.append(f"{_MOST_RUNS} of {len(runs.told):,} runs are listed")
    return Document(
        title=title or ", ".join(path.name for path in rows.files),
        files=tuple(map(str, rows.files)),
        made=utc_now(),
        version=VERSION,
        counts={
            "rows": len(rows),
            "count": len(rows) - len(bad),
            "failed": failed,
            "not valid": len(bad) - failed,
            "configurations": len(every),
        },
        interval=INTERVAL,
        notes=tuple(notes),
        lacks=tuple(_lacks(rows, runs, every, data)),
        measured=tuple(_measured(rows, runs)),
        constant=tuple((label(name), phrase_or_text(name, value)) for name, value in rows.constant.items()),
        varied=tuple(_varied(rows)),
        runs=tuple(runs.told[:_MOST_RUNS]),
        bad=tuple(_bad(rows, runs, bad[:MOST_BAD])),
        left_out={figure: [text for text in (*found, *of_all) if text] for figure, found in left_out.items()},
        data=data,
    )


def _lines_lack(lines: Lines, data: dict[str, Any]) -> list[str]:
    """What a figure of lines does not show, in sentences; "" for nothing. So do the others."""
    return [
        _count(lines.left_out, "more line"),
        _count(lines.alone, "configuration", " without another one that differs in this axis alone"),
        _count(lines.without, "configuration", " without this axis"),
        *_without_values(data, [index for line in lines.lines for _, index in line.points]),
    ]


def _grid_lacks(grid: Grid) -> list[str]:
    return [
        _count(grid.left_out, "more map", " of these axes"),
        _count(grid.outside, "configuration", " outside of these maps"),
    ]


def _count(number: int, what: str, why: str = "") -> str:
    return f"{number:,} {what}{'s' if number > 1 else ''}{why}" if number > 0 else ""


def _without_values(data: dict[str, Any], cells: Sequence[int]) -> list[str]:
    """For each measured figure how many of the cells have neither a median nor a single value of it."""
    found = []
    for place, figure in enumerate(FIGURES):
        single = {row[0] for row in data["bad"] if row[1][place] is not None}
        medians = data["cells"]["median"][place]
        missing = sum(medians[index] is None and index not in single for index in cells)
        # Nothing of it is drawn where no cell has it: there is no choice of it either.
        if missing < len(cells) or figure.column == RATE:
            found.append(_count(missing, "configuration", f" without a value of {figure.short}"))
    return found


def phrase_or_text(name: str, value: object) -> str:
    """A value for a table whose other column is its name."""
    return phrase(name, value) if name == "Consistency" else text(value)


def _axis(axis: Axis) -> dict[str, Any]:
    return {"title": axis.title, "ticks": axis.ticks, "numbers": axis.numbers, "positive": axis.positive}


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


def _cells(rows: Rows, cells: Sequence[Cell], notes: list[str]) -> dict[str, Any]:
    """Median and interval of each figure of each cell, and what rows measured that do not count."""
    measured = figures_of(rows)
    columns: dict[str, list[list[float | None]]] = {"median": [], "low": [], "high": []}
    for figure in FIGURES:
        values = measured[figure.column]
        spreads = [cell.spread(values) for cell in cells]
        for name, column in columns.items():
            column.append([None if spread is None else _rounded(getattr(spread, name)) for spread in spreads])
    bad: list[list[Any]] = []
    more = 0
    for index, cell in enumerate(cells):
        for number in cell.bad:
            values_of_row = [_rounded(measured[figure.column][number]) for figure in FIGURES]
            if all(value is None for value in values_of_row):
                continue
            if len(bad) < MOST_ROWS:
                bad.append([index, values_of_row, rows.why[number][:200]])
            else:
                more += 1
    if more:
        notes.append(f"the figures lack {more:,} of the rows that do not count")
    told = [cell.label or "all rows" for cell in cells]
    counts = {"n": [len(cell.repetitions) for cell in cells], "rows": [len(cell.good) for cell in cells]}
    return {"cells": {"label": told, **counts, **columns}, "bad": bad}


def _floors(rows: Rows, cells: Sequence[Cell], lacks: list[str]) -> list[list[Any]]:
    """Cells with a floor: (number of the cell, floor in ms)."""
    floors = [scaled(value, 1000) for value in rows.values("Floor_50%_s")]
    found = []
    for index, cell in enumerate(cells):
        spread = cell.spread(floors)
        if spread is not None:
            found.append([index, _rounded(spread.median)])
    lacks.append(_count(len(cells) - len(found), "configuration", " without a floor"))
    lacks.append(_count(len(found) - _MOST_FLOORS, "more configuration", " with a floor"))
    return found[:_MOST_FLOORS]


def _curves(rows: Rows, cells: Sequence[Cell], runs: Runs, lacks: list[str]) -> list[dict[str, Any]]:
    """For each cell its median curve over repetitions that count; where none does, over the others, marked so.

    Each point is of the same rows: of histograms where all of them have one, and where all have the percentage.
    """
    columns = {p: [scaled(value, 1000) for value in rows.values(f"{p}%")] for p in _COLUMN_PERCENTS}
    found: list[dict[str, Any]] = []
    for index, cell in enumerate(cells):
        numbers = cell.good or [number for number in cell.bad if _has_curve(runs, columns, number)]
        repetitions = repetitions_of(rows, numbers)
        curves = {number: curve for number in numbers if (curve := _curve(runs, number)) is not None}
        source = "histograms" if len(curves) == len(numbers) else "columns"
        at: list[float | None] = []
        for place, percent in enumerate(PERCENTS):
            if source == "histograms":
                values = {number: curve[place] for number, curve in curves.items()}
            else:
                of = columns.get(percent)
                values = {number: None if of is None else of[number] for number in numbers}
            spread = None if None in values.values() else spread_of(values, repetitions)
            at.append(None if spread is None else _rounded(spread.median))
        if sum(value is not None for value in at) > 1:
            n = {"repetitions": len(repetitions), "rows": len(numbers)}
            found.append({"cell": index, "ms": at, "valid": bool(cell.good), "source": source, **n})
    found.sort(key=lambda curve: not curve["valid"])
    lacks.append(_count(len(cells) - len(found), "configuration", " with fewer than two percentiles"))
    lacks.append(_count(len(found) - _MOST_CURVES, "more curve"))
    return found[:_MOST_CURVES]


def _has_curve(runs: Runs, columns: Mapping[float, Sequence[float | None]], number: int) -> bool:
    return _curve(runs, number) is not None or any(values[number] is not None for values in columns.values())


def _curve(runs: Runs, number: int) -> tuple[float | None, ...] | None:
    details = runs.details.get(number)
    return None if details is None else details.curve_ms


def _timelines(rows: Rows, cells: Sequence[Cell], runs: Runs, lacks: list[str]) -> list[dict[str, Any]]:
    """Timelines of rows: those with events first, then the first of each cell, then as many as there is room for.

    Of those without events, the ones that show a course come first, and of these the ones of rows that count.
    """
    first = {cell.rows[0] for cell in cells}
    known = [(number, details.timeline) for number, details in runs.details.items() if details.timeline]
    known.sort(key=lambda item: (not item[1].events, item[0] not in first, item[0]))
    names, repetitions, files = rows.values("Scenario"), rows.values("Repetition"), rows.values(FILE)
    run_ids = rows.values("RunId")
    found: list[dict[str, Any]] = []
    used = 0
    for number, timeline in known:
        told = f"{names[number]}, repetition {text(repetitions[number])}, {files[number]}, run {run_ids[number]}"
        one = {"label": told, "why": rows.why[number], **_timeline(timeline)}
        used += len(json.dumps(one, separators=(",", ":")))
        if used > TIMELINE_BYTES and found:
            break
        found.append(one)
    found.sort(key=lambda one: (not one["events"], len(one["ok"]) == 1, bool(one["why"])))
    lacks.append(_count(len(known) - len(found), "more timeline", ": see scenarios.jsonl"))
    lacks.append(_count(len(rows) - len(known), "row", " without a timeline"))
    return found


def _timeline(timeline: Timeline) -> dict[str, Any]:
    return {
        "step_s": timeline.step_s,
        "ok": timeline.ok,
        "bad": timeline.bad if any(timeline.bad) else [],
        "p50": [_rounded(value, 3) for value in timeline.p50_ms],
        "p99": [_rounded(value, 3) for value in timeline.p99_ms] if any(timeline.p99_ms) else [],
        "events": [[round(event.at_s, 3), event.text, event.kind] for event in timeline.events],
    }


def _table(rows: Rows, notes: list[str]) -> dict[str, Any]:
    """The rows: columns with their titles, and a list of values for each column."""
    names = [FILE] if len(rows.files) > 1 else []
    names += ["Scenario", "Repetition"] if not rows.seed_only else []
    varied = [name for name in (*rows.varied, *rows.varied_with) if name not in (VARIANT, *names)]
    columns: list[dict[str, Any]] = []
    values: list[list[Any]] = []

    def add(name: str, title: str, column: Sequence[Any], numeric: bool) -> None:
        if any(value is not None for value in column):
            columns.append({"title": title, "number": numeric, "names": [plain(other) for other in synonyms(name)]})
            values.append(list(column[:MOST_ROWS]))

    def add_column(name: str) -> None:
        numeric = name in BY_NAME and BY_NAME[name].number
        add(name, label(name), rows.values(name), numeric)

    for name in (*names, *(varied if rows.seed_only else ())):
        add_column(name)
    add("counts", "counts", [why or "yes" for why in rows.why], False)
    for figure in FIGURES:
        found = [_rounded(scaled(value, figure.scale)) for value in rows.values(figure.column)]
        title = f"{figure.short} ({figure.unit})" if figure.unit else figure.short
        add(figure.column, title, found, True)
    for name in (*(() if rows.seed_only else varied), *_TABLE_END):
        if name not in names:
            add_column(name)
    if len(rows) > MOST_ROWS:
        notes.append(f"the table holds the first {MOST_ROWS:,} of {len(rows):,} rows; figures are of all")
    return {"columns": columns, "values": values, "total": len(rows)}


def _measured(rows: Rows, runs: Runs) -> list[tuple[str, tuple[str, ...]]]:
    """What was measured on what: each fact with its values, and of how many rows or runs each is."""
    found = [("Rows of", _counted([text(value) for value in rows.values(FILE)], len(rows), "row"))]
    told = {name for run in runs.told for name in run.facts}
    for column, name in _MEASURED_ON:
        values = [text(value) for value in rows.values(column) if value is not None]
        if values and not (name in told and runs.missing == 0):
            found.append((name, _counted(values, len(rows), "row")))
    for name in dict.fromkeys(name for run in runs.told for name in run.facts):
        values = [run.facts[name] for run in runs.told if name in run.facts]
        found.append((name, _counted(values, len(runs.told), "run")))
    return found


def _counted(values: Sequence[str], total: int, noun: str) -> tuple[str, ...]:
    """Each value once, with how many have it where these are not all."""
    counts = Counter(values)
    words = [
        value if count == total else f"{value} ({count:,} {noun}{'s' if count > 1 else ''})"
        for value, count in counts.most_common(_MOST_VALUES)
    ]
    return (*words, f"and {len(counts) - _MOST_VALUES:,} more") if len(counts) > _MOST_VALUES else tuple(words)


def _varied(rows: Rows) -> list[tuple[str, str]]:
    found = []
    for name in (*rows.varied, *rows.varied_with):
        values = sorted({text(value) for value in rows.values(name) if value is not None}, key=_numbers_first)
        shown = [phrase_or_text(name, value) for value in values[:_MOST_VALUES] if value]
        more = f" and {len(values) - _MOST_VALUES:,} more" if len(values) > _MOST_VALUES else ""
        follows = ", which follows from the network" if name in rows.following else ""
        found.append((f"{label(name)}{follows}", ", ".join(shown) + more))
    return found


def _numbers_first(value: str) -> tuple[int, float, str]:
    try:
        return 0, float(value), value
    except ValueError:
        return 1, 0.0, value


def _bad(rows: Rows, runs: Runs, numbers: Sequence[int]) -> list[tuple[str, ...]]:
    """Of some rows: scenario, repetition, run, why they do not count, and their findings in words."""
    columns = [rows.values(name) for name in ("Scenario", "Repetition", "RunId")]
    found = []
    for number in numbers:
        known = runs.details.get(number)
        findings = "; ".join(known.findings) if known is not None else ""
        found.append((*(text(column[number]) for column in columns), rows.why[number], findings))
    return found


def _lacks(rows: Rows, runs: Runs, cells: Sequence[Cell], data: dict[str, Any]) -> list[str]:
    """What is not in the page, and why."""
    if not len(rows):
        return ["There are no rows yet."]
    found = []
    if rows.seed_only:
        found.append(
            "The file has the seed's 20 columns alone. It does not say which rows failed or are not valid, so all of "
            "them count; nor which member was asked, what links and limits were like, or what machine and program "
            "measured. Rows that agree in its columns are taken for repetitions of each other. There are no p99 and "
            "p99.9, no floors and no timelines."
        )
    elif runs.missing:
        found.append(
            f"For {runs.missing:,} of the runs no run directory lies beside the results file: of these there are no "
            "timelines, no findings in words, and percentile curves from the columns alone."
        )
    if told := shared(cells):
        found.append(f"{told}.")
    if all(len(cell.repetitions) < 2 for cell in cells):
        found.append("No configuration has two repetitions that count: there are no intervals.")
    if not any(cell.good for cell in cells):
        found.append("No row counts: there are no medians. The figures show what was measured all the same, marked.")
    if not data["lines"]:
        found.append("No axis varies while everything else stays the same: there is no figure over an axis.")
    if not data["grids"]:
        found.append("No two axes vary independently of each other: there is no heat map.")
    if not data["pairs"]:
        found.append("No reads were measured both linearizable and serializable, and equal in everything else.")
    if not data["floors"] and not rows.seed_only:
        found.append("No row that counts has a floor.")
    if not data["timelines"] and not rows.seed_only and not runs.missing:
        found.append("No run directory has a timeline of these rows.")
    return found
