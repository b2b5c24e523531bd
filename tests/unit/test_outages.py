"""What events can have caused: elections, and requests that failed."""

from __future__ import annotations

from typing import Any

import pytest

from containernet_env.model.disruption import Carried, Disruptions
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outages import explains_election, failures_explained
from tests.unit.answers import closed_loop

MS = 1_000_000


def carried(verb: Any, who: str, at_ms: int, value: Any = None, leader: str | None = "etcd1", **others: Any) -> Carried:
    """Something that was done; who: the numbers of members."""
    values: dict[str, Any] = {"number": 1, "occurrence": 1, "cause": "event", "target": "x", **others}
    members = tuple(f"etcd{number}" for number in who)
    at_ns = at_ms * MS
    times = {"asked_ns": at_ns, "at_ns": at_ns, "since_start_ns": at_ns}
    return Carried(verb=verb, value=value, members=members, leader=leader, **{**times, **values})


def explained(*items: Carried, size: int = 3) -> bool:
    """By an election timeout of 1 s."""
    return explains_election(Disruptions("1", items), size, 1000 * MS)


EXPLAINED = {
    "killed leader": [carried("kill", "1", 0), carried("restart", "1", 10)],
    "a leader that is cut off": [carried("partition", "1", 0), carried("heal", "1", 500)],
    "frozen where nobody is known to lead": [carried("freeze", "2", 0, leader=None)],
    "all followers cut off": [carried("partition", "23", 0)],
    "followers frozen at the same time": [carried("freeze", "2", 0), carried("freeze", "3", 900)],
    "one dead and one frozen": [carried("kill", "2", 0), carried("freeze", "3", 900), carried("restart", "2", 1900)],
    "a member that takes long to answer again": [
        carried("kill", "2", 0),
        carried("restart", "2", 100, answered_ns=3000 * MS),
        carried("freeze", "3", 1000),
    ],
    "an undoing that failed": [
        carried("freeze", "2", 0),
        carried("thaw", "2", 100, problem="it stays frozen"),
        carried("freeze", "3", 1000),
    ],
    "an answer of the leader takes the timeout": [carried("delay", "1", 0, 500 * MS)],
    "answers between leader and followers do": [
        carried("delay", "1", 0, 250 * MS),
        carried("delay", "23", 9, 250 * MS),
    ],
    "a leader that loses frames": [carried("loss", "1", 0, 0.1)],
    "a full queue of the leader takes the timeout": [carried("rate", "1", 0, 24_000_000)],
    "the reset of another event leaves it": [
        carried("delay", "1", 0, 600 * MS),
        carried("reset", "1", 100, number=2, cause="for"),
    ],
}
NOT_EXPLAINED = {
    "nothing": [],
    "followers at different times": [
        carried("freeze", "2", 0),
        carried("thaw", "2", 900, cause="for"),
        carried("freeze", "3", 901),
    ],
    "followers delayed a little": [carried("delay", "2", 0, MS), carried("delay", "3", 900, MS)],
    "a killed follower": [carried("kill", "2", 0)],
    "a restarted leader": [carried("restart", "1", 0)],
    "a leader delayed a little": [carried("delay", "1", 0, 499 * MS)],
    "a leader without loss": [carried("loss", "1", 0, 0.0)],
    "a leader with enough of a rate": [carried("rate", "1", 0, 25_000_000), carried("rate", "1", 9)],
    "a leader frozen for a moment": [carried("freeze", "1", 0), carried("thaw", "1", 499)],
    "followers overlapping for a moment": [
        carried("freeze", "2", 0),
        carried("freeze", "3", 900),
        carried("thaw", "2", 1399),
    ],
    "a large delay that a small one replaced": [carried("delay", "1", 0, 900 * MS), carried("delay", "1", 100, MS)],
    "one that ended with the scenario": [carried("delay", "1", 0, 900 * MS), carried("reset", "1", 100, cause="end")],
    "one that its own end took back": [carried("delay", "1", 0, 900 * MS), carried("reset", "1", 100, cause="for")],
    "a small delay where nobody is known to lead": [carried("delay", "1", 0, MS, leader=None)],
    "a frozen member that was killed and came back": [
        carried("freeze", "2", 0),
        carried("kill", "2", 100),
        carried("restart", "2", 200),
        carried("freeze", "3", 1000),
    ],
    "an event that did not happen": [carried("freeze", "1", 0, at_ns=None, since_start_ns=None)],
}


@pytest.mark.parametrize("items", EXPLAINED.values(), ids=EXPLAINED)
def test_an_election_is_explained_by_what_ends_a_lead(items: list[Carried]) -> None:
    assert explained(*items)


@pytest.mark.parametrize("items", NOT_EXPLAINED.values(), ids=NOT_EXPLAINED)
def test_an_election_is_not_explained_by_anything_else(items: list[Carried]) -> None:
    assert not explained(*items)


def test_a_leader_of_many_needs_a_majority_only() -> None:
    two, three = carried("freeze", "23", 0), carried("freeze", "234", 0)
    assert not explained(two, size=5)
    assert explained(three, size=5)
    assert explained(two, size=4)
    assert not explained(carried("freeze", "1", 0), size=1)
    assert explained(carried("kill", "1", 0), size=1)


@pytest.mark.parametrize(
    ("item", "timeout_ms", "is_explained"),
    [
        (carried("delay", "2", 0, 100 * MS), 1000, True),  # a request that crosses the link five times there and back
        (carried("delay", "2", 0, 100 * MS), 1001, False),
        (carried("delay", "2", 0, 250 * MS), 9000, True),  # an answer over two such links takes the election timeout
        (carried("delay", "2", 0, 249 * MS), 9000, False),
        (carried("partition", "2", 199), 9000, True),
        (carried("partition", "2", 200), 9000, False),  # they failed before
    ],
)
def test_failed_requests_are_explained_by_what_keeps_answers_away(
    item: Carried, timeout_ms: int, is_explained: bool
) -> None:
    made = closed_loop()
    row = {**made["timeline"][0], "second": 0.1, "failed": 40}
    load = LoadResult.from_json({**made, "timeline_interval_s": 0.1, "timeline": [row]})
    assert failures_explained(load, Disruptions("1", (item,)), 1000 * MS, timeout_ms * MS) is is_explained
