"""Switches joined by links: the paths that any graph means, also while links are down, and what is refused."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.plan import PlanOptions, config_hash
from containernet_env.config.planning import build_plan
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.model.config import Config
from containernet_env.model.disruption import Disruptions, ExecutedEvent, Targets, explains_election
from containernet_env.model.link import DirectionSpec, Hop, IndependentLoss
from containernet_env.model.topology import Topology, network_of
from containernet_env.network.emulator import Answer, LinkEmulator
from containernet_env.network.gate_plan import GatePlan, Stream
from containernet_env.runs.reuse import change_between, standing_key
from containernet_env.runs.sweep.design import design
from tests.simulated_time import chosen
from tests.unit.blocks import write
from tests.unit.simulated import carry, changed, gate, wrong
from tests.unit.test_config import comes_back

US, MS, MBIT = 10**3, 10**6, 10**6
HOST = {"mem": "64m", "cpus": 1}
OWN = {"bandwidth": "unlimited", "link_delay": "0s"}
RING = {"a-b": "5ms", "b-c": "5ms", "c-d": "5ms", "d-a": "20ms"}


def at(*switches: str, **more: Any) -> list[dict[str, Any]]:
    return [HOST | OWN | {"switch": switch} | more for switch in switches]


def read(tmp_path: Path, nodes: list[dict[str, Any]], links: Any = None, **top: Any) -> Config:
    ways = {} if links is None else {"links": links}
    return load_config(write(tmp_path, {"nodes": nodes, **ways, **top}))


def ring(tmp_path: Path, **top: Any) -> Config:
    return read(tmp_path, at("a", "b", "d"), RING, switches=[*"abcd"], **top)


def names_of(hops: tuple[Hop, ...]) -> list[str]:
    return [hop.name for hop in hops]


def test_frames_take_the_least_delay_over_switches_without_hosts_too(tmp_path: Path) -> None:
    network = network_of(ring(tmp_path))
    assert names_of(network.hops("etcd1", "etcd3")) == ["etcd1>a", "a>b", "b>c", "c>d", "d>etcd3"]
    assert network.expected_rtt_ns("etcd1", "etcd3") == 30 * MS and network.has_loop and not network.reroutes
    assert [link.name for link in network.unused] == ["a-d"]
    assert names_of(network.hops("etcd1", "etcd2", ["a-b"])) == names_of(network.hops("etcd1", "etcd2"))


def test_links_have_values_for_each_direction_and_all_that_a_hosts_link_has(tmp_path: Path) -> None:
    own = {"delay": "50ms", "bandwidth": 10, "loss": 0.25}
    config = read(
        tmp_path,
        [*at("s2", count=2), HOST | {"switch": "s1", "bandwidth": 5, "link_delay": "7ms"}],
        {"s1>s2": own, "s2>s1": "30ms"},
        switches=["s1", "s2"],
        client={"switch": "s2"},
    )
    (link,) = config.switch_links
    assert (link.a, link.b, link.spec.b_to_a) == ("s1", "s2", DirectionSpec(30 * MS))
    assert link.spec.a_to_b == DirectionSpec(50 * MS, 10 * MBIT, loss=IndependentLoss(0.25))
    assert [node.switch for node in config.hosts] == ["s2", "s2", "s1", "s2"]
    network = network_of(config)
    assert network.rtt("etcd1", "etcd3").propagation_ns == (50 + 30 + 14) * MS
    assert network.rtt("etcd1", "benchmark").propagation_ns == 0
    one = network_of(read(tmp_path, at("hub", "hub"), switches=["hub"]))
    assert names_of(one.hops("etcd1", "benchmark")) == ["etcd1>hub", "hub>benchmark"]


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


def test_in_simulated_time_frames_take_another_way_from_the_moment_that_a_link_goes_down(tmp_path: Path) -> None:
    network = network_of(ring(tmp_path, reroute=True))
    hops = tuple(hop for link in network.links for hop in link.hops)
    names = tuple(host.name for host in network.hosts)
    plan = GatePlan(names, {pair: network.hops(*pair) for pair in permutations(names, 2)}, hops)
    plan.streams = [Stream("etcd1", "etcd3", 0, 400 * MS, 500 * US, 800, 98)]
    plan.duration_ns, plan.warmup_ns, plan.warmup_interval_ns = 500 * MS, 2000 * MS, 5 * MS
    down_ns, up_ns = 100 * MS + 250 * US, 250 * MS + 250 * US
    changes = [
        {"at_ns": at_ns, "link": "b-c", "up": up, "switches": network.routes([] if up else ["b-c"])}
        for at_ns, up in ((down_ns, False), (up_ns, True))
    ]
    (times,) = carry(plan, noise={}, routes=network.routes(), changes=changes)
    fates = {
        round(sent_ns / US / 500): delay_ns for sent_ns, delay_ns in zip(times.sent_ns, times.delay_ns, strict=True)
    }
    assert len(fates) == 800

    def fate(sent_ns: int) -> int | None:
        """One way: a-b 5 ms, b-c 5 ms, c-d 5 ms; around 20 ms; the one that has come to b goes back."""
        to_b, to_c = sent_ns + 5 * MS, sent_ns + 10 * MS
        if down_ns <= sent_ns < up_ns:
            return 20 * MS
        if sent_ns < down_ns <= to_b:
            return (5 + 5 + 20) * MS
        return None if to_b < down_ns <= to_c else 15 * MS

    expected = [fate(number * 500 * US) for number in range(800)]
    assert {fate: expected.count(fate) for fate in expected} == {15 * MS: 480, 20 * MS: 300, 30 * MS: 10, None: 10}
    for number, wanted_ns in enumerate(expected):
        delay_ns = fates[number]
        assert (delay_ns == -1) if wanted_ns is None else wanted_ns <= delay_ns < wanted_ns + 100 * US, number


def test_a_default_queue_fits_the_ways_around(tmp_path: Path) -> None:
    links = {pair: {"delay": delay, "bandwidth": 1000} for pair, delay in RING.items()}
    for reroute, least_ms in ((False, 0), (True, 2 * 30)):
        top = {"reroute": True} if reroute else {}
        network = network_of(read(tmp_path, at("a", "b", "d"), links, switches=[*"abcd"], **top))
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


REFUSED: dict[str, dict[str, Any]] = {
    "beside sites": {"nodes": at("a", "b"), "switches": ["a", "b"], "links": {"a-b": "1ms"}, "sites": {"eu": {}}},
    "a site and a switch": {"nodes": [*at("a"), HOST | OWN | {"site": "eu"}], "switches": ["a"]},
    "no switches": {"nodes": at("a"), "links": {"a-b": "1ms"}},
    "no links": {"nodes": at("a", "b"), "switches": ["a", "b"]},
    "no way": {"nodes": at("a", "b"), "switches": [*"abc"], "links": {"a-b": "1ms"}},
    "another switch": {"nodes": at("core", "cor"), "switches": ["core"], "client": {"switch": "y"}},
    "no switch": {"nodes": [*at("a"), HOST | OWN], "switches": ["a"]},
    "a link to others": {"nodes": at("a"), "switches": ["a", "b"], "links": {"a-c": "1ms"}},
    "no way back": {"nodes": at("a"), "switches": ["a", "b"], "links": {"a>b": "1ms"}},
    "said twice": {"nodes": at("a"), "switches": ["a", "b"], "links": {"a-b": "1ms", "b-a": "1ms"}},
    "to itself": {"nodes": at("a"), "switches": ["a", "b"], "links": {"a-a": "1ms", "a-b": "1ms"}},
    "no delay": {"nodes": at("a"), "switches": ["a", "b"], "links": {"a-b": {"bandwidth": 10}}},
    "of a host": {"nodes": at("a"), "switches": ["a", "b"], "links": {"a-b": {"delay": "1ms", "uplink": "host"}}},
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
    "too slow for elections": {
        "nodes": at("a", "b"), "switches": ["a", "b"], "links": {"a-b": "150ms"},
        "etcd": {"election_timeout": "1000ms"},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, REFUSED[name]))
    assert str(caught.value).replace(str(tmp_path), "") == snapshot


def test_loops_need_the_link_emulator(tmp_path: Path) -> None:
    for options, why in (({"links": "netem"}, "close a loop"), ({"engine": "containernet"}, "has switches")):
        with pytest.raises(UsageError, match=why):
            build_plan(ring(tmp_path), None, PlanOptions(2, **options))
    line = read(tmp_path, at("a", "b"), {"a-b": "1ms"}, switches=["a", "b"])
    build_plan(line, None, PlanOptions(2, links="netem"))


def test_the_rule_of_the_paths_and_rerouting_are_configured(tmp_path: Path) -> None:
    """Rows of one hash merge, and plans of one key follow each other on a testbed."""
    mesh = {"a-b": "5ms", "b-c": "5ms", "a-c": "5ms"}
    sites = load_config(write(tmp_path, {"nodes": [HOST | OWN | {"site": s} for s in "abc"], "rtt": mesh}))
    links = dict.fromkeys(mesh, "2500us")
    configs = [sites, *(read(tmp_path, at(*"abc"), links, switches=[*"abc"], **top) for top in ({}, {"reroute": True}))]
    plans = [build_plan(config, None, PlanOptions(2)) for config in configs]
    assert plans[0].links == plans[1].links
    assert len({config_hash(plan) for plan in plans}) == 3
    assert standing_key(plans[1]) != standing_key(plans[2])
    slower = read(tmp_path, at(*"abc"), links | {"a-b": "3ms"}, switches=[*"abc"], reroute=True)
    assert change_between(plans[2], build_plan(slower, None, PlanOptions(2))) is not None, "the same paths"


SIZES = {"keySize": 8, "valSize": 256}


def scenarios_with(tmp_path: Path, *events: dict[str, Any]) -> Any:
    load = {"duration": "30s", "clients": 10, "conns": 2, "rate": 100}
    block = {"type": "write", "target": "cluster", "load": load, "data": SIZES, "events": list(events)}
    (tmp_path / "loads.json").write_text(json.dumps({"scenarios": [block]}))
    return load_scenarios(tmp_path / "loads.json")


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
    config = read(tmp_path, at("a", "b", "d"), jittery, switches=[*"abcd"])
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
        ((down("a-b", 1, None),), False, True),  # it may have been etcd1
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
    assert explains_election(Disruptions("1", events), members, network.crossed, 10**9) is explained


def test_a_sweep_varies_links_between_switches_and_where_a_host_is(tmp_path: Path) -> None:
    path = write(tmp_path, {"nodes": at("a", "b", "d"), "switches": [*"abcd"], "links": RING})
    found = design(path, settings=["b-c.link_delay=5ms,40ms", "client.switch=a,c", "leader=etcd2"], quick=True)
    plans = [bed.plan for bed in found.beds]
    assert sorted((link_of(plan.topology, "b-c"), plan.config.clients[0].switch) for plan in plans) == [
        (5, "a"), (5, "c"), (40, "a"), (40, "c"),
    ]  # fmt: skip
    sites = {"nodes": [HOST | OWN | {"site": s} for s in "ab"], "rtt": {"a-b": "80ms"}}
    found = design(write(tmp_path, sites), settings=["a-b.loss=0,0.1"], quick=True)
    assert [bed.plan.config.switch_links[0].spec.b_to_a.loss.ratio for bed in found.beds] == [0, 0.1]
    for setting, why in (
        ("a-b.cpus=1", "which has no cpus"), ("a-z.loss=0", "the links between switches a-b"),
        ("client.switch=a", "no switch of the topology, whose switches are: none"),
    ):  # fmt: skip
        with pytest.raises((ConfigError, UsageError), match=why):
            design(tmp_path / "scenarios.json", settings=[setting], quick=True)


def link_of(topology: Topology, name: str) -> int:
    (delay_ns,) = [link.spec.a_to_b.delay_ns for link in topology.links if link.name == name]
    return delay_ns // MS
