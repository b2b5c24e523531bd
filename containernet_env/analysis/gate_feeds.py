"""Over which paths a gate fills one direction of a link, so that its own rate and queue show. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from containernet_env.model.queues import FULL_FRAME_BYTES
from containernet_env.model.topology import Hop

if TYPE_CHECKING:
    from containernet_env.analysis.gate_plan import GatePlan

_FASTER, _FASTER_TOGETHER = 1.05, 1.5
"""By how much the rest of a path is faster, so that what arrives shows the direction's own rate: of one path, and of
several paths together, whose frames do not share the rest evenly."""
UNLIMITED_BPS = 10**9
"""So much is sent over a direction without a limit, if as much gets there; a gate asks for half of it."""


@dataclass(frozen=True, slots=True)
class Feed:
    """The paths that fill one direction (``hop``): from one host to several, or from several to one.

    ``faster`` says whether the rest of the paths is faster, so that the direction's own rate shows.
    ``other_bps`` is what the rest of the paths carries together; ``None`` where nothing limits it.
    """

    hop: Hop
    pairs: tuple[tuple[str, str], ...]
    faster: bool
    other_bps: int | None = None


def feed_of(plan: GatePlan, hop: Hop, *, overload: bool = False, frame_bytes: int = FULL_FRAME_BYTES) -> Feed:
    """The paths that fill a direction: one whose rest is faster, else as few as are faster together.

    ``overload``: what comes before the direction has to be faster; what comes after it, no slower. ``frame_bytes``: of
    the frames, for what a frame takes besides decides which link is faster.
    """
    rate = hop.spec.rate_bps
    best = [
        (
            _rest_bps(plan.paths[pair], hop, rate, frame_bytes, overload=overload),
            _rest_bps(plan.paths[pair], hop, rate, frame_bytes),
            pair,
        )
        for pair in plan.over(hop)
    ]
    best.sort(key=lambda item: (-item[0], -item[1]))
    least, _, pair = best[0]
    other = None if least == math.inf else round(least)
    wanted = _FASTER_TOGETHER if overload else _FASTER
    if other is None or (rate is not None and least >= rate * wanted):
        return Feed(hop, (pair,), True, other)
    if rate is None:
        return _widest(plan, hop, [(bps, candidate) for bps, _, candidate in best])
    for same in (0, 1):  # from one host to several, then from several to one
        for _, _, (sender, receiver) in best:
            end = (sender, receiver)[same]
            together: list[tuple[str, str]] = []
            for bps, _, candidate in best:
                if candidate[same] == end and not _share_rest(plan, hop, together, candidate):
                    together.append(candidate)
                    if len(together) > 1 and bps * len(together) >= rate * _FASTER_TOGETHER:
                        return Feed(hop, tuple(together), True)
    return Feed(hop, (pair,), False, other)


def _widest(plan: GatePlan, hop: Hop, best: Sequence[tuple[float, tuple[str, str]]]) -> Feed:
    """The paths that carry most together over a direction without a limit; as few as carry enough."""
    widest = Feed(hop, (best[0][1],), True, round(best[0][0]))
    for same in (0, 1):
        for _, pair in best:
            together: list[tuple[str, str]] = []
            carried = 0.0
            for bps, candidate in best:
                if (widest.other_bps or 0) >= UNLIMITED_BPS:
                    return widest
                if candidate[same] == pair[same] and not _share_rest(plan, hop, together, candidate):
                    together.append(candidate)
                    carried += bps
                    if carried > (widest.other_bps or 0):
                        widest = Feed(hop, tuple(together), True, round(carried))
    return widest


def _rest_bps(path: Sequence[Hop], hop: Hop, rate: int | None, frame_bytes: int, *, overload: bool = False) -> float:
    """The least rate of a path but that of one direction; infinite where nothing limits it.

    Rates are of frames of that length as the direction counts them: those with less overhead than it are worth more.
    """
    least = math.inf
    after = False
    for other in path:
        if other.name == hop.name:
            after = True
            continue
        taken = (frame_bytes + hop.spec.overhead_bytes) / (frame_bytes + other.spec.overhead_bytes)
        bps = float(other.spec.rate_bps or math.inf) * taken
        if overload and after and rate is not None and bps >= rate:
            continue  # what leaves the direction goes on
        least = min(least, bps)
    return least


def _share_rest(plan: GatePlan, hop: Hop, pairs: Sequence[tuple[str, str]], candidate: tuple[str, str]) -> bool:
    rest = {other.name for pair in pairs for other in plan.paths[pair]} - {hop.name}
    return any(other.name in rest for other in plan.paths[candidate])
