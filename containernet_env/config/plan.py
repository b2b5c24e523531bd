"""The plan: everything that a run will do, as values and as JSON, and the hashes that identify the configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

from containernet_env.base.errors import UsageError
from containernet_env.base.units import format_number
from containernet_env.model.backends import EngineChoice, LinksChoice, ProfileKind, SwitchesChoice
from containernet_env.model.config import DILATION_MAX, Config, StoreChoice
from containernet_env.model.link import SEED_MAX, DirectionSpec, Link
from containernet_env.model.scenario import Dataset, Scenario, ScheduledScenario
from containernet_env.model.topology import HostRole, RttExpectation, Topology
from containernet_env.model.usage import SIDES
from containernet_env.stores.cluster import Waits
from containernet_env.stores.store import Store, Timing

if TYPE_CHECKING:
    # `watch` reads plans, and loads no more than it needs.
    from containernet_env.config.scenarios import ScenarioSet


def select(
    scenarios: Sequence[Scenario], only: Sequence[str] = (), repeat: int = 1, first: int = 1
) -> tuple[ScheduledScenario, ...]:
    """The scenarios that match any of ``only`` (empty: all), the whole selection ``repeat`` times.

    Repetitions are numbered from ``first``. A pattern is a name, a glob over names such as ``*-1000x1x1*``, or a type
    (``write``, ``read``, ``mixed``, ``txn``). Raises ``UsageError``, with the names, when a pattern matches nothing.
    """
    for name, number in (("--repeat", repeat), ("first_repetition", first)):
        if number < 1:
            raise UsageError(f"{name}: got {number}; allowed: 1 or more")
    unmatched = [pattern for pattern in only if not any(_matches(item, pattern) for item in scenarios)]
    if unmatched:
        names = "\n".join(f"  {scenario.name}" for scenario in scenarios)
        allowed = f"write, read, mixed, txn, a name or a glob of these:\n{names}"
        raise UsageError(f"no scenario matches {', '.join(unmatched)}; allowed: {allowed}")
    chosen = [item for item in scenarios if not only or any(_matches(item, pattern) for pattern in only)]
    # Whole rounds, so that a drift of the machine's speed affects every scenario alike.
    return tuple(ScheduledScenario(item, number) for number in range(first, first + repeat) for item in chosen)


def _matches(scenario: Scenario, pattern: str) -> bool:
    return pattern == scenario.type or fnmatchcase(scenario.name, pattern)


AUTO = 0
"""The dilation that leaves to this machine how slow each scenario runs."""
CPU_PERIOD_US = 100_000
"""The kernel's default CFS period; a quota is cpus * period."""
CPU_PERIOD_MAX_US, CPU_QUOTA_MIN_US = 1_000_000, 1000
"""The kernel's longest period and least quota (max_cfs_quota_period, min_cfs_quota_period of kernel/sched/core.c)."""
FSYNC_MAX_NS = 5 * 10**9
"""The longest fsync in real time: a program that is killed ends only when its fsync does."""
TCP_RTO_MIN_MS = 200
"""The shortest retransmission timeout of Linux's TCP (TCP_RTO_MIN)."""


@dataclass(frozen=True, slots=True)
class Option:
    """The common part of all forms of an option: its effect, the least and largest number, the placeholder of its
    value, and the commands that have it."""

    text: str
    least: int | None = None
    most: int | None = None
    metavar: str | None = None
    commands: tuple[str, ...] = ("run",)


