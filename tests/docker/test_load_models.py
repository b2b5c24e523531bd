"""Open loops, durations, mixed loads, transactions, spans and single members, from a scenario file to the rows."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest

from containernet_env.results.run_directory import read_run
from tests.docker.conftest import COMMAND, PROJECT
from tests.docker.machine_state import left_over, snapshot

pytestmark = pytest.mark.docker

OPEN = {"rate": 100, "duration": "2s", "warmup": "200ms", "clients": 50, "conns": 5}
CLOSED = {"total": 50, "clients": 5, "conns": 5}
SCENARIOS = {
    "dataset": {"keyPrefix": "data/", "keySize": 8, "valSize": 256, "keys": 100},
    "scenarios": [
        {"type": "write", "load": OPEN, "data": {"keySize": 8, "valSize": 256}, "target": ["leader", "etcd2"]},
        {
            "type": "mixed",
            "load": OPEN | {"arrival": "poisson"},
            "ratio": 0.5,
            "consistency": "l",
            "keys": "uniform",
            "verify": True,
        },
        {
            "type": "read",
            "load": [{"total": 100, "rate": 200, "clients": 50, "conns": 5}],
            "consistency": "s",
            "target": "etcd3",
            "keys": "zipfian",
            "zipfExponent": 1.2,
            "verify": True,
        },
        {"type": "read", "load": {"duration": "1s", "clients": 2, "conns": 2, "warmup": 10}, "consistency": "l"},
        # More than four clients can do where each request takes 18 ms or more: it falls behind.
        {
            "type": "write",
            "load": {"rate": 1000, "duration": "1s", "clients": 4, "conns": 2},
            "data": {"keySize": 8, "valSize": 256},
            "target": "leader",
        },
        {"type": "txn", "load": CLOSED, "keys": "shuffled"},
        {"type": "read", "load": CLOSED, "consistency": "l", "spanKeys": 20, "limit": 5, "keys": "uniform"},
        {"type": "read", "load": CLOSED, "consistency": "s", "prefix": "data/0000000"},
    ],
}


def test_every_load_model_leaves_its_row(tmp_path: Path) -> None:
    before = snapshot()
    scenarios, out = tmp_path / "models.json", tmp_path / "out.csv"
    scenarios.write_text(json.dumps(SCENARIOS))
    config = PROJECT / "configs" / "3node-3ms.json"
    argv = [str(COMMAND), "run", str(config), str(out), "--scenarios", str(scenarios), "--port", "18080"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    found = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["Error"] for row in found] == ["-"] * 9, output
    leader, member, mixed, read, closed, too_fast, txn, span, prefix = found

    results = [line["load"] for line in read_run(tmp_path / "out.runs" / leader["RunId"]).scenarios]
    operations = ["put", "put", "mixed", "range", "range", "put", "txn", "range", "range"]
    assert [result["operation"] for result in results] == operations
    for row, result in zip(found[:4], results, strict=False):
        assert (row["Unknown"], row["Unsent"], row["Errors"]) == ("0", "0", "0"), row
        assert row["FellBehind"] in ("yes", "no")
        assert float(row["OfferedRate_per_s"]) == result["rate_offered_per_s"]
        assert (
            0.7 * float(row["OfferedRate_per_s"])
            < float(row["AchievedRate_per_s"])
            < 1.3 * float(row["OfferedRate_per_s"])
        ), row
        # In each row a response cannot be faster than its service.
        assert float(row["ServiceTime_50%_s"]) <= float(row["50%"]), row
    # A constant rate: exactly as many requests as it makes.
    assert (leader["RequestCount"], results[0]["requests"], results[0]["ok"]) == ("200", 200, 200)
    assert results[0]["configured"]["targetLeader"] is True
    assert (member["Target"], results[1]["configured"]["targetMember"]) == ("etcd2", "10.0.0.252:2379")
    assert (mixed["TestType"], mixed["KeySize"], mixed["ValueSize"], mixed["Consistency"]) == ("mixed", "8", "256", "l")
    assert results[2]["by_operation"]["put"]["ok"] > 50 < results[2]["by_operation"]["range"]["ok"]
    # 6 ms to a member: a serializable read goes no further.
    assert 0.006 <= float(read["Fastest"]) < 0.018, read
    assert (closed["OfferedRate_per_s"], closed["FellBehind"], closed["ServiceTime_50%_s"]) == ("-",) * 3
    assert int(closed["RequestCount"]) == results[4]["requests"] == results[4]["ok"] > 0
    assert 1 <= float(closed["Total"]) < 2
    assert too_fast["FellBehind"] == "yes" and int(too_fast["Unsent"]) > 0, too_fast
    assert f"{too_fast['Scenario']}: behind its schedule: " in output
    asked = ("TestType", "Consistency", "KeySize", "ReadSpan", "ReadLimit", "ReadAnswer")
    assert [txn[column] for column in asked] == ["txn", "-", "8", "-", "-", "-"]
    assert [span[column] for column in asked] == ["read", "l", "-", "20 keys", "5", "values"]
    assert [prefix[column] for column in asked] == ["read", "s", "-", "prefix data/0000000", "-", "values"]
    assert [result["ok"] for result in results[6:]] == [50] * 3
    for result in results[7:]:
        assert result["configured"]["verify"] and result["configured"]["keySpace"] == 100 and result["empty"] == 0
    assert (results[7]["configured"]["spanKeys"], results[7]["configured"]["limit"]) == (20, 5)
    assert (results[8]["configured"]["key"], results[8]["configured"]["prefix"]) == ("data/0000000", True)
    assert left_over(before) == {}
