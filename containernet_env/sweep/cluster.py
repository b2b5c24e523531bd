"""How a sweep and its workers reach a Dask scheduler: who sends a worker something has it carried out as root.

So everyone shows a certificate of one authority, also on one machine, whose other users reach its loopback interface.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import socket
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
from distributed import Security
from distributed.core import rpc

from containernet_env.base.errors import RunError, UsageError

PORT = 8786
"""Where `dask scheduler` listens when nothing else is said."""
CONNECT_S = 10.0
_WHY = "whoever reaches it has workers do anything as root"
# The worker's process is the run's driver: nothing looks into its threads a hundred times a second.
_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.comm.timeouts.connect": f"{CONNECT_S:g}s",
}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """An authority's certificate, and the own one with its key: files in PEM form."""

    ca_file: Path
    cert: Path
    key: Path

    def check(self) -> None:
        """Raise ``UsageError`` where they are not there, or are no such files."""
        for option, path in (("--tls-ca-file", self.ca_file), ("--tls-cert", self.cert), ("--tls-key", self.key)):
            try:
                path.open("rb").close()
            except OSError as error:
                raise UsageError(f"{option}: {path} cannot be read: {error.strerror}") from error
        if (mode := stat.S_IMODE(self.key.stat().st_mode)) & 0o007:
            raise UsageError(
                f"--tls-key: {self.key} has mode {mode:04o}: every user of this machine could use it\n"
                f"  Use another one, or if no other user has read it: chmod 600 {shlex.quote(str(self.key))}"
            )
        try:
            ssl.create_default_context(cafile=str(self.ca_file)).load_cert_chain(self.cert, self.key)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UsageError(
                f"{self.ca_file}, {self.cert} and {self.key} are no certificate of an authority, an own one and its "
                f"key: {error}"
            ) from error


def tls_files(ca_file: Path | None, cert: Path | None, key: Path | None) -> TlsFiles | None:
    """The three files, or none of them. Raises ``UsageError`` where some are missing."""
    if ca_file is None and cert is None and key is None:
        return None
    if ca_file is None or cert is None or key is None:
        raise UsageError("--tls-ca-file, --tls-cert and --tls-key belong together: give all three of them")
    return TlsFiles(ca_file, cert, key)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The address of a scheduler, as ``tls://10.0.0.1:8786``, and what is shown to it."""

    address: str
    tls: TlsFiles

    def security(self) -> Security:
        """What Dask wants to know of certificates; both ends of each connection show one."""
        cert, key = str(self.tls.cert), str(self.tls.key)
        return Security(
            require_encryption=True,
            tls_ca_file=str(self.tls.ca_file),
            tls_client_cert=cert,
            tls_client_key=key,
            tls_worker_cert=cert,
            tls_worker_key=key,
        )


def scheduler_at(text: str, tls: TlsFiles | None) -> Scheduler:
    """The scheduler at ``HOST:PORT``, with or without ``tls://`` before it.

    Raises ``UsageError`` for what is no address, and for one that is reached without a certificate.
    """
    scheme, separator, rest = text.rpartition("://")
    try:
        parts = urlsplit(f"tls://{rest}")
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        host, port = None, PORT
    if (separator and scheme not in ("tcp", "tls")) or not host or parts.path or parts.query:
        raise UsageError(f"got {text!r} as the address of a scheduler; allowed: HOST:PORT, tls://HOST:PORT")
    address = f"tls://{f'[{host}]' if ':' in host else host}:{port}"
    if scheme == "tcp" or tls is None:
        raise UsageError(
            f"{text} is refused: {_WHY}, and without TLS every user of its machine does, also on 127.0.0.1\n"
            f"  Use {address} with --tls-ca-file, --tls-cert and --tls-key:"
            " `containernet-env certs FOLDER` makes these files."
        )
    tls.check()
    return Scheduler(address, tls)


def settle_dask() -> None:
    """Have Dask leave the driver alone and print nothing of its own: what matters is told by who uses it."""
    dask.config.set(_SETTINGS)
    for name in ("distributed", "tornado.application", "tornado.general", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def reach(scheduler: Scheduler) -> None:
    """Raise ``RunError`` where nothing listens there; Dask itself would try for long."""
    parts = urlsplit(scheduler.address)
    try:
        socket.create_connection((parts.hostname, parts.port or PORT), CONNECT_S).close()
    except OSError as error:
        raise no_answer(scheduler, error) from error


async def identity_of(scheduler: Scheduler) -> dict[str, Any]:
    """What a scheduler says of itself. Raises ``RunError`` where none answers, or not to this certificate."""
    arguments = scheduler.security().get_connection_args("client")
    try:
        async with rpc(scheduler.address, connection_args=arguments) as asked:
            found: dict[str, Any] = await asyncio.wait_for(asked.identity(n_workers=0), CONNECT_S)
    except (OSError, TimeoutError, ValueError) as error:
        raise no_answer(scheduler, error) from error
    return found


def no_answer(scheduler: Scheduler, error: BaseException) -> RunError:
    """Why a scheduler cannot be used."""
    why = next((str(item) for item in (error.__cause__, error) if item is not None and str(item)), "no answer")
    return RunError(
        f"no scheduler answers at {scheduler.address}: {why.splitlines()[0]}\n"
        "  Start one: dask scheduler --protocol tls --host HOST, with certificates of the same authority as all others."
    )
