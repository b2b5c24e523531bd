"""A wheel in an empty environment, away from the clone, and the examples of docs/python.md, as they stand there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import assets
from containernet_env.base.errors import RunError
from containernet_env.results.run_directory import MANIFEST
from tests.docker.runs import END_S, PROJECT, skip_if_busy

pytestmark = pytest.mark.docker
EXAMPLES = re.findall(r"```python\n(.*?)```", (PROJECT / "docs" / "python.md").read_text(), re.DOTALL)
USER = 65534  # nobody


def run(command: Path, cwd: Path, *arguments: str, user: int = 0) -> subprocess.CompletedProcess[str]:
    who: Any = {"user": user, "group": user, "extra_groups": [], "env": {"PATH": os.defpath, "HOME": str(cwd)}}
    output: Any = {"capture_output": True, "text": True}
    done = subprocess.run([command, *arguments], cwd=cwd, timeout=180, check=False, **output, **who)
    if done.returncode:
        skip_if_busy(done.stderr)
    return done


def test_a_wheel_runs_away_from_the_clone_and_shares_its_programs_and_images(command: Path, tmp_path: Path) -> None:
    """The contents of a wheel, and its answers without an engine, are tested in tests/local/test_package.py."""
    shutil.copy(assets.ROOT / "configs" / "3node-3ms.json", tmp_path / "own.json")
    done = run(command, tmp_path, "run", "own.json", "out.csv", "--quick", "--only", "write-leader-50x1x1-4B-64B")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 row in out.csv: 1 " in done.stdout and "failed" not in done.stdout
    assert (tmp_path / "out.csv").read_text().count("\n") == 2


@pytest.mark.skipif(
    Path(sys.base_prefix).resolve().parts[1] == "root", reason="this Python lies where no other user gets"
)
def test_user_without_root_can_check(command: Path, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path.parent):
        path.chmod(0o755)
    (tmp_path.parent.parent).chmod(0o755)
    done = run(command, tmp_path, "check", "3node-3ms", user=USER)
    assert done.returncode == 0, done.stderr
    assert "18 scenarios from " in done.stdout
    refused = run(command, tmp_path, "run", "3node-3ms", "out.csv", user=USER)
    assert refused.returncode == 3
    assert "need root" in refused.stderr


@pytest.mark.usefixtures("unchanged_machine")
def test_the_examples_run_off_the_main_thread_and_repeat_their_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(PROJECT / "configs")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}

    def work() -> None:
        for example in EXAMPLES:
            exec(compile(example, "docs/python.md", "exec"), names)

    try:
        ThreadPoolExecutor(1).submit(work).result(END_S)
    except RunError as error:
        skip_if_busy(str(error))
        raise
    result, again = names["result"], names["again"]
    assert result.failed == again.failed == 0
    assert result.frame["50%"].gt(0).all()
    assert result.frame["Scenario"].tolist() == [outcome.scheduled.scenario.name for outcome in result.outcomes]
    assert "ended early" in capsys.readouterr().out
    columns = ["Scenario", "ConfigHash", "ScenarioHash", "Config", "CongestionControl", "Links", "Commit"]
    assert again.frame[columns].equals(result.frame[columns])
    old, new = (json.loads((found.directory / MANIFEST).read_text()) for found in (result, again))
    for name in ("flags", "inputs", "config_hash", "images", "program"):
        assert old[name] == new[name], name
    assert [item for item in new["repeats"]["differences"] if item["matters"]] == []
