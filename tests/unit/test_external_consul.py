"""Consul where somebody else runs it: what is looked at, what is refused, and that no key is left."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.writer import topology_values
from containernet_env.model.keys import ALPHABET, Keys
from containernet_env.model.leadership import Leadership
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import PlanOptions
from containernet_env.runs.local_server import LocalServer
from containernet_env.stores.external import OwnKeys
from tests.unit.consul_server import consul
from tests.unit.external_stores import KEYS, PREFIX, config_of, of_consul, opened


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
