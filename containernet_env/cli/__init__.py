"""The command line: the only module that knows click, terminals and exit codes."""

from __future__ import annotations

import atexit
import difflib
import importlib
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from containernet_env.base.errors import (
    ConfigError,
    ContainernetEnvError,
    Interrupted,
    MissingRequirementError,
    UsageError,
)
from containernet_env.base.work import stop_behind
from containernet_env.cli import output

PROGRAM = "containernet-env"

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3

# Command -> its purpose. Its module is imported only when it is used: `results` needs no Docker SDK.
COMMANDS = {
    "run": "Measure: bring a topology up, run the scenario matrix, append rows to a CSV, tear down.",
    "sweep": "Measure every combination of values, and go on where it was ended.",
    "watch": "Follow a run or sweep on a page of this machine while it goes on.",
    "worker": "Measure testbeds of sweeps on this machine, for a Dask cluster.",
    "certs": "Make the certificates of a Dask cluster that measures sweeps.",
    "check": "Check a topology file and print what it configures.",
    "shell": "Bring a topology up and open the Containernet command line on it.",
    "results": "Show the rows of a CSV, repetitions merged.",
    "compare": "Compare two sets of results: what differs, by how much, what is undecided.",
    "report": "Write rows as one page: figures, tables, timelines.",
    "plot": "Draw one figure from rows, for a paper.",
    "table": "Print rows as a table that others print: dbtester's, or requests/s by clients.",
    "show": "Show one run: what was measured on what, the proof of the network, findings.",
    "verify": "Judge the histories of a run: whether the store kept its promises.",
    "rerun": "Repeat a run from its run directory, where nothing that matters differs.",
    "export": "Write a run as an RO-Crate: one zip that explains itself to others.",
    "clean": "Remove what a killed run left behind.",
    "setup": "Install, build and start what runs need, as root (build.sh calls this).",
    "schema": "Print the JSON Schema of topology, scenario or sweep files.",
}
# Command -> the module that has it, where that has another name.
MODULES = {
    **dict.fromkeys(("rerun", "check"), "run"),
    **dict.fromkeys(("worker", "certs"), "sweep"),
    **dict.fromkeys(("compare", "show", "verify", "export"), "results"),
    **dict.fromkeys(("plot", "table", "watch"), "report"),
    **dict.fromkeys(("setup", "clean", "shell", "schema"), "machine"),
}
# Commands whose result is their output.
PRINTING = ("check", "results", "compare", "table", "show", "verify", "schema")
# Examples of commands, shown if an argument is missing.
EXAMPLES = {
    "run": "run configs/3node-3ms.json results/mine.csv",
    "sweep": "sweep configs/3node-3ms.json results/mine.csv --set link_delay=1ms,3ms,10ms",
    "watch": "watch results/mine.csv",
    "worker": "worker 127.0.0.1:8786 --tls-ca-file dask/ca.pem --tls-cert dask/cert.pem --tls-key dask/key.pem",
    "certs": "certs dask",
    "check": "check configs/3node-3ms.json",
    "shell": "shell configs/3node-3ms.json",
    "results": "results results/mine.csv",
    "compare": "compare results/before.csv results/after.csv",
    "report": "report results/mine.csv -o report.html",
    "plot": "plot results/mine.csv --x clients --y p50,p99 --by type -o figure.pdf",
    "table": "table dbtester results/mine.csv",
    "show": "show results/mine.csv",
    "verify": "verify results/mine.csv",
    "rerun": "rerun results/mine.csv",
    "export": "export results/mine.csv run.zip",
}


FILE = click.Path(dir_okay=False, path_type=Path)
RUN = click.Path(path_type=Path)
"""A run directory, or a results file, which stands for its newest run."""
of_client = click.option(
    "--client",
    default="all",
    show_default=True,
    metavar="NAME",
    help="Of runs with several clients the rows of this one; all: those of all together; each: those of every one, "
    "which differ in the column Client.",
)


