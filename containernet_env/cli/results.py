"""`containernet-env results`: the rows of a CSV as a short table, repetitions merged."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from containernet_env.base.units import format_number
from containernet_env.cli.output import plain
from containernet_env.cli.progress import WIDE, milliseconds_text, rate_text


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Merge rows that agree in this column, and no matter in which others: link_delay, clients, or any column's "
    "name; repeatable. "
    "By default rows are merged that agree in everything configured, in CPU model and commit.",
)
@click.option("--all", "every", is_flag=True, help="Take rows into the medians whose figures are not certainly valid.")
@click.option("--json", "form", flag_value="json", help="Print JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print CSV.")
def command(file: Path, by: tuple[str, ...], every: bool, form: str | None) -> None:
    """Show the rows of FILE: for each configuration how many rows there are, the median, and the spread."""
    from containernet_env.analysis.repetitions import FIGURES, summarize
    from containernet_env.results.csv_file import load

    # Not among what is printed for programs.
    summary = summarize(load(file, lambda text: click.echo(plain(text), err=True)), by, every)
    if form == "json":
        click.echo(summary.to_json(orient="records", indent=1, double_precision=9))
        return
    if form == "csv":
        summary.to_csv(sys.stdout, index=False)
        return
    texts: dict[str, Callable[[float | None], str]] = {"Requests/sec": rate_text}
    names = {"Requests/sec": "requests/s", "50%": "p50", "95%": "p95", "99%": "p99"}
    keys = list(summary.columns[: list(summary.columns).index("rows")])
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in keys:
        table.add_column("scenario" if name == "Scenario" else name, no_wrap=True)
    for heading in ("rows", "failed", "not valid", *(names[figure] for figure in FIGURES)):
        table.add_column(heading, justify="right", no_wrap=True)
    for group in summary.to_dict("records"):
        cells = [_words(group[name]) for name in keys]
        cells += [str(group["rows"]), str(group["failed"]), str(group["invalid"])]
        cells += [_spread(group, figure, texts.get(figure, milliseconds_text)) for figure in FIGURES]
        table.add_row(*cells)
    # Text of a file may hold brackets or colons that rich would take for markup.
    Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else WIDE).print(table)
    if summary.empty:
        click.echo("\nno rows yet")
    elif (summary["rows"] > 1).any():
        left_out = [" that did not fail"] if summary["failed"].any() else []
        left_out += [" that are certainly valid"] if summary["invalid"].any() and not every else []
        whose = " and".join(left_out)
        click.echo(f"\nmedian over the rows of each line{whose}, with the least and the largest in brackets")
    for group in summary.to_dict("records"):
        if isinstance(group["bimodal"], str):
            name = ", ".join(_words(group[key]) for key in keys)
            click.echo(f"{name}: p50 is of two groups: {group['bimodal']}")


def _words(value: Any) -> str:
    if value is None or value != value:
        return "-"
    return format_number(value) if isinstance(value, float) else plain(str(value))


def _spread(group: dict[Any, Any], figure: str, text: Callable[[float | None], str]) -> str:
    median, least, largest = (
        None if group[name] != group[name] else float(group[name])
        for name in (figure, f"{figure}_min", f"{figure}_max")
    )
    if median is None or group["rows"] == 1 or least == largest:
        return text(median)
    return f"{text(median)} [{text(least)}..{text(largest)}]"
