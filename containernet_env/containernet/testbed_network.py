"""What a run needs of a network and of its hosts, and which engine makes them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from containernet_env.base import programs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.hosts import engine
from containernet_env.hosts.limits import Limits
from containernet_env.model.backends import SwitchKind, needs_netem
from containernet_env.model.link import Distribution, LinkSpec
from containernet_env.network.emulator import granted
from containernet_env.network.factory import choose, choose_switches, kernel_has_netem
from containernet_env.network.link import EventHandler
from containernet_env.plan.plan import HostPlan, Plan
from containernet_env.results.provenance import LinkFacts
from containernet_env.stores.protocol import MemberHost


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


GUIDE = "docs/containernet.md#on-the-original-containernet"
"""Where it is said how to install the original, with the commands."""

# What the original runs by itself, and the package that brings it on Debian and Ubuntu.
_PROGRAMS = {"mnexec": "mininet", "ifconfig": "net-tools", "docker": "docker.io or docker-cli", "ip": "iproute2"}
_BRIDGE_PROGRAMS = {"brctl": "bridge-utils"}


def create(plan: Plan) -> TestbedNetwork:
    """The network of the plan's engine, empty. Raises what its constructor raises; see ``require``."""
    if plan.options.engine == "containernet":
        require(plan)
        # Not importable where the original is missing.
        from containernet_env.containernet.original import OriginalNetwork

        return OriginalNetwork(plan.run_id, _switches(plan))

    from containernet_env.containernet.network import BuiltinNetwork

    options = plan.options
    return BuiltinNetwork(
        links=options.links,
        switches=options.switches,
        run_id=plan.run_id,
        seed=options.seed,
        emulator_core=options.links_cpu,
        controller=None,
    )


def foreseen(plan: Plan) -> LinkFacts:
    """What ``create`` would make hosts and links by, as the manifest of a run says it; needs root.

    Raises ``MissingRequirementError`` where the machine cannot have what the plan asks for.
    """
    if plan.options.engine == "containernet":
        require(plan)
        from containernet_env.containernet.original import OriginalNetwork, commit

        return LinkFacts(
            network=OriginalNetwork.backend_name,
            network_version=OriginalNetwork.backend_version,
            network_commit=commit(),
            docker_sdk=engine.SDK_VERSION,
            links=OriginalNetwork.links_kind,
            switches=_switches(plan),
            link_emulator=None,
        )

    from containernet_env.containernet.network import BuiltinNetwork

    links = choose(plan.options.links)
    return LinkFacts(
        network=BuiltinNetwork.backend_name,
        network_version=BuiltinNetwork.backend_version,
        network_commit=BuiltinNetwork.backend_commit,
        docker_sdk=engine.SDK_VERSION,
        links=links,
        switches=choose_switches(plan.options.switches, links),
        link_emulator=granted(plan.options.links_cpu) if links == "emulator" else None,
    )


def _switches(plan: Plan) -> SwitchKind:
    return choose_switches(plan.options.switches, "netem")


def require(plan: Plan) -> None:
    """Raise ``MissingRequirementError`` where the machine lacks something that the plan's engine needs.

    Nothing is created; finding out whether the kernel has netem needs root.
    """
    if plan.options.engine != "containernet":
        return
    # First: nobody should install what this kernel cannot use.
    delayed = any(needs_netem(direction) for link in plan.links for direction in (link.spec.a_to_b, link.spec.b_to_a))
    if (delayed or plan.options.links == "netem") and not kernel_has_netem():
        raise MissingRequirementError(
            "this kernel has no netem (sch_netem): the original Containernet has no other way to delay packets and "
            "to limit what waits",
            f"Use another kernel, or leave --engine out: the project's own links need no netem. See {GUIDE}.",
        )
    require_original()
    needed = _PROGRAMS if _switches(plan) == "ovs" else _PROGRAMS | _BRIDGE_PROGRAMS
    lacking = {program: package for program, package in needed.items() if programs.which(program) is None}
    if lacking:
        raise MissingRequirementError(
            f"the original Containernet runs {', '.join(lacking)}, not found in PATH",
            f"Install {', '.join(lacking.values())} (Debian, Ubuntu); the commands are in {GUIDE}.",
        )


def require_original() -> None:
    """Raise ``MissingRequirementError`` where the original Containernet is not installed; needs no root."""
    if (problem := original_problem()) is not None:
        raise MissingRequirementError(
            f"the original Containernet is not installed for this Python: {problem}",
            f"The commands that install it are in {GUIDE}. sudo drops PYTHONPATH unless it is given as "
            "`sudo PYTHONPATH=...`. Or leave --engine out.",
        )


def original_problem() -> str | None:
    """Why `from mininet.net import Containernet` finds nothing; ``None`` where it does."""
    try:
        module = importlib.import_module("mininet.net")
    except ImportError as error:
        return str(error)
    if not hasattr(module, "Containernet"):
        return "the module mininet.net is Mininet's own, without Containernet"
    return None
