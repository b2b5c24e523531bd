"""The original Containernet as the network: its hosts, links and switches, through its own classes.

Can be imported only where `from mininet.net import Containernet` finds it. Its own tear-down is not used: it runs
commands in every container, which hang where one is gone or busy, and it removes by names.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mininet.net
import mininet.node  # before mininet.link, which cannot be imported first where it is Containernet's
from mininet.link import TCLink
from mininet.net import CONTAINERNET_VERSION, VERSION
from mininet.net import Containernet as OriginalContainernet
from mininet.node import Docker as ContainernetDocker
from mininet.node import OVSBridge
from mininet.nodelib import LinuxBridge

from containernet_env.base import clock
from containernet_env.base.errors import ContainernetEnvError, RunError
from containernet_env.config.plan import HostPlan
from containernet_env.containernet.docker import ContainerHost, planned_options
from containernet_env.containernet.links import NetworkLink
from containernet_env.containernet.live_links import LiveLinks
from containernet_env.containernet.network import CONTAINERS, attempt, prepare, remove_containers, tear_down_error
from containernet_env.containernet.original_links import CheckedInterface, OriginalLink, commit_of, keywords
from containernet_env.containernet.testbed_network import TestbedNetwork
from containernet_env.hosts import engine, netns, owner
from containernet_env.hosts.container import Container
from containernet_env.hosts.engine import EngineGoneError
from containernet_env.hosts.options import ContainerOptions
from containernet_env.model.backends import SwitchKind
from containernet_env.model.link import LinkSpec
from containernet_env.network import switches
from containernet_env.network.factory import remove_interfaces
from containernet_env.network.interface import NAME_MAX, derive_mac, enter_neighbours
from containernet_env.network.kernel import KernelFabric
from containernet_env.network.link import Fabric


class EndingShell:
    """A switch whose shell can be seen to end: Mininet would wait for ever for one that Ctrl-C ends at its start."""

    slave: int | None

    def _popen(self, cmd: Sequence[str], **params: Any) -> Any:
        process = super()._popen(cmd, **params)  # type: ignore[misc]
        if self.slave is not None and params.get("stdin") == self.slave:
            # With its last end the terminal reads as closed.
            os.close(self.slave)
            self.slave = None
        return process


class NamespacedBridge(EndingShell, LinuxBridge):  # type: ignore[misc]
    """Its LinuxBridge in a network namespace that its shell holds.

    There its commands cannot affect bridges of other programs, the machine's firewall sees none of the frames, and
    everything is removed with the shell, which ends when the driver does, for any reason.
    """

    # A switch outside the machine's namespace is not given one.
    controlIntf = None

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **{**params, "inNamespace": True})

    @classmethod
    def setup(cls) -> None:
        """Its warnings are about the machine's firewall, which does not see this bridge."""

    def check(self, interfaces: Iterable[str]) -> None:
        """Raise ``RunError`` unless these interfaces are its ports, without others."""
        shown = netns.run(self.pid, ["ip", "-j", "link", "show", "master", self.name]).stdout
        ports = {entry["ifname"] for entry in json.loads(shown or "[]") if entry}
        _check_ports(self.name, ports, set(interfaces))

    def remove(self) -> None:
        _end_shell(self)


class OwnedOvsBridge(EndingShell, OVSBridge):  # type: ignore[misc]
    """Its OVSBridge, called ``<run id><name>`` and marked with its owner, whose errors are raised."""

    def __init__(self, name: str, run_id: str, **params: Any) -> None:
        self._started = False
        super().__init__(name, prefix=run_id, **params)

    @classmethod
    def isOldOVS(cls) -> bool:
        """Not older than 1.10, of 2013; its own comparison needs a module that Python has removed."""
        return False

    def bridgeOpts(self) -> str:
        """See Mininet; with the owner, from the first moment on."""
        return f'{super().bridgeOpts()} external_ids:{owner.LABEL}=\\"{owner.current()}\\"'

    def start(self, controllers: Sequence[Any]) -> None:
        super().start(controllers)
        self._started = True

    def attach(self, intf: Any) -> None:
        """See Mininet; before the start there is no bridge, and starting it adds all ports."""
        if self._started:
            super().attach(intf)

    def vsctl(self, *args: Any, **_options: Any) -> str:
        """See Mininet. Raises ``RunError`` where ovs-vsctl fails or does not answer."""
        return switches.vsctl(*shlex.split(" ".join(map(str, args))))

    def check(self, interfaces: Iterable[str]) -> None:
        """Raise ``RunError`` unless these interfaces are its ports, without others."""
        _check_ports(self.name, set(switches.vsctl("list-ports", self.deployed_name).split()), set(interfaces))

    def remove(self) -> None:
        switches.remove_bridge(self.deployed_name)
        _end_shell(self)


def _check_ports(switch: str, ports: set[str], wanted: set[str]) -> None:
    if ports != wanted:
        names = ", ".join(sorted(ports)) or "none"
        raise RunError(f"switch {switch}: its ports should be {', '.join(sorted(wanted))}, the system holds {names}")


def _end_shell(node: Any) -> None:
    """End a node's shell within a deadline: its own way waits for a busy shell for ever."""
    if node.shell is None:
        return
    with suppress(ProcessLookupError):
        # mnexec has made it the leader of a group.
        os.killpg(node.shell.pid, signal.SIGKILL)
    node.cleanup()


