"""Configs and scenarios written out, and read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from containernet_env.config.export import schema_of
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import scenarios_text, topology_text
from containernet_env.model.config import Config
from containernet_env.model.scenario import ScenarioSet
from tests.input import valid
from tests.input.valid import RICH_SCENARIOS, RICH_TOPOLOGY
from tests.unit.blocks import DATA, LOAD, mixed, reads, txns, writes

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SCHEMAS = {kind: Draft202012Validator(schema_of(kind)) for kind in ("config", "scenarios")}


def config_again(folder: Path, config: Config) -> Config:
    """The config, written and read; only where it came from is not in the file."""
    path = folder / "again.json"
    path.write_text(topology_text(config))
    SCHEMAS["config"].validate(json.loads(path.read_text()))
    again = load_config(path)
    return replace(again, path=config.path, sha256=config.sha256, scenarios=config.scenarios)


def scenarios_again(folder: Path, found: ScenarioSet) -> ScenarioSet:
    path = folder / "again.json"
    path.write_text(scenarios_text(found.dataset, found.scenarios))
    SCHEMAS["scenarios"].validate(json.loads(path.read_text()))
    again = load_scenarios(path)
    assert {target.member for target in again.member_targets} == {target.member for target in found.member_targets}
    assert {place.scenario for place in again.search_places} == {place.scenario for place in found.search_places}
    assert {place.event for place in again.event_places} == {place.event for place in found.event_places}
    told = {name: getattr(found, name) for name in ("member_targets", "search_places", "event_places")}
    return replace(again, path=found.path, sha256=found.sha256, **told)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_a_shipped_topology_comes_back(tmp_path, path):
    config = load_config(path)
    assert config_again(tmp_path, config) == config


@pytest.mark.parametrize("path", sorted((CONFIGS / "scenarios").glob("*.json")), ids=lambda path: path.stem)
def test_shipped_scenarios_come_back(tmp_path, path):
    found = load_scenarios(path)
    assert scenarios_again(tmp_path, found) == found


@given(valid.topologies())
def test_any_topology_comes_back(tmp_path_factory, value):
    folder = tmp_path_factory.mktemp("topology")
    (folder / "first.json").write_text(json.dumps(value))
    config = load_config(folder / "first.json")
    assert config_again(folder, config) == config


@given(valid.scenario_files())
def test_any_scenarios_come_back(tmp_path_factory, value):
    folder = tmp_path_factory.mktemp("scenarios")
    (folder / "first.json").write_text(json.dumps(value))
    found = load_scenarios(folder / "first.json")
    assert scenarios_again(folder, found) == found


RICH_ENDPOINTS = {
    "endpoints": ["https://etcd-1.example:2379", "https://[fd00::2]:12379"],
    "store": "etcd",
    "tls": {"ca": "ca.pem", "cert": "/own/cert.pem", "key": "key.pem"},
    "user": "bench",
    "password_file": "password",
    "prefix": "tests/containernet-env/",
}

RICH_SERVICE = {
    "endpoints": ["http://10.0.0.1:8080"],
    "store": {
        "kind": "http",
        "put": "/v0/entity?id={key}&ack=2",
        "get": "/v0/entity?id={key}&from=2",
        "delete": "/v0/entity?id={key}",
        "success": {"put": [201], "get": 200, "delete": [202, 404]},
        "missing": [404, 410],
        "health": "/status",
    },
}
OF_CONSUL = {"endpoints": ["http://10.0.0.1:8500"], "store": "consul", "token_file": "token", "prefix": "a/"}
OF_ZOOKEEPER = {"endpoints": ["10.0.0.1:2181", "[fd00::2]:2181"], "store": "zookeeper"}
STAYING = {**RICH_SERVICE, "store": {"kind": "http", "put": "/{key}", "get": "/{key}", "keys": "stay"}}


def keys_in(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys_in, value.values()))
    return set().union(*map(keys_in, value)) if isinstance(value, list) else set()


def keys_of(kind: str) -> set[str]:
    """Every key that such files may have."""
    schema = SCHEMAS[kind].schema
    models = [schema, *schema["$defs"].values()]
    return set().union(*(model.get("properties", {}) for model in models))


def test_every_key_of_a_topology_is_written(tmp_path):
    """A key that the writer does not know is lost when a run is repeated. (A new one? Give it a value above.)"""
    (tmp_path / "first.json").write_text(json.dumps(RICH_TOPOLOGY))
    config = load_config(tmp_path / "first.json")
    written = keys_in(json.loads(topology_text(config)))
    for value in (RICH_ENDPOINTS, RICH_SERVICE, OF_CONSUL, OF_ZOOKEEPER, STAYING):
        (tmp_path / "ends.json").write_text(json.dumps(value))
        ends = load_config(tmp_path / "ends.json")
        assert config_again(tmp_path, ends) == ends
        written |= keys_in(json.loads(topology_text(ends)))
    # Said in the link, and the file that the scenarios came from.
    assert keys_of("config") - written == {
        "link_delay",
        "scenarios",
        # One store is measured at a time: see their own tests.
        "zookeeper",
        "consul",
        "replicas",
        "http",
        "binary",
        "port",
        "arguments",
    }
    assert config_again(tmp_path, config) == config
    assert config_again(tmp_path, ends).external == ends.external


def test_every_key_of_a_scenario_file_is_written(tmp_path):
    (tmp_path / "first.json").write_text(json.dumps(RICH_SCENARIOS))
    found = load_scenarios(tmp_path / "first.json")
    written = json.loads(scenarios_text(found.dataset, found.scenarios))
    assert keys_of("scenarios") - keys_in(written) == set()
    assert scenarios_again(tmp_path, found) == found


SPANS = [
    {},
    {"spanKeys": [1, 100], "limit": 3},
    {"prefix": "data/0000001", "countOnly": True},
    {"span": {"from": "data/00000001", "to": "data/00000009"}, "keysOnly": True, "limit": 2},
    {"keys": ["shuffled", "zipfian"], "zipfExponent": 1.25, "verify": False},
]


@pytest.mark.parametrize("span", SPANS, ids=str)
def test_every_way_to_read_comes_back(tmp_path, span):
    dataset = {"keyPrefix": "data/", "keys": 1000, "valSize": 7}
    path = tmp_path / "first.json"
    path.write_text(json.dumps({"dataset": dataset, "scenarios": [reads(**span)]}))
    found = load_scenarios(path)
    assert scenarios_again(tmp_path, found) == found


def test_every_load_comes_back(tmp_path):
    loads = [
        {"total": 10, "clients": [1, 2], "conns": 1, "timeout": "1.5s", "stallTimeout": "0s", "seed": 7},
        {"duration": "2s", "rate": [0.5, 100], "arrival": "poisson", "clients": 1, "conns": 1, "warmup": "500ms"},
        {"total": 9, "clients": 1, "conns": 1, "warmup": 3, "stallTimeout": "30s"},
    ]
    blocks = [
        writes(load=loads, data=[DATA, {"keySize": 9, "valSize": 1}], keys=["uniform", "zipfian"], keySpace=7),
        writes(load=LOAD, target=["etcd1", "cluster"]),
        writes(load=[{**LOAD, "warmup": warmup} for warmup in (5, "1s")], data={"keySize": 10, "valSize": 1}),
        writes(load={**LOAD, "warmup": 5}, data={"keySize": 11, "valSize": 1}, keySpace=LOAD["total"]),
        mixed(load=loads, ratio=[0, 0.125, 1], keys="shuffled"),
        txns(load=loads, keys="zipfian", zipfExponent=2),
    ]
    path = tmp_path / "first.json"
    path.write_text(json.dumps({"scenarios": blocks}))
    found = load_scenarios(path)
    assert len(found.scenarios) > 40
    assert scenarios_again(tmp_path, found) == found


def test_numbers_come_back_with_every_digit(tmp_path):
    """More of them than a float holds: as such they would be another experiment, with another hash."""
    path = tmp_path / "first.json"
    path.write_text(
        '{"scenarios": [{"type": "mixed", "ratio": 0.12345678901234567890123, "consistency": "l", '
        '"load": {"rate": 1000.00000000000000001, "duration": "1s", "clients": 1, "conns": 1}}]}'
    )
    found = load_scenarios(path)
    assert scenarios_again(tmp_path, found) == found
    topology = tmp_path / "topology.json"
    member = (
        '{"ip": "10.0.0.1", "mem": "unlimited", "cpus": 0.250000000000000000001, "bandwidth": 1, "link_delay": "0s"}'
    )
    topology.write_text(f"[{member}]")
    assert config_again(tmp_path, load_config(topology)) == load_config(topology)


def test_a_key_space_of_as_many_keys_as_requests_is_the_default_and_not_in_the_name(tmp_path):
    """It was in the name of a scenario that did not differ from the one without it."""
    path = tmp_path / "first.json"
    path.write_text(json.dumps({"scenarios": [writes(load=LOAD, keySpace=LOAD["total"])]}))
    (scenario,) = load_scenarios(path).scenarios
    path.write_text(json.dumps({"scenarios": [writes(load=LOAD)]}))
    assert load_scenarios(path).scenarios == (scenario,)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(10_000, 10**11))
def test_any_loss_and_rate_come_back(tmp_path_factory, one, other, rate_bps):
    folder = tmp_path_factory.mktemp("loss")
    bursts = {"model": "gilbert-elliott", "good_to_bad_ratio": one, "bad_to_good_ratio": other, "bad_loss_ratio": one}
    node = {"ip": "10.0.0.1", "mem": "16m", "cpus": 1, "bandwidth": rate_bps / 1e6, "link_delay": "1ns"}
    nodes = [node | {"link": {"to_switch": {"loss": one, "seed": 0}, "from_switch": {"loss": bursts, "queue": 1}}}]
    (folder / "first.json").write_text(json.dumps({"nodes": nodes}))
    config = load_config(folder / "first.json")
    assert config_again(folder, config) == config
