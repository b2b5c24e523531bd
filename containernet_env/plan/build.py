"""From what was asked to what will be done: the last stage without side effects, printed by a dry run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

from containernet_env.base.errors import ConfigError, Problem, UsageError
from containernet_env.base.units import format_ms, format_number
from containernet_env.config.fields import (
    ELECTION_MAX_MS,
    ELECTION_PER_HEARTBEAT,
    HEARTBEAT_MAX_MS,
)
from containernet_env.config.reader import render
from containernet_env.config.scenarios import Dataset, Scenario, ScenarioSet, ScheduledScenario, select
from containernet_env.model import containernet_rules as original_rules
from containernet_env.model.config import Config, Node
from containernet_env.model.frame_memory import frame_memory_note
from containernet_env.model.link import DirectionSpec
from containernet_env.model.queues import MAX_FRAMES, product_frames
from containernet_env.model.topology import HostRole, Link, RttExpectation, Switch, Topology, star
from containernet_env.network.kernel import netem
from containernet_env.network.select import LinksChoice, SwitchesChoice, check_choices
from containernet_env.plan.estimate import Estimator

EngineChoice = Literal["builtin", "containernet"]

CPU_PERIOD_US = 100_000
"""The kernel's default CFS period; a quota is cpus * period."""

DATA_DIR = "/var/lib/etcd"
CLIENT_PORT = 2379
PEER_PORT = 2380

# The kernel keeps memory limits in pages and rounds down; what is read back must be what was asked.
_PAGE_BYTES = 4096
# Leaves Go's runtime a tenth for what its collector does not count: stacks, the binary, kernel buffers.
_GO_MEMORY_SHARE = (9, 10)

# etcd's defaults, and its tuning guide's rules: heartbeat about the RTT, election at least ten times that.
_HEARTBEAT_MIN_MS = 100
_ELECTION_MIN_MS = 1000
_ELECTION_PER_RTT = 10
# Above this etcd's documentation advises against adding members: every write waits for more of them.
_MEMBERS_ADVISED = 7


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the command line and the machine add to the files.

    ``machine_cores``: how many cores this machine has, 1 or more. ``run_id``: the run's short id, a
    placeholder until there is one. ``only``: names, globs, ``write``, ``read``, ``mixed`` or ``txn``; empty takes all.
    ``repeat``: 1 or more. ``engine``: what makes hosts and links real (`containernet_env.containernet`).
    """

    machine_cores: int
    run_id: str = "RUN-ID"
    links: LinksChoice = "auto"
    switches: SwitchesChoice = "auto"
    tcp_congestion_control: str = "cubic"
    only: tuple[str, ...] = ()
    repeat: int = 1
    engine: EngineChoice = "builtin"


@dataclass(frozen=True, slots=True)
class HostPlan:
    """One container. ``None`` limits are unlimited; ``memswap_bytes`` = ``memory_bytes``: nothing is swapped.

    ``image`` is the role of the image, not its tag. ``command`` is what follows the image's own entry point;
    ``tmpfs`` maps paths to mount options; ``environment`` is set inside the container.
    """

    name: str
    role: HostRole
    ip: str
    prefix_length: int
    image: HostRole
    command: tuple[str, ...]
    environment: Mapping[str, str]
    tcp_congestion_control: str
    tmpfs: Mapping[str, str]
    memory_bytes: int | None
    memswap_bytes: int | None
    cpus: Decimal | None
    cpu_period_us: int
    cpu_quota_us: int | None


@dataclass(frozen=True, slots=True)
class EtcdTiming:
    """Raft's clock, in milliseconds; ``*_from`` says what decided a value."""

    heartbeat_ms: int
    election_ms: int
    heartbeat_from: Literal["default", "rtt", "config"]
    election_from: Literal["default", "rtt", "config", "heartbeat"]


