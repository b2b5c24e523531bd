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
from containernet_env.hosts.engine import EngineGoneError, HeldProcess, shim_of
from containernet_env.hosts.limits import Limits
from containernet_env.hosts.options import ContainerOptions
from tests.deadline import eventually


class Family:
    """A process called as the engine's shim is, and its child, within the ``with`` block."""

    def __init__(self, folder: Path, name: str = "containerd-shim-runc-v2") -> None:
        folder.mkdir(exist_ok=True)
        (folder / name).symlink_to(shutil.which("sh") or "/bin/sh")
        command = [folder / name, "-c", "sleep 60 & echo $!; wait $!; read _"]
        self.shim: Any = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.first = int(self.shim.stdout.readline())

    def __enter__(self) -> Family:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end_first(self) -> None:
        subprocess.run(["kill", "-9", str(self.first)], check=False)

    def end(self) -> None:
        self.end_first()
        self.shim.send_signal(signal.SIGCONT)
        self.shim.stdin.close()
        self.shim.wait(60)
        self.shim.stdout.close()


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with Family(tmp_path) as made:
        yield made


class Api:
    """The SDK's low-level client."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.calls: list[str] = []
        self.created: dict[str, Any] = {}
        self.failing: dict[str, Exception] = {}
        self.state: dict[str, Any] = {"ExitCode": 4, "OOMKilled": False, "FinishedAt": "2026-11-22T02:18:22.30201372Z"}
        self.oom_kills_ns: list[int] = []
        self.files: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name in self.failing:
                raise self.failing[name]
            if name == "create_container":
                self.created = options
                return {"Id": "abc", "Warnings": ["no swap limit"]}
            if name == "inspect_container":
                return {"State": {"Pid": self.pid, "Running": False, **self.state}, "Config": {}, **self.files}
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
HTTP_404 = requests.Response()
HTTP_404.status_code = 404


def started() -> Container:
    made = Container("d1", OPTIONS)
    assert made.create({"Id": "sha256:1", "Config": {}}, "abc123") == ["no swap limit"]
    made.start()
    return made


def adopted(pid: int, options: ContainerOptions | None = None) -> Container:
    made = Container("h1", options or ContainerOptions(), "abc")
    made.adopt(pid)
    return made


@pytest.mark.parametrize(
    ("options", "resolver"),
    [
        ({}, ""),
        ({"dns": ["10.0.0.53"]}, "nameserver 10.0.0.53\n"),
        ({"network_mode": "bridge"}, "nameserver 8.8.8.8\n"),
    ],
)
def test_it_knows_its_hosts_and_name_servers(api: Api, tmp_path: Path, options: dict[str, Any], resolver: str) -> None:
    """The machine's resolver was copied in: each look-up took 6 to 12 s."""
    api.files = {"HostsPath": f"{tmp_path}/hosts", "ResolvConfPath": f"{tmp_path}/resolv.conf"}
    (tmp_path / "hosts").write_text("127.0.0.1\tlocalhost\n")
    (tmp_path / "resolv.conf").write_text("nameserver 8.8.8.8\n")
    made = Container("d1", ContainerOptions(cpus=0.5, mem_limit="64m", **options), "abc")
    made.start()
    assert "\n127.0.0.1\td1\n" in (tmp_path / "hosts").read_text()
    made.write_names({"d2": "10.0.0.2", "d1": "10.0.0.1"})
    lines = (tmp_path / "hosts").read_text().splitlines()
    assert [line for line in lines if line[0] != "#"] == ["127.0.0.1\tlocalhost", "10.0.0.1\td1", "10.0.0.2\td2"]
    assert (tmp_path / "resolv.conf").read_text() == resolver
    (tmp_path / "hosts").unlink()
    (tmp_path / "hosts").symlink_to(tmp_path / "resolv.conf")
    with pytest.raises(RunError, match="hosts, which the engine keeps"):
        made.write_names({})
    api.files = {}
    adopted(api.pid).write_names({"d2": "10.0.0.2"})  # its /etc/hosts is a volume's


def until_ended(made: Container) -> None:
    eventually(lambda: not made.alive, "its first process has ended")


def test_from_its_creation_to_its_end(api: Api, family: Family) -> None:
    host = started()
    assert (host.id, host.pid, host.alive, host.died()) == ("abc", family.first, True, False)
    assert (api.created["entrypoint"], api.created["name"]) == (["sleep", "60"], "cnenv-abc123-d1")
    assert api.created["labels"] == engine.labels("abc123", "d1")
    assert host.exit_state().exit_code is None
    assert host.logs() == "this is why\n"
    family.end()
    assert host.died()
    assert host.exit_state().exit_code == 4
    host.remove()
    host.remove()
    host.wait_gone()
    assert api.calls.count("remove_container") == 1
    with pytest.raises(RunError, match="d1: its container has been removed"):
        _ = host.pid


