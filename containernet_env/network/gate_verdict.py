"""The gate's verdict: a check for every property of every direction. Pure; see docs/fidelity.md."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from containernet_env.model.link import USUAL_CORRELATION, Jitter
from containernet_env.model.proof import Check, Verdict
from containernet_env.model.topology import PROBE_FRAME_BYTES, Hop
from containernet_env.network import gate_trains
from containernet_env.network.chance import MISS, CountTest, each, frames_for_one, path_correlation, sigmas, worth
from containernet_env.network.gate_plan import GatePlan, before, capacity_frames, jitter_reach_ns, loss_ratio
from containernet_env.network.gate_trains import Allowed, Times, delay_text

_Pair = tuple[str, str]

SAMPLES_MIN = 5
"""The least number of delays that prove something of a path."""
_LATE_RATIO, _LATE_DETECTED = 0.03, 0.2
"""The share of frames that the machine itself may make late (of 27 gates, at most 1.4 % were later than 0.5 ms), and
the share that has to be detected of a direction."""
_LATE_NOISES, _LATE_NOISES_JITTER = 2, 10
"""A frame is late if it is later than the median may be by so much, in units of the noise."""
_MEET_RATIO = 0.1
"""The share of frames that meet another one, at most: frames are sent so that a direction is busy no longer."""
_DETECTED_PART = 0.5
"""A delay is proved if one that is off by this part of it would have been detected."""


@dataclass(frozen=True, slots=True)
class PathDelays:
    """The delays of one path: ``off_ns`` is their location less the expected delay.

    ``early_ns`` and ``late_ns`` are allowed; ``lowest_off_ns`` is that of the lowest tenth, ``None`` where jitter makes
    some early. ``kept`` are the samples within the reach of jitter, less the expected delay, ``sent_ns`` when they were
    sent; ``beyond`` is how many are not within it, and ``overtook`` how many frames came before one sent earlier.
    """

    samples: int
    expected_ns: int
    off_ns: float
    early_ns: float
    late_ns: float
    lowest_off_ns: float | None
    kept: tuple[int, ...]
    sent_ns: tuple[int, ...]
    beyond: int
    overtook: int

    @property
    def wrong(self) -> bool:
        """Whether it is not as configured."""
        if self.lowest_off_ns is not None and self.lowest_off_ns < -self.early_ns:
            return True
        return not -self.early_ns <= self.off_ns <= self.late_ns

    @property
    def allowed_ns(self) -> float:
        """By how much it may be off, either way."""
        return max(self.early_ns, self.late_ns)


PathsDelays = Mapping[_Pair, PathDelays | None]


_Arrivals = Mapping[str, Sequence[tuple[float, _Pair]]]


def _arrivals(plan: GatePlan, times: Sequence[Times]) -> _Arrivals:
    """When the frames that show delays reach each direction with a rate, as configured, and of which path they are."""
    found: dict[str, list[tuple[float, _Pair]]] = {}
    for pair, stream in plan.delays.items():
        for hop, way_ns in _limited(plan.paths[pair]):
            found.setdefault(hop.name, []).extend((at + way_ns, pair) for at in times[stream].sent_ns)
    return {name: sorted(arrivals) for name, arrivals in found.items()}


def _limited(path: Sequence[Hop]) -> Iterator[tuple[Hop, int]]:
    """The directions of a path with a rate, and how long a frame takes to each."""
    way_ns = 0
    for hop in path:
        if hop.spec.rate_bps is not None:
            yield hop, way_ns
        way_ns += hop.spec.delay_ns + hop.spec.serialization_ns(PROBE_FRAME_BYTES)


def _meets(plan: GatePlan, pair: _Pair, sent_ns: int, arrivals: _Arrivals, noise_ns: float) -> bool:
    """Whether a frame reaches a direction while that sends one of another path, and so waits for it.

    Where there is jitter, directions that send a frame within the noise do not count.
    """
    path = plan.paths[pair]
    for hop, way_ns in _limited(path):
        takes_ns = hop.spec.serialization_ns(PROBE_FRAME_BYTES)
        if jitter_reach_ns(path) and takes_ns <= noise_ns:
            continue
        near_ns = min(noise_ns, takes_ns) + min(_brought_ns(plan, hop), takes_ns)
        at, others = sent_ns + way_ns, arrivals[hop.name]
        first = bisect_left(others, at - takes_ns - near_ns, key=lambda other: other[0])
        last = bisect_right(others, at + near_ns, key=lambda other: other[0])
        if any(other != pair for _, other in others[first:last]):
            return True
    return False


def _brought_ns(plan: GatePlan, hop: Hop) -> int:
    """By how much jitter may change when a frame reaches a direction."""
    return max((jitter_reach_ns(before(plan.paths[pair], hop.name)) for pair in plan.over(hop)), default=0)


def _waits_ns(plan: GatePlan, path: Sequence[Hop]) -> list[int]:
    """How long frames may wait for those of other paths that jitter brings to them, at each direction of a path."""
    return [hop.spec.serialization_ns(PROBE_FRAME_BYTES) for hop in path if _brought_ns(plan, hop)]


def path_delays(
    plan: GatePlan, pair: _Pair, times: Sequence[Times], arrivals: _Arrivals, allowed: Allowed, z: float
) -> PathDelays | None:
    """The delays of a path; ``None`` if there are too few. ``z``: standard errors that chance may make.

    Frames that meet one of another path, as slow links of different delays let them, do not count.
    """
    if pair not in plan.delays:
        return None
    path = plan.paths[pair]
    expected_ns = sum(hop.spec.delay_ns + hop.spec.serialization_ns(PROBE_FRAME_BYTES) for hop in path)
    of = times[plan.delays[pair]]
    came = [(at, delay) for at, delay in zip(of.sent_ns, of.delay_ns, strict=True) if delay >= 0]
    came = [one for one in came if not _meets(plan, pair, one[0], arrivals, allowed.noise_ns)]
    if len(came) < SAMPLES_MIN:
        return None
    offs = [delay - expected_ns for _, delay in came]
    early_ns, late_ns = allowed.early(expected_ns), allowed.late(expected_ns)
    reach_ns, wait_ns = jitter_reach_ns(path), sum(_waits_ns(plan, path))
    late_ns += _MEET_RATIO * wait_ns
    low = -reach_ns - early_ns if reach_ns else -math.inf
    high = reach_ns + wait_ns + late_ns + (_LATE_NOISES_JITTER if reach_ns else _LATE_NOISES) * allowed.noise_ns
    kept = [(at, off) for (at, _), off in zip(came, offs, strict=True) if low <= off <= high]
    beyond, lowest, off_ns = len(offs) - len(kept), None, statistics.median(offs)
    if not reach_ns:
        lowest = sorted(offs)[len(offs) // 10]
    elif len(kept) >= SAMPLES_MIN:
        off_ns = statistics.fmean(off for _, off in kept)
        interval_ns = plan.streams[plan.delays[pair]].interval_ns
        by_chance = z * math.sqrt(sum(_slow_variance(hop, interval_ns) for hop in path) / len(kept))
        early_ns, late_ns = early_ns + by_chance, late_ns + by_chance
    came_at = [at + delay for at, delay in came]
    return PathDelays(
        len(offs),
        expected_ns,
        off_ns,
        early_ns,
        late_ns,
        lowest,
        tuple(off for _, off in kept),
        tuple(at for at, _ in kept),
        beyond,
        sum(later < earlier for earlier, later in pairwise(came_at)),
    )


def _slow_variance(hop: Hop, interval_ns: int) -> float:
    """The variance of the mean of n frames of a path by a direction's jitter, times n."""
    jitter = hop.spec.jitter
    return variance_of(hop) * frames_for_one(jitter, interval_ns) if jitter is not None else 0.0


