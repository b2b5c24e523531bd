"""Which implementation carries the links on this machine."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from typing import Literal, get_args

from containernet_env import netns
from containernet_env.errors import MissingRequirementError, RunError, UsageError
from containernet_env.links.namespace import ThrowawayNamespace

LinksChoice = Literal["auto", "netem", "emulator"]
LinksKind = Literal["netem", "emulator"]


@lru_cache(maxsize=1)
def kernel_has_netem() -> bool:
    """Whether a netem qdisc can be added: tried out in a namespace of its own, since only that is a proof.

    A module that is there but not loaded is loaded by the kernel on the way.
    """
    with ThrowawayNamespace() as namespace:
        netns.run(namespace.pid, ["ip", "link", "set", "dev", "lo", "up"])
        done = netns.run(
            namespace.pid, ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"], check=False
        )
    return done.returncode == 0


def choose(asked: str) -> LinksKind:
    """The implementation for ``--links``: ``auto`` takes netem where the kernel has it, else the emulator.

    Raises ``MissingRequirementError`` where netem is asked for and the kernel has none.
    """
    if asked not in get_args(LinksChoice):
        raise UsageError(f"links={asked!r}; allowed: {', '.join(get_args(LinksChoice))}")
    if asked == "emulator":
        return "emulator"
    try:
        found = kernel_has_netem()
    except (RunError, OSError, subprocess.SubprocessError) as error:
        raise RunError(f"cannot find out whether this kernel has netem: {error}") from error
    if asked == "netem" and not found:
        raise MissingRequirementError(
            "this kernel has no netem (sch_netem), so it cannot delay packets",
            "Use --links emulator, or auto.",
        )
    return "netem" if found else "emulator"
