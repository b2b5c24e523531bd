"""Pairs of results whose difference is known, and what `compare` makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from containernet_env.results import statistics
from containernet_env.results.comparison import EFFECT, Cell, compare
from containernet_env.results.statistics import LEAST
from containernet_env.runs.sweep.ledger import is_narrow
from containernet_env.runs.sweep.runner import MAX_REPEAT

Draw = Callable[[np.random.Generator, int], Any]

# Each by a spread of about 1; one that is as skewed as runs are that are held up, one with outliers.
SHAPES: Mapping[str, Draw] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "skewed": lambda rng, n: rng.exponential(size=n) - 1,
    "outliers": lambda rng, n: rng.standard_t(4, n) / math.sqrt(2),
}
MEDIANS = {"normal": 0.0, "skewed": math.log(2) - 1, "outliers": 0.0}


def values(rng: np.random.Generator, shape: str, spread: float, n: int, ratio: float = 1.0) -> list[float]:
    """``n`` repetitions around 1000 requests/s times ``ratio``; ``spread`` is that of their logarithms."""
    found: list[float] = (1000 * ratio * np.exp(spread * SHAPES[shape](rng, n))).tolist()
    return found


def cell(a: list[float], b: list[float]) -> Cell:
    """What `compare` says of two lists of repetitions: its whole way, from tables on."""
    import pandas

    sides = [
        pandas.DataFrame(
            {
                "TestType": "write",
                "Requests/sec": side,
                "50%": [1 / value for value in side],
                "Scenario": "w",
                "Cluster": range(len(side)),
                "Attempt": 1,
                "Error": None,
                "Valid": "yes",
                "Reasons": None,
                "OfferedRate_per_s": math.nan,
                "RunId": run,
                "Timestamp": run,
            }
        )
        for run, side in (("a", a), ("b", b))
    ]
    return compare(*sides).cells[0]


def called_different(rng: np.random.Generator, pairs: int, n: int, shape: str, spread: float) -> int:
    """Of so many pairs without a difference, in how many `compare` says that B is slower or faster."""
    judged = (cell(values(rng, shape, spread, n), values(rng, shape, spread, n)) for _ in range(pairs))
    return sum(one.verdict in ("slower", "faster") for one in judged)


def rejected_and_covered(rng: np.random.Generator, pairs: int, n: int, shape: str, spread: float) -> tuple[int, int]:
    """The same by the test alone, and how many intervals of the ratio hold the truth, which is 1."""
    rejected = covered = 0
    for _ in range(pairs):
        a, b = values(rng, shape, spread, n), values(rng, shape, spread, n)
        rejected += statistics.mann_whitney(a, b).p <= statistics.ALPHA
        interval = statistics.ratio_of_medians(a, b)
        covered += interval.low is not None and interval.high is not None and interval.low <= 1 <= interval.high
    return rejected, covered


def stopped_when_narrow(rng: np.random.Generator, pairs: int, shape: str, spread: float) -> tuple[int, int, list[int]]:
    """Both sides repeated as `sweep --until-ci 5%` does, without a difference.

    How many of all intervals at which it stopped hold the median, in how many pairs the test calls the sides different,
    and after how many repetitions it stopped, for each side.
    """
    truth = 1000 * math.exp(spread * MEDIANS[shape])
    covered = called = 0
    numbers = []
    for _ in range(pairs):
        sides = []
        for _ in "AB":
            found = values(rng, shape, spread, MAX_REPEAT)
            n = next((n for n in range(LEAST, MAX_REPEAT) if is_narrow(found[:n], 0.05)), MAX_REPEAT)
            interval = statistics.median_interval(found[:n])
            low, high = interval.low or math.inf, interval.high or 0.0
            covered += low <= truth <= high
            numbers.append(n)
            sides.append(found[:n])
        called += statistics.mann_whitney(*sides).p <= statistics.ALPHA
    return covered, called, numbers


def exact_level(n: int) -> float:
    """The chance that the test calls ``n`` against ``n`` repetitions without a difference different."""
    least = 0.0
    for u in range(n * n // 2 + 1):
        below = [min(n, max(0, u - n * index)) for index in range(n)]
        shares = [count - 0.5 - index / 1000 for index, count in enumerate(below)]
        p = statistics.mann_whitney(list(map(float, range(n))), shares).p
        if p > statistics.ALPHA:
            break
        least = p
    return least


def found_at_what_is_named(
    rng: np.random.Generator, pairs: int, pilot: int, shape: str, spread: float
) -> tuple[int, list[int]]:
    """Pilots of ``pilot`` repetitions a side name repetitions for 12 %; in how many pairs with these it is found.

    Returned with the numbers that were named. Half of the differences are of a slower B.
    """
    found, named = 0, []
    for index in range(pairs):
        likely = statistics.likely_spread(values(rng, shape, spread, pilot), values(rng, shape, spread, pilot))
        advised = statistics.repetitions_for(EFFECT, likely) if likely is not None else None
        if advised is None:
            continue
        named.append(advised)
        ratio = EFFECT if index % 2 else 1 / EFFECT
        judged = cell(values(rng, shape, spread, advised), values(rng, shape, spread, advised, ratio))
        found += judged.verdict == ("faster" if ratio > 1 else "slower")
    return found, named


def found_at(rng: np.random.Generator, pairs: int, n: int, spread: float) -> int:
    """In how many pairs with a difference of 12 % the test finds it with ``n`` repetitions a side."""
    sides = ((values(rng, "normal", spread, n), values(rng, "normal", spread, n, EFFECT)) for _ in range(pairs))
    return sum(statistics.mann_whitney(a, b).p <= statistics.ALPHA for a, b in sides)
