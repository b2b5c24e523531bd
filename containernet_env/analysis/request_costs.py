"""What a request costs in CPU time: taken from the outcomes of scenarios, and looked up for others like them. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from containernet_env.analysis.floor import median
from containernet_env.model.findings import Finding, Kind
from containernet_env.model.machine_findings import FULL_SHARE
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import CONSISTENCY_NAMES, Scenario
from containernet_env.results.machine_costs import CostSample, Limit, size_class

_WAITED: frozenset[Kind] = frozenset({"machine_full", "generator_waited", "member_waited", "link_lateness"})
"""Reasons of rows in which somebody waited for a core."""
_ONE_CORE: frozenset[Kind] = frozenset({"generator_saturated", "links_saturated"})
"""Reasons of rows in which one thread was the limit, whatever cores there were."""
SHORT_OF_CORES: frozenset[Kind] = _WAITED | _ONE_CORE | {"generator_late", "client_throttled"}
"""Reasons that go away where a scenario fits the machine."""
_BEYOND = 3
"""So many times the highest rate that was measured, a request may still cost what it did there."""


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


_COSTS = tuple(item.name for item in fields(RequestCost))


@dataclass(frozen=True, slots=True)
class ForwardingCost:
    """CPU time of the link emulator for one frame in ns, and the mean size of such frames."""

    frame_ns: float
    frame_bytes: float


def sample_of(
    outcome: ScenarioOutcome, members: int, cores: int, config: str, store: str = "etcd"
) -> CostSample | None:
    """What the requests of a scenario cost on a cluster of that size; ``None`` where that cannot be told.

    ``cores`` are the machine's, ``config`` is the hash of what was configured, ``store`` the kind that was asked.

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
        rate_per_s=load.requests_per_s,
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
        limit=_limit(outcome.findings, reasons),
        config=config,
        clients=0 if scenario.is_open else scenario.clients,
        store=store,
    )


def _limit(findings: Iterable[Finding], reasons: Collection[str]) -> Limit:
    if not _ONE_CORE.isdisjoint(reasons):
        return "one core"
    if not _WAITED.isdisjoint(reasons):
        return "cores"
    return "members" if any(finding.kind == "member_throttled" for finding in findings) else "none"


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


def alike(samples: Iterable[CostSample], scenario: Scenario, members: int) -> list[CostSample]:
    """Those of the same requests on a cluster of that size, at whatever rate."""
    wanted = (kind_of(scenario), scenario.target != "cluster", members, size_class(payload_bytes(scenario)))
    return [sample for sample in samples if sample.group[:-1] == wanted]


def least_cost(samples: Sequence[CostSample]) -> RequestCost:
    """The least that any of one sample or more has of each."""
    return RequestCost(**{name: min(getattr(sample, name) for sample in samples) for name in _COSTS})


def cost_at(samples: Iterable[CostSample], rate_per_s: float) -> RequestCost | None:
    """What a request costs at a rate; ``None`` where too little is known of rates as high as that.

    Part of the CPU time is that of heartbeats, which is the same in any second. So between the rates that were measured
    it is the cores that are interpolated. Below the lowest one a request costs what it did there, and above the highest
    one too, where that could not be higher or the other one is not much higher.
    """
    by_rate: dict[int, list[CostSample]] = {}
    for sample in samples:
        by_rate.setdefault(sample.group[-1], []).append(sample)
    points = sorted(map(_point, by_rate.values()), key=lambda point: point.rate_per_s)
    below = [point for point in points if point.rate_per_s <= rate_per_s]
    above = [point for point in points if point.rate_per_s > rate_per_s]
    if not above:
        known = below and (below[-1].limited or rate_per_s <= _BEYOND * below[-1].rate_per_s)
        return below[-1].cost if known else None
    if not below:
        return above[0].cost
    low, high = below[-1], above[0]
    share = (rate_per_s - low.rate_per_s) / (high.rate_per_s - low.rate_per_s)
    weights = ((low, (1 - share) * low.rate_per_s / rate_per_s), (high, share * high.rate_per_s / rate_per_s))
    return RequestCost(**{name: sum(getattr(one.cost, name) * weight for one, weight in weights) for name in _COSTS})


@dataclass(frozen=True, slots=True)
class _Point:
    rate_per_s: float
    cost: RequestCost
    limited: bool


def _point(samples: Sequence[CostSample]) -> _Point:
    """Medians, by requests, over samples at about one rate."""
    cost = RequestCost(**{name: _median(samples, [getattr(one, name) for one in samples]) for name in _COSTS})
    limited = any(sample.limit != "none" for sample in samples)
    return _Point(_median(samples, [sample.rate_per_s for sample in samples]), cost, limited)


def reached_per_s(samples: Iterable[CostSample], config: str, clients: int) -> Iterator[float]:
    """The highest rate that a closed loop of as many clients, or more, reached on the same config, if any did where the
    machine had cores to spare."""
    free = [sample for sample in samples if sample.config == config and sample.limit in ("none", "members")]
    rates = [sample.rate_per_s for sample in free if sample.clients >= clients]
    if rates:
        yield max(rates)


def forwarding_cost(samples: Iterable[CostSample]) -> ForwardingCost | None:
    """What a frame costs where there were most requests a second; ``None`` where nothing was measured."""
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
    short = sorted(sample.busy_ratio for sample in samples if sample.limit == "cores")
    others = sorted(sample.busy_ratio for sample in samples if sample.limit != "cores")

    def wrong(limit: float) -> int:
        return bisect_right(short, limit) + len(others) - bisect_right(others, limit)

    return min(limits, key=lambda limit: (wrong(limit), -limit))


def _median(samples: Sequence[CostSample], values: Sequence[float]) -> float:
    """Longer runs count for more: in a short one, connecting is a large part."""
    return median(zip((float(sample.requests) for sample in samples), values, strict=True))
