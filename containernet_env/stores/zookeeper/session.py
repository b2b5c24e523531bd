"""As much of ZooKeeper's wire protocol as consistent reads take: a session, ``sync``, ``getData``, and the end.

Messages are jute's (ZooKeeper's src/zookeeper.jute): a length of four bytes, then fields in network order.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from containernet_env.base.errors import RunError
from containernet_env.stores.protocol import Connection, Written
from containernet_env.stores.zookeeper.settings import CLIENT_PORT

_GET, _SYNC, _CLOSE = 4, 9, -11
_NO_NODE = -101
_SESSION_MS = 10_000
# Protocol version, last zxid seen, timeout in ms, session id, then an empty password of 16 bytes, and not read-only.
_CONNECT = struct.pack(">iqiqi", 0, 0, _SESSION_MS, 0, 16) + bytes(16) + b"\0"
# Of an answer: xid, zxid and error. Of a znode (Stat): czxid and mzxid at its begin, 68 bytes in all.
_HEADER_BYTES, _STAT_BYTES = 16, 68
# What a member sends as one packet at most (jute.maxbuffer).
_MOST_BYTES = 1 << 20
# Names below the root that mean something else; the load escapes their first byte (store/zookeeper/jute/path.go).
_SPECIAL = (".", "..", "zookeeper")


def consistent_read(connection: Connection, timeout_s: float) -> None:
    """Have a member sync with its leader, in a session of its own, which most members have to agree on.

    Raises ``RunError`` where that fails or takes longer than ``timeout_s``.
    """
    with _synced(connection, timeout_s):
        pass


def values(connection: Connection, keys: Collection[str], timeout_s: float) -> list[Written]:
    """What each key holds after a sync, in one session, with the transaction that wrote it.

    The member has all that was committed before, since a majority has agreed on the session by then. Raises
    ``RunError`` as ``consistent_read`` does.
    """
    with _synced(connection, timeout_s) as session:
        return [session.value(key) for key in keys]


def path_of(key: str) -> str:
    """The path of a key's znode, as the load has it: every byte that is no plain character is ``%`` and two digits."""
    escaped = "".join(chr(c) if 32 <= c < 127 and c not in b"/%" else f"%{c:02X}" for c in key.encode())
    return f"/%{ord(key[0]):02X}{key[1:]}" if key in _SPECIAL else f"/{escaped}"


class _Session:
    """A session that a member has given; ``deadline`` is on the monotonic clock, seconds."""

    def __init__(self, made: socket.socket, deadline: float) -> None:
        self._made = made
        self._deadline = deadline
        self._requests = 0
        answer = _exchange(made, _CONNECT, deadline)
        if len(answer) < 16 or struct.unpack(">q", answer[8:16])[0] == 0:
            raise RunError("the member gives no session")

    def ask(self, operation: int, body: bytes = b"") -> tuple[int, bytes]:
        """The answer's error, and what follows its header. Raises RunError where there is no whole header."""
        self._requests += 1
        answer = _exchange(self._made, struct.pack(">ii", self._requests, operation) + body, self._deadline)
        if len(answer) < _HEADER_BYTES:
            raise RunError(f"the member's answer ends after {len(answer)} bytes")
        return struct.unpack(">i", answer[12:_HEADER_BYTES])[0], answer[_HEADER_BYTES:]

    def value(self, key: str) -> Written:
        """What a key holds. Raises RunError."""
        error, body = self.ask(_GET, _text(path_of(key)) + b"\0")
        if error == _NO_NODE:
            return Written.of(0, key, None)
        if error != 0 or len(body) < 4 + _STAT_BYTES:
            raise RunError(f"the read of {key} failed: error {error}, {len(body)} bytes")
        data, stat = body[4:-_STAT_BYTES], body[-_STAT_BYTES:]
        return Written.of(struct.unpack(">q", stat[8:16])[0], key, data)


@contextmanager
def _synced(connection: Connection, timeout_s: float) -> Iterator[_Session]:
    """A session at the member, which has synced with its leader; it is closed at the end."""
    deadline = time.monotonic() + timeout_s
    try:
        with connection.open(CLIENT_PORT, timeout_s=timeout_s) as made:
            session = _Session(made, deadline)
            code, _ = session.ask(_SYNC, _text("/"))
            # A proxy that carries out a sync as a read has no node for the root (zetcd); ZooKeeper ignores the path.
            if code not in (0, _NO_NODE):
                raise RunError(f"sync failed with error {code}")
            yield session
            session.ask(_CLOSE)
    except OSError as error:
        raise RunError(f"a read of ZooKeeper failed: {error}") from error


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">i", len(raw)) + raw


def _exchange(made: socket.socket, message: bytes, deadline: float) -> bytes:
    made.sendall(struct.pack(">i", len(message)) + message)
    (length,) = struct.unpack(">i", _exactly(made, 4, deadline))
    if not 0 <= length <= _MOST_BYTES:
        raise RunError(f"the member answers with a message of {length} bytes")
    return _exactly(made, length, deadline)


def _exactly(made: socket.socket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise RunError("the member does not answer in time")
        made.settimeout(left)
        part = made.recv(count - len(data))
        if not part:
            raise RunError("the member closed the connection")
        data += part
    return data
