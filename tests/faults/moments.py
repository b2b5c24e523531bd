"""Tells at which moment a run is, from the events that it forces to disk one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.deadline import eventually
from tests.faults.table import BRING_UP, HEAVY, PROOF, READ, TEAR_DOWN, WRITE

_POLL_S = 0.001
# How a moment begins: the kind of an event, and which one of that kind.
BEGINNINGS = {
    BRING_UP: ("run_began", 1),
    PROOF: ("hosts_up", 1),
    WRITE: ("scenario_began", 1),
    HEAVY: ("scenario_began", 2),
    READ: ("scenario_began", 3),
    TEAR_DOWN: ("tear_down_began", 1),
}
# What is over when it begins: a fault that comes later has missed its moment.
ENDS = {
    BRING_UP: ("network_proved", 1),
    PROOF: ("network_proved", 1),
    WRITE: ("scenario_ended", 1),
    HEAVY: ("scenario_ended", 2),
    READ: ("scenario_ended", 3),
    TEAR_DOWN: ("run_ended", 1),
}


class Course:
    """The events of the first run whose directory appears in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None

    def events(self) -> list[dict[str, Any]]:
        """All so far; a line that is being written is left out."""
        if self._path is None:
            self._path = next(iter(sorted(self._folder.glob("*/events.jsonl"))), None)
        if self._path is None:
            return []
        try:
            *lines, _ = self._path.read_bytes().split(b"\n")
        except OSError:
            return []
        return [json.loads(line) for line in lines]

    def has_begun(self, moment: str) -> bool:
        """Whether it has begun; it may be over."""
        return self._happened(*BEGINNINGS[moment])

    def is_over(self, moment: str) -> bool:
        """Whether it is over."""
        return self._happened(*ENDS[moment])

    def _happened(self, kind: str, times: int) -> bool:
        return sum(event["kind"] == kind for event in self.events()) >= times

    def wait_for(self, moment: str, alive: Callable[[], bool] = lambda: True) -> None:
        """Return as soon as the moment has begun. Raises AssertionError where that never comes, or not ``alive``."""

        def look() -> bool:
            assert alive() or self.has_begun(moment), f"the run ended before its {moment}"
            return self.has_begun(moment)

        eventually(look, f"the run's {moment} begins", interval_s=_POLL_S)
