"""Clusters run by others, of which only URLs are known: looked at, loaded, and left clean.

What killed runs have left there follows: who removes it, by which requests, and where. Then their files, which choices
they refuse, and what of them is recorded.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from containernet_env.base import assets
from containernet_env.base.errors import ConfigError, RunError, UsageError
from containernet_env.base.http import HttpError, NoAnswerError
from containernet_env.cli import machine
from containernet_env.cli import run as check
from containernet_env.cli.arguments import render_endpoints
from containernet_env.cli.run import run_command
from containernet_env.config.endpoints import parse_endpoint
from containernet_env.config.plan import Plan, config_hash, plan_values
from containernet_env.config.planning import keys_of
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import topology_values
from containernet_env.hosts import owner
from containernet_env.hosts.http import TcpConnection
from containernet_env.model.config import Config, Endpoint
from containernet_env.model.findings import counts
from containernet_env.model.outcome import ClientRtt
from containernet_env.model.scenario import ALPHABET, Keys, Scenario, Span
from containernet_env.model.usage import Leadership
from containernet_env.results.columns import RunFacts, row_of
from containernet_env.runs import external_access
from containernet_env.runs.external import LocalServer
from containernet_env.runs.external_access import inspect, login_of, require_consent, require_usable
from containernet_env.runs.load import request_of
from containernet_env.runs.measure import measure
from containernet_env.runs.prepare import prepare, prepare_shell
from containernet_env.runs.sweep.design import design
from containernet_env.stores.cluster import MemberPlace
from containernet_env.stores.etcd import EtcdMember, LoggedIn
from containernet_env.stores.external import ExternalCluster, Login, OwnKeys
from containernet_env.stores.kinds import store_of
from containernet_env.stores.zookeeper import MARK
from tests.simulated_time import START_NS, World, simulated
from tests.unit import fake_servers
from tests.unit.blocks import write, writes
from tests.unit.fake_servers import (
    KEYS,
    OWN,
    PREFIX,
    SERVICE,
    STAY,
    ConsulCluster,
    Network,
    Service,
    ZooKeeperCluster,
    config_of,
    endpoints_file,
    of,
    opened,
    services,
)
from tests.unit.manifests import plan_of
from tests.unit.test_columns import outcome

network = fake_servers.network
DATA = OwnKeys("p/1/", (Keys(4, 350, "p/1/"), Keys(4, 1000, "p/1/data/")))


def service(folder: Path, *urls: str, own: OwnKeys = DATA) -> ExternalCluster:
    return opened(config_of(folder, SERVICE, list(urls)), own)


def filled(one: Service, others: int = 5) -> None:
    for keys in DATA.generated:
        one.values.update({keys.name(number): b"v" for number in range(keys.count)})
    one.values.update({f"other/{number}": b"theirs" for number in range(others)})


# --- looking at it ----------------------------------------------------------------------------------------------------


def test_a_cluster_is_looked_at_and_nothing_is_written(network: Network, tmp_path: Path) -> None:
    consul = ConsulCluster(network, 3)
    consul.leader, consul.terms[1] = 1, 9
    look = opened(of(tmp_path, consul)).look(5)
    assert look.problems == [] and look.size == 3 and look.leadership == Leadership("consul2", 9), "the newest term"
    seen = [(member.member_name, member.version, member.leads) for member in look.members]
    assert seen == [(f"node{number}", "1.16.1", number == 1) for number in range(3)]
    assert all(request.startswith("GET ") for request in consul.requests)
    consul.leader = 2
    look = opened(config_of(tmp_path, "consul", consul.urls[:2])).look(5)
    assert look.problems == [] and look.size == 3 and look.leadership is None, "it is no endpoint"

    zookeeper = ZooKeeperCluster(network, 3)
    zookeeper.leader, before = 2, dict(zookeeper.znodes)
    look = opened(of(tmp_path, zookeeper)).look(5)
    assert look.problems == [] and look.size == 3 and look.leadership == Leadership("zookeeper3", 3)
    assert [(member.version, member.leads) for member in look.members] == [("3.8.0", False)] * 2 + [("3.8.0", True)]
    assert zookeeper.znodes == before
    zookeeper.znodes["/zookeeper/config"] += b"\nserver.9=10.9.0.9:2888:3888:observer;0.0.0.0:2181\nversion=0"
    assert opened(of(tmp_path, zookeeper)).look(5).size == 3, "observers do not vote"
    look = opened(of(tmp_path, ZooKeeperCluster(network, 1))).look(5)
    assert look.problems == [] and look.leadership == Leadership("zookeeper1", 3)

    (one,) = services(network, 1)
    look = service(tmp_path, one.url).look(2)
    assert look.problems == [] and look.leadership == Leadership("http1", None)
    assert all(request.startswith("GET ") for request in one.requests)


READ = f"GET /v1/kv/{PREFIX}?consistent=true"
SELF, SRVR = "GET /v1/agent/self", "Zookeeper version: 3.8.0\nZxid: 0x1\nMode: observer\n"
TO_TLS = b"Client sent an HTTP request to an HTTPS server."
REFUSED_WORD = "srvr is not executed because it is not in the whitelist.\n"


def change(**values: Any) -> Callable[[Any], object]:
    return lambda found: vars(found).update(values)


def change_server(at: int, /, **values: Any) -> Callable[[Any], object]:
    return lambda found: vars(found.servers[at]).update(values)


def answering(status: int, body: bytes, request: str = SELF) -> Callable[[Any], object]:
    return lambda found: found.set_answer(request, status, body)


WRONG: dict[str, tuple[str, int, Callable[[Any], object]]] = {
    "same member": ("consul", 2, change_server(1, number=0)),
    "no leader": ("consul", 2, change(leader=None)),
    "no consistent read": ("consul", 1, answering(500, b"rpc error: No cluster leader", READ)),
    "denied": ("consul", 1, change(denied="/v1/agent")),
    "reads denied": ("consul", 1, change(denied="/v1/kv")),
    "nothing": ("consul", 1, answering(200, b"{}")),
    "a list": ("consul", 1, answering(200, b"[]")),
    "a client agent": ("consul", 1, answering(200, b'{"Stats": {}}')),
    "no Consul": ("consul", 1, answering(404, b"404 page not found")),
    "TLS": ("consul", 1, change_server(0, speaks_tls=True, answers={SELF: (400, TO_TLS)})),
    "gone": ("consul", 2, change_server(1, gone=True)),
    "zookeeper: no quorum": ("zookeeper", 3, change(leader=None)),
    "zookeeper: one without": ("zookeeper", 3, change_server(2, serves=False)),
    "zookeeper: same member": ("zookeeper", 2, change_server(1, number=0)),
    "zookeeper: not allowed": ("zookeeper", 1, change(word=REFUSED_WORD)),
    "zookeeper: HTTP": ("zookeeper", 1, change(word="HTTP/1.1 400 Bad Request\r\n")),
    "zookeeper: observer": ("zookeeper", 1, change(word=SRVR)),
}


def test_why_a_cluster_cannot_be_measured(network: Network, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    reported = {}
    for name, (store, count, change) in WRONG.items():
        found = ConsulCluster(network, count) if store == "consul" else ZooKeeperCluster(network, count)
        change(found)
        reported[name] = opened(of(tmp_path, found)).look(5).problems
    # Two clusters in one file: of Consul they name other servers, of ZooKeeper they have another configuration.
    consul, other = ConsulCluster(network, 1), ConsulCluster(network, 1, "10.7.1")
    other.servers[0].number = 7
    reported["two of Consul"] = opened(config_of(tmp_path, "consul", consul.urls + other.urls)).look(5).problems
    for count in (1, 5):
        ends = ZooKeeperCluster(network, 3).urls[:1] + ZooKeeperCluster(network, count, "10.6.1").urls[-1:]
        reported[f"two of ZooKeeper, 3 and {count}"] = opened(config_of(tmp_path, "zookeeper", ends)).look(5).problems
    _, broken, odd = services(network, 3)
    broken.statuses["GET"], odd.statuses["GET"] = 500, 204
    urls = [broken.url, odd.url, "http://10.8.0.9:80"]
    reported["services"] = service(tmp_path, *urls).look(2).problems
    broken.speaks_tls = True
    reported["a service with TLS"] = service(tmp_path, broken.url).look(2).problems
    assert reported == snapshot


@simulated()
def test_a_member_that_answers_nothing_is_given_up_and_named(
    world: World, network: Network, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """One of ZooKeeper that speaks TLS waits for more than a word of four letters."""
    consul, zookeeper, (one,) = ConsulCluster(network, 2), ZooKeeperCluster(network, 2), services(network, 1)
    consul.servers[1].silent = zookeeper.servers[1].silent = zookeeper.servers[1].speaks_tls = one.silent = True
    clusters = opened(of(tmp_path, consul)), opened(of(tmp_path, zookeeper)), service(tmp_path, one.url)
    assert {cluster.members[0].name.rstrip("1"): cluster.look(5).problems for cluster in clusters} == snapshot
    assert world.now_ns - START_NS == 3 * 5 * 10**9


@simulated()
def test_keys_that_are_there_are_found_as_far_as_they_can_be(network: Network, tmp_path: Path) -> None:
    (one,) = services(network, 1)
    held = service(tmp_path, one.url)
    assert held.keys() == 0
    one.values["p/1/data/0003"] = b"theirs"
    assert held.keys() == 1
    assert service(tmp_path, one.url, own=OwnKeys("p/1/")).keys() is None
    config = config_of(tmp_path, STAY, [one.url])
    assert opened(config, OwnKeys("p/1/")).remove_keys() == 0
    with pytest.raises(RunError, match='"delete" in the store'):
        opened(config, DATA).remove_keys()
    # One refusal does not end a run before its load, and `check` neither.
    config, one.refusals = config_of(tmp_path, SERVICE, [one.url]), 1
    one.values.clear()
    require_usable(inspect(held, config), config)
    one.refusals = 1
    assert render_endpoints(config, Console(file=StringIO()))
    one.statuses["GET"] = 503
    with pytest.raises(RunError, match="answers with a status neither of a get"):
        require_usable(inspect(held, config), config)


# --- the write that is tried ------------------------------------------------------------------------------------------


def test_what_is_tried_is_taken_back(network: Network, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    consul, zookeeper, (one,) = ConsulCluster(network, 2), ZooKeeperCluster(network, 3), services(network, 1)
    cluster = opened(of(tmp_path, consul))
    assert cluster.may_load() is None and cluster.try_write() is None and consul.values == {}
    consul.denied = "/v1/kv/"
    queried = len(consul.servers[1].requests)
    reported = {"consul, denied": cluster.try_write()}
    assert len(consul.servers[1].requests) == queried, "another one would refuse it, too"
    consul.denied = None
    consul.set_answer(f"DELETE /v1/kv/{KEYS.name(0)}", 200, b"false")
    reported["consul, not deleted"] = cluster.try_write()

    cluster = opened(of(tmp_path, zookeeper))
    assert cluster.keys() == 0 and cluster.may_load() is None and cluster.try_write() is None
    assert zookeeper.own() == ["/containernet-env", "/containernet-env/abc"], "the znode of the run stays"
    assert cluster.remove_keys() == 0 and zookeeper.own() == []
    zookeeper.denied = "/containernet-env"
    reported["zookeeper, denied"] = cluster.try_write()
    assert zookeeper.own() == []

    cluster = service(tmp_path, one.url)
    assert cluster.try_write() is None and one.values == {}
    assert one.requests == ["PUT /v0/entity?id=p%2F1%2F0000&ack=2", "DELETE /v0/entity?id=p%2F1%2F0000"]
    for name, changes in (
        ("not deleted", {"statuses": {"DELETE": 405}}),
        ("still there", {"statuses": {"DELETE": 404}}),
        ("no put", {"statuses": {"PUT": 404}}),
        ("gone", {"gone": True}),
    ):
        change(**changes)(one)
        reported[f"http, {name}"] = cluster.try_write()
    assert reported == snapshot


def test_clusters_that_name_the_same_servers_differ_by_the_trial_write(network: Network, tmp_path: Path) -> None:
    """As those that one Compose file has made on two machines."""
    consuls = ConsulCluster(network, 3), ConsulCluster(network, 3, "10.7.1")
    zookeepers = ZooKeeperCluster(network, 3), ZooKeeperCluster(network, 3, "10.6.1")
    for store, one, other in (("consul", *consuls), ("zookeeper", *zookeepers)):
        cluster = opened(config_of(tmp_path, store, [one.urls[0], other.urls[1]]))
        assert cluster.look(5).problems == []
        assert "they are of different clusters" in str(cluster.try_write())
        cluster.remove_keys()
    assert [found.values for found in consuls] == [{}, {}] and [found.own() for found in zookeepers] == [[], []]
    # Names of keys are written as URLs have them.
    own, (found, _) = OwnKeys("a b?c/abc/", (Keys(2, 9, "a b?c/abc/"),)), consuls
    cluster = opened(of(tmp_path, found, prefix="a b?c/"), own)
    assert cluster.try_write() is None and found.values == {}
    found.values = {own.generated[0].name(8): b"v", "a b": b""}
    assert cluster.keys() == 1 and cluster.remove_keys() == 1 and found.values == {"a b": b""}


# --- removing keys ----------------------------------------------------------------------------------------------------


def test_all_keys_of_a_run_are_removed_and_no_others(network: Network, tmp_path: Path) -> None:
    reported: list[int] = []
    consul = ConsulCluster(network, 2)
    others = {"other": b"", "containernet-env/abd/0": b"", "containernet-env/ab": b""}
    names = [*map(KEYS.name, range(KEYS.count)), f"{PREFIX}left over"]
    consul.values.update(dict.fromkeys(names, b"v"), **others)
    cluster = opened(of(tmp_path, consul))
    assert cluster.keys() == 5001 == cluster.remove_keys(reported.append) == reported[-1]
    assert consul.values == others and cluster.keys() == 0

    for old in (False, True):
        zookeeper = ZooKeeperCluster(network, 3)
        zookeeper.old = old
        cluster = opened(of(tmp_path, zookeeper))
        assert cluster.try_write() is None
        zookeeper.znodes.update({f"/containernet-env/abc/{number}%2F": b"v" for number in range(1200)})
        assert cluster.keys() == 1200
        zookeeper.znodes["/containernet-env/other"] = MARK
        reported.clear()
        assert cluster.remove_keys(reported.append) == 1200 and reported == [500, 1000, 1200]
        # Another run is there, so the znode above both stays.
        assert zookeeper.own() == ["/containernet-env", "/containernet-env/other"]

    (one,) = services(network, 1)
    filled(one)
    del one.values["p/1/0007"]
    reported.clear()
    assert service(tmp_path, one.url).remove_keys(reported.append) == 1349
    assert reported == sorted(reported) and reported[-1] == 1349 and one.connections <= 17
    assert sorted(one.values) == [f"other/{number}" for number in range(5)]


@simulated()
def test_where_one_member_is_gone_or_silent_the_others_remove(world: World, network: Network, tmp_path: Path) -> None:
    consul, zookeeper, (gone, one) = ConsulCluster(network, 2), ZooKeeperCluster(network, 3), services(network, 2)
    consul.values.update(dict.fromkeys(map(KEYS.name, range(10)), b"v"))
    assert opened(of(tmp_path, zookeeper)).try_write() is None
    zookeeper.znodes["/containernet-env/abc/1"] = b"v"
    filled(one, others=0)
    consul.servers[0].gone = zookeeper.servers[0].gone = gone.gone = True
    assert opened(of(tmp_path, consul)).remove_keys() == 10 and consul.values == {}
    assert opened(of(tmp_path, zookeeper)).remove_keys() == 1 and zookeeper.own() == []
    assert service(tmp_path, gone.url, one.url).remove_keys() == 1350 and one.values == {}
    with pytest.raises(RunError, match="answers nothing: connection refused"):
        service(tmp_path, gone.url).remove_keys()
    consul.servers[0].gone, consul.servers[0].silent = False, True
    consul.values.update(dict.fromkeys(map(KEYS.name, range(500)), b"v"))
    cluster, began_ns = opened(of(tmp_path, consul)), world.now_ns
    assert cluster.remove_keys() == 500 and consul.values == {}
    assert consul.servers[0].connections == 1 and world.now_ns - began_ns == 10 * 10**9, "it is waited for once"


@simulated(seeds=20)
def test_what_a_member_holds_when_it_falls_silent_the_others_wait_for(network: Network, tmp_path: Path) -> None:
    """There are fewer batches than workers: those that find none left were gone when the silent one gave its back."""
    own = OwnKeys("p/1/", (Keys(4, 300, "p/1/"),))
    one, silent, other = services(network, 3)
    silent.silent = True
    for each in (one, other):
        each.values.update({own.generated[0].name(number): b"v" for number in range(300)})
    service(tmp_path, one.url, silent.url, other.url, own=own).remove_keys()
    assert len({request for each in (one, other) for request in each.requests}) == 300


@simulated()
def test_a_delete_that_a_service_refuses_is_an_error_unless_it_does_so_once(network: Network, tmp_path: Path) -> None:
    (one,) = services(network, 1)
    filled(one)
    for one.statuses in ({"DELETE": 403}, {"DELETE": 500}):
        one.requests.clear()
        with pytest.raises(RunError, match=rf"HTTP {one.statuses['DELETE']}: DELETE at 10\.8\.0\.1:80"):
            service(tmp_path, one.url).remove_keys()
        assert len(set(one.requests)) <= 16
    one.statuses, one.refusals = {}, 1
    assert service(tmp_path, one.url).remove_keys() == 1350 and len(one.values) == 5


def test_so_many_names_are_listed_at_once_as_an_answer_holds(network: Network, tmp_path: Path) -> None:
    found = ConsulCluster(network, 1)
    for keys, lists in (
        (Keys(8, 1_000_000, PREFIX), -(-1_000_000 // 62**3)),
        (Keys(1024, 5000, PREFIX), -(-5000 // 62**2)),
        (Keys(8, 5000, f"{PREFIX}{'<' * 60}"), -(-5000 // 62**2)),
        (Keys(1, 9, PREFIX), 1),
        (Keys(2, 100, f"{PREFIX}d/"), 1),
    ):
        found.values = {keys.name(0): b"", keys.name(keys.count - 1): b""}
        found.servers[0].requests.clear()
        assert opened(of(tmp_path, found), OwnKeys(PREFIX, (keys,))).remove_keys() == 2 and found.values == {}
        listed = [request for request in found.requests if request.endswith("?keys&consistent")]
        assert len(listed) == lists + 1 and len(ALPHABET) == 62, keys


# --- Consul's tokens --------------------------------------------------------------------------------------------------


@simulated()
def test_each_request_to_consul_carries_the_token(
    network: Network, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    token = tmp_path / "token"
    token.write_text("s3cr3t-token\r\nrest\n")
    found = ConsulCluster(network, 2)
    found.token = "s3cr3t-token"
    assert opened(of(tmp_path, found)).look(5).problems == snapshot(name="none")
    config = of(tmp_path, found, token_file="token")
    cluster = opened(config)
    assert cluster.look(5).problems == [] and cluster.try_write() is None
    found.values = {KEYS.name(7): b"v"}
    (held,) = cluster.written(PREFIX, 0, [KEYS.name(7)], 5).writes
    assert held.value == "v" and cluster.observe().end() is not None
    assert cluster.keys() == cluster.remove_keys() == 1
    found.token = "another"
    assert cluster.look(5).problems == snapshot(name="another")
    assert LocalServer(tmp_path, tmp_path, config.external, None).request == {"tokenFile": "token"}
    values = topology_values(config)
    assert values["token_file"] == str(token) and "s3cr3t-token" not in json.dumps(values)
    contents = {
        b"": "has no token on its first line",
        b"\n": "has no token",
        b"a b\n": "visible ASCII",
        b"\xff": "no text",
    }
    for content, reported in contents.items():
        token.write_bytes(content)
        with pytest.raises(UsageError, match=reported):
            opened(config)
    token.unlink()
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        opened(config)


# --- ZooKeeper's znodes -----------------------------------------------------------------------------------------------


def test_keys_are_read_and_removed_below_the_znode_of_the_run(network: Network, tmp_path: Path) -> None:
    found = ZooKeeperCluster(network, 1)
    cluster = opened(of(tmp_path, found))
    found.vanishing = "/containernet-env"
    assert cluster.try_write() is None and found.own() == ["/containernet-env", "/containernet-env/abc"], "made again"
    found.znodes.update({"/containernet-env/abc/a%2Fb": b"own", "/k": b"other"})
    held = list(cluster.written("", 0, ["a/b", "k"], 5).writes)
    assert [(write.key, write.value) for write in held] == [("a/b", "own"), ("k", None)]
    found.denied = "/containernet-env/abc/a"
    with pytest.raises(RunError, match="delete /containernet-env/abc/a%2Fb: its ACL does not allow that"):
        cluster.remove_keys()
    found.denied = None

    def late(removed: int) -> None:
        if removed == 1:
            found.znodes["/containernet-env/abc/2"] = b"v"

    assert cluster.remove_keys(late) == 2 and found.own() == ["/k"], "also those that come meanwhile"
    # As after a run, or its removal, that was ended between the two.
    found.znodes["/containernet-env"] = MARK
    assert cluster.remove_keys() == 0 and found.own() == ["/k"]


def test_znodes_that_others_made_stay(network: Network, tmp_path: Path) -> None:
    found = ZooKeeperCluster(network, 3)
    found.znodes.update({"/mine": b"", "/mine/bench": b""})
    cluster = opened(of(tmp_path, found, prefix="mine/bench/"), OwnKeys("mine/bench/abc/"))
    assert cluster.try_write() is None and "/mine/bench/abc" in found.own()
    assert cluster.remove_keys() == 0 and found.own() == ["/mine", "/mine/bench"]
    del found.znodes["/mine/bench"]
    found.secret = "/mine"
    assert cluster.try_write() is None and cluster.remove_keys() == 0
    assert found.own() == ["/mine"], "also one that may not be read"
    # That the znode of the run may not be deleted again is found before any load.
    for found.kept, prefix in (("/mine", "mine/"), ("/mine", "mine/bench/"), ("", "containernet-env/")):
        reported = opened(of(tmp_path, found, prefix=prefix), OwnKeys(f"{prefix}abc/")).try_write()
        assert "znodes may not be created, or deleted, here: delete /" in str(reported), prefix
        assert found.own() == ["/mine"]


# --- what killed runs have left ---------------------------------------------------------------------------------------

FEW = Keys(4, 300, PREFIX)
Over = Callable[[], None]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folders of runs on external clusters are, in a cache of the test's own."""
    monkeypatch.setattr(assets, "own", lambda: tmp_path / "cache")
    return external_access.home()


