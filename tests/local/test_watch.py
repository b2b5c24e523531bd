"""`containernet-env watch`: whom its server answers, over real sockets, how the command ends, and the page."""

from __future__ import annotations

import base64
import hashlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.report import watch as servers
from containernet_env.report.watch import Follower, Server, State, view
from containernet_env.runs.lock import RunLock
from containernet_env.runs.sweep.ledger import Journal, journal_of
from tests.deadline import HANG_S, eventually
from tests.local.browser import CHROMIUM, Browser
from tests.unit.report_rows import EVIL, EVIL_NAMES
from tests.unit.watch_files import Machine, add_row, begin_sweep, event

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.csv"


@pytest.fixture
def served(out: Path) -> Iterator[Server]:
    with Server(out, State()) as server:
        server.state.publish({"told": EVIL})
        yield server


def asked(server: Server, path: str = "/", method: str = "GET", **headers: str) -> Any:
    """The status of an answer, its headers and its body."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": f"127.0.0.1:{server.port}", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


def test_the_page_needs_nothing_else_and_may_run_nothing_else(served: Server) -> None:
    status, headers, body = asked(served)
    assert status == 200 and b"out.csv" in body and b"src=" not in body
    script = body.partition(b"<script>")[2].partition(b"</script>")[0]
    allowed = base64.b64encode(hashlib.sha256(script).digest()).decode()
    policy = headers["Content-Security-Policy"]
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{allowed}'; style-src 'sha256-")
    assert script and "connect-src 'self'" in policy and "unsafe" not in policy
    assert headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
    assert served.server_address[0] == "127.0.0.1"


OWN, SAME = "http://localhost:{}", "same-origin"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        *[({"Host": f"{name}:{{}}"}, 200) for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]")],
        *[({"Host": name}, 403) for name in ("evil.example:{}", "127.0.0.1", "localhost:1", "0.0.0.0:{}")],
        ({"Host": "127.0.0.1:{}.evil.example"}, 403),
        *[({"Origin": site}, 403) for site in ("http://evil.example", "null", "https://localhost")],
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": OWN, "Sec-Fetch-Site": SAME}, 200),
    ],
)
def test_it_answers_to_its_own_names_and_pages_alone(served: Server, headers: dict[str, str], status: int) -> None:
    given = {name: value.format(served.port) for name, value in headers.items()}
    found, _, body = asked(served, **given)
    assert found == status and (status == 200 or EVIL.encode() not in body)
    assert status == 200 or asked(served, "/events", **given)[0] == 403


def test_it_takes_get_alone_and_serves_no_file(served: Server, out: Path) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        status, headers, _ = asked(served, method=method)
        assert (status, headers["Allow"]) == (405, "GET"), method
    out.write_text("secret")
    assert {asked(served, path)[0] for path in ("/out.csv", "/../out.csv", f"/{out}", "/events/", "/?x")} == {404}


def connected(port: int, text: str = "GET /events HTTP/1.1\r\nHost: localhost:{}\r\n\r\n") -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", port), timeout=HANG_S)
    stream.sendall(text.format(port).encode())
    return stream


def read_to(stream: socket.socket, end: bytes, at_once: int = 1) -> bytes:
    text = b""
    while not text.endswith(end):
        piece = stream.recv(at_once)
        assert piece, "it ended"
        text += piece
    return text


def read_event(stream: socket.socket) -> bytes:
    return read_to(stream, b"\n\n")


def answered(server: Server) -> socket.socket:
    stream = connected(server.port)
    head = read_to(stream, b"\r\n\r\n")
    assert b"200" in head and b"text/event-stream" in head
    return stream


def test_changes_come_as_events_and_the_last_one_ends_them(served: Server) -> None:
    with answered(served) as stream:
        assert json.loads(read_event(stream).removeprefix(b"data: ")) == {"told": EVIL}
        served.state.publish({"told": EVIL})  # nothing new
        served.state.publish({"told": "more"})
        assert read_event(stream) == b'data: {"told":"more"}\n\n'
        served.state.publish({"told": "end"}, ended=True)
        assert read_event(stream) == b'data: {"told":"end"}\n\n' and stream.recv(1) == b""
    served.drain()


def test_there_are_no_more_clients_than_it_has_threads_for(served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "MOST_CLIENTS", 3)
    streams = [answered(served) for _ in range(3)]
    with connected(served.port) as one_more:
        assert one_more.recv(12) == b"HTTP/1.0 503"
    monkeypatch.setattr(servers, "BEAT_S", 0.01)
    served.state.publish({"told": "wakes them"})
    for stream in streams:
        stream.close()
    assert eventually(lambda: not served._clients, "no client is left") and asked(served)[0] == 200


def test_a_client_that_takes_nothing_holds_nobody_up_and_is_given_up(
    served: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SEND_S", 0.2)
    with answered(served), answered(served) as other:
        read_event(other)
        served.state.publish({"rows": "x" * 8_000_000})
        assert len(read_to(other, b"\n\n", 1 << 20)) > 8_000_000 and asked(served)[0] == 200
        assert eventually(lambda: len(served._clients) == 1, "it is given up")


def test_a_request_that_comes_slowly_is_given_up(served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "REQUEST_S", 0.2)
    with connected(served.port, "GET / HTTP/1.1\r\nHost:") as slow:

        def is_given_up() -> bool:
            """Each byte restarts the time-out of the socket."""
            try:
                slow.sendall(b" ")
            except OSError:
                return True
            return False

        assert eventually(is_given_up, "the server closes the connection")
    assert eventually(lambda: not served._clients, "no client is left")


WATCH = """
import sys
from pathlib import Path
from containernet_env.runs import lock
lock.holder.__defaults__ = (Path(sys.argv.pop(1)),)
from containernet_env.cli import main
main()
"""


def watching(lock: Path, out: Path) -> Any:
    command = [sys.executable, "-c", WATCH, str(lock), "watch", str(out)]
    ctrl_c = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, preexec_fn=ctrl_c)


def end(process: Any) -> tuple[int, str, str]:
    told, error = process.communicate(timeout=HANG_S)
    return process.returncode, told, error


def test_the_command_follows_a_run_says_its_end_and_leaves_and_begins_for_no_other(out: Path, tmp_path: Path) -> None:
    with RunLock(tmp_path / "lock"):
        event(out, "run_began", "run x")
        process = watching(tmp_path / "lock", out)
        assert "watching" in process.stdout.readline()
        event(out, "run_ended", "1 of 1 scenarios, 0 failed")
    assert end(process) == (0, f"the run on {out} ended: 1 of 1 scenarios, 0 failed\n", "")
    status, _, error = end(watching(tmp_path / "lock", out))  # where nothing is measured it says what to do
    assert status == 2 and f"nothing is measured on {out} now\n  Begin it" in error and "report" in error


def test_a_sweep_that_other_machines_measure_for_is_followed(out: Path, tmp_path: Path) -> None:
    """It does not hold this machine; a worker of it here holds that now and then."""
    journal = Journal(journal_of(out))
    journal.add("sweep", {"seed": 1, "repeat": 1, "cells": 2, "command": ["sweep"]})
    process = watching(tmp_path / "lock", out)
    assert "watching" in process.stdout.readline()
    with RunLock(tmp_path / "lock"):
        pass
    assert process.poll() is None
    journal.add("sweep_ended", {})
    journal.close()
    status, told, error = end(process)
    assert (status, error) == (0, "") and told.startswith(f"the sweep on {out} ended"), told


def test_ctrl_c_ends_the_command_at_once_with_a_page_open(out: Path, tmp_path: Path) -> None:
    with RunLock(tmp_path / "lock"):
        event(out, "run_began", "run x")
        process = watching(tmp_path / "lock", out)
        port = int(process.stdout.readline().partition("127.0.0.1:")[2].partition("/")[0])
        with connected(port) as page:
            read_event(page)
            process.send_signal(signal.SIGINT)
            status, _, error = end(process)
        assert (status, error.strip()) == (130, "interrupted")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_the_page_shows_rows_as_text_draws_them_ends_and_is_silent(out: Path, tmp_path: Path) -> None:
    machine = Machine()
    begin_sweep(out)
    event(out, "run_began", "run x")
    event(out, "scenario_began", EVIL, EVIL)
    for place, name in enumerate((*EVIL_NAMES, "plain")):
        name = name.replace(",", ";").replace("\n", " ").replace('"', "'")
        add_row(out, Scenario=name, Valid="no" if place == 1 else "yes", Reasons=EVIL if place == 1 else "-")
    follower = Follower(out, machine)
    with Server(out, State()) as server, Browser(tmp_path / "profile") as browser:
        server.state.publish(view(follower.look()))
        browser.go(server.url)
        assert browser.js("document.getElementById('now').textContent").startswith(f"{EVIL}, for ")
        rows = browser.js("[...document.querySelectorAll('#rows tbody tr')].map((line) => line.className)")
        assert sorted(rows) == ["", "", "", "", "bad"] and browser.js("document.querySelectorAll('img').length") == 0
        assert browser.js("document.querySelectorAll('svg').length") == 2
        assert browser.js("document.querySelectorAll('svg .cross').length") == 3
        assert browser.js("document.querySelectorAll('#rows tbody script').length") == 0
        server.state.publish(view(follower.look() | {"end_s": clock.time() + 3600 + 1800}))
        assert eventually(
            lambda: "about 1 h" in browser.js("document.getElementById('standing').textContent"), "it is shown"
        )
        machine.holder = None
        found = follower.look()
        server.state.publish(view(found), ended=True)
        assert found["course"] == "killed"
        assert eventually(lambda: "killed" in browser.js("document.getElementById('now').textContent"), "it is shown")
        server.drain()
        assert browser.messages == []
