"""Remove leftovers of runs that were killed before their tear-down.

Everything else of a run ends with its driver: the link emulator and its interfaces end when its control connection
closes, and a namespace ends with its last process. Containers are managed by the engine and Open vSwitch bridges are
stored in its database, so both remain; with the original Containernet, so does an interface that was being moved into
its namespace.
"""

from __future__ import annotations

from dataclasses import dataclass

from containernet_env.hosts import engine, owner
from containernet_env.network import switches
from containernet_env.network.factory import remove_bridges, remove_interfaces


@dataclass(frozen=True)
class Leftovers:
    """The removed objects, and those still used by a living process: "container cnenv-...", "bridge ..." (of Open
    vSwitch) or "interface ...". ``others``: how many other processes have containers."""

    removed: tuple[str, ...]
    in_use: tuple[str, ...]
    others: int = 0


def remove_leftovers() -> Leftovers:
    """Remove marked objects whose owner process is dead; never an object without our mark, never one in use.

    Raises MissingRequirementError if no engine answers, RunError if an object could not be removed.
    """
    containers, bridges = engine.list_ours(), switches.list_ours()
    owners = [container.owner for container in containers] + [bridge.owner for bridge in bridges]
    living = set(filter(owner.is_alive, owners))
    in_use = [f"container {container.name}" for container in containers if container.owner in living]
    in_use += [f"bridge {bridge.name}" for bridge in bridges if bridge.owner in living]
    stale = [container for container in containers if container.owner not in living]
    # Only the original Containernet makes interfaces outside of their namespaces, and has a dot in its names.
    runs = {old.run for old in stale if old.name.startswith(f"cnenv-{old.run}.")}
    removed = [f"interface {name}" for run in runs for name in remove_interfaces(run)]
    # Last: these are identified only by the ids of their runs.
    engine.remove_containers([container.id for container in stale])
    removed += [f"container {container.name}" for container in stale]
    others = {container.owner for container in containers} & living - {owner.current()}
    return Leftovers((*removed, *remove_bridges(bridges)), tuple(in_use), len(others))
