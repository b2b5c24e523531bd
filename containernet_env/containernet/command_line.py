"""The Containernet command line on a running network: Mininet's own, interactive or one line at a time."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import click
from mininet.cli import CLI
from mininet.log import error, lg, output

from containernet_env.base.errors import RunError, UsageError
from containernet_env.containernet.changes import CHANGES, change


def show_on_standard_output() -> None:
    """What commands print is their result: Mininet would write it to standard error."""
    for handler in lg.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stdout)


class CommandLine(CLI):  # type: ignore[misc]
    """Mininet's command line under our name; making one opens it and returns when the user leaves."""

    prompt = "containernet> "

    def do_link(self, line: str) -> None:
        """link NODE NODE up|down: plug the cable between two nodes in, or pull it: link etcd1 s1 down"""
        self._change("link", line)

    def do_delay(self, line: str) -> None:
        """delay NODE NODE TIME [one-way]: a link's delay, both ways or as the first sends: delay etcd1 s1 10ms"""
        self._change("delay", line)

    def do_rate(self, line: str) -> None:
        """rate NODE NODE MBIT|unlimited [one-way]: change a link's bandwidth, in Mbit/s: rate etcd1 s1 100"""
        self._change("rate", line)

    def do_loss(self, line: str) -> None:
        """loss NODE NODE PERCENT% [one-way]: let a link lose a share of its frames: loss etcd1 s1 1%"""
        self._change("loss", line)

    def do_partition(self, line: str) -> None:
        """partition HOST... | HOST...: keep sets of hosts apart until heal: partition etcd1 | etcd2 etcd3"""
        self._change("partition", line)

    def do_heal(self, line: str) -> None:
        """heal: end the partition."""
        self._change("heal", line)

    def _change(self, verb: str, line: str) -> None:
        try:
            output(f"{change(self.mn, verb, line)}\n")
        except (UsageError, RunError) as problem:
            error(f"*** {problem}\n")

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


def run_command(net: Any, line: str) -> int:
    """Carry out one line on a network (`testbed_network.TestbedNetwork`); its exit status.

    A line that begins with a Docker host's name runs there, with its own status and every later word that names a
    node replaced by its address; `sh CMD` runs on this machine; `pingall` fails on any lost packet; every other
    command of the command line counts as done. Raises UsageError for a word that is none of these, and what a change of
    links raises (see `changes.change`).
    """
    verb, _, rest = line.strip().partition(" ")
    node = net.nameToNode.get(verb)
    if node is not None and node in net.hosts:
        words = [(net[word].IP() or word) if word in net else word for word in rest.split(" ")]
        status, output = node.run(" ".join(words))
        click.echo(output, nl=False)
        return int(status)
    if verb == "sh":
        return subprocess.run(["sh", "-c", rest], check=False).returncode
    if verb in CHANGES:
        click.echo(change(net, verb, rest))
        return 0
    if verb == "pingall":
        return 1 if net.pingAll() else 0
    if node is None and not hasattr(CLI, f"do_{verb}"):
        hosts = ", ".join(host.name for host in net.hosts)
        raise UsageError(f"unknown command {verb!r}: neither a host ({hosts}) nor a command of the command line")
    sys.stdout.flush()
    OneLine(net).onecmd(line)
    return 0
