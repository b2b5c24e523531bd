"""Checks of the trains of a gate: the rate of a direction and the length of its queue. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from containernet_env.model.link import DirectionSpec
from containernet_env.model.proof import Check, Verdict
from containernet_env.model.topology import PROBE_FRAME_BYTES, Hop
from containernet_env.network.chance import MISS, sigmas
from containernet_env.network.gate_plan import (
    FRAME_MIN_NS,
    MS,
    US,
    GatePlan,
    S,
    Train,
    before,
    capacity_frames,
    jitter_reach_ns,
    loss_ratio,
    lost_ratio,
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
_SENDER_SLACK_NS = 20 * US


@dataclass(frozen=True, slots=True)
class Times:
    """A measured stream: when each frame was sent, from the start of the gate, and its delay; -1: lost.

    Both are empty if only the counts are known.
    """

    sent: int
    received: int
    sent_ns: Sequence[int] = ()
    delay_ns: Sequence[int] = ()


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
        """By how much a delay may be too short."""
        return self._of(self.early_ns, delay_ns * self.early_ratio)

    def late(self, delay_ns: float) -> float:
        """By how much it may be too long."""
        return self._of(self.late_ns, delay_ns * self.late_ratio)

    def _of(self, duration_ns: int, share_ns: float) -> float:
        return max(duration_ns, share_ns) if self.larger else duration_ns + share_ns


EMULATOR = Allowed(25 * US, 0.005, 100 * US, 0.01, 0.01, 100 * US, 2 * 10**9, 0.05)
KERNEL = Allowed(500 * US, 0.05, 500 * US, 0.05, 0.05, 1 * MS, 10**8, 0.15)


def delay_text(ns: int) -> str:
    """A time as text: 3.000 ms."""
    return f"{ns / MS:.3f} ms"


def rate_text(bps: float | None) -> str:
    """A rate as text: 10.02 Mbit/s."""
    return "unlimited" if bps is None else f"{float(f'{bps / 1e6:.4g}'):g} Mbit/s"


def rate_checks(plan: GatePlan, times: Sequence[Times], allowed: Allowed, z: float) -> Iterator[Check]:
    """The rate of every direction; ``z``: standard errors that chance may make."""
    for hop in plan.hops:
        configured = rate_text(hop.spec.rate_bps)
        trains = plan.rates.get(hop.name, [])
        if not trains:
            yield Check(hop.name, "rate", "unproved", configured, why=plan.left_out.get((hop.name, "rate"), "no time"))
        elif hop.spec.rate_bps is None:
            yield _unlimited(plan, hop, trains, times, allowed)
        else:
            yield _limited(plan, hop, hop.spec.rate_bps, trains, times, allowed, z)


def _limited(
    plan: GatePlan, hop: Hop, rate: int, trains: Sequence[Train], times: Sequence[Times], allowed: Allowed, z: float
) -> Check:
    """The worst verdict of the trains of each frame length.

    Full frames show the rate, the smallest ones the overhead.
    """
    sizes = sorted({train.frame_bytes for train in trains}, reverse=True)
    overhead = hop.spec.overhead_bytes
    found = []
    for size in sizes:
        limits = [(allowed.detectable_ratio, "an error")] if size == sizes[0] else []
        if overhead and size == sizes[-1]:
            limits.append((overhead / size, f"its overhead of {overhead} bytes"))
        of_size = [train for train in trains if train.frame_bytes == size]
        found.append(_of_size(plan, hop, rate, of_size, times, allowed, z, min(limits)))
    # The first one of the worst verdict.
    return min(found, key=lambda check: ("wrong", "unproved", "proved").index(check.verdict))


def _of_size(
    plan: GatePlan,
    hop: Hop,
    rate: int,
    trains: Sequence[Train],
    times: Sequence[Times],
    allowed: Allowed,
    z: float,
    limit: tuple[float, str],
) -> Check:
    """The verdict of trains of one frame length; ``limit``: the error that has to be detectable, and of what."""
    configured, train = rate_text(rate), trains[0]
    highest = rate
    if not train.feed.faster and train.feed.other_bps is not None:
        rate = min(rate, train.feed.other_bps)  # the trains show no more than that it is no lower
    paced = [train for train in trains if _kept_up(plan, train, times, rate)]
    arrived = {index: came for index, of in enumerate(paced) if (came := train_rate(plan, of, times)) is not None}
    measured = {index: bps for index, (bps, _) in arrived.items()}
    values = {
        "trains_bps": [round(bps) for bps in measured.values()],
        "trains": len(trains),
        "frame_bytes": train.frame_bytes,
    }
    if not measured:
        why = "the sender was too slow" if not paced else "too few frames arrived"
        return Check(hop.name, "rate", "unproved", configured, why=why, values=values)
    frames = sum(times[index].sent for index in train.streams)
    part = min(part for _, part in arrived.values())
    length_ns = max(1, frames - 1) * part * _bits(train) * S / rate
    # Jitter moves the first and the last frame of each train; 1.25: how much wider a median spreads than a mean.
    path = max((plan.paths[pair] for pair in train.feed.pairs), key=_variance_ns2)
    spread_ns = math.sqrt(2 * _variance_ns2(path))
    independent = len(measured) if all(_outlasts(length_ns, h.spec) for h in path) else 1
    error = 1.25 * spread_ns / length_ns / math.sqrt(independent)
    # What is lost behind the slowest direction has taken its time there.
    slowest_last = len(train.feed.pairs) > 1 or not train.feed.faster
    lost = lost_ratio(path if slowest_last else before(path, hop.name))
    if lost_ratio(path) == 1:
        return Check(hop.name, "rate", "unproved", configured, why="every frame is lost", values=values)
    if lost:  # these are only known in the mean
        error += 1.25 * math.sqrt(_burst_frames(path) * lost / (1 - lost) / (frames * part) / len(measured))
    if _shuffled(before(path, hop.name)):  # which frames were the first and the last one is not known
        error += 2 * math.sqrt(lost_ratio(path)) / (1 - lost_ratio(path)) / (frames * part)
    noise = allowed.noise_ns / length_ns
    ratio = allowed.rate_ratio + noise + z * error
    # A wrong rate is measured with the same noise, which may hide as much of what it is off by.
    detectable = ratio + noise + sigmas(MISS) * error
    # A train whose first frames came late seems too fast. It is left out unless it would be too fast even with those
    # frames in time.
    fastest = (1 + ratio) * highest
    late = {
        index
        for index, bps in measured.items()
        if bps > fastest
        and (late_ns := _first_late_ns(plan, paced[index], times, allowed)) > 0
        and (on_time := train_rate(plan, paced[index], times, late_ns)) is not None
        and on_time[0] <= fastest
    }
    kept = sorted(bps for index, bps in measured.items() if index not in late)
    values["late"] = len(late)
    bps = statistics.median(kept or measured.values())

    def check(verdict: Verdict, why: str = "") -> Check:
        bounds = f"{ratio:.1%} either way"
        return Check(hop.name, "rate", verdict, configured, rate_text(bps), bounds, why, values)

    def off(bps: float) -> int:
        return (bps > (1 + ratio) * highest) - (bps < (1 - ratio) * rate)

    if ratio > _WIDEST_RATIO:
        return check("unproved", "the samples spread too far")
    if len(kept) < len(measured) / 2:
        return check("unproved", f"the first frames of {len(late)} of {len(measured)} trains were late")
    if off(statistics.median_low(kept)) != off(statistics.median_high(kept)):
        return check("unproved", "the two halves of its trains disagree")
    if off(bps):
        # Where a frame takes less than it costs the machine, frames that waited for it also come too fast.
        if rate > allowed.sure_bps and (bps < rate or _bits(train) * S / rate < FRAME_MIN_NS):
            return check("unproved", "more than this machine surely forwards")
        if 0 < rate - bps <= min(allowed.detectable_ratio, ratio + (_PAUSE_NOISES - 1) * noise) * rate:
            return check("unproved", "this machine, if busy, may be that much slower itself")
        return check("wrong")
    if not train.feed.faster:
        return check("unproved", f"no path is faster: not below {rate_text(bps)}")
    if detectable > limit[0]:
        return check("unproved", f"{limit[1]} shows only if a rate is {detectable:.1%} off")
    return check("proved")


def _variance_ns2(path: Sequence[Hop]) -> float:
    """That of the delay of a path, by its jitters."""
    return sum(hop.spec.jitter.deviation_ns**2 for hop in path if hop.spec.jitter is not None)


def _outlasts(length_ns: float, spec: DirectionSpec) -> bool:
    """Whether the jitter at the ends of a train is independent, and so that of consecutive trains."""
    return spec.jitter is None or length_ns >= 2 * spec.jitter.held_correlation_ns


def _unlimited(plan: GatePlan, hop: Hop, trains: Sequence[Train], times: Sequence[Times], allowed: Allowed) -> Check:
    """An unlimited direction is proved as far as it can be: not limited below what the rest of its paths carries."""
    measured = [(came[0], train) for train in trains if (came := train_rate(plan, train, times)) is not None]
    values = {"trains_bps": [round(bps) for bps, _ in measured], "trains": len(trains)}
    if not measured:
        return Check(hop.name, "rate", "unproved", "unlimited", why="too few frames arrived", values=values)
    bps = statistics.median(bps for bps, _ in measured)
    offered = statistics.median(_offered_bps(train, times) for _, train in measured)
    rest = float(trains[0].feed.other_bps or math.inf)
    least = min(rest, offered)
    text = f"not below {rate_text(bps)}"
    # Jitter alone may spread a train so far, whatever the rate.
    reach_ns = 2 * max(jitter_reach_ns(plan.paths[pair]) for pair in trains[0].feed.pairs)
    if bps < _LIMITED_RATIO * least and bps < _LIMITED * allowed.sure_bps:
        sent_bits = (len(_sent(trains[0], times)) - 1) * _reaching(plan, trains[0]) * _bits(trains[0])
        if sent_bits * S * (1 / bps - 1 / least) <= reach_ns:
            return Check(
                hop.name, "rate", "unproved", "unlimited", text, why="the samples spread too far", values=values
            )
        return Check(hop.name, "rate", "wrong", "unlimited", rate_text(bps), rate_text(least), values=values)
    if bps >= min(_UNLIMITED_RATIO * rest, _UNLIMITED_BPS):
        return Check(hop.name, "rate", "proved", "unlimited", text, values=values)
    return Check(hop.name, "rate", "unproved", "unlimited", text, why=text, values=values)


def _bits(train: Train) -> int:
    """What a frame of the train takes of the direction's rate."""
    return (train.frame_bytes + train.feed.hop.spec.overhead_bytes) * 8


