"""What the frames of a gate that tell delays say of jitter: how far delays spread, and how fast they change. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from containernet_env.analysis.gate_delays import SAMPLES_MIN, PathDelays, PathsDelays, telling, variance_of
from containernet_env.analysis.gate_plan import GatePlan
from containernet_env.analysis.gate_trains import Allowed, delay_text
from containernet_env.analysis.odds import MISS, sigmas
from containernet_env.analysis.rtt_chance import frames_for_one, path_correlation
from containernet_env.model.chance import USUAL_CORRELATION, Jitter
from containernet_env.model.proof import Check, Verdict
from containernet_env.model.topology import Hop

_BEYOND_RATIO, _BEYOND_MIN = 0.02, 3
"""So many delays may be later than jitter explains, or frames out of order: a machine that pauses makes some late."""
_LAG = 0.5
"""How far apart delays are compared, in correlation times: there they differ neither hardly nor wholly."""
_SLOWER = 5
"""Jitter is told from one that changes so many times as slowly."""

_Path = tuple[tuple[Hop, ...], PathDelays]


def jitter_checks(plan: GatePlan, delays: PathsDelays, allowed: Allowed, alpha: float) -> Iterator[Check]:
    """Of every direction with jitter; ``alpha`` is the chance of a false alarm of each test, on each side."""
    for hop in plan.hops:
        if hop.spec.jitter is None:
            continue
        pairs = [pair for pair in telling(plan, hop, variance_of) if pair in plan.delays]
        paths = [(plan.paths[pair], path) for pair in pairs if (path := delays[pair]) is not None]
        interval_ns = min((plan.streams[plan.delays[pair]].interval_ns for pair in pairs), default=1)
        check = _spread(hop, paths, interval_ns, allowed, alpha)
        if check.verdict != "proved":
            yield check
            continue
        pace = _pace(hop, paths, allowed, alpha)
        yield pace if pace.verdict != "proved" else check


def _bound(of: float, freedom: float, sigmas_off: float, relative: float = 2.0) -> float:
    """The quantile of an estimated variance: ``relative`` is its variance times ``freedom``, over its square.

    It is taken as distributed like that of as many normal values as have this error, whose quantiles are those of
    Wilson and Hilferty (Proc. Natl. Acad. Sci. 17, 1931).
    """
    spread = relative / freedom / 9  # 2 / 9n of n values
    return of * max(0.0, 1 - spread + sigmas_off * math.sqrt(spread)) ** 3


def _spread(hop: Hop, paths: Sequence[_Path], interval_ns: int, allowed: Allowed, alpha: float) -> Check:
    """The variance of the delays, pooled over the paths, against that of the configured jitters.

    The variance of a sample of n has the standard error sqrt((2 s^4 + k) / n), k being the fourth cumulant (Cramer,
    Mathematical Methods of Statistics, 1946, 27.4): 0 of a normal distribution, -1.2 s^4 of a uniform one. Where jitter
    keeps the order of frames, fewer of them are independent (``frames_for_one``), and a sample within few correlation
    times varies less than the jitter does in the long run. The frames of all paths, a path's ``interval_ns`` apart
    each, meet the same jitter in turn.
    """
    jitter = hop.spec.jitter
    assert jitter is not None
    beyond, samples = sum(path.beyond for _, path in paths), sum(path.samples for _, path in paths)
    paths = [(hops, path) for hops, path in paths if len(path.kept) > 1]
    freedom = sum(len(path.kept) - 1 for _, path in paths)
    values = {"samples": samples, "beyond": beyond}

    def check(verdict: Verdict, measured: str = "-", bounds: str = "-", why: str = "") -> Check:
        asked = f"{jitter.distribution} {delay_text(jitter.ns)}"
        return Check(hop.name, "jitter", verdict, asked, measured, bounds, why, values)

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
        return check("unproved", why="it changes too slowly for so short a measurement to tell it")
    own = variance_of(hop)
    noise = float(allowed.noise_ns) ** 2

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
    tells_none = bound(none + noise, miss) < low
    if tells_none and bound(twice, -miss) > high:
        return check("proved", measured, bounds)
    why = f"{samples} frames do not tell it from {'twice as much' if tells_none else 'none'}"
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


def _pace(hop: Hop, paths: Sequence[_Path], allowed: Allowed, alpha: float) -> Check:
    """How fast delays change: that tells order-keeping jitter from any other, and correlation times apart.

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
    asked = f"{jitter.distribution} {delay_text(jitter.ns)}"
    if pairs < SAMPLES_MIN:
        return Check(hop.name, "jitter", "unproved", asked, why="too few frames tell how fast it changes")
    each_ns = (series[-1][0] - series[0][0]) / len(series)
    jitters = [other.spec.jitter for hops, _ in paths for other in hops if other.spec.jitter is not None]
    # Differences of consecutive pairs have a delay in common: three halves as many are worth one. Those of slow jitter
    # correlate over no longer a time than its squares do.
    for_one = max(frames_for_one(of, each_ns, of_variance=True) for of in jitters)
    freedom = pairs / max(1.5, for_one)
    z, miss, noise = sigmas(alpha), sigmas(MISS), float(allowed.noise_ns) ** 2
    measured, configured, other, none = (
        of / pairs for of in (found.measured, found.configured, found.other, found.none)
    )
    low, high = _bound(configured, freedom, -z), _bound(configured, freedom, z) + noise
    values = {"pairs": pairs, "lag_ns": round(lag_ns), "change_ns2": round(measured)}
    values["expected_change_ns2"] = round(configured)
    texts = [delay_text(round(math.sqrt(of))) for of in (measured, low, high)]
    within = f" within {delay_text(round(lag_ns))}" if lag_ns else " from frame to frame"
    measured_text, bounds = f"changes by {texts[0]}{within}", f"{texts[1]} to {texts[2]}"
    if not low <= measured <= high:
        return Check(hop.name, "jitter", "wrong", asked, measured_text, bounds, values=values)
    slower = _bound(other + noise, freedom, miss) < low
    faster = jitter.reorder or _bound(none, freedom, -miss) > high
    if slower and faster:
        return Check(hop.name, "jitter", "proved", asked, measured_text, bounds, values=values)
    cannot = f"{_SLOWER} times as slowly" if faster else "with every frame"
    why = f"{len(series)} frames do not tell whether it changes {cannot}"
    return Check(hop.name, "jitter", "unproved", asked, measured_text, bounds, why, values)


def _before_ns(path: Sequence[Hop], hop: Hop) -> int:
    """What a frame takes until it reaches a direction of a path, without jitter."""
    names = [other.name for other in path]
    return sum(other.spec.delay_ns for other in path[: names.index(hop.name)])


def _expect(found: _Changes, hop: Hop, one: Sequence[Hop], two: Sequence[Hop], apart_ns: float) -> None:
    """Add what the jitters on two paths make of the delays of two frames that are so far apart."""
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
