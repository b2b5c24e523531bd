"""Mininet's Link and Intf around a link of the network and its ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mininet.node  # noqa: F401 - before mininet.link, which cannot be imported first where it is Containernet's.
from mininet.link import Intf, Link

from containernet_env.base.errors import RunError, UsageError
from containernet_env.containernet import keywords
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.network.interface import Interface, Port, parse_mtu
from containernet_env.network.link import ShapedLink


class NetworkLink(Link):  # type: ignore[misc]
    """A link of Mininet's that is ``held``, one of the network's; ``intf1`` belongs to the first of its ends.

    ``plugged``: whether its cable was last plugged in, not pulled. ``announce`` is called with interfaces that come up,
    or whose address has changed.
    """

    def __init__(
        self, held: ShapedLink, intf1: Any = None, intf2: Any = None, announce: Callable[..., None] = lambda *_: None
    ) -> None:
        # Mininet's own constructor would create interfaces in its own way.
        self.held, self.announce = held, announce
        self.plugged = True
        self.intf1, self.intf2 = intf1, intf2

    @property
    def name(self) -> str:
        """The link's name, such as "d1-s1"."""
        return self.held.name

    @property
    def spec(self) -> LinkSpec:
        """What was last asked of it, seen from ``intf1``."""
        return self.held.spec

    def apply(self, spec: LinkSpec) -> int:
        """See ``ShapedLink``."""
        return self.held.apply(spec)

    def read_back(self) -> LinkSpec:
        """See ``ShapedLink``."""
        return self.held.read_back()

    def statistics(self) -> dict[str, Any]:
        """See ``ShapedLink``."""
        return self.held.statistics()

    def set_up(self, up: bool) -> int:
        """See ``ShapedLink``."""
        at_ns = self.held.set_up(up)
        self.plugged = up
        if up:
            self.announce(self.intf1, self.intf2)
        return at_ns

    def set_mtu(self, sender: Any, size_bytes: int) -> None:
        """Replace the MTU of what is behind ``sender``; ports of switches pass whatever hosts send."""
        if isinstance(end := self.end_of(sender), Interface):
            self.held.set_mtu(end, size_bytes)

    def change_directions(self, changes: Mapping[str, Mapping[str, Any]]) -> int:
        """See ``ShapedLink``."""
        return self.held.change_directions(changes)

    def change(self, sender: Any, **values: Any) -> int:
        """Change fields of the direction that ``sender`` (``intf1`` or ``intf2``) sends on; the others stay."""
        return self.held.change(self.end_of(sender), **values)

    def direction_from(self, sender: Any) -> DirectionSpec:
        """What is asked of the direction that ``sender`` sends on."""
        return self.spec.a_to_b if sender is self.intf1 else self.spec.b_to_a

    def end_of(self, intf: Any) -> Port:
        """The end of the link that is behind an interface of Mininet's."""
        return self.held.ends[0 if intf is self.intf1 else 1]

    def delete(self) -> None:
        """Remove the link from the system; the nodes forget their interfaces."""
        self.held.clear()
        for intf in (self.intf1, self.intf2):
            if isinstance(intf, NodeInterface):
                intf.forget()

    def stop(self) -> None:
        """Mininet's name for ``delete`` at the end of a network."""
        self.delete()


