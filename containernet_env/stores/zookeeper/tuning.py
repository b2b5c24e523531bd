"""What a topology may choose of ZooKeeper: its version, and some entries of its zoo.cfg."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from containernet_env.stores.flags import Flag, milliseconds, one_of, whole

PACKAGED = "3.8.0"
"""The version of the package in Debian 12, which is what is measured unless a topology names another one."""
# The oldest that logs through a library that is fetched with it.
_OLDEST = (3, 8, 0)
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})", re.ASCII)
TICK_MS, INIT_TICKS, SYNC_TICKS = 2000, 10, 5
"""Those of ZooKeeper's own conf/zoo_sample.cfg."""


def _parse_version(value: object) -> str:
    found = _VERSION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("is not a version")
    if tuple(map(int, found.groups())) < _OLDEST:
        raise ValueError("is too old")
    return found[0]


VERSION = Flag(f'a version of at least {".".join(map(str, _OLDEST))} such as "3.9.4"', _parse_version)

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
