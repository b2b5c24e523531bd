"""A cluster with TLS: what members, client and driver are given, and that the driver's connections speak it."""

from __future__ import annotations

import http.server
import os
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.config import load_config
from containernet_env.hosts import netns_http
from containernet_env.hosts.netns_http import NamespaceConnection, NoAnswerError
from containernet_env.hosts.secrets import put_secrets
from containernet_env.load.server import BenchmarkServer
from containernet_env.model.config import Config, EtcdSettings
from containernet_env.plan.build import build_plan
from containernet_env.plan.identity import config_hash
from containernet_env.plan.plan import Plan, PlanOptions
from containernet_env.runs import member_watch
from containernet_env.runs.member_watch import MemberWatch
from containernet_env.stores.etcd.certificates import Authority, Issued, client_context, trust_of
from containernet_env.stores.etcd.profiling import EtcdProfiling
from containernet_env.stores.etcd.store import ETCD
from containernet_env.stores.protocol import MemberPlace, Ping, Trust

ROOT = Path(__file__).resolve().parents[2]
PLAIN = load_config(ROOT / "configs" / "3node-3ms.json")
CONFIG = replace(PLAIN, etcd=EtcdSettings(tls=True))
BODY = b'{"x": 1}'


def plan_of(config: Config) -> Plan:
    return build_plan(config, None, PlanOptions(machine_cores=2))


def test_members_and_client_are_started_with_tls() -> None:
    *members, client = plan_of(CONFIG).hosts
    for host in members:
        flags = dict(flag.removeprefix("--").split("=", 1) for flag in host.command)
        assert {name: value for name, value in flags.items() if "://" in value and "http://" in value} == {}
        assert flags["listen-client-urls"] == "https://0.0.0.0:2379"
        assert flags["initial-cluster"].count("=https://") == 3
        for prefix in ("", "peer-"):
            assert flags[f"{prefix}client-cert-auth"] == "true"
            assert {flags[f"{prefix}{name}-file"] for name in ("cert", "key", "trusted-ca")} == {
                "/run/tls/cert.pem",
                "/run/tls/key.pem",
                "/run/tls/ca.pem",
            }
        assert dict(host.tmpfs) == {"/run/tls": "mode=0700,size=64k"}
        assert host.environment["ETCDCTL_CACERT"] == "/run/tls/ca.pem"
    assert client.command[1:] == ("--credentials", "/run/credentials")
    assert dict(client.tmpfs) == {"/run/credentials": "mode=0700,size=64k"}


def test_a_cluster_with_tls_is_another_one_and_one_without_is_what_it_was() -> None:
    assert config_hash(plan_of(CONFIG)) != config_hash(plan_of(PLAIN))
    *members, client = plan_of(PLAIN).hosts
    assert "--credentials" not in client.command and not any(host.tmpfs for host in (*members, client))
    assert not any("https" in flag or "/run" in flag for host in members for flag in host.command)
    assert ETCD.trust(PLAIN) is None


@pytest.fixture(scope="module")
def trust() -> Trust:
    return trust_of(CONFIG)


def test_each_host_gets_a_key_of_its_own_where_its_programs_look(trust: Trust) -> None:
    assert set(trust.files) == {"etcd1", "etcd2", "etcd3", "benchmark"}
    plan = plan_of(CONFIG)
    for host in plan.hosts:
        files = trust.files[host.name]
        (mount,) = host.tmpfs
        assert {Path(path).parent for path in files} == {Path(mount)}
        assert sum(map(len, files.values())) < 8192  # a page each
    named = {f"/run/credentials/{name}" for name in trust.request.values()}
    assert named == set(trust.files["benchmark"])
    keys = [content for files in trust.files.values() for content in files.values() if b"PRIVATE KEY" in content]
    assert len(keys) == len(set(keys)) == 4


