"""Switches of the original Containernet that learn addresses by themselves, made to touch only what is ours."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from mininet.node import OVSBridge
from mininet.nodelib import LinuxBridge

from containernet_env.base.errors import RunError
from containernet_env.hosts import netns, owner
from containernet_env.network.kernel import ovs


class OriginalSwitch(Protocol):
    """What the network needs of its switch."""

    name: str
    pid: int

    def check(self, interfaces: Iterable[str]) -> None:
        """Raise ``RunError`` unless these interfaces, and they alone, are its ports."""

    def remove(self) -> None:
        """Take it out of the system. Idempotent."""


class NamespacedBridge(LinuxBridge):  # type: ignore[misc]
    """Its LinuxBridge in a network namespace that its shell holds.

    There its commands can touch no bridge of somebody else's, the machine's firewall sees none of the frames, and all
    is gone with the shell, which ends with the driver, however that ends.
    """

    # A switch outside the machine's namespace is not given one.
    controlIntf = None

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **{**params, "inNamespace": True})

    @classmethod
    def setup(cls) -> None:
        """Its warnings are about the machine's firewall, which does not see this bridge."""

    def check(self, interfaces: Iterable[str]) -> None:
        """See ``OriginalSwitch``."""
        shown = netns.run(self.pid, ["ip", "-j", "link", "show", "master", self.name]).stdout
        ports = {entry["ifname"] for entry in json.loads(shown or "[]") if entry}
        _check_ports(self.name, ports, set(interfaces))

    def remove(self) -> None:
        """See ``OriginalSwitch``."""
        _end_shell(self)


class OwnedOvsBridge(OVSBridge):  # type: ignore[misc]
    """Its OVSBridge, called ``<run id><name>`` and marked with its owner, whose errors are raised."""

    def __init__(self, name: str, run_id: str, **params: Any) -> None:
        self._started = False
        super().__init__(name, prefix=run_id, **params)

    @classmethod
    def isOldOVS(cls) -> bool:
        """Not older than 1.10, of 2013; its own comparison needs a part of Python that is gone."""
        return False

    def bridgeOpts(self) -> str:
        """See Mininet; with the owner, from the first moment on."""
        return f'{super().bridgeOpts()} external_ids:{owner.LABEL}=\\"{owner.current()}\\"'

    def start(self, controllers: Sequence[Any]) -> None:
        """See Mininet."""
        super().start(controllers)
        self._started = True

    def attach(self, intf: Any) -> None:
        """See Mininet; but before the start there is no bridge, and that makes all its ports."""
        if self._started:
            super().attach(intf)

    def vsctl(self, *args: Any, **_options: Any) -> str:
        """See Mininet. Raises ``RunError`` where ovs-vsctl fails or does not answer."""
        return ovs.vsctl(*shlex.split(" ".join(map(str, args))))

    def check(self, interfaces: Iterable[str]) -> None:
        """See ``OriginalSwitch``."""
        _check_ports(self.name, set(ovs.vsctl("list-ports", self.deployed_name).split()), set(interfaces))

    def remove(self) -> None:
        """See ``OriginalSwitch``."""
        ovs.remove_bridge(self.deployed_name)
        _end_shell(self)


def _check_ports(switch: str, ports: set[str], wanted: set[str]) -> None:
    if ports != wanted:
        names = ", ".join(sorted(ports)) or "none"
        raise RunError(f"switch {switch}: its ports should be {', '.join(sorted(wanted))}, the system holds {names}")


def _end_shell(node: Any) -> None:
    """End a node's shell for sure: its own way waits without a deadline for a shell that may be busy."""
    if node.shell is None:
        return
    with suppress(ProcessLookupError):
        # mnexec has made it the leader of a group.
        os.killpg(node.shell.pid, signal.SIGKILL)
    node.cleanup()
