"""The benchmark server's result as typed values: the only Python module with the names of its JSON answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

SCHEMA = 9
"""The version of docs/benchmark-result.schema.json that is read here."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How an open loop kept its schedule.

    ``fell_behind``: requests started more than 10 ms late, or never. Of the ``late`` ones ``generator_late`` are those
    that the generator itself made late; ``unsent`` were due and never sent; ``clients_short``: all clients were busy.
    """

    fell_behind: bool
    late: int
    generator_late: int
    unsent: int
    worst_lag_s: float
    clients_short: bool


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The figures of one load. If it ended early, they cover the time until then and ``reason`` is why, else ``None``.

    ``failed`` requests got no good answer. ``unknown`` ones may have happened: they are in ``failed``, too, except
    for those that an early end cut off. ``excluded`` requests are in no latency figure: those without a good answer,
    and those ``unsent``. ``drain_s`` is the part of ``total_s`` after a configured duration (``None`` without one);
    ``requests_per_s`` is about the time before it. ``pause_s`` is the longest time in which the generator itself did
    not run; ``pauses`` of more than 10 ms took ``paused_s`` in all. ``busy_ratio`` is the share of ``total_s`` in
    which it did not wait for members (``None``: unknown), ``cpu_s`` its CPU time over ``total_s``, ``run_delay_s``
    how long its threads waited for a core, ``mean_run_delay_s`` the mean of these waits, of the thread that waited
    longest in total (``None`` if the kernel does not report it). Times are in seconds; ``None``, and an empty
    mapping, where no request succeeded. ``percentiles_s`` are the seed's: a percentile that too few requests do not
    separate from the slowest is the slowest. In ``response_time_s`` (from the intended start) and ``service_time_s``
    (from the actual one) it is ``None``. ``values`` is the whole answer, of which fields without another meaning have
    the name.
    """

    reason: str | None
    requests: int
    ok: int
    failed: int
    unknown: int
    unsent: int
    excluded: int
    total_s: float
    drain_s: float | None
    pause_s: float
    pauses: int
    paused_s: float
    busy_ratio: float | None
    cpu_s: float
    run_delay_s: float | None
    mean_run_delay_s: float | None
    requests_per_s: float
    slowest_s: float | None
    fastest_s: float | None
    average_s: float | None
    stddev_s: float | None
    percentiles_s: Mapping[str, float]
    response_time_s: Mapping[str, float | None]
    service_time_s: Mapping[str, float | None]
    rate_achieved_per_s: float | None
    schedule: Schedule | None
    values: Mapping[str, Any]

    @property
    def median_s(self) -> float | None:
        """The median latency, ``None`` if no request succeeded."""
        return self.percentiles_s.get("50")

    @property
    def puts_ok(self) -> int | None:
        """How many good answers were to puts of a mixed load; ``None`` of other loads."""
        by_operation = self.values["by_operation"]
        return None if by_operation is None else int(by_operation["put"]["ok"])

    @property
    def wrong_answers(self) -> int:
        """How many of the failed requests had an answer with wrong content."""
        return int(self.values["codes"].get("Check", 0))

    @property
    def without_answer(self) -> int:
        """How many requests had no good answer, those of the warm-up included, which are in no other figure."""
        warmup = self.values["warmup"] or {"failed": 0, "unknown": 0}
        return self.failed + int(warmup["failed"]) + int(warmup["unknown"])

    @property
    def second_tries(self) -> int:
        """How many good answers to writes took a second round trip, because of whether their key existed."""
        return int(self.values.get("second_tries", 0))

    @property
    def began_ns(self) -> int | None:
        """When it began (CLOCK_MONOTONIC); ``None`` if nothing was measured."""
        began: int | None = self.values["began_ns"]
        return began

    @property
    def is_late(self) -> bool:
        """Whether it was ready only after the moment at which it was to start with others, and so never began."""
        return self.began_ns is None and (self.reason or "").startswith("it was ready ")

    @property
    def longest_gap_s(self) -> float | None:
        """The longest time without a success; ``None`` for several clients together, of which it is unknown."""
        longest_s: float | None = self.values["longest_gap_s"]
        return longest_s

    def first_success_s(self, after_s: float) -> float | None:
        """How long after a moment the first request succeeded; the moment is in seconds since the start.

        Exact where the moment is before the first success of its row of the timeline, or in the row's longest time
        without one. Else it is that time at most, since successes in between are not recorded: too long by less than
        it. ``None`` if none followed.
        """
        after_ns = after_s * 1e9
        for row in self.values["timeline"]:
            if row["last_ok_ns"] is not None and row["last_ok_ns"] >= after_ns:
                gap_begin_ns = row["gap_end_ns"] - row["gap_ns"]
                known = (row["first_ok_ns"], gap_begin_ns, row["gap_end_ns"], row["last_ok_ns"])
                waited_ns = min(at_ns for at_ns in known if at_ns >= after_ns) - after_ns
                return float(waited_ns if row["first_ok_ns"] >= after_ns else min(waited_ns, row["gap_ns"])) / 1e9
        return None

    def bad_before(self, begin_ns: float) -> int:
        """How many requests got no good answer in rows of the timeline that had ended by then (ns since the start)."""
        step_s = self.values["timeline_interval_s"]
        return sum(
            row["failed"] + row["unknown"]
            for row in self.values["timeline"]
            if (row["second"] + step_s) * 1e9 <= begin_ns
        )

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> LoadResult:
        """Read an answer of version ``SCHEMA``; ``KeyError`` if it is not of that form."""
        outcomes, schedule = answer["outcomes"], answer["schedule"]
        derived: dict[str, Any] = {
            "unknown": outcomes["unknown"],
            "unsent": outcomes["unsent"],
            "excluded": outcomes["failed"] + outcomes["unknown"] + outcomes["unsent"],
            "percentiles_s": answer["percentiles_s"] or {},
            "response_time_s": (answer["response_time"] or {"percentiles_s": {}})["percentiles_s"],
            "service_time_s": (answer["service_time"] or {"percentiles_s": {}})["percentiles_s"],
            "schedule": schedule and Schedule(**{item.name: schedule[item.name] for item in fields(Schedule)}),
            "values": answer,
        }
        same = {item.name: answer[item.name] for item in fields(cls) if item.name not in derived}
        return cls(**same, **derived)