def _sent(train: Train, times: Sequence[Times]) -> list[tuple[int, int, int]]:
    """When the frames of a train were sent, in order, with their stream and their number in it."""
    return sorted((at, stream, number) for stream in train.streams for number, at in enumerate(times[stream].sent_ns))


def _offered_bps(train: Train, times: Sequence[Times]) -> float:
    sent = _sent(train, times)
    return (len(sent) - 1) * _bits(train) * S / max(1, sent[-1][0] - sent[0][0])


def _reaching(plan: GatePlan, train: Train) -> float:
    """The share of the frames of a train that reach the direction, of the path that loses most."""
    return 1 - max(lost_ratio(before(plan.paths[pair], train.feed.hop.name)) for pair in train.feed.pairs)


def _kept_up(plan: GatePlan, train: Train, times: Sequence[Times], rate: int) -> bool:
    """Whether every frame was sent before the direction could have sent it: else the sender's rate shows."""
    frame_ns = _bits(train) * S / rate * _reaching(plan, train)
    if len({sender for sender, _ in train.feed.pairs}) == 1:
        streams = [[at for at, _, _ in _sent(train, times)]]
    else:
        frame_ns *= len(train.streams)
        streams = [list(times[stream].sent_ns) for stream in train.streams]
    return all(
        len(sent) > 1 and all(at - sent[0] <= k * frame_ns + _SENDER_SLACK_NS for k, at in enumerate(sent))
        for sent in streams
    )


