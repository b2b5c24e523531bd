"""Checks of the trains of a gate: the rate of a direction and the length of its queue. Pure."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from containernet_env.model.link import FULL_FRAME_BYTES, CoDel, Hop
from containernet_env.model.proof import Check
from containernet_env.network.chance import MISS, sigmas
from containernet_env.network.gate_plan import (
    MS,
    NOISE_NS,
    US,
    GatePlan,
    S,
    Train,
    before,
    capacity_frames,
    gone_ratio,
    jitter_reach_ns,
    loss_ratio,
    lost_ratio,
    path_ns,
    variance_ns2,
)

_WIDEST_RATIO = 0.25
"""If the samples spread so far that a rate may be off by more, it is unproved."""
_PAUSE_NOISES = 3
"""How long, in units of the noise, a busy machine may stall in most of a direction's trains, which are then slower."""
_LIMITED, _LIMITED_RATIO = 0.1, 0.5
"""Arrivals at less than a tenth of the rate that any machine forwards, and at less than half of the rate sent, were
limited."""
_UNLIMITED_BPS, _UNLIMITED_RATIO = 500_000_000, 0.9
"""An unlimited direction is proved if it carries this rate, or this share of what the rest of its paths carry."""
_QUEUE_FRAMES, _QUEUE_RATIO = 3, 0.03
_DROPS_MIN, _LATE_PART = 2, 0.1
"""The least number of drops that show a queue discipline, and how late a sender may be, in intervals."""


@dataclass(frozen=True, slots=True)
class Times:
    """A measured stream: when each frame was sent, from the start of the gate, and its delay; -1: lost.

    Both are empty if only the counts are known. ``repeated``: of those that arrived, more than once.
    """

    sent: int
    received: int
    sent_ns: Sequence[int] = ()
    delay_ns: Sequence[int] = ()
    repeated: int = 0

    @property
    def delays_ns(self) -> list[int]:
        return [delay for delay in self.delay_ns if delay >= 0]


@dataclass(frozen=True, slots=True)
class Allowed:
    """How far links of one kind may be off: delays either way, rates, and by how much single times spread.

    Delays: a duration and a share of the delay, both together, or the ``larger`` of both. ``sure_bps``: a machine may
    be too slow to forward more, and a lower rate than configured is then not the link's. ``detectable_ratio``: a rate
    is proved if an error of this share, either way, would have been detected.
    """

    early_ns: int
    early_ratio: float
    late_ns: int
    late_ratio: float
    rate_ratio: float
    noise_ns: int
    sure_bps: int
    detectable_ratio: float
    larger: bool = False

    def early(self, delay_ns: float) -> float:
        """By how much a delay may be too short, ns."""
        return self._of(self.early_ns, delay_ns * self.early_ratio)

    def late(self, delay_ns: float) -> float:
        """By how much it may be too long, ns."""
        return self._of(self.late_ns, delay_ns * self.late_ratio)

    def _of(self, duration_ns: int, share_ns: float) -> float:
        return max(duration_ns, share_ns) if self.larger else duration_ns + share_ns


EMULATOR = Allowed(25 * US, 0.005, 100 * US, 0.01, 0.01, NOISE_NS, 2 * 10**9, 0.05)
KERNEL = Allowed(500 * US, 0.05, 500 * US, 0.05, 0.05, 1 * MS, 10**8, 0.15)


@dataclass(frozen=True, slots=True)
class Measured:
    """All that a gate is judged by: its plan, the times of ``plan.streams``, and how far its links may be off.

    ``alpha`` is the chance of a false alarm of each test, on each side; ``z`` the standard errors that chance may make.
    """

    plan: GatePlan
    times: Sequence[Times]
    allowed: Allowed
    alpha: float
    z: float


def delay_text(ns: float) -> str:
    """A time as text: 3.000 ms."""
    return f"{round(ns) / MS:.3f} ms"


def rate_text(bps: float | None) -> str:
    """A rate as text: 10.02 Mbit/s."""
    return "unlimited" if bps is None else f"{float(f'{bps / 1e6:.4g}'):g} Mbit/s"


