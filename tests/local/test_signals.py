"""Stop signals: one raise, then none; deferred while a row is written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from containernet_env import cli
from containernet_env.base.errors import Interrupted, RunError
from containernet_env.base.work import STOP_SIGNALS, stops_kept
from containernet_env.cli import terminal
from containernet_env.cli.terminal import StopSignals
from tests.deadline import HANG_S, eventually
from tests.processes import is_stopped, pressing_ctrl_c

PROJECT = Path(__file__).resolve().parents[2]


def send(signum: int) -> None:
    os.kill(os.getpid(), signum)


@pytest.mark.parametrize("signum", STOP_SIGNALS)
def test_only_the_first_signal_raises(signum: int) -> None:
    ignored: list[int] = []
    if (before := signal.getsignal(signum)) is signal.SIG_IGN:
        pytest.skip(f"{signal.Signals(signum).name} is ignored here (nohup, a shell's background)")
    with StopSignals(on_ignored=ignored.append) as stop:
        assert signal.getsignal(signum) != before
        with pytest.raises(Interrupted) as caught:
            send(signum)
        assert caught.value.signum == stop.received == signum and not isinstance(caught.value, Exception)
        send(signal.SIGINT)
        send(signal.SIGTERM)
    assert ignored == [signal.SIGINT, signal.SIGTERM] and signal.getsignal(signum) == before


def test_a_signal_is_kept_for_the_end_of_a_block_or_for_ever_behind_the_shield() -> None:
    steps = []
    with StopSignals() as stop, pytest.raises(Interrupted):
        with stop.deferred():
            send(signal.SIGINT)
            steps.append("row written")
        steps.append("never reached")
    assert steps == ["row written"]
    with StopSignals() as stop, pytest.raises(ValueError), stop.deferred():
        send(signal.SIGINT)
        raise ValueError
    with StopSignals() as stop:
        stop.shield()
        with stop.deferred():
            send(signal.SIGTERM)
    assert stop.received == signal.SIGTERM


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted(2), ValueError("x")])
def test_of_errors_that_nothing_can_catch_a_stop_needs_no_word(
    error: BaseException, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dropping:
        def __del__(self) -> None:
            raise error

    monkeypatch.setattr(sys, "unraisablehook", terminal.tell_unraisable)
    Dropping()
    assert ("Exception ignored" in capfd.readouterr().err) == isinstance(error, ValueError)


def test_ctrl_c_that_an_extension_dropped_keeps_work_from_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_pressed", False)
    with StopSignals():
        pass
    found = signal.signal(signal.SIGINT, terminal.interrupt)
    try:
        with suppress(KeyboardInterrupt):  # as pydantic does in a callback
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), StopSignals():
            pytest.fail("work has begun")
        assert signal.getsignal(signal.SIGINT) is terminal.interrupt
    finally:
        signal.signal(signal.SIGINT, found)


@pytest.mark.parametrize(
    "function",
    [
        "main",
        "LazyGroup.get_command",
        # Before Python 3.12 what is raised in these two is made a RuntimeError.
        "cached_property.__set_name__",
        "PydanticDescriptorProxy.__set_name__",
        "NullHandler.createLock",
        "_hosts_table",
    ],
)
def test_ctrl_c_ends_a_command_without_a_traceback_wherever_it_strikes(function: str) -> None:
    words = ("run", "--dry-run", str(PROJECT / "configs" / "3node-3ms.json"))
    code = pressing_ctrl_c(function, "os.kill(os.getpid(), signal.SIGINT)", *words)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip() in ("", "interrupted")
    assert "etcd1" not in done.stdout, "it was not struck"


def of_a_library(error: BaseException) -> None:
    """A library's call in which a stop strikes, and which raises something else."""
    try:
        raise error
    except BaseException as struck:
        raise RuntimeError("Error calling __set_name__") from struck


@pytest.mark.parametrize(("stop", "code"), [(Interrupted(15), 143), (KeyboardInterrupt(), 130)])
def test_an_error_that_came_of_a_stop_is_that_stop(
    stop: BaseException, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(type(stop)) as caught, stops_kept():
        of_a_library(stop)
    assert caught.value is stop
    monkeypatch.setattr(cli, "group", SimpleNamespace(main=lambda **_: of_a_library(stop)))
    with pytest.raises(SystemExit) as left:
        cli.main(["check"])
    assert (left.value.code, capsys.readouterr().err) == (code, "interrupted\n")


def test_an_error_of_its_own_and_one_told_on_purpose_stay() -> None:
    for error in (ValueError("x"), RunError("3 containers could not be removed")):
        with pytest.raises(type(error)), stops_kept():
            raise error
    with pytest.raises(RunError, match="could not be removed"), stops_kept():
        try:
            raise Interrupted(2)
        finally:
            raise error
    # Nor of a stop that the caller handles: a script may measure once more where Ctrl-C ended what came before.
    with pytest.raises(ValueError, match="invalid literal"):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            with stops_kept():
                int("x")


_WAITS = """
import os, threading
from containernet_env.cli.terminal import StopSignals

silent = os.pipe()[0]
for _ in range(3):
    threading.Thread(target=os.read, args=(silent, 1), daemon=True).start()
with StopSignals():
    print("waits", flush=True)
    os.read(silent, 1)
"""


def test_a_signal_that_comes_while_the_process_is_stopped_ends_what_the_main_thread_waits_for() -> None:
    """The kernel then gives it to any thread: 28 of 40 labs, told to end while stopped, stayed up."""
    program, pipes = [sys.executable, "-c", _WAITS], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    labs = [subprocess.Popen(program, text=True, **pipes) for _ in range(8)]
    try:
        for lab in labs:
            assert lab.stdout is not None and lab.stdout.readline() == "waits\n"
            lab.send_signal(signal.SIGSTOP)
            eventually(partial(is_stopped, lab.pid), "it is stopped")
            lab.send_signal(signal.SIGTERM)
            lab.send_signal(signal.SIGCONT)
        for lab in labs:
            assert "Interrupted" in lab.communicate(timeout=HANG_S)[1]
    finally:
        for lab in labs:
            lab.kill()
            lab.communicate()
