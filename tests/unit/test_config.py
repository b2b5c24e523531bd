from __future__ import annotations

import json
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from containernet_env.base import units
from containernet_env.base.errors import ConfigError
from containernet_env.config import CLIENT_NAME, load_config
from containernet_env.config.fields import RESERVED_NAMES
from containernet_env.model.link import LinkSpec
from containernet_env.model.topology import SWITCH_NAME

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def node(**changes):
    made = {"ip": "10.0.0.1", "mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": "3ms"} | changes
    return {key: value for key, value in made.items() if value is not ...}


def write(tmp_path, value):
    path = tmp_path / "config.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def problems(tmp_path, value):
    """Path -> (what is wrong, got, allowed) of every problem of a config."""
    path = write(tmp_path, value)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.file == str(path)
    return {problem.path: (problem.message, problem.got, problem.allowed or "") for problem in caught.value.problems}


def test_the_seeds_example_works_as_it_stands():
    config = load_config(CONFIGS / "2node-seed.json")
    assert [member.name for member in config.nodes] == ["etcd1", "etcd2"]
    first = config.nodes[0]
    assert (first.ip, first.memory_bytes, first.cpus) == (IPv4Address("10.0.0.251"), 100 << 20, Decimal(8))
    assert (first.rate_bps, first.delay_ns) == (10**9, 3_000_000)
    assert config.subnet == IPv4Network("10.0.0.0/24")
    assert (config.client.name, str(config.client.ip)) == (CLIENT_NAME, "10.0.0.254")
    assert config.client.link == LinkSpec()
    assert (config.client.memory_bytes, config.client.cpus, config.scenarios) == (None, None, None)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.name)
def test_every_config_we_ship_is_good(path):
    assert load_config(path).nodes


def test_the_shipped_configs_are_those_that_the_readme_names():
    names = {path.stem for path in CONFIGS.glob("*.json")}
    assert names >= {"3node-3ms", "2node-seed", "1node", "2node", "3node", "5node", "wan-50ms", "slow-10mbit"}


def test_the_client_takes_the_highest_free_address(tmp_path):
    assert str(load_config(write(tmp_path, [node(ip="10.0.0.254")])).client.ip) == "10.0.0.253"


def test_the_object_form_says_everything(tmp_path):
    path = write(
        tmp_path,
        {
            "subnet": "192.168.8.0/22",
            "nodes": [node(ip="192.168.9.1", name="a"), node(ip="192.168.11.2", cpus="unlimited", mem="unlimited")],
            "client": {"ip": "192.168.8.1", "mem": "1g", "cpus": "0.5", "bandwidth": 100, "link_delay": "1ms"},
            "etcd": {"heartbeat_interval": "200ms", "election_timeout": "1s", "data": "tmpfs"},
            "scenarios": "mine/x.json",
        },
    )
    config = load_config(path)
    assert [member.name for member in config.nodes] == ["a", "etcd2"]
    assert (config.nodes[1].cpus, config.nodes[1].memory_bytes) == (None, None)
    assert (config.client.memory_bytes, config.client.cpus) == (1 << 30, Decimal("0.5"))
    assert config.client.link == LinkSpec.symmetric(1_000_000, 10**8)
    assert (config.etcd.heartbeat_ms, config.etcd.election_ms, config.etcd.data) == (200, 1000, "tmpfs")
    assert config.scenarios == tmp_path / "mine/x.json"


def test_what_is_allowed_is_said_of_lists_that_are_missing_too(tmp_path):
    assert problems(tmp_path, {})["$.nodes"] == ("is missing", None, "a list of 1 to 100 entries")


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(min_value=1, max_value=253),
            st.integers(min_value=16 << 20, max_value=1 << 40),
            st.decimals(min_value="0.01", max_value=1024, places=3),
            st.none() | st.integers(min_value=10_000, max_value=10**11),
            st.integers(min_value=0, max_value=10**10),
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda row: row[0],
    )
)
def test_what_is_written_is_what_is_read(tmp_path_factory, rows):
    written = [
        node(
            ip=f"10.0.0.{last}",
            mem=units.format_size(memory),
            cpus=str(cpus),
            bandwidth="unlimited" if rate is None else "RATE",
            link_delay=units.format_duration(delay),
        )
        for last, memory, cpus, rate, delay in rows
    ]
    text = json.dumps(written)
    for row in rows:
        if row[3] is not None:
            # By hand: a float would round what a file can say.
            text = text.replace('"RATE"', units.format_mbps(row[3]), 1)
    config = load_config(write(tmp_path_factory.mktemp("config"), text))
    read = [(int(n.ip) & 255, n.memory_bytes, n.cpus, n.rate_bps, n.delay_ns) for n in config.nodes]
    assert read == rows


