"""A small relay from 127.0.0.1 of the machine to a server that only the driver can connect to.

The benchmark host has no network of the machine (`network none`), so nothing can be published for it by the
engine. The relay needs neither docker0 nor iptables: it accepts on the machine's loopback and connects as the driver
does.
"""

from __future__ import annotations

import errno
import socket
from contextlib import suppress

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.hosts.unix_http import UnixConnection

MAX_CONNECTIONS = 64
_CHUNK_BYTES = 64 * 1024


class Relay:
    """Listens on 127.0.0.1 and relays each connection to one of its own to the server.

    `port` is the one requested, or another where that is taken (`port_taken` says so). Only loopback is ever
    bound. Two threads serve a connection, at most `MAX_CONNECTIONS` of them at once; more are closed at once.
    """

    def __init__(self, server: UnixConnection, port: int) -> None:
        self._server = server
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port_taken = False
        try:
            self._listener.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                self._listener.close()
                raise RunError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from error
            self.port_taken = True
            self._listener.bind(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = clock.Lock()
        self._closing = False
        self._connections: set[socket.socket] = set()
        self._threads: set[clock.Thread] = set()
        self._acceptor = clock.Thread(target=self._accept, name="relay", daemon=True)

    def start(self) -> None:
        """Begin to accept; the port answers when this returns."""
        self._listener.listen(MAX_CONNECTIONS)
        self._acceptor.start()

    def close(self) -> None:
        """Stop accepting, cut every connection, wait for the threads; idempotent."""
        self._closing = True
        if self._acceptor.is_alive():
            _cut(self._listener)
            self._acceptor.join()
        self._listener.close()
        with self._lock:
            threads = list(self._threads)
            for end in self._connections:
                _cut(end)
        for thread in threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:  # cut by close
                return
            thread = clock.Thread(target=self._serve, args=(caller,), name="relay", daemon=True)
            with self._lock:
                full = len(self._threads) >= MAX_CONNECTIONS
                if not full:
                    self._threads.add(thread)
            if full:
                caller.close()
            else:
                thread.start()

    def _serve(self, caller: socket.socket) -> None:
        try:
            # Where the host is gone or refuses, the caller sees its connection closed, as on a real network.
            with caller, suppress(OSError, RunError):
                self._relay(caller)
        finally:
            with self._lock:
                self._threads.discard(clock.current_thread())

    def _relay(self, caller: socket.socket) -> None:
        with self._server.open(timeout_s=None) as inside:
            with self._lock:
                if self._closing:
                    return
                self._connections |= {caller, inside}
            try:
                back = clock.Thread(target=_pump, args=(inside, caller), name="relay", daemon=True)
                back.start()
                _pump(caller, inside)
                back.join()
            finally:
                with self._lock:
                    self._connections -= {caller, inside}


def _cut(end: socket.socket) -> None:
    """Wake every thread that waits on a socket, and let nothing more pass."""
    with suppress(OSError):  # not connected any more
        end.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy until the source ends, then end the sink's direction only (half close)."""
    with suppress(OSError):  # either end was cut
        while data := source.recv(_CHUNK_BYTES):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
