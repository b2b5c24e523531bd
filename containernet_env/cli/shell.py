"""`containernet-env shell`: bring a topology up and talk to it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from containernet_env.cli.files import CONFIG
from containernet_env.cli.options import testbed_options
from containernet_env.cli.progress import TerminalProgress
from containernet_env.cli.signals import StopSignals

if TYPE_CHECKING:
    from containernet_env.fidelity.rtt import Tolerance
    from containernet_env.model.choices import EngineChoice, LinksChoice, SwitchesChoice
    from containernet_env.runs.testbed import Testbed


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("config", type=CONFIG)
@click.option("-c", "commands", multiple=True, metavar="CMD", help="Run CMD instead of opening the command line; "
              "repeatable, stops at the first that fails and leaves with its exit status.")  # fmt: skip
@testbed_options
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True,
              help="Port of the benchmark server on 127.0.0.1; another one if taken.")  # fmt: skip
def command(
    config: Path,
    commands: tuple[str, ...],
    engine: EngineChoice,
    links: LinksChoice,
    switches: SwitchesChoice,
    seed: int | None,
    rtt_tolerance: Tolerance | None,
    tcp_congestion_control: str,
    port: int,
) -> int:
    """Bring the topology of CONFIG up and open the Containernet command line on it; `exit` tears it down.

    Node names stand for nodes: `etcd1 etcdctl member list`, `etcd1 ping -c 3 etcd2`, `pingall`, `dump`. Links change
    while it runs: `link etcd1 s1 down`, `delay etcd1 s1 10ms`, `jitter etcd1 s1 1ms`, `rate etcd1 s1 100`,
    `loss etcd1 s1 1%`, `queue etcd1 s1 100`, `partition etcd1 | etcd2 etcd3`, `heal`. Members crash and come back:
    `kill leader`, `restart etcd1`, `freeze etcd1`, `thaw etcd1`; `leader` shows who leads. `links` shows links,
    `iperf etcd1 etcd2` measures, `capture etcd1 FILE.pcap` records; `help` tells more.
    The benchmark server answers at 127.0.0.1:8080.
    """
    from containernet_env.containernet import select
    from containernet_env.load.relay import Relay
    from containernet_env.runs import clean
    from containernet_env.runs.demands import require_root
    from containernet_env.runs.lock import refuse_while_measured
    from containernet_env.runs.prepare import prepare_shell
    from containernet_env.runs.testbed import Testbed, take_down
    from containernet_env.setup import ready_images

    console = Console(highlight=False, markup=False, emoji=False, stderr=True)
    plan = prepare_shell(
        config, links=links, switches=switches, engine=engine, congestion_control=tcp_congestion_control, seed=seed
    )
    require_root()
    select.require(plan)
    progress = TerminalProgress(console)
    refuse_while_measured()
    with StopSignals() as stop:
        images = ready_images(plan.store, progress)
        clean.remove_leftovers()
        for note in plan.notes:
            progress.note(note)
        testbed = Testbed(plan, images, progress, tolerance=rtt_tolerance, on_event=_tell_failure, stop=stop)
        relay: Relay | None = None
        status = 0
        try:
            try:
                testbed.up()
                relay = Relay(testbed.server_connection, port)
                relay.start()
                taken = f"port {port} is taken; " if relay.port_taken else ""
                progress.note(f"{taken}the benchmark server answers at http://127.0.0.1:{relay.port}")
                status = _run_commands(testbed, commands) if commands else _interact(testbed)
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


def _tell_failure(kind: str, text: str, subject: str | None = None) -> None:
    """Say at once that the network is gone: what is done on it from here on means nothing."""
    if kind == "testbed_failed":
        click.echo(f"error: {text}; the network is gone, exit and start again", err=True)


def _interact(testbed: Testbed) -> int:
    """Mininet's command line on the testbed's network; Ctrl-C ends a command, not the session."""
    from containernet_env.containernet.command_line import CommandLine, show_on_standard_output
    from containernet_env.runs.labs import Lab

    show_on_standard_output()

    # The command line expects Ctrl-C as KeyboardInterrupt; SIGTERM and SIGHUP still end the session.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        CommandLine(testbed.net, crashes=Lab(testbed))
    finally:
        signal.signal(signal.SIGINT, ours)
    return 0


def _run_commands(testbed: Testbed, commands: tuple[str, ...]) -> int:
    """Run each command as the command line would; the exit status of the first that fails, else 0.

    None is begun on a network that is gone; the caller knows of that.
    """
    from containernet_env.containernet.command_line import run_command, show_on_standard_output
    from containernet_env.runs.labs import Lab

    show_on_standard_output()

    lab = Lab(testbed)
    for line in commands:
        if testbed.failure is not None:
            break
        status = run_command(testbed.net, line, lab)
        if status != 0:
            return status
    return 0