@pytest.fixture
def over(home: Path, monkeypatch: pytest.MonkeyPatch) -> Over:
    """Once called, all runs are over."""
    return lambda: monkeypatch.setattr(owner, "is_alive", lambda _: False)


def killed(config: Config, at: Sequence[Service], over: Over) -> None:
    """A run that has written its keys and is no more."""
    external_access.begin(config, "abc", None, OwnKeys(PREFIX, (FEW,)))
    over()
    for service in at:
        service.values.update({FEW.name(number): b"v" for number in range(FEW.count)})


def cleaned(config: Config) -> list[str]:
    """What ``clean`` says of the runs that it finds."""
    found: list[str] = []
    external_access.clean(config, lambda record, done: found.append(str(done)), found.append)
    return found


@pytest.mark.parametrize("call", ["write_bytes", "rename", "rmtree"])
def test_a_run_that_is_killed_while_it_makes_or_removes_its_folder_leaves_none(
    home: Path, tmp_path: Path, call: str, over: Over
) -> None:
    config = config_of(tmp_path, "etcd", ["http://10.1.0.1:2379"])
    folder = external_access.begin(config, "abc", "cluster-1", OWN) if call == "rmtree" else home
    kept = [home / "abc.mine", home / "mine"]
    for path in kept:
        path.mkdir(parents=True)
    # SIGKILL: nothing is caught or cleaned up any more.
    killed = mock.patch.object(shutil if call == "rmtree" else Path, call, side_effect=GeneratorExit)
    with killed, pytest.raises(GeneratorExit):
        if call == "rmtree":
            external_access.end(folder)
        else:
            external_access.begin(config, "abc", "cluster-1", OWN)
    for left in (1, 0):
        external_access.clean_up(config, "cluster-1", pytest.fail, pytest.fail)
        assert len(list(home.iterdir())) == len(kept) + left, "what another process makes stays"
        assert not list(external_access.records())
        over()
    assert sorted(home.iterdir()) == sorted(kept), "what the user keeps there stays"
    external_access.end(folder)


