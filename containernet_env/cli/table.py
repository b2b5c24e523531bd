"""`containernet-env table`: results in the form of tables that others print."""

from __future__ import annotations

import csv
import json
import sys
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from containernet_env.cli.output import plain

if TYPE_CHECKING:
    from containernet_env.report.clients import ClientsTable
    from containernet_env.report.dbtester import AggregatedTable


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("form", type=click.Choice(["dbtester", "clients"]))
@click.argument("files", metavar="OUT...", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--all", "every", is_flag=True, help="Take rows whose figures are not certainly valid, too.")
@click.option("--json", "output", flag_value="json", help="Print JSON.")
@click.option("--csv", "output", flag_value="csv", help="Print CSV.")
def table_command(form: str, files: tuple[Path, ...], every: bool, output: str | None) -> None:
    """Print results files as a table: dbtester's aggregated one, or requests/s by clients.

    Rows that agree in everything but the number of clients are the steps of one run: `dbtester` has a column for each
    such run, `clients` a table. What is not known is a dash.
    """
    from containernet_env.report.rows import read_rows

    def note(text: str) -> None:
        click.echo(plain(text), err=True)

    rows = read_rows(files, note)
    if every and (more := sum(bool(why) and not why.startswith("failed") for why in rows.why)):
        note(f"rows that are not certainly valid count, too: {more:,}")
    if form == "dbtester":
        from containernet_env.report.dbtester import aggregated

        _aggregated(aggregated(rows, every), output)
    else:
        from containernet_env.report.clients import clients_tables

        _clients(list(clients_tables(rows, every)), output)


def _aggregated(table: AggregatedTable, output: str | None) -> None:
    from containernet_env.report.dbtester import MEASURES

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
        click.echo(plain(text), err=True)
    names = [system.name for system in table.systems]
    if output == "csv":
        records = ([record["label"], record["unit"], *record["values"]] for record in table.records())
        _csv(["", "unit", *names], records)
        return
    heads = [[""], *(plain(name).split(", ") for name in names)]
    lines = [*zip_longest(*heads, fillvalue=""), *table.texts()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    border = f"+{'+'.join('-' * (width + 2) for width in widths)}+"
    drawn = [f"| {' | '.join(map(str.rjust, line, widths))} |" for line in lines]
    above = len(lines) - len(MEASURES)
    click.echo("\n".join([border, *drawn[:above], border, *drawn[above:], border]))
    for system in table.systems:
        steps = ", ".join("-" if clients is None else f"{clients:,}" for clients in system.clients)
        repeated = "" if system.repetitions == 1 else f"; medians of {system.repetitions} repetitions"
        click.echo(plain(f"{system.name}: clients {steps}{repeated}"))
        whose = "" if system.repetitions == 1 else f" in {system.repetitions} repetitions"
        for words, times in system.errors.items():
            click.echo(f"  {json.dumps(words)} (count {times:,}{whose})")


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
        click.echo(plain(f"{table.name}\n"))
        for place, line in enumerate(lines):
            cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
            click.echo(f"| {' | '.join(cells)} |")
            if not place:
                click.echo(f"| {' | '.join('-' * width for width in widths)} |")
        for row in table.rows:
            if row.per_s is None:
                click.echo(
                    plain(f"{table.name}, {'-' if row.clients is None else row.clients} clients: {row.why}"), err=True
                )


def _json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1))


def _csv(head: list[str], lines: Any) -> None:
    from containernet_env.results.csv_file import inert

    writer = csv.writer(sys.stdout, lineterminator="\n")
    for line in (head, *lines):
        writer.writerow(["-" if value is None else inert(value) if isinstance(value, str) else value for value in line])
