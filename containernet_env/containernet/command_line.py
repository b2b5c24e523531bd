"""The Containernet command line on a running network: Mininet's own, interactive or one line at a time."""

from __future__ import annotations

import logging
import subprocess
import sys
from cmd import Cmd
from pathlib import Path
from typing import Any

from mininet.cli import CLI
from mininet.log import error, lg, output

from containernet_env.base.errors import ContainernetEnvError, UsageError
from containernet_env.containernet.changes import CHANGES, change
from containernet_env.containernet.tools import TOOLS


def show_on_standard_output() -> None:
    """What commands print is their result: Mininet would write it to standard error."""
    for handler in lg.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stdout)


class CommandLine(CLI):  # type: ignore[misc]
    """Mininet's command line under our name; making one opens it and returns when the user leaves.

    No command ends it: whatever one raises becomes a line that begins with "***".
    """

    prompt = "containernet> "

    def do_link(self, line: str) -> None:
        """link NODE NODE up|down: plug the cable between two nodes in, or pull it: link etcd1 s1 down"""
        self._change("link", line)

    def do_delay(self, line: str) -> None:
        """delay NODE NODE TIME [one-way]: a link's delay, both ways or as the first sends: delay etcd1 s1 10ms"""
        self._change("delay", line)

    def do_jitter(self, line: str) -> None:
        """jitter NODE NODE TIME|0 [uniform|normal] [one-way]: let a link's delay vary: jitter etcd1 s1 1ms
        uniform: by up to TIME either way; normal: with that standard deviation, cut at four of them. The delay must be
        as long as that reaches. With the link emulator frames keep their order, with netem they overtake each other."""
        self._change("jitter", line)

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

    def do_links(self, line: str) -> None:
        """links: every link, up or down, with the delay, jitter, rate, queue and loss in force."""
        self._tool("links", line)

    def do_iperf(self, line: str) -> None:
        """iperf [HOST HOST] [SECONDS]: what one TCP flow carries from the first to the second: iperf etcd1 etcd2 5
        Measured from outside: nothing has to be installed in the hosts, and their CPU limits do not hold for it."""
        self._tool("iperf", line)

    def do_iperfudp(self, line: str) -> None:
        """iperfudp: not offered; see iperf."""
        self._tool("iperfudp", line)

    def do_capture(self, line: str) -> None:
        """capture HOST FILE.pcap [SECONDS]: record the frames of a host's interface: capture etcd1 etcd1.pcap 10
        Without SECONDS it goes on until `capture stop`, or until the shell ends. `capture` alone says what is recorded.
        A file holds 256 MiB at the most."""
        self._tool("capture", line)

    def _change(self, verb: str, line: str) -> None:
        output(f"{change(self.mn, verb, line)}\n")

    def _tool(self, verb: str, line: str) -> None:
        output(f"{TOOLS[verb](self.mn, line.split())}\n")

    def onecmd(self, line: str) -> bool:
        """See ``cmd.Cmd``: carry out one line; whether it was the last."""
        try:
            return bool(super().onecmd(line))
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever it is, network and session go on
            self.fail(problem)
            return False

    def do_source(self, line: str) -> None:
        """source FILE: carry out the commands of a file, a line each."""
        try:
            commands = Path(line.strip()).read_text().splitlines()
        except (OSError, ValueError) as problem:
            raise UsageError(f"{line.strip() or 'source'} cannot be read: {problem}; give a file of commands") from None
        for command in commands:
            self.onecmd(command)

    def fail(self, problem: BaseException) -> None:
        """What becomes of the error of a command."""
        error(f"*** {_describe(problem)}\n")

    def run(self) -> None:
        """See Mininet; recordings end with it."""
        super().run()
        for said in self.mn.stop_captures():
            output(f"{said}\n")

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
    """The same commands without the loop: making one returns at once, `onecmd` carries out a line.

    ``status`` is 1 once a command has failed for a reason that nobody foresaw; errors of ours are raised.
    """

    status = 0

    @classmethod
    def initReadline(cls) -> None:
        """No history for lines that nobody typed here."""

    def run(self) -> None:
        """No loop."""

    def fail(self, problem: BaseException) -> None:
        """See ``CommandLine``."""
        if isinstance(problem, ContainernetEnvError):
            raise problem
        super().fail(problem)
        self.status = 1


def guard_stock_command_line(network: type) -> None:
    """Have Mininet's own ``CLI`` go on, too, after a command that fails on such a network.

    Scripts make one, and the network would end with them: Mininet catches Ctrl-C alone. ``SystemExit`` is the user's.
    """

    def onecmd(self: CLI, line: str) -> Any:
        try:
            return Cmd.onecmd(self, line)
        except Exception as problem:
            if not isinstance(self.mn, network):
                raise
            error(f"*** {_describe(problem)}\n")
            return False

    CLI.onecmd = onecmd


def _describe(problem: BaseException) -> str:
    return str(problem) if isinstance(problem, ContainernetEnvError) else f"{type(problem).__name__}: {problem}"


def run_command(net: Any, line: str) -> int:
    """Carry out one line on a network (`testbed_network.TestbedNetwork`); its exit status.

    A line that begins with a Docker host's name runs there, with its own status and every later word that names a
    node replaced by its address; `sh CMD` runs on this machine; `pingall` fails on any lost packet; every other
    command of the command line counts as done, unless it fails. Raises UsageError for a word that is none of these, and
    what our own commands raise (see `changes.change`, `tools`); any other exception is printed, and the status is 1.
    """
    try:
        return _run_command(net, line)
    except ContainernetEnvError:
        raise
    except Exception as problem:  # noqa: BLE001 - see CommandLine.onecmd
        _say(f"*** {_describe(problem)}\n")
        return 1


def _run_command(net: Any, line: str) -> int:
    verb, _, rest = line.strip().partition(" ")
    node = net.nameToNode.get(verb)
    if node is not None and node in net.hosts:
        words = [(net[word].IP() or word) if word in net else word for word in rest.split(" ")]
        status, said = node.run(" ".join(words))
        _say(said)
        return int(status)
    if verb == "sh":
        return subprocess.run(["sh", "-c", rest], check=False).returncode
    if verb in CHANGES:
        _say(f"{change(net, verb, rest)}\n")
        return 0
    if verb in TOOLS:
        _say(f"{TOOLS[verb](net, rest.split())}\n")
        return 0
    if verb == "pingall":
        return 1 if net.pingAll() else 0
    if node is None and not hasattr(CLI, f"do_{verb}"):
        hosts = ", ".join(host.name for host in net.hosts)
        raise UsageError(f"unknown command {verb!r}: neither a host ({hosts}) nor a command of the command line")
    sys.stdout.flush()
    shell = OneLine(net)
    shell.onecmd(line)
    return shell.status


def _say(text: str) -> None:
    """Write a command's result where that of all others goes, in their order."""
    sys.stdout.write(text)
    sys.stdout.flush()
