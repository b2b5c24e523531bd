"""Consul without a Consul: who leads, what keys hold, and what it counts."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts.netns_http import HttpError, NoAnswerError
from containernet_env.model.leadership import Leadership
from containernet_env.stores.consul import metrics
from containernet_env.stores.consul.cluster import ConsulCluster, Member
from containernet_env.stores.protocol import MemberPlace, Written
from tests.simulated_time import simulated
from tests.unit.test_etcd import FakeHost

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "consul"


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
class FakeConnection:
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


def cluster_of(views: dict[int, tuple[int, int]]) -> tuple[ConsulCluster, FakeServers]:
    servers = FakeServers(views, dict.fromkeys(views, 3))
    places = [
        MemberPlace(FakeHost(f"consul{number}", number), f"10.0.0.{number}", FakeConnection(servers, number))
        for number in (1, 2, 3)
    ]
    return ConsulCluster([Member(place) for place in places]), servers


@simulated()
def test_the_leader_is_who_most_servers_name_in_the_newest_term() -> None:
    cluster, _ = cluster_of({1: (2, 5), 2: (2, 5), 3: (3, 4)})
    assert cluster.leadership() == Leadership("consul2", 5)
    assert cluster.version() == "1.16.1"
    assert cluster_of({1: (0, 5), 2: (0, 5), 3: (0, 5)})[0].leadership() is None


@simulated()
def test_leadership_is_transferred_by_the_leader_to_the_id_of_a_node() -> None:
    cluster, servers = cluster_of(dict.fromkeys((1, 2, 3), (1, 2)))
    assert cluster.move_leader("consul3", timeout_s=5) == Leadership("consul3", 3)
    assert (1, "POST", "/v1/operator/raft/transfer-leader?id=node-3") in servers.asked


@simulated()
def test_a_cluster_is_ready_when_all_know_all_and_read() -> None:
    cluster, servers = cluster_of(dict.fromkeys((1, 2, 3), (1, 2)))
    statuses = cluster.statuses()
    assert cluster._is_ready(statuses) and cluster.answers(1.0)
    servers.peers[2] = 2
    assert not cluster._is_ready(statuses)
    servers.reads = False
    assert not cluster.answers(0.1)
    assert not cluster.members[0].knows_a_leader()


@simulated()
def test_keys_are_listed_by_a_consistent_read() -> None:
    cluster, servers = cluster_of({2: (2, 5), 3: (2, 5)})
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
        with pytest.raises(RunError, match="does not tell what keys hold"):
            list(cluster.written("d /", 1, keys, 1.0).writes)


def test_an_answer_of_another_program_is_told() -> None:
    cluster, _ = cluster_of({1: (1, 2), 2: (1, 2), 3: (1, 2)})
    member = cluster.members[0]

    class Other(FakeConnection):
        def request_json(self, *given: Any, **named: Any) -> Any:
            return {"Stats": []}

    member.connection = Other(FakeServers({}, {}), 1)
    with pytest.raises(RunError, match="is it a server of Consul"):
        member.status()


def test_writes_of_the_log_are_counted_and_their_mean_told() -> None:
    after = metrics.parse((RECORDED / "metrics.txt").read_text())
    assert after == {"consul_raft_boltdb_storeLogs_sum": 77.73821145296097, "consul_raft_boltdb_storeLogs_count": 28.0}
    before = {"consul_raft_boltdb_storeLogs_sum": 57.73821145296097, "consul_raft_boltdb_storeLogs_count": 18.0}
    found = metrics.activity(before, after, 1, {"Request error": 2})
    assert found.log_syncs is not None and found.log_syncs.count == 10
    assert found.log_syncs.mean_s == pytest.approx(0.002) and found.log_syncs.p99_at_most_s is None
    assert (found.leader_changes, found.warnings) == (1, {"Request error": 2})
    for missing in (None, {}):
        assert metrics.activity(missing, after, None, None).log_syncs is None
    assert metrics.activity(after, before, None, None).log_syncs is None  # it began anew