def _single_ns(plan: GatePlan, stream: int, times: Sequence[Times], frame_bytes: int) -> float:
    """The longest time of a frame that meets no other over the path of a stream, from the frames for delays."""
    pair = plan.streams[stream].sender, plan.streams[stream].receiver
    path = plan.paths[pair]
    took_ns = sum(hop.spec.delay_ns + hop.spec.serialization_ns(frame_bytes) for hop in path)
    if probes := [delay for delay in times[plan.delays[pair]].delay_ns if delay >= 0] if pair in plan.delays else []:
        probe_ns = sum(hop.spec.delay_ns + hop.spec.serialization_ns(PROBE_FRAME_BYTES) for hop in path)
        took_ns += round(statistics.median(probes)) - probe_ns
    return took_ns + jitter_reach_ns(path)


def _first_late_ns(plan: GatePlan, train: Train, times: Sequence[Times], allowed: Allowed) -> float:
    """By how much the first frames of a train came later than single frames of its paths do; 0 where within noise."""
    firsts = [times[stream].delay_ns[0] if times[stream].delay_ns else -1 for stream in train.streams]
    if min(firsts) < 0:
        return 0.0  # unknown
    # Of several streams, each first frame waits for those of the others.
    late_ns = min(
        first - _single_ns(plan, stream, times, train.frame_bytes)
        for first, stream in zip(firsts, train.streams, strict=True)
    )
    return late_ns if late_ns > allowed.noise_ns else 0.0