class NodeInterface(Intf):  # type: ignore[misc]
    """An interface of Mininet's that is ``held``, an end of a link in the namespace of its node.

    ``alias`` is the name that Mininet would have given it (d1-eth0); the node knows it by both.
    """

    held: Interface

    def __init__(self, held: Port, node: Any, link: NetworkLink, port: int, alias: str) -> None:
        # Not Mininet's constructor: that one moves and configures with commands inside the node.
        self.held = held  # type: ignore[assignment]
        self.name, self.node, self.link, self.alias = held.name, node, link, alias
        self.params: dict[str, Any] = {}
        node.addIntf(self, port=port, moveIntfFn=lambda *_args: None)
        node.nameToIntf[alias] = self

    @property
    def ip(self) -> str | None:
        """The IPv4 address that was last set or read."""
        return self.held.ip

    @property
    def prefixLen(self) -> int | None:
        """The length of its prefix."""
        return self.held.prefix_length

    @property
    def mac(self) -> str | None:
        """The Ethernet address that was last set or read."""
        return self.held.mac

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> None:
        """Replace the IPv4 address, "10.0.0.1/24" or address and length; the interface is set up."""
        self.held.set_address(ipstr, prefixLen)
        self.link.announce(self)

    def setMAC(self, macstr: str) -> None:
        """Replace the Ethernet address."""
        self.held.set_mac(macstr)
        self.link.announce(self)

    def ifconfig(self, *args: Any) -> str:
        """The uses that scripts make of it: "up", "down", an address (with "up"), "hw ether MAC", "mtu N"."""
        words = " ".join(map(str, args)).split()
        match words:
            case []:
                return self.held.describe()
            case ["up" | "down" as state]:
                self.held.set_up(state == "up")
                if state == "up":
                    self.link.announce(self)
            case ["mtu", size]:
                self.link.set_mtu(self, parse_mtu(size))
            case ["hw", "ether", mac]:
                self.setMAC(mac)
            case [address] | [address, "up"]:
                self.setIP(address, self.prefixLen or 8)
            case _:
                raise UsageError(f"{self.name}: ifconfig {' '.join(words)} is not offered; use setIP, setMAC or ip")
        return ""

    def __str__(self) -> str:
        return self.alias

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.alias}>"

    def updateIP(self) -> str | None:
        """The IPv4 address as the kernel holds it; ``None`` where there is none."""
        return self.held.read_address()

    def updateMAC(self) -> str | None:
        """The Ethernet address as the kernel holds it."""
        return self.held.read_mac()

    def updateAddr(self) -> tuple[str | None, str | None]:
        """Both addresses as the kernel holds them."""
        return self.updateIP(), self.updateMAC()

    def isUp(self, setUp: bool = False) -> bool:
        """Whether it is up; with ``setUp`` it is set up first."""
        if setUp:
            self.ifconfig("up")
        return "UP" in self.held.show()["flags"]

    def config(self, **params: Any) -> dict[str, Any]:
        """Change it while it runs: ``ip``, ``mac``, ``up``, and what it sends (``bw``, ``delay``, ...).

        What is not given stays as it is. Raises ``UsageError`` for unknown keywords.
        """
        addresses, rest = keywords.split(params)
        values = keywords.shaping(rest, self.name)
        if addresses.get("mac") is not None:
            self.setMAC(addresses["mac"])
        if addresses.get("ip") is not None:
            self.setIP(addresses["ip"])
        if addresses.get("up") is not None:
            self.ifconfig("up" if addresses["up"] else "down")
        if values:
            self.link.change(self, **values)
        return {}

    def rename(self, newname: str) -> None:
        """Refused: names carry the run's id."""
        raise UsageError(f"{self.name} cannot be renamed to {newname!r}: interface names carry the run's id")

    def forget(self) -> None:
        """Let the node forget it; the link has removed it from the system."""
        self.node.nameToIntf.pop(self.alias, None)
        if self.name in self.node.nameToIntf:
            self.node.delIntf(self)

    def delete(self) -> None:
        """An interface goes with its link."""
        if self.link is not None:
            self.link.delete()

    def status(self) -> str:
        """ "OK", or "MISSING" where the interface is gone."""
        try:
            self.held.show()
        except RunError:
            return "MISSING"
        return "OK"


class EmulatedPort(NodeInterface):
    """A port of a switch that lives in the link emulator: there is no interface behind its name."""

    ip = prefixLen = mac = None

    def _refuse(self) -> None:
        raise UsageError(f"{self.name} is a port inside the link emulator and cannot be configured")

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> None:
        """Refused: ports of such a switch have no address."""
        self._refuse()

    def setMAC(self, macstr: str) -> None:
        """Refused: ports of such a switch have no address."""
        self._refuse()

    def ifconfig(self, *args: Any) -> str:
        """Ports of such a switch follow their link."""
        match " ".join(map(str, args)).split():
            case []:
                return f"{self.name}: a port inside the link emulator\n"
            case ["up" | "down" as state]:
                self.link.set_up(state == "up")
            case ["mtu", size]:  # it passes whatever hosts send
                parse_mtu(size)
            case _:
                self._refuse()
        return ""

    def updateIP(self) -> None:
        """No address."""

    def updateMAC(self) -> None:
        """No address."""

    def isUp(self, setUp: bool = False) -> bool:
        """As long as its link is there."""
        return self.link is not None

    def status(self) -> str:
        """ "OK" as long as its link is there."""
        return "OK" if self.link is not None else "MISSING"


class NoInterface:
    """Stands for the default interface of a node that has none, where Mininet would go on with ``None``; false."""

    name = ""
    link = None

    def __bool__(self) -> bool:
        return False

    def IP(self) -> None:
        """No address."""

    updateIP = MAC = IP


def wrap(
    held: ShapedLink,
    nodes: tuple[Any, Any],
    numbers: tuple[int, int],
    aliases: tuple[str, str],
    announce: Callable[..., None],
) -> NetworkLink:
    """A link of the network as Mininet's, whose interfaces its nodes know from now on; see ``NetworkLink``."""
    link = NetworkLink(held, announce=announce)
    link.intf1, link.intf2 = (
        (NodeInterface if isinstance(end, Interface) else EmulatedPort)(end, node, link, number, alias)
        for end, node, number, alias in zip(held.ends, nodes, numbers, aliases, strict=True)
    )
    return link
