"""Servers of stores in this process and the network to them: what a client sends is answered at once, by no socket.

``network`` is a fixture: while it is there, what connects to a machine by TCP (``hosts.http``) meets its servers.
"""

from __future__ import annotations

import io
import json
import struct
from base64 import b64encode
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from errno import ECONNREFUSED, EPIPE
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.programs import LastWords, last_words, with_words
from containernet_env.config.topologies import load_config
from containernet_env.hosts.http import TcpConnection
from containernet_env.model.config import Config
from containernet_env.model.scenario import Keys
from containernet_env.runs.external_access import cluster_of
from containernet_env.stores.cluster import MemberPlace
from containernet_env.stores.external import ExternalCluster, OwnKeys
from tests.unit.blocks import write

PREFIX = "containernet-env/abc/"
KEYS = Keys(4, 5000, PREFIX)
OWN = OwnKeys(PREFIX, (KEYS,))
SERVICE = {
    "kind": "http",
    "put": "/v0/entity?id={key}&ack=2",
    "get": "/v0/entity?id={key}&from=2",
    "delete": "/v0/entity?id={key}",
}
STAY = {"kind": "http", "put": "/{key}", "get": "/{key}", "keys": "stay"}

Talk = Generator[bytes, bytes, bytes]
"""One conversation: it is sent what the client sends, gives what is answered, and at its end what is said last."""


class Server:
    """A server at one address; also a connection to it (``base.http.Connection``).

    ``gone``: nothing listens there; ``silent``: connections stand, and nothing is answered. ``connections`` counts.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.gone = self.silent = self.speaks_tls = False
        self.connections = 0
        self.limits_s: list[float] = []

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def connection(self) -> TcpConnection:
        """As the driver has it to a machine elsewhere; needs ``network``."""
        host, _, port = self.address.rpartition(":")
        return TcpConnection(host, int(port))

    def talk(self) -> Talk:
        raise NotImplementedError

    def open(self, port: int, *, timeout_s: float) -> Any:
        if self.gone:
            raise ConnectionRefusedError(ECONNREFUSED, "Connection refused")
        self.connections += 1
        return Wire(self, timeout_s)


class Wire(io.RawIOBase):
    """A client's end of a connection to a server, in place of a socket."""

    def __init__(self, server: Server, timeout_s: float) -> None:
        self._server, self._talk = server, server.talk()
        self._told, self._has_ended = next(self._talk), False
        self.settimeout(timeout_s)

    def settimeout(self, seconds: float) -> None:
        self._timeout_s = seconds
        self._server.limits_s.append(seconds)

    def sendall(self, data: bytes) -> None:
        if self._server.silent:
            return
        if self._has_ended:
            raise BrokenPipeError(EPIPE, "Broken pipe")
        try:
            self._told += self._talk.send(bytes(data))
        except StopIteration as end:
            self._told, self._has_ended = self._told + end.value, True

    def recv(self, count: int) -> bytes:
        if not self._told and not self._has_ended:
            clock.sleep(self._timeout_s)
            raise TimeoutError("timed out")
        data, self._told = self._told[:count], self._told[count:]
        return data

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def fileno(self) -> int:
        return -1 if self.closed else 1 << 20


class _Reader(io.RawIOBase):
    """What is answered, as a file; its end closes no connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        data = self._wire.recv(len(into))
        into[: len(data)] = data
        return len(data)


class Network:
    """Which servers can be reached; the addresses of others refuse connections."""

    def __init__(self) -> None:
        self.servers: dict[str, Server] = {}

    def add(self, *servers: Server) -> None:
        self.servers |= {server.address: server for server in servers}

    def at(self, connection: TcpConnection) -> Server:
        gone = Server("")
        gone.gone = True
        return self.servers.get(f"{connection.host}:{connection.port}", gone)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    made = Network()
    monkeypatch.setattr(TcpConnection, "_plain", lambda self, timeout_s: made.at(self).open(0, timeout_s=timeout_s))
    monkeypatch.setattr(TcpConnection, "speaks_tls", lambda self, timeout_s: made.at(self).speaks_tls)
    return made


@dataclass
class FakeHost:
    """A member's host; without a ``log`` the engine has ended."""

    name: str
    pid: int = 1
    ended: str | None = None
    log: str | None = ""

    @property
    def alive(self) -> bool:
        return self.ended is None

    def ending(self, words: LastWords = last_words) -> str | None:
        if self.ended is None:
            return None
        killed = "kill" in self.ended
        return with_words(self.ended, words(self.log or "", killed), killed)

    def logs(self, tail: int = 20) -> str:
        if self.log is None:
            raise RunError("the engine ended")
        return self.log


