"""The control connection, against the other end of a socket pair in this process."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.network.emulator.control import Answer, ControlClient
from containernet_env.network.emulator.link import EmulatedLink, changed_fields, direction_from_json, direction_to_json
from containernet_env.network.emulator.process import LinkEmulator
from containernet_env.network.interface import Interface, SwitchPort

SOON_S = 0.05
"""The deadline of calls that cannot be answered or sent."""


class Emulator:
    """The other end: takes requests and answers by hand."""

    def __init__(self) -> None:
        ours, self.socket = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)  # soon full
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.lost = threading.Event()
        self.lines = self.socket.makefile("rb")
        self.client = ControlClient(ours, self.events.put, self.lost.set)
        self.callers = ThreadPoolExecutor()

    def ask(self, op: str, **fields: Any) -> Future[dict[str, Any]]:
        """Have another thread make a call."""
        return self.callers.submit(self.client.call, op, **fields)

    def request(self) -> dict[str, Any]:
        return dict(json.loads(self.lines.readline()))

    def send(self, **message: Any) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def end(self) -> None:
        self.lines.close()
        self.socket.close()
        self.callers.shutdown()


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    fake = Emulator()
    yield fake
    fake.client.close()
    fake.end()


def test_answers_find_their_requests_in_any_order(emulator: Emulator) -> None:
    answers = [emulator.ask("read_link", name=name) for name in ("one", "two")]
    requests = {request["name"]: request["id"] for request in (emulator.request(), emulator.request())}
    emulator.send(id=requests["two"], ok=True, at_ns=1, result={"is": 2})
    emulator.send(id=requests["one"], ok=True, at_ns=2, result={"is": 1})
    assert [answer.result(60) for answer in answers] == [{"is": 1}, {"is": 2}]


def test_a_refusal_is_an_error_that_names_the_operation_and_the_reason(emulator: Emulator) -> None:
    answer = emulator.ask("add_link")
    emulator.send(id=emulator.request()["id"], ok=False, error="a.port: no such port")
    with pytest.raises(RunError, match=r"^link emulator: add_link: a\.port: no such port$"):
        answer.result(60)


def test_no_answer_in_time_is_an_error_and_a_late_one_is_nobodys(emulator: Emulator) -> None:
    with pytest.raises(RunError, match=r"no answer after 0\.05 s"):
        emulator.client.call("hello", deadline_s=SOON_S)
    emulator.send(id=emulator.request()["id"], ok=True, result={})
    later = emulator.ask("hello")
    emulator.send(id=emulator.request()["id"], ok=True)
    assert later.result(60) == {}


def test_events_are_handed_on(emulator: Emulator) -> None:
    event = {"event": "port_down", "port": "d1-eth0", "reason": "host process 123 ended", "at_ns": 5}
    emulator.send(**event)
    assert emulator.events.get(timeout=60) == event


def test_when_it_dies_whoever_waits_hears_of_it_at_once(emulator: Emulator) -> None:
    answer = emulator.ask("stats", deadline_s=3600)
    emulator.request()
    emulator.lines.close()
    emulator.socket.close()
    with pytest.raises(RunError, match=r"^link emulator: stats: it has ended$"):
        answer.result(60)
    assert emulator.lost.wait(60)
    with pytest.raises(RunError, match="it has ended"):
        emulator.client.call("stats")


def test_an_emulator_that_stands_still_holds_nobody_for_ever(emulator: Emulator) -> None:
    # It reads nothing. Requests pile up until the socket is full, and then sending itself would wait.
    problems = []
    while not problems or "no answer" in problems[-1]:
        with pytest.raises(RunError) as caught:
            emulator.client.call("hello", deadline_s=SOON_S / 5)
        problems.append(str(caught.value))
        assert len(problems) < 10_000
    assert problems[-1] == "link emulator: hello: the request cannot be sent within 0.01 s"
    # It goes on: nothing of that request was sent, so the next one is understood.
    assert not emulator.client.lost
    later = emulator.ask("stats")
    while (request := emulator.request())["op"] != "stats":
        pass
    emulator.send(id=request["id"], ok=True)
    assert later.result(60) == {}


def test_a_request_that_is_taken_in_part_only_ends_the_connection(emulator: Emulator) -> None:
    with pytest.raises(RunError, match=r"cannot be sent within 0\.05 s"):
        emulator.client.call("stats", deadline_s=SOON_S, text="x" * 10_000_000)
    assert emulator.lost.wait(60)
    with pytest.raises(RunError, match="it has ended"):
        emulator.client.call("hello")


def test_closing_does_not_wait_for_a_request_that_cannot_be_sent(emulator: Emulator) -> None:
    answer = emulator.ask("stats", deadline_s=3600, text="x" * 10_000_000)
    assert emulator.socket.recv(1) == b"{"  # it is being sent
    emulator.client.close()
    with pytest.raises(RunError, match=r"^link emulator: stats: it has ended$"):
        answer.result(60)


def test_a_handler_that_fails_costs_one_event_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = socket.socketpair()
    seen: list[dict[str, Any]] = []
    lost = threading.Event()

    def handle(event: dict[str, Any]) -> None:
        seen.append(event)
        raise LookupError(f"nobody knows {event['event']}")

    def ended() -> None:
        lost.set()
        raise LookupError("nobody knows the end")

    client = ControlClient(ours, handle, ended)
    with theirs, theirs.makefile("rb") as lines:
        theirs.sendall(b'{"event":"one"}\n{"event":"two"}\n')
        with ThreadPoolExecutor() as callers:
            answer = callers.submit(client.call, "hello")
            theirs.sendall(b'{"id":%d,"ok":true}\n' % json.loads(lines.readline())["id"])
            assert answer.result(60) == {}
    assert [event["event"] for event in seen] == ["one", "two"]
    assert lost.wait(60)
    with pytest.raises(RunError, match="it has ended"):
        client.call("hello")
    client.close()
    assert [record.exc_info[1].args[0] for record in caplog.records if record.exc_info and record.exc_info[1]] == [
        "nobody knows one",
        "nobody knows two",
        "nobody knows the end",
    ]


@pytest.mark.parametrize("junk", [b"junk\n", b"7\n", b"[]\n", b'{"id":[]}\n'])
def test_an_answer_that_is_none_ends_the_connection_for_all_who_wait(emulator: Emulator, junk: bytes) -> None:
    answer = emulator.ask("stats")
    emulator.request()
    emulator.socket.sendall(junk)
    with pytest.raises(RunError, match="its answer cannot be read"):
        answer.result(60)
    assert emulator.lost.wait(60)


def test_closing_is_no_loss(emulator: Emulator) -> None:
    emulator.client.close()
    emulator.client.close()
    assert not emulator.lost.is_set()


def test_directions_cross_the_protocol_unchanged() -> None:
    normal = Jitter("normal", 500_000)
    for direction in (
        DirectionSpec(seed=0),
        DirectionSpec(3_000_000, 10**9, 77, seed=1, overhead_bytes=24),
        DirectionSpec(3_000_000, None, None, 150_000, normal, GilbertElliottLoss(0.01, 0.25), 7),
        DirectionSpec(3_000_000, jitter=Jitter("uniform", 10**6, reorder=True), loss=IndependentLoss(0.001), seed=2),
    ):
        sent = json.loads(json.dumps(direction_to_json(direction)))
        assert direction_from_json({**sent, "frames": 12, "drops": {}}) == direction


def test_what_is_sent_has_the_protocols_own_names() -> None:
    spec = DirectionSpec(
        3_000_000,
        jitter=Jitter("normal", 500_000, correlation_ns=9_000_000),
        loss=GilbertElliottLoss(0.01, 0.25),
        seed=7,
        overhead_bytes=24,
    )
    assert direction_to_json(spec) == {
        "delay_ns": 3_000_000,
        "rate_bps": None,
        "queue_frames": None,
        "queue_bytes": None,
        "overhead_bytes": 24,
        "jitter": {"distribution": "normal", "ns": 500_000, "reorder": False, "correlation_ns": 9_000_000},
        "loss": {
            "model": "gilbert_elliott",
            "good_to_bad_ratio": 0.01,
            "bad_to_good_ratio": 0.25,
            "good_loss_ratio": 0.0,
            "bad_loss_ratio": 1.0,
        },
        "seed": 7,
    }
    assert direction_to_json(DirectionSpec(loss=IndependentLoss(1)))["loss"] == {"ratio": 1.0, "model": "independent"}


def test_a_default_limit_is_sent_where_none_is_asked_for() -> None:
    spec = DirectionSpec(0, 10**6, default_queue_frames=4000)
    assert direction_to_json(spec)["queue_frames"] == 4000
    assert direction_to_json(replace(spec, queue_frames=5))["queue_frames"] == 5
    assert direction_to_json(replace(spec, queue_bytes=5000))["queue_frames"] is None
    assert "default_queue_frames" not in direction_to_json(spec)


def test_a_change_names_the_seed_only_where_it_changes() -> None:
    # Naming it would restart the draws.
    held = DirectionSpec(3_000_000, seed=7)
    assert "seed" not in changed_fields(held, DirectionSpec(5_000_000, seed=7))
    assert "seed" not in changed_fields(DirectionSpec(), DirectionSpec(5_000_000))
    # That of the network takes the place of one that is left out.
    assert changed_fields(held, DirectionSpec(), 5)["seed"] == 5
    assert direction_to_json(DirectionSpec(), 5)["seed"] == 5
    assert direction_to_json(held, 5)["seed"] == 7
    assert changed_fields(held, held, restart=True)["seed"] == 7


class _Recorder(LinkEmulator):
    """Takes requests in place of a process, and holds what it was told last."""

    def __init__(self) -> None:
        super().__init__("/nonexistent", lambda kind, text: None)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.held: dict[str, Any] = {}

    def ask(self, op: str, deadline_s: float = 5.0, **fields: Any) -> Answer:
        if op != "read_link":
            self.requests.append((op, fields))
            for side in ("a_to_b", "b_to_a"):
                self.held[side] = self.held.get(side, {}) | fields[side]
        return Answer(self.held, 1)


def test_naming_the_seed_of_a_direction_restarts_its_draws_and_no_others() -> None:
    recorder = _Recorder()
    link = EmulatedLink(recorder, "d1-s1", (Interface(1, "e0", None, "d1"), SwitchPort("e1", "s1")), LinkSpec())
    seeded = DirectionSpec(3_000_000, loss=IndependentLoss(0.5), seed=7)
    link.apply(LinkSpec(seeded, seeded))
    link.change_directions({"a_to_b": {"seed": 7}})
    link.change_directions({"a_to_b": {"delay_ns": 5_000_000}, "b_to_a": {"delay_ns": 5_000_000}})
    made, restart, change = (fields for _, fields in recorder.requests)
    assert (made["a"], made["b"]) == ({"port": "d1"}, {"switch": "s1"})
    assert restart["a_to_b"]["seed"] == 7
    assert "seed" not in restart["b_to_a"]
    assert "seed" not in change["a_to_b"]
    assert "seed" not in change["b_to_a"]


def test_an_answer_tells_when_it_took_effect(emulator: Emulator) -> None:
    answer = emulator.callers.submit(emulator.client.ask, "heal")
    emulator.send(id=emulator.request()["id"], ok=True, at_ns=12345, result={})
    assert (answer.result(60).at_ns, answer.result().result) == (12345, {})


@pytest.mark.parametrize(
    ("said", "end", "told"),
    [
        ("map frame memory: no room", "exit 1", "exit status 1: map frame memory: no room"),
        ("fatal error: no room\n\ngoroutine 1 [running]:", "exit 2", "exit status 2: fatal error: no room"),
        ("link-emulator: started", "kill -9 $$", "killed by SIGKILL"),
    ],
)
def test_a_start_that_fails_tells_how_the_emulator_ended(tmp_path: Path, said: str, end: str, told: str) -> None:
    program = tmp_path / "link-emulator"
    program.write_text(f"#!/bin/sh\ncat >&2 <<.\n{said}\n.\n{end}\n")
    program.chmod(0o755)
    emulator = LinkEmulator(program, lambda kind, text: None)
    with pytest.raises(RunError, match=f"^the link emulator ended: {told}$"):
        emulator.start()
    emulator.stop()


def test_an_emulator_that_was_not_built_says_how_to_build_it() -> None:
    emulator = LinkEmulator("/nonexistent/link-emulator", lambda kind, text: None)
    with pytest.raises(MissingRequirementError, match=r"build\.sh"):
        emulator.start()
    with pytest.raises(RunError, match="not been started"):
        emulator.call("hello")
    emulator.stop()
