"""Which commit is run: this program's, from its clone or its wheel, and that of the original Containernet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from containernet_env.containernet import original_links
from containernet_env.containernet.original_links import commit_of
from containernet_env.runs import version
from tests.deadline import HANG_S

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

GIT = ("git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", "-c", "safe.directory=*")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run([*GIT, *words], cwd=folder, check=True, timeout=HANG_S, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in a repository of its own with one commit, which has a tag."""
    package = tmp_path / "checkout" / "mininet"
    package.mkdir(parents=True)
    (package / "net.py").write_text("CONTAINERNET_VERSION = '3.0'\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"], ["tag", "v3.0"]):
        git(package.parent, *words)
    return package


def test_a_repository_has_its_commit_or_is_dirty(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git(package, "rev-parse", "HEAD")
    if os.geteuid() == 0:  # git refuses a repository that another user owns, as root meets under sudo
        for path in (package.parent, package.parent / ".git"):
            os.chown(path, 65534, 65534)
    assert commit_of(package) == commit
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert version.described(package.parent) == commit
    monkeypatch.delenv("GIT_DIR")
    (package / "net.py").write_text("changed")
    assert commit_of(package) == version.described(package.parent) == f"{commit}-dirty"


def test_a_repository_around_an_installed_package_is_not_its_own(package: Path) -> None:
    installed = package.parent / ".venv" / "site-packages" / "mininet"
    installed.mkdir(parents=True)
    assert commit_of(installed) is None and version.described(installed) is None
    (installed / version.COMMIT_FILE).write_text("0123abc-dirty\n")
    assert version.described(installed) == "0123abc-dirty"


def test_where_git_fails_or_is_not_there_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    assert version.described(tmp_path) is None and commit_of(tmp_path / "mininet") is None, "it has no commit"
    for name in ("empty", "nonsense"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".git").write_text(name.removeprefix("empty"))
        assert commit_of(tmp_path / name / "mininet") is None
    monkeypatch.setenv("PATH", "/nowhere")
    assert version.described(tmp_path) is None and commit_of(tmp_path / "mininet") is None
    missing = mock.Mock(side_effect=original_links.metadata.PackageNotFoundError("mininet"))
    monkeypatch.setattr(original_links.metadata, "distribution", missing)
    assert commit_of(tmp_path / "mininet") is None, "nothing is installed"


def test_the_commit_that_pip_noted_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "mininet-3.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mininet\nVersion: 3.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert commit_of(tmp_path / "mininet") is None, "nothing is noted"
    for noted, commit in (
        (json.dumps({"url": "https://example.org", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}), "c0ffee"),
        (json.dumps({"url": "file:///somewhere", "dir_info": {}}), None),
        ("no JSON", None),
    ):
        (info / "direct_url.json").write_text(noted)
        assert commit_of(tmp_path / "mininet") == commit, noted
        assert commit_of(tmp_path / "other" / "mininet") is None, "it is not the one that was installed"
