"""Profiles of a Go program while a scenario runs, from the pages of its net/http/pprof.

They are fetched over connections that cross no emulated link.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

from containernet_env.base.errors import RunError
from containernet_env.base.http import Connection
from containernet_env.base.work import persistently
from containernet_env.model.backends import ProfileKind

# Go's default for a profile of CPU is 30 s; longer scenarios are profiled for so long.
LONGEST_CPU_S = 600
_PATH = "/debug/pprof"
# A profile is packed by the member itself, on its own share of a core.
_ANSWER_S = 5.0
_MOST_BYTES = 64 << 20
# Which of a profile's values is read (runtime/pprof).
_MEASURED: dict[ProfileKind, str] = {"cpu": "cpu", "allocs": "alloc_space", "mutex": "delay"}


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile as the member gave it; ``before`` is that of a cumulative one at the begin.

    ``measured`` is which of its values it is about. ``problem`` is why there is no ``data``.
    """

    kind: ProfileKind
    measured: str
    data: bytes = b""
    before: bytes | None = None
    problem: str | None = None


class Profiling:
    """Profiles of one member: made, then ``begin``, ``end``, ``profiles``, ``close``.

    Nothing of it raises, nor takes longer than some seconds.
    """

    def __init__(self, connection: Connection, port: int, kinds: Sequence[ProfileKind]) -> None:
        self._connection = connection
        self._port = port
        self._kinds = [kind for kind in get_args(ProfileKind) if kind in kinds]
        self._socket: socket.socket | None = None
        self._problem = "it was not begun"
        # The member counts since it started.
        self._before = {kind: self._fetch(kind) for kind in self._kinds if kind != "cpu"}

    def begin(self) -> None:
        if "cpu" in self._kinds:
            with self._noted():
                self._socket = self._connection.open(self._port, timeout_s=_ANSWER_S)
                request = f"GET {_PATH}/profile?seconds={LONGEST_CPU_S} HTTP/1.1\r\nHost: localhost\r\n"
                self._socket.sendall(f"{request}Connection: close\r\n\r\n".encode())

    def end(self) -> None:
        """The scenario has ended; returns at once.

        Go ends a profile early, and sends it, once the client has closed its side of the connection.
        """
        if self._socket is not None:
            with self._noted():
                # Not its own: that of a socket with TLS would have it read no TLS any more.
                socket.socket.shutdown(self._socket, socket.SHUT_WR)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except (RunError, OSError, http.client.HTTPException) as error:
            self._problem = str(error) or type(error).__name__
            self.close()

    def profiles(self) -> list[Profile]:
        """One of each kind, fetched from the member."""
        return [self._cpu() if kind == "cpu" else self._cumulative(kind) for kind in self._kinds]

    def _cpu(self) -> Profile:
        if self._socket is not None:
            with self._noted():
                response = http.client.HTTPResponse(self._socket)
                response.begin()
                data = response.read(_MOST_BYTES)
                self.close()
                if response.status == 200:
                    return Profile("cpu", _MEASURED["cpu"], data)
                self._problem = f"HTTP {response.status}: {data[:200]!r}"
        return Profile("cpu", _MEASURED["cpu"], problem=self._problem)

    def _cumulative(self, kind: ProfileKind) -> Profile:
        before, after = self._before[kind], self._fetch(kind)
        problem = after.problem or before.problem
        if problem is not None:
            return Profile(kind, _MEASURED[kind], problem=problem)
        return replace(after, before=before.data)

    def _fetch(self, kind: ProfileKind) -> Profile:
        """The profile up to now, or why there is none."""
        fetch = partial(self._connection.request_bytes, self._port, f"{_PATH}/{kind}", timeout_s=_ANSWER_S)
        try:
            return Profile(kind, _MEASURED[kind], persistently(fetch, _ANSWER_S))
        except RunError as error:
            return Profile(kind, _MEASURED[kind], problem=str(error))

    def close(self) -> None:
        """Take no profile any more. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