def test_what_a_killed_run_left_is_removed_by_an_endpoint_of_both(network: Network, tmp_path: Path, over: Over) -> None:
    consul, zookeeper = ConsulCluster(network, 2), ZooKeeperCluster(network, 1)
    external_access.begin(of(tmp_path, consul), "abc", None, OWN)
    assert cleaned(of(tmp_path, consul)) == ["None"], "it is reported and stays while it lives"
    over()
    consul.values.update(dict.fromkeys(map(KEYS.name, range(10)), b"v"))
    assert external_access.clean(of(tmp_path, zookeeper), pytest.fail, pytest.fail)[0].store == "consul"
    assert cleaned(config_of(tmp_path, "consul", consul.urls[1:])) == [f"removed 10 keys under {PREFIX}"]
    assert consul.values == {}
    external_access.begin(of(tmp_path, zookeeper), "abc", None, OWN)
    assert opened(of(tmp_path, zookeeper)).try_write() is None
    assert cleaned(of(tmp_path, zookeeper)) == [f"removed 0 keys under {PREFIX}"] and zookeeper.own() == []


GONE = 1
"""The number of the service that has gone for good."""
LEFT_OUT = "left out: http://10.8.0.2:80 answers nothing: connection refused"
REMOVED, SOME = f"removed 300 keys under {PREFIX}", rf"removed \d+ keys under {PREFIX}"
STAYED = f"up to 300 keys stay under {PREFIX}"