def places_of(kind: str, connections: Iterable[Any]) -> list[MemberPlace]:
    """Of members, each with its connection: they are called by their kind and number."""
    return [
        MemberPlace(FakeHost(f"{kind}{number}", number), f"10.0.0.{number}", connection)
        for number, connection in enumerate(connections, 1)
    ]


# --- HTTP -------------------------------------------------------------------------------------------------------------


class HttpServer(Server):
    """``answers``: a status and a body by "METHOD path" that take the place of what it would do.

    As many requests as ``refusals`` are answered 503.
    """

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.refusals = 0
        self.requests: list[str] = []
        self.answers: dict[str, tuple[int, bytes]] = {}

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        raise NotImplementedError

    def answered(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """One request, which is kept."""
        request = f"{method} {target}"
        self.requests.append(request)
        if self.refusals:
            self.refusals -= 1
            return 503, b""
        return self.answers.get(request) or self.answer(method, target, headers, body)

    def talk(self) -> Talk:
        held = answer = b""
        while True:
            held += yield answer
            head, whole, rest = held.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            size, answer = int(headers.get("Content-Length", 0)), b""
            if whole and len(rest) >= size:
                method, target, _ = first.split(" ")
                status, data = self.answered(method, target, headers, rest[:size])
                held = rest[size:]
                answer = f"HTTP/1.1 {status} -\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


class Service(HttpServer):
    """A small key-value service: ``values`` by key; ``statuses``: one by method in place of what it would do.

    What has ``refused`` in its target is answered 503. An answer takes ``takes_s``.
    """

    def __init__(self, address: str = "10.8.0.1:80") -> None:
        super().__init__(address)
        self.values: dict[str, bytes] = {}
        self.statuses: dict[str, int] = {}
        self.refused: str | None = None
        self.takes_s = 0.0

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        key = parse_qs(urlsplit(target).query).get("id", [""])[0]
        if self.takes_s:
            clock.sleep(self.takes_s)
        if self.refused is not None and self.refused in target:
            return 503, b""
        if method in self.statuses:
            return self.statuses[method], b""
        if method == "PUT":
            self.values[key] = body
            return 201, b""
        if method == "GET":
            return (200, self.values[key]) if key in self.values else (404, b"")
        return (404 if self.values.pop(key, None) is None else 202), b""


def services(network: Network, count: int) -> list[Service]:
    """So many, which know nothing of each other."""
    found = [Service(f"10.8.0.{number}:80") for number in range(1, count + 1)]
    network.add(*found)
    return found


class ConsulCluster:
    """What its servers share: ``values`` by key, in ``leader``'s hands (its number from 0; ``None``: there is none).

    ``terms`` and ``leaders``: what a server (by its number) takes for the term, where it is not 7, and for the leader;
    ``known``: how many servers it knows, where these are not all. ``denied``: paths that begin with it are answered
    403, as all requests are without ``token``.
    """

    def __init__(self, network: Network, count: int, net: str = "10.7.0") -> None:
        self.values: dict[str, bytes] = {}
        self.leader: int | None = 0
        self.terms: dict[int, int] = {}
        self.leaders: dict[int, int] = {}
        self.known: dict[int, int] = {}
        self.denied: str | None = None
        self.token: str | None = None
        self.servers = [ConsulServer(self, f"{net}.{number + 1}:8500", number) for number in range(count)]
        network.add(*self.servers)

    @property
    def requests(self) -> list[str]:
        return [request for server in self.servers for request in server.requests]

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def set_answer(self, request: str, status: int, body: bytes) -> None:
        """Of all servers."""
        for server in self.servers:
            server.answers[request] = (status, body)


class ConsulServer(HttpServer):
    """As much of its HTTP API as a run on an external cluster uses; servers of all clusters name the same peers."""

    def __init__(self, cluster: ConsulCluster, address: str, number: int) -> None:
        super().__init__(address)
        self.cluster, self.number = cluster, number

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        cluster = self.cluster
        is_denied = cluster.denied is not None and target.startswith(cluster.denied)
        if is_denied or cluster.token not in (None, headers.get("X-Consul-Token")):
            return 403, b"Permission denied: anonymous token lacks permission"
        status, value = self._answer(method, target, body)
        return status, value if isinstance(value, bytes) else json.dumps(value).encode()

    def _answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        cluster, own = self.cluster, f"10.9.0.{self.number + 1}"
        path, _, query = target.partition("?")
        if path == "/v1/agent/self":
            leader = cluster.leaders.get(self.number, cluster.leader)
            led = "" if leader is None else f"10.9.0.{leader + 1}:8300"
            raft = {"term": str(cluster.terms.get(self.number, 7))}
            return 200, {
                "Config": {"NodeName": f"node{self.number}", "NodeID": own, "Version": "1.16.1"},
                "Member": {"Addr": own, "Tags": {"port": "8300"}},
                "Stats": {"consul": {"leader_addr": led}, "raft": raft},
            }
        if path == "/v1/status/peers":
            known = cluster.servers[: cluster.known.get(self.number, len(cluster.servers))]
            return 200, [f"10.9.0.{server.number + 1}:8300" for server in known]
        if path == "/v1/operator/raft/transfer-leader":
            assert (method, cluster.leader) == ("POST", self.number)
            cluster.leader = int(query.rpartition(".")[2]) - 1
            cluster.terms = {server.number: 8 for server in cluster.servers}
            return 200, {"Success": True}
        if cluster.leader is None:
            return 500, b"No cluster leader"
        if path == "/v1/txn":
            for operation in json.loads(body):
                assert operation["KV"]["Verb"] == "delete"
                cluster.values.pop(operation["KV"]["Key"], None)
            return 200, {"Results": [], "Errors": None}
        key = unquote(path.removeprefix("/v1/kv/"))
        if method == "PUT":
            cluster.values[key] = body
            return 200, True
        if method == "DELETE":
            cluster.values.pop(key, None)
            return 200, True
        below = sorted(name for name in cluster.values if name.startswith(key))
        if "keys" in query.split("&"):
            return (200, below) if below else (404, b"")
        found = [name for name in below if name == key or "recurse" in query]
        entries = [{"Key": name, "ModifyIndex": 1, "Value": b64encode(cluster.values[name]).decode()} for name in found]
        return (200, entries) if entries else (404, b"")


# --- ZooKeeper --------------------------------------------------------------------------------------------------------

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

    def __init__(self, network: Network, count: int, net: str = "10.6.0") -> None:
        listed = "".join(f"server.{number + 1}=10.9.0.{number + 1}:2888:3888\n" for number in range(count))
        self.znodes: dict[str, bytes] = {"/zookeeper": b"", "/zookeeper/config": f"{listed}version=0".encode()}
        self.leader: int | None = 0
        self.denied: str | None = None
        self.kept: str | None = None
        self.secret: str | None = None
        self.old = False
        self.vanishing: str | None = None
        self.word: str | None = None
        self.servers = [ZooKeeperServer(self, f"{net}.{number + 1}:2181", number) for number in range(count)]
        network.add(*self.servers)

    @property
    def urls(self) -> list[str]:
        return [server.address for server in self.servers]

    def own(self) -> list[str]:
        """The paths of all znodes but ZooKeeper's own."""
        return sorted(path for path in self.znodes if not path.startswith("/zookeeper"))

    def children(self, path: str) -> list[str]:
        """Names."""
        return [name for held in self.znodes for above, _, name in [held.rpartition("/")] if above == path]

    def carry_out(self, operation: int, path: str, rest: bytes) -> tuple[int, bytes]:
        """The error and the body of the answer."""
        there, above = path in self.znodes, path.rpartition("/")[0]
        is_denied = operation in (_CREATE, _DELETE) and self.denied is not None and path.startswith(self.denied)
        if is_denied or (operation == _DELETE and above == self.kept) or (operation == _GET and path == self.secret):
            return _NO_AUTH, b""
        if operation == _CREATE:
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
            return 0, buffer(self.znodes[path]) + _STAT
        return 0, _text(path) if operation == _SYNC else _STAT


class ZooKeeperServer(Server):
    """As much of ZooKeeper as a run on an external cluster uses."""

    def __init__(self, cluster: ZooKeeperCluster, address: str, number: int) -> None:
        super().__init__(address)
        self.cluster, self.number, self.serves = cluster, number, True

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

    def talk(self) -> Talk:
        cluster, ephemeral, answer = self.cluster, list[str](), b""
        held = yield b""
        if held == b"srvr":
            return self.srvr().encode()
        if cluster.leader is None:
            return b""
        _, held = _packet(held)
        own = 0 if len(cluster.servers) == 1 else self.number + 1
        answer = buffer(struct.pack(">iiQi", 0, 10_000, own << 56 | 99, 16) + bytes(17))
        while True:
            held += yield answer
            request, held = _packet(held)
            xid, operation = struct.unpack(">ii", request[:8])
            if operation == _CLOSE:
                for path in ephemeral:
                    cluster.znodes.pop(path, None)
                return buffer(struct.pack(">iqi", xid, 5, 0))
            (size,) = struct.unpack(">i", request[8:12])
            path, rest = request[12 : 12 + size].decode(), request[12 + size :]
            error, body = cluster.carry_out(operation, path, rest)
            if error == 0 and operation == _DELETE and path in ephemeral:
                ephemeral.remove(path)
            if error == 0 and operation == _CREATE and rest.endswith(_EPHEMERAL):
                ephemeral.append(path)
            answer = buffer(struct.pack(">iqi", xid, 5, error) + (b"" if error else body))


class Scripted(Server):
    """A server that answers the pieces of a conversation, each once as many bytes have come; ``heard`` are all."""

    def __init__(self, *steps: tuple[int, bytes]) -> None:
        super().__init__("")
        self.steps, self.heard = steps, b""

    def talk(self) -> Talk:
        held = answer = b""
        for count, then in self.steps:
            while len(held) < count:
                held += yield answer
                answer = b""
            self.heard, held, answer = self.heard + held[:count], held[count:], answer + then
        return answer


def buffer(data: bytes) -> bytes:
    """With its length before it, as jute has it."""
    return struct.pack(">i", len(data)) + data


def _text(text: str) -> bytes:
    return buffer(text.encode())


def _packet(held: bytes) -> tuple[bytes, bytes]:
    """The first message, which is there as a whole, and the rest."""
    end = 4 + struct.unpack(">i", held[:4])[0]
    assert len(held) >= end
    return held[4:end], held[end:]


# --- files of endpoints -----------------------------------------------------------------------------------------------


def endpoints_file(folder: Path, store: Any, endpoints: list[str], **more: Any) -> Path:
    return write(folder, {"store": store, "endpoints": endpoints, **more}, "endpoints.json")


def config_of(folder: Path, store: Any, endpoints: list[str], **more: Any) -> Config:
    return load_config(endpoints_file(folder, store, endpoints, **more))


def of(folder: Path, cluster: ConsulCluster | ZooKeeperCluster, **more: Any) -> Config:
    """All of its servers."""
    return config_of(folder, "consul" if isinstance(cluster, ConsulCluster) else "zookeeper", cluster.urls, **more)


def opened(config: Config, own: OwnKeys = OWN) -> ExternalCluster:
    return cluster_of(config, own)
