"""Two namespaces and a link between them, made by hand: no hosts, no engine."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.hosts import netns
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.model.link import LinkSpec
from containernet_env.network.emulator import EmulatedLink, LinkEmulator, default_binary
from containernet_env.network.factory import kernel_has_netem
from containernet_env.network.interface import Interface
from containernet_env.network.kernel import VethLink
from containernet_env.network.link import ShapedLink
from containernet_env.network.measure import round_trip_ns
from containernet_env.network.switches import ovs_problem
from tests.deadline import HANG_S, eventually

if TYPE_CHECKING:
    from containernet_env.containernet.network import Containernet

ADDRESSES = ("10.9.0.1", "10.9.0.2")
INTERFACES = ("tst0e0", "tst0e1")
_TRY_S = 0.05
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2  # linux/in.h
MACS = ("02:00:00:00:09:01", "02:00:00:00:09:02")

# Set where the processor is emulated (the vm ring): what this machine does takes 20 times as long there, so that
# everything is late by milliseconds, and the link emulator, which keeps real time, cannot be judged.
COARSE = "CONTAINERNET_ENV_COARSE_TIMES" in os.environ


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not root")


def _emulator_problem() -> str | None:
    if COARSE:
        return "the link emulator needs a real processor"
    try:
        default_binary()
    except MissingRequirementError as error:
        return str(error)
    return None


needs_emulator = pytest.mark.skipif(_emulator_problem() is not None, reason=str(_emulator_problem()))


def has_netem() -> bool:
    """Whether links with a delay can be carried out by tc here; false where it cannot be found out."""
    with suppress(RunError, OSError):
        return os.geteuid() == 0 and kernel_has_netem()
    return False


def _ovs_problem() -> str | None:
    if os.geteuid() != 0:
        return "not root"
    return ovs_problem()


needs_ovs = pytest.mark.skipif(_ovs_problem() is not None, reason=f"no Open vSwitch: {_ovs_problem()}")

# What networks are made of: the emulator, or HTB and netem on each kind of switch.
NETWORKS = [pytest.param("emulator", marks=needs_emulator), "bridge", "ovs"]


def keywords_of(kind: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The keywords of ``Containernet`` for one of ``NETWORKS``; skips the test where there is no Open vSwitch."""
    if kind == "ovs" and (reason := _ovs_problem()) is not None:
        pytest.skip(f"no Open vSwitch: {reason}")
    # The kernel may have no netem: bandwidth alone is carried out by HTB all the same.
    links = "emulator" if kind == "emulator" else "netem"
    monkeypatch.setattr("containernet_env.containernet.network.choose", lambda asked: links)
    return {"links": links, "switches": "auto" if kind == "emulator" else kind}


