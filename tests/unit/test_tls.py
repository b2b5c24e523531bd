"""A cluster with TLS: what members, client and driver are given, and that the driver's connections speak it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containernet_env.config.plan import Plan, PlanOptions, config_hash
from containernet_env.config.planning import build_plan
from containernet_env.config.topologies import load_config
from containernet_env.hosts.http import NoAnswerError
from containernet_env.model.config import Config, EtcdSettings
from containernet_env.runs.load import BenchmarkServer
from containernet_env.stores.etcd.certificates import Authority
from containernet_env.stores.etcd.store import Etcd
from containernet_env.stores.store import Trust

ROOT = Path(__file__).resolve().parents[2]
PLAIN = load_config(ROOT / "configs" / "3node-3ms.json")
CONFIG = replace(PLAIN, etcd=EtcdSettings(tls=True))


def plan_of(config: Config) -> Plan:
    return build_plan(config, None, PlanOptions(machine_cores=2))


def test_a_cluster_with_tls_is_another_one_and_one_without_is_what_it_was() -> None:
    assert config_hash(plan_of(CONFIG)) != config_hash(plan_of(PLAIN))
    *members, client = plan_of(PLAIN).hosts
    assert "--credentials" not in client.command and not any(host.tmpfs for host in (*members, client))
    assert not any("https" in flag or "/run" in flag for host in members for flag in host.command)
    assert Etcd.default().trust(PLAIN) is None


@pytest.fixture(scope="module")
def trust() -> Trust:
    found = Etcd.default().trust(CONFIG)
    assert found is not None
    return found


def test_each_host_gets_a_key_of_its_own_where_its_programs_look(trust: Trust) -> None:
    assert set(trust.files) == {"etcd1", "etcd2", "etcd3", "benchmark"}
    for host in plan_of(CONFIG).hosts:
        files = trust.files[host.name]
        (mount,) = host.tmpfs
        assert {Path(path).parent for path in files} == {Path(mount)}
        assert sum(map(len, files.values())) < 8192  # a page each
    named = {f"/run/credentials/{name}" for name in trust.request.values()}
    assert named == set(trust.files["benchmark"])
    keys = [content for files in trust.files.values() for content in files.values() if b"PRIVATE KEY" in content]
    assert len(keys) == len(set(keys)) == 4
    assert "PRIVATE" not in repr(trust) and "PRIVATE" not in repr(Authority().issue("x"))


def test_every_request_says_with_which_files_the_load_is_let_in(trust: Trust) -> None:
    class Kept:
        body: Any = None

        def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
            self.body = body
            raise NoAnswerError("enough")

    kept: Any = Kept()
    BenchmarkServer(kept, trust.request).run("/benchmark/write", {"total": 1}, 1.0)
    assert kept.body == {"total": 1, "caFile": "ca.pem", "certFile": "cert.pem", "keyFile": "key.pem"}
