"""As much of ZooKeeper's wire protocol as the driver needs: sessions, ``sync``, reads, znodes made and deleted.

Messages are jute's (ZooKeeper's src/zookeeper.jute): a length of four bytes, then fields in network order.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.stores.protocol import Connection, Written
from containernet_env.stores.zookeeper.settings import CLIENT_PORT


def _text(text: str) -> bytes:
    return _buffer(text.encode())


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


_CREATE, _DELETE, _EXISTS, _GET, _CHILDREN, _SYNC, _CLOSE, _DESCENDANTS = 1, 2, 3, 4, 8, 9, -11, 104
NO_NODE, NO_AUTH, NODE_EXISTS, NOT_EMPTY, _UNIMPLEMENTED = -101, -102, -110, -111, -6
_MEANINGS = {
    NO_NODE: "there is no such znode",
    NO_AUTH: "its ACL does not allow that",
    NODE_EXISTS: "it is there already",
    NOT_EMPTY: "it has children",
}
_SESSION_MS = 10_000
# In which a member names a million children.
_LIST_S = 120.0
# Protocol version, last zxid seen, timeout in ms, session id, then an empty password of 16 bytes, and not read-only.
_CONNECT = struct.pack(">iqiqi", 0, 0, _SESSION_MS, 0, 16) + bytes(16) + b"\0"
# Of an answer: xid, zxid and error. Of a znode (Stat): czxid and mzxid at its begin, 68 bytes in all.
_HEADER_BYTES, _STAT_BYTES = 16, 68
# What members take as one packet at most (jute.maxbuffer); the names of a znode's children may be more.
_MOST_BYTES, _MOST_BYTES_OF_NAMES = 1 << 20, 256 << 20
# A list of one: everything is allowed (31) to everybody.
_FOR_ALL = struct.pack(">ii", 1, 31) + _text("world") + _text("anyone")
# Kinds of znodes (CreateMode), without a number in their names: one that stays, and one that ends with its session.
_STAYS, _EPHEMERAL = struct.pack(">i", 0), struct.pack(">i", 1)
_ANY_VERSION = struct.pack(">i", -1)
_CONFIG = "/zookeeper/config"
# Those that vote: observers have that word after their ports.
_VOTER = re.compile(rb"^server\.([0-9]+)=(?![^;\n]*:observer)", re.MULTILINE)
# Names below the root that mean something else; the load escapes their first byte (store/zookeeper/jute/path.go).
_SPECIAL = (".", "..", "zookeeper")


def consistent_read(connection: Connection, timeout_s: float) -> None:
    """Have a member sync with its leader, in a session of its own, which most members have to agree on.

    Raises ``RunError`` where that fails or takes longer than ``timeout_s``.
    """
    with synced(connection, timeout_s):
        pass


def values(connection: Connection, keys: Collection[str], timeout_s: float, chroot: str = "") -> list[Written]:
    """What each key below a znode holds after a sync, in one session, with the transaction that wrote it.

    The member has all that was committed before, since a majority has agreed on the session by then. Raises
    ``RunError`` as ``consistent_read`` does.
    """
    with synced(connection, timeout_s) as session:
        return [session.value(key, chroot) for key in keys]


def path_of(key: str) -> str:
    """The path of a key's znode, as the load has it: every byte that is no plain character is ``%`` and two digits."""
    escaped = "".join(chr(c) if 32 <= c < 127 and c not in b"/%" else f"%{c:02X}" for c in key.encode())
    return f"/%{ord(key[0]):02X}{key[1:]}" if key in _SPECIAL else f"/{escaped}"


class ZnodeError(RunError):
    """A member refused what it was asked to do with a znode: ``code`` is ZooKeeper's (KeeperException.Code)."""

    def __init__(self, what: str, path: str, code: int) -> None:
        super().__init__(f"{what} {path}: {_MEANINGS.get(code, f'error {code}')}")
        self.code = code


