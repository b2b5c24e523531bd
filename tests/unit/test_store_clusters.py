"""Clusters of etcd, Consul, the replicas, behind proxies and of ZooKeeper: who leads or serves, what keys hold, and
what members count.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted, RunError
from containernet_env.base.http import NoAnswerError
from containernet_env.base.programs import read_program
from containernet_env.model.config import StoreChoice
from containernet_env.model.findings import store_findings
from containernet_env.model.usage import Durations, Leadership, MemberActivity, StoreActivity
from containernet_env.stores import cluster, consul, etcd
from containernet_env.stores.cluster import (
    Counters,
    LeaderlessCluster,
    LogPart,
    MemberPlace,
    MemberStatus,
    Observation,
    Waits,
    Written,
    samples,
)
from containernet_env.stores.etcd import EtcdCluster, EtcdMember
from containernet_env.stores.profiling import Profiling
from containernet_env.stores.proxied import CetcdMember, ProxiedCluster
from containernet_env.stores.replicas import Replicas, sources_hash
from containernet_env.stores.zookeeper import ZooKeeperCluster, ZooKeeperMember, parse_mntr, parse_srvr, path_of, query
from tests.simulated_time import START_NS, World, simulated
from tests.unit import fake_servers
from tests.unit.fake_servers import ConsulCluster, FakeHost, Network, Scripted, Service, buffer, places_of, services
from tests.unit.test_store_logs import ETCD as LOG

RECORDED = Path(__file__).resolve().parents[1] / "recorded"


class FakeMembers:
    """Members' own views by number: (member id, leader id, term); None and those left out do not answer."""

    def __init__(self) -> None:
        self.views: dict[int, tuple[int, int, int] | None] = {}
        self.moved: list[tuple[int, str]] = []
        self.refuses = 0
        self.serving_peers: set[int] = set()

    def move(self, number: int, target: str) -> None:
        """The leader hands over: all that answer know the new one, a term later."""
        if self.refuses:
            self.refuses -= 1
            raise NoAnswerError("etcdserver: request timed out, leader transfer took too long")
        self.moved.append((number, target))
        for other, view in self.views.items():
            if view is not None:
                self.views[other] = (view[0], int(target), view[2] + 1)


@dataclass
class FakeConnection:
    """Answers in place of one member's gateway."""

    members: FakeMembers
    number: int

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        view = self.members.views.get(self.number)
        if path == "/members" and self.number in self.members.serving_peers:
            return {}
        if view is None:
            raise NoAnswerError("refused")
        if path == "/v3/kv/range":
            return {}
        member, leader, term = view
        if path == "/v3/maintenance/transfer-leadership":
            assert member == leader
            self.members.move(self.number, body["targetID"])
            return {}
        found = {"leader": str(leader), "raftTerm": str(term), "version": "3.7.3"}
        return {"header": {"member_id": str(member)}, **found}


@pytest.fixture
def members() -> FakeMembers:
    return FakeMembers()


def cluster_of(members: FakeMembers, count: int = 3) -> tuple[EtcdCluster, list[FakeHost]]:
    places = places_of("etcd", (FakeConnection(members, number) for number in range(1, count + 1)))
    hosts: list[Any] = [place.host for place in places]
    return EtcdCluster([EtcdMember(place) for place in places]), hosts


@simulated()
def test_the_leader_is_who_a_quorum_names_in_the_newest_term(members: FakeMembers) -> None:
    cluster, hosts = cluster_of(members)
    views: list[tuple[dict[int, tuple[int, int, int] | None], Leadership | None]] = [
        ({i: (100 + i, 102, 2) for i in (1, 2, 3)}, Leadership("etcd2", 2)),
        # One silent member leaves a leader, and one that all agree on is not found.
        ({1: (101, 101, 2), 2: (102, 101, 2), 3: None}, Leadership("etcd1", 2)),
        # A view of an older term does not count.
        ({1: (101, 101, 2), 2: (102, 102, 3), 3: (103, 102, 3)}, Leadership("etcd2", 3)),
        ({i: (100 + i, 0, 2) for i in (1, 2, 3)}, None),
    ]
    for members.views, leadership in views:
        assert cluster.leadership() == leadership and cluster.version() == "3.7.3"
        if None in members.views.values():
            with pytest.raises(RunError, match=r"etcd1 could not be made the leader within 0.2 s: no leader that all"):
                cluster.move_leader("etcd1", timeout_s=0.2)
    # Members that answer name the present leader, and frozen ones are not queried.
    members.views = {1: (101, 101, 2), 2: (102, 102, 3), 3: None}
    assert cluster.leader_now(1.0, ()) == "etcd2"
    assert cluster.leader_now(1.0, {"etcd2"}) == "etcd1"
    members.views = {1: (101, 0, 4), 2: (102, 101, 3), 3: None}
    assert cluster.leader_now(1.0, ()) is None
    hosts[0].ended = "exit status 1"
    members.views = {1: (101, 101, 3), 2: (102, 101, 3), 3: (103, 101, 3)}
    assert cluster.leader_now(1.0, ()) is None, "a dead member does not lead"


