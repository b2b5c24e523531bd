"""ZooKeeper and Consul where somebody else runs them: what is looked at, what is refused, and that no key is left."""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base import cache
from containernet_env.base.errors import ConfigError, RunError, UsageError
from containernet_env.cli import check
from containernet_env.config import load_config
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.writer import topology_values
from containernet_env.load.request import request_of
from containernet_env.model.config import Config
from containernet_env.model.keys import ALPHABET, Keys
from containernet_env.model.leadership import Leadership
from containernet_env.model.scenario import Scenario
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import PlanOptions
from containernet_env.runs import external_left
from containernet_env.runs.external_access import cluster_of
from containernet_env.runs.local_server import LocalServer
from containernet_env.stores.etcd.certificates import Authority
from containernet_env.stores.external import ExternalCluster, OwnKeys
from containernet_env.stores.kinds import external_store_of
from containernet_env.stores.zookeeper.external import MARK
from tests.unit.consul_server import ConsulCluster, consul
from tests.unit.zookeeper_server import ZooKeeperCluster, zookeeper

PREFIX = "containernet-env/abc/"
KEYS = Keys(4, 5000, PREFIX)
OWN = OwnKeys(PREFIX, (KEYS,))
WRITE = Scenario(name="w", type="write", total=5, clients=1, conns=1, key_size=8, val_size=9, key_space=5)


def config_of(folder: Path, store: str, endpoints: list[str], **more: Any) -> Config:
    path = folder / "endpoints.json"
    path.write_text(json.dumps({"store": store, "endpoints": endpoints, **more}))
    return load_config(path)


def of_consul(folder: Path, cluster: ConsulCluster, **more: Any) -> Config:
    return config_of(folder, "consul", [server.url for server in cluster.servers], **more)


def of_zookeeper(folder: Path, cluster: ZooKeeperCluster, **more: Any) -> Config:
    return config_of(folder, "zookeeper", [server.address for server in cluster.servers], **more)


