"""Profiles of etcd's members over real sockets: a CPU profile ends where the connection is shut down."""

from __future__ import annotations

import gzip
import http.server
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from containernet_env.hosts.tcp_http import TcpConnection
from containernet_env.stores.etcd import profiling
from containernet_env.stores.etcd.profiling import EtcdProfiling
from containernet_env.stores.protocol import MemberPlace
from tests.deadline import HANG_S
from tests.unit.test_etcd_activity import Answers, FakeHost, taken


class Pprof(http.server.BaseHTTPRequestHandler):
    """What Go's net/http/pprof does: a CPU profile ends when its time is over or when who asked says no more."""

    ended_by_client: threading.Event

    def do_GET(self) -> None:
        kind = self.path.partition("?")[0].rpartition("/")[2]
        if kind == "missing":
            self.send_error(404)
            return
        if kind == "profile":
            self.connection.settimeout(HANG_S)
            assert self.connection.recv(1) == b""
            self.ended_by_client.set()
        body = gzip.compress(self.path.encode())
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def member() -> Iterator[Any]:
    handler = type("Handler", (Pprof,), {"ended_by_client": threading.Event()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

        host: Any = FakeHost("etcd1", "")
        place = MemberPlace(host, "10.0.0.1", TcpConnection("127.0.0.1", server.server_port))
        yield place, handler.ended_by_client  # type: ignore[attr-defined]
        server.shutdown()


def test_profiles_are_of_the_scenario(member: Any) -> None:
    place, ended = member
    cpu, allocs, mutex = taken(place, "mutex", "cpu", "allocs")
    assert ended.is_set(), "a CPU profile ends with the scenario, and not after the longest time"
    assert gzip.decompress(cpu.data) == b"/debug/pprof/profile?seconds=600"
    assert (cpu.kind, cpu.measured, cpu.before, cpu.problem) == ("cpu", "cpu", None, None)
    assert (allocs.kind, allocs.measured, mutex.measured) == ("allocs", "alloc_space", "delay")
    assert allocs.before is not None and gzip.decompress(allocs.before) == b"/debug/pprof/allocs"
    assert [profile.kind for profile in taken(place, "allocs")] == ["allocs"]


def test_a_profile_that_is_not_an_answer_is_a_problem(member: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place, _ = member
    monkeypatch.setattr(profiling, "_PATH", "/debug/pprof/missing?")
    (cpu,) = taken(place, "cpu")
    assert cpu.problem is not None and "404" in cpu.problem


def test_a_member_that_dies_meanwhile_has_no_profile() -> None:
    ours, theirs = socket.socketpair()
    connection = Answers()
    connection.open = lambda port, *, timeout_s: ours  # type: ignore[method-assign]
    place: Any = MemberPlace(FakeHost("etcd1", ""), "10.0.0.1", connection)  # type: ignore[arg-type]
    made = EtcdProfiling(place, ["cpu"])
    made.begin()
    theirs.close()
    made.end()
    (cpu,) = made.profiles()
    assert cpu.problem and not cpu.data
    assert ours.fileno() == -1, "an open connection keeps the namespace of the member"
