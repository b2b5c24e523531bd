"""What the streams of a gate prove: a check for every property of every direction. Pure; docs/fidelity.md has the why.

A property is ``wrong`` where what was measured is not explained by what was asked, ``proved`` where it is and the
samples would have told it from a wrong one, and ``unproved`` where they would not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from containernet_env.analysis import gate_trains
from containernet_env.analysis.gate_plan import GatePlan
from containernet_env.analysis.gate_trains import Allowed, Times, delay_text
from containernet_env.analysis.odds import MISS, CountTest, each, sigmas, worth
from containernet_env.analysis.rtt_chance import frames_for_one
from containernet_env.model.proof import Check
from containernet_env.model.topology import PROBE_FRAME_BYTES, Hop

_SAMPLES_MIN = 5
"""Fewer delays of a path prove nothing."""
_BEYOND_RATIO, _BEYOND_MIN = 0.02, 3
"""So many delays may be later than jitter explains: a machine that pauses makes some late."""
_UNASKED_LOSS = 0.01
"""Where no loss is configured, as many frames have to arrive as tell this much of it, or as much as the rest of the
paths loses, if that is more."""


@dataclass(frozen=True, slots=True)
class PathDelays:
    """The delays of one path: ``off_ns`` is their location less what the links are to give.

    ``early_ns`` and ``late_ns`` are allowed; ``lowest_off_ns`` is that of the lowest tenth, ``None`` where jitter makes
    some early. ``kept`` are the samples within what jitter can reach, less what is expected; ``beyond`` how many are
    not.
    """

    samples: int
    expected_ns: int
    off_ns: float
    early_ns: float
    late_ns: float
    lowest_off_ns: float | None
    kept: tuple[int, ...]
    beyond: int

    @property
    def wrong(self) -> bool:
        """Whether it is not as configured."""
        if self.lowest_off_ns is not None and self.lowest_off_ns < -self.early_ns:
            return True
        return not -self.early_ns <= self.off_ns <= self.late_ns


def verdicts(plan: GatePlan, times: Sequence[Times], allowed: Allowed) -> tuple[Check, ...]:
    """Every check of a gate, in the order of directions. ``times`` are those of ``plan.streams``."""
    tests = 3 * len(plan.hops) + len(plan.paths)
    alpha = each(tests)
    delays = {pair: path_delays(plan, pair, times, allowed, sigmas(alpha)) for pair in plan.paths}
    by_hop: dict[str, list[Check]] = {hop.name: [] for hop in plan.hops}
    loose: list[Check] = []
    for check in chain(
        _delay_checks(plan, delays),
        _loss_checks(plan, times, alpha),
        _jitter_checks(plan, delays, allowed, alpha),
        gate_trains.rate_checks(plan, times, allowed, sigmas(alpha)),
        gate_trains.queue_checks(plan, times, allowed, sigmas(alpha)),
    ):
        by_hop.get(check.subject, loose).append(check)
    return (*loose, *chain.from_iterable(by_hop.values()))


def path_delays(
    plan: GatePlan, pair: tuple[str, str], times: Sequence[Times], allowed: Allowed, z: float
) -> PathDelays | None:
    """What the delays of a path say; ``None`` where there are too few. ``z``: standard errors that chance may make."""
    if pair not in plan.delays:
        return None
    path = plan.paths[pair]
    expected_ns = sum(hop.spec.delay_ns + hop.spec.serialization_ns(PROBE_FRAME_BYTES) for hop in path)
    offs = [delay - expected_ns for delay in times[plan.delays[pair]].delay_ns if delay >= 0]
    if len(offs) < _SAMPLES_MIN:
        return None
    early_ns, late_ns = allowed.early(expected_ns), allowed.late(expected_ns)
    interval_ns = plan.streams[plan.delays[pair]].interval_ns
    variance = sum(
        variance_of(hop) * frames_for_one(hop.spec.jitter, interval_ns) for hop in path if hop.spec.jitter is not None
    )
    reach_ns = sum(hop.spec.jitter.reach_ns for hop in path if hop.spec.jitter is not None)
    if not reach_ns:
        lowest = sorted(offs)[len(offs) // 10]
        middle = statistics.median(offs)
        return PathDelays(len(offs), expected_ns, middle, early_ns, late_ns, lowest, tuple(offs), 0)
    low, high = -reach_ns - early_ns, reach_ns + late_ns + 10 * allowed.noise_ns
    kept = tuple(off for off in offs if low <= off <= high)
    if len(kept) < _SAMPLES_MIN:
        return PathDelays(
            len(offs), expected_ns, statistics.median(offs), early_ns, late_ns, None, kept, len(offs) - len(kept)
        )
    by_chance = z * math.sqrt(variance / len(kept))
    return PathDelays(
        len(offs),
        expected_ns,
        statistics.fmean(kept),
        early_ns + by_chance,
        late_ns + by_chance,
        None,
        kept,
        len(offs) - len(kept),
    )


def _delay_checks(plan: GatePlan, delays: dict[tuple[str, str], PathDelays | None]) -> Iterator[Check]:
    blamed: set[str] = set()
    # Directions that only the same paths go over cannot be told apart: they are named together.
    alike: dict[tuple[tuple[str, str], ...], list[Hop]] = {}
    for hop in plan.hops:
        alike.setdefault(tuple(plan.over(hop)), []).append(hop)
    for pairs, hops in alike.items():
        known = [path for pair in pairs if (path := delays[pair]) is not None]
        asked = sum(hop.spec.delay_ns for hop in hops)
        if not known:
            for hop in hops:
                yield Check(hop.name, "delay", "unproved", delay_text(hop.spec.delay_ns), why="too few frames arrived")
            continue
        # Of a direction that is off, every path is; of one that is not, most are not.
        typical = sorted(known, key=lambda path: abs(path.off_ns))[(len(known) - 1) // 2]
        if typical.wrong:
            blamed |= {hop.name for hop in hops}
            subject = hops[0].name if len(hops) == 1 else _nodes(plan.paths[pairs[0]])
            yield _delay_check(subject, "wrong", asked, typical)
            continue
        for hop in hops:
            yield _delay_check(hop.name, "proved", hop.spec.delay_ns, typical)
    for pair, path in delays.items():
        if path is not None and path.wrong and not blamed & {hop.name for hop in plan.paths[pair]}:
            asked = sum(hop.spec.delay_ns for hop in plan.paths[pair])
            yield _delay_check(_nodes(plan.paths[pair]), "wrong", asked, path)


def _delay_check(subject: str, verdict: str, asked_ns: int, path: PathDelays) -> Check:
    off_ns = path.off_ns
    why = f"paths over it are off by {off_ns / 1e6:+.3f} ms" if verdict == "wrong" else ""
    if path.lowest_off_ns is not None and path.lowest_off_ns < -path.early_ns <= off_ns:
        off_ns, why = path.lowest_off_ns, "a tenth of the frames is early"
    early, late = delay_text(round(path.early_ns)), delay_text(round(path.late_ns))
    return Check(
        subject,
        "delay",
        "wrong" if verdict == "wrong" else "proved",
        delay_text(asked_ns),
        delay_text(asked_ns + round(off_ns)),
        f"{early} early, {late} late",
        why,
        {"samples": path.samples, "off_ns": round(off_ns)},
    )


def _nodes(path: Sequence[Hop]) -> str:
    return ">".join([path[0].sender, *(hop.receiver for hop in path)])


@dataclass(frozen=True, slots=True)
class _Losses:
    """Frames over some paths: how many of them were sent and lost, and how many the links are to lose."""

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


def loss_of(hop: Hop) -> float:
    """The share of frames that a direction is to lose."""
    return hop.spec.loss.mean_ratio if hop.spec.loss is not None else 0.0


def variance_of(hop: Hop) -> float:
    """The variance of the delays that a direction is to give."""
    return hop.spec.jitter.deviation_ns**2 if hop.spec.jitter is not None else 0.0


def _telling(plan: GatePlan, hop: Hop, effect: Callable[[Hop], float]) -> list[tuple[str, str]]:
    """The paths over a direction that tell most of an effect of chance: where the others add no more than it does.

    Where there is none, those where they add least. Every path is among those of the direction that adds most to it.
    """
    rest = {pair: sum(effect(other) for other in plan.paths[pair] if other.name != hop.name) for pair in plan.over(hop)}
    most = max(effect(hop), min(rest.values()) * 1.000001)
    return [pair for pair, others in rest.items() if others <= most]


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
    telling = {hop.name: _telling(plan, hop, loss_of) for hop in plan.hops}
    counts = {hop.name: _losses(plan, telling[hop.name], times) for hop in plan.hops}
    # A direction that loses shows on every path over it: the one that is off by most is blamed first, and then the
    # others only for what the paths that avoid it have lost.
    order = sorted(plan.hops, key=lambda hop: _suspicion(hop, counts[hop.name]))
    blamed: list[str] = []
    checks = {}
    for hop in order:
        pairs = telling[hop.name]
        others = [pair for pair in pairs if not {other.name for other in plan.paths[pair]} & set(blamed)]
        check = _loss_check(hop, _losses(plan, others or pairs, times), alpha)
        if check.verdict == "wrong":
            blamed.append(hop.name)
        checks[hop.name] = check
    return (checks[hop.name] for hop in plan.hops)


def _suspicion(hop: Hop, losses: _Losses) -> tuple[float, bool]:
    """Sorts those first that are off by most standard deviations; of these, who loses too little is to lose some."""
    if not losses.sent:
        return 0.0, True
    deviation = math.sqrt(max(losses.ratio * (1 - losses.ratio), 1e-6) * losses.sent)
    off = losses.lost - losses.sent * losses.ratio
    return -round(abs(off) / deviation, 6), off < 0 and hop.spec.loss is None


def _loss_check(hop: Hop, losses: _Losses, alpha: float) -> Check:
    configured = loss_of(hop)
    asked = f"{configured * 100:g} %"
    values = {"sent": losses.sent, "lost": losses.lost, "expected_ratio": losses.ratio}
    if not losses.sent:
        return Check(hop.name, "loss", "unproved", asked, why="no frame was sent", values=values)
    test = losses.test(alpha)
    measured = f"{losses.lost} of {losses.sent} lost"
    scale = losses.sent / test.trials
    allowed = f"{math.floor(test.low * scale)} to {math.ceil(test.high * scale)}"
    if not losses.explained(test):
        return Check(hop.name, "loss", "wrong", asked, measured, allowed, values=values)
    if configured:
        # None at all, twice as much or, where that is more than all, half of what is left.
        others = [losses.ratio - configured, losses.ratio + min(configured, (1 - configured) / 2)]
    else:
        others = [losses.ratio + max(_UNASKED_LOSS, losses.ratio)]
    if all(test.tells(min(1.0, max(0.0, other))) for other in others if other != losses.ratio):
        return Check(hop.name, "loss", "proved", asked, measured, allowed, values=values)
    cannot = "none and twice as much" if configured else f"{max(_UNASKED_LOSS, losses.ratio) * 100:.2g} %"
    why = f"{losses.sent} frames do not tell it from {cannot}"
    return Check(hop.name, "loss", "unproved", asked, measured, allowed, why, values)


def _jitter_checks(
    plan: GatePlan, delays: dict[tuple[str, str], PathDelays | None], allowed: Allowed, alpha: float
) -> Iterator[Check]:
    for hop in plan.hops:
        if hop.spec.jitter is not None:
            telling = _telling(plan, hop, variance_of)
            paths = [(plan.paths[pair], path) for pair in telling if (path := delays[pair]) is not None]
            interval_ns = min((plan.streams[plan.delays[pair]].interval_ns for pair in telling), default=1)
            yield _jitter_check(hop, paths, interval_ns, allowed, alpha)


def _jitter_check(
    hop: Hop,
    paths: Sequence[tuple[Sequence[Hop], PathDelays]],
    interval_ns: int,
    allowed: Allowed,
    alpha: float,
) -> Check:
    """The variance of the delays, pooled over the paths, against that of the configured jitters.

    The variance of a sample of n has the standard error sqrt((2 s^4 + k) / n), k being the fourth cumulant (Cramer,
    Mathematical Methods of Statistics, 1946, 27.4): 0 of a normal distribution, -1.2 s^4 of a uniform one. It is taken
    as distributed like that of as many normal values as have this error, whose quantiles are those of Wilson and
    Hilferty (Proc. Natl. Acad. Sci. 17, 1931). Where jitter keeps the order of frames, fewer of them are independent
    (``frames_for_one``), and a sample within few correlation times varies less than the jitter does in the long run.
    The frames of all paths, a path's ``interval_ns`` apart each, meet the same jitter in turn.
    """
    jitter = hop.spec.jitter
    assert jitter is not None
    asked = f"{jitter.distribution} {delay_text(jitter.ns)}"
    beyond, samples = sum(path.beyond for _, path in paths), sum(path.samples for _, path in paths)
    paths = [(hops, path) for hops, path in paths if len(path.kept) > 1]
    freedom = sum(len(path.kept) - 1 for _, path in paths)
    values = {"samples": samples, "beyond": beyond}
    if samples and beyond > max(_BEYOND_MIN, samples * _BEYOND_RATIO):
        measured = f"{beyond} of {samples} beyond its reach"
        return Check(hop.name, "jitter", "wrong", asked, measured, f"{_BEYOND_RATIO:.0%}", values=values)
    if freedom < _SAMPLES_MIN:
        return Check(hop.name, "jitter", "unproved", asked, why="too few frames arrived", values=values)
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
    own = variance_of(hop)
    noise = float(allowed.noise_ns) ** 2

    def bound(of: float, sigmas_off: float) -> float:
        if not of:
            return 0.0
        spread = max(0.8 * of * of, 2 * of * of + fourth) * for_one / freedom / (of * of) / 9  # 2 / 9n of n values
        return of * max(0.0, 1 - spread + sigmas_off * math.sqrt(spread)) ** 3

    z, miss = sigmas(alpha), sigmas(MISS)
    low, high = bound(variance - less, -z), bound(variance, z) + noise
    unit = jitter.ns / jitter.deviation_ns

    def as_jitter(of: float) -> str:
        return delay_text(round(unit * math.sqrt(max(0.0, of - variance + own))))

    measured, bounds = as_jitter(total), f"{as_jitter(low)} to {as_jitter(high)}"
    values |= {"variance_ns2": round(total), "expected_variance_ns2": round(variance)}
    if not low <= total <= high:
        return Check(hop.name, "jitter", "wrong", asked, measured, bounds, values=values)
    none, twice = variance - own, variance + 3 * own
    tells_none = bound(none + noise, miss) < low
    if tells_none and bound(twice, -miss) > high:
        return Check(hop.name, "jitter", "proved", asked, measured, bounds, values=values)
    why = f"{samples} frames do not tell it from {'twice as much' if tells_none else 'none'}"
    return Check(hop.name, "jitter", "unproved", asked, measured, bounds, why, values)
