"""Whether a machine can carry a plan: bounds from what a request costs there, before anything is brought up. Pure.

Bottleneck analysis of a closed network (Denning and Buzen, The Operational Analysis of Queueing Network Models, 1978):
N clients get at most N / (Z + D) answers a second, Z being the floor of their latency and D the CPU time on the way of
one request; what is configured, CPU limits of members and bandwidths, bounds that further. Whatever the machine has to
do at that rate is what it has to have: an upper bound, as far as what a request costs is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, get_args

from containernet_env.analysis.floor import Floor
from containernet_env.analysis.request_costs import (
    SHORT_OF_CORES,
    ForwardingCost,
    RequestCost,
    alike,
    cost_at,
    forwarding_cost,
    full_share,
    least_cost,
    reached_per_s,
)
from containernet_env.model.link import LinkSpec
from containernet_env.model.machine_findings import SATURATED_CORES, Capacity
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Scenario
from containernet_env.model.topology import Topology
from containernet_env.model.verdict import REASONS
from containernet_env.plan.estimate import Estimator
from containernet_env.plan.identity import config_hash
from containernet_env.plan.plan import Plan
from containernet_env.results.machine_costs import CostSample, MachineCosts

Resource = Literal["machine", "links", "generator", "client"]
"""What may be too small: all cores together, the one core of the link emulator or of the load generator, the CPU limit
of the client's host."""
_SLOW_SYNC_SHARE = 0.5
"""An fdatasync that takes a larger share of a write's floor is what such a scenario measures."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A scenario for which a resource is too small: it would take ``wanted`` cores, of ``has``.

    Up to ``enough`` of them nobody waits. It fits with ``rate_per_s`` or, in a closed loop, with ``clients`` (0: not
    even with one); ``cores`` is how many the machine would need for it as it is, ``None`` where more do not help. Hosts
    whose CPU limits add up to ``limits`` cores wait for none; ``None`` where lower limits do not help.
    """

    scenario: Scenario
    resource: Resource
    wanted: float
    has: float
    enough: float
    rate_per_s: float
    clients: int | None
    cores: int | None
    limits: int | None = None


@dataclass(frozen=True, slots=True)
class SlowSync:
    """An fdatasync takes ``sync_s`` of the ``floor_s`` that a write takes at least."""

    scenario: Scenario
    sync_s: float
    floor_s: float


@dataclass(frozen=True, slots=True)
class Carried:
    """Which scenarios of a plan a machine carries.

    ``fit`` and ``unknown`` (nothing like it was measured) count scenarios, repetitions not; ``shortages`` has one entry
    for each that does not fit and each resource that is too small, by resource, the worst first. ``sync_s`` is the
    median fdatasync where the plan keeps its data; ``None`` where none was measured.
    """

    fit: tuple[Scenario, ...]
    unknown: tuple[Scenario, ...]
    shortages: tuple[Shortage, ...]
    forwarding: ForwardingCost | None
    sync_s: float | None
    slow_sync: SlowSync | None

    @property
    def forwards_per_s(self) -> float | None:
        """Frames per second that the link emulator can forward before frames wait for it."""
        return None if self.forwarding is None else SATURATED_CORES * 1e9 / max(1.0, self.forwarding.frame_ns)


def capacity_of(plan: Plan) -> Capacity:
    """The cores of the machine, and the limits of all hosts with a core for the link emulator."""
    if plan.config.external is not None:
        return Capacity(plan.options.machine_cores, members_here=False)
    limits = [host.cpus for host in plan.hosts]
    known = [float(limit) for limit in limits if limit is not None]
    links = 1.0 if by_emulator(plan) else 0.0
    limits_cores = sum(known) + links if len(known) == len(limits) else None
    return Capacity(plan.options.machine_cores, limits_cores, plan.options.links_core is not None)


def by_emulator(plan: Plan) -> bool:
    """Whether the link emulator carries the links."""
    return plan.options.links != "netem" and plan.options.engine == "builtin"


