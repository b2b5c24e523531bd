"""The set-up: quick when nothing is missing, clear when it cannot be done; what its steps fetch, install and start.

What it builds is in test_setup_builds.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import re
import subprocess
import sys
import threading
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Container, Sequence
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import requests
from click.testing import CliRunner
from docker.errors import DockerException
from packaging.requirements import Requirement
from rich.console import Console

from bench.links import plot
from containernet_env import setup
from containernet_env.base import assets, clock
from containernet_env.base.errors import Interrupted, MissingRequirementError
from containernet_env.base.work import Stop
from containernet_env.cli import machine as cli_setup
from containernet_env.cli.machine import ConsoleReport
from containernet_env.hosts import engine
from containernet_env.runs.progress import Silent
from containernet_env.setup import Missing, builds, dockerd, images, packages
from containernet_env.setup.commands import CommandError, Commands, Steps, Stopped, only_one
from containernet_env.setup.images import Images
from containernet_env.stores.kinds import DEFAULT, KINDS
from containernet_env.stores.store import Download, Store
from tests.simulated_time import START_NS, World, simulated

IMAGES = Images("containernet-env/etcd:1", "containernet-env/benchmark:1")
ZOOKEEPER = KINDS["zookeeper"].default()


class FakeCommands(Commands):
    """Starts nothing and remembers what was asked for.

    ``fails``: of a command and how many were asked for, the last lines that it prints where it fails.
    """

    def __init__(self, fails: Callable[[Sequence[str], int], Sequence[str] | None] = lambda argv, number: None) -> None:
        super().__init__()
        self.asked: list[list[str]] = []
        self._fails = fails

    def run(self, argv: Sequence[str], log: Path, **_: object) -> None:
        self.asked.append(list(argv))
        if (tail := self._fails(argv, len(self.asked))) is not None:
            raise CommandError(argv, "ended with exit status 100", log, tail)


def failing(word: str, line: str) -> FakeCommands:
    """Commands of which those with the word fail and print the line."""
    return FakeCommands(lambda argv, number: [line] if word in argv else None)


# --- as a whole -------------------------------------------------------------------------------------------------------


def lacking(monkeypatch: pytest.MonkeyPatch, found: Missing) -> None:
    monkeypatch.setattr(setup, "detect", lambda *of: found)


def test_nothing_missing_is_one_line_or_the_command_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(required=IMAGES))
    monkeypatch.setattr(setup, "_Work", None)
    assert setup.is_ready() and setup.ready_images() == IMAGES
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, argv: became.append(argv))
    for words, output in (([], r"Set-up: nothing to do \(.*\n"), (["--", "run", "a.json", "out.csv", "--quick"], "")):
        result = CliRunner().invoke(cli_setup.setup_command, words, standalone_mode=False)
        assert result.exception is None and re.fullmatch(output, result.output)
    assert [argv[1:] for argv in became] == [["run", "a.json", "out.csv", "--quick"]]
    assert "No such option '--store'" in CliRunner().invoke(cli_setup.setup_command, ["--store", "x"]).output


def test_everything_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(("mininet",), True, assets.modules()[:1], ("base", "etcd"), IMAGES))
    assert not setup.is_ready()
    words = r"mininet(.|\n)*running Docker engine(.|\n)*etcdctl(.|\n)*base image(.|\n)*\./build\.sh"
    with pytest.raises(MissingRequirementError, match=words):
        setup.ready_images()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingRequirementError, match=r"needs root\n.*sudo"):
        setup.set_up(Silent())


def test_another_store_is_set_up_when_a_run_of_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who measures etcd waits for it, and nobody has to set it up by a command of its own."""
    there: list[Store] = []
    lacks = Missing(images=("zookeeper",), required=IMAGES, store=ZOOKEEPER)

    def look(store: Store = DEFAULT) -> Missing:
        return lacks if store == ZOOKEEPER and not there else Missing(required=IMAGES)

    monkeypatch.setattr(setup, "detect", look)
    monkeypatch.setattr(setup, "set_up", lambda report, store, stop: there.append(store))
    assert setup.is_ready() and setup.ready_images(DEFAULT, Silent()) == IMAGES and there == []
    with pytest.raises(MissingRequirementError, match="the zookeeper image"):
        setup.ready_images(ZOOKEEPER)
    assert setup.ready_images(ZOOKEEPER, Silent()) == IMAGES and there == [ZOOKEEPER]
    lacking(monkeypatch, Missing(("mininet",), images=("zookeeper",)))
    with pytest.raises(MissingRequirementError, match="mininet"):
        setup.ready_images(ZOOKEEPER, Silent())
    assert there == [ZOOKEEPER], "more is missing than the store"


