"""Removes what networks of dead processes left in this machine's own namespace.

Interfaces and bridges elsewhere go with their namespaces; bridges of Open vSwitch stand in its database, and an
interface may have been on its way into its namespace (with the original Containernet).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from containernet_env.hosts import owner
from containernet_env.network.interface import delete_interface
from containernet_env.network.kernel import ovs


def remove_bridges(bridges: Iterable[ovs.OurBridge] | None = None) -> tuple[str, ...]:
    """Remove the bridges of Open vSwitch, of these or of all that are ours, whose owner is dead; says which."""
    stale = [bridge for bridge in (ovs.list_ours() if bridges is None else bridges) if not owner.is_alive(bridge.owner)]
    for bridge in stale:
        ovs.remove_bridge(bridge.name)
    return tuple(f"bridge {bridge.name}" for bridge in stale)


def remove_interfaces(run: str) -> list[str]:
    """Remove the machine's interfaces that carry a run's name (6 hexadecimal digits, and more); their names.

    Raises RunError where one could not be removed; one that is gone by then is no error.
    """
    if not re.fullmatch(r"[0-9a-f]{6}", run):
        return []
    names = [entry.name for entry in Path("/sys/class/net").iterdir() if re.fullmatch(f"{run}.*e[0-9]+", entry.name)]
    return [name for name in names if delete_interface(os.getpid(), name)]
