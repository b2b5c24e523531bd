"""The control connection of the link emulator: JSON lines over a stream socket, requests answered by id."""

from __future__ import annotations

import itertools
import json
import logging
import select
import socket
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from containernet_env.base import clock
from containernet_env.base.errors import RunError

_LOG = logging.getLogger(__name__)

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
    connection (not after ``close``); both on the reading thread. What they raise is logged and costs nothing else.
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
        self._pending: dict[int, clock.Future[dict[str, Any]]] = {}
        self._lock = clock.Lock()
        self._sending = clock.Lock()  # apart from the other: whoever closes must not wait for whoever sends
        self._closed = False
        self._lost = False
        self._thread = clock.Thread(target=self._read, name="link-emulator-control", daemon=True)
        self._thread.start()

    def call(self, op: str, deadline_s: float = DEADLINE_S, **fields: Any) -> dict[str, Any]:
        """Send one request, return the answer's ``result`` (``{}`` where there is none). Raises as ``ask`` does."""
        return self.ask(op, deadline_s, **fields).result

    def ask(self, op: str, deadline_s: float = DEADLINE_S, **fields: Any) -> Answer:
        """Send one request, return the answer.

        Raises ``RunError`` when it is refused, when the connection is gone, or after ``deadline_s`` seconds, whether it
        was the answer that did not come or the request that could not be sent. One that was sent in part ends the
        connection, since nothing that follows it could be understood.
        """
        end_s = clock.monotonic() + deadline_s
        answer: clock.Future[dict[str, Any]] = clock.Future()
        with self._lock:
            if self._closed or self._lost:
                raise RunError(f"link emulator: {op}: it has ended")
            number = next(self._ids)
            self._pending[number] = answer
        request = json.dumps({"id": number, "op": op, **fields}, separators=(",", ":"))
        try:
            self._send(request.encode() + b"\n", end_s)
            reply = answer.result(max(0.0, end_s - clock.monotonic()))
        except FutureTimeout as error:
            raise RunError(f"link emulator: {op}: no answer after {deadline_s:g} s") from error
        except _Unsent as error:
            raise RunError(f"link emulator: {op}: the request cannot be sent within {deadline_s:g} s") from error
        except OSError as error:
            self._lost = True
            raise RunError(f"link emulator: {op}: it has ended") from error
        finally:
            self._pending.pop(number, None)
        if not reply.get("ok"):
            raise RunError(f"link emulator: {op}: {reply.get('error', 'refused without a reason')}")
        return Answer(dict(reply.get("result") or {}), int(reply.get("at_ns", 0)))

    @property
    def lost(self) -> bool:
        """Whether the other side has ended the connection."""
        return self._lost

    def close(self) -> None:
        """End the connection, which ends the emulator. Idempotent; never called by the reading thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._shut()
        self._thread.join(DEADLINE_S)
        # A request that is being sent fails now; its thread still holds the file.
        if self._sending.acquire(timeout=DEADLINE_S):
            self._sending.release()
        self._connection.close()

    def _shut(self) -> None:
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The other side has ended it already.
            self._lost = True

    def _send(self, data: bytes, end_s: float) -> None:
        """Raises ``_Unsent`` when the other side has not taken all of it by ``end_s``, else ``OSError``."""
        if not self._sending.acquire(timeout=max(0.0, end_s - clock.monotonic())):
            raise _Unsent
        try:
            # A socket's own timeout would hold for the reading thread, too.
            writable = select.poll()
            writable.register(self._connection, select.POLLOUT)
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[self._connection.send(rest, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    left_s = end_s - clock.monotonic()
                    if left_s <= 0 or not writable.poll(left_s * 1000):
                        if len(rest) < len(data):
                            self._shut()
                        raise _Unsent from None
        finally:
            self._sending.release()

    def _read(self) -> None:
        reason = "it has ended"
        try:
            with self._connection.makefile("rb") as lines:
                while line := lines.readline(_LINE_MAX_BYTES):
                    self._take(json.loads(line))
        except OSError:
            pass  # it ended with something of ours unread
        except ValueError as error:
            reason = f"its answer cannot be read: {error}"
        finally:
            with self._lock:
                self._lost = True
                expected = self._closed
            for future in list(self._pending.values()):
                if not future.done():
                    future.set_result({"ok": False, "error": reason})
            if not expected:
                _guarded(self._on_lost)

    def _take(self, message: Any) -> None:
        if not isinstance(message, dict) or not isinstance(message.get("id", 0), int):
            raise ValueError(f"{message!r} is neither an answer nor an event")
        if "id" not in message:
            _guarded(self._on_event, message)
            return
        future = self._pending.get(message["id"])
        # A late answer finds nobody waiting.
        if future is not None and not future.done():
            future.set_result(message)


class _Unsent(Exception):
    """The other side did not take the request in time."""


def _guarded(handler: Callable[..., None], *arguments: Any) -> None:
    """Call a handler; its error is its own and must not end the thread that reads."""
    try:
        handler(*arguments)
    except Exception:  # noqa: BLE001 - whatever it is
        _LOG.exception("link emulator: the handler of an event failed")
