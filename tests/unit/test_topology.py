from __future__ import annotations

from ipaddress import IPv4Address
from itertools import combinations, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containernet_env.model import topology as topologies
from containernet_env.model.link import DirectionSpec, Jitter, Link, LinkSpec
from containernet_env.model.topology import PROBE_FRAME_BYTES, Host, Topology

DELAYS_NS = st.integers(min_value=0, max_value=10**10)
RATES_BPS = st.none() | st.integers(min_value=10_000, max_value=10**11)
DIRECTIONS = st.builds(DirectionSpec, DELAYS_NS, RATES_BPS)
SPECS = st.builds(LinkSpec, DIRECTIONS, DIRECTIONS)


def host(number):
    return Host(f"h{number}", "member", IPv4Address(f"10.0.0.{number + 1}"), 24)


def star(specs):
    hosts = [host(number) for number in range(len(specs))]
    return Topology(hosts, ["s1"], [Link(h.name, "s1", spec) for h, spec in zip(hosts, specs, strict=True)])


def test_an_overhead_counts_in_round_trips_and_default_queues():
    assert [DirectionSpec(rate_bps=3000).serialization_ns(1), DirectionSpec().serialization_ns(1500)] == [2_666_667, 0]
    direction = DirectionSpec(0, 12_304_000, overhead_bytes=24)
    links = [LinkSpec(direction, direction)] * 2
    # 122 bytes take 79,324 ns; a full frame of 1538 bytes 1 ms, of which 250 ms hold 250.
    assert star(links).expected_rtt_ns("h0", "h1") == 4 * 79_324
    assert queues(links) == [(250, 250)] * 2
    assert queues([LinkSpec.symmetric(0, 12_304_000)] * 2) == [(254, 254)] * 2


@given(st.lists(SPECS, min_size=1, max_size=8))
def test_rtt_is_the_sum_of_the_delays_and_the_probes_times_from_both_ends(specs):
    topology = star(specs)
    pairs = topology.rtt_pairs()
    assert len(pairs) == len(specs) * (len(specs) - 1) // 2
    for pair in pairs:
        directions = [
            side for name in (pair.a, pair.b) for side in (specs[int(name[1:])].a_to_b, specs[int(name[1:])].b_to_a)
        ]
        propagation = sum(direction.delay_ns for direction in directions)
        sending = sum(direction.serialization_ns(PROBE_FRAME_BYTES) for direction in directions)
        assert pair.propagation_ns == topology.rtt(pair.b, pair.a).propagation_ns == propagation
        assert pair.expected_ns == topology.expected_rtt_ns(pair.b, pair.a) == propagation + sending
    largest = topology.largest_member_rtt()
    assert (largest and largest.expected_ns) == max((pair.expected_ns for pair in pairs), default=None)
    assert topology.path("h0", "h0") == ()


def links_of(delays_ns):
    """A host h0, h1, ... at each switch, and links between switches: by their numbers, one way and back."""
    between = [Link(f"s{a}", f"s{b}", LinkSpec(*map(DirectionSpec, ns))) for (a, b), ns in delays_ns.items()]
    return [Link(f"h{n}", f"s{n}", LinkSpec()) for n in {n for ends in delays_ns for n in ends}] + between


@given(st.data(), st.integers(2, 6), st.booleans())
def test_of_several_paths_the_fastest_is_taken_or_the_one_of_the_fewest_links(data, count, is_direct):
    pairs = {(a, b): data.draw(st.booleans()) for b in range(count) for a in range(b)}
    ends = [(a, b) for (a, b), given in pairs.items() if given or a == b - 1]
    delays = {pair: data.draw(st.tuples(st.integers(0, 9), st.integers(0, 9))) for pair in ends}
    switches = [f"s{n}" for n in range(count)]
    topology = Topology([host(n) for n in range(count)], switches, links_of(delays), is_direct)
    assert topology.has_loop == (len(ends) >= count)
    # Floyd and Warshall's.
    least = {(a, a): (0, 0) for a in range(count)}
    for (a, b), (there, back) in delays.items():
        least[a, b], least[b, a] = ((1, ns) if is_direct else (ns, 1) for ns in (there, back))
    for via in range(count):
        for a in range(count):
            for b in range(count):
                if (a, via) in least and (via, b) in least:
                    over = tuple(map(sum, zip(least[a, via], least[via, b], strict=True)))
                    least[a, b] = min(over, least.get((a, b), over))
    routes, names = topology.routes(), {link.name: {link.a, link.b} for link in topology.links}
    for a, b in ((a, b) for a in range(count) for b in range(count) if a != b):
        path = topology.hops(f"h{a}", f"h{b}")
        cost = sum(hop.spec.delay_ns for hop in path), len(path) - 2
        assert (cost[::-1] if is_direct else cost) == least[a, b]
        for hop in path[1:-1]:
            assert names[routes[hop.sender][f"s{b}"]] == {hop.sender, hop.receiver}
    for pair in topology.rtt_pairs():
        both = (*topology.path(pair.a, pair.b), *topology.path(pair.b, pair.a))
        assert pair.propagation_ns == sum(hop.delay_ns for hop in both)


def most_ns(hops):
    return sum(hop.spec.delay_ns + (hop.spec.jitter.reach_ns if hop.spec.jitter else 0) for hop in hops)


