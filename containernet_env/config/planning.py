"""From the configuration to a plan: checks, notes for the user, and estimates of the time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from itertools import chain, groupby
from math import inf
from statistics import fmean

from containernet_env.base.errors import UsageError
from containernet_env.base.units import format_duration, format_ms, format_number
from containernet_env.config.plan import (
    AUTO,
    CPU_PERIOD_MAX_US,
    CPU_PERIOD_US,
    CPU_QUOTA_MIN_US,
    FSYNC_MAX_NS,
    TCP_RTO_MIN_MS,
    HostPlan,
    Plan,
    PlannedScenario,
    PlanOptions,
    dilation_of,
    scenario_hash,
    select,
)
from containernet_env.config.scenarios import ScenarioSet
from containernet_env.config.traces import points_of
from containernet_env.model import backends
from containernet_env.model.backends import check_choices, frame_memory_note
from containernet_env.model.config import DILATION_MAX, Config, Node
from containernet_env.model.dilation import slowed
from containernet_env.model.disruption import AFFECTED, DRAWN_TARGETS, SHAPING, Disruption, Targets
from containernet_env.model.kinds import Refused
from containernet_env.model.link import LINK_RATE_MIN_BPS, MAX_FRAMES, DirectionSpec, product_frames
from containernet_env.model.scenario import (
    ANY_MEMBER,
    LENGTH_MAX_NS,
    NEAREST,
    STALL_TIMEOUT_MAX_NS,
    TIMEOUT_MAX_NS,
    WARMUP_MAX_NS,
    Consistency,
    Dataset,
    Keys,
    Scenario,
    ScheduledScenario,
    Sender,
    is_path,
)
from containernet_env.model.search import RATE_MIN, Saturation
from containernet_env.model.topology import (
    HostRole,
    RttExpectation,
    Topology,
    frames_of,
    network_of,
)
from containernet_env.stores.http_service import MOST_KEYS
from containernet_env.stores.kinds import store_of
from containernet_env.stores.store import CLIENT_SECRETS, MemberStart, Store, Timing, go_environment

# CPU seconds of one request: the client's share, and the share of each member involved.
CLIENT_CPU_S = 0.06e-3
MEMBER_PUT_CPU_S = 0.08e-3
MEMBER_RANGE_CPU_S = 0.08e-3
# Each key of an answer beyond the first, its value of 256 bytes included: 2.3 to 2.7 us and 0.2 to 0.4 us were measured
# for 100 and 1000 keys.
MEMBER_KEY_CPU_S = 2.5e-6
CLIENT_KEY_CPU_S = 0.3e-6
# Per put: the log is synced on the leader and on a follower at the same time.
SYNC_S = 2e-3
# Per request, beside the RTTs: system calls and scheduling on every hop.
SERVICE_S = 0.5e-3
# Bytes around key and value in a request, a reply or a replicated entry: gRPC, HTTP/2, TCP, IP and Ethernet.
FRAMING_BYTES = 150
# Around each key and value of an answer: revisions, version and lengths in etcd's encoding.
KEY_BYTES = 20
# Around every scenario: opening connections, finding the leader, writing the row.
SCENARIO_S = 0.5
# Around the run: containers, RTT measurement, the benchmark server, tear-down.
RUN_S = 5.0
HOST_S = 0.5


class Estimator:
    """Estimates for one topology with the given limits.

    ``member_cpus`` are the members' limits in topology order (``None`` is unlimited); ``machine_cores`` is
    shared by all hosts; ``leader`` is the only possible leader, ``None`` for any.
    """

    def __init__(
        self, topology: Topology, member_cpus: Sequence[Decimal | None], machine_cores: int, leader: str | None = None
    ) -> None:
        self._members = [member.name for member in topology.members]
        self._leaders = self._members if leader is None else [leader]
        clients = [host.name for host in topology.clients]
        self._client = clients[0]
        self._rtt_s = {
            (a, b): topology.expected_rtt_ns(a, b) / 1e9 for a in (*self._members, *clients) for b in self._members
        }
        self._quorum_s = {leader: self._rtt_of_quorum_s(leader) for leader in self._members}
        self._known_ways: dict[tuple[str, str, str | None, bool, bool], list[float]] = {}
        self._varies = any(side.jitter or side.trace for link in topology.links for side in link.spec.sides)
        self._cores = machine_cores
        self._least_cpus = min(float(cpus) if cpus is not None else machine_cores for cpus in member_cpus)
        uplinks = (topology.path(member, self._client)[0] for member in self._members)
        self._least_rate_bps = min(uplink.rate_bps or inf for uplink in uplinks)

    @property
    def fastest_leader(self) -> str:
        """The possible leader that answers a write soonest, by the RTTs alone; the first of equals."""
        return min(self._leaders, key=lambda leader: self._rtt_s[self._client, leader] + self._quorum_s[leader])

    def scenario_s(self, scenario: Scenario) -> float:
        """Seconds for one scenario, its own overhead and warm-up included; for a search, of all its probes."""
        if scenario.parts:
            return max(map(self.scenario_s, (*scenario.parts, scenario.together)))
        links_s = 8 * self.sent_bytes(scenario) / self._least_rate_bps
        per_request_s = max(self.latency_s(scenario) / scenario.clients, self._cpu_s(scenario), links_s)
        if scenario.search is not None:
            return sum(self.scenario_s(probe) for probe in _probes(scenario, 1 / per_request_s))
        measured_s = scenario.scheduled_s or 0.0
        if scenario.total is not None:
            # A rate above the cluster's maximum does not make it faster.
            measured_s = max(measured_s, scenario.total * per_request_s)
        warmup_s = scenario.warmup_s
        if warmup_s is None:
            warmup_s = scenario.warmup.requests * per_request_s
        return SCENARIO_S + warmup_s + measured_s

    def around_s(self, settle_s: float) -> float:
        """Seconds of bring-up and tear-down; ``settle_s`` is the store's longest time to elect a leader."""
        return RUN_S + HOST_S * (len(self._members) + 1) + settle_s

    def latency_s(self, scenario: Scenario) -> float:
        """Seconds of one request alone: the mean over possible leaders, targets and a mixed load's operations."""
        put_s, range_s = (fmean(self._ways_s(scenario, read)) for read in (None, scenario.consistency))
        return SERVICE_S + _mean(scenario, put_s + SYNC_S, range_s)

    def least_latency_s(self, scenario: Scenario, store: Store) -> float:
        """A lower bound of the latency in seconds: the RTTs alone, to the nearest member that requests may go to.

        0 where links have jitter or traces, by which a frame may be faster than its link's delay.
        """
        if scenario.parts:
            return min(self.least_latency_s(part, store) for part in scenario.parts)
        consistency = scenario.consistency if store.waits_for_majority else "s"
        return 0.0 if self._varies else min(self._ways_s(scenario, consistency))

    def _ways_s(self, scenario: Scenario, read: Consistency | None) -> list[float]:
        """The RTTs of a read, or of a put (``None``), for each possible leader and each member that gets requests."""
        client = scenario.client or self._client
        key = (client, scenario.target, scenario.member, read == "s", read in ("s", "default"))
        if key not in self._known_ways:
            self._known_ways[key] = [
                self._rtt_s[client, one]
                + (0.0 if read == "s" else self._rtt_s[one, leader])
                + (0.0 if read in ("s", "default") else self._quorum_s[leader])
                for leader in self._leaders
                for one in ([leader] if scenario.target == "leader" else self._targets(scenario))
            ]
        return self._known_ways[key]

    def _targets(self, scenario: Scenario) -> list[str]:
        return self._members if scenario.member is None else [scenario.member]

    def _rtt_of_quorum_s(self, leader: str) -> float:
        """RTT to the follower that completes the majority; 0 for a single member."""
        followers = sorted(self._rtt_s[leader, member] for member in self._members if member != leader)
        needed = len(self._members) // 2
        return followers[needed - 1] if needed else 0.0

    def _cpu_s(self, scenario: Scenario) -> float:
        more_keys = max(0, scenario.keys_answered - 1)
        member_range_s = MEMBER_RANGE_CPU_S + more_keys * MEMBER_KEY_CPU_S
        client_s = CLIENT_CPU_S + _mean(scenario, 0, more_keys * CLIENT_KEY_CPU_S)
        members_s = _mean(scenario, len(self._members) * MEMBER_PUT_CPU_S, member_range_s)
        # Reads are spread over their target members; every member is involved in every write.
        alone_s = _mean(scenario, MEMBER_PUT_CPU_S, member_range_s / self._spread(scenario)) / self._least_cpus
        return max((client_s + members_s) / self._cores, alone_s)

    def sent_bytes(self, scenario: Scenario) -> float:
        """Bytes per request sent by the member that sends most."""
        key_bytes = len(scenario.key_prefix) + scenario.key_size
        put_bytes = key_bytes + scenario.val_size + FRAMING_BYTES
        value_bytes = scenario.val_size if scenario.span.answer == "values" else 0
        range_bytes = scenario.keys_answered * (key_bytes + value_bytes + KEY_BYTES) + FRAMING_BYTES
        # A leader sends every write to each follower; the members share the answers to reads.
        puts = max(1, len(self._members) - 1) * put_bytes
        return _mean(scenario, puts, range_bytes / self._spread(scenario))

    def _spread(self, scenario: Scenario) -> int:
        return 1 if scenario.target == "leader" else len(self._targets(scenario))


