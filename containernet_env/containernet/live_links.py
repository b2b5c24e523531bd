"""Changes of links while the network runs, partitions, and what the links saw: a part of ``Containernet``.

Every change returns the moment on the monotonic clock (CLOCK_MONOTONIC, ns; Python's ``time.monotonic_ns``) at which it
took effect. With the link emulator that is one moment for everything a call changes, between two frames; where the
kernel carries the links, directions and hosts follow each other within milliseconds and it is when the last was done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Interface
from itertools import permutations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mininet.log import error
from mininet.node import Host

from containernet_env.base.errors import RunError, UsageError
from containernet_env.base.units import parse_bandwidth, parse_duration
from containernet_env.config.hints import closest
from containernet_env.containernet.links import NetworkLink
from containernet_env.hosts.netns import ProcessGoneError
from containernet_env.model.chance import Distribution, IndependentLoss, Jitter, Loss
from containernet_env.network.capture import Capture
from containernet_env.network.fabric import Fabric
from containernet_env.network.interface import Interface, read_addresses, read_gateway


class LiveLinks:
    """What ``Containernet`` can do to its links while it runs; nodes are given as nodes or names.

    All calls raise ``UsageError`` for what is not there, out of range, or beyond what carries the links, and
    ``RunError`` where the system fails.
    """

    if TYPE_CHECKING:
        links: list[Any]
        hosts: list[Any]
        nameToNode: dict[str, Any]
        fabric: Fabric
        links_kind: Any
        changing: Any  # a lock: of partitions, and of links that they concern

        def linksBetween(self, node1: Any, node2: Any) -> list[NetworkLink]: ...

    # --- one link ----------------------------------------------------------------------------------------------

    def link_between(self, node1: Any, node2: Any) -> NetworkLink:
        """The only link between two nodes."""
        between = self._between(node1, node2)
        if len(between) > 1:
            names = ", ".join(link.name for link in between)
            raise UsageError(f"there are {len(between)} links between {node1} and {node2}: {names}")
        return between[0]

    def change_link(self, node1: Any, node2: Any, *, one_way: bool = False, **values: Any) -> int:
        """Change fields of ``DirectionSpec`` in both directions, ``one_way``: only of what ``node1`` sends.

        What is not given stays as it is.
        """
        link = self.link_between(node1, node2)
        from_first = "a_to_b" if link.intf1.node is self._node(node1) else "b_to_a"
        sides = [from_first] if one_way else ["a_to_b", "b_to_a"]
        return link.change_directions(dict.fromkeys(sides, values))

    def set_delay(self, node1: Any, node2: Any, delay: str | int, *, one_way: bool = False) -> int:
        """Change the delay: text with a unit ("10ms"), or nanoseconds. See ``change_link``."""
        if isinstance(delay, str):
            try:
                delay = parse_duration(delay)
            except ValueError as reason:
                raise UsageError(f"delay {delay!r}; allowed: {reason}") from reason
        return self.change_link(node1, node2, one_way=one_way, delay_ns=delay)

    def set_rate(self, node1: Any, node2: Any, mbps: Any | None, *, one_way: bool = False) -> int:
        """Change the bandwidth: Mbit/s, ``None`` for unlimited. See ``change_link``."""
        try:
            rate_bps = None if mbps is None else parse_bandwidth(mbps)
        except ValueError as reason:
            raise UsageError(f"rate {mbps!r}; allowed: {reason}") from reason
        return self.change_link(node1, node2, one_way=one_way, rate_bps=rate_bps)

    def set_loss(self, node1: Any, node2: Any, loss: float | Loss | None, *, one_way: bool = False) -> int:
        """Change the loss: a ratio (0 to 1) of frames, each by itself, or a loss model. See ``change_link``."""
        if isinstance(loss, (int, float)):
            try:
                loss = IndependentLoss(loss) if loss != 0 else None
            except (TypeError, ValueError) as reason:
                raise UsageError(f"loss {loss!r}: {reason}") from reason
        return self.change_link(node1, node2, one_way=one_way, loss=loss)

    def set_jitter(
        self,
        node1: Any,
        node2: Any,
        jitter: Jitter | str | None,
        *,
        distribution: Distribution = "uniform",
        one_way: bool = False,
    ) -> int:
        """Change the jitter; ``None`` is none. See ``change_link``.

        Text with a unit ("1ms") is of that distribution, and frames keep their order where the links can keep it.
        """
        if isinstance(jitter, str):
            try:
                jitter = Jitter(distribution, parse_duration(jitter), reorder=self.links_kind != "emulator")
            except ValueError as reason:
                raise UsageError(f"jitter {jitter!r}; allowed: {reason}") from reason
        return self.change_link(node1, node2, one_way=one_way, jitter=jitter)

    def link_down(self, node1: Any, node2: Any) -> int:
        """Pull the cables between two nodes: what travels on them is lost; addresses and routes stay."""
        return self.set_link_up(node1, node2, False)

    def link_up(self, node1: Any, node2: Any) -> int:
        """Plug the cables between two nodes in again."""
        return self.set_link_up(node1, node2, True)

    def set_link_up(self, node1: Any, node2: Any, up: bool) -> int:
        """``link_up`` or ``link_down``; with several links between the nodes, the time of the last."""
        return max(link.set_up(up) for link in self._between(node1, node2))

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """``set_link_up`` for Mininet's CLI, which an exception would end: problems are printed, as Mininet does."""
        try:
            if status not in ("up", "down"):
                raise UsageError(f"a link is set up or down, got {status!r}")
            self.set_link_up(src, dst, status == "up")
        except (UsageError, RunError) as problem:
            error(f"*** {problem}\n")

    def _node(self, node: Any) -> Any:
        if not isinstance(node, str):
            return node
        if node not in self.nameToNode:
            near = closest(node, list(self.nameToNode))
            raise UsageError(f"there is no node called {node!r}{f'; did you mean {near}?' if near else ''}")
        return self.nameToNode[node]

    def _between(self, node1: Any, node2: Any) -> list[NetworkLink]:
        between = self.linksBetween(self._node(node1), self._node(node2))
        if not between:
            raise UsageError(f"there is no link between {node1} and {node2}")
        return between

    # --- the whole network -------------------------------------------------------------------------------------

    parted: tuple[tuple[str, ...], ...] = ()
    """The sets of hosts that a partition keeps apart, by name."""

    def partition(self, sets: Sequence[Iterable[Any]]) -> int:
        """Keep hosts of different sets apart, in place of an earlier partition; hosts in no set reach everybody.

        ``sets``: two or more, none empty, no host twice. Judged as a frame reaches a host, so what is under way between
        two sets is lost; links stay up and carry the load of all. Refused where a host in no set forwards between two.
        """
        groups = [[self._node(node) for node in group] for group in sets]
        if len(groups) < 2 or not all(groups):
            raise UsageError("a partition has two or more sets, each of one host or more")
        nodes = [node for group in groups for node in group]
        for node in nodes:
            if not isinstance(node, Host):
                raise UsageError(f"{node.name} is no host: a partition is between hosts")
            if nodes.count(node) > 1:
                raise UsageError(f"{node.name} stands in the partition twice")
            if not self._ends_of(node):
                raise UsageError(f"{node.name} has no link")
        for one, other, router in routed(groups, self.hosts):
            if router not in [node.name for node in nodes]:
                raise UsageError(
                    f"{one.name} reaches {other.name} through {router}, which is in no set, so they would not be "
                    f"parted: add {router} to one of the sets"
                )
        with self.changing:
            at_ns = self.fabric.partition([[end for node in group for end in self._ends_of(node)] for group in groups])
            self.parted = tuple(tuple(node.name for node in group) for group in groups)
        return at_ns

    def heal(self) -> int:
        """End the partition; without one, nothing changes."""
        with self.changing:
            at_ns = self.fabric.heal()
            self.parted = ()
        return at_ns

    def part_again(self) -> None:
        """Let the partition hold for the links that its hosts have now."""
        if self.parted:
            groups = [[end for name in names for end in self._ends_of(self.nameToNode[name])] for names in self.parted]
            if len(ends := [group for group in groups if group]) > 1:
                self.fabric.partition(ends)
            else:
                self.fabric.heal()

    def _ends_of(self, node: Any) -> list[Interface]:
        made = [link for link in self.links if link.held.made]
        ends = [link.end_of(intf) for link in made for intf in (link.intf1, link.intf2) if intf.node is node]
        return [end for end in ends if isinstance(end, Interface)]

    def write_names(self) -> None:
        """Have every container know all hosts by their names: in /etc/hosts, with the addresses that they have now."""
        addresses = {host.name: host.IP() for host in self.hosts if host.intfs and host.IP()}
        for host in self.hosts:
            if (container := getattr(host, "container", None)) is not None:
                container.write_names(addresses)

    # --- recordings --------------------------------------------------------------------------------------------

    _captures: tuple[Capture, ...] = ()

    @property
    def captures(self) -> tuple[Capture, ...]:
        """The recordings that have not been stopped."""
        return self._captures

    def start_capture(self, node: Any, path: Path | str) -> Capture:
        """Record the frames of a host's first interface into a pcap file, until it or the network is stopped."""
        host = self._node(node)
        for other in self._captures:
            if other.running and other.path.resolve() == Path(path).resolve():
                raise UsageError(f"{path} is being recorded into already, by {other.name}; choose another file")
        capture = Capture(host.name, host.pid, host.defaultIntf().name, Path(path))
        self._captures = (*self._captures, capture)
        return capture

    def stop_capture(self, capture: Capture) -> str:
        """End one recording; what was recorded, in words."""
        self._captures = tuple(other for other in self._captures if other is not capture)
        return capture.stop()

    def stop_captures(self) -> list[str]:
        """End all recordings; what was recorded, in words."""
        return [self.stop_capture(capture) for capture in self._captures]

    # --- what it saw -------------------------------------------------------------------------------------------

    def link_statistics(self, *, reset: bool = False, buckets: bool = False) -> dict[str, Any]:
        """What every link saw since the network came up; see ``Fabric.statistics``."""
        return self.fabric.statistics([link.held for link in self.links], reset=reset, buckets=buckets)


def routed(groups: Sequence[Sequence[Any]], hosts: Iterable[Any]) -> Iterator[tuple[Any, Any, str]]:
    """Hosts of different groups that reach each other through a router, with its name, or address if it is no host.

    By the hosts' own routes, unless one shares all networks of the other. Hosts that have ended have none.
    """
    pairs = [pair for one, other in permutations(groups, 2) for pair in product(one, other)]
    pairs = [(one, other) for one, other in pairs if not _shared_network(one, other)]
    if not pairs:
        return
    held = {}
    for host in hosts:
        with suppress(ProcessGoneError):
            held[host] = read_addresses(host.pid)
    owners = {str(address.ip): host.name for host, addresses in held.items() for address in addresses}
    for one, other in pairs:
        for address in held.get(other, ()):
            if one in held and (gateway := read_gateway(one.pid, str(address.ip))) is not None:
                yield one, other, owners.get(gateway, gateway)


def _shared_network(one: Any, other: Any) -> bool:
    networks, others = (
        {IPv4Interface(f"{intf.ip}/{intf.prefixLen}").network for intf in host.intfs.values() if intf.ip}
        for host in (one, other)
    )
    return bool(others) and others <= networks
