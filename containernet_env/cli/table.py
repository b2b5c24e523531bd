"""`containernet-env table`: results in the form of tables that others print."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from containernet_env.cli.progress import WIDE

if TYPE_CHECKING:
    from containernet_env.report.clients import ClientsTable
    from containernet_env.report.dbtester import AggregatedTable


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("form", type=click.Choice(["dbtester", "clients"]))
@click.argument("files", metavar="OUT...", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--all", "every", is_flag=True, help="Take rows whose figures are not certainly valid, too.")
@click.option("--json", "output", flag_value="json", help="Print JSON.")
@click.option("--csv", "output", flag_value="csv", help="Print CSV.")
def command(form: str, files: tuple[Path, ...], every: bool, output: str | None) -> None:
    """Print results files as a table: dbtester's aggregated one, or requests/s by clients.

    Rows that agree in everything but the number of clients are the steps of one run: `dbtester` has a column for each
    such run, `clients` a table. What is not known is a dash.
    """
    from containernet_env.report.rows import read_rows

    def note(text: str) -> None:
        click.echo(text, err=True)

    rows = read_rows(files, note)
    if form == "dbtester":
        from containernet_env.report.dbtester import aggregated

        _aggregated(aggregated(rows, every), output)
    else:
        from containernet_env.report.clients import clients_tables

        _clients(list(clients_tables(rows, every)), output)


def _aggregated(table: AggregatedTable, output: str | None) -> None:
    if output == "json":
        systems = [
            {
                "name": system.name,
                "clients": system.clients,
                "repetitions": system.repetitions,
                "errors": dict(system.errors),
            }
            for system in table.systems
        ]
        _json({"systems": systems, "rows": list(table.records()), "notes": table.notes})
        return
    for text in table.notes:
        click.echo(text, err=True)
    names = [system.name for system in table.systems]
    if output == "csv":
        records = ([record["label"], record["unit"], *record["values"]] for record in table.records())
        _csv(["", "unit", *names], records)
        return
    shown = Table(box=box.ASCII2, show_header=True, header_style="")
    shown.add_column("", justify="right", no_wrap=True)
    for name in names:
        shown.add_column("\n".join(name.split(", ")), justify="right", no_wrap=True)
    for row in table.texts():
        shown.add_row(*row)
    # Text of a file may hold brackets or colons that rich would take for markup.
    Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else WIDE).print(shown)
    for system in table.systems:
        steps = ", ".join("-" if clients is None else f"{clients:,}" for clients in system.clients)
        repeated = "" if system.repetitions == 1 else f"; medians of {system.repetitions} repetitions"
        click.echo(f"{system.name}: clients {steps}{repeated}")
        for words, times in system.errors.items():
            click.echo(f"  {json.dumps(words)} (count {times:,})")


def _clients(tables: list[ClientsTable], output: str | None) -> None:
    if output == "json":
        _json([{"name": table.name, "steps": [row.values for row in table.rows]} for table in tables])
        return
    if output == "csv":
        values = [(table.name, row.values) for table in tables for row in table.rows]
        _csv(["name", *values[0][1]], ([name, *row.values()] for name, row in values))
        return
    for number, table in enumerate(tables):
        if number:
            click.echo()
        repeated = any(row.rows > 1 for row in table.rows)
        heads = ["clients", "requests/sec", *(["least", "largest", "repetitions"] if repeated else [])]
        lines = [heads]
        for row in table.rows:
            figures = ["-"] * 3 if row.per_s is None else [f"{value:.4f}" for value in row.per_s]
            more = [*figures[1:], str(row.rows)] if repeated else []
            lines.append(["-" if row.clients is None else str(row.clients), figures[0], *more])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        click.echo(f"{table.name}\n")
        for place, line in enumerate(lines):
            cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
            click.echo(f"| {' | '.join(cells)} |")
            if not place:
                click.echo(f"| {' | '.join('-' * width for width in widths)} |")
        for row in table.rows:
            if row.per_s is None:
                click.echo(f"{row.clients} clients: {row.why}", err=True)


def _json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1))


def _csv(head: list[str], lines: Any) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([["-" if value is None else value for value in line] for line in lines])
