"""The gate's plan: streams that show delay, loss, jitter, rate and queue of every direction. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, permutations

from containernet_env.model.dilation import emulated
from containernet_env.model.link import FULL_FRAME_BYTES, DirectionSpec, Hop
from containernet_env.model.proof import Property
from containernet_env.model.topology import PROBE_FRAME_BYTES, Topology

_FASTER, _FASTER_TOGETHER = 1.05, 1.5
"""By how much the rest of a path is faster, so that what arrives shows the direction's own rate: of one path, and of
several paths together, whose frames do not share the rest evenly."""
UNLIMITED_BPS = 10**9
"""The rate sent over a direction without a limit, if the rest of the path carries it; a gate requires half of it."""


@dataclass(frozen=True, slots=True)
class Feed:
    """The paths that fill one direction (``hop``): from one host to several, or from several to one.

    ``faster``: whether the rest of the paths is faster, so that the direction's own rate shows.
    ``other_bps`` is what the rest of the paths carries together; ``None`` where nothing limits it.
    """

    hop: Hop
    pairs: tuple[tuple[str, str], ...]
    paths: tuple[Sequence[Hop], ...]
    faster: bool
    other_bps: int | None = None

    @property
    def ahead(self) -> list[Sequence[Hop]]:
        """The part of each path before the direction."""
        return [before(path, self.hop.name) for path in self.paths]

    @property
    def hidden(self) -> str | None:
        """Why no train over its paths shows the direction; ``None`` if one may."""
        if any(loss_ratio(hop) >= 1 for path in self.paths for hop in path):
            return "every frame is lost"
        return "frames reach it twice, which takes its time twice" if max(map(copies, self.ahead)) > 1 else None

    @property
    def rate_bps(self) -> int:
        """The rate at which frames get through its paths, or are sent where nothing limits it."""
        limits = (bps for bps in (self.hop.spec.rate_bps, self.other_bps) if bps is not None)
        return min(limits, default=UNLIMITED_BPS)


def feed_of(plan: GatePlan, hop: Hop, *, overload: bool = False, frame_bytes: int = FULL_FRAME_BYTES) -> Feed:
    """The paths that fill a direction: one whose rest is faster, else as few as are faster together.

    ``overload``: what comes before the direction has to be faster; what comes after it, no slower. ``frame_bytes``: of
    the frames, for what a frame takes besides decides which link is faster. A direction without a limit is filled by
    the paths that carry most together, as few as carry enough.
    """

    def feed(faster: bool, other_bps: int | None, *pairs: tuple[str, str]) -> Feed:
        return Feed(hop, pairs, tuple(plan.paths[pair] for pair in pairs), faster, other_bps)

    rate = hop.spec.rate_bps
    best = []
    for pair in plan.over(hop):
        bps = _rest_bps(plan.paths[pair], hop, rate, frame_bytes)
        filling = _rest_bps(plan.paths[pair], hop, rate, frame_bytes, overload=True) if overload else bps
        best.append((filling, bps, pair))
    best.sort(key=lambda item: (-item[0], -item[1]))
    least, _, pair = best[0]
    other = None if least == math.inf else max(1, round(least))
    faster = rate is None or other is None or least >= rate * (_FASTER_TOGETHER if overload else _FASTER)
    alone = feed(faster, other, pair)
    if other is None or (rate is not None and faster):
        return alone
    widest, carried = alone, 0.0
    for together, bps in _groups(plan, hop, [(bps, candidate) for bps, _, candidate in best]):
        if rate is not None:
            if len(together) > 1 and bps * len(together) >= rate * _FASTER_TOGETHER:
                return feed(True, None, *together)
            continue
        if (widest.other_bps or 0) >= UNLIMITED_BPS:
            break
        carried = bps if len(together) == 1 else carried + bps
        # They send for the same time: one that is much slower than the others would send few frames.
        if carried > (widest.other_bps or 0) and bps * len(together) * 2 >= carried:
            widest = feed(True, round(carried), *together)
    return widest


def _groups(
    plan: GatePlan, hop: Hop, best: Sequence[tuple[float, tuple[str, str]]]
) -> Iterator[tuple[tuple[tuple[str, str], ...], float]]:
    """Paths over a direction that share no other one, one more each time, and the rate of the rest of that one.

    From one host to several, then from several to one; ``best``: all paths over it, the fastest first.
    """
    for same in (0, 1):
        for _, pair in best:
            together: list[tuple[str, str]] = []
            for bps, candidate in best:
                if candidate[same] == pair[same] and not _share_rest(plan, hop, together, candidate):
                    together.append(candidate)
                    yield tuple(together), bps


def _rest_bps(path: Sequence[Hop], hop: Hop, rate: int | None, frame_bytes: int, *, overload: bool = False) -> float:
    """The least rate at which the rest of a path lets frames reach or leave a direction; infinite without a limit.

    Rates are of frames of that length as the direction counts them: those with less overhead than it are worth more.
    Frames that are lost before the direction do not reach it; 0 where frames reach it twice, which is no measure of it.
    """
    least, made = math.inf, 1.0
    ahead = before(path, hop.name)
    if copies(ahead) > 1:
        return 0.0
    loses = gone_ratio(ahead) > 0
    for index, other in enumerate(path):
        if other.spec.rate_bps is not None and index != len(ahead):
            taken = (frame_bytes + hop.spec.overhead_bytes) / (frame_bytes + other.spec.overhead_bytes)
            bps = other.spec.rate_bps * taken / made
            if index < len(ahead):
                least = min(least, bps * (1 - gone_ratio(ahead[index:])) if loses else bps)
            elif not overload or rate is None or bps < rate:  # else what leaves the direction goes on
                least = min(least, bps)
        made *= 1 + other.spec.duplication_ratio
    return least


def _share_rest(plan: GatePlan, hop: Hop, pairs: Sequence[tuple[str, str]], candidate: tuple[str, str]) -> bool:
    rest = {other.name for pair in pairs for other in plan.paths[pair]} - {hop.name}
    return any(other.name in rest for other in plan.paths[candidate])


MIN_FRAME_BYTES = 60
S, MS, US = 1_000_000_000, 1_000_000, 1_000

_DELAY_NS, _JITTER_NS, _LOSS_NS, _RATE_NS, _QUEUE_NS = 550 * MS, 800 * MS, 600 * MS, 400 * MS, 400 * MS
"""How long each part may take, without the time for frames to arrive: delays, delays where there is jitter, losses,
rates, queues. The last two grow with the number of hosts beyond ``_HOSTS``."""
_HOSTS = 6
NOISE_NS = 100 * US
"""By how much single times spread on links by the emulator, in real time."""
_DELAY_SLOTS, _DELAY_SLOTS_MIN = 1000, 150
"""Frames of every host: the first number if there is time, the second even if it takes twice the time; fewer cannot
show that a fifth of them is late."""
_LOSS_FRAMES, _QUEUE_FRAMES = 33_333, 100_000
"""Frames for losses, at most, and for queues where there are no more than ``_HOSTS``: as many as in real time."""
_DELAY_FRAMES = 500
"""Frames per direction for delays, and the least number that distinguishes 1 % loss from none: 0.99^500 = 0.7 %."""
_PATH_FRAMES = 7
"""Frames of a path for its delay: 5 are enough, and some may be lost."""
_TRAINS = 8
_TRAIN_MAX_NS = 60 * MS
_TRAIN_FRAMES_MIN, _TRAIN_FRAMES_MAX = 12, 1000
_TRAIN_REACHES = 40
"""How much longer a train is than jitter reaches, which moves its ends."""
_OVERLOAD = 2.5
"""How much faster a queue is taken to be filled than it empties. Frames are sent as fast as it goes; where that is
slower, fewer are lost, which the verdict takes into account."""
_OVERLOAD_LEAST = 1.25
"""How much faster at least: a queue that hardly grows takes more frames than a machine forwards at that pace."""
_QUEUE_OVER_RATIO, _QUEUE_OVER_FRAMES = 1.25, 20
_BURST_FRAMES = 100
"""How many frames of one path may come together where a direction that overflows is filled over several."""
_WARMUP_FRAMES = 20
"""How many frames of a warm-up a path may lose one after the other."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What this machine allows a gate over links of one kind.

    ``delay_ns``, ``loss_ns``: the least time per host between two frames for delays, and for losses: a frame's cost on
    this machine, sent, forwarded twice and received. ``train_ns``: the least length of a train.
    ``queues``: whether the queues of its links can be measured.

    ``slot_ns``: the least time in which each host sends a frame for delays. ``frame_ns``: what a frame takes at least
    where there are many. ``fill_ns``: the same of frames that fill a queue: sent as fast as it goes (2.2 us), an
    emulator on two cores fell behind reading them by more than the delay of the link, and where the kernel does not
    stamp them, more then fit. ``drain_ns``: how long a queue that is tested takes to empty. ``at_once_bps`` and
    ``at_once_per_s``: what trains that are sent at once may bring together, and in how many frames. ``margin_ns``:
    between what is sent and the next part, or the end: frames that are later still are taken for lost. ``warmup_ns``:
    how long a path that loses no frame takes to forward the first, and ``warmup_interval_ns`` how often one is sent at
    most. ``sender_ns``: how late a sender of a train may be.
    """

    delay_ns: int
    loss_ns: int
    train_ns: int
    queues: bool
    slot_ns: int = _DELAY_NS // _DELAY_SLOTS
    frame_ns: int = 8 * US
    fill_ns: int = 4 * US
    drain_ns: int = 20 * MS
    at_once_bps: int = 500_000_000
    at_once_per_s: int = 100_000
    margin_ns: int = 2 * MS
    warmup_ns: int = 2 * S
    warmup_interval_ns: int = 5 * MS
    sender_ns: int = 20 * US


EMULATOR_PACE = Pace(30 * US, 18 * US, 10 * MS, queues=True)
KERNEL_PACE = Pace(1 * MS, 1 * MS, 20 * MS, queues=False)


@dataclass(frozen=True, slots=True)
class Stream:
    """Frames from one host to another; times in ns from the start of the measurement."""

    sender: str
    receiver: str
    start_ns: int
    until_ns: int
    interval_ns: int
    count: int
    frame_bytes: int
    count_only: bool = False


@dataclass(frozen=True, slots=True)
class Train:
    """Streams, by their index, that fill one direction at the same time."""

    feed: Feed
    streams: tuple[int, ...]
    frame_bytes: int


@dataclass(slots=True)
class GatePlan:
    """All streams of a gate, and the reasons for omissions (``left_out``, by direction and property).

    ``speedup``: how many times as fast the machine is as in real time.
    """

    hosts: tuple[str, ...]
    paths: Mapping[tuple[str, str], tuple[Hop, ...]]
    hops: tuple[Hop, ...]
    pace: Pace = EMULATOR_PACE
    speedup: int = 1
    streams: list[Stream] = field(default_factory=list)
    delays: dict[tuple[str, str], int] = field(default_factory=dict)
    losses: dict[tuple[str, str], int] = field(default_factory=dict)
    rates: dict[str, list[Train]] = field(default_factory=dict)
    queues: dict[str, Train] = field(default_factory=dict)
    left_out: dict[tuple[str, Property], str] = field(default_factory=dict)
    duration_ns: int = 0
    warmup_ns: int = 0
    warmup_interval_ns: int = 0
    _over: dict[str, list[tuple[str, str]]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for pair, hops in self.paths.items():
            for hop in hops:
                self._over.setdefault(hop.name, []).append(pair)

    def over(self, hop: Hop) -> Sequence[tuple[str, str]]:
        """The paths that a direction is part of, by sender and receiver."""
        return self._over.get(hop.name, ())


def plan_gate(
    topology: Topology, hosts: Iterable[str] | None = None, *, pace: Pace = EMULATOR_PACE, dilation: int = 1
) -> GatePlan:
    """A gate over ``hosts``, two or more (default: all), in the emulated time of a dilation."""
    names = tuple(hosts) if hosts is not None else tuple(host.name for host in topology.hosts)
    paths = {pair: topology.hops(*pair) for pair in permutations(names, 2)}
    hops = tuple({hop.name: hop for path in paths.values() for hop in path}.values())
    speedup = _speedup(hops, dilation) if pace.queues else 1
    pace = emulated(pace, speedup)
    plan = GatePlan(names, paths, hops, pace, speedup)
    longest_ns = max(longest_path_ns(path) for path in paths.values())
    # As many frames as leave the slowest direction idle for half of the time: what waits would delay the measurement.
    slowest_ns = max(hop.spec.serialization_ns(MIN_FRAME_BYTES) for hop in hops)
    plan.warmup_interval_ns = max(pace.warmup_interval_ns, 2 * slowest_ns)
    plan.warmup_ns = pace.warmup_ns + _WARMUP_FRAMES * plan.warmup_interval_ns + 2 * longest_ns
    at_ns = _plan_delays(plan, 0) + longest_ns + pace.margin_ns
    if any(loss_ratio(hop) or hop.spec.duplication_ratio or _sent_over(plan, hop) < _DELAY_FRAMES for hop in hops):
        at_ns = _plan_losses(plan, at_ns) + longest_ns + pace.margin_ns
    at_ns = _plan_rates(plan, at_ns) + longest_ns
    if pace.queues:
        at_ns = _plan_queues(plan, at_ns) + longest_ns
    plan.duration_ns = at_ns + pace.margin_ns
    return plan


def _speedup(hops: Iterable[Hop], dilation: int) -> int:
    """By how much a gate makes use of a machine that a dilation makes faster: where nothing but the machine limits it.

    Chance needs as many frames and as long as in real time. Frames that meet on slow links come later than planned,
    which ``NOISE_NS`` covers in real time: less of it, but no less than a frame takes.
    """
    specs = [hop.spec for hop in hops]
    if any(spec.jitter or spec.loss or spec.aqm or spec.duplication_ratio or spec.corruption_ratio for spec in specs):
        return 1
    slowest_ns = max(spec.serialization_ns(PROBE_FRAME_BYTES) for spec in specs)
    return max(1, min(dilation, NOISE_NS // max(1, slowest_ns)))


def _sent_over(plan: GatePlan, hop: Hop) -> int:
    """How many frames for delays are sent over a direction."""
    return sum(plan.streams[plan.delays[pair]].count for pair in plan.over(hop) if pair in plan.delays)


def delay_ns(path: Iterable[Hop]) -> int:
    """The sum of the delays of directions."""
    return sum(hop.spec.delay_ns for hop in path)


def path_ns(path: Sequence[Hop], frame_bytes: int = PROBE_FRAME_BYTES) -> int:
    """How long a frame takes that meets no other, without jitter."""
    return delay_ns(path) + sum(hop.spec.serialization_ns(frame_bytes) for hop in path)


def longest_path_ns(path: Sequence[Hop]) -> int:
    """The longest that a frame for delays may take where it meets no other."""
    return path_ns(path) + jitter_reach_ns(path)


def jitter_reach_ns(path: Iterable[Hop]) -> int:
    """The largest change of a path's delay by jitter, either way."""
    return sum(hop.spec.jitter.reach_ns for hop in path if hop.spec.jitter is not None)


