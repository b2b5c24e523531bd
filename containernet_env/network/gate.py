"""The gate: a measurement of about two seconds that proves that the network is the configured one.

It sends the streams of ``gate_plan``; ``gate_verdict`` judges the arrivals. docs/fidelity.md has the reasons.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from containernet_env.base.errors import RunError
from containernet_env.model.dilation import emulated, slowed
from containernet_env.model.proof import Check, Moment, NetworkProof
from containernet_env.model.topology import Topology
from containernet_env.network.gate_plan import EMULATOR_PACE, KERNEL_PACE, GatePlan, plan_gate
from containernet_env.network.gate_trains import EMULATOR, KERNEL, Allowed, Times
from containernet_env.network.gate_verdict import verdicts
from containernet_env.network.rtt import Broken, Tolerance, probe

_SPARE_S = 10.0
_CLOCK_STEP_NS = 20_000
"""By how much the wall clock may drift from the monotonic one in a gate; slewing (adjtimex) makes 1 us in 2 ms."""
_SLEW_RATIO = 0.0005


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate: its proof and its samples. ``spoiled``: why the samples are unusable, if they are.

    Frames that came later than ``margin_ns``, in real time, after the end are taken for lost.
    """

    proof: NetworkProof
    plan: GatePlan
    times: tuple[Times, ...]
    topology: Topology
    margin_ns: int
    spoiled: str | None = None

    def delays_ns(self, a: str, b: str) -> list[int]:
        """The one-way delays of the path from ``a`` to ``b``, of frames that arrived."""
        stream = self.plan.delays.get((a, b))
        return [] if stream is None else self.times[stream].delays_ns

    def rtt_ns(self, a: str, b: str) -> int | None:
        """The sum of the medians there and back; ``None`` if one is unknown."""
        ways = self.delays_ns(a, b), self.delays_ns(b, a)
        return round(sum(statistics.median(way) for way in ways)) if all(ways) else None

    def to_json(self) -> dict[str, Any]:
        """For network.json: ``checks``, ``pairs`` (round trips) and ``paths`` (every delay, one way)."""
        pairs = [
            {"a": a, "b": b, "expected_ns": self.topology.expected_rtt_ns(a, b), "measured_ns": self.rtt_ns(a, b)}
            for a, b in combinations(self.plan.hosts, 2)
        ]
        paths = []
        for (a, b), stream in self.plan.delays.items():
            more = self.times[self.plan.losses[a, b]] if (a, b) in self.plan.losses else Times(0, 0)
            of = self.times[stream]
            paths.append(
                {
                    "a": a,
                    "b": b,
                    "sent": of.sent + more.sent,
                    "lost": of.sent + more.sent - of.received - more.received,
                    "delays_ns": self.delays_ns(a, b),
                }
            )
        return {"checks": [check.to_json() for check in self.proof.checks], "pairs": pairs, "paths": paths}


def allowed_for(links: str, tolerance: Tolerance | None, speedup: int = 1) -> Allowed:
    """How far links of a kind may be off; a ``tolerance`` of round trips takes the place of that of delays.

    Each way may be off by half of its duration or by its percentage, the larger of both, early and late. All but
    a ``tolerance`` is less by ``speedup``, that of the plan.
    """
    allowed = emulated(EMULATOR if links == "emulator" else KERNEL, speedup)
    if tolerance is None:
        return allowed
    half_ns = tolerance.absolute_ns // 2
    return replace(
        allowed,
        early_ns=half_ns,
        early_ratio=tolerance.ratio,
        late_ns=half_ns,
        late_ratio=tolerance.ratio,
        larger=True,
    )


def plan_for(topology: Topology, links: str, hosts: Iterable[str] | None = None, dilation: int = 1) -> GatePlan:
    """The plan of a gate over links of a kind between ``hosts`` (default: all), in emulated time."""
    pace = EMULATOR_PACE if links == "emulator" else KERNEL_PACE
    return plan_gate(topology, hosts, pace=pace, dilation=dilation)