@given(st.data(), st.integers(1, 5), st.integers(1, 5), st.booleans(), st.booleans())
def test_ways_around_links_that_are_down_are_those_of_a_network_without_them(data, count, hosts, is_direct, reroutes):
    sides = st.builds(DirectionSpec, st.integers(1, 9), jitter=st.none() | st.just(Jitter("uniform", 1)))
    specs = st.builds(LinkSpec, sides, sides)
    numbers = st.integers(0, count - 1)
    own = [Link(f"h{n}", f"s{data.draw(numbers)}", data.draw(specs)) for n in range(hosts)]
    pairs = [(a, b) for b in range(count) for a in range(b) if a == b - 1 or data.draw(st.booleans())]
    between = [Link(f"s{a}", f"s{b}", data.draw(specs)) for a, b in pairs]
    switches = [f"s{n}" for n in range(count)]

    def made(links):
        return Topology([host(n) for n in range(hosts)], switches, own + links, is_direct, reroutes)

    topology = made(between)
    downs = [[], *([link.name] for link in between if reroutes)]
    for down in downs:
        try:
            without = made([link for link in between if link.name not in down])
        except ValueError:  # some have no other way: their frames are lost on the link, and others do not cross it
            for a, b in permutations(range(hosts), 2):
                assert topology.links_of(topology.hops(f"h{a}", f"h{b}", down)).count(down[0]) <= 1
            continue
        assert topology.routes(down) == without.routes()
    longest = dict.fromkeys((link.name for link in topology.links), 0)
    for down, (a, b) in product(downs, combinations(range(hosts), 2)):
        hops = (*topology.hops(f"h{a}", f"h{b}", down), *topology.hops(f"h{b}", f"h{a}", down))
        for name in topology.links_of(hops):
            longest[name] = max(longest[name], most_ns(hops))
    assert topology.longest_rtts_ns == topology.with_queues().longest_rtts_ns == longest


def test_ways_around_every_link_of_a_large_ring_are_found_with_little_work(monkeypatch):
    made, count = [], 64
    ways = topologies._ways
    monkeypatch.setattr(topologies, "_ways", lambda *given: made.append(given[0]) or ways(*given))
    ring = {(n, (n + 1) % count): (10 + n, 20 + n) for n in range(count)}
    switches = [f"s{n}" for n in range(count)]
    topology = Topology([host(n) for n in range(count)], switches, links_of(ring), reroutes=True).with_queues()
    found = topology.longest_rtts_ns
    assert found["h0-s0"] == max(found.values()) > 0
    assert len(made) <= count * count + 2, "once for each end and link on the way there"
    assert sum(map(len, made)) > len(made) * count / 2, "what a link that is down does not change is kept"


def test_what_no_network_can_be_is_refused():
    for hosts, switches, links, message in (
        ("aa", ["s1"], [("a", "s1")], "two nodes are called 'a'"),
        ("a", ["s1"], [("a", "s2")], "is no node"),
        ("a", ["s1"], [("a", "s1"), ("s1", "a")], "joined already"),
        ("a", ["s1"], [], "has 0 links"),
        ("ab", ["s1", "s2"], [("a", "s1"), ("b", "s2")], "not connected: b, s2"),
        ("a", ["s1"], [("a", "a")], "joined already"),
        ("ab", [], [("a", "b")], "host 'a' has no link to a switch"),
    ):
        nodes = [Host(name, "etcd", IPv4Address("10.0.0.1"), 24) for name in hosts]
        with pytest.raises(ValueError, match=message):
            Topology(nodes, switches, [Link(a, b, LinkSpec()) for a, b in links])


MS, MBIT = 1_000_000, 1_000_000


def queues(specs):
    return [
        (link.spec.a_to_b.default_queue_frames, link.spec.b_to_a.default_queue_frames)
        for link in star(specs).with_queues().links
    ]


NEAR, FAR = LinkSpec.symmetric(0, 1000 * MBIT), LinkSpec.symmetric(100 * MS, 1000 * MBIT)
ASYMMETRIC = LinkSpec(DirectionSpec(0, 1000 * MBIT), DirectionSpec(100 * MS, 100 * MBIT))
JITTERY = LinkSpec(DirectionSpec(50 * MS, 1000 * MBIT, jitter=Jitter("uniform", 50 * MS)), DirectionSpec())


def test_a_queue_that_is_left_open_has_its_frames():
    for links, frames in (
        # 200 ms at 1 Gbit/s are 16,513 frames of 1514 bytes, on a link without a delay of its own too.
        ([NEAR, FAR], [(16513, 16513)] * 2),
        # The third host is 400 ms away from the second, 200 ms from the first.
        ([NEAR, FAR, FAR], [(16513, 16513), (33026, 33026), (33026, 33026)]),
        ([FAR, FAR, NEAR], [(33026, 33026), (33026, 33026), (16513, 16513)]),
        # The way there and back, and each its rate.
        ([ASYMMETRIC, LinkSpec.symmetric()], [(8257, 2000), (None, None)]),
        ([JITTERY, LinkSpec.symmetric()], [(8257, None), (None, None)]),
        # The least, the most, and between them 250 ms.
        ([LinkSpec.symmetric(3 * MS, 1000 * MBIT)] * 2, [(2000, 2000)] * 2),
        ([LinkSpec.symmetric(3 * MS, 100 * MBIT)] * 2, [(2000, 2000)] * 2),
        ([LinkSpec.symmetric(3 * MS, 10 * MBIT)] * 2, [(207, 207)] * 2),
        ([LinkSpec.symmetric(3 * MS, MBIT)] * 2, [(200, 200)] * 2),
        ([LinkSpec.symmetric(1000 * MS, 1000 * MBIT)] * 2, [(100_000, 100_000)] * 2),
        # What is configured stays.
        ([LinkSpec(DirectionSpec(MS, MBIT, 5), DirectionSpec(MS, MBIT, None, 5000))] * 2, [(None, None)] * 2),
    ):
        assert queues(links) == frames, links
