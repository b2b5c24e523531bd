"""The Containernet command line on a running network: Mininet's own, interactive or one line at a time."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
from cmd import Cmd
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from mininet.cli import CLI
from mininet.log import error, lg, output

from containernet_env.base.errors import ContainernetEnvError, UsageError
from containernet_env.config.hints import closest
from containernet_env.containernet.changes import CHANGES
from containernet_env.containernet.crashes import CRASHES, Crashes
from containernet_env.containernet.tools import TOOLS

COMMANDS: Mapping[str, Callable[[Any, list[str]], str]] = {**CHANGES, **CRASHES, **TOOLS}
"""The commands of ours, beside those of Mininet's; their docstrings are their help."""


_HELP = """NODE COMMAND runs a command in a node; later names of nodes become addresses: etcd1 ping -c 3 etcd2
`help COMMAND` tells more; TAB completes commands and nodes."""


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

    def __init__(self, net: Any, *args: Any, crashes: Crashes | None = None, **options: Any) -> None:
        self.crashes = crashes or Crashes(net)
        super().__init__(net, *args, **options)

    @classmethod
    def initReadline(cls) -> None:
        """See Mininet: a history; words end at spaces, so that names with "-" are completed, too."""
        super().initReadline()
        with suppress(ImportError):
            import readline

            readline.set_completer_delims(" \t\n|")

    def verbs(self) -> list[str]:
        """All commands, ours and Mininet's."""
        return sorted(name.removeprefix("do_") for name in dir(self) if name.startswith("do_") and name != "do_EOF")

    def completenames(self, text: str, *_: Any) -> list[str]:
        """See ``cmd.Cmd``: commands and nodes."""
        return [f"{word} " for word in sorted({*self.verbs(), *self.mn}) if word.startswith(text)]

    def completedefault(self, text: str, *_: Any) -> list[str]:
        """See ``cmd.Cmd``: nodes, in any command."""
        return [f"{name} " for name in sorted(self.mn) if name.startswith(text)]

    def complete_help(self, text: str, *_: Any) -> list[str]:
        """See ``cmd.Cmd``."""
        return [verb for verb in self.verbs() if verb.startswith(text)]

    def do_help(self, line: str) -> None:
        """help [COMMAND]: all commands, or one."""
        if (verb := line.strip()) and not hasattr(self, f"do_{verb}"):
            self.unknown(verb)
        if verb:
            self._say(f"{inspect.getdoc(getattr(self, f'do_{verb}'))}\n")
            return
        ours = [str(carry_out.__doc__).partition("\n")[0] for carry_out in COMMANDS.values()]
        others = " ".join(verb for verb in self.verbs() if verb not in COMMANDS)
        self._say("\n".join([_HELP, *(f"  {line}" for line in ours), f"Of Mininet: {others}", ""]))

    def _say(self, text: str) -> None:
        """Write a command's result where that of all others goes, in their order."""
        self.stdout.write(text)
        self.stdout.flush()

    def precmd(self, line: str) -> str:
        """Mininet would cut a line at its first "#", wherever that is."""
        return line

    def onecmd(self, line: str) -> bool:
        """See ``cmd.Cmd``: carry out one line; whether it was the last.

        What begins with a node's name and goes on runs there, also where a command has that name.
        """
        verb, _, rest = line.strip().partition(" ")
        if not verb or verb.startswith("#"):
            return False
        if verb.startswith("?"):
            verb, rest = "help", f"{verb[1:]} {rest}"
        command = getattr(self, f"do_{verb}", None)
        if command is None or (verb in self.mn and rest.strip()):
            command, rest = self.default, line
        try:
            return bool(command(rest.strip()))
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

    def default(self, line: str) -> None:
        """See Mininet: run a command in a node, every later word that names a node replaced by its address."""
        name, _, rest = line.strip().partition(" ")
        if name not in self.mn:
            self.unknown(name)
        if not rest.strip():
            raise UsageError(f"usage: {name} COMMAND, which runs there: {name} ip address")
        words = [(self.mn[word].IP() or word) if word in self.mn else word for word in rest.split(" ")]
        self.run_in(self.mn[name], " ".join(words))

    def unknown(self, word: str) -> NoReturn:
        """Raise ``UsageError`` for a word that is neither a node's nor a command."""
        near = closest(word, [*self.mn, *self.verbs()])
        hint = f"; did you mean {near}?" if near else ""
        hosts = ", ".join(host.name for host in self.mn.hosts)
        raise UsageError(f"unknown command {word!r}: neither a host ({hosts}) nor a command, see `help`{hint}")

    def run_in(self, node: Any, command: str) -> None:
        """Run a command in a node and show what it prints until it ends."""
        node.sendCmd(command)
        self.waitForNode(node)

    def do_dump(self, _line: str) -> None:
        """dump: every node, with its interfaces by the names that people know."""
        for node in self.mn.values():
            text = repr(node)
            for intf in node.intfList():
                text = text.replace(f"{intf.name}:", f"{intf}:")
            self._say(f"{text}\n")

    def do_sh(self, line: str) -> None:
        """sh COMMAND: run a command on this machine."""
        self.status = subprocess.run(["sh", "-c", line], check=False).returncode

    def do_pingall(self, line: str) -> None:
        """pingall [SECONDS]: ping between all hosts, and wait so long for each answer."""
        self.status = 1 if self.mn.pingAll(line.strip() or None) else 0

    status = 0
    """The exit status of the last of the commands that have one."""

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


