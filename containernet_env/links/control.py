"""The control connection of the link emulator: JSON lines over a stream socket, requests answered by id."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from containernet_env.errors import RunError

DEADLINE_S = 5.0
# An answer holds the statistics of every link; a line of this length is no answer of ours.
_LINE_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its ``result``, and the moment on the monotonic clock (ns) at which the request took effect."""

    result: dict[str, Any]
    at_ns: int


class ControlClient:
    """Requests and events over one connection; may be used from several threads at once.

    ``on_event`` gets each event as it was sent, ``on_lost`` is called once when the other side ends the
    connection (not after ``close``); both on the reading thread.
    """

    def __init__(
        self,
        connection: socket.socket,
        on_event: Callable[[dict[str, Any]], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._on_event = on_event
        self._on_lost = on_lost
        self._ids = itertools.count(1)
        self._pending: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._lost = False
        self._thread = threading.Thread(target=self._read, name="link-emulator-control", daemon=True)
        self._thread.start()

    def call(self, op: str, deadline_s: float = DEADLINE_S, **fields: Any) -> dict[str, Any]:
        """Send one request, return the answer's ``result`` (``{}`` where there is none). Raises as ``ask`` does."""
        return self.ask(op, deadline_s, **fields).result

    def ask(self, op: str, deadline_s: float = DEADLINE_S, **fields: Any) -> Answer:
        """Send one request, return the answer.

        Raises ``RunError`` when it is refused, when the connection is gone, or after ``deadline_s`` seconds.
        """
        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._closed or self._lost:
                raise RunError(f"link emulator: {op}: it has ended")
            number = next(self._ids)
            self._pending[number] = answer
            request = json.dumps({"id": number, "op": op, **fields}, separators=(",", ":"))
            try:
                self._connection.sendall(request.encode() + b"\n")
            except OSError as error:
                self._pending.pop(number, None)
                raise RunError(f"link emulator: {op}: it has ended") from error
        try:
            reply = answer.result(deadline_s)
        except FutureTimeout as error:
            raise RunError(f"link emulator: {op}: no answer after {deadline_s:g} s") from error
        finally:
            self._pending.pop(number, None)
        if not reply.get("ok"):
            field = f" ({reply['field']})" if reply.get("field") else ""
            raise RunError(f"link emulator: {op}: {reply.get('error', 'refused without a reason')}{field}")
        return Answer(dict(reply.get("result") or {}), int(reply.get("at_ns", 0)))

    def close(self) -> None:
        """End the connection, which ends the emulator. Idempotent; never called by the reading thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The other side has ended it already.
            self._lost = True
        self._thread.join(DEADLINE_S)
        self._connection.close()

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                while line := lines.readline(_LINE_MAX_BYTES):
                    self._take(json.loads(line))
            reason = "it has ended"
        except (OSError, ValueError) as error:
            reason = f"its answer cannot be read: {error}"
        with self._lock:
            self._lost = True
            expected = self._closed
        for future in list(self._pending.values()):
            if not future.done():
                future.set_result({"ok": False, "error": reason})
        if not expected:
            self._on_lost()

    def _take(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            self._on_event(message)
            return
        future = self._pending.get(message["id"])
        # A late answer finds nobody waiting.
        if future is not None and not future.done():
            future.set_result(message)
