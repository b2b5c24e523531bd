"""Which scenarios of a file a run takes, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from containernet_env.base.errors import UsageError
from containernet_env.model.scenario import Scenario, ScheduledScenario


def select(
    scenarios: Sequence[Scenario], only: Sequence[str] = (), repeat: int = 1, first: int = 1
) -> tuple[ScheduledScenario, ...]:
    """The scenarios that match any of ``only`` (empty: all), the whole selection ``repeat`` times.

    Repetitions are numbered from ``first``. A pattern is a name, a glob over names such as ``*-1000x1x1*``, or a type
    (``write``, ``read``, ``mixed``, ``txn``). Raises ``UsageError``, with the names, when a pattern matches nothing.
    """
    for name, number in (("--repeat", repeat), ("first_repetition", first)):
        if number < 1:
            raise UsageError(f"{name}: got {number}; allowed: 1 or more")
    unmatched = [pattern for pattern in only if not any(_matches(item, pattern) for item in scenarios)]
    if unmatched:
        names = "\n".join(f"  {scenario.name}" for scenario in scenarios)
        allowed = f"write, read, mixed, txn, a name or a glob of these:\n{names}"
        raise UsageError(f"no scenario matches {', '.join(unmatched)}; allowed: {allowed}")
    chosen = [item for item in scenarios if not only or any(_matches(item, pattern) for pattern in only)]
    # Whole rounds, so that a drift of the machine's speed affects every scenario alike.
    return tuple(ScheduledScenario(item, number) for number in range(first, first + repeat) for item in chosen)


def _matches(scenario: Scenario, pattern: str) -> bool:
    return pattern == scenario.type or fnmatchcase(scenario.name, pattern)
