"""What links do in real time on this machine: rates, round trips beside a flow, delays and lateness of the emulator."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from containernet_env.fidelity.rtt import ProbeHost, measure
from containernet_env.model.link import DirectionSpec, LinkSpec, Uplink
from containernet_env.model.topology import RttExpectation
from tests.measure import figure
from tests.measure.pump import flowing, goodput_bps
from tests.root.gate_star import star, star_of
from tests.root.network import ADDRESSES, emulated, veth

MS, MBIT = 10**6, 10**6
OUT_OF_REACH_MBPS = 100_000


def _limited(mbps: int, uplink: Uplink | None = None) -> LinkSpec:
    direction = DirectionSpec(0, mbps * MBIT, uplink=uplink)
    return LinkSpec(direction, direction)


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
            with emulated(_limited(mbps, uplink)) as (_, pids):  # type: ignore[arg-type]
                found[f"{mbps} Mbit/s, queue of the {uplink}"] = _beside_a_flow(pids)
    return found


def _beside_a_flow(pids: tuple[int, int]) -> float:
    hosts = [ProbeHost(name, pid, ip) for name, pid, ip in zip("ab", pids, ADDRESSES, strict=True)]
    with flowing(*pids, ADDRESSES[1]) as receiver, ThreadPoolExecutor(1) as other:
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                receiver.recv(1 << 18)

        reading = other.submit(read)
        try:
            time.sleep(1)
            return statistics.median(measure(hosts, [RttExpectation("a", "b", 0, 0)]).pairs[0].samples_ns) / MS
        finally:
            stop.set()
            reading.result()


@figure("emulator, a gate over four hosts at 1000 Mbit/s", "of its properties")
def gate() -> Mapping[str, float]:
    with star(star_of(*[LinkSpec.symmetric(3 * MS, 1000 * MBIT)] * 3, LinkSpec())) as made:
        proof = made.gate().proof
    return {verdict: len(proof.of(verdict)) for verdict in ("proved", "unproved", "wrong")}


@figure("emulator, frames of a gate after their time", "us")
def lateness() -> Mapping[str, float]:
    with star(star_of(*[LinkSpec.symmetric(3 * MS, 1000 * MBIT)] * 3, LinkSpec())) as made:
        made.emulator.ask("stats", reset=True)
        made.gate()
        late = made.emulator.ask("stats").result["lateness"]
    return {"median": late["p50_ns"] / 1e3, "99 %": late["p99_ns"] / 1e3, "most": late["max_ns"] / 1e3}
