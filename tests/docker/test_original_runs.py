"""Whole runs on the original Containernet, where it is installed: what they record, and that nothing of them stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import mininet.net
import pytest

from containernet_env.containernet.original.origin import commit_of
from tests.docker.machine_state import left_over, snapshot
from tests.docker.test_endings import AFTER_CTRL_C, end, rows, wait_for_event
from tests.docker.test_network_engines import MEMBERS, ORIGINAL

pytestmark = [pytest.mark.docker, pytest.mark.root, ORIGINAL]

# With this Python, since it is the one that has the original.
COMMAND = [sys.executable, "-c", "from containernet_env.__main__ import main; main()"]
# In seconds after the start: imports, containers, links, cluster, load.
MOMENTS_S = (0.5, 0.9, 1.3, 1.7, 2.2, 2.7, 3.4, 5.0)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "three.json"
    path.write_text(json.dumps([{**member, "mem": "256m"} for member in MEMBERS]))
    return path


@pytest.fixture
def unchanged_machine() -> Iterator[None]:
    before = snapshot()
    yield
    assert left_over(before) == {}


def start(config: Path, scenarios: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    words = ["run", str(config), str(out), "--scenarios", str(scenarios), "--port", "18080", "--engine", "containernet"]
    return subprocess.Popen(
        [*COMMAND, *words, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.usefixtures("unchanged_machine")
def test_a_run_says_what_it_ran_on(config: Path, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    run = start(config, tiny, out)
    output = end(run, 180)
    assert run.returncode == 0, output
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


@pytest.mark.usefixtures("unchanged_machine")
@pytest.mark.parametrize("moment", MOMENTS_S)
def test_ctrl_c_at_any_moment(moment: float, config: Path, long: Path, tmp_path: Path) -> None:
    run = start(config, long, tmp_path / "out.csv")
    time.sleep(moment)
    os.killpg(run.pid, signal.SIGINT)
    output = end(run)
    assert run.returncode in (130, -signal.SIGINT), output
    assert [row["Error"] for row in rows(tmp_path / "out.csv")] in AFTER_CTRL_C


@pytest.mark.usefixtures("unchanged_machine")
def test_after_kill_9_nothing_stays_that_clean_does_not_remove(config: Path, long: Path, tmp_path: Path) -> None:
    run = start(config, long, tmp_path / "out.csv")
    wait_for_event("matrix_began", run, tmp_path / "out.csv")
    os.kill(run.pid, signal.SIGKILL)
    end(run)
    removed = subprocess.run([*COMMAND, "clean"], capture_output=True, text=True, check=True).stdout
    assert removed.count("removed container") == 4, removed


@pytest.mark.usefixtures("unchanged_machine")
def test_a_run_killed_while_it_comes_up_is_cleaned_up_too(config: Path, long: Path, tmp_path: Path) -> None:
    for moment in MOMENTS_S[:6]:
        run = start(config, long, tmp_path / "out.csv")
        time.sleep(moment)
        os.killpg(run.pid, signal.SIGKILL)
        end(run)
        subprocess.run([*COMMAND, "clean"], capture_output=True, text=True, check=True)


@pytest.mark.usefixtures("unchanged_machine")
def test_a_member_that_is_killed_is_named_in_its_row(config: Path, long: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    run = start(config, long, out, "--only", "*leader*")
    wait_for_event("matrix_began", run, out)
    deadline = time.monotonic() + 20
    events = next((tmp_path / "out.runs").glob("*/events.jsonl"))
    while "matrix_began" not in events.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    victim = member_process("etcd3")
    os.kill(victim, signal.SIGKILL)
    output = end(run, 120)
    assert len(rows(out)) == 1, output
    assert "etcd3 ended: killed by SIGKILL" in rows(out)[0]["Error"], output


def member_process(name: str) -> int:
    """The first process of a host of the run that is on."""
    from containernet_env.hosts import engine

    container: Any = next(found for found in engine.list_ours() if found.host == name)
    return int(engine.client().api.inspect_container(container.id)["State"]["Pid"])
