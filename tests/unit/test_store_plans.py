"""What a topology's ``store`` makes of a run: members' and client's command lines, versions, timing, and its identity;
what files are refused that name a store: every problem whole, with its place.

Command lines and problems are in ``__snapshots__``: ``pytest tests/unit/test_store_plans.py --snapshot-update``.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.base import assets
from containernet_env.base.errors import ConfigError, RunError, UsageError
from containernet_env.base.http import NoAnswerError
from containernet_env.base.programs import read_program
from containernet_env.config.plan import Plan, config_hash, plan_values
from containernet_env.config.planning import build_plan
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.sweeps import AXES, set_value, value_of
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import topology_text, topology_values
from containernet_env.model.config import Config, StoreChoice
from containernet_env.model.usage import Leadership
from containernet_env.runs.load import BenchmarkServer, request_of
from containernet_env.runs.reuse import standing_key
from containernet_env.runs.sweep import runner
from containernet_env.setup import builds
from containernet_env.stores import cluster as members
from containernet_env.stores import consul, replicas
from containernet_env.stores.certificates import Authority
from containernet_env.stores.cluster import MemberPlace, Waits
from containernet_env.stores.kinds import DEFAULT, KINDS, store_of
from containernet_env.stores.zookeeper import VERSIONS, ZooKeeper
from tests.simulated_time import simulated
from tests.unit import blocks, fake_servers
from tests.unit.fake_servers import Network, Service, places_of, services
from tests.unit.store_files import OPTIONS, planned, topology

PROGRAM = "/bin/true"
SERVICE = {
    "kind": "http",
    "binary": PROGRAM,
    "arguments": [
        "--listen={ip}:{port}", "--id={index}", "--peers={peers}", "--name={name}", "--data={data}",
        '{{"port":{port}}}', "{{port}}", "{{{port}}}",
    ],
    "port": 8080,
    "put": "/v0/entity?id={key}&ack=2",
    "get": "/v0/entity?id={key}&from=2",
}  # fmt: skip
ETCD_FLAGS = {"snapshot-count": 1000, "quota-backend-bytes": "4g", "backend-batch-interval": "0.2s"}
ZOOKEEPER_FLAGS = {"snapCount": 1000, "forceSync": "no", "preAllocSize": 1024}
CONSUL_FLAGS = {"raft_logstore": "wal", "raft_snapshot_threshold": 1000, "raft_trailing_logs": 500}


def flagged(kind: str, flags: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"store": {"kind": kind, "flags": flags, **more}}


TOPOLOGIES: dict[str, dict[str, Any]] = {
    "etcd": {},
    "etcd with TLS": {"etcd": {"tls": True}},
    "etcd with flags": flagged("etcd", ETCD_FLAGS, version="3.6.8"),
    "zookeeper": {"store": "zookeeper"},
    "zookeeper with flags": flagged("zookeeper", ZOOKEEPER_FLAGS),
    "zookeeper in memory": {"store": "zookeeper", "zookeeper": {"data": "tmpfs"}},
    "consul": {"store": "consul"},
    "consul with flags": flagged("consul", CONSUL_FLAGS),
    "replicas": {"store": "replicas"},
    "replicas with quorums": flagged("replicas", {"ack": 2, "from": 1}),
    "a service": {"store": SERVICE},
    "zetcd": {"store": {"kind": "zetcd", "binary": PROGRAM}},
    "cetcd with flags": {
        **flagged("cetcd", {"snapshot-count": 1000}, binary=PROGRAM), "etcd": {"heartbeat_interval": "200ms"},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_members_and_client_are_started_so(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    plan = planned(tmp_path, node={"bandwidth": 1000}, **TOPOLOGIES[name])
    first, second, _, client = plan.hosts
    shown = {
        host.name: {
            "command": list(host.command),
            "environment": dict(host.environment),
            "image": host.image,
            "data": list(host.data),
            "tmpfs": dict(host.tmpfs),
        }
        for host in (first, second, client)
    }
    loads = {key: value for key, value in asdict(plan.store.load_terms).items() if value}
    assert {**shown, "loads": loads, "timing": dict(plan.timing.values)} == snapshot


def test_what_is_written_is_read_again_from_anywhere_and_each_topology_is_another_one(tmp_path: Path) -> None:
    elsewhere, hashes = tmp_path / "elsewhere", set()
    elsewhere.mkdir()
    for value in TOPOLOGIES.values():
        config = load_config(topology(tmp_path, node={"bandwidth": 1000}, **value))
        (elsewhere / "again.json").write_text(topology_text(config))
        again = load_config(elsewhere / "again.json")
        assert replace(again, path=config.path, sha256=config.sha256) == config
        hashes.add(config_hash(build_plan(config, None, OPTIONS)))
    assert len(hashes) == len(TOPOLOGIES)
    # The default store is etcd and changes no hash.
    for store in ("etcd", {"kind": "etcd"}, {"kind": "etcd", "flags": {}}):
        config = load_config(topology(tmp_path, store))
        assert config.store == StoreChoice() and store_of(config) == DEFAULT
        assert config_hash(build_plan(config, None, OPTIONS)) == config_hash(planned(tmp_path))
        assert "store" not in json.loads(topology_text(config))


def test_with_tls_each_host_gets_a_key_of_its_own_where_its_programs_look(tmp_path: Path) -> None:
    plan = planned(tmp_path, etcd={"tls": True})
    trust = DEFAULT.trust(plan.config)
    assert trust is not None and DEFAULT.trust(planned(tmp_path).config) is None
    assert set(trust.files) == {"etcd1", "etcd2", "etcd3", "benchmark"}
    for host in plan.hosts:
        files = trust.files[host.name]
        (mount,) = host.tmpfs
        assert {Path(path).parent for path in files} == {Path(mount)}
        assert sum(map(len, files.values())) < 8192  # a page each
    keys = [content for files in trust.files.values() for content in files.values() if b"PRIVATE KEY" in content]
    assert len(keys) == len(set(keys)) == 4 and "PRIVATE" not in repr(trust) + repr(Authority().issue("x"))
    # Every request says with which of them the load is let in.
    server: Any = SimpleNamespace(request_json=Mock(side_effect=NoAnswerError("enough")))
    BenchmarkServer(server, trust.request).run("/benchmark/write", {"total": 1}, 1.0)
    body = server.request_json.call_args.args[3]
    assert body == {"total": 1, "caFile": "ca.pem", "certFile": "cert.pem", "keyFile": "key.pem"}
    assert {f"/run/credentials/{body[name]}" for name in trust.request} == set(trust.files["benchmark"])


ETCD, CONSUL = assets.etcd_version(), consul.MODULE.pinned
SHORT = read_program(Path(PROGRAM)).short


def test_versions_and_programs_have_images_of_their_own(tmp_path: Path) -> None:
    stores: list[tuple[Any, str, str]] = [
        ("etcd", ETCD, "etcd"),
        ({"kind": "etcd", "version": ETCD}, ETCD, "etcd"),
        ({"kind": "etcd", "version": "3.6.8"}, "3.6.8", "etcd-3.6.8"),
        ({"kind": "consul", "version": CONSUL}, CONSUL, "consul"),
        ({"kind": "consul", "version": "1.22.0"}, "1.22.0", "consul-1.22.0"),
        ({"kind": "zookeeper", "version": "3.9.4"}, "3.9.4", "zookeeper-3.9.4"),
        ("replicas", replicas.sources_hash(), "replicas"),
        *(({"kind": kind, "binary": PROGRAM}, f"etcd {ETCD}, binary {SHORT}", f"{kind}-{SHORT}") for kind in (
            "zetcd", "cetcd",
        )),
    ]  # fmt: skip
    for store, version, label in stores:
        found = planned(tmp_path, store).store
        assert (found.version, found.image.label) == (version, label), store


def test_flags_count_by_what_they_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same = ETCD_FLAGS | {"quota-backend-bytes": "4096m"}
    plans = [planned(tmp_path, {"kind": "etcd", "version": "3.6.8", "flags": flags}) for flags in (ETCD_FLAGS, same)]
    assert config_hash(plans[0]) == config_hash(plans[1])
    module, pinned = plans[0].store.image.module, DEFAULT.image.module
    assert module is not None and pinned is not None and (module.label, pinned.label) == ("etcd-3.6.8", "etcd")
    assert module.source_hash("go1.26.8") != pinned.source_hash("go1.26.8")
    assert KINDS["zetcd"].default().version == f"etcd {ETCD}", "before its program is known"
    # The checksum database is not queried for what it does not have, which is only modules below Consul's own:
    # github.com/hashicorp/consul itself, raft and serf are compared.
    monkeypatch.setenv("GONOSUMDB", "example.org/own")
    own = "github.com/hashicorp/consul/*,github.com/hashicorp/hcp-sdk-go"
    assert builds._environment_of(consul.MODULE)["GONOSUMDB"] == f"example.org/own,{own}"
    assert builds._environment_of(assets.etcd_module())["GONOSUMDB"] == "example.org/own"


def test_every_file_of_every_version_of_zookeeper_is_known_by_its_sha256() -> None:
    seen: list[str] = []
    for version in VERSIONS:
        files = ZooKeeper(StoreChoice("zookeeper", version)).image.files
        assert {"zookeeper.jar", "zookeeper-jute.jar", "snappy-java.jar"} < {file.name for file in files}
        assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in files)
        seen += [file.sha256 for file in files if version in file.url]
    assert len(set(seen)) == 2 * len(VERSIONS)
    packaged = ZooKeeper.default().image
    assert not packaged.files and "libzookeeper-java" in packaged.packages
    # Rows of a store stay when a sweep gets another one.
    etcd, both = {"sources": "a", "etcd": "3.7.3"}, {"sources": "a", "etcd": "3.7.3", "zookeeper": "3.8.0"}
    assert runner.other(etcd, both) is None
    assert runner.of_store(both, KINDS["etcd"].default()) == etcd
    assert runner.other(etcd, both | {"etcd": "3.7.4"}) == "etcd 3.7.3, now 3.7.4"
    assert runner.other({"etcd": "3.7.3"}, both) == "sources unknown, now a"


def test_a_run_is_known_by_a_programs_contents_and_not_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "moved").write_bytes(Path(PROGRAM).read_bytes())
    (tmp_path / "other").write_bytes(Path(PROGRAM).read_bytes() + b"another one")
    for name in ("moved", "other"):
        (tmp_path / name).chmod(0o755)
    first, moved, other = (
        planned(tmp_path, {"kind": "zetcd", "binary": binary}) for binary in (PROGRAM, "moved", "other")
    )
    assert config_hash(moved) == config_hash(first) != config_hash(other) and standing_key(other) != standing_key(first)


def test_members_that_size_themselves_at_their_start_do_not_stand_for_another_cpu_limit(tmp_path: Path) -> None:
    for store, follows in (("etcd", True), ("consul", True), ("replicas", True), ("zookeeper", False)):
        plan = planned(tmp_path, store)
        keys = set()
        for cpus in (1, 2):
            hosts = [replace(host, cpus=Decimal(cpus), cpu_quota_us=cpus * 100_000) for host in plan.hosts]
            keys.add(standing_key(replace(plan, hosts=tuple(hosts))))
        assert (len(keys) == 1) is follows, store
        client = replace(plan.hosts[-1], cpus=Decimal(2))
        assert standing_key(replace(plan, hosts=(*plan.hosts[:-1], client))) == standing_key(plan)


def test_every_flag_reads_again_what_it_has_read() -> None:
    for kind in KINDS:
        samples = (1, 5, 1000, "1000ms", "5s", "1h", "3600s", "4g", "64m", "periodic", "revision", "yes", "no", "wal")
        for name, flag in KINDS[kind].flags.items():
            taken = []
            for sample in samples:
                with suppress(ValueError):
                    taken.append(flag.canonical(sample))
            assert taken, f"none of the samples is a value of {name}"
            assert all(flag.canonical(found) == found for found in taken), (name, taken)


def test_stores_versions_and_flags_are_an_axis(tmp_path: Path) -> None:
    zetcd: dict[str, Any] = {"kind": "zetcd", "binary": PROGRAM}
    older = {"kind": "etcd", "version": "3.6.8"}
    of_etcd: list[tuple[Any, Any, str]] = [("etcd", new, "etcd") for new in (older, zetcd)]
    for first, wanted, section in (*of_etcd, *((old, "zookeeper", "zookeeper") for old in ("etcd", zetcd))):
        document = topology_values(load_config(topology(tmp_path, first, etcd={"data": "tmpfs"})))
        assert set_value(document, AXES["store"], wanted) == [("store",)]
        assert value_of(document, AXES["store"]) == wanted
        assert document[section] == {"data": "tmpfs"} and {"etcd", "zookeeper"} & document.keys() == {section}
        set_value(document, AXES["data"], "disk")
        assert value_of(document, AXES["data"]) == document[section]["data"] == "disk"
        if section == "etcd":
            set_value(document, AXES["leader"], "etcd2")
            assert value_of(document, AXES["leader"]) == document["etcd"]["leader"] == "etcd2"


# --- timing -----------------------------------------------------------------------------------------------------------

MULTIPLIER = {"kind": "consul", "flags": {"raft_multiplier": 2}}


def ticks(**flags: Any) -> dict[str, Any]:
    return {"kind": "zookeeper", "flags": flags}


def test_timing_follows_from_the_largest_rtt(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    cases: list[tuple[Any, str, dict[str, Any], Any]] = [
        ("consul", "3 3 1", {"raft_multiplier": 1, "election_ms": 1000}, 1),
        ("consul", "20 20 1", {"raft_multiplier": 1}, 1),
        ("consul", "26 26 1", {"raft_multiplier": 2, "election_ms": 2000}, 2),
        ("consul", "100 100 1", {"raft_multiplier": 4}, 4),
        ("consul", "249 249 1", {"raft_multiplier": 10}, 10),
        ("consul", "400 400 1", {"raft_multiplier": 10, "election_ms": 10_000}, 10),
        (MULTIPLIER, "100 100 100", {"raft_multiplier": 2, "raft_multiplier_from": "config"}, 2),
        (ticks(), "3 3 3", {"tick_ms": 2000, "election_ms": 10_000}, 10),
        (ticks(), "200 200 200", {"tick_ms": 2000}, 10),
        # An RTT of 2 s, and what a probe takes at the rate: 2001 ms. Five ticks are ten of these.
        (ticks(), "500 500 500", {"tick_ms": 4002, "election_ms": 20_010}, 20.01),
        (ticks(syncLimit=20), "500 500 500", {"tick_ms": 2000}, 40),
        (ticks(tickTime="1s"), "500 500 500", {"tick_ms": 1000}, 5),
        (ticks(tickTime="20ms", syncLimit=2), "3 3 3", {"tick_ms": 20, "election_ms": 40}, 0.04),
        (ticks(tickTime="2ms", syncLimit=2), "3 3 3", {"tick_ms": 2}, 0.004),
        (ticks(tickTime="2ms", initLimit=5), "3 3 3", {"tick_ms": 2}, 0.01),
        (MULTIPLIER, "600 600 600", {}, 2),
        ("replicas", "100 100", {}, pytest.approx(4.01, abs=0.01)),
    ]
    noted = {}
    for store, delays, timing, timeout_s in cases:
        bandwidth = 1000 if "tick_ms" in timing else "unlimited"
        plan = planned(tmp_path, store, [f"{delay}ms" for delay in delays.split()], node={"bandwidth": bandwidth})
        assert timing.items() <= dict(plan.timing.values).items(), (store, delays)
        assert plan.timing.member_timeout_s == timeout_s, (store, delays)
        about = ("raft_multiplier", "RTT", "leaders may")
        noted[f"{store}, {delays}"] = [note for note in plan.notes if any(words in note for words in about)]
        if "tick_ms" in timing:
            assert f"tickTime={timing['tick_ms']}" in plan.hosts[0].command
    assert noted == snapshot


def test_heartbeats_that_do_not_fit_the_links_and_too_many_members_are_noted(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    noted = {}
    for store, count, bandwidth in (
        *(("etcd", 3, mbps) for mbps in (0.01, 0.05, 0.1)),
        *((store, 3, 0.01) for store in ("consul", "zookeeper", "replicas")),
        *((store, 9, "unlimited") for store in ("etcd", "zookeeper", "consul")),
    ):
        notes = planned(tmp_path, store, ["3ms"] * count, node={"bandwidth": bandwidth}).notes
        about = [note for note in notes if "heartbeats every" in note or "at most 7" in note]
        noted[f"{count} members of {store}, {bandwidth} Mbit/s"] = about
    assert noted == snapshot


def test_the_heap_of_zookeeper_is_half_of_the_memory(tmp_path: Path) -> None:
    for mem, heap in (("unlimited", 1000), ("4g", 1000), ("512m", 256), ("100m", 50), ("16m", 16)):
        assert f"--java=-Xmx{heap}m" in planned(tmp_path, "zookeeper", node={"mem": mem}).hosts[0].command


# --- consistency ------------------------------------------------------------------------------------------------------


def test_reads_are_called_by_their_quorum_or_their_name_of_the_store(tmp_path: Path) -> None:
    for flags, said in (({}, "from majority"), ({"ack": 2, "from": 1}, "from 1")):
        assert planned(tmp_path, {"kind": "replicas", "flags": flags}).store.consistency == {"l": said}
    block = {"type": "read", "load": {"total": 10, "clients": 1, "conns": 1}, "consistency": ["l", "default"]}
    dataset = {"keySize": 8, "valSize": 64, "keys": 100}
    (tmp_path / "scenarios.json").write_text(json.dumps({"dataset": dataset, "scenarios": [block]}))
    scenarios = load_scenarios(tmp_path / "scenarios.json")
    plan = build_plan(load_config(topology(tmp_path, "consul")), scenarios, OPTIONS)
    found = next(item.scheduled.scenario for item in plan.scenarios if "default" in item.scheduled.scenario.name)
    assert found.name == "read-default-10x1x1" and plan.store.consistency.get("default", "default") == "default"
    _, body = request_of(found, {"consul1": "10.0.0.1:8500"}, 60, terms=plan.store.load_terms)
    assert (body["store"], body["consistency"]) == ("consul", "default")


def test_time_outs_follow_from_round_trips_and_the_timing_of_the_store(tmp_path: Path) -> None:
    for store, delay, rate, seconds in (
        ("etcd", "3ms", "unlimited", (60, 0)),
        ("etcd", "1s", "unlimited", (480, 32)),  # two elections of up to twice 40 s took longer than a minute
        ("etcd", "10s", "unlimited", (1300, 320)),
        ("etcd", "3ms", 0.01, (130, 39)),  # full frames take 1.2 s on each link
        ("zookeeper", "1s", "unlimited", (200, 32)),
        ("consul", "1s", "unlimited", (195, 32)),
        ("replicas", "1s", "unlimited", (82, 32)),
    ):
        waits = planned(tmp_path, store, (delay,) * 3, node={"bandwidth": rate}).waits
        assert (waits.start_s, waits.request_s) == seconds, (store, delay, rate)


# --- a service of the user: its arguments, what its members answer ----------------------------------------------------

network = fake_servers.network


def of_service(folder: Path, **store: Any) -> Plan:
    return planned(folder, {**SERVICE, **store})


def test_what_a_file_says_is_what_counts(tmp_path: Path) -> None:
    plan, program = of_service(tmp_path), read_program(Path(PROGRAM))
    assert plan.store.image.binary == program and plan.store.version == program.short
    assert plan_values(plan)["http"]["binary_sha256"] == program.sha256
    others: list[dict[str, Any]] = [{"port": 8081}, {"arguments": []}, {"missing": [404, 410]}, {"health": "/x"}]
    for other in (*others, {"put": "/v0/entity?id={key}&ack=3"}):
        assert config_hash(plan) != config_hash(of_service(tmp_path, **other)), other
    assert config_hash(plan) == config_hash(of_service(tmp_path, missing=404))


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
    cluster = of_service(tmp_path).store.cluster(of(found))
    assert cluster.pings() == {} and cluster.leadership() == Leadership("http1", None)
    cluster.close()
    cluster = of_service(tmp_path, health="/status").store.cluster(of(found))
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
    (member,) = of_service(tmp_path).store.cluster(of([one])).members
    assert len(member.values("k/", ["k/1", "k/2", "k/3"], 2.0)) == 3 and one.connections == 1
    assert list(dict.fromkeys(one.limits_s)) == [2.0, 1.5, 1.0]
    with pytest.raises(RunError, match="4 of 9 keys were read within 2 s"):
        member.values("k/", [f"k/{number}" for number in range(9)], 2.0)


# --- what is refused --------------------------------------------------------------------------------------------------


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
WITH_PROGRAM = {**HTTP, "binary": "program", "port": 8080}
del WITH_PROGRAM["delete"]
WRONG_TOPOLOGIES: list[dict[str, Any]] = [
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
        ("cetcd", {"flags": {"raft_multiplier": 1}}, {}), ("zetcd", {}, {"etcd": {"leader": "nosuch"}}),
    )),
    *({"store": {name: value for name, value in {**WITH_PROGRAM, **more}.items() if value is not None}} for more in (
        {"binary": None}, {"binary": "topology.json"}, {"port": 0}, {"port": None}, {"arguments": "--id=1"},
        {"delete": "/{key}"}, {"success": {"delete": 200}}, {"success": {"post": 200}}, {"flags": {}}, {"put": "/v0"},
        {"health": "status"}, {"health": "/status?id={key}"},
        *({"arguments": [word]} for word in (
            "--id={number}", "{PORT}", "{index0}", "{data-dir}", "{ port }", "{}", "{port", "port}", "{port}}",
        )),
    )),
    *({"store": WITH_PROGRAM, "http": setting} for setting in (
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
    for value in WRONG_TOPOLOGIES:
        found[json.dumps(value)] = refused(folder, lambda v=value: read(folder, {"nodes": NODES, **v}))
    assert found == snapshot


LOAD = {"total": 10, "clients": 1, "conns": 1}
ENDLESS = {"duration": "1s", "clients": 1, "conns": 1}
READ = {"type": "read", "load": LOAD, "consistency": ["l"]}
BY_DEFAULT = {**READ, "consistency": ["l", "default"]}
WRITE = {"type": "write", "target": "leader", "load": LOAD, "data": {"keySize": 8, "valSize": 8}}
TXN = {"type": "txn", "load": LOAD}
CETCD, ZETCD = ({"store": {"kind": kind, "binary": "program"}, "nodes": NODES} for kind in ("cetcd", "zetcd"))
OF_ETCD, ZOOKEEPER, OF_CONSUL, REPLICAS = (
    {"store": kind, "nodes": NODES} for kind in ("etcd", "zookeeper", "consul", "replicas")
)
URLS, CONSUL_THERE = {**A, "store": HTTP}, {**A, "store": "consul"}
SCENARIOS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *((ZOOKEEPER, {**READ, **more}) for more in (
        {"spanKeys": [1, 10]}, {"prefix": "d/0000"}, {"keysOnly": True}, {"countOnly": True},
    )),
    (ZOOKEEPER, {**WRITE, "data": {"keySize": 8, "valSize": 1 << 20}}),
    *((OF_CONSUL, {**READ, **more}) for more in (
        {"spanKeys": [10]}, {"prefix": "d/0", "limit": 5}, {"prefix": "d/0", "countOnly": True},
    )),
    *((store, BY_DEFAULT) for store in (OF_ETCD, ZOOKEEPER, REPLICAS)),
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


def planned_of(folder: Path, store: Any, block: Any, prefix: str = "d/", **options: Any) -> object:
    dataset = {"keyPrefix": prefix, "keySize": 8, "valSize": 256, "keys": 100}
    return blocks.planned(folder, store, block, dataset=dataset, **options)


def test_scenarios(folder: Path, snapshot: SnapshotAssertion) -> None:
    found = {}
    for store, block in SCENARIOS:
        found[json.dumps([store["store"], block])] = refused(folder, lambda s=store, b=block: planned_of(folder, s, b))
        if "keySize" not in str(block) and "default" not in str(block) and block["type"] == "read":
            assert planned_of(folder, OF_ETCD, block), "etcd does it"
    # Keys that Consul redirects.
    for prefix in ("/a", "d/./", "d//x", "../"):
        found[prefix] = refused(folder, lambda p=prefix: planned_of(folder, CONSUL_THERE, READ, p))
        assert planned_of(folder, {"store": "zookeeper", "endpoints": ["a:1"]}, READ, prefix)
    for store in (ZOOKEEPER, OF_CONSUL):
        found[f"profile {store['store']}"] = refused(
            folder, lambda s=store: planned_of(folder, s, READ, profile=("cpu",))
        )
    assert found == snapshot
    # What is taken.
    assert planned_of(folder, CONSUL_THERE, READ, "a.b/..c/") and planned_of(folder, OF_CONSUL, BY_DEFAULT)
    assert all(planned_of(folder, ZETCD, block) for block in (READ, {**READ, "consistency": ["l", "s"]}, TXN))
    for store, prefix in (("etcd", "//ü/"), ("consul", "ü/b/")):
        assert read(folder, {"store": store, **A, "prefix": prefix}).external is not None
