"""The gate's verdict: a check for every property of every direction. Pure; see docs/fidelity.md."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise

from containernet_env.model.link import USUAL_CORRELATION, Hop, Jitter
from containernet_env.model.proof import Check, Verdict
from containernet_env.model.topology import PROBE_FRAME_BYTES
from containernet_env.network.chance import MISS, CountTest, each, frames_for_one, path_correlation, sigmas, worth
from containernet_env.network.gate_plan import (
    GatePlan,
    arrivals,
    before,
    capacity_frames,
    copies,
    delay_ns,
    jitter_reach_ns,
    loss_ratio,
    lost_ratio,
    path_ns,
    variance_ns2,
)
from containernet_env.network.gate_trains import Allowed, Measured, Times, delay_text, queue_checks, rate_checks

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
_BROUGHT = 10
"""How many frames jitter brings together, at most."""
_DETECTED_PART = 0.5
"""A delay is proved if one that is off by this part of it would have been detected."""


def verdicts(plan: GatePlan, times: Sequence[Times], allowed: Allowed) -> tuple[Check, ...]:
    """Every check of a gate, in the order of directions. ``times`` are those of ``plan.streams``."""
    kinds = 5 + any(hop.spec.duplication_ratio for hop in plan.hops)
    alpha = each(kinds * len(plan.hops) + len(plan.paths))
    gate = Measured(plan, times, allowed, alpha, sigmas(alpha))
    delays = _path_delays(gate)
    by_hop: dict[str, list[Check]] = {hop.name: [] for hop in plan.hops}
    loose: list[Check] = []
    for check in chain(
        _delay_checks(gate, delays),
        _loss_checks(gate),
        _duplication_checks(gate),
        _jitter_checks(gate, delays),
        rate_checks(gate),
        queue_checks(gate),
    ):
        by_hop.get(check.subject, loose).append(check)
    return (*loose, *chain.from_iterable(by_hop.values()))


@dataclass(frozen=True, slots=True)
class _PathDelays:
    """The delays of one path: ``off_ns`` is their location less the expected delay.

    ``early_ns`` and ``late_ns`` are allowed; ``lowest_off_ns`` is that of the lowest tenth, ``None`` where jitter makes
    some early. ``kept`` are the samples within the reach of jitter: when each was sent, and its delay less the expected
    one. ``beyond`` is how many are not within it, and ``overtook`` how many frames came before one sent earlier.
    """

    samples: int
    off_ns: float
    early_ns: float
    late_ns: float
    lowest_off_ns: float | None
    kept: tuple[tuple[int, int], ...]
    beyond: int
    overtook: int

    @property
    def fault(self) -> str:
        """Why it is not as configured; empty if it is."""
        if self.shown_off_ns != self.off_ns:
            return "a tenth of the frames is early"
        within = -self.early_ns <= self.off_ns <= self.late_ns
        return "" if within else f"paths over it are off by {self.off_ns / 1e6:+.3f} ms"

    @property
    def shown_off_ns(self) -> float:
        """By how much it is off: that of the lowest tenth where only these are early."""
        lowest_ns = self.lowest_off_ns
        return lowest_ns if lowest_ns is not None and lowest_ns < -self.early_ns <= self.off_ns else self.off_ns

    @property
    def allowed_ns(self) -> float:
        return max(self.early_ns, self.late_ns)


_PathsDelays = Mapping[_Pair, _PathDelays | None]
_Arrivals = Mapping[str, tuple[Sequence[float], Sequence[_Pair]]]
"""When the frames that show delays reach each direction with a rate, as configured, and of which path they are."""


def _path_delays(gate: Measured) -> _PathsDelays:
    """The delays of every path; ``None`` where there are too few."""
    plan = gate.plan
    arrivals: dict[str, list[tuple[float, _Pair]]] = {}
    for pair, stream in plan.delays.items():
        for hop, way_ns in _limited(plan.paths[pair]):
            arrivals.setdefault(hop.name, []).extend((at + way_ns, pair) for at in gate.times[stream].sent_ns)
    ordered = {name: ([at for at, _ in sorted(of)], [pair for _, pair in sorted(of)]) for name, of in arrivals.items()}
    return {pair: _delays_of(gate, pair, ordered) if pair in plan.delays else None for pair in plan.paths}


def _limited(path: Sequence[Hop]) -> Iterator[tuple[Hop, int]]:
    """The directions of a path with a rate, and how long a frame takes to each."""
    way_ns = 0
    for hop in path:
        if hop.spec.rate_bps is not None:
            yield hop, way_ns
        way_ns += path_ns((hop,))


def _met(gate: Measured, pair: _Pair, arrivals: _Arrivals) -> Callable[[int], bool]:
    """Whether a frame sent at a time reaches a direction while that sends one of another path, and so waits for it.

    Where there is jitter, directions that send a frame within the noise do not count.
    """
    path, noise_ns = gate.plan.paths[pair], gate.allowed.noise_ns
    places = []
    for hop, way_ns in _limited(path):
        takes_ns = hop.spec.serialization_ns(PROBE_FRAME_BYTES)
        if takes_ns > noise_ns or not jitter_reach_ns(path):
            near_ns = min(noise_ns, takes_ns) + min(_brought_ns(gate.plan, hop), takes_ns)
            # With its copies, where paths over it duplicate, a frame takes so many times as long.
            ahead = (before(gate.plan.paths[over], hop.name) for over in gate.plan.over(hop))
            most = max(2 ** sum(other.spec.duplication_ratio > 0 for other in path) for path in ahead)
            places.append((*arrivals[hop.name], way_ns - most * takes_ns - near_ns, way_ns + near_ns))

    def meets(sent_ns: int) -> bool:
        return any(
            other != pair
            for times, pairs, begin_ns, end_ns in places
            for other in pairs[bisect_left(times, sent_ns + begin_ns) : bisect_right(times, sent_ns + end_ns)]
        )

    return meets


def _brought_ns(plan: GatePlan, hop: Hop) -> int:
    """By how much jitter may change when a frame reaches a direction."""
    return max((jitter_reach_ns(before(plan.paths[pair], hop.name)) for pair in plan.over(hop)), default=0)


def _waits_ns(plan: GatePlan, path: Sequence[Hop]) -> list[int]:
    """How long frames may wait for those of other paths that jitter brings to them, at each direction of a path."""
    return [hop.spec.serialization_ns(PROBE_FRAME_BYTES) for hop in path if _brought_ns(plan, hop)]


def _second_copies(gate: Measured, path: Sequence[Hop], samples: int) -> list[tuple[int, float]]:
    """For each direction that duplicates: how much later a second copy comes, ns, and for which share of the samples.

    It counts where the first one is lost behind the direction, and follows it over the slowest direction there.
    """

    def most(share: float) -> float:
        return min(1.0, CountTest.of(samples, share, gate.alpha).high / samples)

    return [
        (max(behind.spec.serialization_ns(PROBE_FRAME_BYTES) for behind in path[index + 1 :]), most(ratio * lost))
        for index, hop in enumerate(path)
        if (ratio := hop.spec.duplication_ratio) and (lost := lost_ratio(path[index + 1 :]))
    ]


def _added_ns2(gate: Measured, path: Sequence[Hop], samples: int) -> float:
    """The variance, ns^2, that waiting and second copies add to so many delays of a path, at most.

    A time between 0 and w has a variance of w^2 / 4 at most (Popoviciu, Mathematica 9, 1935), and of p (1 - p) w^2
    where it is w for a share p of the frames; n samples estimate n / (n - 1) times as much.
    """
    added = sum(ns**2 / 4 for ns in _waits_ns(gate.plan, path))
    for ns, most in _second_copies(gate, path, samples):
        share = min(0.5, most)
        added += ns**2 * share * (1 - share)
    return added * samples / max(1, samples - 1)


def _more_copies(path: Sequence[Hop], hop: Hop) -> float:
    """How many more copies of a frame draw a delay of their own at a direction, of which the first to arrive counts."""
    return copies(before(path, hop.name)) - 1 if hop.spec.jitter is not None and hop.spec.jitter.reorder else 0.0


def _missing(path: Sequence[Hop], hop: Hop) -> float:
    """The part of a direction's variance that may be missing where the first of several copies counts.

    The distributions are symmetric, so the mean square about their mean is no less; the mean moves by the standard
    deviation / sqrt(3) for each more copy at most (see ``_delays_of``).
    """
    return min(1.0, _more_copies(path, hop) ** 2 / 3)


def _delays_of(gate: Measured, pair: _Pair, arrivals: _Arrivals) -> _PathDelays | None:
    """The delays of a path; ``None`` if there are too few.

    Frames that meet one of another path, as slow links of different delays let them, do not count.
    """
    path, stream, allowed = gate.plan.paths[pair], gate.plan.delays[pair], gate.allowed
    expected_ns, reach_ns = path_ns(path), jitter_reach_ns(path)
    # Of two values, the lesser is below their mean by the standard deviation / sqrt(3) at most (Hartley and David, Ann.
    # Math. Stat. 25, 1954).
    first_ns = sum(_more_copies(path, hop) * math.sqrt(variance_ns2(hop) / 3) for hop in path)
    meets = _met(gate, pair, arrivals)
    came = [
        (at, delay)
        for at, delay in zip(gate.times[stream].sent_ns, gate.times[stream].delay_ns, strict=True)
        if delay >= 0 and not meets(at)
    ]
    if len(came) < SAMPLES_MIN:
        return None
    offs = [(at, delay - expected_ns) for at, delay in came]
    waits_ns, seconds = sum(_waits_ns(gate.plan, path)), _second_copies(gate, path, len(came))
    wait_ns = waits_ns + sum(ns for ns, _ in seconds)
    early_ns = allowed.early(expected_ns) + first_ns
    late_ns = allowed.late(expected_ns) + _MEET_RATIO * waits_ns + sum(ns * share for ns, share in seconds)
    low = -reach_ns - early_ns if reach_ns else -math.inf
    high = reach_ns + wait_ns + late_ns + (_LATE_NOISES_JITTER if reach_ns else _LATE_NOISES) * allowed.noise_ns
    kept = [(at, off) for at, off in offs if low <= off <= high]
    lowest, off_ns = None, float(statistics.median(off for _, off in offs))
    if not reach_ns:
        lowest = sorted(off for _, off in offs)[len(offs) // 10]
    elif len(kept) >= SAMPLES_MIN:
        off_ns = statistics.fmean(off for _, off in kept)
        # The variance of the mean of n frames by a direction's jitter, times n.
        interval_ns = gate.plan.streams[stream].interval_ns
        variances = (variance_ns2(h) * frames_for_one(h.spec.jitter, interval_ns) for h in path if h.spec.jitter)
        by_chance = gate.z * math.sqrt(sum(variances) / len(kept))
        early_ns, late_ns = early_ns + by_chance, late_ns + by_chance
    overtook = sum(later < earlier for earlier, later in pairwise(at + delay for at, delay in came))
    return _PathDelays(len(came), off_ns, early_ns, late_ns, lowest, tuple(kept), len(came) - len(kept), overtook)


def _delay_checks(gate: Measured, delays: _PathsDelays) -> Iterator[Check]:
    plan = gate.plan
    blamed: set[_Pair] = set()
    # Directions that lie on the same paths only cannot be distinguished: they are named together.
    alike: dict[tuple[_Pair, ...], list[Hop]] = {}
    for hop in plan.hops:
        alike.setdefault(tuple(plan.over(hop)), []).append(hop)
    late = _late(gate, delays, list(alike))
    swapped = _swap_shows(plan, delays)
    for pairs, hops in alike.items():
        known = [path for pair in pairs if (path := delays[pair]) is not None]
        if not known:
            for hop in hops:
                why = "too few frames arrived, or all waited"
                yield Check(hop.name, "delay", "unproved", delay_text(hop.spec.delay_ns), why=why)
            continue
        # Of a direction that is off, every path is; of one that is not, most are not.
        typical = sorted(known, key=lambda path: abs(path.off_ns))[(len(known) - 1) // 2]
        verdict, why = late[pairs]
        if typical.fault or verdict == "wrong":
            blamed |= set(pairs)
            subject = hops[0].name if len(hops) == 1 else _nodes(plan.paths[pairs[0]])
            yield _delay_check(subject, "wrong", delay_ns(hops), typical, typical.fault or why)
            continue
        closest_ns = min(path.allowed_ns for path in known)
        for hop in hops:
            unproved = _undetected(plan, hop, closest_ns, swapped) or why
            yield _delay_check(hop.name, "unproved" if unproved else "proved", hop.spec.delay_ns, typical, unproved)
    for pair, path in delays.items():
        if path is not None and path.fault and pair not in blamed:
            hops_of = plan.paths[pair]
            yield _delay_check(_nodes(hops_of), "wrong", delay_ns(hops_of), path, path.fault)


def _late(
    gate: Measured, delays: _PathsDelays, groups: Sequence[tuple[_Pair, ...]]
) -> dict[tuple[_Pair, ...], tuple[Verdict, str]]:
    """Whether too many frames are late over the directions on the same paths, and why it is wrong or unproved.

    The one that is late most is blamed first. The others are then judged by paths that avoid it.
    """

    def count(pairs: Sequence[_Pair]) -> tuple[int, int]:
        # A path that is off as a whole has its own check.
        known = [path for pair in pairs if (path := delays[pair]) is not None and not path.fault]
        return sum(path.beyond for path in known), sum(path.samples for path in known)

    found: dict[tuple[_Pair, ...], tuple[Verdict, str]] = {}
    blamed: set[_Pair] = set()
    for pairs in sorted(groups, key=lambda pairs: -count(pairs)[0] / max(1, count(pairs)[1])):
        late, samples = count([pair for pair in pairs if pair not in blamed])
        test = CountTest.of(max(1, samples), _LATE_RATIO, gate.alpha)
        if late > test.high:
            blamed |= set(pairs)
            found[pairs] = "wrong", f"{late} of {samples} frames are late"
        elif test.detects(_LATE_DETECTED):
            found[pairs] = "proved", ""
        else:
            found[pairs] = "unproved", f"{samples} frames cannot show whether a fifth of them is late"
    return found


def _swap_shows(plan: GatePlan, delays: _PathsDelays) -> bool:
    """Whether frames would take other times if every link's directions were swapped: there and back differ."""
    return any(
        abs(delay_ns(plan.paths[a, b]) - delay_ns(plan.paths[b, a])) > path.allowed_ns
        for (a, b), path in delays.items()
        if path is not None
    )