@dataclass(frozen=True, slots=True)
class PlannedScenario:
    """A scenario of the run.

    ``loads_dataset``: the data set has to be loaded before it, since no earlier scenario leaves it behind.
    ``estimated_s`` is rough (`containernet_env.plan.estimate`) and includes that load.
    """

    scheduled: ScheduledScenario
    loads_dataset: bool
    estimated_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a run will do, known before anything is created.

    ``scenario_set`` is ``None`` and ``scenarios`` empty where nothing is measured (the shell). ``hosts``
    and ``links`` are in config order, the client last; a direction of theirs that has a rate and no queue limit has a
    default for it. ``rtt`` has one entry per pair of hosts. ``notes`` are sentences that the user should read once.
    ``links_by`` is ``options.links``, but for ``auto`` with links that netem cannot carry out; ``links_by_reason`` then
    says what of them.
    """

    run_id: str
    config: Config
    scenario_set: ScenarioSet | None
    options: PlanOptions
    links_by: LinksChoice
    links_by_reason: str | None
    topology: Topology
    hosts: tuple[HostPlan, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    rtt: tuple[RttExpectation, ...]
    largest_member_rtt: RttExpectation | None
    timing: EtcdTiming
    dataset: Dataset
    scenarios: tuple[PlannedScenario, ...]
    estimated_s: float
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values, units in the keys: for the run's record and the golden files."""
        return {
            "run_id": self.run_id,
            "config": {"path": str(self.config.path), "sha256": self.config.sha256},
            "scenario_file": self.scenario_set
            and {"path": str(self.scenario_set.path), "sha256": self.scenario_set.sha256},
            "subnet": str(self.config.subnet),
            "engine": self.options.engine,
            "links_choice": self.options.links,
            "links_by": self.links_by,
            "links_by_reason": self.links_by_reason,
            "switches_choice": self.options.switches,
            "machine_cores": self.options.machine_cores,
            "hosts": [_host_dict(host) for host in self.hosts],
            "switches": [switch.name for switch in self.switches],
            "links": [_link_dict(link) for link in self.links],
            "rtt": [_rtt_dict(pair) for pair in self.rtt],
            "largest_member_rtt": self.largest_member_rtt and _rtt_dict(self.largest_member_rtt),
            "etcd": {
                "heartbeat_ms": self.timing.heartbeat_ms,
                "heartbeat_from": self.timing.heartbeat_from,
                "election_ms": self.timing.election_ms,
                "election_from": self.timing.election_from,
                "data": self.config.etcd.data,
            },
            "dataset": {
                "key_size_bytes": self.dataset.key_size,
                "val_size_bytes": self.dataset.val_size,
                "keys": self.dataset.keys,
                "key_prefix": self.dataset.key_prefix,
            },
            "scenarios": [_scenario_dict(planned) for planned in self.scenarios],
            "estimated_s": round(self.estimated_s, 1),
            "notes": list(self.notes),
        }


def build_plan(config: Config, scenario_set: ScenarioSet | None, options: PlanOptions) -> Plan:
    """The plan of a run; of a topology alone where there is no ``scenario_set``.

    Raises ``ConfigError`` when an etcd timing of the config cannot go with one that follows from the RTTs or when a
    scenario asks a member that the config does not have, and ``UsageError`` when ``options.only`` matches nothing,
    links and switches do not go together, netem was asked for and cannot carry the links out, or the network engine
    cannot.
    """
    check_choices(options.links, options.switches)
    topology = star(config)
    if options.engine == "containernet":
        original_rules.check(topology.links, options.links)
    links_by, links_by_reason = _links_by(config, options, topology.links)
    largest = topology.largest_member_rtt()
    timing = etcd_timing(config, largest)
    if scenario_set is not None:
        _check_targets(config, scenario_set)
    dataset = scenario_set.dataset if scenario_set else Dataset()
    scheduled = select(scenario_set.scenarios, options.only, options.repeat) if scenario_set else ()
    estimator = Estimator(topology, [node.cpus for node in config.nodes], options.machine_cores)
    scenarios = tuple(_plan_scenarios(scheduled, dataset, estimator))
    around_s = estimator.around_s(timing.election_ms)
    return Plan(
        run_id=options.run_id,
        config=config,
        scenario_set=scenario_set,
        options=options,
        links_by=links_by,
        links_by_reason=links_by_reason,
        topology=topology,
        hosts=tuple(_plan_host(node, config, timing, options) for node in config.hosts),
        switches=topology.switches,
        links=topology.links,
        rtt=topology.rtt_pairs(),
        largest_member_rtt=largest,
        timing=timing,
        dataset=dataset,
        scenarios=scenarios,
        estimated_s=around_s + sum(planned.estimated_s for planned in scenarios),
        notes=(*_notes(config, options, timing, largest), *_link_notes(topology, options), *_queue_notes(topology)),
    )


