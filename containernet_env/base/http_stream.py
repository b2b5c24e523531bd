"""Answers over HTTP/1.1 that are read as they come, however long they are."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from containernet_env.base.errors import RunError

_ERROR_BYTES = 200


@contextmanager
def streamed(
    connection: socket.socket, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> Iterator[http.client.HTTPResponse]:
    """Send one request over a connection, which is closed at the end, and give the answer to read.

    ``body`` is sent as JSON, ``headers`` besides. Raises RunError for any status other than 2xx, and where reading
    fails within.
    """
    http_connection = http.client.HTTPConnection("localhost")
    http_connection.sock = connection
    try:
        payload = None if body is None else json.dumps(body).encode()
        http_connection.request(
            method, path, body=payload, headers={"Content-Type": "application/json", **(headers or {})}
        )
        answer = http_connection.getresponse()
        if not 200 <= answer.status < 300:
            text = answer.read(_ERROR_BYTES).decode(errors="replace").strip()
            raise RunError(f"{method} {path}: HTTP {answer.status}: {text}")
        yield answer
    except (OSError, http.client.HTTPException) as error:
        raise RunError(f"{method} {path}: {str(error) or type(error).__name__}") from error
    finally:
        http_connection.close()