# Key, refused value, a word of what is allowed.
REFUSED = [
    ("ip", "10.0.0.999", "IPv4"),
    ("ip", "10.0.0.01", "IPv4"),
    ("ip", "10.0.0", "IPv4"),
    ("ip", "10.0.0.1/24", "IPv4"),
    ("ip", "::1", "IPv4"),
    ("ip", "127.0.0.1", "IPv4"),
    ("ip", "224.0.0.1", "IPv4"),
    ("ip", "0.0.0.0", "IPv4"),
    ("ip", 167772161, "IPv4"),
    ("ip", None, "IPv4"),
    ("mem", "512", "16 MiB to 16 TiB"),
    ("mem", 512, "16 MiB"),
    ("mem", "512mb", "16 MiB"),
    ("mem", "0m", "16 MiB"),
    ("mem", "15m", "16 MiB"),
    ("mem", "-512m", "16 MiB"),
    ("mem", "99999g", "16 TiB"),
    ("mem", True, "16 MiB"),
    ("cpus", 0, "0.01 to 1024"),
    ("cpus", -1, "0.01"),
    ("cpus", "-1", "0.01"),
    ("cpus", "two", "0.01"),
    ("cpus", 0.001, "0.01"),
    ("cpus", 100_000, "1024"),
    ("cpus", True, "0.01"),
    ("cpus", None, "0.01"),
    ("bandwidth", 0, "0.01 to 100000"),
    ("bandwidth", -5, "0.01"),
    ("bandwidth", 1e30, "100000"),
    ("bandwidth", "1000", "Mbit/s"),
    ("bandwidth", "1g", "Mbit/s"),
    ("bandwidth", False, "Mbit/s"),
    ("link_delay", "3", "3ms"),
    ("link_delay", 3, "3ms"),
    ("link_delay", "-3ms", "0 to 10s"),
    ("link_delay", "11s", "10s"),
    ("link_delay", "3 ms", "3ms"),
    ("link_delay", "3min", "3ms"),
    ("link_delay", {"ms": 3}, "3ms"),
]


@pytest.mark.parametrize(("key", "value", "allowed"), REFUSED)
def test_a_wrong_value_is_refused_with_what_is_allowed(tmp_path, key, value, allowed):
    found = problems(tmp_path, [node(ip="10.0.0.9"), node(**{key: value})])
    assert list(found) == [f"$[1].{key}"]
    _, got, said = found[f"$[1].{key}"]
    assert got is not None and json.loads(got) == value
    assert allowed in said


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999999999999999999999", "9" * 5000])
@pytest.mark.parametrize("key", ["cpus", "bandwidth"])
def test_numbers_that_json_does_not_have_are_refused_once(tmp_path, key, literal):
    found = problems(tmp_path, json.dumps([node(**{key: "HERE"})]).replace('"HERE"', literal))
    assert list(found) == [f"$[0].{key}"]
    assert found[f"$[0].{key}"][1][:8] == literal[:8]
    assert "from 0.01 to" in found[f"$[0].{key}"][2]


@pytest.mark.parametrize("key", ["ip", "mem", "cpus", "bandwidth", "link_delay"])
def test_in_a_node_every_key_is_needed(tmp_path, key):
    for wrap, path in ((lambda nodes: nodes, "$[0]"), (lambda nodes: {"nodes": nodes}, "$.nodes[0]")):
        found = problems(tmp_path, wrap([node(**{key: ...})]))
        message, got, allowed = found[f"{path}.{key}"]
        assert (message, got) == ("is missing", None)
        assert allowed


