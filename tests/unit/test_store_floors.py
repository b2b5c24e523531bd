"""The floor of each store but etcd (test_floor.py), against cases worked by hand.

Between a member and the client, and between two members, lies the sum of both links, there and back; the client's own
link has no delay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from containernet_env.results.floor import Floor
from containernet_env.stores.proxied import Cetcd, Zetcd
from containernet_env.stores.zookeeper import store as messages
from tests.unit.store_files import planned, scenario

EQUAL, NEAR_AND_FAR = (3, 3, 3), (1, 2, 4)
WAL = {"kind": "consul", "flags": {"raft_logstore": "wal"}}
PROXIED = {"kind": "zetcd", "binary": "/bin/true"}
SERVICE = {"kind": "http", "binary": "/bin/true", "port": 80, "put": "/{key}", "get": "/{key}"}


def replicas(quorum: int) -> dict[str, Any]:
    return {"kind": "replicas", "flags": {"ack": quorum, "from": quorum}}


@pytest.mark.parametrize(
    ("store", "delays", "syncs", "kind", "target", "expected"),
    [
        # 6 ms to the client, 12 ms between members; two syncs of 1 ms at each of two members.
        ("consul", EQUAL, (1, 1, 1), "write", 1, 6 + 2 + 12 + 2),
        ("consul", EQUAL, (1, 1, 1), "write", 2, 6 + 12 + 2 + 12 + 2),
        (WAL, EQUAL, (1, 1, 1), "write", 1, 6 + 1 + 12 + 1),
        ("consul", EQUAL, (1, 1, 1), "txn", 1, 6 + 2 + 12 + 2),
        # Heartbeats that are under way already may tell that it leads, so none has to be waited for.
        ("consul", EQUAL, (1, 1, 1), "read l", 1, 6),
        ("consul", EQUAL, (1, 1, 1), "read l", 2, 6 + 12),
        ("consul", EQUAL, (1, 1, 1), "read s", 2, 6),
        ("consul", EQUAL, (1, 1, 1), "read default", 1, 6),
        ("consul", EQUAL, (1, 1, 1), "read default", 2, 6 + 12),
        ("consul", EQUAL, (1, 1, 1), "read default", "cluster", 6 + 12),
        # The client's RTT of 6; a follower's RTT of 12 and its sync.
        ("zookeeper", EQUAL, (1, 1, 1), "write", "leader", 6 + 12 + 1),
        ("zookeeper", EQUAL, (1, 1, 1), "write", 2, 6 + 12 + (12 + 1)),
        ("zookeeper", EQUAL, (1, 1, 1), "read l", "leader", 6),
        ("zookeeper", EQUAL, (1, 1, 1), "read l", 2, 6 + 12),
        ("zookeeper", EQUAL, (1, 1, 1), "read s", 2, 6),
        # The leader's own sync does not count where two followers are a majority; with one of them dead it does.
        ("zookeeper", EQUAL, (50, 1, 1), "write", "leader", 6 + 13),
        ("zookeeper", EQUAL, (50, 1, None), "write", "leader", 6 + 50),
        # Nor does that of the follower that is queried.
        ("zookeeper", EQUAL, (1, 50, 1), "write", 2, 6 + 12 + 13),
        ("zookeeper", EQUAL, (1, 50, 40), "write", "leader", 6 + 12 + 40),
        ("zookeeper", (3,), (1,), "write", "leader", 6 + 1),
        ("zookeeper", (1, 1, 5, 40, 40), (1,) * 5, "write", "leader", 2 + 12 + 1),
        ({"kind": "zookeeper", "flags": {"forceSync": "no"}}, EQUAL, (9e3,) * 3, "write", 1, 6 + 12),
        # To the client 2, 4, 8 ms; between members 6 ms (1-2), 10 ms (1-3), 12 ms (2-3). A write needs as many as are
        # the fastest, a read those that come next.
        (replicas(1), NEAR_AND_FAR, (1, 2, 3), "write", 1, 2 + 1),
        (replicas(2), NEAR_AND_FAR, (1, 2, 3), "write", 1, 2 + 6 + 2),
        (replicas(3), NEAR_AND_FAR, (1, 2, 3), "write", 1, 2 + 10 + 3),
        ("replicas", NEAR_AND_FAR, (1, 2, 3), "write", 2, 4 + 6 + 1),
        (replicas(1), NEAR_AND_FAR, (1, 2, 3), "read l", 3, 8),
        (replicas(2), NEAR_AND_FAR, (1, 2, 3), "read l", 1, 2 + 6),
        (replicas(2), NEAR_AND_FAR, (1, 2, 3), "read l", 2, 4 + 12),
        (replicas(3), NEAR_AND_FAR, (1, 2, 3), "read l", 3, 8 + 12),
        # Of a service only the client's own way is known.
        (SERVICE, NEAR_AND_FAR, (9e3,) * 3, "write", 2, 4),
        (SERVICE, NEAR_AND_FAR, (9e3,) * 3, "read l", 2, 4),
        # Of a proxy it is etcd's.
        (PROXIED, NEAR_AND_FAR, (1, 2, 3), "write", 1, 2 + 6 + 2),
        (PROXIED, NEAR_AND_FAR, (1, 2, 3), "read l", 1, 2 + 6),
        (PROXIED, NEAR_AND_FAR, (1, 2, 3), "read s", 3, 8),
        (PROXIED, NEAR_AND_FAR, (1, 2, 3), "write", 2, 4 + 6 + 6 + 2),
    ],
)
def test_the_floor_is_what_the_protocol_waits_for(
    tmp_path: Path, store: Any, delays: tuple[int, ...], syncs: tuple[float | None, ...], kind: str, target: Any,
    expected: float,
) -> None:  # fmt: skip
    """``syncs`` are in ms, ``None`` of the dead; ``target`` is a member's number. The first member leads."""
    plan = planned(tmp_path, store, [f"{delay}ms" for delay in delays])
    names = [node.name for node in plan.config.nodes]
    times = {name: 1e6 * (sync or 1) for name, sync in zip(names, syncs, strict=True)}
    living = [name for name, sync in zip(names, syncs, strict=True) if sync is not None]
    queried = scenario(kind, target=target if isinstance(target, str) else names[target - 1])
    found_s = Floor(plan.store, plan.topology, times).median_s(queried, names[0], living)
    assert found_s is not None and found_s * 1e3 == pytest.approx(expected, abs=1e-6)


def test_sizes_are_those_of_the_protocol() -> None:
    write, read = scenario("write"), scenario("read l")
    # setData of /00000001 with 64 bytes: length, xid, type, path, data, version; its answer has a Stat of 68 bytes.
    sizes = messages.write_sizes(write)
    assert sizes.request == 4 + 8 + (4 + 9) + (4 + 64) + 4 and sizes.answer == 4 + 16 + 68
    # A transaction has three headers of 9 bytes, and a check of that path and its version.
    assert messages.write_sizes(scenario("txn")).request == sizes.request + 3 * 9 + (4 + 9) + 4
    # A linearizable read has a sync of "/" before it.
    assert messages.read_sizes(read)[0] == messages.read_sizes(scenario("read s"))[0] + 4 + 8 + 5
    for proxy in (Zetcd, Cetcd):
        sizes = proxy.default().write_sizes(write)
        assert sizes.request > 8 + 64 > sizes.answer - 64