def _undetected(plan: GatePlan, hop: Hop, closest_ns: float, swap_shows: bool) -> str:
    """Which fault of a direction's delay would not have been detected; empty if there is none."""
    configured_ns = hop.spec.delay_ns
    opposite = (other for other in plan.hops if (other.receiver, other.sender) == (hop.sender, hop.receiver))
    back_ns = next((other.spec.delay_ns for other in opposite), configured_ns)
    if configured_ns and closest_ns > _DETECTED_PART * configured_ns:
        return f"{delay_text(closest_ns)} are allowed, more than half of it"
    if not swap_shows and abs(configured_ns - back_ns) > closest_ns:
        return "swapping both directions of every link would change no frame's time"
    return ""


def _delay_check(subject: str, verdict: Verdict, configured_ns: int, path: _PathDelays, why: str) -> Check:
    off_ns = round(path.shown_off_ns)
    return Check(
        subject,
        "delay",
        verdict,
        delay_text(configured_ns),
        delay_text(configured_ns + off_ns),
        f"{delay_text(path.early_ns)} early, {delay_text(path.late_ns)} late",
        why,
        {"samples": path.samples, "off_ns": off_ns, "late": path.beyond},
    )


def _nodes(path: Sequence[Hop]) -> str:
    return ">".join([path[0].sender, *(hop.receiver for hop in path)])


