"""What one probe of a saturation search says of its rate, and what all of them say together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import inf

from containernet_env.base.units import format_duration
from containernet_env.model.findings import Finding, Kind
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.saturation import Saturation
from containernet_env.model.search import Probe, Search, SearchResult, Verdict, rate_text

_OF_THE_CLUSTER: frozenset[Kind] = frozenset({"leader_changed", "member_silent", "member_died"})
"""Findings that are not valid figures, and yet what the store does under this load."""
_OF_THE_GENERATOR: frozenset[Kind] = frozenset(
    {"generator_late", "generator_paused", "generator_saturated", "generator_waited", "client_throttled"}
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a probe ended and why, in one line that is empty where it held."""

    verdict: Verdict
    why: str
    objectives_s: tuple[float | None, ...]


def judge(search: Search, outcome: ScenarioOutcome) -> Judgement:
    """What the outcome of a probe says.

    It counts only where its row would be valid: what makes figures not those of the store makes them neither a hit nor
    a miss, unless it is the cluster itself that did not stand the load.
    """
    load = outcome.load
    measured = tuple(outcome.percentile_s(objective.percentile) for objective in search.objectives)
    invalid = [finding.kind for finding in outcome.findings if finding.effect == "invalid"]
    disturbed = [kind for kind in dict.fromkeys(invalid) if kind not in _OF_THE_CLUSTER]
    if disturbed:
        of_generator = _OF_THE_GENERATOR.issuperset(disturbed)
        return Judgement("generator" if of_generator else "machine", ", ".join(disturbed), measured)
    if outcome.error is not None or load is None or load.failed or load.reason is not None:
        return Judgement("failed", outcome.error or "requests failed", measured)
    if invalid:
        texts = [finding.text for finding in outcome.findings if finding.effect == "invalid"]
        return Judgement("failed", "; ".join(texts), measured)
    missed = [
        f"p{objective.percentile} {_milliseconds(value)}"
        for objective, value in zip(search.objectives, measured, strict=True)
        if value is None or value * 1e9 > objective.limit_ns
    ]
    if load.unsent:
        missed.append(f"{load.unsent:,} requests were never sent")
    return Judgement("missed" if missed else "held", "; ".join(missed), measured)


def _milliseconds(value_s: float | None) -> str:
    return "unknown" if value_s is None else format_duration(round(value_s * 1e6) * 1000)


def excess(search: Search, probe: Probe) -> float:
    """By which factor a probe was above the objective that it came nearest to, or missed most."""
    pairs = zip(search.objectives, probe.objectives_s, strict=True)
    return max(inf if value is None else value * 1e9 / objective.limit_ns for objective, value in pairs)


def shown(search: Search, course: Saturation, probes: Sequence[Probe]) -> int:
    """The place of the probe whose figures are the row's.

    That is the median, by its response times, of the repeats at the rate that held; of an even number the lower one.
    Where none held, that of the probes at the lowest rate that was probed.
    """
    low = None if course.low is None else course.rates[course.low]
    lowest = min(probe.rate for probe in probes)
    at = [i for i, probe in enumerate(probes) if probe.rate == low and probe.purpose == "repeat"]
    at = at or [i for i, probe in enumerate(probes) if probe.rate == lowest]
    ordered = sorted(at, key=lambda place: excess(search, probes[place]))
    return ordered[(len(ordered) - 1) // 2]


def result_of(search: Search, course: Saturation, probes: Sequence[Probe], clients_short: bool = False) -> SearchResult:
    """What the probes say together.

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
    why = next((probe.why for probe in reversed(probes) if probe.rate == rate and probe.why), "")
    return f": {why}" if why else ""


def search_finding(result: SearchResult) -> Finding:
    """What a reader of the row has to know of its search; where no rate was found, nobody can tell what its figures
    are the highest of."""
    low, high = (None if rate is None else float(rate) for rate in (result.low_per_s, result.high_per_s))
    return Finding("search", "told" if result.end == "found" else "unknown", result.text, low, high)
