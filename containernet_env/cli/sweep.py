"""`containernet-env sweep`, `worker` and `certs`: many cells of a design, on one machine or several."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from containernet_env.base import clock
from containernet_env.cli import FILE, Parsed
from containernet_env.cli.arguments import (
    PRESETS,
    SWEEP,
    consent_option,
    refuse_options,
    run_options,
    scenarios_option,
    strict_option,
    tls_options,
)
from containernet_env.cli.output import note, unblocked
from containernet_env.cli.terminal import (
    StageLines,
    StopSignals,
    doubt_text,
    milliseconds_text,
    plain_console,
    rate_text,
    seconds_text,
    table,
)
from containernet_env.model.findings import reasons_text
from containernet_env.model.names import find
from containernet_env.results import capacity
from containernet_env.results.capacity import carried
from containernet_env.runs import machine

if TYPE_CHECKING:
    from containernet_env.base.work import RemainingTime
    from containernet_env.model.outcome import ScenarioOutcome
    from containernet_env.network.rtt import Tolerance
    from containernet_env.runs.sweep.design import Cell
    from containernet_env.runs.sweep.jobs import Placement
    from containernet_env.runs.sweep.runner import Counts, Sweep

_SHOWN_SHORT = 20


def render_sweep(sweep: Sweep, console: Console) -> None:
    design = sweep.design
    names = list(dict.fromkeys(name for cell in design.cells for name, _ in cell.coordinates))
    shown = table("cell", *(f">{name}" for name in names), "scenario", ">about", gap=1)
    for cell in design.cells:
        values = dict(cell.coordinates)
        settings = [values.get(name, "-") for name in names]
        shown.add_row(cell.identity, *settings, cell.scenario.name, seconds_text(cell.estimated_s))
    console.print(shown)
    console.print()
    for text in sweep.notes():
        console.print(text, soft_wrap=True)
    count, seconds = sweep.left()
    repetitions = f"{sweep.request.least} repetition{'s' if sweep.request.least > 1 else ''}"
    console.print(
        f"{len(design.cells)} cells on {len(design.beds)} testbeds, {repetitions}: {count} measurements are left, "
        f"which take about {seconds_text(seconds)}",
        soft_wrap=True,
    )
    for line in _short(sweep):
        console.print(line, soft_wrap=True)


def _short(sweep: Sweep) -> list[str]:
    """The cells that this machine cannot carry, estimated from its last runs, in the words of `check`."""
    if sweep.design.largest.config.external is not None:
        return []  # members use resources elsewhere
    known, note = capacity.read(machine.key())
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
    not_carried = f", and not {len(lines)}:" if lines else ""
    text = [f"this machine carries {fit} cells{not_carried}", *lines[:_SHOWN_SHORT]]
    if len(lines) > _SHOWN_SHORT:
        text.append(f"  and {len(lines) - _SHOWN_SHORT} more")
    if unknown:
        text.append(f"{unknown} cells are unknown: no similar ones were measured here yet")
    return [*text, *([] if note is None else [note])]


def figures_text(outcome: ScenarioOutcome) -> str:
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


class SweepLines(StageLines):
    """A `containernet_env.runs.sweep.jobs.SweepProgress` on a rich console."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._running = ""
        self._began = 0.0

    def bed_began(self, cells: Sequence[Cell], repetition: int) -> None:
        values = ", ".join(f"{name}={value}" for name, value in cells[0].coordinates)
        self.show_running(f"bringing up a testbed for {len(cells)} cells ({values or 'as in the file'})")

    def cell_began(self, cell: Cell, repetition: int, tally: RemainingTime) -> None:
        self._began = clock.monotonic()
        left = f"about {seconds_text(tally.left_s)} left"
        self._running = f"[{tally.done}/{tally.all}] {cell.text} #{repetition}, {left}"
        self.show_running(self._running)

    def cell_progress(self, done: int, errors: int) -> None:
        failed = f", {errors:,} failed" if errors else ""
        took = seconds_text(clock.monotonic() - self._began)
        self.show_running(f"{self._running}: {done:,} answers in {took}{failed}")

    def cell_ended(self, cell: Cell, repetition: int, outcome: ScenarioOutcome, tally: RemainingTime) -> None:
        left = f"about {seconds_text(tally.left_s)} left" if tally.done < tally.all else "the last one"
        line = f"[{tally.done}/{tally.all}] {cell.text} #{repetition}  {figures_text(outcome)}  ({left})"
        style = "red" if outcome.error is not None else "yellow" if doubt_text(outcome) else ""
        self._console.print(Text(line, style=style), soft_wrap=True)


