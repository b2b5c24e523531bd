"""What the frames of a gate that tell delays say of every direction's delay. Pure; docs/fidelity.md has the why."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from containernet_env.analysis.gate_plan import GatePlan
from containernet_env.analysis.gate_trains import Allowed, Times, delay_text
from containernet_env.analysis.odds import CountTest
from containernet_env.analysis.rtt_chance import frames_for_one
from containernet_env.model.proof import Check, Verdict
from containernet_env.model.topology import PROBE_FRAME_BYTES, Hop

_Pair = tuple[str, str]

SAMPLES_MIN = 5
"""Fewer delays of a path prove nothing."""
_LATE_RATIO, _LATE_TOLD = 0.03, 0.2
"""A machine makes so many frames late that no link does (of 27 gates, at most 1.4 % were later than 0.5 ms); of a
direction that makes a fifth of them late, it is told."""
_LATE_NOISES, _LATE_NOISES_JITTER = 2, 10
"""How much later than the median may be, in units of the noise, a frame is a late one."""
_TOLD_PART = 0.5
"""A delay is told from none and from twice as much, and more: from one that is off by half of it."""


@dataclass(frozen=True, slots=True)
class PathDelays:
    """The delays of one path: ``off_ns`` is their location less what the links are to give.

    ``early_ns`` and ``late_ns`` are allowed; ``lowest_off_ns`` is that of the lowest tenth, ``None`` where jitter makes
    some early. ``kept`` are the samples within what jitter can reach, less what is expected, ``sent_ns`` when they were
    sent; ``beyond`` is how many are not within, and ``overtook`` how many frames came before one sent earlier.
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


def path_delays(plan: GatePlan, pair: _Pair, times: Sequence[Times], allowed: Allowed, z: float) -> PathDelays | None:
    """What the delays of a path say; ``None`` where there are too few. ``z``: standard errors that chance may make."""
    if pair not in plan.delays:
        return None
    path = plan.paths[pair]
    expected_ns = sum(hop.spec.delay_ns + hop.spec.serialization_ns(PROBE_FRAME_BYTES) for hop in path)
    of = times[plan.delays[pair]]
    came = [(at, delay) for at, delay in zip(of.sent_ns, of.delay_ns, strict=True) if delay >= 0]
    if len(came) < SAMPLES_MIN:
        return None
    offs = [delay - expected_ns for _, delay in came]
    early_ns, late_ns = allowed.early(expected_ns), allowed.late(expected_ns)
    reach_ns = sum(hop.spec.jitter.reach_ns for hop in path if hop.spec.jitter is not None)
    low = -reach_ns - early_ns if reach_ns else -math.inf
    high = reach_ns + late_ns + (_LATE_NOISES_JITTER if reach_ns else _LATE_NOISES) * allowed.noise_ns
    kept = [(at, off) for (at, _), off in zip(came, offs, strict=True) if low <= off <= high]
    beyond, lowest, off_ns = len(offs) - len(kept), None, statistics.median(offs)
    if not reach_ns:
        lowest = sorted(offs)[len(offs) // 10]
    elif len(kept) >= SAMPLES_MIN:
        off_ns = statistics.fmean(off for _, off in kept)
        interval_ns = plan.streams[plan.delays[pair]].interval_ns
        by_chance = z * math.sqrt(sum(_slow_variance(hop, interval_ns) for hop in path) / len(kept))
        early_ns, late_ns = early_ns + by_chance, late_ns + by_chance
    arrivals = [at + delay for at, delay in came]
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
        sum(later < earlier for earlier, later in pairwise(arrivals)),
    )


def _slow_variance(hop: Hop, interval_ns: int) -> float:
    """What the mean of n frames of a path varies by because of a direction's jitter, times n."""
    jitter = hop.spec.jitter
    return variance_of(hop) * frames_for_one(jitter, interval_ns) if jitter is not None else 0.0


