"""As much of ZooKeeper's wire protocol as a consistent read takes: a session of its own, ``sync``, and its end.

Messages are jute's (ZooKeeper's src/zookeeper.jute): a length of four bytes, then fields in network order.
"""

from __future__ import annotations

import socket
import struct
import time

from containernet_env.base.errors import RunError
from containernet_env.stores.protocol import Connection
from containernet_env.stores.zookeeper.settings import CLIENT_PORT

_SYNC, _CLOSE = 9, -11
_SESSION_MS = 10_000
# Protocol version, last zxid seen, timeout in ms, session id, then an empty password of 16 bytes, and not read-only.
_CONNECT = struct.pack(">iqiqi", 0, 0, _SESSION_MS, 0, 16) + bytes(16) + b"\0"
_MOST_BYTES = 1 << 16


def consistent_read(connection: Connection, timeout_s: float) -> None:
    """Have a member sync with its leader, in a session of its own, which most members have to agree on.

    Raises ``RunError`` where that fails or takes longer than ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with connection.open(CLIENT_PORT, timeout_s=timeout_s) as made:
            answer = _exchange(made, _CONNECT, deadline)
            if len(answer) < 16 or struct.unpack(">q", answer[8:16])[0] == 0:
                raise RunError("the member gives no session")
            path = b"/"
            answer = _exchange(made, struct.pack(">iii", 1, _SYNC, len(path)) + path, deadline)
            if len(answer) < 16 or (code := struct.unpack(">i", answer[12:16])[0]) != 0:
                raise RunError(f"sync failed{f' with error {code}' if len(answer) >= 16 else ''}")
            _exchange(made, struct.pack(">ii", 2, _CLOSE), deadline)
    except OSError as error:
        raise RunError(f"a read of ZooKeeper failed: {error}") from error


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
