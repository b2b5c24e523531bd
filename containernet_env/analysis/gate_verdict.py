"""What the streams of a gate prove: a check for every property of every direction. Pure; docs/fidelity.md has the why.

A property is ``wrong`` where what was measured is not explained by what was asked, ``proved`` where it is and the
samples would have told it from a wrong one, and ``unproved`` where they would not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from containernet_env.analysis import gate_trains
from containernet_env.analysis.gate_delays import delay_checks, path_delays, telling
from containernet_env.analysis.gate_jitter import jitter_checks
from containernet_env.analysis.gate_plan import GatePlan
from containernet_env.analysis.gate_trains import Allowed, Times
from containernet_env.analysis.odds import CountTest, each, sigmas, worth
from containernet_env.model.proof import Check
from containernet_env.model.topology import Hop

_UNASKED_LOSS = 0.01
"""Where no loss is configured, as many frames have to arrive as tell this much of it, or as much as the rest of the
paths loses, if that is more."""


def verdicts(plan: GatePlan, times: Sequence[Times], allowed: Allowed) -> tuple[Check, ...]:
    """Every check of a gate, in the order of directions. ``times`` are those of ``plan.streams``."""
    tests = 5 * len(plan.hops) + len(plan.paths)
    alpha = each(tests)
    delays = {pair: path_delays(plan, pair, times, allowed, sigmas(alpha)) for pair in plan.paths}
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
    over = {hop.name: telling(plan, hop, loss_of) for hop in plan.hops}
    counts = {hop.name: _losses(plan, over[hop.name], times) for hop in plan.hops}
    # A direction that loses shows on every path over it: the one that is off by most is blamed first, and then the
    # others only for what the paths that avoid it have lost.
    order = sorted(plan.hops, key=lambda hop: _suspicion(hop, counts[hop.name]))
    blamed: list[str] = []
    checks = {}
    for hop in order:
        pairs = over[hop.name]
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
    if hop.spec.loss is not None and hop.spec.loss.correlation and 0 < configured < 1:
        why = "frames that are lost are counted: that they are lost in bursts is not told"
        return Check(hop.name, "loss", "unproved", asked, measured, allowed, why, values)
    if all(test.tells(min(1.0, max(0.0, other))) for other in others if other != losses.ratio):
        return Check(hop.name, "loss", "proved", asked, measured, allowed, values=values)
    cannot = "none and twice as much" if configured else f"{max(_UNASKED_LOSS, losses.ratio) * 100:.2g} %"
    why = f"{losses.sent} frames do not tell it from {cannot}"
    return Check(hop.name, "loss", "unproved", asked, measured, allowed, why, values)
