"""A network in simulated time that carries out what a gate sends, as the link emulator does, or with a fault."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from graphlib import TopologicalSorter
from ipaddress import IPv4Address
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from containernet_env.analysis.gate_plan import GatePlan, Stream, capacity_frames, plan_gate
from containernet_env.analysis.gate_trains import EMULATOR, Times
from containernet_env.analysis.gate_verdict import verdicts
from containernet_env.model.chance import Loss
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.model.topology import Hop, Host, Link, Switch, Topology

SEND_NS = WRITE_NS = 2_000
"""What a frame costs its sender, and an emulator that is behind."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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
        self.spec, self.random, self.tail, self.burst = spec, random_source, tail, burst
        self.bad = False
        self.phase = self.random.random()
        self.knots: dict[int, float] = {}

    def arrivals_ns(self, at_ns: Floats, frame_bytes: Ints) -> Floats:
        """When the frames that come at these times, in order, arrive; not a number where they are lost."""
        left_ns = at_ns if self.spec.rate_bps is None else self._left_ns(at_ns, frame_bytes, self.spec.rate_bps)
        jitter, loss = self.spec.jitter, self.spec.loss
        if jitter is None and loss is None and not self.tail[0]:
            return left_ns + self.spec.delay_ns
        arrivals = np.full(len(left_ns), np.nan)
        taken = np.flatnonzero(~np.isnan(left_ns))
        last_ns, due_ns = 0.0, []
        for left in left_ns[taken].tolist():
            due = left + self._delay_ns(left)
            if jitter is None or not jitter.reorder:
                last_ns = due = max(due, last_ns)
            if self.tail[0] and self.random.random() < self.tail[0]:
                due += self.tail[1]
            due_ns.append(math.nan if loss is not None and self._lost(loss) else due)
        arrivals[taken] = due_ns
        return arrivals

    def _left_ns(self, at_ns: Floats, frame_bytes: Ints, rate_bps: int) -> Floats:
        """When each frame has been sent at the rate; not a number where it found the queue full."""
        taking_ns = {
            size: (size + self.spec.overhead_bytes) * 8e9 / rate_bps for size in np.unique(frame_bytes).tolist()
        }
        room = {size: limit for size in taking_ns if (limit := capacity_frames(self.spec, size)) is not None}
        left_ns: list[float] = []
        starts: deque[float] = deque()
        busy_ns, credit = 0.0, self.burst
        for at, size in zip(at_ns.tolist(), frame_bytes.tolist(), strict=True):
            begin = at
            if busy_ns > at:
                while starts and starts[0] <= at:
                    starts.popleft()
                if size in room and len(starts) >= room[size]:
                    left_ns.append(math.nan)
                    continue
                begin = busy_ns
            starts.append(begin)
            took = taking_ns[size]
            # A token bucket, which no link has: after a pause, so many frames take no time.
            if self.burst:
                credit = self.burst if begin > busy_ns + took * self.burst else max(0, credit - 1)
            busy_ns = begin + (0.0 if credit else took)
            left_ns.append(busy_ns)
        return np.array(left_ns)

    def _delay_ns(self, left_ns: float) -> float:
        jitter = self.spec.jitter
        if jitter is None:
            return self.spec.delay_ns
        value = self.random.gauss(0, 1) if jitter.reorder else self._path(left_ns, jitter.held_correlation_ns)
        if jitter.distribution == "uniform":
            return self.spec.delay_ns + math.erf(value / math.sqrt(2)) * jitter.ns
        return self.spec.delay_ns + max(-4.0, min(4.0, value)) * jitter.ns

    def _path(self, left_ns: float, correlation_ns: int) -> float:
        """As in link_emulator/model/chance.go."""
        at, part = divmod(left_ns / correlation_ns + self.phase, 1.0)
        ends = [self.knots.setdefault(int(at) + end, self.random.gauss(0, 1)) for end in (0, 1)]
        return math.cos(math.pi / 2 * part) * ends[0] + math.sin(math.pi / 2 * part) * ends[1]

    def _lost(self, loss: Loss) -> bool:
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
    sent = _sent(plan.hosts, tuple(plan.streams), len(plan.hops), seed)
    source = random.Random()
    source.setstate(sent.state)
    frame_bytes = np.array([of.frame_bytes for of in plan.streams])[sent.streams]
    at_ns = sent.at_ns.astype(float)  # when each frame reaches the next direction on its way
    for hop, line_seed in _in_order_of_paths(plan, sent.line_seeds):
        line = _Line(
            fault(hop.name, hop.spec),
            random.Random(line_seed),
            (tails or {}).get(hop.name, (0.0, 0)),
            (bursts or {}).get(hop.name, 0),
        )
        over = set(plan.over(hop))
        taken = np.array([(of.sender, of.receiver) in over for of in plan.streams])[sent.streams]
        frames = np.flatnonzero(taken & ~np.isnan(at_ns))
        frames = frames[np.argsort(at_ns[frames], kind="stable")]
        at_ns[frames] = line.arrivals_ns(at_ns[frames], frame_bytes[frames])
    came = np.flatnonzero(~np.isnan(at_ns))
    came = came[np.argsort(at_ns[came], kind="stable")]
    read_ns = _written_ns(at_ns[came], stalls) + _late_ns(source, late_ns, len(came))
    delays = np.full(len(at_ns), -1)
    delays[came] = np.rint(read_ns - sent.at_ns[came])
    delays = delays[np.lexsort((sent.numbers, sent.streams))]  # stream by stream
    times = []
    for of, of_sent in zip(plan.streams, sent.of_streams, strict=True):
        got, delays = delays[: len(of_sent)].tolist(), delays[len(of_sent) :]
        shown = ((), ()) if of.count_only else (of_sent, got)
        times.append(Times(len(of_sent), sum(delay >= 0 for delay in got), *shown))
    return tuple(times)


