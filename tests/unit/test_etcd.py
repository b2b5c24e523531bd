"""The cluster seen from the driver: who leads, who is dead, does it answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts.netns_http import NoAnswerError
from containernet_env.stores.etcd.cluster import EtcdCluster, Member
from containernet_env.stores.protocol import MemberPlace


@dataclass
class FakeExit:
    exit_code: int | None
    oom_killed: bool


@dataclass
class FakeHost:
    name: str
    pid: int
    alive: bool = True
    ended: FakeExit = field(default_factory=lambda: FakeExit(0, False))
    log: str = "last words"

    def exit_state(self) -> FakeExit:
        return self.ended

    def logs(self, tail: int = 20) -> str:
        return self.log


class FakeMembers:
    """Members' own views by number: (member id, leader id, term); None and those left out do not answer."""

    def __init__(self) -> None:
        self.views: dict[int, tuple[int, int, int] | None] = {}


@dataclass
class FakeConnection:
    """Answers in place of one member's gateway."""

    members: FakeMembers
    number: int

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        view = self.members.views.get(self.number)
        if view is None:
            raise NoAnswerError("refused")
        if path == "/v3/kv/range":
            return {}
        member, leader, term = view
        return {
            "header": {"member_id": str(member)},
            "leader": str(leader),
            "raftTerm": str(term),
            "version": "3.7.3",
        }


@pytest.fixture
def members() -> FakeMembers:
    return FakeMembers()


def cluster_of(members: FakeMembers, count: int = 3) -> tuple[EtcdCluster, list[FakeHost]]:
    hosts = [FakeHost(f"etcd{i}", pid=i) for i in range(1, count + 1)]
    places = [MemberPlace(host, f"10.0.0.{host.pid}", 64 << 20, FakeConnection(members, host.pid)) for host in hosts]
    return EtcdCluster([Member(place) for place in places]), hosts


def test_a_leader_that_all_name_is_agreed(members: FakeMembers) -> None:
    cluster, _ = cluster_of(members)
    members.views = {i: (100 + i, 102, 2) for i in (1, 2, 3)}
    leader = cluster.agreed_leader()
    assert leader is not None and leader.name == "etcd2"
    assert cluster.version() == "3.7.3"


def test_one_silent_member_leaves_a_leader_but_not_an_agreed_one(members: FakeMembers) -> None:
    cluster, _ = cluster_of(members)
    members.views = {1: (101, 101, 2), 2: (102, 101, 2), 3: None}
    assert cluster.agreed_leader() is None
    assert cluster.leader() == "etcd1"


def test_a_view_of_an_older_term_does_not_count(members: FakeMembers) -> None:
    cluster, _ = cluster_of(members)
    members.views = {1: (101, 101, 2), 2: (102, 102, 3), 3: (103, 102, 3)}
    assert cluster.agreed_leader() is None
    assert cluster.leader() == "etcd2"


def test_members_that_know_no_leader_name_none(members: FakeMembers) -> None:
    cluster, _ = cluster_of(members)
    members.views = {i: (100 + i, 0, 2) for i in (1, 2, 3)}
    assert cluster.leader() is None


def test_an_oom_kill_names_member_and_limit(members: FakeMembers) -> None:
    cluster, hosts = cluster_of(members)
    hosts[1].alive, hosts[1].ended = False, FakeExit(137, True)
    assert cluster.deaths() == {"etcd2": "etcd2 was OOM-killed (memory limit 64m)"}
    assert cluster.has_quorum()
    hosts[0].alive, hosts[0].ended = False, FakeExit(1, False)
    assert cluster.deaths()["etcd1"] == "etcd1 ended with exit code 1: last words"
    assert not cluster.has_quorum()
    assert cluster.endpoints == {"etcd3": "10.0.0.3:2379"}


def test_without_a_quorum_nothing_is_asked(members: FakeMembers) -> None:
    cluster, hosts = cluster_of(members)
    hosts[0].alive = hosts[1].alive = False
    assert not cluster.answers(timeout_s=60)


def test_the_cluster_answers_only_if_every_living_member_does(members: FakeMembers) -> None:
    cluster, hosts = cluster_of(members)
    hosts[2].alive = False
    members.views = {1: (101, 101, 2), 2: (102, 101, 2)}
    assert cluster.answers(timeout_s=5)
    members.views[2] = None
    assert not cluster.answers(timeout_s=0.2)


def test_a_member_that_dies_at_start_ends_the_wait_with_its_last_lines(
    members: FakeMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, hosts = cluster_of(members)
    monkeypatch.setattr(Member, "start", lambda self, deadline: None)
    hosts[0].alive, hosts[0].ended, hosts[0].log = False, FakeExit(2, False), "flag provided but not defined"
    with pytest.raises(RunError, match=r"(?s)etcd1 ended with exit code 2.*flag provided but not defined"):
        cluster.start(timeout_s=30)


def test_a_cluster_that_never_gets_ready_says_who_is_silent(
    members: FakeMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, _ = cluster_of(members)
    monkeypatch.setattr(Member, "start", lambda self, deadline: None)
    members.views = {1: (101, 0, 1), 2: (102, 0, 1), 3: None}
    with pytest.raises(RunError, match=r"not ready after 0.2 s: no answer from etcd3"):
        cluster.start(timeout_s=0.2)


def test_the_first_that_all_ask_answers_before_the_others_start(
    members: FakeMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers are asked in the order of their URLs as text: 10.0.0.10 before 10.0.0.2."""
    hosts = [FakeHost(f"etcd{i}", pid=i) for i in (2, 10, 11)]
    places = [MemberPlace(host, f"10.0.0.{host.pid}", None, FakeConnection(members, host.pid)) for host in hosts]
    cluster, steps = EtcdCluster([Member(place) for place in places]), []

    def start(self: Member, deadline: float) -> None:
        steps.append(f"start {self.name}")
        members.views = {i: (100 + i, 102, 2) for i in (2, 10, 11)}

    def serves(self: Member, timeout_s: float) -> bool:
        steps.append(f"ask {self.name}")
        return len(steps) > 3

    monkeypatch.setattr(Member, "start", start)
    monkeypatch.setattr(Member, "serves_peers", serves)
    assert cluster.start(timeout_s=30) == "etcd2"
    assert steps[:4] == ["start etcd10", "ask etcd10", "ask etcd10", "ask etcd10"]
    assert sorted(steps[4:]) == ["start etcd11", "start etcd2"]
