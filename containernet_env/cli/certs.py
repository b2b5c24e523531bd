"""`containernet-env certs`: what scheduler, workers and sweeps of a Dask cluster show each other."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(path_type=Path))
def command(folder: Path) -> None:
    """Make FOLDER with ca.pem, cert.pem and key.pem, for a year; their authority signs nothing else.

    Scheduler, workers and sweeps of a Dask cluster all use these three files. Whoever can read key.pem has the workers
    do anything as root: FOLDER is private to the user who makes it.
    """
    from containernet_env.base.errors import UsageError
    from containernet_env.stores.etcd.certificates import Authority

    authority = Authority()
    issued = authority.issue("containernet-env")
    try:
        folder.mkdir(mode=0o700)
        contents = {"ca.pem": authority.certificate, "cert.pem": issued.certificate, "key.pem": issued.key}
        for name, content in contents.items():
            made = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(made, "wb") as file:
                file.write(content)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}\n  Name a folder that is not there.") from error
    click.echo(f"--tls-ca-file {folder}/ca.pem --tls-cert {folder}/cert.pem --tls-key {folder}/key.pem")
