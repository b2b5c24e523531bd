"""Stop signals: one raise, then none; deferred while a row is written."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

import pytest

from containernet_env.base.errors import Interrupted
from containernet_env.cli import signals
from containernet_env.cli.signals import STOP_SIGNALS, StopSignals


def send(signum: int) -> None:
    os.kill(os.getpid(), signum)


@pytest.mark.parametrize("signum", STOP_SIGNALS)
def test_the_first_signal_raises_with_its_number(signum: int) -> None:
    with StopSignals() as stop:
        with pytest.raises(Interrupted) as caught:
            send(signum)
        assert caught.value.signum == signum
        assert stop.received == signum


def test_only_the_first_signal_raises() -> None:
    ignored: list[int] = []
    with StopSignals(on_ignored=ignored.append):
        with pytest.raises(Interrupted):
            send(signal.SIGINT)
        send(signal.SIGINT)
        send(signal.SIGTERM)
    assert ignored == [signal.SIGINT, signal.SIGTERM]


def test_no_signal_raises_behind_the_shield_but_it_is_remembered() -> None:
    with StopSignals() as stop:
        stop.shield()
        send(signal.SIGTERM)
    assert stop.received == signal.SIGTERM


def test_a_deferred_signal_raises_when_the_block_ends() -> None:
    steps = []
    with StopSignals() as stop, pytest.raises(Interrupted):
        with stop.deferred():
            send(signal.SIGINT)
            steps.append("row written")
        steps.append("never reached")
    assert steps == ["row written"]


def test_an_exception_of_the_block_is_not_replaced_by_the_signal() -> None:
    with StopSignals() as stop, pytest.raises(ValueError), stop.deferred():
        send(signal.SIGINT)
        raise ValueError


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopSignals():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_interrupted_passes_through_except_exception() -> None:
    assert not issubclass(Interrupted, Exception)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted(2), ValueError("x")])
def test_of_errors_that_nothing_can_catch_a_stop_needs_no_word(
    error: BaseException, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dropping:
        def __del__(self) -> None:
            raise error

    monkeypatch.setattr(sys, "unraisablehook", signals.tell_unraisable)
    Dropping()
    assert ("Exception ignored" in capfd.readouterr().err) == isinstance(error, ValueError)


def test_ctrl_c_that_an_extension_dropped_keeps_work_from_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_pressed", False)
    with StopSignals():
        pass
    found = signal.signal(signal.SIGINT, signals.interrupt)
    try:
        with suppress(KeyboardInterrupt):  # as pydantic does in a callback
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), StopSignals():
            pytest.fail("work has begun")
        assert signal.getsignal(signal.SIGINT) is signals.interrupt
    finally:
        signal.signal(signal.SIGINT, found)