class _Arrival:
    """One train, as it was sent and as it arrived. ``bits``: what a frame of it takes of the direction's rate."""

    def __init__(self, gate: Measured, train: Train) -> None:
        self._gate, self.feed, self.frame_bytes = gate, train.feed, train.frame_bytes
        self.times = {stream: gate.times[stream] for stream in train.streams}
        self.paths = dict(zip(train.streams, train.feed.paths, strict=True))
        self.ahead = dict(zip(train.streams, train.feed.ahead, strict=True))
        self.bits = (train.frame_bytes + train.feed.hop.spec.overhead_bytes) * 8
        self.sent = sorted(
            (at, stream, number) for stream, of in self.times.items() for number, at in enumerate(of.sent_ns)
        )
        """When its frames were sent, in order, with their stream and their number in it."""
        self._one_sender = len({sender for sender, _ in train.feed.pairs}) == 1

    @property
    def frames(self) -> int:
        return sum(times.sent for times in self.times.values())

    @property
    def is_whole(self) -> bool:
        return all(times.received == times.sent for times in self.times.values())

    @property
    def offered_bps(self) -> float:
        return (len(self.sent) - 1) * self.bits * S / max(1, self.sent[-1][0] - self.sent[0][0])

    @property
    def reaching(self) -> float:
        """The share of its frames that reach the direction, of the path that loses most."""
        return 1 - max(map(gone_ratio, self.feed.ahead))

    def kept_up(self, rate: int) -> bool:
        """Whether every frame was sent before the direction could have sent it: else the sender's rate shows."""
        frame_ns, late_ns = self.bits * S / rate * self.reaching, self._gate.plan.pace.sender_ns
        if self._one_sender:
            streams: list[Sequence[int]] = [[at for at, _, _ in self.sent]]
        else:
            frame_ns *= len(self.times)
            streams = [times.sent_ns for times in self.times.values()]
        return all(
            len(sent) > 1 and all(at - sent[0] <= k * frame_ns + late_ns for k, at in enumerate(sent))
            for sent in streams
        )

    def single_ns(self, stream: int) -> float:
        """The longest time of a frame that meets no other over the path of a stream, from the frames for delays."""
        plan, path = self._gate.plan, self.paths[stream]
        took_ns = path_ns(path, self.frame_bytes)
        probed = plan.delays.get((plan.streams[stream].sender, plan.streams[stream].receiver))
        if probed is not None and (delays := self._gate.times[probed].delays_ns):
            took_ns += round(statistics.median(delays)) - path_ns(path)
        return took_ns + jitter_reach_ns(path)

    def first_late_ns(self) -> float:
        """By how much its first frames came later than single frames of its paths do; 0 where within noise."""
        firsts = {stream: times.delay_ns[0] if times.delay_ns else -1 for stream, times in self.times.items()}
        if min(firsts.values()) < 0:
            return 0.0  # unknown
        # Of several streams, each first frame waits for those of the others.
        late_ns = min(first - self.single_ns(stream) for stream, first in firsts.items())
        return late_ns if late_ns > self._gate.allowed.noise_ns else 0.0

    def late_ns(self, reached: Sequence[tuple[int, int, int]], frame_ns: float) -> float:
        """By how much a frame came later, at most, than it had to: it waits for those ahead of it that came.

        ``reached``: when each reaches the direction, its stream, its number there.
        """
        single_ns = {stream: self.single_ns(stream) for stream in self.times}
        late, busy_ns = 0.0, 0.0
        for at, stream, number in reached:
            if (delay := self.times[stream].delay_ns[number]) >= 0:
                begin = max(at, busy_ns)
                busy_ns = begin + frame_ns
                late = max(late, delay - (begin - at) - single_ns[stream])
        return late

    def rate(self, late_ns: float = 0.0) -> tuple[float, float] | None:
        """The rate at which it arrived, bit/s, and the part of it that shows that; ``None`` where too little of it did.

        ``late_ns``: its first frames were due so much earlier than they came. One sender: whatever a receiver got, the
        frames between its first and its last took their time at the direction, also those that others got or that were
        lost. Several senders: what came of each while frames of all of them came. A direction without a limit carries
        what the rest of the paths do, together.
        """
        bits, unlimited = self.bits * S, self.feed.hop.spec.rate_bps is None
        if unlimited or self._one_sender:
            arrivals: dict[int, list[tuple[int, int]]] = {}
            for order, (at, stream, number) in enumerate(self.sent):
                if (delay := self.times[stream].delay_ns[number]) >= 0:
                    arrivals.setdefault(stream, []).append((number if unlimited else order, at + delay))
            rates, parts = [], []
            for stream, got in arrivals.items():
                ahead = self.ahead[stream]
                orders, came = [order for order, _ in got], [at for _, at in got]
                if shuffles(ahead):
                    orders, came = sorted(orders), sorted(came)  # they reach the direction in another order
                if came[-1] > came[0]:
                    reach = 1.0 if self.is_whole else 1 - gone_ratio(ahead)
                    frames = (orders[-1] - orders[0]) * reach
                    # Those that a direction without a limit has lost, as a full queue does, it has not carried.
                    carried = (len(got) - 1) / max(1 - lost_ratio(self.paths[stream]), 1 / len(got))
                    frames = carried if unlimited and carried < _LIMITED_RATIO * frames else frames
                    rates.append(frames * bits / (came[-1] - came[0] + late_ns))
                    sent = self.times[stream].sent if unlimited else self.frames
                    parts.append((orders[-1] - orders[0]) / (sent - 1))
            if not rates or (unlimited and len(rates) < len(self.times)):
                return None
            return (sum(rates), min(parts)) if unlimited else (statistics.median(rates), statistics.median(parts))
        each = [
            sorted(at + delay for at, delay in zip(times.sent_ns, times.delay_ns, strict=True) if delay >= 0)
            for times in self.times.values()
        ]
        if not all(each):
            return None
        begin, end = max(got[0] for got in each), min(got[-1] for got in each)
        during = sorted(at for got in each for at in got if begin <= at <= end)
        if len(during) <= len(each) or during[-1] == during[0]:
            return None
        # Frames that were corrupted before it have taken their time, too.
        ahead = self.feed.ahead[0]
        kept = (
            1.0
            if self.is_whole
            else (1 - loss_ratio(self.feed.hop)) * (1 - lost_ratio(ahead)) / (1 - gone_ratio(ahead))
        )
        return (len(during) - 1) * bits / (during[-1] - during[0] + late_ns) / kept, 1.0


