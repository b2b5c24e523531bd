"""The implementations that a user may choose: of hosts, links and switches."""

from __future__ import annotations

from typing import Literal, get_args

from containernet_env.base.errors import UsageError

EngineChoice = Literal["builtin", "containernet"]


LinksChoice = Literal["auto", "netem", "emulator"]


LinksKind = Literal["netem", "emulator"]


SwitchesChoice = Literal["auto", "ovs", "bridge"]


SwitchKind = Literal["emulator", "ovs", "bridge"]


ProfileKind = Literal["cpu", "allocs", "mutex"]


def check_choices(links: str, switches: str, engine: str = "builtin") -> None:
    """Raise ``UsageError`` for choices that do not exist or contradict each other; does not look at the machine."""
    for name, asked, choices in (
        ("links", links, get_args(LinksChoice)),
        ("switches", switches, get_args(SwitchesChoice)),
        ("engine", engine, get_args(EngineChoice)),
    ):
        if asked not in choices:
            raise UsageError(f"{name}={asked!r}; allowed: {', '.join(choices)}")
    if switches != "auto" and links != "netem" and engine == "builtin":
        own = "the link emulator has switches of its own; allowed: switches='auto', or links='netem'"
        raise UsageError(f"switches={switches!r} with links={links!r}: {own}")
