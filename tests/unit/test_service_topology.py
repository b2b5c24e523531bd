"""A key-value service in a topology: a program of the user's, its arguments, the floor, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import ConfigError, RunError
from containernet_env.base.programs import read_program
from containernet_env.config.plan import Plan, config_hash, plan_values
from containernet_env.config.stores import RawProgram
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import topology_values
from containernet_env.model.kinds import keys_of
from containernet_env.model.usage import Leadership
from containernet_env.stores import cluster as members
from containernet_env.stores.cluster import MemberPlace, Waits, Written
from tests.simulated_time import simulated
from tests.unit import fake_servers, store_files
from tests.unit.fake_servers import Network, Service, places_of, services
from tests.unit.test_config import config_again

network = fake_servers.network
PROGRAM = "/bin/true"
STORE = {
    "kind": "http",
    "binary": PROGRAM,
    "arguments": ["--listen={ip}:{port}", "--id={index}", "--peers={peers}", "--name={name}", "--data={data}"],
    "port": 8080,
    "put": "/v0/entity?id={key}&ack=2",
    "get": "/v0/entity?id={key}&from=2",
    "success": {"put": 201},
}


def topology(folder: Path, store: Any = STORE, **more: Any) -> Path:
    return store_files.topology(folder, store, **more)


def planned(folder: Path, **store: Any) -> Plan:
    return store_files.planned(folder, {**STORE, **store})


def test_what_a_file_says_is_what_is_written_and_what_counts(tmp_path: Path) -> None:
    plan, program = planned(tmp_path), read_program(Path(PROGRAM))
    assert plan.store.image.binary == program and plan.store.version == program.short
    assert plan_values(plan)["http"]["binary_sha256"] == program.sha256
    config = load_config(topology(tmp_path, {**STORE, "health": "/status"}, http={"data": "tmpfs"}))
    assert config.store.service is not None and config.store.service.health == "/status"
    assert config_again(tmp_path, config) == config
    assert topology_values(config)["store"]["arguments"] == STORE["arguments"]
    own = config_hash(planned(tmp_path))
    others: list[dict[str, Any]] = [{"port": 8081}, {"arguments": []}, {"missing": [404, 410]}, {"health": "/x"}]
    for other in (*others, {"put": "/v0/entity?id={key}&ack=3"}):
        assert own != config_hash(planned(tmp_path, **other)), other
    assert own == config_hash(planned(tmp_path, missing=404))
    # A word alone is no service.
    with pytest.raises(ConfigError, match="has no binary") as raised:
        load_config(topology(tmp_path, "http"))
    (problem,) = raised.value.problems
    needed = [name for name, key in keys_of(RawProgram).items() if key.is_required] + ["binary"]
    assert all(f'"{name}": ' in str(problem.allowed) for name in needed), problem.allowed


def of(found: list[Service]) -> list[MemberPlace]:
    """Each reached as a service on another machine is."""
    return places_of("http", (one.connection for one in found))


@simulated()
def test_members_are_ready_when_each_answers_a_read(network: Network, tmp_path: Path) -> None:
    plan = planned(tmp_path)
    found = services(network, 3)
    cluster = plan.store.cluster(of(found))
    assert cluster.leadership() == Leadership("http1", None) and cluster.version() == plan.store.version
    found[0].statuses["GET"] = 500
    assert cluster.leadership() == Leadership("http1", None) and not cluster.answers(0.2)
    del found[0].statuses["GET"]
    assert cluster.answers(2.0)
    found[0].values["k/1"] = b"one"
    reported = list(cluster.written("k/", 0, ["k/1", "k/2"], 2.0).writes)
    assert reported == [Written(0, "k/1", "one"), Written(0, "k/2", None)]
    assert {request.partition("?")[0] for one in found for request in one.requests} == {"GET /v0/entity"}
    cluster.close()


@simulated()
def test_a_member_that_is_well_and_reads_nothing_is_not_ready(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read may ask other members: 500 stands for one that waits for those in vain, so it is no ping."""
    monkeypatch.setattr(members.Member, "start", lambda member, deadline: None)
    found = services(network, 2)
    found[1].refused = "/v0/"
    cluster = planned(tmp_path).store.cluster(of(found))
    assert cluster.pings() == {} and cluster.leadership() == Leadership("http1", None)
    cluster.close()
    cluster = planned(tmp_path, health="/status").store.cluster(of(found))
    pings = cluster.pings()
    assert list(pings) == ["http1", "http2"] and pings["http1"].request.startswith(b"GET /status HTTP/1.1\r\n")
    assert cluster.leadership() == Leadership("http1", None) and not cluster.answers(0.2)
    with pytest.raises(RunError, match="not ready after 3 s: no answer to a read from every member"):
        cluster.waits = Waits(start_s=3.0)
        cluster.start()
    found[1].refused = None
    cluster.waits = Waits(start_s=2.0)
    assert cluster.start() == Leadership("http1", None)
    cluster.close()


@simulated()
def test_reads_of_many_keys_have_one_limit_together(network: Network, tmp_path: Path) -> None:
    """Else the last one had the whole time for itself."""
    (one,) = services(network, 1)
    one.takes_s = 0.5
    (member,) = planned(tmp_path).store.cluster(of([one])).members
    assert len(member.values("k/", ["k/1", "k/2", "k/3"], 2.0)) == 3 and one.connections == 1
    assert list(dict.fromkeys(one.limits_s)) == [2.0, 1.5, 1.0]
    with pytest.raises(RunError, match="4 of 9 keys were read within 2 s"):
        member.values("k/", [f"k/{number}" for number in range(9)], 2.0)