def _informative_paths(
    plan: GatePlan, hop: Hop, effect: Callable[[Hop], float], among: Container[_Pair] | None = None
) -> list[_Pair]:
    """The paths over a direction that show most of a random effect: those on which the others add no more than it does.

    If there is none, those on which they add least. Every path is among those of the direction that adds most to it.
    Only those ``among`` some.
    """
    pairs = [pair for pair in plan.over(hop) if among is None or pair in among]
    rest = {pair: sum(effect(other) for other in plan.paths[pair] if other.name != hop.name) for pair in pairs}
    most = max(effect(hop), min(rest.values(), default=0.0) * 1.000001)
    return [pair for pair, others in rest.items() if others <= most]


_BEYOND_RATIO, _BEYOND_MIN = 0.02, 3
"""So many delays may be later than jitter explains, or frames out of order: a machine that pauses makes some late."""
_LAG = 0.5
"""How far apart delays are compared, in correlation times: there they differ neither hardly nor wholly."""
_SLOWER = 5
"""Jitter is proved if one that changes so many times as slowly would have been detected."""

_Path = tuple[tuple[Hop, ...], _PathDelays]


def _jitter_checks(gate: Measured, delays: _PathsDelays) -> Iterator[Check]:
    """The jitter of every direction that has one: its size, then how fast it changes."""
    plan = gate.plan
    for hop in plan.hops:
        if hop.spec.jitter is None:
            continue
        pairs = [pair for pair in _informative_paths(plan, hop, variance_ns2) if pair in plan.delays]
        paths = [(plan.paths[pair], path) for pair in pairs if (path := delays[pair]) is not None]
        interval_ns = min((plan.streams[plan.delays[pair]].interval_ns for pair in pairs), default=1)
        added = (_added_ns2(gate, hops, len(path.kept)) for hops, path in paths if path.kept)
        noise = gate.allowed.noise_ns**2 + max(added, default=0.0)
        check = _spread(gate, hop, hop.spec.jitter, paths, interval_ns, noise)
        if check.verdict == "proved" and (pace := _pace(gate, hop, hop.spec.jitter, paths, noise)).verdict != "proved":
            check = pace
        yield check


