"""How each cell of the table of faults ended when it was last tested: .build/faults.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import pytest

PATH = Path(__file__).resolve().parents[2] / ".build" / "faults.json"


class Outcome(TypedDict):
    """``outcome`` is pytest's word, ``seconds`` are of the whole test, ``reason`` is there unless it has passed."""

    outcome: str
    seconds: float
    reason: str


def cell_of(test: str) -> str | None:
    """The cell that a test's id names; ``None`` for one that is no cell of the table."""
    found = re.search(r"test_faults\.py::test_fault\[(.+)\]$", test)
    return found[1] if found else None


def add(outcomes: dict[str, Outcome], cell: str, report: pytest.TestReport) -> None:
    """Add what one phase (set-up, call, tear-down) of a test came to; the worst phase counts."""
    before = outcomes.get(cell, Outcome(outcome="passed", seconds=0.0, reason=""))
    seconds = round(before["seconds"] + report.duration, 1)
    if report.passed or before["outcome"] == "failed":
        outcomes[cell] = Outcome(outcome=before["outcome"], seconds=seconds, reason=before["reason"])
        return
    text = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else _first_line(report.longreprtext)
    outcomes[cell] = Outcome(outcome=report.outcome, seconds=seconds, reason=text.removeprefix("Skipped: "))


def _first_line(text: str) -> str:
    return next((line[1:].strip() for line in text.splitlines() if line.startswith("E ")), "")[:300]


def read(path: Path = PATH) -> dict[str, Outcome]:
    """What is kept; empty where nothing is."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(outcomes: Mapping[str, Outcome], path: Path = PATH) -> None:
    """Keep these, and what is kept of other cells."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(read(path) | dict(outcomes), indent=1, sort_keys=True) + "\n")
