"""The measurements: each creates and removes its own path and returns JSON values with every sample."""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.links import flows, theory
from bench.links.durations import Durations
from bench.links.frames import FrameSender
from bench.links.paths import BenchPath, Host, Kind, chain, open_network, open_path, random_graph
from bench.links.summary import datagram_rate_bps, summarize_rtt
from containernet_env.base.errors import RunError
from containernet_env.model.link import DirectionSpec, LinkSpec, Uplink
from containernet_env.model.topology import PROBE_FRAME_BYTES
from containernet_env.network.emulator import default_binary

DELAYS_NS = (100_000, 1_000_000, 3_000_000, 10_000_000, 50_000_000, 100_000_000)
LOADED_DELAYS_NS = (100_000, 3_000_000, 50_000_000)
RATES_BPS = (1_000_000, 10_000_000, 100_000_000, 500_000_000, 1_000_000_000)
FAST_RATES_BPS = (2_500_000_000, 10_000_000_000)
FAST_DELAY_NS = 1_000_000
"""Of links of ``FAST_RATES_BPS``: with more, TCP's buffers would be the limit."""
OVERHEAD_BYTES = 24
"""Preamble, checksum and gap of an Ethernet frame; measured at the highest of ``RATES_BPS``."""

BESIDE_RATES_BPS = (10_000_000, 100_000_000, 1_000_000_000)
UPLINKS: tuple[Uplink, ...] = ("host", "network")
UDP_RATE_BPS = BOTH_WAYS_RATE_BPS = 100_000_000
LINK_DELAY_NS = 3_000_000
"""Delay of the links whose bandwidth, frame rate and cost are measured."""

HOP_DELAY_NS = 1_000_000
"""Delay of each link of the chains whose cost is measured."""
SMALL_FRAME_BYTES = 64
COST_PPS = 20_000
LOAD_PPS = 5_000
_UDP_WARMUP_S = 0.5
_DRAIN_S = 0.3
_SETUP_S = 0.8
_ECHO_INTERVAL_MS, _ECHO_TIMEOUT_MS = 10, 5000


@dataclass(frozen=True, slots=True)
class Point:
    """One point to measure over one kind of path. ``needs_s`` is an estimate of its duration, set-up included."""

    table: str
    kind: Kind
    needs_s: float
    delay_ns: int = LINK_DELAY_NS
    rate_bps: int | None = None
    loaded: bool = False
    protocol: str = ""
    pattern: str = ""
    overhead_bytes: int = 0
    uplink: Uplink | None = None
    seed: int = 0
    switches: int = 1

    def label(self) -> str:
        """The point, on one line."""
        delay = "" if self.table == "regions" else f"{self.delay_ns / 1e6:g} ms"
        words = [self.table, self.kind, delay, self.protocol, self.pattern, self.uplink or ""]
        words += [f"graph {self.seed}"] if self.table == "regions" else []
        words += [f"{self.switches} switches"] if self.table == "hops" else []
        words.append(f"overhead {self.overhead_bytes}" if self.overhead_bytes else "")
        if self.table in ("bandwidth", "beside"):
            words.append("unlimited" if self.rate_bps is None else f"{self.rate_bps / 1e6:g} Mbit/s")
        if self.loaded:
            words.append("under load")
        return ", ".join(word for word in words if word)

    def spec(self) -> LinkSpec:
        """Each of the two links."""
        direction = DirectionSpec(self.delay_ns, self.rate_bps, overhead_bytes=self.overhead_bytes, uplink=self.uplink)
        return LinkSpec(direction, replace(direction, uplink=None))


