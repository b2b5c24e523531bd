"""The Containernet command line: commands for links, crashes and measurements beside Mininet's."""

from __future__ import annotations

import inspect
import json
import logging
import subprocess
import sys
from cmd import Cmd
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

from mininet.cli import CLI
from mininet.log import error, lg, output
from mininet.node import Host, Switch

from containernet_env.base import clock
from containernet_env.base.errors import ContainernetEnvError, RunError, UsageError
from containernet_env.containernet.docker import Docker
from containernet_env.containernet.links import of_file
from containernet_env.model.config import ways_named
from containernet_env.model.dilation import emulated, slowed
from containernet_env.model.hints import suggestion
from containernet_env.model.link import DirectionSpec
from containernet_env.model.usage import Leadership
from containernet_env.network.interface import MTU_BYTES
from containernet_env.network.measure import Throughput, check_path

Command = Callable[[Any, list[str]], str]
"""Carries out a command, given the network or its ``Crashes`` and the words after the verb; returns its output.

Its documentation is its help, which begins with its form: "verb ARGUMENTS: ...".
"""


def _usage(command: Any) -> UsageError:
    return UsageError(f"usage: {command.__doc__.partition(': ')[0]}")


def timed(change: Callable[[Any, list[str]], tuple[str, int]]) -> Command:
    """Wrap a change so that it returns its description with the time at which it took effect."""

    @wraps(change)
    def carry_out(of: Any, words: list[str]) -> str:
        description, at_ns = change(of, words)
        return f"{description} (at {at_ns / 1e9:.6f} s of the monotonic clock)"

    return carry_out


def _link_named(net: Any, words: list[str]) -> tuple[list[str], bool, list[str]]:
    """The two nodes that a command begins with, or a pair of switches as one word; whether one way; the other words."""
    if words and words[0] not in net.nameToNode:
        pairs = ways_named(words[0], [switch.name for switch in net.switches])
        if len(pairs) > 1:
            raise UsageError(f"{words[0]!r} may be several pairs: give the two switches as two words")
        if pairs:
            return [*pairs[0]], ">" in words[0], words[1:]
    return words[:2], False, words[2:]


def _of_link(change: Callable[..., tuple[str, int]]) -> Command:
    """A command that changes a property of a link, both ways or one way.

    ``change`` gets the network, the two nodes, the keywords of the network's method and the words of the value.
    """

    @timed
    @wraps(change)
    def carry_out(net: Any, words: list[str]) -> tuple[str, int]:
        ends, given, words = _link_named(net, words)
        one_way = words[-1:] == ["one-way"]
        value = words[: len(words) - one_way]
        one_way |= given
        if not 1 <= len(value) <= change.__code__.co_argcount - 3:
            raise _usage(change)
        description, at_ns = change(net, ends, {"one_way": one_way}, *value)
        where = f"from {ends[0]} to {ends[1]}" if one_way else f"between {ends[0]} and {ends[1]}, both ways"
        return f"{description} {where}", at_ns

    return carry_out


@timed
def _link(net: Any, words: list[str]) -> tuple[str, int]:
    """link NODE NODE up|down|KEY=VALUE... [one-way]: pull the cable between two nodes, or change properties of it
    up, down: plug it in, or pull it: link etcd1 s1 down
    KEY=VALUE: of a `link` of topology files, both ways or as the first sends: link etcd1 s1 aqm=codel loss=0.01
    Sites are nodes, and a pair of them is a link for all such commands: link eu us down, link eu-us down; the direction
    from the first one alone: delay eu>us 10ms"""
    ends, one_way, rest = _link_named(net, words)
    match rest:
        case ["up" | "down" as status] if len(ends) == 2 and not one_way:
            return f"link {'-'.join(ends)} is {status}", net.set_link_up(*ends, status == "up")
        case [first, *_] if len(ends) == 2 and "=" in first:
            given = rest[: len(rest) - (rest[-1] == "one-way")]
            one_way |= rest[-1] == "one-way"
            values: dict[str, Any] = {}
            for word in given:
                key, sign, text = word.partition("=")
                if not sign:
                    raise _usage(_link)
                values |= of_file(key, _json(text), word)
            one, two = ends
            where = f"from {one} to {two}" if one_way else f"between {one} and {two}, both ways"
            return f"{' '.join(given)} {where}", net.change_link(one, two, one_way=one_way, **values)
    raise _usage(_link)


def _json(text: str) -> Any:
    """A value as in a file; text need not be quoted."""
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return text


