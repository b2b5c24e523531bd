"""`containernet-env rerun`: a run, repeated from its run directory."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from containernet_env.base import clock
from containernet_env.cli.external import consent_option, refuse_options
from containernet_env.cli.options import strict_option
from containernet_env.cli.run import carried_out


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--anyway", is_flag=True, help="Also where something that matters differs: the new manifest says what.")
@strict_option
@consent_option
@click.option("--dry-run", is_flag=True, help="Say what differs and create nothing.")
def command(run: Path, out: Path | None, anyway: bool, strict: bool, consent: bool, dry_run: bool) -> int:
    """Repeat RUN: the same topology, scenarios, repetitions, seeds and options, with its rows in OUT.

    RUN is a run directory (OUT.runs/RUN), or a results file, whose newest run is repeated. OUT is the results file that
    it lies beside unless it is given. Where something that matters is not as it was (program, images, machine, kernel,
    links, or a file of RUN that was changed), that is named and nothing is created.
    """
    from containernet_env.runs.rerun import prepare_rerun

    began = clock.monotonic()
    console = Console(highlight=False, markup=False, emoji=False)
    found = prepare_rerun(run, out, anyway=anyway)
    if dry_run:
        for item in found.repeats.differences:
            mark = "" if item.matters else ", which does not matter"
            console.print(f"{item}{mark}: {item.why}", soft_wrap=True)
        console.print(f"{found.repeats.run_id} would be repeated, its rows in {found.out}", soft_wrap=True)
        return 0
    refuse_options(found.plan.config)
    return carried_out(found.plan, found.out, found.tolerance, console, began, found.repeats, strict, consent)
