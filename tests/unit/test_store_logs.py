"""What logs of members show: warnings of a scenario by kind, and why one ended.

On lines as each store writes them; the logs in tests/recorded/etcd are of etcd 3.7.3 with the project's log format.
What they show is in ``__snapshots__``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.stores import consul, etcd, zookeeper
from containernet_env.stores.cluster import OTHERS
from containernet_env.stores.kinds import KINDS

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
ETCD = """\
2026-11-22T02:18:13.939426Z\twarn\tembed/config.go:956\tRunning http and grpc server on single port.
2026-11-22T02:18:20.000400Z\tinfo\traft/raft.go:1\t8e9e05c52164694d became leader at term 2
2026-11-22T02:18:20.000600Z\twarn\ttxn/util.go:93\tapply request took too long\t{"took": "151ms"}
2026-11-22T02:18:21.500000Z\twarn\ttxn/util.go:93\tapply request took too long\t{"took": "251ms"}
2026-11-22T02:18:21.600000Z\twarn\traft\traft/raft.go:9\t8e9e05c52164694d stepped down to follower
2026-11-22T02:18:21.700000Z\twarn\traft\traft/raft.go:9\tade526d28b1f92f7 stepped down to follower
2026-11-22T02:18:22.000999Z\terror\twal/wal.go:886\tslow fdatasync
2026-11-22T02:18:22.001000Z\twarn\twal/wal.go:886\tslow fdatasync
"""
CONSUL = """\
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
CONSUL_SIGNALLED = """\
2026-11-23T03:13:00.391Z [INFO]  agent: Caught: signal=terminated
2026-11-23T03:13:00.396Z [ERROR] agent.anti_entropy: failed to sync remote state: error="No cluster leader"
2026-11-23T03:13:00.399Z [INFO]  agent: Exit code: code=1
"""
CONSUL_PORT_TAKEN = """\
2026-11-23T03:13:04.389Z [WARN]  agent.auto_config: bootstrap = true: do not enable unless necessary
2026-11-23T03:13:04.391Z [ERROR] agent: Error starting agent: error="Failed to start Consul server: Failed to start \
RPC layer: listen tcp 127.0.0.1:8300: bind: address already in use"
2026-11-23T03:13:04.391Z [INFO]  agent: Exit code: code=1
"""
ZOOKEEPER = """\
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
PROXY = """\
2026-11-23T06:47:30.000Z\tinfo\tetcdmain/etcd.go:64\tready to serve client requests
Running zetcd proxy
"""
SIGNALLED = (
    "2026-11-23T06:47:31.000Z\tinfo\tosutil/interrupt_unix.go:64\treceived signal; shutting down\t"
    '{"signal": "terminated"}\n'
)
CRASHED = "panic: boom\n\ngoroutine 1 [running]:\n"


def test_warnings_snapshots_and_elections_are_counted_by_kind(snapshot: SnapshotAssertion) -> None:
    for store, log, began, ended in (
        (etcd, ETCD, "2026-11-22T02:18:20.000Z", "2026-11-22T02:18:22.000Z"),
        (etcd, ETCD, "2026-11-22T02:18:22.001Z", "2026-11-22T02:18:23.000Z"),
        (consul, CONSUL, "2026-11-23T03:29:10.000000Z", "2026-11-23T03:29:10.400000Z"),
        (zookeeper, ZOOKEEPER, "2026-11-23T03:00:01.000Z", "2026-11-23T03:00:03.000Z"),
    ):
        assert store.LOG.between(log, began, ended).warnings == snapshot(name=f"{store.__name__} from {began}")
        assert store.LOG.between("", began, ended).warnings == {}


def test_many_kinds_of_warnings_are_counted_together() -> None:
    for store, line in (
        (etcd, "2026-11-22T02:18:20.{n:06}Z\twarn\ta/b.go:1\tkind{kind}\n"),
        (consul, "2026-11-22T02:18:20.000Z [WARN]  agent: kind{kind}\n"),
        (zookeeper, "2026-11-22T02:18:20.000Z WARN  Some - kind{kind}\n"),
    ):
        log = "".join(line.format(n=n, kind=n % 30) for n in range(60))
        found = store.LOG.between(log, "2026-11-22T02:18:20.000Z", "2026-11-22T02:18:20.001Z").warnings
        assert len(found) == 21 and sum(found.values()) == 60 and found[OTHERS] == 20, store
    log = (RECORDED / "etcd" / "disk-full.log").read_text()
    found = etcd.LOG.between(log, "2026-01-01T00:00:00.000Z", "2027-01-01T00:00:00.000Z").warnings
    assert found["Running http and grpc server on single port. This is not recommended for production."] > 0
    assert not any(kind.startswith("Running:") for kind in found), "that is information"
    # Elections are in Consul's log.
    for began, elections in (("2026-11-23T03:29:10.000Z", 1), ("2026-11-23T03:29:00.000Z", 2)):
        part = consul.LOG.between(CONSUL, began, "2026-11-23T03:29:10.400Z")
        assert consul.ConsulMember.activity({}, {}, part).leader_changes == elections


ENDS: dict[str, list[tuple[str, bool]]] = {
    "consul": [
        (CONSUL_SIGNALLED, False), (CONSUL_PORT_TAKEN, False), ("==> raft_multiplier cannot be 11.\n", False),
        ("flag provided but not defined: -nosuch\nUsage:\n", False), (CONSUL, True), ("", True),
        (CONSUL + CRASHED, False),
    ],
    "zookeeper": [
        (ZOOKEEPER, False), (ZOOKEEPER, True), ("", True), ("2026-11-23T03:00:00.000Z INFO  Environment - x\n", False),
        (f"{ZOOKEEPER}Terminating due to java.lang.OutOfMemoryError: Java heap space\n", False),
        ("Error: Could not find or load main class org.apache.x\nCaused by: y\n", False),
        (ZOOKEEPER.replace("WARN  QuorumCnx", "ERROR QuorumCnx"), False),
        ("start-zookeeper: 1: exec: java: not found\n", False),
    ],
    "zetcd": [
        (f"{PROXY}the proxy ended with status 1\n{SIGNALLED}", False),
        (f"{PROXY}{CRASHED}the proxy ended with status 2\n{SIGNALLED}", False),
        (f"{PROXY}the proxy ended with status 137\n{SIGNALLED}", False),
        # It goes because etcd has gone.
        (f"{PROXY}{SIGNALLED}the proxy ended with status 1\n", False), (f"{PROXY}{SIGNALLED}", False), (PROXY, True),
    ],
}  # fmt: skip


@pytest.mark.parametrize("store", ENDS)
def test_last_words_name_the_cause_in_one_line(store: str, snapshot: SnapshotAssertion) -> None:
    assert [KINDS[store].members.last_words(*end) for end in ENDS[store]] == snapshot


ETCD_ENDS = [
    *((name, False) for name in (
        "disk-full-at-start", "disk-full", "wal-corrupted", "port-taken", "no-such-address", "read-only", "sigterm",
        "sigquit", "unknown-flag",
    )),
    # etcd's warnings of every start are no reason.
    ("sigkill", True), ("oom", True),
    # Had it been killed after its disk was full, the error would be worth a mention, but not as the reason.
    ("disk-full", True),
]  # fmt: skip
SLOW = '2026-11-22T02:18:20.1Z\twarn\ttxn/util.go:93\tapply request took too long\t{"took": "302ms"}\n'
NO_ETCD = "/usr/local/bin/wait-at-gate: 24: exec: etcd: not found"


def test_why_an_etcd_member_ended_is_found_in_its_log(snapshot: SnapshotAssertion) -> None:
    logs = {name: (RECORDED / "etcd" / f"{name}.log").read_text() for name, _ in ETCD_ENDS}
    assert {
        f"{name}, killed: {killed}": etcd.LOG.last_words(logs[name], killed) for name, killed in ETCD_ENDS
    } == snapshot
    # Of a member that was killed, a warning after its start.
    assert etcd.LOG.last_words(logs["sigkill"] + SLOW, killed=True) == "last warning: apply request took too long"
    assert etcd.LOG.last_words(SLOW + logs["sigkill"], killed=True) == ""
    assert [etcd.LOG.last_words(said, killed=False) for said in (f"{NO_ETCD}\n", "")] == [NO_ETCD, ""]
