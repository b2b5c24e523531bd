"""Networks of several switches: five regions in random graphs, and chains. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address
from itertools import combinations, pairwise
from random import Random

from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.topology import Host, Link, Switch, Topology

REGIONS = 5
_SWITCHES = (5, 12)
_DELAYS_NS = (100_000, 40_000_000)
_MORE_LINKS = 0.25
"""The share of pairs of switches with a link, beside those that connect all."""


def network(homes: list[str], switches: list[str], joined: dict[tuple[str, str], LinkSpec], own: LinkSpec) -> Topology:
    """Hosts h1, h2 and so on, each by a link ``own`` at the switch of that place in ``homes``."""
    hosts = [Host(f"h{n}", "member", IPv4Address(f"10.9.0.{n}"), 24) for n in range(1, len(homes) + 1)]
    links = [Link(host.name, home, own) for host, home in zip(hosts, homes, strict=True)]
    links += [Link(a, b, spec) for (a, b), spec in joined.items()]
    return Topology(hosts, [Switch(name) for name in switches], links)


def random_graph(seed: int) -> Topology:
    """Five hosts in a random graph of switches with loops and random delays, of each direction its own."""
    draws = Random(seed)
    switches = [f"s{number}" for number in range(1, draws.randint(*_SWITCHES) + 1)]
    ways = {(draws.choice(switches[:at]), switches[at]) for at in range(1, len(switches))}
    ways |= {pair for pair in combinations(switches, 2) if draws.random() < _MORE_LINKS}
    joined = {way: LinkSpec(*(DirectionSpec(draws.randint(*_DELAYS_NS)) for _ in range(2))) for way in sorted(ways)}
    return network(draws.sample(switches, REGIONS), switches, joined, LinkSpec.symmetric(0))


def chain(count: int, delay_ns: int) -> Topology:
    """Two hosts with so many switches between them; every link has this delay."""
    switches, spec = [f"s{number}" for number in range(1, count + 1)], LinkSpec.symmetric(delay_ns)
    return network([switches[0], switches[-1]], switches, dict.fromkeys(pairwise(switches), spec), spec)
