"""Sweeps that repeat their cells until the interval of a figure is narrow enough, on fakes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.load.server import Answer
from containernet_env.sweep.runner import Counts, Until
from tests.unit import sweep_fakes
from tests.unit.matrix_fakes import result_of
from tests.unit.run_fakes import rows
from tests.unit.sweep_fakes import Answers, sweep_of, swept

answers, beds = sweep_fakes.answers, sweep_fakes.beds


def test_repetitions_beyond_the_bound_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--max-repeat: got 30; allowed: at least --repeat, which is 40"):
        sweep_of(tmp_path / "out.csv", repeat=40, until=Until(0.05))


def test_cells_are_repeated_until_their_median_is_known(answers: Answers, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    exact = swept(out, "clients=5,10", until=Until(0.05), repeat=1)
    assert exact == Counts(6 * 2, 0, 0, 0)
    assert swept(out, "clients=5,10", until=Until(0.05)) == exact  # and no more, once it is


def test_rows_that_are_not_certainly_valid_tell_nothing_of_the_median(answers: Answers, tmp_path: Path) -> None:
    few = Answer(result_of(ok=10), None)
    answers.special = dict.fromkeys(range(1, 20), few)
    # Nor would more of them.
    assert swept(tmp_path / "out.csv", "clients=5", until=Until(0.05, most=9)) == Counts(6, 0, 0, 1)


def test_the_repetitions_of_a_cell_that_varies_are_bounded(answers: Answers, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    varied = iter(range(10_000))

    def another(path: str, body: dict[str, Any]) -> Answer:
        made = result_of()
        spread = 1.0 + (next(varied) % 7) / (1 if body["clients"] == 5 else 1000)
        values = json.loads(json.dumps(made.values))
        times = values["response_time"]["percentiles_s"]
        values["response_time"]["percentiles_s"] = {p: v and v * spread for p, v in times.items()}
        values["percentiles_s"] = {p: v and v * spread for p, v in values["percentiles_s"].items()}
        return Answer(type(made).from_json(values), None)

    answers.special = SimpleNamespace(get=lambda number, default: None)  # type: ignore[assignment]
    answers.__class__.__call__, plain = (lambda self, path, body: another(path, body)), answers.__class__.__call__
    try:
        counts = swept(out, "clients=5,10", until=Until(0.05, "p99", most=8))
    finally:
        answers.__class__.__call__ = plain  # type: ignore[method-assign]
    found = Counter(row["ClientCount"] for row in rows(out))
    assert found == {"5": 8, "10": 6}
    assert counts == Counts(14, 0, 0, 1)


@pytest.mark.parametrize(
    ("until", "words"),
    [
        (Until(0.05, "p42"), "--ci-of: got 'p42'; allowed: p50, p99, throughput"),
        (Until(1.5), "--until-ci: got 150%"),
        (Until(0.05, most=5), "--max-repeat: got 5; allowed: at least 6"),
    ],
)
def test_an_interval_that_cannot_be_is_refused(until: Until, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        sweep_of(tmp_path / "out.csv", until=until)
