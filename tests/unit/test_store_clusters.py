"""Clusters of Consul, of the replicas and behind proxies without any: who leads or serves, and what keys hold."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.base.http import HttpError, NoAnswerError
from containernet_env.base.programs import read_program
from containernet_env.model.config import StoreChoice
from containernet_env.model.usage import Leadership
from containernet_env.stores import consul
from containernet_env.stores.cluster import LeaderlessCluster, LogPart, MemberPlace, Written, prometheus_samples
from containernet_env.stores.proxied import CetcdMember, ProxiedCluster
from containernet_env.stores.replicas import Replicas, sources_hash
from containernet_env.stores.zookeeper.cluster import consistent_read
from tests.simulated_time import simulated
from tests.unit import fake_servers
from tests.unit import test_etcd as etcd
from tests.unit.fake_servers import Network, Scripted, Service, buffer, services
from tests.unit.test_etcd import FakeHost
from tests.unit.test_zookeeper import CLOSED, SESSION

network = fake_servers.network
RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "consul"


def places_of(kind: str, connection: Callable[[int], Any]) -> tuple[list[MemberPlace], list[FakeHost]]:
    """Three members, each with its connection."""
    hosts = [FakeHost(f"{kind}{number}", number) for number in (1, 2, 3)]
    return [MemberPlace(host, f"10.0.0.{host.pid}", connection(host.pid)) for host in hosts], hosts


# --- Consul -----------------------------------------------------------------------------------------------------------


@dataclass
class FakeServers:
    """Servers' own views by number: (leader's number or 0, term), and how many servers each knows."""

    views: dict[int, tuple[int, int]]
    peers: dict[int, int]
    asked: list[tuple[int, str, str]] = field(default_factory=list)
    reads: bool = True
    held: Any = None

    def move(self, target: int) -> None:
        self.views = {number: (target, term + 1) for number, (_, term) in self.views.items()}


@dataclass
class ServersConnection:
    """Answers in place of one server, as Consul 1.16.1 does."""

    servers: FakeServers
    number: int

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        assert port == 8500
        view = self.servers.views.get(self.number)
        if view is None:
            raise NoAnswerError("refused")
        self.servers.asked.append((self.number, method, path))
        if path == "/v1/agent/self":
            answer = json.loads((RECORDED / "self.json").read_text())
            leader, term = view
            answer["Config"]["NodeID"] = f"node-{self.number}"
            answer["Member"] = {"Addr": f"10.0.0.{self.number}", "Tags": {"port": "8300"}}
            answer["Stats"]["consul"]["leader_addr"] = f"10.0.0.{leader}:8300" if leader else ""
            answer["Stats"]["raft"]["term"] = str(term)
            return answer
        if path == "/v1/status/peers":
            return [f"10.0.0.{number}:8300" for number in range(1, self.servers.peers[self.number] + 1)]
        if path.startswith("/v1/operator/raft/transfer-leader?id=node-"):
            assert method == "POST" and view[0] == self.number
            self.servers.move(int(path.rpartition("-")[2]))
            return {"Success": True}
        if path.startswith("/v1/kv/d%20/?recurse=true&consistent=true"):
            if self.servers.held is None:
                raise HttpError(404, None, "")
            return self.servers.held
        assert path.startswith("/v1/kv/") and path.endswith("?consistent")
        raise HttpError(404 if self.servers.reads and view[0] else 500, None, "")


def servers_of(views: dict[int, tuple[int, int]]) -> tuple[consul.ConsulCluster, FakeServers]:
    servers = FakeServers(views, dict.fromkeys(views, 3))
    places, _ = places_of("consul", lambda number: ServersConnection(servers, number))
    return consul.ConsulCluster([consul.ConsulMember(place) for place in places]), servers


@simulated()
def test_the_leader_is_who_most_servers_name_in_the_newest_term() -> None:
    cluster, _ = servers_of({1: (2, 5), 2: (2, 5), 3: (3, 4)})
    assert cluster.leadership() == Leadership("consul2", 5)
    assert cluster.version() == "1.16.1"
    assert servers_of({1: (0, 5), 2: (0, 5), 3: (0, 5)})[0].leadership() is None


@simulated()
def test_leadership_is_transferred_by_the_leader_to_the_id_of_a_node() -> None:
    cluster, servers = servers_of(dict.fromkeys((1, 2, 3), (1, 2)))
    assert cluster.move_leader("consul3", timeout_s=5) == Leadership("consul3", 3)
    assert (1, "POST", "/v1/operator/raft/transfer-leader?id=node-3") in servers.asked


@simulated()
def test_a_cluster_is_ready_when_all_know_all_and_read() -> None:
    cluster, servers = servers_of(dict.fromkeys((1, 2, 3), (1, 2)))
    statuses = cluster.statuses()
    assert cluster._is_ready(statuses) and cluster.answers(1.0)
    servers.peers[2] = 2
    assert not cluster._is_ready(statuses)
    servers.reads = False
    assert not cluster.answers(0.1)
    assert not cluster.members[0].knows_a_leader(2.0)


@simulated()
def test_keys_are_listed_by_a_consistent_read() -> None:
    cluster, servers = servers_of({2: (2, 5), 3: (2, 5)})
    keys = ["d /1", "d /2", "d /3"]
    assert list(cluster.written("d /", 1, keys, 1.0).writes) == [Written(0, key, None) for key in keys]
    servers.held = [
        {"Key": "d /2", "ModifyIndex": 7, "Value": base64.b64encode(b"x" * 100).decode()},
        {"Key": "d /1", "ModifyIndex": 9, "Value": None},
        {"Key": "d /other", "ModifyIndex": 10, "Value": "YQ=="},
    ]
    state = cluster.written("d /", 1, keys, 1.0)
    assert state.final
    assert list(state.writes) == [Written(9, "d /1", ""), Written(7, "d /2", "x" * 32), Written(0, "d /3", None)]
    for wrong in ([{}], [{"Key": "d /1", "ModifyIndex": 7, "Value": "?"}], 7):
        servers.held = wrong
        with pytest.raises(RunError, match="does not have what keys hold"):
            list(cluster.written("d /", 1, keys, 1.0).writes)


def test_an_answer_of_another_program_is_told() -> None:
    cluster, _ = servers_of({1: (1, 2), 2: (1, 2), 3: (1, 2)})
    member = cluster.members[0]
    member.connection = SimpleNamespace(request_json=lambda *given, **named: {"Stats": []})  # type: ignore[assignment]
    with pytest.raises(RunError, match="is it a server of Consul"):
        member.status()


def test_writes_of_the_log_are_counted_and_their_mean_told() -> None:
    after = prometheus_samples((RECORDED / "metrics.txt").read_text(), consul.ConsulMember.metrics[2])
    assert after == {"consul_raft_boltdb_storeLogs_sum": 77.73821145296097, "consul_raft_boltdb_storeLogs_count": 28.0}
    before = {"consul_raft_boltdb_storeLogs_sum": 57.73821145296097, "consul_raft_boltdb_storeLogs_count": 18.0}
    line = re.match("(?P<message>.*)", "New leader elected")
    assert line is not None
    found = consul.ConsulMember.activity(before, after, LogPart([line], {"Request error": 2}))
    assert found.log_syncs is not None and found.log_syncs.count == 10
    assert found.log_syncs.mean_s == pytest.approx(0.002) and found.log_syncs.p99_at_most_s is None
    assert (found.leader_changes, found.warnings) == (1, {"Request error": 2})
    assert consul.ConsulMember.activity({}, after, None).log_syncs is None
    assert consul.ConsulMember.activity(after, before, None).log_syncs is None  # it was restarted


# --- replicas ---------------------------------------------------------------------------------------------------------


def replicas_of(
    network: Network, living: set[int], ack: int, read: int
) -> tuple[LeaderlessCluster[Any], list[FakeHost], list[Service]]:
    """Three of them; a read is answered where as many live as it queries, and a key once it is in ``values``."""
    found = services(network, 3)
    for number, one in enumerate(found, 1):
        one.gone = number not in living
        if len(living) < read:
            one.statuses["GET"] = 504
    places, hosts = places_of("replica", lambda number: found[number - 1].connection)
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


@pytest.mark.parametrize(("quorum", "living", "whole"), [(1, {3}, True), (2, {3}, False), (2, {2, 3}, True)])
@simulated()
def test_the_final_state_is_what_reads_of_a_load_find(
    network: Network, quorum: int, living: set[int], whole: bool
) -> None:
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


# --- queries that are not answered once -------------------------------------------------------------------------------


@dataclass
class Refusing:
    """A connection whose first requests, as many as ``left``, are refused."""

    connection: Any
    left: int = 2

    def request_json(self, *arguments: Any, **options: Any) -> Any:
        if self.left:
            self.left -= 1
            raise HttpError(503, None, "the service is unavailable")
        return self.connection.request_json(*arguments, **options)


def etcd_members() -> etcd.FakeMembers:
    members = etcd.FakeMembers()
    members.views = {number: (100 + number, 101, 2) for number in (1, 2, 3)}
    return members


REFUSING: dict[str, tuple[Callable[[int], Any], Callable[[list[MemberPlace]], Any], str]] = {
    "etcd": (
        lambda number: etcd.FakeConnection(etcd_members(), number),
        lambda places: etcd.EtcdCluster([etcd.EtcdMember(place) for place in places]),
        "etcd1",
    ),
    "consul": (
        lambda number: ServersConnection(FakeServers(dict.fromkeys((1, 2, 3), (2, 5)), {}), number),
        lambda places: consul.ConsulCluster([consul.ConsulMember(place) for place in places]),
        "consul2",
    ),
}


@pytest.mark.parametrize("store", REFUSING)
@simulated()
def test_a_query_that_is_refused_once_is_repeated(store: str) -> None:
    connection, made, leader = REFUSING[store]
    for query in ("version", "leadership", "leader_now"):
        places, _ = places_of(store, lambda number: Refusing(connection(number)))
        cluster = made(places)
        if query == "version":
            assert cluster.version()
        else:
            found = cluster.leadership() if query == "leadership" else cluster.leader_now(1.0, ())
            assert getattr(found, "leader", found) == leader


# --- proxies ----------------------------------------------------------------------------------------------------------


@dataclass
class ProxyConnection(etcd.FakeConnection):
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
    members, serves = etcd.FakeMembers(), {1, 2}
    members.views = {number: (number, 1, 5) for number in (1, 2, 3)}
    places, _ = places_of("etcd", lambda number: ProxyConnection(members, number, serves))
    program = read_program(Path("/bin/true"))
    cluster = ProxiedCluster([CetcdMember(place) for place in places], program)
    assert cluster.endpoints["etcd3"] == "10.0.0.3:8500" and cluster.leadership() == Leadership("etcd1", 5)
    assert not cluster.answers(0.1) and not cluster._is_ready(cluster.statuses())
    assert [member.knows_a_leader(2.0) for member in cluster.members] == [True, True, False]
    serves.add(3)
    assert cluster.answers(0.1) and cluster._is_ready(cluster.statuses())
    assert cluster.version() == f"etcd 3.7.3, binary {program.short}"
    assert {ping.port for ping in cluster.pings().values()} == {8500}
    own = cluster.written("k", 1, ["k1", "k2"], 1.0)
    assert own.final and list(own.writes) == [Written(7, "k1", "value"), Written(0, "k2", None)]
    cluster.close()


def test_a_sync_that_finds_no_root_is_a_consistent_read() -> None:
    refused = buffer(struct.pack(">iqi", 1, 5, -101))
    consistent_read(Scripted((49, SESSION), (17, refused), (12, CLOSED)), 5.0)
