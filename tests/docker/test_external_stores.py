"""Clusters of ZooKeeper, Consul and etcd that others run: processes, containers and Compose, measured through URLs.

ZooKeeper and Consul are left out where they have not been set up, Compose where the engine has no bridge.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.load.members import free_ports
from bench.load.services import CONSUL, Service
from containernet_env import setup
from containernet_env.base import programs
from containernet_env.base.errors import RunError
from containernet_env.hosts import engine
from containernet_env.hosts.http import TcpConnection
from containernet_env.hosts.options import PIDS_LIMIT
from containernet_env.runs.external_access import records
from containernet_env.setup import builds
from containernet_env.setup.images import required_images
from containernet_env.stores import zookeeper as znodes
from containernet_env.stores.kinds import KINDS
from tests.deadline import HANG_S, eventually
from tests.docker.runs import PROJECT, SEED_READ, SEED_WRITE, call, rows

pytestmark = pytest.mark.docker
LOAD = {"total": 60, "clients": 6, "conns": 3}
DATA = {"keySize": 4, "valSize": 64}
SCENARIOS = {
    "dataset": {"keyPrefix": "data/", **DATA, "keys": 50},
    "scenarios": [
        {"type": "write", "load": LOAD, "data": DATA, "target": ["leader", "cluster"]},
        {"type": "txn", "load": LOAD},
        {"type": "mixed", "load": LOAD, "ratio": 0.5, "consistency": "l", "history": True},
        {"type": "read", "load": LOAD, "consistency": ["l", "s"]},
    ],
}


class Cluster(NamedTuple):
    """A cluster that others run: its endpoints, a check that it holds what it held before, and its token."""

    endpoints: list[str]
    assert_as_it_was: Callable[[], None]
    token: str | None = None


def set_up(kind: str) -> Any:
    """The store, where it is there."""
    store = KINDS[kind].default()
    if lacking := setup.detect(store):
        pytest.skip(f"{kind} is not set up here: {lacking}")
    return store


class Consul(Service):
    """Three agents that refuse requests without a token."""

    token = "3f1a2b4c-0000-4000-8000-000000000001"

    def __init__(self, folder: Path) -> None:
        found = programs.find(set_up("consul").image.module, builds.go_version())
        super().__init__(CONSUL, found / "consul", 3, folder)

    def _arguments(self, i: int) -> list[str]:
        tokens = f'tokens {{ initial_management = "{self.token}" agent = "{self.token}" }}'
        acls = f'acl {{ enabled = true default_policy = "deny" {tokens} }}'
        return [*super()._arguments(i), "-hcl", acls]

    def _request(self, endpoint: str, method: str, path: str) -> Any:
        agent = TcpConnection(endpoint.partition(":")[0], 8500, headers={"X-Consul-Token": self.token})
        return agent.request_json(0, method, path, timeout_s=HANG_S)

    def _ready(self) -> bool:
        try:
            return all(self._request(endpoint, "PUT", "/v1/kv/ready") for endpoint in self.endpoints)
        except RunError:
            return False

    def assert_as_it_was(self) -> None:
        assert self._request(self.endpoints[0], "GET", "/v1/kv/?keys") == ["ready"]


@contextmanager
def consul(folder: Path) -> Iterator[Cluster]:
    with Consul(folder) as agents:
        yield Cluster([f"http://{endpoint}" for endpoint in agents.endpoints], agents.assert_as_it_was, agents.token)


@contextmanager
def zookeeper(_folder: Path) -> Iterator[Cluster]:
    """Three members, each in a container on this machine's own network."""
    image = required_images(set_up("zookeeper")).member
    ports = free_ports(9)
    clients, peers = ports[:3], list(zip(ports[3:6], ports[6:], strict=True))
    servers = [f"server.{number}=127.0.0.1:{one}:{two}" for number, (one, two) in enumerate(peers, 1)]
    settings = ["tickTime=500", "initLimit=20", "syncLimit=10", "dataDir=/var/lib/zookeeper", "maxClientCnxns=0"]
    settings += ["clientPortAddress=127.0.0.1", "admin.enableServer=false", "forceSync=no", *servers]
    made: list[Any] = []

    def mode(port: int) -> str:
        try:
            return znodes.parse_srvr("it", znodes.query(TcpConnection("127.0.0.1", port), "srvr", HANG_S))[0]
        except RunError:
            return ""

    def check() -> None:
        with znodes.synced(TcpConnection("127.0.0.1", clients[1]), HANG_S) as opened:
            assert opened.children("/") == ["zookeeper"] and opened.voters() == {"1", "2", "3"}

    try:
        for number, port in enumerate(clients, 1):
            command = [f"--id={number}", "--java=-Xmx96m", "--java=-XX:+UseSerialGC", *settings, f"clientPort={port}"]
            name = f"cnenv-test-zookeeper{number}-{os.getpid()}"
            made.append(engine.client().containers.run(image, command, name=name, network_mode="host", detach=True))
            gate = ["sh", "-c", "echo go >/run/gate"]
            eventually(lambda of=made[-1], gate=gate: of.exec_run(gate).exit_code == 0, "its gate")
        eventually(lambda: sorted(map(mode, clients)) == ["follower", "follower", "leader"], "a leader")
        yield Cluster([f"127.0.0.1:{port}" for port in clients], check)
    finally:
        for container in made:
            container.remove(force=True, v=True)


