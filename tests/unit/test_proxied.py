"""zetcd and cetcd without any: who is ready, and what keys hold."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from containernet_env.base.user_program import read_program
from containernet_env.hosts.netns_http import NoAnswerError
from containernet_env.model.leadership import Leadership
from containernet_env.stores.protocol import MemberPlace, Written
from containernet_env.stores.proxied.cetcd import CETCD
from containernet_env.stores.proxied.cluster import ProxiedCluster
from containernet_env.stores.zookeeper.session import consistent_read
from tests.simulated_time import simulated
from tests.unit.fake_servers import Scripted, buffer
from tests.unit.test_etcd import FakeConnection, FakeHost, FakeMembers
from tests.unit.test_zookeeper import CLOSED, SESSION


@dataclass
class Connection(FakeConnection):
    """etcd's gateway, and cetcd beside it where it serves."""

    serves: set[int] = field(default_factory=set)

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        if port == 8500 and "probe" in path:
            assert path == "/v1/kv/containernet-env/probe?consistent=true"
            if self.number not in self.serves:
                raise NoAnswerError("refused")
            return []
        if port == 8500:
            assert path == "/v1/kv/k?recurse=true&consistent=true"
            return [{"Key": "k1", "ModifyIndex": 7, "Value": base64.b64encode(b"value").decode()}]
        return super().request_json(port, method, path, body, timeout_s=timeout_s)


@simulated()
def test_a_cluster_is_ready_once_every_proxy_serves() -> None:
    members, serves = FakeMembers(), {1, 2}
    members.views = {number: (number, 1, 5) for number in (1, 2, 3)}
    hosts = [FakeHost(f"etcd{number}", number) for number in (1, 2, 3)]
    places: list[Any] = [
        MemberPlace(host, f"10.0.0.{host.pid}", Connection(members, host.pid, serves)) for host in hosts
    ]
    program = read_program(Path("/bin/true"))
    cluster = ProxiedCluster(places, CETCD, program)
    assert cluster.endpoints["etcd3"] == "10.0.0.3:8500" and cluster.leadership() == Leadership("etcd1", 5)
    assert not cluster.answers(0.1) and not cluster._is_ready(cluster.statuses())
    assert [member.knows_a_leader() for member in cluster.members] == [True, True, False]
    serves.add(3)
    assert cluster.answers(0.1) and cluster._is_ready(cluster.statuses())
    assert cluster.version() == f"etcd 3.7.3, binary {program.short}"
    assert {ping.port for ping in cluster.pings().values()} == {8500}
    own = cluster.written("k", 1, ["k1", "k2"], 1.0)
    assert own.final and list(own.writes) == [Written(7, "k1", "value"), Written(0, "k2", None)]
    cluster.close()


def test_a_sync_that_finds_no_root_is_a_consistent_read() -> None:
    refused = buffer(struct.pack(">iqi", 1, 5, -101))
    consistent_read(Scripted((49, SESSION), (17, refused), (12, CLOSED)), 5.0)
