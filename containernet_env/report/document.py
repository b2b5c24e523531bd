"""Everything that the report page shows, as plain data.

A page that opens at once cannot hold everything: the document counts what is left out of it. Figures, medians and
intervals are always worked out from all rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from containernet_env.base.clock import utc_now
from containernet_env.model.names import listed, plain, synonyms
from containernet_env.report.axes import XScale, rank
from containernet_env.report.figures import Figure, Points, figures, points_of, rounded
from containernet_env.report.network import NUMBERS, Picture, graph, matrix, matrix_of
from containernet_env.report.rows import (
    DILATION,
    FIGURES,
    FILE,
    VARIANT,
    Cell,
    Rows,
    cells_of,
    figures_of,
    label,
    phrase,
    shared,
    text,
)
from containernet_env.report.runs import Network, Runs, RunSummary

MOST_CELLS, MOST_ROWS, MOST_BAD, MOST_NETWORKS = 2000, 2000, 200, 4
_MOST_RUNS, _MOST_VALUES = 50, 20
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


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table of rows: its title, the plain names that the filter takes for it, and its values."""

    title: str
    names: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NetworkFigures:
    """A network that runs had: its pictures, and the numbers behind them under the headings ``columns``."""

    title: str
    runs: str
    graph: Picture
    matrix: Picture
    columns: tuple[str, ...]
    numbers: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Document:
    """``counts`` has numbers of rows; ``points`` are what ``figures`` draw; ``table`` has the rows."""

    title: str
    files: tuple[str, ...]
    made: str
    counts: dict[str, int]
    notes: tuple[str, ...]
    lacks: tuple[str, ...]
    measured: tuple[tuple[str, str], ...]
    constant: tuple[tuple[str, str], ...]
    varied: tuple[tuple[str, str], ...]
    runs: tuple[RunSummary, ...]
    networks: tuple[NetworkFigures, ...]
    bad: tuple[tuple[str, ...], ...]
    points: Points
    figures: tuple[Figure, ...]
    table: tuple[Column, ...]


def document_of(rows: Rows, runs: Runs, title: str | None = None, x_scale: XScale = "linear") -> Document:
    """The document about some rows and the run directories that were found for them; ``x_scale``: as it opens."""
    notes = [*rows.notes, *runs.notes]
    # A sweep measures in random order: the page shows configurations in the order of their values.
    every = sorted(cells_of(rows), key=lambda cell: [*map(rank, cell.values.values())])
    cells = every[:MOST_CELLS]
    of_all: list[str] = []
    if len(every) > len(cells):
        of_all.append(f"the figures show the first {len(cells):,} of {len(every):,} configurations")
    points = points_of(rows, cells, of_all)
    drawn = figures(rows, cells, runs, points, of_all, x_scale)
    bad = [number for number, why in enumerate(rows.why) if why]
    failed = sum(rows.why[number].startswith("failed") for number in bad)
    if len(rows) > MOST_ROWS:
        notes.append(f"the table holds the first {MOST_ROWS:,} of {len(rows):,} rows; figures are of all")
    notes += of_all
    if len(bad) > MOST_BAD:
        notes.append(f"{MOST_BAD} of {len(bad):,} rows that do not count are listed with their reasons")
    if len(runs.summaries) > _MOST_RUNS:
        notes.append(f"{_MOST_RUNS} of {len(runs.summaries):,} runs are listed")
    if len(runs.networks) > MOST_NETWORKS:
        notes.append(f"{MOST_NETWORKS} of {len(runs.networks):,} networks are drawn")
    return Document(
        title=title or ", ".join(path.name for path in rows.files),
        files=tuple(map(str, rows.files)),
        made=utc_now(),
        counts={
            "rows": len(rows),
            "count": len(rows) - len(bad),
            "failed": failed,
            "not valid": len(bad) - failed,
            "configurations": len(every),
        },
        notes=tuple(notes),
        lacks=tuple(_lacks(rows, runs, every, {figure.section for figure in drawn})),
        measured=tuple(_measured(rows, runs)),
        constant=tuple((label(name), _value(name, value)) for name, value in rows.constant.items()),
        varied=tuple(_varied(rows)),
        runs=tuple(runs.summaries[:_MOST_RUNS]),
        networks=tuple(map(_network, runs.networks[:MOST_NETWORKS])),
        bad=tuple(_bad(rows, runs, bad[:MOST_BAD])),
        points=points,
        figures=tuple(drawn),
        table=tuple(_table(rows)),
    )


def _network(network: Network) -> NetworkFigures:
    made = matrix_of(network.topology, network.measured_ns)
    switches, hosts = network.topology.switches, len(network.topology.hosts)
    where = f"on {len(switches)} switches" if len(switches) > 1 else f"on {switches[0]}"
    runs = f"Of the run{'s' if len(network.runs) > 1 else ''} {listed(network.runs, _MOST_VALUES)}."
    return NetworkFigures(
        f"{hosts} hosts {where}", runs, graph(network.topology), matrix(made), NUMBERS, tuple(made.numbers())
    )


def _value(name: str, value: object) -> str:
    return phrase(name, value) if name == "Consistency" else text(value)


