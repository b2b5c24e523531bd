"""The network as a pure graph: hosts, switches, links, and the RTT that follows from them."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import IPv4Address
from itertools import combinations, pairwise, permutations
from random import Random
from typing import Literal

from containernet_env.model.config import Config
from containernet_env.model.link import (
    FULL_FRAME_BYTES,
    REACH,
    DirectionSpec,
    Hop,
    Jitter,
    Link,
    LinkSpec,
    default_frames,
)

PROBE_FRAME_BYTES = 98
"""Frame of an ICMP echo with the usual 56 bytes of payload: 14 Ethernet + 20 IPv4 + 8 ICMP + 56."""

SWITCH_NAME = "s1"

HostRole = Literal["member", "benchmark"]


@dataclass(frozen=True, slots=True)
class Host:
    """An end of the network with an address; ``prefix_length`` is the subnet's, 8 to 30."""

    name: str
    role: HostRole
    ip: IPv4Address
    prefix_length: int


@dataclass(frozen=True, slots=True)
class RttExpectation:
    """The round trip between hosts ``a`` and ``b``, computed from the links alone.

    ``propagation_ns`` is the sum of the delays there and back; ``expected_ns`` adds the time that a frame of
    ``frame_bytes`` takes to be sent at every link's rate, there and back. Jitter is symmetric, so it changes neither
    figure.
    """

    a: str
    b: str
    propagation_ns: int
    expected_ns: int
    frame_bytes: int = PROBE_FRAME_BYTES


Ways = dict[str, tuple[tuple[int, int, int], str]]
"""For each node, what the way from it to an end costs, and the next node on it; nearer ones come first."""


def way_to(end: str, directions: Mapping[str, Mapping[str, DirectionSpec]]) -> dict[str, str]:
    """For every other node that is connected with ``end``, the next one on the way with the least delay.

    ``directions``: for each node, its neighbours and the direction that leads there.
    """
    ways = _ways({end: ((0, 0, 0), end)}, directions, False)
    return {node: following for node, (_, following) in ways.items() if node != end}


def _ways(
    known: Ways,
    directions: Mapping[str, Mapping[str, DirectionSpec]],
    is_direct: bool,
    down: Collection[frozenset[str]] = (),
) -> Ways:
    """The ways that are known, and those of all other nodes that are connected (Dijkstra, from the end).

    ``down``: the ends of links that are taken only where there is no other way, as few as possible.
    """
    ways = dict(known)
    waiting: list[tuple[tuple[int, int, int], str, str]] = []

    def offer(node: str, following: str) -> None:
        downs, first, second = ways[following][0]
        delay_ns = directions[node][following].delay_ns
        step = (1, delay_ns) if is_direct else (delay_ns, 1)
        cost = downs + (frozenset((node, following)) in down), first + step[0], second + step[1]
        heapq.heappush(waiting, (cost, node, following))

    for node in directions.keys() - known.keys():
        for following in directions[node].keys() & known.keys():
            offer(node, following)
    while waiting:
        cost, node, following = heapq.heappop(waiting)
        if node not in ways:
            ways[node] = cost, following
            for other in directions[node].keys() - ways.keys():
                offer(other, node)
    return ways


