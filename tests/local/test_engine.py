"""Whether an engine answers, on sockets of this process; and that what the SDK raises becomes an error of ours."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from docker.errors import APIError, DockerException, NotFound

from containernet_env import cli
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.hosts import engine, owner
from containernet_env.setup import missing

# The SDK leaves its socket open where it cannot use what answers.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


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
    monkeypatch.setattr(engine, "_PING_TIMEOUT_S", 1)
    return path


class Listener:
    """Accepts connections at ``place`` and answers each with the same bytes, or not at all."""

    def __init__(self, place: Path, answer: bytes | None) -> None:
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(place))
        self._socket.listen(8)
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            self._held.append(caller)
            if self._answer is not None:
                with suppress(OSError):  # who only looked whether anybody listens has gone
                    caller.recv(4096)
                    caller.sendall(self._answer)
                caller.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        for opened in (*self._held, self._socket):
            opened.close()


@pytest.fixture
def rubbish(place: Path) -> Iterator[None]:
    """Something that is no engine."""
    listener = Listener(place, b"SSH-2.0-OpenSSH_9.2\r\n")
    yield
    listener.close()


@pytest.fixture
def silent(place: Path) -> Iterator[None]:
    """What accepts and says nothing, as an engine that starts."""
    listener = Listener(place, None)
    yield
    listener.close()


def test_no_socket_is_no_engine(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setattr(engine, "_DEFAULT_ADDRESS", f"unix://{place}")
    assert engine.is_reachable() is False
    with pytest.raises(MissingRequirementError, match=r"nothing listens at unix://.*\n.*build\.sh") as raised:
        engine.client()
    assert not isinstance(raised.value, engine.EngineUnusableError)


@pytest.mark.parametrize("address", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:{port}", "unix://{bound}"])
@pytest.mark.parametrize("ask", [engine.is_reachable, engine.client, missing.look])
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


@pytest.mark.usefixtures("rubbish")
def test_something_that_answers_rubbish_is_not_taken_for_nothing() -> None:
    for ask in (engine.is_reachable, engine.client):
        with pytest.raises(engine.EngineUnusableError, match=r"listens at DOCKER_HOST=unix://.*SSH-2\.0") as raised:
            ask()
        assert not raised.value.late
        assert "DOCKER_HOST" in raised.value.remedy
        assert "setup.py pins" in raised.value.remedy


@pytest.mark.usefixtures("silent")
def test_something_silent_may_be_an_engine_that_starts() -> None:
    with pytest.raises(engine.EngineUnusableError, match="timed out") as raised:
        engine.is_reachable()
    assert raised.value.late


@pytest.mark.usefixtures("silent")
def test_an_sdk_that_fits_no_engine_is_told_apart_from_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    # docker 6.0.1 beside requests 2.34
    said = "Error while fetching server API version: Not supported URL scheme http+docker"

    def fail(timeout_s: int) -> Any:
        raise DockerException(said) from requests.exceptions.InvalidURL("Not supported URL scheme http+docker")

    monkeypatch.setattr(engine, "connect", fail)
    with pytest.raises(engine.EngineUnusableError, match="URL scheme") as raised:
        engine.is_reachable()
    assert not raised.value.late


@pytest.mark.parametrize("value", ["ftp://somewhere", "unix", "tcp://127.0.0.1", "ssh://somewhere"])
def test_an_address_that_is_none_is_an_error_that_names_it(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", value)
    with pytest.raises(MissingRequirementError, match=value) as raised:
        engine.is_reachable()
    assert "DOCKER_HOST" in raised.value.remedy


@pytest.mark.usefixtures("rubbish")
def test_clean_says_that_it_could_not_look(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SystemExit) as ended:
        cli.main(["clean"])
    assert ended.value.code == 3
    printed = capsys.readouterr()
    assert "the Docker SDK" in printed.err
    assert "left behind" not in printed.out


def api_error(status: int, explanation: str) -> APIError:
    response = requests.Response()
    response.status_code = status
    kind = NotFound if status == 404 else APIError
    return kind("refused", response=response, explanation=explanation)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (api_error(409, "the name is taken"), "making it: the name is taken"),
        (requests.exceptions.ReadTimeout("read timed out"), "making it: read timed out"),
        (ConnectionResetError(104, "Connection reset by peer"), "making it: .*reset by peer"),
    ],
)
def test_what_the_sdk_raises_is_an_error_of_ours(raised: Exception, said: str) -> None:
    with pytest.raises(RunError, match=said), engine.refusals("making it"):
        raise raised


class Removals:
    """The engine's side of removals: ``refused`` by id."""

    def __init__(self, refused: dict[str, Exception]) -> None:
        self.refused = refused
        self.removed: list[str] = []

    def inspect_container(self, container: str) -> dict[str, Any]:
        return {"State": {"Pid": 0}}

    def remove_container(self, container: str, **options: Any) -> None:
        if container in self.refused:
            raise self.refused[container]
        self.removed.append(container)


