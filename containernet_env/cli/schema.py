"""``containernet-env schema``: prints the JSON Schema of the files that users write."""

from __future__ import annotations

import json

import click

from containernet_env.config.export import schema_of
from containernet_env.results.run_files import FILES, json_schema

_INPUTS = ("config", "scenarios", "sweep")
_RUN_FILES = tuple(f"run-{name}" for name in FILES)


@click.command(short_help="Print the JSON Schema of input files, or of a run directory's files.")
@click.argument("kind", type=click.Choice([*_INPUTS, *_RUN_FILES]), default="config")
def command(kind: str) -> None:
    """Print the JSON Schema of config files (topologies), of scenario or sweep files, or of a file of run directories.

    Editors use it to complete and check; what one value alone cannot show (an address outside the subnet)
    is only found by `check`.
    """
    schema = schema_of(kind) if kind in _INPUTS else json_schema(kind.removeprefix("run-"))
    click.echo(json.dumps(schema, indent=2))
