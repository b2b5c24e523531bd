"""The relay and the HTTP clients inside a namespace: this process's own serves as the inside of most."""

from __future__ import annotations

import http.server
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.http import HttpError, NoAnswerError
from containernet_env.hosts import netns
from containernet_env.hosts.http import NamespaceConnection, UnixConnection
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.runs.load import Relay
from tests.deadline import HANG_S

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="not root")]


ANSWERS = {"/refuse": (400, b'{"error": "no"}'), "/garbage": (200, b"<html>"), "/bytes": (200, b"\x00\xff no text")}


class Answers(http.server.BaseHTTPRequestHandler):
    """Echoes a body, but for these paths; other GETs find nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        echo = (404, b"not here") if self.command == "GET" else (200, body)
        status, answer = ANSWERS.get(self.path, echo)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server.server_address[1]
        server.shutdown()


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@contextmanager
def relay_to(server: UnixConnection, port: int = 0) -> Iterator[Relay]:
    relay = Relay(server, port)
    relay.start()
    try:
        yield relay
    finally:
        relay.close()


def post(port: int, body: Any, path: str = "/", **more: Any) -> Any:
    connection = NamespaceConnection(os.getpid(), "client")
    return connection.request_json(port, "POST", path, body, **{"timeout_s": HANG_S, **more})


def has_ended(caller: socket.socket) -> bool:
    """Whether the connection was closed from the other side; one not yet accepted is reset."""
    try:
        return caller.recv(1) == b""
    except ConnectionResetError:
        return True


def test_without_a_server_and_after_close_connections_end_also_one_to_a_server_that_is_stopped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = f"containernet-env-test-stopped-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as stopped, relay_to(UnixConnection("benchmark", name, os.getpid())) as relay:
        connect = partial(socket.create_connection, ("127.0.0.1", relay.port), timeout=HANG_S)
        with connect() as caller:
            assert has_ended(caller), "nothing listens inside"
        stopped.bind(f"\0{name}")
        stopped.listen()
        with connect() as caller, stopped.accept()[0] as inside:
            caller.sendall(b"x")
            inside.recv(1)
            relay.close()
            assert has_ended(caller)
        with pytest.raises(NoAnswerError):
            post(relay.port, {})
    assert "Exception" not in capsys.readouterr().err


def test_a_server_in_its_own_namespace_alone_is_relayed_to_at_another_port_where_one_is_taken(port: int) -> None:
    """A run's benchmark server listened on the emulated network: any member could start and cancel loads."""
    with ThrowawayNamespace() as client, ThrowawayNamespace() as member:
        listener = netns.call_in(client.pid, lambda: UnixServer("\0server", Answers))
        threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        reached = UnixConnection("benchmark", "server", client.pid)
        assert reached.request_json(0, "POST", "/", {"x": 1}, timeout_s=HANG_S) == {"x": 1}
        assert reached.request_bytes(0, "/bytes", timeout_s=HANG_S) == b"\x00\xff no text"
        with relay_to(reached, port) as relay, ThreadPoolExecutor(32) as callers:
            assert relay.port_taken and relay.port != port and relay.socket.getsockname()[0] == "127.0.0.1"
            text = {"text": "x" * 1_000_000}
            assert post(relay.port, text) == text
            assert list(callers.map(lambda number: post(relay.port, number), range(1, 33))) == list(range(1, 33))
        for pid in (member.pid, os.getpid()):
            with pytest.raises(NoAnswerError, match=r"POST /: .*Connection refused"):
                UnixConnection("benchmark", "server", pid).request_json(0, "POST", "/", {}, timeout_s=HANG_S)
        listener.shutdown()
        listener.server_close()
    with pytest.raises(NoAnswerError, match="GET /bytes: host benchmark has ended"):
        reached.request_bytes(0, "/bytes", timeout_s=HANG_S)


def test_a_socket_in_a_folder_of_any_length_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    monkeypatch.chdir(folder)
    with UnixServer("server.sock", Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        connection = UnixConnection("benchmark server", folder / "server.sock")
        assert connection.request_json(0, "POST", "/", {"x": 1}, timeout_s=HANG_S) == {"x": 1}
        with pytest.raises(NoAnswerError, match="benchmark server: No such file"):
            UnixConnection("benchmark server", folder / "other.sock").open(timeout_s=HANG_S)
        server.shutdown()


def test_refusals_and_answers_that_are_no_json_are_distinguished(port: int) -> None:
    with pytest.raises(HttpError) as caught:
        post(port, {}, "/refuse")
    assert (caught.value.status, caught.value.body) == (400, {"error": "no"})
    with pytest.raises(NoAnswerError, match="not JSON"):
        post(port, {}, "/garbage")
    assert post(port, ["a", 1]) == ["a", 1]
    connection = NamespaceConnection(os.getpid(), "etcd1")
    assert connection.request_bytes(port, "/bytes", timeout_s=HANG_S) == b"\x00\xff no text"
    with pytest.raises(HttpError, match="HTTP 404: not here"):
        connection.request_bytes(port, "/others", timeout_s=HANG_S)


def test_silence_ends_at_the_deadline() -> None:
    deadline_s = 0.2  # of the request, which has to end by it
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NoAnswerError, match="timed out"):
        post(silent.getsockname()[1], {}, timeout_s=deadline_s)
