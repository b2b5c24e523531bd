"""The original Containernet as the network: its hosts, its links, its switches, through its own classes.

Can be imported only where `from mininet.net import Containernet` finds it (see ``select``). Its way of ending is not
used: it talks to a shell in every container, which hangs where one is gone or busy, and it removes by names.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mininet.net
import mininet.node  # before mininet.link, which cannot be imported first where it is Containernet's
from mininet.link import TCLink
from mininet.net import CONTAINERNET_VERSION, VERSION, Mininet
from mininet.net import Containernet as OriginalContainernet

from containernet_env.base import clock, system_path
from containernet_env.base.errors import ContainernetEnvError, MissingRequirementError, RunError
from containernet_env.containernet.links import NetworkLink
from containernet_env.containernet.live_links import LiveLinks
from containernet_env.containernet.measurements import Measurements
from containernet_env.containernet.original.host import OriginalHost
from containernet_env.containernet.original.links import CheckedInterface, OriginalLink, keywords
from containernet_env.containernet.original.origin import commit_of
from containernet_env.containernet.original.switches import NamespacedBridge, OwnedOvsBridge
from containernet_env.containernet.tear_down import CONTAINERS, attempt, tear_down_error
from containernet_env.hosts import engine
from containernet_env.hosts.engine import EngineGoneError
from containernet_env.model.choices import SwitchKind
from containernet_env.model.link import LinkSpec
from containernet_env.network.fabric import Fabric, KernelFabric
from containernet_env.network.interface import NAME_MAX, derive_mac, enter_neighbours
from containernet_env.network.leftovers import remove_interfaces
from containernet_env.network.link import EventHandler
from containernet_env.plan.plan import HostPlan


def commit() -> str | None:
    """The original's commit, where that can be told."""
    return commit_of(Path(mininet.net.__file__).parent)