class Topology:
    """An immutable graph of hosts and switches joined by links.

    A frame takes the path with the least delay, of equals that with the fewest links; with ``is_direct`` that with the
    fewest links, of equals the one with the least delay. With ``reroutes``, while links between switches are down
    (``down``: their names), it takes the best path without them, and a path with a link that is down only where there
    is no other. Raises ``ValueError`` for an impossible network: a name used twice, a link to an unknown node, a second
    link between two nodes, a host with other than one link, or a part that is not connected.
    """

    def __init__(
        self,
        hosts: Iterable[Host],
        switches: Iterable[str],
        links: Iterable[Link],
        is_direct: bool = False,
        reroutes: bool = False,
    ) -> None:
        self.hosts = tuple(hosts)
        self.switches = tuple(switches)
        self.links = tuple(links)
        self.is_direct = is_direct
        self.reroutes = reroutes
        self._hosts_by_name = {host.name: host for host in self.hosts}
        # For each node, its neighbours and the direction that leads there.
        self._directions: dict[str, dict[str, DirectionSpec]] = {}
        self._names: dict[frozenset[str], str] = {}  # of links, by their ends
        self._ends: dict[str, frozenset[str]] = {}  # of links, by their names
        self._ways: dict[tuple[str, frozenset[str]], Ways] = {}
        self._one_ways_ns: dict[tuple[str, str], tuple[int, int]] = {}
        for name in (*(host.name for host in self.hosts), *self.switches):
            if name in self._directions:
                raise ValueError(f"two nodes are called {name!r}")
            self._directions[name] = {}
        for link in self.links:
            self._join(link)
        known = self._hosts_by_name
        self._core = {at: {to: s for to, s in self._directions[at].items() if to not in known} for at in self.switches}
        self._check_connected()

    @property
    def members(self) -> tuple[Host, ...]:
        return tuple(host for host in self.hosts if host.role == "member")

    @property
    def clients(self) -> tuple[Host, ...]:
        return tuple(host for host in self.hosts if host.role == "benchmark")

    def host(self, name: str) -> Host:
        return self._hosts_by_name[name]

    def path(self, a: str, b: str) -> tuple[DirectionSpec, ...]:
        """The link directions that a frame takes from node ``a`` to node ``b``; none to itself."""
        return tuple(self._directions[node][following] for node, following in pairwise(self._nodes(a, b)))

    def hops(self, a: str, b: str, down: Iterable[str] = ()) -> tuple[Hop, ...]:
        """The same directions with the nodes that they join."""
        nodes = self._nodes(a, b, down)
        return tuple(Hop(node, following, self._directions[node][following]) for node, following in pairwise(nodes))

    def links_of(self, hops: Iterable[Hop]) -> list[str]:
        """The names of the links that these are directions of."""
        return [self._name(hop.sender, hop.receiver) for hop in hops]

    def crossed(self, a: str, b: str, down: Iterable[str] = ()) -> set[str]:
        """The names of the links, and of their directions, that frames take from ``a`` to ``b`` and back."""
        hops = (*self.hops(a, b, down), *self.hops(b, a, down))
        return {*self.links_of(hops), *(hop.name for hop in hops)}

    def expected_rtt_ns(self, a: str, b: str) -> int:
        """Propagation plus a probe's serialization at every hop: switches store and forward frames."""
        return self.rtt(a, b).expected_ns

    def expected_way_ns(self, a: str, b: str) -> int:
        """The part of the expected RTT that is from ``a`` to ``b``."""
        return sum(self._one_way_ns(a, b))

    def rtt(self, a: str, b: str) -> RttExpectation:
        (there_ns, sent_ns), (back_ns, answered_ns) = self._one_way_ns(a, b), self._one_way_ns(b, a)
        return RttExpectation(a, b, there_ns + back_ns, there_ns + back_ns + sent_ns + answered_ns)

    def rtt_pairs(self) -> tuple[RttExpectation, ...]:
        """Every unordered pair of hosts, in host order: n * (n - 1) / 2 entries."""
        return tuple(self.rtt(a.name, b.name) for a, b in combinations(self.hosts, 2))

    def nearest_member(self, host: str) -> str:
        """The member with the least expected RTT from ``host``, the first of equals."""
        return min((member.name for member in self.members), key=lambda name: self.expected_rtt_ns(host, name))

    def largest_member_rtt(self) -> RttExpectation | None:
        """The member pair with the largest expected RTT, the first of equals; ``None`` for one member."""
        pairs = (self.rtt(a.name, b.name) for a, b in combinations(self.members, 2))
        return max(pairs, key=lambda pair: pair.expected_ns, default=None)

    @cached_property
    def longest_rtts_ns(self) -> Mapping[str, int]:
        """For each link by name, the longest round trip over it: delays, and the most that jitter may add to them.

        With ``reroutes`` also while any one link between switches is down.
        """
        longest = dict.fromkeys((link.name for link in self.links), 0)

        def cross(one: str, two: str, rtt_ns: int) -> None:
            name = self._name(one, two)
            longest[name] = max(longest[name], rtt_ns)

        # Hosts of one switch differ in their own links alone, whose round trips these are.
        behind: dict[str, dict[str, int]] = {}
        for host in self._hosts_by_name:
            [switch] = self._directions[host]
            behind.setdefault(switch, {})[host] = self._most_ns(host, switch) + self._most_ns(switch, host)
        own_ns = {switch: max(hosts.values()) for switch, hosts in behind.items()}
        beyond_ns = dict.fromkeys(behind, 0)
        usual = {end: self._way_to(end) for end in behind}
        usual_ns = {end: self._sums_ns(ways) for end, ways in usual.items()}
        for down in (frozenset[str](), *(frozenset([link.name]) for link in self.between if self.reroutes)):
            ways = {end: self._way_to(end, down) for end in behind}
            new_ns = {end: self._sums_ns(found) for end, found in ways.items() if found is not usual[end]}
            ns = {**usual_ns, **new_ns}
            others = {at for end in new_ns for at in behind if ns[end][at] != usual_ns[end][at]}
            for end in {*new_ns, *others} if down else behind:
                rtts_ns = {at: own_ns[at] + ns[end][at] + ns[at][end] for at in behind if at != end}
                beyond_ns[end] = max(beyond_ns[end], *rtts_ns.values(), 0)
                # From the leaves of the tree of all ways to this end: the longest of those that come over a link.
                for at, (_, following) in reversed(ways[end].items()):
                    if at in rtts_ns:
                        cross(at, following, rtts_ns[at] + own_ns[end])
                        if following != end:
                            rtts_ns[following] = max(rtts_ns.get(following, 0), rtts_ns[at])
        for switch, hosts in behind.items():
            for one, two in permutations(hosts, 2):
                cross(one, switch, hosts[one] + hosts[two])
            for host in hosts if len(behind) > 1 else ():
                cross(host, switch, hosts[host] + beyond_ns[switch])
        return longest

    @property
    def between(self) -> tuple[Link, ...]:
        return tuple(link for link in self.links if link.a not in self._hosts_by_name)

    @cached_property
    def used(self) -> frozenset[str]:
        """The names of the links between switches, and of their directions, that are on some path between two hosts."""
        at = {next(iter(self._directions[host])): host for host in self._hosts_by_name}  # one host of each switch
        return frozenset(name for a, b in combinations(at.values(), 2) for name in self.crossed(a, b))

    @property
    def unused(self) -> tuple[Link, ...]:
        """The links between switches that are on no path between two hosts."""
        return tuple(link for link in self.between if link.name not in self.used)

    @property
    def has_loop(self) -> bool:
        """Whether there is more than one way between some nodes."""
        return len(self.links) >= len(self._directions)

    def routes(self, down: Iterable[str] = ()) -> dict[str, dict[str, str]]:
        """For each switch, by every other one: the link that frames take next to reach it."""
        ways = {to: self._way_to(to, frozenset(down)) for to in self.switches}
        return {at: {to: self._name(at, ways[to][at][1]) for to in ways if to != at} for at in ways}

    def longest_rtt_ns(self) -> int:
        """The longest round trip of full frames that meet no others, between any two hosts; 0 of one host."""
        return max(
            (
                sum(
                    hop.longest_delay_ns + hop.serialization_ns(FULL_FRAME_BYTES)
                    for hop in (*self.path(a, b), *self.path(b, a))
                )
                for a, b in combinations(self._hosts_by_name, 2)
            ),
            default=0,
        )

    def with_queues(self) -> Topology:
        """The same network, with a default queue limit wherever there is a rate and no configured limit.

        See ``model.link.default_frames``; the round trip is the longest over the link.
        """
        rtts_ns = self.longest_rtts_ns
        links = [
            replace(link, spec=LinkSpec(*(_with_queue(side, rtts_ns[link.name]) for side in link.spec.sides)))
            for link in self.links
        ]
        made = self.with_links(links)
        made.longest_rtts_ns, made._ways = rtts_ns, self._ways  # no delay is another one
        return made

    def with_links(self, links: Iterable[Link]) -> Topology:
        """The same nodes, joined by other links."""
        return Topology(self.hosts, self.switches, links, self.is_direct, self.reroutes)

    def _nodes(self, a: str, b: str, down: Iterable[str] = ()) -> list[str]:
        """The nodes on the way from ``a`` to ``b``, both included."""
        if a == b:
            return [a]
        if a in self._hosts_by_name:
            return [a, *self._nodes(next(iter(self._directions[a])), b, down)]
        if b in self._hosts_by_name:
            return [*self._nodes(a, next(iter(self._directions[b])), down), b]
        nodes, ways = [a], self._way_to(b, frozenset(down))
        while nodes[-1] != b:
            nodes.append(ways[nodes[-1]][1])
        return nodes

    def _name(self, one: str, two: str) -> str:
        return self._names[frozenset((one, two))]

    def _most_ns(self, at: str, to: str) -> int:
        return self._directions[at][to].longest_delay_ns

    def _sums_ns(self, ways: Ways) -> dict[str, int]:
        """For each node, the most that delay and jitter make of the way from it."""
        found: dict[str, int] = {}
        for at, (_, following) in ways.items():
            found[at] = found[following] + self._most_ns(at, following) if found else 0
        return found

    def _one_way_ns(self, a: str, b: str) -> tuple[int, int]:
        """The sums of the delays, and of a probe's serialization, on the way from host ``a`` to host ``b``."""
        if (a, b) not in self._one_ways_ns:
            hops = self.path(a, b)
            sent_ns = sum(hop.serialization_ns(PROBE_FRAME_BYTES) for hop in hops)
            self._one_ways_ns[a, b] = sum(hop.delay_ns for hop in hops), sent_ns
        return self._one_ways_ns[a, b]

    def _way_to(self, end: str, down: frozenset[str] = frozenset()) -> Ways:
        """The ways of all switches to one of them."""
        key = end, down if self.reroutes else frozenset()
        if key not in self._ways:
            known: Ways = {end: ((0, 0, 0), end)}
            ends = {self._ends[name] for name in key[1] if name in self._ends}
            usual = self._way_to(end) if key[1] else known
            # Ways without the links that are down stay the best ones.
            if not key[1] or any(usual[at][1] == to for pair in ends for at, to in permutations(pair)):
                for at, (cost, following) in usual.items():
                    if following in known and frozenset((at, following)) not in ends:
                        known[at] = cost, following
                usual = _ways(known, self._core, self.is_direct, ends)
            self._ways[key] = usual
        return self._ways[key]

    def _join(self, link: Link) -> None:
        for end in (link.a, link.b):
            if end not in self._directions:
                raise ValueError(f"link {link.name!r} leads to {end!r}, which is no node")
        if link.a == link.b or link.b in self._directions[link.a]:
            raise ValueError(f"link {link.name!r} joins nodes that are joined already")
        self._directions[link.a][link.b] = link.spec.a_to_b
        self._directions[link.b][link.a] = link.spec.b_to_a
        ends = frozenset((link.a, link.b))
        self._names[ends], self._ends[link.name] = link.name, ends

    def _check_connected(self) -> None:
        for host in self.hosts:
            if len(self._directions[host.name]) != 1:
                raise ValueError(f"host {host.name!r} has {len(self._directions[host.name])} links, not one")
            if not self._directions[host.name].keys() <= self._core.keys():
                raise ValueError(f"host {host.name!r} has no link to a switch")
        if not self._directions:
            return
        start = next(iter(self._directions))
        seen = {start, *way_to(start, self._directions)}
        missing = [name for name in self._directions if name not in seen]
        if missing:
            raise ValueError(f"not connected: {', '.join(missing)}")


