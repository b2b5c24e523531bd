"""What runs use, on a real cluster: throttled members, the emulator's share, etcd's counts, profiles, a kept core."""

from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from containernet_env import measure
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.results.run_result import RunResult
from containernet_env.setup.go import find
from tests.docker.conftest import PROJECT

pytestmark = pytest.mark.docker

CONFIG = PROJECT / "configs" / "3node-3ms.json"


def scenarios(folder: Path, kind: str = "write", seconds: float = 2, clients: int = 50, **more: Any) -> Path:
    """A scenario file of one load, and the data set that it may read."""
    path = folder / "load.json"
    load = {"duration": f"{seconds:g}s", "clients": clients, "conns": 10}
    scenario = {"type": kind, "load": [load], **more}
    if kind == "write":
        scenario |= {"data": [{"keySize": 8, "valSize": 256}], "target": ["leader"]}
    path.write_text(json.dumps({"dataset": {"keySize": 8, "valSize": 256, "keys": 100}, "scenarios": [scenario]}))
    return path


def only(result: RunResult) -> ScenarioOutcome:
    (outcome,) = result.outcomes
    assert outcome.error is None and outcome.machine is not None and outcome.store is not None, outcome
    return outcome


def slowed(folder: Path, cpus: float) -> Path:
    nodes = json.loads(CONFIG.read_text())
    made = folder / "slow.json"
    members = nodes["nodes"] if isinstance(nodes, dict) else nodes
    for node in members:
        node["cpus"] = cpus
    made.write_text(json.dumps(nodes))
    return made


def test_a_run_says_what_it_used(tmp_path: Path) -> None:
    # The kernel samples the machine's time by ticks, and counts that of processes exactly: 8 s average the samples out.
    result = measure(CONFIG, scenarios(tmp_path, seconds=8), tmp_path / "out.csv")
    outcome = only(result)
    usage = outcome.machine
    assert usage is not None
    assert 7.9e9 < usage.window_ns < 10e9
    assert list(usage.used.members) == ["etcd1", "etcd2", "etcd3"]
    used = [*usage.used.members.values(), usage.used.client, usage.used.links, usage.used.driver, usage.used.machine]
    for consumption in used:
        assert consumption is not None and consumption.cpu_ns and consumption.rss_bytes
    for member in usage.used.members.values():
        assert member.memory_bytes and member.sent_frames and member.received_bytes and member.written_bytes
        assert member.run_delay_ns is not None and member.context_switches and member.throttled_periods is not None
        assert member.threads_cpu_ns is not None and member.cpu_ns is not None
        assert member.threads_cpu_ns <= 1.02 * member.cpu_ns, "threads are counted once"
    assert usage.links_cores is not None and usage.links_cores > 0.05, usage.links_cores
    assert usage.client_cores is not None and usage.client_cores > 0.05
    machine = usage.used.machine
    assert machine is not None and machine.cpu_ns is not None and machine.steal_ns is not None
    parts = sum(part.cpu_ns or 0 for part in used[:-1] if part is not None)
    assert parts <= machine.cpu_ns + 0.05 * usage.window_ns, "nothing is counted twice"
    assert parts > 0.5 * machine.cpu_ns, "on an idle machine a run is what it does"

    lines = [json.loads(line) for line in (result.directory / "usage.jsonl").read_text().splitlines()]
    assert len(lines) >= 4 and [line["edge"] for line in lines if line["edge"]] == ["begin", "end"]
    (row,) = result.rows
    assert float(row["LinksCpu_cores"]) > 0.05 and float(row["ClusterCpu_cores"]) > 0.2
    assert row["ClientThrottled_s"] == "0.000" and row["LinksCore"] == "-"


