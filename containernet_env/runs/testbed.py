"""A running topology: hosts, links, the proofs of the network, the cluster, the benchmark server."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from containernet_env.base import clock
from containernet_env.base.clock import Moment
from containernet_env.base.errors import ReservedFiles, RunError, text_of
from containernet_env.base.files import root_of
from containernet_env.base.programs import last_words
from containernet_env.base.work import Stage, Stop
from containernet_env.config.plan import HostPlan, Plan
from containernet_env.config.planning import dilated
from containernet_env.containernet import engines
from containernet_env.containernet.testbed_network import TestbedNetwork
from containernet_env.hosts import disk, engine, netns
from containernet_env.hosts.container import BUDGET_S, measure_sync, put_secrets
from containernet_env.hosts.counters import Pids
from containernet_env.hosts.disk import Disks
from containernet_env.hosts.engine import EngineGoneError, EngineWatch
from containernet_env.hosts.http import NamespaceConnection, UnixConnection
from containernet_env.model.disruption import Targets
from containernet_env.model.findings import PAUSE_NS
from containernet_env.model.proof import Moment as GateMoment
from containernet_env.model.proof import NetworkProof, named
from containernet_env.model.scenario import Scenario
from containernet_env.model.usage import LATE_NS, Leadership, LinkStatistics, leader_words
from containernet_env.network.gate import Gate, measure_gate
from containernet_env.network.rtt import Tolerance
from containernet_env.results.capacity import capacity_of
from containernet_env.results.floor import Answered, Floor
from containernet_env.results.run_files import LinkFacts, Proof
from containernet_env.runs.disruptor import Faults
from containernet_env.runs.load import SERVER_ENTRY_POINT, SERVER_SOCKET, BenchmarkServer
from containernet_env.runs.progress import OnEvent, RunProgress
from containernet_env.runs.reuse import Change, all_fields
from containernet_env.runs.target import Loader, Target, take_down
from containernet_env.setup.images import Images
from containernet_env.stores.cluster import Broken, MemberPlace
from containernet_env.stores.store import GATE_SCRIPT, Trust

if TYPE_CHECKING:
    from containernet_env.containernet.docker import ContainerHost

ALL_BUDGET_S = 1.0
"""Time limit of measuring the fdatasync of all members together."""

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
        self._over = clock.Event()
        self._thread = clock.Thread(target=self._run, name="link-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop pinging; idempotent. A ping in progress ends by itself."""
        self._over.set()

    def settle(self) -> None:
        """Return once it answers, or has been given up: at once if nothing is wrong."""
        for _ in range(_PINGS + 1):
            began_s = clock.monotonic()
            if self._over.is_set() or self._answers(PING_S):
                return
            self._over.wait(began_s + PING_S - clock.monotonic())

    def _run(self) -> None:
        unanswered = 0
        while not self._over.is_set():
            began_s = clock.monotonic()
            unanswered = 0 if self._answers(PING_S) else unanswered + 1
            if unanswered == _PINGS and not self._over.is_set():
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


# How many times the network is measured if it seems wrong, and if the link emulator was paused meanwhile (for any
# reason, as after SIGSTOP), lost frames by itself or was late by itself: of an emulator that is stopped every four
# seconds, two in five gates are spoiled, so three in a row in one of 15 runs, ten in one of 9,000.
_PROOFS, _SPOILED_PROOFS = 3, 10
# After the last scenario members may still exchange pending data: maximum wait, and poll interval, until less than
# this share of any link is used.
_QUIET_S, _QUIET_LOOK_S, _QUIET_RATIO, _UNLIMITED_BPS = 3.0, 0.1, 0.02, 10**9
# Where something is wrong: how often its counters are compared at most, and in what intervals.
_CATCH_UP_LOOKS, _CATCH_UP_S = 10, 0.02


OnProof = Callable[[Proof], None]


