"""What a run or a sweep leaves on disk while it goes on, for tests of `containernet-env watch`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from containernet_env.base import clock
from containernet_env.results.columns import COLUMNS
from containernet_env.runs.lock import Holder
from tests.unit.report_rows import row

RUN = "20260101T000000Z-abc123"


def moment(seconds: float = 0.0) -> str:
    return datetime.fromtimestamp(clock.time() + seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def add(path: Path, *lines: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)


def event(out: Path, kind: str, text: str, subject: str | None = None, run: str = RUN) -> None:
    line = {"schema": 1, "at": moment(), "at_ns": 1, "kind": kind, "text": text, "subject": subject}
    add(out.with_suffix(".runs") / run / "events.jsonl", line)


def add_row(out: Path, **values: str) -> None:
    if not out.exists():
        out.write_text(f"{','.join(COLUMNS)}\n")
    with out.open("a") as file:
        found = row(Timestamp=moment()) | values
        file.write(",".join(found.get(name, "-") for name in COLUMNS) + "\n")


def begin_sweep(out: Path, cells: int = 2, repeat: int = 1) -> None:
    journal = out.with_suffix(".sweep.jsonl")
    begun = {"schema": 1, "at": moment()}
    add(journal, begun | {"kind": "sweep", "seed": 1, "repeat": repeat, "cells": cells, "command": []})
    for cell in range(cells):
        hashes = {"config_hash": "c", "scenario_hash": f"s{cell}"}
        add(journal, begun | {"kind": "cell", "cell": f"i{cell}", "text": f"w (clients={cell})"} | hashes)
    add(journal, begun | {"kind": "run", "run": "abc123", "repetition": 1, "seed": 1, "cells": ["i0"]})


class Machine:
    """Whoever holds the machine: this process from now on, or nobody."""

    def __init__(self) -> None:
        self.holder: Holder | None = Holder(1, clock.time())

    def __call__(self) -> Holder | None:
        return self.holder
