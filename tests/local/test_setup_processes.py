"""The set-up's processes, real ones: steps and their commands, the engine that it starts, the scripts of the clone.

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
from pathlib import Path

import pytest
from rich.console import Console

from containernet_env import setup
from containernet_env.base import assets, cache, programs
from containernet_env.base.errors import Interrupted, MissingRequirementError
from containernet_env.base.sources import GoModule
from containernet_env.base.stop import Stop
from containernet_env.cli.setup import ConsoleReport
from containernet_env.cli.signals import StopSignals
from containernet_env.hosts import engine
from containernet_env.model.config import StoreChoice
from containernet_env.runs.progress import Silent
from containernet_env.setup import binaries, dockerd, go, missing
from containernet_env.setup.commands import CommandError, Commands, Ending, Stopped
from containernet_env.setup.go import Go
from containernet_env.setup.images import Images
from containernet_env.setup.missing import Missing
from containernet_env.setup.steps import Steps
from containernet_env.stores.kinds import DEFAULT, KINDS
from tests.deadline import HANG_S, eventually

ROOT = assets.ROOT
IMAGES = Images("containernet-env/etcd:1", "containernet-env/benchmark:1")
SLEEP = ["sh", "-c", "echo started; sleep 60 & sleep 60"]


def steps_on(output: io.StringIO, tmp_path: Path, stop: Stop | None = None) -> Steps:
    return Steps(ConsoleReport(Console(file=output, highlight=False, soft_wrap=True)), tmp_path / "logs", stop)


def wait_for(path: Path, text: str) -> None:
    eventually(lambda: path.exists() and text in path.read_text(), f"{text!r} comes into {path}")


def none_left(log: Path) -> bool:
    """Whether all that wrote to ``log`` is gone: a killed process is there until the kernel gets to it."""
    return eventually(lambda: not writers(log), f"what writes to {log} ends")


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
            steps.commands.run(["sh", "-c", "echo detail"], step.log, timeout_s=60)
            step.done("made")

    steps.run(job)
    assert re.fullmatch(r"  base image +made(  \(\d+\.\d s\))?\n", output.getvalue())
    assert (tmp_path / "logs" / "base-image.log").read_text() == "$ sh -c echo detail\ndetail\n"


def test_a_failed_step_shows_no_line_and_its_error_names_the_log(tmp_path: Path) -> None:
    output = io.StringIO()
    steps = steps_on(output, tmp_path)

    def job() -> None:
        with steps.step("etcd") as step:
            steps.commands.run(["sh", "-c", "echo reason >&2; exit 7"], step.log, timeout_s=60)

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
    worker.join(HANG_S)
    assert not worker.is_alive()
    assert none_left(log)


def test_a_command_has_a_time_limit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(CommandError, match="did not end within 0 s"):
        Commands().run(SLEEP, log, timeout_s=0)
    assert none_left(log)


def test_a_program_that_is_not_there_is_an_error_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be started"):
        Commands().run(["/nowhere/program"], tmp_path / "log", timeout_s=60)


WAITS = """#!/bin/sh
# Stands in for `go`: the first program is built, and the second one takes until it is ended.
while [ "$1" != -o ]; do shift; done
echo "program from $3" > "$2"
chmod 755 "$2"
case $3 in
    *two) echo waiting; sleep 60 & wait ;;
