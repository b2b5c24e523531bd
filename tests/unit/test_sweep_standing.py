"""Sweeps whose testbeds stand from one topology to the next, on fakes: what is reused, and what ends that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import Interrupted, RunError
from containernet_env.base.stop import Stop
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.results.run_directory import read_run
from containernet_env.runs import measure as measure_module
from containernet_env.sweep.design import design
from containernet_env.sweep.runner import Counts, Request, Sweep
from tests.simulated_time import World
from tests.unit import sweep_fakes
from tests.unit.run_fakes import CONFIG, FakeTestbed, rows
from tests.unit.sweep_fakes import Answers, Notes, failing, lines, measured, swept

answers, beds = sweep_fakes.answers, sweep_fakes.beds
AXES = ("link_delay=1ms,3ms", "cpus=0.5,1", "clients=5,10")
CELLS = 8


@pytest.fixture(autouse=True)
def _on_fakes(answers: Answers) -> None:
    """All of them."""


def kinds(out: Path) -> list[list[str]]:
    """The kinds of the events of each run, in the order of the runs."""
    directories = {directory.name.rpartition("-")[2]: directory for directory in out.with_suffix(".runs").iterdir()}
    runs = [directories[line["run"]] for line in lines(out, "run")]
    return [[event["kind"] for event in read_run(directory).events] for directory in runs]


def test_a_block_has_one_testbed_where_links_and_cpu_limits_alone_differ(
    beds: list[FakeTestbed], tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    assert swept(out, *AXES, repeat=2) == Counts(2 * CELLS, 0, 0)
    assert [(bed.ups, bed.downs, bed.rests, len(bed.turned)) for bed in beds] == [(1, 1, 3, 3)] * 2
    found = [row["Reused"] for row in rows(out)]
    assert found[::8] == ["nothing"] * 2 and set(found[1::2]) == {"cluster"}
    expected = [change.reused for bed in beds for change in bed.turned]
    assert [value for number, value in enumerate(found[::2]) if number % 4] == expected
    assert {row["Valid"] for row in rows(out)} == {"yes"}, "each topology has its own proof after its last cell"
    assert [line["repetition"] for line in lines(out, "run")] == [1] * 4 + [2] * 4
    assert len({row["RunId"] for row in rows(out)}) == 8
    for number, told in enumerate(kinds(out)):
        assert ("testbed_reused" in told, told[-2]) == (
            number % 4 > 0,
            "tear_down_began" if number % 4 == 3 else "testbed_left",
        )
    assert [bed.plan.options.seed for bed in beds] == [5, 6]


def test_what_is_changed_follows_from_the_two_topologies(beds: list[FakeTestbed], tmp_path: Path) -> None:
    swept(tmp_path / "cpus.csv", "cpus=0.5,0.75,1")
    for change in beds[0].turned:
        assert [host.name for host in change.limits] == ["etcd1", "etcd2", "etcd3"] and not change.links
    swept(tmp_path / "links.csv", "link_delay=1ms,2ms")
    (change,) = beds[1].turned
    assert [link.a for link in change.links] == ["etcd1", "etcd2", "etcd3", "benchmark"] and not change.limits


def test_topologies_that_take_testbeds_of_their_own_have_them(beds: list[FakeTestbed], tmp_path: Path) -> None:
    """Those that can follow each other do, also where another one was drawn between them."""
    out = tmp_path / "out.csv"
    swept(out, "mem=256m,512m", "cpus=0.25,0.5,0.75,1", repeat=3)
    assert [(bed.ups, bed.downs, len(bed.turned)) for bed in beds] == [(1, 1, 3)] * 6
    memory = [[row["ConfigHash"] for row in rows(out)][start : start + 4] for start in range(0, 24, 4)]
    assert all(len(set(block)) == 4 for block in memory)


def test_a_change_that_fails_is_told_and_a_new_testbed_brought_up(
    beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, notes = tmp_path / "out.csv", Notes()
    problems = [RunError("the kernel holds cpu_quota_us=50000 instead of 100000")]
    turn = FakeTestbed.turn_to

    def fail(self: FakeTestbed, *arguments: Any) -> None:
        if problems:
            raise problems.pop()
        turn(self, *arguments)

    monkeypatch.setattr(FakeTestbed, "turn_to", fail)
    assert swept(out, *AXES, notes=notes) == Counts(CELLS, 0, 0)
    assert [(bed.ups, bed.downs) for bed in beds] == [(1, 1)] * 2
    assert [row["Reused"] for row in rows(out)][:4] == ["nothing", "cluster"] * 2
    (note,) = [note for note in notes.notes if "cpu_quota_us=50000" in note]
    assert "could not be changed" in note and "a new one is brought up" in note
    assert "testbed_not_reused" in kinds(out)[1] and set(measured(out).values()) == {1}


@pytest.mark.parametrize("reason", ["a cell failed", "the network is wrong", "the network is not proved", "unfit"])
def test_a_testbed_on_which_something_went_wrong_is_left_to_nobody(
    reason: str, answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = NetworkProof("after", (Check("etcd1>s1", "rate", "wrong", "rate of etcd1>s1: 10, not 1000 Mbit/s"),))
    proofs = {"the network is wrong": wrong, "the network is not proved": RunError("something keeps it busy")}
    first: list[Any] = [proofs[reason]] if reason in proofs else []

    def prove(self: FakeTestbed, moment: str) -> NetworkProof:
        proof = first.pop() if first else NetworkProof("after", ())
        if isinstance(proof, RunError):
            raise proof
        self.unproved = None if proof.passed and not (reason == "unfit" and self is beds[0]) else "it is not"
        return proof

    monkeypatch.setattr(FakeTestbed, "prove_again", prove)
    if reason == "a cell failed":
        answers.special[2] = failing("100 requests failed")
    out = tmp_path / "out.csv"
    swept(out, "cpus=0.25,0.5,0.75", "clients=5,10", tries=1)
    assert [(bed.ups, bed.downs, len(bed.turned)) for bed in beds] == [(1, 1, 0), (1, 1, 1)]
    assert "testbed_not_left" in kinds(out)[0] and "testbed_left" in kinds(out)[1]


def test_what_ends_a_testbed_between_two_topologies_is_told_before_the_next_one(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, notes, rest = tmp_path / "out.csv", Notes(), FakeTestbed.rest

    def lose(self: FakeTestbed, loaded: bool) -> None:
        rest(self, loaded)
        if self is beds[0]:
            self.failure = "the link emulator ended: killed by SIGKILL"

    monkeypatch.setattr(FakeTestbed, "rest", lose)
    assert swept(out, *AXES, notes=notes) == Counts(CELLS, 0, 0)
    assert [(bed.ups, bed.downs) for bed in beds] == [(1, 1)] * 2
    assert any("the link emulator ended: killed by SIGKILL" in note for note in notes.notes)
    assert {row["Error"] for row in rows(out)} == {"-"}


@pytest.mark.parametrize("moment", ["in a cell", "between two", "in the change"])
def test_ctrl_c_leaves_nothing_standing(
    moment: str, answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, stop, notes = tmp_path / "out.csv", Stop(), Notes()
    strike: Callable[[], Any] = lambda: stop.request(2) or stop.check()  # noqa: E731
    if moment == "in a cell":
        answers.special[3] = strike
    elif moment == "between two":
        rest = FakeTestbed.rest
        monkeypatch.setattr(FakeTestbed, "rest", lambda self, loaded: (rest(self, loaded), stop.request(2))[0])
    else:
        monkeypatch.setattr(FakeTestbed, "turn_to", lambda self, *_: strike())
    with pytest.raises(Interrupted):
        swept(out, *AXES, stop=stop, notes=notes)
    assert [(bed.ups, bed.downs) for bed in beds] == [(1, 1)]
    assert [(row["Error"], row["Valid"]) for row in rows(out)] == [("-", "yes")] * 2
    assert len(lines(out, "sweep")) == len(lines(out, "sweep_ended")) == 1, "it was not killed"
    monkeypatch.undo()


def test_a_fault_while_a_testbed_is_left_takes_it_down(
    beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rest(self: FakeTestbed, loaded: bool) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(FakeTestbed, "rest", rest)
    with pytest.raises(ValueError, match="a fault of ours"):
        swept(tmp_path / "out.csv", *AXES)
    assert [(bed.ups, bed.downs) for bed in beds] == [(1, 1)]


def test_an_error_that_ends_the_sweep_leaves_nothing_standing(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> Any:
        raise ValueError("a fault of ours")

    images = measure_module.ready_images()
    monkeypatch.setattr(measure_module, "ready_images", lambda *of: gone() if beds else images)
    with pytest.raises(ValueError, match="a fault of ours"):
        swept(tmp_path / "out.csv", *AXES)
    assert [(bed.ups, bed.downs, bed.rests) for bed in beds] == [(1, 1, 1)]


def test_what_a_disk_takes_counts_once_for_all_topologies_of_a_testbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    monkeypatch.setattr(measure_module, "keep_costs", lambda plan, facts, clusters, _: kept.append(len(clusters)))
    swept(tmp_path / "out.csv", "cpus=0.5,0.75,1")
    assert kept == [1, 0, 0]


def test_the_data_set_is_loaded_once_for_all_topologies_of_a_testbed(
    answers: Answers, beds: list[FakeTestbed], tmp_path: Path
) -> None:
    made = design(CONFIG, ("cpus=0.5,1",), quick=True, only=["read-linearizable-50x*"], seed=5)
    sweep = Sweep(made, tmp_path / "out.csv", Request())
    World(0).run(lambda: sweep.carry_out(Notes(), Stop()))
    assert len(beds) == 1 and answers.asked == len(made.cells) + 1
