"""The CPU cost of requests on this machine, and which scenarios fit it: samples, their file, and predictions."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import Field

from containernet_env.base import assets
from containernet_env.config.plan import Plan, config_hash
from containernet_env.config.planning import Estimator, dilated
from containernet_env.model.config import DILATION_MAX, DataStore
from containernet_env.model.findings import FULL_SHARE, RULES, SATURATED_CORES, Capacity, Kind
from containernet_env.model.link import LinkSpec
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import CONSISTENCY_NAMES, Scenario
from containernet_env.model.topology import Topology
from containernet_env.results.files import open_regular, reason, replacing
from containernet_env.results.floor import Floor, weighted_median
from containernet_env.results.run_files import MachineFacts, Part, RunFile

NAME = "machine-costs-1.json"
"""In the machine's cache folder; the number is the version of the form, so that other versions have other files."""
KEPT_OF_A_GROUP = 9
"""The last samples that are kept of each group of like loads, and of fdatasync on each kind of place."""
KEPT_SAMPLES = 400
KEPT_MACHINES = 4
"""A disk may move to another machine, and a virtual machine may get other cores."""
_MAX_BYTES = 4 << 20

Limit = Literal["none", "members", "one core", "cores"]
"""Nothing; the members' own CPU limits; the one core of the generator or of the link emulator; CPU contention on the
machine, so that the row is not valid."""
_Amount = Annotated[float, Field(ge=0, lt=1e15)]


class MachineKey(Part):
    """The properties that distinguish machines with regard to the cost of a request."""

    cpu_model: str
    architecture: str
    cores: int = Field(ge=1)
    kernel: str

    @classmethod
    def of(cls, facts: MachineFacts) -> MachineKey:
        """That of a machine as the manifest has it."""
        return cls(**facts.model_dump(include=set(cls.model_fields)) | {"cores": max(1, facts.cores)})


class RequestCost(Part):
    """CPU time of one request in ns."""

    cluster_ns: _Amount = Field(description="of all members together")
    member_ns: _Amount = Field(description="of the busiest member")
    client_ns: _Amount = Field(description="of the client's host")
    generator_ns: _Amount = Field(description="of the load generator alone, in the measured time")
    links_ns: _Amount = Field(description="of the link emulator")
    rest_ns: _Amount = Field(description="of the machine, besides all of these: kernel, driver, engine")


class CostSample(RequestCost):
    """The cost of one scenario's requests: connecting and warm-up included, as in its usage."""

    at: str = Field(description="when the scenario began, UTC")
    kind: str = Field(description="what its requests do")
    one_member: bool = Field(description="whether they went to one member, and not to all in turn")
    members: int = Field(ge=1)
    rate_per_s: _Amount = Field(description="how many were answered a second")
    payload_bytes: _Amount = Field(description="keys and values of a request or of its answer")
    requests: int = Field(ge=1)
    frames: _Amount = Field(description="per request, as the hosts sent them, those of heartbeats included")
    frame_bytes: _Amount
    busy_ratio: _Amount = Field(description="share of the time for which the machine's cores were busy")
    limit: Limit = Field(description="what of CPU time kept the rate from being higher, as its findings say")
    config: str = Field(description="hash of everything configured but the load; the CSV's ConfigHash")
    clients: int = Field(ge=0, description="of a closed loop; 0 of an open one")
    store: str = Field(default="etcd", description="the kind of store")
    dilation: int = Field(default=1, ge=1, description="how many times slower it ran; rates are emulated")

    @property
    def group(self) -> tuple[str, bool, int, int, int]:
        """Loads of one group cost the same: grouped by request, cluster, amount of data and requests a second.

        Of the latter it is the nearest half of a power of ten. The more there are, the less each costs: members, TCP
        and links batch them, and heartbeats, which cost the same in any second, are shared by more.
        """
        rate = round(2 * math.log10(max(1.0, self.rate_per_s)))
        return (self.kind, self.one_member, self.members, size_class(self.payload_bytes), rate)


