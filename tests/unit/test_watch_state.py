"""What `containernet-env watch` says of runs and sweeps on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.report.watch import Follower, State, Tail, _cells
from containernet_env.runs.lock import Holder
from tests.simulated_time import World
from tests.unit.watch_files import RUN, Machine, add, add_row, begin_sweep, event, moment

pytestmark = pytest.mark.simulated


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.csv"


def test_a_run_is_followed_to_its_end(out: Path) -> None:
    machine = Machine()
    event(out, "run_began", "run x")
    follower = Follower(out, machine)
    found = follower.look()
    assert (found["course"], found["what"], found["all"], found["now"]) == ("on", "run", None, None)
    assert found["step"] == "run began: run x"
    event(out, "matrix_began", "2 scenarios")
    event(out, "scenario_began", "w", "w")
    found = follower.look()
    assert (found["now"], found["done"], found["all"], found["end_s"]) == ("w", 0, 2, None)
    advice = "what helps: fewer clients"
    add_row(out, Valid="no", Reasons="link_lateness;generator_waited", Errors="3", Advice=advice)
    event(out, "scenario_ended", "w: 3 errors", "w")
    found = follower.look()
    assert (found["now"], found["done"]) == (None, 1) and found["end_s"] == clock.time()
    (shown,) = found["rows"]
    words = "the link emulator delivered frames late, the load generator waited for a core"
    assert _cells(shown) == ["1", "w", "1", "100", "10", "13", "3", "no", f"{words}; {advice}"]
    event(out, "scenario_began", "w, attempt 2", "w")
    found = follower.look()
    assert (found["now"], found["done"]) == ("w, attempt 2", 0), "what is measured again is not done"
    event(out, "scenario_ended", "w: no errors", "w")
    event(out, "run_ended", "2 of 2 scenarios, 1 failed")
    assert follower.look()["course"] == "on", "it still holds the machine"
    machine.holder = None
    assert follower.look()["summary"].endswith("out.csv ended: 2 of 2 scenarios, 1 failed")


def test_a_sweep_is_followed_by_its_cells_over_its_runs(out: Path) -> None:
    machine = Machine()
    begin_sweep(out, cells=2, repeat=2)
    follower = Follower(out, machine)
    assert follower.look()["course"] == "on", "before its first testbed, too"
    event(out, "run_began", "run x")
    event(out, "scenario_began", "w", "w")
    found = follower.look()
    assert (found["what"], found["now"], found["all"]) == ("sweep", "w (clients=0), repetition 1 of 2", 4)
    for _ in range(2):  # one that the machine spoiled and its second try are one measurement
        add_row(out, ConfigHash="c", ScenarioHash="s0")
    add_row(out, ConfigHash="elsewhere", ScenarioHash="s0")
    add_row(out, ConfigHash="c", ScenarioHash="s1", Valid="no", Reasons="generator_waited")
    event(out, "run_ended", "1 of 1 scenarios, 0 failed")
    found = follower.look()
    assert found["summary"].endswith("goes on; 1 not done, since the machine spoiled its measurement")
    assert found["end_s"] is not None
    assert (found["done"], found["course"], found["rows"][0]["name"]) == (1, "on", "w (clients=0)")
    add(out.with_suffix(".sweep.jsonl"), {"schema": 1, "at": moment(), "kind": "sweep_ended"})
    machine.holder = None
    found = follower.look()
    assert found["course"] == "ended"
    have = "2 of 4 measurements have a row: 1 valid, 1 not valid; the same command measures the 3 that are left"
    assert found["summary"].endswith(have)


def test_what_was_measured_before_counts_and_makes_no_pace(out: Path) -> None:
    machine = Machine()
    add_row(out, ConfigHash="c", ScenarioHash="s0", Timestamp=moment(-3600))
    follower = Follower(out, machine)
    assert follower.look()["course"] == "nothing"
    begin_sweep(out)
    found = follower.look()
    assert (found["course"], found["done"], found["all"], found["end_s"]) == ("on", 1, 2, None)
    event(out, "run_began", "run x")
    machine.holder = Holder(2, clock.time() + 60)  # what an earlier process left is none of the one that measures now
    assert Follower(out, machine).look()["course"] == "nothing"


@pytest.mark.parametrize("what", ["run", "sweep", "sweep between two testbeds"])
def test_a_process_that_is_gone_without_an_end_was_killed(out: Path, what: str) -> None:
    """The machine is held by another process, which began since, or between two testbeds by none: the last run has its
    end then, and where other machines measure there is no run directory to tell at all."""
    machine, is_sweep, is_between = Machine(), "sweep" in what, "between" in what
    if is_sweep:
        begin_sweep(out)
    event(out, "run_began", "run x")
    event(out, *(("run_ended", "1 of 1 scenarios, 0 failed") if is_between else ("scenario_began", "w", "w")))
    follower = Follower(out, machine)
    assert follower.look()["course"] == "on"
    machine.holder = None if is_between else Holder(2, clock.time())
    found = follower.look()
    assert found["course"] == "killed" and "was killed" in found["summary"] and found["now"] is None
    assert ("the same command goes on" in found["summary"]) == is_sweep


def test_rows_that_are_put_right_take_their_places(out: Path, tmp_path: Path) -> None:
    machine = Machine()
    begin_sweep(out)
    add_row(out, ConfigHash="c", ScenarioHash="s0")
    follower = Follower(out, machine)
    assert follower.look()["rows"][0]["Valid"] == "yes"
    other = tmp_path / "other.csv"
    add_row(other, ConfigHash="c", ScenarioHash="s0", Valid="no")
    other.replace(out)
    found = follower.look()
    assert [shown["Valid"] for shown in found["rows"]] == ["no"] and found["done"] == 1


FOREIGN: list[Any] = [
    {"kind": "sweep"},
    {"kind": "sweep", "at": 5, "cells": 1, "repeat": 1},
    {"kind": "cell", "cell": "i0"},
    {"kind": "run", "cells": 1, "repetition": "x"},
    {"kind": "run_began"},
    {"kind": "matrix_began", "at": "2026-01-01T00:00:00.000Z", "text": ""},
    {"kind": "scenario_began", "at": "yesterday", "subject": "x", "text": "x"},
    [1],
    None,
]


@pytest.mark.parametrize("sweep", [False, True], ids=["run", "sweep"])
def test_where_nothing_new_was_measured_nothing_new_is_told(out: Path, sweep: bool) -> None:
    """What is told is drawn: beside a measurement, on its machine."""
    if sweep:
        begin_sweep(out, cells=3)
    event(out, "run_began", "run x")
    event(out, "matrix_began", "3 scenarios")
    follower, began_s = Follower(out, Machine()), clock.time()
    for number in range(2):
        clock.sleep(30)
        add_row(out, ConfigHash="c", ScenarioHash=f"s{number}")
        event(out, "scenario_ended", "w: no errors", "w")
    found = follower.look()
    assert (found["done"], found["all"], found["end_s"]) == (2, 3, began_s + 90)
    clock.sleep(10)
    assert follower.look() == found
    add_row(out, ConfigHash="c", ScenarioHash="s2")
    event(out, "scenario_ended", "w: no errors", "w")
    assert follower.look()["end_s"] is None


def test_a_look_does_not_go_through_all_runs_again(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long sweep has thousands, and is measured beside it."""
    folder, listed = out.with_suffix(".runs"), list[object]()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (listed.append(path), scandir(path))[1])
    event(out, "run_began", "run x")
    follower = Follower(out, Machine())
    follower.look()
    os.utime(folder, (1, 1))
    for _ in range(3):
        follower.look()
    assert listed == [folder, folder], "when it was new, and when it had changed"
    event(out, "run_began", "run y", run="20260102T000000Z-abc123")
    assert follower.look()["step"] == "run began: run y"
    event(out, "run_began", "run z", run="20260103T000000Z-abc123")
    assert follower.look()["step"] == "run began: run z", "also where both began within one tick of the file system"


