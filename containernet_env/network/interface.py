"""Interfaces, configured from outside their namespaces: nothing is run inside a container for them."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from containernet_env.base.errors import RunError, UsageError
from containernet_env.hosts import netns

MTU_BYTES = 1500
MTU_MIN_BYTES, MTU_MAX_BYTES = 68, 65_521
"""The range of a TAP: the minimum of IPv4 (RFC 791), and the maximum of the tun driver."""
_RESOLVED_MAX = 1024  # the kernel's default
NAME_MAX = 15
"""Longest interface name (IFNAMSIZ in linux/if.h, less its final NUL)."""


def derive_mac(node: str, port: int, attempt: int = 0) -> str:
    """A locally administered unicast address for a node's port: the same in every run of the same topology."""
    digest = hashlib.sha256(f"{node}/{port}/{attempt}".encode()).digest()
    return "02:" + ":".join(f"{byte:02x}" for byte in digest[:5])


def parse_address(address: str, prefix_length: int | None = None) -> tuple[str, int]:
    """Split "10.0.0.1/24" (or an address and a length apart); raises ``UsageError`` for anything else."""
    if ":" in address:
        raise UsageError(
            f"{address!r} is an IPv6 address; allowed: IPv4 addresses with a prefix length, such as 10.0.0.1/24. "
            "docs/containernet.md says how a host gets IPv6 addresses besides"
        )
    text = address if "/" in address else f"{address}/{'' if prefix_length is None else prefix_length}"
    try:
        interface = ipaddress.IPv4Interface(text)
    except ValueError as error:
        raise UsageError(f"{address!r} is not an IPv4 address with a prefix length: {error}") from error
    return str(interface.ip), interface.network.prefixlen


def parse_mtu(size_bytes: int | str) -> int:
    """An MTU in bytes; raises ``UsageError`` if no interface of a link can have it."""
    text = str(size_bytes)
    if text.isdecimal() and MTU_MIN_BYTES <= int(text) <= MTU_MAX_BYTES:
        return int(text)
    raise UsageError(f"mtu {text!r}; allowed: {MTU_MIN_BYTES} to {MTU_MAX_BYTES} bytes")


def enter_neighbours(pid: int, interface: str, others: Iterable[tuple[str, str]]) -> None:
    """Make others (IPv4 and Ethernet address) permanent neighbours over an interface in the namespace of ``pid``."""
    lines = [f"neighbour replace {ip} lladdr {mac} nud permanent dev {interface}" for ip, mac in others]
    netns.ip_batch(pid, lines)


def too_many_neighbours(number: int) -> bool:
    """Whether so many neighbours that all talk to each other come near what the kernel resolves, over all namespaces.

    Beyond it (``gc_thresh3``) frames are lost silently. Half of it is left to other networks of this machine.
    """
    try:
        limit = int(netns.read_sysctl(os.getpid(), "net.ipv4.neigh.default.gc_thresh3"))
    except RunError:  # only the machine's first namespace shows it
        limit = _RESOLVED_MAX
    return number > limit // 2


def read_addresses(pid: int) -> list[ipaddress.IPv4Interface]:
    """The IPv4 addresses in the namespace of ``pid``, but for those of loopback."""
    shown = json.loads(netns.run(pid, ["ip", "-j", "-4", "address", "show", "scope", "global"]).stdout or "[]")
    return [
        ipaddress.IPv4Interface(f"{held['local']}/{held['prefixlen']}")
        for entry in shown
        for held in entry.get("addr_info", ())
    ]


def read_gateway(pid: int, address: str) -> str | None:
    """The router to which the namespace of ``pid`` sends packets for ``address``; ``None`` if it needs none."""
    shown = netns.run(pid, ["ip", "-j", "route", "get", address], check=False).stdout
    return json.loads(shown)[0].get("gateway") if shown.strip() else None


def has_bridge(pid: int) -> bool:
    """Whether there is a bridge in the namespace of ``pid``."""
    # iproute2 prints empty objects for filtered entries.
    return any(json.loads(netns.run(pid, ["ip", "-j", "link", "show", "type", "bridge"]).stdout or "[]"))


def delete_interface(pid: int, name: str) -> bool:
    """Remove an interface from the namespace of ``pid``; false where it has gone, with its other end for instance."""
    try:
        netns.ip_batch(pid, [f"link delete dev {name}"])
    except RunError as error:
        # The message of ip if it does not find the name, and of the kernel if the interface goes right after.
        if not any(text in str(error) for text in ("Cannot find device", "No such device")):
            raise
        return False
    return True