def test_every_container_is_tried_and_each_refusal_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Removals({"two": api_error(500, "device busy"), "three": api_error(404, "no such container")})
    monkeypatch.setattr(engine, "client", lambda: SimpleNamespace(api=api))
    monkeypatch.setattr(engine.client, "cache_clear", lambda: None, raising=False)
    monkeypatch.setattr(engine, "_REFUSAL_DEADLINE_S", 0.0)
    with pytest.raises(RunError, match="two: device busy") as raised:
        engine.remove_containers(["one", "two", "three", "four"])
    assert "three" not in str(raised.value)
    assert sorted(api.removed) == ["four", "one"]
    with pytest.raises(RunError, match="two: device busy"):
        engine.remove_container("two")
    engine.remove_container("three")


def listed(**changes: Any) -> dict[str, Any]:
    """A container of ours as the engine lists it, with ``changes``; a label that is None is not there."""
    labels = {**engine.labels("a1b2c3", "etcd1"), **changes.pop("labels", {})}
    held = {key: value for key, value in labels.items() if value is not None}
    return {
        "Id": "c0ffee",
        "Names": ["/cnenv-a1b2c3-etcd1"],
        "Labels": held,
        "State": "running",
        "Image": "i",
    } | changes


def test_a_container_of_ours_is_known_by_labels_name_and_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [listed(), listed(Names=["/cnenv-a1b2c3.etcd1"])]
    monkeypatch.setattr(engine, "client", lambda: SimpleNamespace(api=SimpleNamespace(containers=lambda **_: rows)))
    monkeypatch.setattr(engine.client, "cache_clear", lambda: None, raising=False)
    found = engine.list_ours()
    assert [(one.name, one.run, one.host) for one in found] == [
        ("cnenv-a1b2c3-etcd1", "a1b2c3", "etcd1"),
        ("cnenv-a1b2c3.etcd1", "a1b2c3", "etcd1"),
    ]
    assert {one.owner for one in found} == {owner.current()}


@pytest.mark.parametrize(
    "changes",
    [
        {"Names": ["/my-database"]},
        {"Names": ["/cnenv-a1b2c3-etcd1-copy"]},
        {"Names": None},
        {"labels": {owner.LABEL: None}},
        {"labels": {owner.LABEL: "me"}},
        {"labels": {engine.LABEL_HOST: None}},
        {"labels": {engine.LABEL: None}},
        {"labels": {engine.LABEL_RUN: "d4e5f6"}},
        {"Labels": None},
    ],
)
def test_a_container_that_only_looks_like_ours_is_not(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [listed(**changes)]
    monkeypatch.setattr(engine, "client", lambda: SimpleNamespace(api=SimpleNamespace(containers=lambda **_: rows)))
    monkeypatch.setattr(engine.client, "cache_clear", lambda: None, raising=False)
    assert engine.list_ours() == []
