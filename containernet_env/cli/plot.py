"""`containernet-env plot`: one figure for a paper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from containernet_env.report.axes import XScale

x_scale_option = click.option(
    "--x-scale",
    type=click.Choice(["linear", "log"]),
    default="linear",
    show_default=True,
    help="How numbers are spread along the horizontal axis, whose label names the latter.",
)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("files", metavar="OUT...", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--x", required=True, metavar="AXIS", help="What was configured: link_delay, clients, or any column's name."
)
@click.option(
    "--y", "ys", required=True, metavar="FIGURES", help="What was measured, a panel each: p50,p99,throughput."
)
@click.option(
    "--by", default="", metavar="AXES", help="A line for each combination of values of these: bandwidth,type."
)
@click.option("--where", multiple=True, metavar="AXIS=VALUE", help="Only rows that have this value; repeatable.")
@x_scale_option
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FIGURE",
    help="A name that ends in .pdf, .svg or .png.",
)
def plot_command(
    files: tuple[Path, ...], x: str, ys: str, by: str, where: tuple[str, ...], x_scale: XScale, output: Path
) -> int:
    """Draw medians over repetitions, with their intervals, of results files against one axis.

    FIGURE.csv gets the numbers behind it. Rows that are not certainly valid are crosses, and in no median.
    """
    from containernet_env.base.errors import UsageError
    from containernet_env.cli.arguments import check_output, write_output
    from containernet_env.cli.output import plain
    from containernet_env.report import paper
    from containernet_env.report.rows import read_rows, shared
    from containernet_env.setup import packages

    def note(text: str) -> None:
        click.echo(plain(text), err=True)

    form = output.suffix.lower().removeprefix(".")
    if form not in paper.FORMATS:
        raise UsageError(
            f"-o {output}: allowed are names that end in {', '.join(f'.{name}' for name in paper.FORMATS)}"
        )
    numbers = output.with_name(f"{output.name}.csv")
    check_output(output, re.compile(paper.FORMATS[form]), files)
    check_output(numbers, re.compile(paper.NUMBERS), files)
    every = read_rows(files, note)
    rows = paper.chosen(every, where)
    drawing = paper.plan(rows, x, _words("--y", ys), _words("--by", by) if by else [], x_scale)
    for module in ("matplotlib", "scipy"):
        packages.require(module, note)
    picture = paper.draw(drawing, form)
    write_output(numbers, drawing.numbers().encode(errors="replace"))
    write_output(output, picture)
    if told := shared(drawing.cells):
        note(told)
    if len(rows) < len(every):
        note(f"--where leaves out {len(every) - len(rows):,} of {len(every):,} rows")
    if drawing.left_out:
        note(drawing.left_out)
    click.echo(f"{output}: {len(drawing.lines)} lines of {len(rows):,} rows; the numbers are in {numbers}")
    return 0


def _words(option: str, text: str) -> list[str]:
    from containernet_env.base.errors import UsageError

    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f"{option} {text}: write names with commas between them")
    return words
