"""zetcd and cetcd without any: how members are started, what is refused, who is ready, the floor, and how they end."""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from containernet_env.analysis.floor import Floor
from containernet_env.base import sources
from containernet_env.base.user_program import read_program
from containernet_env.config.sweep_axes import AXES, set_value, value_of
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import topology_text, topology_values
from containernet_env.hosts.netns_http import NoAnswerError
from containernet_env.model.config import StoreChoice
from containernet_env.model.leadership import Leadership
from containernet_env.model.scenario import Scenario
from containernet_env.plan.build import build_plan
from containernet_env.plan.identity import config_hash
from containernet_env.plan.plan import Plan, PlanOptions
from containernet_env.runs.change import standing_key
from containernet_env.stores.kinds import KINDS
from containernet_env.stores.protocol import MemberPlace, Written
from containernet_env.stores.proxied.cetcd import CETCD
from containernet_env.stores.proxied.cluster import ProxiedCluster
from containernet_env.stores.proxied.last_words import last_words
from containernet_env.stores.proxied.zetcd import ZETCD
from containernet_env.stores.zookeeper.session import consistent_read
from tests.simulated_time import simulated
from tests.unit.fake_servers import Scripted, buffer
from tests.unit.test_etcd import FakeConnection, FakeHost, FakeMembers
from tests.unit.test_zookeeper_session import CLOSED, SESSION