def carried(plan: Plan, known: MachineCosts) -> Carried:
    """What a machine of which that is ``known`` carries of a plan."""
    sync_ns = _sync_ns(plan, known)
    weigher = _Weigher(plan, known.requests, sync_ns or 0.0)
    scenarios = [planned.scheduled.scenario for planned in plan.once]
    weighed = {scenario.name: weigher.shortages(scenario) for scenario in scenarios}
    found = [shortage for held in weighed.values() for shortage in held or ()]
    order = get_args(Resource)
    return Carried(
        fit=tuple(scenario for scenario in scenarios if weighed[scenario.name] == ()),
        unknown=tuple(scenario for scenario in scenarios if weighed[scenario.name] is None),
        shortages=tuple(sorted(found, key=lambda one: (order.index(one.resource), -one.wanted))),
        forwarding=forwarding_cost(known.requests),
        sync_s=None if sync_ns is None else sync_ns / 1e9,
        slow_sync=weigher.slow_sync(scenarios, sync_ns / 1e9) if sync_ns and plan.config.etcd.data == "disk" else None,
    )


def _sync_ns(plan: Plan, known: MachineCosts) -> float | None:
    """The median fdatasync where the plan keeps its data."""
    syncs = [sample.median_ns for sample in known.syncs if sample.data == plan.config.etcd.data]
    return median(syncs) if syncs else None


def advice(plan: Plan, outcome: ScenarioOutcome, known: MachineCosts) -> str | None:
    """What would make the figures of a scenario valid, in words; ``None`` where they are, or nothing is known to help.

    ``known`` are the costs on this machine, those of this scenario among them.
    """
    if outcome.verdict is None or outcome.verdict.valid == "yes":
        return None
    reasons = set(outcome.verdict.reasons)
    fits = None
    short = reasons & SHORT_OF_CORES
    if short and plan.config.external is None:
        weigher = _Weigher(plan, known.requests, _sync_ns(plan, known) or 0.0)
        found = weigher.shortages(outcome.scheduled.scenario) or ()
        fits = min(found, key=lambda one: one.rate_per_s, default=None)
    parts = [] if fits is None else [helps_text(fits)]
    general = [way for kind in outcome.verdict.reasons if not (fits and kind in short) for way in REASONS[kind][1]]
    if general:
        parts.append(f"what helps: {_either(list(dict.fromkeys(general)))}")
    return "; ".join(parts) or None


