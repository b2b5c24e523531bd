"""The program's own processes, and what git and sha256sum make of its files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from containernet_env.base import assets
from containernet_env.results.checksums import CHECKSUMS
from containernet_env.runs import version
from tests.deadline import HANG_S
from tests.unit import test_checksums

sealed = test_checksums.sealed
GIT = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("one\n")
    for arguments in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*GIT, *arguments], cwd=tmp_path, check=True, timeout=HANG_S)
    return tmp_path


def head(repository: Path) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, check=True, timeout=HANG_S, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_commit_is_gits_and_says_whether_files_differ(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    commit = version.described(repository)
    monkeypatch.delenv("GIT_DIR")
    assert commit == head(repository)
    subprocess.run([*GIT, "tag", "v9"], cwd=repository, check=True, timeout=HANG_S)
    (repository / "file").write_text("two\n")
    assert version.described(repository) == f"{commit}-dirty"


def test_commit_of_a_wheel_is_read_and_that_of_a_repository_around_it_is_not(repository: Path) -> None:
    installed = repository / "site-packages" / "assets"
    installed.mkdir(parents=True)
    assert version.described(installed) is None
    (installed / version.COMMIT_FILE).write_text("0123abc-dirty\n")
    assert version.described(installed) == "0123abc-dirty"


def test_without_git_or_commits_it_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=HANG_S)
    assert version.described(tmp_path) is None
    monkeypatch.setenv("PATH", "/nowhere")
    assert version.described(tmp_path) is None


def test_completion_of_commands_imports_none_of_them() -> None:
    code = (
        "import sys; from click.shell_completion import ShellComplete; from containernet_env.cli import group; "
        "ShellComplete(group, {}, 'containernet-env', '_CONTAINERNET_ENV_COMPLETE').get_completions([], ''); "
        "print({'docker', 'pandas', 'pydantic', 'mininet.node', 'containernet_env.cli.run'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=assets.ROOT, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.mark.parametrize("environment", [{}, {"PATH": ""}, {"PATH": "/bin"}])
def test_the_command_and_the_python_interface_need_no_path(environment: dict[str, str]) -> None:
    code = "from containernet_env.base import system_path; print(system_path.require('cat'))"
    for words in (["-m", "containernet_env", "--version"], ["-c", code]):
        done = subprocess.run(
            [sys.executable, *words],
            env=environment,
            cwd=assets.ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
        )
        assert done.returncode == 0 and done.stdout, done.stderr


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum here")
def test_sha256sum_verifies_it(sealed: Path) -> None:
    command = ["sha256sum", "--strict", "--check", CHECKSUMS]
    assert subprocess.run(command, cwd=sealed, capture_output=True, timeout=HANG_S, check=False).returncode == 0
    (sealed / "logs" / "etcd1.log").write_text("reddy\n")
    assert subprocess.run(command, cwd=sealed, capture_output=True, timeout=HANG_S, check=False).returncode == 1