class SyncSample(Part):
    """An fdatasync where members keep their data: the median of their medians."""

    at: str
    data: DataStore
    median_ns: _Amount


class MachineCosts(Part):
    """Of one machine, the oldest first."""

    machine: MachineKey
    requests: list[CostSample] = Field(default_factory=list)
    syncs: list[SyncSample] = Field(default_factory=list)

    @property
    def in_real_time(self) -> list[CostSample]:
        """The samples that show what a request costs; those that ran slower show only which rates can be reached."""
        return [sample for sample in self.requests if sample.dilation == 1]


class CostsFile(RunFile):
    """The file; the machine that ran last is the last one."""

    machines: list[MachineCosts] = Field(default_factory=list)

    def of(self, machine: MachineKey) -> MachineCosts:
        """The costs on a machine; of a new one none."""
        return next((costs for costs in self.machines if costs.machine == machine), MachineCosts(machine=machine))


def size_class(payload_bytes: float) -> int:
    """0 up to 1 KiB, where the overhead around the data dominates; then a class for each factor of 16."""
    return max(0, math.ceil(math.log(max(1.0, payload_bytes) / 1024, 16)))


def read(machine: MachineKey) -> tuple[MachineCosts, str | None]:
    """The known costs on a machine, and a note if the file cannot be used; never raises."""
    held, note = _read(assets.MACHINE / NAME)
    return held.of(machine), note


def add(machine: MachineKey, requests: Sequence[CostSample], syncs: Sequence[SyncSample]) -> None:
    """Add samples of this machine, atomically. Raises OSError, and the errors of the cache's folder."""
    if not requests and not syncs:
        return
    path = assets.make() / NAME
    held, _ = _read(path)
    known = held.of(machine)
    now = MachineCosts(
        machine=machine,
        requests=_last([*known.requests, *requests], lambda sample: (sample.group, sample.dilation > 1)),
        syncs=_last([*known.syncs, *syncs], lambda sample: sample.data),
    )
    others = [costs for costs in held.machines if costs.machine != machine]
    content = CostsFile(machines=[*others, now][-KEPT_MACHINES:])
    with replacing(path, sync=True, for_caller=False) as file:
        os.fchmod(file.fileno(), 0o644)  # for `check` without root, whatever the umask is
        file.write(f"{content.model_dump_json(by_alias=True, indent=1)}\n".encode())


_Sample = TypeVar("_Sample", CostSample, SyncSample)


def _last(samples: list[_Sample], group: Callable[[_Sample], object]) -> list[_Sample]:
    """The last ones of each group, and of all."""
    seen: Counter[object] = Counter()
    kept = []
    for sample in reversed(samples):
        seen[group(sample)] += 1
        if seen[group(sample)] <= KEPT_OF_A_GROUP:
            kept.append(sample)
    return kept[:KEPT_SAMPLES][::-1]


def _read(path: Path) -> tuple[CostsFile, str | None]:
    try:
        with open_regular(path) as file:
            return CostsFile.model_validate_json(file.read(_MAX_BYTES)), None
    except FileNotFoundError:
        return CostsFile(), None
    except OSError as error:
        return CostsFile(), f"{path} cannot be read: {reason(error)}; what it knows of this machine is left out"
    except ValueError:
        return CostsFile(), f"{path} is not what a run has left there: it is ignored, and the next run replaces it"


_WAITED: frozenset[Kind] = frozenset({"machine_full", "generator_waited", "member_waited", "link_lateness"})
"""Reasons of rows with CPU contention."""
_ONE_CORE: frozenset[Kind] = frozenset({"generator_saturated", "links_saturated"})
"""Reasons of rows in which one thread was the limit, whatever cores there were."""
SHORT_OF_CORES: frozenset[Kind] = _WAITED | _ONE_CORE | {"generator_late", "client_throttled"}
"""Reasons that go away where a scenario fits the machine."""
_BEYOND = 3
"""Costs are extrapolated up to this multiple of the highest measured rate."""


