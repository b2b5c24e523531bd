"""What files are refused for that name a store: every problem whole, with its place.

The texts are in ``__snapshots__``: ``pytest tests/unit/test_store_refusals.py --snapshot-update`` takes new ones.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.topologies import load_config
from containernet_env.model.config import Config
from tests.unit import blocks


def read(folder: Path, value: Any) -> Config:
    return load_config(blocks.write(folder, value, "topology.json"))


def refused(folder: Path, act: Callable[[], object]) -> list[str]:
    """The problems, without the folder of the test and the kind of the machine."""
    with pytest.raises((ConfigError, UsageError)) as raised:
        act()
    error = raised.value
    problems = error.problems if isinstance(error, ConfigError) else [error]
    return [
        str(problem).replace(str(folder), "FOLDER").replace(f"({platform.machine()})", "(MACHINE)")
        for problem in problems
    ]


HTTP = {"kind": "http", "put": "/p?id={key}", "get": "/g?id={key}", "delete": "/d?id={key}"}
STAY = {"kind": "http", "put": "/{key}", "get": "/{key}", "keys": "stay"}
A, S = {"endpoints": ["http://a:1"]}, {"endpoints": ["https://a:1"]}
ENDPOINTS: list[dict[str, Any]] = [
    {"endpoints": []},
    *({"endpoints": [url]} for url in (
        "10.1.0.1:2379", "http://10.1.0.1:2379/v3", "http://user:pass@10.1.0.1:2379", "http://10.1.0.1:70000",
        "http://h..x:1", f"http://{'a' * 64}.x:1", f"http://{'.'.join(['a' * 60] * 5)}:1",
    )),
    {"endpoints": ["http://a:1", "http://a:1"]},
    {"endpoints": ["http://a:1", "https://b:1"], "tls": {"ca": "x"}},
    S,
    {**S, "tls": {"ca": "x", "cert": "y"}},
    *({**A, **more} for more in (
        {"tls": {"ca": "x"}}, {"password": "x"}, {"password_file": "x"}, {"user": "a:b"}, {"prefix": "/"},
        {"store": "other"}, {"nodes": []}, {"user": "\ud800"}, {"prefix": "a\udfff/"}, {"tls": {"ca": "\udc00"}},
    )),
    {"store": "etcd", **A, "token_file": "x"},
    {"store": "zookeeper", **A},
    *({"store": "zookeeper", "endpoints": ["a:1"], **more} for more in (
        {"tls": {"ca": "x"}}, {"user": "x"}, {"prefix": "a//b/"}, {"prefix": "ü/"}, {"prefix": "zookeeper/a/"},
        {"endpoints": ["a:1", "a:1"]}, {"token_file": "x"},
    )),
    *({"store": "consul", **more} for more in (
        {"endpoints": ["a:1"]}, S, {**A, "user": "x"}, {**A, "prefix": "a/../"},
    )),
    {**A, "store": HTTP, "user": "bench"},
    *({**A, "store": {**HTTP, **more}} for more in (
        {"kind": "memcached"}, {"put": "v0/{key}"}, {"put": "/a b/{key}"}, {"get": "/v0"}, {"get": "/{key}/{key}"},
        {"get": "/{key}/{value}"}, {"success": {"put": 99}}, {"success": {"put": [200, 200]}}, {"success": {"put": []}},
        {"success": {"put": list(range(200, 217))}}, {"success": {"post": 200}}, {"missing": 200}, {"keys": "stay"},
    )),
    *({**A, "store": store} for store in (
        {**STAY, "success": {"delete": 200}}, {**STAY, "keys": "go"}, {"kind": "http", "get": "/{key}", "keys": "stay"},
        {"kind": "http", "put": "/{key}", "get": "/{key}"},
    )),
]  # fmt: skip


def test_endpoints(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    found = {json.dumps(value): refused(tmp_path, lambda v=value: read(tmp_path, v)) for value in ENDPOINTS}
    assert found == snapshot and all("line 1, column " in problem for of_one in found.values() for problem in of_one)


NODES = [
    {"name": f"m{number}", "ip": f"10.0.0.{number}", "mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": "3ms"}
    for number in (1, 2, 3)
]
PROGRAM = {**HTTP, "binary": "program", "port": 8080}
del PROGRAM["delete"]
TOPOLOGIES: list[dict[str, Any]] = [
    *({"store": store} for store in (
        "etdc", 3, {}, {"kind": "redis"}, "http", "zetcd",
        *({"kind": "etcd", **more} for more in (
            {"versoin": "3.6.8"}, {"version": 3.6}, {"version": "latest"}, {"version": "3.5.9"},
            {"version": "3.6.8/../x"}, {"binary": "program"}, {"flags": ["x"]},
        )),
        *({"kind": "etcd", "flags": flags} for flags in (
            {"data-dir": "/"}, {"snapshot-count": 0}, {"snapshot-count": "5"}, {"snapshot-count": True},
            {"quota-backend-bytes": 1}, {"auto-compaction-mode": "revision"},
            {"auto-compaction-mode": "revision", "auto-compaction-retention": "1s"},
            {"snapshot_count": 5, "backend-batch-limit": -1},
        )),
    )),
    *({"store": "zookeeper", **more} for more in (
        {"zookeeper": {"leader": "m1"}}, {"zookeeper": {"tls": True}}, {"zookeeper": {"heartbeat_interval": "1s"}},
        {"etcd": {"data": "tmpfs"}}, {"zookeeper": {"ticks": 3}}, {"store": {"kind": "zookeeper", "version": "3.7.2"}},
        {"store": {"kind": "zookeeper", "flags": {"forceSync": False}}},
        {"store": {"kind": "zookeeper", "flags": {"server.9": "x"}}},
    )),
    *({"store": "consul", **more} for more in (
        {"consul": {"heartbeat_interval": "100ms"}}, {"consul": {"election_timeout": "1s"}}, {"consul": {"tls": True}},
        {"etcd": {"data": "tmpfs"}}, {"store": {"kind": "consul", "version": "1.14.9"}},
        {"store": {"kind": "consul", "flags": {"raft_multiplier": 11}}},
    )),
    *({"store": "replicas", **more} for more in (
        {"store": {"kind": "replicas", "flags": {"ack": 0}}}, {"replicas": {"leader": "m1"}},
        {"replicas": {"tls": True}}, {"store": {"kind": "replicas", "version": "2"}},
    )),
    *({"store": {"kind": kind, "binary": "program", **store}, **more} for kind, store, more in (
        ("zetcd", {"binary": "none"}, {}), ("cetcd", {"binary": "topology.json"}, {}), ("zetcd", {"binary": None}, {}),
        ("zetcd", {}, {"etcd": {"tls": True}}), ("zetcd", {}, {"zookeeper": {}}), ("zetcd", {"version": "3.5.0"}, {}),
        ("cetcd", {"flags": {"raft_multiplier": 1}}, {}), ("zetcd", {}, {"etcd": {"leader": "nobody"}}),
    )),
    *({"store": {name: value for name, value in {**PROGRAM, **more}.items() if value is not None}} for more in (
        {"binary": None}, {"binary": "topology.json"}, {"port": 0}, {"port": None}, {"arguments": "--id=1"},
        {"delete": "/{key}"}, {"success": {"delete": 200}}, {"success": {"post": 200}}, {"flags": {}}, {"put": "/v0"},
        {"health": "status"}, {"health": "/status?id={key}"},
        *({"arguments": [word]} for word in (
            "--id={number}", "{PORT}", "{index0}", "{data-dir}", "{ port }", "{}", "{port", "port}", "{port}}",
        )),
    )),
    *({"store": PROGRAM, "http": setting} for setting in (
        {"leader": "http1"}, {"tls": True}, {"heartbeat_interval": "100ms"},
    )),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with a program in it."""
    shutil.copy(Path(sys.executable).resolve(), tmp_path / "program")
    return tmp_path


