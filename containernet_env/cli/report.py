"""`containernet-env report`, `plot`, `table` and `watch`: results as a page, a figure, tables, and while they come."""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from containernet_env.base import clock
from containernet_env.base.errors import UsageError
from containernet_env.cli import FILE, of_client
from containernet_env.cli.output import note, plain
from containernet_env.model.names import split

if TYPE_CHECKING:
    from containernet_env.report.axes import XScale
    from containernet_env.report.tables import AggregatedTable, ClientsTable

_files = click.argument("files", metavar="OUT...", nargs=-1, required=True, type=FILE)
_x_scale = click.option(
    "--x-scale",
    type=click.Choice(["linear", "log"]),
    default="linear",
    show_default=True,
    help="How numbers are spread along the horizontal axis, whose label names the latter.",
)


# --- report -----------------------------------------------------------------------------------------------------------


@click.command()
@_files
@click.option(
    *("-o", "--output"), type=FILE, default=Path("report.html"), show_default=True, metavar="PAGE", help="The page."
)
@of_client
@click.option("--title", help="What the page is called; the names of the files by default.")
@_x_scale
def report_command(files: tuple[Path, ...], output: Path, client: str, title: str | None, x_scale: XScale) -> int:
    """Write the rows of results files, and what their run directories add, as one page that needs no network.

    Run directories are looked for where a run leaves them, beside each OUT.
    """
    from containernet_env.cli.arguments import check_output, write_output
    from containernet_env.report.document import document_of
    from containernet_env.report.page import BEGINNING, report_page
    from containernet_env.report.rows import read_rows
    from containernet_env.report.runs import read_runs
    from containernet_env.setup import packages

    check_output(output, BEGINNING, files)
    rows = read_rows(files, note, client)
    for module in ("plotly", "scipy"):
        packages.require(module, note)
    document = document_of(rows, read_runs(rows, note), title, x_scale)
    size = write_output(output, report_page(document).encode())
    counts = document.counts
    click.echo(f"{output}: {counts['count']:,} of {counts['rows']:,} rows used, {size / 1e6:.1f} MB")
    return 0


# --- plot -------------------------------------------------------------------------------------------------------------


@click.command()
@_files
@click.option(
    "--x", required=True, metavar="AXIS", help="What was configured: link_delay, clients, or any column's name."
)
@click.option(
    *("--y", "ys"),
    required=True,
    multiple=True,
    metavar="FIGURES",
    help="What was measured, a panel each: p50,p99,throughput; repeatable.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="AXES",
    help="A line for each combination of values of these: bandwidth,type; repeatable.",
)
@of_client
@click.option("--where", multiple=True, metavar="AXIS=VALUE", help="Only rows that have this value; repeatable.")
@_x_scale
@click.option(
    *("-o", "--output"), required=True, type=FILE, metavar="FIGURE", help="A name that ends in .pdf, .svg or .png."
)
def plot_command(
    files: tuple[Path, ...],
    x: str,
    ys: tuple[str, ...],
    by: tuple[str, ...],
    client: str,
    where: tuple[str, ...],
    x_scale: XScale,
    output: Path,
) -> int:
    """Draw medians over repetitions, with their intervals, of results files against one axis.

    FIGURE.csv gets the numbers behind it. Rows that are not certainly valid are crosses, and in no median.
    """
    from containernet_env.cli.arguments import check_output, write_output
    from containernet_env.report import paper
    from containernet_env.report.rows import read_rows, shared
    from containernet_env.setup import packages

    form = output.suffix.lower().removeprefix(".")
    if form not in paper.FORMATS:
        raise UsageError(
            f"-o {output}: allowed are names that end in {', '.join(f'.{name}' for name in paper.FORMATS)}"
        )
    numbers = output.with_name(f"{output.name}.csv")
    check_output(output, re.compile(paper.FORMATS[form]), files)
    check_output(numbers, re.compile(paper.NUMBERS), files)
    every = read_rows(files, note, client)
    rows = paper.chosen(every, where)
    drawing = paper.plan(rows, x, split("--y", ys), split("--by", filter(None, by)), x_scale)
    for module in ("matplotlib", "scipy"):
        packages.require(module, note)
    picture = paper.draw(drawing, form)
    write_output(numbers, drawing.numbers().encode(errors="replace"))
    write_output(output, picture)
    if words := shared(drawing.cells):
        note(words)
    if len(rows) < len(every):
        note(f"--where leaves out {len(every) - len(rows):,} of {len(every):,} rows")
    if drawing.left_out:
        note(drawing.left_out)
    lines = f"{len(drawing.lines)} line{'s' * (len(drawing.lines) != 1)}"
    click.echo(f"{output}: {lines} of {len(rows):,} rows; the numbers are in {numbers}")
    return 0


