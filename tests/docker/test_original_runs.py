"""Whole runs on the original Containernet, where it is installed: what they record, and that nothing of them stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import docker
import mininet.net
import pytest

from containernet_env.containernet.original.origin import commit_of
from tests.docker import runs
from tests.docker.runs import host_pid, rows
from tests.docker.test_network_engines import MEMBERS, ORIGINAL

pytestmark = [pytest.mark.docker, pytest.mark.root, ORIGINAL, pytest.mark.usefixtures("unchanged_machine")]


class Run(runs.Run):
    """A run on the original, with this Python, since it is the one that has it."""

    command = (sys.executable, "-c", "from containernet_env.__main__ import main; main()")

    def __init__(self, scenarios: Path, out: Path, *options: object, config: Path) -> None:
        super().__init__(scenarios, out, "--engine", "containernet", *options, config=config)


def clean() -> str:
    return subprocess.run([*Run.command, "clean"], capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "three.json"
    path.write_text(json.dumps([{**member, "mem": "256m"} for member in MEMBERS]))
    return path


def test_a_run_says_what_it_ran_on(config: Path, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with Run(tiny, out, config=config) as run:
        output = run.end()
    assert run.status == 0, output
    found = rows(out)
    assert [row["TestType"] for row in found] == ["write", "write", "read", "read"]
    assert {(row["Error"], row["Hosts"], row["Links"]) for row in found} == {("-", "containernet", "tclink")}, output
    (directory,) = (tmp_path / "out.runs").iterdir()
    manifest = json.loads((directory / "manifest.json").read_text())
    links, held = manifest["links"], manifest["hosts"]["etcd1"]["limits"]
    assert links["network"] == manifest["flags"]["engine"] == "containernet"
    assert "Mininet" in links["network_version"]
    assert links["network_commit"] == commit_of(Path(mininet.net.__file__).parent)
    assert links["docker_sdk"] == docker.__version__
    assert links["links"] == "tclink"
    assert (held["memory_bytes"], held["cpu_quota_us"]) == (256 << 20, 50_000)
    scenario = json.loads((directory / "scenarios.jsonl").read_text().splitlines()[0])
    assert set(scenario["network"]["links"]) == {"etcd1-s1", "etcd2-s1", "etcd3-s1", "benchmark-s1"}


@pytest.mark.parametrize("moment", ["run_began", "hosts_up", "network_proved", "cluster_up", "scenario_began"])
def test_ctrl_c_and_kill_9_at_any_moment(moment: str, config: Path, long: Path, tmp_path: Path) -> None:
    with Run(long, tmp_path / "out.csv", config=config) as stopped:
        stopped.reach(moment)
        stopped.strike(signal.SIGINT, group=True)
        output = stopped.end()
    assert stopped.status == 128 + signal.SIGINT, output
    assert stopped.errors() in ([], ["not run: interrupted by SIGINT"] * 2, [
        "interrupted", "not run: interrupted by SIGINT",
    ])  # fmt: skip
    with Run(long, tmp_path / "killed.csv", config=config) as killed:
        killed.reach(moment)
        killed.strike(signal.SIGKILL, group=True)
        killed.end()
    removed = clean()
    assert moment in ("run_began", "hosts_up") or removed.count("removed container") == 4, removed


def test_a_member_that_is_killed_is_named_in_its_row(config: Path, long: Path, tmp_path: Path) -> None:
    with Run(long, tmp_path / "out.csv", "--only", "*leader*", config=config) as run:
        run.reach_request()
        os.kill(host_pid("etcd3"), signal.SIGKILL)
        output = run.end()
    assert len(run.errors()) == 1 and "etcd3 ended: killed by SIGKILL" in run.errors()[0], output