@pytest.mark.parametrize(
    ("at", "now_at", "store", "more", "reported", "queried"),
    [
        # Deletes of a file that was changed meanwhile find nothing, which counts as deleted: 404.
        ([0], [0], SERVICE, {"delete": "/v1/{key}"}, [REMOVED], {0}),
        ([0], [0], STAY, {}, [STAYED], set()),
        ([0, GONE, 2], [0, GONE, 2], SERVICE, {}, [LEFT_OUT, SOME], {0, 2}),
        ([0, GONE, 2], [0, 2], SERVICE, {}, [SOME], {0, 2}),
        # An endpoint that the run did not have may be of another service, where no key is found, as if it was deleted.
        ([0], [2, 0], SERVICE, {}, [REMOVED], {0}),
    ],
    ids=["by the run's requests", "keys stay", "one is gone", "and not named any more", "another endpoint"],
)
@simulated()
def test_keys_are_deleted_by_the_requests_of_the_run_at_its_endpoints(
    network: Network, tmp_path: Path, over: Over,
    at: list[int], now_at: list[int], store: Any, more: Any, reported: list[str], queried: set[int],
) -> None:  # fmt: skip
    """``at`` are the endpoints of the run, ``now_at`` those of the file that ``clean`` is given."""
    found = services(network, 3)
    found[GONE].gone = True
    killed(config_of(tmp_path, store, [found[number].url for number in at]), found[:1], over)
    said = cleaned(config_of(tmp_path, {**store, **more}, [found[number].url for number in now_at]))
    assert all(re.fullmatch(words, line) for words, line in zip(reported, said, strict=True)), said
    deleted = [{request for request in one.requests if request.startswith("DELETE")} for one in found]
    assert {number for number in range(3) if deleted[number]} <= queried and not list(external_access.records())
    assert len(set.union(*deleted)) == (FEW.count if queried else 0)