class _Weigher:
    def __init__(self, plan: Plan, samples: Sequence[CostSample], sync_ns: float) -> None:
        self._plan = plan
        self._samples = [sample for sample in samples if sample.store == plan.store.name]
        self._members = [member.name for member in plan.topology.members]
        # Many requests would have to be drawn for the median under jitter, which moves it by less than its own spread.
        self._floor = Floor(plan.store, _without_jitter(plan.topology), dict.fromkeys(self._members, sync_ns))
        limits = [node.cpus for node in plan.config.nodes]
        self._estimator = Estimator(plan.topology, limits, plan.options.machine_cores, plan.config.etcd.leader)
        self._leader = self._estimator.fastest_leader
        self._client_cpus = plan.config.client.cpus
        self._config = config_hash(plan)
        self._full = full_share(samples)
        self._kept = plan.options.links_core
        self._cores = plan.options.machine_cores if self._kept is None else len(self._kept.others)

    def floor_s(self, scenario: Scenario) -> float:
        """Under the leader that answers soonest."""
        return self._floor.median_s(scenario, self._leader, self._members) or 0.0

    def slow_sync(self, scenarios: Sequence[Scenario], sync_s: float) -> SlowSync | None:
        """The write of which an fdatasync is the largest share, if it is a large one."""
        floors = {item.name: self.floor_s(item) for item in scenarios if not item.reads}
        writes = [item for item in scenarios if sync_s > _SLOW_SYNC_SHARE * floors.get(item.name, float("inf"))]
        least = min(writes, key=lambda item: floors[item.name], default=None)
        return None if least is None else SlowSync(least, sync_s, floors[least.name])

    def shortages(self, scenario: Scenario) -> tuple[Shortage, ...] | None:
        """What is too small for a scenario; ``None`` where nobody knows what its requests cost."""
        samples = alike(self._samples, scenario, len(self._members))
        if not samples or not by_emulator(self._plan):
            return None
        # Where there are few requests, each bears the heartbeats of its time: the least is nearer to its own cost. Of
        # one request, followers work at the same time as their leader.
        least = least_cost(samples)
        alone_s = self.floor_s(scenario) + (least.generator_ns + least.links_ns + least.member_ns) / 1e9
        asked = min(
            [
                scenario.clients / max(alone_s, 1e-9),
                *self._configured_rates(scenario),
                *reached_per_s(samples, self._config, scenario.clients),
            ]
        )
        cost = cost_at(samples, asked)
        if cost is None:
            return None
        rate = min([asked, *self._members_bound(cost)])
        return tuple(self._short(scenario, rate, alone_s, cost))

    def _configured_rates(self, scenario: Scenario) -> Iterator[float]:
        """Requests per second of an open loop, the highest of a search, and those that the fastest link lets through
        if every member's has a rate: a majority does without the slowest."""
        if scenario.rate is not None:
            yield float(scenario.rate)
        if scenario.search is not None:
            yield float(scenario.search.high)
        rates = [node.rate_bps for node in self._plan.config.nodes]
        if None not in rates:
            yield max(filter(None, rates)) / 8 / self._estimator.sent_bytes(scenario)

    def _members_bound(self, cost: RequestCost) -> Iterator[float]:
        """Requests per second that the highest CPU limit lets through, if every member has one."""
        cpus = [node.cpus for node in self._plan.config.nodes]
        if None not in cpus and cost.member_ns > 0:
            yield float(max(filter(None, cpus))) * 1e9 / cost.member_ns

    def _short(self, scenario: Scenario, rate: float, alone_s: float, cost: RequestCost) -> Iterator[Shortage]:
        # The one thread of the generator and that of the link emulator let no more through.
        carried_rate = min(rate, 1e9 / max(1.0, cost.generator_ns, cost.links_ns))
        request_ns = cost.cluster_ns + cost.client_ns + cost.rest_ns + (cost.links_ns if self._kept is None else 0.0)
        wanted: Mapping[Resource, tuple[float, float, float]] = {
            # What is wanted, what there is before somebody waits, and what a request takes of it.
            "machine": (carried_rate * request_ns / 1e9, self._full * self._cores, request_ns),
            "links": (rate * cost.links_ns / 1e9, SATURATED_CORES, cost.links_ns),
            "generator": (rate * cost.generator_ns / 1e9, SATURATED_CORES, cost.generator_ns),
        }
        if self._client_cpus is not None:
            limit = float(self._client_cpus)
            wanted = {**wanted, "client": (carried_rate * cost.client_ns / 1e9, limit, cost.client_ns)}
        for resource, (cores, enough, each_ns) in wanted.items():
            if cores <= enough or (resource == "machine" and capacity_of(self._plan).suffices):
                continue
            fits_per_s = enough * 1e9 / each_ns
            yield Shortage(
                scenario,
                resource,
                cores,
                {"machine": float(self._cores), "client": enough}.get(resource, 1.0),
                enough,
                fits_per_s,
                None if scenario.is_open else int(fits_per_s * alone_s + 1e-6),
                self._cores_for(cores) if resource == "machine" else None,
                self._plan.options.machine_cores - 1 if resource == "machine" else None,
            )

    def _cores_for(self, wanted: float) -> int:
        """How many cores a machine needs, the one that is kept for the link emulator included."""
        return -int(-wanted // self._full) + (self._kept is not None)


def _without_jitter(topology: Topology) -> Topology:
    links = [
        replace(link, spec=LinkSpec(*(replace(side, jitter=None) for side in (link.spec.a_to_b, link.spec.b_to_a))))
        for link in topology.links
    ]
    return Topology(topology.hosts, topology.switches, links)


def helps_text(worst: Shortage) -> str:
    """What would have to change for a scenario to fit."""
    ways = []
    if worst.clients is not None and worst.clients >= 1:
        ways.append(f"{rounded(worst.clients)} client{'s' if worst.clients > 1 else ''}")
    ways.append(f"a rate of {rounded(worst.rate_per_s)}/s")
    if worst.cores is not None:
        ways.append(f"{worst.cores} cores")
    if worst.limits:
        ways.append(f"CPU limits that add up to {worst.limits} core{'s' if worst.limits > 1 else ''}")
    if worst.resource == "client":
        ways.append("a higher limit")
    return f"it fits with about {_either(ways)}"


def _either(ways: Sequence[str]) -> str:
    return f"{', '.join(ways[:-1])}{' or ' if len(ways) > 1 else ''}{ways[-1]}"


def rounded(value: float) -> str:
    """Down to two digits: it is an estimate."""
    if value < 10:
        return f"{math.floor(value * 10) / 10:g}"
    step = 10 ** (math.floor(math.log10(value)) - 1)
    return f"{math.floor(value / step) * step:,}"
