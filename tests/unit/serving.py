"""Servers of tests, in threads of this process."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def served(servers: Sequence[socketserver.BaseServer]) -> Iterator[None]:
    """Within it they serve."""
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