def test_a_run_on_record_elsewhere_is_reported(network: Network, tmp_path: Path, over: Over) -> None:
    def printed(command: Any) -> str:
        done = CliRunner().invoke(command, [str(tmp_path / "endpoints.json")])
        assert done.exit_code == 0, done.output
        return done.output

    one, other = services(network, 2)
    killed(config_of(tmp_path, SERVICE, [one.url]), [one], over)
    # Another kind of store at the same endpoint is another cluster.
    external_access.clean_up(config_of(tmp_path, "etcd", [one.url]), "cluster-1", pytest.fail, pytest.fail)
    config_of(tmp_path, SERVICE, [other.url])
    output = printed(machine.clean_command)
    assert "nothing was left behind" in output
    assert f"left as it is: {PREFIX} of a killed run at {one.url}\n" in output
    assert [record.endpoints for _, record in external_access.records()] == [(one.url,)]
    found = ZooKeeperCluster(network, 3)
    of(tmp_path, found)
    output = printed(check.check_command)
    assert "3 endpoints of external zookeeper" in output and "0 keys under containernet-env/" in output
    assert f"zookeeper1  {found.servers[0].address}  version 3.8.0, leads" in output and found.own() == []


@simulated()
def test_where_its_delete_is_refused_the_one_of_the_file_is_tried(network: Network, tmp_path: Path, over: Over) -> None:
    (one,) = services(network, 1)
    killed(config_of(tmp_path, {**SERVICE, "delete": "/v0/entity?id={key}&ack=3"}, [one.url]), [one], over)
    one.refused = "ack=3"
    for delete, reported in (("/v0/entity?id={key}&ack=3", "HTTP 503"), ("/v1/{key}", "are still there")):
        with pytest.raises(RunError, match=reported):
            cleaned(config_of(tmp_path, {**SERVICE, "delete": delete}, [one.url]))
        assert list(external_access.records())
    assert cleaned(config_of(tmp_path, {**SERVICE, "delete": "/v0/entity?id={key}&ack=2"}, [one.url]))
    assert one.values == {} and not list(external_access.records())


