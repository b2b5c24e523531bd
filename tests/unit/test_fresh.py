"""`run --repeat N --fresh`: a cluster for each repetition, and every way in which such a run can end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base.errors import Interrupted, RunError
from containernet_env.base.stop import Stop
from containernet_env.cli import group
from containernet_env.load.server import Answer
from containernet_env.results.csv_file import ResultsFile, RowNotWrittenError
from containernet_env.results.run_directory import find_run, read_run
from containernet_env.runs import follow
from tests.unit.matrix_fakes import result_of
from tests.unit.run_fakes import FakeTestbed, events, on_fakes, rows, run


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeTestbed]:
    monkeypatch.setattr(follow, "DEATH_GRACE_S", 0.05)
    monkeypatch.setattr(follow, "WATCH_INTERVAL_S", 0.01)
    return on_fakes(monkeypatch)


def told(out: Path) -> list[tuple[str, str, str]]:
    return [(row["Repetition"], row["Cluster"], row["Error"]) for row in rows(out)]


def kinds(out: Path) -> list[str]:
    return [event["kind"] for event in events(out)]


def test_each_repetition_has_a_cluster_of_its_own_and_the_one_before_is_gone(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up, most = 0, 0
    real_up, real_down = FakeTestbed.up, FakeTestbed.down

    def count_up(self: FakeTestbed) -> None:
        nonlocal up, most
        real_up(self)
        up += 1
        most = max(most, up)

    def count_down(self: FakeTestbed) -> None:
        nonlocal up
        real_down(self)
        up -= 1

    monkeypatch.setattr(FakeTestbed, "up", count_up)
    monkeypatch.setattr(FakeTestbed, "down", count_down)
    out = tmp_path / "out.csv"
    run(out, repeat=3, fresh=True)
    assert told(out) == [("1", "1", "-"), ("2", "2", "-"), ("3", "3", "-")]
    assert [(bed.ups, bed.downs) for bed in made] == [(1, 1)] * 3
    assert (up, most) == (0, 1)
    assert [len(bed.server.asked) for bed in made] == [1, 1, 1]
    found = read_run(find_run(out))
    assert found.manifest is not None
    assert [(record["number"], record["leader_at_start"]) for record in found.manifest["clusters"]] == [
        (1, "etcd1"), (2, "etcd1"), (3, "etcd1"),
    ]  # fmt: skip
    assert found.manifest["clusters"][0]["sync"]["etcd1"]["median_ns"] == 500_000
    shown = CliRunner().invoke(group, ["show", str(out)]).output
    assert "3 clusters, one after the other, led at their starts by etcd1, etcd1, etcd1\n" in shown
    assert [path.name for path in found.logs] == ["etcd1.2.log", "etcd1.3.log", "etcd1.log"]
    assert [line["cluster"] for line in found.scenarios] == [1, 2, 3]
    assert (kinds(out).count("matrix_began"), kinds(out).count("run_ended"), kinds(out)[-1]) == (1, 1, "run_ended")


def test_without_fresh_the_rows_say_that_they_share_one(made: list[FakeTestbed], tmp_path: Path) -> None:
    run(tmp_path / "out.csv", repeat=3)
    assert told(tmp_path / "out.csv") == [("1", "1", "-"), ("2", "1", "-"), ("3", "1", "-")]
    assert len(made) == 1


def test_a_cluster_that_dies_costs_its_own_repetition(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three members die in the first repetition; the second one is measured on new ones."""

    def up(self: FakeTestbed) -> None:
        def die(path: str, body: dict[str, Any]) -> Answer:
            self.cluster.dead = {"etcd1": "etcd1 ended: killed by SIGKILL", "etcd2": "etcd2 ended: killed by SIGKILL"}
            return Answer(None, "10 requests failed")

        if len(made) == 1:
            self.server.behave = die

    monkeypatch.setattr(FakeTestbed, "up", up)
    out = tmp_path / "out.csv"
    result = run(out, repeat=2, fresh=True)
    assert [row[:2] for row in told(out)] == [("1", "1"), ("2", "2")]
    assert told(out)[0][2].startswith("etcd1 ended: killed by SIGKILL; etcd2 ended")
    assert told(out)[1][2] == "-"
    assert result.failed == 1
    assert [bed.downs for bed in made] == [1, 1]


