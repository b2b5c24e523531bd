"""Whole runs on the original Containernet inside the virtual machine; their files are judged outside, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vm.inside.test_runs import kill_and_clean, run_and_leave_nothing

ENGINE = ("--engine", "containernet")


@pytest.mark.parametrize("switches", ["ovs", "bridge"])
def test_a_run_on_the_original_writes_its_rows_and_leaves_nothing(switches: str) -> None:
    run_and_leave_nothing(f"original-{switches}", switches, *ENGINE)


def test_after_kill_9_of_a_run_on_the_original_clean_removes_everything(tmp_path: Path) -> None:
    kill_and_clean(tmp_path / "original-killed.csv", *ENGINE)