def sample_of(
    outcome: ScenarioOutcome, members: int, cores: int, config: str, store: str = "etcd"
) -> CostSample | None:
    """The cost of a scenario's requests on a cluster of that size; ``None`` if it cannot be determined.

    ``cores`` are the machine's, ``config`` is the hash of the configuration, ``store`` the kind of store queried. Only
    a row that is valid, or whose only fault is CPU contention, is a sample: other rows include the work of other
    programs or of another cluster. The link emulator must carry the network.
    """
    load, usage, verdict = outcome.load, outcome.machine, outcome.verdict
    if load is None or usage is None or verdict is None or outcome.error is not None or outcome.network is None:
        return None
    if not (reasons := set(verdict.reasons)) <= _WAITED | _ONE_CORE:
        return None
    limit: Limit = "members" if any(finding.kind == "member_throttled" for finding in outcome.findings) else "none"
    if reasons:
        limit = "cores" if reasons <= _WAITED else "one core"
    used = usage.used
    by_member = [member.cpu_ns for member in used.members.values()]
    others = [None if one is None else one.cpu_ns for one in (used.client, used.links, used.driver, used.machine)]
    known = [cpu_ns for cpu_ns in (*by_member, *others) if cpu_ns is not None]
    if len(by_member) != members or len(known) != members + len(others) or usage.window_ns <= 0:
        return None
    client_ns, links_ns, _, machine_ns = known[members:]
    requests = load.ok + ((load.values["warmup"] or {}).get("ok") or 0)
    ports = outcome.network.values["ports"].values()
    frames = sum(port["received_frames"] for port in ports)
    if requests <= 0 or frames <= 0:
        return None
    scenario = outcome.scheduled.scenario.together
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
        frame_bytes=sum(port["received_bytes"] for port in ports) / frames,
        busy_ratio=machine_ns / usage.window_ns / outcome.dilation / cores,
        limit=limit,
        config=config,
        clients=0 if scenario.is_open else scenario.clients,
        store=store,
        dilation=outcome.dilation,
    )


def kind_of(scenario: Scenario) -> str:
    """The operation of a scenario's requests, such as ``write`` or ``mixed 0.2 linearizable``."""
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


def _cost(of: Callable[[str], float]) -> RequestCost:
    return RequestCost(**{name: of(name) for name in RequestCost.model_fields})


def cost_at(samples: Iterable[CostSample], rate_per_s: float) -> RequestCost | None:
    """The cost of a request at a rate; ``None`` if there are too few measurements at rates as high as that.

    Part of the CPU time is that of heartbeats, which is constant per second. So between measured rates the number of
    cores is interpolated. Below the lowest rate a request costs the same as at it; above the highest rate too, provided
    that it could not be higher or that the other one is not much higher.
    """
    by_rate: dict[int, list[CostSample]] = {}
    for sample in samples:
        by_rate.setdefault(sample.group[-1], []).append(sample)
    points = sorted(((_median(group, "rate_per_s"), group) for group in by_rate.values()), key=lambda point: point[0])
    below = [point for point in points if point[0] <= rate_per_s]
    above = [point for point in points if point[0] > rate_per_s]
    if not above:
        known = below and (any(one.limit != "none" for one in below[-1][1]) or rate_per_s <= _BEYOND * below[-1][0])
        return _cost(partial(_median, below[-1][1])) if known else None
    if not below:
        return _cost(partial(_median, above[0][1]))
    (low_rate, low), (high_rate, high) = below[-1], above[0]
    share = (rate_per_s - low_rate) / (high_rate - low_rate)
    low_weight, high_weight = (1 - share) * low_rate / rate_per_s, share * high_rate / rate_per_s
    return _cost(lambda name: _median(low, name) * low_weight + _median(high, name) * high_weight)


def reached_per_s(samples: Iterable[CostSample], config: str, clients: int) -> list[float]:
    """The highest rate that a closed loop of as many clients, or more, reached on the same config, if any did where the
    machine had cores to spare."""
    free = (sample for sample in samples if sample.config == config and sample.limit in ("none", "members"))
    return sorted(sample.rate_per_s for sample in free if sample.clients >= clients)[-1:]


