"""The columns of saturation searches."""

from __future__ import annotations

from collections.abc import Callable

from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.run_facts import RunFacts
from containernet_env.model.search import SearchResult
from containernet_env.results.column import Column, Value


def _of_search(get: Callable[[SearchResult], Value]) -> Callable[[RunFacts, ScenarioOutcome], Value]:
    return lambda facts, outcome: get(outcome.search) if outcome.search is not None else None


def _objective(facts: RunFacts, outcome: ScenarioOutcome) -> Value:
    search = outcome.scheduled.scenario.search
    return None if search is None else search.text


SEARCH_COLUMNS = (
    Column(
        "SearchObjective",
        "",
        "configured",
        "the response times that a [search](../docs/load.md#saturation-search) wants held: `p99<=50ms`, several joined "
        "by `;`; '-' for all other loads, as in the columns to `SearchProbes`",
        _objective,
        number=False,
    ),
    Column(
        "SearchRate_per_s",
        "1/s",
        "measured",
        "the highest rate at which they held, whose figures the row has; '-' where `SearchEnd` is not `found`",
        _of_search(lambda search: search.rate_per_s),
        4,
    ),
    Column(
        "SearchLow_per_s",
        "1/s",
        "measured",
        "lower end of its interval: the highest rate at which they held in all repeats; '-' for none",
        _of_search(lambda search: search.low_per_s),
        4,
    ),
    Column(
        "SearchHigh_per_s",
        "1/s",
        "measured",
        "upper end: the least rate above it at which they held in none; '-' where there is none",
        _of_search(lambda search: search.high_per_s),
        4,
    ),
    Column(
        "SearchEnd",
        "",
        "measured",
        "`found`, or why there is no rate: `from`, they did not hold at the lowest one; `to`, they were not missed at "
        "the highest one; `generator` or `machine`, which were the limit above the lower end; `noise`, probes "
        "contradicted each other; `ended`, see `Error`",
        _of_search(lambda search: search.end),
        number=False,
    ),
    Column(
        "SearchProbes",
        "",
        "measured",
        "how many loads the search measured; each is in probes.jsonl",
        _of_search(lambda search: len(search.probes)),
    ),
)
