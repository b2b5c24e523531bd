"""`containernet-env setup`: makes the machine ready, a line per step; then becomes another command if asked."""

from __future__ import annotations

import os
import sys
from types import TracebackType

import click
from rich.console import Console
from rich.status import Status
from rich.text import Text

from containernet_env.base import clock
from containernet_env.cli.signals import StopSignals

NAME_WIDTH = 15
# What takes less is not work, and its time not worth a word.
_WORTH_TELLING_S = 0.05


@click.command(name="setup", context_settings={"ignore_unknown_options": True})
@click.argument("then", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ...]")
def command(then: tuple[str, ...]) -> int:
    """Install, build and start what runs need: only what is missing.

    Packages (Debian, Ubuntu), the Docker engine, the programs in /var/cache/containernet-env and the hosts'
    images. Each step is one line; its details are in .build/ of a clone, else in logs/ of that cache. With
    `-- COMMAND ...` the process becomes that command afterwards.
    """
    began = clock.monotonic()
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
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


class ConsoleReport:
    """Tells the steps of a set-up: a line per ended step, and on a terminal what runs now, below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = clock.Lock()
        self._running: list[str] = []
        self._status: Status | None = None

    def stage(self, name: str) -> ConsoleStage:
        """Begin a step; several may run at once."""
        return ConsoleStage(self, name)

    def note(self, text: str) -> None:
        """A line of its own."""
        self._console.print(Text(f"  {text}", style="yellow"))

    def began(self, name: str) -> None:
        """Show that step ``name`` runs."""
        with self._lock:
            self._running.append(name)
            self._show()

    def ended(self, name: str, line: Text | None) -> None:
        """Show that step ``name`` has ended, with its line unless it failed."""
        with self._lock:
            self._running.remove(name)
            self._show()
        if line is not None:
            self._console.print(line)

    def _show(self) -> None:
        if not self._console.is_terminal:
            return
        if self._status is not None and not self._running:
            self._status.stop()
            self._status = None
        elif self._running:
            text = f"{', '.join(self._running)} ..."
            if self._status is None:
                self._status = self._console.status(text)
                self._status.start()
            else:
                self._status.update(text)


class ConsoleStage:
    """One step on a `ConsoleReport`."""

    def __init__(self, report: ConsoleReport, name: str) -> None:
        self._report = report
        self._name = name
        self._text = ""
        self._began = clock.monotonic()

    def done(self, text: str) -> None:
        """What the step came to."""
        self._text = text

    def __enter__(self) -> ConsoleStage:
        self._report.began(self._name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        line = None
        if kind is None:
            seconds = clock.monotonic() - self._began
            line = Text(f"  {self._name:<{NAME_WIDTH}} {self._text}")
            if seconds >= _WORTH_TELLING_S:
                line.append(f"  ({seconds:.1f} s)", "dim")
        self._report.ended(self._name, line)