def _probes(scenario: Scenario, capacity_per_s: float) -> Iterator[Scenario]:
    """The probes of a search on a store with a constant capacity in requests/s."""
    assert scenario.search is not None
    course = Saturation(scenario.search, scenario.arrival == "poisson")
    while (step := course.next) is not None:
        yield scenario.probe(step.rate)
        course.record("held" if step.rate <= capacity_per_s else "missed")


def _mean(scenario: Scenario, of_put: float, of_range: float) -> float:
    """A quantity of one request, by the share of the puts."""
    put_ratio = float(not scenario.reads) if scenario.put_ratio is None else float(scenario.put_ratio)
    return put_ratio * of_put + (1 - put_ratio) * of_range


def _check_scenarios(
    config: Config,
    topology: Topology,
    scenario_set: ScenarioSet,
    options: PlanOptions,
    store: Store,
    estimator: Estimator,
) -> None:
    """Raise ``ConfigError`` with everything in scenarios that store, members, links or options do not allow."""
    names = [node.name for node in config.nodes]
    any_member = [word for word in ANY_MEMBER if config.external is None or word != NEAREST]
    allowed = ", ".join([*(f'"{word}"' for word in any_member), *names])
    refusals = [
        Refused(f"is not a member of {config.path}", allowed, scenario_set.entry((*block.at, "target"), index))
        for block in scenario_set.blocks
        for index, target in enumerate(block.target)
        if target not in (*any_member, *names)
    ]
    refusals += _lacking(config, scenario_set, store)
    targets = Targets.of(config)
    for place, event in scenario_set.events:
        refused = _event_refusals(config, topology, targets, event, options)
        refusals += [Refused(message, allowed, place) for message, allowed in refused]
    for scenario in scenario_set.scenarios:
        if scenario.search is not None and scenario.member in (None, *names):
            least_ns = round(estimator.least_latency_s(scenario, store) * 1e9)
            message = f"can never be met on {config.path}: its links alone take {format_duration(least_ns)}"
            refusals += [
                Refused(message, f"more than that for p{item.percentile}", scenario_set.search_of(scenario), item.text)
                for item in scenario.search.objectives
                if item.limit_ns <= least_ns
            ]
    scenario_set.document.refuse(refusals)


