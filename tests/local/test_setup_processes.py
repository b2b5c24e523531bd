"""The set-up's processes, real ones: steps and their commands, and the engine that it starts.

Nothing is left running, however they end.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from containernet_env import setup
from containernet_env.base import assets, programs
from containernet_env.base.assets import GoModule
from containernet_env.base.errors import Interrupted, MissingRequirementError
from containernet_env.base.work import Stop
from containernet_env.cli.machine import ConsoleReport
from containernet_env.cli.terminal import StopSignals
from containernet_env.hosts import engine
from containernet_env.runs.progress import Silent
from containernet_env.setup import Missing, builds, commands, dockerd
from containernet_env.setup.builds import Go
from containernet_env.setup.commands import CommandError, Commands, Ending, Steps, Stopped
from containernet_env.setup.images import Images
from containernet_env.stores.kinds import DEFAULT, KINDS
from tests.deadline import HANG_S, eventually

IMAGES = Images("containernet-env/etcd:1", "containernet-env/benchmark:1")
SLEEP = ["sh", "-c", "echo started; sleep 60 & sleep 60"]
STUBBORN = ["sh", "-c", "trap '' INT TERM; echo started; while :; do sleep 1; done"]


def steps_on(output: io.StringIO, tmp_path: Path, stop: Stop | None = None) -> Steps:
    return Steps(ConsoleReport(Console(file=output, highlight=False, soft_wrap=True)), tmp_path / "logs", stop)


def wait_for(path: Path, text: str) -> None:
    eventually(lambda: path.exists() and text in path.read_text(), f"{text!r} comes into {path}")


def writers(log: Path) -> list[str]:
    """Processes whose standard output is ``log``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "fd" / "1").resolve() == log.resolve():
                found.append(entry.name)
    return found


def none_left(log: Path) -> bool:
    """Whether all that wrote to ``log`` is gone: a killed process is there until the kernel gets to it."""
    return eventually(lambda: not writers(log), f"what writes to {log} ends")


def test_a_step_has_a_log_and_its_error_names_it(tmp_path: Path) -> None:
    output = io.StringIO()
    steps = steps_on(output, tmp_path)

    def job(name: str, script: str) -> None:
        with steps.step(name) as step:
            steps.commands.run(["sh", "-c", script], step.log, timeout_s=60)
            step.done("made")

    steps.run(lambda: job("base image", "echo detail"))
    shown = output.getvalue()
    assert re.fullmatch(r"  base image +made(  \(\d+\.\d s\))?\n", shown)
    assert (tmp_path / "logs" / "base-image.log").read_text() == "$ sh -c echo detail\ndetail\n"
    with pytest.raises(CommandError, match="exit status 7") as caught:
        steps.run(lambda: job("etcd", "echo reason >&2; exit 7"))
    assert output.getvalue() == shown, "a failed step shows no line"
    assert caught.value.tail == ("$ sh -c echo reason >&2; exit 7", "reason")
    assert caught.value.log == tmp_path / "logs" / "etcd.log"


@pytest.mark.parametrize("command", [SLEEP, STUBBORN], ids=["sleeps", "ignores signals"])
def test_the_first_error_ends_what_runs_beside_it(tmp_path: Path, command: list[str]) -> None:
    steps = steps_on(io.StringIO(), tmp_path)
    log = tmp_path / "slow.log"

    def slow() -> None:
        steps.commands.run(command, log, timeout_s=60, ending=Ending(grace_s=0.2))

    def failing() -> None:
        wait_for(log, "started\n")
        raise MissingRequirementError("no network", "Check it.")

    with pytest.raises(MissingRequirementError, match="no network"):
        steps.run(slow, failing)
    assert none_left(log)
    with pytest.raises(Stopped):
        steps.commands.run(["true"], log, timeout_s=60)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_every_command_with_its_children(tmp_path: Path, signum: signal.Signals) -> None:
    if signal.getsignal(signum) == signal.SIG_IGN:
        pytest.skip(f"{signum.name} is ignored here (nohup, a shell's background)")
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
    assert all(map(none_left, logs))