def opened(config: Config, own: OwnKeys = OWN) -> ExternalCluster:
    return cluster_of(config, own)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"store": "zookeeper", "endpoints": ["http://a:1"]}, "name HTTP, which ZooKeeper does not speak"),
        ({"store": "zookeeper", "endpoints": ["a:1"], "tls": {"ca": "x"}}, "$.tls: is not spoken to ZooKeeper"),
        ({"store": "zookeeper", "endpoints": ["a:1"], "user": "x"}, "$.user: cannot log in"),
        ({"store": "zookeeper", "endpoints": ["a:1"], "prefix": "a//b/"}, "$.prefix: has parts that are no names"),
        ({"store": "zookeeper", "endpoints": ["a:1"], "prefix": "ü/"}, "$.prefix: is no path of a znode here"),
        ({"store": "zookeeper", "endpoints": ["a:1"], "prefix": "zookeeper/a/"}, "is of ZooKeeper's own znodes"),
        ({"store": "zookeeper", "endpoints": ["a:1", "a:1"]}, "repeats the endpoint"),
        ({"store": "consul", "endpoints": ["a:1"]}, "do not say whether TLS is spoken"),
        ({"store": "consul", "endpoints": ["https://a:1"]}, "nobody says by which CA"),
        ({"store": "consul", "endpoints": ["http://a:1"], "user": "x"}, "Consul knows tokens, which token_file is for"),
        ({"store": "etcd", "endpoints": ["http://a:1"], "token_file": "x"}, "$.token_file: is for Consul alone"),
        ({"store": "zookeeper", "endpoints": ["a:1"], "token_file": "x"}, "$.token_file: is for Consul alone"),
        ({"store": "consul", "endpoints": ["http://a:1"], "prefix": "a/../"}, "$.prefix: has parts that are no names"),
        ({"store": "etcd", "endpoints": ["a:1"]}, "do not say whether TLS is spoken"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, value: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_of(tmp_path, value.pop("store"), value.pop("endpoints"), **value)
    assert told in str(raised.value) and "line 1, column " in str(raised.value)


def test_a_prefix_of_other_stores_need_not_be_a_path(tmp_path: Path) -> None:
    assert config_of(tmp_path, "etcd", ["http://a:1"], prefix="//ü/").external is not None
    assert config_of(tmp_path, "consul", ["http://a:1"], prefix="ü/b/").external is not None


def test_loads_of_zookeeper_have_their_keys_below_a_znode_of_the_run(tmp_path: Path) -> None:
    config = config_of(tmp_path, "zookeeper", ["10.1.0.1:2181", "[fd00::2]:2181"])
    assert config.external is not None and config.external.urls == ("10.1.0.1:2181", "[fd00::2]:2181")
    terms, prefix = external_store_of(config).place(PREFIX)
    _, body = request_of(WRITE, {"zookeeper1": "10.1.0.1:2181"}, 60, terms=terms, prefix=prefix)
    assert (body["store"], body["chroot"]) == ("zookeeper", "/containernet-env/abc") and "keyPrefix" not in body
    other = config_of(tmp_path, "consul", ["http://10.1.0.1:8500"])
    terms, prefix = external_store_of(other).place(PREFIX)
    _, body = request_of(WRITE, {"consul1": "10.1.0.1:8500"}, 60, terms=terms, prefix=prefix)
    assert (body["store"], body["keyPrefix"]) == ("consul", PREFIX)


# Consul


def test_servers_of_consul_are_looked_at_and_nothing_is_written(tmp_path: Path) -> None:
    with consul(3) as found:
        found.leader = 1
        look = opened(of_consul(tmp_path, found)).look(5)
        assert look.problems == [] and look.size == 3 and look.leadership == Leadership("consul2", 7)
        assert [(member.member_name, member.version, member.leads) for member in look.members] == [
            ("node0", "1.16.1", False),
            ("node1", "1.16.1", True),
            ("node2", "1.16.1", False),
        ]
        assert all(request.startswith("GET ") for request in found.requests)


def test_a_leader_that_is_no_endpoint_is_not_among_them(tmp_path: Path) -> None:
    with consul(3) as found:
        found.leader = 2
        config = config_of(tmp_path, "consul", [server.url for server in found.servers[:2]])
        look = opened(config).look(5)
        assert look.problems == [] and look.size == 3 and look.leadership is None


def test_why_consul_cannot_be_measured_is_told(tmp_path: Path) -> None:
    with consul(2) as found, consul(1) as other:
        urls = [found.servers[0].url, other.servers[0].url]
        other.servers[0].number = 7
        (problem,) = opened(config_of(tmp_path, "consul", urls)).look(5).problems
        assert problem == "the endpoints are of different clusters"
        found.servers[1].number = 0
        (problem,) = opened(of_consul(tmp_path, found)).look(5).problems
        assert problem == "two of the endpoints are of the same member"
    with consul(2) as found:
        found.leader = None
        (problem,) = opened(of_consul(tmp_path, found)).look(5).problems
        assert problem == "the cluster has no quorum: 2 of 2 endpoints answer, and know no leader"
        found.leader = 0
        found.answers[f"GET /v1/kv/{PREFIX}?consistent"] = (500, b"rpc error: No cluster leader")
        (problem,) = opened(of_consul(tmp_path, found)).look(5).problems
        assert "no quorum: a consistent read was not answered" in problem and "No cluster leader" in problem
        found.denied = "/v1/agent"
        problems = opened(of_consul(tmp_path, found)).look(5).problems
        assert len(problems) == 2 and all("asks for a token (ACLs)" in problem for problem in problems)
        found.denied = None
        for answer in (b"{}", b"[]", b'{"Stats": {"consul": {"known_servers": "3"}}}'):
            found.answers["GET /v1/agent/self"] = (200, answer)
            problems = opened(of_consul(tmp_path, found)).look(5).problems
            assert len(problems) == 2 and all("is no server of Consul" in problem for problem in problems), problems
        found.answers["GET /v1/agent/self"] = (404, b"404 page not found")
        assert "is no Consul: HTTP 404" in opened(of_consul(tmp_path, found)).look(5).problems[0]


def test_that_consul_takes_no_write_is_found_by_one(tmp_path: Path) -> None:
    with consul(1) as found:
        cluster = opened(of_consul(tmp_path, found))
        assert cluster.may_load() is None and cluster.try_write() is None and found.values == {}
        found.denied = "/v1/kv/"
        assert "asks for a token (ACLs)" in str(cluster.try_write())
        found.denied = None
        found.answers[f"DELETE /v1/kv/{KEYS.name(0)}"] = (200, b"false")
        assert "answers False, and not true" in str(cluster.try_write())


def test_all_keys_of_a_run_are_removed_from_consul_and_no_others(tmp_path: Path) -> None:
    with consul(2) as found:
        names = [KEYS.name(number) for number in range(KEYS.count)]
        others = {"other": b"", "containernet-env/abd/0": b"", "containernet-env/ab": b""}
        found.values.update(dict.fromkeys([*names, f"{PREFIX}left over"], b"v"), **others)
        told: list[int] = []
        cluster = opened(of_consul(tmp_path, found))
        assert cluster.keys() == 5001
        assert cluster.remove_keys(told.append) == 5001 and told[-1] == 5001
        assert found.values == others and cluster.keys() == 0


def test_of_two_digits_keys_are_listed_at_once(tmp_path: Path) -> None:
    with consul(1) as found:
        small = OwnKeys(PREFIX, (Keys(1, 9, PREFIX), Keys(2, 100, f"{PREFIX}d/")))
        found.values.update({keys.name(0): b"" for keys in small.generated})
        assert opened(of_consul(tmp_path, found), small).remove_keys() == 2 and found.values == {}


@pytest.mark.parametrize(
    ("keys", "lists"),
    [
        (Keys(8, 1_000_000, PREFIX), -(-1_000_000 // 62**3)),
        (Keys(1024, 5000, PREFIX), -(-5000 // 62**2)),
        (Keys(8, 5000, f"{PREFIX}{'<' * 60}"), -(-5000 // 62**2)),
    ],
)
def test_so_many_names_are_listed_at_once_as_an_answer_holds(tmp_path: Path, keys: Keys, lists: int) -> None:
    with consul(1) as found:
        last = keys.name(keys.count - 1)
        found.values = {keys.name(0): b"", last: b""}
        assert opened(of_consul(tmp_path, found), OwnKeys(PREFIX, (keys,))).remove_keys() == 2 and found.values == {}
        listed = [request for request in found.requests if request.endswith("?keys&consistent")]
        assert len(listed) == lists + 1 and len(ALPHABET) == 62


@pytest.mark.parametrize("prefix", ["/a", "d/./", "d//x", "../"])
def test_keys_that_consul_redirects_are_refused_before_the_load(tmp_path: Path, prefix: str) -> None:
    scenarios = tmp_path / "scenarios.json"
    dataset = {"keyPrefix": prefix, "keySize": 4, "valSize": 9, "keys": 9}
    load = {"total": 10, "clients": 1, "conns": 1}
    block = {"type": "read", "load": load, "consistency": "l"}
    scenarios.write_text(json.dumps({"dataset": dataset, "scenarios": [block]}))
    found = load_scenarios(scenarios)
    assert build_plan(config_of(tmp_path, "zookeeper", ["a:1"]), found, PlanOptions(machine_cores=2)).scenarios
    with pytest.raises(ConfigError) as raised:
        build_plan(config_of(tmp_path, "consul", ["http://a:1"]), found, PlanOptions(machine_cores=2))
    (problem,) = raised.value.problems
    assert problem.path == "$.dataset.keyPrefix" and "redirects" in problem.message
    dataset["keyPrefix"] = "a.b/..c/"
    scenarios.write_text(json.dumps({"dataset": dataset, "scenarios": [block]}))
    assert build_plan(
        config_of(tmp_path, "consul", ["http://a:1"]), load_scenarios(scenarios), PlanOptions(2)
    ).scenarios


def test_names_of_keys_are_written_as_urls_have_them(tmp_path: Path) -> None:
    own = OwnKeys("a b?c/abc/", (Keys(2, 9, "a b?c/abc/"),))
    with consul(2) as found:
        config = of_consul(tmp_path, found, prefix="a b?c/")
        cluster = opened(config, own)
        assert cluster.try_write() is None and found.values == {}
        found.values = {own.generated[0].name(8): b"v", "a b": b""}
        assert cluster.keys() == 1 and cluster.remove_keys() == 1 and found.values == {"a b": b""}


def test_the_term_is_the_newest_that_a_server_knows(tmp_path: Path) -> None:
    with consul(2) as found:
        found.terms[1] = 9
        assert opened(of_consul(tmp_path, found)).look(5).leadership == Leadership("consul1", 9)


def test_consuls_that_name_the_same_servers_are_told_apart_by_a_key(tmp_path: Path) -> None:
    """As those that one Compose file has made on two machines."""
    with consul(3) as found, consul(3) as other:
        config = config_of(tmp_path, "consul", [found.servers[0].url, other.servers[1].url])
        cluster = opened(config)
        assert cluster.look(5).problems == []
        assert "they are of different clusters" in str(cluster.try_write())
        assert found.values == other.values == {}


def test_each_request_to_consul_carries_the_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t-123\r\nrest\n")
    with consul(2) as found:
        found.token = "t-123"
        (problem, _) = opened(of_consul(tmp_path, found)).look(5).problems
        assert problem.endswith(
            'asks for a token (ACLs): name its file with "token_file" (HTTP 403: Permission denied: '
            "anonymous token lacks permission)"
        )
        config = of_consul(tmp_path, found, token_file="token")
        cluster = opened(config)
        assert cluster.look(5).problems == [] and cluster.try_write() is None
        found.values = {KEYS.name(7): b"v"}
        (held,) = cluster.written(PREFIX, 0, [KEYS.name(7)], 5).writes
        assert held.value == "v" and cluster.observe().end() is not None
        assert cluster.keys() == cluster.remove_keys() == 1
        found.token = "another"
        assert all("refuses the token, or what it may do (HTTP 403" in told for told in cluster.look(5).problems)
        assert config.external is not None
        server = LocalServer(tmp_path, tmp_path, config.external, None)
        assert server.request == {"tokenFile": "token"}
        values = topology_values(config)
        assert values["token_file"] == str(token) and "t-123" not in json.dumps(values)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "has no token on its first line"),
        (b"\n", "has no token"),
        (b"a b\n", "visible ASCII"),
        (b"\xff", "no text"),
    ],
)
def test_a_token_that_cannot_be_sent_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "token").write_bytes(content)
    config = config_of(tmp_path, "consul", ["http://a:1"], token_file="token")
    with pytest.raises(UsageError, match=told):
        opened(config)
    (tmp_path / "token").unlink()
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        opened(config)


def test_where_one_server_of_consul_is_silent_the_others_remove(tmp_path: Path) -> None:
    with consul(2) as found:
        config = of_consul(tmp_path, found)
        found.values.update(dict.fromkeys(map(KEYS.name, range(10)), b"v"))
        found.servers[0].shutdown()
        found.servers[0].server_close()
        assert opened(config).remove_keys() == 10 and found.values == {}


def test_a_server_of_consul_that_is_silent_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("containernet_env.stores.consul.external._ASK_S", 0.2)
    with consul(1) as found, socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        found.values.update(dict.fromkeys(map(KEYS.name, range(500)), b"v"))
        urls = [f"http://127.0.0.1:{silent.getsockname()[1]}", found.servers[0].url]
        assert opened(config_of(tmp_path, "consul", urls)).remove_keys() == 500 and found.values == {}
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


# ZooKeeper


def test_what_keys_hold_is_read_below_the_znode_of_the_run(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        cluster = opened(of_zookeeper(tmp_path, found))
        assert cluster.try_write() is None
        found.znodes.update({"/containernet-env/abc/a%2Fb": b"own", "/k": b"other"})
        held = list(cluster.written("", 0, ["a/b", "k"], 5).writes)
        assert [(write.key, write.value) for write in held] == [("a/b", "own"), ("k", None)]


def test_observers_are_no_members_that_vote(tmp_path: Path) -> None:
    with zookeeper(2) as found:
        found.znodes["/zookeeper/config"] += b"\nserver.9=10.9.0.9:2888:3888:observer;0.0.0.0:2181\nversion=0"
        assert opened(of_zookeeper(tmp_path, found)).look(5).size == 2


def test_a_member_that_alone_finds_no_quorum_is_named(tmp_path: Path) -> None:
    with zookeeper(3) as found:
        found.servers[2].serves = False
        (problem,) = opened(of_zookeeper(tmp_path, found)).look(5).problems
        assert problem == f"{found.servers[2].address} serves no requests: it has found no quorum, and others have"


def test_a_znode_that_goes_while_the_one_below_it_is_made_is_made_again(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        found.vanishing = "/containernet-env"
        assert opened(of_zookeeper(tmp_path, found)).try_write() is None
        assert found.own() == ["/containernet-env", "/containernet-env/abc"]


def test_keys_that_come_while_others_are_removed_are_removed_too(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        cluster = opened(of_zookeeper(tmp_path, found))
        assert cluster.try_write() is None
        found.znodes["/containernet-env/abc/1"] = b"v"

        def late(removed: int) -> None:
            if removed == 1:
                found.znodes["/containernet-env/abc/2"] = b"v"

        assert cluster.remove_keys(late) == 2 and found.own() == []


def test_members_of_zookeeper_are_looked_at_and_nothing_is_written(tmp_path: Path) -> None:
    with zookeeper(3) as found:
        found.leader = 2
        before = dict(found.znodes)
        look = opened(of_zookeeper(tmp_path, found)).look(5)
        assert look.problems == [] and look.size == 3 and look.leadership == Leadership("zookeeper3", 3)
        assert [(member.version, member.leads) for member in look.members] == [("3.8.0", False)] * 2 + [("3.8.0", True)]
        assert found.znodes == before
    with zookeeper(1) as found:
        look = opened(of_zookeeper(tmp_path, found)).look(5)
        assert look.problems == [] and look.leadership == Leadership("zookeeper1", 3)


def test_why_zookeeper_cannot_be_measured_is_told(tmp_path: Path) -> None:
    with zookeeper(3) as found:
        config = of_zookeeper(tmp_path, found)
        found.leader = None
        (problem,) = opened(config).look(5).problems
        assert problem == "the cluster has no quorum: 3 of 3 endpoints answer, and serve no requests"
        found.leader = 0
        for word, told in (
            ("srvr is not executed because it is not in the whitelist.\n", "does not answer srvr: allow it (4lw"),
            ("HTTP/1.1 400 Bad Request\r\n", "is no voting member of ZooKeeper: srvr: HTTP/1.1 400 Bad Request"),
            ("Zookeeper version: 3.8.0\nZxid: 0x1\nMode: observer\n", "is no voting member of ZooKeeper"),
        ):
            found.word = word
            problems = opened(config).look(5).problems
            assert len(problems) == 3 and all(told in problem for problem in problems), problems
        found.word = None
        found.servers[1].number = 0
        assert opened(config).look(5).problems == ["two of the endpoints are of the same member"]
    with zookeeper(3) as found, zookeeper(1) as other:
        ends = [found.servers[0].address, other.servers[0].address]
        (problem,) = opened(config_of(tmp_path, "zookeeper", ends)).look(5).problems
        assert problem == "the endpoints are of different clusters: a member is alone"
    with zookeeper(3) as found, zookeeper(5) as other:
        ends = [found.servers[0].address, other.servers[4].address]
        (problem,) = opened(config_of(tmp_path, "zookeeper", ends)).look(5).problems
        assert problem == "the endpoints are of different clusters"


class _Tls(socketserver.BaseRequestHandler):
    """A member with a secureClientPort: it waits for more than a word of four letters."""

    context: ssl.SSLContext

    def handle(self) -> None:
        with suppress(OSError), self.context.wrap_socket(self.request, server_side=True):
            pass


def test_a_member_of_zookeeper_that_speaks_tls_is_told(tmp_path: Path) -> None:
    issued = Authority().issue("x")
    (tmp_path / "pair.pem").write_bytes(issued.certificate + issued.key)
    _Tls.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _Tls.context.load_cert_chain(tmp_path / "pair.pem")
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Tls) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        config = config_of(tmp_path, "zookeeper", [f"127.0.0.1:{server.server_address[1]}"])
        (problem,) = opened(config).look(0.5).problems
        assert problem.endswith("speaks TLS, which loads for ZooKeeper do not")
        server.shutdown()


def test_the_znode_of_the_run_is_made_and_is_at_all_members(tmp_path: Path) -> None:
    with zookeeper(3) as found, zookeeper(3) as other:
        cluster = opened(of_zookeeper(tmp_path, found))
        assert cluster.keys() == 0 and cluster.may_load() is None and cluster.try_write() is None
        assert found.own() == ["/containernet-env", "/containernet-env/abc"]
        ends = [found.servers[0].address, other.servers[1].address]
        told = opened(config_of(tmp_path, "zookeeper", ends)).try_write()
        assert "they are of different clusters" in str(told)
        assert cluster.remove_keys() == 0 and found.own() == other.own() == []
        found.denied = "/containernet-env"
        assert "its ACL does not allow that" in str(cluster.try_write()) and found.own() == []


@pytest.mark.parametrize("old", [False, True])
def test_all_znodes_of_a_run_are_removed_and_no_others(tmp_path: Path, old: bool) -> None:
    with zookeeper(3) as found:
        found.old = old
        cluster = opened(of_zookeeper(tmp_path, found))
        assert cluster.try_write() is None
        found.znodes.update({f"/containernet-env/abc/{number}%2F": b"v" for number in range(1200)})
        assert cluster.keys() == 1200
        found.znodes["/containernet-env/other"] = MARK
        told: list[int] = []
        assert cluster.remove_keys(told.append) == 1200 and told == [500, 1000, 1200]
        # Another run is there, so the znode above both stays.
        assert found.own() == ["/containernet-env", "/containernet-env/other"]


def test_a_znode_that_somebody_else_made_stays(tmp_path: Path) -> None:
    with zookeeper(3) as found:
        found.znodes.update({"/mine": b"", "/mine/bench": b""})
        cluster = opened(of_zookeeper(tmp_path, found, prefix="mine/bench/"), OwnKeys("mine/bench/abc/"))
        assert cluster.try_write() is None and "/mine/bench/abc" in found.own()
        cluster.remove_keys()
        assert found.own() == ["/mine", "/mine/bench"]


def test_that_the_znode_of_the_run_may_not_be_deleted_again_is_found_before_any_load(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        found.znodes["/mine"] = b""
        for kept, prefix in (("/mine", "mine/"), ("/mine", "mine/bench/"), ("", "containernet-env/")):
            found.kept = kept
            told = opened(of_zookeeper(tmp_path, found, prefix=prefix), OwnKeys(f"{prefix}abc/")).try_write()
            assert "nobody may create, or delete, znodes here: delete /" in str(told), prefix
            assert found.own() == ["/mine"]


def test_a_znode_above_that_may_not_be_read_is_somebody_elses(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        found.znodes["/mine"], found.secret = b"", "/mine"
        cluster = opened(of_zookeeper(tmp_path, found, prefix="mine/bench/"), OwnKeys("mine/bench/abc/"))
        assert cluster.try_write() is None and cluster.remove_keys() == 0
        assert found.own() == ["/mine"]


def test_znodes_above_are_removed_where_the_one_of_the_run_is_gone(tmp_path: Path) -> None:
    """As after a run, or its removal, that was ended between the two."""
    with zookeeper(1) as found:
        found.znodes["/containernet-env"] = MARK
        assert opened(of_zookeeper(tmp_path, found)).remove_keys() == 0 and found.own() == []


def test_where_one_member_of_zookeeper_is_silent_another_removes(tmp_path: Path) -> None:
    with zookeeper(3) as found:
        config = of_zookeeper(tmp_path, found)
        assert opened(config).try_write() is None
        found.znodes["/containernet-env/abc/1"] = b"v"
        found.servers[0].shutdown()
        found.servers[0].server_close()
        assert opened(config).remove_keys() == 1 and found.own() == []


def test_znodes_that_may_not_be_deleted_are_an_error(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        cluster = opened(of_zookeeper(tmp_path, found))
        assert cluster.try_write() is None
        found.znodes["/containernet-env/abc/1"] = b"v"
        found.denied = "/containernet-env/abc/1"
        with pytest.raises(RunError, match="delete /containernet-env/abc/1: its ACL does not allow that"):
            cluster.remove_keys()


# Killed runs


@pytest.fixture
def over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are in a cache of the test's own, and the runs that they are of are over."""
    monkeypatch.setattr(cache, "own", lambda: tmp_path / "cache")
    monkeypatch.setattr("containernet_env.hosts.owner.is_alive", lambda _: False)


def test_what_a_killed_run_left_is_removed_by_an_endpoint_of_both(tmp_path: Path, over: None) -> None:
    with consul(2) as found, zookeeper(1) as members:
        config = of_consul(tmp_path, found)
        external_left.begin(config, "abc", None, OWN)
        found.values.update(dict.fromkeys(map(KEYS.name, range(10)), b"v"))
        of_other = of_zookeeper(tmp_path, members)
        same = config_of(tmp_path, "etcd", [server.url for server in found.servers])
        assert not external_left._is_on(next(external_left.records())[1], same, None)
        assert external_left.clean(of_other, pytest.fail, pytest.fail)[0].store == "consul"
        one = config_of(tmp_path, "consul", [found.servers[1].url])
        done: list[str] = []
        assert external_left.clean(one, lambda run: done.append(run.done), pytest.fail) == []
        assert done == [f"removed 10 keys under {PREFIX}"] and found.values == {}
        external_left.begin(of_other, "abc", None, OWN)
        assert opened(of_zookeeper(tmp_path, members)).try_write() is None
        done.clear()
        assert (
            external_left.clean(of_zookeeper(tmp_path, members), lambda run: done.append(run.done), pytest.fail) == []
        )
        assert done == [f"removed 0 keys under {PREFIX}"] and members.own() == []


def test_check_prints_what_the_members_are(tmp_path: Path) -> None:
    with zookeeper(3) as found:
        of_zookeeper(tmp_path, found)
        done = CliRunner().invoke(check.command, [str(tmp_path / "endpoints.json")])
        assert done.exit_code == 0, done.output
        assert "3 endpoints of zookeeper, run by somebody else" in done.output
        assert f"zookeeper1  {found.servers[0].address}  version 3.8.0, leads" in done.output
        assert "0 keys under containernet-env/" in done.output and found.own() == []