def shuffles(path: Sequence[Hop]) -> bool:
    return any(hop.spec.jitter is not None and hop.spec.jitter.reorder for hop in path)


def burst_frames(path: Sequence[Hop]) -> float:
    """How many frames of a path show as much of its losses as one of which each is lost independently."""
    correlation = max((hop.spec.loss.correlation for hop in path if hop.spec.loss is not None), default=0.0)
    return (1 + correlation) / (1 - correlation) if correlation < 1 else math.inf


def rate_checks(gate: Measured) -> Iterator[Check]:
    for hop in gate.plan.hops:
        configured = rate_text(hop.spec.rate_bps)
        trains = [_Arrival(gate, train) for train in gate.plan.rates.get(hop.name, [])]
        if not trains:
            why = gate.plan.left_out.get((hop.name, "rate"), "no time")
            yield Check(hop.name, "rate", "unproved", configured, why=why)
        elif hop.spec.rate_bps is None:
            yield _unlimited(gate, hop, trains)
        else:
            yield _limited(gate, hop, hop.spec.rate_bps, trains)


def _limited(gate: Measured, hop: Hop, rate: int, trains: Sequence[_Arrival]) -> Check:
    """The worst verdict of the trains of each frame length.

    Full frames show the rate, the smallest ones the overhead.
    """
    sizes = sorted({train.frame_bytes for train in trains}, reverse=True)
    overhead = hop.spec.overhead_bytes
    found = []
    for size in sizes:
        limits = [(gate.allowed.detectable_ratio, "an error")] if size == sizes[0] else []
        if overhead and size == sizes[-1]:
            limits.append((overhead / size, f"its overhead of {overhead} bytes"))
        found.append(_of_size(gate, hop, rate, [train for train in trains if train.frame_bytes == size], min(limits)))
    # The first one of the worst verdict.
    return min(found, key=lambda check: ("wrong", "unproved", "proved").index(check.verdict))


