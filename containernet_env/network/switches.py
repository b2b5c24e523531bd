"""Switches that learn addresses by themselves: in the link emulator, a Linux bridge, or Open vSwitch."""

from __future__ import annotations

import json
import os
import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from containernet_env.base import programs
from containernet_env.base.errors import RunError
from containernet_env.hosts import owner
from containernet_env.hosts.netns import ip_batch
from containernet_env.network.emulator import LinkEmulator
from containernet_env.network.interface import Port, delete_interface

_TIMEOUT_S = 10
# A run's id and a suffix; cnenv and a suffix for a trial.
_NAME = re.compile(r"([0-9a-f]{6}|cnenv).+")
_NOT_RUNNING = "database connection failed"
MACHINE = 1  # a process in the machine's own network namespace, where Open vSwitch's interfaces have to be


@dataclass(frozen=True)
class OurBridge:
    """A bridge of ours and the process that made it (a value of ``owner.current``)."""

    name: str
    owner: str


def vsctl(*words: str) -> str:
    """Run ``ovs-vsctl``, which waits until ovs-vswitchd has carried out a change; its output.

    Raises ``RunError`` when it fails, and when the change is in the database but could not be made real.
    """
    try:
        done = subprocess.run(
            [programs.require("ovs-vsctl"), f"--timeout={_TIMEOUT_S}", *words],
            capture_output=True,
            text=True,
            timeout=2 * _TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise RunError(
            f"ovs-vsctl {' '.join(words)} failed with status {error.returncode}: {error.stderr.strip()}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"ovs-vsctl {' '.join(words)}: {error}") from error
    if "Error detected while setting up" in done.stderr:
        # Its exit status is 0 all the same.
        raise RunError(f"ovs-vsctl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@lru_cache(maxsize=1)
def ovs_problem() -> str | None:
    """Why Open vSwitch cannot be used here, with what to do about it; ``None`` where it can. Determined once.

    A bridge of the kernel's datapath is made for a moment, as the proof.
    """
    if programs.which("ovs-vsctl") is None:
        return "ovs-vsctl is not installed (Debian, Ubuntu: openvswitch-switch)"
    trial = f"cnenv{os.getpid()}"
    try:
        try:
            add_bridge(trial)
        finally:
            vsctl("--if-exists", "del-br", trial)
    except RunError as error:
        if _NOT_RUNNING in str(error):
            return "Open vSwitch is installed but does not run (service openvswitch-switch start)"
        return f"Open vSwitch cannot make a bridge in this kernel (modprobe openvswitch): {error}"
    return None


def add_bridge(name: str) -> None:
    """A bridge of this process's by the kernel's datapath that learns addresses by itself."""
    vsctl(
        *("--may-exist", "add-br", name, "--", "set-fail-mode", name, "standalone", "--", "set", "Bridge", name),
        *("datapath_type=system", f'external_ids:{owner.LABEL}="{owner.current()}"'),
    )


def add_port(bridge: str, interface: str) -> None:
    """Make an interface of the machine a port of a bridge."""
    vsctl("--may-exist", "add-port", bridge, interface)


def remove_bridge(name: str) -> None:
    """Remove a bridge of ours with the interfaces that are its ports. Idempotent."""
    ports = vsctl("list-ports", name).split() if name in (bridge.name for bridge in list_ours()) else []
    vsctl("--if-exists", "del-br", name)
    for port in ports:
        # It may have gone with the namespace of its other end, or with another bridge's port. Interfaces that users
        # added do not begin with the run's id, as ours and the bridge do.
        if port.startswith(name[:6]):
            delete_interface(MACHINE, port)


def list_ours() -> list[OurBridge]:
    """The bridges that carry our mark; none where Open vSwitch is not installed or does not run."""
    if programs.which("ovs-vsctl") is None:
        return []
    try:
        table = vsctl("--format=json", "--columns=name,external_ids", "list", "Bridge")
    except RunError as error:
        if _NOT_RUNNING in str(error):
            return []
        raise
    return list(bridges_of(table))


def bridges_of(table: str) -> Iterator[OurBridge]:
    """Our bridges in a table of ``ovs-vsctl --format=json`` (RFC 7047, section 5.1): name, external_ids.

    By mark and by name: a user's bridge with a copy of our mark is not ours.
    """
    for name, (_, pairs) in json.loads(table)["data"] if table.strip() else ():
        owned = str(dict(pairs).get(owner.LABEL, ""))
        if owner.is_owner(owned) and _NAME.fullmatch(name):
            yield OurBridge(name, owned)


class LearningSwitch(ABC):
    """One switch; making one makes it in the system."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """The process in whose network namespace its ports are, or that is the switch; ``None`` once it has ended."""

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
        emulator.request("add_switch", name=name)

    @property
    def pid(self) -> int | None:
        return self._emulator.pid

    def attach(self, port: Port) -> None:
        """See ``LearningSwitch``: nothing, the emulator makes ports with their links."""

    def remove(self) -> None:
        if not self._removed and self._emulator.pid is not None:
            self._emulator.request("remove_switch", name=self.name)
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
        return self._pid

    def attach(self, port: Port) -> None:
        ip_batch(self.pid, [f"link set dev {port.name} master {self.bridge}"])

    def remove(self) -> None:
        delete_interface(self.pid, self.bridge)


class OvsSwitch(LearningSwitch):
    """An Open vSwitch bridge (kernel datapath) that learns by itself.

    The datapath has to be in the machine's own namespace; unlike a bridge's, its frames pass no firewall there.
    """

    def __init__(self, name: str, bridge: str) -> None:
        super().__init__(name)
        self.bridge = bridge
        add_bridge(bridge)

    @property
    def pid(self) -> int:
        """A process in the namespace of its ports: the machine's own."""
        return MACHINE

    def attach(self, port: Port) -> None:
        """See ``LearningSwitch``: Open vSwitch removes the queueing discipline of what becomes its port."""
        add_port(self.bridge, port.name)

    def remove(self) -> None:
        remove_bridge(self.bridge)