def measure_gate(
    topology: Topology,
    pids: Mapping[str, int],
    *,
    links: str,
    moment: Moment = "before",
    tolerance: Tolerance | None = None,
    hosts: Iterable[str] | None = None,
    broken: Broken = lambda: None,
    dilation: int = 1,
) -> Gate:
    """Measure the network between ``hosts`` (default: all), whose first processes are ``pids``.

    ``links`` is what carries them, for the CSV. ``topology`` and the result are in emulated time, which is ``dilation``
    times slower than real time. Raises ``RunError`` where the prober fails, and as soon as ``broken``
    gives a reason; a network that is wrong is no failure here.
    """
    names = [host.name for host in topology.hosts] if hosts is None else list(hosts)
    by_emulator = links == "emulator"
    if len(names) < 2:
        raise RunError("fewer than two hosts are left, so nothing of the network can be measured")
    plan = plan_for(topology, links, names, dilation)
    request = {
        "hosts": [{"name": name, "pid": pids[name], "ip": str(topology.host(name).ip)} for name in plan.hosts],
        **probe_to_json(plan, dilation),
        # A host's own queueing discipline is not the link's; where the kernel carries the links, it is the link.
        "bypass_qdisc": by_emulator,
    }
    limit_s = _SPARE_S + dilation * (plan.warmup_ns + plan.duration_ns) / 1e9
    answer = probe(request, limit_s, broken)
    times = times_from_json(answer, dilation)
    gone = (
        Check(host.name, "delay", "unproved", "-", why="the host has ended")
        for host in topology.hosts
        if host.name not in names
    )
    proof = NetworkProof(moment, (*verdicts(plan, times, allowed_for(links, tolerance, plan.speedup)), *gone))
    spoiled = _spoiled(answer, dilation * plan.duration_ns, by_emulator)
    return Gate(proof, plan, times, topology, dilation * plan.pace.margin_ns, spoiled)


def probe_to_json(plan: GatePlan, dilation: int = 1) -> dict[str, Any]:
    """A plan as the prober reads it, in real time: all of its request but the hosts."""
    index, duration_ns = {name: number for number, name in enumerate(plan.hosts)}, dilation * plan.duration_ns
    streams = [
        {
            "from": index[stream.sender],
            "to": index[stream.receiver],
            "start_us": stream.start_ns // 1000,
            "until_us": min(stream.until_ns, duration_ns) // 1000,
            "interval_ns": stream.interval_ns,
            "count": stream.count,
            "frame_bytes": stream.frame_bytes,
            "count_only": stream.count_only,
        }
        for stream in slowed(plan.streams, dilation)
    ]
    return {
        "streams": streams,
        "warmup_ms": dilation * plan.warmup_ns // 10**6,
        "warmup_interval_us": dilation * plan.warmup_interval_ns // 1000,
        "duration_ms": duration_ns // 10**6 + 1,
    }


def times_from_json(answer: Mapping[str, Any], dilation: int = 1) -> tuple[Times, ...]:
    """The times of all streams in the prober's answer, in emulated time."""

    def times(held: Sequence[int] | None) -> Sequence[int]:
        if dilation == 1 or not held:
            return held or ()
        return [at_ns if at_ns < 0 else round(at_ns / dilation) for at_ns in held]  # -1: lost

    return tuple(
        Times(
            entry["sent"],
            entry["received"],
            times(entry.get("sent_ns")),
            times(entry.get("delay_ns")),
            entry.get("repeated", 0),
        )
        for entry in answer["streams"]
    )


def _spoiled(answer: Mapping[str, Any], duration_ns: int, emulated: bool) -> str | None:
    """Why the times are unusable: frames that never left or that the prober itself lost, or a clock that was set.

    Where the kernel carries the links, a frame that it did not send was dropped by a link's own queue. A warm-up of
    which no frame arrives is no reason: a link may lose all frames, and the checks show that.
    """
    for host in answer["hosts"]:
        if host["refused"] and emulated:
            why = f" ({host['error']})" if host.get("error") else ""
            return f"the kernel did not send {host['refused']} frames of {host['name']}{why}"
        if host["ring_lost"]:
            return f"{host['ring_lost']} frames were lost at {host['name']}, since the prober had no room for them"
    step_ns = abs(answer["clock_step_ns"])
    if step_ns > _CLOCK_STEP_NS + _SLEW_RATIO * duration_ns:
        return f"the machine's clock was set by {step_ns / 1e6:.3f} ms"
    return None