class OriginalNetwork(Measurements, LiveLinks, OriginalContainernet):  # type: ignore[misc]
    """See ``TestbedNetwork``. ``switches``: "ovs" is its OVSBridge, "bridge" its LinuxBridge. Needs root."""

    backend_name = "containernet"
    backend_version = f"{CONTAINERNET_VERSION} (Mininet {VERSION})"
    hosts_kind = "containernet"
    links_kind = "tclink"

    def __init__(self, run_id: str, switches: SwitchKind) -> None:
        if os.geteuid() != 0:
            raise MissingRequirementError("networks and containers can only be made by root", "Run it with sudo.")
        self.run_id = run_id
        self.switches_kind = switches
        self.fabric: Fabric = KernelFabric()
        self._numbers = itertools.count()
        # Its constructors ask the engine and the kernel for things and then take note of them. On this thread no
        # signal interrupts one, so that `stop` knows all there is once it has ended.
        self._worker = clock.ThreadPoolExecutor(1, thread_name_prefix="containernet")
        # Mininet's init() would raise sysctls of this machine, and never put them back.
        Mininet.inited = True
        # It runs mnexec, docker, ifconfig and brctl.
        system_path.complete()
        super().__init__(controller=None, link=TCLink, build=False)

    # --- bringing it up -------------------------------------------------------------------------------------------

    @property
    def backend_commit(self) -> str | None:
        """See ``testbed_network.TestbedNetwork``."""
        return commit()

    @property
    def link_backend(self) -> str:
        """See ``testbed_network.TestbedNetwork``."""
        return f"Containernet's TCLink on its {'OVSBridge' if self.switches_kind == 'ovs' else 'LinuxBridge'}"

    def add_host(self, plan: HostPlan, image: str, command: Sequence[str]) -> OriginalHost:
        """See ``testbed_network.TestbedNetwork``; the container runs when this returns."""
        with _translated(f"host {plan.name} (image {image})"):
            host: OriginalHost = self._carry_out(
                self.addDocker,
                plan.name,
                cls=OriginalHost,
                ip=f"{plan.ip}/{plan.prefix_length}",
                run_id=self.run_id,
                plan=plan,
                image=image,
                command=command,
            )
        return host

    def add_switch(self, name: str) -> None:
        """See ``testbed_network.TestbedNetwork``."""
        with _translated(f"switch {name}"):
            if self.switches_kind == "ovs":
                self._carry_out(self.addSwitch, name, cls=OwnedOvsBridge, run_id=self.run_id)
            else:
                self._carry_out(self.addSwitch, name, cls=NamespacedBridge)

    def add_link(self, node1: str, node2: str, spec: LinkSpec) -> None:
        """See ``testbed_network.TestbedNetwork``."""
        name = f"{node1}-{node2}"
        # Its LinuxBridge takes only interfaces whose names have its own in them, and every pair begins its life among
        # the machine's interfaces, where its usual names (etcd1-eth0) may be somebody else's.
        names = [self._interface_name(node) for node in (node1, node2)]
        with _translated(f"link {name}"):
            link = self._carry_out(
                self.addLink,
                node1,
                node2,
                cls=TCLink,
                cls1=CheckedInterface,
                cls2=CheckedInterface,
                intfName1=names[0],
                intfName2=names[1],
                addr1=derive_mac(node1, 0),
                addr2=derive_mac(f"{node2}/{node1}", 0),
                params1=keywords(spec.a_to_b),
                params2=keywords(spec.b_to_a),
            )
            made = OriginalLink(name, link, spec)
            self.links[self.links.index(link)] = NetworkLink(made, link.intf1, link.intf2)
            made.limit_segments()

    def _interface_name(self, node: str) -> str:
        part = node if node in (switch.name for switch in self.switches) else ""
        name = f"{self.run_id}{part}e{next(self._numbers)}"
        if len(name) > NAME_MAX:
            raise RunError(f"interface name {name} is too long: the kernel allows {NAME_MAX} characters")
        return name

    def start(self) -> None:
        """See ``testbed_network.TestbedNetwork``."""
        with _translated("network"):
            self._carry_out(super().start)
        for host in self.hosts:
            host.defaultIntf().check_address(host.params["ip"])
        for switch in self.switches:
            switch.check(intf.name for intf in switch.intfList() if intf.link is not None)
        for link in self.links:
            link.held.check()
        self.write_names()

    def _carry_out(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self._worker.submit(call, *args, **options).result()

    def staticArp(self) -> None:
        """See ``TestbedNetwork``; from outside, since its own way needs `arp` and NET_ADMIN in the containers."""
        ends = [host.defaultIntf() for host in self.hosts]
        for own in ends:
            others = [(end.ip, end.mac) for end in ends if end is not own]
            enter_neighbours(own.node.pid, own.name, others)

    def on_event(self, handler: EventHandler) -> None:
        """See ``testbed_network.TestbedNetwork``; the kernel carries the links, and tells nothing."""

    def link_backend_log(self) -> None:
        """See ``TestbedNetwork``."""

    def link_backend_answers(self, timeout_s: float) -> bool:
        """See ``testbed_network.TestbedNetwork``."""
        return True

    def link_backend_facts(self) -> Mapping[str, Any]:
        """See ``testbed_network.TestbedNetwork``."""
        return {}

    # --- the end --------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """See ``testbed_network.TestbedNetwork``."""
        problems: list[tuple[str, Exception]] = []
        self._worker.shutdown(wait=True, cancel_futures=True)
        attempt("captures", self.stop_captures, problems)
        # By their names: also one that failed half-way. Their links go with their namespaces.
        attempt(CONTAINERS, self._remove_containers, problems)
        if any(isinstance(failure, EngineGoneError) for _, failure in problems):
            for host in self.hosts:
                attempt(host.name, host.container.remove, problems)
        for host in self.hosts:
            attempt(host.name, host.release, problems)
        for switch in self.switches:
            attempt(switch.name, switch.remove, problems)
        attempt("interfaces", lambda: remove_interfaces(self.run_id), problems)
        if problems:
            raise tear_down_error(problems)

    def _remove_containers(self) -> None:
        engine.remove_containers([container.id for container in engine.list_ours(self.run_id)])


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Raise as ``RunError`` what its classes raise: plain exceptions, the SDK's, and even an exit of the program."""
    try:
        with engine.refusals("the engine refused"):
            yield
    except RunError as error:
        raise RunError(f"{what}: {error}") from error
    except ContainernetEnvError:
        raise
    except (Exception, SystemExit) as error:
        raise RunError(f"{what}: {type(error).__name__}: {error}") from error