def test_removal_is_over_when_the_shim_has_ended(api: Api, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    stays = f"process {family.shim.pid}, has not ended"
    host, other = started(), started()
    with monkeypatch.context() as hasty:
        hasty.setattr(engine, "SHIM_DEADLINE_S", 0.05)
        host.remove()
        with pytest.raises(RunError, match=f"host d1: the engine's shim, {stays}"):
            host.wait_gone()
        host.wait_gone()
        with pytest.raises(RunError, match=stays):  # what is removed by its label is waited for, too
            engine.remove_containers(["abc"])
    other.remove()
    shim = HeldProcess(family.shim.pid)  # Popen.poll says "running" while another thread waits for the process
    ender = threading.Timer(0.3, family.end)
    ender.start()
    other.wait_gone()
    assert shim.has_ended()
    ender.join()
    shim.close()


def test_a_parent_that_is_no_shim_is_not_waited_for(tmp_path: Path, family: Family) -> None:
    shim = shim_of(family.first)
    assert shim is not None and shim.pid == family.shim.pid and not shim.has_ended()
    shim.close()
    shim.close()
    assert shim.has_ended()
    # Where the engine is in another pid namespace, the parent reads as 0.
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a b) c) S 0 7 7")
    assert shim_of(7, tmp_path) is None
    assert shim_of(8, tmp_path) is None
    with Family(tmp_path, "supervisor") as other:
        assert shim_of(other.first) is None


FINISHED_NS = 1795313902_302013720
THEN, LONG_BEFORE = FINISHED_NS - 3 * 10**6, FINISHED_NS - 60 * 10**9


@pytest.mark.parametrize(
    ("code", "flag", "kills_ns", "message"),
    [
        (137, False, [], "killed by SIGKILL"),
        (4, False, [], "exit status 4: this is why"),
        (137, True, [THEN], "OOM-killed (memory limit 64 MiB)"),
        # The engine's flag comes after its event, and stays for ever once it is set.
        (137, False, [THEN], "OOM-killed (memory limit 64 MiB)"),
        (137, True, [LONG_BEFORE], "killed by SIGKILL"),
        (137, True, [], "OOM-killed (memory limit 64 MiB)"),
        (4, True, [LONG_BEFORE], "exit status 4: this is why"),
    ],
)
def test_an_ending_says_how_and_why(
    api: Api, family: Family, code: int, flag: bool, kills_ns: list[int], message: str
) -> None:
    host = started()
    assert host.ending() is None
    api.state |= {"ExitCode": code, "OOMKilled": flag}
    api.oom_kills_ns = kills_ns
    family.end()
    assert host.ending() == message
    host.remove()
    assert host.ending() == "its container has been removed"


def test_an_ending_that_the_engine_does_not_report_is_unknown(api: Api, family: Family) -> None:
    host, refused = started(), requests.exceptions.ConnectionError("Connection refused")
    assert Container("d2", OPTIONS).ending() is None  # not up yet
    family.end()
    api.failing = {"logs": refused, "events": OSError("refused")}
    assert host.ending() == "exit status 4"
    for error, message in (
        (refused, "the engine does not report how it ended: Connection refused"),
        (EngineGoneError("has ended"), "the Docker engine has ended"),
        (NotFound("no such container", response=HTTP_404), "its container has been removed"),
    ):
        api.failing = {"inspect_container": error}
        assert host.ending() == f"how is unknown: {message}"
    host.remove()


def test_what_the_engine_refuses_or_does_not_hold_is_an_error(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    pid, api.pid = api.pid, 0
    with pytest.raises(RunError, match=r"ended at once: exit status 4: this is why$"):
        started()
    api.pid, api.failing = pid, {"start": APIError("refused", response=HTTP_404, explanation="exec: nonexistent")}
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
    with pytest.raises(RunError, match="cpu_quota_us=50000 instead of 150000"):
        adopted(api.pid, ContainerOptions(cpus=1.5))
    monkeypatch.setattr(container, "read_limits", lambda groups: Limits(None, None, None, None, "0-1"))
    held = adopted(api.pid, ContainerOptions(cpuset_cpus="0,1"))
    with pytest.raises(RunError, match="host h1: the kernel holds cpuset=0-1 instead of 0"):
        held.update(cpuset_cpus="0")
    held.remove()


def test_without_its_engine_the_first_process_is_ended(api: Api, family: Family) -> None:
    host = started()
    api.failing["remove_container"] = EngineGoneError("has ended")
    with pytest.raises(EngineGoneError):
        host.remove()
    assert host.died() and not host.removed and family.shim.poll() is None
    host.wait_gone()  # else it would say that the shim has not ended
    api.failing.clear()  # the engine is back
    host.remove()
    assert host.removed


def test_a_container_is_started_again_once_it_has_ended(api: Api, family: Family, tmp_path: Path) -> None:
    made = adopted(family.first)
    with pytest.raises(RunError, match="it has not ended"):
        made.restart()
    family.end_first()
    until_ended(made)
    family.end()
    with Family(tmp_path / "other") as other:
        api.pid = other.first
        api.calls.clear()
        made.restart()
        assert api.calls == ["inspect_container", "start", "inspect_container"], "the engine has to know that it ended"
        assert (made.pid, made.alive) == (other.first, True)
        other.end()
        until_ended(made)
        with pytest.raises(RunError, match="its first process ended at once"):
            made.restart()


def test_the_first_process_is_stopped_and_goes_on_and_the_kernel_says_so(api: Api, family: Family) -> None:
    made = adopted(family.first)
    before_ns = clock.monotonic_ns()
    assert before_ns <= made.signal(signal.SIGSTOP) <= clock.monotonic_ns()
    made.wait_stopped(True)
    with pytest.raises(RunError, match="h1: its first process is stopped"):
        made.wait_stopped(False)
    made.signal(signal.SIGCONT)
    made.wait_stopped(False)
    # Nothing waits for it meanwhile, so the kernel still takes signals for it.
    family.shim.send_signal(signal.SIGSTOP)
    made.signal(signal.SIGKILL)
    until_ended(made)
    with pytest.raises(RunError, match="its container has ended"):
        made.signal(signal.SIGSTOP)
