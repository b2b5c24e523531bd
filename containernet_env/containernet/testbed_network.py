"""The interface of a network that every network engine provides for runs; of its hosts it is ``ContainerHost``.

The classes of the engines inherit the defaults and the descriptions here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from containernet_env.config.plan import HostPlan
from containernet_env.model.link import LinkSpec
from containernet_env.network.link import EventHandler, Rerouted, Routes

if TYPE_CHECKING:
    from containernet_env.containernet.docker import ContainerHost


class LiveLink(Protocol):
    """A link while the network runs; see ``network.link.ShapedLink``."""

    @property
    def spec(self) -> LinkSpec: ...

    def change_directions(self, changes: Mapping[str, Mapping[str, Any]], dilation: int = 1) -> int: ...

    def follow(self, start_ns: int | None) -> int: ...

    def statistics(self) -> dict[str, Any]: ...


class TestbedNetwork(Protocol):
    """One network: hosts first, then switches and links, then ``start``; ``stop`` at any time.

    It is a Mininet network too, and has ``live_links.LiveLinks``, as the command line of ``shell`` needs. Every call
    raises ``RunError`` if the system fails; no configured value is approximated or left out without an error.
    """

    backend_name: str
    """The value of ``--engine``."""
    backend_version: str
    """The library and its version, for the run's record."""
    backend_commit: str | None
    """The original Containernet's commit, if it can be determined, for the run's record."""
    hosts_kind: str
    """The kind of hosts, for the CSV."""
    links_kind: Any
    """The link backend, for the CSV."""
    switches_kind: Any
    """The kind of switches, for the run's record."""

    @property
    def link_backend(self) -> str:
        """A description of link backend and switches."""

    def add_host(self, plan: HostPlan, image: str, command: Sequence[str]) -> ContainerHost:
        """Add a container with the plan's address and limits, whose first process is ``command``.

        It has no Docker network, no capabilities and the run's labels. It may still be starting.
        """

    def add_switch(self, name: str) -> None:
        """Add a switch that learns addresses by itself."""

    def add_link(self, node1: str, node2: str, spec: LinkSpec) -> None:
        """Join two nodes by a link of that spec, seen from ``node1``."""

    def set_routes(self, routes: Routes, rerouted: Rerouted | None = None) -> None:
        """Forward frames between switches along these; see ``Fabric.route``."""

    def start(self) -> None:
        """Give hosts their addresses and let switches forward; the addresses are read back from the system."""

    def staticArp(self) -> None:
        """Mininet's: make every host a permanent neighbour of every other, so that none has to be resolved."""

    def stop(self) -> None:
        """Remove everything. Idempotent; tolerates missing resources; raises ``RunError`` for remaining ones."""

    # See ``live_links.LiveLinks``.

    def link_between(self, node1: Any, node2: Any) -> LiveLink: ...

    def set_link_up(self, node1: Any, node2: Any, up: bool) -> int: ...

    def partition(self, sets: Sequence[Iterable[Any]]) -> int: ...

    def heal(self) -> int: ...

    def link_statistics(self, *, reset: bool = False, buckets: bool = False) -> dict[str, Any]: ...

    # Kernel links have no process of their own, and report no events.

    def on_event(self, handler: EventHandler) -> None:
        """Call ``handler`` when a port goes down or the link emulator has ended."""

    def link_backend_log(self) -> str | None:
        """The last lines of the link emulator's output; ``None`` with kernel links."""
        return None

    def link_backend_answers(self, timeout_s: float) -> bool:
        """Whether the link emulator answers within the timeout; true with kernel links."""
        return True

    def link_backend_facts(self) -> Mapping[str, Any]:
        """The link emulator's description of itself at its start; empty with kernel links."""
        return {}