def _jitter_text(jitter: Jitter) -> str:
    return f"{jitter.distribution} {delay_text(jitter.ns)}"


def _bound(of: float, freedom: float, sigmas_off: float, relative: float = 2.0) -> float:
    """The quantile of an estimated variance: ``relative`` is its variance times ``freedom``, over its square.

    It is taken as distributed like that of as many normal values as have this error, whose quantiles are those of
    Wilson and Hilferty (Proc. Natl. Acad. Sci. 17, 1931).
    """
    spread = relative / freedom / 9  # 2 / 9n of n values
    return of * max(0.0, 1 - spread + sigmas_off * math.sqrt(spread)) ** 3


def _spread(gate: Measured, hop: Hop, jitter: Jitter, paths: Sequence[_Path], interval_ns: int, noise: float) -> Check:
    """The variance of the delays, pooled over the paths, against that of the configured jitters.

    The variance of a sample of n has the standard error sqrt((2 s^4 + k) / n), k being the fourth cumulant (Cramer,
    Mathematical Methods of Statistics, 1946, 27.4): 0 of a normal distribution, -1.2 s^4 of a uniform one. Where jitter
    keeps the order of frames, fewer of them are independent (``frames_for_one``), and a sample within few correlation
    times varies less than the jitter does in the long run. The frames of all paths, a path's ``interval_ns`` apart
    each, meet the same jitter in turn. ``noise`` is the variance, ns^2, that the machine and waiting may add.
    """
    beyond, samples = sum(path.beyond for _, path in paths), sum(path.samples for _, path in paths)
    paths = [(hops, path) for hops, path in paths if len(path.kept) > 1]
    freedom = sum(len(path.kept) - 1 for _, path in paths)
    values = {"samples": samples, "beyond": beyond}
    check = partial(Check, hop.name, "jitter", configured=_jitter_text(jitter), values=values)
    most = max(_BEYOND_MIN, samples * _BEYOND_RATIO)
    wrong = partial(check, "wrong", allowed=f"{_BEYOND_RATIO:.0%}")
    if samples and beyond > most:
        return wrong(measured=f"{beyond} of {samples} beyond its reach")
    if freedom < SAMPLES_MIN:
        return check("unproved", why="too few frames arrived")
    # Only over paths on which frames keep their order.
    overtook = sum(
        path.overtook for hops, path in paths if not any(h.spec.jitter and h.spec.jitter.reorder for h in hops)
    )
    if overtook > most:
        return wrong(measured=f"{overtook} of {samples} frames overtook one")
    total, variance, fourth, less, for_one = 0.0, 0.0, 0.0, 0.0, 1.0
    for hops, path in paths:
        weight = (len(path.kept) - 1) / freedom
        total += statistics.variance(off for _, off in path.kept) * weight
        for other in hops:
            if other.spec.jitter is not None:
                own = variance_ns2(other)
                variance += own * weight
                fourth += (-1.2 if other.spec.jitter.distribution == "uniform" else 0.0) * own * own * weight
                joint = (frames_for_one(other.spec.jitter, interval_ns) - 1) / (len(path.kept) - 1)
                less += own * weight * min(1.0, joint + _missing(hops, other))
                for_one = max(for_one, frames_for_one(other.spec.jitter, interval_ns / len(paths), of_variance=True))
    if freedom < for_one:
        return check("unproved", why="it changes too slowly for so short a measurement")
    own = variance_ns2(hop)

    def bound(of: float, sigmas_off: float) -> float:
        if not of:
            return 0.0
        relative = max(0.8 * of * of, 2 * of * of + fourth) / (of * of)
        return _bound(of, freedom / for_one, sigmas_off, relative)

    def as_jitter(of: float) -> str:
        return delay_text(jitter.ns / jitter.deviation_ns * math.sqrt(max(0.0, of - variance + own)))

    low, high = bound(variance - less, -gate.z), bound(variance, gate.z) + noise
    values |= {"variance_ns2": round(total), "expected_variance_ns2": round(variance)}
    check = partial(check, measured=as_jitter(total), allowed=f"{as_jitter(low)} to {as_jitter(high)}")
    if not low <= total <= high:
        return check("wrong")
    miss, none, twice = sigmas(MISS), variance - own, variance + 3 * own
    excludes_none = bound(none + noise, miss) < low
    if excludes_none and bound(twice, -miss) > high:
        return check("proved")
    cannot = "twice as much" if excludes_none else "none"
    return check("unproved", why=f"{samples} frames cannot distinguish it from {cannot}")