class Interface:
    """An interface in the network namespace of the process ``pid``; it is one end of a link, which makes it.

    ``mac`` is its Ethernet address, ``alias`` its alternative name in the kernel. ``ip`` and ``prefix_length`` are the
    last ones set or read, at first those of ``address`` ("10.0.0.1/24"). All calls raise ``RunError`` where the system
    refuses.
    """

    def __init__(
        self, pid: int, name: str, mac: str | None = None, alias: str | None = None, address: str | None = None
    ) -> None:
        self.pid, self.name, self.mac, self.alias = pid, name, mac, alias
        self.mtu_bytes = MTU_BYTES
        self.ip: str | None = None
        self.prefix_length: int | None = None
        if address:
            self.ip, self.prefix_length = parse_address(address)

    def _ip(self, *lines: str) -> None:
        netns.ip_batch(self.pid, lines)

    def bring_up(self) -> None:
        """Give it its alternative name and address and set it up, in one go."""
        lines = []
        if self.alias is not None and self.alias != self.name:
            lines.append(f"link property add dev {self.name} altname {self.alias}")
        self._ip(*lines, *self._address_lines(), f"link set dev {self.name} up")

    def _address_lines(self) -> list[str]:
        if self.ip is None or self.prefix_length is None:
            return []
        broadcast = " brd +" if self.prefix_length < 31 else ""
        return [
            f"address flush dev {self.name} scope global",
            f"address add {self.ip}/{self.prefix_length}{broadcast} dev {self.name}",
        ]

    def set_address(self, address: str, prefix_length: int | None = None) -> None:
        """Replace the IPv4 address, "10.0.0.1/24" or address and length; the interface is set up."""
        self.ip, self.prefix_length = parse_address(address, prefix_length)
        self._ip(*self._address_lines(), f"link set dev {self.name} up")

    def set_mac(self, mac: str) -> None:
        """Replace the Ethernet address; the interface is set up."""
        self._ip(
            f"link set dev {self.name} down", f"link set dev {self.name} address {mac}", f"link set dev {self.name} up"
        )
        self.mac = mac

    def announce(self) -> None:
        """Send a gratuitous ARP request (RFC 5227, section 3): switches and neighbours then know where it is now.

        The kernel lets it replace what a neighbour knows at once. Nothing where it has no address or is down.
        """
        if self.ip is None or self.mac is None:
            return
        mac, ip = bytes(int(part, 16) for part in self.mac.split(":")), ipaddress.IPv4Address(self.ip).packed
        frame = b"\xff" * 6 + mac + bytes.fromhex("0806 0001 0800 06 04 0001") + mac + ip + bytes(6) + ip
        with (
            suppress(OSError, netns.ProcessGoneError),
            netns.socket_in(self.pid, socket.AF_PACKET, socket.SOCK_RAW) as out,
        ):
            out.bind((self.name, 0))
            out.send(frame)

    def set_up(self, up: bool) -> None:
        self._ip(f"link set dev {self.name} {'up' if up else 'down'}")

    def set_mtu(self, size_bytes: int) -> None:
        """Replace the MTU; see ``ShapedLink.set_mtu``."""
        self._ip(f"link set dev {self.name} mtu {size_bytes}")
        self.mtu_bytes = size_bytes

    def describe(self) -> str:
        """The output of ``ip address``, for people."""
        return netns.run(self.pid, ["ip", "address", "show", "dev", self.name]).stdout

    def show(self) -> Mapping[str, Any]:
        """The interface as the kernel holds it: the entry of ``ip -j address``."""
        output = netns.run(self.pid, ["ip", "-j", "address", "show", "dev", self.name]).stdout
        # iproute2 prints empty objects for filtered entries.
        return next(entry for entry in json.loads(output) if entry)

    def read_address(self) -> str | None:
        """The IPv4 address as the kernel holds it; ``None`` where there is none."""
        inet = [entry for entry in self.show().get("addr_info", ()) if entry["family"] == "inet"]
        self.ip = inet[0]["local"] if inet else None
        self.prefix_length = inet[0]["prefixlen"] if inet else None
        return self.ip

    def read_mac(self) -> str | None:
        """The Ethernet address as the kernel holds it."""
        self.mac = self.show().get("address")
        return self.mac


@dataclass(eq=False)
class SwitchPort:
    """A port of a switch inside the link emulator: there is no interface behind its name."""

    name: str
    switch: str


Port = Interface | SwitchPort
"""An end of a link."""