MAKERS: dict[str, Callable[[Path], AbstractContextManager[Cluster]]] = {"consul": consul, "zookeeper": zookeeper}


@pytest.mark.long
@pytest.mark.parametrize("kind", MAKERS)
def test_it_is_measured_and_keeps_nothing(kind: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with MAKERS[kind](tmp_path_factory.mktemp(kind)) as cluster:
        file, out, scenarios = (tmp_path / name for name in ("endpoints.json", "out.csv", "scenarios.json"))
        named = {"store": kind, "endpoints": cluster.endpoints}
        file.write_text(json.dumps(named))
        scenarios.write_text(json.dumps(SCENARIOS))
        if cluster.token is not None:
            refused = call("check", file)
            assert refused.returncode == 1 and "requires a token (ACLs)" in refused.stdout, refused.stdout
            (tmp_path / "token").write_text(f"{cluster.token}\n")
            file.write_text(json.dumps(named | {"token_file": "token"}))
        done = call("run", file, out, "--scenarios", scenarios, "--yes-load-this-cluster")
        assert done.returncode == 0, done.stdout + done.stderr
        found = rows(out)
        assert [row["Error"] for row in found] == ["-"] * 6, found
        version = str(KINDS[kind].default().version)
        facts = {(row["Hosts"], row["ClusterSize"], row["StoreVersion"]) for row in found}
        assert facts == {("external", "3", version)}
        if kind == "zookeeper":
            assert {row["Consistency"] for row in found if row["TestType"] == "read"} == {"sync+read", "s"}
        else:
            assert {row["Leader"] for row in found} <= {f"consul{number}" for number in (1, 2, 3)}
        judged = call("verify", out)
        assert judged.returncode == 0 and ": ok" in judged.stdout, judged.stdout + judged.stderr
        assert not [record for _, record in records() if record.run_id in found[0]["RunId"]]
        cluster.assert_as_it_was()
        checked = call("check", file)
        assert checked.returncode == 0 and checked.stdout.count("leads") == 1, checked.stdout + checked.stderr
        for path in (tmp_path / "out.runs").rglob("*"):
            assert cluster.token is None or path.is_dir() or cluster.token.encode() not in path.read_bytes(), path


COMPOSE = PROJECT / "etcd_image" / "compose.yaml"
PACKAGE = "docker-compose"
PROJECT_NAME = f"cnenv-compose-{os.getpid()}"


def compose(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    images = required_images()
    return subprocess.run(
        ["docker-compose", "--project-name", PROJECT_NAME, "--file", str(COMPOSE), *arguments],
        env={**os.environ, "ETCD_IMAGE": images.member, "BENCHMARK_IMAGE": images.benchmark},
        capture_output=True,
        text=True,
        timeout=120,
        check=check,
    )


def test_a_cluster_of_compose_is_measured_has_no_privileges_and_takes_the_calls_of_the_seed(
    tmp_path: Path, tiny: Path
) -> None:
    if not engine.client().networks.list(names=["bridge"]):  # see setup/dockerd.py
        pytest.skip("this engine runs without a bridge, so it can publish no ports")
    if shutil.which("docker-compose") is None:
        argv = ["apt-get", "install", "--yes", "--no-install-recommends", PACKAGE]
        subprocess.run(argv, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, check=True, timeout=600)
    try:
        done = compose("up", "--detach", check=False)
        assert done.returncode == 0, done.stderr
        held = [container.attrs for container in engine.client().containers.list(filters={"name": PROJECT_NAME})]
        assert len(held) == 4
        for container in held:
            host = container["HostConfig"]
            assert not host["Privileged"] and host["CapDrop"] == ["ALL"] and not host["CapAdd"]
            assert host["PidsLimit"] == PIDS_LIMIT and host["SecurityOpt"] == ["no-new-privileges:true"]
            assert "NO_PROXY=*" in container["Config"]["Env"]
            bound = [place for places in host["PortBindings"].values() for place in places]
            assert bound and {place["HostIp"] for place in bound} == {"127.0.0.1"}, "this machine's alone"
        out = tmp_path / "out.csv"
        done = call("run", "compose", out, "--scenarios", tiny, "--yes-load-this-cluster")
        assert done.returncode == 0, done.stdout + done.stderr
        assert [(row["Error"], row["Hosts"]) for row in rows(out)] == [("-", "external")] * 4
        assert {row["Leader"] for row in rows(out)} <= {"etcd1", "etcd2", "etcd3"}
        for path, body in (("read", SEED_READ), ("write", SEED_WRITE)):
            argv = ["curl", "--silent", "-d", body, f"http://localhost:8080/benchmark/{path}"]
            answer = json.loads(subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout)
            assert (answer.get("requests"), answer.get("ok"), answer.get("failed")) == (1000, 1000, 0), answer
    finally:
        compose("down", "--volumes", "--timeout", "5")
