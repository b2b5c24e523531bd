"""Who leads a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, and since which term: it grows with every election, also where the same member wins it."""

    leader: str
    term: int