def network_of(config: Config, queues: bool = True) -> Topology:
    """The config's network, members first: all hosts on one switch, those of each site on a switch of its name, or
    each on the switch that it names.

    Sites that have a link use it, whatever a way over others takes. With ``queues`` see
    ``Topology.with_queues``; they change no round trip.
    """
    prefix_length = config.subnet.prefixlen
    hosts = [Host(node.name, "member", node.ip, prefix_length) for node in config.nodes]
    hosts += [Host(client.name, "benchmark", client.ip, prefix_length) for client in config.clients]
    links = [Link(node.name, node.site or node.switch or SWITCH_NAME, node.link) for node in config.hosts]
    switches = config.sites or config.switches or (SWITCH_NAME,)
    network = Topology(hosts, switches, [*links, *config.switch_links], not config.switches, config.reroute)
    return network.with_queues() if queues else network


def _with_queue(direction: DirectionSpec, rtt_ns: int) -> DirectionSpec:
    if direction.rate_bps is None or direction.queue_frames is not None or direction.queue_bytes is not None:
        return direction
    return replace(direction, default_queue_frames=default_frames(rtt_ns, direction.rate_bps, direction.overhead_bytes))


SEGMENT_HEADER_BYTES = 14 + 20 + 20 + 12
"""Around the payload of a TCP segment: Ethernet, IPv4, TCP, and its timestamps (RFC 7323), which Linux sends."""

