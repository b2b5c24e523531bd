"""A small relay from 127.0.0.1 of the machine to a port inside another process's network namespace.

The benchmark host has no network of the machine (`network none`), so nothing can be published for it by the
engine. The relay needs neither docker0 nor iptables: it accepts on the machine's loopback and connects with a
socket that was made inside the host's namespace.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from contextlib import suppress

from containernet_env import netns
from containernet_env.errors import RunError

MAX_CONNECTIONS = 64
_CHUNK_BYTES = 64 * 1024


class Relay:
    """Listens on 127.0.0.1 and relays each connection to 127.0.0.1:`target_port` in the namespace of `pid`.

    `port` is the one asked for, or another where that is taken (`port_taken` says so). Only loopback is ever
    bound. `close` ends every connection; it is idempotent.
    """

    def __init__(self, pid: int, target_port: int, port: int) -> None:
        self._pid = pid
        self._target_port = target_port
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
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to accept; returns when it does."""
        self._listener.listen(MAX_CONNECTIONS)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="relay", daemon=True)
        serving = threading.Event()
        self._loop.call_soon(serving.set)
        self._thread.start()
        serving.wait()

    def close(self) -> None:
        """Stop accepting, drop every connection, end the thread."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._thread = None
        self._listener.close()

    def _serve(self) -> None:
        server = self._loop.create_task(asyncio.start_server(self._handle, sock=self._listener))
        self._loop.run_forever()
        self._loop.run_until_complete(self._end(server))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _end(self, starting: asyncio.Task[asyncio.Server]) -> None:
        (await starting).close()
        await self._end_connections()

    async def _end_connections(self) -> None:
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._slots.acquire(blocking=False):
            writer.close()
            return
        try:
            await self._relay(reader, writer)
        except (OSError, RunError):
            # The host is gone or refuses: the caller sees its connection closed, as on a real network.
            return
        finally:
            writer.close()
            self._slots.release()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside = await self._loop.run_in_executor(None, netns.socket_in, self._pid, socket.AF_INET, socket.SOCK_STREAM)
        inside.setblocking(False)
        try:
            await self._loop.sock_connect(inside, ("127.0.0.1", self._target_port))
        except BaseException:
            inside.close()
            raise
        inner_reader, inner_writer = await asyncio.open_connection(sock=inside)
        try:
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        finally:
            inner_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the reader ends, then end the writer's direction only (half close)."""
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
