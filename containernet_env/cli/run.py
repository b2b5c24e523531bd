"""`containernet-env run`: the main job."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from containernet_env import __version__
from containernet_env.base.errors import MissingRequirementError
from containernet_env.cli.files import CONFIG, SCENARIOS, complete_scenarios
from containernet_env.cli.options import testbed_options
from containernet_env.cli.progress import TerminalReporter, result_table, seconds_text
from containernet_env.cli.signals import StopSignals

if TYPE_CHECKING:
    from containernet_env.fidelity.rtt import Tolerance
    from containernet_env.model.choices import EngineChoice, LinksChoice, SwitchesChoice
    from containernet_env.plan.plan import Plan, PlanOptions
    from containernet_env.results.csv_file import ResultsFile


def make_plan(config_file: Path, scenarios_file: Path | None, *, quick: bool, options: PlanOptions) -> Plan:
    """Read the files and build the plan; raises ConfigError or UsageError before anything exists."""
    from containernet_env.config import load_config
    from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
    from containernet_env.plan.build import build_plan

    config = load_config(config_file)
    chosen = scenarios_file or (QUICK_SCENARIOS if quick else config.scenarios or DEFAULT_SCENARIOS)
    return build_plan(config, load_scenarios(chosen), options)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("config", type=CONFIG)
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--quick", is_flag=True, help="Every kind of scenario with small totals: done within a minute.")
@click.option(
    "--scenarios",
    type=SCENARIOS,
    metavar="FILE",
    help="Scenario file (JSON), or a shipped one by its name.",
)
@click.option("--only", multiple=True, metavar="NAME", shell_complete=complete_scenarios,
              help="Only these scenarios: a name, a glob, a type.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1, 1000), default=1, show_default=True, help="Run the matrix N times.")
@testbed_options
@click.option("--dry-run", is_flag=True, help="Print the whole plan and create nothing.")
def command(
    config: Path,
    out: Path | None,
    quick: bool,
    scenarios: Path | None,
    only: tuple[str, ...],
    repeat: int,
    engine: EngineChoice,
    links: LinksChoice,
    switches: SwitchesChoice,
    rtt_tolerance: Tolerance,
    tcp_congestion_control: str,
    port: int,
    dry_run: bool,
) -> int:
    """Bring the topology of CONFIG up, run the scenario matrix on it, append a row per scenario to OUT, tear down.

    CONFIG is a topology file, or the name of a shipped one: `containernet-env run 3node-3ms out.csv`.
    """
    from containernet_env.plan.plan import PlanOptions

    began = time.monotonic()
    console = Console(highlight=False)
    if quick and scenarios is not None:
        raise click.UsageError("--quick and --scenarios both name the scenarios: give one of them.")
    options = PlanOptions(
        machine_cores=os.cpu_count() or 1,
        run_id=secrets.token_hex(3),
        links=links,
        switches=switches,
        tcp_congestion_control=tcp_congestion_control,
        only=only,
        repeat=repeat,
        engine=engine,
    )
    plan = make_plan(config, scenarios, quick=quick, options=options)
    if dry_run:
        from containernet_env.cli.render import render_plan, render_summary

        render_plan(plan, console)
        render_summary(plan, console)
        return 0
    if out is None:
        raise click.UsageError("Missing argument 'OUT': the CSV file that rows are appended to.")
    return execute(plan, out, console, rtt_tolerance, port, began)


def execute(plan: Plan, out: Path, console: Console, tolerance: Tolerance, port: int, began: float) -> int:
    """Carry the plan out; the exit code. `began` is when the command began, on the monotonic clock."""
    from containernet_env.containernet import select
    from containernet_env.results.csv_file import ResultsFile
    from containernet_env.runs.lock import RunLock

    require_root()
    select.require(plan)
    reporter = TerminalReporter(console)
    results = ResultsFile(out)
    with (
        StopSignals(on_ignored=lambda _: console.print("  already tearing down, a moment please")) as stop,
        RunLock(),
    ):
        opened = results.open()
        if opened.mended:
            reporter.note(opened.mended)
        try:
            failed = _measure(plan, results, reporter, tolerance, port, stop)
        finally:
            reporter.close()
            results.close()
    console.print()
    console.print(result_table(reporter.reports))
    console.print()
    rows = len(reporter.reports)
    verdict = "no errors" if not failed else f"{failed} failed"
    total = seconds_text(time.monotonic() - began)
    console.print(f"{rows} rows in {out}, {verdict}; total time {total}", soft_wrap=True)
    if stop.received is not None:
        return 128 + stop.received
    return 1 if failed else 0


def _measure(
    plan: Plan,
    results: ResultsFile,
    reporter: TerminalReporter,
    tolerance: Tolerance,
    port: int,
    stop: StopSignals,
) -> int:
    """Bring up, run the matrix, tear down in any case; returns how many rows failed."""
    from containernet_env.plan.export import plan_values
    from containernet_env.results.record import RunRecord, utc_now
    from containernet_env.results.rows import RunFacts
    from containernet_env.runs import clean
    from containernet_env.runs.matrix import Run
    from containernet_env.runs.testbed import Testbed
    from containernet_env.setup import ready_images

    images = ready_images()
    for name in clean.remove_leftovers().removed:
        reporter.note(f"removed {name}, left behind by a killed run")
    for note in plan.notes:
        reporter.note(note)
    run_id = f"{utc_now()[:19].replace('-', '').replace(':', '')}Z-{plan.run_id}"
    record = RunRecord(results.path, run_id)
    testbed = Testbed(plan, images, reporter, port=port, tolerance=tolerance)
    run: Run | None = None
    try:
        try:
            testbed.up()
            version = testbed.cluster.version()
            record.update(
                program=__version__,
                etcd=version,
                config_sha256=plan.config.sha256,
                plan=plan_values(plan),
                **testbed.facts(),
            )
            measured = (
                testbed.rtt.measured_ns(plan.largest_member_rtt) if testbed.rtt and plan.largest_member_rtt else None
            )
            facts = RunFacts(
                config=plan.config,
                rtt=plan.largest_member_rtt,
                rtt_measured_ns=measured,
                hosts=testbed.net.hosts_kind,
                links=testbed.net.links_kind,
                etcd_version=version,
                run_id=run_id,
                realtime=testbed.realtime,
            )
            run = Run(testbed, results, record, facts, reporter, stop.deferred)
            run.matrix()
        finally:
            stop.shield()
    finally:
        stop.shield()
        reporter.close()
        with reporter.stage("tear-down") as stage:
            testbed.down()
            stage.done("nothing of this run is left")
    record.update(ended=utc_now(), failed_rows=run.failed_rows)
    return run.failed_rows


def require_root() -> None:
    """Raises MissingRequirementError unless this is root."""
    if os.geteuid() != 0:
        raise MissingRequirementError(
            "containers, namespaces and links need root", "Run it again with sudo, or as root."
        )
