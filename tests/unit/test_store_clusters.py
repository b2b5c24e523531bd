"""Clusters of Consul, of the replicas, behind proxies and of ZooKeeper: who leads or serves, and what keys hold."""

from __future__ import annotations

import base64
import json
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.base.http import NoAnswerError
from containernet_env.base.programs import read_program
from containernet_env.model.config import StoreChoice
from containernet_env.model.findings import store_findings
from containernet_env.model.usage import Leadership, MemberActivity, StoreActivity
from containernet_env.stores import consul
from containernet_env.stores.cluster import LeaderlessCluster, LogPart, MemberPlace, MemberStatus, Written, samples
from containernet_env.stores.proxied import CetcdMember, ProxiedCluster
from containernet_env.stores.replicas import Replicas, sources_hash
from containernet_env.stores.zookeeper import ZooKeeperCluster, ZooKeeperMember, parse_mntr, parse_srvr, path_of, query
from tests.simulated_time import START_NS, World, simulated
from tests.unit import fake_servers
from tests.unit import test_etcd as etcd
from tests.unit.fake_servers import ConsulCluster, FakeHost, Network, Scripted, Service, buffer, places_of, services

network = fake_servers.network
RECORDED = Path(__file__).resolve().parents[1] / "recorded"


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
