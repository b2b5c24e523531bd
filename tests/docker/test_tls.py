"""A run whose members, client and driver speak TLS, on the real engine with the real etcd."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from containernet_env.results.run_directory import find_run
from tests.docker.test_endings import unchanged_machine
from tests.docker.test_failures import rows, run
from tests.docker.test_leader import topology
from tests.docker.test_rerun import call

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("unchanged_machine")]
__all__ = ["unchanged_machine"]


def test_a_cluster_with_tls_is_measured_and_leaves_no_key(tiny: Path, tmp_path: Path) -> None:
    """Loads by all members and by the leader, the leader moved, members watched, observed and profiled."""
    out = tmp_path / "out.csv"
    config = topology(tmp_path / "c.json", tls=True, leader="near2")
    done = run(config, out, "--scenarios", str(tiny), "--profile", "cpu,allocs")
    assert done.returncode == 0, done.stdout + done.stderr
    found = rows(out)
    assert len(found) == 4
    for row in found:
        assert (row["Error"], row["Leader"]) == ("-", "near2"), row
    directory = find_run(out)
    assert len(list(directory.rglob("*-cpu.pb.gz"))) == len(list(directory.rglob("*-allocs.pb.gz"))) == len(found)
    for path in directory.rglob("*"):
        assert path.is_dir() or b"PRIVATE KEY" not in path.read_bytes(), path
    listening = "\n".join(path.read_text(errors="replace") for path in directory.rglob("*.log"))
    assert "serving client traffic securely" in listening and "insecurely" not in listening
    crate = tmp_path / "run.zip"
    done = call("export", directory, crate, "--license", "CC-BY-4.0")
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(crate) as opened:
        assert all(b"PRIVATE KEY" not in opened.read(name) for name in opened.namelist())
    again = call("rerun", out, "--dry-run")
    assert again.returncode == 0 and "would be repeated" in again.stdout, again.stdout + again.stderr
