"""The replicas without any: their arguments, quorums, who stands for a leader, the floor, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from containernet_env.analysis.floor import Floor
from containernet_env.base import sources
from containernet_env.base.errors import RunError
from containernet_env.config.topologies import load_config
from containernet_env.hosts.netns_http import HttpError, NoAnswerError
from containernet_env.model.leadership import Leadership
from containernet_env.model.scenario import Scenario
from containernet_env.plan.build import build_plan
from containernet_env.plan.identity import config_hash
from containernet_env.plan.plan import Plan, PlanOptions
from containernet_env.stores.leaderless import LeaderlessCluster
from containernet_env.stores.protocol import MemberPlace, Written
from containernet_env.stores.replicas.cluster import Member
from tests.simulated_time import simulated
from tests.unit.test_etcd import FakeHost

OPTIONS = PlanOptions(machine_cores=2)
SYNC_NS = {"replica1": 1e6, "replica2": 2e6, "replica3": 3e6}


def topology(folder: Path, ack: int | None = None, read: int | None = None, **more: Any) -> Path:
    flags = {name: value for name, value in (("ack", ack), ("from", read)) if value is not None}
    nodes = [
        {"ip": f"10.0.0.{number}", "mem": "64m", "cpus": 1, "bandwidth": "unlimited", "link_delay": delay}
        for number, delay in enumerate(("1ms", "2ms", "4ms"), 1)
    ]
    path = folder / "topology.json"
    path.write_text(json.dumps({"store": {"kind": "replicas", "flags": flags}, "nodes": nodes, **more}))
    return path


def planned(folder: Path, ack: int | None = None, read: int | None = None, **more: Any) -> Plan:
    return build_plan(load_config(topology(folder, ack, read, **more)), None, OPTIONS)


def test_a_run_is_known_by_its_quorums_and_the_version_of_the_sources(tmp_path: Path) -> None:
    version = planned(tmp_path).store.version
    assert version == sources.replicas_version() and len(version) == 12
    assert len({config_hash(planned(tmp_path, *quorums)) for quorums in ((), (1, 1), (2, 2), (2, 1))}) == 4
    assert planned(tmp_path).store.consistency == {"l": "from majority"}
    assert planned(tmp_path, 2, 1).store.consistency == {"l": "from 1"}


def test_a_long_way_has_a_longer_timeout(tmp_path: Path) -> None:
    nodes = [
        {"ip": f"10.0.0.{number}", "mem": "64m", "cpus": 1, "bandwidth": "unlimited", "link_delay": "100ms"}
        for number in (1, 2)
    ]
    assert planned(tmp_path, nodes=nodes).timing.member_timeout_s == pytest.approx(4.01, abs=0.01)


class FakeConnection:
    """Answers in place of one replica, which asks as many others as live."""

    def __init__(self, living: set[int], number: int) -> None:
        self.living, self.number = living, number

    def _check(self, port: int) -> None:
        assert port == 8080
        if self.number not in self.living:
            raise NoAnswerError("refused")

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        self._check(port)
        return {"id": self.number - 1, "replicas": 3, "keys": 5}

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        self._check(port)
        wanted = int(path.rpartition("=")[2])
        if path.startswith("/v0/entity?id=d%2F1&") and len(self.living) >= wanted:
            return b"x" * 100
        raise HttpError(404 if len(self.living) >= wanted else 504, None, "")


def cluster_of(living: set[int], ack: int, read: int) -> tuple[LeaderlessCluster[Member], list[FakeHost]]:
    hosts = [FakeHost(f"replica{number}", number) for number in (1, 2, 3)]
    places: list[Any] = [MemberPlace(host, f"10.0.0.{host.pid}", FakeConnection(living, host.pid)) for host in hosts]
    return LeaderlessCluster([Member(place, read) for place in places], max(ack, read)), hosts


@simulated()
def test_the_first_replica_that_answers_stands_for_a_leader() -> None:
    living = {1, 2, 3}
    cluster, hosts = cluster_of(living, 1, 1)
    assert cluster.leadership() == Leadership("replica1", 0)
    assert cluster.version() == sources.replicas_version()
    # However soon each of them answers.
    statuses = dict(reversed(cluster.statuses().items()))
    assert cluster._leadership(statuses, required=1) == Leadership("replica1", 0)
    cluster.expect_death("replica1")
    living.discard(1)
    hosts[0].ended = "killed by SIGKILL"
    assert cluster.leadership() == Leadership("replica2", 0)
    assert cluster.leader_now(1.0, {"replica2"}) == "replica3"
    assert cluster.deaths() == {} and list(cluster.endpoints) == ["replica2", "replica3"]
    assert set(cluster.observe().end().members) == {"replica2", "replica3"}


@pytest.mark.parametrize(("quorum", "living", "whole"), [(1, {3}, True), (2, {3}, False), (2, {2, 3}, True)])
@simulated()
def test_the_final_state_is_what_reads_of_a_load_find(quorum: int, living: set[int], whole: bool) -> None:
    cluster, _ = cluster_of(living, 1, quorum)
    state = cluster.written("d/", 1, ["d/1", "d/2"], 5.0)
    assert state.final
    if whole:
        assert list(state.writes) == [Written(0, "d/1", "x" * 32), Written(0, "d/2", None)]
    else:
        with pytest.raises(RunError, match="504"):
            list(state.writes)


@simulated()
def test_the_time_bounds_how_many_keys_are_read() -> None:
    cluster, _ = cluster_of({1, 2, 3}, 1, 1)
    with pytest.raises(RunError, match="0 of 2 keys were read within 0 s"):
        list(cluster.written("d/", 1, ["d/1", "d/2"], 0.0).writes)


@pytest.mark.parametrize(("quorum", "answers"), [(1, True), (2, False)])
@simulated()
def test_one_of_three_answers_where_one_is_enough(quorum: int, answers: bool) -> None:
    cluster, hosts = cluster_of({3}, quorum, quorum)
    for host in hosts[:2]:
        host.ended = "killed by SIGKILL"
    assert cluster.answers(0.1) is answers
    assert (cluster.leadership() is not None) is answers


def scenario(**given: Any) -> Scenario:
    return Scenario(name="s", total=10, clients=1, conns=1, key_size=8, val_size=64, key_space=10, **given)


@pytest.mark.parametrize(
    ("quorums", "kind", "asked", "expected_ms"),
    [
        # Client: 2, 4, 8 ms to replica1, 2, 3; between them 6 ms (1-2), 10 ms (1-3), 12 ms (2-3). Syncs of 1, 2, 3 ms.
        ((1, 1), "write", "replica1", 2 + 1),
        ((2, 2), "write", "replica1", 2 + 6 + 2),
        ((3, 3), "write", "replica1", 2 + 10 + 3),
        ((None, None), "write", "replica2", 4 + 6 + 1),
        # A write needs as many as are the fastest, a read those that come next.
        ((1, 1), "read", "replica3", 8),
        ((2, 2), "read", "replica1", 2 + 6),
        ((2, 2), "read", "replica2", 4 + 12),
        ((3, 3), "read", "replica3", 8 + 12),
    ],
)
def test_the_floor_is_what_quorums_wait_for(
    tmp_path: Path, quorums: tuple[int | None, int | None], kind: Any, asked: str, expected_ms: float
) -> None:
    plan = planned(tmp_path, *quorums)
    floor = Floor(plan.store, plan.topology, SYNC_NS)
    consistency: Any = "l" if kind == "read" else None
    wanted = scenario(type=kind, target=asked, consistency=consistency)
    found_s = floor.median_s(wanted, "replica1", ["replica1", "replica2", "replica3"])
    assert found_s is not None and found_s * 1e3 == pytest.approx(expected_ms, abs=0.01)
