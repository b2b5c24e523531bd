"""Plain namespaces on the link emulator: what a gate is tried on, without hosts or an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from containernet_env.hosts import netns
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.model.topology import Topology
from containernet_env.network.emulator import LinkEmulator
from containernet_env.network.factory import LinkFactory, Place
from containernet_env.network.gate import Gate, measure_gate
from containernet_env.network.link import ShapedLink


@dataclass(frozen=True)
class Star:
    """It, up. ``links`` are by their first end."""

    topology: Topology
    pids: dict[str, int]
    links: dict[str, ShapedLink]
    emulator: LinkEmulator

    def gate(self, **more: object) -> Gate:
        """One gate over it; the prober is the product's own."""
        return measure_gate(self.topology, self.pids, links="emulator", **more)

    def unread(self) -> int:
        """How many frames the kernel dropped since the emulator read too slowly."""
        ports = self.emulator.request("stats").result["ports"].values()
        return sum(port["tap_drops"]["queue"] for port in ports)


@contextmanager
def star(topology: Topology, binary: Path | None = None) -> Iterator[Star]:
    """Bring ``topology`` up on the link emulator at ``binary`` (default: the product's own)."""
    with ExitStack() as stack:
        factory = LinkFactory("emulator", "gt", binary, lambda kind, text: None)
        stack.callback(factory.close)
        switches = {name: Place(name, factory.make_switch(name)) for name in topology.switches}
        pids, links = {}, {}
        for link in topology.links:
            here = switches.get(link.a)
            if here is None:
                pids[link.a] = stack.enter_context(ThrowawayNamespace()).pid
                here = Place(link.a, pids[link.a], address=f"{topology.host(link.a).ip}/24")
                # Unexpected frames (routers, neighbours) would draw losses, too.
                netns.call_in(pids[link.a], partial(Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text, "1"))
            links[link.a] = factory.make_link(here, switches[link.b], link.spec)
        if topology.has_loop:
            factory.fabric.route(topology.routes())
        yield Star(topology, pids, links, factory.emulator)
