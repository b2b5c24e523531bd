"""ZooKeeper and Consul on loopback, as clusters that somebody else runs. Left out where they are not set up yet."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.load.members import free_ports
from bench.load.services import CONSUL, Service
from containernet_env.base import programs
from containernet_env.base.errors import RunError
from containernet_env.hosts import engine
from containernet_env.hosts.tcp_http import TcpConnection
from containernet_env.model.config import StoreChoice
from containernet_env.runs.external_left import records
from containernet_env.setup import binaries, missing
from containernet_env.setup.images import required_images
from containernet_env.stores.kinds import KINDS
from containernet_env.stores.zookeeper import session, words
from tests.docker.conftest import COMMAND

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


def set_up(kind: str) -> Any:
    """The store, where it is there."""
    store = KINDS[kind].make(StoreChoice(kind))
    if lacking := missing.look(store):
        pytest.skip(f"{kind} is not set up here: {lacking}")
    return store


def consuls_program() -> Path:
    found = programs.find(set_up("consul").image.module, binaries.go_version())
    assert found is not None
    return found / "consul"


@pytest.fixture(scope="module")
def consul(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(CONSUL, consuls_program(), 3, tmp_path_factory.mktemp("consul")) as members:
        yield members


class WithAcls(Service):
    """One agent that nobody may ask without a token."""

    token = "3f1a2b4c-0000-4000-8000-000000000001"

    def __init__(self, program: Path, folder: Path) -> None:
        super().__init__(CONSUL, program, 1, folder)
        self.endpoints = ["127.0.62.1:8500"]

    def _arguments(self, i: int) -> list[str]:
        tokens = f'tokens {{ initial_management = "{self.token}" agent = "{self.token}" }}'
        acls = f'acl {{ enabled = true default_policy = "deny" {tokens} }}'
        return [*super()._arguments(i), "-hcl", acls]

    def _ready(self) -> bool:
        asked = TcpConnection("127.0.62.1", 8500)
        try:
            headers = {"X-Consul-Token": self.token}
            return asked.request_json(0, "PUT", "/v1/kv/ready", "", timeout_s=2.0, headers=headers) is True
        except RunError:
            return False


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[list[int]]:
    """The client ports of three members, each in a container on this machine's own network."""
    image = required_images(set_up("zookeeper")).member
    ports = free_ports(9)
    clients, peers = ports[:3], list(zip(ports[3:6], ports[6:], strict=True))
    servers = [f"server.{number}=127.0.0.1:{one}:{two}" for number, (one, two) in enumerate(peers, 1)]
    settings = ["tickTime=500", "initLimit=20", "syncLimit=10", "dataDir=/var/lib/zookeeper", "maxClientCnxns=0"]
    settings += ["clientPortAddress=127.0.0.1", "admin.enableServer=false", "forceSync=no", *servers]
    made = []
    try:
        for number, port in enumerate(clients, 1):
            command = [f"--id={number}", "--java=-Xmx96m", "--java=-XX:+UseSerialGC", *settings, f"clientPort={port}"]
            name = f"cnenv-test-zookeeper{number}-{os.getpid()}"
            container = engine.client().containers.run(image, command, name=name, network_mode="host", detach=True)
            made.append(container)
            wait_until(lambda of=container: of.exec_run(["sh", "-c", "echo go >/run/gate"]).exit_code == 0)
        wait_until(lambda: sorted(map(mode, clients)) == ["follower", "follower", "leader"], 60.0)
        yield clients
    finally:
        for container in made:
            container.remove(force=True, v=True)


def mode(port: int) -> str:
    try:
        return words.parse_srvr(words.ask(TcpConnection("127.0.0.1", port), "srvr", 2.0)).mode
    except RunError:
        return ""


def wait_until(holds: Any, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)


def endpoints(folder: Path, store: str, values: list[str]) -> Path:
    path = folder / "endpoints.json"
    path.write_text(json.dumps({"store": store, "endpoints": values}))
    (folder / "scenarios.json").write_text(json.dumps(SCENARIOS))
    return path