def _lacking(config: Config, scenario_set: ScenarioSet, store: Store) -> list[Refused]:
    """All features in scenarios that the store lacks, once for each place of the file."""
    cannot = f"cannot be done: {store.title}, the store of {config.path},"
    found: dict[Refused, None] = {}
    for scenario in scenario_set.scenarios:
        block = scenario_set.block_of.get(scenario.name)
        for key, reason in store.refused(scenario):
            if block is None:
                found[Refused(f"{key} of {scenario.name} {cannot} {reason}", None, ("scenarios",))] = None
            else:
                found[block.refused(key, f"{cannot} {reason}")] = None
    if store.keys_are_paths and not is_path(scenario_set.dataset.key_prefix):
        message, allowed = f"{cannot} redirects requests for such keys", "no empty part, '.' or '..' between slashes"
        found[Refused(message, allowed, ("dataset", "keyPrefix"))] = None
    return [*found]


def _check_profile(config: Config, options: PlanOptions, store: Store) -> None:
    if options.profile and (reason := store.lacks.get("profile")) is not None:
        raise UsageError(f"profile={','.join(options.profile)}: {store.title} {reason}")
    names, member = [node.name for node in config.nodes], options.profile_member
    if options.profile and member not in (None, *names):
        raise UsageError(f"profile_member={member!r} is no member of {config.path}: it has {', '.join(names)}")


def _event_refusals(
    config: Config, topology: Topology, targets: Targets, event: Disruption, options: PlanOptions
) -> Iterator[tuple[str, str]]:
    names, unknown = targets.members, False
    for name in (event.target,) if isinstance(event.target, str) else chain.from_iterable(event.target):
        for refused in _name_refusals(config, targets, replace(event, target=name)):
            unknown = True
            yield refused
    if unknown:
        return
    named = targets.named(event)
    of_links = bool(named) and {*named} <= {*targets.of_links}
    if of_links and not config.reroute and not {*named} & topology.used:
        yield "has no effect: no path between two hosts takes it", "a link that some path takes"
    if len({*named}) < len(named):
        twice = ", ".join(dict.fromkeys(name for name in named if named.count(name) > 1))
        yield f"has members in several sets: {twice}", "each member in one set"
    if event.verb == "partition" and (len(names) < 2 or (isinstance(event.target, str) and {*named} == {*names})):
        yield "has no other member to be partitioned from", "a topology of two members or more"
    if event.target == "followers" and len(names) < 2:
        yield "does not exist", "a topology of two members or more"
    if event.verb in ("kill", "restart") and config.etcd.data == "tmpfs":
        yield "would lose its data, which is on tmpfs", f'"data": "disk" in {config.path}, or freeze'
    if event.verb in ("kill", "restart") and options.engine == "containernet":
        yield "cannot be started again by the original Containernet", "the engine builtin, or freeze"
    for name, reason in _unshapeable(topology, named, event, options):
        yield f"is impossible on the link of {name}: {reason}", "a value that fits the rest of that link"


def _name_refusals(config: Config, targets: Targets, event: Disruption) -> Iterator[tuple[str, str]]:
    """Why an event's only name means nothing or several things in this topology."""
    name, is_word = str(event.target), event.target in (*DRAWN_TARGETS, *AFFECTED.values())
    is_node = name in targets.members or name in targets.places
    links = len(targets.links_of(name, one_way=">" in name)) if event.of_links else 0
    place = "switch" if config.switches else "site"
    if is_word + is_node + links > 1:
        what = f"{name} is also the name of a node, {place} or link of {config.path}"
        yield f"may mean several things: {what}", "one meaning"
    elif not is_word and not targets.named(event):
        places = [place for place, members in targets.places.items() if members]
        ways = [link for link in targets.of_links if event.of_links and (event.verb in SHAPING or ">" not in link)]
        kinds = (
            ("member", targets.members),
            (f"{place} with members", places),
            (f"link between {place}{'es' if config.switches else 's'}", ways),
        )
        what = " or ".join(f"a {kind}" for kind, found in kinds if found)
        yield f"is not {what} of {config.path}", "; ".join(", ".join(found) for _, found in kinds if found)


