"""The loads of several clients as one: what they measured together, from one start on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum, sqrt
from typing import Any

from containernet_env.model.load_result import LoadResult
from containernet_env.results.statistics import Histogram, decode, encode, merged

_COUNTS = "connections clients requests done ok failed empty abandoned pauses paused_s cpu_s"


def merged_load(loads: Sequence[LoadResult]) -> LoadResult:
    """What several clients, at least one, measured in the time that they have in common.

    That is from the first begin to the last end. Counts are sums. Throughput is all that was answered over the longest
    of their times, a configured duration where there is one: of equal durations the sum. Percentiles are those of all
    latencies together, from the histograms, so within 0.1 %; other figures of latencies are exact. Of a wait or a pause
    it has the longest; the longest time without a success is not known, nor are percentiles in the timeline.
    """
    parts = [load.values for load in loads]
    # A load that never began has no times and no schedule.
    measured = [part for part in parts if part["began_ns"] is not None] or parts[:1]
    begins_ns = [part["began_ns"] or 0 for part in measured]
    ends_ns = [part["total_s"] * 1e9 + began_ns for part, began_ns in zip(measured, begins_ns, strict=True)]
    drains = [part["drain_s"] for part in measured]
    total_s = (max(ends_ns) - min(begins_ns)) / 1e9
    windows_s = [_window_s(part) for part in measured]
    answered = fsum(part["requests_per_s"] * window_s for part, window_s in zip(measured, windows_s, strict=True))
    window_s = max(windows_s)
    if None in drains:  # not of equal durations
        window_ends_ns = [began_ns + window_s * 1e9 for began_ns, window_s in zip(begins_ns, windows_s, strict=True)]
        window_s = (max(window_ends_ns) - min(begins_ns)) / 1e9
    unanswered = [part["outcomes"] for part in parts]
    response, service = (
        _distribution([part[name] for part in parts], unanswered) for name in ("response_time", "service_time")
    )
    step_s, timeline = _timeline(measured)
    seconds = {} if response is None else response["percentiles_s"]
    values: dict[str, Any] = {
        **parts[0],
        **_each(parts, (sum, _COUNTS), (_added_by_name, "outcomes errors codes")),
        **_each(parts, (_largest, "pause_s busy_ratio mean_run_delay_s")),
        **_each(measured, (_added, "run_delay_s rate_offered_per_s rate_achieved_per_s")),
        "job": None,
        "endpoints": list(dict.fromkeys(name for part in parts for name in part["endpoints"])),
        "reason": "; ".join(dict.fromkeys(part["reason"] for part in parts if part["reason"])) or None,
        "began_ns": min(begins_ns) or None,
        "total_s": total_s,
        "drain_s": None if None in drains else max(0.0, total_s - window_s),
        "requests_per_s": answered / window_s if window_s > 0 else 0.0,
        "slowest_s": response and response["max_s"],
        "fastest_s": response and response["min_s"],
        "average_s": response and response["mean_s"],
        "stddev_s": response and response["stddev_s"],
        "percentiles_s": response
        and {
            name: response["max_s"] if seconds[name] is None else seconds[name]
            for name in next(part["percentiles_s"] for part in parts if part["percentiles_s"] is not None)
        },
        "percentiles": "histogram",
        "longest_gap_s": None,
        "longest_gap_start_s": None,
        "schedule": _schedule([part["schedule"] for part in measured]),
        "response_time": response,
        "service_time": service,
        "by_operation": _by_operation([part["by_operation"] for part in measured]),
        "timeline_interval_s": step_s,
        "timeline": timeline,
        "configured": {},
        "warmup": _warmup([part["warmup"] for part in parts if part["warmup"] is not None]),
        "leader_changes": sorted(
            (one for part in parts for one in part["leader_changes"]), key=lambda one: one["at_s"]
        ),
    }
    if any("second_tries" in part for part in parts):
        values["second_tries"] = sum(part.get("second_tries", 0) for part in parts)
    return LoadResult.from_json(values)


def _window_s(part: Mapping[str, Any]) -> float:
    """The time that a load's throughput is of (``setDrain`` of benchmark_image/internal/report/figures.go)."""
    took_s: float = part["total_s"]
    if part["drain_s"] is None:
        return took_s
    duration_s: float = part["configured"]["duration"]
    return min(duration_s, took_s) if part["reason"] else duration_s


def _each(parts: Sequence[Mapping[str, Any]], *rules: tuple[Callable[[list[Any]], Any], str]) -> dict[str, Any]:
    """The figures that a rule names, each made by it of those of all parts."""
    return {name: rule([part[name] for part in parts]) for rule, names in rules for name in names.split()}