def _of_size(gate: Measured, hop: Hop, rate: int, trains: Sequence[_Arrival], limit: tuple[float, str]) -> Check:
    """The verdict of trains of one frame length; ``limit``: the error that has to be detectable, and of what."""
    check, train, allowed = partial(Check, hop.name, "rate", configured=rate_text(rate)), trains[0], gate.allowed
    highest = rate
    if not train.feed.faster and train.feed.other_bps is not None:
        rate = min(rate, train.feed.other_bps)  # the trains show no more than that it is no lower
    paced = [train for train in trains if train.kept_up(rate)]
    arrived = [(of, *came) for of in paced if (came := of.rate()) is not None]
    whole = [item for item in arrived if item[0].is_whole]
    arrived = whole or arrived
    values = {
        "trains_bps": [round(bps) for _, bps, _ in arrived],
        "trains": len(trains),
        "frame_bytes": train.frame_bytes,
    }
    # Jitter moves the first and the last frame of each train; 1.25: how much wider a median spreads than a mean.
    path = max(train.feed.paths, key=lambda path: variance_ns2(*path))
    ahead, lost = before(path, hop.name), lost_ratio(path)
    if not arrived or lost == 1:
        why = "the sender was too slow" if not paced else "too few frames arrived"
        return check("unproved", why=why, values=values)
    frames = train.frames * min(part for _, _, part in arrived)
    length_ns = max(1.0, frames - 1) * train.bits * S / rate
    spread_ns = math.sqrt(2 * variance_ns2(*path))
    # Whether the jitter at the ends of a train is independent, and so that of consecutive trains.
    outlasts = all(h.spec.jitter is None or length_ns >= 2 * h.spec.jitter.held_correlation_ns for h in path)
    error = 1.25 * spread_ns / length_ns / math.sqrt(len(arrived) if outlasts else 1)
    # What is lost behind the slowest direction has taken its time there. What was lost before it is known only in the
    # mean, and to a frame, where any was.
    early = gone_ratio(ahead) if train.feed.faster and len(train.feed.pairs) == 1 else lost
    if early and not whole:
        error += 1.25 * math.sqrt(burst_frames(path) * early / (1 - early) / frames / len(arrived))
    if not train.feed.faster:  # how many copies take the time of the slower direction is known only in the mean
        twice = [h.spec.duplication_ratio for h in path[:-1]]
        error += 1.25 * math.sqrt(sum(d * (1 - d) / (1 + d) ** 2 for d in twice) / frames / len(arrived))
    if shuffles(ahead):  # which frames were the first and the last one is not known
        error += 2 * math.sqrt(lost) / (1 - lost) / frames
    noise = allowed.noise_ns / length_ns
    ratio = allowed.rate_ratio + noise + gate.z * error + (1 / frames if early and not whole else 0)
    # A wrong rate is measured with the same noise, which may hide as much of what it is off by.
    detectable = ratio + noise + sigmas(MISS) * error
    fastest = (1 + ratio) * highest

    def late(of: _Arrival, bps: float) -> bool:
        """Whether it seems too fast since its first frames came late, and would not with those frames in time."""
        late_ns = of.first_late_ns() if bps > fastest else 0.0
        in_time = of.rate(late_ns) if late_ns > 0 else None
        return in_time is not None and in_time[0] <= fastest

    def off(bps: float) -> int:
        return (bps > fastest) - (bps < (1 - ratio) * rate)

    kept = sorted(bps for of, bps, _ in arrived if not late(of, bps))
    values["late"] = len(arrived) - len(kept)
    bps = statistics.median(kept or [bps for _, bps, _ in arrived])
    check = partial(check, measured=rate_text(bps), allowed=f"{ratio:.1%} either way", values=values)
    if ratio > _WIDEST_RATIO:
        return check("unproved", why="the samples spread too far")
    if len(kept) < len(arrived) / 2:
        return check("unproved", why=f"the first frames of {values['late']} of {len(arrived)} trains were late")
    if off(statistics.median_low(kept)) != off(statistics.median_high(kept)):
        return check("unproved", why="the two halves of its trains disagree")
    if off(bps):
        # Where a frame takes less than it costs the machine, frames that waited for it also come too fast.
        if rate > allowed.sure_bps and (bps < rate or train.bits * S / rate < gate.plan.pace.frame_ns):
            return check("unproved", why="more than this machine surely forwards")
        if 0 < rate - bps <= min(allowed.detectable_ratio, ratio + (_PAUSE_NOISES - 1) * noise) * rate:
            return check("unproved", why="this machine, if busy, may be that much slower itself")
        return check("wrong")
    if not train.feed.faster:
        return check("unproved", why=f"no path is faster: not below {rate_text(bps)}")
    if detectable > limit[0]:
        return check("unproved", why=f"{limit[1]} shows only if a rate is {detectable:.1%} off")
    return check("proved")


