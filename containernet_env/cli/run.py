"""`containernet-env run`, `rerun` and `check`: a measurement, a repeated one, and a plan without one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from containernet_env.base import clock
from containernet_env.base.errors import UsageError
from containernet_env.cli import FILE, RUN
from containernet_env.cli.arguments import (
    CONFIG,
    SCENARIOS,
    check_output,
    consent_option,
    refuse_options,
    render_endpoints,
    render_external_plan,
    run_options,
    scenarios_option,
    strict_option,
    write_output,
)
from containernet_env.cli.output import unblocked
from containernet_env.cli.render import render_machine, render_plan, render_summary, render_topology
from containernet_env.cli.terminal import plain_console
from containernet_env.config.plan import PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, load_scenarios
from containernet_env.config.topologies import load_config

if TYPE_CHECKING:
    from containernet_env.network.rtt import Tolerance
    from containernet_env.runs.measure import RunOrder


@click.command()
@click.argument("config", type=CONFIG)
@click.argument("out", type=FILE, required=False)
@click.option("--quick", is_flag=True, help="Every kind of scenario with small totals: done within a minute.")
@scenarios_option
@run_options("run")
@strict_option
@consent_option
@click.option("--dry-run", is_flag=True, help="Print the whole plan and create nothing.")
def run_command(
    config: Path,
    out: Path | None,
    quick: bool,
    scenarios: Path | None,
    strict: bool,
    rtt_tolerance: Tolerance | None,
    consent: bool,
    dry_run: bool,
    **choices: Any,
) -> int:
    """Bring the topology of CONFIG up, run the scenario matrix on it, append a row per scenario to OUT, tear down.

    CONFIG is a topology file, or the name of a shipped one: `containernet-env run 3node-3ms out.csv`. Where it names
    endpoints of an external cluster, nothing is brought up, and no root is needed.
    """
    from containernet_env.runs.preflight import preflight
    from containernet_env.runs.prepare import prepare

    began = clock.monotonic()
    console = plain_console()
    plan = prepare(config, scenarios, quick=quick, **choices)
    refuse_options(plan.config)
    left_open = preflight(plan, out)
    if dry_run:
        if plan.config.external is not None:
            render_external_plan(plan, console)
        else:
            render_plan(plan, console)
            render_machine(plan, console)
            render_summary(plan, console)
        console.print(left_open, soft_wrap=True)
        return 0
    if out is None:
        raise click.UsageError("Missing argument 'OUT': the CSV file that rows are appended to.")
    from containernet_env.runs.measure import RunOrder

    return carried_out(RunOrder(plan, out, rtt_tolerance, consent=consent), console, began, strict)


def _resume(out: Path) -> str:
    return (
        f"Measured scenarios have rows in {out}; before the first one there are none, and the same command starts\n"
        "again. A run does not resume: `run` with --only NAME measures the scenarios whose rows say `interrupted` or\n"
        "`not run`, and a `sweep` goes on where it was interrupted."
    )


def carried_out(order: RunOrder, console: Console, began: float, strict: bool) -> int:
    """Execute a run in front of the user, who started it at ``began`` (monotonic, s); the exit status.

    ``strict``: it is 1 also if the last attempt at a scenario is not certainly valid.
    """
    from containernet_env.cli.terminal import StopSignals, TerminalProgress, result_table, seconds_text
    from containernet_env.model.findings import is_failure, states_text
    from containernet_env.runs.measure import WRONG_AFTER, carry_out

    out, progress = order.out, TerminalProgress(console)
    with (
        unblocked(),
        StopSignals(lambda _: console.print("  already tearing down, a moment please"), lambda: _resume(out)) as stop,
    ):
        try:
            result = carry_out(order, progress, stop)
        finally:
            progress.close()
    console.print()
    console.print(result_table(result.outcomes))
    console.print()
    states = [outcome.state for outcome in result.outcomes]
    total = seconds_text(clock.monotonic() - began)
    moved = "" if result.file == out else f" ({out} was lost during the run)"
    rows = f"{len(states)} row{'s' * (len(states) != 1)} in {result.file}{moved}: {states_text(states)}"
    console.print(f"{rows}; total time {total}", soft_wrap=True)
    if stop.received is not None:
        return 128 + stop.received
    if not result.network_held:
        console.print(f"{WRONG_AFTER}: its rows say so, see network.json in {result.directory}", soft_wrap=True)
    last = {(item.scheduled.scenario.name, item.scheduled.repetition): item.state for item in result.outcomes}
    return 1 if is_failure(last.values(), strict) or moved or not result.network_held else 0


@click.command()
@click.argument("run", type=RUN)
@click.argument("out", type=FILE, required=False)
@click.option("--anyway", is_flag=True, help="Also where something that matters differs: the new manifest records it.")
@strict_option
@consent_option
@click.option("--dry-run", is_flag=True, help="Print what differs and create nothing.")
def rerun_command(run: Path, out: Path | None, anyway: bool, strict: bool, consent: bool, dry_run: bool) -> int:
    """Repeat RUN: the same topology, scenarios, repetitions, seeds and options, with its rows in OUT.

    RUN is a run directory (OUT.runs/RUN), or a results file, whose newest run is repeated. OUT is the results file that
    it lies beside unless it is given. Where something that matters is not as it was (program, images, machine, kernel,
    links, or a file of RUN that was changed), that is named and nothing is created.
    """
    from containernet_env.runs.rerun import prepare_rerun

    began = clock.monotonic()
    console = plain_console()
    order, repeats = prepare_rerun(run, out, anyway=anyway)
    if dry_run:
        for item in repeats.differences:
            mark = "" if item.matters else ", which does not matter"
            console.print(f"{item}{mark}: {item.why}", soft_wrap=True)
        console.print(f"{repeats.run_id} would be repeated, its rows in {order.out}", soft_wrap=True)
        return 0
    refuse_options(order.plan.config)
    return carried_out(replace(order, consent=consent), console, began, strict)


@click.command()
@click.argument("config_path", metavar="CONFIG", type=CONFIG)
@click.option(
    "--scenarios",
    "scenarios_path",
    metavar="FILE",
    type=SCENARIOS,
    help="Check this scenario file too, instead of the one that CONFIG names or the default.",
)
@click.option(
    "--figure", type=FILE, metavar="FILE", help="Draw the network and its round trips: a name that ends in .svg."
)
def check_command(config_path: Path, scenarios_path: Path | None, figure: Path | None) -> int:
    """Check the topology file CONFIG and its scenario file; print hosts, limits and expected RTTs.

    CONFIG is a file, or the name of a shipped one: `containernet-env check 3node-3ms`, which also prints its path.
    It also reports whether this machine carries the scenarios, as far as its runs have measured the cost of requests.
    Where CONFIG names endpoints of an external cluster, it queries them, and neither loads nor writes anything; exit
    status 1 where they cannot be measured.
    Nothing is created and no rights are needed. Exit status 2 and every problem at once when a file is refused.
    """
    if figure is not None:
        from containernet_env.report.page import FIGURE, figure_file

        if figure.suffix.lower() != ".svg":
            raise UsageError(f"--figure {figure}: allowed are names that end in .svg")
        check_output(figure, FIGURE, list(filter(None, (config_path, scenarios_path))))
    config = load_config(config_path)
    scenario_set = load_scenarios(scenarios_path or config.scenarios or DEFAULT_SCENARIOS)
    refuse_options(config)
    plan = build_plan(config, scenario_set, PlanOptions(machine_cores=os.cpu_count() or 1))
    console = plain_console()
    if config.external is not None:
        good = render_endpoints(config, console)
        render_summary(plan, console)
        return 0 if good else 1
    render_topology(plan, console)
    render_machine(plan, console)
    render_summary(plan, console)
    if figure is not None:
        from containernet_env.report.network import graph, matrix, matrix_of

        pictures = [graph(plan.topology), matrix(matrix_of(plan.topology))]
        write_output(figure, figure_file(f"The network of {config_path.name}", pictures).encode())
        console.print(f"{figure}: the network and its round trips", soft_wrap=True)
    return 0
