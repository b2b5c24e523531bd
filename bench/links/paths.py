"""What is measured: the path host - switch - host by several implementations, and networks by the link emulator.

Hosts are network namespaces. wirefilter's TAPs have the same queue as the emulator's, and all ends have the same TCP
buffers, so that only the links differ.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from typing import Any, Literal

from bench.links import theory
from containernet_env.base.errors import RunError
from containernet_env.hosts import netns
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.model.link import DirectionSpec, Link, LinkSpec, queue_frames
from containernet_env.model.topology import Host as PlannedHost
from containernet_env.model.topology import Topology
from containernet_env.network.emulator import EmulatedLink, LinkEmulator
from containernet_env.network.interface import MTU_BYTES, Interface, SwitchPort
from containernet_env.network.kernel import VethLink

Kind = Literal["emulator", "offload", "wirefilter", "netem", "htb"]
"""``offload`` is the emulator with hosts that exchange several TCP segments with it at once."""
KINDS: tuple[Kind, ...] = ("emulator", "offload", "wirefilter", "netem", "htb")
TAP_QUEUE_FRAMES = 10_000
"""The queue of the emulator's TAPs (tx_queue_len in the reply to add_port)."""

# min, default and max in bytes: half of 16 MiB is a window that is enough for 5.6 Gbit/s at an RTT of 12 ms.
_TCP_BUFFERS = {"rmem": "4096 131072 16777216", "wmem": "4096 16384 16777216"}
_DEADLINE_S = 5.0
_POLL_S = 0.005

REGIONS = 5
_SWITCHES = (5, 12)
_DELAYS_NS = (100_000, 40_000_000)
_MORE_LINKS = 0.25
"""The share of pairs of switches with a link, beside those that connect all."""


def random_graph(seed: int) -> Topology:
    """Five hosts in a random graph of switches with loops and random delays, of each direction its own."""
    draws = Random(seed)
    switches = [f"s{number}" for number in range(1, draws.randint(*_SWITCHES) + 1)]
    ways = {(draws.choice(switches[:at]), switches[at]) for at in range(1, len(switches))}
    ways |= {pair for pair in combinations(switches, 2) if draws.random() < _MORE_LINKS}
    joined = {way: LinkSpec(*(DirectionSpec(draws.randint(*_DELAYS_NS)) for _ in range(2))) for way in sorted(ways)}
    return _network(draws.sample(switches, REGIONS), switches, joined, LinkSpec.symmetric(0))


def chain(count: int, spec: LinkSpec) -> Topology:
    """Two hosts with this many switches between them, and equal links; at a host's, ``a_to_b`` is from the host."""
    switches = [f"s{number}" for number in range(1, count + 1)]
    return _network([switches[0], switches[-1]], switches, dict.fromkeys(pairwise(switches), spec), spec)


def _network(homes: list[str], switches: list[str], joined: dict[tuple[str, str], LinkSpec], own: LinkSpec) -> Topology:
    """Hosts h1, h2 and so on, each by a link ``own`` at the switch of that place in ``homes``."""
    hosts = [PlannedHost(f"h{n}", "member", IPv4Address(f"10.9.0.{n}"), 24) for n in range(1, len(homes) + 1)]
    links = [Link(host.name, home, own) for host, home in zip(hosts, homes, strict=True)]
    links += [Link(a, b, spec) for (a, b), spec in joined.items()]
    return Topology(hosts, switches, links)


@dataclass(frozen=True, slots=True)
class Host:
    """One end: a process in its namespace, its interface and its addresses."""

    name: str
    pid: int
    interface: str
    address: str
    mac: str


class BenchPath:
    """Hosts and the network between them, here the kernel's: HTB, a bridge, and netem where there are delays.

    ``ends`` are the first two: in one-way measurements the first sends.
    """

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = hosts
        self.ends = (hosts[0], hosts[1])

    def processes(self) -> list[int]:
        """Ids of the processes that carry frames; empty where the kernel does."""
        return []

    def delivered(self) -> tuple[int, int]:
        """Frames that reached the second host since the path was created, and the CLOCK_MONOTONIC (ns) of the count."""
        host = self.hosts[1]
        output = netns.run(host.pid, ["ip", "-j", "-s", "link", "show", "dev", host.interface]).stdout
        return int(json.loads(output)[0]["stats64"]["rx"]["packets"]), time.monotonic_ns()

    def facts(self) -> dict[str, Any]:
        """The implementation's own counters; empty where it has none."""
        return {}

    def cpu_s(self) -> float:
        """Seconds of CPU time that ``processes`` have used."""
        # The clock of a process: MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED in linux/posix-timers.h.
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in self.processes())


