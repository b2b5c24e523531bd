"""Sites: the network that a file with round-trip times between places means, and what is refused."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.plan import PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.model.config import Config
from containernet_env.model.link import DirectionSpec, IndependentLoss, Jitter
from containernet_env.model.topology import Topology, network_of
from containernet_env.runs.reuse import standing_key
from containernet_env.runs.sweep.design import design
from tests.unit.blocks import write
from tests.unit.test_config import comes_back

MS, MBIT = 10**6, 10**6
HOST = {"mem": "64m", "cpus": 1}
THREE = {"eu-us": "80ms", "eu-asia": "200ms", "us-asia": "150ms"}


def at(*sites: str, **more: Any) -> list[dict[str, Any]]:
    return [HOST | {"site": site} | more for site in sites]


def read(tmp_path: Path, nodes: list[dict[str, Any]], **top: Any) -> Config:
    return load_config(write(tmp_path, {"nodes": nodes, **top}))


def delays_ms(topology: Topology) -> dict[str, float]:
    """One way between all hosts."""
    names = [host.name for host in topology.hosts]
    ways = [(a, b) for one, two in combinations(names, 2) for a, b in ((one, two), (two, one))]
    return {f"{a}>{b}": sum(hop.delay_ns for hop in topology.path(a, b)) / MS for a, b in ways}


def test_the_round_trips_of_a_matrix_hold_between_hosts_whatever_is_shorter_over_a_third_site(tmp_path: Path) -> None:
    config = read(tmp_path, at("eu", "us", "asia"), rtt=THREE | {"us-asia": "90ms"})
    found = delays_ms(network_of(config))
    assert (found["etcd1>etcd2"], found["etcd1>etcd3"], found["etcd2>etcd3"]) == (40, 100, 45)
    assert config.clients[0].site == "eu" and found["benchmark>etcd1"] == 0
    assert [str(node.ip) for node in config.hosts] == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.254"]


def test_hosts_of_a_site_have_its_delay_and_bandwidth_unless_their_own_are_given(tmp_path: Path) -> None:
    sites = {"eu": {"rtt": "1ms", "bandwidth": 100}, "us": {}}
    nodes = at("eu", count=2) + at("us", bandwidth=5, link_delay="7ms")
    config = read(tmp_path, nodes, sites=sites, rtt={"eu-us": "80ms"}, client={"site": "us", "link_delay": "1ms"})
    found = delays_ms(network_of(config))
    assert (found["etcd1>etcd2"], found["etcd1>etcd3"], found["etcd2>benchmark"]) == (0.5, 47, 41)
    assert [node.link.a_to_b.rate_bps for node in config.hosts] == [100 * MBIT, 100 * MBIT, 5 * MBIT, None]


def test_a_links_details_go_with_the_delay_and_bandwidth_of_the_site(tmp_path: Path) -> None:
    link = {"jitter": {"distribution": "uniform", "value": "1ms"}, "queue": 5}
    config = read(tmp_path, at("eu", link=link), sites={"eu": {"rtt": "8ms", "bandwidth": 10}})
    assert config.nodes[0].link.b_to_a == DirectionSpec(2 * MS, 10 * MBIT, 5, jitter=Jitter("uniform", MS))


def test_a_way_may_be_given_for_each_direction_and_with_what_else_its_link_does(tmp_path: Path) -> None:
    own = {"delay": "50ms", "bandwidth": 10, "loss": 0.25}
    config = read(tmp_path, at("eu", "us"), sites={"eu": {"rtt": "2ms"}}, rtt={"eu>us": own, "us>eu": "30ms"})
    (link,) = config.switch_links
    assert (link.a, link.b) == ("eu", "us")
    assert link.spec.a_to_b == DirectionSpec(49_500_000, 10 * MBIT, loss=IndependentLoss(0.25))
    assert link.spec.b_to_a == DirectionSpec(29_500_000)


def test_sites_without_a_link_of_their_own_are_reached_over_others(tmp_path: Path) -> None:
    config = read(tmp_path, at("a-b", "c", "d"), rtt={"a-b-c": "10ms", "c-d": "20ms"})
    assert delays_ms(network_of(config))["etcd1>etcd3"] == 15
    assert not network_of(config).has_loop


TABLE = """# measured by hand
,eu,us,asia
eu,1,80,200ms
us,90,,150
asia,200,150,2
"""


def test_a_table_gives_round_trips_between_and_within_sites(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(TABLE)
    config = read(tmp_path, at("eu", "us", "us"), rtt="own.csv")
    found = delays_ms(network_of(config))
    assert config.sites == ("eu", "us"), "those that hosts name"
    assert (found["etcd1>etcd2"], found["etcd2>etcd1"], found["etcd2>etcd3"]) == (40, 45, 0)
    assert found["etcd1>benchmark"] == 0.5


NO_TABLES = {
    "empty": "",
    "names alone": ",eu\n",
    "wrong cells": ",eu,us\neu,1,x\nus,-3,1\nus,1,2,3\n",
    "others": ",eu,asia\neu,,80\nasia,80,\n",
    "a name twice": ",eu,us,us\neu,,80,90\nus,80,,\n",
    "no way back": ",eu,us\neu,,80\nus,,\n",
    "a long cell": f',eu,us\neu,,"{"8" * 140_000}"\n',
}


@pytest.mark.parametrize("table", NO_TABLES)
def test_a_table_that_is_none_is_refused(tmp_path: Path, table: str, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "own.csv").write_text(NO_TABLES[table])
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, at("eu", "us"), rtt="own.csv")
    assert str(caught.value).replace(str(tmp_path), "") == snapshot


REFUSED: dict[str, dict[str, Any]] = {
    "a pair of others": {"nodes": at("eu", "asia"), "rtt": {"eu-us": "80ms"}},
    "a pair that may be two": {"nodes": at("a", "b-c", "a-b", "c"), "rtt": {"a-b-c": "80ms"}},
    "said twice": {"nodes": at("eu", "us"), "rtt": {"eu-us": "80ms", "us-eu": "80ms"}},
    "no way back": {"nodes": at("eu", "us"), "rtt": {"eu>us": "80ms"}},
    "no way": {"nodes": at("eu", "us", "asia"), "rtt": {"eu-us": "80ms"}},
    "no round trips": {"nodes": at("eu", "us")},
    "shorter than the hosts' links": {
        "nodes": at("eu", "us"), "sites": {"eu": {"rtt": "90ms"}, "us": {"rtt": "90ms"}}, "rtt": {"eu-us": "80ms"},
    },
    "jitter longer than the link": {
        "nodes": at("eu", "us"),
        "rtt": {"eu-us": {"delay": "1ms", "jitter": {"distribution": "uniform", "value": "2ms"}}},
    },
    "of a host": {"nodes": at("eu", "us"), "rtt": {"eu-us": {"bandwidth": 10, "uplink": "host"}}},
    "a node nowhere": {
        "nodes": [*at("eu", "us"), HOST | {"bandwidth": 1, "link_delay": "1ms"}], "rtt": {"eu-us": "1ms"},
    },
    "no host at a site": {"nodes": [HOST | {"bandwidth": 1, "link_delay": "1ms"}], "rtt": "aws-2025"},
    "a name twice": {"nodes": [*at("eu"), *at("us", name="eu")], "rtt": {"eu-us": "1ms"}},
    "one way too long": {"nodes": at("eu", "us"), "rtt": {"eu>us": "15s", "us>eu": "1s"}},
    "a queue without a bandwidth": {"nodes": at("eu", "us"), "rtt": {"eu-us": {"delay": "1ms", "queue": 5}}},
    "two links of one name": {"nodes": at("a", "b-c", "a-b", "c"), "rtt": {"a>b-c": "1ms", "b-c>a": "1ms",
        "a-b>c": "1ms", "c>a-b": "1ms", "a>c": "1ms", "c>a": "1ms"}},
    "jitter longer than the site's delay": {
        "sites": {"eu": {"rtt": "8ms"}},
        "nodes": at("eu", link={"jitter": {"distribution": "uniform", "value": "3ms"}, "queue": 5}),
    },
    "a leader of several": {
        "nodes": [HOST | {"bandwidth": 1, "link_delay": "1ms", "count": 3}], "etcd": {"leader": "etcd4"},
    },
    "a name with a number": {"nodes": at("eu", name="s", count=2) + at("eu", name="m" * 63, count=2)},
    "no table": {"nodes": at("eu", "us"), "rtt": "nowhere"},
    "no file": {"nodes": at("eu", "us"), "rtt": "nowhere.csv"},
    "an address of several": {"nodes": at("eu", count=2, ip="10.0.0.1")},
    "too many": {"nodes": at("eu", count=160) * 2},
    "a subnet too small": {"nodes": at("eu", count=6), "subnet": "10.0.0.0/29"},
    "too slow for elections, a count": {
        "nodes": [HOST | {"bandwidth": 1, "link_delay": "200ms", "count": 3}], "etcd": {"election_timeout": "1000ms"},
    },
    "too slow for elections": {
        "nodes": at("eu", "us"), "rtt": {"eu-us": "300ms"}, "etcd": {"election_timeout": "1000ms"},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, REFUSED[name]))
    assert str(caught.value).replace(str(tmp_path), "") == snapshot


def test_loops_need_the_link_emulator_and_reuse_the_same_routes(tmp_path: Path) -> None:
    looped = read(tmp_path, at("eu", "us", "asia"), rtt=THREE)
    for options, why in (({"links": "netem"}, "close a loop"), ({"engine": "containernet"}, "has sites")):
        with pytest.raises(UsageError, match=why):
            build_plan(looped, None, PlanOptions(2, **options))
    line = build_plan(read(tmp_path, at("eu", "us"), rtt={"eu-us": "1ms"}), None, PlanOptions(2, links="netem"))
    assert line.topology.routes() == {"eu": {"us": "eu-us"}, "us": {"eu": "eu-us"}}
    some = {"a-b": "10ms", "b-d": "10ms", "a-c": "20ms", "c-d": "20ms"}
    both = (read(tmp_path, at(*"abcd"), rtt=rtt) for rtt in (some, some | {"a-b": "90ms"}))
    keys = {standing_key(build_plan(config, None, PlanOptions(2))) for config in both}
    assert len(keys) == 2, "from a to d over another site"


ONE = {"total": 1, "clients": 1, "conns": 1}
LOADS = {"scenarios": [{"type": "read", "consistency": "l", "target": ["nearest", "cluster"], "load": ONE}]}


def test_addresses_are_assigned_in_any_subnet(tmp_path: Path) -> None:
    config = read(tmp_path, [HOST | {"bandwidth": 1, "link_delay": "0s", "count": 2}], subnet="10.0.0.0/8")
    assert [str(node.ip) for node in config.hosts] == ["10.0.0.1", "10.0.0.2", "10.255.255.254"]


def test_the_nearest_member_is_that_of_the_clients_site(tmp_path: Path) -> None:
    (tmp_path / "loads.json").write_text(json.dumps(LOADS))
    scenarios = load_scenarios(tmp_path / "loads.json")
    found = {}
    for site in ("eu", "us", "asia", "sea"):
        rtt = THREE | {"sea-us": "200ms", "sea-asia": "10ms"}
        config = read(tmp_path, at("eu", "us", "asia"), sites={"sea": {}}, rtt=rtt, client={"site": site})
        near, all_members = build_plan(config, scenarios, PlanOptions(2)).scenarios
        assert all_members.scheduled.scenario.member is None
        found[site] = near.scheduled.scenario.member, near.scheduled.identity
        assert near.scheduled.scenario.name == "read-nearest-linearizable-1x1x1"
    assert [member for member, _ in found.values()] == ["etcd1", "etcd2", "etcd3", "etcd3"]
    assert len({identity for _, identity in found.values()}) == 1, "one scenario, whatever the topology"


def test_a_sweep_varies_the_site_of_the_client(tmp_path: Path) -> None:
    path = write(tmp_path, {"nodes": at("eu", "us"), "rtt": {"eu-us": "80ms"}})
    found = design(path, settings=["client.site=eu,us", "leader=etcd2"], quick=True)
    assert [bed.plan.config.clients[0].site for bed in found.beds] == ["eu", "us"]


@given(st.lists(st.lists(st.none() | st.integers(0, 10**4), min_size=6, max_size=6), min_size=2, max_size=6))
def test_any_sites_come_back(tmp_path_factory: pytest.TempPathFactory, matrix: list[list[int | None]]) -> None:
    names = [f"s{number}x" for number in range(len(matrix))]
    rtt: dict[str, Any] = {f"{one}-{two}": "1ms" for one, two in pairwise(names)}
    for one, row in zip(names, matrix, strict=True):
        for two, delay_us in zip(names, row, strict=False):
            if delay_us is not None and f"{one}-{two}" not in rtt and f"{two}-{one}" not in rtt and one != two:
                rtt[f"{one}>{two}"], rtt[f"{two}>{one}"] = {"delay": f"{delay_us}us", "loss": 0.5}, f"{delay_us}us"
    value = {"nodes": at(*names), "rtt": rtt, "client": {"site": names[-1]}}
    config = comes_back(tmp_path_factory.mktemp("sites"), value)
    assert network_of(config).routes().keys() == set(names)
