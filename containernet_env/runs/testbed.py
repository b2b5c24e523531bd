"""A running topology: hosts, links, the proof of the network, the cluster, the benchmark server."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from containernet_env.base import clock
from containernet_env.base.errors import ReservedFiles, RunError, resource_errors, text_of
from containernet_env.base.files import root_of
from containernet_env.base.programs import last_words
from containernet_env.base.work import Progress, Stage, Stop
from containernet_env.config.plan import HostPlan, Plan
from containernet_env.containernet import engines
from containernet_env.containernet.testbed_network import TestbedHost, TestbedNetwork
from containernet_env.hosts import engine, netns
from containernet_env.hosts.container import BUDGET_S, SyncTimes, measure_sync, put_secrets
from containernet_env.hosts.counters import Pids
from containernet_env.hosts.engine import EngineGoneError, EngineWatch
from containernet_env.hosts.http import NamespaceConnection, UnixConnection
from containernet_env.model.proof import Moment as GateMoment
from containernet_env.model.proof import NetworkProof
from containernet_env.model.scenario import Scenario
from containernet_env.model.usage import Leadership, leader_words
from containernet_env.network.gate import Gate
from containernet_env.network.rtt import Tolerance
from containernet_env.results.capacity import capacity_of
from containernet_env.results.floor import Floor
from containernet_env.results.run_files import LinkFacts, Proof
from containernet_env.runs.disruptor import TestbedFaults
from containernet_env.runs.load import SERVER_ENTRY_POINT, SERVER_SOCKET, BenchmarkServer
from containernet_env.runs.network_prover import NetworkProver, proved_text
from containernet_env.runs.progress import OnEvent, ignore_event
from containernet_env.runs.target import Target
from containernet_env.setup.images import Images
from containernet_env.stores.cluster import Broken, Cluster, MemberHost, MemberPlace
from containernet_env.stores.store import GATE_SCRIPT, Trust

ALL_BUDGET_S = 1.0
"""Time limit for all members together."""


def measure_syncs(
    plan: Plan, hosts: Mapping[str, MemberHost], check: Callable[[], None], note: Callable[[str], None]
) -> dict[str, SyncTimes]:
    """Measure one member after the other, while no other process writes; those that cannot be measured are left out.

    ``check`` is called before each, and after a failure: it raises if a host that has ended is the cause.
    """
    members = [host for host in plan.hosts if host.data]
    measured: dict[str, SyncTimes] = {}
    for host in members:
        check()
        try:
            budget_s = min(BUDGET_S, ALL_BUDGET_S / len(members))
            measured[host.name] = measure_sync(root_of(hosts[host.name].pid), host.data[0], budget_s)
        except RunError as error:
            check()
            note(f"{host.name}: {error}; writes have no floor")
    return measured


PING_S = 1.0
"""Ping interval, and the timeout of each answer."""
SILENT_S = 5.0
"""It is given up after this silence: five of etcd's default election timeouts, so no later measurement would be of the
configured network; and a quarter of the default request timeout, so requests have not failed yet."""
# An answer that arrived while the caller was stopped is found by the next ping, so a pause of the driver costs one
# ping.
_PINGS = round(SILENT_S / PING_S)


class LinkWatch:
    """Pings on its own thread, between ``start`` and ``close``.

    ``answers`` returns whether an answer comes within so many seconds; ``fail`` is called once, with the reason.
    """

    def __init__(self, answers: Callable[[float], bool], fail: Callable[[str], None]) -> None:
        self._answers = answers
        self._fail = fail
        self._unanswered = 0
        self._over = clock.Event()
        self._thread = clock.Thread(target=self._run, name="link-watch", daemon=True)

    def start(self) -> None:
        """Start pinging."""
        self._thread.start()

    def close(self) -> None:
        """Stop pinging; idempotent. A ping in progress ends by itself."""
        self._over.set()

    def note(self, answered: bool) -> bool:
        """Record an answer, or its absence; returns whether the silence has lasted long enough to give up."""
        self._unanswered = 0 if answered else self._unanswered + 1
        return self._unanswered == _PINGS

    def settle(self) -> None:
        """Return once it answers, or has been given up: at once if nothing is wrong."""
        for _ in range(_PINGS + 1):
            began_s = clock.monotonic()
            if self._over.is_set() or self._answers(PING_S):
                return
            self._over.wait(began_s + PING_S - clock.monotonic())

    def _run(self) -> None:
        while not self._over.is_set():
            began_s = clock.monotonic()
            if self.note(self._answers(PING_S)) and not self._over.is_set():
                self._over.set()
                self._fail(
                    f"the link emulator has not answered for {SILENT_S:g} s: it was stopped, or gets no CPU time"
                )
            self._over.wait(max(0.0, began_s + PING_S - clock.monotonic()))


HOST_UP_TIMEOUT_S = 60.0
# Of each host's log; the run directory keeps its last megabyte.
LOG_LINES = 10_000
SERVER_TIMEOUT_S = 20.0

# How long after a failed step of the bring-up its cause may be reported: that the network is gone or a host has ended.
_NEWS_S = 0.5


# The settings that decide how TCP behaves on the emulated path; read back from every host into the run's record.
TCP_SYSCTLS = (
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_no_metrics_save",
)


class Testbed(Target):
    """Brings a plan up step by step and takes it down as a whole.

    `down` may be called at any time, also after an `up` that was cut short, and leaves nothing behind. Users of the
    testbed have to check `failure`: why no measurement is possible any more, None while everything is up.
    `on_event` receives events ("testbed_failed" with that reason, once, from another thread), `on_proof` each proof of
    the network, also a failed one. `stop` is polled during waits.
    """

    __test__ = False  # not a test class, whatever its name begins with
    key_prefix = ""
    unseen: str | None = None
    after_down = "nothing of this run is left"

    def __init__(
        self,
        plan: Plan,
        images: Images,
        progress: Progress,
        *,
        tolerance: Tolerance | None = None,
        logs: bool = True,
        on_event: OnEvent = ignore_event,
        on_proof: Callable[[Proof], None] = lambda proof: None,
        stop: Stop | None = None,
    ) -> None:
        self.plan = plan
        self.images = {"member": images.member, "benchmark": images.benchmark}
        self._progress = progress
        self.net = engines.create(plan)
        self.hosts: dict[str, TestbedHost] = {}
        self._cluster: Cluster[Any] | None = None
        self._trust: Trust | None = None
        self._server: BenchmarkServer | None = None
        self.gate: Gate | None = None
        self.gate_after: Gate | None = None
        self.led_at_start: Leadership | None = None
        self.leader_wanted = plan.config.etcd.leader
        self.capacity = capacity_of(plan)
        self.sync: dict[str, SyncTimes] = {}
        self._floor = self._make_floor()
        self.failure: str | None = None
        self._failed = clock.Event()
        self._during = "while the hosts started"
        self._failing = clock.Lock()
        self._links = LinkWatch(self.net.link_backend_answers, self.fail)
        self._engine_watch = EngineWatch(plan.run_id, lambda: len(self.hosts), self._on_engine_end)
        self._on_event = on_event
        self._stop = stop or Stop()
        self._reserved = ReservedFiles()
        self._congestion_control: dict[str, str] = {}
        self.net.on_event(self._on_network_event)
        self._settings = (tolerance, on_proof)
        self._prover = self._make_prover()

    def _make_prover(self) -> NetworkProver:
        tolerance, on_proof = self._settings
        of_testbed = (self.plan, self.net, self.hosts, self._progress)
        return NetworkProver(*of_testbed, tolerance, on_proof, self._stop, self._gone_of, self._why)

    def _make_floor(self) -> Floor:
        medians_ns = {name: times.median_ns for name, times in self.sync.items()}
        return Floor(self.plan.store, self.plan.topology, medians_ns)

    @property
    def cluster(self) -> Cluster[Any]:
        """The cluster; only after `up`."""
        assert self._cluster is not None
        return self._cluster

    @property
    def server(self) -> BenchmarkServer:
        """The benchmark server; only after `up`."""
        assert self._server is not None
        return self._server

    @property
    def server_connection(self) -> UnixConnection:
        """The only route to it; once its host is up."""
        return UnixConnection(self.client_host.name, SERVER_SOCKET, self.client_host.pid)

    @property
    def network(self) -> TestbedNetwork:
        """The network; see ``runs.target.Target``."""
        return self.net

    @property
    def hosts_kind(self) -> str:
        """The CSV's `Hosts`."""
        return self.net.hosts_kind

    @property
    def links_kind(self) -> str:
        """The CSV's `Links`."""
        kind: str = self.net.links_kind
        return kind

    @property
    def faults(self) -> TestbedFaults:
        """See ``runs.target.Target``."""
        members = {host.name for host in self.plan.topology.members}
        links = {link.a: link for link in self.plan.links if link.a in members}
        return TestbedFaults(self.net, self.hosts, links, self._restart_member, self.fail)

    def _restart_member(self, name: str, ready: Callable[[], None], broken: Broken) -> int:
        """Restart a killed member; see ``faults.Faults.restart``."""
        host, plan = self.hosts[name], next(plan for plan in self.plan.hosts if plan.name == name)
        host.restart()
        self._put_secrets(name)
        self._set_tcp([plan])
        ready()
        at_ns = clock.monotonic_ns()
        self.cluster.rejoin(self._place_of(name, str(plan.ip)), broken)
        return at_ns

    @property
    def client_host(self) -> TestbedHost:
        """The host of the load generator; only after `up`."""
        return self.hosts[self.plan.config.client.name]

    def least_median_s(self, scenario: Scenario, leader: str | None, living: Collection[str]) -> float | None:
        """See ``runs.target.Target``."""
        return self._floor.median_s(scenario, leader, living)

    @property
    def realtime(self) -> bool | None:
        """Whether the link emulator got the real-time priority that it requested; None if there is no link emulator."""
        granted: bool | None = self.net.link_backend_facts().get("realtime")
        return granted

    def up(self) -> None:
        """Bring everything up; raises RunError at the first deviation from the plan."""
        with self.told_why():
            self._bring_up()
            self._check()

    @contextmanager
    def told_why(self) -> Iterator[None]:
        """Within it, an error of a step before the first scenario names the ended process, if that is its cause."""
        try:
            with resource_errors():
                yield
        except RunError as error:
            reason = self._why(error)
            if reason == str(error):
                raise
            raise RunError(reason) from error

    def _bring_up(self) -> None:
        with self._progress.stage("hosts") as stage:
            self._start_hosts()
            self._done(stage, "hosts_up", f"{len(self.hosts)} containers, limits read back")
        with self._progress.stage("network") as stage:
            self._during = "while the network was built"
            self._connect()
            self._during = "during the network's proof"
            self._done(stage, "network_proved", self._prove_network())
        with self._progress.stage("cluster") as stage:
            self._during = "while the cluster started"
            self._measure_sync()
            self.led_at_start = self._start_cluster()
            text = f"{self.cluster.size} members, {leader_words(self.led_at_start)}, {self.plan.timing.short}"
            self._done(stage, "cluster_up", text)
        self._reach_server()

    def _done(self, stage: Stage, kind: str, text: str) -> None:
        stage.done(text)
        self._on_event(kind, text)

    def down(self) -> None:
        """Take everything down; idempotent. Raises RunError at the end for leftovers."""
        self._reserved.release()
        self._links.close()
        steps: list[Callable[[], None]] = [self._engine_watch.close, self.net.stop]
        if self._cluster is not None:
            steps.insert(0, self._cluster.close)
        problems = []
        gone: EngineGoneError | None = None
        for step in steps:
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the next step runs after any error
                gone = error if isinstance(error, EngineGoneError) else gone
                problems.append(text_of(error))
        if gone is not None and len(problems) == 1:
            raise gone
        if problems:
            raise RunError("not everything could be removed:\n" + "\n".join(problems))

    def _start_hosts(self) -> None:
        self._engine_watch.start()
        for plan in self.plan.hosts:
            if plan.role == "benchmark":
                program = [SERVER_ENTRY_POINT, f"--listen=unix:@{SERVER_SOCKET}"]
            else:
                program = [GATE_SCRIPT, self.plan.store.program]
            self.hosts[plan.name] = self.net.add_host(plan, self.images[plan.role], [*program, *plan.command])
        for plan in self.plan.hosts:
            self.hosts[plan.name].wait_up(HOST_UP_TIMEOUT_S)
            self._stop.check()

    def _connect(self) -> None:
        self._links.start()
        for switch in self.plan.switches:
            self.net.add_switch(switch.name)
        for link in self.plan.links:
            self.net.add_link(link.a, link.b, link.spec)
        self.net.start()
        self.net.staticArp()
        self._set_tcp(self.plan.hosts)

    def _set_tcp(self, plans: Sequence[HostPlan]) -> None:
        """Set the configured TCP of these hosts, and check that their connections use it."""
        subnet = str(self.plan.config.subnet)
        for plan in plans:
            host = self.hosts[plan.name]
            interface = host.defaultIntf().name
            netns.set_congestion_control(host.pid, interface, plan.ip, subnet, plan.tcp_congestion_control)
        for plan in plans:
            peer = next(other for other in self.plan.hosts if other is not plan)
            held = netns.congestion_control_towards(self.hosts[plan.name].pid, peer.ip)
            if held != plan.tcp_congestion_control:
                raise RunError(f"{plan.name}: TCP congestion control is {held}, not {plan.tcp_congestion_control}")
            self._congestion_control[plan.name] = held

    def _broken(self) -> str | None:
        """Why a wait during the bring-up cannot succeed. Raises ``Interrupted`` if a stop was requested."""
        self._stop.check()
        return self._gone()

    def _why(self, error: RunError) -> str:
        """Why a step has failed: a lost network or an ended host takes precedence as the cause of any other error."""
        self._links.settle()
        reason = self._gone()
        if reason is None:  # the namespaces of a process that ends go before it
            self._failed.wait(_NEWS_S)
            reason = self._gone()
        return reason or str(error)

    def _gone(self) -> str | None:
        """The failure of the run, or the hosts that have ended during the bring-up, and how."""
        return self._gone_of(self.hosts)

    def _gone_of(self, names: Collection[str]) -> str | None:
        """The same, of these hosts only."""
        return self.failure or "; ".join(self._ended_hosts(names)) or None

    def _ended_hosts(self, names: Collection[str]) -> Iterator[str]:
        for plan in self.plan.hosts:
            if plan.name not in names:
                continue
            loads = plan.role == "benchmark"
            words = last_words if loads else self.plan.store.members.last_words
            if (ending := self.hosts[plan.name].ending(words)) is not None:
                yield f"{'the benchmark host' if loads else plan.name} ended {self._during}: {ending}"

    def _check(self) -> None:
        """Raise RunError if the network is gone or a host has ended."""
        if (reason := self._gone()) is not None:
            raise RunError(reason)

    def _prove_network(self) -> str:
        self.gate = self._prover.prove()
        return self._proved_text(self.gate)

    def _proved_text(self, gate: Gate) -> str:
        return f"links by {self.net.link_backend}; {proved_text(gate.proof)}"

    def prove_again(self, moment: GateMoment) -> NetworkProof:
        """See ``NetworkProver``."""
        self._during = "while the network was measured again"
        self.gate_after = None
        self.gate_after = self._prover.prove_again(moment)
        return self.gate_after.proof

    def _measure_sync(self) -> None:
        self.sync = measure_syncs(self.plan, self.hosts, self._check, self._progress.note)
        self._floor = self._make_floor()

    def _start_cluster(self) -> Leadership:
        self._trust = self.plan.store.trust(self.plan.config)
        for name in self.hosts:
            self._put_secrets(name)
        places = [self._place_of(host.name, str(host.ip)) for host in self.plan.topology.members]
        self._cluster = self.plan.store.cluster(places)
        self._cluster.waits = self.plan.waits
        return self._cluster.start(self._broken)

    def _place_of(self, name: str, ip: str) -> MemberPlace:
        host, context = self.hosts[name], self._trust.context if self._trust else None
        return MemberPlace(host, ip, NamespaceConnection(host.pid, name, context))

    def _put_secrets(self, name: str) -> None:
        """Give a newly started host its certificates, if there are any."""
        if self._trust is not None and (files := self._trust.files.get(name)):
            put_secrets(root_of(self.hosts[name].pid), name, files)

    def _reach_server(self) -> None:
        self._during = "before the first scenario"
        self._server = BenchmarkServer(self.server_connection, self._trust.request if self._trust else {})
        self._server.wait_ready(SERVER_TIMEOUT_S, self._broken)

    def _on_engine_end(self, state: str) -> None:
        names = ", ".join(name for name, host in list(self.hosts.items()) if host.alive)
        self.fail(str(EngineGoneError(state, f"its containers {names} may still run" if names else "")))

    def _on_network_event(self, kind: str, text: str) -> None:
        """Record why the network is gone; on the thread that receives the event."""
        reason = None
        if kind == "emulator_died":
            reason = text
        elif kind == "port_down" and self._is_of_living_host(text):
            reason = f"the network lost a host that lives: {text}"
        failed_now = reason is not None and self._take_down_failure(reason)  # before it is reported: it may take time
        self._on_event(kind, text)
        if failed_now and reason is not None:
            self._on_event("testbed_failed", reason)

    def fail(self, reason: str) -> None:
        """Record why no measurement is possible any more; the first reason counts. Thread-safe."""
        if self._take_down_failure(reason):
            self._on_event("testbed_failed", reason)

    def _take_down_failure(self, reason: str) -> bool:
        """Whether it is the first."""
        with self._failing:
            if self._failed.is_set():
                return False
            self.failure = reason
            self._failed.set()
            self._links.close()  # ends all waits for it
            return True

    def settled_failure(self) -> str | None:
        """See ``runs.target.Target``."""
        self._links.settle()
        self._failed.wait(_NEWS_S)
        return self.failure

    def _is_of_living_host(self, text: str) -> bool:
        """Whether the port that went down belongs to a running host; the end of a host is reported by its member."""
        port = text.partition(":")[0]
        return all(host.alive for host in self.hosts.values() if port in host.nameToIntf)

    def host_facts(self) -> dict[str, Any]:
        """By host: its limits and TCP settings, read back from the kernel."""
        return {
            name: {
                "limits": vars(host.limits()),
                "tcp": {"congestion_control": self._congestion_control.get(name)}
                | {sysctl: netns.read_sysctl(host.pid, sysctl) for sysctl in TCP_SYSCTLS},
            }
            for name, host in self.hosts.items()
        }

    def pids(self) -> Pids:
        """The processes by which resource usage is attributed; only after `up`."""
        members = {host.name: self.hosts[host.name].pid for host in self.plan.topology.members}
        links: int | None = self.net.link_backend_facts().get("pid")
        return Pids(members, self.client_host.pid, links, os.getpid())

    def link_facts(self) -> LinkFacts:
        """The software that creates hosts and links, with versions, and the link emulator's own report at its start."""
        return LinkFacts(
            network=self.net.backend_name,
            network_version=self.net.backend_version,
            network_commit=self.net.backend_commit,
            docker_sdk=engine.SDK_VERSION,
            links=self.net.links_kind,
            switches=self.net.switches_kind,
            link_emulator=dict(self.net.link_backend_facts()) or None,
        )

    def logs(self) -> Iterator[tuple[str, str]]:
        """The last lines of every host's first process, by host, and of the link backend, if it is a program.

        If a log cannot be read, its text has the reason.
        """
        gone: EngineGoneError | None = None
        for name, host in self.hosts.items():
            try:
                if gone is not None:
                    raise gone
                yield name, host.logs(tail=LOG_LINES)
            except RunError as error:
                gone = error if isinstance(error, EngineGoneError) else gone
                yield name, f"(no log: {error})\n"
        if (said := self.net.link_backend_log()) is not None:
            yield "link-emulator", said


class Removable(Protocol):
    """A resource that is taken down as a whole; ``after_down`` returns its leftovers."""

    @property
    def after_down(self) -> str: ...

    def down(self) -> None: ...


def take_down(testbed: Removable, progress: Progress) -> None:
    """``down``, then reported as a stage: a terminal that is stopped must not keep containers up."""
    began = clock.monotonic()
    testbed.down()
    with progress.stage("tear-down", clock.monotonic() - began) as stage:
        stage.done(testbed.after_down)