# --- files, choices and rows: nothing is connected --------------------------------------------------------------------

PLAIN = {"endpoints": ["http://10.1.0.1:2379", "http://10.1.0.2:2379", "http://[fd00::3]:2379"]}
SECURED = {
    "endpoints": ["https://etcd-1.example:2379"],
    "store": "etcd",
    "tls": {"ca": "ca.pem"},
    "user": "bench",
    "password_file": "secret",
}
READS = Scenario(
    name="r", type="read", total=500, clients=10, conns=2, key_size=8, val_size=256, key_space=1000, consistency="l"
)


written = partial(write, name="endpoints.json")


def test_endpoints_are_members_by_their_order(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, PLAIN))
    assert config.external is not None and config.external.tls is None
    assert [node.name for node in config.nodes] == ["etcd1", "etcd2", "etcd3"]
    assert config.external.endpoints[2] == Endpoint("fd00::3", 2379)
    assert config.external.urls == tuple(PLAIN["endpoints"])
    assert config.external.prefix_of("abc") == "containernet-env/abc/"

    secured = load_config(written(tmp_path, SECURED)).external
    assert secured is not None and secured.tls is not None, "files are below the folder of the file that names them"
    assert (secured.tls.ca, secured.password_file) == (tmp_path / "ca.pem", tmp_path / "secret")
    longest = f"{'a' * 63}.b-c_d.x"
    assert parse_endpoint(f"http://{longest}:1") == ("http", Endpoint(longest, 1))