def _pace(gate: Measured, hop: Hop, jitter: Jitter, paths: Sequence[_Path], noise: float) -> Check:
    """How fast delays change, which distinguishes order-keeping jitter from any other, and correlation times.

    Two delays with the variance s^2 and the correlation r differ by 2 s^2 (1 - r) in the mean square. The frames of all
    paths are compared; on other directions than this one, they do not meet the same jitter.
    """
    lag_ns = _LAG * jitter.held_correlation_ns
    series = sorted(
        (at + way_ns, off - mean_ns, number)
        for number, (hops, path) in enumerate(paths)
        if len(path.kept) > 1
        for way_ns, mean_ns in [(delay_ns(before(hops, hop.name)), statistics.fmean(of for _, of in path.kept))]
        for at, off in path.kept
    )
    changes, later = [], 1
    for index, (at, off, one) in enumerate(series):
        later = max(later, index + 1)
        while later < len(series) and series[later][0] - at < lag_ns:
            later += 1
        if later == len(series):
            break
        then, other_off, two = series[later]
        changes.append(((other_off - off) ** 2 / 2, *_changes(hop, paths[one][0], paths[two][0], then - at)))
    check = partial(Check, hop.name, "jitter", configured=_jitter_text(jitter))
    if len(changes) < SAMPLES_MIN:
        return check("unproved", why="too few frames show how fast it changes")
    each_ns = (series[-1][0] - series[0][0]) / len(series)
    jitters = [other.spec.jitter for hops, _ in paths for other in hops if other.spec.jitter is not None]
    # Differences of consecutive pairs have a delay in common: three halves as many are worth one. Those of slow jitter
    # correlate over no longer a time than its squares do.
    for_one = max(frames_for_one(of, each_ns, of_variance=True) for of in jitters)
    freedom = len(changes) / max(1.5, for_one)
    miss = sigmas(MISS)
    measured, expected, least, slow, none = (sum(of) / len(changes) for of in zip(*changes, strict=True))
    low, high = _bound(least, freedom, -gate.z), _bound(expected, freedom, gate.z) + noise
    texts = [delay_text(math.sqrt(of)) for of in (measured, low, high)]
    within = f" within {delay_text(lag_ns)}" if lag_ns else " from frame to frame"
    check = partial(
        check,
        measured=f"changes by {texts[0]}{within}",
        allowed=f"{texts[1]} to {texts[2]}",
        values={
            "pairs": len(changes),
            "lag_ns": round(lag_ns),
            "change_ns2": round(measured),
            "expected_change_ns2": round(expected),
        },
    )
    if not low <= measured <= high:
        return check("wrong")
    slower = _bound(slow + noise, freedom, miss) < low
    faster = jitter.reorder or _bound(none, freedom, -miss) > high
    if slower and faster:
        return check("proved")
    cannot = f"{_SLOWER} times as slowly" if faster else "with every frame"
    return check("unproved", why=f"{len(series)} frames cannot show whether it changes {cannot}")