# --- table ------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("form", type=click.Choice(["dbtester", "clients"]))
@_files
@of_client
@click.option("--all", "every", is_flag=True, help="Take rows whose figures are not certainly valid, too.")
@click.option("--json", "output", flag_value="json", help="Print JSON.")
@click.option("--csv", "output", flag_value="csv", help="Print CSV.")
def table_command(form: str, files: tuple[Path, ...], client: str, every: bool, output: str | None) -> None:
    """Print results files as a table: dbtester's aggregated one, or requests/s by clients.

    Rows that agree in everything but the number of clients are the steps of one run: `dbtester` has a column for each
    such run, `clients` a table. Unknown values are dashes.
    """
    from containernet_env.report.rows import read_rows

    rows = read_rows(files, note, client)
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
        names = ("name", "clients", "repetitions", "errors")
        systems = [{name: getattr(system, name) for name in names} for system in table.systems]
        _json({"systems": systems, "rows": list(table.records()), "notes": table.notes})
        return
    for text in table.notes:
        note(text)
    heads = [system.name for system in table.systems]
    if output == "csv":
        records = ([record["label"], record["unit"], *record["values"]] for record in table.records())
        _csv(["", "unit", *heads], records)
        return
    columns = [[""], *(plain(name).split(", ") for name in heads)]
    lines = [*zip_longest(*columns, fillvalue=""), *table.texts()]
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
                note(f"{table.name}, {clients} clients: {why}")


def _json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1))


def _csv(head: list[str], lines: Any) -> None:
    from containernet_env.results.csv_file import csv_text

    click.echo(csv_text([head, *lines]), nl=False)


# --- watch ------------------------------------------------------------------------------------------------------------

_LOOK_S = 1.0
# A run or sweep that was begun just before has the machine before it has left anything.
_BEGIN_S = 15.0


@click.command()
@click.argument("out", metavar="OUT", type=FILE)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Of 127.0.0.1; 0, the default, takes a free one."
)
def watch_command(out: Path, port: int) -> int:
    """Follow the run or sweep that measures into OUT, on a page that this machine alone can open.

    It ends with that; Ctrl-C ends it before, and the measurement goes on. Needs no root.
    """
    from containernet_env.report.watch import Follower, Server, State, view
    from containernet_env.runs.lock import Holder, holder
    from containernet_env.runs.sweep.ledger import journal_of

    def measurer() -> Holder | None:
        """A sweep holds its journal, also where other machines measure for it; a run holds the machine alone."""
        return holder(journal_of(out)) or holder()

    follower = Follower(out, measurer)
    found, until = follower.look(), clock.monotonic() + _BEGIN_S
    while found["course"] == "nothing" and measurer() is not None and clock.monotonic() < until:
        clock.sleep(_LOOK_S)
        found = follower.look()
    if found["course"] == "nothing":
        other = measurer()
        busy = "" if other is None else f"; process {other.pid} measures into another file"
        raise UsageError(
            f"nothing is measured on {out} now{busy}\n"
            f"  Begin it (containernet-env run CONFIG {out}, or sweep SWEEP {out}), and watch it beside that.\n"
            f"  For a report of the rows: containernet-env report {out}"
        )
    state = State()
    state.publish(view(found))
    with Server(out, state, port) as server:
        click.echo(plain(f"watching {out}: {server.url} (Ctrl-C ends this page, not the measurement)"))
        while found["course"] == "on":
            clock.sleep(_LOOK_S)
            found = follower.look()
            state.publish(view(found), ended=found["course"] != "on")
        server.drain()
    click.echo(plain(found["summary"]))
    return 0 if found["course"] == "ended" else 1
