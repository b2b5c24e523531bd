"""`containernet-env setup`, `clean`, `shell` and `schema`: the machine, and a topology to talk to."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from containernet_env.base import clock
from containernet_env.base.errors import UsageError
from containernet_env.cli.arguments import CONFIG, run_options
from containernet_env.cli.terminal import StageLines, StopSignals, TerminalProgress, plain_console
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import schema_of
from containernet_env.hosts import engine
from containernet_env.network.factory import remove_bridges
from containernet_env.results.run_files import FILES, json_schema
from containernet_env.runs import clean
from containernet_env.runs.prepare import require_root

if TYPE_CHECKING:
    from containernet_env.network.rtt import Tolerance
    from containernet_env.runs.testbed import Testbed


@click.command(name="setup")
@click.argument("then", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ...]")
def setup_command(then: tuple[str, ...]) -> int:
    """Install, build and start what runs need: only what is missing.

    Packages (Debian, Ubuntu), the Docker engine, the programs in /var/cache/containernet-env and the hosts'
    images. Each step is one line; its details are in .build/ of a clone, else in logs/ of that cache. With
    `-- COMMAND ...` the process becomes that command afterwards.
    """
    began = clock.monotonic()
    console = plain_console(soft_wrap=True)
    report = ConsoleReport(console)
    with StopSignals(resume=lambda: "The same command goes on where the set-up was interrupted."):
        # Imported here, under the signal handlers: it brings the Docker SDK.
        from containernet_env.setup import set_up

        did_something = set_up(report)
    seconds = clock.monotonic() - began
    if did_something:
        console.print(f"Set-up complete ({seconds:.0f} s)")
    elif not then:
        console.print(f"Set-up: nothing to do ({seconds:.1f} s)")
    if then:
        sys.stdout.flush()
        os.execv(sys.argv[0], [sys.argv[0], *then])
    return 0


class ConsoleReport(StageLines):
    """The steps of a set-up; short ones involve no work."""

    width = 15
    shown_from_s = 0.05


@click.command()
@click.argument("endpoints", type=CONFIG, required=False)
def clean_command(endpoints: Path | None) -> None:
    """Remove what killed runs left behind: only what carries our label and whose run is over.

    With ENDPOINTS, a file that names those of an external cluster: the keys of this user's killed runs there. That
    needs no root.
    """
    if endpoints is not None:
        _clean_cluster(endpoints)
        return
    require_root()
    if engine.is_reachable():
        found = clean.remove_leftovers()
    else:
        click.echo("no engine is running, so there are no containers to remove")
        found = clean.Leftovers(remove_bridges(), ())
    for name in found.removed:
        click.echo(f"removed {name}")
    for name in found.in_use:
        click.echo(f"kept {name}: its run is still on")
    if not found.removed and not found.in_use:
        click.echo("nothing was left behind")


def _clean_cluster(path: Path) -> None:
    from containernet_env.runs.external_access import Record
    from containernet_env.runs.external_access import clean as clean_keys

    config = load_config(path)
    if config.external is None:
        raise UsageError(f"{path} names no endpoints\n  Without a file, clean removes what is left on this machine.")
    found: list[Record] = []

    def report(record: Record, done: str | None) -> None:
        found.append(record)
        click.echo(done or f"kept {record.prefix}: its run is still on")

    elsewhere = clean_keys(config, report, click.echo)
    if not found:
        click.echo("nothing was left behind")
    for record in elsewhere:
        click.echo(f"left as it is: {record.prefix} of a killed run at {', '.join(record.endpoints)}")


@click.command()
@click.argument("config", type=CONFIG)
@click.option("-c", "commands", multiple=True, metavar="CMD", help="Run CMD instead of opening the command line; "
              "repeatable, stops at the first that fails and leaves with its exit status.")  # fmt: skip
@run_options("shell")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True,
              help="Port of the benchmark server on 127.0.0.1; another one if taken.")  # fmt: skip
def shell_command(
    config: Path,
    commands: tuple[str, ...],
    rtt_tolerance: Tolerance | None,
    port: int,
    **choices: Any,
) -> int:
    """Bring the topology of CONFIG up and open the Containernet command line on it; `exit` tears it down.

    Node names stand for nodes: `etcd1 etcdctl member list`, `etcd1 ping -c 3 etcd2`, `pingall`, `dump`. Links change
    while it runs: `link etcd1 s1 down`, `delay etcd1 s1 10ms`, `jitter etcd1 s1 1ms`, `rate etcd1 s1 100`,
    `loss etcd1 s1 1%`, `queue etcd1 s1 100`, `partition etcd1 | etcd2 etcd3`, `heal`. Members crash and come back:
    `kill leader`, `restart etcd1`, `freeze etcd1`, `thaw etcd1`; `leader` shows who leads. `links` shows links,
    `iperf etcd1 etcd2` measures, `capture etcd1 FILE.pcap` records; `help` lists all.
    The benchmark server answers at 127.0.0.1:8080.
    """
    from containernet_env.containernet import engines
    from containernet_env.runs.load import Relay
    from containernet_env.runs.lock import refuse_while_measured
    from containernet_env.runs.prepare import prepare_shell
    from containernet_env.runs.target import take_down
    from containernet_env.runs.testbed import Testbed
    from containernet_env.setup import ready_images

    plan = prepare_shell(config, **choices)
    require_root()
    engines.require(plan)
    progress = TerminalProgress(plain_console(stderr=True))
    refuse_while_measured()
    with StopSignals() as stop:
        images = ready_images(plan.store, progress)
        clean.remove_leftovers()
        for note in plan.notes:
            progress.note(note)
        testbed = Testbed(plan, images, progress, tolerance=rtt_tolerance, on_event=_report_failure, stop=stop)
        relay: Relay | None = None
        status = 0
        try:
            try:
                testbed.up()
                relay = Relay(testbed.server_connection, port)
                relay.start()
                taken = f"port {port} is taken; " if relay.port_taken else ""
                progress.note(f"{taken}the benchmark server answers at http://127.0.0.1:{relay.port}")
                status = _use(testbed, commands)
                if status == 0 and testbed.failure is not None:
                    status = 1
            finally:
                stop.shield()
        finally:
            stop.shield()
            try:
                if relay is not None:
                    relay.close()
            finally:
                take_down(testbed, progress)
    return 128 + stop.received if stop.received is not None and status == 0 else status


def _report_failure(kind: str, text: str, subject: str | None = None) -> None:
    """Report at once that the network is gone: the results of later commands on it are meaningless."""
    if kind == "testbed_failed":
        click.echo(f"error: {text}; the network is gone, exit and start again", err=True)


def _use(testbed: Testbed, commands: tuple[str, ...]) -> int:
    """Run each command as the command line would; the exit status of the first that fails, else 0.

    No command starts on a network that is gone; the caller reports that. Without any, open Mininet's command line, in
    which Ctrl-C ends a command, not the session.
    """
    from containernet_env.containernet.shell import CommandLine, run_command, show_on_standard_output
    from containernet_env.runs.labs import Lab

    show_on_standard_output()

    lab = Lab(testbed)
    for line in commands:
        if testbed.failure is not None:
            break
        if (status := run_command(testbed.net, line, lab)) != 0:
            return status
    if commands:
        return 0
    # The command line expects Ctrl-C as KeyboardInterrupt; SIGTERM and SIGHUP still end the session.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        CommandLine(testbed.net, crashes=lab)
    finally:
        signal.signal(signal.SIGINT, ours)
    return 0


_INPUTS = ("config", "scenarios", "sweep")
_RUN_FILES = tuple(f"run-{name}" for name in FILES)


@click.command()
@click.argument("kind", type=click.Choice([*_INPUTS, *_RUN_FILES]), default="config")
def schema_command(kind: str) -> None:
    """Print the JSON Schema of config files (topologies), of scenario or sweep files, or of a file of run directories.

    Editors use it to complete and check; what one value alone cannot show (an address outside the subnet)
    is only found by `check`.
    """
    schema = schema_of(kind) if kind in _INPUTS else json_schema(kind.removeprefix("run-"))
    click.echo(json.dumps(schema, indent=2))