def _changes(hop: Hop, one: Sequence[Hop], two: Sequence[Hop], apart_ns: float) -> tuple[float, ...]:
    """Half of the mean square by which the delays of two frames on two paths, so far apart, differ by jitter.

    As configured, and the least of it (``_missing``); where the jitter of ``hop`` changed ``_SLOWER`` times as slowly
    or, where each frame draws a delay of its own, as slowly as where it does not; and where each frame drew a delay of
    its own.
    """
    configured, least, slow, none = 0.0, 0.0, 0.0, 0.0
    for path, rest in ((one, two), (two, one)):
        names = {other.name for other in rest}
        for other in path:
            jitter = other.spec.jitter
            if jitter is None:
                continue
            half = variance_ns2(other) / 2
            meets = other.name in names and not jitter.reorder
            held = half * (1 - (_correlation(jitter, apart_ns / jitter.held_correlation_ns) if meets else 0.0))
            slow_ns = USUAL_CORRELATION * jitter.ns if jitter.reorder else _SLOWER * jitter.held_correlation_ns
            own = other.name == hop.name
            configured += held
            least += held * (1 - _missing(path, other))
            slow += half * (1 - _correlation(jitter, apart_ns / slow_ns)) if own else held
            none += half if own else held
    return configured, least, slow, none


