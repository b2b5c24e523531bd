"""The target of a scenario matrix: a store, a benchmark server, and possibly a network and hosts of ours."""

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
        """The counters of every link; see ``containernet_env.model.usage``."""


class ClientHost(Protocol):
    """The host that makes the load."""

    @property
    def alive(self) -> bool: ...

    def ending(self) -> str | None:
        """How its first process ended, in one line for people; ``None`` while it runs. Never raises."""


class Target(Protocol):
    """A target that can be measured. An external store has neither ``network`` nor ``client_host``."""

    plan: Plan
    led_at_start: Leadership | None
    """The leader at bring-up; ``None`` until then, and if no leader is known."""
    failure: str | None
    """Why measuring is no longer possible: the links, the benchmark host or the engine have ended; else ``None``."""
    key_prefix: str
    """The prefix of every key of a load, before the prefix of its scenario."""
    unseen: str | None
    """What cannot be observed of it, in one line, so that figures are never certainly valid; ``None`` for ours."""
    leader_wanted: str | None
    """Who is to lead in every scenario; ``None`` leaves that to elections."""

    capacity: Capacity
    """The machine's resources and the configured limits."""

    @property
    def leader_at_start(self) -> str | None:
        """The leader of ``led_at_start``."""
        return self.led_at_start.leader if self.led_at_start is not None else None

    @property
    def load_terms(self) -> LoadTerms:
        """How loads communicate with its store."""
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
        """RTTs to each member, measured now; none if none are needed. Takes some RTTs, and never raises."""
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
        """What events of scenarios can do to it; ``None`` if nothing can be done."""
