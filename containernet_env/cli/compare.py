"""`containernet-env compare`: two sets of results, cell by cell: what differs, by how much, and what cannot be told."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from containernet_env.base.errors import UsageError
from containernet_env.cli.output import plain
from containernet_env.cli.progress import milliseconds_text, rate_text

if TYPE_CHECKING:
    from containernet_env.analysis.comparison import Cell, Comparison

EXIT_SLOWER, EXIT_CANNOT_TELL = 1, 2
_NAME_WIDTH, _WIDTH = 36, 120
_COLUMNS = (
    "cell", "figure", "repetitions_a", "repetitions_b", "rows_a", "rows_b", "median_a", "median_b",
    "ratio", "ratio_low", "ratio_high", "p", "p_adjusted", "verdict", "words",
    "repetitions_needed", "repetitions_advised", "detectable_ratio",
)  # fmt: skip
_FILE = click.Path(dir_okay=False, path_type=Path)


class _Share(click.ParamType[float]):
    """A share in per cent: "5%"."""

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As a ratio: 0.05."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?) ?%", str(value), re.ASCII)
        share = float(found[1]) / 100 if found else 1.0
        if not share < 1:
            self.fail(f"{value!r} is no share; allowed: 0% to below 100%, such as 5%", param, ctx)
        return share


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("a", type=_FILE)
@click.argument("b", type=_FILE)
@click.option("--also-a", multiple=True, type=_FILE, metavar="FILE", help="One more file of A; repeatable.")
@click.option("--also-b", multiple=True, type=_FILE, metavar="FILE", help="One more file of B; repeatable.")
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar="COLUMN",
    help="What is compared: throughput, p50, p99, another percentile, ServiceTime_50%_s and so on; repeatable. "
    "By default throughput, and p50 of scenarios with a configured rate.",
)
@click.option(
    "--fail-if-slower",
    type=_Share(),
    help="Exit status 1 where the whole interval of a cell is of a B that is slower by more than this, such as 5%; "
    "2 where there is none, but some cell cannot be told.",
)
@click.option("--csv", "table", type=_FILE, metavar="FILE", help="Write the cells to this file, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    a: Path,
    b: Path,
    also_a: tuple[Path, ...],
    also_b: tuple[Path, ...],
    figures: tuple[str, ...],
    fail_if_slower: float | None,
    table: Path | None,
    as_json: bool,
) -> int:
    """Compare the results in B with those in A: scenario by scenario the ratio with its interval, and a verdict.

    Repetitions on fresh clusters are compared (`run --repeat 6 --fresh`), never requests: docs/statistics.md.
    """
    from containernet_env.setup import extras

    def tell(text: str) -> None:
        click.echo(plain(text), err=True)

    from containernet_env.analysis.comparison import FIGURES, match, read
    from containernet_env.model.names import column_of

    names = [column_of("--figure", name, FIGURES) for name in figures]
    sides = [read(paths, tell) for paths in ((a, *also_a), (b, *also_b))]
    called = (f"A ({', '.join(map(str, (a, *also_a)))})", f"B ({', '.join(map(str, (b, *also_b)))})")
    matched = match(sides[0], sides[1], list(dict.fromkeys(names)), called)
    if table is not None:
        _check_table(table)
    extras.require("scipy", tell)
    found = matched.judged()
    rows = [_row(cell) for cell in found.cells]
    if table is not None:
        _write(table, rows)
    if as_json:
        click.echo(json.dumps(_document(found, rows, (a, *also_a), (b, *also_b)), indent=1))
    else:
        _print(found, ", ".join(map(str, (a, *also_a))), ", ".join(map(str, (b, *also_b))))
    return 0 if fail_if_slower is None else _gate(found, fail_if_slower, tell)


def _gate(found: Comparison, share: float, tell: Any) -> int:
    """The exit status of --fail-if-slower: what is not known must not pass for good."""
    slower = [cell for cell in found.cells if cell.slower_by_more_than(share)]
    unknown = [cell for cell in found.cells if cell.cannot_tell_slower()]
    limit = f"{100 * share:g} %"
    if slower:
        tell(f"B is slower by more than {limit} in {len(slower)} of {len(found.cells)} cells: {_few(slower)}")
        return EXIT_SLOWER
    if unknown or found.only[0]:
        told = [f"{len(unknown)} of {len(found.cells)} cells cannot be told"] if unknown else []
        told += [f"{len(found.only[0])} scenarios of A have no valid row in B"] if found.only[0] else []
        tell(f"whether B is slower by more than {limit}: {'; '.join(told)}")
        return EXIT_CANNOT_TELL
    return 0


def _few(cells: Sequence[Cell], most: int = 3) -> str:
    named = [f"{cell.title} ({cell.words})" for cell in cells[:most]]
    return ", ".join(named) + (f" and {len(cells) - most} more" if len(cells) > most else "")


def _row(cell: Cell) -> dict[str, Any]:
    """A cell as programs get it; times in seconds, ratios as B over A."""
    ratio = cell.ratio
    values = (
        cell.title,
        cell.figure,
        *cell.repetitions,
        *cell.rows,
        *cell.medians,
        *((ratio.estimate, ratio.low, ratio.high) if ratio else (None, None, None)),
        cell.p,
        cell.adjusted_p,
        cell.verdict,
        cell.words,
        cell.needed,
        cell.advised,
        cell.detectable,
    )
    return dict(zip(_COLUMNS, values, strict=True))


def _check_table(path: Path) -> None:
    """Refuse a file that cannot be written or is none of ours, before anything is installed or worked out."""
    header = ",".join(_COLUMNS).encode()
    try:
        if path.exists() and (not path.is_file() or path.read_bytes()[: len(header)] != header):
            raise UsageError(f"{path} is not replaced: it is no file of `compare --csv`\n  Choose another file.")
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise UsageError(f"cannot write {path}: its folder takes no file\n  Choose another file.")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}\n  Choose another file.") from error


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The cells as CSV, all of them or none; '-' where there is no value."""
    from containernet_env.cli.files import write_output

    file = io.StringIO()
    writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _field(value) for name, value in row.items()} for row in rows)
    write_output(path, file.getvalue().encode(errors="backslashreplace"))