def test_a_testbed_that_has_failed_ends_the_run(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine ends in the second of three repetitions: no third testbed is tried."""

    def up(self: FakeTestbed) -> None:
        def fail(path: str, body: dict[str, Any]) -> Answer:
            self.failure = "the Docker engine has ended"  # type: ignore[assignment]
            return Answer(None, "no answer")

        if len(made) == 2:
            self.server.behave = fail

    monkeypatch.setattr(FakeTestbed, "up", up)
    out = tmp_path / "out.csv"
    run(out, repeat=3, fresh=True)
    assert [error for _, _, error in told(out)] == [
        "-", "the Docker engine has ended; no answer", "not run: the Docker engine has ended",
    ]  # fmt: skip
    assert [bed.downs for bed in made] == [1, 1]


def test_a_testbed_that_does_not_come_up_leaves_the_rest_not_run(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def up(self: FakeTestbed) -> None:
        if len(made) == 2:
            raise RunError("etcd2 did not wait at its gate")

    monkeypatch.setattr(FakeTestbed, "up", up)
    out = tmp_path / "out.csv"
    with pytest.raises(RunError, match="etcd2 did not wait at its gate"):
        run(out, repeat=3, fresh=True)
    assert told(out) == [
        ("1", "1", "-"),
        ("2", "-", "not run: etcd2 did not wait at its gate"),
        ("3", "-", "not run: etcd2 did not wait at its gate"),
    ]
    assert [bed.downs for bed in made] == [1, 1]
    assert (kinds(out).count("run_failed"), kinds(out).count("run_ended")) == (1, 1)


@pytest.mark.parametrize("moment", ["tear-down", "bring-up", "scenario"])
def test_who_asks_a_run_to_end_between_or_in_repetitions_has_every_row_and_nothing_left(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    stop = Stop()
    real_down = FakeTestbed.down

    def down(self: FakeTestbed) -> None:
        real_down(self)
        if moment == "tear-down":
            stop.request()

    def up(self: FakeTestbed) -> None:
        self.ups += 1
        if len(made) == 2 and moment == "bring-up":
            stop.request()
            stop.check()

        def behave(path: str, body: dict[str, Any]) -> Answer:
            if len(made) == 2 and moment == "scenario":
                stop.request()
            return Answer(result_of(), None)

        self.server.behave = behave

    monkeypatch.setattr(FakeTestbed, "up", up)
    monkeypatch.setattr(FakeTestbed, "down", down)
    out = tmp_path / "out.csv"
    with pytest.raises(Interrupted):
        run(out, repeat=3, fresh=True, stop=stop)
    measured = 2 if moment == "scenario" else 1
    errors = [error for _, _, error in told(out)]
    assert len(errors) == 3 and errors[0] == "-"
    assert all(error.startswith("not run: ") for error in errors[measured:])
    assert [bed.downs for bed in made] == [1] * (1 if moment == "tear-down" else 2)
    assert kinds(out).count("run_interrupted") == 1


def test_a_tear_down_that_fails_brings_no_other_cluster_up(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be removed is in the way of the next one, which has the same names."""

    def down(self: FakeTestbed) -> None:
        raise RunError("container cnenv-x-etcd1 could not be removed")

    monkeypatch.setattr(FakeTestbed, "down", down)
    out = tmp_path / "out.csv"
    with pytest.raises(RunError, match="could not be removed"):
        run(out, repeat=2, fresh=True)
    assert len(made) == 1
    assert [error for _, _, error in told(out)] == ["-", "not run: container cnenv-x-etcd1 could not be removed"]
    assert events(out)[-1]["text"] == "2 of 2 scenarios, 1 failed; container cnenv-x-etcd1 could not be removed"


def test_a_row_that_finds_no_room_ends_the_run(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: ResultsFile, row: Any) -> None:
        raise RowNotWrittenError(self.path, OSError(28, "No space left on device"))

    monkeypatch.setattr(ResultsFile, "append", full)
    out = tmp_path / "out.csv"
    with pytest.raises(RunError, match="No space left on device"):
        run(out, repeat=3, fresh=True)
    assert len(made) == 1
    kept = [json.loads(line)["error"] for line in (find_run(out) / "scenarios.jsonl").read_text().splitlines()]
    assert kept[0] is None and len(kept) == 3 and all("not run" in str(error) for error in kept[1:])