def test_a_trust_does_not_print_its_keys(trust: Trust) -> None:
    assert "PRIVATE" not in repr(trust) and "PRIVATE" not in repr(Authority().issue("x"))


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
        self.server.speaks.wait(10)
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
    assert connection.request_json(server.port, "POST", "/x", {}, timeout_s=5) == {"x": 1}
    assert connection.request_bytes(server.port, "/x", timeout_s=5) == BODY
    with connection.open(server.port, timeout_s=5) as opened:
        opened.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert opened.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("inside")
def test_members_of_another_ca_are_refused_and_refuse(server: Server, trust: Trust) -> None:
    other = Authority()
    stranger = client_context(other, other.issue("driver"))
    for call in (
        lambda: NamespaceConnection(1, "etcd2", stranger).request_bytes(server.port, "/x", timeout_s=5),
        lambda: NamespaceConnection(1, "etcd2", stranger).open(server.port, timeout_s=5),
    ):
        with pytest.raises(NoAnswerError, match="certificate verify failed"):
            call()
    plain = NamespaceConnection(1, "etcd2")
    with pytest.raises(NoAnswerError):
        plain.request_bytes(server.port, "/x", timeout_s=5)


@pytest.mark.usefixtures("inside")
def test_a_certificate_of_another_address_is_refused(trust: Trust, tmp_path: Path) -> None:
    authority = Authority()
    made = Server(authority.certificate, authority.issue("etcd1", ["10.0.0.1", "etcd1"]), tmp_path)
    context = client_context(authority, authority.issue("driver"))
    with pytest.raises(NoAnswerError, match="IP address mismatch"):
        NamespaceConnection(1, "etcd1", context).request_bytes(made.port, "/x", timeout_s=5)
    made.shutdown()
    made.server_close()


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


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
    until(lambda: server.answered >= 10)
    assert watch.longest_s()["etcd2"] < 0.2 and len(opened) == 1
    server.speaks.clear()
    until(lambda: watch.silent(for_s=0.3) == ["etcd2"])
    assert len(opened) == 1
    server.speaks.set()
    watch.settle(2)
    assert watch.silent(for_s=0.01) == []
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


def test_every_request_says_with_which_files_the_load_is_let_in(trust: Trust) -> None:
    class Kept:
        body: Any = None

        def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
            self.body = body
            raise NoAnswerError("enough")

    kept: Any = Kept()
    BenchmarkServer(kept, trust.request).run("/benchmark/write", {"total": 1}, 1.0)
    assert kept.body == {"total": 1, "caFile": "ca.pem", "certFile": "cert.pem", "keyFile": "key.pem"}


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder of its own on another file system than this process' root, as a host's mounts are."""
    folder = Path("/dev/shm") / f"containernet-env-test-{os.getpid()}"
    if Path("/dev/shm").stat().st_dev == Path("/").stat().st_dev:
        pytest.skip("/dev/shm is no file system of its own")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def test_secrets_are_put_into_memory_for_root_alone(memory: Path) -> None:
    put_secrets(os.getpid(), "etcd1", {f"{memory}/key.pem": b"secret"})
    assert (memory / "key.pem").read_bytes() == b"secret"
    assert (memory / "key.pem").stat().st_mode & 0o777 == 0o600
    with pytest.raises(RunError, match=r"etcd1: .*/key.pem could not be written: File exists") as raised:
        put_secrets(os.getpid(), "etcd1", {f"{memory}/key.pem": b"other"})
    assert "other" not in str(raised.value)
    (memory / "link").symlink_to(memory / "elsewhere")
    with pytest.raises(RunError, match="could not be written"):
        put_secrets(os.getpid(), "etcd1", {f"{memory}/link": b"other"})
    assert not (memory / "elsewhere").exists()


def test_secrets_are_not_put_on_a_disk() -> None:
    with pytest.raises(RunError, match=r"etcd1: /etc/key.pem would not be in memory"):
        put_secrets(os.getpid(), "etcd1", {"/etc/key.pem": b"secret"})
    assert not Path("/etc/key.pem").exists()
    with pytest.raises(RunError, match="No such file or directory"):
        put_secrets(os.getpid(), "etcd1", {"/nowhere/key.pem": b"secret"})
