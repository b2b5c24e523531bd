"""The small key-value service of ``tests/unit/fake_servers.py`` on 127.0.0.1, in threads of this process."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.unit.fake_servers import Service


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, answer = self.server.service.asked(self.command, self.path, dict(self.headers), body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_GET = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        """Silent."""


class _Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service = Service(f"127.0.0.1:{self.server_address[1]}")


@contextmanager
def services(count: int) -> Iterator[list[Service]]:
    """So many, which know nothing of each other."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(_Listener()) for _ in range(count)]
        for listener in listeners:
            threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
            stack.callback(listener.shutdown)
        yield [listener.service for listener in listeners]
