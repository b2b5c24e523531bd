"""`containernet-env export`: a run as one file for others."""

from __future__ import annotations

from pathlib import Path

import click

from containernet_env.cli.output import plain


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option(
    "--license",
    "license_name",
    metavar="NAME",
    help="Under which license others get it: an SPDX identifier such as CC-BY-4.0, a URL, or a text.",
)
@click.option(
    "--rows",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="OUT",
    help="The results file with its rows, where RUN does not lie beside it.",
)
def command(run: Path, file: Path | None, license_name: str | None, rows: Path | None) -> int:
    """Write RUN as an RO-Crate to FILE: the run directory, its rows and what their columns mean in one zip.

    RUN is a run directory (OUT.runs/RUN), or a results file, whose newest run is exported. FILE is RUN.zip in this
    folder unless it is given.
    """
    from containernet_env.results.crate import export
    from containernet_env.results.run_directory import find_run, read_run, results_file_of

    found = read_run(find_run(run))
    beside = rows or results_file_of(run, found.path)
    wanted = file or Path(f"{found.path.name}.zip")
    done = export(found, wanted, results=beside, license_name=license_name)
    for note in done.notes:
        click.echo(plain(note), err=True)
    click.echo(f"{done.file}: {done.files} files, {done.rows} rows")
    return 0
