"""The files of a run that is struck: what it reads, what it wrote, and what it has to have kept."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from containernet_env.results.columns import COLUMNS
from tests.faults.table import FINISHED, HEAVY, READ, SCENARIOS, WRITE, Promise

_MEMBER = {"mem": "256m", "cpus": 1, "bandwidth": 1000, "link_delay": "500us"}
MEMBERS = ("etcd1", "etcd2", "etcd3")


def topology(**changes: Any) -> list[dict[str, Any]]:
    """Three members; an RTT of 2 ms, so that two hundred requests one after the other take a second."""
    return [{"ip": f"10.0.0.{251 + number}", **_MEMBER, **changes} for number in range(3)]


def scenarios(timeout: str, struck: str = "") -> dict[str, Any]:
    """The three scenarios of ``table.SCENARIOS``, about half a second each, whose requests have this deadline.

    The one that is ``struck`` is ten times as long, so that it goes on while its fault strikes.
    """
    size = {"keySize": 8, "valSize": 64}
    one, many = {"clients": 1, "conns": 1, "timeout": timeout}, {"clients": 100, "conns": 10, "timeout": timeout}
    by_moment: dict[str, dict[str, Any]] = {
        WRITE: {"type": "write", "load": {"total": 120, **one}, "data": size, "target": "leader"},
        HEAVY: {"type": "write", "load": {"total": 3000, **many}, "data": size, "target": "cluster"},
        READ: {"type": "read", "load": {"total": 120, **one}, "consistency": "l"},
    }
    if struck in by_moment:
        by_moment[struck]["load"]["total"] *= 10
    return {"dataset": {**size, "keys": 100}, "scenarios": [by_moment[moment] for moment in SCENARIOS]}


@dataclass
class Files:
    """What a run reads and writes. ``out`` may be moved before the run starts. ``struck``: see ``scenarios``."""

    folder: Path
    struck: str = ""
    out: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config, self.scenarios = self.folder / "config.json", self.folder / "scenarios.json"
        self.said, self.out = self.folder / "said.txt", self.folder / "results" / "out.csv"
        self.out.parent.mkdir(exist_ok=True)
        self.config.write_text(json.dumps(topology()))
        self.set_deadline("1s")

    def set_deadline(self, timeout: str) -> None:
        """Write the scenarios anew, with another deadline of their requests."""
        self.scenarios.write_text(json.dumps(scenarios(timeout, self.struck)))

    def only(self, count: int) -> None:
        """Leave out all scenarios but the first ones."""
        held = json.loads(self.scenarios.read_text())
        self.scenarios.write_text(json.dumps({**held, "scenarios": held["scenarios"][:count]}))

    @property
    def command(self) -> list[str]:
        """The words of the run."""
        return ["run", str(self.config), str(self.out), "--scenarios", str(self.scenarios)]

    @property
    def runs(self) -> Path:
        """Where its run directories are."""
        return self.out.with_suffix(".runs")

    def rows(self, path: Path | None = None) -> list[dict[str, str]]:
        """The rows of OUT (or of ``path``), read strictly: our header, whole lines, a value for each column."""
        path = path or self.out
        if not path.exists():
            return []
        text = path.read_text(encoding="utf-8")
        assert text.endswith("\n"), f"{path.name} ends within a line: {text[-80:]!r}"
        header, *lines = csv.reader(text.splitlines(), strict=True)
        assert tuple(header) == COLUMNS, header
        assert all(len(line) == len(COLUMNS) for line in lines), [len(line) for line in lines]
        return [dict(zip(COLUMNS, line, strict=True)) for line in lines]

    def record(self) -> list[dict[str, Any]]:
        """The lines of scenarios.jsonl of all run directories."""
        lines = []
        for path in sorted(self.runs.glob("*/scenarios.jsonl")):
            lines += [json.loads(line) for line in path.read_text().splitlines()]
        return lines


FILLING = "filling"
"""The name of the scenario of a row that is none of the run's."""


def check_kept(files: Files, promise: Promise, moment: str, status: int, said: str) -> None:
    """Raise AssertionError where a run that ended with ``status`` and printed ``said`` has not kept the promise."""
    assert "Traceback" not in said and "Exception ignored" not in said, said
    assert status in promise.status, f"exit status {status}\n{said}"
    assert re.search(promise.says, said), f"{promise.says!r} is not said\n{said}"
    kept = [row for row in files.rows() if row["Scenario"] != FILLING]
    if promise.kept == "OUT or OUT.rescued" and not files.out.exists():
        kept = files.rows(files.out.with_name(files.out.name + ".rescued"))
    errors: list[tuple[str, str]] = [(row["Scenario"], row["Error"]) for row in kept]
    assert len(errors) == len({name for name, _ in errors}), f"a row is there twice: {errors}"
    if promise.kept == "run directory":
        errors += [
            (line["scenario"], line["error"] or FINISHED)
            for line in files.record()
            if line["scenario"] not in dict(errors)
        ]
    if not promise.rows:
        return
    wanted = [pattern for pattern in promise.rows if pattern is not None]
    assert len(errors) == len(wanted), f"{len(wanted)} rows were promised: {errors}\n{said}"
    for pattern, (name, error) in zip(wanted, errors, strict=True):
        met = error == FINISHED if pattern == FINISHED else re.search(pattern, error)
        assert met, f"{name}: {error!r} is not {pattern!r}\n{said}"
    if promise.marked:
        # In the struck scenario or, where a silence was not long enough in it, in those into which it went on.
        lines = files.record()[SCENARIOS.index(moment) :]
        told = [text for line in lines for text in (*(found["text"] for found in line["findings"]), line["error"])]
        marks = "; ".join(filter(None, told))
        assert re.search(promise.marked, marks), f"nothing says {promise.marked!r}: {marks!r}"


def check_next(before: list[dict[str, str]], after: list[dict[str, str]]) -> None:
    """Raise AssertionError unless a run of one scenario has appended its row to a file that had these."""
    assert after[: len(before)] == before
    assert [row["Error"] for row in after[len(before) :]] == [FINISHED]