def test_topologies(folder: Path, snapshot: SnapshotAssertion) -> None:
    found = {}
    for value in TOPOLOGIES:
        found[json.dumps(value)] = refused(folder, lambda v=value: read(folder, {"nodes": NODES, **v}))
    assert found == snapshot


LOAD = {"total": 10, "clients": 1, "conns": 1}
ENDLESS = {"duration": "1s", "clients": 1, "conns": 1}
READ = {"type": "read", "load": LOAD, "consistency": ["l"]}
DEFAULT = {**READ, "consistency": ["l", "default"]}
WRITE = {"type": "write", "target": "leader", "load": LOAD, "data": {"keySize": 8, "valSize": 8}}
TXN = {"type": "txn", "load": LOAD}
CETCD, ZETCD = ({"store": {"kind": kind, "binary": "program"}, "nodes": NODES} for kind in ("cetcd", "zetcd"))
ETCD, ZOOKEEPER, CONSUL, REPLICAS = (
    {"store": kind, "nodes": NODES} for kind in ("etcd", "zookeeper", "consul", "replicas")
)
URLS, CONSUL_THERE = {**A, "store": HTTP}, {**A, "store": "consul"}
SCENARIOS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *((ZOOKEEPER, {**READ, **more}) for more in (
        {"spanKeys": [1, 10]}, {"prefix": "d/0000"}, {"keysOnly": True}, {"countOnly": True},
    )),
    (ZOOKEEPER, {**WRITE, "data": {"keySize": 8, "valSize": 1 << 20}}),
    *((CONSUL, {**READ, **more}) for more in (
        {"spanKeys": [10]}, {"prefix": "d/0", "limit": 5}, {"prefix": "d/0", "countOnly": True},
    )),
    *((store, DEFAULT) for store in (ETCD, ZOOKEEPER, REPLICAS)),
    *((REPLICAS, block) for block in (
        TXN, {**READ, "consistency": ["l", "s"]}, {**READ, "spanKeys": [10]},
        {**READ, "prefix": "d/0", "keysOnly": True},
    )),
    ({"store": {"kind": "replicas", "flags": {"ack": 4, "from": 4}}, "nodes": NODES}, READ),
    (ZETCD, {**READ, "spanKeys": [10]}),
    *((CETCD, block) for block in (
        {**READ, "consistency": ["l", "s"]}, TXN, {"type": "mixed", "load": LOAD, "ratio": 0.5, "consistency": "s"},
    )),
    *((URLS, block) for block in (
        {**READ, "consistency": "s"}, {**READ, "spanKeys": 10}, TXN, {**WRITE, "load": ENDLESS},
    )),
]  # fmt: skip


