"""Faults that strike together, or where nobody had looked."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from containernet_env.base import clock, programs
from containernet_env.cli.output import Output
from containernet_env.hosts import engine
from containernet_env.hosts.engine import EngineWatch
from containernet_env.runs.testbed import Testbed
from tests.unit.fakes import Bench, write


@pytest.mark.parametrize(
    ("before", "meanwhile", "findings"),
    [
        ({"etcd1": 5.0}, {}, []),
        ({}, {"etcd9": 5.0}, []),
        ({}, {"etcd1": 5.0}, ["etcd1 answered nothing for 5.0 s; others take a member for gone after 1 s"]),
    ],
)
def test_a_row_is_marked_for_living_members_that_were_silent_in_its_own_scenario(
    before: dict[str, float], meanwhile: dict[str, float], findings: list[str]
) -> None:
    bench = Bench(write("w"))
    longest_s = mock.Mock(return_value=before)
    watch = mock.Mock(longest_s=longest_s, silent=lambda for_s: [])
    watch.reset.side_effect = lambda: longest_s.configure_mock(return_value=meanwhile)
    bench.matrix._members = watch
    bench.matrix.run()
    assert bench.findings() == findings


@pytest.mark.simulated(seeds=10)
def test_a_failure_that_is_told_a_moment_after_its_request_is_the_reason() -> None:
    failed = clock.Event()
    bed = SimpleNamespace(failure=None, _failed=failed, _links=SimpleNamespace(settle=lambda: None))

    def tell() -> None:
        clock.sleep(0.1)
        bed.failure = "the link emulator ended"
        failed.set()

    clock.Thread(target=tell).start()
    assert Testbed.settled_failure(bed) == "the link emulator ended"  # type: ignore[arg-type]


def test_a_pipe_that_somebody_made_non_blocking_loses_nothing() -> None:
    read, write_end = os.pipe()
    os.set_blocking(write_end, False)
    printed = Output(write_end, "standard output")
    data, got = b"x" * 1_000_000, bytearray()

    def take() -> None:
        while part := os.read(read, 65536):
            got.extend(part)

    reader = threading.Thread(target=take)
    reader.start()
    printed.write(data)
    os.close(write_end)
    reader.join(60)
    os.close(read)
    assert (printed.error, bytes(got) == data) == (None, True)


def test_what_was_written_no_longer_waits() -> None:
    """A run that prints more than 16 MiB in all went on without output."""
    with open(os.devnull, "wb") as null:
        printed = Output(null.fileno(), "standard output")
        with printed.unblocked():
            for _ in range(8):
                printed.write(b"x" * 1_000_000)
        assert printed._waiting == 0


def test_a_container_that_is_killed_is_no_sign_of_an_engine_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """`docker kill` of one host, SIGTERM to another: the engine has not stopped all."""
    told: list[str] = []

    def event(container: str, number: str) -> dict[str, Any]:
        return {"Actor": {"ID": container, "Attributes": {"signal": number}}}

    watch = EngineWatch("run", lambda: 2, told.append)
    monkeypatch.setattr(engine, "listens", lambda: True)

    def events() -> Any:
        yield event("a", "9")
        yield event("b", "15")
        watch._closing = True

    watch._events = events()
    watch._follow()
    assert told == []


def test_a_forked_process_has_a_life_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = programs.descriptor()
    assert programs.descriptor() == ours
    monkeypatch.setattr(os, "getpid", lambda: -1)
    theirs = programs.descriptor()
    for fd in programs._pipes.pop(-1):
        os.close(fd)
    assert theirs != ours
