"""Several clients in containers: they load from one start, and leave their rows and that of all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from containernet_env.results.csv_file import load
from containernet_env.results.run_directory import find_run, read_run
from containernet_env.results.statistics import decode
from tests.docker.runs import rows, run

pytestmark = pytest.mark.docker

MEMBER = {"mem": "512m", "cpus": 1}
TOPOLOGY = {
    "nodes": [MEMBER | {"site": site} for site in ("eu", "us", "asia")],
    "clients": [{"site": "eu"}, {"site": "us", "mem": "256m"}],
    "rtt": {"eu-us": "20ms", "eu-asia": "40ms", "us-asia": "30ms"},
}
LOAD = {"total": 60, "clients": 2, "conns": 1}
SCENARIOS = {
    "dataset": {"keySize": 8, "valSize": 64, "keys": 100},
    "scenarios": [
        {"type": "write", "load": LOAD, "data": {"keySize": 8, "valSize": 64}, "target": "leader"},
        {"type": "read", "load": LOAD, "target": "nearest", "consistency": "s"},
        {
            "type": "read",
            "load": {"duration": "1s", "rate": 20, "clients": 5, "conns": 1},
            "consistency": "l",
            "clients": {"us": {"rate": 40}, "client-eu": {}},
        },
    ],
}
CLIENTS = ["client-eu", "client-us", "all"]


def test_a_run_of_two_clients(tmp_path: Path) -> None:
    config, given, out = tmp_path / "topology.json", tmp_path / "scenarios.json", tmp_path / "out.csv"
    config.write_text(json.dumps(TOPOLOGY))
    given.write_text(json.dumps(SCENARIOS))
    done = run(config, out, "--scenarios", given, "--offload")
    assert done.returncode == 0, done.stderr
    found = rows(out)
    assert [row["Client"] for row in found] == CLIENTS * 3
    assert {row["LinkOffload"] for row in found} == {"yes"}
    assert {row["Error"] for row in found} == {"-"} and {row["Errors"] for row in found} == {"0"}
    assert [row["RequestCount"] for row in found] == ["60", "60", "120"] * 2 + ["20", "40", "60"]
    assert [row["OfferedRate_per_s"] for row in found[6:]] == ["20.0000", "40.0000", "60.0000"]
    # Each reads at its own site, where nothing is in between, and no write of one is faster than its links.
    assert {row["Floor_50%_s"] for row in found[3:6]} == {"0.000000"}
    assert all(float(row["Fastest"]) >= 0.02 for row in found[:2]), "a leader's quorum is 20 ms away, or farther"
    lines = read_run(find_run(out)).scenarios
    for one, other, every in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        assert one.load["began_ns"] == other.load["began_ns"] == every.load["began_ns"], "one start"
        counts = [decode(line.load["response_time"]["histogram"]).total for line in (one, other, every) if line.load]
        assert counts[0] + counts[1] == counts[2] == every.load["ok"]
    assert load(out)["Client"].tolist() == ["all"] * 3