@_of_link
def _delay(net: Any, ends: list[str], way: dict[str, bool], value: str) -> tuple[str, int]:
    """delay NODE NODE TIME [one-way]: a link's delay, both ways or as the first sends: delay etcd1 s1 10ms"""
    return f"delay {value}", net.set_delay(*ends, value, **way)


@_of_link
def _jitter(
    net: Any, ends: list[str], way: dict[str, bool], value: str, distribution: str = "uniform"
) -> tuple[str, int]:
    """jitter NODE NODE TIME|0 [uniform|normal] [one-way]: vary a link's delay: jitter etcd1 s1 1ms
    uniform: by up to TIME either way; normal: with that standard deviation, cut at four of them. The delay must be
    as long as that reaches. With the link emulator frames keep their order, with netem they overtake each other."""
    if value in _DISTRIBUTIONS or distribution not in _DISTRIBUTIONS:
        raise _usage(_jitter)
    jitter, kind = (None, "") if value == "0" else (value, f" ({distribution})")
    return f"jitter {value}{kind}", net.set_jitter(*ends, jitter, distribution=distribution, **way)


@_of_link
def _rate(net: Any, ends: list[str], way: dict[str, bool], value: str) -> tuple[str, int]:
    """rate NODE NODE MBIT|unlimited [one-way]: change a link's bandwidth, in Mbit/s: rate etcd1 s1 100"""
    if value == "unlimited":
        return f"rate {value}", net.set_rate(*ends, None, **way)
    mbps = _number(value, "a number of Mbit/s such as 100, or unlimited")
    return f"rate {value} Mbit/s", net.set_rate(*ends, mbps, **way)


@_of_link
def _loss(net: Any, ends: list[str], way: dict[str, bool], value: str) -> tuple[str, int]:
    """loss NODE NODE PERCENT% [one-way]: drop a share of a link's frames: loss etcd1 s1 1%"""
    allowed = "a percentage from 0% to 100%, such as 1%"
    percent = _number(value.removesuffix("%"), allowed)
    if not value.endswith("%") or not 0 <= percent <= 100:
        raise UsageError(f"got {value!r}; allowed: {allowed}")
    return f"loss {value}", net.set_loss(*ends, float(percent / 100), **way)


@_of_link
def _queue(net: Any, ends: list[str], way: dict[str, bool], value: str) -> tuple[str, int]:
    """queue NODE NODE FRAMES|default [one-way]: a link's queue limit: queue etcd1 s1 100"""
    if value != "default" and not value.isdecimal():
        raise UsageError(f"got {value!r}; allowed: a number of frames such as 100, or default")
    frames, unit = (None, "") if value == "default" else (int(value), " frames")
    return f"queue {value}{unit}", net.change_link(*ends, **way, queue_frames=frames, queue_bytes=None)


@_of_link
def _trace(net: Any, ends: list[str], way: dict[str, bool], of: str, file: str = "") -> tuple[str, int]:
    """trace NODE NODE bandwidth|delay FILE [one-way], or off: a link follows a file: trace etcd1 s1 delay sat.csv"""
    match of, file:
        case "off", "":
            return "trace off", net.stop_trace(*ends)
        case "bandwidth" | "delay", path if path:
            return f"{of} follows {path}", net.start_trace(*ends, **{of: path}, **way)
    raise _usage(_trace)


_DISTRIBUTIONS = ("uniform", "normal")


def _number(text: str, allowed: str) -> Decimal:
    number = Decimal("nan")
    with suppress(InvalidOperation):
        number = Decimal(text)
    if not number.is_finite():
        raise UsageError(f"got {text!r}; allowed: {allowed}")
    return number


@timed
def _partition(net: Any, words: list[str]) -> tuple[str, int]:
    """partition HOST... | HOST... [| HOST...]: keep sets of hosts apart until heal: partition etcd1 | etcd2 etcd3
    A site or switch stands for the hosts at it, the client too: partition eu | us asia"""
    sets = [part.split() for part in " ".join(words).split("|")]
    if len(sets) < 2 or not all(sets):
        raise _usage(_partition)
    return f"parted: {' | '.join(map(' '.join, sets))}", net.partition(sets)


@timed
def _heal(net: Any, words: list[str]) -> tuple[str, int]:
    """heal: end the partition."""
    if words:
        raise _usage(_heal)
    return "healed", net.heal()


CHANGES: Mapping[str, Command] = {
    "link": _link,
    "delay": _delay,
    "jitter": _jitter,
    "rate": _rate,
    "loss": _loss,
    "queue": _queue,
    "trace": _trace,
    "partition": _partition,
    "heal": _heal,
}


_END_S = 10.0
_POLL_S = 0.02


