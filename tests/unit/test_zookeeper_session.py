"""Reads of ZooKeeper by the driver: sessions with members on loopback that answer, or misbehave."""

from __future__ import annotations

import socket
import struct
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.stores.protocol import Connection, MemberPlace, Written
from containernet_env.stores.zookeeper.cluster import ZooKeeperCluster, ZooKeeperMember
from containernet_env.stores.zookeeper.session import consistent_read, path_of, values
from containernet_env.stores.zookeeper.words import ask


class Server(threading.Thread):
    """A member on loopback that answers the pieces of a conversation, each once as many bytes have come."""

    def __init__(self, *steps: tuple[int, bytes]) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.steps, self.heard = steps, b""

    def open(self, port: int, *, timeout_s: float) -> socket.socket:
        assert port == 2181
        return socket.create_connection(self.listener.getsockname(), timeout=timeout_s)

    def run(self) -> None:
        with self.listener:
            made, _ = self.listener.accept()
        with made:
            for count, answer in self.steps:
                data = b""
                while len(data) < count:
                    if not (part := made.recv(count - len(data))):
                        return
                    data += part
                self.heard += data
                made.sendall(answer)


def served(*steps: tuple[int, bytes]) -> Any:
    server = Server(*steps)
    server.start()
    return server


def packet(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


SESSION = packet(struct.pack(">iiqi", 0, 10_000, 77, 16) + bytes(16) + b"\0")
SYNCED = packet(struct.pack(">iqi", 1, 5, 0) + struct.pack(">i", 1) + b"/")
CLOSED = packet(struct.pack(">iqi", 2, 6, 0))


def test_a_consistent_read_is_a_session_and_a_sync() -> None:
    server = served((49, SESSION), (17, SYNCED), (12, CLOSED))
    consistent_read(server, 5.0)
    server.join(5.0)
    assert struct.unpack(">iiqiq", server.heard[:28]) == (45, 0, 0, 10_000, 0)
    assert server.heard[49:66] == packet(struct.pack(">iii", 1, 9, 1) + b"/")


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([(49, b"")], "closed the connection"),
        ([(49, SESSION[:10])], "closed the connection"),
        ([(49, struct.pack(">i", -1))], "a message of -1 bytes"),
        ([(49, struct.pack(">i", 1 << 30))], "bytes"),
        ([(49, packet(struct.pack(">iiqi", 0, 0, 0, 16) + bytes(17)))], "gives no session"),
        ([(49, SESSION), (17, packet(struct.pack(">iqi", 1, 5, -4)))], "error -4"),
        ([(49, SESSION), (17, packet(b""))], "ends after 0 bytes"),
    ],
)
def test_a_member_that_misbehaves_is_an_error(steps: list[tuple[int, bytes]], words: str) -> None:
    with pytest.raises(RunError, match=words):
        consistent_read(served(*steps), 5.0)


def found(xid: int, data: bytes, mzxid: int) -> bytes:
    """An answer to getData, with the znode's Stat."""
    stat = struct.pack(">qqqqiiiqiiq", 3, mzxid, 1, 2, 3, 4, 5, 6, len(data), 0, 9)
    return packet(struct.pack(">iqi", xid, 5, 0) + struct.pack(">i", len(data)) + data + stat)


MISSING = packet(struct.pack(">iqi", 3, 5, -101))
FINAL_CLOSED = packet(struct.pack(">iqi", 4, 6, 0))


def test_keys_are_read_in_one_session_after_a_sync() -> None:
    server = served((49, SESSION), (17, SYNCED), (25, found(2, b"x" * 100, 77)), (19, MISSING), (12, FINAL_CLOSED))
    assert values(server, ["d/000", "d"], 5.0) == [Written(77, "d/000", "x" * 32), Written(0, "d", None)]
    server.join(5.0)
    get = struct.pack(">iii", 2, 4, 8) + b"/d%2F000" + b"\0"
    assert server.heard[66:].startswith(packet(get)) and server.heard.endswith(packet(struct.pack(">ii", 4, -11)))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (packet(struct.pack(">iqi", 2, 5, -4)), "read /d: error -4"),
        (packet(struct.pack(">iqi", 2, 5, -102)), "read /d: its ACL does not allow that"),
        (packet(struct.pack(">iqi", 2, 5, 0)), "the read of /d failed: 0 bytes"),
        (packet(struct.pack(">iqi", 2, 5, 0) + bytes(71)), "the read of /d failed: 71 bytes"),
    ],
)
def test_a_key_that_is_not_told_whole_is_no_value(answer: bytes, told: str) -> None:
    with pytest.raises(RunError, match=told):
        values(served((49, SESSION), (17, SYNCED), (15, answer)), ["d"], 5.0)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("k", "/k"),
        ("a b", "/a b"),
        ("a/b", "/a%2Fb"),
        ("50%", "/50%25"),
        ("\x00\x1f\x7f", "/%00%1F%7F"),
        (".", "/%2E"),
        ("..", "/%2E."),
        ("zookeeper", "/%7Aookeeper"),
        ("zookeeper1", "/zookeeper1"),
        ("é", "/%C3%A9"),
    ],
)
def test_znodes_are_named_as_the_load_names_them(key: str, path: str) -> None:
    assert path_of(key) == path


class Members(ZooKeeperCluster):
    """Members that answer with the pieces of a conversation each, or are dead."""

    def __init__(self, *connections: Connection | None) -> None:
        def place(number: int, connection: Any) -> MemberPlace:
            ending = "killed by SIGKILL" if connection is None else None
            host: Any = SimpleNamespace(name=f"m{number}", pid=1, alive=ending is None, ending=lambda words: ending)
            return MemberPlace(host, "10.0.0.1", connection)

        places = [place(number, connection) for number, connection in enumerate(connections, 1)]
        super().__init__([ZooKeeperMember(place) for place in places])


def test_the_final_state_is_that_of_the_first_living_member_that_can_be_read() -> None:
    whole = served((49, SESSION), (17, SYNCED), (17, found(2, b"abc", 7)), (12, FINAL_CLOSED))
    cluster = Members(None, served((49, b"")), whole)
    state = cluster.written("d/", 1, ["d/1"], 5.0)
    assert state.final and list(state.writes) == [Written(7, "d/1", "abc")]
    assert list(Members(None).written("", 1, [], 5.0).writes) == []
    for nobody, words in ((Members(None), "no member lives"), (Members(served((49, b""))), "m1: .*closed")):
        with pytest.raises(RunError, match=words):
            list(nobody.written("d/", 1, ["d/1"], 5.0).writes)


def test_a_silent_member_is_given_up() -> None:
    with pytest.raises(RunError, match=r"in time|timed out"):
        consistent_read(served((1000, b"")), 0.1)
    with pytest.raises(RunError, match=r"ruok: timed out"):
        ask(served((1000, b"")), "ruok", 0.1)


def test_a_word_is_answered_by_all_until_the_connection_ends() -> None:
    assert ask(served((2, b"im"), (2, b"ok")), "ruok", 5.0) == "imok"
