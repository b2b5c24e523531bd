"""Switches: inside the link emulator, as a Linux bridge or Open vSwitch, and a stand-in for their controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mininet.node import Controller, Node, Switch

from containernet_env.hosts.netns import ip_batch
from containernet_env.network.emulator.process import LinkEmulator
from containernet_env.network.interface import NoInterface
from containernet_env.network.kernel import ovs


class LazyShellNode(Node):  # type: ignore[misc]
    """A Mininet node whose shell on this machine is started by the first command that is given to it."""

    _wanted = False

    def defaultIntf(self) -> Any:
        """The first interface, or what stands for none."""
        return self.intfs[min(self.intfs)] if self.intfs else NoInterface()

    @classmethod
    def setup(cls) -> None:
        """Mininet's hook that looks for programs; none is needed before the first command."""

    def _shell_namespace(self) -> str:
        """Options for mnexec that lead to where the node's commands belong; the machine itself by default."""
        return "-cd"

    def startShell(self, mnopts: str | None = None) -> None:
        """Does nothing when Mininet's constructor asks for it."""
        if self._wanted:
            super().startShell(mnopts)

    def sendCmd(self, *args: Any, **options: Any) -> None:
        """See Mininet."""
        if not self.shell:
            self._wanted = True
            # inNamespace would make mnexec create yet another namespace.
            self.inNamespace = False
            self.startShell(self._shell_namespace())
        super().sendCmd(*args, **options)

    def cmd(self, *args: Any, **options: Any) -> Any:
        """See Mininet."""
        if not self._wanted:
            self.sendCmd(*args, **options)
            return self.waitOutput(options.get("verbose", False))
        return super().cmd(*args, **options)


class LearningSwitch(LazyShellNode, Switch):  # type: ignore[misc]
    """A switch that learns addresses by itself: no OpenFlow, no controller.

    ``ports_down`` tells ``start`` that ``stop`` pulled the cables before (the CLI's ``switch s1 stop``).
    """

    controlIntf = None

    def __init__(self, name: str, **params: Any) -> None:
        # inNamespace: Mininet would configure the machine's own loopback interface otherwise.
        params["inNamespace"] = True
        super().__init__(name, **params)
        self._ports_down = False

    def defaultDpid(self, dpid: str | None = None) -> str:
        """No OpenFlow here, so that names without a digit are fine."""
        return "0" * self.dpidLen if dpid is None else str(super().defaultDpid(dpid))

    def start(self, controllers: Sequence[Any]) -> None:
        """Forwarding begins with the first link; after ``stop`` the cables are plugged in again."""
        if self._ports_down:
            self._set_links(True)

    def stop(self, deleteIntfs: bool = False) -> None:
        """Pull every cable; the switch itself stays until the network stops."""
        self._set_links(False)

    def _set_links(self, up: bool) -> None:
        for intf in self.intfList():
            intf.link.set_up(up)
        self._ports_down = not up

    def remove(self) -> None:
        """Take the switch out of the system. Idempotent."""
        raise NotImplementedError

    def dpctl(self, *args: Any) -> str:
        """No OpenFlow here."""
        return f"{self.name} learns addresses by itself: there are no flows to show\n"


class EmulatedSwitch(LearningSwitch):
    """A switch inside the link emulator."""

    def __init__(self, name: str, emulator: LinkEmulator, **params: Any) -> None:
        self._emulator = emulator
        super().__init__(name, **params)
        self._emulator.call("add_switch", name=name)

    @property
    def pid(self) -> int | None:
        """The emulator's process."""
        return self._emulator.pid

    @pid.setter
    def pid(self, value: int | None) -> None:
        # Mininet notes its shell's process here; the switch is not in it.
        del value

    def remove(self) -> None:
        """See ``LearningSwitch``."""
        if self._emulator.pid is not None:
            self._emulator.call("remove_switch", name=self.name)


class BridgeSwitch(LearningSwitch):
    """A Linux bridge in the network's own namespace, out of reach of the machine's firewall.

    ``namespace`` gives the process that holds that namespace; ``bridge`` is the bridge's name there.
    """

    def __init__(self, name: str, namespace: Callable[[], int], bridge: str, **params: Any) -> None:
        self._namespace = namespace
        self.bridge = bridge
        super().__init__(name, **params)
        # No spanning tree and no snooping: ports forward from the start and multicast is flooded.
        ip_batch(
            self.pid,
            [
                f"link add name {bridge} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
                f"link set dev {bridge} up",
            ],
        )

    @property
    def pid(self) -> int:
        """The process that holds the switches' namespace."""
        return self._namespace()

    @pid.setter
    def pid(self, value: int | None) -> None:
        del value  # see EmulatedSwitch

    def _shell_namespace(self) -> str:
        return f"-cda{self.pid}"

    def attach(self, interface: str) -> None:
        """See ``attach`` of ``OvsSwitch``."""
        ip_batch(self.pid, [f"link set dev {interface} master {self.bridge}"])

    def remove(self) -> None:
        """See ``LearningSwitch``."""
        ip_batch(self.pid, [f"link delete dev {self.bridge}"])


class OvsSwitch(LearningSwitch):
    """An Open vSwitch bridge (kernel datapath) that learns by itself.

    The datapath has to be in the machine's own namespace; unlike a bridge's, its frames pass no firewall there.
    """

    def __init__(self, name: str, bridge: str, **params: Any) -> None:
        self.bridge = bridge
        super().__init__(name, **params)
        ovs.add_bridge(bridge)

    @property
    def pid(self) -> int:
        """A process in the namespace of its ports: this one's."""
        return 1

    @pid.setter
    def pid(self, value: int | None) -> None:
        del value  # see EmulatedSwitch

    def attach(self, interface: str) -> None:
        """Make an interface of the machine one of its ports, before it is shaped and up.

        Open vSwitch removes the queueing discipline of an interface that becomes its port.
        """
        ovs.add_port(self.bridge, interface)

    def remove(self) -> None:
        """See ``LearningSwitch``."""
        ovs.remove_bridge(self.bridge)


class StandInController(LazyShellNode, Controller):  # type: ignore[misc]
    """Takes the place of an OpenFlow controller where the switches need none; it runs nothing."""

    def __init__(self, name: str, **params: Any) -> None:
        # Not Controller's constructor: that one looks for a process that listens.
        Node.__init__(self, name, inNamespace=False, **params)
        self.ip = "127.0.0.1"
        self.port = 6653
        self.protocol = "tcp"

    def start(self) -> None:
        """Nothing to start."""

    def stop(self, *_args: Any, **_options: Any) -> None:
        """Nothing to stop but a shell somebody asked for."""
        self.terminate()