def _table(rows: Rows) -> Iterator[Column]:
    """The columns that have a value in any row; the measured figures stand beside the names."""
    first = [FILE] if len(rows.files) > 1 else []
    first += ["Scenario", "Repetition"] if not rows.seed_only else []
    varied = [name for name in (*rows.varied, *rows.varied_with) if name not in (VARIANT, *first)]
    first += varied if rows.seed_only else []
    last = (*(() if rows.seed_only else varied), *(name for name in _TABLE_END if name not in first))
    found = {name: (label(name), rows.values(name)) for name in first}
    found["counts"] = ("counts", [why or "yes" for why in rows.why])
    for figure, values in zip(FIGURES, figures_of(rows).values(), strict=True):
        title = f"{figure.short} ({figure.unit})" if figure.unit else figure.short
        found[figure.column] = (title, [rounded(value) for value in values])
    found |= {name: (label(name), rows.values(name)) for name in last}
    for name, (title, values) in found.items():
        if any(value is not None for value in values):
            names = tuple(plain(other) for other in synonyms(name))
            # With all their digits.
            yield Column(title, names, tuple(text(value, "") for value in values[:MOST_ROWS]))


def _measured(rows: Rows, runs: Runs) -> list[tuple[str, str]]:
    """Machines and configuration: each fact with its values in lines, and how many rows or runs have each."""
    found = [("Rows of", _counted([text(value) for value in rows.values(FILE)], len(rows), "row"))]
    of_runs = {name for run in runs.summaries for name in run.facts}
    for column, name in _MEASURED_ON:
        values = [text(value) for value in rows.values(column) if value is not None]
        if values and not (name in of_runs and runs.missing == 0):
            found.append((name, _counted(values, len(rows), "row")))
    for name in dict.fromkeys(name for run in runs.summaries for name in run.facts):
        values = [run.facts[name] for run in runs.summaries if name in run.facts]
        found.append((name, _counted(values, len(runs.summaries), "run")))
    return found


def _counted(values: Sequence[str], total: int, noun: str) -> str:
    """Each value once, with how many have it where these are not all."""
    counts = Counter(values)
    words = [
        value if count == total else f"{value} ({count:,} {noun}{'s' if count > 1 else ''})"
        for value, count in counts.most_common(_MOST_VALUES)
    ]
    words += [f"and {len(counts) - _MOST_VALUES:,} more"] if len(counts) > _MOST_VALUES else []
    return "\n".join(words)


def _varied(rows: Rows) -> list[tuple[str, str]]:
    found = []
    for name in (*rows.varied, *rows.varied_with):
        values = sorted({text(value) for value in rows.values(name) if value is not None}, key=rank)
        of = "other columns" if name == DILATION else "the network"
        follows = f", which follows from {of}" if name in rows.following else ""
        shown = listed([_value(name, value) for value in values if value], _MOST_VALUES)
        found.append((f"{label(name)}{follows}", shown))
    return found


def _bad(rows: Rows, runs: Runs, numbers: Sequence[int]) -> list[tuple[str, ...]]:
    """Of some rows: scenario, repetition, run, why they do not count, and their findings in words."""
    columns = [rows.values(name) for name in ("Scenario", "Repetition", "RunId")]
    found = []
    for number in numbers:
        known = runs.details.get(number)
        findings = "; ".join(known.findings) if known is not None else ""
        found.append((*(text(column[number]) for column in columns), rows.why[number], findings))
    return found


def _lacks(rows: Rows, runs: Runs, cells: Sequence[Cell], sections: Set[str]) -> list[str]:
    if not len(rows):
        return ["There are no rows yet."]
    found = []
    if rows.seed_only:
        found.append(
            "The file has the seed's 20 columns alone. It does not say which rows failed or are not valid, so all of "
            "them count; nor which member served, what links and limits were like, or what machine and program "
            "measured. Rows that agree in its columns are taken for repetitions of each other. There are no p99 and "
            "p99.9, no floors and no timelines."
        )
    elif runs.missing:
        found.append(
            f"For {runs.missing:,} of the runs no run directory lies beside the results file: of these there are no "
            "timelines, no findings in words, and percentile curves from the columns alone."
        )
    if words := shared(cells):
        found.append(f"{words}.")
    if all(len(cell.repetitions) < 2 for cell in cells):
        found.append("No configuration has two repetitions that count: there are no intervals.")
    if not any(cell.good for cell in cells):
        found.append("No row counts: there are no medians. The figures show the measured values all the same, marked.")
    if VARIANT in rows.varied:
        variants = len({value for value in rows.values(VARIANT) if value})
        found.append(
            f"{variants:,} configurations differ in settings that no column and no sweep's journal beside the results "
            "file has: names and hashes of their files distinguish them, and they are on no axis."
        )
    if "axes" not in sections:
        found.append("No axis varies while everything else stays the same: there is no figure over an axis.")
    if "grids" not in sections:
        found.append("No two axes vary independently of each other: there is no heat map.")
    if "pairs" not in sections:
        found.append("No reads were measured both linearizable and serializable, and equal in everything else.")
    if "floors" not in sections and not rows.seed_only:
        found.append("No row that counts has a floor.")
    if runs.summaries and not runs.networks:
        found.append("No run directory has a topology of its own: there are no figures of a network.")
    if "timelines" not in sections and not rows.seed_only and not runs.missing:
        found.append("No run directory has a timeline of these rows.")
    return found
