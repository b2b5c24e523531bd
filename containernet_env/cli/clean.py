"""`containernet-env clean`: remove what a killed run left behind."""

from __future__ import annotations

import os
from pathlib import Path

import click

from containernet_env.base.errors import MissingRequirementError, UsageError
from containernet_env.cli.files import CONFIG
from containernet_env.config import load_config
from containernet_env.hosts import engine
from containernet_env.network.leftovers import remove_bridges
from containernet_env.runs import clean


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("endpoints", type=CONFIG, required=False)
def command(endpoints: Path | None) -> None:
    """Remove what killed runs left behind: only what carries our label and whose run is over.

    With ENDPOINTS, a file that names those of a cluster that somebody else runs: the keys of this user's killed runs
    there. That needs no root.
    """
    if endpoints is not None:
        _clean_cluster(endpoints)
        return
    if os.geteuid() != 0:
        raise MissingRequirementError("clean must be run as root", "Run it again with sudo, or as root.")
    if engine.is_reachable():
        found = clean.remove_leftovers()
    else:
        click.echo("no engine is running, so there are no containers to remove")
        found = clean.Leftovers(remove_bridges(), ())
    for name in found.removed:
        click.echo(f"removed {name}")
    for name in found.in_use:
        click.echo(f"kept {name}: its run is still on")
    if not found.removed and not found.in_use:
        click.echo("nothing was left behind")


def _clean_cluster(path: Path) -> None:
    from containernet_env.runs.external_left import CleanedUp
    from containernet_env.runs.external_left import clean as clean_keys

    config = load_config(path)
    if config.external is None:
        raise UsageError(f"{path} names no endpoints\n  Without a file, clean removes what is left on this machine.")
    found: list[CleanedUp] = []

    def tell(run: CleanedUp) -> None:
        found.append(run)
        click.echo(f"kept {run.record.prefix}: its run is still on" if run.keys is None else run.done)

    elsewhere = clean_keys(config, tell, click.echo)
    if not found:
        click.echo("nothing was left behind")
    for record in elsewhere:
        click.echo(f"left as it is: {record.prefix} of a killed run at {', '.join(record.endpoints)}")