def test_a_name_that_no_host_can_have_gives_no_answer() -> None:
    for connection in (TcpConnection("h..x", 1), TcpConnection(f"{'a' * 64}.x", 1)):
        assert not connection.speaks_tls(60.0)
        asks: list[tuple[Callable[..., object], tuple[Any, ...]]] = [
            (connection.open, (1,)), (connection.rtt_ns, ()), (connection.request_bytes, (1, "/")),
        ]  # fmt: skip
        for ask, words in asks:
            with pytest.raises(NoAnswerError, match="has a name that no host can have"):
                ask(*words, timeout_s=60.0)


def test_requests_name_an_ipv6_address_in_brackets() -> None:
    for host, named in (("fd00::3", "[fd00::3]"), ("::ffff:a00:1", "[::ffff:a00:1]"), ("10.0.0.1", "10.0.0.1")):
        assert TcpConnection(host, 2379).authority == named


def test_options_of_hosts_and_links_of_ours_are_refused(tmp_path: Path) -> None:
    config, out = written(tmp_path, PLAIN), tmp_path / "out.csv"
    for words in (
        "--engine containernet", "--links emulator", "--links netem --switches bridge", "--congestion-control reno",
        "--fresh", "--retry-invalid 1", "--profile cpu", "--strict", "--seed 1", "--rtt-tolerance 1ms",
    ):  # fmt: skip
        done = CliRunner().invoke(run_command, [str(config), str(out), "--quick", *words.split()])
        assert done.exit_code and "external cluster" in f"{done.output} {done.exception}" and not out.exists(), words


def test_what_is_done_to_hosts_and_links_of_ours_is_refused_and_all_without_consent(tmp_path: Path) -> None:
    config, out = written(tmp_path, PLAIN), tmp_path / "out.csv"
    scenarios = write(tmp_path, {"scenarios": [writes(events=[{"at": "1s", "kill": "leader"}])]})
    with pytest.raises(ConfigError, match=r"cannot be done to the external cluster of .*endpoints.json"):
        prepare(config, scenarios)
    with pytest.raises(UsageError, match="nothing to bring up"):
        prepare_shell(config)
    made = design(config, ["clients=1,10"], quick=True, only=["read-linearizable-50x1x1"])
    assert [cell.coordinates for cell in made.cells] == [(("clients", "1"),), (("clients", "10"),)]
    for axis in ("link_delay=1ms,3ms", "members=1,3", "cpus=1,2", "heartbeat_interval=100ms", "client.mem=1g,2g"):
        with pytest.raises(ConfigError, match="is of hosts, links or the store, which are not configurable"):
            design(config, [axis], quick=True)
    with pytest.raises(UsageError, match=r"(?s)18 scenarios.*http://10\.1\.0\.2:2379"):
        measure(config, None, out, quick=True)
    assert not out.exists()
    require_consent(prepare(config, None, quick=True), True)


def test_the_password_is_of_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    external = load_config(written(tmp_path, SECURED)).external
    with pytest.raises(UsageError, match=r"password file .*secret cannot be read"):
        login_of(external)
    (tmp_path / "secret").write_text("a b\nc\n")
    login = login_of(external)
    assert login is not None and login.password == "a b" and "a b" not in repr(login)
    monkeypatch.delenv("BENCHMARK_PASSWORD", raising=False)
    with pytest.raises(UsageError, match="bench has no password"):
        login_of(replace(external, password_file=None))

    plan = prepare(written(tmp_path, SECURED), None, quick=True)
    assert (plan.hosts, plan.links, plan.switches, plan.rtt) == ((), (), (), ())
    values = json.dumps(plan_values(plan), default=str)
    assert "a b" not in values and "etcd-1.example" in values

    def of(**more: Any) -> str:
        return config_hash(prepare(written(tmp_path, {**SECURED, **more}), None, quick=True))

    # The identity is of endpoints and not of files.
    assert config_hash(plan) == of(prefix="other/") == of(tls={"ca": "other.pem"})
    assert config_hash(plan) != of(endpoints=["https://etcd-2.example:2379"])


