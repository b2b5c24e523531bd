"""A saturation search on a target that is up: probes in turn, each a measured open loop; its result."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from math import inf

from containernet_env.base import clock
from containernet_env.base.units import format_duration
from containernet_env.model.findings import Finding, Kind
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import ScheduledScenario
from containernet_env.model.search import Probe, Saturation, Search, SearchResult, Step, Verdict, rate_text
from containernet_env.runs.target import Target

_OF_THE_CLUSTER: frozenset[Kind] = frozenset({"leader_changed", "member_silent", "member_died"})
"""Findings that make figures invalid, and yet show the store's own behaviour under this load."""
_OF_THE_GENERATOR: frozenset[Kind] = frozenset(
    {"generator_late", "generator_paused", "generator_saturated", "generator_waited", "client_throttled"}
)
_NOT_HELD: frozenset[Verdict] = frozenset({"missed", "failed"})
"""Verdicts of probes that show that the store does not carry a rate."""
_IN_EACH_PROBE: frozenset[Kind] = frozenset({"unseen", "frames_unmatched"})
"""Findings of effect unknown that external clusters have, and kernels that stamp no frames, whatever the rate."""


def judge(search: Search, outcome: ScenarioOutcome, measured_s: Sequence[float | None]) -> tuple[Verdict, str]:
    """How a probe ended and why, in one line that is empty if it held; ``measured_s`` are its objectives' percentiles.

    It counts only if its row would be valid: a cause that makes figures not those of the store, or unknown, makes them
    neither a hit nor a miss, unless the cluster itself failed under the load. What each probe there has, and the row
    says, does not count.
    """
    load = outcome.load
    invalid = [finding for finding in outcome.findings if finding.effect == "invalid"]
    disturbed = [kind for kind in dict.fromkeys(finding.kind for finding in invalid) if kind not in _OF_THE_CLUSTER]
    if disturbed:
        return "generator" if _OF_THE_GENERATOR.issuperset(disturbed) else "machine", ", ".join(disturbed)
    if outcome.error is not None or load is None or load.failed or load.reason is not None:
        return "failed", outcome.error or "requests failed"
    if invalid:
        return "failed", "; ".join(finding.text for finding in invalid)
    missed = [
        f"p{objective.percentile} {_milliseconds(value)}"
        for objective, value in zip(search.objectives, measured_s, strict=True)
        if value is None or value * 1e9 > objective.limit_ns
    ]
    if load.unsent:
        missed.append(f"{load.unsent:,} requests were never sent")
    unknown = [item.kind for item in outcome.findings if item.effect == "unknown" and item.kind not in _IN_EACH_PROBE]
    if unknown and not load.unsent:
        return "machine", ", ".join(dict.fromkeys(unknown))
    return "missed" if missed else "held", "; ".join(missed)


def _milliseconds(value_s: float | None) -> str:
    return "unknown" if value_s is None else format_duration(round(value_s * 1e6) * 1000)


def excess(search: Search, probe: Probe) -> float:
    """By which factor a probe was above the objective that it came nearest to, or missed most."""
    pairs = zip(search.objectives, probe.objectives_s, strict=True)
    return max(inf if value is None else value * 1e9 / objective.limit_ns for objective, value in pairs)


def result_of(search: Search, course: Saturation, probes: Sequence[Probe], clients_short: bool) -> SearchResult:
    """The result of all probes together.

    ``clients_short``: where they missed, requests waited for a free client, and the store met the objective.
    """
    low, high = (None if index is None else course.rates[index] for index in (course.low, course.high))
    known = "no rate is known to hold" if low is None else f"holds up to {rate_text(low)}"
    limit = course.limited_at
    why = next((probe.why for probe in reversed(probes) if probe.rate == limit), "")
    at = "" if limit is None else f"at {rate_text(limit)}"
    of = f"of {search.repeats}"
    above = "" if high is None else f", not at {rate_text(high)} (0 {of}{_reason(probes, high)})"
    text = {
        "found": f"{known} ({search.repeats} {of}){above}",
        "from": f"does not hold at the lowest rate, {rate_text(search.low)}{_reason(probes, search.low)}",
        "to": f"{known}, and no rate up to the highest, {rate_text(search.high)}, misses it in all probes",
        "generator": f"{known}; {at} the load generator is the limit ({why})",
        "machine": f"{known}; {at} this machine is the limit ({why})",
        "noise": f"{known}, but {len(probes)} probes contradict each other",
        "ended": f"{known}, when the search was ended",
    }[course.end]
    if clients_short:
        text += "; all clients were busy there, and the store itself met it: more clients may carry more"
    return SearchResult(search, course.end, low, high, f"{search.text}: {text} [{len(probes)} probes]", tuple(probes))


def _reason(probes: Sequence[Probe], rate: Decimal | None) -> str:
    why = next((probe.why for probe in reversed(probes) if probe.rate == rate and probe.verdict in _NOT_HELD), "")
    return f": {why}" if why else ""