class EngineClient:
    """The SDK's client as its Docker class uses it, with the options of that class corrected.

    Interfaces are configured from outside (see ``original_links``), so that no capability is needed, not even the
    NET_ADMIN that the class always adds. Its cgroup parent is refused where systemd manages cgroups. ``options`` are
    the host's, and ``labels`` those by which `clean` finds it.
    """

    def __init__(self, api: Any, options: ContainerOptions, labels: Mapping[str, str]) -> None:
        self._api, self._options, self._labels = api, options, dict(labels)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def create_host_config(self, **_options: Any) -> Any:
        return self._api.create_host_config(**self._options.host_config())

    def create_container(self, **options: Any) -> Any:
        """With our labels, and without the proxies of the user's ~/.docker/config.json."""
        return self._api.create_container(**{**options, "labels": self._labels, "use_config_proxy": False})

    def update_container(self, *_args: Any, **_limits: Any) -> None:
        """Nothing: its class gives the limits once more where the container may have ended."""


class OriginalHost(ContainerHost, ContainernetDocker):  # type: ignore[misc]
    """A ``ContainerHost``. The constructor returns when the container runs within its limits.

    Its programs are started as in our own hosts: its own way, by `docker exec`, hangs where a container is gone or
    busy. Raises ``RunError`` where the engine refuses, the first process ends at once, or a limit is not held.
    """

    def __init__(
        self, name: str, run_id: str, plan: HostPlan, image: str, command: Sequence[str], **params: Any
    ) -> None:
        # Its constructor sets dnameprefix and dcli, which are properties here that need these.
        self._run_id, self._labels = run_id, engine.labels(run_id, name)
        options = planned_options(plan)
        # No network of the engine: docker0 would be a path around the emulated links, with all ports published.
        self.options = ContainerOptions(**options, cap_drop=["ALL"], logs=True)
        super().__init__(name, dimage=image, dcmd=list(command), **options, **params)
        self.pid = self.dcinfo["State"]["Pid"]
        self.container = Container(name, self.options, self.did)
        self.container.adopt(self.pid, self.dcinfo["Config"])

    # --- what its constructor sets --------------------------------------------------------------------------------

    @property
    def dnameprefix(self) -> str:
        """The prefix of the container's name; its "mn" would clash with other networks on the machine."""
        return f"cnenv-{self._run_id}"

    @dnameprefix.setter
    def dnameprefix(self, value: str) -> None:
        del value

    @property
    def dcli(self) -> Any:
        """Its client of the engine."""
        return self._client

    @dcli.setter
    def dcli(self, api: Any) -> None:
        self._client = EngineClient(api, self.options, self._labels)

    # --- state ----------------------------------------------------------------------------------------------------

    def wait_up(self, deadline_s: float) -> None:
        """Return at once: the constructor has waited."""

    def restart(self) -> None:
        """Refused: its class makes a container and its interfaces once."""
        raise RunError(f"host {self.name}: the original Containernet does not start a host again")

    def release(self) -> None:
        """End its programs and close what is open; the container is the network's to remove. Idempotent."""
        super().release()
        self.d_client.close()
        self.container.close()


class OriginalNetwork(LiveLinks, OriginalContainernet, TestbedNetwork):  # type: ignore[misc]
    """The network of ``--engine containernet``; needs root.

    ``switches``: "ovs" is its OVSBridge, "bridge" its LinuxBridge.
    """

    backend_name = "containernet"
    backend_version = f"{CONTAINERNET_VERSION} (Mininet {VERSION})"
    backend_commit = commit_of(Path(mininet.net.__file__).parent)
    hosts_kind = "containernet"
    links_kind = "tclink"

    def __init__(self, run_id: str, switches: SwitchKind) -> None:
        prepare()
        self.run_id = run_id
        self.switches_kind = switches
        self.fabric: Fabric = KernelFabric()
        self.changing = clock.RLock()
        self._numbers = itertools.count()
        # Its constructors create resources and then record them. No signal interrupts a constructor on this thread, so
        # that `stop` finds all resources recorded.
        self._worker = clock.ThreadPoolExecutor(1, thread_name_prefix="containernet")
        super().__init__(controller=None, link=TCLink, build=False)

    # --- bringing it up -------------------------------------------------------------------------------------------

    @property
    def link_backend(self) -> str:
        return f"Containernet's TCLink on its {'OVSBridge' if self.switches_kind == 'ovs' else 'LinuxBridge'}"

    def add_host(self, plan: HostPlan, image: str, command: Sequence[str]) -> OriginalHost:
        """See ``TestbedNetwork``; the container is running on return."""
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
        with _translated(f"switch {name}"):
            if self.switches_kind == "ovs":
                self._carry_out(self.addSwitch, name, cls=OwnedOvsBridge, run_id=self.run_id)
            else:
                self._carry_out(self.addSwitch, name, cls=NamespacedBridge)

    def add_link(self, node1: str, node2: str, spec: LinkSpec) -> None:
        name = f"{node1}-{node2}"
        # Its LinuxBridge accepts only interfaces whose names contain its own, and every pair is created among the
        # machine's interfaces, where its usual names (etcd1-eth0) may be in use.
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
        with _translated("network"):
            self._carry_out(OriginalContainernet.start, self)
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

    # --- the end --------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        problems: list[tuple[str, Exception]] = []
        self._worker.shutdown(wait=True, cancel_futures=True)
        attempt("captures", self.stop_captures, problems)
        # By their names: also one that failed half-way. Their links go with their namespaces.
        attempt(CONTAINERS, lambda: remove_containers(self.run_id), problems)
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


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn the exceptions of its classes into ``RunError``: plain ones, the SDK's, and even ``SystemExit``."""
    try:
        with engine.refusals("the engine refused"):
            yield
    except RunError as error:
        raise RunError(f"{what}: {error}") from error
    except ContainernetEnvError:
        raise
    except (Exception, SystemExit) as error:
        raise RunError(f"{what}: {type(error).__name__}: {error}") from error
