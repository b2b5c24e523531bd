"""Profiles of an etcd member while a scenario runs, from the pprof pages that --enable-pprof gives it.

They are fetched over connections that cross no emulated link.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Sequence
from typing import get_args

from containernet_env.base.errors import RunError
from containernet_env.base.work import persistently
from containernet_env.model.backends import ProfileKind
from containernet_env.stores.etcd.flags import CLIENT_PORT
from containernet_env.stores.protocol import MemberPlace, Profile

# Go's default for a profile of CPU is 30 s; longer scenarios are profiled for so long.
LONGEST_CPU_S = 600
_PATH = "/debug/pprof"
# A profile is packed by the member itself, on its own share of a core.
_ANSWER_S = 5.0
_MOST_BYTES = 64 << 20
# Which of a profile's values it is read for (runtime/pprof).
_MEASURED: dict[ProfileKind, str] = {"cpu": "cpu", "allocs": "alloc_space", "mutex": "delay"}


class EtcdProfiling:
    """See ``stores.protocol.Profiling``."""

    def __init__(self, place: MemberPlace, kinds: Sequence[ProfileKind]) -> None:
        self._connection = place.connection
        self._kinds = [kind for kind in get_args(ProfileKind) if kind in kinds]
        self._socket: socket.socket | None = None
        self._problem = ""
        # The member counts since it started.
        self._before = {kind: self._fetch(kind) for kind in self._kinds if kind != "cpu"}

    def begin(self) -> None:
        """See ``Profiling``."""
        if "cpu" not in self._kinds:
            return
        try:
            self._socket = self._connection.open(CLIENT_PORT, timeout_s=_ANSWER_S)
            request = f"GET {_PATH}/profile?seconds={LONGEST_CPU_S} HTTP/1.1\r\nHost: localhost\r\n"
            self._socket.sendall(f"{request}Connection: close\r\n\r\n".encode())
        except (RunError, OSError) as error:
            self._problem = str(error)
            self.close()

    def end(self) -> None:
        """See ``Profiling``: Go ends a profile early, and sends it, where who asked for it says no more."""
        if self._socket is not None:
            try:
                # Not its own: that of a socket with TLS would have it read no TLS any more.
                socket.socket.shutdown(self._socket, socket.SHUT_WR)
            except OSError as error:
                self._problem = str(error)
                self.close()

    def profiles(self) -> list[Profile]:
        """See ``Profiling``."""
        return [self._cpu() if kind == "cpu" else self._grown(kind) for kind in self._kinds]

    def _cpu(self) -> Profile:
        measured = _MEASURED["cpu"]
        if self._socket is None:
            return Profile("cpu", measured, problem=self._problem or "it was not begun")
        try:
            response = http.client.HTTPResponse(self._socket)
            response.begin()
            data = response.read(_MOST_BYTES)
            if response.status != 200:
                return Profile("cpu", measured, problem=f"HTTP {response.status}: {data[:200]!r}")
            return Profile("cpu", measured, data)
        except (OSError, http.client.HTTPException) as error:
            return Profile("cpu", measured, problem=str(error) or type(error).__name__)
        finally:
            self.close()

    def _grown(self, kind: ProfileKind) -> Profile:
        before, after = self._before[kind], self._fetch(kind)
        if isinstance(after, str) or isinstance(before, str):
            return Profile(kind, _MEASURED[kind], problem=after if isinstance(after, str) else str(before))
        return Profile(kind, _MEASURED[kind], after, before)

    def _fetch(self, kind: ProfileKind) -> bytes | str:
        """The profile, or why there is none."""

        def fetch() -> bytes:
            return self._connection.request_bytes(CLIENT_PORT, f"{_PATH}/{kind}", timeout_s=_ANSWER_S)

        try:
            return persistently(fetch, _ANSWER_S)
        except RunError as error:
            return str(error)

    def close(self) -> None:
        """See ``Profiling``."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
