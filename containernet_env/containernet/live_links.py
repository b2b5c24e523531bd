"""Changes of links while the network runs, partitions, and link statistics: a part of ``Containernet``.

Every change returns the moment on the monotonic clock (CLOCK_MONOTONIC, ns; Python's ``time.monotonic_ns``) at which it
took effect. With the link emulator that is one moment for everything a call changes, between two frames; with kernel
links, directions and hosts change within milliseconds of each other, and the moment is that of the last change.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv4Interface
from itertools import permutations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mininet.log import error, output
from mininet.node import Host, Switch

from containernet_env.base import clock
from containernet_env.base.errors import RunError, UsageError
from containernet_env.base.units import parse_bandwidth, parse_duration
from containernet_env.config.traces import RefusedTrace, read_trace
from containernet_env.containernet.docker import held_line, read_more
from containernet_env.containernet.links import NetworkLink
from containernet_env.hosts.netns import ProcessGoneError
from containernet_env.model.dilation import emulated, slowed
from containernet_env.model.hints import suggestion
from containernet_env.model.link import Distribution, IndependentLoss, Jitter, Loss
from containernet_env.model.trace import Traces
from containernet_env.network import measure
from containernet_env.network.interface import Interface, has_bridge, read_addresses, read_gateway
from containernet_env.network.link import Fabric
from containernet_env.network.measure import Capture, Throughput

# How long ping waits for the answer to its last request (MAXWAIT in iputils).
_ANSWER_S = 10.0
# Forms of iperf's rates; a small letter is bits.
_UNITS = {"k": 1e3, "m": 1e6, "g": 1e9, "K": 8 * 1024.0, "M": 8 * 1024.0**2, "G": 8 * 1024.0**3}

EchoFigures = tuple[int, int, float, float, float, float]
"""Mininet's: sent, received, and the least, mean, greatest and deviation of the RTT in ms."""


def _seconds(timeout: Any) -> float:
    seconds = 0.0
    with suppress(TypeError, ValueError):
        seconds = float(timeout or _ANSWER_S)
    if not seconds > 0:
        raise UsageError(f"ping: timeout={timeout!r}; allowed: a number of seconds above 0")
    return seconds


def _address(node: Any) -> str:
    if not (address := node.IP()):
        raise UsageError(f"{node.name} has no IPv4 address")
    return str(address)


def _ping_once(node: Any, target: str, timeout_s: float) -> float | None:
    if not getattr(node, "alive", True):
        return None
    try:
        rtt_ns = measure.round_trip_ns(node.pid, target, timeout_s)
    except ProcessGoneError:
        return None
    return None if rtt_ns is None else rtt_ns / 1e6


def _may_print(node: Any) -> bool:
    return node.stdout is not None and (node.waiting or (node.shell is not None and node.shell.poll() is None))


def format_rate(bits_per_second: float, fmt: str | None = None) -> str:
    """A rate as iperf writes it, three digits: in the largest unit of bits that fits, or in that of ``fmt``."""
    unit = fmt or next((unit for unit in "gmk" if bits_per_second >= _UNITS[unit]), "")
    value = bits_per_second / _UNITS.get(unit, 1.0)
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit.upper()}{'Bytes' if unit.isupper() else 'bits'}/sec"


@contextmanager
def _allowed(given: str) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError) as reason:
        raise UsageError(f"{given}; allowed: {reason}") from reason


