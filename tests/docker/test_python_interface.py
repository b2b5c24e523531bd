"""The examples of docs/python.md, as they stand there."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.docker.runs import END_S, PROJECT

pytestmark = pytest.mark.docker
EXAMPLES = re.findall(r"```python\n(.*?)```", (PROJECT / "docs" / "python.md").read_text(), re.DOTALL)


@pytest.mark.usefixtures("unchanged_machine")
def test_the_examples_run_off_the_main_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(PROJECT / "configs")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for example in EXAMPLES:
                exec(compile(example, "docs/python.md", "exec"), names)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(END_S)
    assert not failures and not thread.is_alive(), failures
    result, again = names["result"], names["again"]
    assert result.failed == again.failed == 0
    assert result.frame["50%"].gt(0).all()
    assert result.frame["Scenario"].tolist() == [outcome.scheduled.scenario.name for outcome in result.outcomes]
    assert again.frame["ScenarioHash"].tolist() == result.frame["ScenarioHash"].tolist()
    assert (result.directory / "scenarios.jsonl").is_file()
    assert "ended early" in capsys.readouterr().out