def _unshapeable(
    topology: Topology, named: Sequence[str], event: Disruption, options: PlanOptions
) -> Iterator[tuple[str, str]]:
    if event.verb not in SHAPING:
        return
    refusal = backends.containernet_refusal if options.engine == "containernet" else backends.netem_refusal
    by_kernel = options.engine == "containernet" or options.links == "netem"
    members = {member.name for member in topology.members}
    reasons: dict[str, str] = {}
    for link in topology.links:
        for hop in link.hops:
            name = link.a if link.a in members else hop.name
            if name in named or (event.target in DRAWN_TARGETS and name in members):
                try:
                    reason = refusal(made) if (made := event.shaped(hop.spec)) and by_kernel else None
                except ValueError as error:
                    reason = str(error)
                if reason is not None:
                    reasons.setdefault(name, reason)
    yield from reasons.items()


UNSEEN_NOTE = "external cluster: its CPU, disks and network are not observable, so no row is certainly valid"


def _check_external(config: Config, scenario_set: ScenarioSet | None, options: PlanOptions) -> None:
    """Raise ``UsageError`` for options, and ``ConfigError`` for events, that need hosts or links of ours."""
    for option in fields(options):
        chosen, name = getattr(options, option.name), option.name
        if name in _NOT_EXTERNAL and chosen != option.default and (name, chosen) != ("dilation", 1):
            shown = "auto" if (name, chosen) == ("dilation", AUTO) else repr(chosen)
            reason = _NOT_EXTERNAL[name]
            raise UsageError(f"{config.path}: external cluster: {name}={shown} is not possible: {reason}")
    if scenario_set is None:
        return
    message = f"cannot be done to the external cluster of {config.path}"
    events = [Refused(message, "no events", place) for place, _ in scenario_set.events]
    scenario_set.document.refuse([*events, *_too_many_keys(config, scenario_set)])


def keys_of(plan: Plan) -> tuple[Keys, ...]:
    """The keys that a run can write, by their whole names; none twice."""
    assert plan.config.external is not None
    prefix = plan.config.external.prefix_of(plan.run_id)
    return keys_written((planned.scheduled.scenario for planned in plan.scenarios), plan.dataset, prefix)


def keys_written(scenarios: Iterable[Scenario], dataset: Dataset, prefix: str = "") -> tuple[Keys, ...]:
    """The keys that scenarios can write, the data set's among them; ``prefix`` comes before those of their own."""
    most: dict[tuple[str, int], int] = {}
    for scenario in scenarios:
        count = scenario.most_keys if scenario.key_space is None else scenario.key_space
        keys = dataset.all_keys if scenario.uses_dataset else Keys(scenario.key_size, count)
        own = (prefix + keys.prefix + ("" if scenario.uses_dataset else scenario.key_prefix), keys.size)
        most[own] = max(keys.count, most.get(own, 0))
    return tuple(Keys(size, count, start) for (start, size), count in most.items())


def _too_many_keys(config: Config, scenario_set: ScenarioSet) -> Iterator[Refused]:
    service = config.store.service
    if service is None or service.delete is None:
        return
    for block in scenario_set.blocks:
        scenarios = [item for item in scenario_set.scenarios if scenario_set.block_of[item.name] is block]
        if (count := sum(keys.count for keys in keys_written(scenarios, scenario_set.dataset))) > MOST_KEYS:
            message = f"can write {count:,} different keys, which are deleted one by one from {config.path} afterwards"
            allowed = f'at most {MOST_KEYS:,}: a smaller "keySpace" or data set, or "keys": "stay" in the store'
            yield Refused(message, allowed, block.at)


_NOT_EXTERNAL = {
    "dilation": "it runs in real time",
    **dict.fromkeys(("engine", "links", "switches"), "there are no hosts and no links of ours"),
    "congestion_control": "the members' TCP is theirs, and the load uses that of this machine",
    **dict.fromkeys(("links_cpu", "offload"), "no link emulator runs"),
    "fresh": "it cannot be started again; repetitions share the cluster",
    "retry_invalid": "its rows are never certainly valid, so each would be measured as often as that allows",
    "profile": "members serve profiles only if they were started for that (--enable-pprof)",
}
"""Why an external cluster cannot have these options."""

_HEARTBEATS_SHARE = 0.5
"""Share of a link's bandwidth: idle members send more than heartbeats, and send those in bursts."""


