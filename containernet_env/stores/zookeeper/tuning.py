"""What a topology may choose of ZooKeeper: its version, and some entries of its zoo.cfg."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from containernet_env.stores.flags import Flag, milliseconds, one_of, whole
from containernet_env.stores.zookeeper.jars import VERSIONS

PACKAGED = "3.8.0"
"""The version of the package in Debian 12, which is what is measured unless a topology names another one."""
TICK_MS, INIT_TICKS, SYNC_TICKS = 2000, 10, 5
"""Those of ZooKeeper's own conf/zoo_sample.cfg."""


def _parse_version(value: object) -> str:
    if not isinstance(value, str) or (value != PACKAGED and value not in VERSIONS):
        raise ValueError("is no version whose files are known by their SHA-256")
    return value


VERSION = Flag(f"one of {', '.join((PACKAGED, *VERSIONS))}", _parse_version)

_TICK = milliseconds(1, 60_000)
FLAGS: Mapping[str, Flag] = {
    "tickTime": Flag(_TICK.allowed, _TICK.parse, lambda value: str(value).removesuffix("ms")),
    "initLimit": whole(1, 10_000),
    "syncLimit": whole(1, 10_000),
    "snapCount": whole(2, 10**9),
    "preAllocSize": whole(64, 4 << 20),
    "globalOutstandingLimit": whole(1, 10**6),
    "forceSync": one_of("yes", "no"),
    "leaderServes": one_of("yes", "no"),
}
"""Entries of zoo.cfg (ZooKeeper's Administrator's Guide); ``preAllocSize`` is in KiB."""
_OF_TIMING = ("tickTime", "initLimit", "syncLimit")


def lines(flags: Iterable[tuple[str, int | str]]) -> tuple[str, ...]:
    """Lines of zoo.cfg for flags that `FLAGS` has read, without those of the timing."""
    return tuple(f"{name}={FLAGS[name].argument(value)}" for name, value in flags if name not in _OF_TIMING)
