"""How the course of a sweep looks: a live line and the last rows on a terminal, a line for each cell anywhere else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from containernet_env.base import clock
from containernet_env.cli.progress import doubt_text, milliseconds_text, rate_text, seconds_text
from containernet_env.model.verdict import reasons_text

if TYPE_CHECKING:
    from containernet_env.model.outcome import ScenarioOutcome
    from containernet_env.sweep.design import Cell
    from containernet_env.sweep.progress import Standing

# A terminal is told of the running cell so often.
_INTERVAL_S = 0.5


def standing_text(standing: Standing) -> str:
    """How far a sweep is, on one line."""
    return f"[{standing.done}/{standing.all}]"


def figures_text(outcome: ScenarioOutcome) -> str:
    """What a cell came to, on one line."""
    if outcome.error is not None:
        return outcome.error
    figures = (
        f"{rate_text(outcome.requests_per_s)}/s  p50 {milliseconds_text(outcome.percentile_s('50'))}  "
        f"p99 {milliseconds_text(outcome.percentile_s('99'))}"
    )
    if (doubt := doubt_text(outcome)) and outcome.verdict is not None:
        why = [reasons_text(";".join(outcome.verdict.reasons)), *([outcome.advice] if outcome.advice else [])]
        return f"{figures}  {doubt}: {'; '.join(why)}"
    return figures


class SweepLines:
    """A `containernet_env.sweep.progress.SweepProgress` on a rich console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._running = ""
        self._began = self._shown = 0.0

    def note(self, text: str) -> None:
        """Print a line of its own."""
        self._print(Text(f"  note       {text}", style="yellow"))

    def bed_began(self, cells: Sequence[Cell], repetition: int) -> None:
        """See ``SweepProgress``."""
        values = ", ".join(f"{name}={value}" for name, value in cells[0].coordinates)
        self._show(f"bringing up a testbed for {len(cells)} cells ({values or 'as in the file'})")

    def cell_began(self, cell: Cell, repetition: int, standing: Standing) -> None:
        """See ``SweepProgress``."""
        self._began = clock.monotonic()
        left = f"about {seconds_text(standing.left_s)} left"
        self._running = f"{standing_text(standing)} {cell.text} #{repetition}, {left}"
        self._show(self._running)

    def cell_progress(self, done: int, errors: int) -> None:
        """See ``SweepProgress``."""
        now = clock.monotonic()
        if self._live is not None and now - self._shown >= _INTERVAL_S:
            failed = f", {errors:,} failed" if errors else ""
            self._show(f"{self._running}: {done:,} answers in {seconds_text(now - self._began)}{failed}")

    def cell_ended(self, cell: Cell, repetition: int, outcome: ScenarioOutcome, standing: Standing) -> None:
        """See ``SweepProgress``."""
        left = f"about {seconds_text(standing.left_s)} left" if standing.done < standing.all else "the last one"
        line = f"{standing_text(standing)} {cell.text} #{repetition}  {figures_text(outcome)}  ({left})"
        style = "red" if outcome.error is not None else "yellow" if doubt_text(outcome) else ""
        self._print(Text(line, style=style))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)

    def _show(self, text: str) -> None:
        """What goes on now, on a terminal; rows that ended stay above it."""
        if not self._console.is_terminal:
            return
        if self._live is None:
            self._live = Live(console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        self._shown = clock.monotonic()
        self._live.update(Group(Text(text, style="dim")))


class JsonLines:
    """The same as one JSON object for each line, for programs."""

    def note(self, text: str) -> None:
        """See ``SweepProgress``."""
        json_line("note", text=text)

    def bed_began(self, cells: Sequence[Cell], repetition: int) -> None:
        """See ``SweepProgress``."""
        json_line("testbed_began", cells=[cell.identity for cell in cells], repetition=repetition)

    def cell_began(self, cell: Cell, repetition: int, standing: Standing) -> None:
        """See ``SweepProgress``."""
        json_line("cell_began", **_of_cell(cell, repetition, standing))

    def cell_progress(self, done: int, errors: int) -> None:
        """See ``SweepProgress``."""

    def cell_ended(self, cell: Cell, repetition: int, outcome: ScenarioOutcome, standing: Standing) -> None:
        """See ``SweepProgress``."""
        json_line(
            "cell_ended",
            **_of_cell(cell, repetition, standing),
            requests_per_s=outcome.requests_per_s,
            p50_s=outcome.percentile_s("50"),
            p99_s=outcome.percentile_s("99"),
            valid=outcome.verdict.valid if outcome.verdict else None,
            error=outcome.error,
            advice=outcome.advice,
        )

    def close(self) -> None:
        """Nothing is shown that has to be taken away."""


def _of_cell(cell: Cell, repetition: int, standing: Standing) -> dict[str, Any]:
    return {
        "cell": cell.identity,
        "scenario": cell.scenario.name,
        "coordinates": dict(cell.coordinates),
        "repetition": repetition,
        "done": standing.done,
        "all": standing.all,
        "left_s": round(standing.left_s, 1),
    }


def json_line(event: str, **values: Any) -> None:
    """Print one line for programs."""
    click.echo(json.dumps({"event": event, **values}))
