"""Programs are found whatever PATH says; what is not installed is named with its package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from containernet_env import cli
from containernet_env.base import programs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.hosts import netns


@pytest.mark.parametrize("path", ["/bin", "", None])
def test_programs_of_administrators_are_found_whatever_path_says(
    path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PATH") if path is None else monkeypatch.setenv("PATH", path)
    for program in ("cat", "unshare", "apt-get", "dpkg"):
        assert Path(programs.require(program)).is_absolute()
    folders = programs.environment()["PATH"].split(":")
    assert set(programs.FOLDERS) <= set(folders) and "" not in folders
    assert folders[0] == (path or programs.FOLDERS[0])
    own = tmp_path / "cat"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    with monkeypatch.context() as first:
        first.setenv("PATH", str(tmp_path))
        assert programs.which("cat") == str(own), "what it names goes first"
    programs.complete_path()
    assert os.environ["PATH"] == ":".join(folders)


def test_a_program_that_is_not_installed_is_a_missing_requirement_with_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "FOLDERS", ("/nowhere",))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingRequirementError) as raised:
        netns.run(os.getpid(), ["tc", "qdisc"])
    assert str(raised.value) == (
        "tc is not installed: it is neither in PATH nor in /nowhere\n"
        "  Install the package iproute2 (Debian, Ubuntu: apt-get install)."
    )
    assert cli.exit_code_of(raised.value) == 3
