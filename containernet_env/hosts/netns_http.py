"""HTTP to a port inside another process's network namespace, without any published port."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from containernet_env.base.http_answer import MAX_ANSWER_BYTES, HttpError, NoAnswerError, decoded, exchange
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
