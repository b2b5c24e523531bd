"""HTTP to servers that only the driver reaches: in a namespace, on a Unix socket, or over the network."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from containernet_env.base import clock
from containernet_env.base.http import MAX_ANSWER_BYTES, HttpError, NoAnswerError, decoded, exchange, is_no_tls, worded
from containernet_env.hosts import netns


@dataclass(frozen=True, slots=True)
class NamespaceConnection:
    """The way to the ports of one host, by the pid of a process in its network namespace; ``host`` is its name.

    With ``tls`` its ports speak TLS, with a certificate for 127.0.0.1.
    """

    pid: int
    host: str
    tls: ssl.SSLContext | None = None

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        """See ``request_json``; raises ``NoAnswerError`` that names the host where its process has ended."""
        with self._named(f"{method} {path} on port {port}"):
            return request_json(self.pid, port, method, path, body, timeout_s=timeout_s, tls=self.tls)

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        """GET, and the answer as it is; raises as ``request_json`` does."""
        with self._named(f"GET {path} on port {port}"):
            status, data = _request(self.pid, port, "GET", path, None, timeout_s, "127.0.0.1", self.tls)
        if not 200 <= status < 300:
            raise HttpError(status, None, data[:200].decode(errors="replace").strip())
        return data

    @contextmanager
    def _named(self, request: str) -> Iterator[None]:
        try:
            yield
        except netns.ProcessGoneError as error:
            raise NoAnswerError(f"{request}: host {self.host} has ended") from error

    def open(self, port: int, *, timeout_s: float) -> socket.socket:
        """A TCP connection to ``port``. Raises NoAnswerError where nobody listens."""
        made = netns.socket_in(self.pid, socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.settimeout(timeout_s)
            made.connect(("127.0.0.1", port))
            return made if self.tls is None else self.tls.wrap_socket(made, server_hostname="127.0.0.1")
        except OSError as error:
            made.close()
            raise NoAnswerError(f"port {port}: {error}") from error


def request_json(
    pid: int,
    port: int,
    method: str,
    path: str,
    body: Any = None,
    *,
    timeout_s: float,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> Any:
    """Send one request to `host`:`port` in the network namespace of `pid`; return the decoded JSON answer.

    `timeout_s` bounds the connection and each silence while reading. Raises HttpError for any status other than
    2xx and NoAnswerError where there is no whole answer.
    """
    status, data = _request(pid, port, method, path, body, timeout_s, host, tls)
    return decoded(status, data, f"{method} {path} on port {port}")


def _request(
    pid: int, port: int, method: str, path: str, body: Any, timeout_s: float, host: str, tls: ssl.SSLContext | None
) -> tuple[int, bytes]:
    """One request; the status and the whole answer."""
    try:
        connected = netns.socket_in(pid, socket.AF_INET, socket.SOCK_STREAM)
        try:
            connected.settimeout(timeout_s)
            connected.connect((host, port))
            if tls is not None:
                connected = tls.wrap_socket(connected, server_hostname=host)
            status, data = exchange(connected, method, path, body, f"{host}:{port}")
        finally:
            connected.close()
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise NoAnswerError(f"{method} {path} on port {port}: {reason}") from error
    if len(data) > MAX_ANSWER_BYTES:
        raise NoAnswerError(f"{method} {path} on port {port}: answer of more than {MAX_ANSWER_BYTES} bytes")
    return status, data


@dataclass(frozen=True, slots=True)
class UnixConnection:
    """See ``stores.cluster.Connection``; ``server`` names it. There is one socket, whichever port a caller names.

    ``place``: its file; or its abstract name (unix(7)) in the network namespace of the process ``pid``.
    """

    server: str
    place: Path | str
    pid: int = 0

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        """One request and its decoded answer; ``timeout_s`` bounds each wait. Raises HttpError and NoAnswerError."""
        return decoded(*self._request(method, path, body, timeout_s), f"{method} {path}")

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        """GET, and the answer as it is; raises as ``request_json`` does."""
        status, data = self._request("GET", path, None, timeout_s)
        if not 200 <= status < 300:
            raise HttpError(status, None, data[:200].decode(errors="replace").strip())
        return data

    def open(self, port: int = 0, *, timeout_s: float | None) -> socket.socket:
        """A connection. Raises NoAnswerError where nothing listens."""
        try:
            return self._connect(timeout_s)
        except OSError as error:
            raise NoAnswerError(f"{self.server}: {error.strerror or error}") from error

    def _connect(self, timeout_s: float | None) -> socket.socket:
        try:
            if isinstance(self.place, Path):
                made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            else:
                made = netns.socket_in(self.pid, socket.AF_UNIX, socket.SOCK_STREAM)
        except netns.ProcessGoneError as error:
            raise NoAnswerError(f"host {self.server} has ended") from error
        try:
            made.settimeout(timeout_s)
            if isinstance(self.place, Path):
                # An address has 108 bytes at most, whatever the length of the folder's path.
                folder = os.open(self.place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    made.connect(f"/proc/self/fd/{folder}/{self.place.name}")
                finally:
                    os.close(folder)
            else:
                made.connect(f"\0{self.place}")
        except BaseException:
            made.close()
            raise
        return made

    def _request(self, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, bytes]:
        try:
            status, data = exchange(self._connect(timeout_s), method, path, body, "localhost")
        except NoAnswerError as error:
            raise NoAnswerError(f"{method} {path}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswerError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        if len(data) > MAX_ANSWER_BYTES:
            raise NoAnswerError(f"{method} {path}: answer of more than {MAX_ANSWER_BYTES} bytes")
        return status, data


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """See ``stores.cluster.Connection``; there is one port, ``port``, whichever a caller names.

    Errors say what is wrong in a few words, without the address.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those of each request, which may be secret."""

    def with_headers(self, headers: Mapping[str, str]) -> TcpConnection:
        """The same with these headers."""
        return replace(self, headers=headers)

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        """One request and its decoded answer; ``timeout_s`` bounds each wait. Raises HttpError and NoAnswerError."""
        status, data = self._request(method, path, body, timeout_s)
        return decoded(status, data, f"{method} {path}")

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        """GET, and the answer as it is; raises as ``request_json`` does."""
        status, data = self._request("GET", path, None, timeout_s)
        if not 200 <= status < 300:
            raise HttpError(status, None, data[:200].decode(errors="replace").strip())
        return data

    def open(self, port: int, *, timeout_s: float) -> socket.socket:
        """A connection, with TLS where that is spoken. Raises NoAnswerError."""
        with worded():
            return self._open(timeout_s)

    def rtt_ns(self, timeout_s: float) -> int:
        """How long a TCP connection took to open: one round trip of SYN and SYN-ACK. Raises NoAnswerError."""
        with worded():
            family, kind, protocol, _, address = self._resolved()
            with socket.socket(family, kind, protocol) as made:
                made.settimeout(timeout_s)
                began_ns = clock.monotonic_ns()
                made.connect(address)
                return clock.monotonic_ns() - began_ns

    def speaks_tls(self, timeout_s: float) -> bool:
        """Whether that port uses TLS, whatever program it is; nothing is sent over it."""
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        try:
            with self._plain(timeout_s) as made, anybody.wrap_socket(made, server_hostname=self.host):
                return True
        except ssl.SSLError as error:
            return error.reason is not None and not is_no_tls(error)
        except (OSError, UnicodeError):  # the latter: a name that no host can have
            return False

    def _resolved(self) -> Any:
        return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]

    def _plain(self, timeout_s: float) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout_s)

    def _open(self, timeout_s: float) -> socket.socket:
        made = self._plain(timeout_s)
        try:
            return made if self.tls is None else self.tls.wrap_socket(made, server_hostname=self.host)
        except BaseException:
            made.close()
            raise

    def _request(self, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, bytes]:
        with worded():
            status, data = exchange(self._open(timeout_s), method, path, body, self.host, self.headers)
        if len(data) > MAX_ANSWER_BYTES:
            raise NoAnswerError(f"{method} {path}: answer of more than {MAX_ANSWER_BYTES} bytes")
        return status, data
