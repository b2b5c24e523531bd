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
    from containernet_env.report.tables import AggregatedTable, ClientsTable


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
        from containernet_env.report.tables import aggregated

        _aggregated(aggregated(rows, every), output)
    else:
        from containernet_env.report.tables import clients_tables

        _clients(list(clients_tables(rows, every)), output)


def _aggregated(table: AggregatedTable, output: str | None) -> None:
    from containernet_env.report.tables import MEASURES

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
        _json([{"name": table.name, "steps": table.steps} for table in tables])
        return
    if output == "csv":
        _csv(["name", *tables[0].steps[0]], ([table.name, *step.values()] for table in tables for step in table.steps))
        return
    for number, table in enumerate(tables):
        if number:
            click.echo()
        repeated = any(step["rows"] > 1 for step in table.steps)
        shown = 5 if repeated else 2
        lines = [["clients", "requests/sec", "least", "largest", "repetitions"][:shown]]
        for step in table.steps:
            clients, *figures, count = step.values()
            texts = ["-" if value is None else f"{value:.4f}" for value in figures]
            lines.append(["-" if clients is None else str(clients), *texts, str(count)][:shown])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        click.echo(plain(f"{table.name}\n"))
        for line in lines:
            click.echo(f"| {' | '.join(map(str.ljust, line, widths))} |")
        for step, why in zip(table.steps, table.why, strict=True):
            if step["requests_per_s"] is None:
                clients = "-" if step["clients"] is None else step["clients"]
                click.echo(plain(f"{table.name}, {clients} clients: {why}"), err=True)


def _json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1))


def _csv(head: list[str], lines: Any) -> None:
    from containernet_env.results.csv_file import inert

    writer = csv.writer(sys.stdout, lineterminator="\n")
    for line in (head, *lines):
        writer.writerow(["-" if value is None else inert(value) if isinstance(value, str) else value for value in line])