_EACH = ("run", "sweep", "shell")


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of the command line and the machine, in addition to the files.

    A field that is annotated with an ``Option`` is one of `run`: the command line, the Python interface and the
    manifest, from which `rerun` repeats it, have it under this name, with this type and this default.

    ``dilation``: ``AUTO``, a factor, or ``None`` for that of the topology. ``machine_cores``: how many cores this
    machine has, 1 or more. ``run_id``: the run's short id, a placeholder until there is one. ``other_cores``: those of
    hosts and driver, where ``links_cpu`` is kept for the link emulator.
    """

    machine_cores: int
    run_id: str = "RUN-ID"
    only: Annotated[
        tuple[str, ...],
        Option("Only these scenarios: a name, a glob, a type.", metavar="NAME", commands=("run", "sweep")),
    ] = ()
    repeat: Annotated[int, Option("Run the matrix N times.", 1, 1000)] = 1
    first_repetition: Annotated[
        int, Option("The number of the first repetition, by which seeds differ.", 1, commands=())
    ] = 1
    dilation: Annotated[
        int | None,
        Option(
            "Run the testbed N times slower than real time; figures are in the time that it emulates. auto, of `run` "
            "alone: each scenario as slow as this machine needs for a valid row.",
            0,
            DILATION_MAX,
            metavar="N|auto",
            commands=_EACH,
        ),
    ] = None
    fresh: Annotated[bool, Option("A new cluster for each repetition; without it all share one.")] = False
    retry_invalid: Annotated[
        int,
        Option("Measure a scenario again, up to N times, if its figures are not certainly valid.", 0, 100, metavar="N"),
    ] = 0
    links_cpu: Annotated[
        int | None,
        Option(
            "Keep core N for the link emulator: members, client and driver use the others.",
            0,
            metavar="N",
            commands=("run", "sweep"),
        ),
    ] = None
    profile: Annotated[
        tuple[ProfileKind, ...],
        Option(
            "Take profiles of a member during each scenario: cpu, allocs, mutex, with commas between.", metavar="KINDS"
        ),
    ] = ()
    profile_member: Annotated[str | None, Option("The member to profile.  [default: the leader]", metavar="NAME")] = (
        None
    )
    engine: Annotated[
        EngineChoice,
        Option("The network engine: this project's own, or the original Containernet, if installed.", commands=_EACH),
    ] = "builtin"
    links: Annotated[
        LinksChoice, Option("The link backend: auto is the link emulator; netem is a cross-check.", commands=_EACH)
    ] = "auto"
    offload: Annotated[
        bool,
        Option(
            "Hosts hand over and get several TCP segments at once, as with most network cards; links still delay, lose "
            "and count each.",
            commands=_EACH,
        ),
    ] = False
    switches: Annotated[
        SwitchesChoice,
        Option("The switches of netem links: Open vSwitch or a Linux bridge; goes with --links netem.", commands=_EACH),
    ] = "auto"
    seed: Annotated[
        int,
        Option(
            "The seed of losses and jitter of links without one; random and recorded if left out.",
            0,
            SEED_MAX,
            metavar="N",
            commands=_EACH,
        ),
    ] = 0
    congestion_control: Annotated[
        str, Option("TCP congestion control of every host.", metavar="NAME", commands=_EACH)
    ] = "cubic"
    other_cores: tuple[int, ...] = ()


OPTIONS: Mapping[str, tuple[Any, Option]] = {
    name: (hint.__origin__, hint.__metadata__[0])
    for name, hint in get_type_hints(PlanOptions, include_extras=True).items()
    if get_origin(hint) is Annotated
}
"""The options of `run` by their names: the type of each, and what all its forms share."""


@dataclass(frozen=True, slots=True)
class HostPlan:
    """One container. ``None`` limits are unlimited; ``memswap_bytes`` = ``memory_bytes``: nothing is swapped.

    ``image`` is the name of the image (the store's, or ``benchmark``), not its tag. ``command`` follows the image's
    own entry point; ``data`` are the directories that hold a member's data; ``tmpfs`` maps paths to mount
    options; ``environment`` is set inside the container. ``cpuset`` are the cores that it may use; empty: all.
    ``tcp_rto_min_ms``: TCP's shortest retransmission timeout; ``None`` is the kernel's. ``fsync_ns``: how long an fsync
    below ``data`` takes; ``None``: as long as it does here.
    """

    name: str
    role: HostRole
    ip: str
    prefix_length: int
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    data: tuple[str, ...]
    tcp_congestion_control: str
    tmpfs: Mapping[str, str]
    memory_bytes: int | None
    memswap_bytes: int | None
    cpus: Decimal | None
    cpu_period_us: int
    cpu_quota_us: int | None
    cpuset: tuple[int, ...] = ()
    tcp_rto_min_ms: int | None = None
    fsync_ns: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedScenario:
    """A scenario of the run.

    ``loads_dataset``: the data set has to be loaded before it, since no earlier scenario leaves it behind. ``dilation``
    is how many times slower than real time it runs.
    ``estimated_s`` is rough (`containernet_env.config.planning`) and includes that load.
    """

    scheduled: ScheduledScenario
    loads_dataset: bool
    estimated_s: float
    dilation: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a run will do, determined before anything is created.

    ``scenario_set`` is ``None`` and ``scenarios`` empty if nothing is measured (the shell). ``hosts``
    and ``links`` are in config order, the client last; a direction with a rate and no configured queue limit has the
    default limit. An external cluster has none of these. ``rtt`` has one entry per pair of hosts.
    ``around_s``: how long bring-up and tear-down of each cluster take, roughly.
    ``notes`` are sentences that the user should read once.
    ``store`` is the measured store and ``timing`` its timing.
    """

    run_id: str
    config: Config
    scenario_set: ScenarioSet | None
    options: PlanOptions
    topology: Topology
    hosts: tuple[HostPlan, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    rtt: tuple[RttExpectation, ...]
    largest_member_rtt: RttExpectation | None
    store: Store
    timing: Timing
    dataset: Dataset
    scenarios: tuple[PlannedScenario, ...]
    around_s: float
    notes: tuple[str, ...]

    @property
    def dilation(self) -> int:
        """How many times slower than real time it runs: by the options, or else by the topology; 1 with ``auto``."""
        return dilation_of(self.config, self.options)

    def at(self, dilation: int) -> Plan:
        """The same plan, so many times slower than real time."""
        return self if dilation == self.dilation else replace(self, options=replace(self.options, dilation=dilation))

    @property
    def fsyncs_ns(self) -> dict[str, int]:
        """How long an fsync takes on the data of each member that has it configured, by name."""
        return {host.name: host.fsync_ns for host in self.hosts if host.fsync_ns is not None}

    @property
    def waits(self) -> Waits:
        return Waits.of(self.timing.settle_s, self.topology.longest_rtt_ns(), self.dilation)

    @property
    def estimated_s(self) -> float:
        return self.around_s * len(self.cluster_ends) + sum(planned.estimated_s for planned in self.scenarios)

    @property
    def once(self) -> list[PlannedScenario]:
        """The scenarios of the first repetition."""
        first = self.options.first_repetition
        return [planned for planned in self.scenarios if planned.scheduled.repetition == first]

    @property
    def cluster_ends(self) -> tuple[int, ...]:
        """For each cluster that the run brings up, how many scenarios have ended when it is taken down."""
        clusters = [
            (item.scheduled.repetition if self.options.fresh else 0, item.dilation, item.scheduled.attempt)
            for item in self.scenarios
        ]
        last = len(clusters)
        return (*(end for end in range(1, last) if clusters[end] != clusters[end - 1]), last)


def dilation_of(config: Config, options: PlanOptions) -> int:
    return config.dilation if options.dilation is None else max(options.dilation, 1)


def plan_values(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values, named as its fields: for the run's record and the snapshot of the tests."""
    file = plan.scenario_set and plan.scenario_set.document
    values = {
        "run_id": plan.run_id,
        "config": {"path": str(plan.config.path), "sha256": plan.config.sha256},
        "scenario_file": file and {"path": str(file.path), "sha256": file.sha256},
        "subnet": str(plan.config.subnet),
        "seed": plan.options.seed,
        **({"dilation": plan.dilation} if plan.dilation > 1 else {}),
        "clusters": len(plan.cluster_ends),
        "hosts": [asdict(host) for host in plan.hosts],
        "switches": plan.switches,
        "links": [link_values(link) for link in plan.links],
        **({"reroute": True} if plan.config.reroute else {}),
        "rtt": [asdict(pair) for pair in plan.rtt],
        "largest_member_rtt": plan.largest_member_rtt and asdict(plan.largest_member_rtt),
        plan.store.name: _store_values(plan),
        "dataset": asdict(plan.dataset),
        "scenarios": [_scenario_values(planned) for planned in plan.scenarios],
        "estimated_s": round(plan.estimated_s, 1),
        "notes": plan.notes,
    }
    made: dict[str, Any] = json.loads(json.dumps(values, default=float))  # decimals
    return made


def _scenario_values(planned: PlannedScenario) -> dict[str, Any]:
    values = asdict(planned.scheduled.scenario)
    return {
        **{name: value for name, value in values.items() if value or name not in ("client", "parts", "senders")},
        "events": [event.text for event in planned.scheduled.scenario.events],
        "repetition": planned.scheduled.repetition,
        "dilation": planned.dilation,
        "loads_dataset": planned.loads_dataset,
        "estimated_s": round(planned.estimated_s, 1),
    }


def _store_values(plan: Plan) -> dict[str, Any]:
    external = plan.config.external
    if external is not None:
        # Never a password: there is none in a plan. Where files lie is in the inputs of the run.
        return {
            "endpoints": list(external.urls),
            "user": external.user,
            **({"token": True} if external.token_file is not None else {}),
            "client_certificate": external.tls is not None and external.tls.cert is not None,
            "prefix": external.prefix,
        }
    choice = plan.config.store
    return {
        **plan.timing.values,
        "data": plan.config.etcd.data,
        "leader": plan.config.etcd.leader,
        **({"tls": True} if plan.config.etcd.tls else {}),
        **({"version": choice.version} if choice.version is not None else {}),
        **({"flags": dict(choice.flags)} if choice.flags else {}),
        **({"service": asdict(choice.service)} if choice.service is not None else {}),
        **({"binary_sha256": choice.binary.sha256} if choice.binary is not None else {}),
    }


def link_values(link: Link) -> dict[str, Any]:
    """A link as JSON values; of its traces what they are, not where."""
    spec = asdict(link.spec)
    for side in spec.values():
        if (traces := side.pop("trace")) is not None:
            side["trace"] = {name: trace for name, trace in traces.items() if trace is not None}
            for trace in side["trace"].values():
                del trace["file"]
    return {"name": link.name, "a": link.a, "b": link.b, **spec}


_DIGITS = 12
_ALWAYS_HASHED = {
    *("delay_ns", "rate_bps", "queue_frames", "queue_bytes", "jitter", "loss", "seed", "default_queue_frames"),
    *("overhead_bytes", "uplink"),
}


def _hashed_link(link: Link) -> dict[str, Any]:
    """Of later properties, their defaults leave the hash as it was before there were such properties."""
    values = link_values(link)
    for side in SIDES:
        values[side] = {
            name: value
            for name, value in values[side].items()
            if name in _ALWAYS_HASHED or value != DirectionSpec.__dataclass_fields__[name].default
        }
    return values


def config_hash(plan: Plan) -> str:
    """Hash of everything configured but the load: hosts with limits, links, the store's settings, kind of hosts.

    12 hexadecimal digits. Names of files, the run's id and the machine are not part of it, nor is the link backend:
    ``auto`` leaves that to the machine, so a row has it in a column of its own (``Links``).
    """
    if (external := plan.config.external) is not None:
        # Which CA signs and how long the prefix is makes no other load.
        service = plan.config.store.service
        spoken = [] if service is None else [asdict(service)]
        known = external.user is not None or external.token_file is not None
        return _digest([plan.store.name, "external", list(external.urls), known, *spoken])
    hosts = [
        {
            "name": host.name,
            "role": host.image,
            "memory_bytes": host.memory_bytes,
            "cpus": host.cpus,
            "tmpfs": dict(host.tmpfs),
            "tcp": host.tcp_congestion_control,
            **({} if host.fsync_ns is None else {"fsync_ns": host.fsync_ns}),
        }
        for host in plan.hosts
    ]
    choices = [plan.options.engine, plan.options.switches]
    # Where a value came from is no part of the experiment.
    timing = {name: value for name, value in plan.timing.values.items() if not name.endswith("_from")}
    links = [_hashed_link(link) for link in plan.links]
    # Members are started otherwise, and stopped for each sample.
    options = plan.options
    profile = [{"kinds": options.profile, "member": options.profile_member}] if options.profile else []
    leader = {} if plan.config.etcd.leader is None else {"leader": plan.config.etcd.leader}
    choice = plan.config.store
    # A missing key leaves the hash as it was before there was such a key.
    chosen: dict[str, Any] = {"version": choice.version, "flags": dict(choice.flags)}
    if choice.binary is not None:
        chosen["binary"] = choice.binary.sha256
    if choice.service is not None:
        chosen["service"] = asdict(choice.service)
    more = [] if choice == StoreChoice(choice.kind) else [chosen]
    if plan.config.switches:
        more.append({"paths": "least delay"})
    if plan.config.reroute:
        more.append({"reroute": True})
    return _digest([plan.store.name, hosts, links, timing | leader, choices, *profile, *more])


def scenario_hash(scenario: Scenario, dataset: Dataset) -> str:
    """Hash of a scenario and the data set that it may read; 12 hexadecimal digits."""
    values = asdict(scenario)
    for name in ("nearest", "client", "parts"):
        del values[name]  # of the topology
    for name in ("seed", "search", "events", "history", "senders"):
        if not values[name]:
            del values[name]  # a missing key leaves the hash as it was before there was such a key
    if scenario.search is not None:
        # The form in which rows have it.
        own = {name: value for name, value in values["search"].items() if not name.startswith("p")}
        values["search"] = own | {"objectives": [asdict(item) for item in scenario.search.objectives]}
    return _digest([values, asdict(dataset) if scenario.uses_dataset else None])


def cell_hash(plan: Plan, scheduled: ScheduledScenario) -> str:
    """Hash of everything that is configured of one cell of a sweep: 12 hexadecimal digits.

    It does not depend on repetitions, on seeds that are drawn, nor on how the files are written.
    """
    # Without a core of the link emulator's own, hosts have it too.
    more: list[Any] = [] if plan.options.links_cpu is None else [plan.options.links_cpu]
    if plan.dilation > 1:
        more.append({"dilation": plan.dilation})
    if plan.options.offload:
        more.append({"offload": True})
    return _digest([config_hash(plan), scheduled.identity, plan.options.links, *more])


def _digest(value: Any) -> str:
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _canonical(value: Any) -> Any:
    """The value with each number in one form: 1, 1.0 and 1.00 are the same."""
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return format_number(value)
    return value
