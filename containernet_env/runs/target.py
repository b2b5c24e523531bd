"""What the scenario matrix is run against: a store, a benchmark server, and perhaps a network and hosts of ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from containernet_env.config.plan import Plan
from containernet_env.model.findings import Capacity
from containernet_env.model.scenario import Scenario
from containernet_env.model.usage import Leadership
from containernet_env.runs.disruptor import Faults
from containernet_env.runs.load import BenchmarkServer
from containernet_env.stores.cluster import Cluster
from containernet_env.stores.store import LoadTerms


class MeasuredNetwork(Protocol):
    """Links that count what goes over them."""

    def link_statistics(self, *, reset: bool = False, buckets: bool = False) -> Mapping[str, Any]:
        """What every link saw; see ``containernet_env.model.usage``."""


class ClientHost(Protocol):
    """The host that makes the load."""

    @property
    def alive(self) -> bool: ...

    def ending(self) -> str | None:
        """How its first process ended, in one line for people; ``None`` while it runs. Never raises."""


class Target(Protocol):
    """Something that can be measured. A store that somebody else runs has neither ``network`` nor ``client_host``."""

    plan: Plan
    led_at_start: Leadership | None
    """Who led when it came up; ``None`` until then, and where no leader is known."""
    failure: str | None
    """Why nothing can be measured any more: the links have ended, the benchmark host, or the engine; ``None`` while all
    stand."""
    key_prefix: str
    """What every key of a load starts with, before the prefix of its scenario."""
    unseen: str | None
    """What nobody here can see of it, in one line, so that figures are never certainly valid; ``None`` for ours."""
    leader_wanted: str | None
    """Who is to lead in every scenario; ``None`` leaves that to elections."""

    capacity: Capacity
    """What the machine has and what everything configured may take of it."""

    @property
    def leader_at_start(self) -> str | None:
        """The leader of ``led_at_start``."""
        return self.led_at_start.leader if self.led_at_start is not None else None

    @property
    def load_terms(self) -> LoadTerms:
        """How loads speak with its store."""
        return self.plan.store.load_terms

    @property
    def member_timeout_s(self) -> float:
        """See ``stores.store.Timing``."""
        return self.plan.timing.member_timeout_s

    def settled_failure(self) -> str | None:
        """``failure`` once something has gone wrong: what caused that may be known only a moment later.

        Where something is silent right now, once it has answered or has been given up.
        """

    def client_rtts_ns(self) -> Mapping[str, Sequence[int]]:
        """RTTs to each member, measured now; none where nobody has to. Takes some RTTs, and never raises."""
        return {}

    def least_median_s(self, scenario: Scenario, leader: str | None, living: Collection[str]) -> float | None:
        """The floor of a scenario; see ``results.floor.Floor``."""

    @property
    def cluster(self) -> Cluster[Any]: ...

    @property
    def server(self) -> BenchmarkServer: ...

    @property
    def network(self) -> MeasuredNetwork | None: ...

    @property
    def client_host(self) -> ClientHost | None: ...

    @property
    def faults(self) -> Faults | None:
        """What events of scenarios can do to it; ``None`` where nothing can be done."""
