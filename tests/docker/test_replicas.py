"""The replicas on a real network: a store that is none of etcd's kind, from its image to the judgement of a history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from containernet_env import measure
from containernet_env.results.histories import histories_of
from containernet_env.runs.verify import judge
from tests.docker.machine_state import left_over, snapshot

pytestmark = pytest.mark.docker


LINK_MS, KEYS = 3, 300


def topology(folder: Path, quorum: int) -> Path:
    """Three replicas, of which as many acknowledge a write as are asked by a read."""
    nodes = [
        {"ip": f"10.0.0.{number}", "mem": "64m", "cpus": 1, "bandwidth": 1000, "link_delay": f"{LINK_MS}ms"}
        for number in (1, 2, 3)
    ]
    store = {"kind": "replicas", "flags": {"ack": quorum, "from": quorum}}
    path = folder / "replicas.json"
    path.write_text(json.dumps({"store": store, "nodes": nodes}))
    return path


def scenarios(folder: Path) -> Path:
    """Writes of one client, and a load one of whose coordinators is cut off from the others, and killed 2 s later."""
    alone = {"total": 50, "clients": 1, "conns": 1}
    mixed = {"rate": 300, "duration": "7s", "clients": 900, "conns": 90, "timeout": "2s"}
    events = [{"at": "1s", "partition": "leader"}, {"at": "3s", "kill": "leader"}]
    write = {"type": "write", "load": alone, "data": {"keySize": 8, "valSize": 64}, "target": "leader"}
    kept = {"type": "mixed", "load": mixed, "ratio": 0.5, "keys": "uniform", "consistency": "l", "history": True}
    path = folder / "scenarios.json"
    dataset = {"keySize": 8, "valSize": 64, "keys": KEYS}
    path.write_text(json.dumps({"dataset": dataset, "scenarios": [write, kept | {"events": events}]}))
    return path


@pytest.mark.long
@pytest.mark.parametrize("quorum", [1, 2])
def test_only_quorums_that_meet_keep_what_a_lost_coordinator_has_acknowledged(tmp_path: Path, quorum: int) -> None:
    before = snapshot()
    result = measure(topology(tmp_path, quorum), scenarios(tmp_path), tmp_path / "out.csv")
    assert left_over(before) == {}
    alone, lost = result.outcomes
    for outcome in (alone, lost):
        print(outcome.error, outcome.verdict, [finding.text for finding in outcome.findings])
        assert outcome.error is None
    assert alone.load is not None and alone.floor_s is not None
    # To the coordinator and back, and where two acknowledge, to the nearest of the others and back.
    assert alone.floor_s * 1e3 == pytest.approx(2 * LINK_MS + (quorum - 1) * 4 * LINK_MS, abs=2)
    assert alone.load.median_s is not None and alone.load.median_s >= alone.floor_s
    assert lost.leader is not None and lost.leader.startswith("replica1")
    (history,) = histories_of(result.directory)
    judgement = judge(history, tmp_path / "verify", time_s=60, memory_bytes=1 << 30)
    print(judgement.reason, judgement.values)
    assert judgement.values["compared"] == "final state"
    assert judgement.verdict == ("violated" if quorum == 1 else "ok"), judgement
