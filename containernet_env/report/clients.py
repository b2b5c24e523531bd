"""Requests/s by the number of clients, as a table for each series."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from containernet_env.report.names import RATE, scaled
from containernet_env.report.rows import Rows
from containernet_env.report.series import series_of
from containernet_env.results.statistics import median


@dataclass(frozen=True, slots=True)
class ClientsRow:
    """``per_s``: median, least and largest over ``rows`` repetitions; ``None`` where none counts, and ``why``."""

    clients: int | None
    per_s: tuple[float, float, float] | None
    rows: int
    why: str

    @property
    def values(self) -> dict[str, Any]:
        """For programs."""
        names = ("requests_per_s", "least_per_s", "largest_per_s")
        figures = zip(names, self.per_s or (None, None, None), strict=True)
        return {"clients": self.clients, **dict(figures), "rows": self.rows}


@dataclass(frozen=True, slots=True)
class ClientsTable:
    """The steps of one series."""

    name: str
    rows: tuple[ClientsRow, ...]


def clients_tables(rows: Rows, every: bool = False) -> Iterator[ClientsTable]:
    """A table for each series. Raises ``UsageError`` where no row counts."""
    rates = rows.values(RATE)
    for series in series_of(rows, every):
        found = []
        for step in series.steps:
            known = [value for number in step.rows if (value := scaled(rates[number], 1)) is not None]
            figures = (median(known), min(known), max(known)) if known else None
            found.append(ClientsRow(step.clients, figures, len(known), "; ".join(step.why)))
        yield ClientsTable(series.name, tuple(found))
