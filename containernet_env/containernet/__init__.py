"""The network engines on Mininet: Containernet's two classes on stock Mininet, the shell, the original Containernet.

Scripts write ``from containernet_env.containernet import CLI, Containernet, Docker`` (docs/containernet.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from containernet_env.containernet.docker import Docker
    from containernet_env.containernet.network import Containernet
    from containernet_env.containernet.shell import CommandLine as CLI

__all__ = ["CLI", "Containernet", "Docker"]


_PLACES = {"CLI": ("shell", "CommandLine"), "Containernet": ("network", "Containernet"), "Docker": ("docker", "Docker")}


def __getattr__(name: str) -> Any:
    # On first use: the original Containernet brings its own Mininet, which must not be mixed with another one.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, known_as = _PLACES[name]
    return getattr(import_module(f"{__name__}.{module}"), known_as)