@simulated()
def test_leadership_is_handed_over_by_the_leader_which_is_queried_until_the_deadline(members: FakeMembers) -> None:
    cluster, hosts = cluster_of(members)
    members.views = {i: (100 + i, 101, 2) for i in (1, 2, 3)}
    assert cluster.move_leader("etcd1", timeout_s=5) == Leadership("etcd1", 2)
    assert members.moved == []
    assert cluster.move_leader("etcd3", timeout_s=5) == Leadership("etcd3", 3)
    assert members.moved == [(1, "103")]
    members.refuses = 2
    assert cluster.move_leader("etcd2", timeout_s=5) == Leadership("etcd2", 4)
    members.refuses = 1000
    with pytest.raises(RunError, match=r"etcd1 could .* within 0.3 s: etcd2 did not hand over: etcdserver: request t"):
        cluster.move_leader("etcd1", timeout_s=0.3)
    members.refuses, members.views[3], hosts[2].ended = 0, None, "killed by SIGKILL"
    with pytest.raises(RunError, match=r"^etcd3 could not be made the leader: etcd3 ended: killed by SIGKILL$"):
        cluster.move_leader("etcd3", timeout_s=60)
    # The living agree without it.
    assert cluster.move_leader("etcd1", timeout_s=5).leader == "etcd1"
    with pytest.raises(RunError, match="the link emulator ended"):
        cluster.move_leader("etcd2", timeout_s=60, broken=lambda: "the link emulator ended")


FATAL = (
    '2026-11-22T02:18:19.63Z\tfatal\tbackend/batch_tx.go:282\tfailed to commit tx\t{"error": "no space left"}\n'
    "go.etcd.io/etcd/server/v3/storage/backend.(*batchTx).commit\n"
)


@simulated()
def test_a_member_has_caught_up_when_it_answers_a_consistent_read(members: FakeMembers, world: World) -> None:
    cluster, _ = cluster_of(members)
    members.views = {1: (101, 101, 2), 2: None, 3: (103, 101, 2)}
    began_ns = world.now_ns
    assert cluster.behind(timeout_s=60) == ["etcd2"] and world.now_ns - began_ns >= 60e9
    began_ns = world.now_ns
    assert cluster.behind(60, lambda name: name == "etcd2") == ["etcd2"] and world.now_ns == began_ns
    catching_up = clock.Thread(target=lambda: (clock.sleep(30), members.views.update({2: (102, 101, 2)})))
    catching_up.start()
    assert cluster.behind(timeout_s=60) == [] and 30e9 <= world.now_ns - began_ns < 31e9
    catching_up.join()


@simulated()
def test_a_stop_while_members_catch_up_waits_for_none_of_them(members: FakeMembers, world: World) -> None:
    """The program ended only when their time was over."""
    cluster, _ = cluster_of(members)
    members.views = {1: (101, 101, 2), 2: None, 3: None}
    began_ns = world.now_ns

    def stopped(name: str) -> bool:
        if name == "etcd2":
            raise Interrupted(2)
        return False

    with pytest.raises(Interrupted):
        cluster.behind(60, stopped)
    cluster._pool.shutdown(wait=True)
    assert world.now_ns - began_ns < 1e9


@simulated()
def test_a_death_says_who_how_and_why(members: FakeMembers, world: World) -> None:
    cluster, hosts = cluster_of(members)
    hosts[1].ended = "OOM-killed (memory limit 64 MiB)"
    assert cluster.deaths() == {"etcd2": "etcd2 ended: OOM-killed (memory limit 64 MiB)"}
    members.views = {1: (101, 101, 2), 3: (103, 101, 2)}
    assert cluster.has_quorum() and cluster.answers(timeout_s=5)
    members.views[3] = None
    assert not cluster.answers(timeout_s=0.2), "every living member does"
    hosts[0].ended, hosts[0].log = "exit status 1", FATAL
    assert cluster.deaths()["etcd1"] == "etcd1 ended: exit status 1: failed to commit tx: no space left"
    assert cluster.endpoints == {"etcd3": "10.0.0.3:2379"}
    asked_ns = world.now_ns
    assert not cluster.has_quorum() and not cluster.answers(timeout_s=60) and world.now_ns == asked_ns


