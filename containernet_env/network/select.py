"""Which implementation carries the links on this machine, and on which switches."""

from __future__ import annotations

import subprocess
from functools import lru_cache

from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.hosts import netns
from containernet_env.hosts.namespace import ThrowawayNamespace
from containernet_env.model.choices import LinksKind, SwitchKind, check_choices
from containernet_env.network.kernel import ovs

_SAID = {
    "emulator": "emulator",
    "ovs": "netem on Open vSwitch",
    "bridge": "netem on a Linux bridge",
}


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
    """The implementation for ``--links``: ``auto`` is the link emulator, on every machine alike.

    Raises ``MissingRequirementError`` where netem is asked for and the kernel has none.
    """
    check_choices(asked, "auto")
    if asked != "netem":
        return "emulator"
    try:
        found = kernel_has_netem()
    except (RunError, OSError, subprocess.SubprocessError) as error:
        raise RunError(f"cannot find out whether this kernel has netem: {error}") from error
    if not found:
        raise MissingRequirementError(
            "this kernel has no netem (sch_netem), so it cannot delay packets",
            "Use --links emulator, or auto.",
        )
    return "netem"


def choose_switches(asked: str, links: LinksKind) -> SwitchKind:
    """The kind of switches for ``--switches``: by netem, ``auto`` takes Open vSwitch where it works, else a bridge.

    Raises ``MissingRequirementError`` where one is asked for that this machine cannot have.
    """
    check_choices(links, asked)
    if links == "emulator":
        return "emulator"
    if asked == "bridge":
        return "bridge"
    reason = ovs_problem()
    if asked == "ovs" and reason is not None:
        raise MissingRequirementError(
            f"Open vSwitch was asked for: {reason}", "Provide it, or use --switches bridge, or auto."
        )
    return "bridge" if reason is not None else "ovs"


@lru_cache(maxsize=1)
def ovs_problem() -> str | None:
    """See ``ovs.problem``; found out once."""
    return ovs.problem()


def describe(kind: SwitchKind) -> str:
    """What carries the links, and on which switches, in words."""
    return _SAID[kind]
