"""One run of every load model, and of events, on three members: its rows, its run directory, and what is left of it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from containernet_env.hosts import disk
from containernet_env.results.run_directory import ReadRun, find_run, read_run
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import CONFIG, rows, run, skip_if_busy, skip_if_starved

pytestmark = pytest.mark.docker

MS = 1_000_000
SIZE = {"keySize": 8, "valSize": 256}
OPEN = {"rate": 100, "duration": "1s", "warmup": "200ms", "clients": 50, "conns": 5}
RATED, ZIPFIAN = {"total": 100, "rate": 200, "clients": 50, "conns": 5}, {"keys": "zipfian", "zipfExponent": 1.2}
# More than four clients can do where each request takes 18 ms or more: it falls behind.
TOO_FAST = {"rate": 1000, "duration": "1s", "clients": 4, "conns": 2}
CLOSED = {"total": 50, "clients": 5, "conns": 5}
MIXED = {"type": "mixed", "ratio": 0.5, "consistency": "l"}
EVENTFUL = MIXED | {"load": {"rate": 100, "duration": "5s", "clients": 60, "conns": 6, "timeout": "3s"}}
KILLED = [{"at": "1s", "kill": "leader", "for": "2s"}]
AT_ONCE = [
    {"at": "1s", "freeze": "etcd2", "for": "500ms"},
    {"at": "1s", "link": "down", "of": "etcd3", "for": "300ms"},
    {"at": "2s", "partition": "leader", "for": "1500ms"},
    {"at": "2s", "delay": "20ms", "of": "followers"},
    {"at": "2s", "freeze": "etcd1", "for": "100ms"},
]
SCENARIOS = {
    "dataset": {"keyPrefix": "data/", **SIZE, "keys": 100},
    "scenarios": [
        {"type": "write", "load": OPEN, "data": SIZE, "target": ["leader", "etcd2"]},
        MIXED | {"load": OPEN | {"arrival": "poisson"}, "keys": "uniform", "verify": True},
        {"type": "read", "load": RATED, "consistency": "s", "target": "etcd3", "verify": True} | ZIPFIAN,
        {"type": "read", "load": {"duration": "1s", "clients": 2, "conns": 2, "warmup": 10}, "consistency": "l"},
        {"type": "write", "load": TOO_FAST, "data": SIZE, "target": "leader"},
        {"type": "txn", "load": CLOSED, "keys": "shuffled"},
        {"type": "read", "load": CLOSED, "consistency": "l", "spanKeys": 20, "limit": 5, "keys": "uniform"},
        {"type": "read", "load": CLOSED, "consistency": "s", "prefix": "data/0000000"},
        {"type": "write", "load": {"duration": "2s", "clients": 50, "conns": 10}, "data": SIZE, "target": "cluster"},
        EVENTFUL | {"events": KILLED},
        EVENTFUL | {"events": AT_ONCE},
        MIXED | {"load": CLOSED},
    ],
}
MODELS = ("leader", "member", "mixed", "read", "closed", "too_fast", "txn", "span", "prefix", "heavy")
NAMES = (*MODELS, "killed", "at_once", "after")
CORES = os.sched_getaffinity(0)
# A core for the links needs a second one for the rest.
CORE = max(CORES) if len(CORES) > 1 else None


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
    core = () if CORE is None else ("--links-cpu", CORE)
    done = run(CONFIG, out, "--scenarios", scenarios, "--congestion-control", "reno", *core)
    output = done.stdout + done.stderr
    if done.returncode:
        skip_if_starved(rows(out))
    assert done.returncode == 0, output
    kept, left = read_run(find_run(out)), left_over(before)
    lines = [json.loads(line) for line in (kept.path / "scenarios.jsonl").read_text().splitlines()]
    row, line = (dict(zip(NAMES, found, strict=True)) for found in (rows(out), lines))
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
    assert [whole.line[name]["load"]["operation"] for name in MODELS] == operations
    for name in ("leader", "member", "mixed", "read"):
        row, load = whole.row[name], whole.line[name]["load"]
        assert row["Errors"] == "0" and load["outcomes"]["failed"] == 0, row
        # A response cannot be faster than its service.
        assert float(row["ServiceTime_50%_s"]) <= float(row["50%"]), row
    # A constant rate makes exactly so many requests: each is counted, once.
    for name in ("leader", "member", "read"):
        outcomes = whole.line[name]["load"]["outcomes"]
        assert sum(outcomes.values()) == 100, outcomes
    too_fast = whole.row["too_fast"]
    assert too_fast["FellBehind"] == "yes" and int(too_fast["Unsent"]) > 0, too_fast
    assert f"{too_fast['Scenario']}: behind its schedule: " in whole.output


def test_what_was_configured_of_a_load_is_what_the_client_did(whole: Whole) -> None:
    leader, member, closed = (whole.row[name] for name in ("leader", "member", "closed"))
    loads = {name: line["load"] for name, line in whole.line.items()}
    assert leader["Leader"] == leader["LeaderAtStart"] and loads["leader"]["configured"]["targetLeader"] is True
    assert (member["Target"], loads["member"]["configured"]["targetMember"]) == ("etcd2", "10.0.0.252:2379")
    assert loads["mixed"]["by_operation"]["put"]["ok"] and loads["mixed"]["by_operation"]["range"]["ok"]
    assert int(closed["RequestCount"]) == loads["closed"]["requests"] == loads["closed"]["ok"] > 0
    assert float(closed["Total"]) >= 1
    assert [loads[name]["ok"] for name in ("txn", "span", "prefix")] == [50] * 3
    for name, configured in (
        ("span", {"spanKeys": 20, "limit": 5}),
        ("prefix", {"key": "data/0000000", "prefix": True}),
    ):
        wanted = configured | {"verify": True, "keySpace": 100}
        assert wanted.items() <= loads[name]["configured"].items() and loads[name]["empty"] == 0


def test_a_run_directory_stands_beside_the_rows(whole: Whole) -> None:
    kept, first = whole.kept, whole.row["leader"]
    assert kept.path == whole.out.with_suffix(".runs") / first["RunId"]
    assert kept.manifest.config_hash == first["ConfigHash"]
    assert {host["tcp"]["congestion_control"] for host in kept.manifest.hosts.values()} == {"reno"}
    assert kept.manifest.hosts["etcd1"]["limits"]["memory_bytes"] == 512 << 20
    skip_if_busy(whole.output)
    # A proof that a pause of the machine spoiled is repeated: the last one of each moment counts.
    assert {proof.moment: proof.passed for proof in kept.network.proofs} == {"before": True, "after": True}
    for proof in kept.network.proofs:
        assert len(proof.pairs) == 6
        assert {check["subject"] for check in proof.checks} >= {"etcd1>s1", "s1>etcd1", "benchmark>s1"}
    assert first["NetworkProof"] == "proved" or first["NetworkProof"].startswith("unproved: "), first
    kinds = [event.kind for event in kept.events]
    assert kinds[:5] == ["run_began", "hosts_up", "network_proved", "cluster_up", "matrix_began"]
    assert kinds[-1] == "run_ended" and kinds.count("scenario_ended") == len(NAMES)
    # Everything is on the machine's one monotonic clock.
    for line in kept.scenarios:
        assert line.began_ns < line.load["began_ns"] < line.began_ns + line.seconds * 1e9
    assert [path.stem for path in kept.logs] == ["benchmark", "etcd1", "etcd2", "etcd3", "link-emulator"]
    assert "ready to serve client requests" in (kept.path / "logs" / "etcd1.log").read_text()


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


def events_of(whole: Whole, name: str) -> list[dict[str, Any]]:
    """The lines of disruptions.jsonl of a scenario."""
    lines = [json.loads(line) for line in (whole.kept.path / "disruptions.jsonl").read_text().splitlines()]
    return [line for line in lines if line["scenario"] == whole.row[name]["Scenario"]]


def test_a_killed_leader_comes_back_on_its_data_and_is_no_failure(whole: Whole) -> None:
    row, line = whole.row["killed"], whole.line["killed"]
    kill, restart = events_of(whole, "killed")
    assert [(line["verb"], line["cause"]) for line in (kill, restart)] == [("kill", "event"), ("restart", "for")]
    assert kill["members"] == restart["members"] == [kill["leader"]]
    # Never before the time that is configured, and the restart never sooner after the kill.
    assert kill["since_start_ns"] >= 1000 * MS
    assert restart["since_start_ns"] >= restart["asked_ns"] >= kill["asked_ns"] + 2000 * MS
    assert restart["answered_ns"] > restart["at_ns"] > kill["at_ns"]
    assert not {"member_died", "leader_changed", "event_missed", "frames_lost"} & set(row["Reasons"].split(";"))
    effects = {found["kind"]: found["effect"] for found in line["findings"]}
    assert effects["event"] == effects["leader_changed"] == "info"
    assert int(row["TermAtEnd"]) > int(row["TermAtStart"])
    # A member without its data would have failed: the others have it in their log as one that has some.
    assert line["load"]["ok"] > 0 and set(line["store"]["members"]) == {"etcd1", "etcd2", "etcd3"}


def test_link_and_process_faults_of_one_moment_are_all_carried_out_and_end_with_their_scenario(whole: Whole) -> None:
    lines = events_of(whole, "at_once")
    events = [line for line in lines if line["cause"] == "event"]
    assert sorted(line["verb"] for line in events) == ["delay", "freeze", "freeze", "link_down", "partition"], lines
    for line in events:
        assert line["since_start_ns"] >= line["asked_ns"] in (1000 * MS, 2000 * MS), line
    assert [line["problem"] for line in lines] == [None] * len(lines)
    assert [line["verb"] for line in lines if line["cause"] == "end"] == ["reset"]
    # That the links, also those that were made again, are as configured is what the proof after the last one says.
    assert events_of(whole, "after") == [] and whole.line["after"]["load"]["ok"] == 50


@pytest.mark.skipif(CORE is None, reason="a core for the links needs a second one for the rest")
def test_a_core_is_kept_for_the_links(whole: Whole) -> None:
    assert {row["LinksCore"] for row in whole.row.values()} == {str(CORE)}
    manifest = whole.kept.manifest
    assert manifest.flags.links_cpu == CORE and manifest.links.link_emulator["core"] == CORE
    for name, host in manifest.hosts.items():
        held = host["limits"]["cpuset"]
        assert held and str(CORE) not in held.replace("-", ",").split(","), (name, held)
    assert os.sched_getaffinity(0) == CORES


@pytest.mark.skipif(not disk.DEVICE.exists(), reason="this kernel has no FUSE")
def test_an_fsync_takes_as_long_as_configured_also_after_a_restart(tmp_path: Path) -> None:
    """etcd counts the syncs of its log in buckets up to 1, 2, 4 ms and so on."""
    config, scenarios, out = tmp_path / "slow-disks.json", tmp_path / "scenarios.json", tmp_path / "out.csv"
    config.write_text(json.dumps([node | {"fsync": "20ms"} for node in json.loads(CONFIG.read_text())]))
    writes = [{"type": "write", "load": CLOSED, "data": SIZE, "target": target} for target in ("leader", "cluster")]
    scenarios.write_text(json.dumps({"scenarios": [writes[0], EVENTFUL | {"events": KILLED}, writes[1]]}))
    before = snapshot()
    done = run(config, out, "--scenarios", scenarios)
    if "the disk is slower, or the machine is busy" in done.stderr:
        pytest.skip(f"disturbed: {done.stderr.strip()}")
    if done.returncode:
        skip_if_starved(rows(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["Fsync_ms"] for row in rows(out)] == ["20"] * 3
    lines = [json.loads(line) for line in (find_run(out) / "scenarios.jsonl").read_text().splitlines()]
    for line in (lines[0], lines[-1]):
        for member, found in line["store"]["members"].items():
            syncs = found["log_syncs"]
            assert syncs["count"] and min(bucket or 1.0 for bucket, _ in syncs["buckets"]) > 0.016, (member, syncs)
            assert line["machine"]["used"]["members"][member]["syncs"], "its disk emulator counted them, too"
    assert left_over(before) == {}
