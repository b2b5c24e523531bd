from __future__ import annotations

import json
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containernet_env.base import units
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


def test_the_names_of_the_run_itself_are_reserved():
    assert {SWITCH_NAME, CLIENT_NAME} <= RESERVED_NAMES


def test_the_leader_is_a_node_of_the_file(tmp_path):
    nodes = [node(name="near1"), node(ip="10.0.0.2")]
    for name in ("near1", "etcd2"):
        assert load_config(write(tmp_path, {"nodes": nodes, "etcd": {"leader": name}})).etcd.leader == name
    assert load_config(write(tmp_path, {"nodes": nodes})).etcd.leader is None
