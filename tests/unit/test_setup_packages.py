"""Debian packages: what is missing, waiting for the dpkg lock, and errors that say what to do."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import dockerd, packages
from containernet_env.setup.commands import CommandError, Commands, Stopped

HOLDS_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


class Recorded(Commands):
    """Runs nothing; remembers what it was asked for and fails where told to."""

    def __init__(self, failing: str = "", tail: Sequence[str] = ()) -> None:
        super().__init__()
        self.asked: list[list[str]] = []
        self._failing = failing
        self._tail = tail

    def run(self, argv: Sequence[str], log: Path, **_: object) -> None:  # type: ignore[override]
        self.asked.append(list(argv))
        if self._failing and self._failing in argv:
            raise CommandError(argv, "ended with exit status 100", log, self._tail)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> set[str]:
    """The programs that the machine has; no lock is held and no engine runs."""
    programs = {"mnexec", "ip", "tc", "apt-get", "dpkg", "dockerd"}

    def which(name: str, path: str | None = None) -> str | None:
        return f"/usr/bin/{name}" if name in programs else None

    monkeypatch.setattr(packages.shutil, "which", which)
    monkeypatch.setattr(dockerd, "find", lambda: which("dockerd"))
    monkeypatch.setattr(packages.engine, "is_reachable", lambda: False)
    monkeypatch.setattr(packages, "_CERTIFICATES", (tmp_path,))
    monkeypatch.setattr(packages, "_APPARMOR", tmp_path / "no-apparmor")
    monkeypatch.setattr(packages, "wait_for_locks", lambda commands, note: None)
    return programs


def test_nothing_is_missing_on_a_complete_machine(machine: set[str]) -> None:
    assert packages.missing() == []


def test_only_what_is_missing_is_wanted_and_each_once(machine: set[str], tmp_path: Path) -> None:
    machine -= {"ip", "tc", "mnexec", "dockerd"}
    assert packages.missing() == ["mininet", "iproute2", "docker.io"]


def test_a_running_engine_needs_no_docker_package(machine: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    machine.remove("dockerd")
    monkeypatch.setattr(packages.engine, "is_reachable", lambda: True)
    assert packages.missing() == []


def test_engine_on_a_kernel_with_apparmor_needs_its_parser(
    machine: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine.remove("dockerd")
    (tmp_path / "enabled").write_text("Y\n")
    monkeypatch.setattr(packages, "_APPARMOR", tmp_path / "enabled")
    assert packages.missing() == ["docker.io", "apparmor"]


def test_certificates_are_wanted_where_there_are_none(
    machine: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(packages, "_CERTIFICATES", (tmp_path / "none.crt",))
    assert packages.missing() == ["ca-certificates"]


def test_install_repairs_updates_and_takes_no_recommends(machine: set[str], tmp_path: Path) -> None:
    commands = Recorded()
    packages.install(["mininet"], commands, tmp_path / "log", lambda text: None)
    repair, update, install = commands.asked
    assert repair == ["dpkg", "--configure", "-a"]
    assert update[-1] == "update"
    assert install[-2:] == ["install", "mininet"]
    assert {"--yes", "--no-install-recommends"} <= set(install)
    assert packages.environment()["DEBIAN_FRONTEND"] == "noninteractive"


def test_one_broken_source_does_not_stop_the_installation(machine: set[str], tmp_path: Path) -> None:
    commands = Recorded(failing="update", tail=["E: Failed to fetch of another vendor"])
    packages.install(["mininet"], commands, tmp_path / "log", lambda text: None)
    assert commands.asked[-1][-1] == "mininet"


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("E: Unable to locate package mininet", "'universe' on Ubuntu"),
        ("Err:1 Temporary failure resolving 'mirror'", "Check the network"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "Make room"),
        ("E: Something else", "try: apt-get install mininet"),
    ],
)
def test_failed_installation_says_what_to_do(machine: set[str], tmp_path: Path, line: str, remedy: str) -> None:
    with pytest.raises(MissingRequirementError) as caught:
        packages.install(["mininet"], Recorded("install", [line]), tmp_path / "log", lambda text: None)
    assert remedy in str(caught.value)
    assert line in str(caught.value)
    assert str(tmp_path / "log") in str(caught.value)


def test_system_without_apt_is_told_what_to_install(machine: set[str], tmp_path: Path) -> None:
    machine -= {"apt-get", "mnexec"}
    with pytest.raises(MissingRequirementError, match=r"mininet(.|\n)*no apt-get(.|\n)*by hand"):
        packages.install(["mininet"], Recorded(), tmp_path / "log", lambda text: None)


@pytest.fixture
def held_lock(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A dpkg lock that another process holds until its input is closed."""
    path = tmp_path / "lock-frontend"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS_LOCK, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    yield path, holder
    holder.communicate()


def test_wait_names_the_holder_once_and_goes_on_when_it_lets_go(
    held_lock: tuple[Path, subprocess.Popen[str]],
) -> None:
    path, holder = held_lock
    told: list[str] = []

    def note(text: str) -> None:
        told.append(text)
        holder.communicate()

    packages.wait_for_locks(Commands(), note, locks=[path.with_name("absent"), path], deadline_s=30)
    assert len(told) == 1
    assert f"process {holder.pid}" in told[0]
    assert "dpkg lock" in told[0]
    assert packages.lock_holder(path) is None


def test_wait_has_a_deadline(held_lock: tuple[Path, subprocess.Popen[str]]) -> None:
    path, _ = held_lock
    with pytest.raises(MissingRequirementError, match="has held the dpkg lock for 0 s"):
        packages.wait_for_locks(Commands(), lambda text: None, locks=[path], deadline_s=0)


def test_wait_ends_when_the_work_is_stopped(held_lock: tuple[Path, subprocess.Popen[str]]) -> None:
    path, _ = held_lock
    commands = Commands()
    threading.Thread(target=commands.stop).start()
    began = time.monotonic()
    with pytest.raises(Stopped):
        packages.wait_for_locks(commands, lambda text: None, locks=[path], deadline_s=60)
    assert time.monotonic() - began < 10
