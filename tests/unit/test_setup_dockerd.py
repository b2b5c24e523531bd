"""Starting the engine: who is asked to start it, what is tried when it dies, and that there are never two."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import pytest
import requests
from docker.errors import DockerException

from containernet_env.base import clock
from containernet_env.base.errors import MissingRequirementError
from containernet_env.hosts import engine
from containernet_env.setup import dockerd
from tests.simulated_time import START_NS, World, simulated

NO_NETFILTER = "failed to start daemon: Error initializing network controller: iptables\n"


class Dockerd:
    """Stands for the process: it dies as on a kernel without netfilter, unless it has to do without; else it answers.

    ``dies``: what it prints before it ends in any case. ``silent``: it lives and does not answer.
    """

    dies = ""
    silent = False
    started: ClassVar[list[list[str]]] = []
    folder: ClassVar[Path]

    def __init__(self, command: list[str], stdout: Any, **options: Any) -> None:
        assert options["start_new_session"] and options["close_fds"]
        self.started.append(command)
        self.terminated = False
        why = self.dies or ("" if "--bridge=none" in command else NO_NETFILTER)
        stdout.write(why.encode())
        self._status = 1 if why else None
        if not why and not self.silent:
            (self.folder / "answers").touch()

    def wait(self, timeout: float) -> int:
        if self._status is None:
            clock.sleep(timeout)
            raise subprocess.TimeoutExpired("dockerd", timeout)
        return self._status

    def terminate(self) -> None:
        self.terminated = True


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
    monkeypatch.setattr(dockerd, "find", lambda: "/usr/sbin/dockerd")
    monkeypatch.setattr(dockerd.subprocess, "Popen", Dockerd)
    Dockerd.folder, Dockerd.started = tmp_path, []
    return tmp_path


def test_only_a_service_manager_that_runs_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "comm").write_text("some-supervisor\n")
    assert dockerd.service_commands(tmp_path, tmp_path / "comm") == []
    (tmp_path / "systemd" / "system").mkdir(parents=True)
    monkeypatch.setattr(dockerd.programs, "which", lambda name: f"/usr/bin/{name}")
    assert dockerd.service_commands(tmp_path, tmp_path / "comm") == [["systemctl", "start", "docker"]]


def start_fails(words: str) -> None:
    with pytest.raises(MissingRequirementError, match=words):
        dockerd.start(lambda text: None)


def test_who_cannot_start_one_is_told_what_to_do(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dockerd, "find", lambda: None)
    start_fails(r"no Docker engine is installed\n.*build\.sh")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    start_fails(r"only root can start it\n.*sudo")
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.1.2.3:2375")  # named by the user: not replaced
    start_fails(r"DOCKER_HOST=tcp://10\.1\.2\.3:2375\n.*unset DOCKER_HOST")


@pytest.mark.parametrize(
    ("configured", "flags"),
    [("{}", ["--iptables=false", "--ip6tables=false"]), ('{"iptables": false, "ip6tables": false}', [])],
    ids=["no configuration", "flags that it has are not given twice"],
)
@simulated()
def test_without_netfilter_it_is_started_without_bridge_and_rules(
    lonely: Path, configured: str, flags: list[str]
) -> None:
    (lonely / "daemon.json").write_text(configured)
    told: list[str] = []
    how = dockerd.start(told.append)
    words = [*flags, "--bridge=none"]
    assert how == f"started dockerd {' '.join(words)}, log {lonely}/log/dockerd.log" and len(told) == 1
    assert Dockerd.started == [["/usr/sbin/dockerd"], ["/usr/sbin/dockerd", *words]]


@simulated()
def test_one_that_is_starting_already_is_waited_for(
    world: World, lonely: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dockerd, "_runs", lambda pid_file: True)
    clock.Thread(target=lambda: (clock.sleep(20), (lonely / "answers").touch())).start()
    assert dockerd.start(lambda text: None) == "just started by another process"
    assert Dockerd.started == [] and 20 <= (world.now_ns - START_NS) / 1e9 < 21


SILENT = r"does not answer within 60 s(.|\n)*no second one"


@pytest.mark.parametrize(
    ("lives", "error", "words", "waited_s"),
    [
        (True, None, SILENT, 60),
        (False, requests.exceptions.ReadTimeout("read timed out"), SILENT, 60),
        (False, DockerException("Not supported URL scheme http+docker"), r"http\+docker(.|\n)*setup\.py pins", 0),
    ],
    ids=["it lives", "something accepts connections", "the SDK cannot use it"],
)
@simulated()
def test_no_second_one_is_started_beside_one_that_does_not_answer(
    world: World, lonely: Path, monkeypatch: pytest.MonkeyPatch, lives: bool, error: Any, words: str, waited_s: int
) -> None:
    def reach() -> bool:
        raise engine.EngineUnusableError(error)

    monkeypatch.setattr(dockerd, "_runs", lambda pid_file: lives)
    if error is not None:
        monkeypatch.setattr(engine, "listens", lambda: True)
        monkeypatch.setattr(engine, "is_reachable", reach)
    with pytest.raises(MissingRequirementError, match=words):
        dockerd.ensure_running()
    assert Dockerd.started == [] and 0 <= (world.now_ns - START_NS) / 1e9 - waited_s < 1


@simulated()
def test_one_that_does_not_start_shows_its_last_lines(
    world: World, lonely: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dockerd, "dies", "failed to start daemon: disk is full\n")
    start_fails(r"did not start(.|\n)*disk is full(.|\n)*dockerd\.log")
    assert len(Dockerd.started) == 1 and world.now_ns == START_NS
    monkeypatch.setattr(Dockerd, "dies", "")
    monkeypatch.setattr(Dockerd, "silent", True)
    start_fails("did not start: no answer within 60 s")
    assert vars(dockerd)["_started"].pop().terminated


@pytest.mark.parametrize(
    "info", [{"KernelVersion": "1.2.3", "DockerRootDir": "/"}, {"KernelVersion": os.uname().release}]
)
def test_engine_elsewhere_is_refused(info: dict[str, str]) -> None:
    with pytest.raises(MissingRequirementError, match="another machine"):
        engine.require_local(info)
