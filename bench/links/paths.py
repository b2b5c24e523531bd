"""The path host - switch - host with a link on each side, by several implementations; nothing else uses it.

And any network of hosts and switches by the link emulator. Hosts are network namespaces. wirefilter's TAPs have the
same queue as the emulator's, and all ends have the same TCP buffers, so that only the links differ.
"""

from __future__ import annotations

import json
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.links import regions, theory
from containernet_env.base.errors import RunError
from containernet_env.hosts import netns
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.model.link import DirectionSpec, LinkSpec, queue_frames
from containernet_env.model.topology import Topology
from containernet_env.network.emulator import EmulatedLink, LinkEmulator
from containernet_env.network.interface import MTU_BYTES, Interface, SwitchPort
from containernet_env.network.kernel import VethLink

Kind = Literal["emulator", "wirefilter", "netem", "htb"]
KINDS: tuple[Kind, ...] = ("emulator", "wirefilter", "netem", "htb")
TAP_QUEUE_FRAMES = 10_000
"""The queue of the emulator's TAPs (tx_queue_len in the reply to add_port)."""

# min, default and max in bytes: half of 16 MiB is a window that is enough for 5.6 Gbit/s at an RTT of 12 ms.
_TCP_BUFFERS = {"rmem": "4096 131072 16777216", "wmem": "4096 16384 16777216"}
_DEADLINE_S = 5.0
_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Host:
    """One end: a process in its namespace, its interface and its addresses."""

    name: str
    pid: int
    interface: str
    address: str
    mac: str


class BenchPath(ABC):
    """Hosts and the network between them. ``ends`` are the first two: in one-way measurements the first sends."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = hosts
        self.ends = (hosts[0], hosts[1])

    @abstractmethod
    def processes(self) -> list[int]:
        """Ids of the processes that carry frames; empty where the kernel does."""

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


class KernelPath(BenchPath):
    """By the kernel: HTB, a bridge, and netem where there are delays."""

    def processes(self) -> list[int]:
        """See ``BenchPath``."""
        return []


@contextmanager
def open_path(kind: Kind, spec: LinkSpec, directory: Path, binary: Path | None = None) -> Iterator[BenchPath]:
    """Create the path with ``spec`` on both links (``a`` is the host), up and with addresses; remove it on exit.

    ``directory`` is for the sockets of vde2. Raises ``RunError``.
    """
    with ExitStack() as stack:
        hosts = _hosts(stack, 2)
        path: BenchPath
        if kind == "emulator":
            path = _emulator(stack, hosts, regions.network(["s1", "s1"], ["s1"], {}, spec), binary)
        elif kind == "wirefilter":
            path = _wirefilter(stack, hosts, spec, directory)
        else:
            path = _kernel(stack, hosts, spec, hosts_shape=kind == "netem")
        _bring_up(hosts)
        yield path


@contextmanager
def open_network(topology: Topology, binary: Path | None = None) -> Iterator[BenchPath]:
    """Create a network by the link emulator, its hosts being called h1, h2 and so on; remove it on exit."""
    with ExitStack() as stack:
        hosts = _hosts(stack, len(topology.hosts))
        path = _emulator(stack, hosts, topology, binary)
        _bring_up(hosts)
        yield path


def _hosts(stack: ExitStack, count: int) -> list[Host]:
    pids = [stack.enter_context(ThrowawayNamespace()).pid for _ in range(count)]
    hosts = [
        Host(f"h{number}", pid, f"bench{number}", f"10.9.0.{number}", f"02:00:00:00:09:{number:02x}")
        for number, pid in enumerate(pids, 1)
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


def _emulator(stack: ExitStack, hosts: Sequence[Host], topology: Topology, binary: Path | None) -> BenchPath:
    emulator = LinkEmulator(binary, lambda _kind, _text: None)
    stack.callback(emulator.stop)
    emulator.start()
    for switch in topology.switches:
        emulator.request("add_switch", name=switch.name)
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
    return KernelPath(hosts)
