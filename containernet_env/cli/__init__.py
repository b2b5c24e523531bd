"""The command line: the only place that knows click, terminals and exit codes."""

from __future__ import annotations

import importlib
import signal
import sys

import click
from click.shell_completion import CompletionItem

from containernet_env.base.errors import (
    ConfigError,
    ContainernetEnvError,
    Interrupted,
    MissingRequirementError,
    UsageError,
)

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3

# Verb -> what it is for. A verb's module is imported only when it is used: `check` needs no Docker SDK.
VERBS = {
    "run": "Measure: bring a topology up, run the scenario matrix, append rows to a CSV, tear down.",
    "check": "Check a topology file and print what it asks for.",
    "shell": "Bring a topology up and open the Containernet command line on it.",
    "results": "Show the rows of a CSV, repetitions merged.",
    "clean": "Remove what a killed run left behind.",
    "setup": "Install, build and start what runs need, as root (build.sh calls this).",
    "schema": "Print the JSON Schema of topology or scenario files.",
}


class LazyGroup(click.Group):
    """A group that knows its verbs by name and imports a verb's module on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"containernet_env.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(name, help=text) for name, text in VERBS.items() if name.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def show_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """Print the version with its commit, and end."""
    if wanted and not ctx.resilient_parsing:
        from containernet_env.base import version

        click.echo(f"containernet-env {version.text()}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Show version and commit."
)
def group() -> None:
    """Measure consistent stores (etcd first) on an emulated network, and prove the network."""


def exit_code_of(error: BaseException) -> int:
    """The process exit code that stands for `error`."""
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
    """Entry point: runs a verb and leaves with its exit code; reports known errors without a traceback."""
    try:
        outcome = group.main(args=args, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ContainernetEnvError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(exit_code_of(error))
    except (Interrupted, KeyboardInterrupt, click.Abort) as error:
        click.echo("interrupted", err=True)
        sys.exit(exit_code_of(error))
    sys.exit(outcome if isinstance(outcome, int) else 0)


if __name__ == "__main__":
    main()