_SEEDS = 2**32
Measure = Callable[[ScheduledScenario, Callable[[ScenarioOutcome], None]], None]
"""Measures a scenario like any other one and passes its outcome on, uninterrupted."""
KeepProbe = Callable[[Probe, ScenarioOutcome], None]
"""Keeps a probe and its measurement; does not raise."""


@dataclass(eq=False)
class Searching:
    """One search. ``why_over`` returns, from a probe's outcome, why no further probe is possible, if so."""

    _scheduled: ScheduledScenario
    _target: Target
    _measure: Measure
    _why_over: Callable[[ScenarioOutcome], str | None]
    _keep_probe: KeepProbe

    def __post_init__(self) -> None:
        scenario = self._scheduled.scenario
        assert scenario.search is not None
        self._search: Search = scenario.search
        self._course = Saturation(scenario.search, scenario.arrival == "poisson")
        self._measured: list[tuple[Probe, ScenarioOutcome]] = []

    def run(self) -> str | None:
        """Probe until the search ends; returns why it could not, if so. Exceptions of `measure` propagate."""
        while (step := self._course.next) is not None:
            number = len(self._measured) + 1
            probe = self._scheduled.scenario.probe(step.rate, self._seed(number))
            self._target.progress.probe_started(number, probe)
            scheduled = replace(self._scheduled, scenario=probe)
            self._measure(scheduled, partial(self._keep, step, scheduled.load_seed))
            if (why := self._why_over(self._measured[-1][1])) is not None:
                return why
        return None

    def _seed(self, number: int) -> int:
        """That of a probe: another one for each of a run, the same when the run is repeated."""
        at = self._scheduled
        text = f"{at.scenario.name}/{at.repetition}/{at.attempt}/{number}"
        return 1 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % _SEEDS

    def _keep(self, step: Step, seed: int, outcome: ScenarioOutcome) -> None:
        measured_s = tuple(outcome.percentile_s(objective.percentile) for objective in self._search.objectives)
        judged = judge(self._search, outcome, measured_s)
        number, seconds = len(self._measured) + 1, round(outcome.seconds, 3)
        probe = Probe(number, step.purpose, step.rate, seconds, seed, *judged, measured_s)
        self._measured.append((probe, outcome))
        self._course.record(probe.verdict)
        self._keep_probe(probe, outcome)
        text = f"probe {probe.number}: {rate_text(probe.rate)}: {probe.verdict}{f' ({probe.why})' if probe.why else ''}"
        self._target.on_event("probe_ended", text, self._scheduled.scenario.name)

    def sum_up(self, row: ScenarioOutcome) -> ScenarioOutcome:
        """The outcome of the whole search, however far it got: ``row`` has the facts known at its start, and its error.

        Its figures are those of one probe: the median, by its response times, of the repeats that held at the highest
        rate at which they did (of an even number the lower one), or where there is no such rate, of the probes at the
        lowest rate that was probed. It may be summed up more than once.
        """
        seconds = (clock.monotonic_ns() - row.began_ns) / 1e9 / row.dilation
        probes = [probe for probe, _ in self._measured]
        result = result_of(self._search, self._course, probes, self._clients_short())
        if not probes:
            return replace(row, search=result)
        low = None if self._course.low is None else self._course.rates[self._course.low]
        lowest = min(probe.rate for probe in probes)
        held = [pair for pair in self._measured if pair[0].purpose == "repeat" and pair[0].verdict == "held"]
        at = [pair for pair in held if pair[0].rate == low]
        at = at or [pair for pair in self._measured if pair[0].rate == lowest]
        ordered = sorted(at, key=lambda pair: excess(self._search, pair[0]))
        _, chosen = ordered[(len(ordered) - 1) // 2]
        # If no rate was found, it is unknown which maximum the figures show.
        least, most = (None if rate is None else float(rate) for rate in (result.low_per_s, result.high_per_s))
        summary = Finding("search", "info" if result.end == "found" else "unknown", result.text, least, most)
        return replace(
            chosen,
            scheduled=row.scheduled,
            began=row.began,
            began_ns=row.began_ns,
            seconds=seconds,
            error=row.error,
            findings=(*chosen.findings, summary),
            search=result,
        )

    def _clients_short(self) -> bool:
        """Whether misses of the objective by the repeats above were only caused by requests waiting for a client."""
        high = self._course.high
        if high is None:
            return False
        rate = self._course.rates[high]
        repeats = [
            outcome
            for probe, outcome in self._measured
            if probe.rate == rate and probe.purpose == "repeat" and probe.verdict in _NOT_HELD
        ]
        return bool(repeats) and all(
            (load := outcome.load) is not None
            and load.schedule is not None
            and load.schedule.clients_short
            and all(
                (service_s := load.service_time_s.get(item.percentile)) is not None and service_s * 1e9 <= item.limit_ns
                for item in self._search.objectives
            )
            for outcome in repeats
        )