MAX_PAYLOAD_BYTES = FULL_FRAME_BYTES - SEGMENT_HEADER_BYTES
"""The largest TCP payload of a frame: 1448 bytes."""


def frames_of(payload_bytes: int) -> tuple[int, int]:
    """The number of frames for a TCP payload (at least one), and the length of the last one in bytes."""
    full, rest = divmod(payload_bytes, MAX_PAYLOAD_BYTES)
    if rest or not full:
        return full + 1, SEGMENT_HEADER_BYTES + rest
    return full, FULL_FRAME_BYTES


def serialization_ns(hops: Sequence[DirectionSpec], payload_bytes: int) -> int:
    """From the first bit sent at the first hop to the last bit sent at the last one, delays left out.

    Every hop stores and forwards each frame and sends frames in order, so frame f has left hop h at
    t(h, f) = max(t(h-1, f), t(h, f-1)) + its time at the rate of h. All frames but the last are full: the longest way
    through that grid waits for all full ones at the slowest hop, visits the hops up to some hop j with a full frame,
    and those from j on with the last one.
    """
    if not hops:
        return 0
    frames, last_bytes = frames_of(payload_bytes)
    of_last = [hop.serialization_ns(last_bytes) for hop in hops]
    if frames == 1:
        return sum(of_last)
    of_full = [hop.serialization_ns(FULL_FRAME_BYTES) for hop in hops]
    return (frames - 2) * max(of_full) + max(sum(of_full[: j + 1]) + sum(of_last[j:]) for j in range(len(hops)))