def _unlimited(gate: Measured, hop: Hop, trains: Sequence[_Arrival]) -> Check:
    """An unlimited direction is proved as far as it can be: not limited below what the rest of its paths carries."""
    measured = [(train, *came) for train in trains if (came := train.rate()) is not None]
    values = {"trains_bps": [round(bps) for _, bps, _ in measured], "trains": len(trains)}
    check = partial(Check, hop.name, "rate", configured="unlimited", values=values)
    if not measured:
        return check("unproved", why="too few frames arrived")
    bps, part = statistics.median(bps for _, bps, _ in measured), min(part for _, _, part in measured)
    rest = float(trains[0].feed.other_bps or math.inf)
    least = min(rest, statistics.median(train.offered_bps for train, _, _ in measured))
    text = f"not below {rate_text(bps)}"
    # Jitter alone may spread a train so far, whatever the rate.
    reach_ns = 2 * max(map(jitter_reach_ns, trains[0].feed.paths))
    if bps < _LIMITED_RATIO * least and bps < _LIMITED * gate.allowed.sure_bps:
        sent_bits = (len(trains[0].sent) - 1) * part * trains[0].reaching * trains[0].bits
        if sent_bits * S * (1 / bps - 1 / least) <= reach_ns:
            return check("unproved", measured=text, why="the samples spread too far")
        return check("wrong", measured=rate_text(bps), allowed=rate_text(least))
    if bps >= min(_UNLIMITED_RATIO * rest, _UNLIMITED_BPS):
        return check("proved", measured=text)
    return check("unproved", measured=text, why=text)


def fits(sent_ns: Sequence[int], frame_ns: float, capacity: int) -> int:
    """How many of the frames that come at these times a queue of that many frames takes: the emulator's own rule.

    A frame that finds the sender busy waits; one that finds ``capacity`` frames waiting is lost.
    """
    taken, busy_ns, head = 0, 0.0, 0
    starts: list[float] = []
    for at in sent_ns:
        begin = float(at)
        if busy_ns > at:
            while head < len(starts) and starts[head] <= at:
                head += 1
            if len(starts) - head >= capacity:
                continue
            begin = busy_ns
        starts.append(begin)
        busy_ns = begin + frame_ns
        taken += 1
    return taken


def queue_checks(gate: Measured) -> Iterator[Check]:
    """How much may wait before every direction with a rate: of a longer train, what does not fit has to be lost."""
    for hop in gate.plan.hops:
        spec, train = hop.spec, gate.plan.queues.get(hop.name)
        if spec.rate_bps is None:
            continue
        frames = spec.frame_limit
        limits = [f"{n} {unit}" for n, unit in ((frames, "frames"), (spec.queue_bytes, "bytes")) if n is not None]
        configured = ", ".join(limits) or "default"
        if spec.aqm is not None:
            why = "its queue discipline drops frames before it is full"
            yield Check(hop.name, "queue", "unproved", configured, why=why)
            yield _discipline(gate, hop, spec.aqm, train)
        elif train is None:
            why = gate.plan.left_out.get((hop.name, "queue"), "this kind of link does not show it")
            yield Check(hop.name, "queue", "unproved", configured, why=why)
        else:
            yield _queue(gate, hop, _Arrival(gate, train), configured)


def _queue(gate: Measured, hop: Hop, train: _Arrival, configured: str) -> Check:
    check = partial(Check, hop.name, "queue", configured=configured)
    capacity = capacity_frames(hop.spec, train.frame_bytes)
    assert hop.spec.rate_bps is not None and capacity is not None
    frame_ns = train.bits * S / hop.spec.rate_bps
    offsets = {stream: gate.plan.streams[stream].start_ns for stream in train.times}
    first = min(offsets.values())
    # As they reach the direction: paths that are longer before it began earlier.
    reached = sorted((at - (offsets[stream] - first), stream, number) for at, stream, number in train.sent)
    # Frames of a stream that are lost before the direction never reach its queue; those lost behind it were in it.
    reach = {stream: 1 - gone_ratio(path) for stream, path in train.ahead.items()}
    lost = {stream: lost_ratio(path) for stream, path in train.paths.items()}
    if max(lost.values()) == 1:
        return check("unproved", why="every frame behind it is lost as configured")
    bursts = max(map(burst_frames, train.feed.paths))
    offered = [at for at, stream, number in reached if int((number + 1) * reach[stream]) > int(number * reach[stream])]
    expected = fits(offered, frame_ns, capacity)
    # Jitter before the direction brings frames together, or keeps them apart, by what it reaches either way.
    reach_ns = 2 * max(map(jitter_reach_ns, train.feed.ahead))
    slack = _QUEUE_FRAMES + _QUEUE_RATIO * capacity + (gate.allowed.noise_ns + reach_ns) / frame_ns
    varied = sum(len(times.sent_ns) * lost[stream] / (1 - lost[stream]) for stream, times in train.times.items())
    slack += gate.z * math.sqrt(varied * bursts) if varied else 0
    came = sum(times.received * reach[stream] / (1 - lost[stream]) for stream, times in train.times.items())
    excess = len(offered) - expected
    # What arrived is what fits and what went on while the train came; the rest is the queue.
    measured = capacity + came - expected
    received = sum(times.received for times in train.times.values())
    values = {"sent": len(reached), "received": received, "expected": expected, "frame_bytes": train.frame_bytes}
    check = partial(check, values=values)
    if excess < 2 * slack:
        why = "the sender was too slow to fill it" if excess < _QUEUE_FRAMES else "the samples spread too far"
        return check("unproved", why=why)
    if abs(came - expected) <= slack:
        return check("proved", measured=f"{measured:.0f} frames", allowed=f"{slack:.0f} frames either way")
    taken = f"{came:.0f} of {len(reached)} frames taken"
    check = partial(check, measured=taken, allowed=f"{expected - slack:.0f} to {expected + slack:.0f}")
    # Where the kernel does not stamp them, frames come when they are read: after a pause, to a queue that has emptied.
    late_ns = train.late_ns(reached, frame_ns) if not any(lost.values()) else 0.0
    if late_ns > gate.allowed.noise_ns and slack < came - expected <= slack + late_ns / frame_ns:
        why = f"frames came up to {delay_text(late_ns)} late meanwhile, so that more of them fit"
        return check("unproved", why=why)
    return check("wrong")