def _command(carry_out: Callable[[Any, list[str]], str], of: str) -> Callable[[CommandLine, str], None]:
    def do(self: CommandLine, line: str) -> None:
        self._say(f"{carry_out(getattr(self, of), line.split())}\n")

    do.__doc__ = carry_out.__doc__
    return do


for _verb, _carry_out in COMMANDS.items():
    setattr(CommandLine, f"do_{_verb}", _command(_carry_out, "crashes" if _verb in CRASHES else "mn"))


class OneLine(CommandLine):
    """The same commands without the loop: ``onecmd`` carries out a line, ``status`` is its exit status.

    The status is 1 where a command ended with an unexpected exception; errors of this program are raised.
    """

    def __init__(self, net: Any, crashes: Crashes | None = None) -> None:
        # Mininet's constructor opens the command line.
        Cmd.__init__(self)
        self.mn, self.locals, self.inputFile = net, {"net": net}, None
        self.crashes = crashes or Crashes(net)

    def isatty(self) -> bool:
        """No terminal is read."""
        return False

    def run_in(self, node: Any, command: str) -> None:
        """See ``CommandLine``."""
        if not hasattr(node, "run"):  # no container
            super().run_in(node, command)
            return
        self.status, said = node.run(command)
        self._say(said)

    def fail(self, problem: BaseException) -> None:
        """See ``CommandLine``."""
        if isinstance(problem, ContainernetEnvError):
            raise problem
        self._say(f"*** {_describe(problem)}\n")
        self.status = 1


def guard_stock_command_line(network: type) -> None:
    """Have Mininet's own ``CLI`` go on, too, after a command that fails on such a network, and know all its nodes.

    Scripts make one, and the network would end with them: Mininet catches Ctrl-C alone. ``SystemExit`` is the user's.
    Mininet ends the first word of a line, the node's name, at its first "-" or ".".
    """

    def parseline(self: CLI, line: str) -> tuple[str | None, str | None, str]:
        name, *rest = line.split(maxsplit=1) or [""]
        ours = isinstance(self.mn, network)
        if ours and name in self.mn:
            return name, "".join(rest).strip(), line.strip()
        return Cmd.parseline(self, line)

    def onecmd(self: CLI, line: str) -> Any:
        try:
            return Cmd.onecmd(self, line)
        except Exception as problem:
            if not isinstance(self.mn, network):
                raise
            error(f"*** {_describe(problem)}\n")
            return False

    CLI.onecmd, CLI.parseline = onecmd, parseline


def _describe(problem: BaseException) -> str:
    return str(problem) if isinstance(problem, ContainernetEnvError) else f"{type(problem).__name__}: {problem}"


def run_command(net: Any, line: str, crashes: Crashes | None = None) -> int:
    """Carry out one line on a network (`testbed_network.TestbedNetwork`); its exit status.

    A line that begins with a node's name runs there, in a Docker host with its own status; `sh CMD` runs on this
    machine; `pingall` fails on any lost packet; every other command of the command line counts as done, unless it
    fails. Raises UsageError for a word that is none of these, and what our own commands raise (see `changes.change`,
    `tools`); any other exception is printed, and the status is 1.
    """
    sys.stdout.flush()
    shell = OneLine(net, crashes)
    shell.onecmd(line)
    return shell.status