def variance_ns2(*hops: Hop) -> float:
    """The variance of the delay over these directions, as configured."""
    return sum(hop.spec.jitter.deviation_ns**2 for hop in hops if hop.spec.jitter is not None)


def loss_ratio(hop: Hop) -> float:
    """The configured share of frames that a direction loses, with those that the prober finds corrupted."""
    loss = hop.spec.loss.mean_ratio if hop.spec.loss is not None else 0.0
    return 1 - (1 - loss) * (1 - hop.spec.corruption_ratio) if hop.spec.corruption_ratio else loss


def lost_ratio(path: Iterable[Hop]) -> float:
    return arrivals(path)[0]


def gone_ratio(path: Iterable[Hop]) -> float:
    """The share of the frames of a path that do not reach what follows it; corrupted ones do."""
    losses = (hop.spec.loss for hop in path)
    return 1 - math.prod(1 - loss.mean_ratio for loss in losses if loss is not None)


def arrivals(path: Iterable[Hop]) -> tuple[float, float]:
    """The shares of the frames of a path that do not arrive, and that arrive once.

    Their number of copies is a branching process, whose generating function is that of each direction in turn (Harris,
    The Theory of Branching Processes, 1963, I.5): its value at 0 is the former, its slope there the latter.
    """
    none, once = 0.0, 1.0
    for hop in reversed([*path]):
        loss, twice = loss_ratio(hop), hop.spec.duplication_ratio
        once *= (1 - loss) * (1 - twice + 2 * twice * none)
        none = loss + (1 - loss) * ((1 - twice) * none + twice * none**2)
    return none, once


