"""ZooKeeper without a ZooKeeper: its configuration, timing, answers, log, leadership, floor, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.analysis.floor import Floor
from containernet_env.base.errors import RunError
from containernet_env.config.sweep_axes import AXES, set_value, value_of
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import topology_text, topology_values
from containernet_env.model.config import Config, EtcdSettings, Node
from containernet_env.model.leadership import Leadership
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.machine_findings import store_findings
from containernet_env.model.scenario import Scenario
from containernet_env.model.store_activity import StoreActivity
from containernet_env.model.topology import star
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import Plan, PlanOptions
from containernet_env.stores.critical_path import Deployment
from containernet_env.stores.members import MemberStatus
from containernet_env.stores.protocol import MemberPlace
from containernet_env.stores.zookeeper import messages
from containernet_env.stores.zookeeper.cluster import ZooKeeperCluster, ZooKeeperMember
from containernet_env.stores.zookeeper.log import last_words, warnings_between
from containernet_env.stores.zookeeper.observation import activity
from containernet_env.stores.zookeeper.store import ZooKeeper
from containernet_env.stores.zookeeper.words import parse_mntr, parse_srvr
from tests.simulated_time import simulated

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "zookeeper"
OPTIONS = PlanOptions(machine_cores=2)
MS = 10**6
WRITE = Scenario(
    name="w", type="write", total=1000, clients=1, conns=1, key_size=8, val_size=256, key_space=1000, target="leader"
)
READ = replace(WRITE, type="read", consistency="l")
LOCAL = replace(READ, consistency="s")


def nodes(delay: str = "3ms", **more: Any) -> list[dict[str, Any]]:
    common = {"mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": delay} | more
    return [{"name": f"zk{number}", "ip": f"10.0.0.{number}", **common} for number in (1, 2, 3)]


def read(folder: Path, store: Any = "zookeeper", *, delay: str = "3ms", mem: str = "512m", **more: Any) -> Config:
    path = folder / "topology.json"
    path.write_text(json.dumps({"store": store, "nodes": nodes(delay, mem=mem), **more}))
    return load_config(path)


def planned(folder: Path, store: Any = "zookeeper", **more: Any) -> Plan:
    return build_plan(read(folder, store, **more), None, OPTIONS)


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


@pytest.mark.parametrize(("mem", "heap"), [("unlimited", 1000), ("4g", 1000), ("512m", 256), ("100m", 50), ("16m", 16)])
def test_the_heap_is_half_of_the_memory(tmp_path: Path, mem: str, heap: int) -> None:
    assert f"--java=-Xmx{heap}m" in planned(tmp_path, mem=mem).hosts[0].command


@pytest.mark.parametrize(
    ("delay", "flags", "tick", "timeout_s", "notes"),
    [
        ("3ms", {}, 2000, 10.0, 0),
        ("200ms", {}, 2000, 10.0, 0),
        # An RTT of 2 s, and what a probe takes at the rate: 2001 ms. Five ticks are ten of these.
        ("500ms", {}, 4002, 20.01, 0),
        ("500ms", {"syncLimit": 20}, 2000, 40.0, 0),
        ("500ms", {"tickTime": "1s"}, 1000, 5.0, 1),
        ("3ms", {"tickTime": "20ms", "syncLimit": 2}, 20, 0.04, 1),
    ],
)
def test_ticks_follow_from_the_largest_rtt(
    tmp_path: Path, delay: str, flags: dict[str, Any], tick: int, timeout_s: float, notes: int
) -> None:
    plan = planned(tmp_path, {"kind": "zookeeper", "flags": flags}, delay=delay)
    assert plan.timing.values()["tick_ms"] == tick and plan.timing.member_timeout_s == timeout_s
    assert f"tickTime={tick}" in plan.hosts[0].command
    assert len([note for note in plan.notes if "leaders may change" in note]) == notes
    assert plan.timing.values()["election_ms"] == round(timeout_s * 1000)


def test_flags_are_lines_of_zoo_cfg(tmp_path: Path) -> None:
    flags = {"snapCount": 1000, "forceSync": "no", "preAllocSize": 1024}
    plan = planned(tmp_path, {"kind": "zookeeper", "version": "3.9.4", "flags": flags})
    assert plan.store.version == "3.9.4" and plan.store.image.label == "zookeeper-3.9.4"
    assert all(file.sha256 for file in plan.store.image.files), "the version of the documentation is pinned"
    other = ZooKeeper(replace(plan.config.store, version="3.8.4")).image
    assert [file.name for file in other.files if file.sha256 is None] == ["zookeeper.jar", "zookeeper-jute.jar"]
    assert ZooKeeper().image.files == () and "libzookeeper-java" in ZooKeeper().image.packages


def test_a_topology_comes_back(tmp_path: Path) -> None:
    config = read(tmp_path, {"kind": "zookeeper", "version": "3.9.4"}, zookeeper={"data": "tmpfs"})
    (tmp_path / "again.json").write_text(topology_text(config))
    again = load_config(tmp_path / "again.json")
    assert replace(again, path=config.path, sha256=config.sha256) == config
    assert config.etcd.data == "tmpfs"


def test_another_store_takes_the_settings_over(tmp_path: Path) -> None:
    document = topology_values(read(tmp_path, "etcd", etcd={"data": "tmpfs"}))
    set_value(document, AXES["store"], "zookeeper")
    set_value(document, AXES["data"], "disk")
    assert document["zookeeper"] == {"data": "disk"} and "etcd" not in document
    assert value_of(document, AXES["data"]) == "disk"


def test_states_are_read_from_what_members_said() -> None:
    leader, follower = parse_srvr(recorded("srvr-leader.txt")), parse_srvr(recorded("srvr-follower.txt"))
    assert (leader.mode, leader.epoch, leader.version) == ("leader", 2, "3.9.4")
    assert (follower.mode, follower.epoch) == ("follower", 0)
    debian = parse_srvr("Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2024\nZxid: 0xcd1b\nMode: standalone\n")
    assert (debian.mode, debian.zxid, debian.version) == ("standalone", 0xCD1B, "3.8.0")
    counts = parse_mntr(recorded("mntr-leader.txt"))
    assert counts["synced_followers"] == 2 and counts["quorum_size"] == 3 and "server_state" not in counts


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "This ZooKeeper instance is not currently serving requests\n",
        "srvr is not executed because it is not in the whitelist.\n",
        "Zookeeper version: 3.9.4\nMode: leader\n",
        "Zookeeper version: 3.9.4\nZxid: 0xzz\nMode: leader\n",
        "Zookeeper version: 3.9.4\nZxid: 0x1\nMode: observer\n",
    ],
)
def test_another_answer_is_no_state(answer: str) -> None:
    with pytest.raises(RunError, match="srvr: "):
        parse_srvr(answer)
    assert parse_mntr(answer) == {}


def member(name: str, state: tuple[str, int] | None) -> MemberStatus | None:
    if state is None:
        return None
    mode, epoch = state
    return MemberStatus(name, "" if mode == "follower" else name, epoch, "3.9.4")


@pytest.mark.parametrize(
    ("states", "required", "expected"),
    [
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
    ],
)
@simulated()
def test_the_leader_is_who_says_so_in_the_newest_epoch(
    states: list[tuple[str, int] | None], required: int, expected: Leadership | None
) -> None:
    names = [f"m{number}" for number in range(1, len(states) + 1)]
    hosts = [SimpleNamespace(name=name, pid=1, alive=True, ending=lambda words: None) for name in names]
    places: Any = [MemberPlace(host, "10.0.0.1", None) for host in hosts]  # type: ignore[arg-type]
    cluster = ZooKeeperCluster([ZooKeeperMember(place) for place in places])
    told = {held: member(held.name, state) for held, state in zip(cluster.members, states, strict=True)}
    assert cluster._leadership(told, required) == expected
    cluster.close()


LOG = """\
2026-11-23T03:00:00.000Z INFO  FileTxnSnapLog - Snapshotting: 0x0 to /var/lib/zookeeper/version-2/snapshot.0
2026-11-23T03:00:01.000Z WARN  FileTxnLog - fsync-ing the write ahead log in SyncThread:1 took 1062ms which will \
adversely affect operation latency. File size is 67108880 bytes. See the ZooKeeper troubleshooting guide
2026-11-23T03:00:02.000Z WARN  FileTxnLog - fsync-ing the write ahead log in SyncThread:1 took 2001ms which will \
adversely affect operation latency. File size is 134217760 bytes. See the ZooKeeper troubleshooting guide
2026-11-23T03:00:02.500Z INFO  Leader - LEADING - LEADER ELECTION TOOK - 247 MS
2026-11-23T03:00:02.600Z INFO  FileTxnSnapLog - Snapshotting: 0x100000003 to /var/lib/zookeeper/version-2/snapshot.1
2026-11-23T03:00:02.700Z INFO  Environment - Server environment:os.memory.max=256MB
2026-11-23T03:00:03.000Z WARN  QuorumCnxManager - Cannot open channel to 3 at election address /10.0.0.3:3888
java.net.ConnectException: Connection refused
2026-11-23T03:00:09.000Z WARN  FileTxnLog - too late
"""


def test_warnings_snapshots_and_elections_are_counted_by_kind() -> None:
    found = warnings_between(LOG, "2026-11-23T03:00:01.000Z", "2026-11-23T03:00:03.000Z")
    kinds = {kind.split(" in ")[0].split(" to N")[0]: count for kind, count in found.items()}
    assert kinds == {
        "fsync-ing the write ahead log": 2,
        "LEADING - LEADER ELECTION TOOK": 1,
        "Snapshotting": 1,
        "Cannot open channel": 1,
    }


@pytest.mark.parametrize(
    ("log", "killed", "words"),
    [
        (LOG, False, "too late"),
        (LOG, True, "last warning: too late"),
        (f"{LOG}Terminating due to java.lang.OutOfMemoryError: Java heap space\n", False, "java.lang.OutOfMemoryError"),
        ("Error: Could not find or load main class org.apache.x\nCaused by: y\n", False, "Could not find or load main"),
        (LOG.replace("WARN  QuorumCnx", "ERROR QuorumCnx"), False, "Cannot open channel to 3"),
        ("start-zookeeper: 1: exec: java: not found\n", False, "java: not found"),
        ("", True, ""),
    ],
)
def test_last_words_tell_the_cause(log: str, killed: bool, words: str) -> None:
    assert words in last_words(log, killed) and "\n" not in last_words(log, killed)


def test_activity_is_what_was_counted_between_two_looks() -> None:
    before = {"cnt_fsynctime": 100.0, "sum_fsynctime": 50.0, "uptime": 5.0, "approximate_data_size": 10.0}
    after = {"cnt_fsynctime": 300.0, "sum_fsynctime": 450.0, "uptime": 9.0, "approximate_data_size": 30.0}
    after |= {"cnt_election_time": 2.0}
    found = activity(before, after | {}, {"Snapshotting": 1})
    assert found.log_syncs is not None and (found.log_syncs.count, found.log_syncs.mean_s) == (200, 0.002)
    assert (found.data_bytes, found.data_grown_bytes, found.leader_changes) == (30, 20, None)
    assert not list(store_findings(StoreActivity({"m1": found}))), "without a histogram nothing is known of the slowest"
    restarted = activity(after, before, None)
    assert restarted.log_syncs is None and restarted.data_bytes == 10


def floor_of(*delays_ms: float, sync_ms: dict[str, float] | None = None) -> Floor:
    """Members m1, m2, ... at these delays, the client at 0; an fdatasync takes 1 ms unless said otherwise."""
    made = [
        Node(name, IPv4Address(167772161 + number), None, None, LinkSpec(*[DirectionSpec(round(delay * MS), None)] * 2))
        for number, (name, delay) in enumerate([*((f"m{n}", d) for n, d in enumerate(delays_ms, 1)), ("benchmark", 0)])
    ]
    config = Config(Path("c"), "", IPv4Network("10.0.0.0/24"), tuple(made[:-1]), made[-1], EtcdSettings(), None)
    times = {node.name: (sync_ms or {}).get(node.name, 1.0) * MS for node in made[:-1]}
    return Floor(ZooKeeper(), star(config), times)


@pytest.mark.parametrize(
    ("floor", "scenario", "living", "expected"),
    [
        # The client's RTT of 6; a follower's RTT of 12 and its sync.
        (floor_of(3, 3, 3), WRITE, "m1 m2 m3", 6 + 12 + 1),
        (floor_of(3, 3, 3), replace(WRITE, target="m2"), "m1 m2 m3", 6 + 12 + (12 + 1)),
        (floor_of(3, 3, 3), READ, "m1 m2 m3", 6),
        (floor_of(3, 3, 3), replace(READ, target="m2"), "m1 m2 m3", 6 + 12),
        (floor_of(3, 3, 3), replace(LOCAL, target="m2"), "m1 m2 m3", 6),
        # The leader's own sync does not count where two followers are a majority; with one of them dead it does.
        (floor_of(3, 3, 3, sync_ms={"m1": 50}), WRITE, "m1 m2 m3", 6 + 13),
        (floor_of(3, 3, 3, sync_ms={"m1": 50}), WRITE, "m1 m2", 6 + 50),
        # Nor does that of the follower that is asked.
        (floor_of(3, 3, 3, sync_ms={"m2": 50}), replace(WRITE, target="m2"), "m1 m2 m3", 6 + 12 + 13),
        (floor_of(3, 3, 3, sync_ms={"m2": 50, "m3": 40}), WRITE, "m1 m2 m3", 6 + 12 + 40),
        (floor_of(3), WRITE, "m1", 6 + 1),
        (floor_of(1, 1, 5, 40, 40), WRITE, "m1 m2 m3 m4 m5", 2 + 12 + 1),
    ],
)
def test_the_floor_is_what_the_protocol_waits_for(
    floor: Floor, scenario: Scenario, living: str, expected: float
) -> None:
    found = floor.median_s(scenario, "m1", living.split())
    assert found is not None and found * 1000 == pytest.approx(expected, abs=1e-6)


def test_without_forced_syncs_none_is_waited_for() -> None:
    store = ZooKeeper(replace(ZooKeeper().choice, flags=(("forceSync", "no"),)))
    network: Any = SimpleNamespace(one_way_ns=lambda a, b, size: 3 * MS, sending_ns=lambda a, b, size: 0)
    members = ["m1", "m2", "m3"]
    shares = store.least_latencies(Deployment(members, members, "c", network, dict.fromkeys(members, 9e9)))
    assert list(shares(WRITE, "m1", "m1")) == [(1.0, 12 * MS)]


def test_sizes_are_those_of_the_protocol() -> None:
    sizes = messages.WriteSizes.of(WRITE)
    # setData of /00000001 with 256 bytes: length, xid, type, path, data, version; its answer has a Stat of 68 bytes.
    assert sizes.request == 4 + 8 + (4 + 9) + (4 + 256) + 4 and sizes.answer == 4 + 16 + 68
    assert messages.WriteSizes.of(replace(WRITE, type="txn")).request > sizes.request
    assert messages.ReadSizes.of(READ).request == messages.ReadSizes.of(LOCAL).request + 4 + 8 + 5
