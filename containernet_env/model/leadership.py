"""Who leads a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, and since which term: it grows with every election, also where the same member wins it."""

    leader: str
    term: int


def leader_text(before: Leadership | None, after: Leadership | None) -> str | None:
    """Who led at the end of a scenario; "etcd1>etcd2" where another one did at its start, "etcd1>none" for nobody."""
    now = after.leader if after is not None else None
    if before is None or before.leader == now:
        return now
    return f"{before.leader}>{now or 'none'}"
