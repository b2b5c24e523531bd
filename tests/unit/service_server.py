"""A small key-value service on 127.0.0.1, in threads of this process, that misbehaves as a test wants."""

from __future__ import annotations

import http.server
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from tests.unit.serving import served


class Service(http.server.ThreadingHTTPServer):
    """``values`` by key; ``answers``: a status by method that takes the place of what it would do.

    What has ``refused`` in its target is answered 503.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.answers: dict[str, int] = {}
        self.refused: str | None = None
        self.requests: list[str] = []
        self.connections = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(f"{self.command} {self.path}")
        key = parse_qs(urlsplit(self.path).query).get("id", [""])[0]
        status, answer = self.server.answers.get(self.command), b""
        if self.server.refused is not None and self.server.refused in self.path:
            status = 503
        if status is None and self.command == "PUT":
            self.server.values[key] = body
            status = 201
        elif status is None and self.command == "GET":
            status, answer = (200, self.server.values[key]) if key in self.server.values else (404, b"")
        elif status is None:
            status = 404 if self.server.values.pop(key, None) is None else 202
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_GET = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        """Silent."""


@contextmanager
def services(count: int) -> Iterator[list[Service]]:
    """So many, which know nothing of each other."""
    found = [Service() for _ in range(count)]
    with served(found):
        yield found