def _correlation(jitter: Jitter, times: float) -> float:
    """Of two delays of a direction, so many correlation times apart (6/pi arcsin r/2 of uniform ones)."""
    normal = path_correlation(times)
    return 6 / math.pi * math.asin(normal / 2) if jitter.distribution == "uniform" else normal


_UNCONFIGURED_LOSS = 0.01
"""Where no loss is configured, this loss has to be detectable, or as much as the rest of the paths loses, if that is
more."""


@dataclass(frozen=True, slots=True)
class _Losses:
    """Frames over some paths: how many were sent and lost, and the configured share of losses; or as many repeated."""

    sent: int
    lost: int
    ratio: float
    correlation: float

    @classmethod
    def over(cls, gate: Measured, pairs: Sequence[_Pair], *, repeated: bool = False) -> _Losses:
        plan = gate.plan
        sent, lost, expected, correlation = 0, 0, 0.0, 0.0
        for pair in pairs:
            streams = [gate.times[kept[pair]] for kept in (plan.delays, plan.losses) if pair in kept]
            frames = sum(stream.sent for stream in streams)
            correlation = max([correlation, *(hop.spec.loss.correlation for hop in plan.paths[pair] if hop.spec.loss)])
            sent += frames
            lost += sum(of.repeated if repeated else of.sent - of.received for of in streams)
            none, once = arrivals(plan.paths[pair])
            expected += frames * (1 - none - once if repeated else none)
        return cls(sent, lost, expected / sent if sent else 0.0, correlation)

    def test(self, alpha: float) -> CountTest:
        return CountTest.of(max(1, math.floor(worth(self.sent, self.correlation))), self.ratio, alpha)

    def explained(self, test: CountTest) -> bool:
        """Whether the configured loss explains the count: a fraction of a frame, in bursts, proves nothing."""
        count = self.lost * test.trials / self.sent
        return test.explains(math.floor(count) if count > test.trials * self.ratio else math.ceil(count))

    def suspicion(self, hop: Hop) -> tuple[float, bool]:
        """Sort key: most standard deviations off first; of equals, last if it loses too little and none is set."""
        if not self.sent:
            return 0.0, True
        deviation = math.sqrt(max(self.ratio * (1 - self.ratio), 1e-6) * self.sent)
        off = self.lost - self.sent * self.ratio
        return -round(abs(off) / deviation, 6), off < 0 and hop.spec.loss is None


def _loss_checks(gate: Measured) -> Iterator[Check]:
    """The loss of every direction.

    A direction that loses shows on every path over it: the one that is off by most is blamed first, and then the others
    only for what the paths that avoid it have lost.
    """
    plan = gate.plan
    over = {hop.name: _informative_paths(plan, hop, loss_ratio) for hop in plan.hops}
    blamed: set[_Pair] = set()
    for hop in sorted(plan.hops, key=lambda hop: _Losses.over(gate, over[hop.name]).suspicion(hop)):
        pairs = [pair for pair in over[hop.name] if pair not in blamed] or over[hop.name]
        check = _loss_check(hop, _Losses.over(gate, pairs), gate.alpha, _short_queue(plan, pairs))
        if check.verdict == "wrong":
            blamed |= set(plan.over(hop))
        yield check


