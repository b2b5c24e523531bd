"""Mininet's Link, Intf and Switch around those of the network; link keywords, read strictly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mininet.node  # noqa: F401 - before mininet.link, which cannot be imported first where it is Containernet's.
from mininet.link import Intf, Link
from mininet.node import Controller, Node, Switch

from containernet_env.base.errors import RunError, UsageError
from containernet_env.base.units import parse_bandwidth, parse_duration
from containernet_env.config.fields import validate
from containernet_env.config.reader import Document
from containernet_env.model.hints import suggestion
from containernet_env.model.kinds import keys_of
from containernet_env.model.link import CoDel, DirectionSpec, IndependentLoss, Jitter, LinkSpec
from containernet_env.network.factory import Place
from containernet_env.network.interface import Interface, Port, parse_mtu
from containernet_env.network.link import ShapedLink
from containernet_env.network.switches import BridgeSwitch, LearningSwitch

SHAPING = frozenset({"bw", "delay", "max_queue_size", "jitter", "loss"})
# Keywords of ours: as in topology files. Mininet has other forms of the rest; `uplink` is for links of one host alone.
_OF_FILES = keys_of(DirectionSpec).keys() - SHAPING - {"bandwidth", "uplink"}
# Refused unless their value is a no-op.
_NEVER = frozenset({"use_hfsc", "use_tbf", "latency_ms", "enable_ecn", "enable_red", "speedup"})
# These choose an implementation, not behaviour; of these links one choice is for the whole network (`offload`).
_MEANINGLESS = frozenset({"use_htb", "gro", "disable_gro", "txo", "rxo", "fast", "intf", "cls1", "cls2"})
_INTERFACE = frozenset({"ip", "mac", "up"})


def shaping(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of ``DirectionSpec`` that ``given`` sets; raises ``UsageError`` that names ``where``."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key in _MEANINGLESS or (key in _NEVER and value in (None, 0, False, "0", "0ms")):
            continue
        if key in _NEVER:
            raise UsageError(f"{where}: {key}={value!r} is not offered; bw is an exact rate limit")
        if key in _OF_FILES:
            found.update(of_file(key, value, where))
            continue
        if key not in SHAPING:
            known = sorted(_OF_FILES | SHAPING | _INTERFACE | {"params1", "params2", "port1", "port2"})
            raise UsageError(f"{where}: unknown keyword {key}{suggestion(key, known)}")
        if value is not None:
            found.update(_field(key, value, where))
    return found


def of_file(key: str, value: Any, where: str) -> dict[str, Any]:
    """The field of ``DirectionSpec`` that a key of a topology file's ``link`` sets; ``None`` is its default.

    Raises ``UsageError`` that names ``where``.
    """
    known = keys_of(DirectionSpec).get(key)
    if known is None:
        raise UsageError(f"{where}: unknown property {key}{suggestion(key, [*keys_of(DirectionSpec)])}")
    if value is None or isinstance(value, CoDel):
        return {known.attribute: known.default if value is None else value}
    read = validate(known.form, Document(Path(), "", value, (), ""))
    for refused in read.refusals:
        name = ".".join((key, *map(str, refused.place)))
        raise UsageError(f"{where}: {name} {refused.message}, got {value!r}; allowed: {refused.allowed}")
    return {known.attribute: read.value}


def _field(key: str, value: Any, where: str) -> dict[str, Any]:
    try:
        if key == "delay":
            return {"delay_ns": parse_duration(value)}
        if key == "bw":
            rate = parse_bandwidth(value)
            if rate == 0:
                raise ValueError("more than 0")
            return {"rate_bps": rate}
        if key == "jitter":
            # As tc does it for Mininet: uniform, and frames may overtake each other.
            jitter_ns = 0 if value in (0, "0") else parse_duration(value)
            return {"jitter": Jitter("uniform", jitter_ns, reorder=True) if jitter_ns else None}
        if key == "loss":
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 100:
                raise ValueError("a number of percent, 0 to 100")
            return {"loss": IndependentLoss(value / 100) if value else None}
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError("a whole number of frames, 1 or more")
        return {"queue_frames": value}
    except ValueError as error:
        raise UsageError(f"{where}: {key}={value!r}; allowed: {error}") from error


def split(given: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """An end's ``params1`` or ``params2`` as (its address keywords, everything else)."""
    given = dict(given or {})
    return {key: given.pop(key) for key in _INTERFACE & set(given)}, given


