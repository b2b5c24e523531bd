"""What a run needs of a network and of its hosts, whichever engine makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from containernet_env.hosts.limits import Limits
from containernet_env.model.link import Distribution, LinkSpec
from containernet_env.network.link import EventHandler
from containernet_env.plan.plan import HostPlan
from containernet_env.stores.cluster import MemberHost


class TestbedHost(MemberHost, Protocol):
    """A container that is a host of the network, and a node of Mininet's.

    ``pid`` is its first process on this machine: whatever has to be done in its network namespace is done through it.
    """

    nameToIntf: Any
    """Mininet's: the host's interfaces by all their names."""

    def wait_up(self, deadline_s: float) -> None:
        """Return when the container runs within its limits, which are read back from the kernel.

        Raises ``RunError`` that names host and image where it failed, or after ``deadline_s``.
        """

    def limits(self) -> Limits:
        """CPU and memory limits as the kernel holds them now."""

    def limit_cpu(self, quota_us: int | None, period_us: int) -> None:
        """Let it have so much CPU time per period from now on; ``None``: without a limit.

        Raises ``RunError`` unless the kernel then holds it.
        """

    def defaultIntf(self) -> Any:
        """Mininet's: the interface of its link, whose ``name`` is the kernel's."""

    def freeze(self) -> int:
        """Stop its first process (SIGSTOP); when that was sent (monotonic, ns)."""

    def thaw(self) -> int:
        """Let its first process go on (SIGCONT); likewise."""

    def kill(self) -> int:
        """Kill its first process; likewise. These raise ``RunError`` where that has ended."""

    def wait_frozen(self, frozen: bool) -> None:
        """Return once the kernel says that its first process is stopped, or goes on. Raises ``RunError`` else."""

    def restart(self) -> None:
        """Start its first process again, which has ended, on its files and within its limits, which are read back.

        Its links are made again as they were last, with its addresses and neighbours, and read back. Raises
        ``RunError``.
        """

    def run(self, *args: Any) -> tuple[int, str]:
        """Run a command in the host's shell; its exit status, and what it printed with plain line ends."""


class LiveLink(Protocol):
    """A link while the network runs; see ``network.link.ShapedLink``."""

    @property
    def spec(self) -> LinkSpec: ...

    def change_directions(self, changes: Mapping[str, Mapping[str, Any]]) -> int: ...

    def statistics(self) -> dict[str, Any]: ...


class LiveChanges(Protocol):
    """Changes of links while the network runs, which every engine builds on; see ``live_links.LiveLinks``."""

    def link_between(self, node1: Any, node2: Any) -> LiveLink: ...

    def set_link_up(self, node1: Any, node2: Any, up: bool) -> int: ...

    def change_link(self, node1: Any, node2: Any, *, one_way: bool = False, **values: Any) -> int: ...

    def set_delay(self, node1: Any, node2: Any, delay: str | int, *, one_way: bool = False) -> int: ...

    def set_rate(self, node1: Any, node2: Any, mbps: Any | None, *, one_way: bool = False) -> int: ...

    def set_loss(self, node1: Any, node2: Any, loss: Any, *, one_way: bool = False) -> int: ...

    def set_jitter(
        self, node1: Any, node2: Any, jitter: Any, *, distribution: Distribution = "uniform", one_way: bool = False
    ) -> int: ...

    def partition(self, sets: Sequence[Iterable[Any]]) -> int: ...

    def heal(self) -> int: ...


class TestbedNetwork(LiveChanges, Protocol):
    """One network: hosts first, then switches and links, then ``start``; ``stop`` at any time.

    It is a Mininet network too, which is what the command line of ``shell`` works on. Every call raises ``RunError``
    for what the system does not do, and nothing that was asked for is approximated or left out in silence.
    """

    backend_name: str
    """The value of ``--engine``."""
    backend_version: str
    """What it is built on, for the run's record."""
    backend_commit: str | None
    """Its commit where it is somebody else's and that can be told, for the run's record."""
    hosts_kind: str
    """What the hosts are, for the CSV."""
    links_kind: Any
    """What carries the links, for the CSV."""
    switches_kind: Any
    """What joins the links, for the run's record."""

    @property
    def link_backend(self) -> str:
        """What carries the links, and on which switches, in words."""

    def add_host(self, plan: HostPlan, image: str, command: Sequence[str]) -> TestbedHost:
        """Add a container with the plan's address and limits, whose first process is ``command``.

        It has no network of the Docker engine's, no capabilities and the run's labels. It may still be coming up.
        """

    def add_switch(self, name: str) -> None:
        """Add a switch that learns addresses by itself."""

    def add_link(self, node1: str, node2: str, spec: LinkSpec) -> None:
        """Join two nodes by a link of that spec, seen from ``node1``."""

    def start(self) -> None:
        """Give hosts their addresses and let switches forward; what the system then holds is read back."""

    def staticArp(self) -> None:
        """Mininet's: make every host a permanent neighbour of every other, so that none has to be resolved."""

    def stop(self) -> None:
        """Remove everything. Idempotent; tolerates only what is gone; raises ``RunError`` for what stays."""

    def on_event(self, handler: EventHandler) -> None:
        """Have ``handler`` told when a port went down or what carries the links has ended."""

    def link_statistics(self, *, reset: bool = False, buckets: bool = False) -> dict[str, Any]:
        """What every link saw; see ``live_links.LiveLinks``."""

    def link_backend_log(self) -> str | None:
        """The last lines that the program that carries the links printed; ``None`` where it is the kernel."""

    def link_backend_answers(self, timeout_s: float) -> bool:
        """Whether the program that carries the links answers within so long; true where the kernel does it."""

    def link_backend_facts(self) -> Mapping[str, Any]:
        """What the program that carries the links said of itself when it started; empty where it is the kernel."""
