"""Makes switches and links of one network in the way that was chosen for it, and takes them away again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mininet.node import Switch

from containernet_env.base.errors import UsageError
from containernet_env.hosts import netns
from containernet_env.hosts.namespace import ThrowawayNamespace
from containernet_env.model.choices import SwitchKind
from containernet_env.model.link import LinkSpec
from containernet_env.network.emulator.process import EmulatedLink, LinkEmulator
from containernet_env.network.interface import MTU_BYTES, NAME_MAX, MachinePort, NodeInterface, SwitchPort, derive_mac
from containernet_env.network.kernel.tc import End, VethLink
from containernet_env.network.link import EventHandler, ShapedLink
from containernet_env.network.switches import BridgeSwitch, EmulatedSwitch, LearningSwitch, OvsSwitch

# Mininet hands these to every switch class; they are about OpenFlow.
_IGNORED_SWITCH_KEYWORDS = frozenset(
    {"listenPort", "inNamespace", "dpid", "protocols", "failMode", "opts", "batch", "isSwitch"}
)


# A test at the start fails where something else holds the processors for milliseconds just then.
_EMULATOR_STARTS = 3


class LinkFactory:
    """One network's switches and links, of one ``kind``. Names of interfaces and bridges begin with ``run_id``."""

    def __init__(
        self, kind: SwitchKind, run_id: str, emulator_binary: Path | str | None, on_event: EventHandler
    ) -> None:
        self._kind = kind
        self._run_id = run_id
        self._numbers = itertools.count()
        self._macs: set[str] = set()
        self._link_names: set[str] = set()
        self._emulator_binary = emulator_binary
        self._on_event = on_event
        self.emulator = LinkEmulator(emulator_binary, on_event)
        self._namespace: ThrowawayNamespace | None = None

    def _name(self, letter: str) -> str:
        name = f"{self._run_id}{letter}{next(self._numbers)}"
        if len(name) > NAME_MAX:
            raise UsageError(f"run id {self._run_id!r} is too long: interface names have {NAME_MAX} characters")
        return name

    def _switch_namespace(self) -> int:
        if self._namespace is None:
            self._namespace = ThrowawayNamespace()
        return self._namespace.pid

    def make_switch(self, name: str, **params: Any) -> LearningSwitch:
        """A switch of the network's kind. Raises ``UsageError`` for keywords that would change how it forwards."""
        unknown = sorted(key for key in set(params) - _IGNORED_SWITCH_KEYWORDS if params[key])
        if unknown:
            raise UsageError(f"switch {name}: unknown keyword {', '.join(unknown)}")
        if self._kind == "emulator":
            self._start_emulator()
            return EmulatedSwitch(name, self.emulator)
        if self._kind == "ovs":
            return OvsSwitch(name, self._name("b"))
        return BridgeSwitch(name, self._switch_namespace, self._name("b"))

    def _mac(self, node: str, port: int, asked: str | None) -> str:
        attempt = 0
        mac = asked or derive_mac(node, port)
        while asked is None and mac in self._macs:
            attempt += 1
            mac = derive_mac(node, port, attempt)
        if mac in self._macs:
            raise UsageError(f"{node}: the Ethernet address {mac} is in use already")
        self._macs.add(mac)
        return mac

    def _link_name(self, one: Any, two: Any) -> str:
        base = name = f"{one.name}-{two.name}"
        number = 1
        while name in self._link_names:
            number += 1
            name = f"{base}-{number}"
        self._link_names.add(name)
        return name

    def make_link(
        self,
        one: Any,
        two: Any,
        spec: LinkSpec,
        ports: tuple[int | None, int | None],
        addresses: tuple[Mapping[str, Any], ...],
        aliases: tuple[str | None, str | None],
    ) -> ShapedLink:
        """Make a link with its interfaces, up and with their addresses; nothing is left of one that fails.

        ``addresses`` hold ``ip`` and ``mac`` for each end where they are wanted.
        """
        nodes = (one, two)
        for node in nodes:
            _check_own_namespace(node)
        numbers = [node.newPort() if port is None else port for node, port in zip(nodes, ports, strict=True)]
        known_as = [
            alias or f"{node.name}-eth{port}" for node, port, alias in zip(nodes, numbers, aliases, strict=True)
        ]
        macs = [
            self._mac(node.name, port, end.get("mac"))
            for node, port, end in zip(nodes, numbers, addresses, strict=True)
        ]
        names = [self._name("e"), self._name("e")]
        link: ShapedLink
        if self._kind == "emulator":
            link = self._emulated(nodes, names, known_as, macs, spec)
        else:
            veth = VethLink(self._link_name(one, two), End(names[0], one.pid), End(names[1], two.pid), spec)
            veth.make(macs[0], macs[1], MTU_BYTES)
            link = veth
        interfaces = [
            _interface_class(node)(name, node, link, port, mac, alias)
            for name, node, port, mac, alias in zip(names, nodes, numbers, macs, known_as, strict=True)
        ]
        link.intf1, link.intf2 = interfaces
        try:
            for interface, node in zip(interfaces, nodes, strict=True):
                if isinstance(node, (BridgeSwitch, OvsSwitch)):
                    node.attach(interface.name)
            link.apply(spec)
            for interface, node, end in zip(interfaces, nodes, addresses, strict=True):
                interface.bring_up(None if isinstance(node, Switch) else end.get("ip"))
        except BaseException:
            link.delete()
            raise
        return link

    def _emulated(
        self, nodes: tuple[Any, Any], names: list[str], known_as: list[str], macs: list[str], spec: LinkSpec
    ) -> EmulatedLink:
        self.emulator.start()
        ends = tuple(
            {"switch": node.name} if isinstance(node, EmulatedSwitch) else {"port": alias}
            for node, alias in zip(nodes, known_as, strict=True)
        )
        link = EmulatedLink(self.emulator, self._link_name(*nodes), (ends[0], ends[1]), spec)
        try:
            for node, end, name, mac in zip(nodes, ends, names, macs, strict=True):
                if "port" in end:
                    link.add_port(end["port"], node.pid, name, mac, MTU_BYTES)
        except BaseException:
            link.clear()
            raise
        return link

    def _start_emulator(self) -> None:
        """Start the emulator unless it runs; another one where its own test failed, since a busy moment passes.

        Whether the last one's test passed stands in its ``hello``; the caller that measures refuses it.
        """
        if self.emulator.hello:
            return
        for attempt in range(_EMULATOR_STARTS):
            if attempt:
                self.emulator.stop()
                self.emulator = LinkEmulator(self._emulator_binary, self._on_event)
            self.emulator.start()
            if (self.emulator.hello.get("self_test") or {"passed": True})["passed"]:
                return

    def close(self, switches: Iterable[Any]) -> None:
        """End the emulator and the switches' namespace: every interface goes with them. Idempotent."""
        for switch in switches:
            # A bridge in our namespace goes with it; Open vSwitch's are in the machine's own.
            if isinstance(switch, OvsSwitch):
                switch.remove()
        self.emulator.stop()
        if self._namespace is not None:
            self._namespace.close()
            self._namespace = None


def _interface_class(node: Any) -> type[NodeInterface]:
    if isinstance(node, EmulatedSwitch):
        return SwitchPort
    return MachinePort if isinstance(node, OvsSwitch) else NodeInterface


def _check_own_namespace(node: Any) -> None:
    if isinstance(node, (EmulatedSwitch, OvsSwitch)):
        return
    if netns.is_own(node.pid):
        raise UsageError(f"{node.name} is in the machine's own network namespace: links are only made into others")
