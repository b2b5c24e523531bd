"""``containernet-env schema``: prints the JSON Schema of the files that users write."""

from __future__ import annotations

import json

import click

from containernet_env.config.export import schema_of


@click.command(short_help="Print the JSON Schema of topology or scenario files.")
@click.argument("kind", type=click.Choice(["config", "scenarios"]), default="config")
def command(kind: str) -> None:
    """Print the JSON Schema of config files (topologies) or of scenario files.

    Editors use it to complete and check; what one value alone cannot show (an address outside the subnet)
    is only found by `check`.
    """
    click.echo(json.dumps(schema_of(kind), indent=2))