def delay_checks(plan: GatePlan, delays: PathsDelays, alpha: float) -> Iterator[Check]:
    """The delay of every direction; ``alpha`` is the chance of a false alarm of each test, on each side."""
    blamed: set[str] = set()
    # Directions that lie on the same paths only cannot be distinguished: they are named together.
    alike: dict[tuple[_Pair, ...], list[Hop]] = {}
    for hop in plan.hops:
        alike.setdefault(tuple(plan.over(hop)), []).append(hop)
    late = _late(delays, alike, alpha)
    swapped = _swap_shows(plan, delays)
    for pairs, hops in alike.items():
        known = [path for pair in pairs if (path := delays[pair]) is not None]
        configured = sum(hop.spec.delay_ns for hop in hops)
        if not known:
            for hop in hops:
                yield Check(
                    hop.name,
                    "delay",
                    "unproved",
                    delay_text(hop.spec.delay_ns),
                    why="too few frames arrived, or all waited",
                )
            continue
        # Of a direction that is off, every path is; of one that is not, most are not.
        typical = sorted(known, key=lambda path: abs(path.off_ns))[(len(known) - 1) // 2]
        wrong = f"paths over it are off by {typical.off_ns / 1e6:+.3f} ms" if typical.wrong else late[pairs].wrong
        if wrong:
            blamed |= {hop.name for hop in hops}
            subject = hops[0].name if len(hops) == 1 else _nodes(plan.paths[pairs[0]])
            yield _delay_check(subject, "wrong", configured, typical, wrong)
            continue
        closest_ns = min(path.allowed_ns for path in known)
        for hop in hops:
            yield _delay_verdict(plan, hop, typical, closest_ns, late[pairs], swapped)
    for pair, path in delays.items():
        if path is not None and path.wrong and not blamed & {hop.name for hop in plan.paths[pair]}:
            configured = sum(hop.spec.delay_ns for hop in plan.paths[pair])
            why = f"paths over it are off by {path.off_ns / 1e6:+.3f} ms"
            yield _delay_check(_nodes(plan.paths[pair]), "wrong", configured, path, why)


@dataclass(frozen=True, slots=True)
class _Late:
    """How many frames over a direction are late, as text, if that is wrong or unproved; else empty."""

    wrong: str = ""
    unproved: str = ""


def _late(
    delays: PathsDelays, alike: Mapping[tuple[_Pair, ...], Sequence[Hop]], alpha: float
) -> dict[tuple[_Pair, ...], _Late]:
    """Of every group of directions, by its paths. The one that is late most is blamed first.

    The others are then judged by paths that avoid it.
    """

    def count(pairs: Sequence[_Pair]) -> tuple[int, int]:
        # A path that is off as a whole has its own check.
        known = [path for pair in pairs if (path := delays[pair]) is not None and not path.wrong]
        return sum(path.beyond for path in known), sum(path.samples for path in known)

    found: dict[tuple[_Pair, ...], _Late] = {}
    blamed: set[_Pair] = set()
    for pairs in sorted(alike, key=lambda pairs: -count(pairs)[0] / max(1, count(pairs)[1])):
        late, samples = count([pair for pair in pairs if pair not in blamed])
        test = CountTest.of(max(1, samples), _LATE_RATIO, alpha)
        if late > test.high:
            blamed |= set(pairs)
            found[pairs] = _Late(wrong=f"{late} of {samples} frames are late")
        elif test.detects(_LATE_DETECTED):
            found[pairs] = _Late()
        else:
            found[pairs] = _Late(unproved=f"{samples} frames cannot show whether a fifth of them is late")
    return found


def _swap_shows(plan: GatePlan, delays: PathsDelays) -> bool:
    """Whether frames would take other times if every link's directions were swapped: there and back differ."""
    return any(
        abs(_configured_ns(plan, pair) - _configured_ns(plan, (pair[1], pair[0]))) > path.allowed_ns
        for pair, path in delays.items()
        if path is not None
    )


def _configured_ns(plan: GatePlan, pair: _Pair) -> int:
    return sum(hop.spec.delay_ns for hop in plan.paths[pair])


def _delay_verdict(
    plan: GatePlan, hop: Hop, typical: PathDelays, closest_ns: float, late: _Late, swap_shows: bool
) -> Check:
    """The check of a direction that is not wrong: whether it is proved."""
    configured_ns = hop.spec.delay_ns
    back_ns = next((other.spec.delay_ns for other in plan.hops if _opposite(hop, other)), configured_ns)
    why = late.unproved
    if configured_ns and closest_ns > _DETECTED_PART * configured_ns:
        why = f"{delay_text(round(closest_ns))} are allowed, more than half of it"
    elif not swap_shows and abs(configured_ns - back_ns) > closest_ns:
        why = "swapping both directions of every link would change no frame's time"
    return _delay_check(hop.name, "unproved" if why else "proved", configured_ns, typical, why)


def _opposite(hop: Hop, other: Hop) -> bool:
    return (hop.sender, hop.receiver) == (other.receiver, other.sender)


def _delay_check(subject: str, verdict: Verdict, configured_ns: int, path: PathDelays, why: str = "") -> Check:
    off_ns = path.off_ns
    if path.lowest_off_ns is not None and path.lowest_off_ns < -path.early_ns <= off_ns:
        off_ns, why = path.lowest_off_ns, "a tenth of the frames is early"
    early, late = delay_text(round(path.early_ns)), delay_text(round(path.late_ns))
    return Check(
        subject,
        "delay",
        verdict,
        delay_text(configured_ns),
        delay_text(configured_ns + round(off_ns)),
        f"{early} early, {late} late",
        why,
        {"samples": path.samples, "off_ns": round(off_ns), "late": path.beyond},
    )


def _nodes(path: Sequence[Hop]) -> str:
    return ">".join([path[0].sender, *(hop.receiver for hop in path)])


def variance_of(hop: Hop) -> float:
    """The variance of a direction's delays, as configured."""
    return hop.spec.jitter.deviation_ns**2 if hop.spec.jitter is not None else 0.0


def informative_paths(plan: GatePlan, hop: Hop, effect: Callable[[Hop], float]) -> list[_Pair]:
    """The paths over a direction that show most of a random effect: those on which the others add no more than it does.

    If there is none, those on which they add least. Every path is among those of the direction that adds most to it.
    """
    rest = {pair: sum(effect(other) for other in plan.paths[pair] if other.name != hop.name) for pair in plan.over(hop)}
    most = max(effect(hop), min(rest.values()) * 1.000001)
    return [pair for pair, others in rest.items() if others <= most]


_BEYOND_RATIO, _BEYOND_MIN = 0.02, 3
"""So many delays may be later than jitter explains, or frames out of order: a machine that pauses makes some late."""
_LAG = 0.5
"""How far apart delays are compared, in correlation times: there they differ neither hardly nor wholly."""
_SLOWER = 5
"""Jitter is proved if one that changes so many times as slowly would have been detected."""

_Path = tuple[tuple[Hop, ...], PathDelays]


def jitter_checks(plan: GatePlan, delays: PathsDelays, allowed: Allowed, alpha: float) -> Iterator[Check]:
    """Of every direction with jitter; ``alpha`` is the chance of a false alarm of each test, on each side."""
    for hop in plan.hops:
        if hop.spec.jitter is None:
            continue
        pairs = [pair for pair in informative_paths(plan, hop, variance_of) if pair in plan.delays]
        paths = [(plan.paths[pair], path) for pair in pairs if (path := delays[pair]) is not None]
        interval_ns = min((plan.streams[plan.delays[pair]].interval_ns for pair in pairs), default=1)
        # A time between 0 and w has a variance of w^2 / 4 at most (Popoviciu, Mathematica 9, 1935).
        waits = (sum(wait_ns**2 / 4 for wait_ns in _waits_ns(plan, hops)) for hops, _ in paths)
        noise_ns2 = allowed.noise_ns**2 + max(waits, default=0.0)
        check = _spread(hop, paths, interval_ns, noise_ns2, alpha)
        if check.verdict != "proved":
            yield check
            continue
        pace = _pace(hop, paths, noise_ns2, alpha)
        yield pace if pace.verdict != "proved" else check


def _bound(of: float, freedom: float, sigmas_off: float, relative: float = 2.0) -> float:
    """The quantile of an estimated variance: ``relative`` is its variance times ``freedom``, over its square.

    It is taken as distributed like that of as many normal values as have this error, whose quantiles are those of
    Wilson and Hilferty (Proc. Natl. Acad. Sci. 17, 1931).
    """
    spread = relative / freedom / 9  # 2 / 9n of n values
    return of * max(0.0, 1 - spread + sigmas_off * math.sqrt(spread)) ** 3


def _spread(hop: Hop, paths: Sequence[_Path], interval_ns: int, noise: float, alpha: float) -> Check:
    """The variance of the delays, pooled over the paths, against that of the configured jitters.

    The variance of a sample of n has the standard error sqrt((2 s^4 + k) / n), k being the fourth cumulant (Cramer,
    Mathematical Methods of Statistics, 1946, 27.4): 0 of a normal distribution, -1.2 s^4 of a uniform one. Where jitter
    keeps the order of frames, fewer of them are independent (``frames_for_one``), and a sample within few correlation
    times varies less than the jitter does in the long run. The frames of all paths, a path's ``interval_ns`` apart
    each, meet the same jitter in turn. ``noise`` is the variance, ns^2, that the machine and waiting may add.
    """
    jitter = hop.spec.jitter
    assert jitter is not None
    beyond, samples = sum(path.beyond for _, path in paths), sum(path.samples for _, path in paths)
    paths = [(hops, path) for hops, path in paths if len(path.kept) > 1]
    freedom = sum(len(path.kept) - 1 for _, path in paths)
    values = {"samples": samples, "beyond": beyond}

    def check(verdict: Verdict, measured: str = "-", bounds: str = "-", why: str = "") -> Check:
        configured = f"{jitter.distribution} {delay_text(jitter.ns)}"
        return Check(hop.name, "jitter", verdict, configured, measured, bounds, why, values)

    if samples and beyond > max(_BEYOND_MIN, samples * _BEYOND_RATIO):
        return check("wrong", f"{beyond} of {samples} beyond its reach", f"{_BEYOND_RATIO:.0%}")
    if freedom < SAMPLES_MIN:
        return check("unproved", why="too few frames arrived")
    if (overtook := _overtook(paths)) > max(_BEYOND_MIN, samples * _BEYOND_RATIO):
        return check("wrong", f"{overtook} of {samples} frames overtook one", f"{_BEYOND_RATIO:.0%}")
    total, variance, fourth, less, for_one = 0.0, 0.0, 0.0, 0.0, 1.0
    for hops, path in paths:
        weight = (len(path.kept) - 1) / freedom
        total += statistics.variance(path.kept) * weight
        for other in hops:
            if other.spec.jitter is not None:
                own = variance_of(other)
                variance += own * weight
                fourth += (-1.2 if other.spec.jitter.distribution == "uniform" else 0.0) * own * own * weight
                joint = (frames_for_one(other.spec.jitter, interval_ns) - 1) / (len(path.kept) - 1)
                less += own * weight * min(1.0, joint)
                for_one = max(for_one, frames_for_one(other.spec.jitter, interval_ns / len(paths), of_variance=True))
    if freedom < for_one:
        return check("unproved", why="it changes too slowly for so short a measurement")
    own = variance_of(hop)

    def bound(of: float, sigmas_off: float) -> float:
        if not of:
            return 0.0
        relative = max(0.8 * of * of, 2 * of * of + fourth) / (of * of)
        return _bound(of, freedom / for_one, sigmas_off, relative)

    z, miss = sigmas(alpha), sigmas(MISS)
    low, high = bound(variance - less, -z), bound(variance, z) + noise
    unit = jitter.ns / jitter.deviation_ns

    def as_jitter(of: float) -> str:
        return delay_text(round(unit * math.sqrt(max(0.0, of - variance + own))))

    measured, bounds = as_jitter(total), f"{as_jitter(low)} to {as_jitter(high)}"
    values |= {"variance_ns2": round(total), "expected_variance_ns2": round(variance)}
    if not low <= total <= high:
        return check("wrong", measured, bounds)
    none, twice = variance - own, variance + 3 * own
    excludes_none = bound(none + noise, miss) < low
    if excludes_none and bound(twice, -miss) > high:
        return check("proved", measured, bounds)
    why = f"{samples} frames cannot distinguish it from {'twice as much' if excludes_none else 'none'}"
    return check("unproved", measured, bounds, why)


def _overtook(paths: Sequence[_Path]) -> int:
    """How many frames came before one sent earlier, over paths on which frames keep their order."""
    kept = [path for hops, path in paths if not any(hop.spec.jitter and hop.spec.jitter.reorder for hop in hops)]
    return sum(path.overtook for path in kept)


@dataclass(slots=True)
class _Changes:
    """Half of the mean square by which delays a lag apart differ: measured, and by what jitter would make of it."""

    measured: float = 0.0
    configured: float = 0.0
    other: float = 0.0
    """Where the direction's own jitter changed ``_SLOWER`` times as slowly or, where each frame draws a delay of its
    own, as slowly as where it does not."""
    none: float = 0.0
    """Where each frame drew a delay of its own."""


def _pace(hop: Hop, paths: Sequence[_Path], noise: float, alpha: float) -> Check:
    """How fast delays change, which distinguishes order-keeping jitter from any other, and correlation times.

    Two delays with the variance s^2 and the correlation r differ by 2 s^2 (1 - r) in the mean square. The frames of all
    paths are compared; on other directions than this one, they do not meet the same jitter.
    """
    jitter = hop.spec.jitter
    assert jitter is not None
    lag_ns = _LAG * jitter.held_correlation_ns
    series = sorted(
        (at + _before_ns(hops, hop), off - statistics.fmean(path.kept), number)
        for number, (hops, path) in enumerate(paths)
        if len(path.kept) > 1
        for at, off in zip(path.sent_ns, path.kept, strict=True)
    )
    found, pairs, later = _Changes(), 0, 1
    for index, (at, off, one) in enumerate(series):
        later = max(later, index + 1)
        while later < len(series) and series[later][0] - at < lag_ns:
            later += 1
        if later == len(series):
            break
        then, other_off, two = series[later]
        pairs += 1
        found.measured += (other_off - off) ** 2 / 2
        _expect(found, hop, paths[one][0], paths[two][0], then - at)
    configured = f"{jitter.distribution} {delay_text(jitter.ns)}"
    if pairs < SAMPLES_MIN:
        return Check(hop.name, "jitter", "unproved", configured, why="too few frames show how fast it changes")
    each_ns = (series[-1][0] - series[0][0]) / len(series)
    jitters = [other.spec.jitter for hops, _ in paths for other in hops if other.spec.jitter is not None]
    # Differences of consecutive pairs have a delay in common: three halves as many are worth one. Those of slow jitter
    # correlate over no longer a time than its squares do.
    for_one = max(frames_for_one(of, each_ns, of_variance=True) for of in jitters)
    freedom = pairs / max(1.5, for_one)
    z, miss = sigmas(alpha), sigmas(MISS)
    measured, expected, other, none = (of / pairs for of in (found.measured, found.configured, found.other, found.none))
    low, high = _bound(expected, freedom, -z), _bound(expected, freedom, z) + noise
    values = {"pairs": pairs, "lag_ns": round(lag_ns), "change_ns2": round(measured)}
    values["expected_change_ns2"] = round(expected)
    texts = [delay_text(round(math.sqrt(of))) for of in (measured, low, high)]
    within = f" within {delay_text(round(lag_ns))}" if lag_ns else " from frame to frame"
    measured_text, bounds = f"changes by {texts[0]}{within}", f"{texts[1]} to {texts[2]}"
    if not low <= measured <= high:
        return Check(hop.name, "jitter", "wrong", configured, measured_text, bounds, values=values)
    slower = _bound(other + noise, freedom, miss) < low
    faster = jitter.reorder or _bound(none, freedom, -miss) > high
    if slower and faster:
        return Check(hop.name, "jitter", "proved", configured, measured_text, bounds, values=values)
    cannot = f"{_SLOWER} times as slowly" if faster else "with every frame"
    why = f"{len(series)} frames cannot show whether it changes {cannot}"
    return Check(hop.name, "jitter", "unproved", configured, measured_text, bounds, why, values)


def _before_ns(path: Sequence[Hop], hop: Hop) -> int:
    """The time until a frame reaches a direction of a path, without jitter."""
    names = [other.name for other in path]
    return sum(other.spec.delay_ns for other in path[: names.index(hop.name)])


def _expect(found: _Changes, hop: Hop, one: Sequence[Hop], two: Sequence[Hop], apart_ns: float) -> None:
    """Add the expected differences by the jitters on two paths of two frames that are so far apart."""
    for path, rest in ((one, two), (two, one)):
        names = {other.name for other in rest}
        for other in path:
            jitter = other.spec.jitter
            if jitter is None:
                continue
            half = variance_of(other) / 2
            correlation = _correlation(jitter, apart_ns) if other.name in names else 0.0
            found.configured += half * (1 - correlation)
            if other.name != hop.name:
                found.other += half * (1 - correlation)
                found.none += half * (1 - correlation)
            else:
                found.other += half * (1 - _slow_correlation(jitter, apart_ns))
                found.none += half


def _correlation(jitter: Jitter, apart_ns: float) -> float:
    """Of two delays of a direction."""
    return _of_values(jitter, path_correlation(apart_ns / jitter.held_correlation_ns)) if not jitter.reorder else 0.0


def _slow_correlation(jitter: Jitter, apart_ns: float) -> float:
    slow_ns = USUAL_CORRELATION * jitter.ns if jitter.reorder else _SLOWER * jitter.held_correlation_ns
    return _of_values(jitter, path_correlation(apart_ns / slow_ns))


def _of_values(jitter: Jitter, normal: float) -> float:
    """The correlation of delays, from that of the normal values behind them (6/pi arcsin r/2 of uniform ones)."""
    return 6 / math.pi * math.asin(normal / 2) if jitter.distribution == "uniform" else normal


_UNCONFIGURED_LOSS = 0.01
"""Where no loss is configured, this loss has to be detectable, or as much as the rest of the paths loses, if that is
more."""


def verdicts(plan: GatePlan, times: Sequence[Times], allowed: Allowed) -> tuple[Check, ...]:
    """Every check of a gate, in the order of directions. ``times`` are those of ``plan.streams``."""
    tests = 5 * len(plan.hops) + len(plan.paths)
    alpha = each(tests)
    arrivals, z = _arrivals(plan, times), sigmas(alpha)
    delays = {pair: path_delays(plan, pair, times, arrivals, allowed, z) for pair in plan.paths}
    by_hop: dict[str, list[Check]] = {hop.name: [] for hop in plan.hops}
    loose: list[Check] = []
    for check in chain(
        delay_checks(plan, delays, alpha),
        _loss_checks(plan, times, alpha),
        jitter_checks(plan, delays, allowed, alpha),
        gate_trains.rate_checks(plan, times, allowed, sigmas(alpha)),
        gate_trains.queue_checks(plan, times, allowed, sigmas(alpha)),
    ):
        by_hop.get(check.subject, loose).append(check)
    return (*loose, *chain.from_iterable(by_hop.values()))


@dataclass(frozen=True, slots=True)
class _Losses:
    """Frames over some paths: how many were sent and lost, and the configured share of losses."""

    sent: int
    lost: int
    ratio: float
    correlation: float

    def test(self, alpha: float) -> CountTest:
        return CountTest.of(max(1, math.floor(worth(self.sent, self.correlation))), self.ratio, alpha)

    def explained(self, test: CountTest) -> bool:
        """Whether the configured loss explains the count: a fraction of a frame, in bursts, proves nothing."""
        count = self.lost * test.trials / self.sent
        return test.explains(math.floor(count) if count > test.trials * self.ratio else math.ceil(count))


def _losses(plan: GatePlan, pairs: Sequence[tuple[str, str]], times: Sequence[Times]) -> _Losses:
    sent, lost, expected, correlation = 0, 0, 0.0, 0.0
    for pair in pairs:
        streams = [times[kept[pair]] for kept in (plan.delays, plan.losses) if pair in kept]
        frames = sum(stream.sent for stream in streams)
        kept_ratio = 1.0
        for hop in plan.paths[pair]:
            if hop.spec.loss is not None:
                kept_ratio *= 1 - hop.spec.loss.mean_ratio
                correlation = max(correlation, hop.spec.loss.correlation)
        sent += frames
        lost += sum(stream.sent - stream.received for stream in streams)
        expected += frames * (1 - kept_ratio)
    return _Losses(sent, lost, expected / sent if sent else 0.0, correlation)


def _loss_checks(plan: GatePlan, times: Sequence[Times], alpha: float) -> Iterator[Check]:
    over = {hop.name: informative_paths(plan, hop, lambda hop: loss_ratio(hop.spec)) for hop in plan.hops}
    counts = {hop.name: _losses(plan, over[hop.name], times) for hop in plan.hops}
    # A direction that loses shows on every path over it: the one that is off by most is blamed first, and then the
    # others only for what the paths that avoid it have lost.
    order = sorted(plan.hops, key=lambda hop: _suspicion(hop, counts[hop.name]))
    blamed: list[str] = []
    checks = {}
    for hop in order:
        pairs = over[hop.name]
        others = [pair for pair in pairs if not {other.name for other in plan.paths[pair]} & set(blamed)]
        check = _loss_check(hop, _losses(plan, others or pairs, times), alpha, _short_queue(plan, others or pairs))
        if check.verdict == "wrong":
            blamed.append(hop.name)
        checks[hop.name] = check
    return (checks[hop.name] for hop in plan.hops)


def _suspicion(hop: Hop, losses: _Losses) -> tuple[float, bool]:
    """Sort key: most standard deviations off first; of equals, last if it loses too little and none is configured."""
    if not losses.sent:
        return 0.0, True
    deviation = math.sqrt(max(losses.ratio * (1 - losses.ratio), 1e-6) * losses.sent)
    off = losses.lost - losses.sent * losses.ratio
    return -round(abs(off) / deviation, 6), off < 0 and hop.spec.loss is None


def _short_queue(plan: GatePlan, pairs: Sequence[tuple[str, str]]) -> int | None:
    """The fewest frames that may wait on some paths, where one of every host does not fit; ``None`` where they do."""
    hops = {hop.name: hop.spec for pair in pairs for hop in plan.paths[pair]}
    found = [capacity_frames(spec, PROBE_FRAME_BYTES) for spec in hops.values()]
    shortest = min((frames for frames in found if frames is not None), default=len(plan.hosts))
    return shortest if shortest < len(plan.hosts) - 1 else None


def _loss_check(hop: Hop, losses: _Losses, alpha: float, shortest: int | None) -> Check:
    ratio = loss_ratio(hop.spec)
    configured = f"{ratio * 100:g} %"
    values = {"sent": losses.sent, "lost": losses.lost, "expected_ratio": losses.ratio}
    if not losses.sent:
        return Check(hop.name, "loss", "unproved", configured, why="no frame was sent", values=values)
    test = losses.test(alpha)
    measured = f"{losses.lost} of {losses.sent} lost"
    scale = losses.sent / test.trials
    allowed = f"{math.floor(test.low * scale)} to {math.ceil(test.high * scale)}"
    if not losses.explained(test):
        most = test.high * scale + (_MEET_RATIO * losses.sent if shortest is not None else 0)
        if losses.sent * losses.ratio < losses.lost <= most:
            why = f"frames that meet in a queue of {shortest} may be lost there"
            return Check(hop.name, "loss", "unproved", configured, measured, allowed, why, values)
        return Check(hop.name, "loss", "wrong", configured, measured, allowed, values=values)
    if ratio:
        # None at all, twice as much or, where that is more than all, half of what is left.
        others = [losses.ratio - ratio, losses.ratio + min(ratio, (1 - ratio) / 2)]
    else:
        others = [losses.ratio + max(_UNCONFIGURED_LOSS, losses.ratio)]
    if hop.spec.loss is not None and hop.spec.loss.correlation and 0 < ratio < 1:
        why = "losses are counted; that they come in bursts is not checked"
        return Check(hop.name, "loss", "unproved", configured, measured, allowed, why, values)
    if all(test.detects(min(1.0, max(0.0, other))) for other in others if other != losses.ratio):
        return Check(hop.name, "loss", "proved", configured, measured, allowed, values=values)
    cannot = "none and twice as much" if ratio else f"{max(_UNCONFIGURED_LOSS, losses.ratio) * 100:.2g} %"
    why = f"{losses.sent} frames cannot distinguish it from {cannot}"
    return Check(hop.name, "loss", "unproved", configured, measured, allowed, why, values)
