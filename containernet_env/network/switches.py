"""Switches that learn addresses by themselves: inside the link emulator, as a Linux bridge, or as an Open vSwitch."""

from __future__ import annotations

from abc import ABC, abstractmethod

from containernet_env.hosts.netns import ip_batch
from containernet_env.network.emulator.process import LinkEmulator
from containernet_env.network.interface import Port, delete_interface
from containernet_env.network.kernel import ovs


class LearningSwitch(ABC):
    """One switch; making one makes it in the system."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """The process in whose network namespace its ports are, or that is the switch; ``None`` once that ended."""

    @abstractmethod
    def attach(self, port: Port) -> None:
        """Make the end of a link one of its ports, before the link is shaped and up."""

    @abstractmethod
    def remove(self) -> None:
        """Take the switch out of the system. Idempotent."""


class EmulatedSwitch(LearningSwitch):
    """A switch inside the link emulator."""

    def __init__(self, name: str, emulator: LinkEmulator) -> None:
        super().__init__(name)
        self._emulator = emulator
        self._removed = False
        emulator.call("add_switch", name=name)

    @property
    def pid(self) -> int | None:
        """The emulator's process."""
        return self._emulator.pid

    def attach(self, port: Port) -> None:
        """See ``LearningSwitch``: nothing, the emulator makes ports with their links."""

    def remove(self) -> None:
        """See ``LearningSwitch``."""
        if not self._removed and self._emulator.pid is not None:
            self._emulator.call("remove_switch", name=self.name)
        self._removed = True


class BridgeSwitch(LearningSwitch):
    """A Linux bridge in the network's own namespace, out of reach of the machine's firewall.

    ``pid`` holds that namespace; ``bridge`` is the bridge's name there.
    """

    def __init__(self, name: str, pid: int, bridge: str) -> None:
        super().__init__(name)
        self._pid = pid
        self.bridge = bridge
        # No spanning tree and no snooping: ports forward from the start and multicast is flooded.
        ip_batch(
            pid,
            [
                f"link add name {bridge} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
                f"link set dev {bridge} up",
            ],
        )

    @property
    def pid(self) -> int:
        """The process that holds the switches' namespace."""
        return self._pid

    def attach(self, port: Port) -> None:
        """See ``LearningSwitch``."""
        ip_batch(self.pid, [f"link set dev {port.name} master {self.bridge}"])

    def remove(self) -> None:
        """See ``LearningSwitch``."""
        delete_interface(self.pid, self.bridge)


class OvsSwitch(LearningSwitch):
    """An Open vSwitch bridge (kernel datapath) that learns by itself.

    The datapath has to be in the machine's own namespace; unlike a bridge's, its frames pass no firewall there.
    """

    def __init__(self, name: str, bridge: str) -> None:
        super().__init__(name)
        self.bridge = bridge
        ovs.add_bridge(bridge)

    @property
    def pid(self) -> int:
        """A process in the namespace of its ports: the machine's own."""
        return ovs.MACHINE

    def attach(self, port: Port) -> None:
        """See ``LearningSwitch``: Open vSwitch removes the queueing discipline of what becomes its port."""
        ovs.add_port(self.bridge, port.name)

    def remove(self) -> None:
        """See ``LearningSwitch``."""
        ovs.remove_bridge(self.bridge)
