"""HTTP to servers that only the driver reaches: in a namespace, on a Unix socket, or over the network."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from containernet_env.base import clock
from containernet_env.base.http import Connection, is_no_tls, worded
from containernet_env.hosts import netns
from containernet_env.stores.external import ExternalConnection


def _socket_in(pid: int, family: int, host: str) -> socket.socket:
    """A socket in the network namespace of a process of ``host``. Raises ``OSError``."""
    try:
        return netns.socket_in(pid, family, socket.SOCK_STREAM)
    except netns.ProcessGoneError as error:
        raise ConnectionError(f"host {host} has ended") from error


def _connected(made: socket.socket, address: Any, timeout_s: float | None) -> socket.socket:
    """The socket, connected; closed if that fails."""
    try:
        made.settimeout(timeout_s)
        made.connect(address)
        return made
    except BaseException:
        made.close()
        raise


def _within_tls(connected: socket.socket, tls: ssl.SSLContext | None, host: str) -> socket.socket:
    """The connection, in TLS if there is a context; closed if the handshake fails."""
    try:
        return connected if tls is None else tls.wrap_socket(connected, server_hostname=host)
    except BaseException:
        connected.close()
        raise


@dataclass(frozen=True, slots=True)
class NamespaceConnection(Connection):
    """Connections to the ports of one host, by the pid of a process in its network namespace; ``host`` is its name.

    With ``tls`` its ports speak TLS, with a certificate for 127.0.0.1.
    """

    pid: int
    host: str
    tls: ssl.SSLContext | None = None

    def _connect(self, port: int, timeout_s: float | None) -> socket.socket:
        made = _connected(_socket_in(self.pid, socket.AF_INET, self.host), ("127.0.0.1", port), timeout_s)
        return _within_tls(made, self.tls, "127.0.0.1")

    def _place(self, port: int) -> str:
        return f"port {port}"


@dataclass(frozen=True, slots=True)
class UnixConnection(Connection):
    """Connections to one Unix socket, whichever port a caller names; ``host`` is its server's name in messages.

    ``place``: its file, or its abstract name (unix(7)) in the network namespace of the process ``pid``.
    """

    host: str
    place: Path | str
    pid: int = 0

    def _connect(self, port: int, timeout_s: float | None) -> socket.socket:
        if not isinstance(self.place, Path):
            return _connected(_socket_in(self.pid, socket.AF_UNIX, self.host), f"\0{self.place}", timeout_s)
        # An address has 108 bytes at most, whatever the length of the folder's path.
        folder = os.open(self.place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _connected(socket.socket(socket.AF_UNIX), f"/proc/self/fd/{folder}/{self.place.name}", timeout_s)
        finally:
            os.close(folder)


@dataclass(frozen=True, slots=True)
class TcpConnection(ExternalConnection):
    """Connections to ``port`` of a host over the network, whichever port a caller names.

    Messages describe the problem in a few words, without the address.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def with_headers(self, headers: Mapping[str, str]) -> TcpConnection:
        return replace(self, headers=headers)

    def rtt_ns(self, timeout_s: float) -> int:
        """How long a TCP connection took to open: one round trip of SYN and SYN-ACK. Raises ``NoAnswerError``."""
        with worded():
            family, kind, protocol, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as made:
                made.settimeout(timeout_s)
                began_ns = clock.monotonic_ns()
                made.connect(address)
                return clock.monotonic_ns() - began_ns

    def speaks_tls(self, timeout_s: float) -> bool:
        """Whether the server speaks TLS, whatever its certificate; sends nothing over it."""
        unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        try:
            with self._plain(timeout_s) as made, unverified.wrap_socket(made, server_hostname=self.host):
                return True
        except ssl.SSLError as error:
            return error.reason is not None and not is_no_tls(error)
        except (OSError, UnicodeError):  # the latter: a name that no host can have
            return False

    def _plain(self, timeout_s: float | None) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout_s)

    def _connect(self, port: int, timeout_s: float | None) -> socket.socket:
        return _within_tls(self._plain(timeout_s), self.tls, self.host)

    @property
    def authority(self) -> str:  # type: ignore[override]
        return f"[{self.host}]" if ":" in self.host else self.host
