"""Clusters of Consul, of the replicas and behind proxies without any: who leads or serves, and what keys hold."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.base.http import NoAnswerError
from containernet_env.base.programs import read_program
from containernet_env.model.config import StoreChoice
from containernet_env.model.usage import Leadership
from containernet_env.stores import consul
from containernet_env.stores.cluster import LeaderlessCluster, LogPart, Written, prometheus_samples
from containernet_env.stores.proxied import CetcdMember, ProxiedCluster
from containernet_env.stores.replicas import Replicas, sources_hash
from tests.simulated_time import simulated
from tests.unit import fake_servers
from tests.unit import test_etcd as etcd
from tests.unit.fake_servers import ConsulCluster, FakeHost, Network, Service, places_of, services

network = fake_servers.network
RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "consul"


def servers_of(network: Network) -> tuple[consul.ConsulCluster, ConsulCluster]:
    found = ConsulCluster(network, 3)
    places = places_of("consul", (server.connection for server in found.servers))
    return consul.ConsulCluster([consul.ConsulMember(place) for place in places]), found


@simulated()
def test_the_leader_is_who_most_servers_name_in_the_newest_term(network: Network) -> None:
    cluster, servers = servers_of(network)
    for query in (cluster.version, cluster.leadership, lambda: cluster.leader_now(1.0, ())):
        for server in servers.servers:
            server.refusals = 1
        assert query() in ("1.16.1", "consul1", Leadership("consul1", 7)), "refused once, it is repeated"
    assert cluster.move_leader("consul3", timeout_s=5) == Leadership("consul3", 8)
    assert "POST /v1/operator/raft/transfer-leader?id=10.9.0.3" in servers.servers[0].requests
    servers.leaders, servers.terms = {0: 1, 1: 1, 2: 2}, {0: 5, 1: 5, 2: 4}
    assert cluster.leadership() == Leadership("consul2", 5) and cluster.version() == "1.16.1"
    servers.leader, servers.leaders = None, {}
    assert cluster.leadership() is None
    recorded = consul.status_of(json.loads((RECORDED / "self.json").read_text()))
    assert recorded.version == "1.16.1" and recorded.leader_id and recorded.node_id


@simulated()
def test_a_cluster_is_ready_when_all_know_all_and_read(network: Network) -> None:
    cluster, servers = servers_of(network)
    statuses = cluster.statuses()
    assert cluster._is_ready(statuses) and cluster.answers(1.0)
    servers.known[1] = 2
    assert not cluster._is_ready(statuses)
    servers.set_answer("GET /v1/kv/containernet-env/probe?consistent", 500, b"")
    assert not cluster.answers(0.1) and not cluster.members[0].knows_a_leader(2.0)


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
    after = prometheus_samples((RECORDED / "metrics.txt").read_text(), consul.ConsulMember.metrics[2])
    assert after == {sums: 77.73821145296097, counts: 28.0}
    before = {sums: 57.73821145296097, counts: 18.0}
    line = re.match("(?P<message>.*)", "New leader elected")
    assert line is not None
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
    places = places_of("etcd", (ProxyConnection(members, number, serves) for number in (1, 2, 3)))
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
