"""HTTP to a server on a Unix socket, which nothing on any network can reach."""

from __future__ import annotations

import http.client
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from containernet_env.base.http_answer import MAX_ANSWER_BYTES, HttpError, NoAnswerError, decoded, exchange
from containernet_env.hosts import netns


@dataclass(frozen=True, slots=True)
class UnixConnection:
    """See ``stores.protocol.Connection``; ``server`` names it. There is one socket, whichever port a caller names.

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
