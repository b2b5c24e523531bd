"""Testbeds that are up on this machine beside this process's own."""

from __future__ import annotations

from containernet_env.hosts import engine, owner


def others_up() -> int:
    """How many testbeds of other living processes are up, by their containers. Raises what asking the engine raises."""
    ours = owner.current()
    living = {container.owner for container in engine.list_ours() if owner.is_alive(container.owner)}
    return len(living - {ours})