class Crashes:
    """Crashes and restarts of the containers of a network without a cluster."""

    def __init__(self, net: Any) -> None:
        self.net = net

    @property
    def names(self) -> Sequence[str]:
        return [host.name for host in self.net.hosts if isinstance(host, Docker)]

    def leadership(self) -> Leadership | None:
        """The leader; ``None`` if no quorum agrees on one. Raises ``UsageError`` without a cluster."""
        raise UsageError("there is no cluster here that could have a leader")

    def kill(self, name: str) -> int:
        """Kill its first process; returns the time (monotonic, ns)."""
        at_ns: int = self.net[name].kill()
        return at_ns

    def freeze(self, name: str) -> int:
        """Stop its first process (SIGSTOP) and wait until the kernel reports it stopped; likewise."""
        at_ns: int = self.net[name].freeze()
        self.net[name].wait_frozen(True)
        return at_ns

    def thaw(self, name: str) -> int:
        """Continue its first process; likewise."""
        at_ns: int = self.net[name].thaw()
        self.net[name].wait_frozen(False)
        return at_ns

    def restart(self, names: Sequence[str]) -> str:
        """Restart these, killing those that run first; returns a description of the result."""
        self.end(names)
        for name in names:
            self.net[name].restart()
        return f"{' '.join(names)}: started again"

    def end(self, names: Sequence[str]) -> None:
        """Kill those that run, and return once they have ended."""
        for name in names:
            if self.net[name].alive:
                self.kill(name)
        deadline_s = clock.monotonic() + _END_S
        while running := [name for name in names if self.net[name].alive]:
            if clock.monotonic() > deadline_s:
                raise RunError(f"{' '.join(running)}: still running {_END_S:g} s after SIGKILL")
            clock.sleep(_POLL_S)

    def named(self, words: Sequence[str], command: Any) -> Sequence[str]:
        """The hosts that the words of a command name. Raises ``UsageError``."""
        if not words:
            raise _usage(command)
        known = self.names
        names = dict.fromkeys(self._leads() if word == "leader" and word not in known else word for word in words)
        for name in names:
            if name not in known:
                allowed = ", ".join(known) or "none: no host is a container"
                raise UsageError(f"{name!r} cannot be crashed; allowed: {allowed}{suggestion(name, known)}")
        return list(names)

    def _leads(self) -> str:
        if (found := self.leadership()) is None:
            raise RunError("no leader: no quorum of members agrees on one")
        return found.leader


def _each(name: str, done: str, does: str) -> Command:
    """A command that calls a method of ``Crashes`` for each host that is named."""

    def strike(crashes: Crashes, words: list[str]) -> tuple[str, int]:
        names = crashes.named(words, strike)
        return f"{' '.join(names)}: {done}", max([getattr(crashes, name)(one) for one in names])

    strike.__doc__ = f"{name} NAME...|leader: {does}: {name} etcd1"
    return timed(strike)


def _restart(crashes: Crashes, words: list[str]) -> str:
    """restart NAME...: restart members on their data, killing those that run first: restart etcd1"""
    return crashes.restart(crashes.named(words, _restart))


def _leader(crashes: Crashes, words: list[str]) -> str:
    """leader: show which member leads, and in which term."""
    if words:
        raise _usage(_leader)
    found = crashes.leadership()
    return f"{found.leader} leads, in term {found.term}" if found else "no leader: no quorum of members agrees on one"


CRASHES: Mapping[str, Command] = {
    "kill": _each("kill", "killed", "end a member's program at once (SIGKILL), as a crash would"),
    "restart": _restart,
    "freeze": _each("freeze", "frozen", "stop a member's program (SIGSTOP) until thaw"),
    "thaw": _each("thaw", "going on", "continue a frozen member's program"),
    "leader": _leader,
}


_SECONDS = 5.0
_SECONDS_MAX = 600.0


def _host(net: Any, name: str) -> Any:
    node = net.nameToNode.get(name)
    if not isinstance(node, Host):
        names = [host.name for host in net.hosts]
        raise UsageError(f"{name!r} is no host; hosts: {', '.join(names)}{suggestion(name, names)}")
    if not node.intfs:
        raise UsageError(f"{name} has no link")
    return node


def _seconds(text: str) -> float:
    value = 0.0
    with suppress(ValueError):
        value = float(text)
    if not 0 < value <= _SECONDS_MAX:
        raise UsageError(f"got {text!r}; allowed: more than 0 and up to {_SECONDS_MAX:.0f} seconds")
    return value


