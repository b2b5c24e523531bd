"""`containernet-env clean`: remove what a killed run left behind."""

from __future__ import annotations

import os

import click

from containernet_env.base.errors import MissingRequirementError
from containernet_env.hosts import engine
from containernet_env.network.leftovers import remove_bridges
from containernet_env.runs import clean


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Remove what killed runs left behind: only what carries our label and whose run is over."""
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