esac
"""


def test_a_stop_token_ends_the_build_of_a_store_and_nothing_of_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "go.mod").write_text("module example\n")
    module = GoModule("example", folder, {"one": "./one", "two": "./two"})
    (tmp_path / "go").write_text(WAITS)
    (tmp_path / "go").chmod(0o755)
    toolchain = Go(str(tmp_path / "go"), "go1.26.1")
    own = tmp_path / "cache"
    zookeeper = KINDS["zookeeper"].make(StoreChoice("zookeeper"))
    lacks = Missing(modules=(module,), required=IMAGES, store=zookeeper)
    ready = Missing(required=IMAGES)
    monkeypatch.setattr(missing, "look", lambda store=DEFAULT: lacks if store == zookeeper else ready)
    monkeypatch.setattr(missing.Missing, "disk_needs", lambda self: [])
    monkeypatch.setattr(cache, "MACHINE", own)
    monkeypatch.setattr(cache, "own", lambda: own)
    monkeypatch.setattr(cache, "logs", lambda: tmp_path / "logs")
    monkeypatch.setattr(setup, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(go, "find", lambda: toolchain)
    monkeypatch.setattr(dockerd, "ensure_running", lambda *of: "")
    stop = Stop()
    caught: list[Interrupted] = []

    def run() -> None:
        try:
            setup.ready_images(zookeeper, Silent(), stop)
        except Interrupted as error:
            caught.append(error)

    caller = threading.Thread(target=run)
    caller.start()
    log = cache.logs() / "example.log"
    wait_for(log, "waiting\n")
    assert len(list((own / "bin").iterdir())) == 1 and len(writers(log)) >= 2
    stop.request()
    caller.join(HANG_S)
    assert not caller.is_alive() and len(caught) == 1 and none_left(log)
    assert list((own / "bin").iterdir()) == [] and programs.find(module, toolchain.version) is None


@pytest.mark.parametrize("script", ["build.sh", "test.sh", "check.sh"])
def test_scripts_have_help(script: str) -> None:
    done = subprocess.run([ROOT / script, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: sudo ./{script}")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("script", "arguments"), [("build.sh", ["--what"]), ("test.sh", ["only-one"]), ("check.sh", ["x"])]
)
def test_scripts_refuse_what_they_do_not_know(script: str, arguments: list[str]) -> None:
    done = subprocess.run([ROOT / script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage:")


def test_build_without_root_says_sudo_and_leaves_3(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([ROOT / "build.sh"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 3
    assert "needs root" in done.stderr
    assert "sudo" in done.stderr


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_what_is_built_is_ignored_by_git() -> None:
    names = [
        ".venv/x",
        "build/lib/x",
        "bin/etcd",
        ".build/etcd.log",
        "out.csv",
        "results/out.csv",
        "containernet_env.egg-info/x",
    ]
    done = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "check-ignore", "--no-index", *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == names


NEEDS_FLAGS = """#!/bin/sh
case "$*" in
*--bridge=none*) echo "$$" > "$(dirname "$0")/answers"; exec sleep 60 ;;
*) echo "failed to start daemon: Error initializing network controller: iptables" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def lonely(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine where no engine answers and no service manager runs; ``answers`` in it makes one answer."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(dockerd, "LOG", tmp_path / "log" / "dockerd.log")
    monkeypatch.setattr(dockerd, "_DAEMON_CONFIG", tmp_path / "daemon.json")
    monkeypatch.setattr(dockerd, "_PID_FILE", tmp_path / "docker.pid")
    monkeypatch.setattr(dockerd, "service_commands", list)
    monkeypatch.setattr(engine, "is_reachable", lambda: (tmp_path / "answers").exists())
    monkeypatch.setattr(engine, "listens", lambda: (tmp_path / "answers").exists())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def program(folder: Path, script: str) -> str:
    path = folder / "dockerd"
    path.write_text(script)
    path.chmod(0o755)
    return str(path)


def test_without_netfilter_it_is_started_without_bridge_and_rules_and_detached(
    lonely: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dockerd, "find", lambda: program(lonely, NEEDS_FLAGS))
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    told: list[str] = []
    how = dockerd.start(told.append)
    pid = int((lonely / "answers").read_text())
    try:
        assert "--iptables=false --ip6tables=false --bridge=none" in how
        assert len(told) == 1
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


def living(folder: Path) -> subprocess.Popen[bytes]:
    """A process that its pid file and its name say is a dockerd."""
    named = folder / "dockerd"
    named.symlink_to(shutil.which("sleep") or "/bin/sleep")
    process = subprocess.Popen([named, "60"])
    (folder / "docker.pid").write_text(str(process.pid))
    return process


def test_a_living_engine_is_known_by_its_pid_file_and_its_name(tmp_path: Path) -> None:
    with living(tmp_path) as process:
        # The kernel closes the pipe that tells of the new program before it gives the process its name.
        assert eventually(lambda: dockerd._runs(tmp_path / "docker.pid"), "it is known")
        process.kill()
    assert not dockerd._runs(tmp_path / "docker.pid")


def test_the_folder_of_a_program_that_runs_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "built"
    folder.mkdir()
    shutil.copy(shutil.which("sleep") or "/bin/sleep", folder / "one")
    with subprocess.Popen([folder / "one", "60"]) as running:
        assert eventually(lambda: binaries._running_in(tmp_path) == {folder}, "it runs")
        running.kill()
    assert binaries._running_in(tmp_path) == set()
