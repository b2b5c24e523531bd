"""A cluster of etcd seen from the driver: who leads, who is dead, does it answer; what members count, and profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted, RunError
from containernet_env.base.http import NoAnswerError
from containernet_env.model.usage import Durations, Leadership, MemberActivity
from containernet_env.stores import cluster, etcd
from containernet_env.stores.cluster import Counters, LogPart, MemberPlace, Observation, Waits, samples
from containernet_env.stores.etcd import EtcdCluster, EtcdMember
from containernet_env.stores.profiling import Profiling
from tests.simulated_time import START_NS, World, simulated
from tests.unit.fake_servers import FakeHost, places_of
from tests.unit.test_store_logs import ETCD as LOG


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

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "etcd"
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
    looks = (counted((RECORDED / f"metrics-{when}.txt").read_text()) for when in ("before", "after"))
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
