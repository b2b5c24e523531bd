"""Topologies as files: what is read of them, that they and scenario files, written out, are read as the same, and where
values stand in the text of a file; durations, sizes, CPUs and bandwidths.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from containernet_env.base import assets, units
from containernet_env.config.reader import document_of, json_path, read_document, render
from containernet_env.config.scenarios import ScenarioSet, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import scenarios_text, schema_of, topology_text
from containernet_env.model.config import Config
from containernet_env.model.link import DirectionSpec, IndependentLoss, LinkSpec
from containernet_env.results.columns import each_or_one, impairments, link_text
from tests.input import valid
from tests.input.texts import json_text
from tests.input.valid import RICH_SCENARIOS, RICH_TOPOLOGY
from tests.unit.blocks import write

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SCHEMAS = {kind: Draft202012Validator(schema_of(kind)) for kind in ("config", "scenarios")}
MS, MBIT = 10**6, 10**6
HOST = {"ip": "10.0.0.1", "mem": "64m", "cpus": 1}
OWN = {"bandwidth": 100, "link_delay": "3ms"}
NODE = HOST | OWN


def load(tmp_path, *nodes, **top):
    return load_config(write(tmp_path, {"nodes": nodes, **top}))


# --- what is read -----------------------------------------------------------------------------------------------------


def test_what_a_file_leaves_out(tmp_path):
    named, other = NODE | {"ip": "10.0.0.254", "name": "near1"}, NODE | {"cpus": "unlimited", "mem": "unlimited"}
    config = load(tmp_path, named, other, scenarios="mine/x.json")
    assert [member.name for member in config.nodes] == ["near1", "etcd2"]
    assert (config.nodes[1].cpus, config.nodes[1].memory_bytes) == (None, None)
    assert str(config.clients[0].ip) == "10.0.0.253", "the highest that is free"
    listed = load_config(write(tmp_path, [named, other]))
    assert (listed.nodes, listed.clients) == (config.nodes, config.clients), "a list is short for an object"
    assert (config.scenarios, config.etcd.leader) == (tmp_path / "mine/x.json", None)
    for name in ("near1", "etcd2"):
        assert load(tmp_path, named, other, etcd={"leader": name}).etcd.leader == name


BOTH = DirectionSpec(3 * MS, 100 * MBIT)
SLOW_DOWN = {"to_switch": {"delay": "1.5ms", "bandwidth": "unlimited"}, "from_switch": {"delay": "0s", "bandwidth": 10}}


def test_a_link_is_the_hosts_own_keys_and_those_of_its_link(tmp_path):
    for keys, link in (
        (OWN | {"link": {"to_switch": {"loss": 0.5}}}, LinkSpec(replace(BOTH, loss=IndependentLoss(0.5)), BOTH)),
        (OWN | {"link": {}}, LinkSpec(BOTH, BOTH)),
        ({"bandwidth": 100, "link": {"delay": "3ms", "queue": 77}}, LinkSpec.symmetric(3 * MS, 100 * MBIT, 77)),
        ({"link": {"delay": "3ms", "bandwidth": 100}}, LinkSpec(BOTH, BOTH)),
        ({"link": SLOW_DOWN}, LinkSpec(DirectionSpec(1_500_000), DirectionSpec(0, 10 * MBIT))),
    ):
        assert load(tmp_path, HOST | keys).nodes[0].link == link, keys
    # The client has one only where it is given.
    client = load(tmp_path, NODE, client={"link": {"from_switch": {"delay": "7ms"}}}).clients[0]
    assert client.link == LinkSpec(DirectionSpec(), DirectionSpec(7 * MS))


CODEL = {"kind": "codel", "target": "1ms", "ecn": True}


def test_columns_of_a_row_show_both_directions_where_they_differ(tmp_path):
    overhead = OWN | {"link": {"overhead": 24, "uplink": "network"}}
    for host, delay, bandwidth in (
        ({"link": SLOW_DOWN}, "1.5/0", "unlimited/10"),
        (OWN, "3", "100"),
        ({"bandwidth": 100, "link_delay": "3ms", "link": {"aqm": CODEL}}, "3", "100 codel target 1ms ecn true"),
        (overhead, "3", "100 overhead 24 uplink network/100 overhead 24"),
    ):
        link = load(tmp_path, HOST | host).nodes[0].link
        assert [each_or_one([link_text(link, name)]) for name in ("delay_ms", "bandwidth_mbps")] == [delay, bandwidth]
    assert impairments(link) == "3 ms 100 Mbit/s overhead 24 uplink network/ overhead 24"


# --- written out, and read again --------------------------------------------------------------------------------------


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
    return load_scenarios(path)


def comes_back(folder, value):
    """A topology or scenario file; what was read of it."""
    path = value if isinstance(value, Path) else write(folder, value)
    document = json.loads(json.dumps(read_document(path).value, default=float))
    is_topology = isinstance(document, list) or "scenarios" not in document or isinstance(document["scenarios"], str)
    SCHEMAS["config" if is_topology else "scenarios"].validate(document)
    found = load_config(path) if is_topology else load_scenarios(path)
    assert (config_again if is_topology else scenarios_again)(folder, found) == found
    return found


SHIPPED = sorted([*CONFIGS.glob("*.json"), *(CONFIGS / "scenarios").glob("*.json")])


# More digits than a float holds: as such they would be another experiment, with another hash.
DIGITS = [
    '{"scenarios": [{"type": "mixed", "ratio": 0.12345678901234567890123, "consistency": "l", '
    '"load": {"rate": 1000.00000000000000001, "duration": "1s", "clients": 1, "conns": 1}}]}',
    '[{"ip": "10.0.0.1", "mem": "64m", "cpus": 0.250000000000000000001, "bandwidth": 1, "link_delay": "0s"}]',
]


@pytest.mark.parametrize(
    "file", [*SHIPPED, *DIGITS], ids=lambda file: file.stem if isinstance(file, Path) else "digits"
)
def test_a_shipped_file_and_every_digit_of_a_number_come_back(tmp_path, file):
    comes_back(tmp_path, file)


@given(valid.topologies() | valid.scenario_files())
def test_any_file_comes_back(tmp_path_factory, value):
    comes_back(tmp_path_factory.mktemp("any"), value)


RICH_ENDPOINTS = {
    "endpoints": ["https://etcd-1.example:2379", "https://[fd00::2]:12379"],
    "tls": {"ca": "ca.pem", "cert": "/own/cert.pem", "key": "key.pem"},
} | {"store": "etcd", "user": "bench", "password_file": "password", "prefix": "tests/containernet-env/"}
PATHS = {"put": "/v0/entity?id={key}&ack=2", "get": "/v0/entity?id={key}&from=2", "delete": "/v0/entity?id={key}"}
STATUSES = {"success": {"put": [201], "get": 200, "delete": [202, 404]}, "missing": [404, 410]}
RICH_SERVICE = {
    "endpoints": ["http://10.0.0.1:8080"], "store": {"kind": "http", "health": "/status"} | PATHS | STATUSES,
}  # fmt: skip
OF_CONSUL = {"endpoints": ["http://10.0.0.1:8500"], "store": "consul", "token_file": "token", "prefix": "a/"}
OF_ZOOKEEPER = {"endpoints": ["10.0.0.1:2181", "[fd00::2]:2181"], "store": "zookeeper"}
OF_SITES = {
    "nodes": [HOST | OWN | {"site": "eu"}, {"mem": "64m", "cpus": 1, "site": "us"}],
    "rtt": {"eu>us": {"delay": "40ms", "loss": 0.5}, "us>eu": "30ms"},
}
OF_SWITCHES = {
    "nodes": [HOST | OWN | {"switch": "s1"}],
    "switches": ["s1", "s2", "s3"],
    "links": {"s1-s2": "1ms", "s2-s3": {"delay": "2ms", "bandwidth": 10}, "s3-s1": "5ms"},
    "reroute": True,
}
OF_CLIENTS = {"nodes": [NODE], "clients": [{"cpus": 2}, {"name": "far", "link_delay": "7ms", "mem": "1g"}]}
OF_TRACES = {
    "nodes": [HOST | {"link": {"delay": "3ms", "bandwidth": 10, "trace": {
        "bandwidth": {"file": str(assets.ROOT / "configs/traces/mobile-up.csv"), "repeat": "31s"},
        "delay": str(assets.ROOT / "configs/traces/orbit-delay.csv"),
    }}}],
}  # fmt: skip
STAYING = RICH_SERVICE | {"store": {"kind": "http", "put": "/{key}", "get": "/{key}", "keys": "stay"}}
ELSEWHERE = [
    *("link_delay", "scenarios", "count"),  # said in the link, the file of the scenarios, and a node for each member
    # One store is measured at a time: see their own tests.
    *("zookeeper", "consul", "replicas", "http", "binary", "port", "arguments"),
]


def keys_in(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys_in, value.values()))
    return set().union(*map(keys_in, value)) if isinstance(value, list) else set()


def keys_of(kind: str) -> set[str]:
    """Every key that such files may have."""
    schema = SCHEMAS[kind].schema
    models = [schema, *schema["$defs"].values()]
    return set().union(*(model.get("properties", {}) for model in models))


def test_every_key_of_a_file_is_written(tmp_path):
    """A key that the writer does not know is lost when a run is repeated. (A new one? Give it a value above.)"""
    files = (RICH_TOPOLOGY, RICH_ENDPOINTS, RICH_SERVICE, OF_CONSUL, OF_ZOOKEEPER, OF_SITES, OF_SWITCHES, OF_CLIENTS)
    values = (*files, OF_TRACES)
    texts = [json.loads(topology_text(comes_back(tmp_path, value))) for value in (*values, STAYING)]
    assert keys_of("config") - keys_in(texts) == set(ELSEWHERE)
    service = texts[2]["store"]
    assert service["success"] == {"put": [201], "get": [200], "delete": [202, 404]} and service["missing"] == [404, 410]
    found = comes_back(tmp_path, RICH_SCENARIOS)
    assert keys_of("scenarios") <= keys_in(json.loads(scenarios_text(found.dataset, found.scenarios)))


# --- files as text: comments, what JSON does not have, and the line and column of every value and key -----------------

KEYS = st.text(alphabet='ab"\\/*,:{}[] \näß', max_size=5) | st.text(max_size=5)


def parsed(text):
    """A text in which nothing is wrong."""
    found = document_of(Path(), text)
    assert not found.faults
    return found


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=25,
)


def test_what_looks_like_a_comment_in_a_string_is_text(tmp_path):
    text = '["http://x", "/* y */", "\\"//"]'
    assert parsed(text).value == ["http://x", "/* y */", '"//']
    path = tmp_path / "file.json"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())  # a byte order mark is ignored
    assert read_document(path).value == parsed(text).value


@given(DOCUMENTS)
def test_values_are_shown_short_and_printable(value):
    assert [render(text) for text in ("a\x1b[31m\udc80", "\x9b")] == [r'"a\u001b[31m\udc80"', r'"\x9b"']
    assert json_path(("nodes", 0, "odd key")) == '$.nodes[0]["odd key"]'
    whole = json.dumps(value, ensure_ascii=False)
    if whole.isprintable():
        assert render(value) == (whole if len(whole) <= 60 else f"{whole[:57]}...")


# --- positions --------------------------------------------------------------------------------------------------------


def test_the_earlier_one_of_a_key_given_twice_has_its_own_place():
    text = '{"a": {"b": 1},\n "a": 5, "a": [1,\n 2]}'
    found = document_of(Path(), text)
    assert found.value == {"a": [1, 2]}
    assert [found.line_and_column(found.offset(f.place, f.at_key)) for f in found.faults] == [(2, 2), (2, 10)]
    places = {("a", 1): (3, 2), ("a", 7, "c"): (2, 15), ("x", "y"): (1, 1)}
    assert {at: found.line_and_column(found.offset(at)) for at in places} == places


def gaps(seed):
    """A source of what may stand between two tokens."""
    drawn = random.Random(seed)
    return lambda: "".join(drawn.choices([" ", "\n", "\t", '/* \n" */', '// "x\n', ""], k=drawn.randint(0, 3)))


@given(DOCUMENTS, st.integers())
def test_every_value_and_key_of_any_document_is_found(value, seed):
    spans = {}
    text = json_text(value, spans, gap=gaps(seed))
    found = parsed(text)
    assert found.value == value
    for (place, what), (offset, _) in spans.items():
        if what != "member":
            assert found.offset(place, what == "key") == offset
        line, column = found.line_and_column(offset)
        assert sum(len(part) + 1 for part in text.split("\n")[: line - 1]) + column - 1 == offset


# --- durations, sizes, CPUs and bandwidths ----------------------------------------------------------------------------

MIB, GIB = 1 << 20, 1 << 30
DURATIONS = {"3ms": 3_000_000, "500us": 500_000, "1.5ms": 1_500_000, "0ms": 0, "2s": 2 * 10**9, "100ns": 100}
SIZES = {"512m": 512 * MIB, "100M": 100 * MIB, "1g": GIB, "64m": 64 * MIB, "1.5g": 3 << 29, "7b": 7, "2K": 2048}
NO_DURATIONS = ("3", "3 ms", "-3ms", "3MS", "3m", "ms", "", "1e3ms", "0.5ns", "٣ms", ".5ms", "3ms\n", 3, None, True)
NO_CPUS = ("", "two", "1e3", "-1", -1, float("nan"), float("inf"), True, None, [1], 10**400)


def test_values_are_exact_and_written_as_people_write_them():
    cpus = {"8": 8, 1: 1, 0.2: Decimal("0.2"), "0.25": Decimal("0.25"), Decimal("1.50"): Decimal("1.5")}
    for parse, values in (
        (units.parse_duration, DURATIONS | {"0.1ms": 100_000}),  # no float
        (units.parse_size, SIZES),
        (units.parse_cpus, cpus),
        (units.parse_bandwidth, {1000: 10**9, 0.1: 10**5, 2500: 2_500_000_000}),
    ):
        assert {text: parse(text) for text in values} == values
    for text in (*DURATIONS, "1.001s", "1000.001us"):
        assert units.format_duration(units.parse_duration(text)) == text
    sizes = {0: "0 B", 1000: "1000 B", 512 * MIB: "512 MiB", 3 << 29: "1.5 GiB", 1 << 40: "1 TiB"}
    assert {size: units.describe_size(size) for size in sizes} == sizes


def test_what_has_no_known_unit_or_is_no_number_is_refused():
    for parse, words, values in (
        (units.parse_duration, "number", (*NO_DURATIONS, ["3ms"])),
        (units.parse_size, "number", ("512", "512mb", "-1m", "1 g", "m", "0.3b", 512, 1.5, None, True)),
        (units.parse_cpus, "cpus", NO_CPUS),
        (units.parse_bandwidth, "Mbit/s", ("1000", "1g", True, None, -1, float("nan"), 0.0000001, Decimal("Infinity"))),
    ):
        for value in values:
            with pytest.raises(ValueError, match=words):
                pytest.fail(f"{value!r} is {parse(value)!r}")


@given(st.integers(min_value=0, max_value=10**14))
def test_values_survive_being_written_and_read(value):
    assert units.parse_duration(units.format_duration(value)) == value
    assert units.parse_size(units.format_size(value)) == value
    assert units.parse_bandwidth(Decimal(units.format_mbps(value % 10**11))) == value % 10**11
