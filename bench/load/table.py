"""Medians over the rounds, ratios to etcd's tool, and the Markdown that shows them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.load.measure import Sample
from bench.load.plan import ETCD, OURS
from containernet_env.base.errors import UsageError

BEGIN, END = "<!-- RESULTS -->", "<!-- END OF RESULTS -->"
PROFILE_MARKS = ("<!-- PROFILE -->", "<!-- END OF PROFILE -->")
_MB = 1e6
_MAX_COLUMNS = 120


def medians(samples: Iterable[Sample]) -> dict[str, dict[str, dict[str, float]]]:
    """By cell and tool: the median of each figure, and how many runs it is over."""
    groups: dict[str, dict[str, list[Sample]]] = {}
    for sample in samples:
        groups.setdefault(sample.cell, {}).setdefault(sample.tool, []).append(sample)
    return {cell: {tool: _median(runs) for tool, runs in tools.items()} for cell, tools in groups.items()}


def _median(runs: Sequence[Sample]) -> dict[str, float]:
    p99 = [run.p99_s for run in runs if run.p99_s is not None]
    p50 = [run.p50_s for run in runs if run.p50_s is not None]
    figures = {
        "runs": float(len(runs)),
        "requests": float(runs[0].requests),
        "requests_per_s": median(run.requests_per_s for run in runs),
        "client_cpu_ms_per_1000": median(run.client_cpu_ms_per_1000 for run in runs),
        "client_kernel_ms_per_1000": median(run.client_kernel_ms_per_1000 for run in runs),
        "members_cpu_ms_per_1000": median(run.members_cpu_ms_per_1000 for run in runs),
        "peak_rss_bytes": median(float(run.peak_rss_bytes) for run in runs),
        "wall_s": median(run.wall_s for run in runs),
    }
    return {**figures, **({"p50_s": median(p50)} if p50 else {}), **({"p99_s": median(p99)} if p99 else {})}


def ratios(tools: dict[str, dict[str, float]], tool: str) -> dict[str, float] | None:
    """Each figure of ``tool`` divided by that of etcd's tool; None where either was not measured."""
    if tool not in tools or ETCD not in tools:
        return None
    mine, other = tools[tool], tools[ETCD]
    names = ("requests_per_s", "client_cpu_ms_per_1000", "peak_rss_bytes")
    return {name: mine[name] / other[name] for name in names if other[name] > 0}