class Testbed(Target):
    """Brings a plan up step by step, can be changed to another plan while it is up, and is taken down as a whole.

    `down` may be called at any time, also after an `up` that was cut short, and leaves nothing behind. Users of the
    testbed have to check `failure`: why no measurement is possible any more, None while everything is up.
    `on_event` receives events ("testbed_failed" with that reason, once, from another thread), `on_proof` each proof of
    the network, also a failed one; both are called by one thread at a time. `stop` is polled during waits.
    """

    net: TestbedNetwork

    def __init__(
        self,
        plan: Plan,
        images: Images,
        progress: RunProgress,
        *,
        tolerance: Tolerance | None = None,
        on_event: OnEvent,
        on_proof: OnProof = lambda proof: None,
        stop: Stop | None = None,
    ) -> None:
        super().__init__(plan, progress, on_event, stop or Stop())
        self._on_proof = on_proof
        self._listening = clock.Lock()
        self._last_proof: Proof | None = None
        self.images = {"member": images.member, "benchmark": images.benchmark}
        self.net = engines.create(self.plan)
        self.hosts_kind: str = self.net.hosts_kind
        self.links_kind: str = self.net.links_kind
        self.hosts: dict[str, ContainerHost] = {}
        self._servers: dict[str, BenchmarkServer] = {}
        self._trust: Trust | None = None
        self.gate_after: Gate | None = None
        self._tolerance = tolerance
        self._failed = clock.Event()
        self._during = "while the hosts started"
        self._failing = clock.Lock()
        self._links = LinkWatch(self.net.link_backend_answers, self.fail)
        self._engine_watch = EngineWatch(plan.run_id, lambda: len(self.hosts), self._on_engine_end)
        self._reserved = ReservedFiles()
        self._congestion_control: dict[str, str] = {}
        self._disks = Disks()
        self._follow_plan()
        self.net.on_event(self._on_network_event)

    def _follow_plan(self) -> None:
        plan = self.emulated
        self.leader_wanted, self.capacity = plan.config.etcd.leader, capacity_of(self.plan)
        measured_ns = {name: times.median_ns / plan.dilation for name, times in self.sync.items()}
        self._floor = Floor(plan.store, plan.topology, measured_ns | plan.fsyncs_ns)

    def _listen(self, on_event: OnEvent, on_proof: OnProof) -> None:
        """When this returns, the previous receivers get nothing more."""
        with self._listening:
            self.on_event, self._on_proof = on_event, on_proof

    def _event(self, kind: str, text: str) -> None:
        with self._listening:
            self.on_event(kind, text)

    def _keep_proof(self, proof: Proof) -> None:
        """Pass a proof of the network on; the last one is kept."""
        with self._listening:
            self._last_proof = proof
            self._on_proof(proof)

    @property
    def server_connection(self) -> UnixConnection:
        """The only route to the first client's benchmark server; once its host is up."""
        return self._connection_to(self.plan.config.clients[0].name)

    def _connection_to(self, client: str) -> UnixConnection:
        return UnixConnection(client, SERVER_SOCKET, self.hosts[client].pid)

    def loader(self, client: str | None) -> Loader:
        name = client or self.plan.config.clients[0].name
        return self.hosts[name], self._servers[name]

    @property
    def faults(self) -> Faults:
        targets = Targets.of(self.plan.config)
        return Faults(
            self.net, self.hosts, self.plan.links, targets, self._restart_member, self.fail, self.emulated.dilation
        )

    def _restart_member(self, name: str, ready: Callable[[], None], broken: Broken) -> int:
        """Restart a killed member; return the moment at which it was resumed.

        Before that, limits, links and neighbours are restored and read back, and ``ready`` is called. Waits until it
        answers, or ``broken`` returns a reason. Raises ``RunError``.
        """
        host, plan = self.hosts[name], next(plan for plan in self.plan.hosts if plan.name == name)
        host.restart()
        self._put_secrets(name)
        self._cover_data(plan)
        self._set_tcp([plan])
        ready()
        at_ns = clock.monotonic_ns()
        self.cluster.rejoin(self._place_of(name, str(plan.ip)), broken)
        return at_ns

    def least_median_s(
        self,
        scenario: Scenario,
        leader: str | None,
        living: Collection[str],
        answered: Mapping[str, Answered] | None = None,
    ) -> float | None:
        return self._floor.median_s(scenario, leader, living, answered)

    def up(self) -> None:
        """Bring everything up; raises RunError at the first deviation from the plan."""
        with self.causes_named():
            self._bring_up()
            self._check()

    @contextmanager
    def causes_named(self) -> Iterator[None]:
        try:
            with super().causes_named():
                yield
        except RunError as error:
            reason = self.why(error)
            if reason == str(error):
                raise
            raise RunError(reason) from error

    def _bring_up(self) -> None:
        with self.progress.stage("hosts") as stage:
            self._start_hosts()
            self._done(stage, "hosts_up", f"{len(self.hosts)} containers, limits read back")
        with self.progress.stage("network") as stage:
            self._during = "while the network was built"
            self._connect()
            self._during = "during the network's proof"
            self._done(stage, "network_proved", self._prove_network())
        with self.progress.stage("cluster") as stage:
            self._during = "while the cluster started"
            for host in self.plan.hosts:
                self._cover_data(host)
            self._measure_sync()
            self.led_at_start = self._start_cluster()
            text = f"{self.cluster.size} members, {leader_words(self.led_at_start)}, {self.emulated.timing.short}"
            self._done(stage, "cluster_up", text)
        self._reach_server()

    def _done(self, stage: Stage, kind: str, text: str) -> None:
        stage.done(text)
        self._event(kind, text)

    def down(self) -> None:
        self._reserved.release()
        self._links.close()
        problems = []
        gone: EngineGoneError | None = None
        for step in (*self._closing, self._disks.close, self._engine_watch.close, self.net.stop):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the next step runs after any error
                gone = error if isinstance(error, EngineGoneError) else gone
                problems.append(text_of(error))
        if gone is not None and len(problems) == 1:
            raise gone
        if problems:
            raise RunError("not everything could be removed:\n" + "\n".join(problems))

    def rest(self, loaded: bool) -> None:
        """Its run has ended, and it is kept for another one: no events are delivered until `turn_to`."""
        self.loaded = loaded
        self._listen(lambda kind, text, subject=None: None, lambda proof: None)

    def turn_to(self, plan: Plan, change: Change, progress: RunProgress, on_event: OnEvent, on_proof: OnProof) -> None:
        """Change it to the testbed of another plan; see ``reuse.change_between``.

        Changes are read back, and changed links are proved. Without changes, the proof after the last scenario is also
        the one before the next: the network was not modified in between. Raises RunError if anything deviates from the
        plan; only `down` is possible then.
        """
        self._listen(on_event, on_proof)
        self.emulated, self.plan, self.progress = plan, dilated(plan), progress
        self._follow_plan()
        self._during = "while it stood between two runs"
        with self.causes_named():
            self._check()
            self._change_hosts(change)
            self._change_network(change)
            self.cluster.waits = self.plan.waits
            self.led_at_start = self.cluster.leadership()
            if self.led_at_start is None:
                raise RunError("the members that stand have no leader")
            self._check()
        self._during = "before the first scenario"
        self.reused = change.reused

    def _change_hosts(self, change: Change) -> None:
        if change.limits:
            with self.progress.stage("hosts") as stage:
                for host in change.limits:
                    self.hosts[host.name].limit_cpu(host.cpu_quota_us, host.cpu_period_us)
                self._done(stage, "limits_changed", f"CPU limits of {len(change.limits)} hosts, read back")

    def _change_network(self, change: Change) -> None:
        with self.progress.stage("network") as stage:
            if change.links:
                for link in change.links:
                    self.net.link_between(link.a, link.b).change_directions(all_fields(link.spec))
                self._route()
                for host in self.hosts.values():
                    netns.forget_paths(host.pid)
                self._event("links_changed", f"{len(change.links)} links, read back")
                text = self._prove_network("change")
            else:
                self.gate, proof = self.gate_after, self._last_proof
                if self.gate is None or proof is None:
                    raise RunError("the network was not proved after the last scenario")
                self._keep_proof(proof.model_copy(update={"moment": "before"}))
                text = self._proved_text(self.gate)
            self._done(stage, "network_proved", text)

    @property
    def why_unfit(self) -> str | None:
        """Why no further measurement should run on it after its last scenario; ``None`` if there is no reason."""
        if reason := self.gone() or "; ".join(self.cluster.deaths().values()):
            return reason
        proof = self.gate_after.proof if self.gate_after is not None else None
        is_proved = proof is not None and proof.passed and proof.doubt is None
        return None if is_proved else "its network was not proved after the last scenario"

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
            self.stop.check()

    def _connect(self) -> None:
        self._links.start()
        for switch in self.plan.switches:
            self.net.add_switch(switch)
        for link in self.plan.links:
            self.net.add_link(link.a, link.b, link.spec)
        self._route()
        self.net.start()
        self.net.staticArp()
        self._set_tcp(self.plan.hosts)

    def _route(self) -> None:
        topology = self.plan.topology
        if topology.has_loop:
            self.net.set_routes(topology.routes(), topology.routes if topology.reroutes else None)

    def _set_tcp(self, plans: Sequence[HostPlan]) -> None:
        """Set the configured TCP of these hosts, and check that their connections use it."""
        subnet = str(self.plan.config.subnet)
        for plan in plans:
            host = self.hosts[plan.name]
            interface = host.defaultIntf().name
            algorithm, rto_min_ms = plan.tcp_congestion_control, plan.tcp_rto_min_ms
            netns.set_congestion_control(host.pid, interface, plan.ip, subnet, algorithm, rto_min_ms)
        for plan in plans:
            peer = next(other for other in self.plan.hosts if other is not plan)
            held = netns.congestion_control_towards(self.hosts[plan.name].pid, peer.ip)
            if held != plan.tcp_congestion_control:
                raise RunError(f"{plan.name}: TCP congestion control is {held}, not {plan.tcp_congestion_control}")
            self._congestion_control[plan.name] = held

    def _broken(self, names: Collection[str] | None = None) -> str | None:
        """Why a wait cannot succeed, see ``gone``. Raises ``Interrupted`` if a stop was requested."""
        self.stop.check()
        return self.gone(names)

    def why(self, error: RunError) -> str:
        """Why a step has failed: a lost network or an ended host takes precedence as the cause of any other error."""
        self._links.settle()
        reason = self.gone()
        if reason is None:  # the namespaces of a process that ends go before it
            self._failed.wait(_NEWS_S)
            reason = self.gone()
        return reason or str(error)

    def gone(self, names: Collection[str] | None = None) -> str | None:
        """The failure of the run, or which of all hosts, or of these, have ended during the bring-up, and how."""
        ended = []
        for plan in () if self.failure else self.plan.hosts:
            if plan.name in (self.hosts if names is None else names):
                loads = plan.role == "benchmark"
                words = last_words if loads else self.plan.store.members.last_words
                if (ending := self.hosts[plan.name].ending(words)) is not None:
                    is_only = loads and len(self.plan.config.clients) == 1
                    ended.append(f"{'the benchmark host' if is_only else plan.name} ended {self._during}: {ending}")
        return self.failure or "; ".join(ended) or None

    def _check(self) -> None:
        if (reason := self.gone()) is not None:
            raise RunError(reason)

    def _prove_network(self, moment: GateMoment = "before") -> str:
        """Prove a network that has just been built, or changed; returns how. Raises ``RunError`` if it is wrong.

        Where it was changed, the members run and send: see ``prove_again``.
        """
        busy = self._wait_until_quiet() if moment == "change" else None
        gate = self._measured_gate(moment, list(self.hosts), busy)
        if gate.proof.doubt is not None:
            raise RunError(f"the network cannot be proved: {gate.proof.doubt}")
        if not gate.proof.passed:
            wrong = named(gate.proof.of("wrong"))
            raise RunError(f"the network is not the one that was configured: {wrong}\n{gate.proof.render()}")
        if unproved := gate.proof.of("unproved"):
            self.progress.note(f"not proved: {named(unproved, reasons=True)}")
        self.gate = gate
        return self._proved_text(gate)

    def _proved_text(self, gate: Gate) -> str:
        return f"links by {self.net.link_backend}; {proved_text(gate.proof)}"

    def prove_again(self) -> NetworkProof:
        """Measure the network after the last scenario, between the living hosts; its deviations are no error here.

        The members still run and send: it waits until little is sent, and if that does not happen, deviations are
        reported as unproved. Raises ``RunError`` if it cannot be measured.
        """
        self._during = "while the network was measured again"
        self.gate_after = None
        with self.progress.stage("network") as stage:
            living = [name for name, host in self.hosts.items() if host.alive]
            gate = self.gate_after = self._measured_gate("after", living, self._wait_until_quiet())
            stage.done(f"{proved_text(gate.proof)} again")
        return gate.proof

    def _measured_gate(self, moment: GateMoment, hosts: Sequence[str], busy: str | None) -> Gate:
        """A gate whose samples are the network's own: repeated if other causes spoilt them.

        Other programs on a machine of few cores occasionally slow down a train, which looks like a lower rate. So a
        deviation that only one gate has seen does not count: a wrong network is wrong again.
        """
        suspected: set[tuple[str, str]] = set()
        left = {True: _SPOILED_PROOFS, False: _PROOFS}  # of those that were spoiled, and of others
        while all(left.values()):
            gate = self._measure_gate(moment, hosts, busy)
            spoiled = gate.spoiled or (None if gate.proof.passed else self._own_fault(gate))
            left[spoiled is not None] -= 1
            if spoiled is None:
                wrong = gate.proof.of("wrong")
                seen = {(check.subject, check.kind) for check in wrong}
                if not wrong or seen & suspected:
                    return gate
                suspected |= seen
                spoiled = f"seemingly wrong: {named(wrong)}"
            if all(left.values()):
                self.progress.note(f"{spoiled}: it is proved anew")
        seems = f"; {gate.proof.text}" if not gate.proof.passed else ""
        times = _PROOFS + _SPOILED_PROOFS - sum(left.values())
        raise RunError(f"{spoiled}, the last of {times} times: something else keeps this machine busy{seems}")

    def _measure_gate(self, moment: GateMoment, hosts: Sequence[str], busy: str | None) -> Gate:
        try:
            if moment == "before":
                self._check_emulator()
            self.net.link_statistics(reset=True)
            gate = measure_gate(
                self.emulated.topology,
                {name: self.hosts[name].pid for name in hosts},
                links=self.net.links_kind,
                moment=moment,
                tolerance=self._tolerance,
                hosts=hosts,
                broken=lambda: self._broken(hosts),
                dilation=self.emulated.dilation,
            )
            if (reason := self._broken(hosts)) is not None:
                raise RunError(reason)
        except RunError as error:
            self._keep_proof(_proof(moment, [str(error) if moment == "after" else self.why(error)]))
            raise
        if busy is not None:
            gate = replace(gate, proof=gate.proof.doubted(busy))
        wrong, unproved = ([check.line for check in gate.proof.of(verdict)] for verdict in ("wrong", "unproved"))
        self._keep_proof(_proof(moment, wrong, unproved, gate.to_json()))
        return gate

    def _check_emulator(self) -> None:
        """Raise RunError if the emulator's own test at its start has failed: no link of it can be trusted."""
        hello = self.net.link_backend_facts()
        if not hello:
            return
        if not hello["self_test"]["passed"]:
            reason = hello["self_test"]["reason"]
            raise RunError(f"the link emulator does not keep its times on this machine: {reason}")
        for fact, wanted, otherwise in (
            ("realtime", True, "the link emulator got no real-time priority"),
            ("kept_awake", True, "processors may fall into deep sleep and wake late"),
            ("stamps", "kernel", "the kernel does not stamp frames, so they count as come when they are read"),
        ):
            if hello[fact] != wanted:
                self.progress.note(f"{otherwise}: {hello[f'{fact}_reason']}")

    def _wait_until_quiet(self) -> str | None:
        """Wait until the hosts send little; returns how much they still send if that does not happen."""
        rates = {
            link.name: (link.spec.a_to_b.rate_bps or _UNLIMITED_BPS, link.spec.b_to_a.rate_bps or _UNLIMITED_BPS)
            for link in self.plan.topology.links
        }
        until = clock.monotonic() + _QUIET_S
        while True:
            before = LinkStatistics(self.net.link_statistics())
            clock.sleep(_QUIET_LOOK_S)
            share, name = LinkStatistics(self.net.link_statistics()).busiest_since(before, rates)
            if share <= _QUIET_RATIO:
                return None
            if clock.monotonic() > until:
                return f"the hosts still filled {share:.0%} of {name}"
            self.stop.check()

    def _own_fault(self, gate: Gate) -> str | None:
        """Events that the link emulator itself counted since its counters were reset, and that no link explains.

        Overfilled queues are measured last: frames that the emulator delivers later than the margin come after the end.
        """
        seen = self._once_caught_up()
        late_ns, often_late_ns = seen.lateness_ns("max") or 0, seen.lateness_ns("p99") or 0
        if late_ns > PAUSE_NS:
            return f"the link emulator was paused for {late_ns / 1e9:.1f} s while the network was proved"
        for _, _, text in seen.own_losses():
            return f"{text}, while the network was proved"
        if late_ns > gate.margin_ns and all(check.kind in ("queue", "aqm") for check in gate.proof.of("wrong")):
            often_late_ns = late_ns
        if often_late_ns > LATE_NS:
            return f"the link emulator was late by {often_late_ns / 1e6:.1f} ms while the network was proved"
        return None

    def _once_caught_up(self) -> LinkStatistics:
        """What the emulator has counted once it has handled the frames that waited for it, as after a pause."""
        seen = LinkStatistics(self.net.link_statistics())
        for _ in range(_CATCH_UP_LOOKS):
            clock.sleep(_CATCH_UP_S)
            before, seen = seen, LinkStatistics(self.net.link_statistics())
            if seen.values.get("links") == before.values.get("links"):
                break
        return seen

    def _cover_data(self, host: HostPlan) -> None:
        """Let an fsync on a host's data take as long as it is configured to, before a store opens a file there."""
        if host.fsync_ns is not None:
            long_ns = PAUSE_NS * self.plan.dilation
            self._disks.cover(host.name, self.hosts[host.name].pid, host.data, host.fsync_ns, long_ns)

    def _measure_sync(self) -> None:
        """Measure one member after the other, while no other process writes; some may not allow it."""
        members = [host for host in self.plan.hosts if host.data]
        for host in members:
            self._check()
            try:
                root, budget_s = root_of(self.hosts[host.name].pid), min(BUDGET_S, ALL_BUDGET_S / len(members))
                self.sync[host.name] = measure_sync(root, host.data[0], budget_s)
            except RunError as error:
                self._check()
                if host.fsync_ns is not None:
                    raise
                self.progress.note(f"{host.name}: {error}; writes have no floor")
            else:
                median_ns = self.sync[host.name].median_ns // self.plan.dilation
                disk.check(host.name, median_ns, self.emulated.fsyncs_ns.get(host.name))
        self._follow_plan()

    def _start_cluster(self) -> Leadership:
        self._trust = self.plan.store.trust(self.plan.config)
        for name in self.hosts:
            self._put_secrets(name)
        places = [self._place_of(host.name, str(host.ip)) for host in self.plan.topology.members]
        cluster = self.plan.store.cluster(places)
        self._closing.append(cluster.close)
        self.cluster, cluster.waits = cluster, self.plan.waits
        return cluster.start(self._broken)

    def _place_of(self, name: str, ip: str) -> MemberPlace:
        host, context = self.hosts[name], self._trust.context if self._trust else None
        return MemberPlace(host, ip, NamespaceConnection(host.pid, name, context))

    def _put_secrets(self, name: str) -> None:
        """Give a newly started host its certificates, if there are any."""
        if self._trust is not None and (files := self._trust.files.get(name)):
            put_secrets(root_of(self.hosts[name].pid), name, files)

    def _reach_server(self) -> None:
        self._during = "before the first scenario"
        common = self._trust.request if self._trust else {}
        for client in self.plan.config.clients:
            self._servers[client.name] = BenchmarkServer(self._connection_to(client.name), common)
        for server in self._servers.values():
            server.wait_ready(SERVER_TIMEOUT_S, self._broken)

    def _on_engine_end(self, state: str) -> None:
        names = ", ".join(name for name, host in list(self.hosts.items()) if host.alive)
        self.fail(str(EngineGoneError(state, f"its containers {names} may still run" if names else "")))

    def _on_network_event(self, kind: str, text: str) -> None:
        """Record why the network is gone; on the thread that receives the event."""
        if kind == "emulator_died":
            self.fail(text, (kind, text))
        elif kind == "port_down" and self._is_of_living_host(text):
            self.fail(f"the network lost a host that lives: {text}", (kind, text))
        else:
            self._event(kind, text)

    def fail(self, reason: str, cause: tuple[str, str] | None = None) -> None:
        """Record why no measurement is possible any more, and the event that caused it; the first reason counts.

        Thread-safe.
        """
        with self._failing:
            if is_first := not self._failed.is_set():
                self.failure = reason
                self._failed.set()
                self._links.close()  # ends all waits for it
        if cause is not None:  # not before: it may take time
            self._event(*cause)
        if is_first:
            self._event("testbed_failed", reason)

    def settled_failure(self) -> str | None:
        self._links.settle()
        self._failed.wait(_NEWS_S)
        if (ended := self._disks.failure()) is not None:
            self.fail(ended)
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
        members = {host.name: self.hosts[host.name].pid for host in self.plan.topology.members}
        links: int | None = self.net.link_backend_facts().get("pid")
        clients = {client.name: self.hosts[client.name].pid for client in self.plan.config.clients}
        client, *others = clients.values()
        if not others:
            return Pids(members, client, links, os.getpid(), disks=self._disks)
        return Pids(members, None, links, os.getpid(), clients, self._disks)

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
        """Also of the link backend, if it is a program."""
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


