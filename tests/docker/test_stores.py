"""Stores other than etcd on a real network: a row, a floor and a history of each.

Consul is left out where it has not been set up, which takes minutes; ZooKeeper where it cannot be.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from containernet_env import measure, setup
from containernet_env.base import assets
from containernet_env.base.programs import UserProgram, read_program
from containernet_env.hosts import engine
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.results.run_directory import RunResult, histories_of
from containernet_env.runs.verify import Judgement, judge
from containernet_env.setup import builds
from containernet_env.stores.kinds import KINDS
from containernet_env.stores.replicas import sources_hash
from tests.docker.conftest import TINY_SCENARIOS
from tests.docker.runs import topology
from tests.root.test_external import built

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("unchanged_machine")]

LINK_MS, KEYS, REQUESTS = 3, 50, 20
SIZE = {"keySize": 8, "valSize": 64}
ALONE = {"total": REQUESTS, "clients": 1, "conns": 1}
WRITE: dict[str, Any] = {"type": "write", "load": ALONE, "data": SIZE, "target": "leader"}
READ = {"type": "read", "load": ALONE, "consistency": "l"}
KEPT = {
    "type": "mixed",
    "load": {"total": 300, "clients": 20, "conns": 4},
    "ratio": 0.5,
    "consistency": "l",
    "verify": True,
    "history": True,
}


def measured(folder: Path, config: Path, *blocks: dict[str, Any], keys: int = KEYS) -> RunResult:
    """The run of these scenarios."""
    scenarios = folder / "scenarios.json"
    scenarios.write_text(json.dumps({"dataset": {**SIZE, "keys": keys}, "scenarios": blocks}))
    return measure(config, scenarios, folder / "out.csv")


def judgement_of(result: RunResult, folder: Path) -> Judgement:
    (history,) = histories_of(result.directory)
    return judge(history, folder / "verify", time_s=60, memory_bytes=1 << 30)


def assert_above(outcome: ScenarioOutcome, least_ms: float) -> None:
    """Its floor is no lower than what the protocol waits for, and no request was faster than the links allow."""
    assert outcome.error is None and outcome.load is not None and outcome.load.ok == outcome.load.requests, outcome
    assert outcome.floor_s is not None and outcome.floor_s * 1e3 >= least_ms, outcome.scheduled.scenario.name
    assert outcome.load.median_s is not None and outcome.load.median_s * 1e3 >= least_ms


@pytest.mark.parametrize("kind", ["consul", "zookeeper"])
def test_requests_wait_for_what_the_protocol_waits_for_and_histories_agree(tmp_path: Path, kind: str) -> None:
    store = KINDS[kind].default()
    if lacking := setup.detect(store):
        pytest.skip(f"{kind} is not set up here: {lacking}")
    tiny = TINY_SCENARIOS["scenarios"] if kind == "zookeeper" else []
    result = measured(tmp_path, topology(tmp_path / "c.json", store={"store": kind}), *tiny, KEPT)
    assert {(row["Store"], row["StoreVersion"]) for row in result.rows} == {(kind, store.version)}
    judgement = judgement_of(result, tmp_path)
    assert (judgement.verdict, judgement.values["compared"]) == ("ok", "final state"), judgement
    assert judgement.values["judged"] == judgement.values["operations"] == 300, judgement
    # Each key has a last write of its own.
    (history,) = histories_of(result.directory)
    *held, last = [json.loads(line) for line in gzip.decompress(history.store.read_bytes()).splitlines()]
    assert last == {"whole": False, "final": True} and len({write["revision"] for write in held}) == len(held) > 0
    # There and back in ms: the client 6, a member 12. Two of three requests of a cluster meet a follower.
    least_ms = {"write-leader": 6 + 12, "write-cluster": 6 + 12 + 12, "read-linear": 6 + 12, "read-serial": 6}
    for outcome, row in zip(result.outcomes[:-1], result.rows, strict=False):
        (least,) = (ms for beginning, ms in least_ms.items() if row["Scenario"].startswith(beginning))
        assert_above(outcome, least)
        assert row["Consistency"] == {"read-linear": "sync+read", "read-serial": "s"}.get(row["Scenario"][:11], "-")


@pytest.mark.parametrize("kind", ["http", "replicas"])
def test_replicas_are_measured_also_as_a_program_of_the_users(tmp_path: Path, kind: str) -> None:
    """As the store, and by its program as a key-value service of which only URLs are known."""
    if (program := built(tmp_path)) is None:
        pytest.skip("there is no Go to build the replicas with")
    store = {
        "kind": "http",
        "binary": str(program),
        "arguments": ["--listen=0.0.0.0:{port}", "--id={index}", "--peers={peers}", "--data={data}"],
        "port": 8080,
        "put": "/v0/entity?id={key}&ack=2",
        "get": "/v0/entity?id={key}&from=1",
        "success": {"put": 201},
        "health": "/status",
    }
    if kind == "replicas":
        store = {"kind": "replicas", "flags": {"ack": 2, "from": 1}}
    config = topology(tmp_path / "own.json", store={"store": store}, mem="64m")
    member = "http3" if kind == "http" else "replica3"
    write, read = {**WRITE, "target": "cluster"}, {**READ, "target": member}
    result = measured(tmp_path, config, write, read)
    manifest = json.loads((result.directory / "manifest.json").read_text())
    version = read_program(program).short if kind == "http" else sources_hash()
    assert (manifest["store"]["kind"], manifest["store"]["version"]) == (kind, version)
    assert [row["StoreVersion"] for row in result.rows] == [version] * 2
    written, found = result.outcomes
    # Of a service the floor is the client's own way: what members send each other is not known. A write of replicas
    # waits for another one, a read of from=1 for none.
    assert_above(written, (2 if kind == "http" else 6) * LINK_MS)
    assert_above(found, 2 * LINK_MS)
    assert written.load.median_s * 1e3 >= 6 * LINK_MS


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserProgram]:
    """A small proxy in the place of zetcd and cetcd, built; the images with it are removed at the end."""
    toolchain = builds.find()
    assert toolchain is not None, "the programs of the project have been built"
    path = tmp_path_factory.mktemp("proxy") / "small-proxy"
    environment = {**os.environ, **assets.BUILD_ENVIRONMENT}
    argv = [toolchain.path, "build", "-trimpath", "-o", str(path), "."]
    subprocess.run(argv, cwd=Path(__file__).parent / "small_proxy", env=environment, check=True, timeout=120)
    found = read_program(path)
    yield found
    for image in engine.client().api.images():
        for tag in image.get("RepoTags") or ():
            if f"-{found.short}:" in tag:
                engine.client().api.remove_image(tag)


def synced(outcome: ScenarioOutcome) -> int:
    """How many members of etcd have synced their log for each request at least."""
    syncs = [found.log_syncs.count for found in outcome.store.members.values() if found.log_syncs is not None]
    return sum(count >= REQUESTS for count in syncs)


@pytest.mark.parametrize(("kind", "members"), [("zetcd", 3), ("cetcd", 1)])
def test_clients_of_other_stores_are_served_by_etcd(
    tmp_path: Path, proxy: UserProgram, kind: str, members: int
) -> None:
    crash = {**WRITE, "load": {**ALONE, "total": 2}, "data": {"keySize": 8, "valSize": 13}}
    others = [READ, crash] if members > 1 else []
    choice = {"kind": kind, "binary": str(proxy.path)}
    config = topology(tmp_path / "c.json", members, store={"store": choice}, mem="256m")
    result = measured(tmp_path, config, WRITE, *others)
    version = f"etcd {assets.etcd_version()}, binary {proxy.short}"
    assert {(row["Store"], row["StoreVersion"]) for row in result.rows} == {(kind, version)}
    fine, crashed = (result.outcomes[:-1], result.outcomes[-1]) if others else (result.outcomes, None)
    for outcome in fine:
        # There and back in ms: the client 6, a member 12.
        assert_above(outcome, 6 + 12 * (members > 1))
        # Nothing but etcd keeps what one member has taken and another one is asked for.
        assert (synced(outcome) > members // 2) is not outcome.scheduled.scenario.reads, outcome
    if crashed is not None:
        assert crashed.error is not None and f"{crashed.leader_at_start} ended: " in crashed.error, crashed.error
        assert "the proxy ended: exit status 2: panic: a value of 13" in crashed.error
