"""The control connection, against the other end of a socket pair in this process."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.network.emulator import Answer, ControlClient

SOON_S = 0.05
"""The deadline of calls that cannot be answered or sent."""


class Emulator:
    """The other end: takes requests and answers by hand."""

    def __init__(self) -> None:
        ours, self.socket = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)  # soon full
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.lost = threading.Event()
        self.on_event: Callable[[dict[str, Any]], object] = self.events.put
        self.on_lost: Callable[[], object] = self.lost.set
        self.lines = self.socket.makefile("rb")
        self.client = ControlClient(ours, lambda event: self.on_event(event), lambda: self.on_lost())
        self.callers = ThreadPoolExecutor()

    def send_request(self, op: str, **fields: Any) -> Future[Answer]:
        """Have another thread make a call."""
        return self.callers.submit(self.client.request, op, **fields)

    def next_request(self) -> dict[str, Any]:
        return dict(json.loads(self.lines.readline()))

    def send(self, **message: Any) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def answer(self, **fields: Any) -> None:
        """To the next request."""
        self.send(id=self.next_request()["id"], **{"ok": True, **fields})

    def end(self) -> None:
        self.lines.close()
        self.socket.close()


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    fake = Emulator()
    yield fake
    fake.client.close()
    fake.end()
    fake.callers.shutdown()


def test_answers_find_their_requests_in_any_order_and_events_are_handed_on(emulator: Emulator) -> None:
    event = {"event": "port_down", "port": "d1-eth0", "reason": "host process 123 ended", "at_ns": 5}
    emulator.send(**event)
    assert emulator.events.get(timeout=60) == event
    answers = [emulator.send_request("read_link", name=name) for name in ("one", "two", "three")]
    requests = {request["name"]: request["id"] for request in (emulator.next_request() for _ in answers)}
    emulator.send(id=requests["two"], ok=True, at_ns=1, result={"is": 2})
    emulator.send(id=requests["three"], ok=False, error="a.port: no such port")
    emulator.send(id=requests["one"], ok=True, at_ns=12345, result={"is": 1})
    assert [answer.result(60) for answer in answers[:2]] == [Answer({"is": 1}, 12345), Answer({"is": 2}, 1)]
    with pytest.raises(RunError, match=r"^link emulator: read_link: a\.port: no such port$"):
        answers[2].result(60)


def test_no_answer_in_time_is_an_error_and_a_late_one_is_dropped(emulator: Emulator) -> None:
    with pytest.raises(RunError, match=r"no answer after 0\.05 s"):
        emulator.client.request("hello", deadline_s=SOON_S)
    emulator.answer(result={"late": True})
    later = emulator.send_request("hello")
    emulator.answer()
    assert later.result(60).result == {}


@pytest.mark.parametrize("junk", [None, b"junk\n", b"7\n", b"[]\n", b'{"id":[]}\n'])
def test_what_ends_the_connection_ends_it_for_all_who_wait(emulator: Emulator, junk: bytes | None) -> None:
    answer = emulator.send_request("stats", deadline_s=3600)
    emulator.next_request()
    emulator.socket.sendall(junk) if junk else emulator.end()
    with pytest.raises(RunError, match="its answer cannot be read" if junk else "^link emulator: stats: it has ended$"):
        answer.result(60)
    assert emulator.lost.wait(60)
    with pytest.raises(RunError, match="it has ended"):
        emulator.client.request("stats")


def test_an_emulator_that_stalls_blocks_no_caller_for_ever(emulator: Emulator) -> None:
    # It reads nothing. Requests pile up until the socket is full, and then sending itself would wait.
    problems = []
    while not problems or "no answer" in problems[-1]:
        with pytest.raises(RunError) as caught:
            emulator.client.request("hello", deadline_s=SOON_S / 5)
        problems.append(str(caught.value))
        assert len(problems) < 10_000
    assert problems[-1] == "link emulator: hello: the request cannot be sent within 0.01 s"
    # It goes on: nothing of that request was sent, so the next one is understood.
    assert not emulator.client.lost
    later = emulator.send_request("stats")
    while (request := emulator.next_request())["op"] != "stats":
        pass
    emulator.send(id=request["id"], ok=True)
    assert later.result(60).result == {}


def test_a_request_that_is_taken_in_part_only_ends_the_connection(emulator: Emulator) -> None:
    with pytest.raises(RunError, match=r"cannot be sent within 0\.05 s"):
        emulator.client.request("stats", deadline_s=SOON_S, text="x" * 10_000_000)
    assert emulator.lost.wait(60)
    with pytest.raises(RunError, match="it has ended"):
        emulator.client.request("hello")


def test_closing_does_not_wait_for_a_request_that_cannot_be_sent(emulator: Emulator) -> None:
    answer = emulator.send_request("stats", deadline_s=3600, text="x" * 10_000_000)
    assert emulator.socket.recv(1) == b"{"  # it is being sent
    emulator.client.close()
    with pytest.raises(RunError, match=r"^link emulator: stats: it has ended$"):
        answer.result(60)
    emulator.client.close()
    assert not emulator.lost.is_set(), "closing is no loss"


def test_a_handler_that_fails_costs_one_event(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: Mapping[str, Any]) -> None:
        raise LookupError(f"unknown: {event['event']}")

    emulator.on_event = fail
    emulator.on_lost = lambda: (emulator.lost.set(), fail({"event": "the end"}))
    emulator.send(event="one")
    emulator.send(event="two")
    answer = emulator.send_request("hello")
    emulator.answer()
    assert answer.result(60).result == {}
    emulator.end()
    assert emulator.lost.wait(60)
    emulator.client.close()
    errors = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert list(map(str, errors)) == ["unknown: one", "unknown: two", "unknown: the end"]