def train_rate(
    plan: GatePlan, train: Train, times: Sequence[Times], late_ns: float = 0.0
) -> tuple[float, float] | None:
    """The rate at which a train arrived, bit/s, and the part of the train that shows it; ``None`` where too little did.

    One sender: whatever a receiver got, the frames between its first and its last took their time at the direction,
    also those that others got or that were lost. Several senders: what came of each while frames of all
    of them came. A direction without a limit carries what the rest of the paths do, together. ``late_ns``: the first
    frames were due so much earlier than they came.
    """
    bits = _bits(train) * S
    unlimited = train.feed.hop.spec.rate_bps is None
    if unlimited or len({sender for sender, _ in train.feed.pairs}) == 1:
        arrivals: dict[int, list[tuple[int, int]]] = {}
        for order, (at, stream, number) in enumerate(_sent(train, times)):
            if (delay := times[stream].delay_ns[number]) >= 0:
                arrivals.setdefault(stream, []).append((number if unlimited else order, at + delay))
        rates, parts = [], []
        for stream, got in arrivals.items():
            path = plan.paths[plan.streams[stream].sender, plan.streams[stream].receiver]
            ahead = before(path, train.feed.hop.name)
            orders, came = [order for order, _ in got], [at for _, at in got]
            if _shuffled(ahead):
                orders, came = sorted(orders), sorted(came)  # they reach the direction in another order
            if came[-1] > came[0]:
                reach = 1 - lost_ratio(ahead)
                rates.append((orders[-1] - orders[0]) * reach * bits / (came[-1] - came[0] + late_ns))
                parts.append((orders[-1] - orders[0]) / (sum(times[index].sent for index in train.streams) - 1))
        if not rates or (unlimited and len(rates) < len(train.streams)):
            return None
        return (sum(rates), 1.0) if unlimited else (statistics.median(rates), statistics.median(parts))
    each = [
        sorted(
            at + delay for at, delay in zip(times[stream].sent_ns, times[stream].delay_ns, strict=True) if delay >= 0
        )
        for stream in train.streams
    ]
    if not all(each):
        return None
    begin, end = max(got[0] for got in each), min(got[-1] for got in each)
    during = sorted(at for got in each for at in got if begin <= at <= end)
    if len(during) <= len(each) or during[-1] == during[0]:
        return None
    kept = 1 - loss_ratio(train.feed.hop.spec)
    return (len(during) - 1) * bits / (during[-1] - during[0] + late_ns) / kept, 1.0


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


def _shuffled(path: Sequence[Hop]) -> bool:
    """Whether frames may overtake each other on a path."""
    return any(hop.spec.jitter is not None and hop.spec.jitter.reorder for hop in path)


def _burst_frames(path: Sequence[Hop]) -> float:
    """How many frames of a path show as much of its losses as one of which each is lost independently."""
    correlation = max((hop.spec.loss.correlation for hop in path if hop.spec.loss is not None), default=0.0)
    return (1 + correlation) / (1 - correlation) if correlation < 1 else math.inf


def _late_ns(
    plan: GatePlan, frames: Sequence[tuple[int, int, int]], times: Sequence[Times], frame_ns: float, frame_bytes: int
) -> float:
    """By how much a frame of a train came later, at most, than it had to: it waits for those ahead of it that came.

    ``frames``: when each reaches the direction, its stream, its number there.
    """
    single_ns = {stream: _single_ns(plan, stream, times, frame_bytes) for stream in {frame[1] for frame in frames}}
    late, busy_ns = 0.0, 0.0
    for at, stream, number in frames:
        if (delay := times[stream].delay_ns[number]) >= 0:
            begin = max(at, busy_ns)
            busy_ns = begin + frame_ns
            late = max(late, delay - (begin - at) - single_ns[stream])
    return late


