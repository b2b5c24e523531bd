"""Mininet's own measurements, made from outside: nothing is run in a host, and no program's output is read.

Mininet parses what programs print. Without the program, or with another version or language of it, a working network
seemed to lose everything, and a script waited for ever. Measurements that need a program in a host are refused at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

from mininet.log import output

from containernet_env.base.errors import UsageError
from containernet_env.hosts.netns import ProcessGoneError
from containernet_env.network import echo, throughput

# What ping waits for the answer to its last request (MAXWAIT in iputils).
_ANSWER_S = 10.0
# Forms of iperf's rates; a small letter is bits.
_UNITS = {"k": 1e3, "m": 1e6, "g": 1e9, "K": 8 * 1024.0, "M": 8 * 1024.0**2, "G": 8 * 1024.0**3}

EchoFigures = tuple[int, int, float, float, float, float]
"""Mininet's: sent, received, and the least, mean, greatest and deviation of the RTT in ms."""


class Measurements:
    """What Mininet's networks can measure; nodes are given as nodes or names.

    All calls raise ``UsageError`` for what is not offered, and ``RunError`` where nothing could be measured.
    """

    if TYPE_CHECKING:
        hosts: list[Any]

        def _node(self, node: Any) -> Any: ...

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
        found: list[tuple[Any, Any, EchoFigures]] = []
        for node, other, rtt_ms in self._ping_each(hosts, timeout):
            found.append((node, other, (1, 0, 0, 0, 0, 0) if rtt_ms is None else (1, 1, rtt_ms, rtt_ms, rtt_ms, 0.0)))
        output("*** Results: \n")
        for node, other, (sent, received, *rtt) in found:
            times = "/".join(f"{value:.3f}" for value in rtt)
            output(f" {node.name}->{other.name}: {sent}/{received}, rtt min/avg/max/mdev {times} ms\n")
        return found

    def _ping_each(
        self, hosts: Iterable[Any] | None, timeout: Any, address: str | None = None
    ) -> list[tuple[Any, Any, float | None]]:
        """Who pinged whom, and the RTT in ms; ``None`` where nothing came back."""
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
        timeout_s, found = _seconds(timeout), []
        for node in nodes:
            output(f"{node.name} -> ")
            others = [(other, _address(other)) for other in nodes if other is not node and other.intfs]
            for other, target in [(None, address)] if address else others:
                rtt_ms = _ping_once(node, target, timeout_s)
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

        What arrived per second, twice, since Mininet has it from both ends: "94.9 Mbits/sec". ``fmt`` is iperf's: k, m
        or g for bits, K, M or G for bytes. The receiver listens on ``port``. UDP is refused.
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
        found = throughput.measure(client.pid, server.pid, _address(server), seconds, port)
        result = [format_rate(found.rate_bps, fmt)] * 2
        output(f"*** Results: {result}\n")
        return result

    def runCpuLimitTest(self, cpu: float, duration: int = 5) -> list[float]:
        """Refused: it loads hosts and reads cgroups that Mininet's hosts would have."""
        raise UsageError(
            "runCpuLimitTest is not offered: a container's limits() reads back from the kernel what CPU it may use"
        )


def _seconds(timeout: Any) -> float:
    try:
        seconds = float(timeout or _ANSWER_S)
    except (TypeError, ValueError):
        seconds = 0.0
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
        rtt_ns = echo.round_trip_ns(node.pid, target, timeout_s)
    except ProcessGoneError:
        return None
    return None if rtt_ns is None else rtt_ns / 1e6


def format_rate(bits_per_second: float, fmt: str | None = None) -> str:
    """A rate as iperf writes it, three digits: in the largest unit of bits that fits, or in that of ``fmt``."""
    unit = fmt or next((unit for unit in "gmk" if bits_per_second >= _UNITS[unit]), "")
    value = bits_per_second / _UNITS.get(unit, 1.0)
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit.upper()}{'Bytes' if unit.isupper() else 'bits'}/sec"