def test_a_command_has_a_time_limit_and_an_end_of_its_own_and_may_not_be_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(CommandError, match="did not end within 0 s"):
        Commands().run(SLEEP, log, timeout_s=0)
    assert none_left(log)
    with pytest.raises(CommandError, match="killed by SIGTERM"):
        Commands().run(["sh", "-c", "kill -TERM $$"], log, timeout_s=60)
    with pytest.raises(CommandError, match="cannot be started"):
        Commands().run(["/nowhere/program"], log, timeout_s=60)


WAITS = """#!/bin/sh
# Stands in for `go`: the first program is built, and the second one takes until it is ended.
while [ "$1" != -o ]; do shift; done
echo "program from $3" > "$2"
chmod 755 "$2"
case $3 in
    *two) echo waiting; sleep 60 & wait ;;
esac
"""


def test_a_stop_token_ends_the_build_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, own = tmp_path / "module", tmp_path / "cache"
    folder.mkdir()
    (folder / "go.mod").write_text("module example\n")
    module = GoModule("example", folder, {"one": "./one", "two": "./two"})
    (tmp_path / "go").write_text(WAITS)
    (tmp_path / "go").chmod(0o755)
    toolchain, zookeeper = Go(str(tmp_path / "go"), "go1.26.1"), KINDS["zookeeper"].default()
    lacks = Missing(modules=(module,), required=IMAGES, store=zookeeper)
    ready = Missing(required=IMAGES)
    for where, name, value in (
        (setup, "detect", lambda store=DEFAULT: lacks if store == zookeeper else ready),
        (assets, "MACHINE", own),
        (assets, "own", lambda: own),
        (assets, "logs", lambda: tmp_path / "logs"),
        (commands, "LOCK", tmp_path / "lock"),
        (os, "geteuid", lambda: 0),
        (builds, "find", lambda: toolchain),
        (dockerd, "ensure_running", lambda *of: ""),
    ):
        monkeypatch.setattr(where, name, value)
    stop = Stop()
    with ThreadPoolExecutor(1) as caller:
        ended = caller.submit(setup.ready_images, zookeeper, Silent(), stop)
        log = assets.logs() / "example.log"
        wait_for(log, "waiting\n")
        assert len(list((own / "bin").iterdir())) == 1 and len(writers(log)) >= 2
        stop.request()
        assert isinstance(ended.exception(HANG_S), Interrupted) and none_left(log)
    assert list((own / "bin").iterdir()) == [] and programs.find(module, toolchain.version) is None


def test_an_engine_is_started_detached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a machine where no engine answers and no service manager runs."""
    answers = tmp_path / "answers"
    (tmp_path / "dockerd").write_text(f'#!/bin/sh\necho "$$" > {answers}; exec sleep 60\n')
    (tmp_path / "dockerd").chmod(0o755)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    for name in ("LOG", "_DAEMON_CONFIG", "_PID_FILE"):
        monkeypatch.setattr(dockerd, name, tmp_path / "log" / name)
    monkeypatch.setattr(dockerd, "service_commands", list)
    monkeypatch.setattr(dockerd, "find", lambda: str(tmp_path / "dockerd"))
    monkeypatch.setattr(engine, "is_reachable", lambda: answers.exists() and answers.read_text().endswith("\n"))
    monkeypatch.setattr(engine, "listens", answers.exists)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    dockerd.start(lambda text: None)
    pid = int(answers.read_text())
    try:
        assert os.getsid(pid) == pid != os.getsid(0)
        os.close(writing)
        os.set_blocking(reading, False)
        assert os.read(reading, 1) == b"", "the engine holds a descriptor of ours"
        assert Path(f"/proc/{pid}/fd/0").readlink() == Path("/dev/null")
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    finally:
        os.kill(pid, signal.SIGKILL)
        dockerd._started.pop().wait()
        os.close(reading)


def test_what_runs_is_known_an_engine_by_its_pid_file_and_name_a_program_by_its_folder(tmp_path: Path) -> None:
    pid_file, program = tmp_path / "docker.pid", tmp_path / "built" / "dockerd"
    program.parent.mkdir()
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as process:
        pid_file.write_text(str(process.pid))
        # The kernel closes the pipe that tells of the new program before it gives the process its name.
        assert eventually(lambda: dockerd._runs(pid_file), "the engine is known")
        assert eventually(lambda: builds._running_in(tmp_path) == {program.parent}, "its folder is known")
        process.kill()
    assert not dockerd._runs(pid_file) and builds._running_in(tmp_path) == set()
