"""``containernet-env check``: says what a config asks for, creates nothing."""

from __future__ import annotations

import os
from pathlib import Path

import click
from rich.console import Console

from containernet_env.cli.capacity import render_machine
from containernet_env.cli.external import render_endpoints
from containernet_env.cli.files import CONFIG, SCENARIOS
from containernet_env.cli.render import render_summary, render_topology
from containernet_env.config import load_config
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, load_scenarios
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import PlanOptions


@click.command(short_help="Check a topology file and print what it asks for.")
@click.argument("config_path", metavar="CONFIG", type=CONFIG)
@click.option(
    "--scenarios",
    "scenarios_path",
    metavar="FILE",
    type=SCENARIOS,
    help="Check this scenario file too, instead of the one that CONFIG names or the default.",
)
def command(config_path: Path, scenarios_path: Path | None) -> int:
    """Check the topology file CONFIG and its scenario file; print hosts, limits and expected RTTs.

    CONFIG is a file, or the name of a shipped one: `containernet-env check 3node-3ms`, which also says where it lies.
    It also says whether this machine carries the scenarios, as far as its runs have measured what requests cost here.
    Where CONFIG names endpoints of a cluster that somebody else runs, it asks them who they are, and neither loads nor
    writes anything; exit status 1 where they cannot be measured.
    Nothing is created and no rights are needed. Exit status 2 and every problem at once when a file is refused.
    """
    config = load_config(config_path)
    scenario_set = load_scenarios(scenarios_path or config.scenarios or DEFAULT_SCENARIOS)
    plan = build_plan(config, scenario_set, PlanOptions(machine_cores=os.cpu_count() or 1))
    console = Console(highlight=False, markup=False, emoji=False)
    if config.external is not None:
        good = render_endpoints(config, console)
        render_summary(plan, console)
        return 0 if good else 1
    render_topology(plan, console)
    render_machine(plan, console)
    render_summary(plan, console)
    return 0
