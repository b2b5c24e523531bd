"""Steps and their commands: one calm line each, and nothing left running however they end."""

from __future__ import annotations

import io
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from containernet_env.base.errors import Interrupted, MissingRequirementError
from containernet_env.base.stop import Stop
from containernet_env.cli.setup import ConsoleReport
from containernet_env.cli.signals import StopSignals
from containernet_env.setup.commands import CommandError, Commands, Ending, Stopped
from containernet_env.setup.steps import Steps

SLEEP = ["sh", "-c", "echo started; sleep 60 & sleep 60"]


def steps_on(output: io.StringIO, tmp_path: Path, stop: Stop | None = None) -> Steps:
    return Steps(ConsoleReport(Console(file=output, highlight=False, soft_wrap=True)), tmp_path / "logs", stop)


def wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + 20
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"{text!r} never came into {path}"
        time.sleep(0.01)


def left_over(log: Path, deadline_s: float = 5.0) -> list[int]:
    """Processes that write to ``log`` and go on doing so: a killed one is there until the kernel gets to it."""
    deadline = time.monotonic() + deadline_s
    while (found := writers(log)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def writers(log: Path) -> list[int]:
    """Processes whose standard output is ``log``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "fd" / "1").resolve() == log.resolve():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_a_step_is_one_line_with_what_and_how_long(tmp_path: Path) -> None:
    output = io.StringIO()
    steps = steps_on(output, tmp_path)

    def job() -> None:
        with steps.step("base image") as step:
            steps.commands.run(["sh", "-c", "echo detail; sleep 0.06"], step.log, timeout_s=20)
            step.done("made")

    steps.run(job)
    assert re.fullmatch(r"  base image +made  \(\d+\.\d s\)\n", output.getvalue())
    assert (tmp_path / "logs" / "base-image.log").read_text() == "$ sh -c echo detail; sleep 0.06\ndetail\n"


def test_a_failed_step_shows_no_line_and_its_error_names_the_log(tmp_path: Path) -> None:
    output = io.StringIO()
    steps = steps_on(output, tmp_path)

    def job() -> None:
        with steps.step("etcd") as step:
            steps.commands.run(["sh", "-c", "echo reason >&2; exit 7"], step.log, timeout_s=20)

    with pytest.raises(CommandError) as caught:
        steps.run(job)
    assert output.getvalue() == ""
    assert caught.value.tail == ("$ sh -c echo reason >&2; exit 7", "reason")
    assert "exit status 7" in str(caught.value)
    assert caught.value.log == tmp_path / "logs" / "etcd.log"


def test_the_first_error_ends_what_runs_beside_it(tmp_path: Path) -> None:
    steps = steps_on(io.StringIO(), tmp_path)
    log = tmp_path / "slow.log"

    def slow() -> None:
        steps.commands.run(SLEEP, log, timeout_s=60)

    def failing() -> None:
        wait_for(log, "started\n")
        raise MissingRequirementError("no network", "Check it.")

    began = time.monotonic()
    with pytest.raises(MissingRequirementError, match="no network"):
        steps.run(slow, failing)
    assert time.monotonic() - began < 30
    assert left_over(log) == []
    with pytest.raises(Stopped):
        steps.commands.run(["true"], log, timeout_s=20)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_every_command_with_its_children(tmp_path: Path, signum: signal.Signals) -> None:
    steps = steps_on(io.StringIO(), tmp_path)
    logs = [tmp_path / "one.log", tmp_path / "two.log"]

    def strike() -> None:
        for log in logs:
            wait_for(log, "started\n")
        os.kill(os.getpid(), signum)

    def job(log: Path) -> None:
        steps.commands.run(SLEEP, log, timeout_s=60)

    striker = threading.Thread(target=strike)
    with pytest.raises(Interrupted) as caught, StopSignals():
        striker.start()
        steps.run(lambda: job(logs[0]), lambda: job(logs[1]))
    striker.join()
    assert caught.value.signum == signum
    assert [left_over(log) for log in logs] == [[], []]


def test_a_stop_token_ends_every_command_with_its_children_off_the_main_thread(tmp_path: Path) -> None:
    stop = Stop()
    steps = steps_on(io.StringIO(), tmp_path, stop)
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    caught: list[Interrupted] = []

    def run() -> None:
        try:
            steps.run(*(lambda log=log: steps.commands.run(SLEEP, log, timeout_s=60) for log in logs))
        except Interrupted as error:
            caught.append(error)

    caller = threading.Thread(target=run)
    caller.start()
    for log in logs:
        wait_for(log, "started\n")
    began = time.monotonic()
    stop.request()
    caller.join(20)
    assert not caller.is_alive() and time.monotonic() - began < 5
    assert [error.signum for error in caught] == [0]
    assert [left_over(log) for log in logs] == [[], []]


def test_a_command_that_ignores_the_signal_is_killed_after_its_grace(tmp_path: Path) -> None:
    commands = Commands()
    log = tmp_path / "log"
    stubborn = ["sh", "-c", "trap '' INT TERM; echo started; while :; do sleep 1; done"]

    def work() -> None:
        with pytest.raises(Stopped):
            commands.run(stubborn, log, timeout_s=60, ending=Ending(grace_s=0.2))

    worker = threading.Thread(target=work)
    worker.start()
    wait_for(log, "started\n")
    commands.stop()
    worker.join(20)
    assert not worker.is_alive()
    assert left_over(log) == []


def test_a_command_has_a_time_limit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(CommandError, match="did not end within 0 s"):
        Commands().run(SLEEP, log, timeout_s=0.3)
    assert left_over(log) == []


def test_a_program_that_is_not_there_is_an_error_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be started"):
        Commands().run(["/nowhere/program"], tmp_path / "log", timeout_s=20)