class EmulatorPath(BenchPath):
    """By the project's link emulator, which counts the frames itself."""

    def __init__(self, hosts: Sequence[Host], emulator: LinkEmulator) -> None:
        super().__init__(hosts)
        self._emulator = emulator

    def processes(self) -> list[int]:
        """See ``BenchPath``."""
        pid = self._emulator.pid
        if pid is None:
            raise RunError("the link emulator has ended")
        return [pid]

    def delivered(self) -> tuple[int, int]:
        """See ``BenchPath``: the emulator's own counter."""
        port = self._emulator.request("stats").result["ports"][self.hosts[1].name]
        return int(port["sent_frames"]), time.monotonic_ns()

    def facts(self) -> dict[str, Any]:
        """Its statistics and its reply to ``hello``."""
        return {"hello": self._emulator.hello, "stats": self._emulator.request("stats").result}


class ProcessPath(BenchPath):
    """By the processes of vde2."""

    def __init__(self, hosts: Sequence[Host], started: list[subprocess.Popen[bytes]]) -> None:
        super().__init__(hosts)
        self._started = started

    def processes(self) -> list[int]:
        """See ``BenchPath``."""
        for process in self._started:
            if process.poll() is not None:
                raise RunError(f"{process.args!r} ended with status {process.returncode}")
        return [process.pid for process in self._started]


@contextmanager
def open_path(kind: Kind, spec: LinkSpec, directory: Path, binary: Path | None = None) -> Iterator[BenchPath]:
    """Create the path with ``spec`` on both links (``a`` is the host), up and with addresses; remove it on exit.

    ``directory`` is for the sockets of vde2. Raises ``RunError``.
    """
    with ExitStack() as stack:
        topology = chain(1, spec)
        hosts = _hosts(stack, topology)
        path: BenchPath
        if kind in ("emulator", "offload"):
            path = _emulator(stack, hosts, topology, binary, offload=kind == "offload")
        elif kind == "wirefilter":
            path = _wirefilter(stack, hosts, spec, directory)
        else:
            path = _kernel(stack, hosts, spec, hosts_shape=kind == "netem")
        _bring_up(hosts)
        yield path


@contextmanager
def open_network(topology: Topology, binary: Path | None = None) -> Iterator[BenchPath]:
    """Create a network by the link emulator; remove it on exit. Raises ``RunError``."""
    with ExitStack() as stack:
        hosts = _hosts(stack, topology)
        path = _emulator(stack, hosts, topology, binary)
        _bring_up(hosts)
        yield path


def _hosts(stack: ExitStack, topology: Topology) -> list[Host]:
    pids = [stack.enter_context(ThrowawayNamespace()).pid for _ in topology.hosts]
    hosts = [
        Host(host.name, pid, f"bench{number}", str(host.ip), f"02:00:00:00:09:{number:02x}")
        for number, (host, pid) in enumerate(zip(topology.hosts, pids, strict=True), 1)
    ]
    for host in hosts:
        for name, value in _TCP_BUFFERS.items():
            netns.run(host.pid, ["sysctl", "-qw", f"net.ipv4.tcp_{name}={value}"])
    return hosts


def _bring_up(hosts: Sequence[Host]) -> None:
    for host in hosts:
        device = host.interface
        netns.ip_batch(
            host.pid,
            [
                # No router solicitations or the like: they would be extra frames.
                f"link set dev {device} addrgenmode none",
                f"address add {host.address}/24 dev {device}",
                f"link set dev {device} up",
                *(
                    f"neighbour add {other.address} lladdr {other.mac} dev {device} nud permanent"
                    for other in hosts
                    if other is not host
                ),
            ],
        )


