"""ZooKeeper without a ZooKeeper: its answers, who leads, what it counts, and sessions in which keys are read."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.model.findings import store_findings
from containernet_env.model.usage import Leadership, StoreActivity
from containernet_env.stores.cluster import LogPart, MemberPlace, MemberStatus, Written
from containernet_env.stores.zookeeper import (
    ZooKeeperCluster,
    ZooKeeperMember,
    consistent_read,
    parse_mntr,
    parse_srvr,
    path_of,
    query,
    values,
)
from tests.simulated_time import START_NS, World, simulated
from tests.unit.fake_servers import FakeHost, Scripted, buffer

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "zookeeper"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


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
    restarted = ZooKeeperMember.activity(after, before, None)
    assert restarted.log_syncs is None and restarted.data_bytes == 10


# --- sessions with members that answer, or misbehave ------------------------------------------------------------------

SESSION = buffer(struct.pack(">iiqi", 0, 10_000, 77, 16) + bytes(16) + b"\0")
SYNCED = buffer(struct.pack(">iqi", 1, 5, 0) + struct.pack(">i", 1) + b"/")
CLOSED = buffer(struct.pack(">iqi", 2, 6, 0))


@simulated()
def test_a_consistent_read_is_a_session_and_a_sync(world: World) -> None:
    server = Scripted((49, SESSION), (17, SYNCED), (12, CLOSED))
    consistent_read(server, 5.0)
    assert struct.unpack(">iiqiq", server.heard[:28]) == (45, 0, 0, 10_000, 0)
    assert server.heard[49:66] == buffer(struct.pack(">iii", 1, 9, 1) + b"/")
    no_root = buffer(struct.pack(">iqi", 1, 5, -101))
    consistent_read(Scripted((49, SESSION), (17, no_root), (12, CLOSED)), 5.0)
    with pytest.raises(RunError, match="a session of ZooKeeper failed: timed out"):
        consistent_read(Scripted((1000, b"")), 5.0)
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
                values(Scripted((49, SESSION), (17, SYNCED), *steps), ["d"], 5.0)
            else:
                consistent_read(Scripted(*steps), 5.0)


def found(xid: int, data: bytes, mzxid: int) -> bytes:
    """An answer to getData, with the znode's Stat."""
    stat = struct.pack(">qqqqiiiqiiq", 3, mzxid, 1, 2, 3, 4, 5, 6, len(data), 0, 9)
    return buffer(struct.pack(">iqi", xid, 5, 0) + struct.pack(">i", len(data)) + data + stat)


MISSING = buffer(struct.pack(">iqi", 3, 5, -101))
FINAL_CLOSED = buffer(struct.pack(">iqi", 4, 6, 0))


def test_keys_are_read_in_one_session_after_a_sync() -> None:
    server = Scripted((49, SESSION), (17, SYNCED), (25, found(2, b"x" * 100, 77)), (19, MISSING), (12, FINAL_CLOSED))
    assert values(server, ["d/000", "d"], 5.0) == [Written(77, "d/000", "x" * 32), Written(0, "d", None)]
    get = struct.pack(">iii", 2, 4, 8) + b"/d%2F000" + b"\0"
    assert server.heard[66:].startswith(buffer(get)) and server.heard.endswith(buffer(struct.pack(">ii", 4, -11)))
    # Znodes are named as the load names them.
    named = {"k": "/k", "a b": "/a b", "a/b": "/a%2Fb", "50%": "/50%25", "\x00\x1f\x7f": "/%00%1F%7F", "é": "/%C3%A9"}
    named |= {".": "/%2E", "..": "/%2E.", "zookeeper": "/%7Aookeeper", "zookeeper1": "/zookeeper1"}
    assert {key: path_of(key) for key in named} == named


@simulated()
def test_the_final_state_is_that_of_the_first_living_member_that_can_be_read() -> None:
    whole = Scripted((49, SESSION), (17, SYNCED), (17, found(2, b"abc", 7)), (12, FINAL_CLOSED))
    cluster = Members(None, Scripted((49, b"")), whole)
    state = cluster.written("d/", 1, ["d/1"], 5.0)
    assert state.final and list(state.writes) == [Written(7, "d/1", "abc")]
    assert list(Members(None).written("", 1, [], 5.0).writes) == []
    # One that serves no client has started, and a silent one has not.
    members = Members(Scripted((4, b"imok")), Scripted((4, b""))).members
    assert [member.has_started() for member in members] == [True, False]
    for nobody, words in ((Members(None), "no member lives"), (Members(Scripted((49, b""))), "m1: .*closed")):
        with pytest.raises(RunError, match=words):
            list(nobody.written("d/", 1, ["d/1"], 5.0).writes)
