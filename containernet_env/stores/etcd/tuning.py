"""What a topology may choose of etcd: its version, and some of its flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from containernet_env.stores.flags import Flag, milliseconds, one_of, size, whole

# The oldest whose modules have the paths that are built.
_OLDEST = (3, 6, 0)
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,4})(-(?:alpha|beta|rc)\.[0-9]{1,3})?", re.ASCII)
_HOUR_MS = 3_600_000


def _parse_version(value: object) -> str:
    found = _VERSION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("is not a version")
    if tuple(map(int, found.groups()[:3])) < _OLDEST:
        raise ValueError("is too old")
    return found[0]


VERSION = Flag(f'a version of at least {".".join(map(str, _OLDEST))} such as "3.6.8"', _parse_version)

_REVISIONS = whole(1, 10**9)
_TIME = milliseconds(1000, 10_000 * _HOUR_MS)


def _parse_retention(value: object) -> int | str:
    return _REVISIONS.parse(value) if isinstance(value, int) else _TIME.parse(value)


FLAGS: Mapping[str, Flag] = {
    "snapshot-count": whole(1, 10**9),
    "quota-backend-bytes": size(1 << 20, 1 << 40),
    "backend-batch-limit": whole(1, 10**7),
    "backend-batch-interval": milliseconds(1, 60_000),
    "auto-compaction-mode": one_of("periodic", "revision"),
    "auto-compaction-retention": Flag(f"{_TIME.allowed}; with revision {_REVISIONS.allowed}", _parse_retention),
}
"""See etcd's ``--help`` (server/etcdmain/help.go). What addresses, identity and timing follow from is none of them."""


def clash(flags: Mapping[str, int | str]) -> tuple[str, str, str] | None:
    """See ``StoreKind``: a retention is a time or a number of revisions, by the mode."""
    mode, retention = (flags.get(f"auto-compaction-{name}") for name in ("mode", "retention"))
    if mode is not None and retention is None:
        return "auto-compaction-mode", "says nothing by itself", "auto-compaction-retention beside it"
    if retention is not None and isinstance(retention, int) != (mode == "revision"):
        allowed = _REVISIONS.allowed if mode == "revision" else _TIME.allowed
        return "auto-compaction-retention", f"does not go with the mode {mode or 'periodic'}", allowed
    return None


def arguments(flags: Iterable[tuple[str, int | str]]) -> tuple[str, ...]:
    """What etcd is given for flags that `FLAGS` has read."""
    return tuple(f"--{name}={FLAGS[name].argument(value)}" for name, value in flags)
