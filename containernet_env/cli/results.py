"""`containernet-env results`: the rows of a CSV as a short table, repetitions merged."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from containernet_env.cli.progress import milliseconds_text, rate_text


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def command(file: Path) -> None:
    """Show the rows of FILE: the median over repetitions and runs of each scenario, and how many rows failed."""
    from containernet_env.results import csv_file as results

    frame = results.load(file)
    by = ["Scenario"] if "Scenario" in frame.columns else ["TestType", "RequestCount", "ClientCount", "KeySize"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("scenario", no_wrap=True)
    for heading in ("rows", "failed", "requests/s", "p50", "p95"):
        table.add_column(heading, justify="right", no_wrap=True)
    for key, rows in frame.groupby(by, sort=False, dropna=False):
        failed = int(rows["Error"].notna().sum()) if "Error" in rows.columns else 0
        medians = rows[["Requests/sec", "50%", "95%"]].median().to_dict()
        shown = {name: None if value != value else float(value) for name, value in medians.items()}
        table.add_row(
            " ".join(str(part) for part in key) if isinstance(key, tuple) else str(key),
            str(len(rows)),
            str(failed),
            rate_text(shown["Requests/sec"]),
            milliseconds_text(shown["50%"]),
            milliseconds_text(shown["95%"]),
        )
    Console(highlight=False).print(table)
