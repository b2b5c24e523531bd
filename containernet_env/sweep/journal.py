"""The journal of a sweep beside its results file: what was begun in which order, in lines that are forced to disk.

What a cell measured is in its row, which is on disk before anything else is done; the journal has what no row can say:
the seed, the cells with their values, each run's cells in their order, and why a testbed failed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from containernet_env.base.clock import Moment
from containernet_env.base.errors import RunError, UsageError
from containernet_env.results.whole_lines import append_whole, open_to_append, reason, remedy

if TYPE_CHECKING:
    from containernet_env.sweep.design import Cell

SCHEMA = 1


def journal_of(out: Path) -> Path:
    """``a.csv`` has ``a.sweep.jsonl``, any other ``NAME`` has ``NAME-sweep.jsonl``."""
    return out.with_suffix(".sweep.jsonl") if out.suffix == ".csv" else out.parent / f"{out.name}-sweep.jsonl"


@dataclass(slots=True)
class Kept:
    """What a journal says: the first seed, texts of cells by identity, runs in their order, testbeds that failed.

    ``made_by`` has for each run what it was measured by (see ``versions``), ``ended`` the runs that were not killed.
    ``failures`` has (cell, repetition, run) of what was lost to the machine, with the reason; ``torn`` counts lines
    that cannot be read.
    """

    seed: int | None = None
    cells: dict[str, str] = field(default_factory=dict)
    runs: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    made_by: dict[str, dict[str, str]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    failures: dict[tuple[str, int, str], str] = field(default_factory=dict)
    torn: int = 0


def read_journal(path: Path) -> Kept:
    """What is in a journal; nothing where there is none. Raises ``UsageError`` where it cannot be read."""
    kept = Kept()
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return kept
    except OSError as error:
        raise UsageError(f"cannot read the sweep's journal {path}: {reason(error)}\n  {remedy(error)}") from error
    for text in filter(None, lines):
        try:
            line = json.loads(text)
            if isinstance(line, dict) and isinstance(line.get("schema"), int) and line["schema"] != SCHEMA:
                raise UsageError(
                    f"{path} is of another version of this program: schema {line['schema']}, {SCHEMA} is read here\n"
                    "  Go on with the version that wrote it, or choose another results file."
                )
            _take(kept, line)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            kept.torn += 1
    return kept


def _take(kept: Kept, line: Mapping[str, Any]) -> None:
    if line["schema"] != SCHEMA:
        raise ValueError(line["schema"])
    kind = line["kind"]
    if kind == "sweep":
        seed = int(line["seed"])
        kept.seed = seed if kept.seed is None else kept.seed
    elif kind == "cell":
        kept.cells[str(line["cell"])] = str(line["text"])
    elif kind == "run":
        kept.runs.append((str(line["run"]), int(line["repetition"]), tuple(map(str, line["cells"]))))
        kept.made_by[str(line["run"])] = {str(name): str(value) for name, value in line.get("made_by", {}).items()}
    elif kind == "run_ended":
        kept.ended.add(str(line["run"]))
    elif kind == "failed":
        key = (str(line["cell"]), int(line["repetition"]), str(line["run"]))
        kept.failures[key] = str(line["why"])


class Journal:
    """Appends to a journal; each call is one write that is on disk when it returns, or ``RunError``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = open_to_append(path)
        except OSError as error:
            raise UsageError(f"cannot write the sweep's journal {path}: {reason(error)}\n  {remedy(error)}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise UsageError(f"{path} is that of a sweep that is on: let it end, or choose another file") from None

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def sweep_began(self, seed: int, repeat: int, cells: int, command: Sequence[str]) -> None:
        """Whoever reads it later gets the same order from ``seed``."""
        self._add([{"kind": "sweep", "seed": seed, "repeat": repeat, "cells": cells, "command": list(command)}])

    def cells(self, cells: Sequence[Cell]) -> None:
        """What the identities stand for."""
        self._add(
            {
                "kind": "cell",
                "cell": cell.identity,
                "text": cell.text,
                "scenario": cell.scenario.name,
                "coordinates": dict(cell.coordinates),
                "config_hash": cell.config_hash,
                "scenario_hash": cell.scenario_hash,
            }
            for cell in cells
        )

    def run_began(
        self, run: str, repetition: int, seed: int, cells: Sequence[Cell], made_by: Mapping[str, str]
    ) -> None:
        """A testbed is brought up for these cells, in this order; ``made_by``: see ``versions``."""
        line = {"kind": "run", "run": run, "repetition": repetition, "seed": seed, "made_by": dict(made_by)}
        self._add([{**line, "cells": [cell.identity for cell in cells]}])

    def run_ended(self, run: str) -> None:
        """It was taken down, and its rows say what is known of its network: it was not killed."""
        self._add([{"kind": "run_ended", "run": run}])

    def sweep_ended(self) -> None:
        """Whatever it ended by: its process was not killed."""
        self._add([{"kind": "sweep_ended"}])

    def failed(self, run: str, repetition: int, failures: Sequence[tuple[Cell, str]]) -> None:
        """The machine failed these cells, for these reasons."""
        self._add(
            {"kind": "failed", "cell": cell.identity, "repetition": repetition, "run": run, "why": why}
            for cell, why in failures
        )

    def _add(self, lines: Any) -> None:
        at = Moment.now().at
        text = "".join(f"{json.dumps({'schema': SCHEMA, 'at': at, **line})}\n" for line in _each(lines))
        if not text:
            return
        try:
            append_whole(self._fd, text.encode())
        except OSError as error:
            raise RunError(
                f"the sweep's journal {self.path} cannot be written: {reason(error)}\n  {remedy(error)}\n"
                "  Then the same command goes on where this one ended."
            ) from error


def _each(lines: Any) -> Iterator[dict[str, Any]]:
    yield from lines