def notes_of(
    config: Config, options: PlanOptions, topology: Topology, timing: Timing, largest: RttExpectation | None
) -> Iterator[str]:
    """Sentences about choices that change the measurement, a machine that is too small, limits that cannot bind, and
    settings that conflict."""
    if (factor := _dilation(config, options)) > 1:
        yield f"dilation {factor}: everything runs {factor} times slower than real time; figures are in emulated time"
        if free := [node.name for node in config.nodes if node.cpus is None]:
            yield f"{', '.join(free)} without a CPU limit: {factor} times as fast as this machine's cores"
    if options.links_cpu is not None:
        others = ", ".join(map(str, options.other_cores))
        yield f"core {options.links_cpu} is kept for the link emulator; members, client and driver use {others}"
    if options.profile:
        kinds, member = ", ".join(options.profile), options.profile_member or "the leader"
        yield f"profiles ({kinds}) of {member} are taken, which costs it CPU time: such rows are not merged with others"
    yield from _host_notes(config, options, store_of(config))
    if largest is not None:
        yield from timing.notes
        yield from _heartbeat_notes(topology, timing)
    yield from _link_notes(topology, options)


def _host_notes(config: Config, options: PlanOptions, store: Store) -> Iterator[str]:
    cores = options.machine_cores * _dilation(config, options)
    loose = [node for node in config.hosts if node.cpus is not None and node.cpus > cores]
    total_cpus = sum((node.cpus for node in config.hosts if node.cpus is not None), Decimal(0))
    slower = "" if cores == options.machine_cores else " in emulated time"
    machine = f"this machine has {cores} core{'s' if cores > 1 else ''}{slower}"
    if loose:
        names = ", ".join(node.name for node in loose)
        yield f"{machine}: the cpu limit of {names} is applied but cannot bind"
    elif total_cpus > cores:
        yield f"{machine}, the cpu limits add up to {format_number(total_cpus)}: the hosts compete for cpu"
    if config.etcd.data == "tmpfs" and any(node.memory_bytes is not None for node in config.nodes):
        yield f"{store.title}'s data is on tmpfs: it counts against each member's memory limit"
    if store.most_members is not None and len(config.nodes) > store.most_members:
        yield f"{len(config.nodes)} members: etcd advises at most {store.most_members}"


def _heartbeat_notes(topology: Topology, timing: Timing) -> Iterator[str]:
    """Links that an idle leader's heartbeats alone fill, or nearly so; each of these messages is acknowledged."""
    beat, followers = timing.heartbeat, len(topology.members) - 1
    if beat is None:
        return
    members = {member.name for member in topology.members}
    taken: dict[str, float] = {}
    for link in topology.links:
        if link.a in members:
            for direction, size in ((link.spec.a_to_b, beat.message_bytes), (link.spec.b_to_a, beat.answer_bytes)):
                sent_ns = sum(direction.serialization_ns(frames_of(each)[1]) for each in (size, 0))
                taken[link.a] = max(taken.get(link.a, 0.0), followers * sent_ns / (beat.interval_ms * 10**6))
    full = {name: share for name, share in taken.items() if share >= _HEARTBEATS_SHARE}
    if full:
        names, most = ", ".join(full), max(full.values())
        fit = "do not fit" if most >= 1 else "hardly fit"
        yield (
            f"heartbeats every {beat.interval_ms} ms {fit} the link of {names}: those of a leader take "
            f"{most:.0%} of its bandwidth, so leaders may change without any load"
        )


def _link_notes(topology: Topology, options: PlanOptions) -> Iterator[str]:
    sides = [(link.name, side) for link in topology.links for side in link.spec.sides]
    note = frame_memory_note([side for _, side in sides])
    if note is not None and options.links != "netem":
        yield note
    rtts_ns = topology.longest_rtts_ns
    short = [
        name
        for name, side in sides
        if side.default_queue_frames == MAX_FRAMES
        and product_frames(rtts_ns[name], side.rate_bps or 0, side.overhead_bytes) > MAX_FRAMES
    ]
    if unused := topology.unused:
        names = ", ".join(link.name for link in unused)
        why = "until another link goes down" if topology.reroutes else "so it has no effect"
        yield f"no path between two hosts takes {names}, {why}, and a run does not prove it"
    if short:
        names = ", ".join(dict.fromkeys(short))
        yield f"the queues of {names} hold {MAX_FRAMES:,} frames, less than the bandwidth-delay product"


# The kernel keeps memory limits in pages and rounds down; the planned limit must equal the one read back.
_PAGE_BYTES = 4096
# Certificates and keys take a page each.
_SECRETS_MOUNT = "mode=0700,size=64k"