def link_spec(common: Mapping[str, Any], end1: Mapping[str, Any], end2: Mapping[str, Any], where: str) -> LinkSpec:
    """The spec of link keywords: ``common`` for both directions, each end's for the direction it sends on."""
    both = shaping(common, where)
    try:
        directions = [DirectionSpec(**{**both, **shaping(end, where)}) for end in (end1, end2)]
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error
    return LinkSpec(a_to_b=directions[0], b_to_a=directions[1])


class NetworkLink(Link):  # type: ignore[misc]
    """A Mininet link around ``held``, a link of the network, whose calls it has too; see ``ShapedLink``.

    ``intf1`` belongs to the first of its ends. ``plugged``: whether its cable was last plugged in, not pulled.
    ``announce`` is called with interfaces that come up, or whose address has changed.
    """

    def __init__(
        self, held: ShapedLink, intf1: Any = None, intf2: Any = None, announce: Callable[..., None] = lambda *_: None
    ) -> None:
        # Mininet's own constructor would create interfaces in its own way.
        self.held, self.announce = held, announce
        self.plugged = True
        self.intf1, self.intf2 = intf1, intf2

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["held"], name)

    def set_up(self, up: bool) -> int:
        at_ns = self.held.set_up(up)
        self.plugged = up
        if up:
            self.announce(self.intf1, self.intf2)
        return at_ns

    def set_mtu(self, sender: Any, size_bytes: int) -> None:
        """Replace the MTU of the interface behind ``sender``; switch ports forward frames of any size."""
        if isinstance(end := self.end_of(sender), Interface):
            self.held.set_mtu(end, size_bytes)

    def change(self, sender: Any, **values: Any) -> int:
        """Change fields of the direction that ``sender`` (``intf1`` or ``intf2``) sends on; the others stay."""
        return self.held.change(self.end_of(sender), **values)

    def end_of(self, intf: Any) -> Port:
        """The end of the link behind a Mininet interface."""
        return self.held.ends[0 if intf is self.intf1 else 1]

    def delete(self) -> None:
        """Remove the link from the system; the nodes forget their interfaces."""
        self.held.clear()
        for intf in (self.intf1, self.intf2):
            if isinstance(intf, NodeInterface):
                intf.forget()

    stop = delete


class NodeInterface(Intf):  # type: ignore[misc]
    """A Mininet interface around ``held``, an end of a link in the network namespace of its node.

    ``alias`` is the name that Mininet would have given it (d1-eth0); the node accepts both.
    """

    held: Interface

    def __init__(self, held: Port, node: Any, link: NetworkLink, port: int, alias: str) -> None:
        # Not Mininet's constructor: that one moves and configures with commands inside the node.
        self.held = held  # type: ignore[assignment]
        self.name, self.node, self.link, self.alias = held.name, node, link, alias
        self.params: dict[str, Any] = {}
        node.addIntf(self, port=port, moveIntfFn=lambda *_args: None)
        node.nameToIntf[alias] = self

    # As they were last set or read.
    ip = property(lambda self: self.held.ip)
    prefixLen = property(lambda self: self.held.prefix_length)
    mac = property(lambda self: self.held.mac)

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> None:
        """Replace the IPv4 address, "10.0.0.1/24" or address and length; the interface is set up."""
        self.held.set_address(ipstr, prefixLen)
        self.link.announce(self)

    def setMAC(self, macstr: str) -> None:
        self.held.set_mac(macstr)
        self.link.announce(self)

    def ifconfig(self, *args: Any) -> str:
        """The subset that scripts use: "up", "down", an address (with "up"), "hw ether MAC", "mtu N"."""
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
        return self.held.read_mac()

    def updateAddr(self) -> tuple[str | None, str | None]:
        return self.updateIP(), self.updateMAC()

    def isUp(self, setUp: bool = False) -> bool:
        """Whether it is up; with ``setUp`` it is set up first."""
        if setUp:
            self.ifconfig("up")
        return "UP" in self.held.show()["flags"]

    def config(self, **params: Any) -> dict[str, Any]:
        """Change it while it runs: ``ip``, ``mac``, ``up``, and the direction that it sends on (``bw``, ...).

        Values not given stay unchanged. Raises ``UsageError`` for unknown keywords.
        """
        addresses, rest = split(params)
        values = shaping(rest, self.name)
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
        """Remove it from the node; the link has removed it from the system."""
        self.node.nameToIntf.pop(self.alias, None)
        if self.name in self.node.nameToIntf:
            self.node.delIntf(self)

    def delete(self) -> None:
        """Does nothing: an interface is removed with its link."""
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

    def setIP(self, *_address: Any, **_options: Any) -> None:
        """Refused: ports of such a switch have no address."""
        raise UsageError(f"{self.name} is a port inside the link emulator and cannot be configured")

    setMAC = setIP

    def ifconfig(self, *args: Any) -> str:
        """Ports of such a switch follow their link."""
        match " ".join(map(str, args)).split():
            case []:
                return f"{self.name}: a port inside the link emulator\n"
            case ["up" | "down" as state]:
                self.link.set_up(state == "up")
            case ["mtu", size]:  # it forwards frames of any size
                parse_mtu(size)
            case _:
                self.setIP()
        return ""

    def updateIP(self) -> None:
        """No address."""

    updateMAC = updateIP

    def isUp(self, setUp: bool = False) -> bool:
        """As long as its link is there."""
        return self.link is not None

    def status(self) -> str:
        """ "OK" as long as its link is there."""
        return "OK" if self.link is not None else "MISSING"


