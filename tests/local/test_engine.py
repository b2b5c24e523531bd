"""The engine, played by sockets of this process: whether it answers, what becomes of it, and what the SDK raises."""

from __future__ import annotations

import gc
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from docker.errors import APIError, NotFound, StreamParseError

from containernet_env import cli, setup
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.containernet.network import CONTAINERS, attempt, tear_down_error
from containernet_env.hosts import engine, owner
from containernet_env.hosts.container import Container
from containernet_env.hosts.engine import EngineGoneError, EngineUnusableError, EngineWatch
from containernet_env.hosts.options import ContainerOptions

# The SDK leaves its sockets open where the other side has ended, or where it cannot use what answers.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


class FakeEngine:
    """Sends its version and begins to send events. ``greeting``: what it answers instead; ``silent``: nothing."""

    def __init__(self, place: Path) -> None:
        self.greeting = b""
        self.silent = False
        self.watched = threading.Event()
        self._events: socket.socket | None = None
        self._place = place
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(place))
        self._socket.listen(8)
        self._held: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._socket.accept()
                self._held.append(caller)
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with suppress(OSError):
            while (asked := caller.recv(65536)) and not self.silent:
                if self.greeting:
                    caller.sendall(self.greeting)
                    caller.shutdown(socket.SHUT_RDWR)
                elif b"/events" in asked:
                    caller.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    self._events = caller
                    self.watched.set()
                else:
                    body = b'{"ApiVersion": "1.41"}' if b"/version" in asked else b"[]"
                    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                    caller.sendall(head % len(body) + body)

    def tell_kill(self, container: str, signal: str = "15") -> None:
        """Tell the event of a signal to a container."""
        actor = {"ID": container, "Attributes": {"signal": signal}}
        message = json.dumps({"Type": "container", "Action": "kill", "Actor": actor}).encode()
        self._events.sendall(b"%x\r\n%s\r\n" % (len(message), message))

    def end(self, remove: bool = True) -> None:
        """End as dockerd does on SIGTERM, or, with its socket left behind, on SIGKILL."""
        if remove:
            self._place.unlink(missing_ok=True)
        self._socket.shutdown(socket.SHUT_RDWR)
        for held in self._held:
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
            held.close()
        self._socket.close()


@pytest.fixture(autouse=True)
def fresh_client() -> Iterator[None]:
    engine.client.cache_clear()
    yield
    engine.client.cache_clear()
    gc.collect()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the engine's socket would be."""
    path = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    return path


@pytest.fixture
def fake(place: Path) -> Iterator[FakeEngine]:
    made = FakeEngine(place)
    yield made
    with suppress(OSError):
        made.end()


