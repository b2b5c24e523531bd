"""The target of a scenario matrix: a store, a benchmark server, and possibly a network and hosts of ours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from containernet_env.base import clock
from containernet_env.base.errors import resource_errors
from containernet_env.base.work import Stop
from containernet_env.config.plan import Plan
from containernet_env.config.planning import dilated
from containernet_env.containernet.testbed_network import TestbedNetwork
from containernet_env.hosts.container import SyncTimes
from containernet_env.hosts.counters import Pids
from containernet_env.model.outcome import Reused
from containernet_env.model.proof import NetworkProof
from containernet_env.model.scenario import Scenario
from containernet_env.model.usage import Leadership
from containernet_env.network.gate import Gate
from containernet_env.results.capacity import capacity_of
from containernet_env.results.floor import Answered
from containernet_env.results.run_files import LinkFacts
from containernet_env.runs.disruptor import Faults
from containernet_env.runs.load import BenchmarkServer
from containernet_env.runs.progress import OnEvent, RunProgress
from containernet_env.stores.cluster import Cluster


class ClientHost(Protocol):
    """The host that makes the load."""

    @property
    def alive(self) -> bool: ...

    def ending(self) -> str | None:
        """How its first process ended, in one line for people; ``None`` while it runs. Never raises."""


Loader = tuple[ClientHost, BenchmarkServer]
"""Where a client's load comes from: its host, and the benchmark server in it."""


class Target(ABC):
    """A target that can be measured: ``up``, a matrix, ``down``. The defaults are those of an external cluster.

    ``plan`` is what runs, in real time, ``emulated`` what it is measured as, in emulated time; they differ by dilation.
    ``failure`` is why measuring is no longer possible: the links, the benchmark host or the engine have ended; else
    ``None``. ``led_at_start`` is the leader at bring-up; ``None`` until then, and if no leader is known.
    ``leader_wanted`` is to lead in every scenario; ``None`` leaves that to elections. ``key_prefix`` is that of every
    key of a load, before the prefix of its scenario; ``load_terms`` are how loads communicate with its store.
    ``unseen`` is what cannot be observed of it, in one line, so that figures are never certainly valid. ``capacity``
    has the machine's resources and the configured limits. ``reused`` is the state that the first scenario starts with,
    ``loaded`` whether the store already holds the data set. ``consists_of`` says what ``down`` removes.
    ``cluster`` is there only after ``up``. ``progress`` and ``on_event`` receive the course of its run, which ``stop``
    ends.
    """

    __test__ = False  # not a test class, whatever its name begins with
    cluster: Cluster[Any]
    net: TestbedNetwork | None = None
    gate: Gate | None = None
    unseen: str | None = None
    key_prefix = ""
    reused: Reused = "nothing"
    loaded = False
    leader_wanted: str | None = None
    led_at_start: Leadership | None = None
    failure: str | None = None
    hosts_kind: str
    links_kind: str
    consists_of = "hosts, links and cluster"
    after_down = "nothing of this run is left"

    def __init__(self, plan: Plan, progress: RunProgress, on_event: OnEvent, stop: Stop) -> None:
        self.emulated, self.plan = plan, dilated(plan)
        self.capacity = capacity_of(self.plan)
        self.load_terms = plan.store.load_terms
        self.sync: dict[str, SyncTimes] = {}
        self.progress = progress
        self.on_event = on_event
        self.stop = stop
        self._closing: list[Callable[[], None]] = []
        """What `down` closes first."""

    @abstractmethod
    def loader(self, client: str | None) -> Loader:
        """The host and the server of a client by its name, ``None`` for the first one; only after `up`."""

    @property
    def faults(self) -> Faults | None:
        """What events of scenarios can do to it; ``None`` if nothing can be done."""
        return None

    @property
    def member_timeout_s(self) -> float:
        return self.plan.timing.member_timeout_s

    def settled_failure(self) -> str | None:
        """``failure`` once something has gone wrong: what caused that may be known only a moment later.

        Where something is silent right now, once it has answered or has been given up.
        """
        return self.failure

    def client_rtts_ns(self) -> Mapping[str, Sequence[int]]:
        """RTTs to each member, measured now; none if none are needed. Takes some RTTs, and never raises."""
        return {}

    def least_median_s(
        self,
        scenario: Scenario,
        leader: str | None,
        living: Collection[str],
        answered: Mapping[str, Answered] | None = None,
    ) -> float | None:
        """The floor of a scenario, see ``results.floor.Floor``; ``None`` if the paths or disks are unknown."""
        return None

    @contextmanager
    def causes_named(self) -> Iterator[None]:
        """Within it, an error of a step before the first scenario names the ended process, if that is its cause."""
        with resource_errors():
            yield

    @abstractmethod
    def up(self) -> None:
        """Bring everything up. Raises ``RunError`` at the first deviation from the plan."""

    def prove_again(self) -> NetworkProof | None:
        """The network after the last scenario; ``None`` if it is not of ours. Raises ``RunError`` if that fails."""
        return None

    @abstractmethod
    def down(self) -> None:
        """Take everything down; idempotent. Raises ``RunError`` at the end for leftovers."""

    @abstractmethod
    def pids(self) -> Pids:
        """The processes by which resource usage is attributed; only after `up`."""

    @abstractmethod
    def host_facts(self) -> dict[str, Any]:
        """By host: what the run's record has of it."""

    def link_facts(self) -> LinkFacts | None:
        """The software that creates hosts and links; ``None`` if the links are not of ours."""
        return None

    @abstractmethod
    def logs(self) -> Iterator[tuple[str, str]]:
        """The last lines of every host's first process, by host; where a log cannot be read, the reason."""


def take_down(target: Target, progress: RunProgress) -> None:
    """``down``, then reported as a stage: a terminal that is stopped must not keep containers up."""
    began = clock.monotonic()
    target.down()
    with progress.stage("tear-down", clock.monotonic() - began) as stage:
        stage.done(target.after_down)
