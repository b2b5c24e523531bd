"""Sweeps on testbeds of fakes: what they tell, and their files; certificates of a new authority in files."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.work import RemainingTime, Stop
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.results import csv_file
from containernet_env.runs.load import Answer
from containernet_env.runs.sweep import runner
from containernet_env.runs.sweep.design import design
from containernet_env.runs.sweep.jobs import SweepProgress
from containernet_env.runs.sweep.ledger import journal_of
from containernet_env.runs.sweep.runner import Counts, Request, Sweep
from containernet_env.runs.sweep.worker import TlsFiles
from containernet_env.stores.certificates import Authority
from tests.simulated_time import World
from tests.unit.fakes import CONFIG, on_fakes, result_of, rows

AXES = ("mem=256m,512m", "clients=5,10", "conns=1,2")  # on two testbeds
CELLS = 8
ALL = Counts(CELLS, 0, 0)
DIED = "the link emulator ended: killed by SIGKILL"
WRONG = NetworkProof("after", (Check("etcd1>s1", "rate", "wrong", "rate of etcd1>s1: 10, not 1000 Mbit/s"),))
FAILED = Answer(result_of(900, 100), "100 requests failed")


class Notes(SweepProgress):
    """Keeps what a sweep tells."""

    def __init__(self, on_ended: Callable[[], object] = bool) -> None:
        self.notes: list[str] = []
        self.began: list[tuple[str, int]] = []
        self.ended: list[tuple[str, int]] = []
        self.tallies: list[tuple[int, float]] = []
        self.on_ended = on_ended

    def note(self, text: str) -> None:
        self.notes.append(text)

    def cell_began(self, cell: Any, repetition: int, tally: RemainingTime) -> None:
        self.began.append((cell.identity, repetition))

    def cell_ended(self, cell: Any, repetition: int, outcome: ScenarioOutcome, tally: RemainingTime) -> None:
        self.ended.append((cell.identity, repetition))
        self.tallies.append((tally.done, tally.left_s))
        self.on_ended()


class Sweeping:
    """Sweeps into one file; ``notes`` and ``stop`` are those of the latest one, ``on_ended`` is called in each cell."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out, self.beds, self.notes, self.stop = out, on_fakes(monkeypatch), Notes(), Stop()
        self.on_ended: Callable[[], object] = bool

    def of(self, *axes: str, only: str = "write-leader-50x*-4B-64B", seed: int | None = 5, **request: Any) -> Sweep:
        made = design(CONFIG, axes or AXES, quick=True, only=[only], seed=seed)
        return Sweep(made, self.out, Request(**request))

    def run(self, *axes: str, **request: Any) -> Counts:
        """Measure it in simulated time."""
        self.notes, self.stop = Notes(self.on_ended), Stop()
        sweep = self.of(*axes, **request)
        return World(0).run(lambda: sweep.carry_out(self.notes, self.stop))

    def interrupt(self) -> None:
        self.stop.request(2)
        self.stop.check()

    def lose(self) -> Answer:
        """The first testbed loses its network in a benchmark."""
        self.beds[0].failure = DIED
        return Answer(None, "the server gave no answer")


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweeping:
    monkeypatch.setattr(runner, "lock_for", lambda plan: nullcontext())
    monkeypatch.setattr(runner, "require_root", lambda: None)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    return Sweeping(tmp_path / "out.csv", monkeypatch)


def measured(out: Path) -> Counter[tuple[str, str, str]]:
    return Counter((row["ConfigHash"], row["ScenarioHash"], row["Repetition"]) for row in rows(out))


def lines(out: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in journal_of(out).read_text().splitlines() if line]
    return [line for line in found if line["kind"] == kind]


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, is_full: Callable[[int], bool]) -> Iterator[None]:
    """Results files get no more rows where ``is_full`` of their descriptor."""
    append = csv_file.append_whole

    def refuse(fd: int, data: bytes, **named: Any) -> None:
        if is_full(fd):
            raise OSError(errno.ENOSPC, "No space left on device")
        append(fd, data, **named)

    with monkeypatch.context() as disk:
        disk.setattr(csv_file, "append_whole", refuse)
        yield


def certificates(folder: Path, names: tuple[str, ...]) -> dict[str, TlsFiles]:
    """One for each of these names."""
    folder.mkdir()
    authority = Authority()
    found = {}
    (folder / "ca.pem").write_bytes(authority.certificate)
    for name in names:
        issued = authority.issue(name, ["127.0.0.1"])
        (folder / f"{name}.pem").write_bytes(issued.certificate)
        (folder / f"{name}.key").write_bytes(issued.key)
        (folder / f"{name}.key").chmod(0o600)
        found[name] = TlsFiles(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
    return found
