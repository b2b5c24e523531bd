"""Places of hosts: the paths that any graph of switches means, also while links are down; the network that round-trip
times between sites mean; and what is refused."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.plan import PlanOptions, config_hash
from containernet_env.config.planning import build_plan
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.model.config import Config
from containernet_env.model.disruption import Disruptions, ExecutedEvent, Targets, explains_election
from containernet_env.model.link import DirectionSpec, Hop, IndependentLoss, Jitter
from containernet_env.model.topology import Topology, network_of
from containernet_env.network.emulator import Answer, LinkEmulator
from containernet_env.runs.reuse import change_between, standing_key
from containernet_env.runs.sweep.design import design
from tests.simulated_time import chosen
from tests.unit.blocks import write
from tests.unit.simulated import changed, gate, wrong
from tests.unit.test_config import comes_back

US, MS, MBIT = 10**3, 10**6, 10**6
HOST = {"mem": "64m", "cpus": 1}
OWN = {"bandwidth": "unlimited", "link_delay": "0s"}
RING = {"a-b": "5ms", "b-c": "5ms", "c-d": "5ms", "d-a": "20ms"}
THREE = {"eu-us": "80ms", "eu-asia": "200ms", "us-asia": "150ms"}
NETEM = PlanOptions(2, links="netem")


def at(*switches: str, **more: Any) -> list[dict[str, Any]]:
    return [HOST | OWN | {"switch": switch} | more for switch in switches]


def of(*sites: str, **more: Any) -> list[dict[str, Any]]:
    return [HOST | {"site": site} | more for site in sites]


def read(tmp_path: Path, nodes: list[dict[str, Any]], **top: Any) -> Config:
    return load_config(write(tmp_path, {"nodes": nodes, **top}))


def ring(tmp_path: Path, **top: Any) -> Config:
    return read(tmp_path, at("a", "b", "d"), links=RING, switches=[*"abcd"], **top)


def names_of(hops: tuple[Hop, ...]) -> list[str]:
    return [hop.name for hop in hops]


def test_frames_take_the_least_delay_over_switches_without_hosts_too(tmp_path: Path) -> None:
    network = network_of(ring(tmp_path))
    assert names_of(network.hops("etcd1", "etcd3")) == ["etcd1>a", "a>b", "b>c", "c>d", "d>etcd3"]
    assert network.expected_rtt_ns("etcd1", "etcd3") == 30 * MS and network.has_loop and not network.reroutes
    assert [link.name for link in network.unused] == ["a-d"]
    assert names_of(network.hops("etcd1", "etcd2", ["a-b"])) == names_of(network.hops("etcd1", "etcd2"))


def drawn(random: Random) -> dict[str, Any]:
    """A file with a random graph, connected, with more links than it needs where there is room for them."""
    names = [f"n{number}" for number in range(random.randint(2, 7))]
    links: dict[str, Any] = {}
    for number, b in enumerate(names):
        for a in names[:number]:
            if a == names[number - 1] or random.random() < 0.4:
                there, back = (f"{random.randint(0, 9)}ms" for _ in "ab")
                links |= {f"{a}>{b}": there, f"{b}>{a}": {"delay": back, "bandwidth": 1000}}
    random.shuffle(names)
    loops = len(links) // 2 >= len(names)
    return {"switches": names, "links": links, "nodes": at(*names), "client": {"switch": names[-1]}} | (
        {"reroute": True} if loops else {}
    )


@pytest.mark.parametrize("seed", chosen(6, many=300))
def test_the_gate_proves_random_graphs_and_finds_a_wrong_link(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    network = network_of(comes_back(tmp_path, drawn(random)))
    found = wrong(gate(network, seed))
    assert not found or not found & wrong(gate(network, seed + 1)), "chance makes one gate wrong, not two"
    used = {hop.name for a, b in permutations([host.name for host in network.hosts], 2) for hop in network.hops(a, b)}
    name = random.choice([hop for link in network.between if (hop := f"{link.a}>{link.b}") in used])
    found = wrong(gate(network, seed, changed([name], delay_ns=25 * MS)))
    assert any(name in subject for subject, _ in found), "it, or a path that it is part of"


def test_a_default_queue_fits_the_ways_around(tmp_path: Path) -> None:
    links = {pair: {"delay": delay, "bandwidth": 1000} for pair, delay in RING.items()}
    for reroute, least_ms in ((False, 0), (True, 2 * 30)):
        top = {"reroute": True} if reroute else {}
        network = network_of(read(tmp_path, at("a", "b", "d"), links=links, switches=[*"abcd"], **top))
        assert network.longest_rtts_ns["a-d"] == least_ms * MS
        (unused,) = [link.spec.a_to_b.default_queue_frames for link in network.links if link.name == "a-d"]
        assert unused == (4954 if reroute else 2000)


def test_the_driver_sends_the_routes_with_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, sent = network_of(ring(tmp_path, reroute=True)), list[tuple[str, dict[str, Any]]]()
    emulator = LinkEmulator(None, lambda *_: None)
    monkeypatch.setattr(emulator, "request", lambda op, **fields: sent.append((op, fields)) or Answer({}, len(sent)))
    emulator.plug_between("a-b", False)
    emulator.plug_between("a-b", True)
    emulator.route(network.routes(), network.routes)
    assert [emulator.plug_between(*change) for change in (("a-b", False), ("c-d", False), ("a-b", True))] == [4, 5, 6]
    down = ([], ["a-b"], ["a-b", "c-d"], ["c-d"])
    assert [fields["switches"] for _, fields in sent] == [None, None, *map(network.routes, down)]
    assert [fields for _, fields in sent][3] == {"name": "a-b", "up": False, "switches": network.routes(["a-b"])}


def test_the_rule_of_the_paths_and_rerouting_are_configured(tmp_path: Path) -> None:
    """Rows of one hash merge, and plans of one key follow each other on a testbed."""
    mesh = {"a-b": "5ms", "b-c": "5ms", "a-c": "5ms"}
    sites = load_config(write(tmp_path, {"nodes": of(*"abc", **OWN), "rtt": mesh}))
    links = dict.fromkeys(mesh, "2500us")
    configs = [
        sites,
        *(read(tmp_path, at(*"abc"), links=links, switches=[*"abc"], **top) for top in ({}, {"reroute": True})),
    ]
    plans = [build_plan(config, None, PlanOptions(2)) for config in configs]
    assert plans[0].links == plans[1].links
    assert len({config_hash(plan) for plan in plans}) == 3
    assert standing_key(plans[1]) != standing_key(plans[2])
    slower = read(tmp_path, at(*"abc"), links=links | {"a-b": "3ms"}, switches=[*"abc"], reroute=True)
    assert change_between(plans[2], build_plan(slower, None, PlanOptions(2))) is not None, "the same paths"


SIZES = {"keySize": 8, "valSize": 256}


def scenarios_with(tmp_path: Path, *events: dict[str, Any]) -> Any:
    load = {"duration": "30s", "clients": 10, "conns": 2, "rate": 100}
    block = {"type": "write", "target": "cluster", "load": load, "data": SIZES, "events": list(events)}
    return load_scenarios(write(tmp_path, {"scenarios": [block]}, "loads.json"))


def test_events_name_links_between_switches(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    down = {"at": "1s", "link": "down", "of": "a-b", "for": "1s"}
    shaped = {"at": "3s", "delay": "50ms", "of": "c-d"}
    for config in (ring(tmp_path, reroute=True), ring(tmp_path)):
        plan = build_plan(config, scenarios_with(tmp_path, down, shaped), PlanOptions(2))
        (planned,) = plan.scenarios
        assert [event.target for event in planned.scheduled.scenario.events] == ["a-b", "c-d"]
    of_both = ({"at": "1s", "partition": "a", "for": "1s"}, {"at": "3s", "delay": "50ms", "of": "b>a"})
    assert build_plan(ring(tmp_path), scenarios_with(tmp_path, *of_both), PlanOptions(2)).scenarios
    targets = Targets.of(ring(tmp_path))
    assert (targets.members_of("a"), targets.members_of("a-b")) == (("etcd1",), ())
    assert (targets.links_of("b-a", False), targets.links_of("b-a", True)) == (("a-b",), ("a>b", "b>a"))
    assert (targets.links_of("b>a", True), targets.links_of("b>a", False)) == (("b>a",), ())
    wrong_ones = (
        {"at": "1s", "link": "down", "of": "a-c"},
        {"at": "1s", "kill": "a-b"},
        {"at": "1s", "link": "down", "of": "a-d"},
        {"at": "1s", "delay": "1ms", "of": "d>a"},
        {"at": "1s", "delay": "1ms", "of": "b-c"},
        {"at": "1s", "link": "down", "of": "etcd1-a"},
    )
    jittery = RING | {"b-c": {"delay": "5ms", "jitter": {"distribution": "uniform", "value": "2ms"}}}
    config = read(tmp_path, at("a", "b", "d"), links=jittery, switches=[*"abcd"])
    with pytest.raises(ConfigError) as caught:
        build_plan(config, scenarios_with(tmp_path, *wrong_ones), PlanOptions(2))
    assert str(caught.value).replace(str(tmp_path), "") == snapshot


def down(name: str, at_s: float, leader: str | None) -> ExecutedEvent:
    at_ns = int(at_s * 1e9)
    return ExecutedEvent(1, 1, "event", "link_down", name, None, (name,), at_ns, at_ns, at_ns, leader)


@pytest.mark.parametrize(
    ("events", "reroute", "explained"),
    [
        ((down("a-b", 1, "etcd1"),), False, True),  # etcd1 is alone
        ((down("a-b", 1, "etcd3"),), False, False),  # etcd3 reaches etcd2
        ((down("a-b", 1, None),), False, True),  # etcd1 led at the start
        ((down("a-b", 1, "etcd1"),), True, False),  # over d
        ((down("a-b", 1, "etcd1"), down("a-d", 2, "etcd1")), True, True),  # nothing is left
        ((down("b-c", 1, "etcd1"), down("a-d", 2, "etcd1")), True, False),  # b is
        ((down("a-d", 1, "etcd1"),), False, False),  # that link has no traffic
    ],
)
def test_a_link_explains_an_election_where_the_paths_say_so(
    tmp_path: Path, events: tuple[ExecutedEvent, ...], reroute: bool, explained: bool
) -> None:
    network = network_of(ring(tmp_path, **({"reroute": True} if reroute else {})))
    members = [member.name for member in network.members]
    leader = events[0].leader or "etcd1"
    assert explains_election(Disruptions("1", events), leader, members, network.crossed, 10**9) is explained


def test_a_sweep_varies_links_between_switches_and_where_a_host_is(tmp_path: Path) -> None:
    path = write(tmp_path, {"nodes": at("a", "b", "d"), "switches": [*"abcd"], "links": RING})
    found = design(path, settings=["b-c.link_delay=5ms,40ms", "client.switch=a,c", "leader=etcd2"], quick=True)
    plans = [bed.plan for bed in found.beds]
    assert sorted((link_of(plan.topology, "b-c"), plan.config.clients[0].switch) for plan in plans) == [
        (5, "a"), (5, "c"), (40, "a"), (40, "c"),
    ]  # fmt: skip
    sites = {"nodes": of(*"ab", **OWN), "rtt": {"a-b": "80ms"}}
    found = design(write(tmp_path, sites), settings=["a-b.loss=0,0.1", "client.site=a,b", "leader=etcd2"], quick=True)
    configs = [bed.plan.config for bed in found.beds]
    assert sorted((one.switch_links[0].spec.b_to_a.loss.ratio, one.clients[0].site) for one in configs) == [
        (0, "a"), (0, "b"), (0.1, "a"), (0.1, "b"),
    ]  # fmt: skip
    for setting, why in (
        ("a-b.cpus=1", "which has no cpus"), ("a-z.loss=0", "the links between switches a-b"),
        ("client.switch=a", "no switch of the topology, whose switches are: none"),
    ):  # fmt: skip
        with pytest.raises((ConfigError, UsageError), match=why):
            design(tmp_path / "scenarios.json", settings=[setting], quick=True)


def link_of(topology: Topology, name: str) -> int:
    (delay_ns,) = [link.spec.a_to_b.delay_ns for link in topology.links if link.name == name]
    return delay_ns // MS


# --- sites ------------------------------------------------------------------------------------------------------------


def test_loops_need_the_link_emulator_and_reuse_the_same_routes(tmp_path: Path) -> None:
    sites = read(tmp_path, of("eu", "us", "asia"), rtt=THREE)
    for looped, places in ((sites, "sites"), (ring(tmp_path), "switches")):
        for options, why in (({"links": "netem"}, "close a loop"), ({"engine": "containernet"}, f"has {places}")):
            with pytest.raises(UsageError, match=why):
                build_plan(looped, None, PlanOptions(2, **options))
    build_plan(read(tmp_path, at("a", "b"), links={"a-b": "1ms"}, switches=["a", "b"]), None, NETEM)
    line = build_plan(read(tmp_path, of("eu", "us"), rtt={"eu-us": "1ms"}), None, NETEM)
    assert line.topology.routes() == {"eu": {"us": "eu-us"}, "us": {"eu": "eu-us"}}
    some = {"a-b": "10ms", "b-d": "10ms", "a-c": "20ms", "c-d": "20ms"}
    both = (read(tmp_path, of(*"abcd"), rtt=rtt) for rtt in (some, some | {"a-b": "90ms"}))
    keys = {standing_key(build_plan(config, None, PlanOptions(2))) for config in both}
    assert len(keys) == 2, "from a to d over another site"


def delays_ms(topology: Topology) -> dict[str, float]:
    """One way between all hosts."""
    names = [host.name for host in topology.hosts]
    ways = [(a, b) for one, two in combinations(names, 2) for a, b in ((one, two), (two, one))]
    return {f"{a}>{b}": sum(hop.delay_ns for hop in topology.path(a, b)) / MS for a, b in ways}


def test_the_round_trips_of_a_matrix_hold_between_hosts_whatever_is_shorter_over_a_third_site(tmp_path: Path) -> None:
    config = read(tmp_path, of("eu", "us", "asia"), rtt=THREE | {"us-asia": "90ms"})
    found = delays_ms(network_of(config))
    assert (found["etcd1>etcd2"], found["etcd1>etcd3"], found["etcd2>etcd3"]) == (40, 100, 45)
    assert config.clients[0].site == "eu" and found["benchmark>etcd1"] == 0
    assert [str(node.ip) for node in config.hosts] == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.254"]


def test_hosts_of_a_site_have_its_delay_and_bandwidth_unless_their_own_are_given(tmp_path: Path) -> None:
    sites = {"eu": {"rtt": "1ms", "bandwidth": 100}, "us": {}}
    nodes = of("eu", count=2) + of("us", bandwidth=5, link_delay="7ms")
    config = read(tmp_path, nodes, sites=sites, rtt={"eu-us": "80ms"}, client={"site": "us", "link_delay": "1ms"})
    found = delays_ms(network_of(config))
    assert (found["etcd1>etcd2"], found["etcd1>etcd3"], found["etcd2>benchmark"]) == (0.5, 47, 41)
    assert [node.link.a_to_b.rate_bps for node in config.hosts] == [100 * MBIT, 100 * MBIT, 5 * MBIT, None]


def test_a_links_details_go_with_the_delay_and_bandwidth_of_the_site(tmp_path: Path) -> None:
    link = {"jitter": {"distribution": "uniform", "value": "1ms"}, "queue": 5}
    config = read(tmp_path, of("eu", link=link), sites={"eu": {"rtt": "8ms", "bandwidth": 10}})
    assert config.nodes[0].link.b_to_a == DirectionSpec(2 * MS, 10 * MBIT, 5, jitter=Jitter("uniform", MS))


def test_a_way_may_be_given_for_each_direction_and_with_what_else_its_link_does(tmp_path: Path) -> None:
    own = {"delay": "50ms", "bandwidth": 10, "loss": 0.25}
    config = read(tmp_path, of("eu", "us"), sites={"eu": {"rtt": "2ms"}}, rtt={"eu>us": own, "us>eu": "30ms"})
    (link,) = config.switch_links
    assert (link.a, link.b) == ("eu", "us")
    assert link.spec.a_to_b == DirectionSpec(49_500_000, 10 * MBIT, loss=IndependentLoss(0.25))
    assert link.spec.b_to_a == DirectionSpec(29_500_000)


def test_sites_without_a_link_of_their_own_are_reached_over_others(tmp_path: Path) -> None:
    config = read(tmp_path, of("a-b", "c", "d"), rtt={"a-b-c": "10ms", "c-d": "20ms"})
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
    config = read(tmp_path, of("eu", "us", "us"), rtt="own.csv")
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
        read(tmp_path, of("eu", "us"), rtt="own.csv")
    assert str(caught.value).replace(str(tmp_path), "") == snapshot


ONE = {"total": 1, "clients": 1, "conns": 1}
LOADS = {"scenarios": [{"type": "read", "consistency": "l", "target": ["nearest", "cluster"], "load": ONE}]}


def test_addresses_are_assigned_in_any_subnet(tmp_path: Path) -> None:
    config = read(tmp_path, [HOST | {"bandwidth": 1, "link_delay": "0s", "count": 2}], subnet="10.0.0.0/8")
    assert [str(node.ip) for node in config.hosts] == ["10.0.0.1", "10.0.0.2", "10.255.255.254"]


def test_the_nearest_member_is_that_of_the_clients_site(tmp_path: Path) -> None:
    scenarios = load_scenarios(write(tmp_path, LOADS, "loads.json"))
    found = {}
    for site in ("eu", "us", "asia", "sea"):
        rtt = THREE | {"sea-us": "200ms", "sea-asia": "10ms"}
        config = read(tmp_path, of("eu", "us", "asia"), sites={"sea": {}}, rtt=rtt, client={"site": site})
        near, all_members = build_plan(config, scenarios, PlanOptions(2)).scenarios
        assert all_members.scheduled.scenario.member is None
        found[site] = near.scheduled.scenario.member, near.scheduled.identity
        assert near.scheduled.scenario.name == "read-nearest-linearizable-1x1x1"
    assert [member for member, _ in found.values()] == ["etcd1", "etcd2", "etcd3", "etcd3"]
    assert len({identity for _, identity in found.values()}) == 1, "one scenario, whatever the topology"


@given(st.lists(st.lists(st.none() | st.integers(0, 10**4), min_size=6, max_size=6), min_size=2, max_size=6))
def test_any_sites_come_back(tmp_path_factory: pytest.TempPathFactory, matrix: list[list[int | None]]) -> None:
    names = [f"s{number}x" for number in range(len(matrix))]
    rtt: dict[str, Any] = {f"{one}-{two}": "1ms" for one, two in pairwise(names)}
    for one, row in zip(names, matrix, strict=True):
        for two, delay_us in zip(names, row, strict=False):
            if delay_us is not None and f"{one}-{two}" not in rtt and f"{two}-{one}" not in rtt and one != two:
                rtt[f"{one}>{two}"], rtt[f"{two}>{one}"] = {"delay": f"{delay_us}us", "loss": 0.5}, f"{delay_us}us"
    value = {"nodes": of(*names), "rtt": rtt, "client": {"site": names[-1]}}
    config = comes_back(tmp_path_factory.mktemp("sites"), value)
    assert network_of(config).routes().keys() == set(names)


# --- what is refused --------------------------------------------------------------------------------------------------

OF_SWITCHES: dict[str, dict[str, Any]] = {
    "beside sites": {"nodes": at("a", "b"), "switches": ["a", "b"], "links": {"a-b": "1ms"}, "sites": {"eu": {}}},
    "a site and a switch": {"nodes": [*at("a"), HOST | OWN | {"site": "eu"}], "switches": ["a"]},
    "no switches": {"nodes": at("a"), "links": {"a-b": "1ms"}},
    "no links": {"nodes": at("a", "b"), "switches": ["a", "b"]},
    "another switch": {"nodes": at("core", "cor"), "switches": ["core"], "client": {"switch": "y"}},
    "no switch": {"nodes": [*at("a"), HOST | OWN], "switches": ["a"]},
    "a link to others": {"nodes": at("a"), "switches": ["a", "b"], "links": {"a-c": "1ms"}},
    "to itself": {"nodes": at("a"), "switches": ["a", "b"], "links": {"a-a": "1ms", "a-b": "1ms"}},
    "no delay": {"nodes": at("a"), "switches": ["a", "b"], "links": {"a-b": {"bandwidth": 10}}},
    "a switch twice": {"nodes": at("a"), "switches": ["a", "a"]},
    "a name of the shell": {"nodes": at("a"), "switches": ["a", "link", "A"]},
    "a member called as a switch": {"nodes": at("a", name="b"), "switches": ["a", "b"], "links": {"a-b": "1ms"}},
    "a member called as a link": {"nodes": at("a", name="a-b"), "switches": ["a", "b"], "links": {"a-b": "1ms"}},
    "a link called as the client's": {
        "nodes": at("b"), "switches": ["benchmark-a", "b", "a-b"], "client": {"switch": "a-b"},
        "links": {"benchmark-a>b": "1ms", "b>benchmark-a": "1ms", "a-b>b": "1ms", "b>a-b": "1ms"},
    },
    "a client called as a link": {
        "nodes": at("a"), "switches": ["a", "b"], "links": {"a-b": "1ms"}, "clients": [{"name": "a-b", "switch": "a"}],
    },
    "no other way": {"nodes": at("a"), "switches": ["a", "b"], "links": {"a-b": "1ms"}, "reroute": True},
    "no switches at all": {"nodes": [HOST | OWN], "reroute": True},
    "no bandwidth": {"nodes": [HOST | {"switch": "a"}], "switches": ["a"]},
}  # fmt: skip
OF_SITES: dict[str, dict[str, Any]] = {
    "a pair of others": {"nodes": of("eu", "asia"), "rtt": {"eu-us": "80ms"}},
    "a pair that may be two": {"nodes": of("a", "b-c", "a-b", "c"), "rtt": {"a-b-c": "80ms"}},
    "said twice": {"nodes": of("eu", "us"), "rtt": {"eu-us": "80ms", "us-eu": "80ms"}},
    "no way back": {"nodes": of("eu", "us"), "rtt": {"eu>us": "80ms"}},
    "no way": {"nodes": of("eu", "us", "asia"), "rtt": {"eu-us": "80ms"}},
    "no round trips": {"nodes": of("eu", "us")},
    "shorter than the hosts' links": {
        "nodes": of("eu", "us"), "sites": {"eu": {"rtt": "90ms"}, "us": {"rtt": "90ms"}}, "rtt": {"eu-us": "80ms"},
    },
    "jitter longer than the link": {
        "nodes": of("eu", "us"),
        "rtt": {"eu-us": {"delay": "1ms", "jitter": {"distribution": "uniform", "value": "2ms"}}},
    },
    "of a host": {"nodes": of("eu", "us"), "rtt": {"eu-us": {"bandwidth": 10, "uplink": "host"}}},
    "a node nowhere": {
        "nodes": [*of("eu", "us"), HOST | {"bandwidth": 1, "link_delay": "1ms"}], "rtt": {"eu-us": "1ms"},
    },
    "no host at a site": {"nodes": [HOST | {"bandwidth": 1, "link_delay": "1ms"}], "rtt": "aws-2025"},
    "a name twice": {"nodes": [*of("eu"), *of("us", name="eu")], "rtt": {"eu-us": "1ms"}},
    "one way too long": {"nodes": of("eu", "us"), "rtt": {"eu>us": "15s", "us>eu": "1s"}},
    "a queue without a bandwidth": {"nodes": of("eu", "us"), "rtt": {"eu-us": {"delay": "1ms", "queue": 5}}},
    "two links of one name": {"nodes": of("a", "b-c", "a-b", "c"), "rtt": {"a>b-c": "1ms", "b-c>a": "1ms",
        "a-b>c": "1ms", "c>a-b": "1ms", "a>c": "1ms", "c>a": "1ms"}},
    "jitter longer than the site's delay": {
        "sites": {"eu": {"rtt": "8ms"}},
        "nodes": of("eu", link={"jitter": {"distribution": "uniform", "value": "3ms"}, "queue": 5}),
    },
    "a leader of several": {
        "nodes": [HOST | {"bandwidth": 1, "link_delay": "1ms", "count": 3}], "etcd": {"leader": "etcd4"},
    },
    "a name with a number": {"nodes": of("eu", name="s", count=2) + of("eu", name="m" * 63, count=2)},
    "no table": {"nodes": of("eu", "us"), "rtt": "nowhere"},
    "no file": {"nodes": of("eu", "us"), "rtt": "nowhere.csv"},
    "an address of several": {"nodes": of("eu", count=2, ip="10.0.0.1")},
    "too many": {"nodes": of("eu", count=160) * 2},
    "a subnet too small": {"nodes": of("eu", count=6), "subnet": "10.0.0.0/29"},
    "too slow for elections": {
        "nodes": of("eu", "us"), "rtt": {"eu-us": "300ms"}, "etcd": {"election_timeout": "1000ms"},
    },
}  # fmt: skip
REFUSED = {
    f"{kind}: {name}": value
    for kind, table in (("switches", OF_SWITCHES), ("sites", OF_SITES))
    for name, value in table.items()
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, REFUSED[name]))
    assert str(caught.value).replace(str(tmp_path), "") == snapshot
