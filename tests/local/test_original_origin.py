"""Which commit of the original Containernet is imported: from its checkout, and from what pip wrote down."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from containernet_env.containernet.original import origin
from containernet_env.containernet.original.origin import commit_of

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "safe.directory=*"]
    return subprocess.run(
        ["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a package ``mininet`` and one commit, which has a tag."""
    package = tmp_path / "checkout" / "mininet"
    package.mkdir(parents=True)
    (package / "net.py").write_text("CONTAINERNET_VERSION = '3.0'\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"], ["tag", "v3.0"]):
        git(package.parent, *words)
    return package


@needs_git
def test_a_checkout_has_its_commit_and_says_whether_it_was_changed(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert commit_of(checkout) == commit
    (checkout / "net.py").write_text("changed")
    assert commit_of(checkout) == f"{commit}-dirty"


@needs_git
def test_a_checkout_of_somebody_else_has_its_commit_too(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Git's own way to test its refusal of a repository that another user owns, as root meets under sudo.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert commit_of(checkout) == git(checkout, "rev-parse", "HEAD")


@needs_git
def test_a_repository_around_an_installed_package_is_not_its_own(checkout: Path) -> None:
    installed = checkout.parent / ".venv" / "site-packages" / "mininet"
    installed.mkdir(parents=True)
    assert commit_of(installed) is None


@pytest.mark.parametrize("head", ["", "nonsense"])
def test_where_git_fails_there_is_no_commit_and_no_error(head: str, tmp_path: Path) -> None:
    (tmp_path / ".git").write_text(head)
    assert commit_of(tmp_path / "mininet") is None


def test_without_git_there_is_no_commit_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", "")
    assert commit_of(tmp_path / "mininet") is None


@pytest.mark.parametrize(
    ("noted", "commit"),
    [
        (json.dumps({"url": "https://example.org", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}), "c0ffee"),
        (json.dumps({"url": "file:///somewhere", "dir_info": {}}), None),
        ("no JSON", None),
        (None, None),
    ],
)
def test_what_pip_installed_from_a_git_url_has_the_commit_that_pip_noted(
    noted: str | None, commit: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "mininet-3.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mininet\nVersion: 3.0\n")
    if noted is not None:
        (info / "direct_url.json").write_text(noted)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert commit_of(tmp_path / "mininet") == commit
    # Another one, which is not the one that was installed.
    assert commit_of(tmp_path / "other" / "mininet") is None


def test_where_nothing_is_installed_there_is_no_commit_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise origin.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(origin.metadata, "distribution", fail)
    assert commit_of(tmp_path / "mininet") is None
