"""Finding a Go that is new enough, and the environment that builds run in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import go
from containernet_env.setup.commands import CommandError, Commands


@pytest.mark.parametrize(
    ("version", "enough"),
    [
        ("go1.26.0", True),
        ("go1.26", True),
        ("go1.27rc1", True),
        ("go2.0", True),
        ("go1.25.9", False),
        ("go1.3", False),
        ("devel", False),
        ("", False),
    ],
)
def test_is_new_enough(version: str, enough: bool) -> None:
    assert go.is_new_enough(version) is enough


def test_first_usable_skips_old_and_broken_ones() -> None:
    versions = {"/old/go": "go1.19.8", "/broken/go": None, "/new/go": "go1.26.8", "/newer/go": "go1.27.0"}
    assert go.first_usable(iter(versions), versions.get) == go.Go("/new/go", "go1.26.8")
    assert go.first_usable(iter(["/old/go"]), versions.get) is None


def test_environment_lets_nothing_of_the_user_change_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOFLAGS", "-mod=mod -race")
    monkeypatch.setenv("GOAMD64", "v4")
    monkeypatch.setenv("CGO_CFLAGS", "-O0")
    monkeypatch.setenv("GOPROXY", "https://mirror.example")
    environment = go.environment()
    assert environment["GOFLAGS"] == "-mod=readonly -buildvcs=false"
    assert environment["CGO_ENABLED"] == "0"
    assert environment["GOPROXY"] == "https://mirror.example"
    assert not {"GOAMD64", "CGO_CFLAGS"} & set(environment)


def test_home_of_another_user_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert go.home() == str(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    monkeypatch.setattr(go.pwd, "getpwuid", lambda _: type("Entry", (), {"pw_dir": "/own"}))
    assert go.home() == "/own"


def test_a_user_without_an_entry_needs_a_home_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(go.pwd, "getpwuid", unknown)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert go.home() == str(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    with pytest.raises(MissingRequirementError, match="Set HOME"):
        go.home()


def test_go_that_cannot_be_fetched_is_a_missing_requirement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Offline(Commands):
        def run(self, argv: list[str], log: Path, **_: object) -> None:  # type: ignore[override]
            raise CommandError(argv, "ended with exit status 1", log, ["no network"])

    monkeypatch.setattr(go, "find", lambda: None)
    with pytest.raises(MissingRequirementError, match=r"Go 1\.26 or newer(.|\n)*Check the network"):
        go.ensure(Offline(), tmp_path / "log")
