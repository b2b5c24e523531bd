"""What a run returns to its caller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.proof import NetworkProof
from containernet_env.model.verdict import Valid
from containernet_env.results import csv_file

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class RunResult:
    """A completed run.

    ``outcomes`` are its scenarios in order, ``directory`` is its run directory, ``rows`` what was appended to the CSV.
    ``file`` is where they are: that CSV, or, where it was removed or replaced during the run, OUT.rescued beside it.
    ``network_before`` and ``network_after`` are what was proved of the network before the first scenario and after the
    last; ``None`` where it could not be measured.
    """

    run_id: str
    directory: Path
    outcomes: tuple[ScenarioOutcome, ...]
    rows: tuple[dict[str, str], ...]
    file: Path
    network_before: NetworkProof | None = None
    network_after: NetworkProof | None = None

    @property
    def network_held(self) -> bool:
        """Whether nothing was found wrong with the network after the last scenario."""
        return self.network_after is None or self.network_after.passed

    @property
    def failed(self) -> int:
        """How many scenarios failed or were not run."""
        return sum(outcome.error is not None for outcome in self.outcomes)

    def valid(self, verdict: Valid) -> int:
        """How many scenarios have figures with this verdict."""
        return sum(outcome.verdict is not None and outcome.verdict.valid == verdict for outcome in self.outcomes)

    @property
    def frame(self) -> pandas.DataFrame:
        """The rows as a table: numbers as numbers, what does not apply as missing."""
        return csv_file.frame_of(self.rows)
