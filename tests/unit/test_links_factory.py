"""Starts of the link emulator whose own test fails."""

from __future__ import annotations

from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.network import factory as factory_module
from containernet_env.network.factory import LinkFactory, Place


class FakeEmulator:
    """An emulator whose own test ends as `results` says, one start after the other."""

    results: list[bool]
    life: list[str]

    def __init__(self, binary: Any, on_event: Any, core: Any) -> None:
        self.hello: dict[str, Any] = {}

    def start(self) -> None:
        if self.hello:
            return
        self.life.append("start")
        passed = self.results.pop(0)
        self.hello = {"self_test": {"passed": passed, "reason": "" if passed else "too late"}}

    def stop(self) -> None:
        self.life.append("stop")

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        self.life.append(op)
        return {}


def made_with(results: list[bool], monkeypatch: pytest.MonkeyPatch) -> tuple[LinkFactory, list[str]]:
    """A factory that has made one switch, and what its emulators lived through."""
    life: list[str] = []
    monkeypatch.setattr(FakeEmulator, "results", list(results), raising=False)
    monkeypatch.setattr(FakeEmulator, "life", life, raising=False)
    monkeypatch.setattr(factory_module, "LinkEmulator", FakeEmulator)
    factory = LinkFactory("emulator", "abc123", None, lambda kind, text: None)
    factory.make_switch("s1")
    return factory, life


def test_an_emulator_that_passes_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    factory, life = made_with([True], monkeypatch)
    factory.make_switch("s2")
    assert life == ["start", "add_switch", "add_switch"]


def test_a_busy_moment_is_given_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    factory, life = made_with([False, True], monkeypatch)
    assert life == ["start", "stop", "start", "add_switch"]
    assert factory.emulator.hello["self_test"]["passed"]


def test_after_three_starts_the_failure_stands_in_the_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    factory, life = made_with([False, False, False, True], monkeypatch)
    factory.make_switch("s2")
    assert life == ["start", "stop", "start", "stop", "start", "add_switch", "add_switch"]
    assert factory.emulator.hello["self_test"] == {"passed": False, "reason": "too late"}


def test_links_without_a_seed_of_their_own_have_the_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    class Recorder(FakeEmulator):
        pid = None

        def ask(self, op: str, **fields: Any) -> Any:
            asked.append(fields)
            raise RunError("far enough")

    monkeypatch.setattr(FakeEmulator, "results", [True], raising=False)
    monkeypatch.setattr(FakeEmulator, "life", [], raising=False)
    monkeypatch.setattr(factory_module, "LinkEmulator", Recorder)
    factory = LinkFactory("emulator", "abc123", None, lambda kind, text: None, 4711)
    one, two = factory.make_switch("s1"), factory.make_switch("s2")
    spec = LinkSpec(DirectionSpec(), DirectionSpec(seed=5))
    with pytest.raises(RunError, match="far enough"):
        factory.make_link(Place("s1", one), Place("s2", two), spec)
    assert (asked[0]["a_to_b"]["seed"], asked[0]["b_to_a"]["seed"]) == (4711, 5)