class Parsed(click.ParamType[Any]):
    """A value that ``parse`` makes of a text, or refuses by ``ValueError`` or ``UsageError``."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value) if isinstance(value, str) else value
        except (ValueError, UsageError) as error:
            self.fail(str(error), param, ctx)


def share_of(text: str) -> float:
    """A share in per cent, such as "5%", as a ratio."""
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?) ?%", text, re.ASCII)
    if found is None or float(found[1]) >= 100:
        raise ValueError(f"{text!r} is no share; allowed: 0% to below 100%, such as 5%")
    return float(found[1]) / 100


SHARE = Parsed("PERCENT", share_of)


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports a command's module on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"containernet_env.cli.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            word = error.command_name
            near = difflib.get_close_matches(word.lower(), COMMANDS, n=1)
            if near:
                hint = f"Did you mean {near[0]!r}?"
            elif os.path.exists(word) or word.endswith(".json"):
                hint = f"Did you mean: {PROGRAM} run {word}?"
            else:
                hint = f"The commands are {', '.join(COMMANDS)}."
            raise click.UsageError(f"{error.message} {hint}", ctx) from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            run = self.get_command(ctx, "run")
            assert run is not None
            options = [name for option in run.params for name in option.opts]
            near = difflib.get_close_matches(error.option_name, options, n=1)
            hint = f" Options stand after the command: {PROGRAM} run {near[0]} ..." if near else ""
            raise click.UsageError(f"{error.format_message()}{hint}", ctx) from error


def show_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from containernet_env.runs import version

        click.echo(f"{PROGRAM} {version.text()}")
        ctx.exit()


def judge_output(status: object) -> object:
    """The result of a command: one that only prints has failed if its output is not whole, as on a full disk."""
    command = click.get_current_context().invoked_subcommand
    return EXIT_FAILED if command in PRINTING and not status and output.is_cut() else status


@click.group(
    cls=LazyGroup,
    result_callback=judge_output,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Show version and commit."
)
def group() -> None:
    """Measure consistent stores (etcd first) on an emulated network, and prove the network."""


def exit_code_of(error: BaseException) -> int:
    if isinstance(error, Interrupted):
        return 128 + error.signum
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return 128 + signal.SIGINT
    if isinstance(error, ConfigError | UsageError):
        return EXIT_USAGE
    if isinstance(error, MissingRequirementError):
        return EXIT_ENVIRONMENT
    return EXIT_FAILED


def main(args: list[str] | None = None) -> None:
    """Entry point: runs a command and leaves with its exit code; reports known errors without a traceback."""
    with output.guarded():
        sys.exit(_status_of(args))


def _status_of(args: list[str] | None) -> int:
    try:
        outcome = group.main(args=args, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        name = error.ctx.info_name if isinstance(error, click.MissingParameter) and error.ctx is not None else None
        if name in EXAMPLES:
            click.echo(f"For example: {PROGRAM} {EXAMPLES[name]}", err=True)
        return error.exit_code
    except ContainernetEnvError as error:
        return _ended(f"Error: {error}", error)
    except (Exception, Interrupted, KeyboardInterrupt) as error:
        if (stop := stop_behind(error)) is not None or isinstance(error, click.Abort):
            import logging

            # At exit it ends its handlers, of which a stop may have left one half made. Nothing here writes to a log.
            atexit.unregister(logging.shutdown)
            return _ended("interrupted", stop or error)
        if not isinstance(error, OSError):
            raise
        return _ended(f"Error: {error}\nThe machine refused that: look at its rights, its disk and its limits.", error)
    return outcome if isinstance(outcome, int) else 0


def _ended(text: str, error: BaseException) -> int:
    """Print how a command ended, with the notes of the error that ended it; returns the exit code."""
    for line in (text, *getattr(error, "__notes__", ())):
        click.echo(output.plain(line), err=True)
    return exit_code_of(error)