def planned(folder: Path, store: Any, block: Any, prefix: str = "d/", **options: Any) -> object:
    dataset = {"keyPrefix": prefix, "keySize": 8, "valSize": 256, "keys": 100}
    return blocks.planned(folder, store, block, dataset=dataset, **options)


def test_scenarios(folder: Path, snapshot: SnapshotAssertion) -> None:
    found = {}
    for store, block in SCENARIOS:
        found[json.dumps([store["store"], block])] = refused(folder, lambda s=store, b=block: planned(folder, s, b))
        if "keySize" not in str(block) and "default" not in str(block) and block["type"] == "read":
            assert planned(folder, ETCD, block), "etcd does it"
    # Keys that Consul redirects.
    for prefix in ("/a", "d/./", "d//x", "../"):
        found[prefix] = refused(folder, lambda p=prefix: planned(folder, CONSUL_THERE, READ, p))
        assert planned(folder, {"store": "zookeeper", "endpoints": ["a:1"]}, READ, prefix)
    for store in (ZOOKEEPER, CONSUL):
        found[f"profile {store['store']}"] = refused(folder, lambda s=store: planned(folder, s, READ, profile=("cpu",)))
    assert found == snapshot
    # What is taken.
    assert planned(folder, CONSUL_THERE, READ, "a.b/..c/") and planned(folder, CONSUL, DEFAULT)
    assert all(planned(folder, ZETCD, block) for block in (READ, {**READ, "consistency": ["l", "s"]}, TXN))
    for store, prefix in (("etcd", "//ü/"), ("consul", "ü/b/")):
        assert read(folder, {"store": store, **A, "prefix": prefix}).external is not None
