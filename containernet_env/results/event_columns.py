"""The columns of what was done to members and links while the load ran."""

from __future__ import annotations

from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.results.column import Column, Value


def first_successes_s(outcome: ScenarioOutcome) -> list[float | None]:
    """For each thing that an event did, in order, how long after it the first request succeeded."""
    done, load = outcome.disruptions, outcome.load
    times = [item.since_start_ns for item in done.carried if item.strikes] if done is not None else []
    return [None if load is None or at_ns is None else load.first_success_s(at_ns / 1e9) for at_ns in times]


def _first_successes(outcome: ScenarioOutcome) -> Value:
    found = first_successes_s(outcome)
    return ";".join("-" if value is None else f"{value:.3f}" for value in found) or None


EVENT_COLUMNS = (
    Column(
        "Events",
        "",
        "configured",
        "[what is done to members and their links](../docs/events.md) while the load runs; '-' where nothing is",
        lambda facts, outcome: "; ".join(event.text for event in outcome.scheduled.scenario.events) or None,
        number=False,
    ),
    Column(
        "EventsDone",
        "",
        "measured",
        "what of that happened to whom and when, after the start of the load; disruptions.jsonl has all of it",
        lambda facts, outcome: outcome.disruptions.text or None if outcome.disruptions else None,
        number=False,
    ),
    Column(
        "EventSeed",
        "",
        "run",
        "what `random` members were drawn from: the run's seed with scenario, repetition and attempt",
        lambda facts, outcome: outcome.disruptions.seed if outcome.disruptions else None,
        number=False,
    ),
    Column(
        "LongestGap_s",
        "s",
        "measured",
        "the longest time in which no request succeeded",
        lambda facts, outcome: outcome.load.longest_gap_s if outcome.load else None,
        6,
    ),
    Column(
        "FirstSuccess_s",
        "s",
        "measured",
        "for each thing that events did, in order: how long after it the first request succeeded, `a;b;c`; requests "
        "that were under way may succeed after it",
        lambda facts, outcome: _first_successes(outcome),
        number=False,
    ),
)
