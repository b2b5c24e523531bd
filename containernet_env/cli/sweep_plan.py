"""What `sweep --dry-run` prints: the cells, the time that they take, and which of them this machine cannot carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from containernet_env.analysis.capacity import carried
from containernet_env.cli.progress import seconds_text
from containernet_env.results import machine_costs
from containernet_env.runs import machine

if TYPE_CHECKING:
    from containernet_env.sweep.runner import Sweep

_SHOWN_SHORT = 20


def render_sweep(sweep: Sweep, console: Console) -> None:
    """Print a sweep that is not carried out."""
    design = sweep.design
    names = list(dict.fromkeys(name for cell in design.cells for name, _ in cell.coordinates))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("cell", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("scenario", overflow="fold")
    table.add_column("about", justify="right", no_wrap=True)
    for cell in design.cells:
        values = dict(cell.coordinates)
        shown = [values.get(name, "-") for name in names]
        table.add_row(cell.identity, *shown, cell.scenario.name, seconds_text(cell.estimated_s))
    console.print(table)
    console.print()
    for note in sweep.notes():
        console.print(note, soft_wrap=True)
    count, seconds = sweep.left()
    repetitions = f"{sweep.repeat} repetition{'s' if sweep.repeat > 1 else ''}"
    console.print(
        f"{len(design.cells)} cells on {len(design.beds)} testbeds, {repetitions}: {count} measurements are left, "
        f"which take about {seconds_text(seconds)}",
        soft_wrap=True,
    )
    for line in _short(sweep):
        console.print(line, soft_wrap=True)


def _short(sweep: Sweep) -> list[str]:
    """The cells that this machine cannot carry, as its last runs let tell, in the words of `check`."""
    if sweep.design.largest.config.external is not None:
        return []  # what members take, they take elsewhere
    known, note = machine_costs.read(machine.key())
    lines, unknown, fit = [], 0, 0
    for bed in sweep.design.beds:
        found = carried(bed.plan, known)
        by_name = {cell.scenario.name: cell for cell in bed.cells}
        unknown += sum(scenario.name in by_name for scenario in found.unknown)
        fit += sum(scenario.name in by_name for scenario in found.fit)
        for name in dict.fromkeys(short.scenario.name for short in found.shortages):
            if name in by_name:
                wanted = ", ".join(
                    f"{short.resource} would need {short.wanted:.1f} cores, of {short.enough:.1f}"
                    for short in found.shortages
                    if short.scenario.name == name
                )
                lines.append(f"  {by_name[name].text}: {wanted}")
    told = [
        f"this machine carries {fit} cells, and not {len(lines)}:" if lines else f"this machine carries {fit} cells"
    ]
    told += lines[:_SHOWN_SHORT]
    if len(lines) > _SHOWN_SHORT:
        told.append(f"  and {len(lines) - _SHOWN_SHORT} more")
    if unknown:
        told.append(f"of {unknown} cells that cannot be told: nothing like them was measured here yet")
    return [*told, *([] if note is None else [note])]
