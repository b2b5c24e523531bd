"""The command: simulates, prints the tables of README.md, and judges them."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence

import numpy as np

from bench.compare import simulate

PAIRS = 1000
FALSE_CALLS = (0.03, 0.07)
LEAST_FOUND = 0.8


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where both promises hold, 1 where one does not."""
    parser = argparse.ArgumentParser(prog="bench/compare", description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="simulated pairs of each line (default: 1000)")
    parser.add_argument("--seed", type=int, default=12)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(options.seed)
    held = [_without_difference(rng, options.pairs), _with_difference(rng, options.pairs)]
    _levels(rng, options.pairs)
    _found(rng, options.pairs)
    _stopped(np.random.default_rng(options.seed), options.pairs)
    return 0 if all(held) else 1


def _share(count: int, pairs: int) -> str:
    return f"{100 * count / pairs:.1f} %"


def _without_difference(rng: np.random.Generator, pairs: int) -> bool:
    print(f"{pairs} pairs without a difference, 8 repetitions a side, by `compare`: called different")
    held = True
    for shape in simulate.SHAPES:
        count = simulate.called_different(rng, pairs, 8, shape, 0.05)
        good = FALSE_CALLS[0] <= count / pairs <= FALSE_CALLS[1]
        held &= good
        print(f"  {shape:<9} {_share(count, pairs):>7}{'' if good else '   NOT within 3 to 7 %'}")
    return held


def _with_difference(rng: np.random.Generator, pairs: int) -> bool:
    print(f"\n{pairs} pairs that differ by 12 %, with the repetitions that `compare` names after a pilot: found")
    held = True
    for shape in simulate.SHAPES:
        for spread, pilot in ((0.02, 3), (0.05, 3), (0.05, 6), (0.1, 6)) if shape == "normal" else ((0.05, 6),):
            count, named = simulate.found_at_what_is_named(rng, pairs, pilot, shape, spread)
            good = count / pairs >= LEAST_FOUND
            held &= good
            numbers = f"names {statistics.median(named):.0f} each (median; {min(named)} to {max(named)})"
            told = f"{shape:<9} spread {100 * spread:3.0f} %, pilot of {pilot} each {numbers}"
            print(f"  {told}: {_share(count, pairs)}{'' if good else '   LESS than 80 %'}")
    return held


def _levels(rng: np.random.Generator, pairs: int) -> None:
    print(
        "\nrepetitions a side: chance of a false call, exact and simulated; intervals of the ratio that hold the truth"
    )
    for n in (4, 5, 6, 7, 8, 10, 15, 20):
        told = []
        for shape in simulate.SHAPES:
            rejected, covered = simulate.rejected_and_covered(rng, pairs, n, shape, 0.05)
            told.append(f"{shape} {_share(rejected, pairs)}, {_share(covered, pairs)}")
        print(f"  {n:>3}  {100 * simulate.exact_level(n):.2f} %   {'   '.join(told)}")


def _found(rng: np.random.Generator, pairs: int) -> None:
    spreads = (0.01, 0.02, 0.03, 0.05, 0.1)
    print("\na difference of 12 %, one cell: found, by repetitions a side and spread")
    print("       " + "".join(f"{100 * spread:>9.0f} %" for spread in spreads))
    for n in (4, 5, 6, 8, 10, 15, 20):
        counts = (simulate.found_at(rng, pairs, n, spread) for spread in spreads)
        print(f"  {n:>3}  " + "".join(f"{_share(count, pairs):>11}" for count in counts))


def _stopped(rng: np.random.Generator, pairs: int) -> None:
    print(
        "\n`sweep --until-ci 5%`, no difference: intervals that hold the median, called different, median repetitions"
    )
    for shape in simulate.SHAPES:
        for spread in (0.03, 0.05, 0.1):
            covered, called, numbers = simulate.stopped_when_narrow(rng, pairs, shape, spread)
            told = f"{_share(covered, 2 * pairs):>7} {_share(called, pairs):>7} {statistics.median(numbers):>4.0f}"
            print(f"  {shape:<9} spread {100 * spread:3.0f} % {told}")


if __name__ == "__main__":
    sys.exit(main())