def _added(values: list[Any]) -> Any:
    """The sum; ``None`` where one is unknown."""
    return None if None in values else sum(values)


def _largest(values: list[Any]) -> Any:
    """Of those that are known."""
    return max((value for value in values if value is not None), default=None)


def _added_by_name(values: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for held in values:
        found.update(held)
    return dict(found)


def _distribution(
    parts: Sequence[Mapping[str, Any] | None], outcomes: Sequence[Mapping[str, int]]
) -> dict[str, Any] | None:
    """Latencies of all; without any, ``None``. ``outcomes``: of each part, those without latencies included."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    histogram = merged(decode(part["histogram"]) for part in known)
    count = sum(part["count"] for part in known)
    left_out = sum(of["failed"] + of["unknown"] + of["unsent"] for of in outcomes)
    mean_s = fsum(part["count"] * part["mean_s"] for part in known) / count
    squares = fsum(part["count"] * (part["stddev_s"] ** 2 + (part["mean_s"] - mean_s) ** 2) for part in known)
    longest_s = max(part["max_s"] for part in known)
    names = list(known[0]["percentiles_s"])
    return {
        "count": count,
        "left_out": left_out,
        "min_s": min(part["min_s"] for part in known),
        "mean_s": mean_s,
        "stddev_s": sqrt(squares / count),
        "max_s": longest_s,
        "percentiles": "histogram",
        "percentiles_s": _percentiles(histogram, names, count, longest_s),
        "percentiles_all_s": _percentiles(histogram, names, count + left_out, longest_s),
        "histogram": encode(histogram),
    }


def _percentiles(histogram: Histogram, names: Sequence[str], count: int, longest_s: float) -> dict[str, float | None]:
    """By nearest rank among ``count`` latencies, of which those that the histogram lacks are the slowest."""
    lacking = count - histogram.total
    whole = Histogram((*histogram.counts, (histogram.counts[-1][0] + 1, lacking))) if lacking else histogram
    found_ns = whole.percentiles_ns([float(name) for name in names])
    slowest_ns = histogram.counts[-1][0]
    return {
        name: None if ns is None or ns > slowest_ns else min(ns / 1e9, longest_s)
        for name, ns in zip(names, found_ns, strict=True)
    }


def _schedule(parts: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """How all kept their schedules; ``None`` where one has none."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return {
        **known[0],
        **_each(known, (sum, "late generator_late unsent"), (any, "fell_behind clients_short"), (max, "worst_lag_s")),
        "own_lateness": None,
    }


def _by_operation(parts: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return {name: _operation([part[name] for part in known]) for name in known[0]}


def _operation(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    times = {name: _distribution([part[name] for part in parts], parts) for name in ("response_time", "service_time")}
    return {**_each(parts, (sum, "ok failed unknown unsent")), **times}


def _warmup(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    return _each(parts, (sum, "ok failed unknown abandoned"), (max, "total_s")) if parts else None


def _timeline(parts: Sequence[Mapping[str, Any]]) -> tuple[float, list[dict[str, Any]]]:
    """The length of an interval, and all intervals: none where clients have other ones, or began at other moments."""
    steps = {(part["began_ns"], part["timeline_interval_s"]) for part in parts}
    if len(steps) != 1:
        return (parts[0]["timeline_interval_s"] if parts else 1.0), []
    rows: dict[float, list[Mapping[str, Any]]] = {}
    for part in parts:
        for row in part["timeline"]:
            rows.setdefault(row["second"], []).append(row)
    return parts[0]["timeline_interval_s"], [_interval(second, rows[second]) for second in sorted(rows)]


def _interval(second: float, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One interval of all clients.

    All four moments are successes. The gap is that of the client whose success was the last: before that, all together
    have none that is longer.
    """
    answering = [row for row in rows if row["ok"]]
    gap = max(answering, key=lambda row: row["last_ok_ns"], default={"gap_ns": None, "gap_end_ns": None})
    return {
        "second": second,
        **_each(rows, (sum, "ok failed unknown requests_per_s")),
        "p50_s": None,
        "p99_s": None,
        "max_s": max((row["max_s"] for row in answering), default=None),
        "first_ok_ns": min((row["first_ok_ns"] for row in answering), default=None),
        "last_ok_ns": max((row["last_ok_ns"] for row in answering), default=None),
        "gap_ns": gap["gap_ns"],
        "gap_end_ns": gap["gap_end_ns"],
    }
