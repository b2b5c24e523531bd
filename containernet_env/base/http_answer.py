"""One HTTP request over a socket that is there, its whole answer, and what can be wrong with either."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any

from containernet_env.base.errors import RunError

# No answer of a member or of the benchmark server is anywhere near this; more is refused, not read.
MAX_ANSWER_BYTES = 16 * 1024 * 1024


class HttpError(RunError):
    """An answer with a status other than 2xx; `status` and the decoded JSON `body` (or None) are kept."""

    def __init__(self, status: int, body: Any, text: str) -> None:
        self.status = status
        self.body = body
        super().__init__(f"HTTP {status}: {text}")


class NoAnswerError(RunError):
    """The connection was refused, broken, or silent past its deadline."""


def exchange(
    connected: socket.socket, method: str, path: str, body: Any, host: str, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """One request; the status and at most a byte more than ``MAX_ANSWER_BYTES`` of the answer. Closes the socket.

    ``body`` is sent as JSON. Raises ``OSError`` and ``http.client.HTTPException``.
    """
    connection = http.client.HTTPConnection(host)
    connection.sock = connected
    try:
        payload = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        connection.request(method, path, body=payload, headers=sent)
        response = connection.getresponse()
        return response.status, response.read(MAX_ANSWER_BYTES + 1)
    finally:
        connection.close()


def decoded(status: int, data: bytes, request: str) -> Any:
    """The answer's JSON. Raises HttpError for any status other than 2xx and NoAnswerError where it is not JSON.

    ``request`` names it in messages.
    """
    try:
        answer = json.loads(data) if data else None
    except ValueError:
        answer = None
    if not 200 <= status < 300:
        text = answer["error"] if isinstance(answer, dict) and isinstance(answer.get("error"), str) else None
        raise HttpError(status, answer, text or data[:200].decode(errors="replace").strip())
    if data and answer is None:
        raise NoAnswerError(f"{request}: the answer is not JSON: {data[:80]!r}")
    return answer