class JsonLines:
    """The same as one JSON object for each line, for programs."""

    def note(self, text: str) -> None:
        json_line("note", text=text)

    def bed_began(self, cells: Sequence[Cell], repetition: int) -> None:
        json_line("testbed_began", cells=[cell.identity for cell in cells], repetition=repetition)

    def cell_began(self, cell: Cell, repetition: int, tally: RemainingTime) -> None:
        json_line("cell_began", **_of_cell(cell, repetition, tally))

    def cell_progress(self, done: int, errors: int) -> None:
        pass

    def cell_ended(self, cell: Cell, repetition: int, outcome: ScenarioOutcome, tally: RemainingTime) -> None:
        json_line(
            "cell_ended",
            **_of_cell(cell, repetition, tally),
            requests_per_s=outcome.requests_per_s,
            p50_s=outcome.percentile_s("50"),
            p99_s=outcome.percentile_s("99"),
            valid=outcome.verdict.valid if outcome.verdict else None,
            error=outcome.error,
            advice=outcome.advice,
        )

    def close(self) -> None:
        """Nothing is shown that has to be taken away."""


def _of_cell(cell: Cell, repetition: int, tally: RemainingTime) -> dict[str, Any]:
    left_s = round(tally.left_s, 1)
    return {**cell.values, "repetition": repetition, "done": tally.done, "all": tally.all, "left_s": left_s}


def json_line(event: str, **values: Any) -> None:
    click.echo(json.dumps({"event": event, **values}))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def certs_command(folder: Path) -> None:
    """Make FOLDER with ca.pem, cert.pem and key.pem, for a year; their authority signs nothing else.

    Scheduler, workers and sweeps of a Dask cluster all use these three files. A reader of key.pem can have the workers
    do anything as root: FOLDER is private to the user who makes it.
    """
    from containernet_env.base.errors import UsageError
    from containernet_env.stores.certificates import Authority

    authority = Authority()
    issued = authority.issue("containernet-env")
    try:
        folder.mkdir(mode=0o700)
        contents = {"ca.pem": authority.certificate, "cert.pem": issued.certificate, "key.pem": issued.key}
        for name, content in contents.items():
            made = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(made, "wb") as file:
                file.write(content)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}\n  Name a folder that is not there.") from error
    click.echo(f"--tls-ca-file {folder}/ca.pem --tls-cert {folder}/cert.pem --tls-key {folder}/key.pem")


@click.command()
@click.argument("address", metavar="ADDRESS")
@tls_options
def worker_command(address: str, tls_ca_file: Path | None, tls_cert: Path | None, tls_key: Path | None) -> int:
    """Measure testbeds of sweeps (`sweep --dask ADDRESS`) on this machine, one at a time, until Ctrl-C.

    ADDRESS is that of a Dask scheduler, HOST:PORT. Every client that reaches it can have this worker do anything as
    root, so all of them show certificates of one authority, which `certs` makes.
    """
    from containernet_env.setup import packages

    packages.require("distributed", note)
    from containernet_env.runs.sweep.worker import scheduler_at, serve

    with unblocked():
        return 128 + serve(scheduler_at(address, tls_ca_file, tls_cert, tls_key), note)


def _ratio_of(text: str) -> float:
    try:
        return float(text.strip().removesuffix("%")) / 100
    except ValueError:
        raise ValueError(f"got {text!r}, allowed: a percentage such as 5%") from None


_HELP = f"""Measure every cell of SWEEP that OUT does not have yet: each combination of values, with each scenario.

SWEEP is a sweep file, the name of a preset ({", ".join(PRESETS.names())}), or a topology, or endpoints of an
external cluster, whose axes are given by --set. The same command goes on where one that was ended or killed
left off: `containernet-env sweep 3node-3ms out.csv --set link_delay=1ms,3ms --only 'write-*'`.
"""