def points(kinds: list[Kind], durations: Durations) -> list[Point]:
    """All points in order: one point over every kind before the next point.

    ``htb`` is there for TCP both ways only: as a reference for what two flows make of a full queue; ``offload`` for TCP
    only, which it changes, and fast links for it and the emulator.
    """
    plan = []
    all_kinds, kinds = kinds, [kind for kind in kinds if kind not in ("htb", "offload")]
    echo_s = _ECHO_INTERVAL_MS / 1000
    loaded_delays = (LINK_DELAY_NS,) if durations.is_quick else LOADED_DELAYS_NS
    both_ways = () if durations.is_quick else (BOTH_WAYS_RATE_BPS,)
    for delays, loaded, probes in (
        (DELAYS_NS, False, durations.probes),
        (loaded_delays, True, durations.loaded_probes),
    ):
        for delay in delays:
            needs = _SETUP_S + probes * echo_s + 3 * theory.rtt_ns(delay) / 1e9
            plan += [Point("accuracy", kind, needs, delay, loaded=loaded) for kind in kinds]
    for protocol, rates in (("tcp", (*RATES_BPS, *FAST_RATES_BPS, None)), ("tcp both ways", both_ways)):
        for rate in rates:
            for kind in all_kinds:
                fast = rate in FAST_RATES_BPS
                if (kind == "htb" and protocol == "tcp") or (fast and kind not in ("emulator", "offload")):
                    continue
                delay = 0 if kind == "htb" else FAST_DELAY_NS if fast else LINK_DELAY_NS
                seconds, repetitions = _tcp_times(kind, rate, durations)
                needs = repetitions * (durations.tcp_warmup_s + seconds + _SETUP_S)
                plan.append(Point("bandwidth", kind, needs, delay, rate_bps=rate, protocol=protocol))
    if "emulator" in kinds and not durations.is_quick:
        seconds, repetitions = durations.tcp(True, RATES_BPS[-1])
        needs = repetitions * (durations.tcp_warmup_s + seconds + _SETUP_S)
        overhead = Point("bandwidth", "emulator", needs, rate_bps=RATES_BPS[-1], protocol="tcp")
        plan.append(replace(overhead, overhead_bytes=OVERHEAD_BYTES))
    needs = _SETUP_S + durations.tcp_warmup_s + durations.loaded_probes * echo_s + _DRAIN_S
    for rate in BESIDE_RATES_BPS if "emulator" in kinds else ():
        plan += [Point("beside", "emulator", needs, 0, rate, uplink=uplink) for uplink in UPLINKS]
    needs = _SETUP_S + _UDP_WARMUP_S + durations.udp_s
    plan += [Point("bandwidth", kind, needs, rate_bps=UDP_RATE_BPS, protocol="udp") for kind in kinds]
    plan += [Point("frames", kind, _SETUP_S + durations.frames_s) for kind in kinds]
    for pattern in ("bursts", "even"):
        needs = _SETUP_S + durations.cost_s
        # The kernel's work for netem is in no process's CPU time.
        plan += [Point("cost", kind, needs, pattern=pattern) for kind in kinds if kind != "netem"]
        for switches in durations.hops if "emulator" in kinds else ():
            plan.append(Point("hops", "emulator", needs, HOP_DELAY_NS, pattern=pattern, switches=switches))
    for seed in range(durations.graphs) if "emulator" in kinds else ():
        needs = 3 * _SETUP_S + durations.graph_probes * echo_s
        plan.append(Point("regions", "emulator", needs, seed=seed))
    return plan


def _tcp_times(kind: Kind, rate_bps: int | None, durations: Durations) -> tuple[float, int]:
    """Seconds after the warm-up, and repetitions, of one flow; fast links are measured as briefly as peers."""
    return durations.tcp(kind in ("emulator", "htb") and rate_bps not in FAST_RATES_BPS, rate_bps)


def run(point: Point, durations: Durations, directory: Path, binary: Path | None) -> dict[str, Any]:
    """Measure one point. Raises ``RunError``."""
    do = {"accuracy": _accuracy, "bandwidth": _bandwidth, "beside": _beside, "frames": _frames, "cost": _cost}
    do |= {"hops": _hops, "regions": _regions}
    return {**asdict(point), **do[point.table](point, durations, directory, binary)}