class LiveLinks:
    """Changes and measurements of a network's links while it runs; nodes are given as nodes or names.

    All calls raise ``UsageError`` for a missing node or link, a value out of range or one that the link backend does
    not support, and ``RunError`` if the system fails or nothing can be measured.
    """

    if TYPE_CHECKING:
        links: list[Any]
        hosts: list[Any]
        nameToNode: dict[str, Any]
        fabric: Fabric
        links_kind: Any
        changing: Any  # a lock: of partitions, and of links that they concern

        def linksBetween(self, node1: Any, node2: Any) -> list[NetworkLink]: ...

    dilation = 1
    """How many times slower than real time the network runs; ``change_link`` and the measurements are in emulated
    time."""

    # --- one link ----------------------------------------------------------------------------------------------

    def link_between(self, node1: Any, node2: Any) -> NetworkLink:
        """The only link between two nodes."""
        between = self._between(node1, node2)
        if len(between) > 1:
            names = ", ".join(link.name for link in between)
            raise UsageError(f"there are {len(between)} links between {node1} and {node2}: {names}")
        return between[0]

    def change_link(self, node1: Any, node2: Any, *, one_way: bool = False, **values: Any) -> int:
        """Change fields of ``DirectionSpec`` in both directions, ``one_way``: only of what ``node1`` sends.

        Values not given stay unchanged.
        """
        link = self.link_between(node1, node2)
        from_first = "a_to_b" if link.intf1.node is self._node(node1) else "b_to_a"
        sides = [from_first] if one_way else ["a_to_b", "b_to_a"]
        return link.held.change_directions(dict.fromkeys(sides, slowed(values, self.dilation)), self.dilation)

    def set_delay(self, node1: Any, node2: Any, delay: str | int, *, one_way: bool = False) -> int:
        """Change the delay: text with a unit ("10ms"), or nanoseconds. See ``change_link``."""
        with _allowed(f"delay {delay!r}"):
            delay_ns = parse_duration(delay) if isinstance(delay, str) else delay
        return self.change_link(node1, node2, one_way=one_way, delay_ns=delay_ns)

    def set_rate(self, node1: Any, node2: Any, mbps: Any | None, *, one_way: bool = False) -> int:
        """Change the bandwidth: Mbit/s, ``None`` for unlimited. See ``change_link``."""
        with _allowed(f"rate {mbps!r}"):
            rate_bps = None if mbps is None else parse_bandwidth(mbps)
        return self.change_link(node1, node2, one_way=one_way, rate_bps=rate_bps)

    def set_loss(self, node1: Any, node2: Any, loss: float | Loss | None, *, one_way: bool = False) -> int:
        """Change the loss: a ratio (0 to 1) of frames, each by itself, or a loss model. See ``change_link``."""
        if isinstance(loss, (int, float)):
            with _allowed(f"loss {loss!r}"):
                loss = IndependentLoss(loss) if loss != 0 else None
        return self.change_link(node1, node2, one_way=one_way, loss=loss)

    def set_jitter(
        self,
        node1: Any,
        node2: Any,
        jitter: Jitter | str | None,
        *,
        distribution: Distribution = "uniform",
        one_way: bool = False,
    ) -> int:
        """Change the jitter; ``None`` is none. See ``change_link``.

        Text with a unit ("1ms") is of that distribution, and frames keep their order if the link backend supports that.
        """
        if isinstance(jitter, str):
            with _allowed(f"jitter {jitter!r}"):
                jitter = Jitter(distribution, parse_duration(jitter), reorder=self.links_kind != "emulator")
        return self.change_link(node1, node2, one_way=one_way, jitter=jitter)

    def start_trace(
        self,
        node1: Any,
        node2: Any,
        *,
        bandwidth: Path | str | None = None,
        delay: Path | str | None = None,
        repeat: str | None = None,
        one_way: bool = False,
    ) -> int:
        """Have a link follow files from now on, in place of those before; both of its directions begin together.

        The files are as in ``trace`` of topology files; CSV files start again after ``repeat``, a time such as "60s".
        Frames of hosts wait in the network then, not at the host. ``one_way``: as in ``change_link``.
        """
        link = self.link_between(node1, node2)
        if self.links_kind != "emulator":
            raise UsageError(f"traces: got links={self.links_kind!r}; allowed: links='emulator'")
        if bandwidth is None and delay is None:
            raise UsageError("traces: got none; allowed: bandwidth=PATH, delay=PATH or both")
        if bandwidth is not None and any(side.rate_bps is None for side in link.spec.sides):
            raise UsageError("a trace of the bandwidth: the link has none; allowed: one to return to, as by set_rate")
        with _allowed(f"repeat {repeat!r}"):
            repeat_ns = None if repeat is None else parse_duration(repeat)
        try:
            files = {"bandwidth": bandwidth, "delay": delay}
            traces = Traces(
                **{of: read_trace(Path(file), of, repeat_ns) for of, file in files.items() if file is not None}
            )
        except RefusedTrace as refused:
            raise UsageError(str(refused)) from refused
        values = {"trace": traces, **({} if bandwidth is None else {"uplink": "network"})}
        self.change_link(node1, node2, one_way=one_way, **values)
        return int(link.follow(clock.monotonic_ns()))

    def stop_trace(self, node1: Any, node2: Any) -> int:
        """End the traces of a link: its own delay and bandwidth hold again."""
        link = self.link_between(node1, node2)
        at_ns = int(link.follow(None)) if self.links_kind == "emulator" else clock.monotonic_ns()
        self.change_link(node1, node2, trace=None)
        return at_ns

    def link_down(self, node1: Any, node2: Any) -> int:
        """Pull the cables between two nodes: frames on them are lost; addresses and routes stay."""
        return self.set_link_up(node1, node2, False)

    def link_up(self, node1: Any, node2: Any) -> int:
        """Plug the cables between two nodes in again."""
        return self.set_link_up(node1, node2, True)

    def set_link_up(self, node1: Any, node2: Any, up: bool) -> int:
        """``link_up`` or ``link_down``; with several links between the nodes, the time of the last."""
        return max(link.set_up(up) for link in self._between(node1, node2))

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """``set_link_up`` for Mininet's CLI, which an exception would end: problems are printed, as Mininet does."""
        try:
            if status not in ("up", "down"):
                raise UsageError(f"a link is set up or down, got {status!r}")
            self.set_link_up(src, dst, status == "up")
        except (UsageError, RunError) as problem:
            error(f"*** {problem}\n")

    def _node(self, node: Any) -> Any:
        if not isinstance(node, str):
            return node
        if node not in self.nameToNode:
            raise UsageError(f"there is no node called {node!r}{suggestion(node, list(self.nameToNode))}")
        return self.nameToNode[node]

    def _between(self, node1: Any, node2: Any) -> list[NetworkLink]:
        between = self.linksBetween(self._node(node1), self._node(node2))
        if not between:
            raise UsageError(f"there is no link between {node1} and {node2}")
        return between

    # --- the whole network -------------------------------------------------------------------------------------

    parted: tuple[tuple[str, ...], ...] = ()
    """The sets of hosts that a partition keeps apart, by name."""

    def partition(self, sets: Sequence[Iterable[Any]]) -> int:
        """Keep hosts of different sets apart, in place of an earlier partition; hosts in no set reach all others.

        ``sets``: two or more, none empty, no host twice; a switch, such as that of a site, stands for all hosts that
        have a link to it. Frames are dropped on arrival at a host, so those under way
        between two sets are lost; links stay up and carry all traffic. Refused if a host in no
        set forwards between two, as a router or as a bridge.
        """
        groups = [[host for node in group for host in self._hosts_at(self._node(node))] for group in sets]
        if len(groups) < 2 or not all(groups):
            raise UsageError("a partition has two or more sets, each of one host or more")
        nodes = [node for group in groups for node in group]
        for node in nodes:
            if not isinstance(node, Host):
                raise UsageError(f"{node.name} is no host: a partition is between hosts")
            if nodes.count(node) > 1:
                raise UsageError(f"{node.name} is in the partition twice")
            if not self._ends_of(node):
                raise UsageError(f"{node.name} has no link")
        for one, other, between in forwarded(groups, self.hosts, self.links):
            if between not in [node.name for node in nodes]:
                raise UsageError(
                    f"{one.name} reaches {other.name} through {between}, which is in no set, so they would not be "
                    f"parted: add {between} to one of the sets"
                )
        with self.changing:
            at_ns = self.fabric.partition([[end for node in group for end in self._ends_of(node)] for group in groups])
            self.parted = tuple(tuple(node.name for node in group) for group in groups)
        return at_ns

    def heal(self) -> int:
        """End the partition; without one, nothing changes."""
        with self.changing:
            at_ns = self.fabric.heal()
            self.parted = ()
        return at_ns

    def _hosts_at(self, node: Any) -> list[Any]:
        """The hosts that have a link to a switch; any other node itself."""
        if not isinstance(node, Switch):
            return [node]
        ends = [(link.intf1.node, link.intf2.node) for link in self.links]
        return [*dict.fromkeys(host for two in ends if node in two for host in two if isinstance(host, Host))]

    def part_again(self) -> None:
        """Apply the partition to the current links of its hosts."""
        if self.parted:
            groups = [[end for name in names for end in self._ends_of(self.nameToNode[name])] for names in self.parted]
            if len(ends := [group for group in groups if group]) > 1:
                self.fabric.partition(ends)
            else:
                self.fabric.heal()

    def _ends_of(self, node: Any) -> list[Interface]:
        made = [link for link in self.links if link.held.made]
        ends = [link.end_of(intf) for link in made for intf in (link.intf1, link.intf2) if intf.node is node]
        return [end for end in ends if isinstance(end, Interface)]

    def write_names(self) -> None:
        """Write the names and current addresses of all hosts to /etc/hosts of every container."""
        addresses = {host.name: host.IP() for host in self.hosts if host.intfs and host.IP()}
        for host in self.hosts:
            if (container := getattr(host, "container", None)) is not None:
                container.write_names(addresses)

    # --- recordings --------------------------------------------------------------------------------------------

    _captures: tuple[Capture, ...] = ()

    @property
    def captures(self) -> tuple[Capture, ...]:
        return self._captures

    def start_capture(self, node: Any, path: Path | str) -> Capture:
        """Record the frames of a host's first interface into a pcap file, until it or the network is stopped."""
        host = self._node(node)
        for other in self._captures:
            if other.running and other.path.resolve() == Path(path).resolve():
                raise UsageError(f"{path} is being recorded into already, by {other.name}; choose another file")
        capture = Capture(host.name, host.pid, host.defaultIntf().name, Path(path))
        self._captures = (*self._captures, capture)
        return capture

    def stop_capture(self, capture: Capture) -> str:
        """End one recording; returns a description of it."""
        self._captures = tuple(other for other in self._captures if other is not capture)
        return capture.stop()

    def stop_captures(self) -> list[str]:
        """End all recordings; returns their descriptions."""
        return [self.stop_capture(capture) for capture in self._captures]

    # --- statistics --------------------------------------------------------------------------------------------

    def link_statistics(self, *, reset: bool = False, buckets: bool = False) -> dict[str, Any]:
        """Statistics of every link since the network came up; see ``Fabric.statistics``."""
        return self.fabric.statistics([link.held for link in self.links], reset=reset, buckets=buckets)

    # --- Mininet's measurements --------------------------------------------------------------------------------

    def ping(self, hosts: Any = None, timeout: Any = None, manualdestip: str | None = None) -> float:
        """Ping between all given hosts, or from each to one address; the share of lost packets in percent.

        ``timeout`` is in seconds, 10 unless given. A host that has ended answers nothing.
        """
        answered = [rtt_ms is not None for _, _, rtt_ms in self._ping_each(hosts, timeout, manualdestip)]
        if not answered:
            output("*** Warning: No packets sent\n")
            return 0.0
        lost_percent = 100.0 * answered.count(False) / len(answered)
        output(f"*** Results: {lost_percent:.0f}% dropped ({sum(answered)}/{len(answered)} received)\n")
        return lost_percent

    def pingFull(self, hosts: Any = None, timeout: Any = None) -> list[tuple[Any, Any, EchoFigures]]:
        """As ``ping``; who pinged whom, and the figures of that one packet, all 0 where it was lost."""
        found: list[tuple[Any, Any, EchoFigures]] = [
            (node, other, (1, 0, 0, 0, 0, 0) if rtt_ms is None else (1, 1, rtt_ms, rtt_ms, rtt_ms, 0.0))
            for node, other, rtt_ms in self._ping_each(hosts, timeout)
        ]
        output("*** Results: \n")
        for node, other, (sent, received, *rtt) in found:
            times = "/".join(f"{value:.3f}" for value in rtt)
            real = f" ({rtt[1] * self.dilation:.3f} ms in real time)" if self.dilation > 1 else ""
            output(f" {node.name}->{other.name}: {sent}/{received}, rtt min/avg/max/mdev {times} ms{real}\n")
        return found

    def _ping_each(
        self, hosts: Iterable[Any] | None, timeout: Any, address: str | None = None
    ) -> list[tuple[Any, Any, float | None]]:
        """Who pinged whom, and the RTT in ms; ``None`` where no answer arrived."""
        if address:
            try:
                IPv4Address(address)
            except ValueError as error:
                raise UsageError(
                    f"ping: manualdestip={address!r}; allowed: an IPv4 address, such as 10.0.0.2"
                ) from error
        if not hosts:
            output("*** Ping: testing ping reachability\n")
        nodes = [self._node(host) for host in hosts or self.hosts]
        timeout_s, found = _seconds(timeout) * self.dilation, []
        for node in nodes:
            output(f"{node.name} -> ")
            others = [(other, _address(other)) for other in nodes if other is not node and other.intfs]
            for other, target in [(None, address)] if address else others:
                rtt_ms = emulated(_ping_once(node, target, timeout_s), self.dilation, "_ms")
                found.append((node, other, rtt_ms))
                name = target if other is None else other.name
                output(f"{'X' if rtt_ms is None else name} ")
            output("\n")
        return found

    def iperf(
        self,
        hosts: Sequence[Any] | None = None,
        l4Type: str = "TCP",
        udpBw: Any = None,
        fmt: str | None = None,
        seconds: float = 5,
        port: int = 5001,
    ) -> list[str]:
        """One TCP flow from the first of two hosts (the first and the last unless given) to the other, at full speed.

        Returns the received rate twice ("94.9 Mbits/sec"), since Mininet returns one for each end. ``fmt`` is iperf's:
        k, m or g for bits, K, M or G for bytes. The receiver listens on ``port``. UDP is refused.
        """
        if l4Type != "TCP":
            raise UsageError(f"iperf by {l4Type} is not offered, only by TCP: run a program of your own in the hosts")
        if fmt is not None and fmt not in _UNITS:
            raise UsageError(f"iperf: fmt={fmt!r}; allowed: {', '.join(_UNITS)}")
        ends = [self._node(host) for host in hosts or (self.hosts[0], self.hosts[-1])]
        if len(ends) != 2:
            raise UsageError(f"iperf is between two hosts, not {len(ends)}")
        client, server = ends
        output(f"*** Iperf: testing TCP bandwidth between {client.name} and {server.name}\n")
        found = self.throughput(client, server, seconds, port)
        result = [format_rate(found.rate_bps, fmt)] * 2
        output(f"*** Results: {result}\n")
        return result

    def throughput(self, client: Any, server: Any, seconds: float, port: int = 0) -> Throughput:
        """One TCP flow between two hosts for so many seconds; see ``measure.measure``."""
        found = measure.measure(client.pid, server.pid, _address(server), seconds * self.dilation, port)
        return emulated(found, self.dilation)

    def monitor(
        self, hosts: Iterable[Any] | None = None, timeoutms: int | None = -1
    ) -> Iterator[tuple[Any, str | None]]:
        """What the shells of hosts (all unless given) print, line by line, as (host, line).

        With ``timeoutms`` of 0 or more it never ends, and is (None, None) whenever nothing came for that long.
        Otherwise it ends with the last of the commands that run; where none runs, it waits for background jobs, unless
        no host has a shell.
        """
        nodes = [self._node(host) for host in (self.hosts if hosts is None else hosts)]
        limit_ms = -1 if timeoutms is None else timeoutms
        sent = False
        while True:
            sent = sent or any(node.waiting for node in nodes)
            # Also what an earlier call has left.
            for node in nodes:
                while (line := held_line(node)) is not None:
                    yield node, line
            shells = {node.stdout.fileno(): node for node in nodes if _may_print(node)}
            if limit_ms < 0 and (not shells or (sent and not any(node.waiting for node in shells.values()))):
                return
            poller = select.poll()
            for descriptor in shells:
                # Not for writing, which a terminal always allows: Mininet's own ignores its time limit for that reason.
                poller.register(descriptor, select.POLLIN)
            ready = poller.poll(limit_ms)
            for descriptor, _ in ready:
                read_more(shells[descriptor])
            if not ready:
                yield None, None

    def runCpuLimitTest(self, cpu: float, duration: int = 5) -> list[float]:
        """Refused: it needs the cgroups of Mininet's own hosts."""
        raise UsageError(
            "runCpuLimitTest is not offered: a container's limits() reads back from the kernel what CPU it may use"
        )


