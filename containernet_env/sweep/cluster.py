"""How a sweep and its workers reach a Dask scheduler: who sends a worker something has it carried out as root.

So a scheduler is on the loopback interface, or everyone shows a certificate of one authority, or it is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
import sys
from collections.abc import Collection
from contextlib import suppress
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
_NET, _LISTENS = Path("/proc/net"), "0A"
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
    """The address of a scheduler, ``tcp://127.0.0.1:8786`` or ``tls://10.0.0.1:8786``, and how it is reached."""

    address: str
    tls: TlsFiles | None

    @property
    def host(self) -> str:
        """Without scheme and port; an IPv6 address in brackets, as Dask wants it."""
        return self.address.partition("://")[2].rpartition(":")[0]

    def security(self) -> Security:
        """What Dask wants to know of certificates; both ends of each connection show one."""
        if self.tls is None:
            return Security(require_encryption=False)
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
    """The scheduler that is meant by ``HOST:PORT``, with or without ``tcp://`` or ``tls://`` before it.

    Raises ``UsageError`` for what is no address, and for one that others reach without a certificate.
    """
    scheme, separator, rest = text.rpartition("://")
    scheme = scheme if separator else "tls" if tls is not None else "tcp"
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        host, port = None, PORT
    if scheme not in ("tcp", "tls") or not host or parts.path or parts.query:
        raise UsageError(f"got {text!r} as the address of a scheduler; allowed: HOST:PORT, tcp://HOST:PORT, tls://...")
    shown = f"[{host}]" if ":" in host else host
    address = f"{scheme}://{shown}:{port}"
    if scheme == "tls":
        if tls is None:
            raise UsageError(f"{address} needs --tls-ca-file, --tls-cert and --tls-key")
        tls.check()
    elif tls is not None:
        raise UsageError(f"{address} is not encrypted, and certificates are given: name it tls://{shown}:{port}")
    elif not is_loopback(host):
        raise UsageError(
            f"{address} is refused: {_WHY}, and without TLS anyone on the network does\n"
            "  Use tls:// with --tls-ca-file, --tls-cert and --tls-key, or a scheduler on 127.0.0.1."
        )
    return Scheduler(address, tls)


def is_loopback(host: str) -> bool:
    """Whether all addresses of a host are on the loopback interface. Raises ``UsageError`` where it has none."""
    try:
        found = {str(item[4][0]) for item in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise UsageError(f"nobody knows the host {host!r} of the scheduler: {error.strerror or error}") from error
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found)


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
    """What a scheduler says of itself.

    Raises ``RunError`` where none answers, or not to this certificate, and ``UsageError`` where one answers on the
    loopback interface that others reach, too.
    """
    arguments = scheduler.security().get_connection_args("client")
    try:
        async with rpc(scheduler.address, connection_args=arguments) as asked:
            found: dict[str, Any] = await asyncio.wait_for(asked.identity(n_workers=0), CONNECT_S)
    except (OSError, TimeoutError, ValueError) as error:
        raise no_answer(scheduler, error) from error
    if scheduler.tls is not None:
        return found
    own = urlsplit(found["address"])
    # The address that it tells is a guess where it listens on every interface; the kernel knows.
    others = [] if is_loopback(own.hostname or "") else [found["address"]]
    if others := others or listening_elsewhere({own.port, urlsplit(scheduler.address).port}):
        raise UsageError(
            f"the scheduler at {scheduler.address} also listens at {others[0]}: {_WHY}\n"
            "  Start it with --host 127.0.0.1, or use TLS."
        )
    return found


def listening_elsewhere(ports: Collection[int | None]) -> list[str]:
    """The addresses beside the loopback interface's at which somebody on this machine listens on one of some ports.

    As ``0.0.0.0:8786``; those of /proc/net/tcp (proc_pid_net(5)), which writes addresses in words of the machine's byte
    order.
    """
    found = []
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # a kernel without IPv6
            for line in (_NET / name).read_text().splitlines()[1:]:
                words = line.split()
                address, _, port = words[1].partition(":")
                if words[3] != _LISTENS or int(port, 16) not in ports:
                    continue
                parts = [address[at : at + 8] for at in range(0, len(address), 8)]
                packed = b"".join(int(part, 16).to_bytes(4, sys.byteorder) for part in parts)
                host = ipaddress.ip_address(packed)
                if not host.is_loopback:
                    found.append(f"{f'[{host}]' if host.version == 6 else host}:{int(port, 16)}")
    return found


def no_answer(scheduler: Scheduler, error: BaseException) -> RunError:
    """Why a scheduler cannot be used."""
    why = next((str(item) for item in (error.__cause__, error) if item is not None and str(item)), "no answer")
    return RunError(
        f"no scheduler answers at {scheduler.address}: {why.splitlines()[0]}\n"
        "  Start one: dask scheduler --host HOST; with TLS, all of them use certificates of the same authority."
    )
