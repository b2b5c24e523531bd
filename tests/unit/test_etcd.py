"""The cluster seen from the driver: who leads, who is dead, does it answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.base.http import NoAnswerError
from containernet_env.model.usage import Leadership
from containernet_env.stores.cluster import MemberPlace, Waits
from containernet_env.stores.etcd import EtcdCluster, EtcdMember
from tests.simulated_time import START_NS, World, simulated
from tests.unit.fake_servers import FakeHost, places_of


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
    monkeypatch.setattr(EtcdMember, "serves_peers", serves)
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
