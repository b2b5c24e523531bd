"""ZooKeeper and Consul where somebody else runs them: their files, what a killed run left, what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base import cache
from containernet_env.base.errors import ConfigError
from containernet_env.cli import check
from containernet_env.load.request import request_of
from containernet_env.model.scenario import Scenario
from containernet_env.runs import external_left
from containernet_env.stores.kinds import external_store_of
from tests.unit.consul_server import consul
from tests.unit.external_stores import KEYS, OWN, PREFIX, config_of, of_consul, of_zookeeper, opened
from tests.unit.zookeeper_server import zookeeper

WRITE = Scenario(name="w", type="write", total=5, clients=1, conns=1, key_size=8, val_size=9, key_space=5)


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