def test_a_typo_in_a_key_is_named_with_what_was_meant(tmp_path):
    found = problems(tmp_path, [node(bandwith=1)])
    message, got, allowed = found["$[0].bandwith"]
    assert 'did you mean "bandwidth"?' in message
    assert got == "1"
    assert "ip, mem, cpus, bandwidth, link_delay" in allowed


@pytest.mark.parametrize(
    ("value", "path", "allowed"),
    [
        ({"nodes": [node()], "node": 1}, "$.node", "subnet, nodes, client, store, etcd, zookeeper, scenarios"),
        ({"nodes": [node()], "client": {"speed": 1}}, "$.client.speed", "ip, mem, cpus"),
        ({"nodes": [node()], "etcd": {"heartbeat": "1ms"}}, "$.etcd.heartbeat", "heartbeat_interval"),
        ([node(name="a")], "$[0].name", "ip, mem"),
        ({"nodes": [node()], "client": None}, "$.client", "an object"),
        ({"nodes": {}}, "$.nodes", "a list"),
        ({"nodes": [node()], "etcd": {"data": "ram"}}, "$.etcd.data", '"disk" or "tmpfs"'),
        ({"nodes": [node()], "etcd": {"heartbeat_interval": "1.5ms"}}, "$.etcd.heartbeat_interval", "whole milli"),
        ({"nodes": [node()], "etcd": {"heartbeat_interval": 100}}, "$.etcd.heartbeat_interval", "100ms"),
        ({"nodes": [node()], "etcd": {"election_timeout": "51s"}}, "$.etcd.election_timeout", "50s"),
        (
            {"nodes": [node()], "etcd": {"heartbeat_interval": "100ms", "election_timeout": "499ms"}},
            "$.etcd.election_timeout",
            "500ms",
        ),
        ({"nodes": [node()], "scenarios": ""}, "$.scenarios", "a path"),
        ({"nodes": [node()], "subnet": "10.0.0.0/33"}, "$.subnet", "/8 to /30"),
        ({"nodes": [node()], "subnet": "10.0.0.1/24"}, "$.subnet", "host bits zero"),
        ({"nodes": [node()], "subnet": "127.0.0.0/24"}, "$.subnet", "10.0.0.0/24"),
        ({"nodes": [node(), node(ip="10.0.0.2")], "subnet": "10.0.0.0/30"}, "$.subnet", "/8 to /30"),
        ({"nodes": [node()], "client": {"ip": "10.0.0.1"}}, "$.client.ip", "once"),
        ({"nodes": [node()], "client": {"ip": "10.9.0.1"}}, "$.client.ip", "10.0.0.0/24"),
        ([node(), node()], "$[1].ip", "once"),
        ([node(), node(ip="10.0.1.1")], "$[1].ip", "10.0.0.0/24"),
        ([node(), node(ip="10.0.0.0")], "$[1].ip", "10.0.0.1 to 10.0.0.254"),
        ([node(), node(ip="10.0.0.255")], "$[1].ip", "10.0.0.1 to 10.0.0.254"),
        ([], "$", "at least 1"),
        ([node(ip=f"10.0.0.{i}") for i in range(1, 102)], "$", "at most 100"),
        ([1], "$[0]", "an object"),
        (7, "$", "a list of nodes"),
    ],
)
def test_a_wrong_shape_is_refused_with_what_is_allowed(tmp_path, value, path, allowed):
    found = problems(tmp_path, value)
    assert list(found) == [path]
    assert found[path][1] is not None
    assert allowed in found[path][2]


@pytest.mark.parametrize(
    "name", ["", "1a", "A", "a_b", "-a", "a" * 64, "ä", 5, None, "client", "benchmark", "s1", "link"]
)
def test_names_that_a_node_cannot_have(tmp_path, name):
    found = problems(tmp_path, {"nodes": [node(name=name)]})
    assert list(found) == ["$.nodes[0].name"]
    assert "a-z, 0-9 and -" in found["$.nodes[0].name"][2]


