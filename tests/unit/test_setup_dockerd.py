"""Starting the engine: who is asked, what is tried when it dies, and that it is really detached."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import requests
from docker.errors import DockerException

from containernet_env.base.errors import MissingRequirementError
from containernet_env.hosts import engine
from containernet_env.setup import dockerd

# Stands in for dockerd: dies as on a kernel without netfilter unless told to do without it, else "answers".
NEEDS_FLAGS = """#!/bin/sh
case "$*" in
*--bridge=none*) echo "$$" > "$(dirname "$0")/answers"; exec sleep 60 ;;
*) echo "failed to start daemon: Error initializing network controller: iptables" >&2; exit 1 ;;
esac
"""
DIES = """#!/bin/sh
echo "failed to start daemon: disk is full" >&2
exit 1
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


def test_installed_but_silent_service_managers_are_not_asked(tmp_path: Path) -> None:
    comm = tmp_path / "comm"
    comm.write_text("some-supervisor\n")
    assert dockerd.service_commands(tmp_path, comm) == []


def test_systemd_that_runs_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "systemd" / "system").mkdir(parents=True)
    monkeypatch.setattr(dockerd.system_path, "find", lambda name: f"/usr/bin/{name}")
    assert dockerd.service_commands(tmp_path, tmp_path / "comm") == [["systemctl", "start", "docker"]]


def test_engine_named_by_the_user_is_not_replaced(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.1.2.3:2375")
    with pytest.raises(MissingRequirementError, match=r"DOCKER_HOST=tcp://10\.1\.2\.3:2375\n.*unset DOCKER_HOST"):
        dockerd.start(lambda text: None)


def test_not_root_and_not_installed_say_what_to_do(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dockerd, "find", lambda: None)
    with pytest.raises(MissingRequirementError, match=r"no Docker engine is installed\n.*build\.sh"):
        dockerd.start(lambda text: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingRequirementError, match=r"only root can start it\n.*sudo"):
        dockerd.start(lambda text: None)


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


def test_flags_that_the_configuration_file_has_are_not_given_twice(
    lonely: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lonely / "daemon.json").write_text('{"iptables": false}')
    monkeypatch.setattr(dockerd, "find", lambda: program(lonely, NEEDS_FLAGS))
    how = dockerd.start(lambda text: None)
    pid = int((lonely / "answers").read_text())
    os.kill(pid, signal.SIGKILL)
    dockerd._started.pop().wait()
    assert "--iptables" not in how
    assert "--bridge=none" in how


def living(folder: Path) -> subprocess.Popen[bytes]:
    """A process that its pid file and its name say is a dockerd."""
    named = folder / "dockerd"
    named.symlink_to(shutil.which("sleep") or "/bin/sleep")
    process = subprocess.Popen([named, "60"])
    (folder / "docker.pid").write_text(str(process.pid))
    deadline = time.monotonic() + 5
    # The kernel closes the pipe that tells of the new program before it gives the process its name.
    while not dockerd._runs(folder / "docker.pid") and time.monotonic() < deadline:
        time.sleep(0.001)
    return process


def test_one_that_is_starting_already_is_waited_for(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = living(lonely)
    monkeypatch.setattr(dockerd, "find", lambda: "/nowhere/dockerd")
    answer = threading.Timer(0.2, (lonely / "answers").touch)
    answer.start()
    try:
        assert dockerd.start(lambda text: None) == "just started by another process"
    finally:
        answer.join()
        process.kill()
        process.wait()


def refuse_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dockerd, "find", lambda: pytest.fail("a second engine was about to be started"))
    monkeypatch.setattr(dockerd, "_START_DEADLINE_S", 0.2)


def test_no_second_one_is_started_beside_one_that_lives_and_is_silent(
    lonely: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to_start(monkeypatch)
    process = living(lonely)
    try:
        with pytest.raises(MissingRequirementError, match=r"does not answer(.|\n)*no second one"):
            dockerd.start(lambda text: None)
    finally:
        process.kill()
        process.wait()


def test_no_second_one_is_started_where_something_accepts_connections(
    lonely: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to_start(monkeypatch)
    monkeypatch.setattr(engine, "listens", lambda: True)

    def late() -> bool:
        raise engine.EngineUnusableError(requests.exceptions.ReadTimeout("read timed out"))

    monkeypatch.setattr(engine, "is_reachable", late)
    with pytest.raises(MissingRequirementError, match=r"something listens(.|\n)*no second one"):
        dockerd.ensure_running()


def test_an_engine_that_the_sdk_cannot_use_is_told_at_once(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_to_start(monkeypatch)

    def unusable() -> bool:
        raise engine.EngineUnusableError(DockerException("Not supported URL scheme http+docker"))

    monkeypatch.setattr(engine, "is_reachable", unusable)
    with pytest.raises(MissingRequirementError, match=r"URL scheme http\+docker(.|\n)*setup\.py pins"):
        dockerd.ensure_running()


def test_death_for_another_reason_shows_its_last_lines(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dockerd, "find", lambda: program(lonely, DIES))
    began = time.monotonic()
    with pytest.raises(MissingRequirementError, match=r"did not start(.|\n)*disk is full(.|\n)*dockerd\.log"):
        dockerd.start(lambda text: None)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "info", [{"KernelVersion": "1.2.3", "DockerRootDir": "/"}, {"KernelVersion": os.uname().release}]
)
def test_engine_elsewhere_is_refused(info: dict[str, str]) -> None:
    with pytest.raises(MissingRequirementError, match="another machine"):
        engine.require_local(info)
