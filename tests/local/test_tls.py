"""TLS over real sockets on loopback: the driver's connections speak it, and tell who does not."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containernet_env.config import load_config
from containernet_env.hosts import netns_http
from containernet_env.hosts.netns_http import NamespaceConnection, NoAnswerError
from containernet_env.hosts.tcp_http import TcpConnection
from containernet_env.model.config import EtcdSettings
from containernet_env.runs import member_watch
from containernet_env.runs.member_watch import MemberWatch
from containernet_env.stores.etcd.certificates import Authority, Issued, client_context, trust_of
from containernet_env.stores.etcd.profiling import EtcdProfiling
from containernet_env.stores.protocol import MemberPlace, Ping, Trust
from tests.deadline import HANG_S, eventually

ROOT = Path(__file__).resolve().parents[2]
PLAIN = load_config(ROOT / "configs" / "3node-3ms.json")
CONFIG = replace(PLAIN, etcd=EtcdSettings(tls=True))
BODY = b'{"x": 1}'


@pytest.fixture(scope="module")
def trust() -> Trust:
    return trust_of(CONFIG)


class Server(http.server.ThreadingHTTPServer):
    """Answers over TLS, and wants a certificate of the CA."""

    daemon_threads = True

    def __init__(self, authority: bytes, issued: Issued, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=authority.decode())
        context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF  # as Go's server: what it has to say it still says
        (folder / "pair.pem").write_bytes(issued.certificate + issued.key)
        context.load_cert_chain(folder / "pair.pem")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.port: int = self.server_address[1]
        self.speaks = threading.Event()
        self.speaks.set()
        self.answered = 0
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is refused is what some tests are about."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.speaks.wait(HANG_S)
        self.server.answered += 1
        if "seconds=" in self.path:
            assert self.rfile.read(1) == b""  # the client says no more
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    do_POST = do_GET

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets are made in this process' own namespace."""
    monkeypatch.setattr(netns_http.netns, "socket_in", lambda pid, family, kind: socket.socket(family, kind))


@pytest.fixture
def server(trust: Trust, tmp_path: Path) -> Iterator[Server]:
    """What a member serves with the files that it is given."""
    files = trust.files["etcd2"]
    issued = Issued(files["/run/tls/cert.pem"], files["/run/tls/key.pem"])
    made = Server(files["/run/tls/ca.pem"], issued, tmp_path)
    yield made
    made.shutdown()
    made.server_close()


@pytest.mark.usefixtures("inside")
def test_the_drivers_connection_speaks_tls(server: Server, trust: Trust) -> None:
    connection = NamespaceConnection(1, "etcd2", trust.context)
    assert connection.request_json(server.port, "POST", "/x", {}, timeout_s=HANG_S) == {"x": 1}
    assert connection.request_bytes(server.port, "/x", timeout_s=HANG_S) == BODY
    with connection.open(server.port, timeout_s=HANG_S) as opened:
        opened.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert opened.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("inside")
def test_members_of_another_ca_are_refused_and_refuse(server: Server, trust: Trust) -> None:
    other = Authority()
    stranger = client_context(other, other.issue("driver"))
    for call in (
        lambda: NamespaceConnection(1, "etcd2", stranger).request_bytes(server.port, "/x", timeout_s=HANG_S),
        lambda: NamespaceConnection(1, "etcd2", stranger).open(server.port, timeout_s=HANG_S),
    ):
        with pytest.raises(NoAnswerError, match="certificate verify failed"):
            call()
    plain = NamespaceConnection(1, "etcd2")
    with pytest.raises(NoAnswerError):
        plain.request_bytes(server.port, "/x", timeout_s=HANG_S)


@pytest.mark.usefixtures("inside")
def test_a_certificate_of_another_address_is_refused(trust: Trust, tmp_path: Path) -> None:
    authority = Authority()
    made = Server(authority.certificate, authority.issue("etcd1", ["10.0.0.1", "etcd1"]), tmp_path)
    context = client_context(authority, authority.issue("driver"))
    with pytest.raises(NoAnswerError, match="IP address mismatch"):
        NamespaceConnection(1, "etcd1", context).request_bytes(made.port, "/x", timeout_s=HANG_S)
    made.shutdown()
    made.server_close()


@pytest.mark.usefixtures("inside")
def test_pings_go_over_tls(server: Server, trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS has messages of its own, such as tickets of sessions: they neither answer a ping nor end the connection."""
    monkeypatch.setattr(member_watch, "PING_INTERVAL_S", 0.05)
    opened = []

    class Counted(NamespaceConnection):
        def open(self, port: int, *, timeout_s: float) -> socket.socket:
            opened.append(port)
            return super().open(port, timeout_s=timeout_s)

    ping = Ping(Counted(1, "etcd2", trust.context), server.port, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
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


@pytest.mark.usefixtures("inside")
def test_a_profile_of_cpu_ends_when_the_scenario_does(
    server: Server, trust: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("containernet_env.stores.etcd.profiling.CLIENT_PORT", server.port)
    nobody: Any = None  # a profile is asked of the address alone
    place = MemberPlace(nobody, "10.0.0.2", NamespaceConnection(1, "etcd2", trust.context))
    profiling = EtcdProfiling(place, ["cpu"])
    profiling.begin()
    profiling.end()
    assert [(found.data, found.problem) for found in profiling.profiles()] == [(BODY, None)]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["an end", "HTTP"])
def test_what_ends_or_answers_otherwise_speaks_no_tls(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                with listener.accept()[0] as client:
                    client.recv(1 << 16)  # the greeting, all of it: what is not read resets the connection
                    client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        connection = TcpConnection("127.0.0.1", listener.getsockname()[1], ssl.create_default_context())
        assert not connection.speaks_tls(HANG_S)
        with pytest.raises(NoAnswerError, match=r"^does not speak TLS$"):
            connection.open(1, timeout_s=HANG_S)
        thread.join()


def test_what_speaks_tls_is_known_without_its_trust(server: Server) -> None:
    assert TcpConnection("127.0.0.1", server.port).speaks_tls(HANG_S)