def test_every_key_of_a_request_is_under_the_prefix_or_a_znode_of_the_run(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    spans = (replace(READS, span=of, verify=False) for of in (Span(prefix="00"), Span(start="0010", end="0020")))
    loads = (READS, replace(READS, key_prefix="data/"), *spans)
    placed: list[Any] = [(load, {"prefix": "p/7/"}) for load in loads]
    for store, url in (("zookeeper", "10.1.0.1:2181"), ("consul", "http://10.1.0.1:8500")):
        terms, prefix = store_of(config_of(tmp_path, store, [url])).place(PREFIX)
        placed.append((READS, {"terms": terms, "prefix": prefix}))
    bodies = [request_of(load, {"etcd1": "10.1.0.1:2379"}, 60.0, **more)[1] for load, more in placed]
    about = ("store", "chroot", "keyPrefix", "key", "prefix", "endRange")
    assert [{name: body[name] for name in about if name in body} for body in bodies] == snapshot


def test_a_row_has_what_was_measured_and_nothing_of_hosts_and_links(tmp_path: Path) -> None:
    facts = RunFacts("run-1", plan_of(written(tmp_path, PLAIN), only=()), hosts="external")
    rtts = {"etcd1": ClientRtt(201_000, 20), "etcd2": ClientRtt(1_312_400, 20), "etcd3": ClientRtt(300_000, 18)}
    row = row_of(facts, outcome(READS, None, error="x", client_rtts=rtts))
    assert row["Hosts"] == "external" and row["ClusterSize"] == "3"
    assert row["NetworkProof"] == "RTT 0.201;1.312;0.300 ms: medians of 18 each" and row["RttMeasured_ms"] == "1.312"
    unknown = ("LinkDelay_ms", "Bandwidth_mbps", "LinkJitter_ms", "LinkLoss_ratio", "Cpus", "Memory_bytes", "Links")
    assert {row[name] for name in (*unknown, "ClientLink", "ClientCpus", "Data", "RttExpected_ms")} == {"-"}
    # Its figures count where nothing was seen to be wrong.
    assert counts("yes", None) and counts("unknown", "unseen")
    assert not counts("no", "generator_waited;unseen") and not counts("unknown", "unseen;few_answers")
    assert not counts("unknown", "usage") and not counts("-", "-")


def test_what_is_no_member_of_etcd_or_a_learner_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    host, answers = SimpleNamespace(name="etcd1"), ({}, [], None, {"header": {}})
    for answer in (*answers, {"header": {"member_id": "1"}, "raftTerm": "x"}):
        connection: Any = SimpleNamespace(request_json=lambda *_, answer=answer, **__: answer, host="", authority="")
        with pytest.raises(RunError, match="is it a member of etcd"):
            EtcdMember(MemberPlace(host, "10.0.0.1", connection)).status()
        with pytest.raises(RunError, match="without a token"):
            LoggedIn(connection, Login("bench", "secret")).log_in()
    config, header = config_of(tmp_path, "etcd", ["http://10.0.0.9:2379"]), {"cluster_id": "1", "member_id": "2"}
    learner = {"etcdserver": "3.6.8", "header": header, "leader": "1", "version": "3.6.8", "isLearner": True}
    for refused in (False, True):  # a learner that has users refuses the query of its status

        def request_json(port: int, method: str, path: str, *_: Any, refused: bool = refused, **__: Any) -> Any:
            if refused and path != "/version":
                raise HttpError(400, None, "etcdserver: rpc not supported for learner")
            return learner

        connection = SimpleNamespace(request_json=request_json)
        (problem,) = store_of(config).external(config, [connection], None, OwnKeys("p/")).look(1.0).problems
        assert problem.startswith("http://10.0.0.9:2379 is a learner, which takes no writes and no linearizable reads")


DATASET = {"keyPrefix": "data/", "keySize": 4, "valSize": 64, "keys": 100}
LOAD = {"total": 300, "clients": 2, "conns": 1, "warmup": 50}
PUTS = {"type": "write", "load": LOAD, "data": {"keySize": 4, "valSize": 64}, "target": "leader"}
GETS = {"type": "read", "load": LOAD, "consistency": "l", "target": "http1"}


def service_plan(folder: Path, *blocks: Any, store: Any = SERVICE, **more: Any) -> Plan:
    scenarios = write(folder, {"dataset": DATASET, "scenarios": blocks})
    return prepare(endpoints_file(folder, store, ["http://10.0.0.1:8080"], **more), scenarios)


def test_the_keys_of_a_run_are_those_of_its_loads(tmp_path: Path) -> None:
    again = {**PUTS, "load": {**LOAD, "total": 100}, "target": "cluster"}
    plan = service_plan(tmp_path, PUTS, again, GETS, prefix="p/")
    prefix = f"p/{plan.run_id}/"
    assert keys_of(plan) == (Keys(4, 350, prefix), Keys(4, 100, f"{prefix}data/"))
    endless = {**PUTS, "load": {"duration": "1s", "clients": 1, "conns": 1}}
    staying = keys_of(service_plan(tmp_path, endless, store=STAY))
    assert sum(keys.count for keys in staying) == 10_000_000, "where keys stay there may be as many as one likes"


def test_requests_have_the_templates_and_no_member_leads(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    plan, there = service_plan(tmp_path, PUTS, GETS), {"http1": "10.0.0.1:8080"}
    loads = [item.scheduled.scenario for item in plan.scenarios]
    assert [request_of(load, there, 60.0, terms=plan.store.load_terms) for load in loads] == snapshot
    one = config_hash(service_plan(tmp_path, PUTS))
    assert one == config_hash(service_plan(tmp_path, PUTS, prefix="p/"))
    assert one != config_hash(service_plan(tmp_path, PUTS, store={**SERVICE, "put": "/v0/entity?id={key}&ack=3"}))
