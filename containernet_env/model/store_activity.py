"""What members of the store counted themselves while a scenario ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Durations:
    """How long something took each time, of a histogram that the member keeps.

    ``buckets`` are pairs of a bucket's longest time in seconds (``None``: any) and how often it took that, empty ones
    left out; none at all where the member keeps no histogram. ``p99_at_most_s`` is the longest time of the bucket that
    holds the 99th percentile: a histogram tells no more. Both figures are ``None`` where it did not happen, the latter
    also where nothing bounds that bucket.
    """

    count: int
    mean_s: float | None
    p99_at_most_s: float | None
    buckets: tuple[tuple[float | None, int], ...] = ()

    @classmethod
    def of(cls, sum_s: float, buckets: tuple[tuple[float | None, int], ...]) -> Durations:
        """Of whole buckets, ascending."""
        count = sum(times for _, times in buckets)
        seen, p99_s = 0, None
        for edge_s, times in buckets:
            seen += times
            if count and 100 * seen >= 99 * count:
                p99_s = edge_s
                break
        mean_s = sum_s / count if count else None
        return cls(count, mean_s, p99_s, tuple((edge_s, times) for edge_s, times in buckets if times))


@dataclass(frozen=True, slots=True)
class MemberActivity:
    """One member; ``None`` where it did not tell.

    ``leader_changes`` are those that it saw. ``log_syncs`` are the writes of its log forced to disk, ``commits`` those
    of its data. ``failed_proposals`` are writes that found no majority. ``data_bytes`` is the size of its data at the
    end, ``data_grown_bytes`` by how much that grew. ``warnings`` counts the lines of its log, from level warning on, by
    what they say, and what else people look for in the log of that store.
    """

    leader_changes: int | None = None
    log_syncs: Durations | None = None
    commits: Durations | None = None
    failed_proposals: int | None = None
    data_bytes: int | None = None
    data_grown_bytes: int | None = None
    warnings: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class StoreActivity:
    """Every member by name that lived when the scenario began."""

    members: Mapping[str, MemberActivity] = field(default_factory=dict)
