"""Consul without a Consul: its arguments, timing, answers, log, leadership, floor, and what is refused."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from containernet_env.analysis.floor import Floor
from containernet_env.base import sources
from containernet_env.base.errors import RunError
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import topology_text
from containernet_env.hosts.netns_http import HttpError, NoAnswerError
from containernet_env.load.request import request_of
from containernet_env.model.leadership import Leadership
from containernet_env.model.scenario import Scenario, ScenarioSet
from containernet_env.plan.build import build_plan
from containernet_env.plan.identity import config_hash
from containernet_env.plan.plan import Plan, PlanOptions
from containernet_env.setup import binaries
from containernet_env.stores.consul import metrics
from containernet_env.stores.consul.cluster import ConsulCluster, Member
from containernet_env.stores.consul.log import elections_between, last_words, warnings_between
from containernet_env.stores.protocol import MemberPlace, Written
from tests.simulated_time import simulated
from tests.unit.test_etcd import FakeHost

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "consul"
SYNC_NS = {f"consul{number}": 1_000_000.0 for number in (1, 2, 3)}


def topology(folder: Path, store: Any = "consul", delays: tuple[str, ...] = ("3ms",) * 3, **more: Any) -> Path:
    nodes = [
        {"ip": f"10.0.0.{number}", "mem": "512m", "cpus": 1, "bandwidth": "unlimited", "link_delay": delay}
        for number, delay in enumerate(delays, 1)
    ]
    path = folder / "topology.json"
    path.write_text(json.dumps({"store": store, "nodes": nodes, **more}))
    return path


def planned(folder: Path, store: Any = "consul", **more: Any) -> Plan:
    return build_plan(load_config(topology(folder, store, **more)), None, PlanOptions(machine_cores=2))


@pytest.mark.parametrize(
    ("delay", "multiplier", "noted"),
    [
        ("3ms", 1, ""),
        ("20ms", 1, "below 50 ms"),
        ("26ms", 2, "below 50 ms"),
        ("100ms", 4, "below 50 ms"),
        ("249ms", 10, "below 50 ms"),
        ("400ms", 10, "no larger one exists"),
    ],
)
def test_raft_is_as_quick_as_the_largest_rtt_allows(tmp_path: Path, delay: str, multiplier: int, noted: str) -> None:
    plan = planned(tmp_path, delays=(delay, delay, "1ms"))
    assert plan.timing.values()["raft_multiplier"] == multiplier
    assert plan.timing.values()["election_ms"] == 1000 * multiplier
    assert plan.timing.member_timeout_s == multiplier
    told = " ".join(note for note in plan.notes if "RTT" in note)
    assert noted in told and bool(told) == bool(noted)


def test_a_multiplier_that_does_not_suit_is_noted(tmp_path: Path) -> None:
    store = {"kind": "consul", "flags": {"raft_multiplier": 2}}
    plan = planned(tmp_path, store, delays=("100ms", "100ms", "100ms"))
    assert plan.timing.values()["raft_multiplier"] == 2 and plan.timing.values()["raft_multiplier_from"] == "config"
    (note,) = [note for note in plan.notes if "raft_multiplier" in note]
    assert "up to 200 ms: the largest expected RTT" in note and "no larger" not in note


def test_flags_are_settings_and_versions_modules(tmp_path: Path) -> None:
    flags = {"raft_logstore": "wal", "raft_snapshot_threshold": 1000, "raft_trailing_logs": 500}
    store = {"kind": "consul", "version": "1.22.0", "flags": flags}
    plan = planned(tmp_path, store)
    module = plan.store.image.module
    assert module is not None and module.label == "consul-1.22.0" and plan.store.version == "1.22.0"
    pinned = planned(tmp_path, {"kind": "consul", "version": sources.consul_version()})
    assert pinned.store.image == planned(tmp_path).store.image
    hashes = {config_hash(planned(tmp_path, given)) for given in ("etcd", "consul", store)}
    assert len(hashes) == 3
    config = load_config(topology(tmp_path, store))
    (tmp_path / "again.json").write_text(topology_text(config))
    assert load_config(tmp_path / "again.json").store == config.store


def test_the_checksum_database_is_not_asked_for_what_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOSUMDB", "example.org/own")
    environment = binaries._environment(sources.consul_module())
    assert environment["GONOSUMDB"] == "example.org/own,github.com/hashicorp/*"
    assert binaries._environment(sources.etcd_module())["GONOSUMDB"] == "example.org/own"


LOAD = {"total": 10, "clients": 1, "conns": 1}


DEFAULT_READ = {"type": "read", "load": LOAD, "consistency": ["l", "default"]}


def default_reads(folder: Path) -> ScenarioSet:
    path = folder / "scenarios.json"
    dataset = {"keySize": 8, "valSize": 64, "keys": 100}
    path.write_text(json.dumps({"dataset": dataset, "scenarios": [DEFAULT_READ]}))
    return load_scenarios(path)


def test_default_reads_are_asked_for_and_told_by_their_name(tmp_path: Path) -> None:
    plan = build_plan(load_config(topology(tmp_path)), default_reads(tmp_path), PlanOptions(machine_cores=2))
    found = next(item.scheduled.scenario for item in plan.scenarios if "default" in item.scheduled.scenario.name)
    assert found.name == "read-default-10x1x1" and plan.store.consistency.get("default", "default") == "default"
    _, body = request_of(found, {"consul1": "10.0.0.1:8500"}, 60, terms=plan.store.load_terms)
    assert (body["store"], body["consistency"]) == ("consul", "default")


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


LOG = """\
==> Starting Consul agent...
               Version: '1.16.1'

