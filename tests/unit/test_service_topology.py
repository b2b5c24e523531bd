"""A key-value service in a topology: a program of the user's, its arguments, the floor, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.base.programs import read_program
from containernet_env.config.plan import Plan, config_hash, plan_values
from containernet_env.model.usage import Leadership
from containernet_env.stores import cluster as members
from containernet_env.stores.cluster import MemberPlace, Waits
from tests.simulated_time import simulated
from tests.unit import fake_servers, store_files
from tests.unit.fake_servers import Network, Service, places_of, services
from tests.unit.test_store_plans import PROGRAM
from tests.unit.test_store_plans import SERVICE as STORE

network = fake_servers.network


def planned(folder: Path, **store: Any) -> Plan:
    return store_files.planned(folder, {**STORE, **store})


def test_what_a_file_says_is_what_counts(tmp_path: Path) -> None:
    plan, program = planned(tmp_path), read_program(Path(PROGRAM))
    assert plan.store.image.binary == program and plan.store.version == program.short
    assert plan_values(plan)["http"]["binary_sha256"] == program.sha256
    others: list[dict[str, Any]] = [{"port": 8081}, {"arguments": []}, {"missing": [404, 410]}, {"health": "/x"}]
    for other in (*others, {"put": "/v0/entity?id={key}&ack=3"}):
        assert config_hash(plan) != config_hash(planned(tmp_path, **other)), other
    assert config_hash(plan) == config_hash(planned(tmp_path, missing=404))


def of(found: list[Service]) -> list[MemberPlace]:
    """Each reached as a service on another machine is."""
    return places_of("http", (one.connection for one in found))


@simulated()
def test_a_member_that_reads_nothing_is_not_ready(
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