def _echoes(hosts: Sequence[Host], probes: int, binary: Path | None) -> list[dict[str, Any]]:
    """Echo requests between any two hosts by `link-emulator rtt`: how many were ``sent`` and ``lost``,
    ``samples_ns``."""
    request = {
        "hosts": [{"name": host.name, "pid": host.pid, "ip": host.address} for host in hosts],
        "probes": probes,
        "answers": 5,
        "warmup": 3,
        "interval_ms": _ECHO_INTERVAL_MS,
        "payload_bytes": 56,
        "timeout_ms": _ECHO_TIMEOUT_MS,
    }
    limit_s = 10 + (3 * _ECHO_TIMEOUT_MS + probes * _ECHO_INTERVAL_MS) / 1000
    done = subprocess.run(
        [binary or default_binary(), "rtt"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    if done.returncode != 0:
        raise RunError(f"the RTT measurement failed: {done.stderr.strip()}")
    return [{**pair, "samples_ns": pair["samples_ns"] or []} for pair in json.loads(done.stdout)["pairs"]]


def _accuracy(point: Point, durations: Durations, directory: Path, binary: Path | None) -> dict[str, Any]:
    asked = theory.rtt_ns(point.delay_ns)
    probes = durations.loaded_probes if point.loaded else durations.probes
    with open_path(point.kind, LinkSpec.symmetric(point.delay_ns), directory, binary) as path:
        with _load(path, point.loaded):
            (pair,) = _echoes(path.hosts, probes, binary)
        facts = path.facts()
    return {**_summary(asked, pair), "facts": facts}


def _summary(asked_ns: int, pair: dict[str, Any]) -> dict[str, Any]:
    """The round trips of a pair of hosts. Raises RunError where nothing was answered."""
    if (summary := summarize_rtt(asked_ns, pair["samples_ns"])) is None:
        raise RunError(f"none of {pair['sent']} echoes between {pair['a']} and {pair['b']} was answered")
    return {**asdict(summary), **{name: pair[name] for name in ("sent", "lost", "samples_ns")}}


@contextmanager
def _load(path: BenchPath, wanted: bool) -> Iterator[None]:
    """Send full frames from the first host to the second, five every millisecond, while the block runs."""
    if not wanted:
        yield
        return
    stop = threading.Event()
    failure: list[Exception] = []

    def work() -> None:
        try:
            while not stop.is_set():
                sender.pace(0.1, 0.001, LOAD_PPS // 1000)
        except OSError as error:
            failure.append(error)

    with FrameSender(*path.ends, theory.FRAME_BYTES) as sender:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
    if failure:
        raise RunError(str(failure[0]))


def _bandwidth(point: Point, durations: Durations, directory: Path, binary: Path | None) -> dict[str, Any]:
    # A new path per repetition: no flow meets the queue of an earlier one.
    seconds, repetitions = _tcp_times(point.kind, point.rate_bps, durations)
    if point.protocol == "udp":
        repetitions = 1
    runs: list[dict[str, Any]] = []
    for _ in range(repetitions):
        with open_path(point.kind, point.spec(), directory, binary) as path:
            first, second = path.ends
            if point.protocol == "udp":
                assert point.rate_bps is not None
                offered = theory.offered_pps(point.rate_bps)
                stamps = flows.udp(first, second, offered, _UDP_WARMUP_S, durations.udp_s)
                rate = datagram_rate_bps(stamps, theory.DATAGRAM_BYTES)
                if rate is None:
                    raise RunError("fewer than two datagrams arrived")
                runs.append({"goodput_bps": rate, "datagrams": len(stamps), "offered_pps": offered})
                continue
            directions = [(first, second), (second, first)][: 2 if point.protocol == "tcp both ways" else 1]
            began_s, cpu_s = time.monotonic(), path.cpu_s()
            results = flows.tcp(directions, durations.tcp_warmup_s, seconds)
            core_ratio = (path.cpu_s() - cpu_s) / (time.monotonic() - began_s)
            runs.append(
                {
                    # Both ways: the mean of the directions.
                    "goodput_bps": sum(result.goodput_bps for result in results) / len(results),
                    "retransmissions": sum(result.retransmissions for result in results),
                    "flows": [asdict(result) for result in results],
                    "core_ratio": core_ratio if path.processes() else None,
                }
            )
    return {"theory_bps": _theory_bps(point), "runs": runs}


def _theory_bps(point: Point) -> float | None:
    if point.rate_bps is None:
        return None
    if point.protocol == "udp":
        return theory.udp_goodput_bps(point.rate_bps)
    both_ways = point.protocol == "tcp both ways"
    return theory.tcp_goodput_bps(point.rate_bps, both_ways=both_ways, overhead_bytes=point.overhead_bytes)


def _beside(point: Point, durations: Durations, directory: Path, binary: Path | None) -> dict[str, Any]:
    """Echoes beside one flow from the same host, and the flow's goodput meanwhile."""
    spec = point.spec()
    ways = (spec.a_to_b, spec.b_to_a)
    sent_ns = sum(way.delay_ns + way.serialization_ns(PROBE_FRAME_BYTES) for way in ways)
    asked = 2 * sent_ns  # to the switch and from it, there and back
    with open_path(point.kind, spec, directory, binary) as path:
        flow = flows.TcpFlow(*path.ends)
        try:
            flow.start()
            time.sleep(durations.tcp_warmup_s)
            begin = flow.mark()
            (pair,) = _echoes(path.hosts, durations.loaded_probes, binary)
            result = flow.result(begin, flow.mark())
        finally:
            flow.close()
    assert point.rate_bps is not None
    return {
        **_summary(asked, pair),
        "mean_ns": round(statistics.fmean(pair["samples_ns"])),
        "theory_bps": theory.tcp_goodput_bps(point.rate_bps),
        "goodput_bps": result.goodput_bps,
    }


def _frames(point: Point, durations: Durations, directory: Path, binary: Path | None) -> dict[str, Any]:
    with (
        open_path(point.kind, LinkSpec.symmetric(point.delay_ns), directory, binary) as path,
        FrameSender(*path.ends, SMALL_FRAME_BYTES) as sender,
    ):
        sender.pace(0.1, 0.001, 1)  # the switch learns the addresses
        time.sleep(_DRAIN_S)
        before, began_ns = path.delivered()
        taken = sender.flood(durations.frames_s)
        after, ended_ns = path.delivered()
        seconds = (ended_ns - began_ns) / 1e9
        return {
            "offered_per_s": taken / seconds,
            "delivered_per_s": (after - before) / seconds,
            "seconds": seconds,
            "facts": path.facts(),
        }


def _cost(point: Point, durations: Durations, directory: Path, binary: Path | None) -> dict[str, Any]:
    with open_path(point.kind, LinkSpec.symmetric(point.delay_ns), directory, binary) as path:
        return _cost_of(path, point, durations)


def _hops(point: Point, durations: Durations, directory: Path, binary: Path | None) -> dict[str, Any]:
    with open_network(chain(point.switches, LinkSpec.symmetric(point.delay_ns)), binary) as path:
        _echoes(path.hosts, 1, binary)  # the switches learn both addresses
        return _cost_of(path, point, durations)


def _regions(point: Point, durations: Durations, directory: Path, binary: Path | None) -> dict[str, Any]:
    """Round trips of every pair: ``off_ns`` is each median less the configured one."""
    topology = random_graph(point.seed)
    with open_network(topology, binary) as path:
        pairs = _echoes(path.hosts, durations.graph_probes, binary)
    found = []
    for pair in pairs:
        expected_ns = topology.expected_rtt_ns(pair["a"], pair["b"])
        summary = _summary(expected_ns, pair)
        links = len(topology.hops(pair["a"], pair["b"]))
        found.append({**pair, **summary, "off_ns": summary["median_ns"] - expected_ns, "links": links})
    return {"pairs": found}


def _cost_of(path: BenchPath, point: Point, durations: Durations) -> dict[str, Any]:
    burst = COST_PPS // 1000 if point.pattern == "bursts" else 1
    with FrameSender(*path.ends, theory.FRAME_BYTES) as sender:
        sender.pace(_DRAIN_S, 0.001, 1)
        before, began_ns = path.delivered()
        cpu_s = path.cpu_s()
        taken = sender.pace(durations.cost_s, burst / COST_PPS, burst)
        used_s = path.cpu_s() - cpu_s
        after, ended_ns = path.delivered()
        seconds = (ended_ns - began_ns) / 1e9
        return {
            "offered_per_s": taken / seconds,
            "delivered_per_s": (after - before) / seconds,
            "core_ratio": used_s / seconds,
            "seconds": seconds,
            "facts": path.facts(),
        }