def iperf(net: Any, words: list[str]) -> str:
    """iperf [HOST HOST] [SECONDS]: the throughput of one TCP flow from the first to the second: iperf etcd1 etcd2 5
    Measured from outside: nothing has to be installed in the hosts, and their CPU limits do not apply."""
    seconds = _seconds(words.pop()) if len(words) in (1, 3) else _SECONDS
    names = words or [net.hosts[0].name, net.hosts[-1].name]
    if len(names) != 2 or names[0] == names[1]:
        raise _usage(iperf)
    one, two = (_host(net, name) for name in names)
    found = net.throughput(one, two, seconds)
    text = f"{_flow(found)} (TCP {found.congestion_control})"
    if net.dilation > 1:
        text += f"; in real time {_flow(slowed(found, net.dilation))}"
    return f"{one.name} -> {two.name}: {text}"


def _flow(found: Throughput) -> str:
    return f"{found.rate_bps / 1e6:.1f} Mbit/s over {found.length_s:.1f} s"


def capture(net: Any, words: list[str]) -> str:
    """capture HOST FILE.pcap [SECONDS]: record the frames of a host's interface: capture etcd1 etcd1.pcap 10
    Without SECONDS it continues until `capture stop`, or until the shell ends. `capture` alone lists the recordings.
    A file holds at most 256 MiB."""
    match words:
        case []:
            running = [f"{one.name}: {one.frames} frames so far in {one.path}" for one in net.captures]
            return "\n".join(running) or "nothing is recorded"
        case ["stop"]:
            return "\n".join(net.stop_captures()) or "nothing is recorded"
        case [name, file, *rest] if len(rest) <= 1:
            path, seconds = check_path(file), _seconds(rest[0]) if rest else None
            started = net.start_capture(_host(net, name), path)
            if seconds is None:
                return f"{name}: recording into {path}; `capture stop` ends it"
            try:
                with suppress(KeyboardInterrupt):  # the user has seen enough
                    started.wait(seconds)
            finally:
                ended = str(net.stop_capture(started))
            return ended
        case _:
            raise UsageError("usage: capture HOST FILE.pcap [SECONDS], capture stop, or capture")


def links(net: Any, words: list[str]) -> str:
    """links: every link, up or down, with the delay, jitter, rate, queue and loss in force."""
    if words:
        raise _usage(links)
    lines = [_describe_link(link, net.dilation) for link in net.links] or ["there are no links"]
    if net.parted:
        lines.append(f"partition: {' | '.join(' '.join(names) for names in net.parted)}; `heal` ends it")
    return "\n".join(lines)


def _describe_link(link: Any, dilation: int) -> str:
    held = emulated(link.read_back(), dilation)
    ends = f"{_end(link.intf1)} <-> {_end(link.intf2)}"
    seen = link.statistics()
    state = "up" if seen["up"] else "down"
    there, back = describe(held.a_to_b), describe(held.b_to_a)
    both = f"from {link.intf1.node.name}: {there}; from {link.intf2.node.name}: {back}"
    return f"{ends}  {state}  {f'both ways: {there}' if there == back else both}{_mtu(link, seen)}"


def _mtu(link: Any, seen: Mapping[str, Any]) -> str:
    """The MTU of hosts where it is not the usual one, and the frames that were lost because of it."""
    notes = [
        f"; mtu of {intf.node.name}: {size}"
        for intf in (link.intf1, link.intf2)
        if not isinstance(intf.node, Switch)
        and (size := getattr(getattr(intf, "held", None), "mtu_bytes", MTU_BYTES)) != MTU_BYTES
    ]
    if lost := sum(seen[side].get("drops", {}).get("oversize", 0) for side in ("a_to_b", "b_to_a")):
        notes.append(f"; {lost} frames lost that were longer than the MTU")
    return "".join(notes)


def _end(intf: Any) -> str:
    # The original Containernet's interfaces have no other name.
    alias: str = getattr(intf, "alias", f"{intf.node.name} ({intf.name})")
    return alias


def describe(direction: DirectionSpec) -> str:
    """A description of one direction, without its seed."""
    words = (f"{name} {text}" for name, text in direction.words.items() if name != "seed")
    return ", ".join(words) or "nothing is changed"


COMMANDS: Mapping[str, Command] = {
    **CHANGES,
    **CRASHES,
    "iperf": iperf,
    "capture": capture,
    "links": links,
}
"""Our own commands, beside Mininet's; their docstrings are their help."""


_HELP = """NODE COMMAND runs a command in a node; later names of nodes become addresses: etcd1 ping -c 3 etcd2
`help COMMAND` shows more; TAB completes commands and nodes."""