def _in_order_of_paths(plan: GatePlan, line_seeds: Sequence[float]) -> list[tuple[Hop, float]]:
    """Every direction with its seed, after those that come before it on some path."""
    order: TopologicalSorter[str] = TopologicalSorter({hop.name: () for hop in plan.hops})
    for path in plan.paths.values():
        for one, two in pairwise(path):
            order.add(two.name, one.name)
    lines = {hop.name: (hop, line_seed) for hop, line_seed in zip(plan.hops, line_seeds, strict=True)}
    return [lines[name] for name in order.static_order()]


def _written_ns(due_ns: Floats, stalls: Sequence[Stall]) -> Floats:
    """When the emulator has written frames that are due at these times, in order."""
    if not stalls:
        return due_ns
    free_ns = 0.0  # when it has written what a stall left
    written = []
    for due in due_ns.tolist():
        free_ns = max(free_ns, *(float(end) for begin, end in stalls if begin <= due < end), 0.0)
        if free_ns > due:
            due, free_ns = free_ns, free_ns + WRITE_NS
        written.append(due)
    return np.array(written)


def _late_ns(source: random.Random, late_ns: float, frames: int) -> Floats:
    """By how much each frame is read later than it was written."""
    chance, normal, spread = source.random, source.gauss, late_ns / 3
    return np.array([abs(normal(late_ns, spread)) if chance() > 0.01 else chance() * 1_000_000 for _ in range(frames)])


@dataclass(frozen=True, slots=True)
class _Sent:
    """What is sent, whatever the links do: all frames by when they were sent, with their stream and number in it.

    ``of_streams``: the same times, stream by stream. ``state``: that of the source of chance afterwards.
    """

    at_ns: Ints
    streams: Ints
    numbers: Ints
    of_streams: tuple[tuple[int, ...], ...]
    line_seeds: tuple[float, ...]
    state: tuple[Any, ...]


@lru_cache(maxsize=16)
def _sent(hosts: tuple[str, ...], streams: tuple[Stream, ...], lines: int, seed: int) -> _Sent:
    """Send the streams of a plan with so many lines."""
    source = random.Random(seed)
    line_seeds = tuple(source.random() for _ in range(lines))
    of_streams = _send(hosts, streams, source)
    at_ns = np.array(list(chain.from_iterable(of_streams)), dtype=np.int64)
    stream = np.repeat(np.arange(len(streams)), [len(times) for times in of_streams])
    number = np.array(list(chain.from_iterable(range(len(times)) for times in of_streams)), dtype=np.int64)
    order = np.argsort(at_ns, kind="stable")
    of_tuples = tuple(tuple(times) for times in of_streams)
    return _Sent(at_ns[order], stream[order], number[order], of_tuples, line_seeds, source.getstate())


def _send(hosts: Sequence[str], streams: Sequence[Stream], source: random.Random) -> list[list[int]]:
    """When each frame is sent, as the prober does it: its own rule is tested in Go."""
    sent: list[list[int]] = [[] for _ in streams]
    for host in hosts:
        now = 0.0
        due = [(of.start_ns, 0, index) for index, of in enumerate(streams) if of.sender == host]
        heapq.heapify(due)
        while due:
            at, _, index = heapq.heappop(due)
            of = streams[index]
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