OPTIONS = PlanOptions(machine_cores=2)
SYNC_NS = {"etcd1": 1e6, "etcd2": 2e6, "etcd3": 3e6}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with a program called proxy in it."""
    shutil.copy(os.path.realpath(sys.executable), tmp_path / "proxy")
    return tmp_path


def topology(folder: Path, kind: str, *, name: str = "topology.json", binary: str = "proxy", **more: Any) -> Path:
    common = {"mem": "512m", "cpus": 1, "bandwidth": "unlimited"}
    nodes = [
        {"name": f"etcd{number}", "ip": f"10.0.0.{number}", "link_delay": delay, **common}
        for number, delay in enumerate(("1ms", "2ms", "4ms"), 1)
    ]
    path = folder / name
    store = {"kind": kind, "binary": binary, **more.pop("store", {})}
    path.write_text(json.dumps({"store": store, "nodes": nodes, **more}))
    return path


def planned(folder: Path, kind: str = "zetcd", **more: Any) -> Plan:
    return build_plan(load_config(topology(folder, kind, **more)), None, OPTIONS)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("zetcd", ("--zkaddr=0.0.0.0:2181", "--endpoints=127.0.0.1:2379")),
        ("cetcd", ("--consuladdr=0.0.0.0:8500", "--etcd=127.0.0.1:2379")),
    ],
)
def test_members_run_the_proxy_and_etcd_with_half_of_the_memory_each(
    folder: Path, kind: str, arguments: tuple[str, ...]
) -> None:
    plan = planned(folder, kind, store={"flags": {"snapshot-count": 1000}}, etcd={"heartbeat_interval": "200ms"})
    member, client = plan.hosts[0], plan.hosts[-1]
    etcd = build_plan(load_config(etcd_beside(folder)), None, OPTIONS).hosts[0]
    assert member.command == (*arguments, *etcd.command) and "--snapshot-count=1000" in member.command
    assert (member.image, member.data) == (kind, etcd.data)
    assert member.environment == {"GOMEMLIMIT": f"{(512 << 20) // 2 * 9 // 10}B"}
    assert f"10.0.0.1:{arguments[0].rpartition(':')[2]}" in " ".join(client.command)
    assert plan.store.load_terms.always["leaderless"] and plan.store.load_terms.leaderless
    assert plan.store.program == "start-etcd-and-proxy"
    assert KINDS[kind].make(StoreChoice(kind)).version == f"etcd {sources.etcd_version()}"
    program = read_program(folder / "proxy")
    assert plan.store.version == f"etcd {sources.etcd_version()}, binary {program.short}"
    assert plan.store.image.label == f"{kind}-{program.short}" and plan.store.image.folder == "proxy_image"


def etcd_beside(folder: Path) -> Path:
    path = topology(folder, "etcd", name="etcd.json", etcd={"heartbeat_interval": "200ms"})
    value = json.loads(path.read_text())
    value["store"] = {"kind": "etcd", "flags": {"snapshot-count": 1000}}
    path.write_text(json.dumps(value))
    return path


def test_a_run_is_known_by_the_programs_contents_and_not_by_its_path(folder: Path) -> None:
    first = planned(folder)
    shutil.copy(folder / "proxy", folder / "moved")
    assert config_hash(planned(folder, binary="moved")) == config_hash(first)
    with (folder / "moved").open("ab") as file:
        file.write(b"another one")
    other = planned(folder, binary="moved")
    assert config_hash(other) != config_hash(first) and standing_key(other) != standing_key(first)
    assert config_hash(planned(folder, "cetcd")) != config_hash(first)


def test_what_is_written_names_the_program_from_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    config = load_config(topology(folder, "zetcd", etcd={"data": "tmpfs"}).relative_to(folder))
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "again.json").write_text(topology_text(config))
    again = load_config(elsewhere / "again.json")
    assert again.store.binary == read_program(folder / "proxy") and again.etcd == config.etcd
    document = topology_values(config)
    assert set_value(document, AXES["store"], "zookeeper") == [("store",)] and document["zookeeper"]["data"] == "tmpfs"
    set_value(document, AXES["store"], {"kind": "zetcd", "binary": "proxy"})
    set_value(document, AXES["leader"], "etcd2")
    assert value_of(document, AXES["leader"]) == "etcd2" and document["etcd"]["leader"] == "etcd2"


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
def test_a_cluster_is_ready_once_every_proxy_serves(folder: Path) -> None:
    members, serves = FakeMembers(), {1, 2}
    members.views = {number: (number, 1, 5) for number in (1, 2, 3)}
    hosts = [FakeHost(f"etcd{number}", number) for number in (1, 2, 3)]
    places: list[Any] = [
        MemberPlace(host, f"10.0.0.{host.pid}", Connection(members, host.pid, serves)) for host in hosts
    ]
    program = read_program(folder / "proxy")
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


def test_floors_are_those_of_etcd_with_the_clients_messages(folder: Path) -> None:
    plan = planned(folder)
    floor = Floor(plan.store, plan.topology, SYNC_NS)

    def least_ms(kind: Any, asked: str, consistency: Any = None) -> float:
        wanted = Scenario(
            name="s", total=10, clients=1, conns=1, key_size=8, val_size=64, key_space=10, type=kind, target=asked,
            consistency=consistency,
        )  # fmt: skip
        found_s = floor.median_s(wanted, "etcd1", ["etcd1", "etcd2", "etcd3"])
        assert found_s is not None
        return found_s * 1e3

    # Client: 2, 4, 8 ms to etcd1, 2, 3; from etcd1 to the nearest other one 6 ms, where it syncs for 2.
    assert least_ms("write", "etcd1") == pytest.approx(2 + 6 + 2, abs=0.01)
    assert least_ms("read", "etcd1", "l") == pytest.approx(2 + 6, abs=0.01)
    assert least_ms("read", "etcd3", "s") == pytest.approx(8, abs=0.01)
    assert least_ms("write", "etcd2") > 4 + 6 + 6
    for proxy in (ZETCD, CETCD):
        wanted = Scenario(name="s", total=1, clients=1, conns=1, key_size=8, val_size=64, key_space=1, type="write")
        assert proxy.writes(wanted).request > 8 + 64 > proxy.writes(wanted).answer - 64


LOG = """\
2026-11-23T06:47:30.000Z\tinfo\tetcdmain/etcd.go:64\tready to serve client requests
Running zetcd proxy
"""
SIGNALLED = "2026-11-23T06:47:31.000Z\tinfo\tosutil/interrupt_unix.go:64\treceived signal; shutting down\t{}\n"
SIGNALLED = SIGNALLED.replace("{}", '{"signal": "terminated"}')


@pytest.mark.parametrize(
    ("log", "killed", "words"),
    [
        (LOG + "the proxy ended with status 1\n" + SIGNALLED, False, "the proxy ended: exit status 1: Running zetcd"),
        (
            LOG + "panic: boom\n\ngoroutine 1 [running]:\nthe proxy ended with status 2\n" + SIGNALLED,
            False,
            "the proxy ended: exit status 2: panic: boom",
        ),
        (LOG + "the proxy ended with status 137\n" + SIGNALLED, False, "the proxy ended: killed by SIGKILL"),
        # It goes because etcd has gone.
        (LOG + SIGNALLED + "the proxy ended with status 1\n", False, "shut down by a signal (terminated)"),
        (LOG + SIGNALLED, False, "shut down by a signal (terminated)"),
        (LOG, True, ""),
    ],
)
def test_who_ended_first_has_the_last_words(log: str, killed: bool, words: str) -> None:
    found = last_words(log, killed)
    assert found.startswith(words) and bool(found) == bool(words)