@simulated()
def test_a_set_up_waits_for_another_until_that_ends_or_its_own_stop_or_deadline(world: World, tmp_path: Path) -> None:
    lock, stop, told = tmp_path / "lock", Stop(), list[str]()
    other = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(Interrupted), only_one(lambda text: stop.request(), lock, deadline_s=20, stop=stop):
        pass
    late = pytest.raises(MissingRequirementError, match=r"another set-up has held .* for more than 20 s")
    with late, only_one(lambda text: None, lock, deadline_s=20):
        pass
    began_s = (world.now_ns - START_NS) / 1e9
    assert 20 < began_s < 21

    def note(text: str) -> None:
        told.append(text)
        clock.Thread(target=lambda: (clock.sleep(30), os.close(other))).start()

    with only_one(note, lock):
        assert told == ["waiting for another set-up on this machine to end"]
        assert 30 <= (world.now_ns - START_NS) / 1e9 - began_s < 31


@simulated()
def test_a_step_is_one_line_with_what_it_took(tmp_path: Path) -> None:
    output = io.StringIO()
    steps = Steps(ConsoleReport(Console(file=output, highlight=False, soft_wrap=True)), tmp_path / "logs")
    with steps.step("base image") as step:
        clock.sleep(5)
        step.done("made")
    with steps.step("etcd") as step:
        step.done("made")
    assert output.getvalue() == "  base image      made  (5.0 s)\n  etcd            made\n"


# --- Debian packages --------------------------------------------------------------------------------------------------

# What apt 2.6 and dpkg 1.21 print last.
LOCKED = {
    "apt-get": [
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 19892 (apt-get)",
        "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?",
    ],
    "dpkg": [
        "dpkg: error: dpkg frontend lock was locked by another process with pid 19892",
        "Note: removing the lock file is always wrong, can damage the locked area",
        "and the entire system. See <https://wiki.debian.org/Teams/Dpkg/FAQ#db-lock>.",
    ],
}


def locked(numbers: Container[int]) -> FakeCommands:
    """Another package manager holds the locks while the commands of these numbers run."""
    return FakeCommands(lambda argv, number: LOCKED[argv[0]] if number in numbers else None)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> set[str]:
    """The programs that the machine has; no lock is held and no engine runs."""
    programs = {"mnexec", "ip", "tc", "apt-get", "dpkg", "dockerd"}

    def find(name: str) -> str | None:
        return f"/usr/bin/{name}" if name in programs else None

    monkeypatch.setattr(packages.programs, "which", find)
    monkeypatch.setattr(dockerd, "find", lambda: find("dockerd"))
    monkeypatch.setattr(packages.engine, "is_reachable", lambda: False)
    monkeypatch.setattr(packages, "_CERTIFICATES", (tmp_path,))
    monkeypatch.setattr(packages, "_APPARMOR", tmp_path / "apparmor")
    return programs


def install(commands: Commands, folder: Path, note: Callable[[str], None] = lambda text: None) -> None:
    packages.install(["mininet"], commands, folder / "log", note)