def test_a_name_given_twice_also_by_default(tmp_path):
    nodes = [node(name="etcd2"), node(ip="10.0.0.2"), node(ip="10.0.0.3", name="etcd2")]
    found = problems(tmp_path, {"nodes": nodes})
    assert list(found) == ["$.nodes[1].name", "$.nodes[2].name"]
    assert all("repeats the name at $.nodes[0].name" in message for message, _, _ in found.values())


def test_the_names_of_the_run_itself_are_reserved():
    assert {SWITCH_NAME, CLIENT_NAME} <= RESERVED_NAMES


def test_every_problem_is_reported_at_once_in_the_files_order(tmp_path):
    text = """[ // all wrong
      {"ip": "10.0.0.999", "mem": "512", "cpus": true, "bandwith": 10, "link_delay": "3"},
      {"ip": "10.0.0.2", "mem": "1m", "cpus": 0, "bandwidth": NaN, "link_delay": "-3ms", "mem": "2m"},
      {"ip": "10.0.0.2", "mem": "1g", "cpus": 1, "bandwidth": 1, "link_delay": "1s"},
      {"ip": "10.0.7.2", "mem": "1g", "cpus": 1, "bandwidth": 1, "link_delay": "1s"}
    ]"""
    assert list(problems(tmp_path, text)) == [
        "$[0].bandwidth",
        "$[0].ip",
        "$[0].mem",
        "$[0].cpus",
        "$[0].bandwith",
        "$[0].link_delay",
        "$[1].cpus",
        "$[1].bandwidth",
        "$[1].link_delay",
        "$[1].mem",
        "$[2].ip",
        "$[3].ip",
    ]


def test_the_message_is_one_block_with_a_line_per_problem(tmp_path):
    path = write(tmp_path, json.dumps([node(cpus=0), node(ip="10.0.0.2", link_delay="3 ms")], indent=1))
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).splitlines() == [
        f"{path} is refused:",
        '  line 5, column 11, $[0].cpus: is out of range; got 0; allowed: a number such as 1, 0.5 or "2", '
        'from 0.01 to 1024, or "unlimited"',
        "  line 14, column 17, $[1].link_delay: is not a delay, no space between number and unit: "
        'write "3ms"; got "3 ms"; allowed: a number with s, ms, us or ns such as "3ms", from 0 to 10s',
    ]


def test_a_list_of_very_many_problems_is_cut(tmp_path):
    nodes = [dict.fromkeys(("ip", "mem", "cpus", "bandwidth", "link_delay"))] * 60
    path = write(tmp_path, nodes)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert len(caught.value.problems) == 300
    assert len(str(caught.value).splitlines()) == 202
    assert str(caught.value).endswith("  and 100 more")


def test_the_leader_is_a_node_of_the_file(tmp_path):
    nodes = [node(name="near1"), node(ip="10.0.0.2")]
    for name in ("near1", "etcd2"):
        assert load_config(write(tmp_path, {"nodes": nodes, "etcd": {"leader": name}})).etcd.leader == name
    assert load_config(write(tmp_path, {"nodes": nodes})).etcd.leader is None
    for name, said in {
        "near2": 'is not the name of a node, did you mean "near1"?',
        "etcd1": 'is not the name of a node, did you mean "etcd2"?',
        "other": "is not the name of a node",
    }.items():
        found = problems(tmp_path, {"nodes": nodes, "etcd": {"leader": name}})
        assert found == {"$.etcd.leader": (said, f'"{name}"', "near1, etcd2")}
    assert list(problems(tmp_path, {"nodes": nodes, "etcd": {"leader": 1}})) == ["$.etcd.leader"]
    assert list(problems(tmp_path, {"nodes": nodes, "etcd": {"leader": "benchmark"}})) == ["$.etcd.leader"]


def test_a_leader_is_not_told_to_be_wrong_where_a_name_is(tmp_path):
    """It may be the one that was meant."""
    found = problems(tmp_path, {"nodes": [node(name="Near1")], "etcd": {"leader": "near1"}})
    assert list(found) == ["$.nodes[0].name"]
