"""All that knows Mininet: Containernet's two classes on stock Mininet, their shell, and the original Containernet.

``from containernet_env.containernet import CLI, Containernet, Docker`` is what scripts write (docs/containernet.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from containernet_env.containernet.docker import Docker
    from containernet_env.containernet.network import Containernet
    from containernet_env.containernet.shell import CommandLine as CLI

__all__ = ["CLI", "Containernet", "Docker"]


def __getattr__(name: str) -> Any:
    # On first use: the original Containernet's modules bring a Mininet of their own, and must not meet another one.
    if name == "Containernet":
        from containernet_env.containernet.network import Containernet

        return Containernet
    if name == "CLI":
        from containernet_env.containernet.shell import CommandLine

        return CommandLine
    if name == "Docker":
        from containernet_env.containernet.docker import Docker

        return Docker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