def show_on_standard_output() -> None:
    """Writes output of commands to standard output; Mininet would write it to standard error."""
    for handler in lg.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stdout)


class CommandLine(CLI):  # type: ignore[misc]
    """Mininet's command line under our name; making one opens it and returns when the user leaves.

    No command ends it: exceptions are printed on a line that begins with "***".
    """

    prompt = "containernet> "

    def __init__(self, net: Any, *args: Any, crashes: Crashes | None = None, **options: Any) -> None:
        self.crashes = crashes or Crashes(net)
        if net.dilation > 1:
            self.prompt = f"containernet (dilation {net.dilation})> "
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
        """Write a command's result to the common output, in order."""
        self.stdout.write(text)
        self.stdout.flush()

    def precmd(self, line: str) -> str:
        """Mininet would cut a line at its first "#", wherever that is."""
        return line

    def onecmd(self, line: str) -> bool:
        """See ``cmd.Cmd``: run one line; returns whether it was the last.

        A line that begins with a node's name and has more words runs there, even if a command has that name.
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
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - network and session continue
            self.fail(problem)
            return False

    def do_source(self, line: str) -> None:
        """source FILE: run the commands of a file, one per line."""
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
        hosts, hint = ", ".join(host.name for host in self.mn.hosts), suggestion(word, [*self.mn, *self.verbs()])
        raise UsageError(f"unknown command {word!r}: neither a host ({hosts}) nor a command, see `help`{hint}")

    def run_in(self, node: Any, command: str) -> None:
        """Run a command in a node and show its output until it ends."""
        node.sendCmd(command)
        self.waitForNode(node)

    def do_dump(self, _line: str) -> None:
        """dump: every node, with its interfaces by their Mininet names."""
        for node in self.mn.values():
            text = repr(node)
            for intf in node.intfList():
                text = text.replace(f"{intf.name}:", f"{intf}:")
            self._say(f"{text}\n")

    def do_sh(self, line: str) -> None:
        """sh COMMAND: run a command on this machine."""
        self.status = subprocess.run(["sh", "-c", line], check=False).returncode

    def do_pingall(self, line: str) -> None:
        """pingall [SECONDS]: ping between all hosts, waiting up to SECONDS for each answer."""
        self.status = 1 if self.mn.pingAll(line.strip() or None) else 0

    status = 0
    """The exit status of the last of the commands that have one."""

    def fail(self, problem: BaseException) -> None:
        error(f"*** {_describe(problem)}\n")

    def run(self) -> None:
        """See Mininet; recordings end with it."""
        super().run()
        for description in self.mn.stop_captures():
            output(f"{description}\n")

    def waitForNode(self, node: Any) -> None:
        """Show the output of a node's command until it ends; on a terminal, keys go to the command meanwhile.

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


def _command(carry_out: Command, of: str) -> Callable[[CommandLine, str], None]:
    def do(self: CommandLine, line: str) -> None:
        self._say(f"{carry_out(getattr(self, of), line.split())}\n")

    do.__doc__ = carry_out.__doc__
    return do


for _verb, _carry_out in COMMANDS.items():
    setattr(CommandLine, f"do_{_verb}", _command(_carry_out, "crashes" if _verb in CRASHES else "mn"))


class OneLine(CommandLine):
    """The same commands without the loop: ``onecmd`` runs a line, ``status`` is its exit status.

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
        if not hasattr(node, "run"):  # no container
            super().run_in(node, command)
            return
        self.status, text = node.run(command)
        self._say(text)

    def fail(self, problem: BaseException) -> None:
        if isinstance(problem, ContainernetEnvError):
            raise problem
        self._say(f"*** {_describe(problem)}\n")
        self.status = 1


def guard_stock_command_line(network: type) -> None:
    """Make Mininet's own ``CLI`` continue after a command that fails on such a network, and accept all node names.

    Scripts use it, and an exception would end them and the network: Mininet catches only Ctrl-C. ``SystemExit`` of a
    user's command is passed on. Mininet ends the first word of a line, the node's name, at its first "-" or ".".
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
    """Run one line on a network (`testbed_network.TestbedNetwork`); its exit status.

    A line that begins with a node's name runs there, in a Docker host with its own status; `sh CMD` runs on this
    machine; `pingall` fails on any lost packet; every other command has status 0 unless it
    fails. Raises UsageError for a word that is none of these, and the errors of our own commands; any
    other exception is printed, and the status is 1.
    """
    sys.stdout.flush()
    shell = OneLine(net, crashes)
    shell.onecmd(line)
    return shell.status
