"""What links do in real time on this machine: rates, round trips beside a flow, delays and lateness of the emulator."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from containernet_env.hosts import netns
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.model.link import DirectionSpec, LinkSpec, Uplink
from containernet_env.network.emulator import LinkEmulator
from containernet_env.network.factory import LinkFactory, Place
from containernet_env.network.gate import Gate, measure_gate
from containernet_env.network.measure import flowing
from tests.measure import figure
from tests.root.network import ADDRESSES, echoes, emulated, veth
from tests.unit.simulated import star_of

MS, MBIT = 10**6, 10**6
OUT_OF_REACH_MBPS = 100_000
_CHUNK = 256 * 1024
# The same algorithm wherever this runs: bbr, some machines' default, slows down every ten seconds.
_CUBIC = "cubic"


def _limited(mbps: int, uplink: Uplink | None = None) -> LinkSpec:
    direction = DirectionSpec(0, mbps * MBIT, uplink=uplink)
    return LinkSpec(direction, direction)


# --- one TCP flow between two network namespaces ----------------------------------------------------------------------


def goodput_bps(sender_pid: int, receiver_pid: int, address: str, *, warmup_s: float = 0.4, windows: int = 3) -> float:
    """The median over windows of 0.3 s of the bits of payload that arrive per second."""
    with flowing(sender_pid, receiver_pid, address, congestion_control=_CUBIC) as (receiver, _):
        _receive_for(receiver, warmup_s)
        return statistics.median(_receive_for(receiver, 0.3) for _ in range(windows))


def _receive_for(receiver: socket.socket, seconds: float) -> float:
    buffer = bytearray(_CHUNK)
    received = 0
    start = time.monotonic()
    while (elapsed := time.monotonic() - start) < seconds:
        received += receiver.recv_into(buffer)
    return received * 8 / elapsed


# --- figures ----------------------------------------------------------------------------------------------------------


@figure("HTB on a veth, one TCP flow", "Mbit/s")
def htb() -> Mapping[str, float]:
    found = {}
    for mbps in (100, 1000, 2500, OUT_OF_REACH_MBPS):
        with veth(_limited(mbps)) as (_, pids):
            found[f"at {mbps} Mbit/s"] = goodput_bps(*pids, ADDRESSES[1]) / MBIT
    return found


@figure("HTB on a veth, the other direction without a limit", "Mbit/s")
def other_direction() -> Mapping[str, float]:
    with veth(LinkSpec(a_to_b=_limited(100).a_to_b)) as (_, pids):
        there = goodput_bps(*pids, ADDRESSES[1]) / MBIT
        return {"100 Mbit/s there": there, "and back": goodput_bps(pids[1], pids[0], ADDRESSES[0]) / MBIT}


@figure("emulator, one TCP flow", "Mbit/s")
def emulator() -> Mapping[str, float]:
    found = {}
    for mbps in (10, 100, 1000):
        with emulated(_limited(mbps)) as (_, pids):
            found[f"at {mbps} Mbit/s"] = goodput_bps(*pids, ADDRESSES[1], warmup_s=1) / MBIT
    return found


@figure("emulator, echo of the host that sends a TCP flow, median", "ms")
def echo_beside_a_flow() -> Mapping[str, float]:
    found = {}
    for mbps in (10, 100):
        for uplink in ("host", "network"):
            with emulated(_limited(mbps, uplink)) as (_, pids):
                found[f"{mbps} Mbit/s, queue of the {uplink}"] = _beside_a_flow(pids)
    return found


def _beside_a_flow(pids: tuple[int, int]) -> float:
    beside = flowing(*pids, ADDRESSES[1], congestion_control=_CUBIC)
    with beside as (receiver, _), ThreadPoolExecutor(1) as other:
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                receiver.recv(1 << 18)

        reading = other.submit(read)
        try:
            time.sleep(1)
            return statistics.median(echoes(pids[0], ADDRESSES[1])) / MS
        finally:
            stop.set()
            reading.result()


@contextmanager
def star() -> Iterator[tuple[Callable[[], Gate], LinkEmulator]]:
    """What makes a gate over four plain namespaces at 1000 Mbit/s, without hosts or an engine, and their emulator."""
    topology, pids = star_of(*[LinkSpec.symmetric(3 * MS, 1000 * MBIT)] * 3, LinkSpec()), dict[str, int]()
    with ExitStack() as stack:
        factory = LinkFactory("emulator", "gt", None, lambda kind, text: None)
        stack.callback(factory.close)
        switch = Place("s1", factory.make_switch("s1"))
        for link in topology.links:
            pids[link.a] = stack.enter_context(ThrowawayNamespace()).pid
            # Unexpected frames (routers, neighbours) would draw losses, too.
            netns.call_in(pids[link.a], partial(Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text, "1"))
            factory.make_link(Place(link.a, pids[link.a], address=f"{topology.host(link.a).ip}/24"), switch, link.spec)
        yield lambda: measure_gate(topology, pids, links="emulator"), factory.emulator


@figure("emulator, a gate over four hosts at 1000 Mbit/s", "of its properties")
def gate() -> Mapping[str, float]:
    with star() as (make, _):
        proof = make().proof
    return {verdict: len(proof.of(verdict)) for verdict in ("proved", "unproved", "wrong")}


@figure("emulator, frames of a gate after their time", "us")
def lateness() -> Mapping[str, float]:
    with star() as (make, emulator_of_it):
        emulator_of_it.request("stats", reset=True)
        make()
        late = emulator_of_it.request("stats").result["lateness"]
    return {"median": late["p50_ns"] / 1e3, "99 %": late["p99_ns"] / 1e3, "most": late["max_ns"] / 1e3}
