"""A network in simulated time that carries out what a gate sends, as the link emulator does, or with a fault."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address

from containernet_env.analysis.gate_plan import GatePlan, capacity_frames, plan_gate
from containernet_env.analysis.gate_trains import EMULATOR, Times
from containernet_env.analysis.gate_verdict import verdicts
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.model.topology import Host, Link, Switch, Topology

SEND_NS = WRITE_NS = 2_000
"""What a frame costs its sender, and an emulator that is behind."""

Fault = Callable[[str, DirectionSpec], DirectionSpec]
"""What a direction of a name does instead of what was configured."""


Stall = tuple[int, int]
"""From when to when the emulator stands still: what is due meanwhile comes after it, as fast as it can be written."""
Tail = tuple[float, int]
"""Which share of the frames of a direction comes how much later, in ns, than it should."""


def as_configured(name: str, spec: DirectionSpec) -> DirectionSpec:
    """No fault."""
    return spec


def star_of(*links: LinkSpec) -> Topology:
    """Hosts h1, h2, ... on links of these kinds to the switch s1."""
    hosts = [Host(f"h{n}", "etcd", IPv4Address(f"10.0.0.{n}"), 24) for n in range(1, len(links) + 1)]
    made = [Link(host.name, "s1", link) for host, link in zip(hosts, links, strict=True)]
    return Topology(hosts, [Switch("s1")], made).with_queues()


class _Line:
    """One direction: a queue, a rate, a delay; frames keep their order."""

    def __init__(
        self, spec: DirectionSpec, random_source: random.Random, tail: Tail = (0.0, 0), burst: int = 0
    ) -> None:
        self.spec, self.random, self.tail, self.burst, self.credit = spec, random_source, tail, burst, burst
        self.busy_ns = self.last_ns = 0.0
        self.starts: list[float] = []
        self.head = 0
        self.bad = False
        self.phase = self.random.random()
        self.knots: dict[int, float] = {}

    def offer(self, at_ns: float, frame_bytes: int) -> float | None:
        """When the frame arrives; ``None`` where it is lost."""
        begin = at_ns
        if self.busy_ns > at_ns:
            while self.head < len(self.starts) and self.starts[self.head] <= at_ns:
                self.head += 1
            waiting = len(self.starts) - self.head
            limit = capacity_frames(self.spec, frame_bytes)
            if limit is not None and waiting >= limit:
                return None
            begin = self.busy_ns
        self.starts.append(begin)
        took = (frame_bytes + self.spec.overhead_bytes) * 8e9 / self.spec.rate_bps if self.spec.rate_bps else 0.0
        # A token bucket, which no link has: after a pause, so many frames take no time.
        self.credit = self.burst if begin > self.busy_ns + took * self.burst else max(0, self.credit - 1)
        self.busy_ns = begin + (0.0 if self.credit else took)
        due = self.busy_ns + self._delay_ns()
        jitter = self.spec.jitter
        if jitter is None or not jitter.reorder:
            due = max(due, self.last_ns)
            self.last_ns = due
        if self.tail[0] and self.random.random() < self.tail[0]:
            due += self.tail[1]
        return None if self._lost() else due

    def _delay_ns(self) -> float:
        jitter = self.spec.jitter
        if jitter is None:
            return self.spec.delay_ns
        value = self.random.gauss(0, 1) if jitter.reorder else self._path(jitter.held_correlation_ns)
        if jitter.distribution == "uniform":
            return self.spec.delay_ns + math.erf(value / math.sqrt(2)) * jitter.ns
        return self.spec.delay_ns + max(-4.0, min(4.0, value)) * jitter.ns

    def _path(self, correlation_ns: int) -> float:
        """As in link_emulator/model/chance.go."""
        at, part = divmod(self.busy_ns / correlation_ns + self.phase, 1.0)
        ends = [self.knots.setdefault(int(at) + end, self.random.gauss(0, 1)) for end in (0, 1)]
        return math.cos(math.pi / 2 * part) * ends[0] + math.sin(math.pi / 2 * part) * ends[1]

    def _lost(self) -> bool:
        loss = self.spec.loss
        if loss is None:
            return False
        if loss.model == "independent":
            return self.random.random() < loss.ratio
        lost = self.random.random() < (loss.bad_loss_ratio if self.bad else loss.good_loss_ratio)
        if self.random.random() < (loss.bad_to_good_ratio if self.bad else loss.good_to_bad_ratio):
            self.bad = not self.bad
        return lost


def carry(
    plan: GatePlan,
    seed: int,
    fault: Fault = as_configured,
    *,
    late_ns: float = 15_000,
    tails: Mapping[str, Tail] | None = None,
    stalls: Sequence[Stall] = (),
    bursts: Mapping[str, int] | None = None,
) -> tuple[Times, ...]:
    """Carry out the streams of a plan. Each frame arrives later by 15 us or so, one in a hundred by up to 1 ms.

    ``bursts``: how many frames a direction lets through at once after a pause.
    """
    source = random.Random(seed)
    lines = {
        hop.name: _Line(
            fault(hop.name, hop.spec),
            random.Random(source.random()),
            (tails or {}).get(hop.name, (0.0, 0)),
            (bursts or {}).get(hop.name, 0),
        )
        for hop in plan.hops
    }
    sent = _send(plan, source)
    delays = [[-1] * len(times) for times in sent]
    events = [
        (float(at), order, 0, stream, number)
        for order, (at, stream, number) in enumerate(
            sorted((at, stream, number) for stream, times in enumerate(sent) for number, at in enumerate(times))
        )
    ]
    heapq.heapify(events)
    free_ns = 0.0  # when the emulator has written what a stall left
    while events:
        at, order, step, stream, number = heapq.heappop(events)
        of = plan.streams[stream]
        path = plan.paths[of.sender, of.receiver]
        if step == len(path):
            free_ns = max(free_ns, *(float(end) for begin, end in stalls if begin <= at < end), 0.0)
            if free_ns > at:
                at, free_ns = free_ns, free_ns + WRITE_NS
            late = abs(source.gauss(late_ns, late_ns / 3)) if source.random() > 0.01 else source.uniform(0, 1_000_000)
            delays[stream][number] = round(at + late - sent[stream][number])
        elif (due := lines[path[step].name].offer(at, of.frame_bytes)) is not None:
            heapq.heappush(events, (due, order, step + 1, stream, number))
    return tuple(
        Times(len(times), sum(delay >= 0 for delay in got), *(((), ()) if of.count_only else (times, got)))
        for of, times, got in zip(plan.streams, sent, delays, strict=True)
    )


def _send(plan: GatePlan, source: random.Random) -> list[list[int]]:
    """When each frame is sent, as the prober does it: its own rule is tested in Go."""
    sent: list[list[int]] = [[] for _ in plan.streams]
    for host in plan.hosts:
        now = 0.0
        due = [(of.start_ns, 0, index) for index, of in enumerate(plan.streams) if of.sender == host]
        heapq.heapify(due)
        while due:
            at, _, index = heapq.heappop(due)
            of = plan.streams[index]
            if at > of.until_ns:
                continue
            if now < at:
                now = at + source.uniform(0, 60_000 if of.interval_ns > 100_000 else 1_000)
            sent[index].append(round(now))
            if len(sent[index]) < of.count:
                heapq.heappush(due, (round(max(at + of.interval_ns, now)), len(sent[index]), index))
            now += SEND_NS
    return sent


def gate(
    topology: Topology, seed: int = 1, fault: Fault = as_configured, *, tails: Mapping[str, Tail] | None = None
) -> NetworkProof:
    """A whole gate over a simulated network."""
    plan = plan_gate(topology)
    return NetworkProof("before", verdicts(plan, carry(plan, seed, fault, tails=tails), EMULATOR))


def wrong(proof: NetworkProof) -> set[tuple[str, str]]:
    """What of which direction is wrong."""
    return {(check.subject, check.kind) for check in proof.of("wrong")}


def changed(names: Sequence[str] | None = None, **values: object) -> Fault:
    """A fault: these fields of these directions (default: all) are others."""

    def fault(name: str, spec: DirectionSpec) -> DirectionSpec:
        return replace(spec, **values) if names is None or name in names else spec  # type: ignore[arg-type]

    return fault


def check_of(proof: NetworkProof, subject: str, kind: str) -> Check:
    """The check of one property of one direction."""
    (found,) = [check for check in proof.checks if (check.subject, check.kind) == (subject, kind)]
    return found