def proved_text(proof: NetworkProof) -> str:
    """How much of a network is proved."""
    return f"{len(proof.of('proved'))} of {len(proof.checks)} properties proved"


def _proof(
    moment: GateMoment, problems: list[str], unproved: Sequence[str] = (), found: Mapping[str, Any] | None = None
) -> Proof:
    """A proof made now; it has failed if there are problems."""
    now = Moment.now()
    return Proof(
        at=now.at,
        at_ns=now.at_ns,
        moment=moment,
        passed=not problems,
        problems=problems,
        unproved=list(unproved),
        **(found or {"pairs": []}),
    )


class Standing:
    """Holds the testbed that a run has kept, if any; its creator closes it, whatever happens.

    ``is_wanted``: whether the current run is to keep its testbed, since the next one can use it.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        self._testbed: Testbed | None = None

    def leave(self, testbed: Testbed, loaded: bool) -> None:
        """Hold it until `take`. ``loaded``: whether its store holds the data set of the plan."""
        testbed.rest(loaded)
        self._testbed = testbed

    def take(self) -> Testbed | None:
        """Return the testbed; the caller owns it from here on."""
        testbed, self._testbed = self._testbed, None
        return testbed

    def close(self, progress: RunProgress, stop: Stop) -> None:
        """Take down the kept testbed; idempotent, and not interrupted. Raises ``RunError`` for leftovers."""
        if (testbed := self.take()) is not None:
            stop.shield()
            try:
                take_down(testbed, progress)
            finally:
                stop.unshield()