def forwarding(samples: Sequence[CostSample]) -> tuple[float, float] | None:
    """How many frames/s the link emulator can forward before they wait for it, and their mean size in bytes.

    By what a frame costs at the highest request rate; ``None`` if nothing was measured.
    """
    most = max((sample.group[-1] for sample in samples), default=0)
    busiest = [sample for sample in samples if sample.group[-1] == most and sample.frames > 0]
    if not busiest:
        return None
    frame_ns = weighted_median((sample.requests, sample.links_ns / sample.frames) for sample in busiest)
    return SATURATED_CORES * 1e9 / max(1.0, frame_ns), _median(busiest, "frame_bytes")


def full_share(samples: Sequence[CostSample]) -> float:
    """The core utilization above which CPU contention occurs on this machine: the limit that separates its rows best.

    Of all limits the one with the fewest rows on the wrong side, the largest of equals, and half of the way from there
    to the next row that lacked cores; never above the utilization that makes a row not valid by itself.
    """
    limits = [FULL_SHARE, *(sample.busy_ratio for sample in samples if sample.busy_ratio < FULL_SHARE)]
    short = sorted(sample.busy_ratio for sample in samples if sample.limit == "cores")
    others = sorted(sample.busy_ratio for sample in samples if sample.limit != "cores")

    def wrong(limit: float) -> int:
        return bisect_right(short, limit) + len(others) - bisect_right(others, limit)

    limit = min(limits, key=lambda limit: (wrong(limit), -limit))
    return (limit + min([FULL_SHARE, *(busy for busy in short if busy > limit)])) / 2


def _median(samples: Sequence[CostSample], name: str) -> float:
    """Longer runs count for more: in a short one, connecting is a large part."""
    return weighted_median((sample.requests, getattr(sample, name)) for sample in samples)


Resource = Literal["machine", "links", "generator", "client"]
"""The resource that may be too small: all cores together, the one core of the link emulator or of the load generator,
the CPU limit of the client's host."""
_DILATED_SHARE = 0.75
"""What a dilation leaves of the resource to a scenario. On two cores, of which 42 to 50 % could be used before cores
were short, all 38 scenarios that used up to 41 % gave valid rows, and 4 of 11 that used more."""
_UNCROWDED = 1.7
"""What a request costs where nothing waits for a core, to its cost where cores were short, and members, TCP and links
batch more of them: 1.6 to 2.1 (writes and reads of 100 and 1,000 clients on two cores)."""
_SLOW_SYNC_SHARE = 0.5
"""If an fdatasync takes a larger share of a write's floor, the scenario mainly measures the disk."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A scenario for which a resource is too small: it would take ``wanted`` cores, of ``has``.

    Up to ``enough`` of them there is no contention. It fits with ``rate_per_s`` or, in a closed loop, with ``clients``
    (0: not even with one); ``cores`` is how many the machine would need for it as it is, ``None`` if more do not help.
    With hosts whose CPU limits add up to ``limits`` cores there is no contention; ``None`` if lower limits do not help.
    It fits where it runs ``dilation`` times slower than real time; ``None`` if that does not help.
    """

    scenario: Scenario
    resource: Resource
    wanted: float
    has: float
    enough: float
    rate_per_s: float
    clients: int | None
    cores: int | None = None
    limits: int | None = None
    dilation: int | None = None


@dataclass(frozen=True, slots=True)
class Carried:
    """Which scenarios of a plan fit a machine.

    ``fit`` and ``unknown`` (nothing like it was measured) count scenarios, not repetitions; ``shortages`` has one entry
    for each scenario that does not fit and each resource that is too small, by resource, the worst first. ``sync_s`` is
    the median fdatasync in the directory of the plan's data; ``None`` if none was measured. ``slow_sync`` is the write
    of which it is the largest share, and what that takes at least in s; ``None`` if it is no large one.
    """

    fit: tuple[Scenario, ...]
    unknown: tuple[Scenario, ...]
    shortages: tuple[Shortage, ...]
    forwarding: tuple[float, float] | None
    sync_s: float | None
    slow_sync: tuple[Scenario, float] | None


