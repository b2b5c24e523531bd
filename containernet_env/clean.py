"""Remove what runs left behind that were killed before they could tear down.

Everything else of a run dies with its driver: the link emulator ends when its control connection closes and its
interfaces with it, and a namespace goes with its last process. Containers are the engine's, so they stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from containernet_env import engine, owner


@dataclass(frozen=True)
class Leftovers:
    """Names of the containers that were removed, and of those that a living process still uses."""

    removed: tuple[str, ...]
    in_use: tuple[str, ...]


def remove_leftovers() -> Leftovers:
    """Remove our containers whose owner is dead; never one without our label, never one in use.

    Raises MissingRequirementError where no engine answers, RunError where a container could not be removed.
    """
    ours = engine.list_ours()
    in_use = [container for container in ours if owner.is_alive(container.owner)]
    stale = [container for container in ours if container not in in_use]
    engine.remove_containers([container.id for container in stale])
    return Leftovers(tuple(c.name for c in stale), tuple(c.name for c in in_use))
