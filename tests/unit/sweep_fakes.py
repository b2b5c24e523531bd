"""Sweeps on testbeds of fakes: what the benchmark servers answer, what a sweep tells, and its files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.stop import Stop
from containernet_env.load.server import Answer
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.runs import measure as measure_module
from containernet_env.sweep import runner
from containernet_env.sweep.design import design
from containernet_env.sweep.journal import journal_of
from containernet_env.sweep.progress import Standing
from containernet_env.sweep.runner import Counts, Request, Sweep
from tests.simulated_time import World
from tests.unit.matrix_fakes import result_of
from tests.unit.run_fakes import CONFIG, FakeTestbed, on_fakes, rows

AXES = ("mem=256m,512m", "clients=5,10", "conns=1,2")  # on two testbeds
CELLS = 8


class Notes:
    """Keeps what a sweep tells."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.began: list[tuple[str, int]] = []
        self.ended: list[tuple[str, int]] = []
        self.standings: list[Standing] = []
        self.on_ended: Callable[[], None] = lambda: None

    def note(self, text: str) -> None:
        self.notes.append(text)

    def bed_began(self, cells: Any, repetition: int) -> None: ...

    def cell_began(self, cell: Any, repetition: int, standing: Standing) -> None:
        self.began.append((cell.identity, repetition))

    def cell_progress(self, done: int, errors: int) -> None: ...

    def cell_ended(self, cell: Any, repetition: int, outcome: ScenarioOutcome, standing: Standing) -> None:
        self.ended.append((cell.identity, repetition))
        self.standings.append(standing)
        self.on_ended()


class Answers:
    """What the benchmark server of each testbed says, by the number of its benchmark in the sweep, from 1."""

    def __init__(self) -> None:
        self.asked = 0
        self.special: dict[int, Any] = {}

    def __call__(self, path: str, body: dict[str, Any]) -> Answer:
        self.asked += 1
        answer = self.special.get(self.asked, Answer(result_of(), None))
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer


@pytest.fixture
def beds(monkeypatch: pytest.MonkeyPatch) -> list[FakeTestbed]:
    made = on_fakes(monkeypatch)
    monkeypatch.setattr(runner, "lock_for", lambda plan: nullcontext())
    monkeypatch.setattr(runner, "require_root", lambda: None)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    # What this machine does meanwhile is no part of these tests.
    monkeypatch.setattr(measure_module, "AllUse", lambda *_: None)
    monkeypatch.setattr(measure_module, "Sampler", lambda *_: None)
    return made


@pytest.fixture
def answers(beds: list[FakeTestbed], monkeypatch: pytest.MonkeyPatch) -> Answers:
    found = Answers()
    plain = FakeTestbed.__init__

    def made(self: FakeTestbed, *arguments: Any, **named: Any) -> None:
        plain(self, *arguments, **named)
        self.server.behave = found

    monkeypatch.setattr(FakeTestbed, "__init__", made)
    return found


def swept(out: Path, *axes: str, stop: Stop | None = None, notes: Notes | None = None, **request: Any) -> Counts:
    """Measure it in simulated time."""
    sweep = sweep_of(out, *axes, **request)
    return World(0).run(lambda: sweep.carry_out(notes or Notes(), stop or Stop()))


def sweep_of(out: Path, *axes: str, seed: int | None = 5, **request: Any) -> Sweep:
    made = design(CONFIG, axes or AXES, quick=True, only=["write-leader-50x*-4B-64B"], seed=seed)
    return Sweep(made, out, Request(**request))


def measured(out: Path) -> Counter[tuple[str, str, str]]:
    return Counter((row["ConfigHash"], row["ScenarioHash"], row["Repetition"]) for row in rows(out))


def lines(out: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in journal_of(out).read_text().splitlines() if line]
    return [line for line in found if line["kind"] == kind]


def failing(error: str) -> Answer:
    return Answer(result_of(900, 100), error)
