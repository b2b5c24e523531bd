"""A plan: everything a run will do, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Annotated, Any, get_origin, get_type_hints

from containernet_env.base.errors import UsageError
from containernet_env.model.backends import EngineChoice, LinksChoice, ProfileKind, SwitchesChoice
from containernet_env.model.config import Config
from containernet_env.model.link import SEED_MAX
from containernet_env.model.scenario import Dataset, Scenario, ScenarioSet, ScheduledScenario
from containernet_env.model.topology import HostRole, Link, RttExpectation, Switch, Topology
from containernet_env.stores.store import Store, Timing, Waits


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


CPU_PERIOD_US = 100_000
"""The kernel's default CFS period; a quota is cpus * period."""


@dataclass(frozen=True, slots=True)
class Option:
    """What all forms of an option share: what it does, the least and largest number, what stands for its value."""

    text: str
    least: int | None = None
    most: int | None = None
    metavar: str | None = None


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of the command line and the machine, in addition to the files.

    A field that is annotated with an ``Option`` is one of `run`: the command line, the Python interface and the
    manifest, from which `rerun` repeats it, have it under this name, with this type and this default.

    ``machine_cores``: how many cores this machine has, 1 or more. ``run_id``: the run's short id, a placeholder until
    there is one. ``other_cores``: those of hosts and driver, where ``links_cpu`` is kept for the link emulator.
    """

    machine_cores: int
    run_id: str = "RUN-ID"
    only: Annotated[tuple[str, ...], Option("Only these scenarios: a name, a glob, a type.", metavar="NAME")] = ()
    repeat: Annotated[int, Option("Run the matrix N times.", 1, 1000)] = 1
    first_repetition: Annotated[int, Option("The number of the first repetition, by which seeds differ.", 1)] = 1
    fresh: Annotated[bool, Option("A new cluster for each repetition; without it all share one.")] = False
    retry_invalid: Annotated[
        int,
        Option(
            "Measure a scenario again, up to N times, if its figures are not certainly valid.",
            0,
            100,
            metavar="N",
        ),
    ] = 0
    links_cpu: Annotated[
        int | None,
        Option(
            "Keep core N for the link emulator: members, client and driver use the others.",
            0,
            metavar="N",
        ),
    ] = None
    profile: Annotated[
        tuple[ProfileKind, ...],
        Option(
            "Take profiles of a member during each scenario: cpu, allocs, mutex, with commas between.",
            metavar="KINDS",
        ),
    ] = ()
    profile_member: Annotated[
        str | None,
        Option("The member to profile.  [default: the leader]", metavar="NAME"),
    ] = None
    engine: Annotated[
        EngineChoice,
        Option("The network engine: this project's own, or the original Containernet, if installed."),
    ] = "builtin"
    links: Annotated[
        LinksChoice,
        Option("The link backend: auto is the link emulator; netem is a cross-check."),
    ] = "auto"
    switches: Annotated[
        SwitchesChoice,
        Option("The switches of netem links: Open vSwitch or a Linux bridge; goes with --links netem."),
    ] = "auto"
    seed: Annotated[
        int,
        Option(
            "The seed of losses and jitter of links without one; random and recorded if left out.",
            0,
            SEED_MAX,
            metavar="N",
        ),
    ] = 0
    congestion_control: Annotated[str, Option("TCP congestion control of every host.", metavar="NAME")] = "cubic"
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
    """Everything a run will do, determined before anything is created.

    ``scenario_set`` is ``None`` and ``scenarios`` empty where nothing is measured (the shell). ``hosts``
    and ``links`` are in config order, the client last; a direction with a rate and no configured queue limit has the
    default limit. An external cluster has none of these. ``rtt`` has one entry per pair of hosts.
    ``notes`` are sentences that the user should read once.
    ``store`` is the measured store and ``timing`` its timing.
    """

    run_id: str
    config: Config
    scenario_set: ScenarioSet | None
    options: PlanOptions
    topology: Topology
    hosts: tuple[HostPlan, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    rtt: tuple[RttExpectation, ...]
    largest_member_rtt: RttExpectation | None
    store: Store
    timing: Timing
    dataset: Dataset
    scenarios: tuple[PlannedScenario, ...]
    estimated_s: float
    notes: tuple[str, ...]

    @property
    def waits(self) -> Waits:
        """How long its driver waits."""
        return Waits.of(self.timing, self.topology.longest_rtt_ns())

    @property
    def once(self) -> list[PlannedScenario]:
        """The scenarios of the first repetition."""
        first = self.options.first_repetition
        return [planned for planned in self.scenarios if planned.scheduled.repetition == first]

    @property
    def cluster_ends(self) -> tuple[int, ...]:
        """For each cluster that the run brings up, how many scenarios have ended when it is taken down."""
        numbers = [planned.scheduled.repetition for planned in self.scenarios]
        last = len(numbers)
        changes = [end for end in range(1, last) if numbers[end] != numbers[end - 1]] if self.options.fresh else []
        return (*changes, last)