PLAIN_HOSTS = [
    pytest.mark.root,
    needs_root,
    pytest.mark.skipif(not shutil.which("mnexec"), reason="mnexec is not installed"),
    # Mininet leaves its shells' files to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Marks of tests on networks of plain Mininet hosts."""


@contextmanager
def star(kind: str, monkeypatch: pytest.MonkeyPatch, hosts: int = 3, **link: Any) -> Iterator[Containernet]:
    """A network that runs: plain hosts h1, h2, ... on a switch s1. It leaves no interface."""
    before = machine_interfaces()
    keywords: Any = keywords_of(kind, monkeypatch)
    from containernet_env.containernet.network import Containernet  # others here run without Mininet

    with Containernet(controller=None, **keywords) as network:
        network.addSwitch("s1")
        for number in range(1, hosts + 1):
            network.addLink(network.addHost(f"h{number}"), "s1", **link)
        network.start()
        yield network
    assert machine_interfaces() == before


@contextmanager
def namespaces() -> Iterator[tuple[int, int]]:
    """Two fresh network namespaces, as processes that are in them."""
    with ThrowawayNamespace() as one, ThrowawayNamespace() as two:
        yield one.pid, two.pid


def ends_in(pids: tuple[int, int]) -> tuple[Interface, Interface]:
    """The ends of a link between two namespaces."""
    one, two = (Interface(*end) for end in zip(pids, INTERFACES, MACS, strict=True))
    return one, two


def bring_up(pids: tuple[int, int]) -> None:
    """Addresses on both ends."""
    for pid, interface, address in zip(pids, INTERFACES, ADDRESSES, strict=True):
        netns.ip_batch(pid, [f"address add {address}/24 dev {interface}", f"link set dev {interface} up"])


@contextmanager
def veth(spec: LinkSpec) -> Iterator[tuple[VethLink, tuple[int, int]]]:
    """A link by HTB and netem, up and with addresses."""
    with namespaces() as pids:
        link = VethLink("test", ends_in(pids), spec)
        link.make()
        link.apply(spec)
        bring_up(pids)
        yield link, pids
        link.clear()


@contextmanager
def emulated(spec: LinkSpec) -> Iterator[tuple[EmulatedLink, tuple[int, int]]]:
    """A link inside the link emulator, up and with addresses."""
    emulator = LinkEmulator(None, lambda kind, text: None)
    with namespaces() as pids:
        try:
            emulator.start()
            link = EmulatedLink(emulator, "test", ends_in(pids), spec)
            link.make()
            link.apply(spec)
            bring_up(pids)
            yield link, pids
            link.clear()
        finally:
            emulator.stop()


# How a test of the contract of links makes one.
Maker = Callable[[LinkSpec], AbstractContextManager[tuple[ShapedLink, tuple[int, int]]]]
EMULATOR = pytest.param(emulated, id="emulator", marks=needs_emulator)
HTB = pytest.param(veth, id="tc")
NETEM = pytest.param(veth, id="netem", marks=pytest.mark.skipif(not has_netem(), reason="this kernel has no netem"))


def interfaces_of(pid: int) -> set[str]:
    """The names of the interfaces in a namespace."""
    output = netns.run(pid, ["ip", "-o", "link"]).stdout
    return {line.split(":")[1].strip().split("@")[0] for line in output.splitlines()}


def machine_interfaces() -> set[str]:
    """The names of the machine's own interfaces."""
    return {entry.name for entry in Path("/sys/class/net").iterdir()}


def answers(sender_pid: int, receiver_pid: int, address: str, payload: bytes = b"ask") -> bool:
    """True once a datagram from one namespace has reached ``address`` in the other, and its answer has come back.

    Each is one frame.
    """
    with datagrams(sender_pid, receiver_pid, address, _TRY_S) as (here, there):
        for side in (here, there):
            side.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        return eventually(lambda: _answered(here, there, payload), f"an answer of {address}")


def silent(sender_pid: int, receiver_pid: int, address: str) -> bool:
    """Whether none of ten datagrams is answered, each in ``_TRY_S``: links of a few ms would carry them all."""
    with datagrams(sender_pid, receiver_pid, address, _TRY_S) as (here, there):
        return not any(_answered(here, there) for _ in range(10))


def reach(*hosts: Any) -> bool:
    """Whether every two of the hosts reach each other."""
    return all(answers(a.pid, b.pid, b.IP()) for a, b in combinations(hosts, 2))


def apart(one: Any, other: Any) -> bool:
    """Whether no datagram comes from one host to the other and back."""
    return silent(one.pid, other.pid, other.IP())


def echoes(pid: int, address: str, count: int = 25) -> list[int]:
    """How long each of so many echo requests to an address took that was answered, ns."""
    return [ns for _ in range(count) if (ns := round_trip_ns(pid, address, HANG_S)) is not None]


def check_not_early(pid: int, address: str, propagation_ns: int) -> None:
    """Echo requests are answered, and none sooner than the delays of the links there and back."""
    samples_ns = echoes(pid, address, 5)
    assert samples_ns and min(samples_ns) >= propagation_ns, samples_ns


@contextmanager
def datagrams(
    sender_pid: int, receiver_pid: int, address: str = ADDRESSES[1], timeout_s: float | None = None
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets for datagrams from one namespace to ``address`` in another, the sender's first."""
    with (
        netns.socket_in(receiver_pid, socket.AF_INET, socket.SOCK_DGRAM) as there,
        netns.socket_in(sender_pid, socket.AF_INET, socket.SOCK_DGRAM) as here,
    ):
        there.bind((address, 0))
        here.connect(there.getsockname())
        for side in (here, there):
            side.settimeout(timeout_s)
        yield here, there


def _answered(here: socket.socket, there: socket.socket, payload: bytes = b"ask") -> bool:
    with suppress(OSError):  # no route yet, or lost
        here.send(payload)
        received, asker = there.recvfrom(65_535)
        there.sendto(received, asker)
        return here.recv(65_535) == payload
    return False
