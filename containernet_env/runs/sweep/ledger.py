"""The measurements of a sweep so far: rows of its results file, and the journal beside it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from containernet_env.base.clock import Moment
from containernet_env.base.errors import RunError, UsageError
from containernet_env.base.files import try_lock
from containernet_env.model.findings import OF_THE_MACHINE, State, counts, state_of
from containernet_env.results.columns import NOT_APPLICABLE
from containernet_env.results.files import append_whole, open_to_append, reason, remedy
from containernet_env.results.statistics import LEAST, median_interval

if TYPE_CHECKING:
    from containernet_env.runs.sweep.design import Cell

SCHEMA = 1


def journal_of(out: Path) -> Path:
    """``a.csv`` has ``a.sweep.jsonl``, any other ``NAME`` has ``NAME-sweep.jsonl``."""
    return out.with_suffix(".sweep.jsonl") if out.suffix == ".csv" else out.parent / f"{out.name}-sweep.jsonl"


@dataclass(slots=True)
class Kept:
    """The contents of a journal: the first seed, texts of cells by identity, runs in their order, testbeds that failed.

    ``settings`` has the values of the axes of each cell, ``hashes`` its identity by those of topology and scenario.
    ``made_by`` has the versions that measured each run, ``ended`` the runs that were not killed. ``failures`` has
    (cell, repetition, run) of measurements that the machine spoiled, with the reason; ``torn`` counts lines that cannot
    be read.
    """

    seed: int | None = None
    cells: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    hashes: dict[tuple[str, str], str] = field(default_factory=dict)
    runs: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    made_by: dict[str, dict[str, str]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    failures: dict[tuple[str, int, str], str] = field(default_factory=dict)
    torn: int = 0


def read_journal(path: Path) -> Kept:
    """Read a journal; one without a file is empty. Raises ``UsageError`` if it cannot be read."""
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
            take(kept, line)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            kept.torn += 1
    return kept


def take(kept: Kept, line: Mapping[str, Any]) -> None:
    """Add a line of a journal. Raises ``ValueError``, ``KeyError`` or ``TypeError`` for a line of another format."""
    if line["schema"] != SCHEMA:
        raise ValueError(line["schema"])
    kind = line["kind"]
    if kind == "sweep":
        seed = int(line["seed"])
        kept.seed = seed if kept.seed is None else kept.seed
    elif kind == "cell":
        cell = str(line["cell"])
        kept.cells[cell] = str(line["text"])
        kept.hashes[str(line.get("config_hash")), str(line.get("scenario_hash"))] = cell
        kept.settings[cell] = {str(name): str(value) for name, value in line.get("coordinates", {}).items()}
    elif kind == "run":
        kept.runs.append((str(line["run"]), int(line["repetition"]), tuple(map(str, line["cells"]))))
        kept.made_by[str(line["run"])] = {str(name): str(value) for name, value in line.get("made_by", {}).items()}
    elif kind == "run_ended":
        kept.ended.add(str(line["run"]))
    elif kind == "failed":
        key = (str(line["cell"]), int(line["repetition"]), str(line["run"]))
        kept.failures[key] = str(line["why"])


class Journal:
    """Appends to a journal; each call is one write that is on disk when it returns, or ``RunError``.

    Kinds of lines: ``sweep`` (a command with its seed), ``cell`` (the meaning of an identity), ``run`` (a testbed is
    brought up for these cells, in this order), ``failed`` (the machine failed a cell), ``run_ended`` (it was not
    killed: its rows are final), ``sweep_ended`` (its process was not killed).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = open_to_append(path)
        except OSError as error:
            raise UsageError(f"cannot write the sweep's journal {path}: {reason(error)}\n  {remedy(error)}") from error
        if not try_lock(self._fd):
            self.close()
            raise UsageError(f"{path} is that of a sweep that is on: let it end, or choose another file")

    def close(self) -> None:
        os.close(self._fd)

    def add(self, kind: str, *lines: Mapping[str, Any]) -> None:
        at = Moment.now().at
        text = "".join(f"{json.dumps({'schema': SCHEMA, 'at': at, 'kind': kind, **line})}\n" for line in lines)
        if not text:
            return
        try:
            append_whole(self._fd, text.encode())
        except OSError as error:
            raise RunError(
                f"the sweep's journal {self.path} cannot be written: {reason(error)}\n  {remedy(error)}\n"
                "  Then the same command goes on where this one ended."
            ) from error


Result = Literal["measured", "store", "machine"]
"""``measured``: with figures that count. A failure is caused either by the ``store`` under its configuration, which is
a result, or by the ``machine``, which is none."""

FIGURES = {"p50": "50%", "p99": "99%", "throughput": "Requests/sec"}
"""The figures whose interval `--until-ci` can narrow, and their columns."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One measurement of a cell: its result, why, its figures by column where they count, and what its row counts as.

    One without a row has ``failed``. ``is_doubtful``: it was measured, and another attempt may have figures that count.
    """

    result: Result
    why: str
    figures: Mapping[str, float]
    state: State = "failed"
    is_doubtful: bool = False