def build_plan(config: Config, scenario_set: ScenarioSet | None, options: PlanOptions) -> Plan:
    """The plan of a run; of a topology alone where there is no ``scenario_set``.

    Raises ``ConfigError`` when a timing of the config contradicts one that follows from the RTTs, when a scenario needs
    a feature that the store lacks, targets a member that the config does not have or has an objective below the delays
    of the links, and ``UsageError`` when ``options.only`` matches nothing, links and switches contradict each other, or
    netem or the original Containernet was chosen and does not support the links.
    """
    check_choices(options.links, options.switches, options.engine)
    is_external = config.external is not None
    if is_external:
        _check_external(config, scenario_set, options)
    topology, store = network_of(config), store_of(config)
    if scenario_set is not None:
        _check_senders(config, scenario_set)
        if not is_external:
            near = {client.name: topology.nearest_member(client.name) for client in topology.clients}
            placed = tuple(_placed(scenario, config, near) for scenario in scenario_set.scenarios)
            scenario_set = replace(scenario_set, scenarios=placed)
    _check_links(config, topology, options)
    _check_profile(config, options, store)
    largest = None if is_external else topology.largest_member_rtt()
    timing: Timing = Timing() if is_external else store.timing(config, largest)
    factor = _dilation(config, options)
    estimator = _estimator(topology, config, options, factor)
    dataset, scheduled = Dataset(), []
    if scenario_set is not None:
        _check_scenarios(config, topology, scenario_set, options, store, estimator)
        dataset = scenario_set.dataset
        chosen = select(scenario_set.scenarios, options.only, options.repeat, options.first_repetition)
        scheduled = [replace(item, identity=scenario_hash(item.scenario, dataset)) for item in chosen]
    scenarios = tuple(_plan_scenarios(scheduled, dataset, estimator, options.fresh, factor))
    notes = [*notes_of(config, options, topology, timing, largest), *_timeout_notes(scheduled, estimator, store)]
    plan = Plan(
        run_id=options.run_id,
        config=config,
        scenario_set=scenario_set,
        options=options,
        topology=topology,
        hosts=() if is_external else tuple(_plan_host(node, config, store, timing, options) for node in config.hosts),
        switches=() if is_external else topology.switches,
        links=() if is_external else topology.links,
        rtt=() if is_external else topology.rtt_pairs(),
        largest_member_rtt=largest,
        store=store,
        timing=timing,
        dataset=dataset,
        scenarios=scenarios,
        around_s=estimator.around_s(factor * timing.settle_s),
        notes=(UNSEEN_NOTE,) if is_external else tuple(notes),
    )
    dilated(plan)
    return plan


def _placed(scenario: Scenario, config: Config, near: Mapping[str, str]) -> Scenario:
    """A scenario as its clients send it, of which ``near`` has the nearest member."""
    if len(config.clients) == 1 and not scenario.senders:
        return replace(scenario, nearest=near[config.clients[0].name]) if scenario.target == NEAREST else scenario
    senders = _senders(config, scenario.senders)
    parts = [
        scenario.part(number, client.name, near[client.name], senders.get(client.name))
        for number, client in enumerate(config.clients)
        if client.name in senders or not scenario.senders
    ]
    return replace(scenario, nearest=parts[0].nearest, parts=tuple(parts))


def _senders(config: Config, senders: Sequence[Sender]) -> dict[str, Sender]:
    """By the name of each client that sends, what it sends otherwise. Names of clients come before those of sites."""
    found: dict[str, Sender] = {}
    for sender in senders:
        named = [client.name for client in config.clients if client.name == sender.who]
        of_site = [client.name for client in config.clients if client.site == sender.who]
        found |= dict.fromkeys(named or of_site, sender)
    return found


def _check_senders(config: Config, scenario_set: ScenarioSet) -> None:
    """Raise ``ConfigError`` for what clients cannot send, or not together."""
    several = len(config.clients) > 1
    names = [client.name for client in config.clients] if several else []
    sites = [client.site for client in config.clients if client.site is not None]
    allowed = ", ".join(dict.fromkeys((*names, *sites))) or "no clients: the topology has one"
    all_of_them, refusals = f"the {len(names)} clients of {config.path}", []
    for block in scenario_set.blocks:
        taken: set[str] = set()
        for sender in block.senders:
            found = _senders(config, [sender])
            if config.external is not None or not found:
                refusals.append(Refused(f"is not of {config.path}", allowed, (*block.at, "clients"), f'"{sender.who}"'))
            elif taken & found.keys():
                who = ", ".join(taken & found.keys())
                refusals.append(Refused(f"names {who} twice", "each once", (*block.at, "clients"), f'"{sender.who}"'))
            taken |= found.keys()
        is_search, is_verified = any(load.search for load in block.load), block.type == "mixed" and block.verify
        for key, is_given, message, instead in (
            ("load", is_search, f"cannot be done by {all_of_them}: its rate is that of one", "total or duration"),
            ("history", block.history, f"cannot be kept of {all_of_them}: a history is of one", "false"),
            ("verify", is_verified, f"cannot be done: {all_of_them} write the same keys", '"verify": false'),
        ):
            if several and is_given:
                refusals.append(block.refused(key, message, f"{instead}, or a topology of one client"))
    scenario_set.document.refuse(refusals)


def _estimator(topology: Topology, config: Config, options: PlanOptions, factor: int) -> Estimator:
    cores = factor * (len(options.other_cores) if options.links_cpu is not None else options.machine_cores)
    return Estimator(topology, [node.cpus for node in config.nodes], cores, config.etcd.leader)


