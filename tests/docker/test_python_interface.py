"""The examples of docs/python.md, as they stand there."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.docker.conftest import PROJECT

pytestmark = pytest.mark.docker
EXAMPLES = re.findall(r"```python\n(.*?)```", (PROJECT / "docs" / "python.md").read_text(), re.DOTALL)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "configs").symlink_to(PROJECT / "configs")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for example in EXAMPLES:
        exec(compile(example, "docs/python.md", "exec"), names)
    result = names["result"]
    assert result.failed == 0
    assert result.frame["50%"].between(0.001, 1).all()
    assert result.frame["Scenario"].tolist() == [outcome.scheduled.scenario.name for outcome in result.outcomes]
    assert (result.directory / "scenarios.jsonl").is_file()
    assert "ended early" in capsys.readouterr().out


def test_a_run_works_off_the_main_thread(tmp_path: Path) -> None:
    from containernet_env import measure

    results: list[Any] = []

    def work() -> None:
        config = PROJECT / "configs" / "1node.json"
        results.append(measure(config, None, tmp_path / "out.csv", quick=True, only=["read-serializable-50x1x1"]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)
    assert results and results[0].failed == 0
