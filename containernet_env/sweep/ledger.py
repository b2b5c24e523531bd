"""What of a sweep is measured, from the rows of its results file and its journal. Pure but for reading them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Literal

from containernet_env.analysis.statistics import least_number, median_interval
from containernet_env.model.verdict import OF_THE_MACHINE, State, counts, state_of
from containernet_env.results.column import NOT_APPLICABLE
from containernet_env.sweep.journal import Kept

if TYPE_CHECKING:
    from containernet_env.sweep.design import Cell

Result = Literal["measured", "store", "machine"]
"""``measured``: with figures that count. What failed, failed because of the ``store`` under what was configured, which
is a result, or because of the ``machine``, which is none."""

FIGURES = {"p50": "50%", "p99": "99%", "throughput": "Requests/sec"}
"""What the interval of `--until-ci` can be of, and its column."""
LEAST = least_number()
"""With fewer repetitions there is no interval of their median."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One measurement of a cell: its result, why, its figures by column where they count, and what its row counts as.

    One without a row has ``failed``.
    """

    result: Result
    why: str
    figures: Mapping[str, float]
    state: State = "failed"


def result_of(error: str, valid: str, reasons: Sequence[str], machine_failed: bool = False) -> tuple[Result, str]:
    """What a row means: its columns ``Error``, ``Valid`` and ``Reasons``."""
    of_machine = [kind for kind in reasons if kind in OF_THE_MACHINE]
    if machine_failed or of_machine:
        return "machine", error if error != NOT_APPLICABLE else ", ".join(of_machine)
    if error != NOT_APPLICABLE:
        return "store", error
    if valid == "no":
        return "store", ", ".join(reasons)
    return "measured", ""


class Ledger:
    """Every measurement of every cell so far."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._by_row = {(cell.config_hash, cell.scenario_hash): cell.identity for cell in cells}
        self._tried: dict[tuple[str, int], list[Tried]] = {}
        self._repetitions: dict[str, set[int]] = {}
        self._told: dict[tuple[str, int], int] = {}
        self.strange = 0
        """Rows of these cells that are of no run in the journal: they are not counted."""
        self.others: Counter[str] = Counter()
        """Rows of these cells that something else measured, by what that was."""
        self.unproved = 0
        """Rows of these cells whose run was killed before their network was measured once more."""

    def take(
        self, rows: Iterable[Mapping[str, str]], kept: Kept, strangers: Mapping[str, str], others: bool = False
    ) -> None:
        """Add what rows of runs of this sweep say, and what the journal says of runs that left none.

        ``strangers`` are the runs that another version measured, and in what it differs; their rows are counted with
        ``others`` alone.
        """
        mine: dict[str, set[tuple[str, int]]] = {}
        began: dict[str, int] = {}
        for number, (run, repetition, cells) in enumerate(kept.runs):
            began.setdefault(run, number)
            mine.setdefault(run, set()).update((cell, repetition) for cell in cells)
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
        # In the order in which they were measured: what was last tried decides.
        for _, cell, repetition, tried in sorted(found, key=lambda item: item[0]):
            self.add(cell, repetition, tried)

    def add(self, cell: str, repetition: int, tried: Tried) -> None:
        """Add one measurement."""
        self._tried.setdefault((cell, repetition), []).append(tried)
        self._repetitions.setdefault(cell, set()).add(repetition)

    def fail(self, cell: str, repetition: int, why: str) -> None:
        """The machine failed a cell that left no row."""
        self.add(cell, repetition, Tried("machine", why, {}))

    def forgive(self, store: bool) -> None:
        """Count failures of the machine from here on anew; with ``store`` those of the store too."""
        for key, tried in self._tried.items():
            last = self.last(*key)
            if last is not None and last.result in (("machine", "store") if store else ("machine",)):
                self._told[key] = len(tried)

    def last(self, cell: str, repetition: int) -> Tried | None:
        """The measurement that counts: one with figures, else that which failed last; ``None`` where there is none."""
        tried = self._tried.get((cell, repetition), [])
        good = [item for item in tried if item.result == "measured"] or tried
        return good[-1] if good else None

    def wants(self, cell: str, repetition: int, tries: int) -> bool:
        """Whether a cell is to be measured: it was not, or the machine failed it less than ``tries`` times."""
        tried = self._tried.get((cell, repetition), [])[self._told.get((cell, repetition), 0) :]
        last = self.last(cell, repetition)
        if last is not None and last.result == "measured":
            return False
        return all(item.result == "machine" for item in tried) and len(tried) < tries

    def tried(self, cell: str, repetition: int) -> bool:
        """Whether it was measured, however that ended."""
        return (cell, repetition) in self._tried

    def figures(self, cell: str, column: str) -> list[float]:
        """One for each repetition that counts."""
        found = [self.last(cell, repetition) for repetition in self._repetitions.get(cell, ())]
        return [item.figures[column] for item in found if item is not None and column in item.figures]

    def is_settled(self, cell: str, column: str, ratio: float) -> bool:
        """Whether the median of a figure is known well enough."""
        return is_narrow(self.figures(cell, column), ratio)


def is_narrow(values: Sequence[float], ratio: float) -> bool:
    """Whether the 95 % interval of the median reaches at most ``ratio`` of the median to either side. Needs scipy."""
    if len(values) < LEAST or not all(map(isfinite, values)):
        return False
    found = median_interval(values)
    assert found.low is not None and found.high is not None
    return max(found.high - found.estimate, found.estimate - found.low) <= ratio * found.estimate


def tried_of(row: Mapping[str, str], why: str | None = None) -> Tried:
    """What a row says; ``why`` the machine failed it, where the journal knows that."""
    reasons = [] if row["Reasons"] == NOT_APPLICABLE else row["Reasons"].split(";")
    result, told = result_of(row["Error"], row["Valid"], reasons, why is not None)
    figures: dict[str, float] = {}
    if result == "measured" and counts(row["Valid"], row["Reasons"]):
        figures = {name: number for name in FIGURES.values() if (number := _number(row[name])) is not None}
    return Tried(result, why or told, figures, state_of(row["Error"] != NOT_APPLICABLE, row["Valid"]))


def _number(text: str) -> float | None:
    """A cell of a row; ``None`` where it is no number, in an edited file for instance."""
    try:
        return float(text) if text != NOT_APPLICABLE else None
    except ValueError:
        return None