@simulated()
def test_why_a_cluster_does_not_start(members: FakeMembers, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    def start(start_s: float, **ended: str) -> str:
        cluster, hosts = cluster_of(members)
        vars(hosts[0]).update(ended)
        cluster.waits = Waits(start_s=start_s)
        with pytest.raises(RunError) as raised:
            cluster.start()
        return str(raised.value)

    killed: Any = {"pid": 4194304, "ended": "killed by SIGKILL"}  # above the kernel's largest pid
    assert start(30, **killed) == "the cluster did not start: etcd1 ended: killed by SIGKILL"
    assert world.now_ns == START_NS, "its gate is not waited for"
    monkeypatch.setattr(EtcdMember, "start", lambda self, deadline: None)
    found = start(30, ended="exit status 2", log="flag provided but not defined: -x\nUsage:\n")
    assert found.endswith("etcd1 ended: exit status 2: flag provided but not defined: -x")
    members.views = {1: (101, 0, 1), 2: (102, 0, 1), 3: None}
    assert "not ready after 0.2 s: no answer from etcd3; last" in start(0.2)
    # Members serve clients once they know a leader, and peers before: the log said that there was one.
    members.views, members.serving_peers = {}, {1, 2}
    waiting = "no leader yet: etcd1, etcd2 started and waiting for one; last lines of etcd3:"
    assert f"0.2 s: no answer from etcd3; {waiting}" in start(0.2)


@simulated()
def test_the_first_that_all_query_answers_before_others(members: FakeMembers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers are queried in the order of their URLs as text: 10.0.0.10 before 10.0.0.2."""
    hosts = [FakeHost(f"etcd{i}", pid=i) for i in (2, 10, 11)]
    places = [MemberPlace(host, f"10.0.0.{host.pid}", FakeConnection(members, host.pid)) for host in hosts]
    cluster, steps = EtcdCluster([EtcdMember(place) for place in places]), list[str]()
    members.views = {i: (100 + i, 102, 2) for i in (2, 10, 11)}

    def serves(self: EtcdMember, timeout_s: float) -> bool:
        steps.append(f"ask {self.name}")
        return len(steps) > 3

    monkeypatch.setattr(EtcdMember, "start", lambda self, deadline: steps.append(f"start {self.name}"))
    monkeypatch.setattr(EtcdMember, "has_started", serves)
    cluster.waits = Waits(start_s=30)
    assert cluster.start() == Leadership("etcd2", 2)
    assert steps[:4] == ["start etcd10", "ask etcd10", "ask etcd10", "ask etcd10"]
    assert sorted(steps[4:]) == ["start etcd11", "start etcd2"]


@simulated()
def test_an_expected_death_is_none_of_the_clusters(members: FakeMembers, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, hosts = cluster_of(members)
    members.views = {i: (100 + i, 101, 2) for i in (1, 2, 3)}
    cluster.expect_death("etcd2")
    assert "etcd2" not in cluster.endpoints, "it is not queried from then on"
    hosts[1].ended, hosts[2].ended = "killed by SIGKILL", "exit status 2"
    assert cluster.deaths() == {"etcd3": "etcd3 ended: exit status 2"}
    started: list[int] = []
    monkeypatch.setattr(EtcdMember, "start", lambda self, deadline: started.append(self.host.pid))
    place = MemberPlace(hosts[1], "10.0.0.2", FakeConnection(members, 22))
    # It is waited for until that is pointless.
    for hosts[1].ended, why in ((None, "the run is to end"), ("exit status 1", None)):
        with pytest.raises(RunError, match=f"etcd2 did not rejoin: {why or hosts[1].ended}"):
            cluster.rejoin(place, lambda why=why: why)
    assert "etcd2" not in cluster.deaths() | cluster.endpoints
    members.views[22] = (102, 0, 2)

    def broken() -> str | None:
        """It knows a leader after it was queried twice."""
        if members.views[22] == (102, 0, 2):
            members.views[22] = (102, 101, 2)
            return None
        return "too late"

    hosts[1].ended = None  # its host, of which there is one, lives
    cluster.rejoin(place, broken)
    assert started == [2] * 3 and set(cluster.endpoints) == {"etcd1", "etcd2"}
    assert cluster.pings()["etcd2"].connection == FakeConnection(members, 22)
    hosts[1].ended = "killed by SIGSEGV"
    assert "etcd2" in cluster.deaths(), "the next death is one"


# --- what members count -----------------------------------------------------------------------------------------------

SYNCS, COMMITS = "etcd_disk_wal_fsync_duration_seconds", "etcd_disk_backend_commit_duration_seconds"


def answer(syncs: Mapping[str, int], sum_s: float, changes: int = 1, failed: int = 0, size: float = 20480) -> str:
    """An answer of a member; ``syncs`` are cumulative, as Prometheus has them."""
    lines = [
        "# TYPE etcd_server_leader_changes_seen_total counter",
        f"etcd_server_leader_changes_seen_total {changes}",
        f"etcd_server_proposals_failed_total {failed}",
        'etcd_server_version{server_version="3.7.3"} 1',
        f"etcd_mvcc_db_total_size_in_bytes {size:.6e}",
        "process_start_time_seconds 1500000000.0",
    ]
    for name in (SYNCS, COMMITS):
        lines += [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in syncs.items()]
        lines += [f"{name}_sum {sum_s}", f"{name}_count {syncs['+Inf']}"]
    return "\n".join(lines) + "\n"


def counted(text: str) -> Counters:
    return samples(text, etcd.METRICS)


BEFORE = answer({"0.001": 5, "0.002": 9, "8.192": 9, "+Inf": 10}, 9.0)
AFTER = answer({"0.001": 103, "0.002": 109, "8.192": 109, "+Inf": 112}, 9.51, changes=3, failed=4, size=1.048576e06)


def test_what_a_member_counted_between_two_looks() -> None:
    buckets = ((0.001, 98), (0.002, 2), (None, 2))
    syncs = Durations(count=102, mean_s=pytest.approx(0.005), p99_at_most_s=None, buckets=buckets)
    assert EtcdMember.activity(counted(BEFORE), counted(AFTER), LogPart((), {"slow fdatasync": 2})) == MemberActivity(
        leader_changes=2,
        log_syncs=syncs,
        commits=syncs,
        failed_proposals=4,
        data_bytes=1048576,
        data_grown_bytes=1048576 - 20480,
        warnings={"slow fdatasync": 2},
    )
    # Of etcd 3.7.3, which took puts by four clients for two seconds; other families are left out.
    looks = (counted((RECORDED / "etcd" / f"metrics-{when}.txt").read_text()) for when in ("before", "after"))
    found = EtcdMember.activity(*looks, None)
    assert (found.leader_changes, found.failed_proposals, found.data_bytes) == (0, 0, 798720)
    assert found.log_syncs is not None and found.commits is not None and found.log_syncs.mean_s is not None
    assert sum(times for _, times in found.log_syncs.buckets) == found.log_syncs.count > 1000
    assert 0.0005 < found.log_syncs.mean_s < 0.002 and (found.data_grown_bytes or 0) > 500_000
    assert (found.log_syncs.p99_at_most_s, found.commits.p99_at_most_s) == (0.008, 0.008)
    # An answer of another form has no figures.
    for text in ("", "<html>404</html>", "etcd_server_leader_changes_seen_total x\n\x00"):
        assert counted(text) == {}


def test_what_one_look_lacks_is_not_known() -> None:
    before, after = counted(BEFORE), counted(AFTER)
    assert EtcdMember.activity({}, after, None) == MemberActivity(data_bytes=1048576)
    assert EtcdMember.activity(before, {}, LogPart((), {})) == MemberActivity(warnings={})
    restarted = counted(AFTER.replace("seconds 1500000000.0", "seconds 2e9"))
    assert EtcdMember.activity(before, restarted, None) == MemberActivity(data_bytes=1048576), "it counts from 0 again"
    lacking = counted("\n".join(line for line in AFTER.splitlines() if "wal_fsync" not in line))
    found = EtcdMember.activity(before, lacking, None)
    assert found.log_syncs is None and found.commits is not None and found.leader_changes == 2
    other = counted(AFTER.replace('le="0.002"', 'le="0.003"'))
    assert EtcdMember.activity(before, other, None).log_syncs is None, "other buckets cannot be compared"
    nothing = Durations.of(1.0, ((0.001, 0), (None, 0)))
    assert (nothing.mean_s, nothing.p99_at_most_s) == (None, None)


class Answers:
    """Answers GETs one after the other, the last one again; an exception is raised, a number is how many s it takes."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.queried: list[tuple[int, str]] = []
        self.limits_s: list[float] = []

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        self.queried.append((port, path))
        self.limits_s.append(timeout_s)
        answer = self.answers.pop(0) if self.answers[1:] else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            clock.sleep(answer)
            raise RunError("too late")
        return bytes(answer)

    def open(self, port: int, *, timeout_s: float) -> Any:
        raise RunError("connection refused")


def observed(*members: tuple[Answers, str | None], dilation: int = 1) -> dict[str, MemberActivity]:
    places: list[Any] = [
        MemberPlace(FakeHost(f"etcd{n}", log=log), "10.0.0.1", answers) for n, (answers, log) in enumerate(members, 1)
    ]
    return dict(Observation([EtcdMember(place) for place in places], dilation).end().members)


@simulated(seeds=5)
def test_members_are_queried_before_and_after_and_a_silent_one_delays_no_other(world: World) -> None:
    good = Answers(BEFORE.encode(), AFTER.encode())
    late = LOG.replace("2026-11-22", "2999-11-22")
    found = observed(
        (good, late),
        (Answers(60.0, AFTER.encode()), ""),
        (Answers(BEFORE.encode(), 60.0), None),
        (Answers(RunError("HTTP 503"), BEFORE.encode(), RunError("HTTP 503"), AFTER.encode()), late),
    )
    assert (world.now_ns - START_NS) / 1e9 <= cluster.LOOK_S * 3, "two looks and the logs"
    assert list(found) == ["etcd1", "etcd2", "etcd3", "etcd4"]
    assert found["etcd4"] == found["etcd1"], "a query that is not answered once is repeated"
    assert found["etcd1"].leader_changes == 2 and found["etcd1"].warnings == {}
    assert found["etcd2"] == MemberActivity(data_bytes=1048576, warnings={})
    assert found["etcd3"] == MemberActivity()
    assert good.queried == [(2379, "/metrics")] * 2


@pytest.mark.simulated()
def test_a_slowed_member_has_more_time_to_answer() -> None:
    answers = Answers(BEFORE.encode(), AFTER.encode())
    observed((answers, None), dilation=4)
    assert answers.limits_s == [4.0, 4.0]


def test_a_warning_while_it_is_observed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member writes UTC with microseconds, the driver notes moments with milliseconds."""
    moments = iter(["2026-11-22T02:18:20.000Z", "2026-11-22T02:18:21.500Z"])
    answers = Answers(BEFORE.encode(), AFTER.encode())

    def now() -> str:
        assert len(answers.queried) == 1, "between the two looks: what they make it warn of is not the load's"
        return next(moments)

    monkeypatch.setattr(cluster, "utc_now", now)
    found = observed((answers, LOG))
    assert found["etcd1"].warnings == {"apply request took too long": 2}


@simulated()
def test_a_member_that_gives_no_profile_says_why() -> None:
    made = Profiling(Answers(RunError("refused")), etcd.CLIENT_PORT, ("cpu", "mutex"))
    made.begin()
    made.end()
    cpu, mutex = made.profiles()
    made.close()
    assert (cpu.problem, mutex.problem, mutex.data) == ("connection refused", "refused", b"")


# --- Consul, the replicas, proxies ------------------------------------------------------------------------------------

network = fake_servers.network


def servers_of(network: Network) -> tuple[consul.ConsulCluster, ConsulCluster]:
    found = ConsulCluster(network, 3)
    places = places_of("consul", (server.connection for server in found.servers))
    return consul.ConsulCluster([consul.ConsulMember(place) for place in places]), found


@simulated()
def test_the_leader_is_who_most_servers_name_in_the_newest_term(network: Network) -> None:
    cluster, servers = servers_of(network)
    for ask in (cluster.version, cluster.leadership, lambda: cluster.leader_now(1.0, ())):
        for server in servers.servers:
            server.refusals = 1
        assert ask() in ("1.16.1", "consul1", Leadership("consul1", 7)), "refused once, it is repeated"
    assert cluster.move_leader("consul3", timeout_s=5) == Leadership("consul3", 8)
    assert "POST /v1/operator/raft/transfer-leader?id=10.9.0.3" in servers.servers[0].requests
    servers.leaders, servers.terms = {0: 1, 1: 1, 2: 2}, {0: 5, 1: 5, 2: 4}
    assert cluster.leadership() == Leadership("consul2", 5) and cluster.version() == "1.16.1"
    servers.leader, servers.leaders = None, {}
    assert cluster.leadership() is None
    recorded = consul.status_of(json.loads((RECORDED / "consul" / "self.json").read_text()))
    assert recorded.version == "1.16.1" and recorded.leader_id and recorded.node_id


@simulated()
def test_a_cluster_is_ready_when_all_know_all_and_read(network: Network) -> None:
    cluster, servers = servers_of(network)
    leads = Leadership("consul1", 7)
    assert cluster._is_ready(leads) and cluster.answers(1.0)
    servers.known[1] = 2
    assert not cluster._is_ready(leads)
    servers.known.clear()
    servers.set_answer("GET /v1/kv/containernet-env/probe?consistent=true", 500, b"")
    assert not (cluster.answers(0.1) or cluster._is_ready(leads) or cluster.members[0].knows_a_leader(2.0))


@simulated()
def test_keys_are_listed_by_a_consistent_read(network: Network) -> None:
    cluster, servers = servers_of(network)
    servers.servers[0].gone = True
    keys = ["d /1", "d /2", "d /3"]
    assert list(cluster.written("d /", 1, keys, 1.0).writes) == [Written(0, key, None) for key in keys]

    def held(value: Any) -> list[Written]:
        servers.set_answer("GET /v1/kv/d%20/?recurse=true&consistent=true", 200, json.dumps(value).encode())
        return list(cluster.written("d /", 1, keys, 1.0).writes)

    entries = (("d /2", 7, base64.b64encode(b"x" * 100).decode()), ("d /1", 9, None), ("d /other", 10, "YQ=="))
    found = held([{"Key": key, "ModifyIndex": index, "Value": value} for key, index, value in entries])
    assert found == [Written(9, "d /1", ""), Written(7, "d /2", "x" * 32), Written(0, "d /3", None)]
    for wrong in ([{}], [{"Key": "d /1", "ModifyIndex": 7, "Value": "?"}], 7):
        with pytest.raises(RunError, match="does not have what keys hold"):
            held(wrong)
    servers.set_answer("GET /v1/agent/self", 200, b'{"Stats": []}')
    with pytest.raises(RunError, match="is it a server of Consul"):
        cluster.members[1].status()


def test_writes_of_the_log_are_counted_with_their_mean() -> None:
    sums, counts = (f"consul_raft_boltdb_storeLogs_{what}" for what in ("sum", "count"))
    after = samples((RECORDED / "consul" / "metrics.txt").read_text(), consul.ConsulMember.metrics[2])
    assert after == {sums: 77.73821145296097, counts: 28.0}
    before = {sums: 57.73821145296097, counts: 18.0}
    line = re.match("(?P<message>.*)", "New leader elected")
    found = consul.ConsulMember.activity(before, after, LogPart([line], {"Request error": 2}))
    assert found.log_syncs is not None and (found.log_syncs.count, found.log_syncs.p99_at_most_s) == (10, None)
    assert found.log_syncs.mean_s == pytest.approx(0.002)
    assert (found.leader_changes, found.warnings) == (1, {"Request error": 2})
    for earlier, later in (({}, after), (after, before)):  # nothing was counted before, or it was restarted
        assert consul.ConsulMember.activity(earlier, later, None).log_syncs is None


def replicas_of(
    network: Network, living: set[int], ack: int, read: int
) -> tuple[LeaderlessCluster[Any], list[FakeHost], list[Service]]:
    """Three of them; a read is answered where as many live as it queries, and a key once it is in ``values``."""
    found = services(network, 3)
    for number, one in enumerate(found, 1):
        one.gone = number not in living
        if len(living) < read:
            one.statuses["GET"] = 504
    places = places_of("replica", (one.connection for one in found))
    hosts: list[Any] = [place.host for place in places]
    choice = StoreChoice("replicas", flags=(("ack", ack), ("from", read)))
    return Replicas(choice).cluster(places), hosts, found


@simulated()
def test_the_first_replica_that_lives_stands_for_a_leader(network: Network) -> None:
    cluster, hosts, _ = replicas_of(network, {1, 2, 3}, 1, 1)
    assert cluster.leadership() == Leadership("replica1", None)
    assert cluster.version() == sources_hash()
    # However soon each of them answers.
    statuses = dict(reversed(cluster.statuses().items()))
    assert cluster._leadership(statuses, required=1) == Leadership("replica1", None)
    cluster.expect_death("replica1")
    hosts[0].ended = "killed by SIGKILL"
    assert cluster.leadership() == Leadership("replica2", None)
    assert cluster.leader_now(1.0, {"replica2"}) == "replica3"
    assert cluster.deaths() == {} and list(cluster.endpoints) == ["replica2", "replica3"]
    assert set(cluster.observe().end().members) == {"replica2", "replica3"}


@simulated()
def test_the_final_state_is_what_reads_of_a_load_find(network: Network) -> None:
    for quorum, living, whole in ((1, {3}, True), (2, {3}, False), (2, {2, 3}, True)):
        cluster, hosts, found = replicas_of(network, living, quorum, quorum)
        for one in found:
            one.values["d/1"] = b"x" * 100
        state = cluster.written("d/", 1, ["d/1", "d/2"], 5.0)
        assert state.final
        if whole:
            assert list(state.writes) == [Written(0, "d/1", "x" * 32), Written(0, "d/2", None)]
            assert found[2].requests[:1] in ([], [f"GET /v0/entity?id=d%2F1&from={quorum}"])
        else:
            with pytest.raises(RunError, match="504"):
                list(state.writes)
        for host in hosts[:2]:
            host.ended = "killed by SIGKILL"
        assert cluster.answers(0.1) is (quorum == 1), "as many have to live as a write or a read waits for"
        assert cluster.leadership() == Leadership("replica3", None)


@dataclass
class ProxyConnection(FakeConnection):
    """etcd's gateway, and cetcd beside it where it serves."""

    serves: set[int] = field(default_factory=set)

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        if port == 8500 and "probe" in path:
            assert path == "/v1/kv/containernet-env/probe?consistent=true"
            if self.number not in self.serves:
                raise NoAnswerError("refused")
            return []
        if port == 8500:
            assert path == "/v1/kv/k?recurse=true&consistent=true"
            return [{"Key": "k1", "ModifyIndex": 7, "Value": base64.b64encode(b"value").decode()}]
        return super().request_json(port, method, path, body, timeout_s=timeout_s)


@simulated()
def test_a_cluster_is_ready_once_every_proxy_serves() -> None:
    members, serves = FakeMembers(), {1, 2}
    members.views = {number: (number, 1, 5) for number in (1, 2, 3)}
    places = places_of("etcd", (ProxyConnection(members, number, serves) for number in (1, 2, 3)))
    program = read_program(Path("/bin/true"))
    cluster = ProxiedCluster([CetcdMember(place) for place in places], program)
    leads = Leadership("etcd1", 5)
    assert cluster.endpoints["etcd3"] == "10.0.0.3:8500" and cluster.leadership() == leads
    assert not cluster.answers(0.1) and not cluster._is_ready(leads)
    assert [member.knows_a_leader(2.0) for member in cluster.members] == [True, True, False]
    serves.add(3)
    assert cluster.answers(0.1) and cluster._is_ready(leads)
    assert cluster.version() == f"etcd 3.7.3, binary {program.short}"
    assert {ping.port for ping in cluster.pings().values()} == {8500}
    own = cluster.written("k", 1, ["k1", "k2"], 1.0)
    assert own.final and list(own.writes) == [Written(7, "k1", "value"), Written(0, "k2", None)]
    cluster.close()


# --- ZooKeeper: answers, who leads, what it counts, sessions ----------------------------------------------------------


def recorded(name: str) -> str:
    return (RECORDED / "zookeeper" / name).read_text()


def test_states_are_read_from_answers_of_members() -> None:
    debian = "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2024\nZxid: 0x70000cd1b\nMode: standalone\n"
    for answer, mode, status in (
        (recorded("srvr-leader.txt"), "leader", MemberStatus("m", "m", 2, "3.9.4")),
        (recorded("srvr-follower.txt"), "follower", MemberStatus("m", "", 0, "3.9.4")),
        (debian, "standalone", MemberStatus("m", "m", 7, "3.8.0")),
    ):
        assert parse_srvr("m", answer) == (mode, status)
    counts = parse_mntr(recorded("mntr-leader.txt"))
    assert counts["synced_followers"] == 2 and counts["quorum_size"] == 3 and "server_state" not in counts
    for answer in (
        "",
        "Zookeeper version: 3.9.4\nMode: leader\n",
        "Zookeeper version: 3.9.4\nZxid: 0xzz\nMode: leader\n",
        "Zookeeper version: 3.9.4\nZxid: 0x1\nMode: observer\n",
    ):
        assert parse_mntr(answer) == {}
        with pytest.raises(RunError, match="srvr: "):
            parse_srvr("m", answer)


class Members(ZooKeeperCluster):
    """Members that answer with the pieces of a conversation each, or are dead."""

    def __init__(self, *connections: Any) -> None:
        hosts = [FakeHost(f"m{number}") for number in range(1, len(connections) + 1)]
        for host, connection in zip(hosts, connections, strict=True):
            host.ended = "killed by SIGKILL" if connection is None else None
        places = map(MemberPlace, hosts, ["10.0.0.1"] * len(hosts), connections)
        super().__init__([ZooKeeperMember(place) for place in places])


@simulated()
def test_the_leader_is_the_member_that_reports_it_in_the_newest_epoch() -> None:
    cases: list[tuple[list[tuple[str, int] | None], int, Leadership | None]] = [
        ([("follower", 0), ("leader", 1), ("follower", 0)], 3, Leadership("m2", 1)),
        ([("follower", 1), ("leader", 1), None], 3, None),
        ([("follower", 1), ("leader", 1), None], 2, Leadership("m2", 1)),
        ([("follower", 1), ("follower", 1), None], 2, None),
        # One that was cut off still takes itself for the leader.
        ([("leader", 1), ("leader", 2), ("follower", 2)], 2, Leadership("m2", 2)),
        ([None, ("leader", 1), None], 2, None),
        ([None, ("leader", 1), None], 1, Leadership("m2", 1)),
        ([("standalone", 0)], 1, Leadership("m1", 0)),
        ([None, None, None], 1, None),
    ]
    for states, required, expected in cases:
        cluster = Members(*(Scripted() for _ in states))
        reported = {
            member: state and MemberStatus(member.name, "" if state[0] == "follower" else member.name, state[1], "3.9")
            for member, state in zip(cluster.members, states, strict=True)
        }
        assert cluster._leadership(reported, required) == expected, (states, required)
        cluster.close()


def test_activity_is_what_was_counted_between_two_looks() -> None:
    names = ("cnt_fsynctime", "sum_fsynctime", "uptime", "approximate_data_size")
    before = dict(zip(names, (100.0, 50.0, 5.0, 10.0), strict=True))
    after = dict(zip(names, (300.0, 450.0, 9.0, 30.0), strict=True)) | {"cnt_election_time": 2.0}
    found = ZooKeeperMember.activity(before, after, LogPart((), {"Snapshotting": 1}))
    assert found.log_syncs is not None and (found.log_syncs.count, found.log_syncs.mean_s) == (200, 0.002)
    assert (found.data_bytes, found.data_grown_bytes, found.leader_changes) == (30, 20, None)
    assert not list(store_findings(StoreActivity({"m1": found}))), "without a histogram nothing is known of the slowest"
    assert ZooKeeperMember.activity(after, before, None) == MemberActivity(data_bytes=10), "it was restarted"


# --- sessions with members that answer, or misbehave ------------------------------------------------------------------

SESSION = buffer(struct.pack(">iiqi", 0, 10_000, 77, 16) + bytes(16) + b"\0")
SYNCED = buffer(struct.pack(">iqi", 1, 5, 0) + struct.pack(">i", 1) + b"/")
CLOSED = buffer(struct.pack(">iqi", 2, 6, 0))


def member(connection: fake_servers.Server) -> ZooKeeperMember:
    return Members(connection).members[0]


@simulated()
def test_a_consistent_read_is_a_session_and_a_sync(world: World) -> None:
    server = Scripted((49, SESSION), (17, SYNCED), (12, CLOSED))
    member(server).read(5.0)
    assert struct.unpack(">iiqiq", server.heard[:28]) == (45, 0, 0, 10_000, 0)
    assert server.heard[49:] == buffer(struct.pack(">iii", 1, 9, 1) + b"/") + buffer(struct.pack(">ii", 2, -11))
    no_root = buffer(struct.pack(">iqi", 1, 5, -101))
    member(Scripted((49, SESSION), (17, no_root), (12, CLOSED))).read(5.0)
    with pytest.raises(RunError, match="a session of ZooKeeper failed: timed out"):
        member(Scripted((1000, b""))).read(5.0)
    with pytest.raises(RunError, match="ruok: timed out"):
        query(Scripted((1000, b"")), "ruok", 2.0)
    assert world.now_ns - START_NS == 7 * 10**9
    assert query(Scripted((2, b"im"), (2, b"ok")), "ruok", 5.0) == "imok", "all until the connection ends"


def test_a_member_that_misbehaves_is_an_error() -> None:
    cases: list[tuple[list[tuple[int, bytes]], str]] = [
        ([(49, b"")], "closed the connection"),
        ([(49, SESSION[:10])], "closed the connection"),
        ([(49, struct.pack(">i", -1))], "a message of -1 bytes"),
        ([(49, struct.pack(">i", 1 << 30))], "bytes"),
        ([(49, buffer(struct.pack(">iiqi", 0, 0, 0, 16) + bytes(17)))], "gives no session"),
        ([(49, SESSION), (17, buffer(struct.pack(">iqi", 1, 5, -4)))], "error -4"),
        ([(49, SESSION), (17, buffer(b""))], "ends after 0 bytes"),
        # A key that is cut off is no value.
        ([(15, buffer(struct.pack(">iqi", 2, 5, -4)))], "read /d: error -4"),
        ([(15, buffer(struct.pack(">iqi", 2, 5, -102)))], "read /d: its ACL does not allow that"),
        ([(15, buffer(struct.pack(">iqi", 2, 5, 0)))], "the read of /d failed: 0 bytes"),
        ([(15, buffer(struct.pack(">iqi", 2, 5, 0) + bytes(71)))], "the read of /d failed: 71 bytes"),
    ]
    for steps, words in cases:
        with pytest.raises(RunError, match=words):
            if steps[0][0] == 15:
                member(Scripted((49, SESSION), (17, SYNCED), *steps)).values("", ["d"], 5.0)
            else:
                member(Scripted(*steps)).read(5.0)


def zookeeper_with(network: Network, **values: bytes) -> fake_servers.Server:
    """The only server of a cluster with these znodes; mzxid is 5."""
    found = fake_servers.ZooKeeperCluster(network, 1)
    found.znodes |= {path_of(key): value for key, value in values.items()}
    return found.servers[0]


def test_keys_are_read_in_one_session(network: Network) -> None:
    server = zookeeper_with(network, **{"d/000": b"x" * 100})
    assert member(server).values("", ["d/000", "d"], 5.0) == [Written(5, "d/000", "x" * 32), Written(0, "d", None)]
    assert server.connections == 1
    # Znodes are named as the load names them.
    named = {"k": "/k", "a b": "/a b", "a/b": "/a%2Fb", "50%": "/50%25", "\x00\x1f\x7f": "/%00%1F%7F", "é": "/%C3%A9"}
    named |= {".": "/%2E", "..": "/%2E.", "zookeeper": "/%7Aookeeper", "zookeeper1": "/zookeeper1"}
    assert {key: path_of(key) for key in named} == named


@simulated()
def test_the_final_state_is_that_of_the_first_living_member_that_can_be_read(network: Network) -> None:
    cluster = Members(None, Scripted((49, b"")), zookeeper_with(network, **{"d/1": b"abc"}))
    state = cluster.written("d/", 1, ["d/1"], 5.0)
    assert state.final and list(state.writes) == [Written(5, "d/1", "abc")]
    assert list(Members(None).written("", 1, [], 5.0).writes) == []
    # One that serves no client has started, and a silent one has not.
    members = Members(Scripted((4, b"imok")), Scripted((4, b""))).members
    assert [member.has_started() for member in members] == [True, False]
    for members, words in ((Members(None), "no member lives"), (Members(Scripted((49, b""))), "m1: .*closed")):
        with pytest.raises(RunError, match=words):
            list(members.written("d/", 1, ["d/1"], 5.0).writes)