def with_dilations(plan: Plan, factors: Mapping[str, int]) -> Plan:
    """A plan whose scenarios run as much slower than real time as ``factors`` says by their names, 1 for others.

    Those with equal factors follow each other, on one testbed. Raises ``UsageError`` where something cannot be as slow
    as that.
    """
    factor_of = {
        planned.scheduled.scenario.name: factors.get(planned.scheduled.scenario.name, 1) for planned in plan.scenarios
    }
    ordered = sorted(
        (planned.scheduled for planned in plan.scenarios),
        key=lambda item: (item.repetition if plan.options.fresh else 0, factor_of[item.scenario.name]),
    )
    scenarios: list[PlannedScenario] = []
    for factor, held in groupby(ordered, lambda item: factor_of[item.scenario.name]):
        estimator = _estimator(plan.topology, plan.config, plan.options, factor)
        scenarios += _plan_scenarios([*held], plan.dataset, estimator, plan.options.fresh, factor)
    slower = replace(plan, scenarios=tuple(scenarios))
    for factor in {*factor_of.values()}:
        dilated(slower.at(factor))
    return slower


def _dilation(config: Config, options: PlanOptions) -> int:
    """How many times slower than real time it runs. Raises ``UsageError``."""
    factor = dilation_of(config, options)
    if not 1 <= factor <= DILATION_MAX:
        raise UsageError(f"dilation={factor}; allowed: 1 to {DILATION_MAX}")
    if (factor > 1 or options.dilation == AUTO) and options.engine != "builtin":
        raise UsageError(f"dilation={factor} with the engine {options.engine}; allowed: the engine builtin")
    return factor


def dilated(plan: Plan) -> Plan:
    """The plan as it runs, in real time: links, limits of CPU time, timing; its scenarios stay in emulated time.

    Raises ``UsageError`` where something cannot be as slow as that; of its scenarios those count that have its factor.
    """
    factor = plan.dilation
    if factor == 1 or plan.config.external is not None:
        return plan
    try:
        links = slowed(plan.topology.links, factor)
        for trace in {trace for link in links for side in link.spec.sides for trace in side.traces.values()}:
            least_bps = min(filter(None, points_of(trace)[1] if trace.kind == "rate" else ()), default=None)
            if least_bps is not None and least_bps < LINK_RATE_MIN_BPS:
                raise ValueError(
                    f"the trace {trace.file} would have {least_bps} bit/s, allowed: 0, or at least {LINK_RATE_MIN_BPS}"
                )
        store, timing = plan.store.slowed(plan.timing, factor)
        for scenario in (one.scheduled.scenario for one in plan.scenarios if one.dilation == factor):
            load = scenario if scenario.search is None else scenario.probe(scenario.search.low)
            for part in (load, *load.parts):
                _check_slowed(slowed(part, factor))
        for node in plan.config.hosts:
            if node.cpus is not None and node.cpus / factor * CPU_PERIOD_MAX_US < CPU_QUOTA_MIN_US:
                raise ValueError(f"the CPU limit of {node.name} would be below 1 ms in each second")
            if node.fsync_ns is not None and factor * node.fsync_ns > FSYNC_MAX_NS:
                raise ValueError(f"an fsync of {node.name} would take more than {format_duration(FSYNC_MAX_NS)}")
    except ValueError as error:
        raise UsageError(f"dilation={factor} is too much for {plan.config.path}: {error}") from error
    topology = plan.topology.with_links(links)
    nodes = [
        replace(
            node,
            link=slowed(node.link, factor),
            cpus=node.cpus and node.cpus / factor,
            fsync_ns=node.fsync_ns and factor * node.fsync_ns,
        )
        for node in plan.config.hosts
    ]
    members = len(plan.config.nodes)
    config = replace(
        plan.config,
        nodes=tuple(nodes[:members]),
        clients=tuple(nodes[members:]),
        switch_links=slowed(plan.config.switch_links, factor),
        store=store.choice,
    )
    return replace(
        plan,
        config=config,
        topology=topology,
        hosts=tuple(_plan_host(node, config, store, timing, plan.options, factor) for node in config.hosts),
        links=topology.links,
        rtt=topology.rtt_pairs(),
        largest_member_rtt=topology.largest_member_rtt(),
        store=store,
        timing=timing,
    )


def at_most(plan: Plan, name: str, factor: int) -> int:
    """The largest dilation up to ``factor`` at which the testbed and the scenario of this name can run."""
    while factor > 1:
        try:
            with_dilations(plan, {name: factor})
        except UsageError:
            factor -= 1
        else:
            break
    return factor


def _check_slowed(scenario: Scenario) -> None:
    """Raise ``ValueError`` for a load that the benchmark server would refuse, and for events that no link can have."""
    lengths = {
        "duration": (scenario.duration_ns, LENGTH_MAX_NS),
        "timeout": (scenario.request_timeout_ns, TIMEOUT_MAX_NS),
        "stallTimeout": (scenario.stall_timeout_ns, STALL_TIMEOUT_MAX_NS),
        "warmup": (scenario.warmup.length_ns, WARMUP_MAX_NS),
    }
    for key, (length_ns, most_ns) in lengths.items():
        if length_ns is not None and length_ns > most_ns:
            raise ValueError(
                f"{key} of {scenario.name} would take {format_duration(length_ns)}, more than "
                f"{format_duration(most_ns)}"
            )
    if scenario.rate is not None and scenario.rate < RATE_MIN:
        raise ValueError(f"the rate of {scenario.name} would be below {format_number(RATE_MIN)}/s")
    for event in scenario.events:
        if event.verb in SHAPING:
            event.shaped(DirectionSpec(0, None))