def copies(path: Iterable[Hop]) -> float:
    """How many frames a path makes of one, in the mean and without losses."""
    return math.prod(1 + hop.spec.duplication_ratio for hop in path)


def _most_copies(path: Iterable[Hop], frames: int) -> float:
    """How many frames a path makes of so many, at most: five standard deviations above the mean, or all copies.

    The variance for one frame is m (m - 1) at most, m being the mean (Harris, see ``arrivals``).
    """
    hops = [hop for hop in path if hop.spec.duplication_ratio]
    mean = copies(hops)
    return min(frames * 2.0 ** len(hops), frames * mean + 5 * math.sqrt(frames * mean * (mean - 1)))


def before(path: Sequence[Hop], name: str) -> Sequence[Hop]:
    """The directions that a frame takes before that of a name."""
    return path[: next(index for index, hop in enumerate(path) if hop.name == name)]


def capacity_frames(spec: DirectionSpec, frame_bytes: int) -> int | None:
    """How many frames of a length may wait; ``None`` where no limit is known or nothing ever waits."""
    if spec.rate_bps is None:
        return None
    limits = [spec.frame_limit] if spec.frame_limit is not None else []
    if spec.queue_bytes is not None:
        limits.append(spec.queue_bytes // frame_bytes)
    return min(limits) if limits else None


def _plan_delays(plan: GatePlan, at_ns: int) -> int:
    """One frame of every host per slot, to the others in turn; when they have all been sent."""
    jitter = any(hop.spec.jitter is not None for hop in plan.hops)
    length_ns = _JITTER_NS if jitter else _DELAY_NS
    slot_ns = max(
        length_ns // _DELAY_SLOTS if jitter else plan.pace.slot_ns,
        10 * max(hop.spec.serialization_ns(PROBE_FRAME_BYTES) for hop in plan.hops),
        plan.pace.delay_ns * len(plan.hosts),
    )
    # A frame for every path at least, whatever time that takes, up to twice the time.
    wanted = max(_DELAY_SLOTS_MIN, 10 * (len(plan.hosts) - 1))
    slots = min(_DELAY_SLOTS, max(length_ns // slot_ns, min(2 * length_ns // slot_ns, wanted)))
    return _turns(plan, plan.delays, at_ns, slot_ns, slots, PROBE_FRAME_BYTES, count_only=False)


def _plan_losses(plan: GatePlan, at_ns: int) -> int:
    """Small frames, as many as every direction carries at half of its rate."""
    most_copies = math.ceil(max(copies(path) for path in plan.paths.values()))
    slot_ns = max(
        2 * most_copies * max(hop.spec.serialization_ns(MIN_FRAME_BYTES) for hop in plan.hops),
        plan.pace.loss_ns * len(plan.hosts),
    )
    capacities = (capacity_frames(hop.spec, MIN_FRAME_BYTES) for hop in plan.hops)
    if any(frames is not None and frames < 2 * len(plan.hosts) for frames in capacities):
        slot_ns *= 5  # a short queue is not to lose any of them
    slots = min(_LOSS_NS // slot_ns, _LOSS_FRAMES // len(plan.hosts))
    return _turns(plan, plan.losses, at_ns, slot_ns, slots, MIN_FRAME_BYTES, count_only=True)


def _turns(
    plan: GatePlan,
    kept: dict[tuple[str, str], int],
    at_ns: int,
    slot_ns: int,
    slots: int,
    frame_bytes: int,
    *,
    count_only: bool,
) -> int:
    """In each slot every host sends a frame, each to another one, so no two of a slot share a direction of a star.

    Where there is no time for some frames on every path, fewer paths get them: in a star still some over every
    direction.
    """
    others = len(plan.hosts) - 1
    if slots < _PATH_FRAMES * others:
        others = max(1, slots // _PATH_FRAMES)
    count = slots // others
    end_ns = at_ns + slots * slot_ns
    if not count:
        return at_ns
    for index, sender in enumerate(plan.hosts):
        for turn in range(others):
            receiver = plan.hosts[(index + 1 + turn) % len(plan.hosts)]
            start_ns = at_ns + turn * slot_ns + index * slot_ns // len(plan.hosts)
            kept[sender, receiver] = len(plan.streams)
            plan.streams.append(
                Stream(sender, receiver, start_ns, end_ns, others * slot_ns, count, frame_bytes, count_only)
            )
    return end_ns


@dataclass(frozen=True, slots=True)
class _Task:
    """A train that is to be sent: its streams with times from its start, and what it takes of the network."""

    feed: Feed
    streams: tuple[Stream, ...]
    length_ns: int
    offered_bps: float
    frames_per_s: float


def _plan_rates(plan: GatePlan, at_ns: int) -> int:
    limit_ns = _scaled(plan, _RATE_NS)
    tasks = []
    for hop in plan.hops:
        task = _rate_task(plan, feed_of(plan, hop), FULL_FRAME_BYTES)
        if task.feed.hidden is not None:
            plan.left_out[hop.name, "rate"] = task.feed.hidden
        elif sum(stream.count for stream in task.streams) < 2:
            plan.left_out[hop.name, "rate"] = "its queue takes no second frame"
        elif task.length_ns - max(stream.start_ns for stream in task.streams) >= _unregulated_ns(task.feed):
            plan.left_out[hop.name, "rate"] = "a queue discipline drops frames of a train that can be timed"
        elif task.length_ns > limit_ns:
            plan.left_out[hop.name, "rate"] = f"a train would take {task.length_ns / S:.1f} s"
        else:
            tasks += [task, *_small_task(plan, hop, task)]
    longest = sorted(range(len(tasks)), key=lambda index: -tasks[index].length_ns)

    def without(count: int) -> list[list[_Task]]:
        left_out = set(longest[:count])
        return _rounds(plan.pace, [task for index, task in enumerate(tasks) if index not in left_out])

    late = bisect_left(range(len(tasks)), True, key=lambda count: _length_ns(plan, without(count)) <= limit_ns)
    for task in (tasks[index] for index in longest[:late]):
        plan.left_out[task.feed.hop.name, "rate"] = f"no time was left for a train of {task.length_ns / S:.1f} s"
    rounds = without(late)
    trains = min(_TRAINS, limit_ns // _length_ns(plan, rounds)) if rounds else 0
    return _send(plan, rounds * trains, at_ns, lambda name, train: plan.rates.setdefault(name, []).append(train))


def _scaled(plan: GatePlan, limit_ns: int) -> int:
    return limit_ns * max(_HOSTS, len(plan.hosts)) // _HOSTS


def _small_task(plan: GatePlan, hop: Hop, full: _Task) -> list[_Task]:
    """A train of small frames, which shows the overhead of a direction that has one."""
    rate = hop.spec.rate_bps
    if rate is None or not hop.spec.overhead_bytes:
        return []
    small = max(MIN_FRAME_BYTES, math.ceil(plan.pace.frame_ns * rate / 8 / S) - hop.spec.overhead_bytes)
    feed = feed_of(plan, hop, frame_bytes=small)
    return [_rate_task(plan, feed, small)] if feed.faster and small < full.streams[0].frame_bytes else []


def _rate_task(plan: GatePlan, feed: Feed, frame_bytes: int) -> _Task:
    """A train that is long enough to be timed, and no longer than the queues on its way.

    If the rest of its path is slower, it takes as long as the rest takes.
    """
    rate = feed.rate_bps
    if _TRAIN_FRAMES_MIN * frame_bytes * 8 * S // rate > _TRAIN_MAX_NS:
        frame_bytes = max(MIN_FRAME_BYTES, _TRAIN_MAX_NS * rate // (_TRAIN_FRAMES_MIN * 8 * S))
        # Of shorter frames the overhead is a larger part, so another path may be the faster one.
        feed = feed_of(plan, feed.hop, frame_bytes=frame_bytes)
        rate = feed.rate_bps
    frame_ns = (frame_bytes + feed.hop.spec.overhead_bytes) * 8 * S / rate
    reach_ns = max(map(jitter_reach_ns, feed.paths))
    frames = round(max(plan.pace.train_ns, _TRAIN_REACHES * reach_ns) / frame_ns)
    longest_ns = min(_TRAIN_MAX_NS, _REGULATED_PART * _unregulated_ns(feed))
    frames = max(_TRAIN_FRAMES_MIN, min(frames, _TRAIN_FRAMES_MAX, round(longest_ns / frame_ns)))
    each = -(-frames // len(feed.pairs))
    for path in feed.paths:
        for hop in path:
            if (capacity := capacity_frames(hop.spec, frame_bytes)) is not None:
                shared = len(feed.pairs) if hop.name == feed.hop.name else 1
                shared *= math.ceil(copies(before(path, hop.name)))
                each = min(each, max(1, (capacity + 1) // shared))
    offsets = _offsets_ns(feed)
    streams = tuple(
        Stream(*pair, offset, offset + S, 0, each, frame_bytes)
        for pair, offset in zip(feed.pairs, offsets, strict=True)
    )
    # A direction faster than the machine takes as long as the machine does; of several paths, the slowest one counts.
    slowest_ns = max(
        hop.spec.serialization_ns(frame_bytes) * _most_copies(before(path, hop.name), each)
        for path in feed.paths
        for hop in path
    )
    length_ns = round(max(each * len(feed.pairs) * max(frame_ns, plan.pace.frame_ns), slowest_ns))
    length_ns += max(offsets)
    # The last frame is to be through the rest of its path, too, before that of another train comes there.
    length_ns += max(sum(hop.spec.serialization_ns(frame_bytes) for hop in path) for path in feed.paths)
    # Without any limit they are sent as fast as the machine sends, in real time.
    at_once = plan.speedup if feed.hop.spec.rate_bps is None and feed.other_bps is None else 1
    return _Task(feed, streams, length_ns, at_once * rate, at_once * S / frame_ns)


_REGULATED_PART = 0.8
"""The part of the time that a queue may stand which a train fills it for, at most."""


def _unregulated_ns(feed: Feed) -> float:
    """How long the queues of a feed may stand before a discipline drops frames of them."""
    aqms = (hop.spec.aqm for path in feed.paths for hop in path)
    return min((aqm.interval_ns for aqm in aqms if aqm is not None), default=math.inf)


def _offsets_ns(feed: Feed) -> list[int]:
    """When each path has to begin so that frames reach the direction together."""
    delays = [delay_ns(path) for path in feed.ahead]
    return [max(delays) - own_ns for own_ns in delays]


def _rounds(pace: Pace, tasks: Sequence[_Task]) -> list[list[_Task]]:
    """Tasks in groups that may be sent at once: they share no limited direction, nor fill the machine."""
    rounds: list[list[_Task]] = []
    taken: list[set[str]] = []
    offered: list[tuple[float, float]] = []
    for task in tasks:
        needs = {
            hop.name
            for path in task.feed.paths
            for hop in path
            if hop.spec.rate_bps is not None or hop.name == task.feed.hop.name
        }
        for number, (bps, frames_per_s) in enumerate(offered):
            together = bps + task.offered_bps, frames_per_s + task.frames_per_s
            fits = together[0] <= pace.at_once_bps and together[1] <= pace.at_once_per_s
            if fits and taken[number].isdisjoint(needs):
                rounds[number].append(task)
                taken[number] |= needs
                offered[number] = together
                break
        else:
            rounds.append([task])
            taken.append(needs)
            offered.append((task.offered_bps, task.frames_per_s))
    return rounds


def _starts_ns(plan: GatePlan, rounds: Sequence[Sequence[_Task]], at_ns: int) -> tuple[list[int], int]:
    """When each of some rounds starts that are sent one after the other, and when the last has been sent.

    A round starts when the one before has been sent, and so late that its frames reach every direction with a rate when
    those of all rounds before it are through.
    """
    starts: list[int] = []
    through: dict[str, int] = {}
    for group in rounds:
        at_ns += plan.pace.margin_ns // 4
        reached = []
        for task in group:
            for stream in task.streams:
                path = plan.paths[stream.sender, stream.receiver]
                for hop in path:
                    if hop.spec.rate_bps is not None:
                        ahead = before(path, hop.name)
                        after_ns, varies_ns = stream.start_ns + delay_ns(ahead), jitter_reach_ns(ahead)
                        at_ns = max(at_ns, through.get(hop.name, 0) - after_ns + varies_ns)
                        reached.append((hop.name, after_ns + varies_ns + task.length_ns + plan.pace.margin_ns // 4))
        starts.append(at_ns)
        for name, after_ns in reached:
            through[name] = max(through.get(name, 0), at_ns + after_ns)
        at_ns += max(task.length_ns for task in group)
    return starts, at_ns


def _length_ns(plan: GatePlan, rounds: Sequence[Sequence[_Task]]) -> int:
    """How long rounds take if they are sent again and again."""
    starts, _ = _starts_ns(plan, [*rounds, *rounds], 0)
    return starts[len(rounds)] - starts[0]


def _send(plan: GatePlan, rounds: Sequence[Sequence[_Task]], at_ns: int, keep: Callable[[str, Train], None]) -> int:
    """Send rounds one after the other; when the last is through."""
    starts, end_ns = _starts_ns(plan, rounds, at_ns)
    for at, group in zip(starts, rounds, strict=True):
        for task in group:
            first = len(plan.streams)
            plan.streams += [
                replace(stream, start_ns=at + stream.start_ns, until_ns=at + stream.until_ns) for stream in task.streams
            ]
            train = Train(task.feed, tuple(range(first, len(plan.streams))), task.streams[0].frame_bytes)
            keep(task.feed.hop.name, train)
    return end_ns


def _plan_queues(plan: GatePlan, at_ns: int) -> int:
    """Trains that are longer than the queue: what does not fit has to be lost."""
    regulated = any(hop.spec.aqm is not None for hop in plan.hops)
    limit_ns = _scaled(plan, _QUEUE_NS) * (_REGULATED_TIMES if regulated else 1)
    tasks = []
    for hop in plan.hops:
        if hop.spec.rate_bps is None:
            continue  # nothing ever waits
        task = (_queue_task if hop.spec.aqm is None else _discipline_task)(plan, hop)
        if isinstance(task, str):
            plan.left_out[hop.name, _shown(hop)] = task
        elif task.length_ns > limit_ns:
            plan.left_out[hop.name, _shown(hop)] = f"filling it would take {task.length_ns / S:.1f} s"
        else:
            tasks.append(task)
    rounds = _rounds(plan.pace, sorted(tasks, key=lambda task: task.length_ns))
    most = _scaled(plan, _QUEUE_FRAMES)
    while rounds and ((late := _length_ns(plan, rounds) > limit_ns) or sum(map(_frames, chain(*rounds))) > most):
        for task in rounds.pop():
            takes = f"time was left to fill it, which takes {task.length_ns / S:.2f} s"
            why = takes if late else f"frames were left to fill it, which takes {_frames(task):,}"
            plan.left_out[task.feed.hop.name, _shown(task.feed.hop)] = f"no {why}"
    return _send(plan, rounds, at_ns, plan.queues.__setitem__)


def _frames(task: _Task) -> int:
    return sum(stream.count for stream in task.streams)


def _shown(hop: Hop) -> Property:
    """What a train shows that is faster than a direction."""
    return "queue" if hop.spec.aqm is None else "aqm"


def _queue_task(plan: GatePlan, hop: Hop) -> _Task | str:
    """A train that overfills a queue, or the reason why there is none."""
    spec = hop.spec
    assert spec.rate_bps is not None
    full = capacity_frames(spec, FULL_FRAME_BYTES)
    if full is None:
        return "its limit is unknown"
    rate = spec.rate_bps
    wanted_ns = max(plan.pace.drain_ns / full, plan.pace.frame_ns) if spec.queue_bytes is None else S
    frame_bytes = max(MIN_FRAME_BYTES, min(FULL_FRAME_BYTES, math.ceil(wanted_ns * rate / 8 / S)))
    feed = feed_of(plan, hop, overload=True, frame_bytes=frame_bytes)
    if feed.hidden is not None:
        return feed.hidden
    if not feed.faster:
        return "no path is faster than it, so nothing fills it"
    capacity = capacity_frames(spec, frame_bytes)
    assert capacity is not None
    frame_ns = (frame_bytes + spec.overhead_bytes) * 8 * S / rate
    for path in feed.paths:
        for index, other in enumerate(path):
            limit = capacity_frames(other.spec, frame_bytes)
            if other.name == hop.name or limit is None:
                continue
            if not limit:
                return f"{other.name} lets no frame wait"
            if other.spec.aqm is not None:
                return f"{other.name} may drop frames by its queue discipline"
            if limit < 2 * jitter_reach_ns(path[:index]) / frame_ns:
                return f"jitter brings more frames together than {other.name} lets wait"
            if limit < _BURST_FRAMES and len(feed.pairs) > 1 and other not in before(path, hop.name):
                return f"frames that several paths take in turn come in bursts, and {other.name} lets few wait"
    ahead = [other for path in feed.ahead for other in path]
    if not capacity and any(other.spec.rate_bps for other in ahead):
        return "no frame may wait, and the direction before it sends the next as one is through"
    # A limited direction before it paces the frames, so that they wait in no other queue.
    interval_ns = max(
        plan.pace.fill_ns * len(feed.pairs), *(other.spec.serialization_ns(frame_bytes) for other in ahead), 0
    )
    offered_ns = max(frame_ns / _OVERLOAD, interval_ns / len(feed.pairs))
    if frame_ns < _OVERLOAD_LEAST * offered_ns:
        return "it sends as fast as a machine fills it"
    frames = math.ceil((_QUEUE_OVER_RATIO * capacity + _QUEUE_OVER_FRAMES) / (1 - offered_ns / frame_ns))
    each = -(-frames // len(feed.pairs))
    offsets = _offsets_ns(feed)
    sending_ns = round(each * len(feed.pairs) * offered_ns)
    streams = tuple(
        Stream(*pair, offset, offset + 2 * sending_ns + plan.pace.margin_ns, interval_ns, each, frame_bytes)
        for pair, offset in zip(feed.pairs, offsets, strict=True)
    )
    length_ns = sending_ns + round(capacity * frame_ns) + max(offsets) + plan.pace.margin_ns
    return _Task(feed, streams, length_ns, rate, 1e9 / offered_ns)


_REGULATED_TIMES = 3
"""How many times as long queues are tested where there are disciplines, which take time to act."""
_STANDING_INTERVALS, _STANDING_OVERLOAD = 2.3, 2.0
"""For how many intervals a queue stands that shows its discipline, with two drops or three, and how it is filled."""


def _discipline_task(plan: GatePlan, hop: Hop) -> _Task | str:
    """A train of which CoDel drops frames before the queue is full, or the reason why there is none.

    The prober's frames are one flow, for which FQ-CoDel is CoDel.
    """
    feed = feed_of(plan, hop, overload=True)
    spec, path, ahead = hop.spec, feed.paths[0], feed.ahead[0]
    assert spec.rate_bps is not None and spec.aqm is not None
    if not feed.faster or len(feed.pairs) > 1:
        return "no path is faster than it, so nothing fills it"
    if lost_ratio(path) or copies(path) > 1 or jitter_reach_ns(ahead):
        return "what the rest of the path does to frames would hide what its queue discipline does"
    frame_ns = spec.serialization_ns(FULL_FRAME_BYTES)
    interval_ns = max(
        [math.ceil(frame_ns / _STANDING_OVERLOAD), *(hop.spec.serialization_ns(FULL_FRAME_BYTES) for hop in ahead)]
    )
    if frame_ns < _OVERLOAD_LEAST * max(interval_ns, plan.pace.fill_ns):
        return "it sends as fast as a machine fills it"
    stands_ns = _STANDING_INTERVALS * spec.aqm.interval_ns + 2 * spec.aqm.target_ns / (1 - interval_ns / frame_ns)
    count = math.ceil(stands_ns / frame_ns)
    capacity = capacity_frames(spec, FULL_FRAME_BYTES)
    if capacity is None or count * (1 - interval_ns / frame_ns) > _REGULATED_PART * capacity:
        return "its queue is full before its discipline drops as many frames as show it"
    stream = Stream(*feed.pairs[0], 0, round(stands_ns) + plan.pace.margin_ns, interval_ns, count, FULL_FRAME_BYTES)
    return _Task(feed, (stream,), round(stands_ns) + plan.pace.margin_ns, spec.rate_bps, 1e9 / interval_ns)