class NoInterface:
    """Placeholder default interface of a node that has none (Mininet would use ``None``); false."""

    name = ""
    link = None

    def __bool__(self) -> bool:
        return False

    def IP(self) -> None:
        """No address."""

    updateIP = MAC = IP


def wrap(held: ShapedLink, nodes: Sequence[Any], places: Sequence[Place], announce: Callable[..., None]) -> NetworkLink:
    """Wrap a link of the network, made between ``places``, as a Mininet link; its nodes get their interfaces."""
    link = NetworkLink(held, announce=announce)
    link.intf1, link.intf2 = (
        (NodeInterface if isinstance(end, Interface) else EmulatedPort)(end, node, link, place.port, place.known_as)
        for end, node, place in zip(held.ends, nodes, places, strict=True)
    )
    return link


class LazyShellNode(Node):  # type: ignore[misc]
    """A Mininet node whose shell on this machine is started by the first command that is given to it."""

    _wanted = False

    def defaultIntf(self) -> Any:
        """The first interface, or a placeholder."""
        return self.intfs[min(self.intfs)] if self.intfs else NoInterface()

    @classmethod
    def setup(cls) -> None:
        """Mininet's hook that checks for programs; none is needed before the first command."""

    def _shell_namespace(self) -> str:
        """Options for mnexec that lead to where the node's commands belong; the machine itself by default."""
        return "-cd"

    def startShell(self, mnopts: str | None = None) -> None:
        """Does nothing when Mininet's constructor calls it."""
        if self._wanted:
            super().startShell(mnopts)

    def sendCmd(self, *args: Any, **options: Any) -> None:
        if not self.shell:
            self._wanted = True
            # inNamespace would make mnexec create yet another namespace.
            self.inNamespace = False
            self.startShell(self._shell_namespace())
        super().sendCmd(*args, **options)

    def cmd(self, *args: Any, **options: Any) -> Any:
        if not self._wanted:
            self.sendCmd(*args, **options)
            return self.waitOutput(options.get("verbose", False))
        return super().cmd(*args, **options)


class NetworkSwitch(LazyShellNode, Switch):  # type: ignore[misc]
    """A Mininet switch around ``held``, a switch of the network: no OpenFlow, no controller.

    ``start`` plugs cables in again that ``stop`` has pulled (the CLI's ``switch s1 stop``).
    """

    controlIntf = None

    def __init__(self, held: LearningSwitch) -> None:
        self.held = held
        # inNamespace: Mininet would configure the machine's own loopback interface otherwise.
        super().__init__(held.name, inNamespace=True)
        self._ports_down = False

    @property
    def pid(self) -> int | None:
        """The process in whose network namespace its ports are, or that it is a part of."""
        return self.held.pid

    @pid.setter
    def pid(self, value: int | None) -> None:
        # Mininet stores its shell's pid here; the switch is not in that process.
        del value

    def _shell_namespace(self) -> str:
        return f"-cda{self.pid}" if isinstance(self.held, BridgeSwitch) else super()._shell_namespace()

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

    def dpctl(self, *args: Any) -> str:
        """No OpenFlow here."""
        return f"{self.name} learns addresses by itself: there are no flows to show\n"


class StandInController(LazyShellNode, Controller):  # type: ignore[misc]
    """Takes the place of an OpenFlow controller where the switches need none; it runs nothing."""

    def __init__(self, name: str, **params: Any) -> None:
        # Not Controller's constructor, which checks for a listening process.
        Node.__init__(self, name, inNamespace=False, **params)
        self.ip = "127.0.0.1"
        self.port = 6653
        self.protocol = "tcp"

    def start(self) -> None:
        """Nothing to start."""

    def stop(self, *_args: Any, **_options: Any) -> None:
        """Stops the shell, if one was started."""
        self.terminate()