def capacity_of(plan: Plan) -> Capacity:
    """The cores of the machine, and the limits of all hosts with a core for the link emulator."""
    if plan.config.external is not None:
        return Capacity(plan.options.machine_cores, members_here=False)
    limits = [host.cpus for host in plan.hosts]
    known = [float(limit) for limit in limits if limit is not None]
    links = 1.0 if by_emulator(plan) else 0.0
    limits_cores = sum(known) + links if len(known) == len(limits) else None
    return Capacity(plan.options.machine_cores, limits_cores, plan.options.links_cpu is not None)


def enough_dilation(plan: Plan) -> int:
    """The dilation at which this machine has all that members' CPU limits, load generators and emulator may use.

    1 where that fits already, or a member has no limit.
    """
    limits = [node.cpus for node in plan.config.nodes if node.cpus is not None]
    if len(limits) < len(plan.config.nodes):
        return 1
    return max(1, math.ceil((float(sum(limits)) + len(plan.config.clients) + 1) / plan.options.machine_cores))


def by_emulator(plan: Plan) -> bool:
    """Whether the link emulator carries the links."""
    return plan.options.links != "netem" and plan.options.engine == "builtin"


def carried(plan: Plan, known: MachineCosts) -> Carried:
    """Which scenarios of a plan fit a machine with the costs ``known``."""
    weigher = _Weigher(plan, known)
    scenarios = [planned.scheduled.scenario for planned in plan.once]
    weighed = {scenario.name: weigher.shortages(scenario) for scenario in scenarios}
    found = [shortage for held in weighed.values() for shortage in held or ()]
    order = get_args(Resource)
    return Carried(
        fit=tuple(scenario for scenario in scenarios if weighed[scenario.name] == ()),
        unknown=tuple(scenario for scenario in scenarios if weighed[scenario.name] is None),
        shortages=tuple(sorted(found, key=lambda one: (order.index(one.resource), -one.wanted))),
        forwarding=forwarding(known.in_real_time),
        sync_s=weigher.sync_s,
        slow_sync=weigher.slow_sync(scenarios),
    )


def dilations(plan: Plan, known: MachineCosts) -> dict[str, int]:
    """By the name of each scenario of a plan the least dilation at which a machine with the costs ``known`` carries it.

    1 where that is not known, or no dilation helps; the largest one where more is needed.
    """
    found = dict.fromkeys((planned.scheduled.scenario.name for planned in plan.once), 1)
    for short in carried(plan, known).shortages:
        needed = short.dilation or (1 if short.resource == "client" else DILATION_MAX)
        found[short.scenario.name] = max(found[short.scenario.name], needed)
    return found


def advice(plan: Plan, outcome: ScenarioOutcome, known: MachineCosts) -> str | None:
    """A text on how to make the figures of a scenario valid; ``None`` if they are valid, or no remedy is known.

    ``known`` are the costs on this machine, including those of this scenario.
    """
    if outcome.verdict is None or outcome.verdict.valid == "yes":
        return None
    reasons = set(outcome.verdict.reasons)
    fits = None
    short = reasons & SHORT_OF_CORES
    if short and plan.config.external is None:
        found = _Weigher(plan, known).shortages(outcome.scheduled.scenario) or ()
        fits = min(found, key=lambda one: one.rate_per_s, default=None)
    parts = [] if fits is None else [helps_text(fits)]
    general = [way for kind in outcome.verdict.reasons if not (fits and kind in short) for way in RULES[kind].helps]
    if general:
        parts.append(f"what helps: {_either(list(dict.fromkeys(general)))}")
    return "; ".join(parts) or None