def queue_checks(plan: GatePlan, times: Sequence[Times], allowed: Allowed, z: float) -> Iterator[Check]:
    """How much may wait before every direction with a rate: of a longer train, what does not fit has to be lost."""
    for hop in plan.hops:
        spec = hop.spec
        if spec.rate_bps is None:
            continue
        train = plan.queues.get(hop.name)
        limits = [f"{count} {unit}" for count, unit in ((spec.queue_bytes, "bytes"),) if count is not None]
        frames = spec.queue_frames or (None if limits else spec.default_queue_frames)
        configured = ", ".join([*([f"{frames} frames"] if frames is not None else []), *limits]) or "default"
        if train is None:
            why = plan.left_out.get((hop.name, "queue"), "this kind of link does not show it")
            yield Check(hop.name, "queue", "unproved", configured, why=why)
        else:
            yield _queue(plan, hop, train, times, allowed, z, configured)


def _queue(
    plan: GatePlan, hop: Hop, train: Train, times: Sequence[Times], allowed: Allowed, z: float, configured: str
) -> Check:
    spec = hop.spec
    capacity = capacity_frames(spec, train.frame_bytes)
    assert spec.rate_bps is not None and capacity is not None
    frame_ns = _bits(train) * S / spec.rate_bps
    offsets = {stream: plan.streams[stream].start_ns for stream in train.streams}
    first = min(offsets.values())
    # As they reach the direction: paths that are longer before it began earlier.
    sent = sorted((at - (offsets[stream] - first), stream, number) for at, stream, number in _sent(train, times))
    received = sum(times[stream].received for stream in train.streams)
    # Frames of a stream that are lost before the direction never reach its queue; those lost behind it were in it.
    paths = {stream: plan.paths[plan.streams[stream].sender, plan.streams[stream].receiver] for stream in train.streams}
    reach = {stream: 1 - lost_ratio(before(path, hop.name)) for stream, path in paths.items()}
    lost = {stream: lost_ratio(path) for stream, path in paths.items()}
    if max(lost.values()) == 1:
        return Check(hop.name, "queue", "unproved", configured, why="every frame behind it is lost as configured")
    for_one = max(_burst_frames(path) for path in paths.values())
    offered = [at for at, stream, number in sent if int((number + 1) * reach[stream]) > int(number * reach[stream])]
    expected = fits(offered, frame_ns, capacity)
    # Jitter before the direction brings frames together, or keeps them apart, by what it reaches either way.
    reach_ns = 2 * max(jitter_reach_ns(before(plan.paths[pair], hop.name)) for pair in train.feed.pairs)
    slack = _QUEUE_FRAMES + _QUEUE_RATIO * capacity + (allowed.noise_ns + reach_ns) / frame_ns
    varied = sum(len(times[stream].sent_ns) * share / (1 - share) for stream, share in lost.items())
    slack += z * math.sqrt(varied * for_one) if varied else 0
    came = sum(times[stream].received * reach[stream] / (1 - lost[stream]) for stream in train.streams)
    excess = len(offered) - expected
    # What arrived is what fits and what went on while the train came; the rest is the queue.
    measured = capacity + came - expected
    values = {"sent": len(sent), "received": received, "expected": expected, "frame_bytes": train.frame_bytes}
    text, bounds = f"{measured:.0f} frames", f"{slack:.0f} frames either way"
    if excess < 2 * slack:
        why = "the sender was too slow to fill it" if excess < _QUEUE_FRAMES else "the samples spread too far"
        return Check(hop.name, "queue", "unproved", configured, why=why, values=values)
    if abs(came - expected) <= slack:
        return Check(hop.name, "queue", "proved", configured, text, bounds, values=values)
    text, bounds = f"{came:.0f} of {len(sent)} frames taken", f"{expected - slack:.0f} to {expected + slack:.0f}"
    # Where the kernel does not stamp them, frames come when they are read: after a pause, to a queue that has emptied.
    late_ns = _late_ns(plan, sent, times, frame_ns, train.frame_bytes) if not any(lost.values()) else 0.0
    if late_ns > allowed.noise_ns and slack < came - expected <= slack + late_ns / frame_ns:
        why = f"frames came up to {delay_text(round(late_ns))} late meanwhile, so that more of them fit"
        return Check(hop.name, "queue", "unproved", configured, text, bounds, why, values)
    return Check(hop.name, "queue", "wrong", configured, text, bounds, values=values)
