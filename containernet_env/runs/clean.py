"""Remove what runs left behind that were killed before they could tear down.

Everything else of a run dies with its driver: the link emulator ends when its control connection closes and its
interfaces with it, and a namespace goes with its last process. Containers are the engine's, and bridges of Open
vSwitch stand in its database, so they stay; and so does an interface on its way into its namespace, with the original
Containernet.
"""

from __future__ import annotations

from dataclasses import dataclass

from containernet_env.hosts import engine, owner
from containernet_env.network import switches
from containernet_env.network.factory import remove_bridges, remove_interfaces


@dataclass(frozen=True)
class Leftovers:
    """What was removed, and what a living process still uses: "container cnenv-...", "bridge ..." (of Open vSwitch)
    or "interface ..."."""

    removed: tuple[str, ...]
    in_use: tuple[str, ...]
    others: tuple[str, ...] = ()


def remove_leftovers() -> Leftovers:
    """Remove what is ours and whose owner is dead; never anything without our mark, never anything in use.

    Raises MissingRequirementError where no engine answers, RunError where something could not be removed.
    """
    containers, bridges = engine.list_ours(), switches.list_ours()
    in_use = [f"container {container.name}" for container in containers if owner.is_alive(container.owner)]
    in_use += [f"bridge {bridge.name}" for bridge in bridges if owner.is_alive(bridge.owner)]
    stale = [container for container in containers if not owner.is_alive(container.owner)]
    # Only the original Containernet makes interfaces outside of their namespaces, and has a dot in its names.
    runs = {old.run for old in stale if old.name.startswith(f"cnenv-{old.run}.")}
    removed = [f"interface {name}" for run in runs for name in remove_interfaces(run)]
    # After what only their runs' ids tell.
    engine.remove_containers([container.id for container in stale])
    removed += [f"container {container.name}" for container in stale]
    return Leftovers((*removed, *remove_bridges(bridges)), tuple(in_use))


def others_up() -> int:
    """How many testbeds of other living processes are up, by their containers. Raises what asking the engine raises."""
    ours = owner.current()
    living = {container.owner for container in engine.list_ours() if owner.is_alive(container.owner)}
    return len(living - {ours})
