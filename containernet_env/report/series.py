"""Series: the same load by more and more clients, on the same testbed; what tables have a column or a block for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from containernet_env.base.errors import UsageError
from containernet_env.report.cells import label_of, tells
from containernet_env.report.names import text
from containernet_env.report.rows import VARIANT, Rows
from containernet_env.results.comparison import LOAD

_OF_STEPS = {"ClientCount", "ConnectionCount", "RequestCount", VARIANT}
_SYSTEM = ("Store", "StoreVersion")
_NUMBER = re.compile(r"(\d{1,300})")
# What the names of scenarios say already.
_SAID = {*LOAD} - {*_OF_STEPS, "Scenario"}


@dataclass(frozen=True, slots=True)
class Step:
    """One number of clients. ``rows``: the numbers of the rows that count, a repetition each; ``why`` others do not."""

    clients: int | None
    scenario: str
    rows: tuple[int, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Rows that agree in everything configured but the number of clients and connections; by clients, rising.

    Of a scenario that differs in what no column and no name tells there is a series for each of its hashes.
    """

    name: str
    steps: tuple[Step, ...]


def series_of(rows: Rows, every: bool = False) -> list[Series]:
    """The series by their names, numbers in these by size; steps without a row that counts have none.

    ``every``: rows that did not fail count even if they are not certainly valid. Raises ``UsageError`` where none does.
    """
    names = [name for name in rows.keys if name not in _OF_STEPS]
    shapes = _shapes(rows)
    keys = list(zip(*(rows.values(name) for name in names), rows.values("ConfigHash"), shapes, strict=True))
    clients, scenarios, hashes = (rows.values(name) for name in ("ClientCount", "Scenario", "ScenarioHash"))
    places = list(zip(keys, clients, scenarios, strict=True))
    known: dict[Any, set[Any]] = {}
    for place, own in zip(places, hashes, strict=True):
        known.setdefault(place, set()).update(() if own is None else (own,))
    groups: dict[Any, dict[Any, list[int]]] = {}
    for number, (key, *at) in enumerate(places):
        # No column tells what data is read, and neither does the name.
        other = text(hashes[number]) if len(known[places[number]]) > 1 else ""
        groups.setdefault((*key, other), {}).setdefault(tuple(at), []).append(number)
    why = [_why(reason, every) for reason in rows.why]
    if not any(not reason for reason in why):
        hint = "" if every else ": --all takes those that did not fail"
        raise UsageError(f"{', '.join(map(str, rows.files))}: no row is certainly valid, so none counts{hint}")
    told = [name for name in rows.varied if name in names and name not in (*_SYSTEM, *_SAID)]
    told = [name for name in told if tells(name, rows.values(name))]
    found = []
    for key, steps in groups.items():
        *own, other = key
        values = dict(zip((*names, "ConfigHash", VARIANT), own, strict=True))
        shape = f"{values[VARIANT]} ({other})" if other else values[VARIANT]
        system = " ".join(text(values[name]) for name in _SYSTEM if values.get(name) is not None)
        label = label_of(told, [values[name] for name in told])
        found.append(
            Series(
                ", ".join(filter(None, (system, label, shape))),
                tuple(
                    _step(at, numbers, why) for at, numbers in sorted(steps.items(), key=lambda item: _order(item[0]))
                ),
            )
        )
    apart = _apart(found, [key[len(names)] for key in groups])
    return sorted(
        apart, key=lambda item: [int(part) if part.isdecimal() else part for part in _NUMBER.split(item.name)]
    )


def _order(at: tuple[Any, Any]) -> tuple[float, str]:
    return (-1.0 if at[0] is None else at[0], str(at[1]))


def _step(at: tuple[Any, Any], numbers: Sequence[int], why: Sequence[str]) -> Step:
    clients, scenario = at
    count = None if clients is None else int(clients)
    name = f"{text(clients)} clients" if scenario is None else str(scenario)
    good = tuple(number for number in numbers if not why[number])
    return Step(count, name, good, tuple(dict.fromkeys(why[number] for number in numbers if why[number])))


def _why(reason: str, every: bool) -> str:
    return "" if every and not reason.startswith("failed") else reason


def _shapes(rows: Rows) -> Iterator[str]:
    """For each row the scenario's name without its clients: ``write-leader-1000xN-8B-64B``."""
    columns = (rows.values(name) for name in ("Scenario", "ClientCount", "ConnectionCount", "TestType"))
    for scenario, clients, conns, kind, requests in zip(*columns, rows.requests, strict=True):
        if scenario is None:
            yield f"{text(kind)}, {text(requests)} requests"
            continue
        pair = re.escape(f"{text(clients)}x{text(conns)}")
        yield re.sub(rf"{pair}(?=-|$)", "N", str(scenario), count=1)


def _apart(series: Sequence[Series], hashes: Sequence[Any]) -> list[Series]:
    """With the hash of what is configured where nothing else tells two of them apart."""
    names = Counter(item.name for item in series)
    return [
        item if names[item.name] == 1 else Series(f"{item.name} ({text(configured)})", item.steps)
        for item, configured in zip(series, hashes, strict=True)
    ]