def command(*words_: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *map(str, words_)], capture_output=True, text=True, timeout=120, check=False)


def rows_in(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(out.read_text().splitlines()))


def rows_of(file: Path) -> list[dict[str, str]]:
    """The rows of a run; that nothing is on record afterwards is looked at, too."""
    out = file.with_name("out.csv")
    done = command("run", file, out, "--scenarios", file.with_name("scenarios.json"), "--yes-load-this-cluster")
    assert done.returncode == 0, done.stdout + done.stderr
    found = rows_in(out)
    assert [row["Error"] for row in found] == ["-"] * 6, found
    assert {row["Hosts"] for row in found} == {"external"}
    judged = command("verify", out)
    assert judged.returncode == 0 and ": ok" in judged.stdout, judged.stdout + judged.stderr
    assert not list(records())
    return found


def test_consul_is_measured_and_keeps_nothing(consul: Service, tmp_path: Path) -> None:
    listing = "/v1/kv/containernet-env/?keys"
    found = rows_of(endpoints(tmp_path, "consul", [f"http://{endpoint}" for endpoint in consul.endpoints]))
    assert {row["ClusterSize"] for row in found} == {"3"}
    assert {row["StoreVersion"] for row in found} == {programs_version("consul")}
    assert {row["Leader"] for row in found} <= {"consul1", "consul2", "consul3"}
    assert consul.ask("GET", 0, listing) == 404


def test_consul_with_acls_is_measured_with_a_token_alone(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with WithAcls(consuls_program(), tmp_path_factory.mktemp("acls")) as agent:
        file = endpoints(tmp_path, "consul", [f"http://{agent.endpoints[0]}"])
        refused = command("check", file)
        assert refused.returncode == 1 and "asks for a token (ACLs)" in refused.stdout, refused.stdout + refused.stderr
        (tmp_path / "token").write_text(f"{agent.token}\n")
        file.write_text(json.dumps({**json.loads(file.read_text()), "token_file": "token"}))
        found = rows_of(file)
        assert {row["Leader"] for row in found} == {"consul1"}
        for path in (tmp_path / "out.runs").rglob("*"):
            assert path.is_dir() or agent.token.encode() not in path.read_bytes(), path


def programs_version(kind: str) -> str:
    return str(KINDS[kind].make(StoreChoice(kind)).version)


def test_zookeeper_is_measured_and_keeps_nothing(zookeeper: list[int], tmp_path: Path) -> None:
    file = endpoints(tmp_path, "zookeeper", [f"127.0.0.1:{port}" for port in zookeeper])
    found = rows_of(file)
    assert {row["ClusterSize"] for row in found} == {"3"}
    assert {row["StoreVersion"] for row in found} == {programs_version("zookeeper")}
    assert {row["Consistency"] for row in found if row["TestType"] == "read"} == {"sync+read", "s"}
    with session.synced(TcpConnection("127.0.0.1", zookeeper[1]), 5.0) as opened:
        assert opened.children("/") == ["zookeeper"] and opened.voters() == {"1", "2", "3"}
    checked = command("check", file)
    assert checked.returncode == 0 and checked.stdout.count("leads") == 1, checked.stdout + checked.stderr


def test_endpoints_of_two_clusters_are_refused_and_nothing_stays(
    zookeeper: list[int], consul: Service, tmp_path: Path
) -> None:
    file = endpoints(tmp_path, "zookeeper", [f"127.0.0.1:{zookeeper[0]}", consul.endpoints[0]])
    done = command("run", file, tmp_path / "out.csv", "--quick", "--yes-load-this-cluster")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"{consul.endpoints[0]} is no voting member of ZooKeeper" in done.stderr, done.stderr
    assert all(row["Error"].startswith("not run") for row in rows_in(tmp_path / "out.csv"))
    with session.synced(TcpConnection("127.0.0.1", zookeeper[0]), 5.0) as opened:
        assert opened.children("/") == ["zookeeper"]