def forwarded(
    groups: Sequence[Sequence[Any]], hosts: Sequence[Any], links: Sequence[Any]
) -> Iterator[tuple[Any, Any, str]]:
    """Hosts of different groups that reach each other through a third one, with its name, or address if it is no host.

    By the hosts' own routes, unless switches join the two and one shares all networks of the other, and by the bridges
    in hosts. Hosts that have ended have neither.
    """
    switched = _segments(links, lambda node: not isinstance(node, Host))
    pairs = [pair for one, other in permutations(groups, 2) for pair in product(one, other)]
    pairs = [pair for pair in pairs if not (_shared_network(*pair) and _joined(switched, pair))]
    if not pairs:
        return
    held: dict[Any, list[IPv4Interface]] = {}
    bridges: list[Any] = []
    parted = {node for group in groups for node in group}
    for host in hosts:
        with suppress(ProcessGoneError):
            held[host] = read_addresses(host.pid)
            if host not in parted and len(switched.get(host, ())) > 1 and has_bridge(host.pid):
                bridges.append(host)
    owners = {str(address.ip): host.name for host, addresses in held.items() for address in addresses}
    bridged = _segments(links, lambda node: not isinstance(node, Host) or node in bridges)
    for one, other in pairs:
        for address in held.get(other, ()):
            if one in held and (gateway := read_gateway(one.pid, str(address.ip))) is not None:
                yield one, other, owners.get(gateway, gateway)
        if _joined(bridged, (one, other)) and not _joined(switched, (one, other)):
            yield one, other, next(host.name for host in bridges if _joined(bridged, (one, host)))


def _segments(links: Sequence[Any], joins: Callable[[Any], bool]) -> dict[Any, set[int]]:
    """The segments, by number, that each node has links in: links that meet in a node that ``joins`` share theirs."""
    segment = [*range(len(links))]
    at: dict[Any, list[int]] = {}
    for number, link in enumerate(links):
        for intf in (link.intf1, link.intf2):
            at.setdefault(intf.node, []).append(number)
    for numbers in (numbers for node, numbers in at.items() if joins(node)):
        merged = {segment[number] for number in numbers}
        segment = [min(merged) if own in merged else own for own in segment]
    return {node: {segment[number] for number in numbers} for node, numbers in at.items()}


def _joined(segments: Mapping[Any, set[int]], pair: tuple[Any, Any]) -> bool:
    one, other = pair
    return bool(segments.get(one, set()) & segments.get(other, set()))


def _shared_network(one: Any, other: Any) -> bool:
    networks, others = (
        {IPv4Interface(f"{intf.ip}/{intf.prefixLen}").network for intf in host.intfs.values() if intf.ip}
        for host in (one, other)
    )
    return bool(others) and others <= networks