class Ledger:
    """Every measurement of every cell so far."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._by_row = {(cell.config_hash, cell.scenario_hash): cell.identity for cell in cells}
        self._tried: dict[str, dict[int, list[Tried]]] = {}
        self._forgiven: dict[tuple[str, int], int] = {}
        self.strange = 0
        """Rows of these cells that are of no run in the journal: they are not counted."""
        self.others: Counter[str] = Counter()
        """Rows of these cells that another version measured, by how that differs."""
        self.unproved = 0
        """Rows of these cells whose run was killed before their network was measured once more."""

    def take(
        self, rows: Iterable[Mapping[str, str]], kept: Kept, strangers: Mapping[str, str], others: bool = False
    ) -> None:
        """Add the rows of this sweep's runs, and the failures in the journal that left none.

        ``strangers`` are the runs that another version measured, and their differences; their rows are counted with
        ``others`` only.
        """
        began = {run: number for number, (run, _, _) in enumerate(kept.runs)}
        mine = {run: {(cell, repetition) for cell in cells} for run, repetition, cells in kept.runs}
        rowless = dict(kept.failures)
        found: list[tuple[int, str, int, Tried]] = []
        for row in rows:
            run = row["RunId"].rpartition("-")[2]
            cell = self._by_row.get((row["ConfigHash"], row["ScenarioHash"]))
            if cell is None or not row["Repetition"].isdecimal():
                continue
            repetition = int(row["Repetition"])
            if (cell, repetition) not in mine.get(run, ()):
                self.strange += run not in began
                continue
            why = rowless.pop((cell, repetition, run), None)
            if run in strangers:
                self.others[strangers[run]] += 1
                if not others:
                    continue
            self.unproved += run not in kept.ended
            found.append((began[run], cell, repetition, tried_of(row, why)))
        found += [
            (began.get(run, len(began)), cell, repetition, Tried("machine", why, {}))
            for (cell, repetition, run), why in rowless.items()
            if others or run not in strangers
        ]
        # In the order of measurement: the last attempt decides.
        for _, cell, repetition, tried in sorted(found, key=lambda item: item[0]):
            self.add(cell, repetition, tried)

    def add(self, cell: str, repetition: int, tried: Tried) -> None:
        self._tried.setdefault(cell, {}).setdefault(repetition, []).append(tried)

    def forgive(self, store: bool) -> None:
        """Reset the count of the machine's failures; with ``store`` that of the store's and of doubtful rows, too."""
        for cell, repetitions in self._tried.items():
            for repetition, tried in repetitions.items():
                last = self.last(cell, repetition)
                assert last is not None
                if last.result == "machine" or (store and (last.result == "store" or last.is_doubtful)):
                    self._forgiven[cell, repetition] = len(tried)

    def last(self, cell: str, repetition: int) -> Tried | None:
        """The measurement that counts: one with figures, else that which failed last; ``None`` if there is none."""
        tried = self._tried.get(cell, {}).get(repetition, [])
        good = [item for item in tried if item.result == "measured"] or tried
        return good[-1] if good else None

    def wants(self, cell: str, repetition: int, tries: int) -> bool:
        """Whether a cell is to be measured: it was not, or the machine failed it less than ``tries`` times."""
        tried = self._tried.get(cell, {}).get(repetition, [])[self._forgiven.get((cell, repetition), 0) :]
        return all(item.result == "machine" for item in tried) and len(tried) < tries

    def figures(self, cell: str, column: str) -> list[float]:
        """One for each repetition that counts."""
        found = [self.last(cell, repetition) for repetition in self._tried.get(cell, ())]
        return [item.figures[column] for item in found if item is not None and column in item.figures]


def is_narrow(values: Sequence[float], ratio: float) -> bool:
    """Whether the 95 % interval of the median reaches at most ``ratio`` of the median to either side. Needs scipy."""
    if len(values) < LEAST or not all(map(isfinite, values)):
        return False
    found = median_interval(values)
    assert found.low is not None and found.high is not None
    return max(found.high - found.estimate, found.estimate - found.low) <= ratio * found.estimate


def tried_of(row: Mapping[str, str], why: str | None = None) -> Tried:
    """The measurement of a row; ``why`` the machine failed it, if the journal has that."""
    error, valid, reasons, end = (row[name] for name in ("Error", "Valid", "Reasons", "SearchEnd"))
    is_failed, kinds = error != NOT_APPLICABLE, [] if reasons == NOT_APPLICABLE else reasons.split(";")
    of_machine = [kind for kind in kinds if kind in OF_THE_MACHINE]
    of_store = is_failed or valid == "no"
    is_spoiled = why is not None or of_machine or end in ("generator", "machine")
    result: Result = "machine" if is_spoiled else "store" if of_store else "measured"
    figures: dict[str, float] = {}
    if result == "measured" and counts(valid, reasons):
        figures = {name: number for name in FIGURES.values() if (number := _number(row[name])) is not None}
    text = why or (error if is_failed else ", ".join(of_machine or kinds))
    # A search that ended at an end of its range would end there again.
    has_doubt = valid == "unknown" and (end == "noise" or not {"unseen", "search"}.issuperset(kinds))
    return Tried(result, text, figures, state_of(is_failed, valid), result == "measured" and has_doubt)


def _number(text: str) -> float | None:
    """A cell of a row; ``None`` if it is no number, in an edited file for instance."""
    try:
        return float(text) if text != NOT_APPLICABLE else None
    except ValueError:
        return None
