"""What a Consul agent counts itself: the few figures that are kept of /v1/agent/metrics, and their differences.

The form is Prometheus' text exposition (version 0.0.4). Summaries have a count and a sum since the agent's start; their
quantiles are those of the last seconds, and are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from containernet_env.model.usage import Durations, MemberActivity

PATH = "/v1/agent/metrics?format=prometheus"
# Batches of log entries that raft-boltdb wrote, in ms: each ends with the two fdatasyncs of a transaction of bbolt.
_LOG_WRITES = "consul_raft_boltdb_storeLogs"
_KEPT = frozenset({f"{_LOG_WRITES}_sum", f"{_LOG_WRITES}_count"})


def parse(text: str) -> Mapping[str, float]:
    """Read an answer; lines that are not kept, or not of that form, are left out."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in _KEPT:
            try:
                values[name] = float(value)
            except ValueError:
                continue
    return values


def activity(
    before: Mapping[str, float] | None,
    after: Mapping[str, float] | None,
    leader_changes: int | None,
    warnings: Mapping[str, int] | None,
) -> MemberActivity:
    """What a member counted between two looks; what one of both lacks is not known, as where it began anew."""
    return MemberActivity(
        leader_changes=leader_changes, log_syncs=_log_writes(before or {}, after or {}), warnings=warnings
    )


def _log_writes(before: Mapping[str, float], after: Mapping[str, float]) -> Durations | None:
    counts = [look.get(f"{_LOG_WRITES}_count") for look in (before, after)]
    sums_ms = [look.get(f"{_LOG_WRITES}_sum") for look in (before, after)]
    if counts[0] is None or counts[1] is None or sums_ms[0] is None or sums_ms[1] is None or counts[1] < counts[0]:
        return None
    count = round(counts[1] - counts[0])
    return Durations(count, (sums_ms[1] - sums_ms[0]) / 1000 / count if count else None, None)
