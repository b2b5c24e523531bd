"""A plan: everything a run will do, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase

from containernet_env.base.errors import UsageError
from containernet_env.model.backends import EngineChoice, LinksChoice, ProfileKind, SwitchesChoice
from containernet_env.model.config import Config
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
class KeptCore:
    """The core that only the link emulator's data thread uses; ``others`` are those of hosts and driver."""

    cpu: int
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProfileChoice:
    """Which profiles are taken during each scenario, of which member; ``None``: of the leader."""

    kinds: tuple[ProfileKind, ...]
    member: str | None = None


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the command line and the machine add to the files.

    ``machine_cores``: how many cores this machine has, 1 or more. ``run_id``: the run's short id, a
    placeholder until there is one. ``seed``: what losses and jitter of all links are drawn from where a direction has
    no seed of its own. ``only``: names, globs, ``write``, ``read``, ``mixed`` or ``txn``; empty takes all.
    ``repeat``: 1 or more; ``fresh``: each repetition on a new cluster; ``retry_invalid``: how often a scenario is
    measured again. ``first_repetition``: the number of the first one, from 1, by which seeds differ. ``engine``: what
    creates hosts and links (`containernet_env.containernet`). ``links_core``, ``profile``: a core for the link
    emulator, profiles of a member, if wanted.
    """

    machine_cores: int
    run_id: str = "RUN-ID"
    links: LinksChoice = "auto"
    switches: SwitchesChoice = "auto"
    tcp_congestion_control: str = "cubic"
    only: tuple[str, ...] = ()
    repeat: int = 1
    fresh: bool = False
    retry_invalid: int = 0
    first_repetition: int = 1
    engine: EngineChoice = "builtin"
    seed: int = 0
    links_core: KeptCore | None = None
    profile: ProfileChoice | None = None

    @property
    def links_cpu(self) -> int | None:
        """The core that is kept for the link emulator."""
        return None if self.links_core is None else self.links_core.cpu


@dataclass(frozen=True, slots=True)
class HostPlan:
    """One container. ``None`` limits are unlimited; ``memswap_bytes`` = ``memory_bytes``: nothing is swapped.

    ``image`` is the name of the image (the store's, or ``benchmark``), not its tag. ``command`` is what follows the
    image's own entry point; ``data`` are the directories that hold a member's data; ``tmpfs`` maps paths to mount
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
    """Everything a run will do, known before anything is created.

    ``scenario_set`` is ``None`` and ``scenarios`` empty where nothing is measured (the shell). ``hosts``
    and ``links`` are in config order, the client last; a direction of theirs that has a rate and no queue limit has a
    default for it. Of a cluster that somebody else runs there are none. ``rtt`` has one entry per pair of hosts.
    ``notes`` are sentences that the user should read once.
    ``store`` is what is measured and ``timing`` its timing.
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
