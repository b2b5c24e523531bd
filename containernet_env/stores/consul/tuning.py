"""What a topology may choose of Consul: its version, and some of its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping

from containernet_env.stores.flags import Flag, one_of, whole

# The oldest that has all that is asked of it: the transfer of leadership over HTTP came with 1.15.
_OLDEST = (1, 15, 0)
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,4})", re.ASCII)
MULTIPLIER_MAX = 10
"""Consul's own bound of ``raft_multiplier`` (agent/consul/config.go)."""


def _parse_version(value: object) -> str:
    found = _VERSION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("is not a version")
    if tuple(map(int, found.groups())) < _OLDEST:
        raise ValueError("is too old")
    return found[0]


VERSION = Flag(f'a version of at least {".".join(map(str, _OLDEST))} such as "1.22.0"', _parse_version)

FLAGS: Mapping[str, Flag] = {
    "raft_multiplier": whole(1, MULTIPLIER_MAX),
    "raft_snapshot_threshold": whole(1, 10**9),
    "raft_trailing_logs": whole(1, 10**9),
    "raft_logstore": one_of("boltdb", "wal"),
}
"""Names are those of Consul's configuration files; ``raft_logstore`` is ``raft_logstore.backend`` there."""
