"""The Containernet command line on a running network: Mininet's own, interactive or one line at a time."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import click
from mininet.cli import CLI
from mininet.log import lg, output

from containernet_env.containernet import Containernet
from containernet_env.docker_host import Docker
from containernet_env.errors import UsageError


def show_on_standard_output() -> None:
    """What commands print is their result: Mininet would write it to standard error."""
    for handler in lg.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stdout)


class CommandLine(CLI):  # type: ignore[misc]
    """Mininet's command line under our name; making one opens it and returns when the user leaves."""

    prompt = "containernet> "

    def waitForNode(self, node: Any) -> None:
        """Show what a node's command prints until it ends; on a terminal, keys go to the command meanwhile.

        Mininet's own loop spins where standard input is a file or a closed pipe, which is always "readable".
        """
        if self.isatty():
            super().waitForNode(node)
            return
        while node.waiting:
            try:
                output(node.monitor())
            except KeyboardInterrupt:
                node.sendInt()


class OneLine(CommandLine):
    """The same commands without the loop: making one returns at once, `onecmd` carries out a line."""

    @classmethod
    def initReadline(cls) -> None:
        """No history for lines that nobody typed here."""

    def run(self) -> None:
        """No loop."""


def run_command(net: Containernet, line: str) -> int:
    """Carry out one line; its exit status.

    A line that begins with a Docker host's name runs there, with its own status and every later word that names a
    node replaced by its address; `sh CMD` runs on this machine; `pingall` fails on any lost packet; every other
    command of the command line counts as done. Raises UsageError for a word that is none of these.
    """
    verb, _, rest = line.strip().partition(" ")
    node = net.nameToNode.get(verb)
    if isinstance(node, Docker):
        words = [(net[word].IP() or word) if word in net else word for word in rest.split(" ")]
        status, output = node.run(" ".join(words))
        click.echo(output, nl=False)
        return status
    if verb == "sh":
        return subprocess.run(["sh", "-c", rest], check=False).returncode
    if verb == "pingall":
        return 1 if net.pingAll() else 0
    if node is None and not hasattr(CLI, f"do_{verb}"):
        hosts = ", ".join(host.name for host in net.hosts)
        raise UsageError(f"unknown command {verb!r}: neither a host ({hosts}) nor a command of the command line")
    sys.stdout.flush()
    OneLine(net).onecmd(line)
    return 0
