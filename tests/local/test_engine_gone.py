"""An engine that ends or falls silent while it is in use, played by a socket of this process."""

from __future__ import annotations

import gc
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.containernet.tear_down import CONTAINERS, attempt, tear_down_error
from containernet_env.hosts import engine
from containernet_env.hosts.engine import EngineGoneError
from containernet_env.hosts.engine_watch import EngineWatch

# The SDK leaves its sockets open where the other side has ended.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

VERSION = b'{"ApiVersion": "1.41"}'


class FakeEngine:
    """Tells its version and begins to tell events; ``end`` and ``fall_silent`` are what may then become of it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(place))
        self._socket.listen(8)
        self._held: list[socket.socket] = []
        self._silent = False
        self._events: socket.socket | None = None
        self.watched = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._socket.accept()
                self._held.append(caller)
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with suppress(OSError):
            while (asked := caller.recv(65536)) and not self._silent:
                if b"/events" in asked:
                    caller.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    self._events = caller
                    self.watched.set()
                    continue
                body = VERSION if b"/version" in asked else b"[]"
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                caller.sendall(head.encode() + body)

    def tell_kill(self, container: str, signal: str = "15") -> None:
        """Tell the event of a signal to a container."""
        actor = {"ID": container, "Attributes": {"signal": signal}}
        told = json.dumps({"Type": "container", "Action": "kill", "Actor": actor}).encode()
        assert self._events is not None
        self._events.sendall(b"%x\r\n%s\r\n" % (len(told), told))

    def fall_silent(self) -> None:
        """From here on it takes requests and answers none."""
        self._silent = True

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


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    return path


@pytest.fixture
def fake(place: Path) -> Iterator[FakeEngine]:
    engine.client.cache_clear()
    made = FakeEngine(place)
    yield made
    with suppress(OSError):
        made.end()
    engine.client.cache_clear()
    gc.collect()


def ask_all() -> list[Callable[[], object]]:
    """Every question that a run asks the engine."""
    return [
        engine.list_ours,
        engine.facts,
        lambda: engine.wait_ended("c0ffee", "etcd1"),
        lambda: engine.logs_of("c0ffee", "etcd1", 5),
        lambda: engine.remove_container("c0ffee"),
        lambda: engine.remove_containers(["c0ffee", "decaf"]),
        lambda: EngineWatch("a1b2c3", lambda: 2, lambda state: None).start(),
    ]


@pytest.mark.parametrize("remove", [True, False])
def test_the_end_of_an_engine_in_use_is_one_error_of_ours_with_the_remedy(
    remove: bool, fake: FakeEngine, place: Path
) -> None:
    assert engine.list_ours() == []
    fake.end(remove)
    for ask in ask_all():
        with pytest.raises(EngineGoneError) as raised:
            ask()
        assert str(raised.value) == (
            f"the Docker engine at unix://{place} has ended. Start the engine, then run `containernet-env clean`"
        )
    assert issubclass(EngineGoneError, RunError)


def test_how_to_start_the_engine_is_told_where_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert str(EngineGoneError("has ended", "its containers etcd1, etcd2 may still run")) == (
        "the Docker engine at unix:///var/run/docker.sock has ended; its containers etcd1, etcd2 may still run. "
        "Start the engine (run ./build.sh as root), then run `containernet-env clean`"
    )


def test_an_engine_that_falls_silent_is_waited_for_once(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_PING_TIMEOUT_S", 0.05)
    monkeypatch.setattr(engine, "_CALL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(engine.connect, "__defaults__", (0.5,))
    engine.list_ours()
    fake.fall_silent()
    with pytest.raises(EngineGoneError, match=r"does not answer \(waited 0.5 s\)\. Restart"):
        engine.list_ours()
    for ask in ask_all():
        with pytest.raises(EngineGoneError, match=r"does not answer \(waited 0.05 s\)"):
            ask()


def test_an_engine_that_breaks_one_connection_has_not_ended(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.list_ours()

    def fail(self: Any, request: Any, **options: Any) -> Any:
        raise requests.exceptions.ConnectionError("Too many open files")

    monkeypatch.setattr(requests.Session, "send", fail)
    with pytest.raises(EngineGoneError, match=r"broke the connection \(Too many open files\)"):
        engine.list_ours()


def test_an_engine_that_never_was_there_is_a_missing_requirement(place: Path) -> None:
    engine.client.cache_clear()
    with pytest.raises(MissingRequirementError, match="no Docker engine answers at DOCKER_HOST="):
        engine.list_ours()


class Watched:
    """A watch on a fake engine, and what it told."""

    def __init__(self, fake: FakeEngine, running: int = 2) -> None:
        self.told: list[str] = []
        self.ended = threading.Event()
        self.watch = EngineWatch("a1b2c3", lambda: running, self._note)
        self.watch.start()
        assert fake.watched.wait(60)

    def _note(self, state: str) -> None:
        self.told.append(state)
        self.ended.set()


@pytest.mark.parametrize("remove", [True, False])
def test_the_end_of_a_watched_engine_is_told_at_once_and_once(remove: bool, fake: FakeEngine) -> None:
    watched = Watched(fake)
    assert watched.told == []
    fake.end(remove)
    assert watched.ended.wait(60)
    watched.watch.close()
    watched.watch.close()
    assert watched.told == ["has ended"]


def test_an_engine_that_stops_a_container_and_listens_no_more_has_ended(fake: FakeEngine, place: Path) -> None:
    watched = Watched(fake)
    place.unlink()
    fake.tell_kill("c0ffee")
    assert watched.ended.wait(60)
    assert watched.told == ["has ended"]
    watched.watch.close()


def test_an_engine_whose_socket_is_held_by_a_service_manager_is_known_by_stopping_all(fake: FakeEngine) -> None:
    watched = Watched(fake)
    fake.tell_kill("c0ffee", "9")
    fake.tell_kill("c0ffee")
    fake.tell_kill("c0ffee")
    fake.tell_kill("decaf")
    assert watched.ended.wait(60)
    assert watched.told == ["has stopped all containers of this run, as it does when it ends"]
    watched.watch.close()


def test_a_watch_that_is_closed_says_nothing(fake: FakeEngine) -> None:
    watched = Watched(fake)
    watched.watch.close()
    fake.end()
    assert not [thread for thread in threading.enumerate() if thread.name == "engine-watch" and joined(thread)]
    assert watched.told == []


def joined(thread: threading.Thread) -> bool:
    """Whether a thread is still there after a minute."""
    thread.join(60)
    return thread.is_alive()


def fail_with(error: Exception) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def test_a_tear_down_without_its_engine_says_so_first_and_what_stays(place: Path) -> None:
    problems: list[tuple[str, Exception]] = []
    for name in ("etcd1", "benchmark", CONTAINERS):
        attempt(name, fail_with(EngineGoneError("has ended")), problems)
    attempt("links", fail_with(RunError("device busy")), problems)
    attempt("s1", lambda: None, problems)
    assert str(tear_down_error(problems)) == (
        f"the Docker engine at unix://{place} has ended; the containers of etcd1, benchmark stay in it, their "
        "processes have been ended; links: device busy. Start the engine, then run `containernet-env clean`"
    )
    alone = tear_down_error([("links", RunError("device busy"))])
    assert str(alone) == "could not be removed:\n  links: device busy"


def test_an_engine_whose_containerd_was_killed_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.local.test_engine import api_error

    answers = iter([api_error(500, "connection error: containerd.sock"), None])

    def remove(container: str, **options: Any) -> None:
        if (error := next(answers)) is not None:
            raise error

    monkeypatch.setattr(engine, "client", lambda: SimpleNamespace(api=SimpleNamespace(remove_container=remove)))
    monkeypatch.setattr(engine, "_POLL_S", 0.0)
    engine.remove_container("c0ffee")
    assert next(answers, "asked twice") == "asked twice"


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_killed_while_it_tells_an_event_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an event is an error of the SDK's: the watch ended with a traceback, and nobody heard of the end."""
    from docker.errors import StreamParseError

    class Client:
        api: Any = None

        def events(self, **_: Any) -> Any:
            yield from ()
            raise StreamParseError(ValueError("half an event"))

    Client.api = Client()
    monkeypatch.setattr(engine, "client", Client)
    told: list[str] = []
    heard = threading.Event()
    EngineWatch("run", lambda: 1, lambda state: (told.append(state), heard.set())[0]).start()
    assert heard.wait(60)
    assert told == ["has ended"]