def _links_by(config: Config, options: PlanOptions, links: Sequence[Link]) -> tuple[LinksChoice, str | None]:
    """What may carry the links, and why that is less than was left open."""
    refused = [(link.name, reason) for link in links if (reason := _netem_refusal(link)) is not None]
    if options.links == "emulator" or not refused:
        return options.links, None
    name, reason = refused[0]
    others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    cannot = f"HTB and netem cannot carry out {reason} (link {name}{others})"
    if options.links == "netem" or options.switches != "auto":
        asked = f"links='{options.links}', switches='{options.switches}'"
        raise UsageError(f"{config.path}: {cannot}: got {asked}; allowed: links='emulator' or 'auto', switches='auto'")
    return "emulator", cannot


def _netem_refusal(link: Link) -> str | None:
    return netem.refusal(link.spec.a_to_b) or netem.refusal(link.spec.b_to_a)


def _check_targets(config: Config, scenario_set: ScenarioSet) -> None:
    names = [node.name for node in config.nodes]
    problems = [
        Problem(
            item.where,
            f"is not a member of {config.path}",
            render(item.member),
            f'"leader", "cluster", {", ".join(names)}',
        )
        for item in scenario_set.member_targets
        if item.member not in names
    ]
    if problems:
        raise ConfigError(str(scenario_set.path), problems)