def test_what_members_counted_is_theirs(tmp_path: Path) -> None:
    outcome = only(measure(CONFIG, scenarios(tmp_path), tmp_path / "out.csv"))
    assert outcome.store is not None and outcome.load is not None
    assert list(outcome.store.members) == ["etcd1", "etcd2", "etcd3"]
    for name, member in outcome.store.members.items():
        syncs, commits = member.log_syncs, member.commits
        assert syncs is not None and syncs.count > 10 and syncs.mean_s and syncs.mean_s > 0, (name, member)
        assert sum(times for _, times in syncs.buckets) == syncs.count
        assert commits is not None and commits.count > 0
        assert member.leader_changes == 0 and member.failed_proposals == 0
        assert member.data_bytes and member.data_bytes > 10_000
        assert member.warnings is not None


def test_members_that_their_own_limit_stops_show_it(tmp_path: Path) -> None:
    outcome = only(measure(slowed(tmp_path, 0.1), scenarios(tmp_path, seconds=3), tmp_path / "out.csv"))
    usage = outcome.machine
    assert usage is not None
    # The leader has the most to do; a follower that waits for it may need less than its limit.
    assert outcome.leader is not None
    leader_ns = usage.used.members[outcome.leader].throttled_ns
    assert leader_ns is not None and leader_ns > 0.2 * usage.window_ns, usage.used.members
    for name, member in usage.used.members.items():
        assert member.cpu_ns is not None and member.cpu_ns < 0.15 * usage.window_ns, (name, member)
    assert usage.client_throttled_ns == 0


def test_profiles_can_be_opened_and_rows_say_that_they_are_others(tmp_path: Path) -> None:
    result = measure(CONFIG, scenarios(tmp_path), tmp_path / "out.csv", profile=["cpu", "allocs", "mutex"])
    outcome = only(result)
    (folder,) = (result.directory / "profiles").iterdir()
    leader = outcome.leader
    names = sorted(path.name for path in folder.iterdir())
    kinds = ("allocs-before.pb.gz", "allocs.pb.gz", "allocs.svg", "cpu.pb.gz", "cpu.svg")
    assert names == [f"{leader}-{kind}" for kind in (*kinds, "mutex-before.pb.gz", "mutex.pb.gz", "mutex.svg")]
    go = find()
    assert go is not None, "programs have been built, so that there is Go"
    # Not with a HOME of its own: go builds its tools when they are first used, for half a minute without its cache.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "PPROF_TMPDIR": str(tmp_path)}
    for kind, words in (("cpu", "Type: cpu"), ("allocs", "Type: alloc_space"), ("mutex", "Type: delay")):
        sample = {"allocs": ["-sample_index=alloc_space"]}.get(kind, [])
        told = subprocess.run(
            [go.path, "tool", "pprof", "-top", *sample, str(folder / f"{leader}-{kind}.pb.gz")],
            capture_output=True, text=True, timeout=60, check=True, env=environment,
        ).stdout  # fmt: skip
        assert words in told and "flat%" in told
    graph = ET.fromstring((folder / f"{leader}-cpu.svg").read_text())
    titles = [title.text or "" for title in graph.iter("{http://www.w3.org/2000/svg}title")]
    assert any("etcd" in title for title in titles) and len(titles) > 20
    plain = measure(CONFIG, scenarios(tmp_path), tmp_path / "out.csv")
    assert plain.rows[0]["ConfigHash"] != result.rows[0]["ConfigHash"]
    assert not (plain.directory / "profiles").exists()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a core for the links needs a second one for the rest")
def test_a_core_is_kept_for_the_links(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    result = measure(CONFIG, scenarios(tmp_path), tmp_path / "out.csv", links_cpu=core)
    only(result)
    assert result.rows[0]["LinksCore"] == str(core)
    manifest = json.loads((result.directory / "manifest.json").read_text())
    assert manifest["flags"]["links_cpu"] == core and manifest["links"]["link_emulator"]["core"] == core
    for name, host in manifest["hosts"].items():
        held = host["limits"]["cpuset"]
        assert held and str(core) not in held.replace("-", ",").split(","), (name, held)
    assert os.sched_getaffinity(0) == before
