"""Makes the switches and links of a network, of the chosen kind, and removes them and the leftovers of dead runs."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from containernet_env.base.errors import MissingRequirementError, RunError, UsageError
from containernet_env.hosts import netns, owner
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.model.backends import LinksKind, SwitchKind, check_choices
from containernet_env.model.link import LinkSpec
from containernet_env.network import switches
from containernet_env.network.emulator import EmulatedLink, EmulatorFabric, LinkEmulator
from containernet_env.network.interface import (
    MTU_MAX_BYTES,
    NAME_MAX,
    Interface,
    Port,
    SwitchPort,
    delete_interface,
    derive_mac,
)
from containernet_env.network.kernel import KernelFabric, VethLink
from containernet_env.network.link import EventHandler, Fabric, ShapedLink
from containernet_env.network.switches import BridgeSwitch, EmulatedSwitch, LearningSwitch, OvsSwitch, ovs_problem

DESCRIPTIONS: Mapping[SwitchKind, str] = {
    "emulator": "emulator",
    "ovs": "netem on Open vSwitch",
    "bridge": "netem on a Linux bridge",
}
"""The kinds of links and switches, as text."""


@lru_cache(maxsize=1)
def kernel_has_netem() -> bool:
    """Whether a netem qdisc can be added, which is tried in a namespace of its own.

    The kernel loads the module if it is installed but not loaded.
    """
    with ThrowawayNamespace() as namespace:
        netns.run(namespace.pid, ["ip", "link", "set", "dev", "lo", "up"])
        done = netns.run(
            namespace.pid, ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"], check=False
        )
    return done.returncode == 0


def choose(choice: str) -> LinksKind:
    """The implementation for ``--links``: ``auto`` is the link emulator, on every machine alike.

    Raises ``MissingRequirementError`` if netem is chosen and the kernel has none.
    """
    check_choices(choice, "auto")
    if choice != "netem":
        return "emulator"
    try:
        found = kernel_has_netem()
    except (RunError, OSError, subprocess.SubprocessError) as error:
        raise RunError(f"cannot find out whether this kernel has netem: {error}") from error
    if not found:
        raise MissingRequirementError(
            "this kernel has no netem (sch_netem), so it cannot delay packets",
            "Use --links emulator, or auto.",
        )
    return "netem"


def choose_switches(choice: str, links: LinksKind) -> SwitchKind:
    """The kind of switches for ``--switches``: by netem, ``auto`` takes Open vSwitch where it works, else a bridge.

    Raises ``MissingRequirementError`` if the chosen one is not available on this machine.
    """
    check_choices(links, choice)
    if links == "emulator":
        return "emulator"
    if choice == "bridge":
        return "bridge"
    reason = ovs_problem()
    if choice == "ovs" and reason is not None:
        raise MissingRequirementError(
            f"Open vSwitch cannot be used: {reason}", "Provide it, or use --switches bridge, or auto."
        )
    return "bridge" if reason is not None else "ovs"


def remove_bridges(bridges: Iterable[switches.OurBridge] | None = None) -> tuple[str, ...]:
    """Remove the bridges of Open vSwitch, of these or of all that are ours, whose owner is dead; their names."""
    stale = [
        bridge for bridge in (switches.list_ours() if bridges is None else bridges) if not owner.is_alive(bridge.owner)
    ]
    for bridge in stale:
        switches.remove_bridge(bridge.name)
    return tuple(f"bridge {bridge.name}" for bridge in stale)


def remove_interfaces(run: str) -> list[str]:
    """Remove the machine's interfaces that carry a run's name (6 hexadecimal digits, and more); their names.

    Raises RunError where one could not be removed; one that is gone by then is no error.
    """
    if not re.fullmatch(r"[0-9a-f]{6}", run):
        return []
    names = [entry.name for entry in Path("/sys/class/net").iterdir() if re.fullmatch(f"{run}.*e[0-9]+", entry.name)]
    return [name for name in names if delete_interface(os.getpid(), name)]


# The emulator's test at its start fails if other programs hold the cores for milliseconds meanwhile.
_EMULATOR_STARTS = 3


@dataclass(frozen=True)
class Place:
    """Where one end of a link is to be: in the network namespace of a process, or at a switch of the same factory.

    ``node`` names the link, and with ``port``, its number there, Ethernet address and ``alias`` unless these are given.
    ``address`` ("10.0.0.1/24") is the interface's; a switch's port has none.
    """

    node: str
    at: int | LearningSwitch
    port: int = 0
    mac: str | None = None
    address: str | None = None
    alias: str | None = None

    @property
    def known_as(self) -> str:
        """The name of the end that people use."""
        return self.alias or f"{self.node}-eth{self.port}"


class LinkFactory:
    """One network's switches and links, of one ``kind``. Names of interfaces and bridges begin with ``run_id``.

    ``fabric`` has the operations on all of them together. ``seed``: of the link emulator's directions that have none of
    their own.
    """

    def __init__(
        self,
        kind: SwitchKind,
        run_id: str,
        emulator_binary: Path | str | None,
        on_event: EventHandler,
        seed: int = 0,
        emulator_core: int | None = None,
        offload: bool = False,
    ) -> None:
        self._kind = kind
        self._run_id = run_id
        self._numbers = itertools.count()
        # By name, with what their ends are at; those that were cleared since hold neither their name nor their Ethernet
        # addresses.
        self._links: dict[str, tuple[ShapedLink, tuple[int | LearningSwitch, ...]]] = {}
        self._seed = seed
        self._emulator = partial(LinkEmulator, emulator_binary, on_event, emulator_core, offload)
        self.emulator = self._emulator()
        self.fabric: Fabric = EmulatorFabric(lambda: self.emulator) if kind == "emulator" else KernelFabric()
        self._namespace: ThrowawayNamespace | None = None
        self._bridges: list[OvsSwitch] = []

    def _name(self, letter: str) -> str:
        name = f"{self._run_id}{letter}{next(self._numbers)}"
        if len(name) > NAME_MAX:
            raise UsageError(f"run id {self._run_id!r} is too long: interface names have {NAME_MAX} characters")
        return name

    def make_switch(self, name: str) -> LearningSwitch:
        """A switch of the network's kind."""
        if self._kind == "emulator":
            self._start_emulator()
            return EmulatedSwitch(name, self.emulator)
        if self._kind == "ovs":
            bridge = OvsSwitch(name, self._name("b"))
            self._bridges.append(bridge)
            return bridge
        if self._namespace is None:
            self._namespace = ThrowawayNamespace()
        return BridgeSwitch(name, self._namespace.pid, self._name("b"))

    def _mac(self, place: Place, other: Port | None) -> str:
        ends = [end for link, _ in self._links.values() if link.made for end in link.ends]
        taken = {end.mac.lower() for end in (*ends, other) if isinstance(end, Interface) and end.mac is not None}
        if place.mac is None:
            derived = (derive_mac(place.node, place.port, attempt) for attempt in itertools.count())
            return next(mac for mac in derived if mac not in taken)
        if place.mac.lower() in taken:
            raise UsageError(f"{place.node}: the Ethernet address {place.mac} is in use already")
        return place.mac

    def _link_name(self, one: str, two: str) -> str:
        taken = {name for name, (link, _) in self._links.items() if link.made}
        names = (f"{one}-{two}{f'-{number}' if number > 1 else ''}" for number in itertools.count(1))
        return next(name for name in names if name not in taken)

    def make_link(self, one: Place, two: Place, spec: LinkSpec) -> ShapedLink:
        """Make a link between two places, its interfaces up and with their addresses; nothing is left of one that
        fails. Raises ``UsageError`` for a place in the machine's own namespace."""
        for place in (one, two):
            if isinstance(place.at, int) and netns.is_own(place.at):
                raise UsageError(
                    f"{place.node} is in the machine's own network namespace: links are only made into others"
                )
        first = self._port(one, None)
        second = self._port(two, first)
        name = self._link_name(one.node, two.node)
        link: ShapedLink
        if isinstance(first, Interface) and isinstance(second, Interface) and self._kind != "emulator":
            link = VethLink(name, (first, second), spec)
        else:
            self._start_emulator()
            link = EmulatedLink(self.emulator, name, (first, second), spec, self._seed)
        at = one.at, two.at
        self._build(link, at)
        self._links[name] = link, at
        return link

    @staticmethod
    def _build(link: ShapedLink, at: Iterable[int | LearningSwitch]) -> None:
        try:
            link.make()
            for port, where in zip(link.ends, at, strict=True):
                if isinstance(where, LearningSwitch):
                    where.attach(port)
            link.apply(link.spec)
            for port in link.ends:
                if isinstance(port, Interface):
                    port.bring_up()
        except BaseException as error:
            try:
                link.clear()
            except RunError as left:
                error.add_note(str(left))  # the first error is the cause
            raise

    def remake_link(self, link: ShapedLink, end: Interface, pid: int) -> None:
        """Make a link again one of whose ends has gone with its namespace: ``end``, now in that of ``pid``.

        The link is as it was last, up, with the same names and addresses; nothing is left of one that fails.
        """
        link.clear()
        end.pid = pid
        self._build(link, self._links[link.name][1])

    def _port(self, place: Place, other: Port | None) -> Port:
        mac = self._mac(place, other)
        if isinstance(place.at, int):
            return Interface(place.at, self._name("e"), mac, place.known_as, place.address)
        if isinstance(place.at, (BridgeSwitch, OvsSwitch)):
            # In the machine's own namespace another network may have a name such as s1-eth1, too.
            alias = place.known_as if isinstance(place.at, BridgeSwitch) else None
            port = Interface(place.at.pid, self._name("e"), mac, alias)
            port.mtu_bytes = MTU_MAX_BYTES  # a switch passes what hosts send; the host that receives it is the judge
            return port
        return SwitchPort(self._name("e"), place.at.name)

    def _start_emulator(self) -> None:
        """Start the emulator unless it runs; retry if its own test fails, since the machine may be busy only briefly.

        The ``hello`` of the last one has the result of its test; the caller that measures refuses a failed one.
        """
        if self.emulator.hello:
            return
        for attempt in range(_EMULATOR_STARTS):
            if attempt:
                self.emulator.stop()
                self.emulator = self._emulator()
            self.emulator.start()
            if (self.emulator.hello.get("self_test") or {"passed": True})["passed"]:
                return

    def remove_switch(self, switch: LearningSwitch) -> None:
        """Take one switch away, whose links are gone."""
        switch.remove()
        self._bridges = [bridge for bridge in self._bridges if bridge is not switch]

    def close(self) -> None:
        """End the emulator and the switches' namespace: every interface goes with them. Idempotent."""
        # A bridge in our namespace goes with it; Open vSwitch's are in the machine's own.
        for bridge in self._bridges:
            bridge.remove()
        self.emulator.stop()
        if self._namespace is not None:
            self._namespace.close()
            self._namespace = None