class UnloadedNetwork:
    """One-way times on a network without other traffic; with ``draws`` the jitter of each is drawn from them.

    Where jitter keeps order, each direction has one delay until ``redraw``: messages that are sent over it at the same
    moment have the same, and later ones a similar one. Directions that follow a trace are always as fast as it makes
    them at most. TCP and HTTP/2 windows, losses and CPUs are not modelled; they can only add time.
    """

    def __init__(self, topology: Topology, draws: Random | None = None) -> None:
        self._topology = topology
        self._draws = draws
        self._known_ns: dict[tuple[str, str, int], float] = {}
        self._drawn_ns: dict[str, float] = {}  # by the names of directions

    def redraw(self) -> None:
        """From now on jitter is another one: that of another request."""
        self._drawn_ns.clear()

    def one_way_ns(self, a: str, b: str, payload_bytes: int) -> float:
        """From host ``a`` sending a message to host ``b`` having all of it."""
        key = (a, b, payload_bytes)
        if self._draws is None and key in self._known_ns:
            return self._known_ns[key]
        hops = self._topology.hops(a, b)
        found = serialization_ns([hop.spec.fastest for hop in hops], payload_bytes) + sum(map(self._delay_ns, hops))
        self._known_ns[key] = found
        return found

    def sending_ns(self, a: str, b: str, payload_bytes: int) -> int:
        """How long the message occupies the first link on the way from ``a`` to ``b``."""
        return serialization_ns([hop.fastest for hop in self._topology.path(a, b)[:1]], payload_bytes)

    def last_sent_ns(self, a: str, b: str, payload_bytes: int) -> int:
        """How long after the start the last frame of a message may be sent over the first link and be there in time.

        In time is after ``one_way_ns``. Where the frames before it wait at a slower link, it may be sent later than
        ``sending_ns``.
        """
        hops = [hop.fastest for hop in self._topology.path(a, b)]
        _, last_bytes = frames_of(payload_bytes)
        return serialization_ns(hops, payload_bytes) - sum(hop.serialization_ns(last_bytes) for hop in hops[1:])

    def _delay_ns(self, hop: Hop) -> float:
        fastest = hop.spec.fastest
        if (jitter := fastest.jitter) is None or self._draws is None:
            return fastest.delay_ns
        if jitter.reorder:
            return fastest.delay_ns + _drawn_ns(jitter, self._draws)
        if hop.name not in self._drawn_ns:
            self._drawn_ns[hop.name] = _drawn_ns(jitter, self._draws)
        return fastest.delay_ns + self._drawn_ns[hop.name]


def jitters_of(topology: Topology) -> list[Jitter]:
    """The jitter of each direction that has some."""
    return [side.jitter for link in topology.links for side in link.spec.sides if side.jitter is not None]


def _drawn_ns(jitter: Jitter, draws: Random) -> float:
    """The difference of a delay from its mean; the same distributions as link_emulator/model/chance.go."""
    if jitter.distribution == "uniform":
        return draws.uniform(-jitter.ns, jitter.ns)
    while abs(z := draws.gauss(0.0, 1.0)) > REACH["normal"]:
        pass
    return z * jitter.ns
