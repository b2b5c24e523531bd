"""A cluster that somebody else runs, as something to measure: no hosts, no links, nothing of it is started or changed.

See ``runs.target.Target``. The load comes from this machine; its keys are under a prefix of the run's own, and are
removed when the run ends.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from containernet_env.base.errors import RunError, text_of, told
from containernet_env.base.work import Progress, Stop, persistently, side_by_side
from containernet_env.hosts.container import SyncTimes
from containernet_env.hosts.counters import Pids
from containernet_env.hosts.http import TcpConnection
from containernet_env.model.outcome import Reused
from containernet_env.model.scenario import Scenario
from containernet_env.model.usage import Leadership, leader_words
from containernet_env.network.gate import Gate
from containernet_env.plan.build import keys_of
from containernet_env.plan.plan import Plan
from containernet_env.results.capacity import capacity_of
from containernet_env.runs import external_left
from containernet_env.runs.disruptor import Faults
from containernet_env.runs.external_access import AGAIN_S, cluster_of, connections_to, external_of, login_of, usable
from containernet_env.runs.external_left import CleanedUp, Told
from containernet_env.runs.load import BenchmarkServer
from containernet_env.runs.local_server import LocalServer
from containernet_env.runs.progress import OnEvent, ignore_event
from containernet_env.runs.target import MeasuredNetwork
from containernet_env.setup.builds import ready_load_programs
from containernet_env.stores.external import ClusterLook, ExternalCluster, OwnKeys
from containernet_env.stores.kinds import external_store_of

UNSEEN = "somebody else runs the cluster: its members' cores and disks, and the network, cannot be seen"
HOSTS_KIND = "external"
_SERVER_TIMEOUT_S = 20.0
# TCP connections that are opened to each endpoint before a scenario, and after it.
RTT_SAMPLES = 10
_RTT_TIMEOUT_S = 2.0


class ExternalTestbed:
    """Stands for ``runs.testbed.Testbed`` where the plan names endpoints: ``up``, a matrix, ``down``."""

    network: MeasuredNetwork | None = None
    faults: Faults | None = None
    gate: Gate | None = None
    realtime: bool | None = None
    leader_wanted: str | None = None
    hosts_kind = HOSTS_KIND
    links_kind = "external"
    loaded = False
    why_unfit = "nothing of it stands between two runs"

    def __init__(
        self, plan: Plan, progress: Progress, *, on_event: OnEvent = ignore_event, stop: Stop | None = None
    ) -> None:
        self.plan = plan
        self.failure: str | None = None
        self.capacity = capacity_of(plan)
        self.unseen: str | None = UNSEEN
        self.reused: Reused = "nothing"
        self.sync: dict[str, SyncTimes] = {}
        self.led_at_start: Leadership | None = None
        self.after_down = "nothing of this run is left"
        self._progress = progress
        self._on_event = on_event
        self._stop = stop or Stop()
        self._external = external_of(plan.config)
        own_prefix = self._external.prefix_of(plan.run_id)
        self._own = OwnKeys(own_prefix, keys_of(plan))
        self.load_terms, self.key_prefix = external_store_of(plan.config).place(own_prefix)
        self._connections: Sequence[TcpConnection] = ()
        self._cluster: ExternalCluster | None = None
        self._look: ClusterLook | None = None
        self._local: LocalServer | None = None
        self._server: BenchmarkServer | None = None
        self._folder: Path | None = None

    @property
    def cluster(self) -> ExternalCluster:
        """The cluster; only after `up`."""
        assert self._cluster is not None
        return self._cluster

    @property
    def server(self) -> BenchmarkServer:
        """The benchmark server; only after `up`."""
        assert self._server is not None
        return self._server

    @property
    def client_host(self) -> LocalServer:
        """The process that makes the load; only after `up`."""
        assert self._local is not None
        return self._local

    @property
    def leader_at_start(self) -> str | None:
        """See ``runs.target.Target``."""
        return self.led_at_start.leader if self.led_at_start is not None else None

    @property
    def member_timeout_s(self) -> float:
        """See ``runs.target.Target``."""
        return self.plan.timing.member_timeout_s

    def settled_failure(self) -> str | None:
        """See ``runs.target.Target``."""
        return self.failure

    def least_median_s(self, scenario: Scenario, leader: str | None, living: Collection[str]) -> float | None:
        """See ``runs.target.Target``: the RTTs between members and their disks are not known."""
        return None

    def client_rtts_ns(self) -> Mapping[str, Sequence[int]]:
        """See ``runs.target.Target``."""
        names = [node.name for node in self.plan.config.nodes]
        return dict(zip(names, side_by_side(_rtts_ns, self._connections, len(names)), strict=True))

    @contextmanager
    def told_why(self) -> Iterator[None]:
        """Within it, an error of a step before the first scenario says what has ended, where that is why."""
        with told():
            yield

    def up(self) -> None:
        """Look at the cluster, clean up what a killed run left, and start the benchmark server. Raises RunError."""
        login = login_of(self._external)
        programs = ready_load_programs(self._progress, self._stop)
        self._connections = connections_to(self._external)
        self._cluster = cluster_of(self.plan.config, self._own)
        with self._progress.stage("cluster") as stage:
            look = self._look = usable(self._cluster, self.plan.config)
            self.led_at_start = look.leadership
            external_left.clean_up(self.plan.config, look.identity, self._tell_cleaned, self._progress.note)
            self._refuse_foreign_keys()
            persistently(lambda: _refused(self.cluster.may_load()), AGAIN_S)
            leader = leader_words(self.led_at_start) or "leader not among them"
            text = f"{len(look.members)} endpoints answer, {leader}"
            stage.done(text)
            self._on_event("cluster_up", text)
        self._stop.check()
        self._folder = external_left.begin(self.plan.config, self.plan.run_id, look.identity, self._own)
        unusable = f"the cluster of {self.plan.config.path} cannot be measured: "
        persistently(lambda: _refused(self.cluster.try_write(), unusable), AGAIN_S)
        password = login.password if login is not None and login.user is not None else None
        self._local = LocalServer(programs, self._folder, self._external, password)
        self._local.start()
        self._server = BenchmarkServer(self._local.connection, self._local.request)
        self._server.wait_ready(_SERVER_TIMEOUT_S, self._local.why_gone)

    def _refuse_foreign_keys(self) -> None:
        """Raise RunError where the prefix of this run holds keys: somebody else wrote them."""
        if count := persistently(self.cluster.keys, AGAIN_S):
            raise RunError(
                f"{count:,} keys are under {self._own.prefix} already, which are not of this run\n"
                '  Nothing was written. Remove them, or name another "prefix".'
            )

    def _tell_cleaned(self, found: CleanedUp) -> None:
        if found.keys is not None:
            text = f"{found.done}, left behind by a killed run"
        else:
            text = f"another run loads this cluster now, under {found.record.prefix}: both measure each other"
        self._progress.note(text)
        self._on_event("leftovers", text)

    def down(self) -> None:
        """End the load, remove every key of the run, forget it. Idempotent. Raises RunError for keys that are left."""
        if self._local is not None:
            self._local.close()
        try:
            if self._folder is not None and self._cluster is not None:
                self.after_down = self._remove_keys(self._cluster)
                external_left.end(self._folder)
                self._folder = None
        finally:
            if self._cluster is not None:
                self._cluster.close()

    def _remove_keys(self, cluster: ExternalCluster) -> str:
        """What is left then."""
        if self.plan.config.keys_stay:
            count = sum(keys.count for keys in self._own.generated)
            return f"up to {count:,} keys stay under {self._own.prefix}, as configured"
        try:
            removed = cluster.remove_keys(Told(self._progress.note))
        except Exception as error:
            raise RunError(
                f"keys under {self._own.prefix} are left: {text_of(error)}\n"
                f"  Once the cluster answers: containernet-env clean {self.plan.config.path}"
            ) from error
        return f"{removed:,} keys removed; nothing of this run is left"

    def host_facts(self) -> dict[str, Any]:
        """By member: where it is, and what it says of itself."""
        looks = self._look.members if self._look is not None else ()
        return {
            look.name: {"endpoint": look.url, "member": look.member_name, "version": look.version} for look in looks
        }

    def link_facts(self) -> None:
        """There are no links of ours."""
        return

    def pids(self) -> Pids:
        """The processes by which it is told what is used: the load tells itself what it took."""
        return Pids({}, None, None, os.getpid())

    def logs(self) -> Iterator[tuple[str, str]]:
        """What the benchmark server has said."""
        if self._local is not None:
            yield "benchmark", self._local.logs()


def _refused(reason: str | None, before: str = "") -> None:
    """Raise ``RunError`` where there is a reason."""
    if reason is not None:
        raise RunError(before + reason)


def _rtts_ns(connection: TcpConnection) -> list[int]:
    """RTTs to one endpoint; those until the first that fails."""
    found: list[int] = []
    try:
        while len(found) < RTT_SAMPLES:
            found.append(connection.rtt_ns(_RTT_TIMEOUT_S))
    except RunError:
        pass
    return found
