"""`containernet-env worker`: a machine that measures for sweeps."""

from __future__ import annotations

from pathlib import Path

import click

from containernet_env.cli.options import tls_options
from containernet_env.cli.output import unblocked


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("address", metavar="ADDRESS")
@tls_options
def command(address: str, tls_ca_file: Path | None, tls_cert: Path | None, tls_key: Path | None) -> int:
    """Measure testbeds of sweeps (`sweep --dask ADDRESS`) on this machine, one at a time, until Ctrl-C.

    ADDRESS is that of a Dask scheduler, HOST:PORT. Whoever reaches it has this worker do anything as root, so all of
    them show certificates of one authority, which `certs` makes.
    """
    from containernet_env.setup import extras

    def note(text: str) -> None:
        click.echo(text, err=True)

    extras.require("distributed", note)
    from containernet_env.sweep.cluster import scheduler_at, tls_files
    from containernet_env.sweep.serving import serve

    with unblocked():
        return 128 + serve(scheduler_at(address, tls_files(tls_ca_file, tls_cert, tls_key)), note)
