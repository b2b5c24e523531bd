"""HTTP to servers that only the driver reaches: in a namespace, on a Unix socket, or over the network."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from containernet_env.base import clock
from containernet_env.base.http import MAX_ANSWER_BYTES, HttpError, NoAnswerError, decoded, is_no_tls, sent, worded
from containernet_env.hosts import netns


class HttpConnection(ABC):
    """Requests to one server, each over a connection of its own; see ``stores.protocol.Connection``.

    ``timeout_s`` bounds the connection and each wait for data. Raises ``HttpError`` for any status other than 2xx and
    ``NoAnswerError`` if there is no complete answer.
    """

    host: str
    authority = "localhost"
    """The value of the Host header."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Further headers of each request, which may be secret."""

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        """Send one request, with ``body`` as JSON; return the decoded JSON answer."""
        return decoded(*self._request(port, method, path, body, timeout_s), self._named(method, path, port))

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        """Send a GET; return the body of the answer."""
        status, data = self._request(port, "GET", path, None, timeout_s)
        if not 200 <= status < 300:
            raise HttpError(status, None, data[:200].decode(errors="replace").strip())
        return data

    def open(self, port: int = 0, *, timeout_s: float | None) -> socket.socket:
        """A connection to ``port``. Raises ``NoAnswerError`` if nothing listens there."""
        with self._errors(self._place(port) or self.host):
            return self._connect(port, timeout_s)

    def _request(self, port: int, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, bytes]:
        request = self._named(method, path, port)
        with self._errors(request):
            connected = self._connect(port, timeout_s)
            with sent(connected, method, path, body, self.headers, self.authority) as answer:
                status, data = answer.status, answer.read(MAX_ANSWER_BYTES + 1)
        if len(data) > MAX_ANSWER_BYTES:
            raise NoAnswerError(f"{request}: answer of more than {MAX_ANSWER_BYTES} bytes")
        return status, data

    @abstractmethod
    def _connect(self, port: int, timeout_s: float | None) -> socket.socket:
        """An open connection. Raises ``OSError``."""

    def _place(self, port: int) -> str:
        """The port in messages; empty where there is only one."""
        return ""

    def _named(self, method: str, path: str, port: int) -> str:
        return " on ".join(filter(None, (f"{method} {path}", self._place(port))))

    @contextmanager
    def _errors(self, subject: str) -> Iterator[None]:
        """Raise errors of the connection as ``NoAnswerError``, after ``subject`` and a colon."""
        try:
            yield
        except netns.ProcessGoneError as error:
            raise NoAnswerError(f"{subject}: host {self.host} has ended") from error
        except (OSError, http.client.HTTPException) as error:
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NoAnswerError(f"{subject}: {text}") from error


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
class NamespaceConnection(HttpConnection):
    """Connections to the ports of one host, by the pid of a process in its network namespace; ``host`` is its name.

    With ``tls`` its ports speak TLS, with a certificate for 127.0.0.1.
    """

    pid: int
    host: str
    tls: ssl.SSLContext | None = None

    def _connect(self, port: int, timeout_s: float | None) -> socket.socket:
        made = _connected(netns.socket_in(self.pid, socket.AF_INET, socket.SOCK_STREAM), ("127.0.0.1", port), timeout_s)
        return _within_tls(made, self.tls, "127.0.0.1")

    def _place(self, port: int) -> str:
        return f"port {port}"


@dataclass(frozen=True, slots=True)
class UnixConnection(HttpConnection):
    """Connections to one Unix socket, whichever port a caller names; ``host`` is its server's name in messages.

    ``place``: its file, or its abstract name (unix(7)) in the network namespace of the process ``pid``.
    """

    host: str
    place: Path | str
    pid: int = 0

    def _connect(self, port: int, timeout_s: float | None) -> socket.socket:
        if not isinstance(self.place, Path):
            return _connected(
                netns.socket_in(self.pid, socket.AF_UNIX, socket.SOCK_STREAM), f"\0{self.place}", timeout_s
            )
        # An address has 108 bytes at most, whatever the length of the folder's path.
        folder = os.open(self.place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _connected(socket.socket(socket.AF_UNIX), f"/proc/self/fd/{folder}/{self.place.name}", timeout_s)
        finally:
            os.close(folder)


@dataclass(frozen=True, slots=True)
class TcpConnection(HttpConnection):
    """Connections to ``port`` of a host over the network, whichever port a caller names.

    Messages describe the problem in a few words, without the address.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def with_headers(self, headers: Mapping[str, str]) -> TcpConnection:
        """The same with these headers."""
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
        """The value of the Host header."""
        return self.host

    @contextmanager
    def _errors(self, subject: str) -> Iterator[None]:
        with worded():
            yield
