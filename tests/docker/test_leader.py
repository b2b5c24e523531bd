"""Who leads real clusters with TLS, what each of them leaves, and the floor beside the medians."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from containernet_env.results.run_directory import ReadRun, find_run, read_run
from tests.docker.conftest import TINY_SCENARIOS
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import call, near_and_far, rows, run

pytestmark = pytest.mark.docker

# There and back in ms: client 2 to the near ones, 20 to the far one, which leads; near to far 22.
LEAST_MS = {"write-leader": 20 + 22, "write-cluster": 2 + 22 + 22, "read-linear": 2 + 22 + 22, "read-serial": 2}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OUT of a run with TLS, profiles, and a new cluster for each of two repetitions."""
    folder, before = tmp_path_factory.mktemp("leader"), snapshot()
    scenarios, out = folder / "tiny.json", folder / "out.csv"
    scenarios.write_text(json.dumps(TINY_SCENARIOS))
    config = near_and_far(folder / "config.json", tls=True, leader="far1")
    options = ("--repeat", 2, "--fresh", "--profile", "cpu,allocs,mutex")
    done = run(config, out, "--scenarios", scenarios, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert left_over(before) == {}
    return out


@pytest.fixture(scope="module")
def kept(out: Path) -> ReadRun:
    return read_run(find_run(out))


def test_the_configured_member_leads_every_scenario_and_the_medians_are_above_the_floor(out: Path) -> None:
    found = rows(out)
    assert [row["Error"] for row in found] == ["-"] * 8
    for row in found:
        if row["TermAtStart"] != row["TermAtEnd"]:
            pytest.skip(f"disturbed: {row['Reasons']}")
        assert (row["LeaderAtStart"], row["Leader"], row["LeaderConfigured"]) == ("far1",) * 3, row
        (least,) = (ms for name, ms in LEAST_MS.items() if row["Scenario"].startswith(name))
        assert float(row["Floor_50%_s"]) * 1000 >= least <= float(row["50%"]) * 1000, row["Scenario"]


def test_each_repetition_has_a_new_cluster_on_a_network_that_is_proved_again(out: Path, kept: ReadRun) -> None:
    assert [(row["Repetition"], row["Cluster"]) for row in rows(out)] == [("1", "1")] * 4 + [("2", "2")] * 4
    passed = [proof.passed for proof in kept.network.proofs]
    assert passed.count(True) == 4 and passed[-1], "before and after each; on a busy machine one is made again"
    assert [record.number for record in kept.manifest.clusters] == [1, 2]
    for record in kept.manifest.clusters:
        assert set(record.sync) == {"near1", "near2", "far1"}, "the disks are measured for the floor"
    kinds = [event.kind for event in kept.events]
    # The data set is new, too.
    assert (kinds.count("dataset_loaded"), kinds.count("cluster_up"), kinds.count("tear_down_began")) == (2, 2, 2)
    assert {"etcd1", "near1.2", "near1"} & {path.stem for path in kept.logs} == {"near1.2", "near1"}


def test_a_cluster_with_tls_leaves_no_key_and_its_run_is_handed_on_whole(kept: ReadRun, tmp_path: Path) -> None:
    for path in kept.path.rglob("*"):
        assert path.is_dir() or b"PRIVATE KEY" not in path.read_bytes(), path
    listening = "\n".join(path.read_text(errors="replace") for path in kept.path.rglob("*.log"))
    assert "serving client traffic securely" in listening and "insecurely" not in listening
    done = call("export", kept.path, tmp_path / "run.zip", "--license", "CC-BY-4.0")
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert all(b"PRIVATE KEY" not in archive.read(name) for name in archive.namelist())
        archive.extractall(tmp_path / "unpacked")
    verified = ["sha256sum", "--strict", "--quiet", "--check", "checksums.sha256"]
    subprocess.run(verified, cwd=tmp_path / "unpacked", timeout=60, check=True)


def test_profiles_are_there_and_drawn(out: Path, kept: ReadRun) -> None:
    folders = sorted((kept.path / "profiles").iterdir())
    assert len(folders) == len(rows(out))
    kinds = ("allocs-before.pb.gz", "allocs.pb.gz", "allocs.svg", "cpu.pb.gz", "cpu.svg")
    names = sorted(f"far1-{kind}" for kind in (*kinds, "mutex-before.pb.gz", "mutex.pb.gz", "mutex.svg"))
    assert all(sorted(path.name for path in folder.iterdir()) == names for folder in folders)
    # The samples of one that had hardly a core may have none of etcd's own functions.
    graphs = [ElementTree.fromstring((folder / "far1-cpu.svg").read_text()) for folder in folders]
    titles = [title.text or "" for graph in graphs for title in graph.iter("{http://www.w3.org/2000/svg}title")]
    assert any("etcd" in title for title in titles)
