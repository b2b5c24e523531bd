"""HTTP to one port of a machine that is reached over the network, with or without TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from containernet_env.base import clock
from containernet_env.base.http_answer import (
    MAX_ANSWER_BYTES,
    HttpError,
    NoAnswerError,
    decoded,
    exchange,
    is_no_tls,
    worded,
)


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """See ``stores.protocol.Connection``; there is one port, ``port``, whichever a caller names.

    Errors say what is wrong in a few words, without the address.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def request_json(
        self,
        port: int,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """One request and its decoded answer; ``timeout_s`` bounds each wait. Raises HttpError and NoAnswerError."""
        status, data = self._request(method, path, body, timeout_s, headers)
        return decoded(status, data, f"{method} {path}")

    def request_bytes(
        self, port: int, path: str, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """GET, and the answer as it is; raises as ``request_json`` does."""
        status, data = self._request("GET", path, None, timeout_s, headers)
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
        """Whether TLS is spoken there, whoever that is; nothing is sent over it."""
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

    def _request(
        self, method: str, path: str, body: Any, timeout_s: float, headers: Mapping[str, str] | None
    ) -> tuple[int, bytes]:
        with worded():
            status, data = exchange(self._open(timeout_s), method, path, body, self.host, headers)
        if len(data) > MAX_ANSWER_BYTES:
            raise NoAnswerError(f"{method} {path}: answer of more than {MAX_ANSWER_BYTES} bytes")
        return status, data