==> Log data will now stream in as it occurs:

2026-11-23T03:29:06.824Z [WARN]  agent: bootstrap_expect > 0: expecting 3 servers
2026-11-23T03:29:06.873Z [INFO]  agent: Consul agent running!
2026-11-23T03:29:08.440Z [INFO]  agent.server: New leader elected: payload=consul1
2026-11-23T03:29:10.000Z [WARN]  agent.server.raft: failed to contact: server-id=76c66196-23f1-2ca9-18e7-e63397c1b478 \
time=512.5ms
2026-11-23T03:29:10.100Z [ERROR] agent.http: Request error: method=PUT url=/v1/kv/00000001 from=10.0.0.254:1 error="x"
2026-11-23T03:29:10.200Z [INFO]  agent.server.raft: starting snapshot up to: index=16387
2026-11-23T03:29:10.300Z [INFO]  agent.server: New leader elected: payload=consul2
2026-11-23T03:29:10.400Z [WARN]  agent.server.memberlist.lan: memberlist: Failed fallback TCP ping: timeout 1s: \
read tcp 10.0.0.1:36182->10.0.0.2:8301: i/o timeout
"""


def test_warnings_snapshots_and_elections_are_counted_by_kind() -> None:
    began, ended = "2026-11-23T03:29:10.000000Z", "2026-11-23T03:29:10.400000Z"
    assert warnings_between(LOG, began, ended) == {
        "failed to contact": 1,
        "Request error": 1,
        "starting snapshot up to": 1,
        "memberlist: Failed fallback TCP ping: timeout 1s: read tcp N->N: i/o timeout": 1,
    }
    assert elections_between(LOG, began, ended) == 1
    assert elections_between(LOG, "2026-11-23T03:29:00.000Z", ended) == 2
    assert warnings_between("", began, ended) == {}


SIGNALLED = """\
2026-11-23T03:13:00.391Z [INFO]  agent: Caught: signal=terminated
2026-11-23T03:13:00.396Z [ERROR] agent.anti_entropy: failed to sync remote state: error="No cluster leader"
2026-11-23T03:13:00.399Z [INFO]  agent: Exit code: code=1
"""
PORT_TAKEN = """\
2026-11-23T03:13:04.389Z [WARN]  agent.auto_config: bootstrap = true: do not enable unless necessary
2026-11-23T03:13:04.391Z [ERROR] agent: Error starting agent: error="Failed to start Consul server: Failed to start \
RPC layer: listen tcp 127.0.0.1:8300: bind: address already in use"
2026-11-23T03:13:04.391Z [INFO]  agent: Exit code: code=1
"""


@pytest.mark.parametrize(
    ("log", "killed", "words"),
    [
        (SIGNALLED, False, "shut down by a signal: signal=terminated"),
        (PORT_TAKEN, False, 'Error starting agent: error="Failed to start Consul server: Failed to start RPC layer: '),
        ("==> performance.raft_multiplier cannot be 11. Must be between 1 and 10\n", False, "performance.raft_multip"),
        ("flag provided but not defined: -nosuch\nUsage:\n", False, "flag provided but not defined: -nosuch"),
        (LOG, True, "last warning: memberlist: Failed fallback TCP ping"),
        ("", True, ""),
        (LOG + "panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n", False, "panic: boom"),
    ],
)
def test_last_words_tell_the_cause(log: str, killed: bool, words: str) -> None:
    assert last_words(log, killed).startswith(words) and bool(last_words(log, killed)) == bool(words)


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


def scenario(**given: Any) -> Scenario:
    of_type = {"type": "write", "target": "cluster"} | given
    return Scenario(name="s", total=10, clients=1, conns=1, key_size=8, val_size=64, key_space=10, **of_type)


@pytest.mark.parametrize(
    ("store", "given", "asked", "expected_ms"),
    [
        # Links of 3 ms each side: 6 ms to the client, 12 ms between members; two syncs of 1 ms at each of two members.
        ("consul", {}, "consul1", 6 + 2 + 12 + 2),
        ("consul", {}, "consul2", 6 + 12 + 2 + 12 + 2),
        ({"kind": "consul", "flags": {"raft_logstore": "wal"}}, {}, "consul1", 6 + 1 + 12 + 1),
        ("consul", {"type": "txn"}, "consul1", 6 + 2 + 12 + 2),
        # Heartbeats that are under way already may tell that it leads, so none has to be waited for.
        ("consul", {"type": "read", "consistency": "l"}, "consul1", 6),
        ("consul", {"type": "read", "consistency": "l"}, "consul2", 6 + 12),
        ("consul", {"type": "read", "consistency": "s"}, "consul2", 6),
        ("consul", {"type": "read", "consistency": "default"}, "consul1", 6),
        ("consul", {"type": "read", "consistency": "default"}, "consul2", 6 + 12),
        ("consul", {"type": "read", "consistency": "default"}, "cluster", 6 + 12),
    ],
)
def test_the_floor_is_what_the_protocol_waits_for(
    tmp_path: Path, store: Any, given: dict[str, Any], asked: str, expected_ms: float
) -> None:
    plan = planned(tmp_path, store)
    floor = Floor(plan.store, plan.topology, SYNC_NS)
    found_s = floor.median_s(scenario(**given | {"target": asked}), "consul1", ["consul1", "consul2", "consul3"])
    assert found_s is not None and found_s * 1e3 == pytest.approx(expected_ms, abs=0.01)
