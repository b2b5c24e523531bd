"""The matrix: who leads in a scenario, what follows from it, and what a second cluster does."""

from __future__ import annotations

from typing import Any

import pytest

from containernet_env.load.server import Answer
from containernet_env.model.scenario import Scenario
from tests.unit.matrix_fakes import Bench, FakeCluster, read, result_of, write

pytestmark = pytest.mark.simulated(seeds=3)


def test_a_leader_change_is_told() -> None:
    bench = Bench(write("w"), write("w2"), write("w3"), write("w4"))
    # At the start and at the end of each; the third one changed hands before it began.
    bench.cluster.leaders = iter(["etcd1", "etcd1", "etcd1", "etcd3", "etcd2", "etcd2", "etcd2", None])
    bench.matrix.run()
    rows = bench.rows()
    assert [row["Leader"] for row in rows] == ["etcd1", "etcd1>etcd3", "etcd2", "etcd2>none"]
    assert [row["LeaderAtStart"] for row in rows] == ["etcd1", "etcd1", "etcd2", "etcd2"]
    assert [(row["TermAtStart"], row["TermAtEnd"]) for row in rows] == [("2", "2"), ("2", "3"), ("4", "4"), ("4", "-")]
    assert [(f.kind, f.effect, f.value, f.subject) for o in bench.outcomes for f in o.findings] == [
        ("leader_changed", "invalid", 1, "etcd3"),
        ("leader_changed", "invalid", None, None),
    ]


def test_an_election_that_the_same_member_wins_is_told_too() -> None:
    bench = Bench(write("w"))
    bench.cluster.leaders = iter(["etcd1"])

    def lose_and_win(path: str, body: dict[str, Any]) -> Answer:
        bench.cluster.term += 2
        return Answer(result_of(), None)

    bench.server.behave = lose_and_win
    bench.matrix.run()
    assert bench.findings() == ["etcd1 led at the start (term 2), etcd1 again at the end (term 4)"]
    assert bench.rows()[0]["Leader"] == "etcd1"


def test_without_a_leader_in_the_config_nothing_is_moved() -> None:
    bench = Bench(write("w"), read("r"))
    bench.matrix.run()
    assert bench.cluster.moves == []


def test_leadership_is_moved_before_each_scenario_and_after_the_data_set_is_loaded() -> None:
    bench = Bench(read("r"), write("w"))
    bench.target.leader_wanted = "etcd3"
    seen: list[tuple[str, str | None]] = []

    def behave(path: str, body: dict[str, Any]) -> Answer:
        seen.append((path, bench.cluster.led_by))
        return Answer(result_of(), None)

    bench.server.behave = behave
    bench.matrix.run()
    assert [led for _, led in seen] == ["etcd1", "etcd3", "etcd3"]
    assert bench.cluster.moves == ["etcd3", "etcd3"]
    assert [(row["LeaderAtStart"], row["Leader"], row["Error"]) for row in bench.rows()] == [
        ("etcd3", "etcd3", "-")
    ] * 2
    assert bench.findings() == []


def test_a_leader_that_cannot_be_made_leaves_a_row_that_says_so_and_the_next_is_tried() -> None:
    bench = Bench(write("w"), write("w2"))
    bench.target.leader_wanted = "etcd3"
    bench.cluster.cannot_move = "etcd1 did not hand over"
    move = bench.cluster.move_leader

    def later(name: str, timeout_s: float, broken: Any) -> Any:
        try:
            return move(name, timeout_s, broken)
        finally:
            bench.cluster.cannot_move = None

    bench.cluster.move_leader = later  # type: ignore[method-assign]
    bench.matrix.run()
    assert bench.errors() == ["not run: etcd3 could not be made the leader: etcd1 did not hand over", "-"]
    assert len(bench.server.asked) == 1
    assert bench.rows()[0]["LeaderAtStart"] == "-"


def test_a_leader_that_cannot_be_made_on_a_cluster_that_is_lost_ends_the_matrix() -> None:
    bench = Bench(write("w"), write("w2"))
    bench.target.leader_wanted = "etcd3"
    bench.cluster.cannot_move = "no leader that all members know"
    bench.cluster.answering = False
    bench.matrix.run()
    assert bench.errors()[1].startswith("not run: the cluster did not answer within")
    assert bench.cluster.moves == ["etcd3"]


def test_the_floor_is_that_of_a_leader_and_of_members_that_stayed() -> None:
    bench = Bench(write("w"), write("w2"), write("w3"))
    asked: list[tuple[str, str | None, set[str]]] = []

    def least(scenario: Scenario, leader: str | None, living: frozenset[str]) -> float | None:
        asked.append((scenario.name, leader, set(living)))
        return 0.0185 if leader else None

    bench.target.least_median_s = least
    bench.cluster.leaders = iter(["etcd1", "etcd1", "etcd1", "etcd3"])

    def behave(path: str, body: dict[str, Any]) -> Answer:
        if len(bench.server.asked) == 3:
            bench.cluster.dead = {"etcd2": "etcd2 ended: killed by SIGKILL"}
        return Answer(result_of(), None)

    bench.server.behave = behave
    bench.matrix.run()
    members = {"etcd1", "etcd2", "etcd3"}
    assert asked == [("w", "etcd1", members), ("w2", None, members)]
    floors = [(row["Floor_50%_s"], row["AboveFloor_50%_s"]) for row in bench.rows()]
    assert floors == [("0.018500", "0.001500"), ("-", "-"), ("-", "-")]


def test_a_second_cluster_goes_on_where_the_first_one_was_lost() -> None:
    """Of four scenarios the first two are on a cluster that dies in the first one."""
    bench = Bench(read("a"), read("b"), read("c"), read("d"))
    first, second = bench.cluster, FakeCluster()

    def die(path: str, body: dict[str, Any]) -> Answer:
        if len(bench.server.asked) == 2:
            first.dead = {"etcd1": "etcd1 ended", "etcd2": "etcd2 ended"}
            return Answer(None, "no answer")
        return Answer(result_of(), None)

    bench.server.behave = die
    assert bench.matrix.run(2)
    assert bench.errors() == ["etcd1 ended; etcd2 ended; no answer", "not run: etcd1 ended; etcd2 ended"]
    bench.target.cluster = second
    bench.matrix.move_to(bench.target)
    assert not bench.matrix.run(4)
    assert bench.errors()[2:] == ["-", "-"]
    assert [row["Cluster"] for row in bench.rows()] == ["1", "-", "2", "2"]
    # Its data set is loaded anew: load, a; load, c, d.
    assert len(bench.server.asked) == 5


def test_nothing_goes_on_where_it_is_not_the_cluster_that_was_lost() -> None:
    bench = Bench(write("a"), write("b"), write("c"))
    bench.target.failure = "the Docker engine ended"
    assert not bench.matrix.run(1)
    assert bench.errors() == ["not run: the Docker engine ended"] * 3
