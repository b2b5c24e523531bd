"""One container, on a fake of the engine: its first process and its shim are processes of this machine."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from docker.errors import APIError, NotFound

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.hosts import container, engine
from containernet_env.hosts.container import Container
from containernet_env.hosts.engine import EngineGoneError
from containernet_env.hosts.limits import Limits
from containernet_env.hosts.options import ContainerOptions
from containernet_env.hosts.shim import shim_of
from tests.deadline import eventually


class Family:
    """A process called as the engine's shim is, and its child."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        program = folder / name
        program.symlink_to(shutil.which("sh") or "/bin/sh")
        self.shim = subprocess.Popen(
            [program, "-c", "sleep 60 & echo $!; wait $!; read _"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.shim.stdout is not None
        self.first = int(self.shim.stdout.readline())

    def end_first(self) -> None:
        subprocess.run(["kill", "-9", str(self.first)], check=False)

    def end(self) -> None:
        assert self.shim.stdin is not None
        assert self.shim.stdout is not None
        self.end_first()
        self.shim.send_signal(signal.SIGCONT)
        self.shim.stdin.close()
        self.shim.wait(60)
        self.shim.stdout.close()


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    made = Family(tmp_path, "containerd-shim-runc-v2")
    yield made
    made.end()


class Api:
    """The SDK's low-level client."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.asked: list[str] = []
        self.created: dict[str, Any] = {}
        self.failing: dict[str, Exception] = {}
        self.state: dict[str, Any] = {"ExitCode": 4, "OOMKilled": False, "FinishedAt": "2026-11-22T02:18:22.30201372Z"}
        self.oom_kills_ns: list[int] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.asked.append(name)
            if name in self.failing:
                raise self.failing[name]
            if name == "create_container":
                self.created = options
                return {"Id": "abc", "Warnings": ["no swap limit"]}
            if name == "inspect_container":
                return {"State": {"Pid": self.pid, "Running": False, **self.state}, "Config": {}}
            if name == "events":
                return iter([{"timeNano": kill_ns} for kill_ns in self.oom_kills_ns])
            return b"this is why\r\n" if name == "logs" else options

        return call


@pytest.fixture
def api(family: Family, monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api(family.first)
    monkeypatch.setattr(engine, "client", lambda: SimpleNamespace(api=made))
    monkeypatch.setattr(container, "cgroups_of", lambda pid: None)
    monkeypatch.setattr(container, "limit_swap", lambda groups, *limits: None)
    monkeypatch.setattr(container, "read_limits", lambda groups: Limits(50_000, 100_000, 64 << 20, None))
    return made


OPTIONS = ContainerOptions(dcmd="sleep 60", cpus=0.5, mem_limit="64m", logs=True)
IMAGE = {"Id": "sha256:1", "Config": {}}


def started(options: ContainerOptions = OPTIONS) -> Container:
    made = Container("d1", options)
    assert made.create(IMAGE, "cnenv-abc123-d1", {"ours": "1"}) == ["no swap limit"]
    made.start()
    return made


def test_from_its_creation_to_its_end(api: Api, family: Family) -> None:
    host = started()
    assert (host.id, host.pid, host.alive, host.died()) == ("abc", family.first, True, False)
    assert (api.created["entrypoint"], api.created["labels"]) == (["sleep", "60"], {"ours": "1"})
    assert host.exit_state().exit_code is None
    assert host.logs() == "this is why\n"
    family.end_first()
    family.shim.stdin.close()  # type: ignore[union-attr]
    family.shim.wait(60)
    assert host.died()
    assert host.exit_state().exit_code == 4
    host.remove()
    host.remove()
    host.wait_gone()
    assert api.asked.count("remove_container") == 1
    with pytest.raises(RunError, match="d1: its container has been removed"):
        _ = host.pid


def test_removal_is_over_when_the_shim_has_ended(api: Api, family: Family) -> None:
    host = started()
    host.remove()
    ender = threading.Timer(0.3, family.end)
    ender.start()
    host.wait_gone()
    assert family.shim.poll() is not None
    ender.join()


def test_a_shim_that_stays_is_named(api: Api, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SHIM_DEADLINE_S", 0.05)
    host = started()
    host.remove()
    with pytest.raises(RunError, match=f"host d1: the engine's shim, process {family.shim.pid}, has not ended"):
        host.wait_gone()
    host.wait_gone()


def test_label_based_removal_waits_for_shims_too(api: Api, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SHIM_DEADLINE_S", 0.05)
    with pytest.raises(RunError, match=f"process {family.shim.pid}, has not ended"):
        engine.remove_containers(["abc"])


def test_a_parent_that_is_no_shim_is_not_waited_for(tmp_path: Path, family: Family) -> None:
    shim = shim_of(family.first)
    assert shim is not None
    assert shim.pid == family.shim.pid
    assert not shim.has_ended()
    shim.close()
    shim.close()
    assert shim.has_ended()
    # Where the engine is in another pid namespace, the parent reads as 0.
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a b) c) S 0 7 7")
    assert shim_of(7, tmp_path) is None
    assert shim_of(8, tmp_path) is None
    other = Family(tmp_path, "supervisor")
    try:
        assert shim_of(other.first) is None
    finally:
        other.end()


def test_a_first_process_that_ended_at_once_is_an_error_with_its_last_words(api: Api) -> None:
    api.pid = 0
    with pytest.raises(RunError, match=r"ended at once: exit status 4: this is why$"):
        started()


FINISHED_NS = 1795313902_302013720


@pytest.mark.parametrize(
    ("code", "flag", "kills_ns", "told"),
    [
        (137, False, [], "killed by SIGKILL"),
        (143, False, [], "killed by SIGTERM"),
        (4, False, [], "exit status 4: this is why"),
        (137, True, [FINISHED_NS - 3 * 10**6], "OOM-killed (memory limit 64 MiB)"),
        # The engine's flag comes after its event, and stays for ever once it is set.
        (137, False, [FINISHED_NS - 3 * 10**6], "OOM-killed (memory limit 64 MiB)"),
        (137, True, [FINISHED_NS - 60 * 10**9], "killed by SIGKILL"),
        (137, True, [], "OOM-killed (memory limit 64 MiB)"),
        (
            4,
            True,
            [FINISHED_NS - 3 * 10**6],
            "exit status 4 after an OOM kill in it (memory limit 64 MiB): this is why",
        ),
        (4, True, [FINISHED_NS - 60 * 10**9], "exit status 4: this is why"),
    ],
)
def test_an_ending_says_how_and_why(
    api: Api, family: Family, code: int, flag: bool, kills_ns: list[int], told: str
) -> None:
    host = started()
    assert host.ending() is None
    api.state |= {"ExitCode": code, "OOMKilled": flag}
    api.oom_kills_ns = kills_ns
    family.end()
    assert host.ending() == told
    host.remove()
    assert host.ending() == "its container has been removed"


def test_an_ending_that_the_engine_does_not_tell_is_said_to_be_unknown(api: Api, family: Family) -> None:
    host = started()
    assert Container("d2", OPTIONS).ending() is None  # not up yet
    family.end()
    api.failing = {"logs": requests.exceptions.ConnectionError("refused"), "events": OSError("refused")}
    assert host.ending() == "exit status 4"
    api.failing = {"inspect_container": requests.exceptions.ConnectionError("Connection refused")}
    assert host.ending() == "how is not known: the engine does not tell how it ended: Connection refused"
    api.failing = {"inspect_container": engine.EngineGoneError("has ended")}
    assert host.ending() == "how is not known: the Docker engine has ended"
    response = requests.Response()
    response.status_code = 404
    api.failing = {"inspect_container": NotFound("no such container", response=response)}
    assert host.ending() == "how is not known: its container has been removed"
    host.remove()


def test_a_limit_that_is_not_held_is_an_error(api: Api) -> None:
    host = Container("d1", ContainerOptions(cpus=1.5), "abc")
    with pytest.raises(RunError, match="cpu_quota_us=50000 instead of 150000"):
        host.adopt(api.pid)
    host.remove()


def test_cores_that_are_not_held_are_an_error(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "read_limits", lambda groups: Limits(None, None, None, None, "0-1"))
    host = Container("d1", ContainerOptions(cpuset_cpus="1"), "abc")
    with pytest.raises(RunError, match="the kernel holds cpuset=0-1 instead of 1"):
        host.adopt(api.pid)
    held = Container("d1", ContainerOptions(cpuset_cpus="0,1"), "abc")
    held.adopt(api.pid)
    with pytest.raises(RunError, match="host d1: the kernel holds cpuset=0-1 instead of 0"):
        held.update(cpuset_cpus="0")
    for each in (host, held):
        each.remove()


def test_what_the_engine_refuses_is_an_error_of_ours(api: Api) -> None:
    response = requests.Response()
    response.status_code = 400
    api.failing["start"] = APIError("refused", response=response, explanation="exec: nonexistent")
    with pytest.raises(RunError, match="the engine refused: exec: nonexistent"):
        started()
    api.failing = {"update_container": requests.exceptions.ReadTimeout("read timed out")}
    host = started()
    with pytest.raises(RunError, match=r"host d1: limits \{'cpu_quota': 5000\} were refused: read timed out"):
        host.update(cpu_quota=5000, cpu_period=None)
    api.failing = {}
    with pytest.raises(RunError, match=r"host d1: .*cpu_quota_us=50000 instead of 5000"):
        host.update(cpu_quota=5000)
    assert host.options == OPTIONS
    host.update()
    host.update(cpu_quota=50_000, cpu_period=100_000)
    assert (host.options.cpus, host.options.cpu_quota) == (None, 50_000), "a restart would look for the limit of before"
    host.remove()


def test_without_its_engine_the_first_process_is_ended_and_the_shim_left_to_the_engine(
    api: Api, family: Family
) -> None:
    host = started()
    api.failing["remove_container"] = EngineGoneError("has ended")
    with pytest.raises(EngineGoneError):
        host.remove()
    assert host.died() and not host.removed
    assert family.shim.poll() is None
    host.wait_gone()  # else it would say that the shim has not ended
    # The engine is back.
    api.failing.clear()
    host.remove()
    assert host.removed


def test_a_container_is_started_again_within_its_limits_once_it_has_ended(
    api: Api, family: Family, tmp_path: Path
) -> None:
    made = Container("h1", ContainerOptions(), "abc")
    made.adopt(family.first)
    with pytest.raises(RunError, match="it has not ended"):
        made.restart()
    family.end_first()
    until_ended(made)
    family.end()
    other = Family(tmp_path / "other", "containerd-shim-runc-v2")
    try:
        api.pid = other.first
        api.asked.clear()
        made.restart()
        assert api.asked == ["inspect_container", "start", "inspect_container"], "the engine has to know that it ended"
        assert (made.pid, made.alive) == (other.first, True)
        other.end()
        until_ended(made)
        with pytest.raises(RunError, match="its first process ended at once"):
            made.restart()
    finally:
        other.end()


def until_ended(made: Container) -> None:
    eventually(lambda: not made.alive, "its first process has ended")


def test_the_first_process_is_stopped_and_goes_on_and_the_kernel_says_so(api: Api, family: Family) -> None:
    made = Container("h1", ContainerOptions(), "abc")
    made.adopt(family.first)
    before_ns = clock.monotonic_ns()
    assert before_ns <= made.signal(signal.SIGSTOP) <= clock.monotonic_ns()
    made.wait_stopped(True)
    with pytest.raises(RunError, match="h1: its first process is stopped"):
        made.wait_stopped(False)
    made.signal(signal.SIGCONT)
    made.wait_stopped(False)
    # Nobody waits for it meanwhile, so the kernel still takes signals for it.
    family.shim.send_signal(signal.SIGSTOP)
    made.signal(signal.SIGKILL)
    until_ended(made)
    with pytest.raises(RunError, match="its container has ended"):
        made.signal(signal.SIGSTOP)
