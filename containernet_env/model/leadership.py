"""Who leads a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, and since which term: it grows with every election, also where the same member wins it.

    Without a ``term`` the store elects no leader, and ``leader`` is the member that loads for the leader go to.
    """

    leader: str
    term: int | None


def leader_words(led: Leadership | None) -> str | None:
    """Who leads, for people: "leader etcd1", or "no leader" in a store without one; ``None`` where it is not known."""
    if led is None:
        return None
    return "no leader" if led.term is None else f"leader {led.leader}"


def leader_text(before: Leadership | None, after: Leadership | None) -> str | None:
    """Who led at the end of a scenario; "etcd1>etcd2" where another one did at its start, "etcd1>none" for nobody."""
    now = after.leader if after is not None else None
    if before is None or before.leader == now:
        return now
    return f"{before.leader}>{now or 'none'}"