def etcd_timing(config: Config, largest_member_rtt: RttExpectation | None) -> EtcdTiming:
    """Heartbeat max(100 ms, RTT), election max(1000 ms, 10 x RTT) in whole ms; the config's own come first.

    Raises ``ConfigError`` when the one that is given and the one that follows break etcd's own rules.
    """
    rtt_ms = -(-largest_member_rtt.expected_ns // 10**6) if largest_member_rtt else 0
    asked = config.etcd
    heartbeat_from: Literal["default", "rtt", "config"]
    election_from: Literal["default", "rtt", "config", "heartbeat"]
    if asked.heartbeat_ms is not None:
        heartbeat_ms, heartbeat_from = asked.heartbeat_ms, "config"
    else:
        heartbeat_ms = min(max(_HEARTBEAT_MIN_MS, rtt_ms), HEARTBEAT_MAX_MS)
        heartbeat_from = "rtt" if heartbeat_ms > _HEARTBEAT_MIN_MS else "default"
    if asked.election_ms is not None:
        election_ms, election_from = asked.election_ms, "config"
    else:
        by_rtt_ms = max(_ELECTION_MIN_MS, _ELECTION_PER_RTT * rtt_ms)
        by_heartbeat_ms = _ELECTION_PER_RTT * asked.heartbeat_ms if asked.heartbeat_ms is not None else 0
        election_ms = min(max(by_rtt_ms, by_heartbeat_ms), ELECTION_MAX_MS)
        if by_heartbeat_ms > by_rtt_ms:
            election_from = "heartbeat"
        else:
            election_from = "rtt" if by_rtt_ms > _ELECTION_MIN_MS else "default"
    least_ms = ELECTION_PER_HEARTBEAT * heartbeat_ms
    if election_ms < least_ms:
        raise ConfigError(
            str(config.path),
            [
                Problem(
                    "$.etcd.election_timeout",
                    f"is too short for the heartbeat of {heartbeat_ms}ms, which follows from the largest RTT",
                    f"{election_ms}ms",
                    f"at least {ELECTION_PER_HEARTBEAT} heartbeats, {least_ms}ms",
                )
            ],
        )
    return EtcdTiming(heartbeat_ms, election_ms, heartbeat_from, election_from)


def etcd_flags(node: Node, config: Config, timing: EtcdTiming, run_id: str) -> tuple[str, ...]:
    """The arguments of one member's etcd, static bootstrap."""
    cluster = ",".join(f"{member.name}=http://{member.ip}:{PEER_PORT}" for member in config.nodes)
    flags = {
        "name": node.name,
        "data-dir": DATA_DIR,
        "listen-client-urls": f"http://0.0.0.0:{CLIENT_PORT}",
        "advertise-client-urls": f"http://{node.ip}:{CLIENT_PORT}",
        "listen-peer-urls": f"http://0.0.0.0:{PEER_PORT}",
        "initial-advertise-peer-urls": f"http://{node.ip}:{PEER_PORT}",
        "initial-cluster": cluster,
        "initial-cluster-state": "new",
        # Members of another run that somehow hear this one refuse it.
        "initial-cluster-token": f"containernet-env-{run_id}",
        "heartbeat-interval": str(timing.heartbeat_ms),
        "election-timeout": str(timing.election_ms),
        # Elections and lost peers are told at level info; requests are not. Plain lines read well in a
        # failure.
        "log-level": "info",
        "log-format": "console",
    }
    return tuple(f"--{name}={value}" for name, value in flags.items())


def _plan_host(node: Node, config: Config, timing: EtcdTiming, options: PlanOptions) -> HostPlan:
    is_member = node in config.nodes
    role: HostRole = "etcd" if is_member else "benchmark"
    memory_bytes = node.memory_bytes and node.memory_bytes // _PAGE_BYTES * _PAGE_BYTES
    share, whole = _GO_MEMORY_SHARE
    return HostPlan(
        name=node.name,
        role=role,
        ip=str(node.ip),
        prefix_length=config.subnet.prefixlen,
        image=role,
        command=etcd_flags(node, config, timing, options.run_id) if is_member else (),
        environment={"GOMEMLIMIT": f"{memory_bytes * share // whole}B"} if memory_bytes else {},
        tcp_congestion_control=options.tcp_congestion_control,
        tmpfs={DATA_DIR: "mode=0700"} if is_member and config.etcd.data == "tmpfs" else {},
        memory_bytes=memory_bytes,
        memswap_bytes=memory_bytes,
        cpus=node.cpus,
        cpu_period_us=CPU_PERIOD_US,
        cpu_quota_us=round(node.cpus * CPU_PERIOD_US) if node.cpus is not None else None,
    )


def _plan_scenarios(
    scheduled: Sequence[ScheduledScenario], dataset: Dataset, estimator: Estimator
) -> Iterator[PlannedScenario]:
    present = False
    for item in scheduled:
        loads = item.scenario.uses_dataset and not present
        present = loads or dataset.present_after(item.scenario, present)
        estimated_s = estimator.scenario_s(item.scenario)
        if loads:
            estimated_s += estimator.scenario_s(dataset.load)
        yield PlannedScenario(item, loads, estimated_s)


def _notes(config: Config, options: PlanOptions, timing: EtcdTiming, largest: RttExpectation | None) -> Iterator[str]:
    cores = options.machine_cores
    loose = [node for node in config.hosts if node.cpus is not None and node.cpus > cores]
    total_cpus = sum((node.cpus for node in config.hosts if node.cpus is not None), Decimal(0))
    machine = f"this machine has {cores} core{'s' if cores > 1 else ''}"
    if loose:
        names = ", ".join(node.name for node in loose)
        yield f"{machine}: the cpu limit of {names} is applied but cannot bind"
    elif total_cpus > cores:
        yield f"{machine}, the cpu limits add up to {format_number(total_cpus)}: the hosts compete for cpu"
    if config.etcd.data == "tmpfs" and any(node.memory_bytes is not None for node in config.nodes):
        yield "etcd's data is on tmpfs: it counts against each member's memory limit"
    if len(config.nodes) > _MEMBERS_ADVISED:
        yield f"{len(config.nodes)} members: etcd advises at most {_MEMBERS_ADVISED}"
    if largest is not None:
        yield from _timing_notes(timing, largest)


def _link_notes(topology: Topology, options: PlanOptions) -> Iterator[str]:
    directions = [side for link in topology.links for side in (link.spec.a_to_b, link.spec.b_to_a)]
    note = frame_memory_note(directions)
    if note is not None and options.links != "netem":
        yield note


def _timing_notes(timing: EtcdTiming, largest: RttExpectation) -> Iterator[str]:
    rtt = f"the largest expected RTT between members, {format_ms(largest.expected_ns)} ms"
    if timing.heartbeat_ms * 10**6 < largest.expected_ns:
        yield f"the heartbeat of {timing.heartbeat_ms} ms is below {rtt}: leaders may change under load"
    elif timing.election_ms * 10**6 < _ELECTION_PER_RTT * largest.expected_ns:
        election = f"the election timeout of {timing.election_ms} ms"
        yield f"{election} is below 10 times {rtt}: leaders may change under load"


def _queue_notes(topology: Topology) -> Iterator[str]:
    rtts_ns = topology.longest_rtts_ns()
    short = [
        link.name
        for link in topology.links
        for direction in (link.spec.a_to_b, link.spec.b_to_a)
        if direction.default_queue_frames == MAX_FRAMES
        and product_frames(rtts_ns[link.name], direction.rate_bps or 0) > MAX_FRAMES
    ]
    if short:
        names = ", ".join(dict.fromkeys(short))
        yield f"the queues of {names} hold {MAX_FRAMES:,} frames, less than the bandwidth-delay product"


def _host_dict(host: HostPlan) -> dict[str, Any]:
    return {
        "name": host.name,
        "role": host.role,
        "address": f"{host.ip}/{host.prefix_length}",
        "image": host.image,
        "command": list(host.command),
        "environment": dict(host.environment),
        "tcp_congestion_control": host.tcp_congestion_control,
        "tmpfs": dict(host.tmpfs),
        "memory_bytes": host.memory_bytes,
        "memswap_bytes": host.memswap_bytes,
        "cpus": None if host.cpus is None else float(host.cpus),
        "cpu_period_us": host.cpu_period_us,
        "cpu_quota_us": host.cpu_quota_us,
    }


def _link_dict(link: Link) -> dict[str, Any]:
    return {
        "name": link.name,
        "a": link.a,
        "b": link.b,
        "a_to_b": _direction_dict(link.spec.a_to_b),
        "b_to_a": _direction_dict(link.spec.b_to_a),
    }


def _direction_dict(direction: DirectionSpec) -> dict[str, Any]:
    return {
        "delay_ns": direction.delay_ns,
        "rate_bps": direction.rate_bps,
        "queue_frames": direction.queue_frames,
        "queue_bytes": direction.queue_bytes,
        "default_queue_frames": direction.default_queue_frames,
        "jitter": None if direction.jitter is None else asdict(direction.jitter),
        "loss": None if direction.loss is None else asdict(direction.loss),
        "seed": direction.seed,
    }


def _rtt_dict(pair: RttExpectation) -> dict[str, Any]:
    return {
        "a": pair.a,
        "b": pair.b,
        "propagation_ns": pair.propagation_ns,
        "expected_ns": pair.expected_ns,
        "frame_bytes": pair.frame_bytes,
    }


def _scenario_dict(planned: PlannedScenario) -> dict[str, Any]:
    scenario: Scenario = planned.scheduled.scenario
    return {
        "name": scenario.name,
        "repetition": planned.scheduled.repetition,
        "type": scenario.type,
        "total": scenario.total,
        "clients": scenario.clients,
        "conns": scenario.conns,
        "key_size_bytes": scenario.key_size,
        "val_size_bytes": scenario.val_size,
        "key_space": scenario.key_space,
        "target": scenario.target,
        "consistency": scenario.consistency,
        "duration_s": scenario.duration_ns and scenario.duration_ns / 1e9,
        "rate_per_s": scenario.rate and float(scenario.rate),
        "arrival": scenario.rate and scenario.arrival,
        "warmup_requests": scenario.warmup.requests,
        "warmup_s": scenario.warmup.length_ns / 1e9,
        "keys": scenario.keys,
        "zipf_exponent": float(scenario.zipf_exponent) if scenario.keys == "zipfian" else None,
        "verify": scenario.verify,
        "request_timeout_s": scenario.request_timeout_ns / 1e9,
        "put_ratio": None if scenario.put_ratio is None else float(scenario.put_ratio),
        "key_prefix": scenario.key_prefix,
        "span": asdict(scenario.span) if scenario.reads else None,
        "loads_dataset": planned.loads_dataset,
        "estimated_s": round(planned.estimated_s, 1),
    }
