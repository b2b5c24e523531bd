"""Who leads on a real cluster, with TLS and without, what each new cluster leaves, and the floor beside the medians."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from containernet_env.hosts import engine
from containernet_env.hosts.netns_http import NamespaceConnection
from containernet_env.results.run_directory import find_run, read_run
from containernet_env.setup.go import find
from containernet_env.stores.etcd.cluster import EtcdCluster, Member
from containernet_env.stores.protocol import MemberPlace
from tests.docker.conftest import TINY_SCENARIOS
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import Run, call, host_pid, near_and_far, rows, run

pytestmark = pytest.mark.docker

# There and back in ms: client 2 to the near ones, 20 to the far one; near to near 4, near to far 22.
LEAST_MS = {
    "near2": {"write-leader": 2 + 4, "write-cluster": 2 + 4 + 4, "read-linear": 2 + 4 + 4, "read-serial": 2},
    "far1": {"write-leader": 20 + 22, "write-cluster": 2 + 22 + 22, "read-linear": 2 + 22 + 22, "read-serial": 2},
}


def measured(folder: Path, config: Path, *options: object) -> Path:
    """OUT of a run of the tiny scenarios."""
    scenarios, out, before = folder / "tiny.json", folder / "out.csv", snapshot()
    scenarios.write_text(json.dumps(TINY_SCENARIOS))
    done = run(config, out, "--scenarios", scenarios, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert left_over(before) == {}
    return out


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with TLS and profiles, whose leader is a near member."""
    folder = tmp_path_factory.mktemp("tls")
    config = near_and_far(folder / "config.json", tls=True, leader="near2")
    return measured(folder, config, "--profile", "cpu,allocs,mutex")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a new cluster for each of two repetitions, whose leader is the far member."""
    folder = tmp_path_factory.mktemp("fresh")
    return measured(folder, near_and_far(folder / "config.json", leader="far1"), "--repeat", 2, "--fresh")


@pytest.mark.parametrize(("out", "leader", "scenarios"), [("secured", "near2", 4), ("fresh", "far1", 8)])
def test_the_configured_member_leads_every_scenario_and_the_medians_are_above_the_floor(
    out: str, leader: str, scenarios: int, request: pytest.FixtureRequest
) -> None:
    found = rows(request.getfixturevalue(out))
    assert [row["Error"] for row in found] == ["-"] * scenarios
    for row in found:
        if row["TermAtStart"] != row["TermAtEnd"]:
            pytest.skip(f"disturbed: {row['Reasons']}")
        assert (row["LeaderAtStart"], row["Leader"], row["LeaderConfigured"]) == (leader,) * 3, row
        (least,) = (ms for name, ms in LEAST_MS[leader].items() if row["Scenario"].startswith(name))
        assert float(row["Floor_50%_s"]) * 1000 >= least <= float(row["50%"]) * 1000, row["Scenario"]
        above = float(row["50%"]) - float(row["Floor_50%_s"])
        assert float(row["AboveFloor_50%_s"]) == pytest.approx(above, abs=2e-6), row["Scenario"]


def test_the_disks_are_measured_for_the_floor(secured: Path) -> None:
    kept = read_run(find_run(secured))
    assert kept.manifest is not None
    assert set(kept.manifest["clusters"][0]["sync"]) == {"near1", "near2", "far1"}


def test_a_cluster_with_tls_leaves_no_key(secured: Path, tmp_path: Path) -> None:
    directory = find_run(secured)
    for path in directory.rglob("*"):
        assert path.is_dir() or b"PRIVATE KEY" not in path.read_bytes(), path
    listening = "\n".join(path.read_text(errors="replace") for path in directory.rglob("*.log"))
    assert "serving client traffic securely" in listening and "insecurely" not in listening
    crate = tmp_path / "run.zip"
    done = call("export", directory, crate, "--license", "CC-BY-4.0")
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(crate) as opened:
        assert all(b"PRIVATE KEY" not in opened.read(name) for name in opened.namelist())
    again = call("rerun", secured, "--dry-run")
    assert again.returncode == 0 and "would be repeated" in again.stdout, again.stdout + again.stderr


def test_profiles_can_be_opened(secured: Path, tmp_path: Path) -> None:
    folders = sorted((find_run(secured) / "profiles").iterdir())
    assert len(folders) == len(rows(secured))
    kinds = ("allocs-before.pb.gz", "allocs.pb.gz", "allocs.svg", "cpu.pb.gz", "cpu.svg")
    names = sorted(f"near2-{kind}" for kind in (*kinds, "mutex-before.pb.gz", "mutex.pb.gz", "mutex.svg"))
    assert all(sorted(path.name for path in folder.iterdir()) == names for folder in folders)
    go = find()
    assert go is not None, "programs have been built, so that there is Go"
    # Not with a HOME of its own: go builds its tools when they are first used, for half a minute without its cache.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "PPROF_TMPDIR": str(tmp_path)}
    for kind, words in (("cpu", "Type: cpu"), ("allocs", "Type: alloc_space"), ("mutex", "Type: delay")):
        sample = ["-sample_index=alloc_space"] if kind == "allocs" else []
        argv = [go.path, "tool", "pprof", "-top", *sample, str(folders[0] / f"near2-{kind}.pb.gz")]
        shown = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True, env=environment).stdout
        assert words in shown and "flat%" in shown
    graph = ElementTree.fromstring((folders[0] / "near2-cpu.svg").read_text())
    titles = [title.text or "" for title in graph.iter("{http://www.w3.org/2000/svg}title")]
    assert any("etcd" in title for title in titles)


def test_each_repetition_has_a_new_cluster_on_a_network_that_is_proved_anew(fresh: Path) -> None:
    assert [(row["Repetition"], row["Cluster"]) for row in rows(fresh)] == [("1", "1")] * 4 + [("2", "2")] * 4
    kept = read_run(find_run(fresh))
    assert kept.network is not None and kept.manifest is not None
    assert [proof["passed"] for proof in kept.network["proofs"]] == [True] * 4, "before and after each"
    assert [record["number"] for record in kept.manifest["clusters"]] == [1, 2]
    kinds = [event["kind"] for event in kept.events]
    # The data set is new, too.
    assert (kinds.count("dataset_loaded"), kinds.count("cluster_up"), kinds.count("tear_down_began")) == (2, 2, 2)
    assert {"etcd1", "near1.2", "near1"} & {path.stem for path in kept.logs} == {"near1.2", "near1"}
    assert not (kept.path / "profiles").exists()


@pytest.mark.long
@pytest.mark.usefixtures("unchanged_machine")
def test_a_leader_that_changes_during_a_scenario_is_a_finding_of_its_row(tmp_path: Path) -> None:
    """Moved by another program in the first of two scenarios; before the second one it is moved back."""
    scenarios, config = tmp_path / "s.json", near_and_far(tmp_path / "c.json", leader="near1")
    load = {"total": 600, "clients": 1, "conns": 1}
    write = {"type": "write", "load": load, "data": {"keySize": 8, "valSize": 256}, "target": ["near2", "near1"]}
    scenarios.write_text(json.dumps({"scenarios": [write]}))
    with Run(scenarios, tmp_path / "out.csv", config=config) as measuring:
        measuring.reach_request()
        cluster = the_cluster()
        assert cluster.move_leader("near2", 60).leader == "near2"
        cluster.close()
        output = measuring.end()
    changed, after = rows(measuring.out)
    assert (changed["LeaderAtStart"], changed["Leader"]) == ("near1", "near1>near2"), output
    assert changed["Floor_50%_s"] == changed["AboveFloor_50%_s"] == "-"
    assert int(changed["TermAtEnd"]) > int(changed["TermAtStart"])
    assert (after["LeaderAtStart"], after["Leader"]) == ("near1", "near1") and after["Floor_50%_s"] != "-"
    first, second = read_run(find_run(measuring.out)).scenarios
    assert [finding["kind"] for finding in first["findings"] if finding["kind"] == "leader_changed"]
    assert not [finding["kind"] for finding in second["findings"] if finding["kind"] == "leader_changed"]


def the_cluster() -> EtcdCluster:
    """That of the run that is on, reached past its driver."""
    members = []
    for container in engine.list_ours():
        if container.host != "benchmark":
            pid = host_pid(container.host)
            host: Any = SimpleNamespace(name=container.host, pid=pid, ending=lambda words: None)
            members.append(Member(MemberPlace(host, "", NamespaceConnection(pid, container.host))))
    return EtcdCluster(members)


@pytest.mark.long
@pytest.mark.usefixtures("unchanged_machine")
def test_a_cluster_that_dies_costs_its_own_repetition(tiny: Path, tmp_path: Path) -> None:
    """Both near members are killed in the first repetition: no quorum is left, and the second one is measured."""
    config = near_and_far(tmp_path / "c.json")
    with Run(tiny, tmp_path / "out.csv", "--repeat", 2, "--fresh", config=config) as measuring:
        measuring.reach("scenario_began")
        for name in ("near1", "near2"):
            os.kill(host_pid(name), signal.SIGKILL)
        output = measuring.end()
    assert measuring.status == 1, output
    found = rows(measuring.out)
    assert [row["Repetition"] for row in found] == ["1"] * 4 + ["2"] * 4
    assert [row["Cluster"] for row in found[4:]] == ["2"] * 4
    assert "near1 ended: killed by SIGKILL" in found[3]["Error"], output
    assert [row["Error"] for row in found[4:]] == ["-"] * 4, output