def _emulator(
    stack: ExitStack, hosts: Sequence[Host], topology: Topology, binary: Path | None, offload: bool = False
) -> BenchPath:
    emulator = LinkEmulator(binary, lambda _kind, _text: None, offload=offload)
    stack.callback(emulator.stop)
    emulator.start()
    for switch in topology.switches:
        emulator.request("add_switch", name=switch)
    by_name = {host.name: host for host in hosts}
    for planned in topology.links:
        ends = [
            Interface(host.pid, host.interface, host.mac, host.name)
            if (host := by_name.get(name)) is not None
            else SwitchPort(f"{name}-{other}", name)
            for name, other in ((planned.a, planned.b), (planned.b, planned.a))
        ]
        link = EmulatedLink(emulator, planned.name, (ends[0], ends[1]), planned.spec)
        link.make()
        link.apply(planned.spec)
    if topology.has_loop:
        emulator.request("routes", switches=topology.routes())
    return EmulatorPath(hosts, emulator)


def wirefilter_options(spec: LinkSpec) -> list[str]:
    """wirefilter's options for a symmetric link: ms, and bytes per second."""
    if spec.a_to_b != spec.b_to_a:
        raise ValueError(f"only links that are alike both ways are compared, got {spec}")
    direction = spec.a_to_b
    options = ["-d", f"{direction.delay_ns / 1e6:g}"]
    if direction.rate_bps is not None:
        queue_bytes = queue_frames(direction) * theory.FRAME_BYTES
        options += ["-b", str(direction.rate_bps // 8), "-c", str(queue_bytes)]
    return options


def _wirefilter(stack: ExitStack, hosts: Sequence[Host], spec: LinkSpec, directory: Path) -> BenchPath:
    """A vde_switch with a TAP in each host, one between them, and a wirefilter on each of the two links."""
    started: list[subprocess.Popen[bytes]] = []
    # Paths never share a socket, even if an old one could not be removed.
    prefix = directory / str(time.monotonic_ns())
    log = stack.enter_context(Path(f"{prefix}.log").open("wb"))  # noqa: SIM115 - the stack closes it

    def start(pid: int, *argv: str) -> None:
        # Each of them ends when its standard input closes, so none outlives this process.
        process = netns.call_in(
            pid,
            lambda: subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            ),
        )
        stack.callback(_end, process)
        started.append(process)

    between = stack.enter_context(ThrowawayNamespace())
    start(between.pid, "vde_switch", "-s", f"{prefix}.s1")
    for host in hosts:
        start(host.pid, "vde_switch", "-t", host.interface, "-s", f"{prefix}.{host.name}")
    for name in ("s1", *(host.name for host in hosts)):
        _wait_for(Path(f"{prefix}.{name}", "ctl"), started, Path(log.name))
    for host in hosts:
        start(between.pid, "wirefilter", "-v", f"{prefix}.{host.name}:{prefix}.s1", *wirefilter_options(spec))
        netns.ip_batch(
            host.pid,
            [f"link set dev {host.interface} address {host.mac} txqueuelen {TAP_QUEUE_FRAMES} mtu {MTU_BYTES}"],
        )
    return ProcessPath(hosts, started)


def _wait_for(path: Path, started: list[subprocess.Popen[bytes]], log: Path) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not path.exists():
        ended = next((process for process in started if process.poll() is not None), None)
        if ended is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip().splitlines()
            raise RunError(f"vde_switch did not come up: {said[-1] if said else 'no message'}")
        time.sleep(_POLL_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.terminate()
    try:
        process.wait(_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _kernel(stack: ExitStack, hosts: Sequence[Host], spec: LinkSpec, hosts_shape: bool) -> BenchPath:
    """A bridge in a namespace of its own, with a veth pair to each host.

    Without ``hosts_shape`` only the bridge's ends are shaped: a sender's own queue would lose no frames, because TCP
    waits for room in it.
    """
    if not hosts_shape:
        spec = LinkSpec(DirectionSpec(), spec.b_to_a)
    between = stack.enter_context(ThrowawayNamespace())
    netns.ip_batch(between.pid, ["link add name br0 type bridge stp_state 0 forward_delay 0", "link set dev br0 up"])
    for number, host in enumerate(hosts, 1):
        port = f"port{number}"
        there = Interface(between.pid, port, f"02:00:00:00:0a:0{number}")
        link = VethLink(f"{host.name}-s1", (Interface(host.pid, host.interface, host.mac), there), spec)
        link.make()
        stack.callback(link.clear)
        link.apply(spec)
        netns.ip_batch(between.pid, [f"link set dev {port} master br0", f"link set dev {port} up"])
    return BenchPath(hosts)
