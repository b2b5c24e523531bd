"""`containernet-env sweep`: many cells of a design, resumable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from containernet_env.base import clock
from containernet_env.cli.external import consent_option, refuse_options
from containernet_env.cli.files import PRESETS, SCENARIOS, SWEEP
from containernet_env.cli.options import strict_option, testbed_options, tls_options
from containernet_env.cli.output import unblocked
from containernet_env.cli.progress import seconds_text
from containernet_env.cli.signals import StopSignals
from containernet_env.cli.sweep_progress import JsonLines, SweepLines, json_line
from containernet_env.model.names import find

if TYPE_CHECKING:
    from containernet_env.fidelity.rtt import Tolerance
    from containernet_env.model.choices import EngineChoice, LinksChoice, SwitchesChoice
    from containernet_env.sweep.design import Design
    from containernet_env.sweep.placement import Placement
    from containernet_env.sweep.runner import Counts, Sweep


class PercentType(click.ParamType[float]):
    """A percentage such as 5%."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """A ratio."""
        if isinstance(value, float):
            return value
        try:
            return float(str(value).strip().removesuffix("%")) / 100
        except ValueError:
            self.fail(f"got {value!r}, allowed: a percentage such as 5%", param, ctx)


_HELP = f"""Measure every cell of SWEEP that OUT does not have yet: each combination of values, with each scenario.

SWEEP is a sweep file, the name of a preset ({", ".join(PRESETS.names())}), or a topology, or endpoints of an
external cluster, whose axes are given by --set. The same command goes on where one that was ended or killed
left off: `containernet-env sweep 3node-3ms out.csv --set link_delay=1ms,3ms --only 'write-*'`.
"""


class FigureType(click.Choice[str]):
    """A choice by any name of a figure, such as that of its column."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The choice."""
        return super().convert(find(str(value), list(self.choices)) or value, param, ctx)


@click.command(help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("sweep", type=SWEEP)
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="AXIS=VALUES",
    help="An axis, by its name or its column's, and its values, as link_delay=1ms,3ms,10ms, or a ratio, as "
    "conns=clients/10.",
)
@click.option("--quick", is_flag=True, help="The quick form that SWEEP has, else the scenarios of `run --quick`.")
@click.option("--scenarios", type=SCENARIOS, metavar="FILE", help="Scenario file (JSON), or a shipped one by its name.")
@click.option("--only", multiple=True, metavar="NAME", help="Only these scenarios: a name, a glob, a type.")
@click.option(
    "--repeat", type=click.IntRange(1, 1000), metavar="N", help="Measure each cell N times, each on a new cluster."
)
@click.option(
    "--until-ci",
    type=PercentType(),
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
@click.option("--retry-failed", is_flag=True, help="Measure again what failed because of the store, too.")
@click.option(
    "--other-versions", is_flag=True, help="Count rows that another version of the program or the store measured, too."
)
@strict_option
@click.option("--links-cpu", type=click.IntRange(0), metavar="N", help="Keep core N for the link emulator.")
@testbed_options
@click.option(
    "--dask", metavar="ADDRESS", help="Measure on the workers of a Dask cluster: its scheduler, as 127.0.0.1:8786."
)
@tls_options
@consent_option
@click.option("--json", "as_json", is_flag=True, help="Tell the course as lines of JSON, for programs.")
@click.option("--dry-run", is_flag=True, help="Print the cells, the time that they take, and create nothing.")
def command(
    sweep: Path,
    out: Path | None,
    settings: tuple[str, ...],
    quick: bool,
    scenarios: Path | None,
    only: tuple[str, ...],
    repeat: int | None,
    until_ci: float | None,
    ci_of: str,
    max_repeat: int,
    tries: int,
    retry_failed: bool,
    other_versions: bool,
    strict: bool,
    links_cpu: int | None,
    engine: EngineChoice,
    links: LinksChoice,
    switches: SwitchesChoice,
    seed: int | None,
    rtt_tolerance: Tolerance | None,
    tcp_congestion_control: str,
    dask: str | None,
    tls_ca_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    consent: bool,
    as_json: bool,
    dry_run: bool,
) -> int:
    from containernet_env.setup import extras
    from containernet_env.sweep.design import design
    from containernet_env.sweep.runner import Request, Sweep, Until

    began = clock.monotonic()
    if dask is None and (tls_ca_file or tls_cert or tls_key):
        raise click.UsageError("--tls-ca-file, --tls-cert and --tls-key go with --dask.")
    console = Console(highlight=False, markup=False, emoji=False)
    made = design(
        sweep,
        settings,
        scenarios=scenarios,
        quick=quick,
        only=only,
        repeat=repeat,
        seed=seed,
        engine=engine,
        links=links,
        switches=switches,
        congestion_control=tcp_congestion_control,
        links_cpu=links_cpu,
    )
    until = None if until_ci is None else Until(until_ci, ci_of, max_repeat)
    refuse_options(made.beds[0].config, taken=("seed",))
    request = Request(made.repeat or 1, until, tries, retry_failed, other_versions, rtt_tolerance, consent)
    if out is None and not dry_run:
        raise click.UsageError("Missing argument 'OUT': the CSV file that rows are appended to.")
    progress = JsonLines() if as_json else SweepLines(console)
    placement = None if dask is None else _workers(dask, (tls_ca_file, tls_cert, tls_key), made, progress.note)
    found = Sweep(made, out, request, placement)
    if until is not None:
        extras.require("scipy", lambda text: click.echo(text, err=True))
    if dry_run:
        from containernet_env.cli.sweep_plan import render_sweep

        left_open = found.check()
        render_sweep(found, console)
        console.print(left_open, soft_wrap=True)
        return 0
    return _carried_out(found, console, began, progress, strict)


def _workers(
    address: str, files: tuple[Path | None, Path | None, Path | None], design: Design, note: Callable[[str], object]
) -> Placement:
    """The workers of a Dask cluster; nothing is connected yet."""
    from containernet_env.setup import extras

    extras.require("distributed", lambda text: click.echo(text, err=True))
    from containernet_env.sweep.cluster import scheduler_at, tls_files
    from containernet_env.sweep.workers import Workers

    return Workers(scheduler_at(address, tls_files(*files)), design, note)


def _carried_out(sweep: Sweep, console: Console, began: float, progress: JsonLines | SweepLines, strict: bool) -> int:
    """Carry a sweep out in front of the user, who called at ``began`` (monotonic, s); the exit status."""
    from containernet_env.model.verdict import is_failure

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
        console.print(f"{_told(counts)}; rows in {sweep.out}; total time {seconds_text(took_s)}", soft_wrap=True)
    if stop.received is not None:
        return 128 + stop.received
    return 1 if is_failure(counts.states, strict) or counts.network_off else 0


def _told(counts: Counts) -> str:
    parts = [counts.text]
    if counts.machine:
        parts.append("the same command measures again what the machine spoiled")
    if counts.wide:
        parts.append(f"{counts.wide} cells are not known as well as --until-ci asks")
    return "; ".join(parts)
