"""A saturation search on real containers, where the answer is known: a link carries so many bytes a second."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from containernet_env.results.run_directory import read_run
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import run

pytestmark = pytest.mark.docker

CONFIG = [{"ip": "10.0.0.1", "mem": "512m", "cpus": 1, "bandwidth": 10, "link_delay": "1ms"}]
ANSWER_BYTES = 10 * 1028
"""Ten values of 1000 bytes with their keys and revisions; frames and HTTP/2 add less than a tenth."""
SCENARIOS = {
    "dataset": {"keySize": 8, "valSize": 1000, "keys": 100},
    "scenarios": [
        {
            "type": "read",
            "load": {
                "search": {"p90": "30ms", "from": 20, "to": 2000, "step": "1s", "within": 0.1, "repeats": 3},
                "warmup": "200ms",
                "clients": 20,
                "conns": 2,
            },
            "consistency": "s",
            "spanKeys": 10,
        }
    ],
}


@pytest.mark.long
def test_a_search_finds_what_the_link_carries(tmp_path: Path) -> None:
    before = snapshot()
    config, scenarios, out = tmp_path / "config.json", tmp_path / "search.json", tmp_path / "out.csv"
    config.write_text(json.dumps(CONFIG))
    scenarios.write_text(json.dumps(SCENARIOS))
    done = run(config, out, "--scenarios", scenarios)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert (row["Error"], row["SearchObjective"]) == ("-", "p90<=30ms"), (row, output)
    most = 10e6 / 8 / ANSWER_BYTES
    low = float(row["SearchLow_per_s"])
    assert low < 1.05 * most, (low, most)
    if row["SearchEnd"] == "machine":  # somebody else's work, which is named, and no rate
        assert (row["SearchRate_per_s"], row["Valid"], row["Reasons"]) == ("-", "unknown", "search"), row
        assert "this machine is the limit (" in output, output
    else:
        high = float(row["SearchHigh_per_s"])
        assert (row["SearchEnd"], float(row["SearchRate_per_s"]), row["Valid"]) == ("found", low, "yes"), (row, output)
        assert 0.8 * most < low < high < 1.25 * most, (low, high, most)
        assert "p90<=30ms: holds up to " in output, output
    assert float(row["AchievedRate_per_s"]) == pytest.approx(low, rel=0.02)
    assert float(row["90%"]) <= 0.03

    directory = tmp_path / "out.runs" / row["RunId"]
    probes = [json.loads(line) for line in (directory / "probes.jsonl").read_text().splitlines()]
    assert len(probes) == int(row["SearchProbes"])
    for line in probes:
        probe, load = line["probe"], line["load"]
        assert load["configured"]["rate"] == probe["rate_per_s"]
        assert load["configured"]["loadSeed"] == probe["seed"]
        assert load["warmup"]["ok"] > 0 and load["requests"] >= 100
        held = load["failed"] + load["outcomes"]["unsent"] == 0
        held &= load["response_time"]["percentiles_s"]["90"] <= 0.03
        assert (probe["verdict"] == "held") is held or probe["verdict"] in ("generator", "machine"), probe
    (scenario,) = read_run(directory).scenarios
    assert scenario["search"]["low_per_s"] == low
    assert left_over(before) == {}
