"""One column of the CSV: what it is, and how its text follows from an outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.run_facts import RunFacts

NOT_APPLICABLE = "-"

Value = str | int | float | Decimal | bool | None
Role = Literal["configured", "derived", "measured", "run"]
"""``configured``: what the user chose, or what follows where that is left open. ``derived``: what always follows.
``measured``: the outcome. ``run``: which run, when, on what."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``digits`` after the point make its text; ``None`` for words and counts.

    ``derive`` gives the value for a row, ``None`` where the column does not apply or nothing was measured.
    """

    name: str
    unit: str
    role: Role
    meaning: str
    derive: Callable[[RunFacts, ScenarioOutcome], Value]
    digits: int | None = None
    number: bool = True

    def text(self, facts: RunFacts, outcome: ScenarioOutcome) -> str:
        """What a row has in this column, on one line."""
        value = self.derive(facts, outcome)
        if value is None:
            return NOT_APPLICABLE
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.digits is not None:
            return f"{value:.{self.digits}f}"
        return " ".join(str(value).split()) or NOT_APPLICABLE