class Session:
    """A session that a member has given. Every method raises ``RunError`` where it is silent or ends the session.

    ``deadline`` is on the monotonic clock, seconds; what takes a time of its own moves it.
    """

    def __init__(self, made: socket.socket, deadline: float) -> None:
        self._made = made
        self._deadline = deadline
        self._requests = 0
        self._send(_CONNECT)
        answer = self._packet()
        self.id = struct.unpack(">Q", answer[8:16])[0] if len(answer) >= 16 else 0
        if self.id == 0:
            raise RunError("the member gives no session")

    @property
    def server(self) -> int:
        """The number of the member (SessionTrackerImpl.initializeNextSessionId), 0 of one that is alone."""
        return int(self.id >> 56)

    def ask(self, operation: int, body: bytes = b"") -> tuple[int, bytes]:
        """The answer's error, and what follows its header."""
        self._request(operation, body)
        return self._answer()

    def value(self, key: str, chroot: str = "") -> Written:
        """What a key below a znode holds."""
        found = self._read(f"{chroot}{path_of(key)}")
        return Written.of(0, key, None) if found is None else Written.of(found[1], key, found[0])

    def data(self, path: str) -> bytes | None:
        """What a znode holds; ``None`` where there is none."""
        found = self._read(path)
        return None if found is None else found[0]

    def voters(self) -> frozenset[str]:
        """The numbers of the cluster's voting servers, as its configuration has them; none where it does not say.

        Each member has written its addresses as its own file has them, which need not be as others have them.
        """
        return frozenset(number.decode() for number in _VOTER.findall(self.data(_CONFIG) or b""))

    def exists(self, path: str) -> bool:
        """Whether there is such a znode."""
        code, _ = self.ask(_EXISTS, _text(path) + b"\0")
        if code not in (0, NO_NODE):
            raise ZnodeError("look for", path, code)
        return code == 0

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Make a znode for everybody, which stays or ends with this session. Raises ``ZnodeError``."""
        code, _ = self.ask(_CREATE, _text(path) + _buffer(data) + _FOR_ALL + (_EPHEMERAL if ephemeral else _STAYS))
        if code != 0:
            raise ZnodeError("create", path, code)

    def delete(self, path: str) -> None:
        """Delete a znode. Raises ``ZnodeError``."""
        if not self.delete_all([path], max(self._deadline - clock.monotonic(), 0.0)):
            raise ZnodeError("delete", path, NO_NODE)

    def delete_empty(self, path: str) -> bool:
        """Delete a znode unless it has children; whether it is gone."""
        code, _ = self.ask(_DELETE, _text(path) + _ANY_VERSION)
        if code not in (0, NO_NODE, NOT_EMPTY):
            raise ZnodeError("delete", path, code)
        return code != NOT_EMPTY

    def delete_all(self, paths: Sequence[str], timeout_s: float) -> int:
        """Delete znodes, all requests ahead of the first answer; how many were there. Raises ``ZnodeError``."""
        self._deadline = clock.monotonic() + timeout_s
        for path in paths:
            self._request(_DELETE, _text(path) + _ANY_VERSION)
        codes = [self._answer()[0] for _ in paths]
        for path, code in zip(paths, codes, strict=True):
            if code not in (0, NO_NODE):
                raise ZnodeError("delete", path, code)
        return codes.count(0)

    def children(self, path: str) -> list[str]:
        """The names of a znode's children; none where there is no such znode."""
        self._deadline = clock.monotonic() + _LIST_S
        self._request(_CHILDREN, _text(path) + b"\0")
        code, body = self._answer(_MOST_BYTES_OF_NAMES)
        if code == NO_NODE:
            return []
        if code != 0:
            raise ZnodeError("list", path, code)
        names, at = list[str](), 4
        try:
            for _ in range(*struct.unpack(">i", body[:4])):
                (size,) = struct.unpack(">i", body[at : at + 4])
                names.append(body[at + 4 : at + 4 + size].decode())
                at += 4 + size
        except (struct.error, UnicodeError) as error:
            raise RunError(f"the member's list of the children of {path} cannot be read") from error
        return names

    def descendants(self, path: str) -> int:
        """How many znodes are below one, at any depth; of a member older than 3.6 its children alone."""
        code, body = self.ask(_DESCENDANTS, _text(path))
        if code == NO_NODE:
            return 0
        if code == _UNIMPLEMENTED:
            return len(self.children(path))
        if code != 0 or len(body) != 4:
            raise ZnodeError("count what is below", path, code)
        return int(struct.unpack(">i", body)[0])

    def _read(self, path: str) -> tuple[bytes, int] | None:
        """What a znode holds, and the transaction that wrote it."""
        error, body = self.ask(_GET, _text(path) + b"\0")
        if error == NO_NODE:
            return None
        if error != 0:
            raise ZnodeError("read", path, error)
        if len(body) < 4 + _STAT_BYTES:
            raise RunError(f"the read of {path} failed: {len(body)} bytes")
        return body[4:-_STAT_BYTES], int(struct.unpack(">q", body[-_STAT_BYTES:][8:16])[0])

    def _request(self, operation: int, body: bytes) -> None:
        self._requests += 1
        self._send(struct.pack(">ii", self._requests, operation) + body)

    def _send(self, message: bytes) -> None:
        self._made.settimeout(self._left())
        self._made.sendall(_buffer(message))

    def _answer(self, most_bytes: int = _MOST_BYTES) -> tuple[int, bytes]:
        answer = self._packet(most_bytes)
        if len(answer) < _HEADER_BYTES:
            raise RunError(f"the member's answer ends after {len(answer)} bytes")
        return struct.unpack(">i", answer[12:_HEADER_BYTES])[0], answer[_HEADER_BYTES:]

    def _packet(self, most_bytes: int = _MOST_BYTES) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        if not 0 <= length <= most_bytes:
            raise RunError(f"the member answers with a message of {length} bytes")
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._made.settimeout(self._left())
            part = self._made.recv(min(count - len(data), 1 << 20))
            if not part:
                raise RunError("the member closed the connection")
            data += part
        return bytes(data)

    def _left(self) -> float:
        left = self._deadline - clock.monotonic()
        if left <= 0:
            raise RunError("the member does not answer in time")
        return left


@contextmanager
def synced(connection: Connection, timeout_s: float) -> Iterator[Session]:
    """A session at the member, which has synced with its leader; it is closed at the end. Raises ``RunError``."""
    deadline = clock.monotonic() + timeout_s
    try:
        with connection.open(CLIENT_PORT, timeout_s=timeout_s) as made:
            session = Session(made, deadline)
            code, _ = session.ask(_SYNC, _text("/"))
            # A proxy that carries out a sync as a read has no node for the root (zetcd); ZooKeeper ignores the path.
            if code not in (0, NO_NODE):
                raise RunError(f"sync failed with error {code}")
            try:
                yield session
            except ZnodeError:
                with suppress(OSError, RunError):  # the first error is the one to tell
                    session.ask(_CLOSE)
                raise
            session.ask(_CLOSE)
    except OSError as error:
        raise RunError(f"a session of ZooKeeper failed: {error}") from error