def test_no_socket_is_no_engine(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setattr(engine, "_DEFAULT_ADDRESS", f"unix://{place}")
    assert engine.is_reachable() is False
    with pytest.raises(MissingRequirementError, match=r"nothing listens at unix://.*\n.*build\.sh") as raised:
        engine.client()
    assert not isinstance(raised.value, EngineUnusableError)


@pytest.mark.parametrize("address", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:{port}", "unix://{bound}"])
@pytest.mark.parametrize("ask", [engine.is_reachable, engine.client, engine.list_ours, setup.detect])
def test_an_address_that_leads_nowhere_is_named_and_nothing_else_is_missing(
    address: str, ask: Callable[[], object], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as probe, socket.socket(socket.AF_UNIX) as gone:
        probe.bind(("127.0.0.1", 0))
        gone.bind(str(place))
        named = address.format(port=probe.getsockname()[1], bound=place)
    monkeypatch.setenv("DOCKER_HOST", named)
    with pytest.raises(MissingRequirementError) as raised:
        ask()
    assert str(raised.value) == (
        f"no Docker engine answers at DOCKER_HOST={named}\n"
        "  Start that engine, or unset DOCKER_HOST so that the local one is used."
    )


def test_an_address_that_is_none_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("ftp://somewhere", "unix", "tcp://127.0.0.1", "ssh://somewhere"):
        monkeypatch.setenv("DOCKER_HOST", value)
        with pytest.raises(MissingRequirementError, match=value) as raised:
            engine.is_reachable()
        assert "DOCKER_HOST" in raised.value.remedy


def test_something_that_answers_rubbish_is_not_taken_for_nothing(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.greeting = b"SSH-2.0-OpenSSH_9.2\r\n"
    for ask in (engine.is_reachable, engine.client):
        with pytest.raises(EngineUnusableError, match=r"listens at DOCKER_HOST=unix://.*SSH-2\.0") as raised:
            ask()
        assert not raised.value.late
        assert "DOCKER_HOST" in raised.value.remedy and "setup.py pins" in raised.value.remedy
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SystemExit) as ended:
        cli.main(["clean"])
    printed = capsys.readouterr()
    assert ended.value.code == 3 and "the Docker SDK" in printed.err and "left behind" not in printed.out


def test_something_silent_may_be_an_engine_that_starts(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.silent = True
    monkeypatch.setattr(engine, "_PING_TIMEOUT_S", 0.1)
    with pytest.raises(EngineUnusableError, match="timed out") as raised:
        engine.is_reachable()
    assert raised.value.late


HOST = Container("etcd1", ContainerOptions(logs=True), "c0ffee")
ASKED: list[Callable[[], object]] = [
    engine.list_ours,
    engine.facts,
    lambda: HOST.exit_state(),
    lambda: HOST.logs(5),
    lambda: engine.remove_container("c0ffee"),
    lambda: engine.remove_containers(["c0ffee", "decaf"]),
    lambda: EngineWatch("a1b2c3", lambda: 2, lambda state: None).start(),
]
"""Every question that a run asks the engine."""


@pytest.mark.parametrize("remove", [True, False])
def test_the_end_of_an_engine_in_use_is_one_error_of_ours_with_the_remedy(
    remove: bool, fake: FakeEngine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.list_ours() == []
    fake.end(remove)
    for ask in ASKED:
        with pytest.raises(EngineGoneError) as raised:
            ask()
        assert str(raised.value) == (
            f"the Docker engine at unix://{place} has ended. Start the engine, then run `containernet-env clean`"
        )
    monkeypatch.delenv("DOCKER_HOST")  # how the local one is started is known
    assert str(EngineGoneError("has ended", "its containers etcd1, etcd2 may still run")) == (
        "the Docker engine at unix:///var/run/docker.sock has ended; its containers etcd1, etcd2 may still run. "
        "Start the engine (run ./build.sh as root), then run `containernet-env clean`"
    )


def test_an_engine_that_falls_silent_is_waited_for_once(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_PING_TIMEOUT_S", 0.05)
    monkeypatch.setattr(engine, "_CALL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(engine.connect, "__defaults__", (0.5,))
    engine.list_ours()
    fake.silent = True
    with pytest.raises(EngineGoneError, match=r"does not answer \(waited 0.5 s\)\. Restart"):
        engine.list_ours()
    for ask in ASKED:
        with pytest.raises(EngineGoneError, match=r"does not answer \(waited 0.05 s\)"):
            ask()


def test_an_engine_that_breaks_one_connection_has_not_ended(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.list_ours()

    def fail(self: Any, request: Any, **options: Any) -> Any:
        raise requests.exceptions.ConnectionError("Too many open files")

    monkeypatch.setattr(requests.Session, "send", fail)
    with pytest.raises(EngineGoneError, match=r"broke the connection \(Too many open files\)"):
        engine.list_ours()


class Watched:
    """A watch on a fake engine, and what it reported."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self.ended = threading.Event()
        self.watch = EngineWatch("a1b2c3", lambda: 2, lambda state: (self.reported.append(state), self.ended.set()))
        self.watch.start()


def stop_all(fake: FakeEngine, place: Path) -> None:
    fake.tell_kill("c0ffee", "9")
    for container in ("c0ffee", "c0ffee", "decaf"):
        fake.tell_kill(container)


@pytest.mark.parametrize(
    ("strike", "message"),
    [
        (lambda fake, place: fake.end(), "has ended"),
        (lambda fake, place: fake.end(remove=False), "has ended"),
        (lambda fake, place: (place.unlink(), fake.tell_kill("c0ffee")), "has ended"),
        (stop_all, "has stopped all containers of this run, as it does when it ends"),
        (None, None),
    ],
    ids=["SIGTERM", "SIGKILL", "it listens no more", "a service manager holds its socket", "closed before"],
)
def test_the_end_of_a_watched_engine_is_reported_once_and_not_after_the_watch_was_closed(
    strike: Callable[[FakeEngine, Path], object] | None, message: str, fake: FakeEngine, place: Path
) -> None:
    watched = Watched()
    assert fake.watched.wait(60) and watched.reported == []
    if strike is not None:
        strike(fake, place)
        assert watched.ended.wait(60)
    watched.watch.close()
    watched.watch.close()
    if strike is None:
        fake.end()
    for thread in threading.enumerate():
        if thread.name == "engine-watch":
            thread.join(60)
            assert not thread.is_alive()
    assert watched.reported == ([message] if message else [])


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_killed_while_it_sends_an_event_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an event is an error of the SDK's: the watch ended with a traceback and did not report the end."""

    def events(**_: Any) -> Iterator[Any]:
        yield from ()
        raise StreamParseError(ValueError("half an event"))

    monkeypatch.setattr(engine, "client", lambda: SimpleNamespace(events=events, api=SimpleNamespace(events=events)))
    watched = Watched()
    assert watched.ended.wait(60) and watched.reported == ["has ended"]


def test_a_tear_down_without_its_engine_says_so_first_and_what_stays(place: Path) -> None:
    def fail(error: Exception) -> None:
        raise error

    problems: list[tuple[str, Exception]] = []
    for name in ("etcd1", "benchmark", CONTAINERS):
        attempt(name, lambda: fail(EngineGoneError("has ended")), problems)
    attempt("links", lambda: fail(RunError("device busy")), problems)
    attempt("s1", lambda: None, problems)
    assert str(tear_down_error(problems)) == (
        f"the Docker engine at unix://{place} has ended; the containers of etcd1, benchmark stay in it, their "
        "processes have been ended; links: device busy. Start the engine, then run `containernet-env clean`"
    )
    alone = tear_down_error([("links", RunError("device busy"))])
    assert str(alone) == "could not be removed:\n  links: device busy"


def api_error(status: int, explanation: str) -> APIError:
    response = requests.Response()
    response.status_code = status
    kind = NotFound if status == 404 else APIError
    return kind("refused", response=response, explanation=explanation)


def with_api(monkeypatch: pytest.MonkeyPatch, **calls: Callable[..., Any]) -> None:
    """The engine's side is these calls of the SDK's low-level client."""
    monkeypatch.setattr(engine, "client", lambda: SimpleNamespace(api=SimpleNamespace(**calls)))
    monkeypatch.setattr(engine.client, "cache_clear", lambda: None, raising=False)


def test_every_container_is_tried_and_each_refusal_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose containerd was killed refuses once: the call is repeated."""
    refused: dict[str, Iterator[Exception]] = {
        "two": repeat(api_error(500, "device busy")),
        "three": repeat(api_error(404, "no such container")),
        "killed": iter([api_error(500, "connection error: containerd.sock")]),
    }
    removed: list[str] = []

    def remove(container: str, **options: Any) -> None:
        if (error := next(refused.get(container, iter(())), None)) is not None:
            raise error
        removed.append(container)

    with_api(monkeypatch, remove_container=remove, inspect_container=lambda container: {"State": {"Pid": 0}})
    monkeypatch.setattr(engine, "_POLL_S", 0.0)
    engine.remove_container("killed")
    engine.remove_container("three")
    monkeypatch.setattr(engine, "_REFUSAL_DEADLINE_S", 0.0)
    with pytest.raises(RunError, match="two: device busy") as raised:
        engine.remove_containers(["one", "two", "three", "four"])
    assert "three" not in str(raised.value) and sorted(removed) == ["four", "killed", "one"]
    with pytest.raises(RunError, match="two: device busy"):
        engine.remove_container("two")


def listed(**changes: Any) -> dict[str, Any]:
    """A container of ours as the engine lists it, with ``changes``; a label that is None is not there."""
    labels = {**engine.labels("a1b2c3", "etcd1"), **changes.pop("labels", {})}
    held = {key: value for key, value in labels.items() if value is not None}
    row = {"Id": "c0ffee", "Names": ["/cnenv-a1b2c3-etcd1"], "Labels": held, "State": "running", "Image": "i"}
    return row | changes


LOOK_ALIKE: list[dict[str, Any]] = [
    *({"Names": ["/my-database"]}, {"Names": ["/cnenv-a1b2c3-etcd1-copy"]}, {"Names": None}, {"Labels": None}),
    *({"labels": {owner.LABEL: None}}, {"labels": {owner.LABEL: "me"}}, {"labels": {engine.LABEL_HOST: None}}),
    *({"labels": {engine.LABEL: None}}, {"labels": {engine.LABEL_RUN: "d4e5f6"}}),
]


def test_a_container_of_ours_is_known_by_labels_name_and_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [listed(), listed(Names=["/cnenv-a1b2c3.etcd1"])]
    with_api(monkeypatch, containers=lambda **_: [*ours, *(listed(**changes) for changes in LOOK_ALIKE)])
    assert [(one.name, one.run, one.host, one.owner) for one in engine.list_ours()] == [
        ("cnenv-a1b2c3-etcd1", "a1b2c3", "etcd1", owner.current()),
        ("cnenv-a1b2c3.etcd1", "a1b2c3", "etcd1", owner.current()),
    ]
