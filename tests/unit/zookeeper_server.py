"""As much of ZooKeeper as a run on a cluster of others asks, on 127.0.0.1, in threads of this process."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.unit.serving import served

_CREATE, _DELETE, _EXISTS, _GET, _CHILDREN, _SYNC, _DESCENDANTS, _CLOSE = 1, 2, 3, 4, 8, 9, 104, -11
_UNIMPLEMENTED, _NO_NODE, _NO_AUTH, _EXISTS_ALREADY, _NOT_EMPTY = -6, -101, -102, -110, -111
_EPHEMERAL = struct.pack(">i", 1)
_STAT = struct.pack(">qqqqiiiqiiq", 1, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class ZooKeeperCluster:
    """What its servers share: ``znodes`` by path, and who leads (its number from 0; ``None``: there is no quorum).

    ``denied``: znodes whose paths begin with it may be neither made nor deleted. ``kept``: a znode whose children may
    not be deleted; ``secret``: one that may not be read. ``vanishing``: one that is deleted once, when a child of it is
    made. ``old``: it counts no descendants, as before 3.6. ``word``: an answer to four-letter words in the place of the
    true one.
    """

    def __init__(self, count: int) -> None:
        listed = "".join(f"server.{number + 1}=10.9.0.{number + 1}:2888:3888\n" for number in range(count))
        self.znodes: dict[str, bytes] = {"/zookeeper": b"", "/zookeeper/config": f"{listed}version=0".encode()}
        self.leader: int | None = 0
        self.denied: str | None = None
        self.kept: str | None = None
        self.secret: str | None = None
        self.old = False
        self.vanishing: str | None = None
        self.word: str | None = None
        self.servers: list[ZooKeeperServer] = []
        self.lock = threading.Lock()

    def own(self) -> list[str]:
        """The paths of all znodes but ZooKeeper's own."""
        return sorted(path for path in self.znodes if not path.startswith("/zookeeper"))

    def children(self, path: str) -> list[str]:
        """Names."""
        return [name for held in self.znodes for above, _, name in [held.rpartition("/")] if above == path]

    def carry_out(self, operation: int, path: str, rest: bytes) -> tuple[int, bytes]:
        """The error and the body of the answer."""
        with self.lock:
            there = path in self.znodes
            changes = operation in (_CREATE, _DELETE)
            if changes and self.denied is not None and path.startswith(self.denied):
                return _NO_AUTH, b""
            if operation == _DELETE and self.kept is not None and path.rpartition("/")[0] == self.kept:
                return _NO_AUTH, b""
            if operation == _GET and path == self.secret:
                return _NO_AUTH, b""
            if operation == _CREATE:
                above = path.rpartition("/")[0]
                if above and above == self.vanishing:
                    self.vanishing = None
                    del self.znodes[above]
                if there or (above and above not in self.znodes):
                    return (_EXISTS_ALREADY if there else _NO_NODE), b""
                self.znodes[path] = rest[4 : 4 + struct.unpack(">i", rest[:4])[0]]
                return 0, _text(path)
            if operation == _DESCENDANTS and self.old:
                return _UNIMPLEMENTED, b""
            if not there and operation != _SYNC:
                return _NO_NODE, b""
            if operation == _DELETE:
                if self.children(path):
                    return _NOT_EMPTY, b""
                del self.znodes[path]
                return 0, b""
            if operation == _CHILDREN:
                names = self.children(path)
                return 0, struct.pack(">i", len(names)) + b"".join(map(_text, names))
            if operation == _DESCENDANTS:
                return 0, struct.pack(">i", sum(held.startswith(f"{path}/") for held in self.znodes))
            if operation == _GET:
                return 0, _buffer(self.znodes[path]) + _STAT
            return 0, _text(path) if operation == _SYNC else _STAT


class ZooKeeperServer(socketserver.ThreadingTCPServer):
    """One of them."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, cluster: ZooKeeperCluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.serves = True
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def srvr(self) -> str:
        """The answer to that word."""
        cluster = self.cluster
        if cluster.word is not None:
            return cluster.word
        if cluster.leader is None or not self.serves:
            return "This ZooKeeper instance is not currently serving requests\n"
        alone = len(cluster.servers) == 1
        mode = "standalone" if alone else "leader" if cluster.leader == self.number else "follower"
        return f"Zookeeper version: 3.8.0-1, built on 2022\nZxid: 0x300000007\nMode: {mode}\nNode count: 5\n"


class _Handler(socketserver.StreamRequestHandler):
    server: ZooKeeperServer

    def handle(self) -> None:
        head = self.rfile.read(4)
        if head == b"srvr":
            self.wfile.write(self.server.srvr().encode())
            return
        if len(head) < 4 or self.server.cluster.leader is None:
            return
        self.rfile.read(*struct.unpack(">i", head))
        own = 0 if len(self.server.cluster.servers) == 1 else self.server.number + 1
        self._send(struct.pack(">iiQi", 0, 10_000, own << 56 | 99, 16) + bytes(17))
        ephemeral = list[str]()
        while len(head := self.rfile.read(4)) == 4:
            request = self.rfile.read(*struct.unpack(">i", head))
            xid, operation = struct.unpack(">ii", request[:8])
            if operation == _CLOSE:
                for path in ephemeral:
                    self.server.cluster.znodes.pop(path, None)
                self._send(struct.pack(">iqi", xid, 5, 0))
                return
            (size,) = struct.unpack(">i", request[8:12])
            path, rest = request[12 : 12 + size].decode(), request[12 + size :]
            error, body = self.server.cluster.carry_out(operation, path, rest)
            if error == 0 and operation == _DELETE and path in ephemeral:
                ephemeral.remove(path)
            if error == 0 and operation == _CREATE and rest.endswith(_EPHEMERAL):
                ephemeral.append(path)
            self._send(struct.pack(">iqi", xid, 5, error) + (b"" if error else body))

    def _send(self, message: bytes) -> None:
        self.wfile.write(_buffer(message))


def _text(text: str) -> bytes:
    return _buffer(text.encode())


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@contextmanager
def zookeeper(count: int) -> Iterator[ZooKeeperCluster]:
    """A cluster of so many servers."""
    cluster = ZooKeeperCluster(count)
    cluster.servers = [ZooKeeperServer(cluster, number) for number in range(count)]
    with served(cluster.servers):
        yield cluster