def markdown(samples: Sequence[Sample], context: Sequence[str], processors: int) -> str:
    """The table of all cells, one row for each tool, below the lines of ``context``; then the aims and the ceiling."""
    lines = [*context, ""]
    lines += ["| load (conns/clients on members) | requests | tool | requests/s | x | client CPU | x | members CPU "]
    lines[-1] += "| peak RSS | x | p50 | p99 |"
    lines += ["| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for cell, tools in medians(samples).items():
        for tool, figures in sorted(tools.items(), key=lambda item: (item[0] == ETCD, item[0] != OURS)):
            against = (ratios(tools, tool) if tool != ETCD else None) or {}
            cells = [
                cell,
                f"{figures['requests']:,.0f}",
                tool,
                f"{figures['requests_per_s']:,.0f}",
                _ratio(against.get("requests_per_s")),
                f"{figures['client_cpu_ms_per_1000']:.1f}",
                _ratio(against.get("client_cpu_ms_per_1000")),
                f"{figures['members_cpu_ms_per_1000']:.0f}",
                f"{figures['peak_rss_bytes'] / _MB:.0f}",
                _ratio(against.get("peak_rss_bytes")),
                _ms(figures.get("p50_s")),
                _ms(figures.get("p99_s")),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    found = medians(samples)
    return "\n".join([*lines, "", *aims(found), "", *ceiling(found, processors)]) + "\n"


@dataclass(frozen=True)
class Aim:
    """A bound on one ratio of our client to etcd's tool, in the cells whose name matches ``cells``."""

    text: str
    figure: str
    cells: str
    bound: float
    at_most: bool = True


AIMS = (
    Aim("client CPU at most 1/4 (many clients)", "client_cpu_ms_per_1000", r" (100/1000|10/100) on \d$", 0.25),
    Aim("client CPU at most 1/2 (one client)", "client_cpu_ms_per_1000", r" 1/1 on \d$", 0.5),
    Aim("peak RSS at most 1/3 (many clients)", "peak_rss_bytes", r" (100/1000|10/100) on \d$", 1 / 3),
    Aim(
        "serializable range at least 1.5 x the requests/s (many clients)",
        "requests_per_s",
        r"^range-s (100/1000|10/100) on \d$",
        1.5,
        at_most=False,
    ),
    Aim(
        "put to 3 members at least 1.1 x the requests/s (many clients)",
        "requests_per_s",
        r"^put (100/1000|10/100) on 3$",
        1.1,
        at_most=False,
    ),
)


def aims(found: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Lines that say for each aim in how many cells it is met, and the cell that is furthest from it."""
    lines = ["| aim, ours / etcd's tool | met in cells | furthest from it |", "| --- | ---: | --- |"]
    for aim in AIMS:
        values = {}
        for cell, tools in found.items():
            ratio = (ratios(tools, OURS) or {}).get(aim.figure)
            if ratio is not None and re.search(aim.cells, cell):
                values[cell] = ratio
        if values:
            met = sum(value <= aim.bound if aim.at_most else value >= aim.bound for value in values.values())
            worst = (max if aim.at_most else min)(values, key=lambda cell: values[cell])
            lines.append(f"| {aim.text} | {met} of {len(values)} | {values[worst]:.2f}: {worst} |")
    return lines


def ceiling(found: dict[str, dict[str, dict[str, float]]], processors: int) -> list[str]:
    """Lines that say for each cell what our client leaves to be gained: how many requests/s there would be if it cost
    nothing, and the members had its processor time as well."""
    lines = [
        "| ours | processors busy | client's share of that | of which in the kernel | requests/s | without its cost |"
    ]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
    for cell, tools in found.items():
        if OURS not in tools:
            continue
        figures = tools[OURS]
        client, members = figures["client_cpu_ms_per_1000"], figures["members_cpu_ms_per_1000"]
        rate = figures["requests_per_s"]
        if client <= 0 or members <= 0:
            continue
        cells = [
            cell,
            f"{min(1.0, (client + members) * rate / 1e6 / processors):.0%}",
            f"{client / (client + members):.0%}",
            f"{figures['client_kernel_ms_per_1000'] / client:.0%}",
            f"{rate:,.0f}",
            f"{rate * (client + members) / members:,.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.2f}"


def update(document: Path, text: str, marks: tuple[str, str] = (BEGIN, END)) -> None:
    """Put ``text`` between the marks of ``document``, in place of what stood there. UsageError without marks.

    Lines are broken at 120 columns, except rows of tables.
    """
    head, tail = around(document, marks)
    text = "\n".join(line if line.startswith("|") else textwrap.fill(line, _MAX_COLUMNS) for line in text.split("\n"))
    partial = document.with_name(f".{document.name}.partial")
    partial.write_text(f"{head}{marks[0]}\n\n{text}\n{marks[1]}{tail}", encoding="utf-8")
    partial.replace(document)


def around(document: Path, marks: tuple[str, str] = (BEGIN, END)) -> tuple[str, str]:
    """What stands before and after the marks of ``document``. UsageError if it cannot be read or lacks them."""
    try:
        head, begin, rest = document.read_text(encoding="utf-8").partition(marks[0])
    except OSError as error:
        raise UsageError(f"{document}: {error.strerror}") from error
    _, end, tail = rest.partition(marks[1])
    if not begin or not end:
        raise UsageError(f"{document} lacks the lines {marks[0]} and {marks[1]}")
    return head, tail
