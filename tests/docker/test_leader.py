"""Who leads on a real cluster, what a new one for each repetition leaves, and the floor beside what was measured."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.hosts import engine
from containernet_env.hosts.netns_http import NamespaceConnection
from containernet_env.results.run_directory import find_run, read_run
from containernet_env.stores.etcd.cluster import EtcdCluster, Member
from containernet_env.stores.protocol import MemberPlace
from tests.docker.test_endings import end, unchanged_machine, wait_for_event
from tests.docker.test_failures import kill_host, rows, run
from tests.docker.test_network_failures import running

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("unchanged_machine")]
__all__ = ["unchanged_machine"]

NEAR = {"mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": "1ms"}
FAR = NEAR | {"link_delay": "10ms"}


def topology(path: Path, **etcd: Any) -> Path:
    nodes = [
        {"name": name, "ip": f"10.0.0.{number}", **kind}
        for number, (name, kind) in enumerate({"near1": NEAR, "near2": NEAR, "far1": FAR}.items(), start=1)
    ]
    path.write_text(json.dumps({"nodes": nodes, "etcd": etcd}))
    return path


@pytest.mark.parametrize("leader", ["near2", "far1"])
def test_the_configured_member_leads_every_scenario_and_the_medians_are_above_the_floor(
    tiny: Path, tmp_path: Path, leader: str
) -> None:
    out = tmp_path / "out.csv"
    done = run(topology(tmp_path / "c.json", leader=leader), out, "--scenarios", str(tiny))
    assert done.returncode == 0, done.stdout + done.stderr
    found = rows(out)
    assert [(row["LeaderAtStart"], row["Leader"], row["LeaderConfigured"]) for row in found] == [(leader,) * 3] * 4
    assert all(row["TermAtStart"] == row["TermAtEnd"] != "-" for row in found)
    # There and back in ms: client 2 to the near ones, 20 to the far one; near to near 4, near to far 22.
    least_ms = {
        "near2": {"write-leader": 2 + 4, "write-cluster": 2 + 4 + 4, "read-linearizable": 2 + 4 + 4},
        "far1": {"write-leader": 20 + 22, "write-cluster": 2 + 22 + 22, "read-linearizable": 2 + 22 + 22},
    }[leader] | {"read-serializable": 2}
    for row in found:
        (expected,) = (ms for name, ms in least_ms.items() if row["Scenario"].startswith(name))
        floor, above = float(row["Floor_50%_s"]) * 1000, float(row["AboveFloor_50%_s"]) * 1000
        assert expected <= floor < expected + 5, row["Scenario"]
        assert 0 < above < 10, (row["Scenario"], floor, above)
    kept = read_run(find_run(out))
    assert kept.manifest is not None
    assert set(kept.manifest["clusters"][0]["sync"]) == {"near1", "near2", "far1"}


def test_a_leader_that_is_dead_leaves_rows_that_say_so(long: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with running(long, out, topology(tmp_path / "c.json", leader="near1")) as measuring:
        wait_for_event("matrix_began", measuring, out)
        time.sleep(1)
        kill_host("near1")
        output = end(measuring)
    assert measuring.returncode == 1, output
    errors = [row["Error"] for row in rows(out)]
    assert errors[0].startswith("near1 ended: killed by SIGKILL"), errors
    assert errors[1] == "not run: near1 could not be made the leader: near1 ended: killed by SIGKILL"


@pytest.mark.long
def test_a_leader_that_changes_during_a_scenario_is_a_finding_of_its_row(tmp_path: Path) -> None:
    """Moved by somebody else in the first of two scenarios; before the second one it is moved back."""
    out, scenarios = tmp_path / "out.csv", tmp_path / "s.json"
    load = {"total": 600, "clients": 1, "conns": 1}
    write = {"type": "write", "load": load, "data": {"keySize": 8, "valSize": 256}, "target": ["near2", "near1"]}
    scenarios.write_text(json.dumps({"scenarios": [write]}))
    with running(scenarios, out, topology(tmp_path / "c.json", leader="near1")) as measuring:
        wait_for_event("matrix_began", measuring, out)
        time.sleep(2)
        cluster = the_cluster()
        assert cluster.move_leader("near2", 10).leader == "near2"
        cluster.close()
        output = end(measuring)
    changed, after = rows(out)
    assert (changed["LeaderAtStart"], changed["Leader"]) == ("near1", "near1>near2"), output
    assert changed["Floor_50%_s"] == changed["AboveFloor_50%_s"] == "-"
    assert int(changed["TermAtEnd"]) > int(changed["TermAtStart"])
    assert (after["LeaderAtStart"], after["Leader"]) == ("near1", "near1") and after["Floor_50%_s"] != "-"
    first, second = read_run(find_run(out)).scenarios
    assert [finding["kind"] for finding in first["findings"] if finding["kind"] == "leader_changed"]
    assert not [finding["kind"] for finding in second["findings"] if finding["kind"] == "leader_changed"]


def the_cluster() -> EtcdCluster:
    """That of the run that is on, reached past its driver."""
    members = []
    for container in engine.list_ours():
        if container.host != "benchmark":
            pid = engine.client().api.inspect_container(container.id)["State"]["Pid"]
            host: Any = SimpleNamespace(name=container.host, pid=pid, ending=lambda words: None)
            members.append(Member(MemberPlace(host, "", NamespaceConnection(pid, container.host))))
    return EtcdCluster(members)


def test_each_repetition_has_a_new_cluster_on_a_network_that_is_proved_anew(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    done = run(
        topology(tmp_path / "c.json"), out, "--scenarios", str(tiny), "--repeat", "2", "--fresh", "--only", "read*"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(row["Repetition"], row["Cluster"], row["Error"]) for row in rows(out)] == [
        ("1", "1", "-"), ("1", "1", "-"), ("2", "2", "-"), ("2", "2", "-"),
    ]  # fmt: skip
    kept = read_run(find_run(out))
    assert kept.network is not None and kept.manifest is not None
    assert [proof["passed"] for proof in kept.network["proofs"]] == [True] * 4, "before and after each"
    assert [record["number"] for record in kept.manifest["clusters"]] == [1, 2]
    kinds = [event["kind"] for event in kept.events]
    # The data set is new, too.
    assert (kinds.count("dataset_loaded"), kinds.count("cluster_up"), kinds.count("tear_down_began")) == (2, 2, 2)
    assert {"etcd1", "near1.2", "near1"} & {path.stem for path in kept.logs} == {"near1.2", "near1"}


@pytest.mark.long
def test_a_cluster_that_dies_costs_its_own_repetition(tiny: Path, tmp_path: Path) -> None:
    """Both near members are killed in the first repetition: no quorum is left, and the second one is measured."""
    out = tmp_path / "out.csv"
    options = ("--repeat", "2", "--fresh")
    with running(tiny, out, topology(tmp_path / "c.json"), *options) as measuring:
        wait_for_event("matrix_began", measuring, out)
        kill_host("near1")
        kill_host("near2")
        output = end(measuring)
    assert measuring.returncode == 1, output
    found = rows(out)
    assert [row["Repetition"] for row in found] == ["1"] * 4 + ["2"] * 4
    assert [row["Cluster"] for row in found[4:]] == ["2"] * 4
    assert "near1 ended: killed by SIGKILL" in found[3]["Error"], output
    assert [row["Error"] for row in found[4:]] == ["-"] * 4, output


def test_a_run_that_is_stopped_in_its_second_repetition_leaves_every_row(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    options = ("--repeat", "3", "--fresh")
    with running(tiny, out, topology(tmp_path / "c.json"), *options) as measuring:
        wait_for_event("matrix_began", measuring, out)
        wait_for_event("matrix_began", measuring, out)
        os.kill(measuring.pid, signal.SIGINT)
        output = end(measuring)
    assert measuring.returncode == 130, output
    found = rows(out)
    assert len(found) == 12
    assert [row["Error"] for row in found[:4]] == ["-"] * 4
    assert all(row["Error"] == "not run: interrupted by SIGINT" for row in found[8:])
