"""What a request costs in CPU time: taken from the outcomes of scenarios, and looked up for others like them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from containernet_env.analysis.floor import median
from containernet_env.model.findings import Kind
from containernet_env.model.machine_findings import FULL_SHARE
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import CONSISTENCY_NAMES, Scenario
from containernet_env.results.machine_costs import CostSample, flight_class, size_class

_WAITED: frozenset[Kind] = frozenset({"machine_full", "generator_waited", "link_lateness", "ingress_poll_delay"})
"""Reasons of rows in which somebody waited for a core."""
_ONE_CORE: frozenset[Kind] = frozenset({"generator_saturated", "links_saturated"})
"""Reasons of rows in which one thread was the limit, whatever cores there were."""
_NEAR = 1
"""A load with this many powers of ten more or fewer requests in flight stands in for one that was not measured."""


@dataclass(frozen=True, slots=True)
class RequestCost:
    """CPU time of one request in ns: of all members, the busiest one, the client's host, its load generator, the link
    emulator, and the machine besides."""

    cluster_ns: float
    member_ns: float
    client_ns: float
    generator_ns: float
    links_ns: float
    rest_ns: float


@dataclass(frozen=True, slots=True)
class ForwardingCost:
    """CPU time of the link emulator for one frame in ns, and the mean size of such frames."""

    frame_ns: float
    frame_bytes: float


def sample_of(outcome: ScenarioOutcome, members: int, cores: int) -> CostSample | None:
    """What the requests of a scenario cost on a cluster of that size; ``None`` where that cannot be told.

    Only a valid row tells it, or one whose only fault is that cores were short: others had work of somebody else in
    them, or of another cluster. The network has to be carried by the link emulator.
    """
    load, usage, verdict = outcome.load, outcome.machine, outcome.verdict
    if load is None or usage is None or verdict is None or outcome.error is not None or outcome.network is None:
        return None
    if not set(verdict.reasons) <= _WAITED | _ONE_CORE:
        return None
    used = usage.used
    by_member = [member.cpu_ns for member in used.members.values()]
    others = [None if one is None else one.cpu_ns for one in (used.client, used.links, used.driver, used.machine)]
    known = [cpu_ns for cpu_ns in (*by_member, *others) if cpu_ns is not None]
    if len(by_member) != members or len(known) != members + len(others) or usage.window_ns <= 0:
        return None
    client_ns, links_ns, _, machine_ns = known[members:]
    requests = load.ok + ((load.values["warmup"] or {}).get("ok") or 0)
    sent = [link["a_to_b"] for link in outcome.network.values["links"].values()]
    frames = sum(direction["frames"] for direction in sent)
    if requests <= 0 or frames <= 0:
        return None
    scenario = outcome.scheduled.scenario
    reasons = set(verdict.reasons)
    return CostSample(
        at=outcome.began,
        kind=kind_of(scenario),
        one_member=scenario.target != "cluster",
        members=members,
        in_flight=scenario.clients if scenario.rate is None else load.requests_per_s * (load.average_s or 0.0),
        payload_bytes=payload_bytes(scenario),
        requests=requests,
        cluster_ns=sum(known[:members]) / requests,
        member_ns=max(known[:members]) / requests,
        client_ns=client_ns / requests,
        generator_ns=load.cpu_s * 1e9 / load.ok,
        links_ns=links_ns / requests,
        rest_ns=max(0, machine_ns - sum(known[:members]) - client_ns - links_ns) / requests,
        frames=frames / requests,
        frame_bytes=sum(direction["bytes"] for direction in sent) / frames,
        busy_ratio=machine_ns / usage.window_ns / cores,
        crowded=bool(reasons & _WAITED) and not reasons & _ONE_CORE,
    )


def kind_of(scenario: Scenario) -> str:
    """What the requests of a scenario do, such as ``write`` or ``mixed 0.2 linearizable``."""
    ratio = "" if scenario.put_ratio is None else f"{float(scenario.put_ratio):.1f}"
    consistency = "" if scenario.consistency is None else CONSISTENCY_NAMES[scenario.consistency]
    return " ".join(filter(None, (scenario.type, ratio, consistency)))


def payload_bytes(scenario: Scenario) -> int:
    """Keys and values of a request or of its answer: of the larger one, where a load has both."""
    key_bytes = len(scenario.key_prefix) + scenario.key_size
    answer = scenario.keys_answered * (key_bytes + (scenario.val_size if scenario.span.answer == "values" else 0))
    only_reads = scenario.reads and not scenario.put_ratio
    return max(0 if only_reads else key_bytes + scenario.val_size, answer if scenario.reads else 0)


def cost_of(samples: Iterable[CostSample], scenario: Scenario, members: int, in_flight: float) -> RequestCost | None:
    """Medians, by requests, over the samples of like loads; ``None`` where none was measured.

    Of others than those with as many requests in flight, the ones with fewer go first: they cost more.
    """
    wanted = (kind_of(scenario), scenario.target != "cluster", members, size_class(payload_bytes(scenario)))
    alike = [sample for sample in samples if sample.group[:-1] == wanted]
    asked = flight_class(in_flight)
    for flight in (asked, asked - _NEAR, asked + _NEAR):
        if found := [sample for sample in alike if sample.group[-1] == flight]:
            names = RequestCost.__dataclass_fields__
            return RequestCost(**{name: _median(found, [getattr(one, name) for one in found]) for name in names})
    return None


def forwarding_cost(samples: Iterable[CostSample]) -> ForwardingCost | None:
    """What a frame costs where most requests are in flight; ``None`` where nothing was measured."""
    samples = list(samples)
    most = max((sample.group[-1] for sample in samples), default=0)
    busiest = [sample for sample in samples if sample.group[-1] == most and sample.frames > 0]
    if not busiest:
        return None
    frame_ns = _median(busiest, [sample.links_ns / sample.frames for sample in busiest])
    return ForwardingCost(frame_ns, _median(busiest, [sample.frame_bytes for sample in busiest]))


def full_share(samples: Sequence[CostSample]) -> float:
    """How busy this machine's cores may be before somebody waits for one: what tells its rows apart best.

    Of all limits the one that puts the fewest rows on the wrong side, the largest of equals; never above what makes a
    row not valid by itself.
    """
    limits = [FULL_SHARE, *(sample.busy_ratio for sample in samples if sample.busy_ratio < FULL_SHARE)]

    def wrong(limit: float) -> int:
        return sum(sample.crowded is not (sample.busy_ratio > limit) for sample in samples)

    return min(limits, key=lambda limit: (wrong(limit), -limit))


def _median(samples: Sequence[CostSample], values: Sequence[float]) -> float:
    """Longer runs count for more: in a short one, connecting is a large part."""
    return median(zip((float(sample.requests) for sample in samples), values, strict=True))