def _duplication_checks(gate: Measured) -> Iterator[Check]:
    """The duplication of every direction that has one, or to which frames point that arrived twice; as for losses."""
    plan = gate.plan
    countable = {pair for pair, path in plan.paths.items() if not _lost_together(path)}
    over = {
        hop.name: _informative_paths(plan, hop, lambda hop: hop.spec.duplication_ratio, countable) for hop in plan.hops
    }
    blamed: set[_Pair] = set()
    for hop in sorted(plan.hops, key=lambda hop: _Losses.over(gate, over[hop.name], repeated=True).suspicion(hop)):
        counted = _Losses.over(gate, [p for p in over[hop.name] if p not in blamed] or over[hop.name], repeated=True)
        ratio = hop.spec.duplication_ratio
        check = partial(Check, hop.name, "duplication", configured=f"{ratio * 100:g} %")
        if not counted.sent:
            if ratio:
                yield check("unproved", why="on its paths, bursts of losses may take both copies of a frame or none")
            continue
        test = counted.test(gate.alpha)
        check = partial(
            check,
            measured=f"{counted.lost} of {counted.sent} repeated",
            allowed=f"{test.low} to {test.high}",
            values={"sent": counted.sent, "repeated": counted.lost, "expected_ratio": counted.ratio},
        )
        if not counted.explained(test):
            if not blamed & set(over[hop.name]):
                blamed |= set(plan.over(hop))
                yield check("wrong")
        elif ratio:
            own = ratio * (1 - loss_ratio(hop))
            shown = all(test.detects(max(0.0, counted.ratio + by)) for by in (-own, min(own, (1 - ratio) / 2)) if by)
            why = f"{counted.sent} frames cannot distinguish it from none and twice as much"
            yield check("proved") if shown else check("unproved", why=why)


def _lost_together(path: Sequence[Hop]) -> bool:
    """Whether a burst of losses may meet both copies of a frame, so that fewer or more frames arrive twice."""
    doubled = next((index for index, hop in enumerate(path) if hop.spec.duplication_ratio), len(path))
    return any(hop.spec.loss is not None and hop.spec.loss.correlation for hop in path[doubled + 1 :])


def _short_queue(plan: GatePlan, pairs: Sequence[_Pair]) -> int | None:
    """The fewest frames that may wait on some paths, where frames that meet may not fit; ``None`` where they do."""
    short = []
    for hop in {hop.name: hop for pair in pairs for hop in plan.paths[pair]}.values():
        limit, most = capacity_frames(hop.spec, PROBE_FRAME_BYTES), len(plan.hosts) - 1
        if limit is not None and limit < (max(most, _BROUGHT) if _brought_ns(plan, hop) else most):
            short.append(limit)
    return min(short, default=None)


def _loss_check(hop: Hop, losses: _Losses, alpha: float, shortest: int | None) -> Check:
    ratio = loss_ratio(hop)
    values = {"sent": losses.sent, "lost": losses.lost, "expected_ratio": losses.ratio}
    check = partial(Check, hop.name, "loss", configured=f"{ratio * 100:g} %", values=values)
    if not losses.sent:
        return check("unproved", why="no frame was sent")
    test = losses.test(alpha)
    scale = losses.sent / test.trials
    check = partial(
        check,
        measured=f"{losses.lost} of {losses.sent} lost",
        allowed=f"{math.floor(test.low * scale)} to {math.ceil(test.high * scale)}",
    )
    if not losses.explained(test):
        most = test.high * scale + (_MEET_RATIO * losses.sent if shortest is not None else 0)
        if losses.sent * losses.ratio < losses.lost <= most:
            return check("unproved", why=f"frames that meet in a queue of {shortest} may be lost there")
        return check("wrong")
    if hop.spec.loss is not None and hop.spec.loss.correlation and 0 < ratio < 1:
        return check("unproved", why="losses are counted; that they come in bursts is not checked")
    if ratio:
        # None at all, twice as much or, where that is more than all, half of what is left.
        cannot, others = "none and twice as much", [losses.ratio - ratio, losses.ratio + min(ratio, (1 - ratio) / 2)]
    else:
        least = max(_UNCONFIGURED_LOSS, losses.ratio)
        cannot, others = f"{least * 100:.2g} %", [losses.ratio + least]
    if all(test.detects(min(1.0, max(0.0, other))) for other in others if other != losses.ratio):
        return check("proved")
    return check("unproved", why=f"{losses.sent} frames cannot distinguish it from {cannot}")
