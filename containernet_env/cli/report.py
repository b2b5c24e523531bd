"""`containernet-env report`: results files as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from containernet_env.cli.plot import x_scale_option

if TYPE_CHECKING:
    from containernet_env.report.axes import XScale


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("files", metavar="OUT...", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    metavar="PAGE",
    help="The page that is written.",
)
@click.option("--title", help="What the page is called; the names of the files by default.")
@x_scale_option
def report_command(files: tuple[Path, ...], output: Path, title: str | None, x_scale: XScale) -> int:
    """Write the rows of results files, and what their run directories add, as one page that needs no network.

    Run directories are looked for where a run leaves them, beside each OUT.
    """
    from containernet_env.cli.arguments import check_output, write_output
    from containernet_env.cli.output import plain
    from containernet_env.report.document import document_of
    from containernet_env.report.page import BEGINNING, report_page
    from containernet_env.report.rows import read_rows
    from containernet_env.report.runs import read_runs
    from containernet_env.setup import packages

    def note(text: str) -> None:
        click.echo(plain(text), err=True)

    check_output(output, BEGINNING, files)
    rows = read_rows(files, note)
    for module in ("plotly", "scipy"):
        packages.require(module, note)
    document = document_of(rows, read_runs(rows, note), title, x_scale)
    size = write_output(output, report_page(document).encode())
    counts = document.counts
    click.echo(f"{output}: {counts['rows']:,} rows, {counts['count']:,} count, {size / 1e6:.1f} MB")
    return 0
