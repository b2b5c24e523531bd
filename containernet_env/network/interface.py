"""Interfaces of nodes, configured from outside their namespaces: nothing is run inside a container for them."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Mapping
from typing import Any

import mininet.node  # noqa: F401 - before mininet.link, which cannot be imported first where it is Containernet's
from mininet.link import Intf

from containernet_env.base.errors import RunError, UsageError
from containernet_env.containernet import keywords
from containernet_env.hosts import netns

MTU_BYTES = 1500
NAME_MAX = 15
"""Longest interface name (IFNAMSIZ in linux/if.h, less its final NUL)."""


def derive_mac(node: str, port: int, attempt: int = 0) -> str:
    """A locally administered unicast address for a node's port: the same in every run of the same topology."""
    digest = hashlib.sha256(f"{node}/{port}/{attempt}".encode()).digest()
    return "02:" + ":".join(f"{byte:02x}" for byte in digest[:5])


def parse_address(address: str, prefix_length: int | None = None) -> tuple[str, int]:
    """Split "10.0.0.1/24" (or an address and a length apart); raises ``UsageError`` for what is no IPv4 address."""
    text = address if "/" in address else f"{address}/{'' if prefix_length is None else prefix_length}"
    try:
        interface = ipaddress.IPv4Interface(text)
    except ValueError as error:
        raise UsageError(f"{address!r} is not an IPv4 address with a prefix length: {error}") from error
    return str(interface.ip), interface.network.prefixlen


def enter_neighbours(own: Any, ends: Iterable[Any]) -> None:
    """Make all that have an address permanent neighbours of the node of ``own``, over ``own``; they are interfaces."""
    others = [other for other in ends if other is not own and other.ip is not None]
    lines = [f"neighbour replace {end.ip} lladdr {end.mac} nud permanent dev {own.name}" for end in others]
    netns.ip_batch(own.node.pid, lines)


class NodeInterface(Intf):  # type: ignore[misc]
    """An interface in the network namespace of a node's process (``node.pid``).

    ``alias`` is the name that Mininet would have given it (d1-eth0); the kernel knows it as an alternative name.
    """

    _alias_in_kernel = True

    def __init__(self, name: str, node: Any, link: Any, port: int, mac: str | None, alias: str | None = None) -> None:
        # Not Mininet's constructor: that one moves and configures with commands inside the node.
        self.name, self.node, self.link, self.mac = name, node, link, mac
        self.alias = alias
        self.ip: str | None = None
        self.prefixLen: int | None = None
        self.params: dict[str, Any] = {}
        node.addIntf(self, port=port, moveIntfFn=lambda *_args: None)
        if alias is not None:
            node.nameToIntf[alias] = self

    def _ip(self, *lines: str) -> None:
        netns.ip_batch(self.node.pid, lines)

    def bring_up(self, address: str | None = None) -> None:
        """Give it its alternative name and address and set it up, in one go."""
        lines = []
        if self._alias_in_kernel and self.alias is not None and self.alias != self.name:
            lines.append(f"link property add dev {self.name} altname {self.alias}")
        lines += self._address_lines(address) if address else []
        self._ip(*lines, f"link set dev {self.name} up")

    def _address_lines(self, address: str) -> list[str]:
        self.ip, self.prefixLen = parse_address(address)
        broadcast = " brd +" if self.prefixLen < 31 else ""
        return [
            f"address flush dev {self.name} scope global",
            f"address add {self.ip}/{self.prefixLen}{broadcast} dev {self.name}",
        ]

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> None:
        """Replace the IPv4 address, "10.0.0.1/24" or address and length; the interface is set up."""
        ip, length = parse_address(ipstr, prefixLen)
        self._ip(*self._address_lines(f"{ip}/{length}"), f"link set dev {self.name} up")

    def setMAC(self, macstr: str) -> None:
        """Replace the Ethernet address."""
        self.mac = macstr
        self._ip(
            f"link set dev {self.name} down",
            f"link set dev {self.name} address {macstr}",
            f"link set dev {self.name} up",
        )

    def ifconfig(self, *args: Any) -> str:
        """The uses that scripts make of it: "up", "down", an address (with "up"), "hw ether MAC", "mtu N"."""
        words = " ".join(map(str, args)).split()
        match words:
            case []:
                return netns.run(self.node.pid, ["ip", "address", "show", "dev", self.name]).stdout
            case ["up" | "down" as state]:
                self._ip(f"link set dev {self.name} {state}")
            case ["mtu", size]:
                self._ip(f"link set dev {self.name} mtu {size}")
            case ["hw", "ether", mac]:
                self.setMAC(mac)
            case [address] | [address, "up"]:
                self.setIP(address, self.prefixLen or 8)
            case _:
                raise UsageError(f"{self.name}: ifconfig {' '.join(words)} is not offered; use setIP, setMAC or ip")
        return ""

    def _show(self) -> Mapping[str, Any]:
        output = netns.run(self.node.pid, ["ip", "-j", "address", "show", "dev", self.name]).stdout
        # iproute2 prints empty objects for what a filter left out.
        return next(entry for entry in json.loads(output) if entry)

    def updateIP(self) -> str | None:
        """The IPv4 address as the kernel holds it; ``None`` where there is none."""
        inet = [entry for entry in self._show().get("addr_info", ()) if entry["family"] == "inet"]
        self.ip = inet[0]["local"] if inet else None
        self.prefixLen = inet[0]["prefixlen"] if inet else None
        return self.ip

    def updateMAC(self) -> str | None:
        """The Ethernet address as the kernel holds it."""
        self.mac = self._show().get("address")
        return self.mac

    def updateAddr(self) -> tuple[str | None, str | None]:
        """Both addresses as the kernel holds them."""
        return self.updateIP(), self.updateMAC()

    def isUp(self, setUp: bool = False) -> bool:
        """Whether it is up; with ``setUp`` it is set up first."""
        if setUp:
            self._ip(f"link set dev {self.name} up")
        return "UP" in self._show()["flags"]

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
        if self.alias is not None:
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
            self._show()
        except RunError:
            return "MISSING"
        return "OK"


class NoInterface:
    """Stands for the default interface of a node that has none, where Mininet would go on with ``None``; false."""

    name = ""
    link = None

    def __bool__(self) -> bool:
        return False

    def IP(self) -> None:
        """No address."""

    updateIP = MAC = IP


class MachinePort(NodeInterface):
    """A port of a switch in the machine's own namespace.

    Its alias is Mininet's alone: s1-eth1 is a name that another network on this machine may have as well.
    """

    _alias_in_kernel = False


class SwitchPort(NodeInterface):
    """A port of a switch that lives in the link emulator: there is no interface behind its name."""

    def _ip(self, *lines: str) -> None:
        raise UsageError(f"{self.name} is a port inside the link emulator and cannot be configured")

    def bring_up(self, address: str | None = None) -> None:
        """Ports of such a switch are up and have no address."""
        if address:
            self._ip()

    def ifconfig(self, *args: Any) -> str:
        """Ports of such a switch follow their link."""
        if args and args[0] in ("up", "down"):
            self.link.set_up(args[0] == "up")
            return ""
        return f"{self.name}: a port inside the link emulator\n"

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