def _field(value: Any) -> Any:
    from containernet_env.results.csv_file import inert

    return "-" if value is None else inert(value) if isinstance(value, str) else value


def _document(
    found: Comparison, rows: Sequence[Mapping[str, Any]], a: Sequence[Path], b: Sequence[Path]
) -> dict[str, Any]:
    return {
        "version": 1,
        "a": [str(path) for path in a],
        "b": [str(path) for path in b],
        "differs": {name: {"a": left, "b": right} for name, left, right in found.differs},
        "cells": [dict(row) for row in rows],
        "only_a": list(found.only[0]),
        "only_b": list(found.only[1]),
        "left_out_a": dict(found.left_out[0]),
        "left_out_b": dict(found.left_out[1]),
        "notes": list(found.notes),
    }


def _print(found: Comparison, a: str, b: str) -> None:
    """The table, the reasons below it."""
    lines = []
    for name, path, left_out in zip("AB", (a, b), found.left_out, strict=True):
        out = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        lines.append(f"{name}: {path}" + (f" (rows left out: {out})" if out else ""))
    for name, left, right in found.differs:
        lines.append(f"  {name}: {left} in A, {right} in B")
    if not found.differs:
        lines.append("  no column that tells experiments apart differs as a whole")
    lines += ["", _line("", "figure", "n", "A", "B", "B/A", "95 % interval", "p", "verdict")]
    named = None
    for cell in found.cells:
        name = cell.title if cell.title != named else ""
        named = cell.title
        if len(name) > _NAME_WIDTH:
            lines.append(name)
            name = ""
        lines.append(_cell_line(name, cell))
    lines += [
        "",
        *(textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False) for text in _reasons(found)),
    ]
    click.echo("\n".join(plain(line.rstrip()) for line in lines))


def _line(name: str, figure: str, n: str, a: str, b: str, ratio: str, interval: str, p: str, verdict: str) -> str:
    return (
        f"{name:<{_NAME_WIDTH}} {figure:<9.9} {n:>5} {a:>8} {b:>8} {ratio:>6} {interval:>13} {p:>6}  {verdict}"
    ).rstrip()


def _cell_line(name: str, cell: Cell) -> str:
    text = rate_text if cell.figure == "Requests/sec" else milliseconds_text
    ratio, interval = "-", "-"
    if cell.ratio is not None:
        ratio = f"{cell.ratio.estimate:.3f}"
        if cell.ratio.low is not None and cell.ratio.high is not None:
            interval = f"{cell.ratio.low:.3f}..{cell.ratio.high:.3f}"
    p = "-" if cell.adjusted_p is None else f"{cell.adjusted_p:.2g}" if cell.adjusted_p >= 0.001 else "<0.001"
    numbers = "|".join(map(str, cell.repetitions))
    figure = {"Requests/sec": "req/s"}.get(cell.figure, cell.figure.removeprefix("ServiceTime_"))
    verdict = cell.words.partition(";")[0] if cell.verdict in ("slower", "faster") else cell.verdict
    a, b = (text(value) for value in cell.medians)
    return _line(name, figure, numbers, a, b, ratio, interval, p, verdict)


def _reasons(found: Comparison) -> list[str]:
    """What the table has no room for, each thing once."""
    tested = sum(cell.p is not None for cell in found.cells)
    over = f", Holm's correction over {tested} tests" if tested > 1 else ""
    lines = [f"n: repetitions; A, B: their medians; p: Mann-Whitney{over}; intervals of each ratio by itself"]
    unknown = [cell for cell in found.cells if cell.verdict == "cannot tell"]
    groups: dict[str, list[Cell]] = {}
    for cell in unknown:
        groups.setdefault(cell.words.partition(", by this spread")[0], []).append(cell)
    for words, cells in groups.items():
        advised = [cell.advised for cell in cells if cell.advised is not None and cell.advised > cell.needed]
        more = ""
        if advised and "needed" in words:
            span = f"{min(advised)}" if min(advised) == max(advised) else f"{min(advised)} to {max(advised)}"
            more = f", {span} to find a difference of 12 % by their spreads"
        lines.append(f"{words}{more}" + (f" ({len(cells)} cells)" if len(found.cells) > 1 else ""))
    seen = [cell for cell in found.cells if cell.verdict == "no difference shown" and cell.detectable]
    if seen:
        least, most = (100 * (end(cell.detectable or 1 for cell in seen) - 1) for end in (min, max))
        span = f"{least:.2g} %" if f"{least:.2g}" == f"{most:.2g}" else f"{least:.2g} to {most:.2g} %, by cell,"
        lines.append(f"no difference shown: one of {span} would have been found with a probability of 80 %")
    shared = sum(sum(cell.rows) - sum(cell.repetitions) for cell in found.cells)
    if shared:
        lines.append(
            "rows that share a cluster are one repetition, their median: `run --fresh` makes a cluster for each"
        )
    for name, others in zip("AB", found.only, strict=True):
        if others:
            lines.append(
                f"only in {name}: {', '.join(others[:5])}" + (f" and {len(others) - 5} more" if len(others) > 5 else "")
            )
    return [*lines, *found.notes]