def _check_links(config: Config, topology: Topology, options: PlanOptions) -> None:
    links, places = topology.links, "sites" if config.sites else "switches"
    if (config.sites or config.switches) and options.engine != "builtin":
        raise UsageError(f"{config.path}: has {places}: got engine={options.engine!r}; allowed: 'builtin'")
    if topology.has_loop and options.links == "netem":
        chosen = "got links='netem'; allowed: 'emulator' or 'auto'"
        raise UsageError(f"{config.path}: the links between its {places} close a loop: {chosen}")
    if options.engine == "containernet":
        backends.check(links, options.links)
    if options.links == "netem":
        sides = ((link.name, side) for link in links for side in link.spec.sides)
        refused = {name: reason for name, side in sides if (reason := backends.netem_refusal(side)) is not None}
        for name, reason in refused.items():
            others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            cannot = f"HTB and netem do not support {reason} (link {name}{others})"
            raise UsageError(f"{config.path}: {cannot}: got links='netem'; allowed: links='emulator' or 'auto'")
    if options.links == "netem" or options.engine != "builtin":
        chosen = f"links={options.links!r}, engine={options.engine!r}"
        if options.links_cpu is not None:
            raise UsageError(f"links_cpu keeps a core for the link emulator, which {chosen} does not use")
        if options.offload:
            raise UsageError(f"offload is an option of the link emulator, which {chosen} does not use")


def _timeout_notes(scheduled: Sequence[ScheduledScenario], estimator: Estimator, store: Store) -> Iterator[str]:
    late: dict[int, dict[str, float]] = {}
    for item in scheduled:
        least_s, timeout_ns = estimator.least_latency_s(item.scenario, store), item.scenario.request_timeout_ns
        if least_s * 1e9 >= timeout_ns:
            late.setdefault(timeout_ns, {})[item.scenario.name] = least_s
    for timeout_ns, scenarios in late.items():
        name, least_s = max(scenarios.items(), key=lambda pair: pair[1])
        others = f" and of {len(scenarios) - 1} more scenarios" if len(scenarios) > 1 else ""
        yield (
            f"requests of {name}{others} end after {format_duration(timeout_ns)}, "
            f"before any can be answered: the links alone take {format_ms(round(least_s * 1e9))} ms"
        )


def _plan_host(
    node: Node, config: Config, store: Store, timing: Timing, options: PlanOptions, factor: int = 1
) -> HostPlan:
    period_us = min(factor * CPU_PERIOD_US, CPU_PERIOD_MAX_US)
    is_member = node in config.nodes
    role: HostRole = "member" if is_member else "benchmark"
    memory_bytes = node.memory_bytes and node.memory_bytes // _PAGE_BYTES * _PAGE_BYTES
    if is_member:
        limited = replace(node, memory_bytes=memory_bytes)
        start = store.start(limited, config, timing, options.run_id, profiled=bool(options.profile))
    else:
        # The members are the only addresses that the benchmark server may connect to.
        command = ["--allow=" + ",".join(f"{node.ip}:{store.client_port}" for node in config.nodes)]
        secrets = CLIENT_SECRETS if config.etcd.tls else None
        if secrets is not None:
            command += ["--credentials", secrets]
        start = MemberStart(tuple(command), secrets=secrets, environment=go_environment(memory_bytes))
    tmpfs = {path: "mode=0700" for path in start.data if config.etcd.data == "tmpfs"}
    if start.secrets is not None:
        tmpfs[start.secrets] = _SECRETS_MOUNT
    return HostPlan(
        name=node.name,
        role=role,
        ip=str(node.ip),
        prefix_length=config.subnet.prefixlen,
        image=store.name if is_member else role,
        command=start.command,
        data=start.data,
        environment=start.environment,
        tcp_congestion_control=options.congestion_control,
        tmpfs=tmpfs,
        memory_bytes=memory_bytes,
        memswap_bytes=memory_bytes,
        cpus=node.cpus,
        cpu_period_us=period_us,
        cpu_quota_us=round(node.cpus * period_us) if node.cpus is not None else None,
        cpuset=options.other_cores,
        tcp_rto_min_ms=None if factor == 1 else factor * TCP_RTO_MIN_MS,
        fsync_ns=node.fsync_ns,
    )


def _plan_scenarios(
    scheduled: Sequence[ScheduledScenario], dataset: Dataset, estimator: Estimator, fresh: bool, factor: int
) -> Iterator[PlannedScenario]:
    present, repetition = False, None
    for item in scheduled:
        if fresh and item.repetition != repetition:
            present, repetition = False, item.repetition
        loads = item.scenario.uses_dataset and not present
        present = loads or dataset.present_after(item.scenario, present)
        estimated_s = estimator.scenario_s(item.scenario)
        if loads:
            estimated_s += estimator.scenario_s(dataset.load)
        yield PlannedScenario(item, loads, factor * estimated_s, factor)
