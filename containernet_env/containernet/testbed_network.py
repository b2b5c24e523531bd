"""The interface of a network and of its hosts that every network engine provides for runs.

The classes of the engines inherit the defaults and the descriptions here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from containernet_env.config.plan import HostPlan
from containernet_env.hosts.limits import Limits
from containernet_env.model.link import LinkSpec
from containernet_env.network.link import EventHandler, Rerouted, Routes
from containernet_env.stores.cluster import MemberHost


class TestbedHost(MemberHost, Protocol):
    """A container that is a host of the network and a Mininet node.

    ``pid`` is its first process on this machine: its network namespace is reached through it.
    """

    nameToIntf: Any
    """Mininet's: the host's interfaces by all their names."""

    def wait_up(self, deadline_s: float) -> None:
        """Return when the container runs within its limits, which are read back from the kernel.

        Raises ``RunError`` that names host and image if it failed, or after ``deadline_s``.
        """

    def limits(self) -> Limits:
        """CPU and memory limits as the kernel holds them now."""

    def limit_cpu(self, quota_us: int | None, period_us: int) -> None:
        """Limit its CPU time per period; ``None``: no limit.

        Raises ``RunError`` unless the kernel applies it.
        """

    def defaultIntf(self) -> Any:
        """Mininet's: the interface of its link, whose ``name`` is the kernel's."""

    def freeze(self) -> int:
        """Stop its first process (SIGSTOP); returns when the signal was sent (monotonic, ns)."""

    def thaw(self) -> int:
        """Continue its first process (SIGCONT); likewise."""

    def kill(self) -> int:
        """Kill its first process; likewise. These raise ``RunError`` where that has ended."""

    def wait_frozen(self, frozen: bool) -> None:
        """Return once the kernel reports its first process as stopped, or as running. Raises ``RunError`` otherwise."""

    def restart(self) -> None:
        """Restart its ended first process, on its files and within its limits, which are read back.

        Its links are created again with their last configuration, its addresses and neighbours, and read back. Raises
        ``RunError``.
        """

    def run(self, *args: Any) -> tuple[int, str]:
        """Run a command in the host's shell; its exit status, and its output with plain line ends."""


class LiveLink(Protocol):
    """A link while the network runs; see ``network.link.ShapedLink``."""

    @property
    def spec(self) -> LinkSpec: ...

    def change_directions(self, changes: Mapping[str, Mapping[str, Any]]) -> int: ...

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

    def add_host(self, plan: HostPlan, image: str, command: Sequence[str]) -> TestbedHost:
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
