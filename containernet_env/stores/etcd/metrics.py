"""What an etcd member says of itself at /metrics: the few figures that are kept, and their differences.

The form is Prometheus' text exposition (version 0.0.4); names are those of etcd 3.4 to 3.7
(https://etcd.io/docs/v3.6/metrics/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from containernet_env.model.usage import Durations, MemberActivity

PATH = "/metrics"
_LEADER_CHANGES = "etcd_server_leader_changes_seen_total"
_FAILED_PROPOSALS = "etcd_server_proposals_failed_total"
_DATA_BYTES = "etcd_mvcc_db_total_size_in_bytes"
_LOG_SYNCS = "etcd_disk_wal_fsync_duration_seconds"
_COMMITS = "etcd_disk_backend_commit_duration_seconds"
_STARTED = "process_start_time_seconds"
_SINGLE = frozenset({_LEADER_CHANGES, _FAILED_PROPOSALS, _DATA_BYTES, _STARTED})


@dataclass(frozen=True, slots=True)
class Histogram:
    """``below``: how often it took at most so many seconds, by that bound."""

    sum_s: float
    below: Mapping[float, int]


@dataclass(frozen=True, slots=True)
class Metrics:
    """One look at a member: single values and histograms by name, those that it tells."""

    values: Mapping[str, float]
    histograms: Mapping[str, Histogram]


def parse(text: str) -> Metrics:
    """Read an answer; lines that are not kept, or not of that form, are left out."""
    values: dict[str, float] = {}
    sums: dict[str, float] = {}
    below: dict[str, dict[float, int]] = {_LOG_SYNCS: {}, _COMMITS: {}}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        try:
            if name in _SINGLE:
                values[name] = float(value)
            elif name.startswith((_LOG_SYNCS, _COMMITS)):
                base = _LOG_SYNCS if name.startswith(_LOG_SYNCS) else _COMMITS
                rest = name.removeprefix(base)
                if rest == "_sum":
                    sums[base] = float(value)
                elif rest.startswith('_bucket{le="'):
                    below[base][float(rest.removeprefix('_bucket{le="').removesuffix('"}'))] = int(float(value))
        except ValueError:
            continue
    return Metrics(values, {name: Histogram(sums[name], found) for name, found in below.items() if name in sums})


def activity(before: Metrics | None, after: Metrics | None, warnings: Mapping[str, int] | None) -> MemberActivity:
    """What a member counted between two looks; what one of both lacks is not known, as where it began anew."""
    size = None if after is None else after.values.get(_DATA_BYTES)
    data_bytes = None if size is None else int(size)
    if before is None or after is None or before.values.get(_STARTED) != after.values.get(_STARTED):
        return MemberActivity(data_bytes=data_bytes, warnings=warnings)
    return MemberActivity(
        leader_changes=_grown(before, after, _LEADER_CHANGES),
        log_syncs=_durations(before, after, _LOG_SYNCS),
        commits=_durations(before, after, _COMMITS),
        failed_proposals=_grown(before, after, _FAILED_PROPOSALS),
        data_bytes=data_bytes,
        data_grown_bytes=_grown(before, after, _DATA_BYTES),
        warnings=warnings,
    )


def _grown(before: Metrics, after: Metrics, name: str) -> int | None:
    if name not in before.values or name not in after.values:
        return None
    return int(after.values[name] - before.values[name])


def _durations(before: Metrics, after: Metrics, name: str) -> Durations | None:
    old, new = before.histograms.get(name), after.histograms.get(name)
    if old is None or new is None or old.below.keys() != new.below.keys():
        return None
    buckets: list[tuple[float | None, int]] = []
    counted = 0
    for bound_s in sorted(new.below):
        grown = new.below[bound_s] - old.below[bound_s]
        buckets.append((None if bound_s == inf else bound_s, grown - counted))
        counted = grown
    return Durations.of(new.sum_s - old.sum_s, tuple(buckets))