class FigureType(click.Choice[str]):
    """A choice by any name of a figure, such as that of its column."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(find(str(value), list(self.choices)) or value, param, ctx)


@click.command(help=_HELP)
@click.argument("sweep", type=SWEEP)
@click.argument("out", type=FILE, required=False)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="AXIS=VALUES",
    help="An axis, by its name or its column's, and its values, as link_delay=1ms,3ms,10ms, or a ratio, as "
    "conns=clients/10.",
)
@click.option("--quick", is_flag=True, help="The quick form that SWEEP has, else the scenarios of `run --quick`.")
@scenarios_option
@click.option(
    "--repeat", type=click.IntRange(1, 1000), metavar="N", help="Measure each cell N times, each on a new cluster."
)
@click.option(
    "--until-ci",
    type=Parsed("percentage", _ratio_of),
    metavar="P%",
    help="Repeat each cell, from 6 times on, until the 95 % interval of its median reaches P % to either side.",
)
@click.option(
    "--ci-of",
    type=FigureType(["p50", "p99", "throughput"]),
    default="p50",
    show_default=True,
    help="Of which figure's repetitions.",
)
@click.option(
    "--max-repeat",
    type=click.IntRange(1, 1000),
    default=30,
    show_default=True,
    help="The most that --until-ci repeats.",
)
@click.option(
    "--tries",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="How often a measurement is tried that the machine spoils.",
)
@click.option(
    "--retry-failed",
    is_flag=True,
    help="Measure again what failed because of the store or is of unknown validity, too.",
)
@click.option(
    "--other-versions", is_flag=True, help="Count rows that another version of the program or the store measured, too."
)
@strict_option
@run_options("sweep")
@click.option(
    "--dask", metavar="ADDRESS", help="Measure on the workers of a Dask cluster: its scheduler, as 127.0.0.1:8786."
)
@tls_options
@consent_option
@click.option("--json", "as_json", is_flag=True, help="Print the progress as lines of JSON, for programs.")
@click.option("--dry-run", is_flag=True, help="Print the cells, the time that they take, and create nothing.")
def sweep_command(
    sweep: Path,
    out: Path | None,
    settings: tuple[str, ...],
    until_ci: float | None,
    ci_of: str,
    max_repeat: int,
    tries: int,
    retry_failed: bool,
    other_versions: bool,
    strict: bool,
    rtt_tolerance: Tolerance | None,
    dask: str | None,
    tls_ca_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    consent: bool,
    as_json: bool,
    dry_run: bool,
    **choices: Any,
) -> int:
    from containernet_env.runs.sweep.design import design
    from containernet_env.runs.sweep.runner import Request, Sweep
    from containernet_env.setup import packages

    began = clock.monotonic()
    if dask is None and (tls_ca_file or tls_cert or tls_key):
        raise click.UsageError("--tls-ca-file, --tls-cert and --tls-key go with --dask.")
    console = plain_console()
    made = design(sweep, settings, **choices)
    refuse_options(made.beds[0].plan.config, taken=("seed",))
    request = Request(
        repeat=made.repeat or 1,
        until_ci=until_ci,
        ci_of=ci_of,
        max_repeat=max_repeat,
        tries=tries,
        retry_failed=retry_failed,
        other_versions=other_versions,
        tolerance=rtt_tolerance,
        yes_load_this_cluster=consent,
    )
    if out is None and not dry_run:
        raise click.UsageError("Missing argument 'OUT': the CSV file that rows are appended to.")
    progress = JsonLines() if as_json else SweepLines(console)
    placement: Placement | None = None
    if dask is not None:
        packages.require("distributed", note)
        from containernet_env.runs.sweep.worker import scheduler_at
        from containernet_env.runs.sweep.workers import Workers

        scheduler = scheduler_at(dask, tls_ca_file, tls_cert, tls_key)
        placement = Workers(scheduler, made, progress.note)  # nothing is connected yet
    found = Sweep(made, out, request, placement)
    if until_ci is not None:
        packages.require("scipy", note)
    if dry_run:
        left_open = found.check()
        render_sweep(found, console)
        console.print(left_open, soft_wrap=True)
        return 0
    return _carried_out(found, console, began, progress, strict)


def _carried_out(sweep: Sweep, console: Console, began: float, progress: JsonLines | SweepLines, strict: bool) -> int:
    """Carry a sweep out in front of the user, who called at ``began`` (monotonic, s); the exit status."""
    from containernet_env.model.findings import is_failure

    as_json = isinstance(progress, JsonLines)

    def ignored(_: object) -> None:
        if not as_json:
            console.print("  already ending, a moment please")

    with unblocked(), StopSignals(ignored, sweep.resume) as stop:
        try:
            counts = sweep.carry_out(progress, stop)
        finally:
            progress.close()
    took_s = clock.monotonic() - began
    if as_json:
        values = {"measured": counts.measured, "store": counts.store, "machine": counts.machine, "wide": counts.wide}
        json_line("sweep_ended", **values, states=counts.states, out=str(sweep.out), seconds=round(took_s, 1))
    else:
        console.print()
        console.print(f"{_counts_text(counts)}; rows in {sweep.out}; total time {seconds_text(took_s)}", soft_wrap=True)
    if stop.received is not None:
        return 128 + stop.received
    return 1 if is_failure(counts.states, strict) or counts.network_off else 0


def _counts_text(counts: Counts) -> str:
    parts = [counts.text]
    if counts.machine:
        parts.append("the same command measures again what the machine spoiled")
    if counts.wide:
        parts.append(f"{counts.wide} cells are not known as well as --until-ci requests")
    return "; ".join(parts)
