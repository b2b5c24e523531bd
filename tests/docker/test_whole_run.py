"""One run of every load model on three members: its rows, its run directory, what it used, and what is left of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from containernet_env.results.run_directory import ReadRun, find_run, read_run
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import CONFIG, call, rows, run

pytestmark = pytest.mark.docker

SIZE = {"keySize": 8, "valSize": 256}
OPEN = {"rate": 100, "duration": "1s", "warmup": "200ms", "clients": 50, "conns": 5}
CLOSED = {"total": 50, "clients": 5, "conns": 5}
MIXED = {"type": "mixed", "ratio": 0.5, "consistency": "l", "keys": "uniform", "verify": True}
SCENARIOS = {
    "dataset": {"keyPrefix": "data/", **SIZE, "keys": 100},
    "scenarios": [
        {"type": "write", "load": OPEN, "data": SIZE, "target": ["leader", "etcd2"]},
        MIXED | {"load": OPEN | {"arrival": "poisson"}},
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
            "data": SIZE,
            "target": "leader",
        },
        {"type": "txn", "load": CLOSED, "keys": "shuffled"},
        {"type": "read", "load": CLOSED, "consistency": "l", "spanKeys": 20, "limit": 5, "keys": "uniform"},
        {"type": "read", "load": CLOSED, "consistency": "s", "prefix": "data/0000000"},
        {"type": "write", "load": {"duration": "2s", "clients": 50, "conns": 10}, "data": SIZE, "target": "cluster"},
    ],
}
NAMES = ("leader", "member", "mixed", "read", "closed", "too_fast", "txn", "span", "prefix", "heavy")


@dataclass
class Whole:
    """The run: its output, its rows and its lines of scenarios.jsonl by the name of their scenario, its directory."""

    out: Path
    output: str
    row: dict[str, dict[str, str]]
    line: dict[str, dict[str, Any]]
    kept: ReadRun
    left: dict[str, set[str]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    scenarios, out, before = folder / "models.json", folder / "out.csv", snapshot()
    scenarios.write_text(json.dumps(SCENARIOS))
    done = run(CONFIG, out, "--scenarios", scenarios)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    kept, left = read_run(find_run(out)), left_over(before)
    row, line = (dict(zip(NAMES, found, strict=True)) for found in (rows(out), kept.scenarios))
    return Whole(out, output, row, line, kept, left)


def test_every_scenario_leaves_its_row_and_the_run_nothing_else(whole: Whole) -> None:
    assert {row["Error"] for row in whole.row.values()} == {"-"}, whole.output
    assert {row["RttExpected_ms"] for row in whole.row.values()} == {"12.003"}
    assert [line["identity"] for line in whole.line.values()] == [row["ScenarioHash"] for row in whole.row.values()]
    assert whole.left == {}
    # RTT 6 ms to a member and 12 ms between members: a serializable read goes no further than its member.
    for name, row in whole.row.items():
        assert float(row["Fastest"]) >= (0.006 if row["Consistency"] == "s" else 0.018), (name, row["Fastest"])


def test_open_loops_send_what_their_rate_makes(whole: Whole) -> None:
    operations = ["put", "put", "mixed", "range", "range", "put", "txn", "range", "range", "put"]
    assert [line["load"]["operation"] for line in whole.line.values()] == operations
    for name in ("leader", "member", "mixed", "read"):
        row, load = whole.row[name], whole.line[name]["load"]
        assert row["Errors"] == "0" and load["outcomes"]["failed"] == 0, row
        assert float(row["OfferedRate_per_s"]) == load["rate_offered_per_s"]
        assert float(row["AchievedRate_per_s"]) == pytest.approx(load["rate_achieved_per_s"], abs=1e-3)
        # A response cannot be faster than its service.
        assert float(row["ServiceTime_50%_s"]) <= float(row["50%"]), row
        assert row["FellBehind"] == ("yes" if load["schedule"]["fell_behind"] else "no")
    # A constant rate makes exactly so many requests: each is counted, once.
    for name in ("leader", "member", "read"):
        outcomes = whole.line[name]["load"]["outcomes"]
        assert sum(outcomes.values()) == 100, outcomes
    too_fast = whole.row["too_fast"]
    assert too_fast["FellBehind"] == "yes" and int(too_fast["Unsent"]) > 0, too_fast
    assert f"{too_fast['Scenario']}: behind its schedule: " in whole.output


def test_what_was_configured_of_a_load_is_in_its_row(whole: Whole) -> None:
    leader, member, mixed, closed = (whole.row[name] for name in ("leader", "member", "mixed", "closed"))
    loads = {name: line["load"] for name, line in whole.line.items()}
    assert leader["Leader"] == leader["LeaderAtStart"] and loads["leader"]["configured"]["targetLeader"] is True
    assert (member["Target"], loads["member"]["configured"]["targetMember"]) == ("etcd2", "10.0.0.252:2379")
    assert (mixed["TestType"], mixed["KeySize"], mixed["ValueSize"], mixed["Consistency"]) == ("mixed", "8", "256", "l")
    assert loads["mixed"]["by_operation"]["put"]["ok"] and loads["mixed"]["by_operation"]["range"]["ok"]
    assert (closed["OfferedRate_per_s"], closed["FellBehind"], closed["ServiceTime_50%_s"]) == ("-",) * 3
    assert int(closed["RequestCount"]) == loads["closed"]["requests"] == loads["closed"]["ok"] > 0
    assert float(closed["Total"]) >= 1
    columns = ("TestType", "Consistency", "KeySize", "ReadSpan", "ReadLimit", "ReadAnswer")
    assert [[whole.row[name][column] for column in columns] for name in ("txn", "span", "prefix")] == [
        ["txn", "-", "8", "-", "-", "-"],
        ["read", "l", "-", "20 keys", "5", "values"],
        ["read", "s", "-", "prefix data/0000000", "-", "values"],
    ]
    assert [loads[name]["ok"] for name in ("txn", "span", "prefix")] == [50] * 3
    for name in ("span", "prefix"):
        configured = loads[name]["configured"]
        assert configured["verify"] and configured["keySpace"] == 100 and loads[name]["empty"] == 0
    assert (loads["span"]["configured"]["spanKeys"], loads["span"]["configured"]["limit"]) == (20, 5)
    assert (loads["prefix"]["configured"]["key"], loads["prefix"]["configured"]["prefix"]) == ("data/0000000", True)


def test_a_run_directory_stands_beside_the_rows(whole: Whole) -> None:
    kept, first = whole.kept, whole.row["leader"]
    assert kept.path == whole.out.with_suffix(".runs") / first["RunId"]
    assert kept.manifest is not None and kept.network is not None
    assert kept.manifest["config_hash"] == first["ConfigHash"]
    assert {host["tcp"]["congestion_control"] for host in kept.manifest["hosts"].values()} == {"cubic"}
    assert kept.manifest["hosts"]["etcd1"]["limits"]["memory_bytes"] == 512 << 20
    assert [(proof["moment"], proof["passed"]) for proof in kept.network["proofs"]] == [
        ("before", True),
        ("after", True),
    ]
    for proof in kept.network["proofs"]:
        assert len(proof["pairs"]) == 6
        assert {check["subject"] for check in proof["checks"]} >= {"etcd1>s1", "s1>etcd1", "benchmark>s1"}
    assert first["NetworkProof"] == "proved" or first["NetworkProof"].startswith("unproved: "), first
    kinds = [event["kind"] for event in kept.events]
    assert kinds[:5] == ["run_began", "hosts_up", "network_proved", "cluster_up", "matrix_began"]
    assert kinds[-1] == "run_ended" and kinds.count("scenario_ended") == len(NAMES)
    # Everything is on the machine's one monotonic clock.
    for line in kept.scenarios:
        assert line["began_ns"] < line["load"]["began_ns"] < line["began_ns"] + line["seconds"] * 1e9
    assert [path.stem for path in kept.logs] == ["benchmark", "etcd1", "etcd2", "etcd3", "link-emulator"]
    assert "ready to serve client requests" in (kept.path / "logs" / "etcd1.log").read_text()
    shown = call("show", whole.out)
    assert shown.returncode == 0, shown.stderr
    assert "network as configured before the first scenario: " in shown.stdout
    assert "network as configured after the last: " in shown.stdout


def test_the_verdict_is_that_of_the_findings(whole: Whole) -> None:
    for name, row in whole.row.items():
        findings = whole.line[name]["findings"]
        reasons = {found["kind"] for found in findings if found["effect"] in ("unknown", "invalid")}
        assert set(row["Reasons"].split(";")) - {"-"} == reasons, (row["Reasons"], findings)
        assert (row["Valid"] == "no") is any(found["effect"] == "invalid" for found in findings)
        assert (row["Valid"] == "yes") is (not reasons)
        for found in findings:
            assert found["effect"] == "told" or f"{row['Scenario']}: {found['text']}" in whole.output, found


def test_a_run_says_what_it_used(whole: Whole) -> None:
    usage = whole.line["heavy"]["machine"]
    used = usage["used"]
    assert usage["window_ns"] >= 2e9 and list(used["members"]) == ["etcd1", "etcd2", "etcd3"]
    parts = [*used["members"].values(), used["client"], used["links"], used["driver"]]
    for consumption in (*parts, used["machine"]):
        assert consumption["cpu_ns"] > 0 and consumption["rss_bytes"] > 0, consumption
    for member in used["members"].values():
        for counter in ("memory_bytes", "sent_frames", "received_bytes", "written_bytes", "context_switches"):
            assert member[counter] > 0, (counter, member)
        assert member["run_delay_ns"] is not None and member["throttled_periods"] is not None
        assert member["threads_cpu_ns"] <= 1.02 * member["cpu_ns"], "threads are counted once"
    assert used["machine"]["steal_ns"] is not None and used["client"]["throttled_ns"] == 0
    # The kernel samples the machine's time by ticks, and counts that of processes exactly.
    busy_ns = sum(part["cpu_ns"] for part in parts)
    assert busy_ns <= used["machine"]["cpu_ns"] + 0.1 * usage["window_ns"], "something is counted twice"
    samples = [json.loads(line) for line in (whole.kept.path / "usage.jsonl").read_text().splitlines()]
    edges = [line["edge"] for line in samples if line["edge"]]
    assert edges == ["begin", "end"] * len(NAMES) and len(samples) > len(edges)
    row = whole.row["heavy"]
    cluster_ns = sum(member["cpu_ns"] for member in used["members"].values())
    assert float(row["ClusterCpu_cores"]) == pytest.approx(cluster_ns / usage["window_ns"], abs=1e-3)
    assert float(row["LinksCpu_cores"]) == pytest.approx(used["links"]["cpu_ns"] / usage["window_ns"], abs=1e-3)
    assert row["ClientThrottled_s"] == "0.000" and row["LinksCore"] == "-"


def test_what_members_counted_is_theirs(whole: Whole) -> None:
    members, requests = whole.line["heavy"]["store"]["members"], whole.line["heavy"]["load"]["ok"]
    assert list(members) == ["etcd1", "etcd2", "etcd3"]
    for name, member in members.items():
        syncs = member["log_syncs"]
        assert syncs["count"] > 0 and syncs["mean_s"] > 0, (name, member)
        assert sum(times for _, times in syncs["buckets"]) == syncs["count"]
        assert member["commits"]["count"] > 0 and member["warnings"] is not None
        assert member["data_bytes"] > requests * 256 / 2, "a value of each request, but those on the way"
    if "leader_changed" in whole.row["heavy"]["Reasons"]:
        pytest.skip(f"disturbed: {whole.row['heavy']['Reasons']}")
    assert {(found["leader_changes"], found["failed_proposals"]) for found in members.values()} == {(0, 0)}
