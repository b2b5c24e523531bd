"""The replicas without any: quorums, who stands for a leader, and what keys hold."""

from __future__ import annotations

from typing import Any

import pytest

from containernet_env.base import sources
from containernet_env.base.errors import RunError
from containernet_env.hosts.netns_http import HttpError, NoAnswerError
from containernet_env.model.leadership import Leadership
from containernet_env.stores.leaderless import LeaderlessCluster
from containernet_env.stores.protocol import MemberPlace, Written
from containernet_env.stores.replicas.cluster import Member
from tests.simulated_time import simulated
from tests.unit.test_etcd import FakeHost


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
