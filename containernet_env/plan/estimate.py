"""A rough estimate of how long a scenario takes, for dry runs and deadlines, never for results.

A closed loop of ``clients`` is bounded by the latency of one request, by CPU time and by the links; the
slowest of the three decides. An open loop, or any load with a duration, takes the time of its schedule.
Latency follows from the RTTs: a put takes the client's RTT to the member that gets it, that member's RTT to the
leader if it is another one, and the leader's RTT to the nearest majority. The costs below were measured on
one two-core machine (etcd 3.7) and are meant to be right within a factor of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from statistics import fmean

from containernet_env.model.scenario import Scenario
from containernet_env.model.search import Saturation
from containernet_env.model.topology import Topology, has_jitter

# CPU seconds of one request: the client's share, and the share of each member that takes part.
CLIENT_CPU_S = 0.06e-3
MEMBER_PUT_CPU_S = 0.08e-3
MEMBER_RANGE_CPU_S = 0.08e-3
# Each key of an answer beyond the first, its value of 256 bytes included: 2.3 to 2.7 us and 0.2 to 0.4 us were measured
# for 100 and 1000 keys.
MEMBER_KEY_CPU_S = 2.5e-6
CLIENT_KEY_CPU_S = 0.3e-6
# Per put: the log is synced on the leader and on a follower at the same time.
SYNC_S = 2e-3
# Per request, beside the RTTs: system calls and scheduling on every hop.
SERVICE_S = 0.5e-3
# Bytes around key and value in a request, a reply or a replicated entry: gRPC, HTTP/2, TCP, IP and Ethernet.
FRAMING_BYTES = 150
# Around each key and value of an answer: revisions, version and lengths in etcd's encoding.
KEY_BYTES = 20
# Around every scenario: opening connections, finding the leader, writing the row.
SCENARIO_S = 0.5
# Around the run: containers, RTT measurement, the benchmark server, tear-down.
RUN_S = 5.0
HOST_S = 0.5


class Estimator:
    """Estimates for one topology with the given limits.

    ``member_cpus`` are the members' limits in topology order (``None`` is unlimited); ``machine_cores`` is
    shared by all hosts; ``leader`` is the only possible leader, ``None`` for any.
    """

    def __init__(
        self,
        topology: Topology,
        member_cpus: Sequence[Decimal | None],
        machine_cores: int,
        leader: str | None = None,
    ) -> None:
        self._members = [member.name for member in topology.members]
        self._leaders = self._members if leader is None else [leader]
        (self._client,) = (host.name for host in topology.hosts if host.role == "benchmark")
        self._rtt_s = {
            (a, b): topology.expected_rtt_ns(a, b) / 1e9 for a in (*self._members, self._client) for b in self._members
        }
        self._jitter = has_jitter(topology)
        self._cores = machine_cores
        self._least_cpus = min(float(cpus) if cpus is not None else machine_cores for cpus in member_cpus)
        rates = [
            direction.rate_bps
            for member in self._members
            for direction in topology.path(member, self._client)[:1]
            if direction.rate_bps is not None
        ]
        self._least_rate_bps = min(rates, default=None)

    @property
    def fastest_leader(self) -> str:
        """The possible leader that answers a write soonest, by the RTTs alone; the first of equals."""
        return min(self._leaders, key=lambda leader: self._rtt_s[self._client, leader] + self._quorum_s(leader))

    def scenario_s(self, scenario: Scenario) -> float:
        """Seconds for one scenario, its own overhead and warm-up included; for a search, of all its probes."""
        per_request_s = max(self.latency_s(scenario) / scenario.clients, self._cpu_s(scenario), self._links_s(scenario))
        if scenario.search is not None:
            return sum(self.scenario_s(probe) for probe in _probes(scenario, 1 / per_request_s))
        measured_s = scenario.scheduled_s or 0.0
        if scenario.total is not None:
            # A rate above the cluster's maximum does not make it faster.
            measured_s = max(measured_s, scenario.total * per_request_s)
        warmup_s = scenario.warmup_s
        if warmup_s is None:
            warmup_s = scenario.warmup.requests * per_request_s
        return SCENARIO_S + warmup_s + measured_s

    def around_s(self, settle_s: float) -> float:
        """Seconds of bring-up and tear-down; ``settle_s`` is the store's longest time to elect a leader."""
        return RUN_S + HOST_S * (len(self._members) + 1) + settle_s

    def latency_s(self, scenario: Scenario) -> float:
        """Seconds of one request alone: the mean over possible leaders, targets and a mixed load's operations."""
        led = [
            (self._rtt_s[self._client, member] + self._rtt_s[member, leader], self._quorum_s(leader))
            for leader in self._leaders
            for member in ([leader] if scenario.target == "leader" else self._targets(scenario))
        ]
        agreed_s = fmean(to_leader_s + quorum_s for to_leader_s, quorum_s in led)
        range_s = agreed_s
        if scenario.consistency == "default":
            range_s = fmean(to_leader_s for to_leader_s, _ in led)
        if scenario.consistency == "s":
            range_s = fmean(self._rtt_s[self._client, member] for member in self._targets(scenario))
        return SERVICE_S + _mean(scenario, agreed_s + SYNC_S, range_s)

    def least_latency_s(self, scenario: Scenario) -> float:
        """A lower bound of the latency in seconds: the RTTs alone, to the nearest member that requests may go to.

        0 where links have jitter, by which a frame may be faster than its link's delay.
        """
        if self._jitter:
            return 0.0
        targets = self._leaders if scenario.target == "leader" else self._targets(scenario)
        if scenario.consistency == "s":
            return min(self._rtt_s[self._client, one] for one in targets)
        alone = scenario.consistency == "default"
        return min(
            self._rtt_s[self._client, one] + self._rtt_s[one, leader] + (0.0 if alone else self._quorum_s(leader))
            for leader in self._leaders
            for one in ([leader] if scenario.target == "leader" else targets)
        )

    def _targets(self, scenario: Scenario) -> list[str]:
        """The members that a scenario's requests may go to."""
        return self._members if scenario.member is None else [scenario.member]

    def _quorum_s(self, leader: str) -> float:
        """RTT to the follower that completes the majority; 0 for a single member."""
        followers = sorted(self._rtt_s[leader, member] for member in self._members if member != leader)
        needed = len(self._members) // 2
        return followers[needed - 1] if needed else 0.0

    def _cpu_s(self, scenario: Scenario) -> float:
        more_keys = max(0, scenario.keys_answered - 1)
        member_range_s = MEMBER_RANGE_CPU_S + more_keys * MEMBER_KEY_CPU_S
        client_s = CLIENT_CPU_S + _mean(scenario, 0, more_keys * CLIENT_KEY_CPU_S)
        members_s = _mean(scenario, len(self._members) * MEMBER_PUT_CPU_S, member_range_s)
        # Reads are spread over the members that they go to; every member takes part in every write.
        alone_s = _mean(scenario, MEMBER_PUT_CPU_S, member_range_s / self._spread(scenario)) / self._least_cpus
        return max((client_s + members_s) / self._cores, alone_s)

    def _links_s(self, scenario: Scenario) -> float:
        return 0.0 if self._least_rate_bps is None else 8 * self.sent_bytes(scenario) / self._least_rate_bps

    def sent_bytes(self, scenario: Scenario) -> float:
        """Bytes per request sent by the member that sends most."""
        key_bytes = len(scenario.key_prefix) + scenario.key_size
        put_bytes = key_bytes + scenario.val_size + FRAMING_BYTES
        value_bytes = scenario.val_size if scenario.span.answer == "values" else 0
        range_bytes = scenario.keys_answered * (key_bytes + value_bytes + KEY_BYTES) + FRAMING_BYTES
        # A leader sends every write to each follower; the members share the answers to reads.
        puts = max(1, len(self._members) - 1) * put_bytes
        return _mean(scenario, puts, range_bytes / self._spread(scenario))

    def _spread(self, scenario: Scenario) -> int:
        """How many members share the reads."""
        return 1 if scenario.target == "leader" else len(self._targets(scenario))


def _probes(scenario: Scenario, capacity_per_s: float) -> Iterator[Scenario]:
    """The probes of a search on a store with a constant capacity in requests/s."""
    assert scenario.search is not None
    course = Saturation(scenario.search, scenario.arrival == "poisson")
    while (step := course.next) is not None:
        yield scenario.probe(step.rate)
        course.record("held" if step.rate <= capacity_per_s else "missed")


def _mean(scenario: Scenario, of_put: float, of_range: float) -> float:
    """A quantity of one request, by the share of the puts."""
    put_ratio = float(not scenario.reads) if scenario.put_ratio is None else float(scenario.put_ratio)
    return put_ratio * of_put + (1 - put_ratio) * of_range