def test_lines_and_rows_that_are_none_of_ours_are_left_out(out: Path) -> None:
    """Of another version, or of another program, and those that no CSV has."""
    begin_sweep(out)
    event(out, "run_began", "run x")
    before = (follower := Follower(out, Machine())).look()
    add(out.with_suffix(".sweep.jsonl"), *FOREIGN)
    add(out.with_suffix(".runs") / RUN / "events.jsonl", *FOREIGN)
    add_row(out, ConfigHash="c", ScenarioHash="s0", Error="x" * 200_000)  # a field of a CSV has at most 128 KiB
    with out.open("a") as file:
        file.write('"' + "x" * 200_000 + "\n")
    add_row(out, ConfigHash="c", ScenarioHash="s0", Timestamp="2026-99-01T00:00:00.000Z")
    add_row(out, ConfigHash="c", ScenarioHash="s1", Timestamp="-")
    for found in (follower.look(), Follower(out, Machine()).look()):
        assert all(found[name] == before[name] for name in ("course", "step", "all", "now"))
        assert (found["row_count"], found["done"], found["end_s"]) == (2, 2, None)


def test_a_line_that_has_no_end_yet_waits_for_it(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "a")
    assert tail.more() == ([], False)
    (tmp_path / "a").write_bytes(b"one\ntw")
    assert tail.more() == ([b"one"], True)
    with (tmp_path / "a").open("ab") as file:
        file.write(b"o\n\n")
    assert tail.more() == ([b"two", b""], False)
    (tmp_path / "a").write_bytes(b"x\n")
    assert tail.more() == ([b"x"], True)


@pytest.mark.simulated(seeds=5)
def test_readers_have_each_state_once_and_know_the_last_one() -> None:
    world = World.current
    state, began_ns = State(), world.now_ns
    assert state.after(0, 15.0) == (0, b"", False) and world.now_ns - began_ns == 15 * 10**9

    def publish() -> None:
        clock.sleep(5)
        for told, ended in (("a", False), ("a", False), ("b", True)):
            state.publish({"told": told}, ended)
            clock.sleep(5)

    clock.Thread(target=publish).start()
    number, data, ended = state.after(0, 15.0)
    assert (number, data, ended) == (1, b'{"told":"a"}', False), "the same again is nothing new"
    assert state.after(number, 15.0) == (2, b'{"told":"b"}', True) and world.now_ns - began_ns == 30 * 10**9