def test_only_what_is_missing_is_wanted_and_each_once(
    machine: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert packages.missing() == []
    machine.remove("dockerd")
    with monkeypatch.context() as running:
        running.setattr(packages.engine, "is_reachable", lambda: True)
        assert packages.missing() == [], "an engine that runs needs no package"
    (tmp_path / "apparmor").write_text("Y\n")
    assert packages.missing() == ["docker.io", "apparmor"], "it needs the parser of its kernel's AppArmor"
    (tmp_path / "apparmor").unlink()
    machine -= {"ip", "tc", "mnexec"}
    assert packages.missing() == ["mininet", "iproute2", "docker.io"]
    monkeypatch.setattr(packages, "_CERTIFICATES", (tmp_path / "none.crt",))
    assert "ca-certificates" in packages.missing()


def test_install_repairs_updates_and_takes_no_recommends(machine: set[str], tmp_path: Path) -> None:
    commands = failing("update", "E: Failed to fetch of another vendor")  # one broken source does not stop it
    install(commands, tmp_path)
    repair, update, installed = commands.asked
    assert repair == ["dpkg", "--configure", "-a"] and update[-1] == "update"
    assert installed[-2:] == ["install", "mininet"]
    assert {"--yes", "--no-install-recommends"} <= set(installed)
    assert packages.environment()["DEBIAN_FRONTEND"] == "noninteractive"


@pytest.mark.parametrize(
    ("lacks", "fails", "line", "words"),
    [
        ("", "install", "E: Unable to locate package mininet", "'universe' on Ubuntu"),
        ("", "install", "Err:1 Temporary failure resolving 'mirror'", "Check the network"),
        ("", "install", "E: You don't have enough free space in /var/cache/apt/archives/.", "Make room"),
        ("", "install", "E: Something else", "try: apt-get install mininet"),
        ("mnexec", "update", "E: Failed to fetch of another vendor", r"mnexec is still missing \(.*exit status 100"),
        ("apt-get", "", "", r"mininet(.|\n)*no apt-get(.|\n)*by hand"),
    ],
)
def test_failed_installation_says_what_to_do(
    machine: set[str], tmp_path: Path, lacks: str, fails: str, line: str, words: str
) -> None:
    machine.discard(lacks)
    with pytest.raises(MissingRequirementError, match=words) as caught:
        install(failing(fails, line), tmp_path)
    assert fails != "install" or (line in str(caught.value) and str(tmp_path / "log") in str(caught.value))


@simulated()
def test_set_up_waits_for_another_package_manager_until_that_ends_or_its_own_stop_or_deadline(
    world: World, machine: set[str], tmp_path: Path
) -> None:
    commands, told = locked({1, 2, 3, 5}), list[str]()
    install(commands, tmp_path, told.append)
    names = LOCKED["dpkg"][0].removeprefix("dpkg: error: "), LOCKED["apt-get"][0].removeprefix("E: ")
    assert told == [f"waiting for another package manager: {name}" for name in names]
    assert [argv[0] for argv in commands.asked] == ["dpkg"] * 4 + ["apt-get"] * 3
    stopped = locked(range(10**9))
    with pytest.raises(Stopped):
        install(stopped, tmp_path, lambda text: stopped.stopping.set())
    began_ns = world.now_ns
    with pytest.raises(MissingRequirementError, match=r"pid 19892(.|\n)*Wait for that process to end"):
        install(locked(range(10**9)), tmp_path)
    assert 0 <= (world.now_ns - began_ns) / 1e9 - packages.LOCK_DEADLINE_S < 10


# --- Go ---------------------------------------------------------------------------------------------------------------


def test_the_first_go_that_is_new_enough_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    new, old = ("go1.26.0", "go1.26", "go1.27rc1", "go2.0"), ("go1.25.9", "go1.3", "devel", "")
    find = builds.find.__wrapped__

    def found(versions: dict[str, str | None]) -> builds.Go | None:
        monkeypatch.setattr(builds, "_candidates", lambda: iter(versions))
        monkeypatch.setattr(builds, "output_of", lambda argv, *_: versions[argv[0]])
        return find()

    assert [version for version in (*new, *old) if found({"/go": version})] == [*new]
    versions = {"/old/go": "go1.19.8", "/broken/go": None, "/new/go": "go1.26.8", "/newer/go": "go1.27.0"}
    assert found(versions) == builds.Go("/new/go", "go1.26.8")
    with pytest.raises(MissingRequirementError, match=r"Go 1\.26 or newer(.|\n)*Check the network"):
        builds.fetch(FakeCommands(lambda argv, number: ["no network"]), tmp_path / "log")


def test_environment_lets_nothing_of_the_user_change_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = {"GOPROXY": "https://mirror.example"}
    for name, value in ({"GOFLAGS": "-mod=mod -race", "GOAMD64": "v4", "CGO_CFLAGS": "-O0"} | mirror).items():
        monkeypatch.setenv(name, value)
    environment = builds.environment()
    assert environment.items() >= ({"GOFLAGS": "-mod=readonly -buildvcs=false", "CGO_ENABLED": "0"} | mirror).items()
    assert not {"GOAMD64", "CGO_CFLAGS"} & set(environment)


def test_home_of_another_user_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(builds.pwd, "getpwuid", unknown)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert builds.home() == str(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    with pytest.raises(MissingRequirementError, match="Set HOME"):
        builds.home()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    monkeypatch.setattr(builds.pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir="/own"))
    assert builds.home() == "/own"


# --- files that are fetched -------------------------------------------------------------------------------------------

CONTENT = b"PK\x03\x04" + bytes(100_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ADDRESS = "http://repository.example"
# b.jar is another file, whose checksum, which the repository has beside it, is right; c.jar breaks off.
OTHER = CONTENT + b"x"
FILES = {"a.jar": CONTENT, "b.jar": OTHER, "b.jar.sha1": hashlib.sha1(OTHER).hexdigest().encode()}


class BreaksOff(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        if not (found := super().read(size)):
            raise ConnectionResetError("Connection reset by peer")
        return found


def test_a_file_is_fetched_whole_once_and_again_where_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(url: str, timeout: float) -> io.BytesIO:
        name = url.removeprefix(f"{ADDRESS}/")
        if name not in (*FILES, "c.jar"):
            raise urllib.error.HTTPError(url, 404, "Not Found", Message(), None)
        return io.BytesIO(FILES[name]) if name in FILES else BreaksOff(CONTENT[:1000])

    def kept() -> list[str]:
        return sorted(path.name for path in (tmp_path / "cache" / "downloads").glob("*"))

    (tmp_path / "cache").mkdir(mode=0o755)
    monkeypatch.setattr(assets, "MACHINE", tmp_path / "cache")
    monkeypatch.setattr(assets, "own", lambda: tmp_path / "cache")
    monkeypatch.setattr(urllib.request, "urlopen", opened)
    stopping = threading.Event()
    for name, words in (("b.jar", "its SHA-256 is"), ("c.jar", "could not be fetched"), ("none.jar", "404")):
        with pytest.raises(MissingRequirementError, match=rf"{words}(.|\n)*Check the network"):
            images.fetch(Download(name, f"{ADDRESS}/{name}", SHA256), stopping)
        assert kept() == [], name
    wanted = Download("zookeeper.jar", f"{ADDRESS}/a.jar", SHA256)
    assert images.find(wanted) is None
    path = images.fetch(wanted, stopping)
    assert path.read_bytes() == CONTENT and images.find(wanted) == path
    assert kept() == [path.name] and path.name.endswith("-zookeeper.jar")
    before = path.stat().st_mtime_ns
    assert images.fetch(wanted, stopping).stat().st_mtime_ns == before
    path.write_bytes(b"another")
    assert images.find(wanted) is None
    assert images.fetch(wanted, stopping).read_bytes() == CONTENT
    stopping.set()
    with pytest.raises(Stopped):
        images.fetch(Download("a.jar", f"{ADDRESS}/a.jar", SHA256), stopping)
    assert kept() == [path.name]


# --- optional Python packages -----------------------------------------------------------------------------------------

PIP = rf"Install it: {re.escape(sys.executable)} -m pip install"
PROJECT = tomllib.loads((assets.ROOT / "pyproject.toml").read_text())["project"]


class Clone:
    """A clone with an environment of its own, in which ``versions`` are installed; what pip was told."""

    def __init__(self, folder: Path) -> None:
        self.constraints = folder / "constraints.txt"
        self.versions: dict[str, str] = {}
        self.installs: list[tuple[str, ...]] = []
        self.notes: list[str] = []
        self.fails = False

    def require(self, module: str) -> None:
        packages.require(module, self.notes.append)

    def run(self, argv: Sequence[str], log: Path, **options: Any) -> None:
        self.installs.append(tuple(argv))
        assert options["timeout_s"] <= 900
        if self.fails:
            raise CommandError(argv, "ended with exit status 1", log, ["ERROR: no route to the index"])
        lines = self.constraints.read_text().splitlines()
        self.versions |= dict(line.split("==") for line in lines if "==" in line)

    def version(self, name: str) -> str:
        if name not in self.versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return self.versions[name]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    made = Clone(tmp_path)
    (tmp_path / ".venv").mkdir()
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((assets.ROOT / name).read_bytes())
    monkeypatch.setattr(assets, "CLONE", tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setattr(Commands, "run", lambda self, *arguments, **options: made.run(*arguments, **options))
    monkeypatch.setattr(importlib.metadata, "version", made.version)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in made.versions else None)
    return made


def test_the_table_is_that_of_the_metadata() -> None:
    for extra, modules in packages.EXTRAS.items():
        assert sorted(modules) == sorted(Requirement(line).name for line in PROJECT["optional-dependencies"][extra])
    optional = {name for modules in packages.EXTRAS.values() for name in modules}
    assert not optional & {Requirement(line).name for line in PROJECT["dependencies"]}


@pytest.mark.parametrize(
    ("before", "interrupted"),
    [({}, False), ({"scipy": "1.0.0"}, False), ({}, True)],
    ids=["none", "another version", "an installation was interrupted"],
)
def test_a_clones_environment_gets_the_pinned_packages_with_one_line(
    clone: Clone, monkeypatch: pytest.MonkeyPatch, before: dict[str, str], interrupted: bool
) -> None:
    clone.versions = before
    if interrupted:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    clone.require("scipy")
    clone.require("matplotlib")  # there by now
    (argv,) = clone.installs
    assert argv[:4] == (sys.executable, "-m", "pip", "install")
    assert argv[argv.index("--constraint") + 1] == str(clone.constraints)
    assert {Requirement(line).name for line in argv[-3:]} == {"scipy", "matplotlib", "plotly"}
    assert clone.notes == [f"installing scipy, matplotlib, plotly into {sys.prefix}, once"]


(SCIPY,) = (Requirement(line) for line in PROJECT["optional-dependencies"]["analysis"] if line.startswith("scipy"))
BOUNDS = {bound.operator: bound.version for bound in SCIPY.specifier}


@pytest.mark.parametrize(
    ("version", "used"),
    [(None, False), ("{>=}.1", True), ("0.9", False), ("{<}", False), ("{>=}.1rc1", False)],
)
@pytest.mark.parametrize("writable", [True, False])
def test_where_nothing_can_be_installed_a_version_that_the_range_allows_is_used(
    clone: Clone, monkeypatch: pytest.MonkeyPatch, version: str | None, used: bool, writable: bool
) -> None:
    found = version and version.format_map(BOUNDS)
    clone.versions, clone.fails = {"scipy": found} if found else {}, True
    monkeypatch.setattr(packages.os, "access", lambda path, mode: writable)
    if not used:
        why = r"no route to the index.*extras\.log" if writable else r"cannot write.*As root: .* pip install .*scipy"
        with pytest.raises(MissingRequirementError, match=f"(?s){why}"):
            clone.require("scipy")
        assert plot.why_no_pictures() is not None
        return
    clone.require("scipy")
    why = "no route to the index" if writable else f"and {found} is installed; this user cannot write to {sys.prefix}"
    assert clone.notes[-1].endswith(f"{why}; scipy {found} is used")


def test_an_environment_that_is_not_the_clones_is_left_alone(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/usr")
    with pytest.raises(MissingRequirementError, match=rf"{PIP} --constraint \S+ --editable '\S+\[analysis\]'"):
        clone.require("scipy")
    monkeypatch.setattr(assets, "CLONE", None)
    with pytest.raises(MissingRequirementError, match=rf"{PIP} 'containernet-env\[analysis\]'"):
        clone.require("scipy")
    clone.versions = {"scipy": "1.99"}
    clone.require("scipy")
    assert (clone.installs, clone.notes) == ([], [])


# --- the engine -------------------------------------------------------------------------------------------------------

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
