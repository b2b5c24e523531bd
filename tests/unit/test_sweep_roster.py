"""Who measures which testbed next, and sweeps of simulated machines that fail at random."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bench.scale.cli import simulate
from bench.scale.simulate import Failures
from containernet_env.base.errors import RunError
from containernet_env.sweep.design import Bed
from containernet_env.sweep.placement import Job
from containernet_env.sweep.roster import Roster


def jobs(blocks: int, beds: int = 3) -> list[Job]:
    made = [cast(Bed, SimpleNamespace(key=f"bed{number}")) for number in range(beds)]
    return [Job(bed, (), block) for block in range(1, blocks + 1) for bed in made]


def filled(blocks: int, beds: int = 3) -> Roster:
    roster = Roster(beds)
    roster.fill(jobs(blocks, beds))
    return roster


def taken(roster: Roster, *places: str) -> list[tuple[int, str] | None]:
    found = [roster.take(place, {"a", "b", "c"}) for place in places]
    return [None if job is None else (job.repetition, job.bed.key) for job in found]


def test_a_machine_measures_a_whole_block_and_then_the_next_that_nobody_has() -> None:
    roster = filled(3)
    assert taken(roster, "a", "b", "a", "a", "a") == [
        (1, "bed0"),
        (2, "bed0"),
        (1, "bed1"),
        (1, "bed2"),
        (3, "bed0"),
    ]
    assert roster.waiting == 4


def test_who_has_no_block_helps_with_the_one_that_has_most_left() -> None:
    roster = filled(2, beds=4)
    assert taken(roster, "a", "a", "b", "c", "c", "c") == [
        (1, "bed0"),
        (1, "bed1"),
        (2, "bed0"),
        (2, "bed1"),
        (1, "bed2"),
        (2, "bed2"),
    ]


def test_the_block_of_a_machine_that_is_gone_is_taken_over() -> None:
    roster = filled(2)
    assert taken(roster, "a", "b") == [(1, "bed0"), (2, "bed0")]
    job = roster.take("c", {"b", "c"})
    assert job is not None and (job.repetition, job.bed.key) == (1, "bed1")
    assert taken(roster, "c") == [(1, "bed2")]


def test_a_testbed_that_failed_on_a_machine_goes_to_another_one() -> None:
    roster = filled(1, beds=2)
    first, _ = jobs(1, beds=2)
    roster.failed("a", first)
    assert taken(roster, "a", "a", "b") == [(1, "bed1"), None, (1, "bed0")]
    for place in ("b", "c"):
        roster.failed(place, first)
    roster.fill([first])
    assert taken(roster, "a") == [(1, "bed0")]  # all have tried it


def test_a_machine_on_which_nothing_comes_up_gets_nothing_more_while_others_measure() -> None:
    roster, places = filled(1, beds=100), {"a", "b"}
    assert [roster.lost("a", f"bed{number}", places, "why") for number in range(3)] == [False, False, True]
    assert roster.usable(places) == {"b"}
    roster.used("a")  # what it had begun before
    assert roster.usable(places) == places


def test_where_nothing_comes_up_anywhere_the_sweep_ends() -> None:
    roster, places = filled(1, beds=8), {"a", "b"}
    for number in range(4):
        roster.lost("a", f"bed{number}", places, "why")
    roster.lost("b", "bed4", places, "why")
    roster.lost("b", "bed4", places, "why")
    with pytest.raises(RunError, match="no machine could use its last testbeds, so the sweep ends: no engine"):
        roster.lost("b", "bed4", places, "no engine")


def test_testbeds_that_cannot_be_end_nothing_where_most_can() -> None:
    roster, places = filled(1, beds=8), {"a", "b"}
    for place in places:
        for number in range(3):
            roster.lost(place, f"bed{number}", places, "why")
    assert roster.usable(places) == places


def test_the_only_machines_that_are_left_are_used_whatever_came_before() -> None:
    roster = filled(1, beds=100)
    for number in range(3):
        roster.lost("a", f"bed{number}", {"a", "b"}, "why")
    assert roster.usable({"a"}) == {"a"}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_machines_that_fail_at_random_measure_each_cell_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines are lost in the middle, testbeds do not come up, rows are spoiled, two machines are broken."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    often = Failures(lost_after_s=1000.0, back_s=100.0, unusable_ratio=0.05, spoiled_ratio=0.05, broken=2)
    found = simulate(tmp_path / "out.csv", 100, 7, failures=often, seed=seed)
    assert found.each_once and found.counts.measured == 100, found
    assert found.machines_lost > 0 and found.testbeds > 10, found


def test_a_broken_machine_spoils_few_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails at once, and would have the next testbed while others are still at their first."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    only = Failures(lost_after_s=1e12, unusable_ratio=0.0, spoiled_ratio=0.0, broken=1)
    found = simulate(tmp_path / "out.csv", 300, 4, failures=only)
    assert found.each_once and (found.commands, found.testbeds) == (1, 33), found