def delay_checks(plan: GatePlan, delays: PathsDelays, alpha: float) -> Iterator[Check]:
    """The delay of every direction; ``alpha`` is the chance of a false alarm of each test, on each side."""
    blamed: set[str] = set()
    # Directions that only the same paths go over cannot be told apart: they are named together.
    alike: dict[tuple[_Pair, ...], list[Hop]] = {}
    for hop in plan.hops:
        alike.setdefault(tuple(plan.over(hop)), []).append(hop)
    late = _late(delays, alike, alpha)
    swapped = _swap_shows(plan, delays)
    for pairs, hops in alike.items():
        known = [path for pair in pairs if (path := delays[pair]) is not None]
        asked = sum(hop.spec.delay_ns for hop in hops)
        if not known:
            for hop in hops:
                yield Check(hop.name, "delay", "unproved", delay_text(hop.spec.delay_ns), why="too few frames arrived")
            continue
        # Of a direction that is off, every path is; of one that is not, most are not.
        typical = sorted(known, key=lambda path: abs(path.off_ns))[(len(known) - 1) // 2]
        wrong = f"paths over it are off by {typical.off_ns / 1e6:+.3f} ms" if typical.wrong else late[pairs].wrong
        if wrong:
            blamed |= {hop.name for hop in hops}
            subject = hops[0].name if len(hops) == 1 else _nodes(plan.paths[pairs[0]])
            yield _delay_check(subject, "wrong", asked, typical, wrong)
            continue
        closest_ns = min(path.allowed_ns for path in known)
        for hop in hops:
            yield _told(plan, hop, typical, closest_ns, late[pairs], swapped)
    for pair, path in delays.items():
        if path is not None and path.wrong and not blamed & {hop.name for hop in plan.paths[pair]}:
            asked = sum(hop.spec.delay_ns for hop in plan.paths[pair])
            why = f"paths over it are off by {path.off_ns / 1e6:+.3f} ms"
            yield _delay_check(_nodes(plan.paths[pair]), "wrong", asked, path, why)


@dataclass(frozen=True, slots=True)
class _Late:
    """How many frames over a direction are late, in words, where that is wrong or too few are known; else empty."""

    wrong: str = ""
    unproved: str = ""


def _late(
    delays: PathsDelays, alike: Mapping[tuple[_Pair, ...], Sequence[Hop]], alpha: float
) -> dict[tuple[_Pair, ...], _Late]:
    """Of every group of directions, by its paths. The one that is late most is blamed first.

    The others are then judged by paths that avoid it.
    """

    def count(pairs: Sequence[_Pair]) -> tuple[int, int]:
        # A path that is off as a whole is named for that.
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
        elif test.tells(_LATE_TOLD):
            found[pairs] = _Late()
        else:
            found[pairs] = _Late(unproved=f"{samples} frames do not tell whether a fifth of them is late")
    return found


def _swap_shows(plan: GatePlan, delays: PathsDelays) -> bool:
    """Whether frames would take other times if every link's directions were swapped: there and back differ."""
    return any(
        abs(_asked_ns(plan, pair) - _asked_ns(plan, (pair[1], pair[0]))) > path.allowed_ns
        for pair, path in delays.items()
        if path is not None
    )


def _asked_ns(plan: GatePlan, pair: _Pair) -> int:
    return sum(hop.spec.delay_ns for hop in plan.paths[pair])


def _told(plan: GatePlan, hop: Hop, typical: PathDelays, closest_ns: float, late: _Late, swap_shows: bool) -> Check:
    """Of a direction that is not wrong, whether that has been told."""
    asked_ns = hop.spec.delay_ns
    back_ns = next((other.spec.delay_ns for other in plan.hops if _opposite(hop, other)), asked_ns)
    why = late.unproved
    if asked_ns and closest_ns > _TOLD_PART * asked_ns:
        why = f"{delay_text(round(closest_ns))} are allowed, more than half of it"
    elif not swap_shows and abs(asked_ns - back_ns) > closest_ns:
        why = "if both directions of every link were swapped, no frame would take another time"
    return _delay_check(hop.name, "unproved" if why else "proved", asked_ns, typical, why)


def _opposite(hop: Hop, other: Hop) -> bool:
    return (hop.sender, hop.receiver) == (other.receiver, other.sender)


def _delay_check(subject: str, verdict: Verdict, asked_ns: int, path: PathDelays, why: str = "") -> Check:
    off_ns = path.off_ns
    if path.lowest_off_ns is not None and path.lowest_off_ns < -path.early_ns <= off_ns:
        off_ns, why = path.lowest_off_ns, "a tenth of the frames is early"
    early, late = delay_text(round(path.early_ns)), delay_text(round(path.late_ns))
    return Check(
        subject,
        "delay",
        verdict,
        delay_text(asked_ns),
        delay_text(asked_ns + round(off_ns)),
        f"{early} early, {late} late",
        why,
        {"samples": path.samples, "off_ns": round(off_ns), "late": path.beyond},
    )


def _nodes(path: Sequence[Hop]) -> str:
    return ">".join([path[0].sender, *(hop.receiver for hop in path)])


def variance_of(hop: Hop) -> float:
    """The variance of the delays that a direction is to give."""
    return hop.spec.jitter.deviation_ns**2 if hop.spec.jitter is not None else 0.0


def telling(plan: GatePlan, hop: Hop, effect: Callable[[Hop], float]) -> list[_Pair]:
    """The paths over a direction that tell most of an effect of chance: where the others add no more than it does.

    Where there is none, those where they add least. Every path is among those of the direction that adds most to it.
    """
    rest = {pair: sum(effect(other) for other in plan.paths[pair] if other.name != hop.name) for pair in plan.over(hop)}
    most = max(effect(hop), min(rest.values()) * 1.000001)
    return [pair for pair, others in rest.items() if others <= most]
