"""Connections to members over real sockets: the driver's speak TLS, tell who does not, and end profiles."""

from __future__ import annotations

import gzip
import http.server
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.http import NoAnswerError
from containernet_env.config.topologies import load_config
from containernet_env.hosts import http as netns_http
from containernet_env.hosts.http import NamespaceConnection, TcpConnection
from containernet_env.model.backends import ProfileKind
from containernet_env.model.config import EtcdSettings
from containernet_env.runs import follow
from containernet_env.runs.follow import MemberWatch
from containernet_env.stores import profiling
from containernet_env.stores.certificates import Authority, Issued, client_context
from containernet_env.stores.cluster import Ping
from containernet_env.stores.etcd import Etcd
from containernet_env.stores.profiling import Profile, Profiling
from containernet_env.stores.store import Trust
from tests.deadline import HANG_S, eventually

ROOT = Path(__file__).resolve().parents[2]
CONFIG = replace(load_config(ROOT / "configs" / "3node-3ms.json"), etcd=EtcdSettings(tls=True))
BODY = b'{"x": 1}'


@pytest.fixture(scope="module")
def trust() -> Trust:
    return Etcd.default().trust(CONFIG)


class Server(http.server.ThreadingHTTPServer):
    """Answers as a member; over TLS, and to who has a certificate of the CA, where it is given an authority."""

    daemon_threads = True

    def __init__(self, authority: bytes | None = None, issued: Issued | None = None, folder: Path = Path()) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        if authority is not None and issued is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=authority.decode())
            context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF  # as Go's server: what it has to say it still says
            (folder / "pair.pem").write_bytes(issued.certificate + issued.key)
            context.load_cert_chain(folder / "pair.pem")
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.speaks = threading.Event()
        self.speaks.set()
        self.ended_by_client = threading.Event()
        self.answered = 0
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is refused is what some tests are about."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = HANG_S
    server: Server

    def do_GET(self) -> None:
        self.server.speaks.wait(HANG_S)
        self.server.answered += 1
        if "/missing" in self.path:
            self.send_error(404)
            return
        if "seconds=" in self.path:  # a CPU profile, which ends when its time is over or when who asked says no more
            assert self.rfile.read(1) == b""
            self.server.ended_by_client.set()
        body = gzip.compress(self.path.encode()) if "/pprof/" in self.path else BODY
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets are made in this process' own namespace."""
    monkeypatch.setattr(netns_http.netns, "socket_in", lambda pid, family, kind: socket.socket(family, kind))


@pytest.fixture
def server(trust: Trust, tmp_path: Path) -> Iterator[Server]:
    """What a member serves with the files that it is given."""
    files = trust.files["etcd2"]
    issued = Issued(files["/run/tls/cert.pem"], files["/run/tls/key.pem"])
    with Server(files["/run/tls/ca.pem"], issued, tmp_path) as made:
        yield made


def test_members_of_another_ca_or_address_are_refused_and_refuse(server: Server, tmp_path: Path) -> None:
    other = Authority()
    context = client_context(other, other.issue("driver"))
    stranger, plain = NamespaceConnection(1, "etcd2", context), NamespaceConnection(1, "etcd2")
    with pytest.raises(NoAnswerError, match="certificate verify failed"):
        stranger.request_bytes(server.server_port, "/x", timeout_s=HANG_S)
    with pytest.raises(NoAnswerError, match="certificate verify failed"):
        stranger.open(server.server_port, timeout_s=HANG_S)
    with pytest.raises(NoAnswerError):
        plain.request_bytes(server.server_port, "/x", timeout_s=HANG_S)
    elsewhere = other.issue("etcd1", ["10.0.0.1", "etcd1"])
    with (
        Server(other.certificate, elsewhere, tmp_path) as made,
        pytest.raises(NoAnswerError, match="IP address mismatch"),
    ):
        stranger.request_bytes(made.server_port, "/x", timeout_s=HANG_S)


def test_pings_go_over_tls(server: Server, trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS has messages of its own, such as tickets of sessions: they neither answer a ping nor end the connection."""
    monkeypatch.setattr(follow, "PING_INTERVAL_S", 0.05)
    opened = []

    class Counted(NamespaceConnection):
        def open(self, port: int, *, timeout_s: float) -> socket.socket:
            opened.append(port)
            return super().open(port, timeout_s=timeout_s)

    connection = Counted(1, "etcd2", trust.context)
    ping = Ping(connection, server.server_port, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
    watch = MemberWatch(lambda: {"etcd2": ping})
    watch.start()
    eventually(lambda: server.answered >= 10, "ten pings are answered")
    assert len(opened) == 1
    server.speaks.clear()
    eventually(lambda: watch.silent(for_s=0.3) == ["etcd2"], "the member is silent")
    assert len(opened) == 1
    server.speaks.set()
    eventually(lambda: watch.silent(for_s=0.3) == [], "it answers again")
    watch.close()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["an end", "HTTP"])
def test_what_ends_or_answers_otherwise_speaks_no_tls(answer: bytes) -> None:
    class Other(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)  # the greeting, all of it: what is not read resets the connection
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Other) as listener:
        threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        connection = TcpConnection("127.0.0.1", listener.server_address[1], ssl.create_default_context())
        assert not connection.speaks_tls(HANG_S)
        with pytest.raises(NoAnswerError, match=r"^does not speak TLS$"):
            connection.open(1, timeout_s=HANG_S)
        listener.shutdown()


def taken(connection: Any, *kinds: ProfileKind) -> list[Profile]:
    made = Profiling(connection, 2379, kinds)
    made.begin()
    made.end()
    profiles = made.profiles()
    made.close()
    return profiles


def test_profiles_are_of_the_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server() as plain:
        connection = TcpConnection("127.0.0.1", plain.server_port)
        cpu, allocs, mutex = taken(connection, "mutex", "cpu", "allocs")
        assert plain.ended_by_client.is_set(), "a CPU profile ends with the scenario, and not after the longest time"
        assert gzip.decompress(cpu.data) == b"/debug/pprof/profile?seconds=600"
        assert (cpu.kind, cpu.measured, cpu.before, cpu.problem) == ("cpu", "cpu", None, None)
        assert (allocs.kind, allocs.measured, mutex.measured) == ("allocs", "alloc_space", "delay")
        assert allocs.before is not None and gzip.decompress(allocs.before) == b"/debug/pprof/allocs"
        assert [profile.kind for profile in taken(connection, "allocs")] == ["allocs"]
        monkeypatch.setattr(profiling, "_PATH", "/debug/missing?")
        (cpu,) = taken(connection, "cpu")
        assert cpu.problem is not None and "404" in cpu.problem
    # A member that dies meanwhile has none.
    ours, theirs = socket.socketpair()
    dying: Any = SimpleNamespace(open=lambda port, *, timeout_s: ours)
    made = Profiling(dying, 1, ["cpu"])
    made.begin()
    theirs.close()
    made.end()
    (cpu,) = made.profiles()
    assert cpu.problem and not cpu.data
    assert ours.fileno() == -1, "an open connection keeps the namespace of the member"
