"""Debian packages: what is missing, waiting for the dpkg lock, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import dockerd, packages
from containernet_env.setup.commands import CommandError, Commands, Stopped

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

    def find(name: str) -> str | None:
        return f"/usr/bin/{name}" if name in programs else None

    monkeypatch.setattr(packages.system_path, "find", find)
    monkeypatch.setattr(dockerd, "find", lambda: find("dockerd"))
    monkeypatch.setattr(packages.engine, "is_reachable", lambda: False)
    monkeypatch.setattr(packages, "_CERTIFICATES", (tmp_path,))
    monkeypatch.setattr(packages, "_APPARMOR", tmp_path / "no-apparmor")
    monkeypatch.setattr(packages, "_LOCK_POLL_S", 0.01)
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


class Locked(Recorded):
    """Another package manager holds the locks for the first ``times`` commands."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    def run(self, argv: Sequence[str], log: Path, **_: object) -> None:  # type: ignore[override]
        super().run(argv, log)
        if self.left > 0:
            self.left -= 1
            raise CommandError(argv, "ended with exit status 100", log, LOCKED[argv[0]])


def test_set_up_waits_for_another_package_manager_and_names_it_once(machine: set[str], tmp_path: Path) -> None:
    commands = Locked(times=3)
    told: list[str] = []
    packages.install(["mininet"], commands, tmp_path / "log", told.append)
    assert told == [f"waiting for another package manager: {LOCKED['dpkg'][0].removeprefix('dpkg: error: ')}"]
    assert [argv[0] for argv in commands.asked] == ["dpkg"] * 4 + ["apt-get"] * 2


@pytest.mark.parametrize("program", ["dpkg", "apt-get"])
def test_waiting_has_a_deadline(machine: set[str], tmp_path: Path, program: str) -> None:
    told: list[str] = []
    manager = packages._PackageManager(Locked(times=9), tmp_path / "log", told.append)
    with pytest.raises(CommandError):
        manager.run([program], 1.0, deadline_s=0.0)


def test_lock_that_is_not_let_go_says_what_to_do(
    machine: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages._PackageManager.run, "__defaults__", (0.0,))
    with pytest.raises(MissingRequirementError, match=r"pid 19892(.|\n)*Let that process end"):
        packages.install(["mininet"], Locked(times=9), tmp_path / "log", lambda text: None)


def test_waiting_ends_when_the_work_is_stopped(machine: set[str], tmp_path: Path) -> None:
    commands = Locked(times=1_000_000)
    with pytest.raises(Stopped):
        packages.install(["mininet"], commands, tmp_path / "log", lambda text: commands.stopping.set())