def codel_drops(sent_ns: Sequence[int], frame_ns: float, frame_bytes: int, aqm: CoDel) -> list[int]:
    """Which of the frames that come at these times CoDel drops (RFC 8289, section 5), where the queue never is full."""
    dropped: list[int] = []
    above_ns, next_ns, count, dropping = math.inf, 0.0, 0, False
    free_ns, number = 0.0, 0
    while number < len(sent_ns):
        now = max(free_ns, sent_ns[number])
        came = bisect_left(sent_ns, now)
        standing = now - sent_ns[number] >= aqm.target_ns and (came - number - 1) * frame_bytes > FULL_FRAME_BYTES
        if not standing:
            above_ns, dropping = math.inf, False
        elif above_ns == math.inf:
            above_ns = now + aqm.interval_ns
        if standing and now >= (next_ns if dropping else above_ns):
            dropped.append(number)
            count = count + 1 if dropping else 1
            next_ns = (next_ns if dropping else now) + aqm.interval_ns / math.sqrt(count)
            dropping = True
            number += 1
        free_ns = max(now, sent_ns[number] if number < len(sent_ns) else now) + frame_ns
        number += 1
    return dropped


def _discipline(gate: Measured, hop: Hop, aqm: CoDel, planned: Train | None) -> Check:
    """Which frames of a train CoDel has dropped, each as late as the machine may be or a frame."""
    check = partial(Check, hop.name, "aqm", configured=aqm.text)
    if planned is None:
        why = gate.plan.left_out.get((hop.name, "aqm"), "this kind of link does not show it")
        return check("unproved", why=why)
    train = _Arrival(gate, planned)
    assert hop.spec.rate_bps is not None
    ((stream, times),) = train.times.items()
    frame_ns = train.bits * S / hop.spec.rate_bps
    paced_ns = gate.plan.streams[stream].interval_ns
    expected = codel_drops(times.sent_ns, frame_ns, train.frame_bytes, aqm)
    lost = [number for number, delay in enumerate(times.delay_ns) if delay < 0]
    slack = 1 + math.ceil(3 * gate.allowed.noise_ns / min(frame_ns, paced_ns))
    values = {"sent": times.sent, "expected": expected, "lost": lost, "frame_bytes": train.frame_bytes}
    sender_ns = max((at - times.sent_ns[0] - index * paced_ns for index, at in enumerate(times.sent_ns)), default=0)
    check = partial(check, values=values, measured=f"dropped {lost}", allowed=f"{expected}, {slack} frames either way")
    if len(expected) < _DROPS_MIN or sender_ns > _LATE_PART * aqm.interval_ns:
        return check("unproved", why="the sender was too slow to fill it")
    if len(lost) == len(expected) and all(abs(a - b) <= slack for a, b in zip(lost, expected, strict=True)):
        return check("proved")
    late_ns = train.late_ns([(at, stream, number) for number, at in enumerate(times.sent_ns)], frame_ns)
    if lost and late_ns > frame_ns + gate.allowed.noise_ns:
        return check("unproved", why=f"frames came up to {delay_text(late_ns)} late meanwhile")
    return check("wrong")
