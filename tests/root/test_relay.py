"""The relay and the HTTP client inside a namespace: this process's own serves as the inside."""

from __future__ import annotations

import http.server
import json
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from containernet_env.hosts.netns_http import HttpError, NamespaceConnection, NoAnswerError, request_json
from containernet_env.load.relay import Relay
from tests.deadline import HANG_S

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="not root")]


class Answers(http.server.BaseHTTPRequestHandler):
    """Echoes a JSON body; /refuse answers 400, /garbage something that is no JSON."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = 400 if self.path == "/refuse" else 200
        answer = b"<html>" if self.path == "/garbage" else b'{"error": "no"}' if status == 400 else body
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        answer = b"\x00\xff no text" if self.path == "/bytes" else b"not here"
        self.send_response(200 if self.path == "/bytes" else 404)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Quiet."""


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def relay(port: int) -> Iterator[Relay]:
    relay = Relay(os.getpid(), port, 0)
    relay.start()
    yield relay
    relay.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def has_ended(caller: socket.socket) -> bool:
    """Whether the connection was closed from the other side; one that nobody had accepted yet is reset."""
    caller.settimeout(HANG_S)
    try:
        return caller.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_request_and_its_answer_pass_whole(relay: Relay) -> None:
    body = {"text": "x" * 1_000_000}
    assert request_json(os.getpid(), relay.port, "POST", "/", body, timeout_s=HANG_S) == body


def test_many_callers_at_once(relay: Relay) -> None:
    answers: list[int] = []

    def call(number: int) -> None:
        answers.append(request_json(os.getpid(), relay.port, "POST", "/", number, timeout_s=HANG_S))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(1, 33)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(1, 33))


def test_a_taken_port_is_replaced_by_another_on_loopback_only(port: int) -> None:
    relay = Relay(os.getpid(), port, port)
    try:
        assert relay.port_taken
        assert relay.port != port
        assert relay._listener.getsockname()[0] == "127.0.0.1"
    finally:
        relay.close()


def test_where_nobody_listens_inside_the_caller_sees_a_closed_connection() -> None:
    relay = Relay(os.getpid(), free_port(), 0)
    relay.start()
    try:
        with socket.create_connection(("127.0.0.1", relay.port), timeout=HANG_S) as caller:
            assert has_ended(caller)
    finally:
        relay.close()


def test_close_ends_open_connections_and_frees_the_port(port: int) -> None:
    relay = Relay(os.getpid(), port, 0)
    relay.start()
    with socket.create_connection(("127.0.0.1", relay.port), timeout=HANG_S) as caller:
        relay.close()
        assert has_ended(caller)
    with pytest.raises(NoAnswerError):
        request_json(os.getpid(), relay.port, "POST", "/", {}, timeout_s=HANG_S)


def test_a_refusal_carries_its_status_and_reason(port: int) -> None:
    with pytest.raises(HttpError) as caught:
        request_json(os.getpid(), port, "POST", "/refuse", {}, timeout_s=HANG_S)
    assert (caught.value.status, caught.value.body) == (400, {"error": "no"})


def test_an_answer_that_is_no_json_is_none(port: int) -> None:
    with pytest.raises(NoAnswerError, match="not JSON"):
        request_json(os.getpid(), port, "POST", "/garbage", {}, timeout_s=HANG_S)


def test_bytes_are_handed_over_as_they_are(port: int) -> None:
    connection = NamespaceConnection(os.getpid(), "etcd1")
    assert connection.request_bytes(port, "/bytes", timeout_s=HANG_S) == b"\x00\xff no text"
    with pytest.raises(HttpError, match="HTTP 404: not here"):
        connection.request_bytes(port, "/others", timeout_s=HANG_S)


def test_silence_ends_at_the_deadline() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        deadline_s = 0.2  # of the request, which has to end by it
        with pytest.raises(NoAnswerError, match="timed out"):
            request_json(os.getpid(), silent.getsockname()[1], "GET", "/", timeout_s=deadline_s)


def test_the_body_may_be_any_json_value(port: int) -> None:
    assert request_json(os.getpid(), port, "POST", "/", json.loads('["a", 1]'), timeout_s=HANG_S) == ["a", 1]
