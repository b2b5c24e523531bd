"""The cluster of etcd_image/compose.yaml, brought up with Compose and measured through its endpoints."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from containernet_env.hosts import engine
from containernet_env.setup.images import required_images
from tests.docker.conftest import COMMAND, PROJECT

COMPOSE = PROJECT / "etcd_image" / "compose.yaml"
PACKAGE = "docker-compose"
NAME = f"cnenv-compose-{os.getpid()}"
# As the seed's README has them: the address is the first member's.
READ = {"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 5, "total": 1000, "key": "foo", "endRange": "foo3"}
WRITE = {"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 5, "total": 1000, "keySize": 4, "valSize": 64}
CALLS = {
    "read": {**READ, "consistency": "l"},
    "write": {**WRITE, "targetLeader": True, "sequentialKeys": True},
}


def has_bridge() -> bool:
    """Whether the engine can make networks of its own; see ``setup/dockerd.py``."""
    return bool(engine.client().networks.list(names=["bridge"]))


def compose(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    images = required_images()
    return subprocess.run(
        ["docker-compose", "--project-name", NAME, "--file", str(COMPOSE), *words],
        env={**os.environ, "ETCD_IMAGE": images.member, "BENCHMARK_IMAGE": images.benchmark},
        capture_output=True,
        text=True,
        timeout=60,
        check=check,
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    if not has_bridge():
        pytest.skip("this engine runs without a bridge, so it can publish no ports")
    if shutil.which("docker-compose") is None:
        argv = ["apt-get", "install", "--yes", "--no-install-recommends", PACKAGE]
        subprocess.run(argv, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, check=True, timeout=600)
    try:
        done = compose("up", "--detach", check=False)
        assert done.returncode == 0, done.stderr
        yield
    finally:
        compose("down", "--volumes", "--timeout", "5")


def test_it_is_measured_through_its_endpoints(cluster: None, tmp_path: Path, tiny: Path) -> None:
    out = tmp_path / "out.csv"
    argv = [COMMAND, "run", "compose", out, "--scenarios", tiny, "--yes-load-this-cluster"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["Error"] for row in rows] == ["-"] * 4
    assert {row["Hosts"] for row in rows} == {"external"} and {row["Leader"] for row in rows} <= {
        "etcd1",
        "etcd2",
        "etcd3",
    }


@pytest.mark.parametrize("path", CALLS)
def test_the_calls_of_the_seed_work(cluster: None, path: str) -> None:
    argv = ["curl", "--silent", "-d", json.dumps(CALLS[path]), f"http://localhost:8080/benchmark/{path}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (answer.get("requests"), answer.get("ok"), answer.get("failed")) == (1000, 1000, 0), answer


def test_nothing_is_privileged_and_ports_are_of_this_machine_alone(cluster: None) -> None:
    held = [container.attrs for container in engine.client().containers.list(filters={"name": NAME})]
    assert len(held) == 4
    for container in held:
        host = container["HostConfig"]
        assert not host["Privileged"] and host["CapDrop"] == ["ALL"] and not host["CapAdd"]
        bound = [place for places in host["PortBindings"].values() for place in places]
        assert bound and {place["HostIp"] for place in bound} == {"127.0.0.1"}