class _Weigher:
    def __init__(self, plan: Plan, known: MachineCosts) -> None:
        self._plan, self._dilation = plan, plan.dilation
        self._samples = [sample for sample in known.requests if sample.store == plan.store.name]
        self._members = [member.name for member in plan.topology.members]
        syncs = [sample.median_ns for sample in known.syncs if sample.data == plan.config.etcd.data]
        sync_ns = median(syncs) / plan.dilation if syncs else 0.0
        self.sync_s = sync_ns / 1e9 if syncs else None
        # Many requests would have to be drawn for the median under jitter, which moves it by less than its own spread.
        syncs_ns = {node.name: float(node.fsync_ns or sync_ns) for node in plan.config.nodes}
        self._floor = Floor(plan.store, _without_jitter(plan.topology), syncs_ns)
        limits = [node.cpus for node in plan.config.nodes]
        self._estimator = Estimator(plan.topology, limits, plan.options.machine_cores, plan.config.etcd.leader)
        self._leader = self._estimator.fastest_leader
        clients = [client.cpus for client in plan.config.clients]
        self._client_cpus = None if None in clients else sum(cpus for cpus in clients if cpus is not None)
        self._config = config_hash(plan)
        self._full = full_share(known.in_real_time)
        # Of a dilation the machine's other rows decide too, which are nearer to it.
        self._full_slowed = full_share(known.requests)
        self._kept = plan.options.links_cpu
        self._cores = plan.options.machine_cores if self._kept is None else len(plan.options.other_cores)

    def floor_s(self, scenario: Scenario) -> float:
        """Under the leader that answers soonest."""
        return self._floor.median_s(scenario, self._leader, self._members) or 0.0

    def slow_sync(self, scenarios: Sequence[Scenario]) -> tuple[Scenario, float] | None:
        """The write of which an fdatasync on a disk is the largest share, if it is a large one."""
        if not (sync_s := self.sync_s) or self._plan.config.etcd.data != "disk":
            return None
        floors = {item.name: self.floor_s(item) for item in scenarios if not item.reads}
        writes = [item for item in scenarios if sync_s > _SLOW_SYNC_SHARE * floors.get(item.name, float("inf"))]
        least = min(writes, key=lambda item: floors[item.name], default=None)
        return None if least is None else (least, floors[least.name])

    def shortages(self, scenario: Scenario) -> tuple[Shortage, ...] | None:
        """The resources that are too small for a scenario; ``None`` if the cost of its requests is unknown.

        Of several clients the loads are taken together, and their generators share them evenly.
        """
        floor_s, generators, scenario = self.floor_s(scenario), max(1, len(scenario.parts)), scenario.together
        held = alike(self._samples, scenario, len(self._members))
        samples = [sample for sample in held if sample.dilation == 1]
        if not samples or not by_emulator(self._plan):
            return None
        # At low rates each request includes more of the heartbeats: the least is nearer to its own cost. Followers
        # process one request at the same time as their leader.
        least = _cost(lambda name: min(getattr(sample, name) for sample in samples))
        work_s = (least.generator_ns + least.links_ns + least.member_ns) / 1e9
        alone_s = floor_s + work_s / self._dilation
        rates = [scenario.clients / max(alone_s, 1e-9), *reached_per_s(held, self._config, scenario.clients)]
        rates += [float(limit) for limit in (scenario.rate, scenario.search and scenario.search.high) if limit]
        links_bps = [rate for node in self._plan.config.nodes if (rate := node.link.a_to_b.rate_bps) is not None]
        if len(links_bps) == len(self._members):
            # A majority does without the slowest.
            rates.append(max(links_bps) / 8 / self._estimator.sent_bytes(scenario))
        if (cost := cost_at(samples, min(rates) / self._dilation)) is None:
            return None
        # At a dilation that leaves cores to spare.
        spared = cost_at((one for one in held if one.dilation > 1 and one.limit in ("none", "members")), min(rates))
        if spared is None:
            dearer = _UNCROWDED if any(sample.limit == "cores" for sample in samples) else 1.0
            spared = _cost(lambda name: dearer * getattr(cost, name))
        now, slowed = ((each, min(rates + self._let_through(each))) for each in (cost, spared))
        return tuple(self._short(scenario, now, slowed, alone_s, generators))

    def _let_through(self, cost: RequestCost) -> list[float]:
        """The rate at which the busiest member reaches its CPU limit, if all members have one."""
        cpus = [node.cpus for node in self._plan.config.nodes if node.cpus is not None]
        return [float(max(cpus)) * 1e9 / cost.member_ns] if len(cpus) == len(self._members) and cost.member_ns else []

    def _each_ns(self, cost: RequestCost) -> dict[Resource, float]:
        """The cost of a request in each resource."""
        shared = cost.cluster_ns + cost.client_ns + cost.rest_ns + (cost.links_ns if self._kept is None else 0.0)
        return {
            "machine": shared,
            "links": cost.links_ns,
            "generator": cost.generator_ns,
            "client": cost.client_ns,
        }

    def _short(
        self,
        scenario: Scenario,
        now: tuple[RequestCost, float],
        slowed: tuple[RequestCost, float],
        alone_s: float,
        generators: int,
    ) -> Iterator[Shortage]:
        """The cost of a request and the rate, in emulated time, of this plan and where a dilation leaves cores."""
        (cost, rate), (slowed_cost, slowed_rate) = now, slowed
        # The one thread of the generator and that of the link emulator let no more through. In real time.
        real_rate = rate / self._dilation
        carried_rate = min(real_rate, 1e9 / max(1.0, cost.generator_ns / generators, cost.links_ns))
        # The rate, the cores available before contention, and those that are at a dilation.
        held: dict[Resource, tuple[float, float, float]] = {
            "machine": (carried_rate, self._full * self._cores, self._full_slowed * self._cores),
            "links": (real_rate, SATURATED_CORES, SATURATED_CORES),
            "generator": (real_rate, generators * SATURATED_CORES, generators * SATURATED_CORES),
        }
        if self._client_cpus is not None:
            held["client"] = (carried_rate, float(self._client_cpus) / self._dilation, 0.0)
        costs_ns, slowed_costs_ns = self._each_ns(cost), self._each_ns(slowed_cost)
        for resource, (per_s, enough, slowed_enough) in held.items():
            each_ns = costs_ns[resource]
            cores = per_s * each_ns / 1e9
            if cores <= enough or (resource == "machine" and capacity_of(dilated(self._plan)).suffices):
                continue
            fits_per_s = self._dilation * enough * 1e9 / each_ns
            clients = None if scenario.is_open else int(fits_per_s * alone_s + 1e-6)
            has = {"machine": float(self._cores), "client": enough}.get(resource, 1.0)
            dilation: int | None = None
            if resource != "client":  # its limit is as much lower as the rate is
                wanted = slowed_rate * slowed_costs_ns[resource] / 1e9
                slower = max(2, math.ceil(wanted / (_DILATED_SHARE * slowed_enough)))
                dilation = slower if slower <= DILATION_MAX else None
            found = Shortage(scenario, resource, cores, has, enough, fits_per_s, clients, dilation=dilation)
            if resource == "machine":
                needed = -int(-cores // self._full) + (self._kept is not None)
                found = replace(found, cores=needed, limits=self._plan.options.machine_cores - 1)
            yield found


def _without_jitter(topology: Topology) -> Topology:
    links = [
        replace(link, spec=LinkSpec(*(replace(side, jitter=None) for side in (link.spec.a_to_b, link.spec.b_to_a))))
        for link in topology.links
    ]
    return topology.with_links(links)


def helps_text(worst: Shortage) -> str:
    """The changes with which a scenario would fit."""
    ways = []
    if worst.clients is not None and worst.clients >= 1:
        ways.append(f"{rounded(worst.clients)} client{'s' if worst.clients > 1 else ''}")
    ways.append(f"a rate of {rounded(worst.rate_per_s)}/s")
    if worst.cores is not None:
        ways.append(f"{worst.cores} cores")
    if worst.limits:
        ways.append(f"CPU limits that add up to {worst.limits} core{'s' if worst.limits > 1 else ''}")
    if worst.dilation is not None:
        ways.append(f"a dilation of {worst.dilation}")
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
